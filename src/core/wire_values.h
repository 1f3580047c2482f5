/*
 * One value to and from the types of wires, by the rule for small numbers (core/float_bits.h).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_WIRE_VALUES_H
#define GW_WIRE_VALUES_H

#include "core/float_bits.h"
#include "core/half.h"
#include "gradwire/gradwire.h"

/* Value i of src, not flushed. */
static inline float gw_wire_load(const uint8_t *src, unsigned dtype, size_t i)
{
    if (dtype == GW_FP32) {
        return gw_float_from_bits(gw_load32(src + 4 * i));
    }
    uint32_t half = gw_load16(src + 2 * i);
    return gw_float_from_bits(dtype == GW_BF16 ? half << 16 : gw_widen_fp16(half));
}

/* Bits of an fp32 as dtype: NaN is canonical, an fp16 that would be -0 is +0. */
static inline uint32_t gw_wire_narrow(uint32_t bits, unsigned dtype)
{
    int is_nan = (bits & GW_F32_ABS) > GW_F32_INF;

    if (dtype == GW_FP32) {
        return is_nan ? 0x7fc00000u : bits;
    }
    if (dtype == GW_BF16) {
        return is_nan ? 0x7fc0u : gw_narrow_bf16(bits);
    }
    const uint32_t half = is_nan ? 0x7e00u : gw_narrow_fp16(bits);
    return half == 0x8000u ? 0 : half;
}

/* Largest double that rounds to a finite fp32, exclusive: 2^128 - 2^103. */
#define GW_F32_OVERFLOW 0x1.ffffffp+127

/* Rounded to fp32: magnitudes below 2^-126 are +0. */
GW_INLINE float gw_narrow_double(double value)
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

#endif
