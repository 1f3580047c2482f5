/*
 * Casts, and what becomes of decoded values: 16 at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/classic_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "gradwire/gradwire.h"

void gw_multiply_avx512(float *x, size_t len, float scale)
{
    const __m512d factor = _mm512_set1_pd((double)scale);

    for (size_t i = 0; i < len; i += 8) {
        const __mmask8 mask = gw_first8(len - i);
        const __m256 y = gw_flush8_512(_mm256_maskz_loadu_epi32(mask, x + i));
        const __m256 product = gw_narrow8(_mm512_mul_pd(_mm512_cvtps_pd(y), factor));
        if (len - i >= 8) {
            _mm256_storeu_ps(x + i, product);
        } else {
            _mm256_mask_storeu_ps(x + i, mask, product);
        }
    }
}

void gw_accumulate_avx512(float *sum, const float *x, size_t len)
{
    uint8_t *out = (uint8_t *)(void *)sum;
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        const __m512 y = _mm512_castsi512_ps(gw_flush16(_mm512_loadu_si512(x + i)));
        _mm512_storeu_si512(out + 4 * i, gw_accumulate16(_mm512_loadu_si512(out + 4 * i), y));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        const __m512 y = _mm512_castsi512_ps(gw_flush16(_mm512_maskz_loadu_epi32(mask, x + i)));
        const __m512i old = _mm512_maskz_loadu_epi32(mask, out + 4 * i);
        _mm512_mask_storeu_epi32(out + 4 * i, mask, gw_accumulate16(old, y));
    }
}

/* Elements [i, i + 16) under a mask, as fp32 with canonical NaN. The conversion from fp16 ignores flush
 * modes. */
GW_TEMPLATE __m512i load16(const uint8_t *src, unsigned dtype, size_t i, __mmask16 mask)
{
    __m512i x;
    if (dtype == GW_FP32) {
        x = _mm512_maskz_loadu_epi32(mask, src + 4 * i);
    } else {
        const __m256i half = _mm256_maskz_loadu_epi16(mask, src + 2 * i);
        x = dtype == GW_BF16 ? _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)
                             : _mm512_castps_si512(_mm512_cvtph_ps(half));
    }
    const __m512 values = _mm512_castsi512_ps(x);
    return _mm512_mask_mov_epi32(x, _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q),
                                 _mm512_set1_epi32((int)GW_CANONICAL_NAN));
}

/* 16 values in a 16-bit type. To fp16, subnormals of fp32 become 0 of their sign with and without flush
 * modes. */
GW_TEMPLATE __m256i narrow16(__m512i x, unsigned dtype)
{
    if (dtype == GW_BF16) {
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
        const __m512i y = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16));
    }
    return _mm512_maskz_cvtps_ph((__mmask16)0xffff, _mm512_castsi512_ps(x),
                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

GW_TEMPLATE void cast_as(uint8_t *dst, unsigned to, const uint8_t *src, unsigned from, size_t len)
{
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m512i x = load16(src, from, i, (__mmask16)0xffff);
        if (to == GW_FP32) {
            _mm512_storeu_si512(dst + 4 * i, x);
        } else {
            _mm256_storeu_si256((__m256i *)(void *)(dst + 2 * i), narrow16(x, to));
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

void gw_cast_avx512(void *dst, unsigned dst_dtype, const void *src, unsigned src_dtype, size_t len)
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
typedef int gw_classic_cast_avx512_not_built; /* a translation unit must not be empty */
#endif
