/*
 * Stochastic rounding with a dead zone of fp32 in default mode, 64 values a step: what survey and split
 * share.
 *
 * Most values become zero or keep few bits, and each has a random word. So rounding works on words of 32
 * bits, where a drop of any size is one shift, and only what the next step needs becomes bytes: fewer
 * instructions than digit by digit (round_block_avx512.h), whose random words have to become digits too.
 *
 * Bound on Zen 4, two vector instructions of 512 bits a cycle: random words 46 instructions for 64 values,
 * 0.36 cycles a value; rounding with ranks and compaction in split 90, 0.70.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DEAD_ZONE_AVX512_H
#define GW_DEAD_ZONE_AVX512_H

#include "avx512/round_block_avx512.h"
#include "gcomp/bins.h"

#if defined(GW_AVX512_COMPILED)

typedef struct gw_dead_zone_params {
    __m512i part, plus; /* from a map byte to the exponent of its quantum */
    gw_random_params random;
} gw_dead_zone_params;

/* ---- rounding ------------------------------------------------------------------------------------------ */

/* 1 if these functions can round the span; otherwise the parameters are not filled. */
static inline int gw_dead_zone_params_fill(gw_dead_zone_params *p, const gw_span *span,
                                           const gw_round_rule *rule)
{
    if (!gw_is_dead_zone_stochastic(rule) ||
        !gw_random_params_fill(&p->random, span->element, span->len, rule)) {
        return 0;
    }
    /* floor((K + drop_offset - 3) / 4) = floor((K + rest) / 4) + whole, and avg(avg(K, rest + 1), 0) is one
     * more than the first summand. */
    const int32_t base = rule->drop_offset - 3, rest = base & 3, whole = (base - rest) / 4;
    p->part = GW_BYTE(rest + 1);
    p->plus = GW_BYTE(whole - 24);
    return 1;
}

/* 64 rounded values. */
typedef struct gw_dead_zone_block {
    __m512i byte[4]; /* of words that have their sign, and the mantissa bits that are kept */
    __m512i index;   /* exponent, or relative exponent */
    __m512i drop;
    __mmask64 nonzero;
    __mmask64 special; /* infinity, NaN, or a carry into them: the block has to be rounded another way */
} gw_dead_zone_block;

/* 64 exponent fields. */
static inline __m512i gw_dead_zone_exponents(const __m512i x[4])
{
    /* Byte 3 of doubled words: of two registers to the low half, of the others to the high half. */
    const __m512i fourths = gw_fourths(3);
    const __m512i low =
        _mm512_permutex2var_epi8(_mm512_add_epi32(x[0], x[0]), fourths, _mm512_add_epi32(x[1], x[1]));
    const __m512i high =
        _mm512_permutex2var_epi8(_mm512_add_epi32(x[2], x[2]), fourths, _mm512_add_epi32(x[3], x[3]));
    return gw_low_halves(low, high);
}

/* What rounding of 64 values begins with. */
typedef struct gw_dead_zone_start {
    __m512i e, q; /* exponents of the values and of their quanta */
    __m512i above;
    __mmask64 open; /* there is a quantum */
} gw_dead_zone_start;

GW_TEMPLATE gw_dead_zone_start gw_dead_zone_begin(const uint8_t *values, const uint8_t *map_bytes,
                                                  const gw_dead_zone_params *p)
{
    const __m512i k = _mm512_loadu_si512(map_bytes), top = GW_BYTE(0x80);
    __m512i x[4];
    for (unsigned i = 0; i < 4; i++) {
        x[i] = _mm512_loadu_si512(values + 64 * i);
    }
    gw_dead_zone_start s;
    s.open = _mm512_test_epi8_mask(k, k);
    s.q = _mm512_add_epi8(_mm512_avg_epu8(_mm512_avg_epu8(k, p->part), _mm512_setzero_si512()), p->plus);
    s.e = gw_dead_zone_exponents(x);
    /* Octaves above the quantum: signed and saturated, since shifts by 32 and more give 0 anyway. As counts
     * of shifts they are unsigned: below the quantum 128 and more, and above it their complement is. */
    s.above =
        _mm512_mask_subs_epi8(GW_BYTE(127), s.open, _mm512_xor_si512(s.e, top), _mm512_xor_si512(s.q, top));
    return s;
}

/* Values 16 * i to 16 * i + 15 of them, without what is cut. *up: those below their quantum that become it.
 */
GW_TEMPLATE __m512i gw_dead_zone_sixteen(__mmask16 *up, const uint8_t *values, const uint32_t *words,
                                         __m512i above, int i)
{
    const __m512i x = _mm512_loadu_si512(values + 64 * i), word = _mm512_loadu_si512(words + 16 * i);
    const __m512i n = gw_widen_bytes(above, i);
    const __m512i cut = _mm512_srlv_epi32(_mm512_set1_epi32(0x7fffff), n);
    const __m512i significand = _mm512_or_si512(_mm512_slli_epi32(x, 8), _mm512_set1_epi32((int)0x80000000));
    const __m512i share = _mm512_srlv_epi32(significand, _mm512_xor_si512(n, _mm512_set1_epi32(255)));
    *up = _mm512_cmplt_epu32_mask(word, share);
    /* 23 - n bits are cut. They are cleared, because a carry into the exponent makes the drop smaller. */
    const __m512i add = _mm512_srlv_epi32(_mm512_srli_epi32(word, 9), n);
    return _mm512_andnot_si512(cut, _mm512_add_epi32(x, add));
}

GW_TEMPLATE gw_dead_zone_block gw_dead_zone_end(const __m512i x[4], const __mmask16 up[4],
                                                const gw_dead_zone_start *s, uint32_t relative)
{
    const __mmask64 all_up = _mm512_kunpackd(_mm512_kunpackw(up[3], up[2]), _mm512_kunpackw(up[1], up[0]));
    const __m512i e = s->e, q = s->q;
    gw_dead_zone_block b;
    gw_transpose4(b.byte, x[0], x[1], x[2], x[3]);
    const __m512i e_after = _mm512_add_epi8(_mm512_add_epi8(b.byte[3], b.byte[3]), gw_carry(b.byte[2], 7));
    b.nonzero = _mm512_test_epi8_mask(e, e) & (~_mm512_movepi8_mask(s->above) | all_up);
    b.special = _mm512_cmpeq_epi8_mask(e_after, GW_BYTE(255));
    /* Values below their quantum were not rounded: 0, as for the quantum, which they become. */
    const __m512i octaves = _mm512_mask_subs_epu8(GW_BYTE(255), s->open, e_after, q);
    b.drop = _mm512_subs_epu8(GW_BYTE(23), octaves);
    b.index = relative ? _mm512_mask_add_epi8(e_after, s->open, octaves, GW_BYTE(1))
                       : _mm512_mask_max_epu8(e_after, s->open, e_after, q);
    return b;
}

/* 64 values with their random words. */
GW_TEMPLATE gw_dead_zone_block gw_dead_zone_round(const uint8_t *values, const uint8_t *map_bytes,
                                                  const uint32_t *words, const gw_dead_zone_params *p,
                                                  uint32_t relative)
{
    const gw_dead_zone_start start = gw_dead_zone_begin(values, map_bytes, p);
    __m512i x[4];
    __mmask16 up[4];
    for (int i = 0; i < 4; i++) {
        x[i] = gw_dead_zone_sixteen(&up[i], values, words, start.above, i);
    }
    return gw_dead_zone_end(x, up, &start, relative);
}

/*
 * Two times 64 values with their random words, and the words of the next two, from `element`, a multiple of
 * 8, on. Rounding is a chain of about a hundred cycles, more than out-of-order execution overlaps, and Philox
 * waits for multipliers: 32 values after each round fill gaps of both, 3 to 5 % of split.
 */
GW_TEMPLATE void gw_dead_zone_round_two(gw_dead_zone_block block[2], const uint8_t *values,
                                        const uint8_t *map_bytes, const uint32_t *words, uint32_t next[128],
                                        uint64_t element, const gw_dead_zone_params *p, uint32_t relative)
{
    const gw_random_params *random = &p->random;
    const __m512i eight = _mm512_set1_epi64(8);
    const gw_dead_zone_start start[2] = {gw_dead_zone_begin(values, map_bytes, p),
                                         gw_dead_zone_begin(values + 256, map_bytes + 64, p)};
    const __m512i counter = gw_random_counters(element >> GW_RANDOM_SHARED_LOG2);
    gw_counters c[2] = {gw_random_begin(counter, random),
                        gw_random_begin(_mm512_add_epi64(counter, eight), random)};
    __m512i x[8];
    __mmask16 up[8];
    _Static_assert(GW_RANDOM_ROUNDS == 8, "four rounds of eight are between begin and end");
    for (unsigned r = 3; r < GW_RANDOM_ROUNDS - 1; r++) {
        gw_random_round(&c[0], r, random);
        gw_random_round(&c[1], r, random);
        for (int i = 2 * (int)r - 6; i < 2 * (int)r - 4; i++) {
            x[i] = gw_dead_zone_sixteen(&up[i], values + 256 * (i / 4), words + 64 * (i / 4),
                                        start[i / 4].above, i & 3);
        }
    }
    gw_random_end(next, &c[0], random);
    gw_random_end(next + 64, &c[1], random);
    block[0] = gw_dead_zone_end(x, up, &start[0], relative);
    block[1] = gw_dead_zone_end(x + 4, up + 4, &start[1], relative);
}

#endif
#endif
