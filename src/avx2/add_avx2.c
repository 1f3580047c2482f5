/*
 * Sums: accumulator + decoded values, 8 (fp32) or 16 values at a time (docs/numerics.md section 5).
 *
 * Nine operations on eight values; if data misses L2, the three memory accesses of a value are the bound.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"
#include "gcomp/sum_values.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

/* +0 in place of zeros and subnormals, unless strict. */
GW_TEMPLATE __m256 flush(__m256 x, int strict)
{
    const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7f800000));
    const __m256i is_tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return strict ? x : _mm256_castsi256_ps(_mm256_andnot_si256(is_tiny, _mm256_castps_si256(x)));
}

/* `nan` in place of NaN. */
static inline __m256i canonical(__m256i bits, __m256 sum, __m256i nan)
{
    return _mm256_blendv_epi8(bits, nan, _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)));
}

static inline __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

static inline void store(uint8_t *dst, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, x);
}

/* ---- fp32 --------------------------------------------------------------------------------------------- */

GW_TEMPLATE size_t add_fp32(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t len, int strict)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const __m256 x = flush(_mm256_castsi256_ps(load(a + 4 * i)), strict);
        const __m256 y = flush(_mm256_castsi256_ps(load(b + 4 * i)), strict);
        const __m256 sum = flush(_mm256_add_ps(x, y), strict);
        store(out + 4 * i, canonical(_mm256_castps_si256(sum), sum, _mm256_set1_epi32(0x7fc00000)));
    }
    return i;
}

void gw_add_fp32_avx2(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    uint8_t *o = (uint8_t *)out;
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    const size_t i = strict ? add_fp32(o, a, b, len, 1) : add_fp32(o, a, b, len, 0);
    gw_sum_fp32(o, a, b, i, len, strict);
}

/* ---- bf16 --------------------------------------------------------------------------------------------- */

/* Eight sums from the upper halves of words, back in the upper halves, rounded to nearest even; the lower
 * halves are garbage. */
GW_TEMPLATE __m256i sum_bf16(__m256i a, __m256i b, int strict)
{
    const __m256 x = flush(_mm256_castsi256_ps(a), strict), y = flush(_mm256_castsi256_ps(b), strict);
    const __m256 sum = flush(_mm256_add_ps(x, y), strict);
    const __m256i bits = _mm256_castps_si256(sum);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    return canonical(rounded, sum, _mm256_set1_epi32(0x7fc00000));
}

GW_TEMPLATE size_t add_bf16(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t len, int strict)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m256i x = load(a + 2 * i), y = load(b + 2 * i);
        const __m256i odd = sum_bf16(_mm256_and_si256(x, high), _mm256_and_si256(y, high), strict);
        const __m256i even = sum_bf16(_mm256_slli_epi32(x, 16), _mm256_slli_epi32(y, 16), strict);
        store(out + 2 * i, _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa));
    }
    return i;
}

void gw_add_bf16_avx2(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    uint8_t *o = (uint8_t *)out;
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    const size_t i = strict ? add_bf16(o, a, b, len, 1) : add_bf16(o, a, b, len, 0);
    gw_sum_bf16(o, a, b, i, len, strict);
}

/* ---- fp16 --------------------------------------------------------------------------------------------- */

/* The conversions ignore flush modes: subnormals of fp16 are exact both ways, whatever FTZ and DAZ are. */
static inline __m128i sum_fp16(__m128i a, __m128i b)
{
    const __m256 sum = _mm256_add_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
    return _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

GW_TEMPLATE size_t add_fp16(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t len, int strict)
{
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m256i x = load(a + 2 * i), y = load(b + 2 * i);
        const __m128i low = sum_fp16(_mm256_castsi256_si128(x), _mm256_castsi256_si128(y));
        const __m128i high = sum_fp16(_mm256_extracti128_si256(x, 1), _mm256_extracti128_si256(y, 1));
        __m256i sum = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        const __m256i magnitude = _mm256_and_si256(sum, _mm256_set1_epi16(0x7fff));
        const __m256i is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
        if (!strict) {
            sum = _mm256_andnot_si256(_mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256()), sum); /* -0 */
        }
        store(out + 2 * i, _mm256_blendv_epi8(sum, _mm256_set1_epi16(0x7e00), is_nan));
    }
    return i;
}

void gw_add_fp16_avx2(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    uint8_t *o = (uint8_t *)out;
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    const size_t i = strict ? add_fp16(o, a, b, len, 1) : add_fp16(o, a, b, len, 0);
    gw_sum_fp16(o, a, b, i, len, strict);
}

#else
typedef int gw_add_avx2_not_built; /* a translation unit must not be empty */
#endif
