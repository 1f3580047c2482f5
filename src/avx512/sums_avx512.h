/*
 * Sums of 64 bytes of values (docs/numerics.md section 5), for add and join.
 *
 * What default mode makes zero is masked before and after the addition, so that the flush modes of the
 * processor do not matter: a summand of zero by not adding it, a sum by the mask of the instruction that
 * makes NaN canonical. bf16 values are widened without a shuffle: the even ones by a shift to the upper
 * halves of 32 bits, the odd ones by masking; both sums are narrowed the same way.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SUMS_AVX512_H
#define GW_SUMS_AVX512_H

#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* The values of 32 bits that are neither zero nor subnormal. */
static inline __mmask16 gw_is_normal(__m512i x)
{
    return _mm512_test_epi32_mask(x, _mm512_set1_epi32(0x7f800000));
}

/* Subnormals and zeros of either sign to +0. */
static inline __m512i gw_flush(__m512i x)
{
    return _mm512_maskz_mov_epi32(gw_is_normal(x), x);
}

/* Without optimisation gcc's intrinsic is a macro, whose mask changes its sign on the way. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

/* a + b of 16 fp32 values as bits in default mode, where b is flushed; NaN is the canonical one. */
static inline __m512i gw_sum_bits(__m512i a, __m512i b)
{
    const __m512 y = _mm512_castsi512_ps(b);
    const __m512 sum = _mm512_mask_add_ps(y, gw_is_normal(a), _mm512_castsi512_ps(a), y);
    /* A class of numbers selects a nibble: 0 takes the first operand, for NaN, 1 the second. */
    const __m512i choice = _mm512_set1_epi32(0x11111100);
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_castps_si512(
        _mm512_maskz_fixupimm_ps(gw_is_normal(_mm512_castps_si512(sum)), nan, sum, choice, 0));
}

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* The same, nothing being flushed. */
static inline __m512i gw_sum_bits_strict(__m512i a, __m512i b)
{
    const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
    return _mm512_mask_mov_epi32(_mm512_castps_si512(sum), _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q),
                                 _mm512_set1_epi32(0x7fc00000));
}

/* is_flushed: b is flushed already. */
GW_TEMPLATE __m512i gw_sums_fp32(__m512i a, __m512i b, uint32_t strict, int is_flushed)
{
    return strict ? gw_sum_bits_strict(a, b) : gw_sum_bits(a, is_flushed ? b : gw_flush(b));
}

/* Rounds fp32 values to nearest, ties to even, as bf16 in the upper halves; the lower halves are garbage. */
static inline __m512i gw_round_bf16(__m512i x)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
}

GW_TEMPLATE __m512i gw_sums_bf16(__m512i a, __m512i b, uint32_t strict, int is_flushed)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const __m512i even = gw_sums_fp32(_mm512_slli_epi32(a, 16), _mm512_slli_epi32(b, 16), strict, is_flushed);
    const __m512i odd =
        gw_sums_fp32(_mm512_and_si512(a, upper), _mm512_and_si512(b, upper), strict, is_flushed);
    return _mm512_ternarylogic_epi32(gw_round_bf16(odd), _mm512_srli_epi32(gw_round_bf16(even), 16), upper,
                                     0xe4);
}

static inline __m256i gw_half_sums_fp16(__m256i a, __m256i b)
{
    const __m512 sum = _mm512_add_ps(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b));
    const __m256i bits =
        _mm512_maskz_cvtps_ph((__mmask16)0xffff, sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_mask_mov_epi16(bits, _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q), _mm256_set1_epi16(0x7e00));
}

/* The conversions of fp16 ignore flush modes, and no sum of fp16 values is subnormal in fp32. */
GW_TEMPLATE __m512i gw_sums_fp16(__m512i a, __m512i b, uint32_t strict)
{
    const __m256i low = gw_half_sums_fp16(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
    const __m256i high = gw_half_sums_fp16(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1));
    const __m512i sum = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    const __mmask32 keep =
        strict ? 0xffffffffu : _mm512_cmpneq_epi16_mask(sum, _mm512_set1_epi16((short)0x8000));
    return _mm512_maskz_mov_epi16(keep, sum);
}

GW_TEMPLATE __m512i gw_sums(__m512i a, __m512i b, uint32_t dtype, uint32_t strict, int is_flushed)
{
    return dtype == GW_FP32   ? gw_sums_fp32(a, b, strict, is_flushed)
           : dtype == GW_BF16 ? gw_sums_bf16(a, b, strict, is_flushed)
                              : gw_sums_fp16(a, b, strict);
}

#endif
#endif
