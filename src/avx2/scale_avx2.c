/*
 * Decoded values times a scale, 8 at a time (docs/numerics.md section 5).
 *
 * Nine operations on eight values; a chunk has just been decoded, so it is in L2.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"
#include "gcomp/scale_values.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

/* x where its magnitude is above `least`, else +0. */
static inline __m256i above(__m256i x, int least)
{
    const __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));
    return _mm256_and_si256(x, _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(least)));
}

GW_TEMPLATE size_t scale_whole(uint8_t *values, size_t len, float scale, int strict)
{
    const __m256 factor = _mm256_set1_ps(scale), nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        __m256i *const at = (__m256i *)(void *)(values + 4 * i);
        const __m256i x = _mm256_loadu_si256(at);
        __m256 product = _mm256_mul_ps(_mm256_castsi256_ps(strict ? x : above(x, 0x007fffff)), factor);
        const __m256 is_nan = _mm256_cmp_ps(product, product, _CMP_UNORD_Q);
        if (!strict) {
            product = _mm256_castsi256_ps(above(_mm256_castps_si256(product), 0x00800000));
        }
        _mm256_storeu_si256(at, _mm256_castps_si256(_mm256_blendv_ps(product, nan, is_nan)));
    }
    return i;
}

void gw_scale_fp32_avx2(void *values, size_t len, float scale, uint32_t strict)
{
    uint8_t *const bytes = (uint8_t *)values;
    const size_t i = strict ? scale_whole(bytes, len, scale, 1) : scale_whole(bytes, len, scale, 0);
    gw_scale_fp32(values, i, len, scale, strict);
}

#else
typedef int gw_scale_avx2_not_built; /* a translation unit must not be empty */
#endif
