/*
 * Element types to fp32 and back, the shift of plain blocks, the residual of error feedback: 16 values at a
 * time, the rest under a mask.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "gradwire/gradwire.h"

/* Elements [i, i + 16) under a mask. The conversion from fp16 ignores flush modes. */
static inline __m512i load_elements(const uint8_t *src, unsigned dtype, size_t i, __mmask16 mask)
{
    if (dtype == GW_FP32) {
        return _mm512_maskz_loadu_epi32(mask, src + 4 * i);
    }
    const __m256i half = _mm256_maskz_loadu_epi16(mask, src + 2 * i);
    return dtype == GW_BF16 ? _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)
                            : _mm512_castps_si512(_mm512_cvtph_ps(half));
}

GW_TEMPLATE __m512i load16(const uint8_t *src, unsigned dtype, const float *error, size_t i, __mmask16 mask)
{
    const __m512i x = gw_flush16(load_elements(src, dtype, i, mask));
    if (error == NULL) {
        return x;
    }
    const __m512i rest = gw_flush16(_mm512_maskz_loadu_epi32(mask, (const uint8_t *)error + 4 * i));
    const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(rest));
    return gw_flush16(_mm512_castps_si512(sum));
}

/* Inlined once per type, with and without an error. */
GW_TEMPLATE void load_as(float *dst, const uint8_t *src, unsigned dtype, const float *error, size_t len)
{
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        _mm512_storeu_si512(dst + i, load16(src, dtype, error, i, (__mmask16)0xffff));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        _mm512_mask_storeu_epi32(dst + i, mask, load16(src, dtype, error, i, mask));
    }
}

void gw_thc_load_avx512(float *dst, const void *src, unsigned dtype, const float *error, size_t len,
                        size_t padded_len)
{
    const uint8_t *elements = (const uint8_t *)src;

    if (dtype == GW_FP32 && error == NULL) {
        load_as(dst, elements, GW_FP32, NULL, len);
    } else if (dtype == GW_FP32) {
        load_as(dst, elements, GW_FP32, error, len);
    } else if (dtype == GW_BF16) {
        load_as(dst, elements, GW_BF16, error, len);
    } else {
        load_as(dst, elements, GW_FP16, error, len);
    }
    if (len < padded_len) {
        GW_MEMSET(dst + len, 0, (padded_len - len) * sizeof *dst);
    }
}

/* bits rounded to bf16 in the upper half, to nearest even; NaN becomes the canonical one. */
static inline __m256i narrow_bf16(__m512i bits, __mmask16 is_nan)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i x = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    x = _mm512_mask_mov_epi32(x, is_nan, _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16));
}

/* 16 values in a 16-bit type. */
GW_TEMPLATE __m256i narrow(__m512 x, unsigned dtype)
{
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    if (dtype == GW_BF16) {
        return narrow_bf16(_mm512_castps_si512(x), is_nan);
    }
    __m256i half = _mm512_maskz_cvtps_ph((__mmask16)0xffff, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    half = _mm256_mask_mov_epi16(half, is_nan, _mm256_set1_epi16(0x7e00));
    const __mmask16 is_kept = _mm256_cmpneq_epi16_mask(half, _mm256_set1_epi16(INT16_MIN)); /* not -0 */
    return _mm256_maskz_mov_epi16(is_kept, half);
}

/* The first `len` of 8 lanes. */
static inline __mmask8 first8(size_t len)
{
    return (__mmask8)(len >= 8 ? 0xffu : (1u << len) - 1u);
}

static inline __m256i canonical8(__m256 x)
{
    return _mm256_mask_mov_epi32(_mm256_castps_si256(x), _mm256_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                 _mm256_set1_epi32(0x7fc00000));
}

/* Bound by stores to L1, 32 bytes a cycle, which registers of 256 bits reach: on Zen 4 those of 512 took
 * 1.1 to 1.3 times as long. */
static void store_fp32(uint8_t *out, const float *src, size_t len)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        _mm256_storeu_si256((__m256i *)(void *)(out + 4 * i), canonical8(_mm256_loadu_ps(src + i)));
    }
    if (i < len) {
        const __mmask8 mask = first8(len - i);
        _mm256_mask_storeu_epi32(out + 4 * i, mask, canonical8(_mm256_maskz_loadu_ps(mask, src + i)));
    }
}

/* Whole registers are stored without a mask: masked stores are slower on Zen 4. */
GW_TEMPLATE void store_half(uint8_t *out, const float *src, unsigned dtype, size_t len)
{
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * i), narrow(_mm512_loadu_ps(src + i), dtype));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        _mm256_mask_storeu_epi16(out + 2 * i, mask, narrow(_mm512_maskz_loadu_ps(mask, src + i), dtype));
    }
}

void gw_thc_store_avx512(void *dst, const float *src, unsigned dtype, size_t len)
{
    uint8_t *out = (uint8_t *)dst;

    if (dtype == GW_FP32) {
        store_fp32(out, src, len);
    } else if (dtype == GW_BF16) {
        store_half(out, src, GW_BF16, len);
    } else {
        store_half(out, src, GW_FP16, len);
    }
}

/* The floor is 2^-126 at least: it flushes the difference, too. */
static inline __m512 shift16(__m512 x, __m512 low, __m512i floor_bits, __m512 scale)
{
    return gw_window16(_mm512_sub_ps(x, low), floor_bits, scale);
}

void gw_thc_shift_avx512(float *dst, const float *src, size_t len, float minimum, uint32_t exponent)
{
    const __m512i floor_bits = _mm512_set1_epi32((int)gw_thc_window_floor(exponent));
    const __m512 scale = _mm512_set1_ps(gw_thc_window_scale(exponent));
    const __m512 low = _mm512_set1_ps(minimum);
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        _mm512_storeu_ps(dst + i, shift16(_mm512_loadu_ps(src + i), low, floor_bits, scale));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        const __m512 x = _mm512_maskz_loadu_ps(mask, src + i);
        _mm512_mask_storeu_ps(dst + i, mask, shift16(x, low, floor_bits, scale));
    }
}

void gw_thc_residual_avx512(float *error, const float *x, const float *y, size_t len)
{
    uint8_t *out = (uint8_t *)error;
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        const __m512 rest = _mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i));
        _mm512_storeu_si512(out + 4 * i, gw_flush16(_mm512_castps_si512(rest)));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        const __m512 rest =
            _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i));
        _mm512_mask_storeu_epi32(out + 4 * i, mask, gw_flush16(_mm512_castps_si512(rest)));
    }
}

#else
typedef int gw_thc_convert_avx512_not_built; /* a translation unit must not be empty */
#endif
