/*
 * Stage norm: the 64 accumulators are four registers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "thc/norm_pattern.h"

static inline __m512 load16(const float *x, size_t i, size_t len)
{
    return _mm512_maskz_loadu_ps(i < len ? gw_first16(len - i) : 0, x + i);
}

static inline __m512 add_square(__m512 sum, __m512 x, __m512i floor_bits, __m512 scale)
{
    const __m512 y = gw_window16(x, floor_bits, scale);
    return _mm512_add_ps(sum, _mm512_mul_ps(y, y)); /* rounded twice: no fused multiply and add */
}

/* j += j + 8, 4, 2, 1: halves are added. */
static inline float fold16(__m512 sum)
{
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static uint32_t largest_magnitude(const float *x, size_t len)
{
    const __m512i no_sign = _mm512_set1_epi32((int)GW_F32_ABS);
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = 0;

    for (; i + 32 <= len; i += 32) {
        a = _mm512_max_epu32(a, _mm512_and_si512(_mm512_loadu_si512(x + i), no_sign));
        b = _mm512_max_epu32(b, _mm512_and_si512(_mm512_loadu_si512(x + i + 16), no_sign));
    }
    for (; i < len; i += 16) {
        a = _mm512_max_epu32(a, _mm512_and_si512(_mm512_castps_si512(load16(x, i, len)), no_sign));
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}

uint32_t gw_thc_norm_avx512(const float *x, size_t len)
{
    const uint32_t largest = largest_magnitude(x, len);
    if (largest >= GW_F32_INF) {
        return GW_THC_NORM_NONFINITE;
    }
    if (largest == 0) {
        return 0;
    }

    const uint32_t exponent = largest >> 23;
    const __m512i floor_bits = _mm512_set1_epi32((int)gw_thc_window_floor(exponent));
    const __m512 scale = _mm512_set1_ps(gw_thc_window_scale(exponent));
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        a = add_square(a, _mm512_loadu_ps(x + i), floor_bits, scale);
        b = add_square(b, _mm512_loadu_ps(x + i + 16), floor_bits, scale);
        c = add_square(c, _mm512_loadu_ps(x + i + 32), floor_bits, scale);
        d = add_square(d, _mm512_loadu_ps(x + i + 48), floor_bits, scale);
    }
    if (i < len) { /* sums are not negative: adding +0 changes nothing */
        a = add_square(a, load16(x, i, len), floor_bits, scale);
        b = add_square(b, load16(x, i + 16, len), floor_bits, scale);
        c = add_square(c, load16(x, i + 32, len), floor_bits, scale);
        d = add_square(d, load16(x, i + 48, len), floor_bits, scale);
    }
    const float sum = fold16(_mm512_add_ps(_mm512_add_ps(a, c), _mm512_add_ps(b, d)));
    return gw_thc_norm_pattern(sum, exponent);
}

/* Patterns in the order of their values: negative ones complemented, the top bit of others set. */
static inline __m512i code16(__m512i bits)
{
    enum { FIRST_XOR_EITHER = 0x1e }; /* a ^ (b | c) */
    return _mm512_ternarylogic_epi32(bits, _mm512_srai_epi32(bits, 31), _mm512_set1_epi32((int)0x80000000u),
                                     FIRST_XOR_EITHER);
}

void gw_thc_extent_avx512(uint32_t patterns[2], const float *x, size_t len)
{
    __m512i low = _mm512_set1_epi32(-1), high = _mm512_setzero_si512();
    __m512i other_low = low, other_high = high;
    size_t i = 0;

    for (; i + 32 <= len; i += 32) {
        const __m512i code = code16(_mm512_loadu_si512(x + i));
        const __m512i other = code16(_mm512_loadu_si512(x + i + 16));
        low = _mm512_min_epu32(low, code);
        high = _mm512_max_epu32(high, code);
        other_low = _mm512_min_epu32(other_low, other);
        other_high = _mm512_max_epu32(other_high, other);
    }
    low = _mm512_min_epu32(low, other_low);
    high = _mm512_max_epu32(high, other_high);
    for (; i < len; i += 16) {
        const __mmask16 mask = gw_first16(len - i);
        const __m512i code = code16(_mm512_maskz_loadu_epi32(mask, x + i));
        low = _mm512_mask_min_epu32(low, mask, low, code);
        high = _mm512_mask_max_epu32(high, mask, high, code);
    }
    gw_thc_extent_patterns(patterns, _mm512_reduce_min_epu32(low), _mm512_reduce_max_epu32(high));
}

#else
typedef int gw_thc_norm_avx512_not_built; /* a translation unit must not be empty */
#endif
