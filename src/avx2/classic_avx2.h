/*
 * Shared by the files of the classic codecs' AVX2 kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_AVX2_H
#define GW_CLASSIC_AVX2_H

#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "classic/sign_values.h"

/* gw_narrow_double() of four values. NaN is not below the limit. */
static inline __m128 gw_narrow4(__m256d x)
{
    const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
    const __m256d is_kept = _mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p-126), _CMP_NLT_UQ);
    return _mm256_cvtpd_ps(_mm256_and_pd(x, is_kept));
}

/* Eight values of two fours. */
static inline __m256i gw_join4(__m128 low, __m128 high)
{
    return _mm256_castps_si256(_mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1));
}

/* gw_accumulate_value() of eight values; x is flushed. */
static inline __m256i gw_accumulate8(__m256i sum, __m256 x)
{
    const __m256 result = _mm256_add_ps(_mm256_castsi256_ps(gw_flush8(sum)), x);
    const __m256 is_nan = _mm256_cmp_ps(result, result, _CMP_UNORD_Q);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)GW_CANONICAL_NAN));
    const __m256 flushed = _mm256_castsi256_ps(gw_flush8(_mm256_castps_si256(result)));
    return _mm256_castps_si256(_mm256_blendv_ps(flushed, nan, is_nan));
}

/* Masks of eight lanes: all ones where the bit of `byte` is set. */
static inline __m256i gw_mask8(uint32_t byte)
{
    const __m256i place = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)byte), place), place);
}

#endif

#endif
