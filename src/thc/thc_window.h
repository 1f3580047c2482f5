/*
 * The window of the values of a block: scaled to its largest exponent, with what is too small as +0.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_WINDOW_H
#define GW_THC_WINDOW_H

#include "core/float_bits.h"

/*
 * value * 2^(128 - exponent) for values of biased exponent <= `exponent`, which gives magnitudes below 4; +0
 * for those 60 or more octaves below it. So nothing that is computed from the results is ever subnormal:
 * their squares are at least 2^-120, and their sums are multiples of 2^-82. 60 octaves are far below the 24
 * bits of the sums that follow.
 */
#define GW_THC_WINDOW_OCTAVES 60u

GW_INLINE uint32_t gw_thc_window_floor(uint32_t exponent)
{
    return exponent > GW_THC_WINDOW_OCTAVES ? (exponent - GW_THC_WINDOW_OCTAVES) << 23 : GW_F32_MIN;
}

GW_INLINE float gw_thc_window_scale(uint32_t exponent)
{
    return gw_float_from_bits((255u - exponent) << 23); /* 1 <= exponent <= 254 */
}

GW_INLINE float gw_thc_window(float value, uint32_t floor_bits, float scale)
{
    return (gw_bits_from_float(value) & GW_F32_ABS) < floor_bits ? 0.0f : value * scale;
}

/* Bits of the lowest magnitude that rotate back keeps. y * 2^(exponent - 127) is normal iff |y| >= 2^(1 -
 * exponent), whose biased exponent is 128 - exponent. A product with a factor >= 2 never underflows; the
 * floor 1 then only turns -0 into +0. */
GW_INLINE uint32_t gw_thc_back_floor(uint32_t exponent)
{
    return exponent < 128u ? (128u - exponent) << 23 : 1u;
}

#endif
