/*
 * Drops of values of a DERIVED frame (docs/format.md section 3), 16 at a time: for encoding and decoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DROPS_NEON_H
#define GW_DROPS_NEON_H

#include "core/gcomp_kernels.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* Constants of a call. */
typedef struct gw_dropper {
    int16x8_t room; /* drop_offset - 3 */
    uint8x16_t cap;
    uint8x16x2_t floor;
} gw_dropper;

/* x in 16 bits, for saturating sums: clamped far above any cap and far below 0. */
static inline int16_t gw_clamp_s16(int32_t x)
{
    return (int16_t)(x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : x);
}

static inline gw_dropper gw_dropper_of(int32_t drop_offset, uint32_t cap, const uint8_t floor[32])
{
    gw_dropper d;
    d.room = vdupq_n_s16(gw_clamp_s16(drop_offset - 3));
    d.cap = vdupq_n_u8((uint8_t)cap);
    d.floor.val[0] = vld1q_u8(floor);
    d.floor.val[1] = vld1q_u8(floor + 16);
    return d;
}

/* Bytes to halves of 16 bits; none is negative. */
static inline int16x8_t gw_widen_low(uint8x16_t x)
{
    return vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(x)));
}

static inline int16x8_t gw_widen_high(uint8x16_t x)
{
    return vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(x)));
}

/* From exponent fields and map bytes. t = K + drop_offset - (4 E + 3), and floor(t / 4) = floor((K +
 * drop_offset - 3) / 4) - E. The caller handles the largest exponent field, and exponent field 0 of fp32 and
 * bf16. */
GW_TEMPLATE uint8x16_t gw_drops_of(uint8x16_t exponent, uint8x16_t map_bytes, const gw_dropper *d,
                                   uint32_t dtype)
{
    if (dtype == GW_FP16) {
        exponent = vaddq_u8(vmaxq_u8(exponent, vdupq_n_u8(1)), vdupq_n_u8(112));
    }
    const int16x8_t low =
        vsubq_s16(vshrq_n_s16(vqaddq_s16(gw_widen_low(map_bytes), d->room), 2), gw_widen_low(exponent));
    const int16x8_t high =
        vsubq_s16(vshrq_n_s16(vqaddq_s16(gw_widen_high(map_bytes), d->room), 2), gw_widen_high(exponent));
    const uint8x16_t octaves = vcombine_u8(vqmovun_s16(low), vqmovun_s16(high));
    const uint8x16_t drop = vqtbl2q_u8(d->floor, vminq_u8(octaves, d->cap));
    return vandq_u8(drop, vtstq_u8(map_bytes, map_bytes)); /* K = 0: nothing */
}

/* Exponent fields of the quanta of map bytes, clamped to 0 and the largest finite one; 0 for K = 0. */
GW_TEMPLATE uint8x16_t gw_quanta_of(uint8x16_t map_bytes, const gw_dropper *d, uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const int16x8_t down = vdupq_n_s16((int16_t)(t->mantissa_bits + t->exponent_bias));
    const int16x8_t low = vsubq_s16(vshrq_n_s16(vqaddq_s16(gw_widen_low(map_bytes), d->room), 2), down);
    const int16x8_t high = vsubq_s16(vshrq_n_s16(vqaddq_s16(gw_widen_high(map_bytes), d->room), 2), down);
    const uint8x16_t quanta = vminq_u8(vcombine_u8(vqmovun_s16(low), vqmovun_s16(high)),
                                       vdupq_n_u8((uint8_t)(t->exponent_mask - 1)));
    return vandq_u8(quanta, vtstq_u8(map_bytes, map_bytes));
}

/* Relative exponents (docs/format.md section 3): gw_turn_of(), gw_exponent_turn() and its reverse in bytes.
 * Of exponents that are not ordinary the results mean nothing. */
GW_TEMPLATE uint8x16_t gw_turns_of(uint8x16_t map_bytes, const gw_dropper *d, uint32_t dtype)
{
    const uint8x16_t quanta = gw_quanta_of(map_bytes, d, dtype);
    return dtype == GW_FP16 ? quanta : vqsubq_u8(quanta, vdupq_n_u8(1));
}

GW_TEMPLATE uint8x16_t gw_turned(uint8x16_t exponent, uint8x16_t turns, uint32_t dtype)
{
    const uint8x16_t less = vsubq_u8(exponent, turns);
    if (dtype == GW_FP16) {
        return vaddq_u8(less, vandq_u8(vcltq_u8(exponent, turns), vdupq_n_u8(31)));
    }
    /* 254 is -2 modulo 256, and the mask is -1. */
    const uint8x16_t is_before = vcleq_u8(exponent, turns);
    return vaddq_u8(less, vaddq_u8(is_before, is_before));
}

GW_TEMPLATE uint8x16_t gw_turned_back(uint8x16_t relative, uint8x16_t turns, uint32_t dtype)
{
    const uint8x16_t sum = vaddq_u8(relative, turns);
    if (dtype == GW_FP16) {
        return vsubq_u8(sum, vandq_u8(vcgtq_u8(sum, vdupq_n_u8(30)), vdupq_n_u8(31)));
    }
    /* The sum may need nine bits: compared before it. */
    const uint8x16_t is_after = vcgtq_u8(relative, vsubq_u8(vdupq_n_u8(254), turns));
    return vsubq_u8(sum, vaddq_u8(is_after, is_after));
}

#endif

#endif
