/*
 * The correctly rounded square root of IEEE 754, without libm: <math.h>'s sqrtf would add errno and a library
 * to what is one instruction.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SQRT_H
#define GW_SQRT_H

#include "core/bytes.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* sqrt of a finite x >= 2^-126, in integers: digit by digit, 25 bits, then one rounding. The result of a
 * binary32 square root never lies halfway between two binary32 numbers, so the remainder alone decides. */
GW_INLINE float gw_sqrt_integer(float x)
{
    uint32_t bits = gw_bits_from_float(x);
    uint32_t exponent = bits >> 23;
    uint64_t m = (bits & 0x7fffff) | 0x800000;
    /* m * 2^(exponent - 150): make the power even, then take the root of m * 2^25 or m * 2^26: 25 bits. */
    unsigned odd = exponent & 1;
    uint64_t rest = m << (odd ? 25 : 26);
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 24; bit != 0; bit >>= 1) {
        uint64_t trial = root | bit;
        if (trial * trial <= rest) {
            root = trial;
        }
    }
    uint32_t rounded = (uint32_t)((root + 1) >> 1);
    uint32_t field = (exponent + (odd ? 127 : 126)) / 2;
    return gw_float_from_bits((field << 23) + (rounded - 0x800000));
}

/* x is not subnormal (the caller flushes). NaN for x < 0. */
GW_INLINE float gw_sqrt(float x)
{
#if defined(__CUDA_ARCH__)
    return __fsqrt_rn(x);
#elif defined(__SSE2__)
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#elif defined(__aarch64__)
    return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0);
#else
    uint32_t bits = gw_bits_from_float(x);
    if ((bits & 0x7fffffff) == 0 || bits == 0x7f800000u) {
        return x;
    }
    return bits > 0x7f800000u ? gw_float_from_bits(0x7fc00000u) : gw_sqrt_integer(x);
#endif
}

#endif
