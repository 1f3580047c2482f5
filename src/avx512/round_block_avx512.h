/*
 * Rounding of 64 values in the byte domain: what survey, split and round share.
 *
 * A value becomes bytes in different registers: exponent, and the mantissa's digits as the planes have them
 * (widths by dtype). Everything then works on 64 values an instruction: the room in octaves between map byte
 * and exponent (two saturating additions), the drop steps by comparison or the drop by a table, and the
 * rounding as an addition digit by digit, whose carries are masks.
 *
 * Bound on Zen 4, two vector instructions of 512 bits a cycle, counted for explicit fp32 in gcc 12's output:
 * nearest takes 31 more than truncation, 0.24 cycles a value; stochastic rounding 39 more, 0.30, without its
 * random words (random_avx512.h). split_avx512.c has the sums and what was measured.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ROUND_BLOCK_AVX512_H
#define GW_ROUND_BLOCK_AVX512_H

#include "avx512/random_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* ---- byte arithmetic ----------------------------------------------------------------------------------- */

/* 64 times the byte x. The array is in another file so that it is loaded; see every_byte_avx512.c. */
extern const _Alignas(64) uint8_t gw_every_byte_avx512[256][64];
#define GW_BYTE(x) _mm512_load_si512(gw_every_byte_avx512[(uint8_t)(x)])

/* mask ? a : b, bit by bit */
static inline __m512i gw_select(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

/* Bytes x >> n, x << n; the caller masks away what came from the neighbour. */
#define GW_BYTE_RIGHT(x, n) _mm512_srli_epi16((x), (n))
#define GW_BYTE_LEFT(x, n)  _mm512_slli_epi16((x), (n))

/* 1 where x has left its digit: by arithmetic, since a comparison has a latency of six cycles. */
static inline __m512i gw_carry(__m512i x, unsigned width)
{
    return _mm512_min_epu8(_mm512_subs_epu8(x, GW_BYTE((1u << width) - 1)), GW_BYTE(1));
}

/* ---- constants ----------------------------------------------------------------------------------------- */

/* By drop, for derived frames: bytes of cut = 2^drop - 1 digit by digit, of its half, of the bit 2^drop.
 * Index 0: the highest digit, without sign; [4] of `last` is the exponent. */
typedef struct gw_drop_tables {
    uint8_t cut[4][64];
    uint8_t half[4][64];
    uint8_t last[5][64];
    uint8_t drop_of_room[64]; /* min(room, cap), rounded down to the step */
    uint8_t quick_drop[64];   /* the same if room_minus and room_less are left out */
} gw_drop_tables;

typedef struct gw_rounder {
    __m512i room_part; /* see gw_room() */
    __m512i room_plus, room_minus, room_less;
    __m512i steps_room[3];        /* explicit: the room for drop_steps 1, 2, 3; 255: not allowed */
    __m512i quick_room[3];        /* the same if room_minus and room_less are left out */
    int is_quick;                 /* 1: they may be */
    const gw_drop_tables *tables; /* derived */
    const gw_round_rule *rule;
    /* map bytes, 64 values every 64 * step: a constant drop reads 255s again and again */
    const uint8_t *map_bytes;
    size_t step;
    uint32_t strict;
    /* dead zone and relative exponents, see gw_quantum_turns(); a largest turn of 0 switches either off */
    __m512i turn_part, turn_plus, turn_minus;
    __m512i turn_max;    /* of relative exponents */
    __m512i quantum_max; /* of the dead zone */
} gw_rounder;

static inline uint8_t gw_clamp_byte(int64_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Digit p (0 = the highest, without sign) of a mantissa. */
static inline uint32_t gw_digit_of(uint32_t mantissa, const gw_traits *t, unsigned p)
{
    unsigned below = 0;
    for (unsigned i = p + 1; i < 4; i++) {
        below += t->digit_width[i];
    }
    const unsigned width = t->digit_width[p] - (p == 0 ? 1u : 0u);
    return mantissa >> below & ((1u << width) - 1);
}

static inline void gw_drop_tables_fill(gw_drop_tables *tables, const gw_round_rule *rule, uint32_t less)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    GW_MEMSET(tables, 0, sizeof *tables);
    for (uint32_t drop = 0; drop <= t->mantissa_bits; drop++) {
        const uint32_t cut = (1u << drop) - 1;
        for (unsigned p = 0; p < 4; p++) {
            tables->cut[p][drop] = (uint8_t)gw_digit_of(cut, t, p);
            tables->half[p][drop] = (uint8_t)gw_digit_of(cut >> 1, t, p);
            tables->last[p][drop] = (uint8_t)(drop == 0 ? 0 : gw_digit_of(cut + 1, t, p));
        }
        tables->last[4][drop] = drop == t->mantissa_bits;
    }
    for (uint32_t n = 0; n < 64; n++) {
        tables->drop_of_room[n] =
            (uint8_t)(rule->constant && n > 0 ? rule->cap : rule->floor[gw_min_u32(n, rule->cap)]);
        tables->quick_drop[n] = (uint8_t)(rule->constant ? rule->cap
                                          : n < less     ? 0
                                                         : rule->floor[gw_min_u32(n - less, rule->cap)]);
    }
}

/* 1: the rule has a dead zone or relative exponents, which loops have as the parameter `turned`. */
static inline uint32_t gw_is_turned(const gw_round_rule *rule)
{
    return rule->derived && !rule->constant && (rule->dead_zone || rule->relative);
}

static inline void gw_rounder_init_turns(gw_rounder *r, const gw_round_rule *rule)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const int64_t first = rule->dtype == GW_FP16 ? 0 : 1, last = t->exponent_mask - 1;
    /* floor((K + drop_offset - 3) / 4) = floor((K + rest) / 4) + whole, and avg(avg(K, rest + 1), 0) is one
     * more than the first summand. */
    const int64_t base = (int64_t)rule->drop_offset - 3;
    const int64_t rest = base & 3, whole = (base - rest) / 4;
    const int64_t turn = whole - 1 - t->mantissa_bits - t->exponent_bias - first;
    r->turn_part = _mm512_set1_epi8((char)(rest + 1));
    r->turn_plus = _mm512_set1_epi8((char)gw_clamp_byte(turn));
    r->turn_minus = _mm512_set1_epi8((char)gw_clamp_byte(-turn));
    r->turn_max = _mm512_set1_epi8((char)(rule->relative ? last - first : 0));
    r->quantum_max = _mm512_set1_epi8((char)(rule->dead_zone ? last - first : 0));
}

static inline void gw_rounder_init(gw_rounder *r, gw_drop_tables *tables, const gw_span *span,
                                   const gw_round_rule *rule)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    /* room = floor((K + drop_offset - quarter) / 4), quarter = 4e + q; fp16's exponents are 112 octaves up.
     * With drop_offset - 4 * bias = 4 * whole + rest (derived: q is 3, taken off here), 0 <= rest < 4, that
     * is floor((K + rest + 8 - q) / 4) - 2 + whole - e, and avg(avg(K, p), 0) = floor((K + p + 3) / 4). */
    const int64_t base = (int64_t)rule->drop_offset - 4 * (int64_t)t->exponent_bias - (rule->derived ? 3 : 0);
    const int64_t rest = base & 3;
    /* the cap alone decides a constant drop */
    const int64_t whole = rule->constant ? 1 << 20 : (base - rest) / 4 - 2;
    r->room_part = _mm512_set1_epi8((char)(rest + 5));
    /* At most 66 + 180 is below 255; the excess is subtracted from the exponent. A negative `whole` is
     * added to it. */
    r->room_plus = _mm512_set1_epi8((char)gw_clamp_byte(whole < 180 ? whole : 180));
    r->room_minus = _mm512_set1_epi8((char)gw_clamp_byte(whole - 180));
    r->room_less = _mm512_set1_epi8((char)gw_clamp_byte(-whole));
    /* Usually nothing is subtracted, and what is to be added to the exponent can be added to what the room
     * is compared with, as long as 63 octaves suffice. */
    r->is_quick = rule->constant || (whole >= -40 && whole <= 180);
    const uint32_t less = rule->constant || whole > 0 ? 0 : gw_clamp_byte(-whole);
    for (uint32_t drop_steps = 1; drop_steps <= 3; drop_steps++) {
        const uint32_t drop = drop_steps * t->explicit_step;
        const int is_allowed = drop <= rule->cap;
        r->steps_room[drop_steps - 1] = _mm512_set1_epi8((char)(is_allowed ? drop : 255));
        r->quick_room[drop_steps - 1] = _mm512_set1_epi8((char)(!is_allowed      ? 255
                                                                : rule->constant ? 0
                                                                                 : drop + less));
    }
    if (rule->derived) {
        gw_drop_tables_fill(tables, rule, less);
    }
    r->tables = tables;
    r->rule = rule;
    r->map_bytes = rule->constant ? gw_every_byte_avx512[255] : span->map_bytes;
    r->step = rule->constant ? 0 : 1;
    r->strict = rule->strict;
    gw_rounder_init_turns(r, rule);
}

/* Map bytes of the values from index i on. */
static inline __m512i gw_load_map_bytes(const gw_rounder *r, size_t i)
{
    return _mm512_loadu_si512(r->map_bytes + r->step * i);
}

static inline __m512i gw_load_map_bytes_part(const gw_rounder *r, size_t i, __mmask64 valid)
{
    return _mm512_maskz_loadu_epi8(valid, r->map_bytes + r->step * i);
}

/* ---- values to digits ---------------------------------------------------------------------------------- */

/* 64 values. Digits carry no bits above their width, except where said. */
typedef struct gw_bytes {
    __m512i e;              /* exponent field */
    __m512i sign;           /* bit 7; the other bits are garbage */
    __m512i d1, d2, d3, d4; /* d1 without the sign bit */
} gw_bytes;

/* Field by field: gcc copies structs of vectors through memory otherwise, even those that it has in
 * registers. */
static inline void gw_bytes_copy(gw_bytes *to, const gw_bytes *from)
{
    to->e = from->e;
    to->sign = from->sign;
    to->d1 = from->d1;
    to->d2 = from->d2;
    to->d3 = from->d3;
    to->d4 = from->d4;
}

/* Index vectors, computed because compilers build them worse: bytes 4i + first of two registers, then 4i +
 * first + 1. */
static inline __m512i gw_fourths(unsigned first)
{
    const __m512i at = _mm512_set_epi32(
        0x7c787470, 0x6c686460, 0x5c585450, 0x4c484440, 0x3c383430, 0x2c282420, 0x1c181410, 0x0c080400,
        0x7c787470, 0x6c686460, 0x5c585450, 0x4c484440, 0x3c383430, 0x2c282420, 0x1c181410, 0x0c080400);
    const __m512i next = _mm512_set_epi64(0x0101010101010101, 0x0101010101010101, 0x0101010101010101,
                                          0x0101010101010101, 0, 0, 0, 0);
    return _mm512_add_epi8(_mm512_add_epi8(at, next), GW_BYTE(first));
}

/* Bytes 2i + first of two registers. */
static inline __m512i gw_halves(unsigned first)
{
    const __m512i at =
        _mm512_set_epi64(0x7e7c7a7876747270, 0x6e6c6a6866646260, 0x5e5c5a5856545250, 0x4e4c4a4846444240,
                         0x3e3c3a3836343230, 0x2e2c2a2826242220, 0x1e1c1a1816141210, 0x0e0c0a0806040200);
    return _mm512_add_epi8(at, GW_BYTE(first));
}

static inline __m512i gw_low_halves(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1);
}

static inline __m512i gw_high_halves(__m512i a, __m512i b)
{
    return _mm512_shuffle_i64x2(a, b, 0xee);
}

/* The four bytes of 64 words, each in a register. */
static inline void gw_transpose4(__m512i out[4], __m512i x0, __m512i x1, __m512i x2, __m512i x3)
{
    const __m512i first = gw_fourths(0), second = gw_fourths(2);
    const __m512i a = _mm512_permutex2var_epi8(x0, first, x1), b = _mm512_permutex2var_epi8(x2, first, x3);
    const __m512i c = _mm512_permutex2var_epi8(x0, second, x1), d = _mm512_permutex2var_epi8(x2, second, x3);
    out[0] = gw_low_halves(a, b);
    out[1] = gw_high_halves(a, b);
    out[2] = gw_low_halves(c, d);
    out[3] = gw_high_halves(c, d);
}

/* Mantissa digits of fp32 from the lower three bytes of the words. A shift to the left by 2 is two
 * additions: they can use more ports. */
static inline void gw_digits32(gw_bytes *v, __m512i byte0, __m512i byte1, __m512i byte2)
{
    const __m512i low6 = GW_BYTE(63);
    const __m512i twice = _mm512_add_epi8(byte1, byte1);
    v->d4 = _mm512_and_si512(byte0, low6);
    v->d3 =
        _mm512_and_si512(gw_select(GW_BYTE(3), GW_BYTE_RIGHT(byte0, 6), _mm512_add_epi8(twice, twice)), low6);
    v->d2 = _mm512_and_si512(gw_select(GW_BYTE(15), GW_BYTE_RIGHT(byte1, 4), GW_BYTE_LEFT(byte2, 4)), low6);
    v->d1 = _mm512_and_si512(GW_BYTE_RIGHT(byte2, 2), GW_BYTE(31));
}

/* Loads values [0, len) of up to 64; the others are +0. */
GW_TEMPLATE gw_bytes gw_load_bytes(const uint8_t *values, size_t len, uint32_t dtype)
{
    gw_bytes v;
    if (dtype == GW_FP32) {
        __m512i x0, x1, x2, x3;
        if (len >= 64) {
            x0 = _mm512_loadu_si512(values);
            x1 = _mm512_loadu_si512(values + 64);
            x2 = _mm512_loadu_si512(values + 128);
            x3 = _mm512_loadu_si512(values + 192);
        } else {
            const uint64_t valid = gw_low_mask(len);
            x0 = _mm512_maskz_loadu_epi32((__mmask16)valid, values);
            x1 = _mm512_maskz_loadu_epi32((__mmask16)(valid >> 16), values + 64);
            x2 = _mm512_maskz_loadu_epi32((__mmask16)(valid >> 32), values + 128);
            x3 = _mm512_maskz_loadu_epi32((__mmask16)(valid >> 48), values + 192);
        }
        __m512i byte[4];
        gw_transpose4(byte, x0, x1, x2, x3);
        gw_digits32(&v, byte[0], byte[1], byte[2]);
        v.sign = byte[3];
        v.e = _mm512_add_epi8(_mm512_add_epi8(byte[3], byte[3]), gw_carry(byte[2], 7));
        return v;
    }
    __m512i x0, x1;
    if (len >= 64) {
        x0 = _mm512_loadu_si512(values);
        x1 = _mm512_loadu_si512(values + 64);
    } else {
        const uint64_t valid = gw_low_mask(len);
        x0 = _mm512_maskz_loadu_epi16((__mmask32)valid, values);
        x1 = _mm512_maskz_loadu_epi16((__mmask32)(valid >> 32), values + 64);
    }
    const __m512i low = _mm512_permutex2var_epi8(x0, gw_halves(0), x1);
    v.sign = _mm512_permutex2var_epi8(x0, gw_halves(1), x1);
    if (dtype == GW_BF16) {
        v.e = _mm512_add_epi8(_mm512_add_epi8(v.sign, v.sign), gw_carry(low, 7));
        v.d1 = _mm512_and_si512(GW_BYTE_RIGHT(low, 6), GW_BYTE(1));
        v.d2 = _mm512_and_si512(GW_BYTE_RIGHT(low, 4), GW_BYTE(3));
        v.d3 = _mm512_and_si512(GW_BYTE_RIGHT(low, 2), GW_BYTE(3));
        v.d4 = _mm512_and_si512(low, GW_BYTE(3));
    } else {
        v.e = _mm512_and_si512(GW_BYTE_RIGHT(v.sign, 2), GW_BYTE(31));
        v.d1 = _mm512_and_si512(GW_BYTE_RIGHT(v.sign, 1), GW_BYTE(1));
        v.d2 = _mm512_and_si512(gw_select(GW_BYTE(3), GW_BYTE_RIGHT(low, 6), GW_BYTE_LEFT(v.sign, 2)),
                                GW_BYTE(7));
        v.d3 = _mm512_and_si512(GW_BYTE_RIGHT(low, 3), GW_BYTE(7));
        v.d4 = _mm512_and_si512(low, GW_BYTE(7));
    }
    return v;
}

/* The top two mantissa bits. */
GW_TEMPLATE __m512i gw_top_two(const gw_bytes *v, uint32_t dtype)
{
    if (dtype == GW_FP32) {
        return _mm512_and_si512(GW_BYTE_RIGHT(v->d1, 3), GW_BYTE(3));
    }
    const __m512i below = dtype == GW_BF16 ? GW_BYTE_RIGHT(v->d2, 1) : GW_BYTE_RIGHT(v->d2, 2);
    return gw_select(GW_BYTE(2), _mm512_add_epi8(v->d1, v->d1), _mm512_and_si512(below, GW_BYTE(1)));
}

/* ---- random digits ------------------------------------------------------------------------------------- */

/* Byte 16 * i + n to word n. */
static inline __m512i gw_widen_bytes(__m512i x, int i)
{
    const __m512i at = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_maskz_permutexvar_epi8(0x1111111111111111, _mm512_add_epi32(at, _mm512_set1_epi32(16 * i)),
                                         x);
}

/* The top bits of 64 random words, as many as the value's drop, as digits of its mantissa. */
GW_TEMPLATE gw_bytes gw_random_digits(const __m512i x[4], __m512i drop, uint32_t dtype)
{
    gw_bytes v;
    __m512i f[4], top[4];
    const __m512i shift = _mm512_sub_epi8(GW_BYTE(32), drop);
    for (int i = 0; i < 4; i++) {
        top[i] = _mm512_srlv_epi32(x[i], gw_widen_bytes(shift, i));
    }
    gw_transpose4(f, top[0], top[1], top[2], top[3]);
    if (dtype == GW_FP32) {
        gw_digits32(&v, f[0], f[1], f[2]);
    } else {
        if (dtype == GW_BF16) {
            v.d4 = _mm512_and_si512(f[0], GW_BYTE(3));
            v.d3 = _mm512_and_si512(GW_BYTE_RIGHT(f[0], 2), GW_BYTE(3));
            v.d2 = _mm512_and_si512(GW_BYTE_RIGHT(f[0], 4), GW_BYTE(3));
            v.d1 = _mm512_and_si512(GW_BYTE_RIGHT(f[0], 6), GW_BYTE(1));
        } else {
            v.d4 = _mm512_and_si512(f[0], GW_BYTE(7));
            v.d3 = _mm512_and_si512(GW_BYTE_RIGHT(f[0], 3), GW_BYTE(7));
            v.d2 = _mm512_and_si512(gw_select(GW_BYTE(3), GW_BYTE_RIGHT(f[0], 6), GW_BYTE_LEFT(f[1], 2)),
                                    GW_BYTE(7));
            v.d1 = _mm512_and_si512(GW_BYTE_RIGHT(f[1], 1), GW_BYTE(1));
        }
    }
    v.e = _mm512_setzero_si512();
    v.sign = v.e;
    return v;
}

/* The first three digits, from the top, of 64 random words: of the width that a drop step has. */
GW_TEMPLATE void gw_random_steps(__m512i digit[3], const __m512i x[4], uint32_t dtype)
{
    __m512i f[4];
    gw_transpose4(f, x[0], x[1], x[2], x[3]);
    if (dtype == GW_FP32) {
        const __m512i twice = _mm512_add_epi8(f[2], f[2]);
        digit[0] = _mm512_and_si512(GW_BYTE_RIGHT(f[3], 2), GW_BYTE(63));
        digit[1] = _mm512_and_si512(gw_select(GW_BYTE(15), GW_BYTE_RIGHT(f[2], 4), GW_BYTE_LEFT(f[3], 4)),
                                    GW_BYTE(63));
        digit[2] = _mm512_and_si512(
            gw_select(GW_BYTE(3), GW_BYTE_RIGHT(f[1], 6), _mm512_add_epi8(twice, twice)), GW_BYTE(63));
    } else if (dtype == GW_BF16) {
        digit[0] = _mm512_and_si512(GW_BYTE_RIGHT(f[3], 6), GW_BYTE(3));
        digit[1] = _mm512_and_si512(GW_BYTE_RIGHT(f[3], 4), GW_BYTE(3));
        digit[2] = _mm512_and_si512(GW_BYTE_RIGHT(f[3], 2), GW_BYTE(3));
    } else {
        digit[0] = _mm512_and_si512(GW_BYTE_RIGHT(f[3], 5), GW_BYTE(7));
        digit[1] = _mm512_and_si512(GW_BYTE_RIGHT(f[3], 2), GW_BYTE(7));
        digit[2] = _mm512_and_si512(gw_select(GW_BYTE(1), GW_BYTE_RIGHT(f[2], 7), GW_BYTE_LEFT(f[3], 1)),
                                    GW_BYTE(7));
    }
}

/* ---- rounding ------------------------------------------------------------------------------------------ */

/* 64 values between the two parts: what rounding adds is added to every digit, carries are not propagated
 * yet. */
typedef struct gw_sums {
    gw_bytes v;
    __m512i room; /* 0 where nothing may be dropped */
    __m512i drop; /* derived: by the exponent before rounding */
} gw_sums;

/* 64 rounded values. */
typedef struct gw_block {
    /* explicit: digits that were cut may hold anything; derived: cut bits are zero */
    gw_bytes v;
    __mmask64 steps1, steps2, steps3; /* explicit: the number of drop steps is at least 1, 2, 3 */
    __m512i drop;                     /* derived */
} gw_block;

/* Octaves between map byte and exponent, 0..255: beyond 63 and below 0 not exact, but on the correct side.
 * If `quick`, to be compared with quick_room or looked up in quick_drop. */
GW_TEMPLATE __m512i gw_room(const gw_rounder *r, __m512i k, const gw_bytes *v, uint32_t dtype,
                            uint32_t derived, int quick)
{
    const __m512i part = derived ? r->room_part : _mm512_sub_epi8(r->room_part, gw_top_two(v, dtype));
    const __m512i quarters = _mm512_avg_epu8(_mm512_avg_epu8(k, part), _mm512_setzero_si512());
    const __m512i plus = _mm512_adds_epu8(quarters, r->room_plus);
    if (quick) {
        return _mm512_subs_epu8(plus, v->e);
    }
    const __m512i e = dtype == GW_FP16 ? _mm512_max_epu8(v->e, GW_BYTE(1)) : v->e;
    return _mm512_subs_epu8(plus, _mm512_adds_epu8(_mm512_subs_epu8(e, r->room_minus), r->room_less));
}

/*
 * Rounding in two parts, which a loop may keep apart: together they are one dependency chain of about 70
 * cycles, too long for out-of-order execution to overlap enough of them.
 *
 * words: random words of the values, read if the rounding is stochastic. (They are a chain of their own.)
 * `derived` and `dtype` are those of the rule, `rounding` too; they are parameters so that a caller can give
 * them as constants. Without `careful` the results for the largest exponent, for a carry into it, and for
 * exponent 0 of fp32 and bf16 are garbage: the caller then detects such values by the exponents before and
 * after.
 */
GW_TEMPLATE gw_sums gw_round_begin(gw_bytes v, __m512i k, const __m512i *words, const gw_rounder *r,
                                   uint32_t dtype, uint32_t derived, uint32_t rounding, int careful)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned w2 = t->digit_width[1], w3 = t->digit_width[2], w4 = t->digit_width[3];
    const gw_drop_tables *tables = r->tables;
    gw_sums s;
    __mmask64 open = _mm512_test_epi8_mask(k, k);
    if (careful) {
        open = _mm512_mask_cmpneq_epi8_mask(open, v.e, GW_BYTE(t->exponent_mask));
        if (dtype != GW_FP16) {
            open = _mm512_mask_test_epi8_mask(open, v.e, v.e);
        }
    }
    s.room = _mm512_maskz_mov_epi8(open, gw_room(r, k, &v, dtype, derived, !careful));
    s.drop = s.room;
    if (derived) {
        const __m512i index = _mm512_min_epu8(s.room, GW_BYTE(63));
        s.drop = _mm512_permutexvar_epi8(
            index, _mm512_loadu_si512(careful ? tables->drop_of_room : tables->quick_drop));
    }
    gw_bytes_copy(&s.v, &v);
    if (rounding == GW_GCOMP_NEAREST && derived) {
        const __m512i drop = s.drop;
        /* The last bit that stays; for the largest drop it is the exponent's. */
        __m512i odd =
            _mm512_and_si512(v.e, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->last[4])));
        odd = _mm512_ternarylogic_epi32(
            odd, v.d1, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->last[0])), 0xf8);
        odd = _mm512_ternarylogic_epi32(
            odd, v.d2, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->last[1])), 0xf8);
        odd = _mm512_ternarylogic_epi32(
            odd, v.d3, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->last[2])), 0xf8);
        odd = _mm512_ternarylogic_epi32(
            odd, v.d4, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->last[3])), 0xf8);
        odd = _mm512_min_epu8(odd, GW_BYTE(1));
        s.v.d1 = _mm512_add_epi8(v.d1, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->half[0])));
        s.v.d2 = _mm512_add_epi8(v.d2, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->half[1])));
        s.v.d3 = _mm512_add_epi8(v.d3, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->half[2])));
        s.v.d4 = _mm512_add_epi8(v.d4, _mm512_permutexvar_epi8(drop, _mm512_loadu_si512(tables->half[3])));
        s.v.d4 = _mm512_add_epi8(s.v.d4, odd);
    } else if (rounding == GW_GCOMP_STOCHASTIC && derived) {
        const gw_bytes random = gw_random_digits(words, s.drop, dtype);
        s.v.d1 = _mm512_add_epi8(v.d1, random.d1);
        s.v.d2 = _mm512_add_epi8(v.d2, random.d2);
        s.v.d3 = _mm512_add_epi8(v.d3, random.d3);
        s.v.d4 = _mm512_add_epi8(v.d4, random.d4);
    } else if (rounding != GW_GCOMP_TRUNCATE) {
        const __m512i *steps_room = careful ? r->steps_room : r->quick_room;
        const __mmask64 steps1 = _mm512_cmpge_epu8_mask(s.room, steps_room[0]);
        const __mmask64 steps2 = _mm512_cmpge_epu8_mask(s.room, steps_room[1]);
        const __mmask64 steps3 = _mm512_cmpge_epu8_mask(s.room, steps_room[2]);
        if (rounding == GW_GCOMP_NEAREST) {
            const unsigned full4 = (1u << w4) - 1, full3 = (1u << w3) - 1, full2 = (1u << w2) - 1;
            const __m512i half4 = GW_BYTE(full4 / 2), half3 = GW_BYTE(full3 / 2), half2 = GW_BYTE(full2 / 2);
            __m512i odd = _mm512_maskz_mov_epi8(steps1, v.d3);
            odd = _mm512_mask_mov_epi8(odd, steps2, v.d2);
            odd = _mm512_mask_mov_epi8(odd, steps3, v.d1);
            odd = _mm512_and_si512(odd, GW_BYTE(1));
            const __m512i a4 =
                _mm512_mask_mov_epi8(_mm512_maskz_mov_epi8(steps1, half4), steps2, GW_BYTE(full4));
            const __m512i a3 =
                _mm512_mask_mov_epi8(_mm512_maskz_mov_epi8(steps2, half3), steps3, GW_BYTE(full3));
            s.v.d4 = _mm512_add_epi8(_mm512_add_epi8(v.d4, odd), a4);
            s.v.d3 = _mm512_add_epi8(v.d3, a3);
            s.v.d2 = _mm512_mask_add_epi8(v.d2, steps3, v.d2, half2);
        } else {
            __m512i random[3];
            gw_random_steps(random, words, dtype);
            const __m512i last = _mm512_mask_mov_epi8(random[0], steps2, random[1]);
            const __m512i a3 = _mm512_mask_mov_epi8(random[0], steps3, random[1]);
            s.v.d4 = _mm512_mask_add_epi8(v.d4, steps1, v.d4, _mm512_mask_mov_epi8(last, steps3, random[2]));
            s.v.d3 = _mm512_mask_add_epi8(v.d3, steps2, v.d3, a3);
            s.v.d2 = _mm512_mask_add_epi8(v.d2, steps3, v.d2, random[0]);
        }
    }
    return s;
}

/* `before` is read if `careful`. */
GW_TEMPLATE gw_block gw_round_end(const gw_sums *s, const gw_bytes *before, const gw_rounder *r,
                                  uint32_t dtype, uint32_t derived, uint32_t rounding, int careful)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned w1 = t->digit_width[0] - 1u, w2 = t->digit_width[1], w3 = t->digit_width[2],
                   w4 = t->digit_width[3];
    const gw_drop_tables *tables = r->tables;
    gw_bytes v;
    gw_bytes_copy(&v, &s->v);
    gw_block b;
    __m512i carry = _mm512_setzero_si512();
    if (rounding != GW_GCOMP_TRUNCATE) {
        v.d3 = _mm512_add_epi8(v.d3, gw_carry(v.d4, w4));
        v.d2 = _mm512_add_epi8(v.d2, gw_carry(v.d3, w3));
        v.d1 = _mm512_add_epi8(v.d1, gw_carry(v.d2, w2));
        carry = gw_carry(v.d1, w1);
        v.e = _mm512_add_epi8(v.e, carry);
        v.d4 = _mm512_and_si512(v.d4, GW_BYTE((1u << w4) - 1));
        v.d3 = _mm512_and_si512(v.d3, GW_BYTE((1u << w3) - 1));
        v.d2 = _mm512_and_si512(v.d2, GW_BYTE((1u << w2) - 1));
        v.d1 = _mm512_and_si512(v.d1, GW_BYTE((1u << w1) - 1));
        if (careful) {
            /* A carry out of the largest finite exponent truncates instead. */
            const __mmask64 over = _mm512_mask_cmpeq_epi8_mask(_mm512_test_epi8_mask(carry, carry), v.e,
                                                               GW_BYTE(t->exponent_mask));
            v.e = _mm512_mask_mov_epi8(v.e, over, before->e);
            v.d1 = _mm512_mask_mov_epi8(v.d1, over, before->d1);
            v.d2 = _mm512_mask_mov_epi8(v.d2, over, before->d2);
            v.d3 = _mm512_mask_mov_epi8(v.d3, over, before->d3);
            v.d4 = _mm512_mask_mov_epi8(v.d4, over, before->d4);
            carry = _mm512_mask_mov_epi8(carry, over, _mm512_setzero_si512());
        }
    }
    b.drop = s->drop;
    if (derived) {
        v.d1 =
            _mm512_andnot_si512(_mm512_permutexvar_epi8(s->drop, _mm512_loadu_si512(tables->cut[0])), v.d1);
        v.d2 =
            _mm512_andnot_si512(_mm512_permutexvar_epi8(s->drop, _mm512_loadu_si512(tables->cut[1])), v.d2);
        v.d3 =
            _mm512_andnot_si512(_mm512_permutexvar_epi8(s->drop, _mm512_loadu_si512(tables->cut[2])), v.d3);
        v.d4 =
            _mm512_andnot_si512(_mm512_permutexvar_epi8(s->drop, _mm512_loadu_si512(tables->cut[3])), v.d4);
        /* The receiver uses the exponent after the carry: one octave less room, and the mantissa is zero.
         * (fp16's exponents 0 and 1 have the same; without a drop there was no carry.) */
        if (rounding != GW_GCOMP_TRUNCATE) {
            const __m512i less =
                dtype == GW_FP16 ? _mm512_min_epu8(carry, _mm512_subs_epu8(v.e, GW_BYTE(1))) : carry;
            const __m512i index = _mm512_min_epu8(_mm512_subs_epu8(s->room, less), GW_BYTE(63));
            b.drop = _mm512_permutexvar_epi8(
                index, _mm512_loadu_si512(careful ? tables->drop_of_room : tables->quick_drop));
        }
    } else {
        const __m512i *steps_room = careful ? r->steps_room : r->quick_room;
        b.steps1 = _mm512_cmpge_epu8_mask(s->room, steps_room[0]);
        b.steps2 = _mm512_cmpge_epu8_mask(s->room, steps_room[1]);
        b.steps3 = _mm512_cmpge_epu8_mask(s->room, steps_room[2]);
    }
    gw_bytes_copy(&b.v, &v);
    return b;
}

/* ---- dead zone and relative exponents -------------------------------------------------------------------
 */

/* gw_turn_of() of src/gcomp/bins.h, without its upper bound: to be limited to turn_max or quantum_max. */
static inline __m512i gw_quantum_turns(const gw_rounder *r, __m512i k)
{
    const __m512i quarters = _mm512_avg_epu8(_mm512_avg_epu8(k, r->turn_part), _mm512_setzero_si512());
    return _mm512_maskz_subs_epu8(_mm512_test_epi8_mask(k, k), _mm512_adds_epu8(quarters, r->turn_plus),
                                  r->turn_minus);
}

/* Relative exponents of the values in `ordinary`, whose exponent fields are in e. */
GW_TEMPLATE __m512i gw_turned(__m512i e, __m512i k, __mmask64 ordinary, const gw_rounder *r, uint32_t dtype)
{
    const __m512i turn = _mm512_min_epu8(gw_quantum_turns(r, k), r->turn_max);
    const __m512i relative = _mm512_mask_sub_epi8(e, ordinary, e, turn);
    if (dtype == GW_FP16) {
        return _mm512_mask_add_epi8(relative, _mm512_mask_cmplt_epu8_mask(ordinary, e, turn), relative,
                                    GW_BYTE(31));
    }
    return _mm512_mask_add_epi8(relative, _mm512_mask_cmple_epu8_mask(ordinary, e, turn), relative,
                                GW_BYTE(254));
}

/* The dead zone of 64 values. */
typedef struct gw_cut {
    __mmask64 below; /* values below their quantum */
    __mmask64 up;    /* those of them that become one quantum */
    __m512i quantum; /* its exponent field, for those */
} gw_cut;

/* Significands of values [at, at + 16) of `len`, from bit 31 down. For fp32 and bf16 garbage where the
 * exponent is 0; bits of `normal` tell it for fp16. */
GW_TEMPLATE __m512i gw_significands(const uint8_t *values, size_t at, size_t len, __mmask16 normal,
                                    uint32_t dtype)
{
    const __mmask16 valid = (__mmask16)(gw_low_mask(len) >> at);
    const __m512i top = _mm512_set1_epi32((int)0x80000000);
    if (dtype == GW_FP32) {
        const __m512i x = len >= 64 ? _mm512_loadu_si512(values + 4 * at)
                                    : _mm512_maskz_loadu_epi32(valid, values + 4 * at);
        return _mm512_or_si512(_mm512_slli_epi32(x, 8), top);
    }
    const __m256i half = len >= 64 ? _mm256_loadu_si256((const __m256i *)(const void *)(values + 2 * at))
                                   : _mm256_maskz_loadu_epi16(valid, values + 2 * at);
    const __m512i x = _mm512_cvtepu16_epi32(half);
    if (dtype == GW_BF16) {
        return _mm512_or_si512(_mm512_slli_epi32(x, 24), top);
    }
    const __m512i mantissa = _mm512_andnot_si512(top, _mm512_slli_epi32(x, 21));
    return _mm512_mask_or_epi32(mantissa, normal, mantissa, top);
}

/* Values whose random word is below 2^32 times their magnitude divided by the quantum: the significand,
 * shifted down by what `below` has in bytes. */
GW_TEMPLATE __mmask64 gw_random_up(const uint8_t *values, size_t len, const __m512i *words, __m512i e,
                                   __m512i below, uint32_t dtype)
{
    const __mmask64 normal = dtype == GW_FP16 ? _mm512_test_epi8_mask(e, e) : 0;
    const __m128i shift[4] = {_mm512_castsi512_si128(below), _mm512_extracti32x4_epi32(below, 1),
                              _mm512_extracti32x4_epi32(below, 2), _mm512_extracti32x4_epi32(below, 3)};
    uint64_t up = 0;
    for (unsigned i = 0; i < 4; i++) {
        const __m512i significand =
            gw_significands(values, 16 * i, len, (__mmask16)(normal >> 16 * i), dtype);
        const __m512i threshold = _mm512_srlv_epi32(significand, _mm512_cvtepu8_epi32(shift[i]));
        up |= (uint64_t)_mm512_cmplt_epu32_mask(words[i], threshold) << 16 * i;
    }
    return up;
}

/*
 * v: the values, before rounding; k: their map bytes; values: `len` of them as they are in memory, read, as
 * words, if the rounding is stochastic. No values are below a quantum if the rule has no dead zone.
 */
GW_TEMPLATE gw_cut gw_cut_begin(const gw_bytes *v, __m512i k, const __m512i *words, const uint8_t *values,
                                size_t len, const gw_rounder *r, uint32_t dtype, uint32_t rounding)
{
    gw_cut cut;
    __m512i edge = _mm512_min_epu8(gw_quantum_turns(r, k), r->quantum_max); /* largest exponent below */
    __m512i e = v->e, mantissa = e;
    if (dtype == GW_FP16 || rounding == GW_GCOMP_NEAREST) {
        mantissa = _mm512_or_si512(_mm512_ternarylogic_epi32(v->d1, v->d2, v->d3, 0xfe), v->d4);
    }
    if (dtype == GW_FP16) {
        const __m512i any = _mm512_or_si512(mantissa, e);
        edge = _mm512_subs_epu8(edge, GW_BYTE(1));
        e = _mm512_max_epu8(e, GW_BYTE(1));
        cut.below = _mm512_mask_cmple_epu8_mask(_mm512_test_epi8_mask(any, any), e, edge);
    } else {
        cut.below = _mm512_mask_cmple_epu8_mask(_mm512_test_epi8_mask(e, e), e, edge);
    }
    cut.quantum = _mm512_add_epi8(edge, GW_BYTE(1));
    cut.up = 0;
    if (rounding == GW_GCOMP_NEAREST) { /* more than half a quantum */
        const __mmask64 half = _mm512_mask_cmpeq_epi8_mask(cut.below, v->e, edge);
        cut.up = _mm512_mask_test_epi8_mask(half, mantissa, mantissa);
    } else if (rounding == GW_GCOMP_STOCHASTIC && cut.below != 0) {
        cut.up = cut.below & gw_random_up(values, len, words, v->e, _mm512_subs_epu8(edge, e), dtype);
    }
    return cut;
}

/* After gw_round_end(), which has cleared the digits of values below their quantum. Their drop is the largest
 * one, which is that of the quantum, too. */
static inline void gw_cut_end(gw_block *b, const gw_cut *cut)
{
    b->v.e = _mm512_mask_mov_epi8(b->v.e, cut->below, _mm512_maskz_mov_epi8(cut->up, cut->quantum));
}

/* Values that the cut made +0. */
static inline __mmask64 gw_cut_away(const gw_cut *cut)
{
    return _kandn_mask64(cut->up, cut->below);
}

/* ---- both parts ---------------------------------------------------------------------------------------- */

GW_TEMPLATE gw_block gw_round64(const gw_bytes *v, __m512i k, const gw_span *block, const gw_rounder *r,
                                uint32_t dtype, uint32_t derived, uint32_t turned, uint32_t rounding)
{
    __m512i words[4];
    if (rounding == GW_GCOMP_STOCHASTIC) {
        gw_random_words(words, block->element, r->rule);
    }
    const gw_sums s = gw_round_begin(*v, k, words, r, dtype, derived, rounding, 1);
    gw_block b = gw_round_end(&s, v, r, dtype, derived, rounding, 1);
    if (turned) {
        const gw_cut cut =
            gw_cut_begin(v, k, words, (const uint8_t *)block->values, block->len, r, dtype, rounding);
        gw_cut_end(&b, &cut);
        b.v.sign = _mm512_maskz_mov_epi8(_knot_mask64(gw_cut_away(&cut)), b.v.sign);
    }
    return b;
}

/* Where rounding has no loop of its own. v has the values of the block, up to 64, and k their map bytes. */
GW_TEMPLATE gw_block gw_round64_any(const gw_bytes *v, __m512i k, const gw_span *block, const gw_rounder *r,
                                    uint32_t dtype, uint32_t derived, uint32_t turned)
{
    switch (r->rule->rounding) {
    case GW_GCOMP_NEAREST:
        return gw_round64(v, k, block, r, dtype, derived, turned, GW_GCOMP_NEAREST);
    case GW_GCOMP_STOCHASTIC:
        return gw_round64(v, k, block, r, dtype, derived, turned, GW_GCOMP_STOCHASTIC);
    default:
        return gw_round64(v, k, block, r, dtype, derived, turned, GW_GCOMP_TRUNCATE);
    }
}

/* Values [at, at + len) of a span, for gw_round64_any(). */
static inline gw_span gw_span_part(const gw_span *span, size_t at, size_t len, size_t size)
{
    const gw_span part = {(const uint8_t *)span->values + size * at, NULL, len, span->element + at, 0};
    return part;
}

/* What is +0 after rounding, and what default mode makes +0. */
typedef struct gw_nonzero {
    __mmask64 value;     /* not +0 */
    __mmask64 magnitude; /* neither zero nor, for fp32 and bf16, subnormal */
} gw_nonzero;

/* Clears cut bits, where that was not done yet, and flushed values. */
GW_TEMPLATE void gw_clear_cut(gw_block *b)
{
    b->v.d4 = _mm512_maskz_mov_epi8(_knot_mask64(b->steps1), b->v.d4);
    b->v.d3 = _mm512_maskz_mov_epi8(_knot_mask64(b->steps2), b->v.d3);
    b->v.d2 = _mm512_maskz_mov_epi8(_knot_mask64(b->steps3), b->v.d2);
}

/* Cut digits must have been cleared if the dtype is fp16. */
GW_TEMPLATE gw_nonzero gw_nonzero_of(const gw_bytes *v, uint32_t dtype, uint32_t strict)
{
    gw_nonzero n;
    __m512i any = v->e;
    if (dtype == GW_FP16 || strict) {
        any = _mm512_ternarylogic_epi32(any, v->d1, v->d2, 0xfe);
        any = _mm512_ternarylogic_epi32(any, v->d3, v->d4, 0xfe);
    }
    n.magnitude = dtype == GW_FP16 ? _mm512_test_epi8_mask(any, any) : _mm512_test_epi8_mask(v->e, v->e);
    n.value = n.magnitude;
    if (strict) {
        any = _mm512_ternarylogic_epi32(any, v->sign, GW_BYTE(0x80), 0xf8);
        n.value = _mm512_test_epi8_mask(any, any);
    }
    return n;
}

/* The low 16 bytes as words, shifted up. */
static inline __m512i gw_words_up(__m512i x, unsigned n)
{
    return _mm512_sllv_epi32(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(x)), _mm512_set1_epi32((int)n));
}

/* 16 of the rounded values as words; 16-bit types in the low half. The bytes are in the low 16 of each
 * register; digits that were cut or flushed are zero. */
GW_TEMPLATE __m512i gw_words16(__m512i e, __m512i sign, __m512i d1, __m512i d2, __m512i d3, __m512i d4,
                               uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned at3 = t->digit_width[3], at2 = at3 + t->digit_width[2], at1 = at2 + t->digit_width[1];
    const unsigned top = 8u * t->size - 1;
    __m512i x = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(d4));
    x = _mm512_or_si512(x, gw_words_up(d3, at3));
    x = _mm512_or_si512(x, gw_words_up(d2, at2));
    x = _mm512_or_si512(x, gw_words_up(d1, at1));
    x = _mm512_or_si512(x, gw_words_up(e, t->mantissa_bits));
    return _mm512_ternarylogic_epi32(x, gw_words_up(sign, top - 7), _mm512_set1_epi32((int)(1u << top)),
                                     0xf8);
}

#endif
#endif
