/*
 * Stage norm: one uint32 pattern per block whose integer maximum over workers bounds the block of every
 * worker.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "thc/norm_pattern.h"
#include "thc/thc_values.h"

#define GW_NORM_LANES 64u
uint32_t gw_thc_norm_scalar(const float *x, size_t len)
{
    float sum[GW_NORM_LANES] = {0};
    uint32_t largest = 0;

    for (size_t i = 0; i < len; i++) {
        uint32_t magnitude = gw_bits_from_float(x[i]) & GW_F32_ABS;
        largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= GW_F32_INF) {
        return GW_THC_NORM_NONFINITE;
    }
    if (largest == 0) {
        return 0;
    }

    uint32_t exponent = largest >> 23;
    uint32_t floor_bits = gw_thc_window_floor(exponent);
    float scale = gw_thc_window_scale(exponent);
    for (size_t i = 0; i < len; i++) {
        float y = gw_thc_window(x[i], floor_bits, scale);
        sum[i % GW_NORM_LANES] += y * y;
    }
    for (size_t half = GW_NORM_LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++) {
            sum[j] += sum[j + half];
        }
    }

    return gw_thc_norm_pattern(sum[0], exponent);
}

void gw_thc_extent_scalar(uint32_t patterns[2], const float *x, size_t len)
{
    gw_thc_extent_values(patterns, x, len);
}
