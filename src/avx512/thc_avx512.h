/*
 * Shared by the files of THC's AVX-512 kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_AVX512_H
#define GW_THC_AVX512_H

#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

#include "core/bytes.h"
#include "core/philox.h"
#include "thc/thc_values.h"

/* The first `len` of 16 lanes. */
static inline __mmask16 gw_first16(size_t len)
{
    return (__mmask16)(len >= 16 ? 0xffffu : (1u << len) - 1u);
}

/* Magnitudes of floor_bits and more, as bit patterns. */
static inline __mmask16 gw_at_least16(__m512 x, __m512i floor_bits)
{
    return _mm512_cmpge_epu32_mask(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)GW_F32_ABS)), floor_bits);
}

/* gw_thc_window() */
static inline __m512 gw_window16(__m512 x, __m512i floor_bits, __m512 scale)
{
    return _mm512_maskz_mul_ps(gw_at_least16(x, floor_bits), x, scale);
}

/* gw_f32_flush(): values without exponent bits become +0. */
static inline __m512i gw_flush16(__m512i bits)
{
    return _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(bits, _mm512_set1_epi32(GW_F32_INF)), bits);
}

/*
 * Philox4x32-10 (core/philox.h) for counters 8 at a time, each in the low half of a 64-bit lane: products of
 * the widening multiply need no shuffles, and the next one ignores the upper halves. Only the first counter
 * word differs between lanes, so of the first two rounds one product each is the same for all:
 * gw_philox_params() computes them once.
 */
typedef struct gw_philox8 {
    __m512i c0, c1, c2, c3;
} gw_philox8;

typedef struct gw_philox_params {
    uint32_t second_mix;                    /* into counter word 2 after the first round */
    uint32_t low_mix, high_mix, high_start; /* into words 0 and 2, and word 3, after the second */
    uint32_t key[2 * GW_PHILOX_ROUNDS];
} gw_philox_params;

/* `last` is counter word 3; result words 0 and 2 come with `flip` exclusive-ored in. */
static inline void gw_philox_params_make(gw_philox_params *params, const gw_thc_stream *stream, uint32_t last,
                                         uint32_t flip)
{
    uint32_t k0 = (uint32_t)stream->seed, k1 = (uint32_t)(stream->seed >> 32);
    for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
        params->key[2 * r] = k0;
        params->key[2 * r + 1] = k1;
        k0 += GW_PHILOX_WEYL0;
        k1 += GW_PHILOX_WEYL1;
    }
    const uint64_t first = (uint64_t)GW_PHILOX_MUL1 * stream->round;
    const uint64_t second =
        (uint64_t)GW_PHILOX_MUL0 * ((uint32_t)(first >> 32) ^ stream->block ^ params->key[0]);
    params->second_mix = last ^ params->key[1];
    params->low_mix = (uint32_t)first ^ params->key[2];
    params->high_mix = (uint32_t)(second >> 32) ^ params->key[3];
    params->high_start = (uint32_t)second;
    params->key[2 * GW_PHILOX_ROUNDS - 2] ^= flip;
    params->key[2 * GW_PHILOX_ROUNDS - 1] ^= flip;
}

/* Counters first, first + 1, ..., after the first two rounds. */
static inline gw_philox8 gw_philox8_start(uint32_t first, const gw_philox_params *params)
{
    const __m512i counters =
        _mm512_add_epi64(_mm512_set1_epi64((long long)first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    const __m512i a = _mm512_mul_epu32(counters, _mm512_set1_epi64(GW_PHILOX_MUL0));
    const __m512i word2 =
        _mm512_xor_si512(_mm512_srli_epi64(a, 32), _mm512_set1_epi32((int)params->second_mix));
    gw_philox8 p;
    p.c1 = _mm512_mul_epu32(word2, _mm512_set1_epi64(GW_PHILOX_MUL1));
    p.c0 = _mm512_xor_si512(_mm512_srli_epi64(p.c1, 32), _mm512_set1_epi32((int)params->low_mix));
    p.c2 = _mm512_xor_si512(a, _mm512_set1_epi32((int)params->high_mix));
    p.c3 = _mm512_set1_epi32((int)params->high_start);
    return p;
}

/* Rounds 2 to 9. */
static inline void gw_philox8_round(gw_philox8 *p, const gw_philox_params *params, unsigned round)
{
    enum { XOR3 = 0x96 };
    const __m512i a = _mm512_mul_epu32(p->c0, _mm512_set1_epi64(GW_PHILOX_MUL0));
    const __m512i b = _mm512_mul_epu32(p->c2, _mm512_set1_epi64(GW_PHILOX_MUL1));
    p->c0 = _mm512_ternarylogic_epi32(_mm512_srli_epi64(b, 32), p->c1,
                                      _mm512_set1_epi32((int)params->key[2 * round]), XOR3);
    p->c1 = b;
    p->c2 = _mm512_ternarylogic_epi32(_mm512_srli_epi64(a, 32), p->c3,
                                      _mm512_set1_epi32((int)params->key[2 * round + 1]), XOR3);
    p->c3 = a;
}

#endif

#endif
