/*
 * Shared by the files of THC's AVX2 kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_AVX2_H
#define GW_THC_AVX2_H

#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

#include "core/bytes.h"
#include "core/philox.h"
#include "thc/thc_values.h"

static inline __m256i gw_load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m128i gw_load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline void gw_store256(void *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

static inline void gw_store128(void *p, __m128i x)
{
    _mm_storeu_si128((__m128i *)p, x);
}

/* gw_thc_window(). Magnitudes compare as signed integers; below[] is the floor minus 1. */
static inline __m256 gw_window8(__m256 x, __m256i below, __m256 scale)
{
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32((int)GW_F32_ABS));
    return _mm256_and_ps(_mm256_mul_ps(x, scale), _mm256_castsi256_ps(_mm256_cmpgt_epi32(magnitude, below)));
}

static inline __m256i gw_window_below8(uint32_t floor_bits)
{
    return _mm256_set1_epi32((int)(floor_bits - 1));
}

/* gw_f32_flush(): values without exponent bits become +0. */
static inline __m256i gw_flush8(__m256i bits)
{
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32((int)GW_F32_INF));
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256()), bits);
}

/*
 * Philox4x32-10 (core/philox.h) for counters 4 at a time, each in the low half of a 64-bit lane: products of
 * the widening multiply need no shuffles, and the next one ignores the upper halves.
 */
typedef struct gw_philox4 {
    __m256i c0, c1, c2, c3;
} gw_philox4;

/* Keys of the ten rounds in every lane. */
typedef struct gw_philox_keys {
    __m256i k0[GW_PHILOX_ROUNDS], k1[GW_PHILOX_ROUNDS];
} gw_philox_keys;

static inline void gw_philox_schedule(gw_philox_keys *keys, uint64_t seed)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
        keys->k0[r] = _mm256_set1_epi32((int)k0);
        keys->k1[r] = _mm256_set1_epi32((int)k1);
        k0 += GW_PHILOX_WEYL0;
        k1 += GW_PHILOX_WEYL1;
    }
}

static inline gw_philox4 gw_philox4_start(__m256i counters, const gw_thc_stream *stream, uint32_t last)
{
    gw_philox4 p;
    p.c0 = counters;
    p.c1 = _mm256_set1_epi32((int)stream->block);
    p.c2 = _mm256_set1_epi32((int)stream->round);
    p.c3 = _mm256_set1_epi32((int)last);
    return p;
}

static inline void gw_philox4_round(gw_philox4 *p, const gw_philox_keys *keys, unsigned round)
{
    const __m256i a = _mm256_mul_epu32(p->c0, _mm256_set1_epi64x(GW_PHILOX_MUL0));
    const __m256i b = _mm256_mul_epu32(p->c2, _mm256_set1_epi64x(GW_PHILOX_MUL1));
    p->c0 = _mm256_xor_si256(_mm256_srli_epi64(b, 32), _mm256_xor_si256(p->c1, keys->k0[round]));
    p->c1 = b;
    p->c2 = _mm256_xor_si256(_mm256_srli_epi64(a, 32), _mm256_xor_si256(p->c3, keys->k1[round]));
    p->c3 = a;
}

#endif

#endif
