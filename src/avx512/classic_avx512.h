/*
 * Shared by the files of the classic codecs' AVX-512 kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_AVX512_H
#define GW_CLASSIC_AVX512_H

#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "classic/sign_values.h"

/* The first `len` of 8 lanes. */
static inline __mmask8 gw_first8(size_t len)
{
    return (__mmask8)(len >= 8 ? 0xffu : (1u << len) - 1u);
}

/* gw_f32_flush() of eight values. */
static inline __m256 gw_flush8_512(__m256i bits)
{
    const __mmask8 is_kept = _mm256_test_epi32_mask(bits, _mm256_set1_epi32(GW_F32_INF));
    return _mm256_castsi256_ps(_mm256_maskz_mov_epi32(is_kept, bits));
}

/* gw_narrow_double() of eight values. NaN is not below the limit. */
static inline __m256 gw_narrow8(__m512d x)
{
    const __mmask8 is_kept = _mm512_cmp_pd_mask(_mm512_abs_pd(x), _mm512_set1_pd(0x1p-126), _CMP_NLT_UQ);
    return _mm512_maskz_cvtpd_ps(is_kept, x);
}

/* gw_accumulate_value() of 16 values; x is flushed. */
static inline __m512i gw_accumulate16(__m512i sum, __m512 x)
{
    const __m512 result = _mm512_add_ps(_mm512_castsi512_ps(gw_flush16(sum)), x);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(result, result, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(gw_flush16(_mm512_castps_si512(result)), is_nan,
                                 _mm512_set1_epi32((int)GW_CANONICAL_NAN));
}

#endif

#endif
