/*
 * Element types to fp32 and back, the shift of plain blocks, the residual of error feedback: eight values at
 * a time, the rest by thc/thc_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "gradwire/gradwire.h"

/* The conversion from fp16 ignores flush modes. */
GW_TEMPLATE __m256i load_elements(const uint8_t *src, unsigned dtype, size_t i)
{
    if (dtype == GW_FP32) {
        return gw_load256(src + 4 * i);
    }
    const __m128i half = gw_load128(src + 2 * i);
    return dtype == GW_BF16 ? _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)
                            : _mm256_castps_si256(_mm256_cvtph_ps(half));
}

/* Inlined once per type, with and without an error. Returns how many values are done. */
GW_TEMPLATE size_t load_as(float *dst, const uint8_t *src, unsigned dtype, const float *error, size_t len)
{
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        __m256i x = gw_flush8(load_elements(src, dtype, i));
        if (error != NULL) {
            const __m256i rest = gw_flush8(gw_load256((const uint8_t *)error + 4 * i));
            const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(rest));
            x = gw_flush8(_mm256_castps_si256(sum));
        }
        gw_store256(dst + i, x);
    }
    return i;
}

void gw_thc_load_avx2(float *dst, const void *src, unsigned dtype, const float *error, size_t len,
                      size_t padded_len)
{
    const uint8_t *elements = (const uint8_t *)src;
    size_t i;

    if (dtype == GW_FP32 && error == NULL) {
        i = load_as(dst, elements, GW_FP32, NULL, len);
    } else if (dtype == GW_FP32) {
        i = load_as(dst, elements, GW_FP32, error, len);
    } else if (dtype == GW_BF16) {
        i = load_as(dst, elements, GW_BF16, error, len);
    } else {
        i = load_as(dst, elements, GW_FP16, error, len);
    }
    gw_thc_load_values(dst, elements, dtype, error, i, len);
    gw_thc_load_padding(dst, len, padded_len);
}

/* Eight values as 16-bit numbers in dwords, NaN as `nan`. */
static inline __m128i pack_halves(__m256i x, __m256i is_nan, int nan)
{
    x = _mm256_blendv_epi8(x, _mm256_set1_epi32(nan), is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

static inline __m128i narrow_bf16(__m256i bits, __m256i is_nan)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i x = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    return pack_halves(_mm256_srli_epi32(x, 16), is_nan, 0x7fc0);
}

void gw_thc_store_avx2(void *dst, const float *src, unsigned dtype, size_t len)
{
    uint8_t *out = (uint8_t *)dst;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256 x = _mm256_loadu_ps(src + i);
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        if (dtype == GW_FP32) {
            gw_store256(out + 4 * i, _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7fc00000), is_nan));
        } else if (dtype == GW_BF16) {
            gw_store128(out + 2 * i, narrow_bf16(bits, is_nan));
        } else {
            const __m128i half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            const __m128i is_minus_zero = _mm_cmpeq_epi16(half, _mm_set1_epi16(INT16_MIN));
            const __m256i words = _mm256_cvtepu16_epi32(_mm_andnot_si128(is_minus_zero, half));
            gw_store128(out + 2 * i, pack_halves(words, is_nan, 0x7e00));
        }
    }
    gw_thc_store_values(out, src, dtype, i, len);
}

void gw_thc_shift_avx2(float *dst, const float *src, size_t len, float minimum, uint32_t exponent)
{
    const __m256i below = gw_window_below8(gw_thc_window_floor(exponent));
    const __m256 scale = _mm256_set1_ps(gw_thc_window_scale(exponent));
    const __m256 low = _mm256_set1_ps(minimum);
    size_t i = 0;

    for (; i + 8 <= len; i += 8) { /* the floor is 2^-126 at least: it flushes the difference, too */
        _mm256_storeu_ps(dst + i, gw_window8(_mm256_sub_ps(_mm256_loadu_ps(src + i), low), below, scale));
    }
    gw_thc_shift_values(dst, src, i, len, minimum, exponent);
}

void gw_thc_residual_avx2(float *error, const float *x, const float *y, size_t len)
{
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256 rest = _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i));
        gw_store256((uint8_t *)error + 4 * i, gw_flush8(_mm256_castps_si256(rest)));
    }
    gw_thc_residual_values(error, x, y, i, len);
}

#else
typedef int gw_thc_convert_avx2_not_built; /* a translation unit must not be empty */
#endif
