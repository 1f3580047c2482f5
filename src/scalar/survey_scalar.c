/*
 * Survey: counts (exponent, level) pairs. It needs no window, so it can run before the codebook's base is known.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bins.h"
#include "core/kernels.h"

void gw_survey_scalar(uint32_t *bins, const uint32_t *bits, const uint8_t *keep, size_t len, uint32_t dtype,
                      uint32_t derived)
{
    switch (dtype * 2 + derived) {
    case GW_FP32 * 2:
        for (size_t i = 0; i < len; i++) {
            bins[gw_bin_of(bits[i], keep[i], GW_FP32, 0)]++;
        }
        break;
    case GW_FP32 * 2 + 1:
        for (size_t i = 0; i < len; i++) {
            bins[gw_bin_of(bits[i], keep[i], GW_FP32, 1)]++;
        }
        break;
    default:
        for (size_t i = 0; i < len; i++) {
            bins[gw_bin_of(bits[i], keep[i], dtype, derived)]++;
        }
        break;
    }
}
