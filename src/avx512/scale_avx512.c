/*
 * Decoded values times a scale, 16 at a time (docs/numerics.md section 5).
 *
 * Five operations on sixteen values; a chunk has just been decoded, so it is in L2, which is the bound.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/sums_avx512.h"

#if defined(GW_AVX512_COMPILED)

GW_TEMPLATE __m512i scaled(__m512i x, __m512 scale, uint32_t strict)
{
    /* Zeros and subnormals are not multiplied, so that flush modes do not matter. */
    const __mmask16 factors = strict ? (__mmask16)0xffff : gw_is_normal(x);
    const __m512i product = _mm512_castps_si512(_mm512_maskz_mul_ps(factors, _mm512_castsi512_ps(x), scale));
    const __m512i magnitude = _mm512_and_si512(product, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    const __mmask16 is_kept =
        strict ? (__mmask16)0xffff : _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
    return _mm512_mask_mov_epi32(_mm512_maskz_mov_epi32(is_kept, product), is_nan,
                                 _mm512_set1_epi32(0x7fc00000));
}

GW_TEMPLATE void scale_all(uint8_t *values, size_t len, float scale, uint32_t strict)
{
    const __m512 factor = _mm512_set1_ps(scale);
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        _mm512_storeu_si512(values + 4 * i, scaled(_mm512_loadu_si512(values + 4 * i), factor, strict));
    }
    if (i < len) {
        const __mmask16 rest = (__mmask16)gw_low_mask(len - i);
        const __m512i x = _mm512_maskz_loadu_epi32(rest, values + 4 * i);
        _mm512_mask_storeu_epi32(values + 4 * i, rest, scaled(x, factor, strict));
    }
}

void gw_scale_fp32_avx512(void *values, size_t len, float scale, uint32_t strict)
{
    if (strict) {
        scale_all((uint8_t *)values, len, scale, 1);
    } else {
        scale_all((uint8_t *)values, len, scale, 0);
    }
}

#else
typedef int gw_scale_avx512_not_built; /* a translation unit must not be empty */
#endif
