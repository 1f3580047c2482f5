/*
 * A step of DGC, 16 values at a time. The sum of squares that it clips by is AVX2's: its sums wait for each
 * other, and wider ones took as long or longer.
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

static inline __m512 product16(__m512 x, __m512 factor, __m512i floor_bits)
{
    return _mm512_maskz_mul_ps(gw_at_least16(x, floor_bits), x, factor);
}

void gw_sparse_momentum_avx512(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                               size_t len, const gw_sparse_step *step)
{
    uint8_t *const u_out = (uint8_t *)u_next, *const v_out = (uint8_t *)v_next;
    const uint8_t *const u_in = (const uint8_t *)u, *const v_in = (const uint8_t *)v;
    const __m512 m = _mm512_set1_ps(step->momentum), factor = _mm512_set1_ps(step->factor);
    const __m512i m_floor = _mm512_set1_epi32((int)step->momentum_floor);
    const __m512i factor_floor = _mm512_set1_epi32((int)step->factor_floor);
    const int is_nesterov = step->nesterov != 0;
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m512 y = product16(_mm512_loadu_ps(x + i), factor, factor_floor);
        const __m512 w = flush16(_mm512_add_ps(product16(_mm512_loadu_ps(u_in + 4 * i), m, m_floor), y));
        const __m512 add = is_nesterov ? flush16(_mm512_add_ps(product16(w, m, m_floor), y)) : w;
        const __m512 rest = flush16(_mm512_loadu_ps(v_in + 4 * i));
        _mm512_storeu_ps(u_out + 4 * i, w);
        _mm512_storeu_ps(v_out + 4 * i, flush16(_mm512_add_ps(rest, add)));
    }
    gw_sparse_momentum_values(u_out, v_out, u_in, v_in, x, i, len, step);
}

#else
typedef int gw_classic_momentum_avx512_not_built; /* a translation unit must not be empty */
#endif
