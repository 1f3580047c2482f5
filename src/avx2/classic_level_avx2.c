/*
 * Levels of QSGD and TERNGRAD: 32 values at a time, the rest by classic/level_values.h; random bits 128 at a
 * time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "classic/level_values.h"

/* ---- random bits --------------------------------------------------------------------------------------- */

/* Counters 0, 1, 4, 5 and 2, 3, 6, 7 become eight words in order. */
static inline __m256i eight_words(__m256i a, __m256i b)
{
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

/* The sixteen low halves of the words of counters 0..7 and 8..15, then the high ones. */
static inline void store_word(uint16_t *dst, __m256i first, __m256i second)
{
    const __m256i low_half = _mm256_set1_epi32(0xffff);
    const __m256i low =
        _mm256_packus_epi32(_mm256_and_si256(first, low_half), _mm256_and_si256(second, low_half));
    const __m256i high = _mm256_packus_epi32(_mm256_srli_epi32(first, 16), _mm256_srli_epi32(second, 16));
    gw_store256(dst, _mm256_permute4x64_epi64(low, 0xd8));
    gw_store256(dst + 16, _mm256_permute4x64_epi64(high, 0xd8));
}

static inline void random_group(uint16_t *dst, uint32_t low, const gw_thc_stream *words,
                                const gw_philox_keys *keys)
{
    const __m256i start = _mm256_set1_epi64x((long long)low);
    const __m256i even = _mm256_set_epi64x(5, 4, 1, 0), odd = _mm256_set_epi64x(7, 6, 3, 2);
    const __m256i eight = _mm256_set1_epi64x(8);
    gw_philox4 p[4];
    p[0] = gw_philox4_start(_mm256_add_epi64(start, even), words, words->rank);
    p[1] = gw_philox4_start(_mm256_add_epi64(start, odd), words, words->rank);
    p[2] = gw_philox4_start(_mm256_add_epi64(p[0].c0, eight), words, words->rank);
    p[3] = gw_philox4_start(_mm256_add_epi64(p[1].c0, eight), words, words->rank);
    /* Two at a time: four do not fit in sixteen registers. */
    for (unsigned i = 0; i < 4; i += 2) {
        for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
            gw_philox4_round(&p[i], keys, r);
            gw_philox4_round(&p[i + 1], keys, r);
        }
    }
    store_word(dst, eight_words(p[0].c0, p[1].c0), eight_words(p[2].c0, p[3].c0));
    store_word(dst + 32, eight_words(p[0].c1, p[1].c1), eight_words(p[2].c1, p[3].c1));
    store_word(dst + 64, eight_words(p[0].c2, p[1].c2), eight_words(p[2].c2, p[3].c2));
    store_word(dst + 96, eight_words(p[0].c3, p[1].c3), eight_words(p[2].c3, p[3].c3));
}

void gw_level_random_avx2(uint16_t *random, uint64_t first, size_t group_count, const gw_level_stream *stream)
{
    gw_thc_stream words = {stream->seed, 0, stream->round, stream->rank};
    gw_philox_keys keys;
    gw_philox_schedule(&keys, stream->seed);
    for (size_t g = 0; g < group_count; g++) {
        words.block = gw_level_counter_high(first + g);
        random_group(random + GW_LEVEL_GROUP_LEN * g, gw_level_counter_low(first + g), &words, &keys);
    }
}

/* ---- norms --------------------------------------------------------------------------------------------- */

static inline __m256i magnitude8(__m256i bits)
{
    return _mm256_and_si256(bits, _mm256_set1_epi32((int)GW_LEVEL_ABS));
}

static inline uint32_t reduce_max(__m256i x)
{
    const __m128i four = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1)));
}

uint32_t gw_level_largest_avx2(const float *x, size_t len)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        a = _mm256_max_epu32(a, magnitude8(gw_load256(x + i)));
        b = _mm256_max_epu32(b, magnitude8(gw_load256(x + i + 8)));
    }
    return gw_level_largest_values(reduce_max(_mm256_max_epu32(a, b)), x, i, len);
}

/* Accumulators 4 j .. 4 j + 3. */
typedef struct lanes16 {
    __m256d part[4];
} lanes16;

static inline double fold16(const lanes16 *x)
{
    const __m256d low = _mm256_add_pd(x->part[0], x->part[2]), high = _mm256_add_pd(x->part[1], x->part[3]);
    const __m256d four = _mm256_add_pd(low, high);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline void add4(lanes16 *sum, lanes16 *squares, unsigned j, __m128 x)
{
    const __m256d value = _mm256_cvtps_pd(x);
    sum->part[j] = _mm256_add_pd(sum->part[j], value);
    squares->part[j] = _mm256_add_pd(squares->part[j], _mm256_mul_pd(value, value));
}

static inline void add16(lanes16 *sum, lanes16 *squares, const float *x)
{
    for (unsigned j = 0; j < 4; j++) {
        add4(sum, squares, j, _mm_loadu_ps(x + 4 * j));
    }
}

void gw_level_moments_avx2(gw_level_moments *moments, const float *x, size_t len)
{
    const __m256d zero = _mm256_setzero_pd();
    lanes16 sum = {{zero, zero, zero, zero}}, squares = {{zero, zero, zero, zero}};
    __m256i a = _mm256_setzero_si256(), b = a;
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        a = _mm256_max_epu32(a, magnitude8(gw_load256(x + i)));
        b = _mm256_max_epu32(b, magnitude8(gw_load256(x + i + 8)));
        add16(&sum, &squares, x + i);
    }
    if (i < len) { /* an accumulator is never -0: adding +0 changes nothing */
        float rest[16] = {0};
        GW_MEMCPY(rest, x + i, (len - i) * sizeof *x);
        add16(&sum, &squares, rest);
    }
    const uint32_t largest = gw_level_largest_values(reduce_max(_mm256_max_epu32(a, b)), x, i, len);
    moments->largest = largest > moments->largest ? largest : moments->largest;
    if (largest < GW_LEVEL_NONFINITE) {
        moments->sum += fold16(&sum);
        moments->squares += fold16(&squares);
    }
}

/* ---- quantize and decode ------------------------------------------------------------------------------- */

/* Levels of 8 values, as dwords, with the sign of x. */
static inline __m256i quantize8(__m256 x, __m128i random, __m256 scale, __m256 limit)
{
    const __m256 magnitude = _mm256_castsi256_ps(magnitude8(_mm256_castps_si256(x)));
    const __m256 position = _mm256_add_ps(_mm256_mul_ps(magnitude, scale), _mm256_set1_ps(0.5f));
    const __m256i least = _mm256_cvttps_epi32(_mm256_min_ps(position, limit));
    const __m256i level = _mm256_srli_epi32(_mm256_add_epi32(least, _mm256_cvtepu16_epi32(random)), 16);
    /* +1 or -1: a sign bit, shifted down and made odd. */
    const __m256i sign = _mm256_or_si256(_mm256_srai_epi32(_mm256_castps_si256(x), 31), _mm256_set1_epi32(1));
    return _mm256_sign_epi32(level, sign);
}

static inline __m256i quantize_at(const float *x, const uint16_t *random, __m256 scale, __m256 limit)
{
    return quantize8(_mm256_loadu_ps(x), gw_load128(random), scale, limit);
}

void gw_level_quantize_avx2(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                            const gw_level_rule *rule)
{
    const __m256 scale = _mm256_set1_ps(rule->scale), limit = _mm256_set1_ps((float)(rule->level_max << 16));
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        const __m256i a = quantize_at(x + i, random + i, scale, limit);
        const __m256i b = quantize_at(x + i + 8, random + i + 8, scale, limit);
        const __m256i c = quantize_at(x + i + 16, random + i + 16, scale, limit);
        const __m256i d = quantize_at(x + i + 24, random + i + 24, scale, limit);
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        gw_store256(levels + i, _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0)));
    }
    gw_level_quantize_values(levels, x, random, i, len, rule);
}

void gw_level_decode_avx2(float *dst, const int8_t *levels, size_t len, float step)
{
    const __m256 factor = _mm256_set1_ps(step);
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        const __m128i bytes = gw_load128(levels + i);
        const __m256i a = _mm256_cvtepi8_epi32(bytes), b = _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8));
        _mm256_storeu_ps(dst + i, _mm256_mul_ps(_mm256_cvtepi32_ps(a), factor));
        _mm256_storeu_ps(dst + i + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(b), factor));
    }
    gw_level_decode_values(dst, levels, i, len, step);
}

#else
typedef int gw_classic_level_avx2_not_built; /* a translation unit must not be empty */
#endif
