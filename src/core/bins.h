/*
 * Bin of a rounded value: where the survey counts it and the ranker looks its rank up (see kernels.h).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CORE_BINS_H
#define GW_CORE_BINS_H

#include "core/kernels.h"

/* Level of a drop that is a multiple (0..3) of the explicit step: drop / step without a division. The factors are
 * ceil(256 / step): (3 * step * factor) >> 8 = 3 for all three. */
static inline uint32_t gw_level_of(uint32_t drop, uint32_t dtype)
{
    uint32_t factor = dtype == GW_FP32 ? 43 : dtype == GW_BF16 ? 128 : 86;
    return drop * factor >> 8;
}

static inline uint32_t gw_bin_of(uint32_t bits, uint32_t keep, uint32_t dtype, uint32_t derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    uint32_t magnitude = bits & (dtype == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    uint32_t exponent = magnitude >> t->mantissa_bits;
    if (dtype == GW_FP16) {
        if (magnitude == 0) {
            /* -0 exists in strict frames only and is escaped: it shares the bin of infinity and NaN. */
            return bits == 0 ? GW_SURVEY_FP16_ZERO : 4u * t->exponent_mask;
        }
    } else if (exponent == 0) {
        return bits != 0;
    }
    return 4 * exponent + (derived ? 0 : gw_level_of(t->mantissa_bits + 1u - keep, dtype));
}

#endif
