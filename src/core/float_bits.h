/*
 * Bit patterns of fp32, and the rule for small numbers: subnormals and -0 count as +0. It is applied to bit
 * patterns, so that results do not depend on the flush modes of the processor (docs/numerics-thc.md,
 * "Small numbers").
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FLOAT_BITS_H
#define GW_FLOAT_BITS_H

#include "core/bytes.h"

#define GW_F32_ABS 0x7fffffffu /* all but the sign */
#define GW_F32_INF 0x7f800000u /* the lowest magnitude that is not finite */
#define GW_F32_MIN 0x00800000u /* 2^-126, the lowest normal magnitude */

/* 2^exponent, -1022 <= exponent <= 1023. */
GW_INLINE double gw_f64_pow2(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    GW_MEMCPY(&value, &bits, sizeof value);
    return value;
}

/* +0 for subnormals and zeros, else the value. */
GW_INLINE float gw_f32_flush(float value)
{
    return (gw_bits_from_float(value) & GW_F32_ABS) < GW_F32_MIN ? 0.0f : value;
}

#endif
