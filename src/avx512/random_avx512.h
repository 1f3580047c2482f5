/*
 * Random words of stochastic rounding (docs/numerics.md section 4): Philox4x32-8, eight counters side by
 * side, 64 bits for each word, since a multiplication takes the lower 32 bits of its lanes.
 *
 * Four times eight counters keep the multipliers busy. Bound on Zen 4, two vector instructions of 512 bits a
 * cycle: 46 instructions for the words of 64 values, 0.36 cycles a value.
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

/* Eight counters from `counter` on, in the order in which unpacks bring their words into order. */
static inline __m512i gw_random_counters(uint64_t counter)
{
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    return _mm512_add_epi64(_mm512_set1_epi64((long long)counter), order);
}

/* Words of 32 values from those of four counters: behind those of each, the same with their halves swapped.
 */
static inline void gw_random_share(__m512i x[2], __m512i words)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                  second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const __m512i swapped = _mm512_ror_epi32(words, 16);
    x[0] = _mm512_permutex2var_epi64(words, first, swapped);
    x[1] = _mm512_permutex2var_epi64(words, second, swapped);
}

/* ---- one block, any elements --------------------------------------------------------------------------- */

/* Random words of 64 values whose first absolute index is 8 * first. */
static inline void gw_random64(__m512i x[4], uint64_t first, const gw_round_rule *rule)
{
    const __m512i m0 = _mm512_set1_epi64(GW_PHILOX_MUL0), m1 = _mm512_set1_epi64(GW_PHILOX_MUL1);
    const __m512i step0 = _mm512_set1_epi32((int)GW_PHILOX_WEYL0),
                  step1 = _mm512_set1_epi32((int)GW_PHILOX_WEYL1);
    __m512i k0 = _mm512_set1_epi32((int)(uint32_t)rule->seed),
            k1 = _mm512_set1_epi32((int)(uint32_t)(rule->seed >> 32));
    gw_counters c;
    c.c0 = gw_random_counters(first);
    /* Elements are counted modulo 2^64, so counters modulo 2^61. Multiplications do not see c0's upper
     * half. */
    c.c1 =
        _mm512_and_si512(_mm512_srli_epi64(c.c0, 32), _mm512_set1_epi64(UINT32_MAX >> GW_RANDOM_SHARED_LOG2));
    c.c2 = _mm512_set1_epi64(rule->step_index);
    c.c3 = _mm512_set1_epi64(rule->rank_hop);
    for (int i = 0; i < GW_RANDOM_ROUNDS; i++) {
        gw_philox_round(&c, m0, m1, k0, k1);
        k0 = _mm512_add_epi32(k0, step0);
        k1 = _mm512_add_epi32(k1, step1);
    }
    const __m512i c01 = _mm512_mask_mov_epi32(c.c0, 0xaaaa, _mm512_slli_epi64(c.c1, 32));
    const __m512i c23 = _mm512_mask_mov_epi32(c.c2, 0xaaaa, _mm512_slli_epi64(c.c3, 32));
    gw_random_share(x, _mm512_unpacklo_epi64(c01, c23));
    gw_random_share(x + 2, _mm512_unpackhi_epi64(c01, c23));
}

/* The same from any absolute index on. */
static inline void gw_random_words(__m512i x[4], uint64_t element, const gw_round_rule *rule)
{
    const unsigned offset = element % GW_RANDOM_SHARED;
    gw_random64(x, element >> GW_RANDOM_SHARED_LOG2, rule);
    if (offset != 0) { /* a tensor that starts in the middle of a counter */
        uint32_t words[128];
        __m512i y[4];
        gw_random64(y, (element >> GW_RANDOM_SHARED_LOG2) + 8, rule);
        for (unsigned i = 0; i < 4; i++) {
            _mm512_storeu_si512(words + 16 * i, x[i]);
            _mm512_storeu_si512(words + 64 + 16 * i, y[i]);
        }
        for (unsigned i = 0; i < 4; i++) {
            x[i] = _mm512_loadu_si512(words + offset + 16 * i);
        }
    }
}

/* ---- a span whose counters differ in their lowest word alone --------------------------------------------
 */

typedef struct gw_random_params {
    uint64_t key[GW_RANDOM_ROUNDS][2]; /* of gw_random_rounds_fill() */
} gw_random_params;

/* 1 if the parameters serve these values and 63 after them; otherwise it is not filled. */
static inline int gw_random_params_fill(gw_random_params *p, uint64_t element, size_t len,
                                        const gw_round_rule *rule)
{
    const unsigned log2 = 32 + GW_RANDOM_SHARED_LOG2;
    if ((element + len + 63) >> log2 != element >> log2) {
        return 0;
    }
    gw_random_rounds_fill(p->key, rule->seed, (uint32_t)(element >> log2), rule->step_index, rule->rank_hop);
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

/* The last round and the words of 64 values. Its results are pairs of words, which a rotation brings into
 * their places. */
static inline void gw_random_end(uint32_t words[64], const gw_counters *c, const gw_random_params *p)
{
    const unsigned last = GW_RANDOM_ROUNDS - 1;
    const __m512i p0 = _mm512_mul_epu32(c->c0, _mm512_set1_epi64(GW_PHILOX_MUL0));
    const __m512i p1 = _mm512_mul_epu32(c->c2, _mm512_set1_epi64(GW_PHILOX_MUL1));
    const __m512i low = _mm512_mask_ternarylogic_epi32(_mm512_ror_epi64(p1, 32), 0x5555, c->c1,
                                                       gw_random_key(p, last, 0), 0x96);
    const __m512i high = _mm512_mask_ternarylogic_epi32(_mm512_ror_epi64(p0, 32), 0x5555, c->c3,
                                                        gw_random_key(p, last, 1), 0x96);
    __m512i x[4];
    gw_random_share(x, _mm512_unpacklo_epi64(low, high));
    gw_random_share(x + 2, _mm512_unpackhi_epi64(low, high));
    for (unsigned i = 0; i < 4; i++) {
        _mm512_storeu_si512(words + 16 * i, x[i]);
    }
}

/* `count` times 64 words, up to 4, of the values from each element on, multiples of 8. */
GW_TEMPLATE void gw_random_blocks(uint32_t *words, const uint64_t *element, int count,
                                  const gw_random_params *p)
{
    gw_counters c[4];
    for (int j = 0; j < count; j++) {
        c[j] = gw_random_begin(gw_random_counters(element[j] >> GW_RANDOM_SHARED_LOG2), p);
    }
    for (unsigned round = 3; round < GW_RANDOM_ROUNDS - 1; round++) {
        for (int j = 0; j < count; j++) {
            gw_random_round(&c[j], round, p);
        }
    }
    for (int j = 0; j < count; j++) {
        gw_random_end(words + 64 * j, &c[j], p);
    }
}

#endif
#endif
