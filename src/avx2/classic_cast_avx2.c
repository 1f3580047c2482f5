/*
 * Casts, and what becomes of decoded values: eight at a time, the rest by classic/sign_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/classic_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "gradwire/gradwire.h"

void gw_multiply_avx2(float *x, size_t len, float scale)
{
    const __m256d factor = _mm256_set1_pd((double)scale);
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256 y = _mm256_castsi256_ps(gw_flush8(gw_load256(x + i)));
        const __m256d low = _mm256_mul_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(y)), factor);
        const __m256d high = _mm256_mul_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(y, 1)), factor);
        gw_store256(x + i, gw_join4(gw_narrow4(low), gw_narrow4(high)));
    }
    gw_multiply_values(x, i, len, scale);
}

void gw_accumulate_avx2(float *sum, const float *x, size_t len)
{
    uint8_t *out = (uint8_t *)(void *)sum;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256 y = _mm256_castsi256_ps(gw_flush8(gw_load256(x + i)));
        gw_store256(out + 4 * i, gw_accumulate8(gw_load256(out + 4 * i), y));
    }
    gw_accumulate_values(sum, x, i, len);
}

/* Elements [i, i + 8) as fp32 with canonical NaN. The conversion from fp16 ignores flush modes. */
GW_TEMPLATE __m256i load8(const uint8_t *src, unsigned dtype, size_t i)
{
    __m256i x;
    if (dtype == GW_FP32) {
        x = gw_load256(src + 4 * i);
    } else {
        const __m128i half = gw_load128(src + 2 * i);
        x = dtype == GW_BF16 ? _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)
                             : _mm256_castps_si256(_mm256_cvtph_ps(half));
    }
    const __m256 values = _mm256_castsi256_ps(x);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)GW_CANONICAL_NAN));
    return _mm256_castps_si256(_mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q)));
}

/* Eight values in a 16-bit type. To fp16, subnormals of fp32 become 0 of their sign with and without flush
 * modes. */
GW_TEMPLATE __m128i narrow8(__m256i x, unsigned dtype)
{
    if (dtype == GW_BF16) {
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
        const __m256i y = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd);
        const __m256i words = _mm256_srli_epi32(y, 16);
        return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    }
    return _mm256_cvtps_ph(_mm256_castsi256_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

GW_TEMPLATE void cast_as(uint8_t *dst, unsigned to, const uint8_t *src, unsigned from, size_t len)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const __m256i x = load8(src, from, i);
        if (to == GW_FP32) {
            gw_store256(dst + 4 * i, x);
        } else {
            gw_store128(dst + 2 * i, narrow8(x, to));
        }
    }
    gw_cast_values(dst, to, src, from, i, len);
}

GW_TEMPLATE void cast_from(uint8_t *dst, unsigned to, const uint8_t *src, unsigned from, size_t len)
{
    if (to == GW_FP32) {
        cast_as(dst, GW_FP32, src, from, len);
    } else if (to == GW_BF16) {
        cast_as(dst, GW_BF16, src, from, len);
    } else {
        cast_as(dst, GW_FP16, src, from, len);
    }
}

void gw_cast_avx2(void *dst, unsigned dst_dtype, const void *src, unsigned src_dtype, size_t len)
{
    const uint8_t *in = (const uint8_t *)src;
    uint8_t *out = (uint8_t *)dst;

    if (src_dtype == GW_FP32) {
        cast_from(out, dst_dtype, in, GW_FP32, len);
    } else if (src_dtype == GW_BF16) {
        cast_from(out, dst_dtype, in, GW_BF16, len);
    } else {
        cast_from(out, dst_dtype, in, GW_FP16, len);
    }
}

#else
typedef int gw_classic_cast_avx2_not_built; /* a translation unit must not be empty */
#endif
