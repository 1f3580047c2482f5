/*
 * Stage unpack: summed lanes to centred, scaled fp32; and the residual of error feedback.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/thc_kernels.h"
#include "thc/thc_float.h"

static uint32_t lane_at(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    if (lane_bits == 8) {
        return lanes[i];
    }
    return lane_bits == 16 ? gw_load16(lanes + 2 * i) : gw_load32(lanes + 4 * i);
}

void gw_thc_unpack_scalar(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, uint32_t center,
                          float scale)
{
    for (size_t i = 0; i < len; i++) {
        int32_t centred = (int32_t)(2 * lane_at(lanes, i, lane_bits)) - (int32_t)center;
        dst[i] = (float)centred * scale;
    }
}

/* Largest double that rounds to a finite fp32, exclusive: 2^128 - 2^103. */
#define GW_F32_OVERFLOW 0x1.ffffffp+127

static float narrow(double value)
{
    double magnitude = value < 0 ? -value : value;
    if (magnitude < 0x1p-126) {
        return 0.0f;
    }
    if (magnitude >= GW_F32_OVERFLOW) {
        return gw_float_from_bits(value < 0 ? GW_F32_INF | 0x80000000u : GW_F32_INF);
    }
    return (float)value;
}

void gw_thc_unpack_plain_scalar(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step,
                                double base)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = narrow((double)lane_at(lanes, i, lane_bits) * step + base);
    }
}

void gw_thc_residual_scalar(float *error, const float *x, const float *y, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        float rest = gw_f32_flush(x[i] - y[i]);
        GW_MEMCPY((uint8_t *)(void *)error + i * sizeof rest, &rest, sizeof rest); /* any alignment */
    }
}
