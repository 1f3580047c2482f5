/*
 * A step of DGC and the sum of squares that it clips by, 16 values at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "classic/sparse_value.h"

static inline __m512 flush16(__m512 x)
{
    return _mm512_castsi512_ps(gw_flush16(_mm512_castps_si512(x)));
}

/* Inlined with and without clipping and Nesterov's variant. */
GW_TEMPLATE size_t momentum_as(uint8_t *u_next, uint8_t *v_next, const uint8_t *u, const uint8_t *v,
                               const float *x, size_t len, const gw_sparse_step *step, int is_plain)
{
    const __m512 m = _mm512_set1_ps(step->momentum), factor = _mm512_set1_ps(step->factor);
    const int is_clipped = !is_plain && step->factor != 1.0f, is_nesterov = !is_plain && step->nesterov != 0;
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        __m512 y = _mm512_loadu_ps(x + i);
        if (is_clipped) {
            y = flush16(_mm512_mul_ps(y, factor));
        }
        const __m512 old = flush16(_mm512_loadu_ps(u + 4 * i)), rest = flush16(_mm512_loadu_ps(v + 4 * i));
        const __m512 w = flush16(_mm512_add_ps(flush16(_mm512_mul_ps(m, old)), y));
        const __m512 add = is_nesterov ? flush16(_mm512_add_ps(flush16(_mm512_mul_ps(m, w)), y)) : w;
        _mm512_storeu_ps(u_next + 4 * i, w);
        _mm512_storeu_ps(v_next + 4 * i, flush16(_mm512_add_ps(rest, add)));
    }
    return i;
}

void gw_sparse_momentum_avx512(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                               size_t len, const gw_sparse_step *step)
{
    uint8_t *const u_out = (uint8_t *)u_next, *const v_out = (uint8_t *)v_next;
    const uint8_t *const u_in = (const uint8_t *)u, *const v_in = (const uint8_t *)v;
    const int is_plain = step->factor == 1.0f && step->nesterov == 0;
    const size_t done = is_plain ? momentum_as(u_out, v_out, u_in, v_in, x, len, step, 1)
                                 : momentum_as(u_out, v_out, u_in, v_in, x, len, step, 0);
    gw_sparse_momentum_values(u_out, v_out, u_in, v_in, x, done, len, step);
}

void gw_sparse_squares_avx512(double sums[GW_SPARSE_SUMS], const float *x, size_t len)
{
    __m512d low = _mm512_loadu_pd(sums), high = _mm512_loadu_pd(sums + 8);
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
        const __m512d b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        low = _mm512_add_pd(low, _mm512_mul_pd(a, a));
        high = _mm512_add_pd(high, _mm512_mul_pd(b, b));
    }
    _mm512_storeu_pd(sums, low);
    _mm512_storeu_pd(sums + 8, high);
    gw_sparse_squares_values(sums, x, i, len);
}

#else
typedef int gw_classic_momentum_avx512_not_built; /* a translation unit must not be empty */
#endif
