/*
 * Sums: accumulator + decoded values (docs/numerics.md section 5), 16 fp32 or 32 16-bit values a register.
 *
 * What default mode makes zero is masked away before and after the addition, so that the flush modes of the
 * processor do not matter. bf16 values are widened without a shuffle: the even ones by a shift to the upper
 * halves of 32 bits, the odd ones by masking; both sums go back the same way.
 *
 * Bound: two loads and a store for 64 bytes, 2 cycles from the first cache; the arithmetic of fp32 takes 4
 * (0.25 cycles a value). From memory it waits for memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* Subnormals and zeros of either sign to +0. */
static inline __m512i flush(__m512i x, uint32_t strict)
{
    return strict ? x : _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(x, _mm512_set1_epi32(0x7f800000)), x);
}

/* Sum of 16 fp32 values as bits; NaN is the canonical one. */
static inline __m512i sum_bits(__m512i a, __m512i b, uint32_t strict)
{
    const __m512 sum =
        _mm512_add_ps(_mm512_castsi512_ps(flush(a, strict)), _mm512_castsi512_ps(flush(b, strict)));
    const __m512i bits = flush(_mm512_castps_si512(sum), strict);
    return _mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q),
                                 _mm512_set1_epi32(0x7fc00000));
}

static inline __m512i add_fp32(__m512i a, __m512i b, uint32_t strict)
{
    return sum_bits(a, b, strict);
}

/* Rounds fp32 values to nearest, ties to even, as bf16 in the upper halves; the lower ones hold remains. */
static inline __m512i round_bf16(__m512i x)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
}

static inline __m512i add_bf16(__m512i a, __m512i b, uint32_t strict)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const __m512i even = sum_bits(_mm512_slli_epi32(a, 16), _mm512_slli_epi32(b, 16), strict);
    const __m512i odd = sum_bits(_mm512_and_si512(a, upper), _mm512_and_si512(b, upper), strict);
    return _mm512_ternarylogic_epi32(round_bf16(odd), _mm512_srli_epi32(round_bf16(even), 16), upper, 0xe4);
}

static inline __m256i add_half_fp16(__m256i a, __m256i b)
{
    const __m512 sum = _mm512_add_ps(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b));
    const __m256i bits =
        _mm512_maskz_cvtps_ph((__mmask16)0xffff, sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_mask_mov_epi16(bits, _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q), _mm256_set1_epi16(0x7e00));
}

/* The conversions of fp16 heed no flush mode, and no sum of fp16 values is subnormal in fp32. */
static inline __m512i add_fp16(__m512i a, __m512i b, uint32_t strict)
{
    const __m256i low = add_half_fp16(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
    const __m256i high = add_half_fp16(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1));
    const __m512i sum = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    const __mmask32 keep =
        strict ? 0xffffffffu : _mm512_cmpneq_epi16_mask(sum, _mm512_set1_epi16((short)0x8000));
    return _mm512_maskz_mov_epi16(keep, sum);
}

#define ADD_LOOP(add)                                                                                        \
    const uint8_t *a = (const uint8_t *)accumulator;                                                         \
    const uint8_t *b = (const uint8_t *)values;                                                              \
    uint8_t *o = (uint8_t *)out;                                                                             \
    size_t i = 0;                                                                                            \
    for (; i + 64 <= size; i += 64) {                                                                        \
        _mm512_storeu_si512(o + i, add(_mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i), strict));       \
    }                                                                                                        \
    if (i < size) {                                                                                          \
        const uint64_t rest = gw_low_mask(size - i);                                                         \
        const __m512i x = _mm512_maskz_loadu_epi8(rest, a + i), y = _mm512_maskz_loadu_epi8(rest, b + i);    \
        _mm512_mask_storeu_epi8(o + i, rest, add(x, y, strict));                                             \
    }

GW_TEMPLATE void add_all_fp32(void *out, const void *accumulator, const void *values, size_t size,
                              uint32_t strict){ADD_LOOP(add_fp32)}

GW_TEMPLATE void add_all_bf16(void *out, const void *accumulator, const void *values, size_t size,
                              uint32_t strict){ADD_LOOP(add_bf16)}

GW_TEMPLATE void add_all_fp16(void *out, const void *accumulator, const void *values, size_t size,
                              uint32_t strict){ADD_LOOP(add_fp16)}

#define ADD_VERSION(name)                                                                                    \
    void gw_add_##name##_avx512(void *out, const void *accumulator, const void *values, size_t len,          \
                                uint32_t strict)                                                             \
    {                                                                                                        \
        const size_t size = len * gw_traits_of(TRAITS_##name)->size;                                         \
        if (strict) {                                                                                        \
            add_all_##name(out, accumulator, values, size, 1);                                               \
        } else {                                                                                             \
            add_all_##name(out, accumulator, values, size, 0);                                               \
        }                                                                                                    \
    }

#define TRAITS_fp32 GW_FP32
#define TRAITS_bf16 GW_BF16
#define TRAITS_fp16 GW_FP16

ADD_VERSION(fp32) ADD_VERSION(bf16) ADD_VERSION(fp16)

#else
typedef int gw_add_avx512_not_built; /* a translation unit must not be empty */
#endif
