/*
 * Flush, cut and round 16 values (docs/numerics.md section 3): what the survey, the split and the rounding of
 * RAW chunks begin with. The conditions are those of round_scalar.c, whose comments say why.
 *
 * Drops are computed in bytes and 16-bit lanes, where 16 values are one or two registers; only the rounding
 * itself takes lanes as wide as the values. Choices that are the same for a whole call are branches: they
 * cost two instructions a step, less than a copy of the loop for each of them. Only rules that use the
 * quantum (dead zone, relative exponents) have copies of their own: `by_quantum`.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ROUND_NEON_H
#define GW_ROUND_NEON_H

#include "core/gcomp_kernels.h"
#include "neon/drops_neon.h"
#include "neon/neon.h"
#include "neon/philox_neon.h"

#if defined(GW_NEON)

/* Loops `by_quantum` are in separate functions: inlined beside other loops they make compilers spill
 * registers.
 */
#if defined(__GNUC__)
#define GW_NOINLINE __attribute__((noinline))
#else
#define GW_NOINLINE
#endif

/* Random words of 32 elements: a step rounds 16. */
typedef struct gw_random_words {
    uint64_t element; /* the first */
    int is_filled;
    uint32_t word[32];
} gw_random_words;

/* Constants of a call. */
typedef struct gw_rounder {
    const gw_round_rule *rule;
    gw_random_words *random;
    gw_dropper dropper;    /* derived: and the cap of a constant */
    int16x8_t drop_offset; /* explicit */
    int16x8_t need[3];     /* explicit: room for drop_steps n + 1, in quarter-octaves */
    uint8x16_t strict;     /* all ones or zero */
    /* dead zone unless stochastic: what a value's share of its quantum must exceed, else it becomes 0 */
    uint32x4_t draw;
} gw_rounder;

/* 16 rounded values: byte[b] holds byte b of each. */
typedef struct gw_rounded16 {
    uint8x16_t byte[4];    /* 16-bit types: 0 and 1 */
    uint8x16_t exponent;   /* fields */
    uint8x16_t is_zero;    /* all ones for +0 */
    uint8x16_t drop;       /* derived: what the receiver will derive */
    uint8x16_t drop_steps; /* explicit */
    uint8x16_t turned;     /* by_quantum: exponents of labels; only those of ordinary values have a meaning */
} gw_rounded16;

/* Whether a rule uses the quantum: such rules are derived and not constant. */
static inline uint32_t gw_is_by_quantum(const gw_round_rule *rule)
{
    return rule->derived != 0 && rule->constant == 0 && (rule->dead_zone | rule->relative) != 0;
}

static inline gw_rounder gw_rounder_of(const gw_round_rule *rule, gw_random_words *random)
{
    const int32_t step = gw_traits_of(rule->dtype)->explicit_step;
    gw_rounder r;
    r.rule = rule;
    r.random = random;
    random->is_filled = 0;
    r.dropper = gw_dropper_of(rule->drop_offset, rule->cap, rule->floor);
    r.drop_offset = vdupq_n_s16(gw_clamp_s16(rule->drop_offset));
    for (int32_t n = 1; n <= 3; n++) {
        /* INT16_MAX: room can be that only where the exponent is 0, and there nothing is dropped. */
        r.need[n - 1] = vdupq_n_s16((int32_t)rule->cap >= n * step ? (int16_t)(4 * n * step) : INT16_MAX);
    }
    r.strict = vdupq_n_u8(rule->strict != 0 ? 255 : 0);
    /* No share is UINT32_MAX; half a quantum becomes 0. */
    r.draw = vdupq_n_u32(rule->rounding == GW_GCOMP_TRUNCATE ? UINT32_MAX : 1u << 31);
    return r;
}

/* Explicit: minus the drop steps, from the upper halves of the values, eight at a time. */
GW_TEMPLATE int16x8_t gw_minus_drop_steps(uint16x8_t upper, int16x8_t k, const gw_rounder *r, uint32_t dtype)
{
    const uint16x8_t magnitude = vandq_u16(upper, vdupq_n_u16(0x7fff));
    uint16x8_t quarter;
    if (dtype == GW_FP16) {
        quarter = vshrq_n_u16(magnitude, 8);
        quarter = vaddq_u16(quarter, vandq_u16(vcltq_u16(quarter, vdupq_n_u16(4)), vdupq_n_u16(4)));
        quarter = vaddq_u16(quarter, vdupq_n_u16(4 * 112));
    } else {
        quarter = vshrq_n_u16(magnitude, 5);
    }
    const int16x8_t room = vqsubq_s16(vqaddq_s16(k, r->drop_offset), vreinterpretq_s16_u16(quarter));
    const uint16x8_t one = vcgeq_s16(room, r->need[0]), two = vcgeq_s16(room, r->need[1]);
    return vreinterpretq_s16_u16(vaddq_u16(vaddq_u16(one, two), vcgeq_s16(room, r->need[2])));
}

/* Exponent fields from upper halves. */
GW_TEMPLATE uint8x16_t gw_exponents_of(uint16x8_t low, uint16x8_t high, uint32_t dtype)
{
    if (dtype == GW_FP16) {
        const uint8x16_t top = vuzp2q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
        return vandq_u8(vshrq_n_u8(top, 2), vdupq_n_u8(31));
    }
    return vcombine_u8(vshrn_n_u16(low, 7), vshrn_n_u16(high, 7)); /* the sign is cut off */
}

/* Makes the words of 32 elements from `element` on, a multiple of 8. */
static inline void gw_random_fill(gw_random_words *random, uint64_t element, const gw_round_rule *rule)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    const uint64_t counter = element >> GW_RANDOM_SHARED_LOG2;
    const uint32x4_t low = vaddq_u32(vdupq_n_u32((uint32_t)counter), vld1q_u32(lane));
    const uint32x4_t carry = vcltq_u32(low, vdupq_n_u32((uint32_t)counter));
    uint32x4_t word[4];
    word[0] = low;
    /* Elements are counted modulo 2^64, so counters modulo 2^61. */
    word[1] = vandq_u32(vsubq_u32(vdupq_n_u32((uint32_t)(counter >> 32)), carry),
                        vdupq_n_u32(UINT32_MAX >> GW_RANDOM_SHARED_LOG2));
    word[2] = vdupq_n_u32(rule->step_index);
    word[3] = vdupq_n_u32(rule->rank_hop);
    gw_philox4(word, rule->seed, GW_RANDOM_ROUNDS);
    /* Four words of a counter belong to four neighbours, and with their halves swapped to the next four. */
    const uint32x4_t a = vzip1q_u32(word[0], word[2]), b = vzip1q_u32(word[1], word[3]);
    const uint32x4_t c = vzip2q_u32(word[0], word[2]), d = vzip2q_u32(word[1], word[3]);
    const uint32x4_t four[4] = {vzip1q_u32(a, b), vzip2q_u32(a, b), vzip1q_u32(c, d), vzip2q_u32(c, d)};
    for (unsigned j = 0; j < 4; j++) {
        vst1q_u32(random->word + 8 * j, four[j]);
        vst1q_u32(random->word + 8 * j + 4,
                  vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(four[j]))));
    }
    random->element = element;
    random->is_filled = 1;
}

/* The random words of 16 values. */
static inline void gw_random16(uint32x4_t random[4], uint64_t element, const gw_rounder *r)
{
    gw_random_words *const made = r->random;
    if (!made->is_filled || element - made->element > 16) {
        gw_random_fill(made, element - element % GW_RANDOM_SHARED, r->rule);
    }
    const uint32_t *const word = made->word + (element - made->element);
    for (unsigned j = 0; j < 4; j++) {
        random[j] = vld1q_u32(word + 4 * j);
    }
}

/* `kept` has ones where bits stay; stochastic rounding adds the first `drop` bits of `random`. Nearest adds
 * half an ulp less one (the cut bits, halved) and the last kept bit, found as kept & -kept; if nothing is
 * dropped that would be bit 0, which is masked. */
#define GW_ROUND_LANES(suffix, lanes, signed_suffix, bits)                                                   \
    static inline lanes gw_rounded_##suffix(lanes magnitude, lanes drop, lanes kept, lanes random,           \
                                            lanes special, uint32_t rounding)                                \
    {                                                                                                        \
        const lanes truncated = vandq_##suffix(magnitude, kept);                                             \
        lanes sum;                                                                                           \
        if (rounding == GW_GCOMP_TRUNCATE) {                                                                 \
            return truncated;                                                                                \
        }                                                                                                    \
        if (rounding == GW_GCOMP_NEAREST) {                                                                  \
            const lanes cut = vmvnq_##suffix(kept);                                                          \
            const lanes last =                                                                               \
                vbicq_##suffix(vsubq_##suffix(vdupq_n_##suffix(0), kept), vdupq_n_##suffix(1));              \
            sum = vsubq_##suffix(vsraq_n_##suffix(magnitude, cut, 1), vtstq_##suffix(magnitude, last));      \
        } else {                                                                                             \
            const lanes shift = vsubq_##suffix(drop, vdupq_n_##suffix(bits));                                \
            sum = vaddq_##suffix(magnitude,                                                                  \
                                 vshlq_##suffix(random, vreinterpretq_##signed_suffix##_##suffix(shift)));   \
        }                                                                                                    \
        sum = vandq_##suffix(sum, kept);                                                                     \
        /* A carry out of the largest finite exponent truncates instead. */                                  \
        return vbslq_##suffix(vcgeq_##suffix(sum, special), truncated, sum);                                 \
    }

GW_ROUND_LANES(u32, uint32x4_t, s32, 32)
GW_ROUND_LANES(u16, uint16x8_t, s16, 16)

/* Drops, and for explicit frames the drop_steps, from upper halves, exponents and map bytes. */
GW_TEMPLATE uint8x16_t gw_first_drop(uint8x16_t *drop_steps, uint16x8_t low, uint16x8_t high,
                                     uint8x16_t exponent, uint8x16_t map_bytes, const gw_rounder *r,
                                     uint32_t dtype, uint32_t by_quantum)
{
    const gw_traits *t = gw_traits_of(dtype);
    /* All ones where nothing may be dropped: infinity, NaN, and (strict) the subnormals of fp32 and bf16. */
    const uint8x16_t whole = dtype == GW_FP16 ? vceqq_u8(exponent, vdupq_n_u8(t->exponent_mask))
                                              : vcgeq_u8(vsubq_u8(exponent, vdupq_n_u8(1)),
                                                         vdupq_n_u8((uint8_t)(t->exponent_mask - 1)));
    if (!by_quantum && r->rule->constant != 0) {
        const uint8_t steps = (uint8_t)(r->rule->derived != 0 ? 0 : r->rule->cap / t->explicit_step);
        *drop_steps = vbicq_u8(vdupq_n_u8(steps), whole);
        return vbicq_u8(r->dropper.cap, whole);
    }
    if (by_quantum || r->rule->derived != 0) {
        *drop_steps = vdupq_n_u8(0);
        return vbicq_u8(gw_drops_of(exponent, map_bytes, &r->dropper, dtype), whole);
    }
    const int16x8_t minus_low = gw_minus_drop_steps(low, gw_widen_low(map_bytes), r, dtype);
    const int16x8_t minus_high = gw_minus_drop_steps(high, gw_widen_high(map_bytes), r, dtype);
    const uint8x16_t minus = vuzp1q_u8(vreinterpretq_u8_s16(minus_low), vreinterpretq_u8_s16(minus_high));
    *drop_steps = vbicq_u8(vandq_u8(vsubq_u8(vdupq_n_u8(0), minus), vtstq_u8(map_bytes, map_bytes)), whole);
    return vmulq_u8(*drop_steps, vdupq_n_u8(t->explicit_step));
}

/* Ones where bits stay, in the lanes of the values. */
static inline uint32x4_t gw_kept_u32(uint32x4_t drop)
{
    return vshlq_u32(vdupq_n_u32(0xffffffffu), vreinterpretq_s32_u32(drop));
}

static inline uint16x8_t gw_kept_u16(uint16x8_t drop)
{
    return vshlq_u16(vdupq_n_u16(0xffff), vreinterpretq_s16_u16(drop));
}

/* ---- dead zone ------------------------------------------------------------------------------------------
 */

/* Below their quanta: 16 values. */
typedef struct gw_below16 {
    uint8x16_t quanta;
    int16x8_t shift[2]; /* 1 - octaves below the quantum, at least -32, or 1 for other values */
    uint32x4_t up[4];   /* all ones: the quantum, not 0 */
} gw_below16;

/* From exponents before rounding. Subnormals of fp16 have exponent 1; those of the others lose nothing. fp16
 * excludes zero later. */
GW_TEMPLATE gw_below16 gw_below_of(uint8x16_t exponent, uint8x16_t map_bytes, const gw_rounder *r,
                                   uint32_t dtype)
{
    gw_below16 b;
    b.quanta = gw_quanta_of(map_bytes, &r->dropper, dtype);
    uint8x16_t octaves;
    if (dtype == GW_FP16) {
        octaves = vqsubq_u8(b.quanta, vmaxq_u8(exponent, vdupq_n_u8(1)));
    } else {
        octaves = vandq_u8(vqsubq_u8(b.quanta, exponent), vtstq_u8(exponent, exponent));
    }
    octaves = vminq_u8(octaves, vdupq_n_u8(33)); /* a shift by 32 gives 0 */
    b.shift[0] = vsubq_s16(vdupq_n_s16(1), gw_widen_low(octaves));
    b.shift[1] = vsubq_s16(vdupq_n_s16(1), gw_widen_high(octaves));
    return b;
}

/* From significands, whose first bit is bit 31 in the octave just below the quantum: shifted, they are 2^32
 * times the share of the quantum. `random` is `draw` unless rounding is stochastic. */
static inline void gw_below_find_up(gw_below16 *b, const uint32x4_t significand[4],
                                    const uint32x4_t random[4])
{
    for (unsigned j = 0; j < 4; j++) {
        const int16x8_t shift = b->shift[j / 2];
        const int32x4_t shift4 = vmovl_s16(j % 2 == 0 ? vget_low_s16(shift) : vget_high_s16(shift));
        b->up[j] = vcgtq_u32(vshlq_u32(significand[j], shift4), random[j]);
    }
}

/* Replaces those of the rounded values that are below their quanta; 0 loses its sign. v: the values before.
 */
static inline void gw_cut_below_fp32(uint32x4_t rounded[4], const uint32x4_t v[4], gw_below16 *b,
                                     const uint32x4_t random[4])
{
    const uint32x4_t sign_bit = vdupq_n_u32(0x80000000u);
    uint32x4_t significand[4];
    for (unsigned j = 0; j < 4; j++) {
        significand[j] = vorrq_u32(vshlq_n_u32(v[j], 8), sign_bit);
    }
    gw_below_find_up(b, significand, random);
    for (unsigned j = 0; j < 4; j++) {
        const uint8x8_t quanta8 = j < 2 ? vget_low_u8(b->quanta) : vget_high_u8(b->quanta);
        const uint16x8_t quanta = vshll_n_u8(quanta8, 7); /* in upper halves */
        const uint16x8_t is_below = vcleq_s16(b->shift[j / 2], vdupq_n_s16(0));
        const int16x8_t is_below8 = vreinterpretq_s16_u16(is_below);
        const uint32x4_t quantum = gw_widen_bf16x4(j % 2 == 0 ? vget_low_u16(quanta) : vget_high_u16(quanta));
        const int32x4_t is_below4 =
            vmovl_s16(j % 2 == 0 ? vget_low_s16(is_below8) : vget_high_s16(is_below8));
        const uint32x4_t cut = vandq_u32(b->up[j], vbslq_u32(sign_bit, v[j], quantum));
        rounded[j] = vbslq_u32(vreinterpretq_u32_s32(is_below4), cut, rounded[j]);
    }
}

/* The same for bf16 and fp16. */
GW_TEMPLATE void gw_cut_below_half(uint16x8_t rounded[2], const uint16x8_t v[2], gw_below16 *b,
                                   const uint32x4_t random[4], uint32_t dtype)
{
    const uint16x8_t sign_bit = vdupq_n_u16(0x8000);
    const int16x8_t m = vdupq_n_s16(gw_traits_of(dtype)->mantissa_bits);
    uint32x4_t significand[4];
    for (unsigned j = 0; j < 2; j++) {
        const uint16x8_t first = dtype == GW_FP16 ? vtstq_u16(v[j], vdupq_n_u16(0x7c00)) : sign_bit;
        const uint16x8_t upper =
            vbslq_u16(sign_bit, first, dtype == GW_FP16 ? vshlq_n_u16(v[j], 5) : vshlq_n_u16(v[j], 8));
        significand[2 * j] = gw_widen_bf16x4(vget_low_u16(upper));
        significand[2 * j + 1] = gw_widen_bf16x4(vget_high_u16(upper));
    }
    gw_below_find_up(b, significand, random);
    for (unsigned j = 0; j < 2; j++) {
        const uint16x8_t quanta = vmovl_u8(j == 0 ? vget_low_u8(b->quanta) : vget_high_u8(b->quanta));
        const uint16x8_t up =
            vuzp1q_u16(vreinterpretq_u16_u32(b->up[2 * j]), vreinterpretq_u16_u32(b->up[2 * j + 1]));
        uint16x8_t is_below = vcleq_s16(b->shift[j], vdupq_n_s16(0));
        if (dtype == GW_FP16) {
            is_below = vandq_u16(is_below, vtstq_u16(v[j], vdupq_n_u16(0x7fff)));
        }
        /* The value's own sign: rounding clears that of fp16 subnormals. */
        const uint16x8_t cut = vandq_u16(up, vbslq_u16(sign_bit, v[j], vshlq_u16(quanta, m)));
        rounded[j] = vbslq_u16(is_below, cut, rounded[j]);
    }
}

/* ---- 16 values ----------------------------------------------------------------------------------------- */

/* fp32: 64 bytes at values. */
GW_TEMPLATE void gw_round16_fp32_as(gw_rounded16 *out, const uint8_t *values, uint8x16_t map_bytes,
                                    uint64_t element, const gw_rounder *r, uint32_t by_quantum)
{
    const uint32x4_t strict = vreinterpretq_u32_u8(r->strict), sign_bit = vdupq_n_u32(0x80000000u);
    const uint32x4_t special = vdupq_n_u32(0x7f800000u);
    const uint32x4_t draw = by_quantum ? r->draw : sign_bit;
    uint32x4_t v[4], random[4] = {draw, draw, draw, draw};
    for (unsigned j = 0; j < 4; j++) {
        v[j] = gw_load_u32x4(values + 16 * j);
        v[j] = vandq_u32(v[j], vorrq_u32(vtstq_u32(v[j], special), strict));
    }
    const uint16x8_t low = vuzp2q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
    const uint16x8_t high = vuzp2q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
    const uint8x16_t exponent = gw_exponents_of(low, high, GW_FP32);
    const uint8x16_t drop =
        gw_first_drop(&out->drop_steps, low, high, exponent, map_bytes, r, GW_FP32, by_quantum);
    const uint16x8_t drop_low = vmovl_u8(vget_low_u8(drop)), drop_high = vmovl_u8(vget_high_u8(drop));
    const uint32x4_t drop4[4] = {vmovl_u16(vget_low_u16(drop_low)), vmovl_u16(vget_high_u16(drop_low)),
                                 vmovl_u16(vget_low_u16(drop_high)), vmovl_u16(vget_high_u16(drop_high))};
    if (r->rule->rounding == GW_GCOMP_STOCHASTIC) {
        gw_random16(random, element, r);
    }
    const uint32x4_t before[4] = {v[0], v[1], v[2], v[3]};
    for (unsigned j = 0; j < 4; j++) {
        const uint32x4_t rounded = gw_rounded_u32(vbicq_u32(v[j], sign_bit), drop4[j], gw_kept_u32(drop4[j]),
                                                  random[j], special, r->rule->rounding);
        v[j] = vbslq_u32(sign_bit, v[j], rounded);
    }
    if (by_quantum && r->rule->dead_zone != 0) {
        gw_below16 below = gw_below_of(exponent, map_bytes, r, GW_FP32);
        gw_cut_below_fp32(v, before, &below, random);
    }
    const uint8x16_t even0 =
        vreinterpretq_u8_u16(vuzp1q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1])));
    const uint8x16_t even1 =
        vreinterpretq_u8_u16(vuzp1q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3])));
    const uint16x8_t upper0 = vuzp2q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
    const uint16x8_t upper1 = vuzp2q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
    out->byte[0] = vuzp1q_u8(even0, even1);
    out->byte[1] = vuzp2q_u8(even0, even1);
    out->byte[2] = vuzp1q_u8(vreinterpretq_u8_u16(upper0), vreinterpretq_u8_u16(upper1));
    out->byte[3] = vuzp2q_u8(vreinterpretq_u8_u16(upper0), vreinterpretq_u8_u16(upper1));
    out->exponent = gw_exponents_of(upper0, upper1, GW_FP32);
    const uint8x16_t any =
        vorrq_u8(vorrq_u8(out->byte[0], out->byte[1]), vorrq_u8(out->byte[2], out->byte[3]));
    out->is_zero = vceqq_u8(any, vdupq_n_u8(0));
    out->drop = drop;
}

/* Not a template: the split calls it twice. */
static inline void gw_round16_fp32(gw_rounded16 *out, const uint8_t *values, uint8x16_t map_bytes,
                                   uint64_t element, const gw_rounder *r)
{
    gw_round16_fp32_as(out, values, map_bytes, element, r, 0);
}

/* bf16 and fp16: 32 bytes at values. */
GW_TEMPLATE void gw_round16_half(gw_rounded16 *out, const uint8_t *values, uint8x16_t map_bytes,
                                 uint64_t element, const gw_rounder *r, uint32_t dtype, uint32_t by_quantum)
{
    const uint16x8_t strict = vreinterpretq_u16_u8(r->strict), sign_bit = vdupq_n_u16(0x8000);
    const uint16x8_t special = vdupq_n_u16(dtype == GW_FP16 ? 0x7c00 : 0x7f80);
    uint16x8_t v[2], random[2] = {sign_bit, sign_bit};
    uint32x4_t words[4];
    for (unsigned j = 0; j < 2; j++) {
        v[j] = gw_load_u16x8(values + 16 * j);
        if (dtype == GW_BF16) {
            v[j] = vandq_u16(v[j], vorrq_u16(vtstq_u16(v[j], special), strict));
        }
    }
    const uint8x16_t exponent = gw_exponents_of(v[0], v[1], dtype);
    const uint8x16_t drop =
        gw_first_drop(&out->drop_steps, v[0], v[1], exponent, map_bytes, r, dtype, by_quantum);
    const uint16x8_t drop8[2] = {vmovl_u8(vget_low_u8(drop)), vmovl_u8(vget_high_u8(drop))};
    if (r->rule->rounding == GW_GCOMP_STOCHASTIC) {
        gw_random16(words, element, r);
        /* No drop takes more than the upper halves. */
        random[0] = vuzp2q_u16(vreinterpretq_u16_u32(words[0]), vreinterpretq_u16_u32(words[1]));
        random[1] = vuzp2q_u16(vreinterpretq_u16_u32(words[2]), vreinterpretq_u16_u32(words[3]));
    } else if (by_quantum) {
        words[0] = words[1] = words[2] = words[3] = r->draw;
    }
    const uint16x8_t before[2] = {v[0], v[1]};
    for (unsigned j = 0; j < 2; j++) {
        const uint16x8_t rounded = gw_rounded_u16(vbicq_u16(v[j], sign_bit), drop8[j], gw_kept_u16(drop8[j]),
                                                  random[j], special, r->rule->rounding);
        uint16x8_t sign = vandq_u16(v[j], sign_bit);
        if (dtype == GW_FP16) {
            sign = vandq_u16(sign, vorrq_u16(vtstq_u16(rounded, rounded), strict));
        }
        v[j] = vorrq_u16(sign, rounded);
    }
    if (by_quantum && r->rule->dead_zone != 0) {
        gw_below16 below = gw_below_of(exponent, map_bytes, r, dtype);
        gw_cut_below_half(v, before, &below, words, dtype);
    }
    out->byte[0] = vuzp1q_u8(vreinterpretq_u8_u16(v[0]), vreinterpretq_u8_u16(v[1]));
    out->byte[1] = vuzp2q_u8(vreinterpretq_u8_u16(v[0]), vreinterpretq_u8_u16(v[1]));
    out->exponent = gw_exponents_of(v[0], v[1], dtype);
    out->is_zero = vceqq_u8(vorrq_u8(out->byte[0], out->byte[1]), vdupq_n_u8(0));
    out->drop = drop;
}

GW_TEMPLATE void gw_round_values(gw_rounded16 *out, const uint8_t *values, uint8x16_t map_bytes,
                                 uint64_t element, const gw_rounder *r, uint32_t dtype, uint32_t by_quantum)
{
    if (dtype != GW_FP32) {
        gw_round16_half(out, values, map_bytes, element, r, dtype, by_quantum);
    } else if (by_quantum) {
        gw_round16_fp32_as(out, values, map_bytes, element, r, 1);
    } else {
        gw_round16_fp32(out, values, map_bytes, element, r);
    }
    if (by_quantum) {
        out->turned = out->exponent;
        if (r->rule->relative != 0) {
            out->turned = gw_turned(out->exponent, gw_turns_of(map_bytes, &r->dropper, dtype), dtype);
        }
    }
    if (by_quantum || (r->rule->derived != 0 && r->rule->constant == 0)) {
        /* The receiver uses the rounded exponent. */
        const uint8x16_t drop = gw_drops_of(out->exponent, map_bytes, &r->dropper, dtype);
        out->drop = vandq_u8(drop, vtstq_u8(out->drop, out->drop));
    }
}

/* The values from `at` on, up to 16, padded with zeros: what a step reads at the end of a span. */
typedef struct gw_last16 {
    uint8_t values[64];
    uint8_t map_bytes[16];
} gw_last16;

static inline void gw_last16_fill(gw_last16 *last, const gw_span *span, size_t at, const gw_round_rule *rule)
{
    const size_t size = gw_traits_of(rule->dtype)->size, len = span->len - at;
    GW_MEMSET(last, 0, sizeof *last);
    GW_MEMCPY(last->values, (const uint8_t *)span->values + size * at, size * len);
    if (rule->constant == 0) {
        GW_MEMCPY(last->map_bytes, span->map_bytes + at, len);
    }
}

/* 16 values of a span; `count` of them, fewer at its end. */
GW_TEMPLATE void gw_round16_of_span(gw_rounded16 *out, const gw_span *span, size_t at, size_t count,
                                    const gw_rounder *r, uint32_t dtype, uint32_t by_quantum)
{
    const uint8_t *values = (const uint8_t *)span->values + gw_traits_of(dtype)->size * at;
    gw_last16 last;
    uint8x16_t map_bytes = vdupq_n_u8(0);
    if (count < 16) {
        gw_last16_fill(&last, span, at, r->rule);
        values = last.values;
        map_bytes = vld1q_u8(last.map_bytes);
    } else if (by_quantum || r->rule->constant == 0) {
        map_bytes = vld1q_u8(span->map_bytes + at);
    }
    gw_round_values(out, values, map_bytes, span->element + at, r, dtype, by_quantum);
}

/* 16 values as they are in memory. */
GW_TEMPLATE void gw_store_rounded16(uint8_t *dst, const gw_rounded16 *v, uint32_t dtype)
{
    const uint8x16_t low0 = vzip1q_u8(v->byte[0], v->byte[1]), low1 = vzip2q_u8(v->byte[0], v->byte[1]);
    if (dtype != GW_FP32) {
        vst1q_u8(dst, low0);
        vst1q_u8(dst + 16, low1);
        return;
    }
    const uint16x8_t high0 = vreinterpretq_u16_u8(vzip1q_u8(v->byte[2], v->byte[3]));
    const uint16x8_t high1 = vreinterpretq_u16_u8(vzip2q_u8(v->byte[2], v->byte[3]));
    gw_store_u16x8(dst, vzip1q_u16(vreinterpretq_u16_u8(low0), high0));
    gw_store_u16x8(dst + 16, vzip2q_u16(vreinterpretq_u16_u8(low0), high0));
    gw_store_u16x8(dst + 32, vzip1q_u16(vreinterpretq_u16_u8(low1), high1));
    gw_store_u16x8(dst + 48, vzip2q_u16(vreinterpretq_u16_u8(low1), high1));
}

#endif

#endif
