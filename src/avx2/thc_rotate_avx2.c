/*
 * Stages rotate and rotate back, by thc/rotate_lanes.h: strides 1, 2, 4 inside a register, 8, 16, 32 between
 * eight of them.
 *
 * Inside a register a permutation gives the partner; (a + b, a - b) is the partner plus x with the sign of
 * its second half turned, and a + (-b) is a - b.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

typedef __m256 floats;
typedef __m256i floors;
typedef uint32_t sign_word;

enum { LANES = 8, CHUNK_LEN = 64, FIRST_STEP = 1, COUNT_MAX = 4 };

#define LOAD(at)                _mm256_loadu_ps(at)
#define STORE(at, x)            _mm256_storeu_ps(at, x)
#define ADD(x, y)               _mm256_add_ps(x, y)
#define SUB(x, y)               _mm256_sub_ps(x, y)
#define SCALE(x)                _mm256_set1_ps(x)
#define FLOORS(bits)            gw_window_below8(bits)
#define WINDOW(x, floor, scale) gw_window8(x, floor, scale)

/* Counters of 128 values each, four at a time; the last batch may run beyond the block. */
static void make_signs(uint32_t *word, size_t len, const gw_thc_stream *stream)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i counters = _mm256_set_epi64x(3, 2, 1, 0);
    gw_philox_keys keys;

    gw_philox_schedule(&keys, stream->seed);
    for (size_t counter = 0; counter * 128 < len; counter += 4) {
        gw_philox4 p = gw_philox4_start(counters, stream, GW_THC_DOMAIN_SIGNS);
        for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
            gw_philox4_round(&p, &keys, r);
        }
        const __m256i w01 = _mm256_or_si256(_mm256_and_si256(p.c0, low), _mm256_slli_epi64(p.c1, 32));
        const __m256i w23 = _mm256_or_si256(_mm256_and_si256(p.c2, low), _mm256_slli_epi64(p.c3, 32));
        const __m256i even = _mm256_unpacklo_epi64(w01, w23), odd = _mm256_unpackhi_epi64(w01, w23);
        gw_store256(&word[4 * counter], _mm256_permute2x128_si256(even, odd, 0x20));
        gw_store256(&word[4 * counter + 8], _mm256_permute2x128_si256(even, odd, 0x31));
        counters = _mm256_add_epi64(counters, _mm256_set1_epi64x(4));
    }
}

/* Register i of a block: its eight sign bits at the top of eight lanes. */
static inline __m256 negate_some(__m256 x, const uint32_t *words, size_t i)
{
    const __m256i shift = _mm256_set_epi32(24, 25, 26, 27, 28, 29, 30, 31);
    const __m256i bits = _mm256_set1_epi32((int)(words[i / 4] >> i % 4 * 8));
    const __m256i signs =
        _mm256_and_si256(_mm256_sllv_epi32(bits, shift), _mm256_set1_epi32((int)0x80000000u));
    return _mm256_xor_ps(x, _mm256_castsi256_ps(signs));
}

static inline __m256 strides_124(__m256 x)
{
    const __m256 odd1 = _mm256_set_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
    const __m256 odd2 = _mm256_set_ps(-0.0f, -0.0f, 0, 0, -0.0f, -0.0f, 0, 0);
    const __m256 odd4 = _mm256_set_ps(-0.0f, -0.0f, -0.0f, -0.0f, 0, 0, 0, 0);
    x = _mm256_add_ps(_mm256_permute_ps(x, 0xb1), _mm256_xor_ps(x, odd1));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4e), _mm256_xor_ps(x, odd2));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 1), _mm256_xor_ps(x, odd4));
}

static inline void inner_strides(__m256 v[2])
{
    v[0] = strides_124(v[0]);
    v[1] = strides_124(v[1]);
}

#include "thc/rotate_lanes.h"

void gw_thc_rotate_avx2(float *dst, const float *src, size_t len, uint32_t exponent,
                        const gw_thc_stream *stream)
{
    rotate(dst, src, len, exponent, stream);
}

void gw_thc_rotate_back_avx2(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    rotate_back(y, len, exponent, stream);
}

#else
typedef int gw_thc_rotate_avx2_not_built; /* a translation unit must not be empty */
#endif
