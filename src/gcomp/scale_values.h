/*
 * Decoded values times a scale (docs/numerics.md section 5), one at a time. The scalar kernel does all fp32
 * values so, vector kernels those after their last whole register.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SCALE_VALUES_H
#define GW_SCALE_VALUES_H

#include "core/bytes.h"

/* After a dead zone most values of a mean are zeros, in no order, and branches would be mispredicted: masks
 * select, and compilers make vectors of loops. */
static inline uint32_t gw_mask_if(int condition)
{
    return 0u - (uint32_t)condition;
}

/* The product of an fp32 value and the scale. A product of at most 2^-126 is +0 in default mode: with FTZ
 * some processors decide before rounding, others after it, what is subnormal. */
static inline uint32_t gw_scaled_bits(uint32_t value, float scale, uint32_t strict)
{
    value = strict ? value : value & gw_mask_if((value & 0x7f800000u) != 0);
    uint32_t product = gw_bits_from_float(gw_float_from_bits(value) * scale);
    const int32_t magnitude = (int32_t)(product & 0x7fffffff);
    product = strict ? product : product & gw_mask_if(magnitude > 0x00800000);
    const uint32_t is_nan = gw_mask_if(magnitude > 0x7f800000);
    return (product & ~is_nan) | (0x7fc00000u & is_nan);
}

/* Values [first, len). */
static inline void gw_scale_fp32(void *values, size_t first, size_t len, float scale, uint32_t strict)
{
    uint8_t *const bytes = (uint8_t *)values;
    for (size_t i = first; i < len; i++) {
        gw_store32(bytes + 4 * i, gw_scaled_bits(gw_load32(bytes + 4 * i), scale, strict));
    }
}

#endif
