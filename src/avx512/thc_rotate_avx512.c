/*
 * Stages rotate and rotate back, by thc/rotate_lanes.h: strides 1 to 8 inside a register, 16 to 128 between
 * sixteen of them.
 *
 * Inside a register a permutation gives the partner lane, and (a + b, a - b) is x * (+-1) + partner: a
 * product with 1 or -1 is exact, so the fused operation rounds once, as the sum does.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

typedef __m512 floats;
typedef __m512i floors;
typedef uint16_t sign_word;

enum { LANES = 16, CHUNK_LEN = 256, FIRST_STEP = 1, COUNT_MAX = 4 };

#define LOAD(at)                _mm512_loadu_ps(at)
#define STORE(at, x)            _mm512_storeu_ps(at, x)
#define ADD(x, y)               _mm512_add_ps(x, y)
#define SUB(x, y)               _mm512_sub_ps(x, y)
#define SCALE(x)                _mm512_set1_ps(x)
#define FLOORS(bits)            _mm512_set1_epi32((int)(bits))
#define WINDOW(x, floor, scale) gw_window16(x, floor, scale)

/* Counters of 128 values each, eight at a time; the last batch may run beyond the block. */
static void make_signs(uint16_t *mask, size_t len, const gw_thc_stream *stream)
{
    const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    gw_philox_params params;

    gw_philox_params_make(&params, stream, GW_THC_DOMAIN_SIGNS, 0);
    for (size_t counter = 0; counter * 128 < len; counter += 8) {
        gw_philox8 p = gw_philox8_start((uint32_t)counter, &params);
        for (unsigned r = 2; r < GW_PHILOX_ROUNDS; r++) {
            gw_philox8_round(&p, &params, r);
        }
        const __m512i w01 = _mm512_or_si512(_mm512_and_si512(p.c0, low), _mm512_slli_epi64(p.c1, 32));
        const __m512i w23 = _mm512_or_si512(_mm512_and_si512(p.c2, low), _mm512_slli_epi64(p.c3, 32));
        _mm512_storeu_si512(&mask[8 * counter], _mm512_permutex2var_epi64(w01, first, w23));
        _mm512_storeu_si512(&mask[8 * counter + 32], _mm512_permutex2var_epi64(w01, second, w23));
    }
}

static inline __m512 negate_some(__m512 x, const uint16_t *signs, size_t i)
{
    return _mm512_mask_xor_ps(x, signs[i], x, _mm512_set1_ps(-0.0f));
}

static inline __m512 strides_1248(__m512 x)
{
    const __m512 even1 = _mm512_castsi512_ps(_mm512_set1_epi64((long long)0xbf8000003f800000u));
    const __m512 even2 = _mm512_set_ps(-1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1);
    const __m512 even4 = _mm512_set_ps(-1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1);
    const __m512 even8 = _mm512_set_ps(-1, -1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1);
    x = _mm512_fmadd_ps(x, even1, _mm512_permute_ps(x, 0xb1));
    x = _mm512_fmadd_ps(x, even2, _mm512_permute_ps(x, 0x4e));
    x = _mm512_fmadd_ps(x, even4, _mm512_shuffle_f32x4(x, x, 0xb1));
    return _mm512_fmadd_ps(x, even8, _mm512_shuffle_f32x4(x, x, 0x4e));
}

static inline void inner_strides(__m512 v[2])
{
    v[0] = strides_1248(v[0]);
    v[1] = strides_1248(v[1]);
}

#include "thc/rotate_lanes.h"

void gw_thc_rotate_avx512(float *dst, const float *src, size_t len, uint32_t exponent,
                          const gw_thc_stream *stream)
{
    rotate(dst, src, len, exponent, stream);
}

void gw_thc_rotate_back_avx512(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    rotate_back(y, len, exponent, stream);
}

#else
typedef int gw_thc_rotate_avx512_not_built; /* a translation unit must not be empty */
#endif
