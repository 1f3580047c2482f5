/*
 * A step of DGC and the sum of squares that it clips by, 8 values at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "classic/sparse_value.h"

static inline __m256 flush8(__m256 x)
{
    return _mm256_castsi256_ps(gw_flush8(_mm256_castps_si256(x)));
}

static inline __m256 load8(const uint8_t *src, size_t i)
{
    return _mm256_castsi256_ps(gw_load256(src + 4 * i));
}

/* below: the floor minus 1. Magnitudes compare as signed numbers. */
static inline __m256 product8(__m256 x, __m256 factor, __m256i below)
{
    return gw_window8(x, below, factor);
}

void gw_sparse_momentum_avx2(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                             size_t len, const gw_sparse_step *step)
{
    uint8_t *const u_out = (uint8_t *)u_next, *const v_out = (uint8_t *)v_next;
    const uint8_t *const u_in = (const uint8_t *)u, *const v_in = (const uint8_t *)v;
    const __m256 m = _mm256_set1_ps(step->momentum), factor = _mm256_set1_ps(step->factor);
    const __m256i m_below = gw_window_below8(step->momentum_floor);
    const __m256i factor_below = gw_window_below8(step->factor_floor);
    const int is_nesterov = step->nesterov != 0;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const __m256 y = product8(_mm256_loadu_ps(x + i), factor, factor_below);
        const __m256 w = flush8(_mm256_add_ps(product8(load8(u_in, i), m, m_below), y));
        const __m256 add = is_nesterov ? flush8(_mm256_add_ps(product8(w, m, m_below), y)) : w;
        const __m256 next = flush8(_mm256_add_ps(flush8(load8(v_in, i)), add));
        gw_store256(u_out + 4 * i, _mm256_castps_si256(w));
        gw_store256(v_out + 4 * i, _mm256_castps_si256(next));
    }
    gw_sparse_momentum_values(u_out, v_out, u_in, v_in, x, i, len, step);
}

void gw_sparse_squares_avx2(double sums[GW_SPARSE_SUMS], const float *x, size_t len)
{
    __m256d sum[4];
    size_t i = 0;
    for (unsigned j = 0; j < 4; j++) {
        sum[j] = _mm256_loadu_pd(sums + 4 * j);
    }
    for (; i + 16 <= len; i += 16) {
        for (unsigned j = 0; j < 4; j++) {
            const __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * j));
            sum[j] = _mm256_add_pd(sum[j], _mm256_mul_pd(a, a));
        }
    }
    for (unsigned j = 0; j < 4; j++) {
        _mm256_storeu_pd(sums + 4 * j, sum[j]);
    }
    gw_sparse_squares_values(sums, x, i, len);
}

#else
typedef int gw_classic_momentum_avx2_not_built; /* a translation unit must not be empty */
#endif
