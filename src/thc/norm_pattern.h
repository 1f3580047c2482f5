/*
 * Stage norm: from the sum of squares in the window to the pattern of the norm.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_NORM_PATTERN_H
#define GW_NORM_PATTERN_H

#include "core/float_bits.h"
#include "core/sqrt.h"
#include "gradwire/thc.h"

/* 4 <= sum <= 16 * 8192: the root's exponent is 128..135, so with an exponent of the window of at least 1 the
 * result is never subnormal. */
static inline uint32_t gw_thc_norm_pattern(float sum, uint32_t exponent)
{
    const uint32_t root = gw_bits_from_float(gw_sqrt(sum));
    const uint32_t result_exponent = (root >> 23) + exponent - 128u;
    return result_exponent >= 255u ? GW_THC_NORM_NONFINITE : (result_exponent << 23) | (root & 0x7fffffu);
}

#endif
