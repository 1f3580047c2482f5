/*
 * Stage unpack: 16 lanes of any width to numbers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

GW_TEMPLATE __m512i load_lanes(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    if (lane_bits == 8) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(lanes + i)));
    }
    if (lane_bits == 16) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(lanes + 2 * i)));
    }
    return _mm512_loadu_si512(lanes + 4 * i);
}

GW_TEMPLATE void unpack_all(float *dst, const uint8_t *lanes, size_t len, uint32_t center, float scale,
                            unsigned lane_bits)
{
    const __m512i middle = _mm512_set1_epi32((int)center);
    const __m512 two = _mm512_set1_ps(2.0f), minus_middle = _mm512_set1_ps(-(float)center);
    const __m512 unit = _mm512_set1_ps(scale);
    const int is_exact = lane_bits <= 16 && center <= 1u << 24;

    for (size_t i = 0; i < len; i += 16) {
        const __m512i lane = load_lanes(lanes, i, lane_bits);
        __m512 centred;
        if (is_exact) { /* integers below 2^24 throughout: nothing is rounded, fused or not */
            centred = _mm512_fmadd_ps(_mm512_cvtepi32_ps(lane), two, minus_middle);
        } else {
            centred = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_slli_epi32(lane, 1), middle));
        }
        _mm512_storeu_ps(dst + i, _mm512_mul_ps(centred, unit));
    }
}

void gw_thc_unpack_avx512(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, uint32_t center,
                          float scale)
{
    GW_BY_LANE_BITS(unpack_all, lane_bits, dst, lanes, len, center, scale);
}

/* Eight lanes. The conversion to fp32 rounds to nearest even and to infinity as the contract requires;
 * only magnitudes below 2^-126 are cleared first. */
static inline __m256 plain8(__m256i lanes, __m512d step, __m512d base)
{
    /* rounded twice: no fused multiply and add */
    const __m512d x = _mm512_add_pd(_mm512_mul_pd(_mm512_cvtepu32_pd(lanes), step), base);
    const __mmask8 is_normal = _mm512_cmp_pd_mask(_mm512_abs_pd(x), _mm512_set1_pd(0x1p-126), _CMP_GE_OQ);
    return _mm512_cvtpd_ps(_mm512_maskz_mov_pd(is_normal, x));
}

GW_TEMPLATE void plain_all(float *dst, const uint8_t *lanes, size_t len, double step, double base,
                           unsigned lane_bits)
{
    const __m512d s = _mm512_set1_pd(step), b = _mm512_set1_pd(base);

    for (size_t i = 0; i < len; i += 16) {
        const __m512i sum = load_lanes(lanes, i, lane_bits);
        _mm256_storeu_ps(dst + i, plain8(_mm512_castsi512_si256(sum), s, b));
        _mm256_storeu_ps(dst + i + 8, plain8(_mm512_extracti64x4_epi64(sum, 1), s, b));
    }
}

void gw_thc_unpack_plain_avx512(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step,
                                double base)
{
    GW_BY_LANE_BITS(plain_all, lane_bits, dst, lanes, len, step, base);
}

#else
typedef int gw_thc_unpack_avx512_not_built; /* a translation unit must not be empty */
#endif
