/*
 * Levels of QSGD and TERNGRAD: 16 values at a time, the rest under a mask; random bits 128 at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "classic/level_values.h"

/* ---- random bits --------------------------------------------------------------------------------------- */

/* Words of counters 0..7 and 8..15, each in the low half of a 64-bit lane: the low halves of the sixteen,
 * then the high ones. */
static inline void store_word(uint16_t *dst, __m512i first, __m512i second)
{
    const __m512i halves = _mm512_set_epi16(61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1, 60,
                                            56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(first, halves, second));
}

/* `count` groups, 1 or 2: two chains of multiplications for each, side by side. */
GW_TEMPLATE void random_groups(uint16_t *dst, uint32_t low, const gw_philox_plan *plan, unsigned count)
{
    gw_philox8 p[4];
    for (unsigned i = 0; i < 2 * count; i++) {
        p[i] = gw_philox8_start(low + 8 * i, plan);
    }
    for (unsigned r = 2; r < GW_PHILOX_ROUNDS; r++) {
        for (unsigned i = 0; i < 2 * count; i++) {
            gw_philox8_round(&p[i], plan, r);
        }
    }
    for (unsigned g = 0; g < count; g++) {
        uint16_t *const group = dst + (size_t)GW_LEVEL_GROUP_LEN * g;
        store_word(group, p[2 * g].c0, p[2 * g + 1].c0);
        store_word(group + 32, p[2 * g].c1, p[2 * g + 1].c1);
        store_word(group + 64, p[2 * g].c2, p[2 * g + 1].c2);
        store_word(group + 96, p[2 * g].c3, p[2 * g + 1].c3);
    }
}

void gw_level_random_avx512(uint16_t *random, uint64_t first, size_t group_count,
                            const gw_level_stream *stream)
{
    size_t g = 0;
    while (g < group_count) {
        /* Groups whose counters have the same high word. */
        const uint32_t low = gw_level_counter_low(first + g);
        const uint64_t same = ((uint64_t)1 << 28) - (low >> 4);
        const size_t end = same < group_count - g ? g + (size_t)same : group_count;
        const gw_thc_stream words = {stream->seed, gw_level_counter_high(first + g), stream->round,
                                     stream->rank};
        gw_philox_plan plan;
        gw_philox_plan_make(&plan, &words, stream->rank, 0);
        for (; g + 2 <= end; g += 2) {
            random_groups(random + GW_LEVEL_GROUP_LEN * g, gw_level_counter_low(first + g), &plan, 2);
        }
        for (; g < end; g++) {
            random_groups(random + GW_LEVEL_GROUP_LEN * g, gw_level_counter_low(first + g), &plan, 1);
        }
    }
}

/* ---- norms --------------------------------------------------------------------------------------------- */

static inline __m512i magnitude16(__m512i bits)
{
    return _mm512_and_si512(bits, _mm512_set1_epi32((int)GW_LEVEL_ABS));
}

uint32_t gw_level_largest_avx512(const float *x, size_t len)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        a = _mm512_max_epu32(a, magnitude16(_mm512_loadu_si512(x + i)));
        b = _mm512_max_epu32(b, magnitude16(_mm512_loadu_si512(x + i + 16)));
    }
    for (; i < len; i += 16) {
        a = _mm512_max_epu32(a, magnitude16(_mm512_maskz_loadu_epi32(gw_first16(len - i), x + i)));
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}

/* Accumulators 0..7 and 8..15. */
typedef struct lanes16 {
    __m512d a, b;
} lanes16;

static inline double fold16(lanes16 x)
{
    const __m512d eight = _mm512_add_pd(x.a, x.b);
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline void add16(lanes16 *sum, lanes16 *squares, __m512 x)
{
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    sum->a = _mm512_add_pd(sum->a, low);
    sum->b = _mm512_add_pd(sum->b, high);
    /* The product is exact, so that this is a product and a sum. */
    squares->a = _mm512_fmadd_pd(low, low, squares->a);
    squares->b = _mm512_fmadd_pd(high, high, squares->b);
}

void gw_level_moments_avx512(gw_level_moments *moments, const float *x, size_t len)
{
    const __m512d zero = _mm512_setzero_pd();
    lanes16 sum = {zero, zero}, squares = {zero, zero};
    __m512i largest = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m512 value = _mm512_loadu_ps(x + i);
        largest = _mm512_max_epu32(largest, magnitude16(_mm512_castps_si512(value)));
        add16(&sum, &squares, value);
    }
    if (i < len) { /* an accumulator is never -0: adding +0 changes nothing */
        const __m512 value = _mm512_maskz_loadu_ps(gw_first16(len - i), x + i);
        largest = _mm512_max_epu32(largest, magnitude16(_mm512_castps_si512(value)));
        add16(&sum, &squares, value);
    }
    const uint32_t top = _mm512_reduce_max_epu32(largest);
    moments->largest = top > moments->largest ? top : moments->largest;
    if (top < GW_LEVEL_NONFINITE) {
        moments->sum += fold16(sum);
        moments->squares += fold16(squares);
    }
}

/* ---- quantize and decode ------------------------------------------------------------------------------- */

static inline __m128i quantize16(__m512 x, __m256i random, __m512 scale, __m512 limit)
{
    const __m512 magnitude = _mm512_castsi512_ps(magnitude16(_mm512_castps_si512(x)));
    const __m512 position = _mm512_add_ps(_mm512_mul_ps(magnitude, scale), _mm512_set1_ps(0.5f));
    const __m512i least = _mm512_cvttps_epi32(_mm512_min_ps(position, limit));
    const __m512i level = _mm512_srli_epi32(_mm512_add_epi32(least, _mm512_cvtepu16_epi32(random)), 16);
    const __mmask16 is_negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return _mm512_cvtepi32_epi8(_mm512_mask_sub_epi32(level, is_negative, _mm512_setzero_si512(), level));
}

void gw_level_quantize_avx512(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                              const gw_level_rule *rule)
{
    const __m512 scale = _mm512_set1_ps(rule->scale), limit = _mm512_set1_ps((float)(rule->level_max << 16));
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(random + i));
        _mm_storeu_si128((__m128i *)(void *)(levels + i),
                         quantize16(_mm512_loadu_ps(x + i), bits, scale, limit));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        const __m256i bits = _mm256_maskz_loadu_epi16(mask, random + i);
        _mm_mask_storeu_epi8(levels + i, mask,
                             quantize16(_mm512_maskz_loadu_ps(mask, x + i), bits, scale, limit));
    }
}

void gw_level_decode_avx512(float *dst, const int8_t *levels, size_t len, float step)
{
    const __m512 factor = _mm512_set1_ps(step);
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(levels + i));
        _mm512_storeu_ps(dst + i, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), factor));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        const __m128i bytes = _mm_maskz_loadu_epi8(mask, levels + i);
        _mm512_mask_storeu_ps(dst + i, mask,
                              _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), factor));
    }
}

#else
typedef int gw_classic_level_avx512_not_built; /* a translation unit must not be empty */
#endif
