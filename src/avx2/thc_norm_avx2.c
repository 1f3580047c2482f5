/*
 * Stage norm: the 64 accumulators are eight registers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "thc/norm_pattern.h"

static inline uint32_t largest_lane(__m256i x)
{
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1)));
}

static uint32_t largest_magnitude(const float *x, size_t len)
{
    const __m256i no_sign = _mm256_set1_epi32((int)GW_F32_ABS);
    __m256i a = _mm256_setzero_si256(), b = a;
    uint32_t largest = 0;
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        a = _mm256_max_epu32(a, _mm256_and_si256(gw_load256(x + i), no_sign));
        b = _mm256_max_epu32(b, _mm256_and_si256(gw_load256(x + i + 8), no_sign));
    }
    for (; i < len; i++) {
        const uint32_t magnitude = gw_bits_from_float(x[i]) & GW_F32_ABS;
        largest = magnitude > largest ? magnitude : largest;
    }
    const uint32_t vector = largest_lane(_mm256_max_epu32(a, b));
    return vector > largest ? vector : largest;
}

static inline __m256 add_square(__m256 sum, const float *x, __m256i below, __m256 scale)
{
    const __m256 y = gw_window8(_mm256_loadu_ps(x), below, scale);
    return _mm256_add_ps(sum, _mm256_mul_ps(y, y));
}

/* Adds the squares of 64 values. */
static inline void add_group(__m256 sum[8], const float *x, __m256i below, __m256 scale)
{
    sum[0] = add_square(sum[0], x, below, scale);
    sum[1] = add_square(sum[1], x + 8, below, scale);
    sum[2] = add_square(sum[2], x + 16, below, scale);
    sum[3] = add_square(sum[3], x + 24, below, scale);
    sum[4] = add_square(sum[4], x + 32, below, scale);
    sum[5] = add_square(sum[5], x + 40, below, scale);
    sum[6] = add_square(sum[6], x + 48, below, scale);
    sum[7] = add_square(sum[7], x + 56, below, scale);
}

uint32_t gw_thc_norm_avx2(const float *x, size_t len)
{
    const uint32_t largest = largest_magnitude(x, len);
    if (largest >= GW_F32_INF) {
        return GW_THC_NORM_NONFINITE;
    }
    if (largest == 0) {
        return 0;
    }

    const uint32_t exponent = largest >> 23;
    const __m256i below = gw_window_below8(gw_thc_window_floor(exponent));
    const __m256 scale = _mm256_set1_ps(gw_thc_window_scale(exponent));
    const __m256 zero = _mm256_setzero_ps();
    __m256 s[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        add_group(s, x + i, below, scale);
    }
    if (i < len) { /* sums are not negative: adding +0 changes nothing */
        float rest[64] = {0};
        GW_MEMCPY(rest, x + i, (len - i) * sizeof *x);
        add_group(s, rest, below, scale);
    }
    /* j += j + 32, 16, 8, then halves of a register. */
    const __m256 a = _mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6]));
    const __m256 b = _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]));
    const __m256 eight = _mm256_add_ps(a, b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    const float sum = _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));

    return gw_thc_norm_pattern(sum, exponent);
}

static inline __m256i order_codes(const float *x)
{
    const __m256i bits = gw_load256(x), top_bit = _mm256_set1_epi32((int)0x80000000u);
    return _mm256_xor_si256(bits, _mm256_or_si256(_mm256_srai_epi32(bits, 31), top_bit));
}

void gw_thc_extent_avx2(uint32_t patterns[2], const float *x, size_t len)
{
    if (len < 8) {
        gw_thc_extent_values(patterns, x, len);
        return;
    }
    __m256i low = order_codes(x + len - 8), high = low; /* the rest, and some twice */
    for (size_t i = 0; i + 8 <= len; i += 8) {
        const __m256i code = order_codes(x + i);
        low = _mm256_min_epu32(low, code);
        high = _mm256_max_epu32(high, code);
    }
    gw_thc_extent_patterns(patterns, ~largest_lane(_mm256_xor_si256(low, _mm256_set1_epi32(-1))),
                           largest_lane(high));
}

#else
typedef int gw_thc_norm_avx2_not_built; /* a translation unit must not be empty */
#endif
