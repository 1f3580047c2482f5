/*
 * Random words of stochastic rounding (docs/numerics.md section 4): Philox4x32-10, eight counters side by
 * side, 64 bits for each word, since a multiplication takes the lower 32 bits of its lanes.
 *
 * Four times eight counters keep the multipliers busy; two leave a quarter of the time unused. Bound on Zen
 * 4, two vector instructions of 512 bits a cycle: 118 instructions for 64 words, 0.92 cycles a word, measured
 * 1.06 (gcc) and 1.14 (clang); a block of 64 by itself 1.45.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RANDOM_AVX512_H
#define GW_RANDOM_AVX512_H

#include "avx512/kernels_avx512.h"
#include "core/philox.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* The words of eight counters, 64 bits apart. What a multiplication leaves above the lower 32 bits need not
 * be cleared. */
typedef struct gw_counters {
    __m512i c0, c1, c2, c3;
} gw_counters;

static inline void gw_philox_round(gw_counters *c, __m512i m0, __m512i m1, __m512i k0, __m512i k1)
{
    const __m512i p0 = _mm512_mul_epu32(c->c0, m0), p1 = _mm512_mul_epu32(c->c2, m1);
    c->c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c->c1, k0, 0x96);
    c->c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c->c3, k1, 0x96);
    c->c1 = p1;
    c->c3 = p0;
}

/* Eight counters from `quad` on, in the order in which unpacks bring their words into order. */
static inline __m512i gw_random_counters(uint64_t quad)
{
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    return _mm512_add_epi64(_mm512_set1_epi64((long long)quad), order);
}

/* ---- one block, any elements --------------------------------------------------------------------------- */

/* Random words of 64 values whose first absolute index is 4 * quad. Two times eight counters go through
 * the rounds side by side: one chain alone would not keep the multipliers busy. */
static inline void gw_random64(__m512i x[4], uint64_t quad, const gw_round_rule *rule)
{
    const __m512i m0 = _mm512_set1_epi64(GW_PHILOX_MUL0), m1 = _mm512_set1_epi64(GW_PHILOX_MUL1);
    const __m512i step0 = _mm512_set1_epi32((int)GW_PHILOX_WEYL0),
                  step1 = _mm512_set1_epi32((int)GW_PHILOX_WEYL1);
    __m512i k0 = _mm512_set1_epi32((int)(uint32_t)rule->seed),
            k1 = _mm512_set1_epi32((int)(uint32_t)(rule->seed >> 32));
    gw_counters a, b;
    a.c0 = gw_random_counters(quad);
    b.c0 = gw_random_counters(quad + 8);
    /* Elements are counted modulo 2^64, so counters modulo 2^62. Multiplications do not see c0's upper
     * half. */
    const __m512i high = _mm512_set1_epi64(0x3fffffff);
    a.c1 = _mm512_and_si512(_mm512_srli_epi64(a.c0, 32), high);
    b.c1 = _mm512_and_si512(_mm512_srli_epi64(b.c0, 32), high);
    a.c2 = b.c2 = _mm512_set1_epi64(rule->step_index);
    a.c3 = b.c3 = _mm512_set1_epi64(rule->rank_hop);
    for (int i = 0; i < GW_PHILOX_ROUNDS; i++) {
        gw_philox_round(&a, m0, m1, k0, k1);
        gw_philox_round(&b, m0, m1, k0, k1);
        k0 = _mm512_add_epi32(k0, step0);
        k1 = _mm512_add_epi32(k1, step1);
    }
    const __m512i a01 = _mm512_mask_mov_epi32(a.c0, 0xaaaa, _mm512_slli_epi64(a.c1, 32));
    const __m512i a23 = _mm512_mask_mov_epi32(a.c2, 0xaaaa, _mm512_slli_epi64(a.c3, 32));
    const __m512i b01 = _mm512_mask_mov_epi32(b.c0, 0xaaaa, _mm512_slli_epi64(b.c1, 32));
    const __m512i b23 = _mm512_mask_mov_epi32(b.c2, 0xaaaa, _mm512_slli_epi64(b.c3, 32));
    x[0] = _mm512_unpacklo_epi64(a01, a23);
    x[1] = _mm512_unpackhi_epi64(a01, a23);
    x[2] = _mm512_unpacklo_epi64(b01, b23);
    x[3] = _mm512_unpackhi_epi64(b01, b23);
}

/* The same from any absolute index on. */
static inline void gw_random_words(__m512i x[4], uint64_t element, const gw_round_rule *rule)
{
    gw_random64(x, element >> 2, rule);
    if ((element & 3) != 0) { /* a tensor that starts in the middle of a counter */
        uint32_t words[128];
        __m512i y[4];
        gw_random64(y, (element >> 2) + 16, rule);
        for (unsigned i = 0; i < 4; i++) {
            _mm512_storeu_si512(words + 16 * i, x[i]);
            _mm512_storeu_si512(words + 64 + 16 * i, y[i]);
        }
        for (unsigned i = 0; i < 4; i++) {
            x[i] = _mm512_loadu_si512(words + (element & 3) + 16 * i);
        }
    }
}

/* ---- a span whose counters differ in their lowest word alone --------------------------------------------
 */

typedef struct gw_random_params {
    uint64_t key[GW_PHILOX_ROUNDS][2]; /* of gw_philox_rounds_fill() */
} gw_random_params;

/* 1 if the parameters serve these values and 63 after them; otherwise it is not filled. */
static inline int gw_random_params_fill(gw_random_params *p, uint64_t element, size_t len,
                                        const gw_round_rule *rule)
{
    if ((element + len + 63) >> 34 != element >> 34) {
        return 0;
    }
    gw_philox_rounds_fill(p->key, rule->seed, (uint32_t)(element >> 34), rule->step_index, rule->rank_hop);
    return 1;
}

static inline __m512i gw_random_key(const gw_random_params *p, unsigned round, unsigned i)
{
    return _mm512_set1_epi64((long long)p->key[round][i]);
}

static inline void gw_random_round(gw_counters *c, unsigned round, const gw_random_params *p)
{
    gw_philox_round(c, _mm512_set1_epi64(GW_PHILOX_MUL0), _mm512_set1_epi64(GW_PHILOX_MUL1),
                    gw_random_key(p, round, 0), gw_random_key(p, round, 1));
}

/* Rounds 0 to 2 of eight counters. */
static inline gw_counters gw_random_begin(__m512i counter, const gw_random_params *p)
{
    gw_counters c;
    c.c3 = _mm512_mul_epu32(counter, _mm512_set1_epi64(GW_PHILOX_MUL0));
    c.c2 = _mm512_xor_si512(_mm512_srli_epi64(c.c3, 32), gw_random_key(p, 0, 1));
    c.c1 = _mm512_mul_epu32(c.c2, _mm512_set1_epi64(GW_PHILOX_MUL1));
    c.c0 = _mm512_xor_si512(_mm512_srli_epi64(c.c1, 32), gw_random_key(p, 1, 0));
    c.c2 = _mm512_xor_si512(c.c3, gw_random_key(p, 1, 1));
    c.c3 = _mm512_setzero_si512(); /* a constant, which is in the key */
    gw_random_round(&c, 2, p);
    return c;
}

/* The last round and the 32 words. Its results are pairs of words, which a rotation brings into their places.
 */
static inline void gw_random_end(uint32_t words[32], const gw_counters *c, const gw_random_params *p)
{
    const unsigned last = GW_PHILOX_ROUNDS - 1;
    const __m512i p0 = _mm512_mul_epu32(c->c0, _mm512_set1_epi64(GW_PHILOX_MUL0));
    const __m512i p1 = _mm512_mul_epu32(c->c2, _mm512_set1_epi64(GW_PHILOX_MUL1));
    const __m512i low = _mm512_mask_ternarylogic_epi32(_mm512_ror_epi64(p1, 32), 0x5555, c->c1,
                                                       gw_random_key(p, last, 0), 0x96);
    const __m512i high = _mm512_mask_ternarylogic_epi32(_mm512_ror_epi64(p0, 32), 0x5555, c->c3,
                                                        gw_random_key(p, last, 1), 0x96);
    _mm512_storeu_si512(words, _mm512_unpacklo_epi64(low, high));
    _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(low, high));
}

/* Two times 64 words, of the values from `first` and from `second` on, multiples of 4. */
static inline void gw_random_two(uint32_t words[128], uint64_t first, uint64_t second,
                                 const gw_random_params *p)
{
    gw_counters a = gw_random_begin(gw_random_counters(first >> 2), p);
    gw_counters b = gw_random_begin(gw_random_counters((first >> 2) + 8), p);
    gw_counters c = gw_random_begin(gw_random_counters(second >> 2), p);
    gw_counters d = gw_random_begin(gw_random_counters((second >> 2) + 8), p);
    for (unsigned round = 3; round < GW_PHILOX_ROUNDS - 1; round++) {
        gw_random_round(&a, round, p);
        gw_random_round(&b, round, p);
        gw_random_round(&c, round, p);
        gw_random_round(&d, round, p);
    }
    gw_random_end(words, &a, p);
    gw_random_end(words + 32, &b, p);
    gw_random_end(words + 64, &c, p);
    gw_random_end(words + 96, &d, p);
}

#endif
#endif
