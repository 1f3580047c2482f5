/*
 * fp16 and bf16 to and from fp32, on bit patterns. Widening is exact; narrowing rounds once, to nearest, ties
 * to even. NaN is left to the caller (sums write the canonical NaN).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_HALF_H
#define GW_HALF_H

#include <stdint.h>

#include "core/bytes.h"

GW_INLINE uint32_t gw_widen_fp16(uint32_t h)
{
    uint32_t sign = (h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;
    uint32_t exponent = magnitude >> 10;
    if (exponent == 31) {
        return sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
    }
    if (exponent != 0) {
        return sign | ((magnitude << 13) + (112u << 23));
    }
    if (magnitude == 0) {
        return sign;
    }
    /* Subnormal: shift the leading one to where fp32 has its hidden bit. Every step up to there halves the
     * exponent's distance to 2^-14, whose exponent field is 113. */
    uint32_t field = 113;
    while ((magnitude & 0x400) == 0) {
        magnitude <<= 1;
        field--;
    }
    return sign | field << 23 | (magnitude & 0x3ff) << 13;
}

/* `bits` is not NaN. */
GW_INLINE uint32_t gw_narrow_fp16(uint32_t bits)
{
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000u) { /* 65520, halfway between the largest finite value and 2^16 */
        return sign | 0x7c00;
    }
    if (magnitude >= 0x38800000u) { /* 2^-14: normal */
        magnitude -= 112u << 23;
        return sign | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below 2^-25, half of the smallest subnormal */
        return sign;
    }
    uint32_t m = (magnitude & 0x7fffff) | 0x800000;
    unsigned shift = 126 - exponent; /* 14 for 2^-15, whose mantissa ends up ten bits long, up to 24 */
    return sign | (m + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift;
}

/* `bits` is not NaN. */
GW_INLINE uint32_t gw_narrow_bf16(uint32_t bits)
{
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

#endif
