/*
 * Stage unpack: eight lanes of any width to numbers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

GW_TEMPLATE __m256i load_lanes(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    if (lane_bits == 8) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(lanes + i)));
    }
    if (lane_bits == 16) {
        return _mm256_cvtepu16_epi32(gw_load128(lanes + 2 * i));
    }
    return gw_load256(lanes + 4 * i);
}

GW_TEMPLATE void unpack_all(float *dst, const uint8_t *lanes, size_t len, uint32_t center, float scale,
                            unsigned lane_bits)
{
    const __m256i middle = _mm256_set1_epi32((int)center);
    const __m256 unit = _mm256_set1_ps(scale);

    for (size_t i = 0; i < len; i += 8) {
        const __m256i twice = _mm256_slli_epi32(load_lanes(lanes, i, lane_bits), 1);
        const __m256 centred = _mm256_cvtepi32_ps(_mm256_sub_epi32(twice, middle));
        _mm256_storeu_ps(dst + i, _mm256_mul_ps(centred, unit));
    }
}

void gw_thc_unpack_avx2(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, uint32_t center,
                        float scale)
{
    GW_BY_LANE_BITS(unpack_all, lane_bits, dst, lanes, len, center, scale);
}

/*
 * Four lanes. An unsigned integer below 2^32 is the low half of a double of 2^52 and more. The conversion to
 * fp32 rounds to nearest even and to infinity as the contract requires; only magnitudes below 2^-126 are
 * cleared first.
 */
static inline __m128 plain4(__m128i lanes, __m256d step, __m256d base)
{
    const __m256d magic = _mm256_set1_pd(0x1p52), no_sign = _mm256_set1_pd(-0.0);
    const __m256i bits = _mm256_or_si256(_mm256_cvtepu32_epi64(lanes), _mm256_castpd_si256(magic));
    const __m256d sum = _mm256_sub_pd(_mm256_castsi256_pd(bits), magic);
    const __m256d x = _mm256_add_pd(_mm256_mul_pd(sum, step), base);
    const __m256d is_normal =
        _mm256_cmp_pd(_mm256_andnot_pd(no_sign, x), _mm256_set1_pd(0x1p-126), _CMP_GE_OQ);
    return _mm256_cvtpd_ps(_mm256_and_pd(x, is_normal));
}

GW_TEMPLATE void plain_all(float *dst, const uint8_t *lanes, size_t len, double step, double base,
                           unsigned lane_bits)
{
    const __m256d s = _mm256_set1_pd(step), b = _mm256_set1_pd(base);

    for (size_t i = 0; i < len; i += 8) {
        const __m256i sum = load_lanes(lanes, i, lane_bits);
        _mm_storeu_ps(dst + i, plain4(_mm256_castsi256_si128(sum), s, b));
        _mm_storeu_ps(dst + i + 4, plain4(_mm256_extracti128_si256(sum, 1), s, b));
    }
}

void gw_thc_unpack_plain_avx2(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step,
                              double base)
{
    GW_BY_LANE_BITS(plain_all, lane_bits, dst, lanes, len, step, base);
}

#else
typedef int gw_thc_unpack_avx2_not_built; /* a translation unit must not be empty */
#endif
