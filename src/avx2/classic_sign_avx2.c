/*
 * Signs and votes of the classic codecs: 32 bits at a time, the rest by classic/sign_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/classic_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "gradwire/gradwire.h"

/* ---- pack -----------------------------------------------------------------------------------------------
 */

/* Eight values of fp32, flushed; *largest collects magnitudes, shifted left by one. */
static inline __m256i signs8(const uint8_t *src, __m256i *largest)
{
    const __m256i x = gw_load256(src);
    *largest = _mm256_max_epu32(*largest, _mm256_slli_epi32(x, 1));
    return gw_flush8(x);
}

/* The signs of 32 values: dwords are packed to bytes with their signs, within halves of registers. */
static inline uint32_t signs32(const uint8_t *src, __m256i *largest)
{
    const __m256i low = _mm256_packs_epi32(signs8(src, largest), signs8(src + 32, largest));
    const __m256i high = _mm256_packs_epi32(signs8(src + 64, largest), signs8(src + 96, largest));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    return (uint32_t)_mm256_movemask_epi8(bytes);
}

static uint32_t pack_fp32(uint8_t *bits, const uint8_t *src, size_t len)
{
    __m256i largest = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 32 <= len; i += 32) {
        gw_store32(bits + i / 8, signs32(src + 4 * i, &largest));
    }
    const __m256i infinity = _mm256_set1_epi32((int)(GW_F32_INF << 1));
    const __m256i is_bad = _mm256_cmpeq_epi32(_mm256_max_epu32(largest, infinity), largest);
    return (uint32_t)(_mm256_movemask_epi8(is_bad) != 0) | gw_sign_pack_values(bits, src, GW_FP32, i, len);
}

/* 16 values of a 16-bit type: +0 where no bit of `counted` is set. */
static inline __m256i signs16(const uint8_t *src, __m256i counted, __m256i *largest)
{
    const __m256i x = gw_load256(src);
    *largest = _mm256_max_epu16(*largest, _mm256_slli_epi16(x, 1));
    const __m256i is_zero = _mm256_cmpeq_epi16(_mm256_and_si256(x, counted), _mm256_setzero_si256());
    return _mm256_andnot_si256(is_zero, x);
}

GW_TEMPLATE uint32_t pack_half(uint8_t *bits, const uint8_t *src, unsigned dtype, size_t len)
{
    const __m256i counted = _mm256_set1_epi16(dtype == GW_BF16 ? 0x7f80 : 0x7fff);
    const __m256i infinity = _mm256_set1_epi16((short)(dtype == GW_BF16 ? 0xff00 : 0xf800)); /* shifted */
    __m256i largest = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 32 <= len; i += 32) {
        const __m256i low = signs16(src + 2 * i, counted, &largest);
        const __m256i high = signs16(src + 2 * i + 32, counted, &largest);
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
        gw_store32(bits + i / 8, (uint32_t)_mm256_movemask_epi8(bytes));
    }
    const __m256i is_bad = _mm256_cmpeq_epi16(_mm256_max_epu16(largest, infinity), largest);
    return (uint32_t)(_mm256_movemask_epi8(is_bad) != 0) | gw_sign_pack_values(bits, src, dtype, i, len);
}

uint32_t gw_sign_pack_avx2(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    const uint8_t *elements = (const uint8_t *)src;

    if (dtype == GW_FP32) {
        return pack_fp32(bits, elements, len);
    }
    return dtype == GW_BF16 ? pack_half(bits, elements, GW_BF16, len)
                            : pack_half(bits, elements, GW_FP16, len);
}

/* ---- sums and state -------------------------------------------------------------------------------------
 */

/* Adds eight values to eight lanes each of negative and other ones. Zeros in their place change no sum. */
static inline void add8(__m256d negative[2], __m256d positive[2], __m256 x)
{
    const __m256 is_negative = _mm256_castsi256_ps(_mm256_srai_epi32(_mm256_castps_si256(x), 31));
    const __m256 below = _mm256_and_ps(x, is_negative), above = _mm256_andnot_ps(is_negative, x);
    negative[0] = _mm256_add_pd(negative[0], _mm256_cvtps_pd(_mm256_castps256_ps128(below)));
    negative[1] = _mm256_add_pd(negative[1], _mm256_cvtps_pd(_mm256_extractf128_ps(below, 1)));
    positive[0] = _mm256_add_pd(positive[0], _mm256_cvtps_pd(_mm256_castps256_ps128(above)));
    positive[1] = _mm256_add_pd(positive[1], _mm256_cvtps_pd(_mm256_extractf128_ps(above, 1)));
}

static inline uint32_t sign_mask8(__m256 x)
{
    return (uint32_t)_mm256_movemask_ps(x);
}

void gw_sign_sums_avx2(gw_sign_sums *sums, const float *x, size_t len)
{
    __m256d negative[4], positive[4];
    double below[GW_SIGN_LANES], above[GW_SIGN_LANES];
    size_t i = 0, count = 0;

    for (unsigned j = 0; j < 4; j++) {
        negative[j] = positive[j] = _mm256_setzero_pd();
    }
    for (; i + 16 <= len; i += 16) {
        const __m256 low = _mm256_loadu_ps(x + i), high = _mm256_loadu_ps(x + i + 8);
        add8(negative, positive, low);
        add8(negative + 2, positive + 2, high);
        count += (size_t)_mm_popcnt_u32(sign_mask8(low) | sign_mask8(high) << 8);
    }
    for (unsigned j = 0; j < 4; j++) {
        _mm256_storeu_pd(below + 4 * j, negative[j]);
        _mm256_storeu_pd(above + 4 * j, positive[j]);
    }
    sums->negative_count = count + gw_sign_sum_values(below, above, x, i, len);
    sums->negative = gw_sign_fold(below);
    sums->positive = gw_sign_fold(above);
}

void gw_sign_residual_avx2(float *residual, const float *x, size_t len, float positive, float negative)
{
    const __m256 plus = _mm256_set1_ps(positive), minus = _mm256_set1_ps(negative);
    uint8_t *out = (uint8_t *)(void *)residual;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256 y = _mm256_loadu_ps(x + i);
        const __m256 rest = _mm256_sub_ps(y, _mm256_blendv_ps(plus, minus, y));
        gw_store256(out + 4 * i, gw_flush8(_mm256_castps_si256(rest)));
    }
    gw_sign_residual_values(residual, x, i, len, positive, negative);
}

static inline __m128 momentum4(__m128 kept, __m128 x, __m256d beta, __m256d rest)
{
    const __m256d a = _mm256_mul_pd(beta, _mm256_cvtps_pd(kept));
    return gw_narrow4(_mm256_add_pd(a, _mm256_mul_pd(rest, _mm256_cvtps_pd(x))));
}

void gw_sign_momentum_avx2(float *dst, const float *momentum, const float *x, size_t len, float beta,
                           float rest)
{
    const __m256d b = _mm256_set1_pd((double)beta), r = _mm256_set1_pd((double)rest);
    const uint8_t *old = (const uint8_t *)(const void *)momentum;
    uint8_t *out = (uint8_t *)(void *)dst;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256 kept = _mm256_castsi256_ps(gw_flush8(gw_load256(old + 4 * i))),
                     y = _mm256_loadu_ps(x + i);
        const __m128 low = momentum4(_mm256_castps256_ps128(kept), _mm256_castps256_ps128(y), b, r);
        const __m128 high = momentum4(_mm256_extractf128_ps(kept, 1), _mm256_extractf128_ps(y, 1), b, r);
        gw_store256(out + 4 * i, gw_join4(low, high));
    }
    gw_sign_momentum_values(dst, momentum, x, i, len, beta, rest);
}

/* ---- decode ---------------------------------------------------------------------------------------------
 */

static inline __m256i pick8(__m256i plus, __m256i minus, uint32_t byte)
{
    return _mm256_blendv_epi8(plus, minus, gw_mask8(byte));
}

static inline __m256i pick16(__m256i plus, __m256i minus, uint32_t word)
{
    const __m256i place =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, INT16_MIN);
    const __m256i mask = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)word), place), place);
    return _mm256_blendv_epi8(plus, minus, mask);
}

void gw_sign_unpack_avx2(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
                         uint32_t positive, uint32_t negative)
{
    const uint32_t values[2] = {positive, negative};
    const size_t head = gw_sign_head_len(first, len);
    uint8_t *out = (uint8_t *)dst + head * size;
    size_t i = 0;

    gw_sign_unpack_values((uint8_t *)dst, size, bits, first, first + head, values);
    bits += (first + head) / 8;
    len -= head;
    if (size == 4) {
        const __m256i plus = _mm256_set1_epi32((int)positive), minus = _mm256_set1_epi32((int)negative);
        for (; i + 8 <= len; i += 8) {
            gw_store256(out + 4 * i, pick8(plus, minus, bits[i / 8]));
        }
    } else {
        const __m256i plus = _mm256_set1_epi16((short)positive), minus = _mm256_set1_epi16((short)negative);
        for (; i + 16 <= len; i += 16) {
            gw_store256(out + 2 * i, pick16(plus, minus, gw_load16(bits + i / 8)));
        }
    }
    if (i < len) {
        gw_sign_unpack_values(out + size * i, size, bits, i, len, values);
    }
}

void gw_sign_add_avx2(float *sum, const uint8_t *bits, unsigned first, size_t len, float positive,
                      float negative)
{
    const float values[2] = {positive, negative};
    const __m256i plus = _mm256_castps_si256(_mm256_set1_ps(positive));
    const __m256i minus = _mm256_castps_si256(_mm256_set1_ps(negative));
    const size_t head = gw_sign_head_len(first, len);
    uint8_t *out = (uint8_t *)(void *)sum + 4 * head;
    size_t i = 0;

    gw_sign_add_values(sum, bits, first, first + head, values);
    bits += (first + head) / 8;
    len -= head;
    for (; i + 8 <= len; i += 8) {
        const __m256 x = _mm256_castsi256_ps(pick8(plus, minus, bits[i / 8]));
        gw_store256(out + 4 * i, gw_accumulate8(gw_load256(out + 4 * i), x));
    }
    if (i < len) {
        gw_sign_add_values((float *)(void *)(out + 4 * i), bits, i, len, values);
    }
}

/* ---- votes ----------------------------------------------------------------------------------------------
 */

void gw_sign_votes_avx2(int32_t *lanes, const uint8_t *bits, size_t len)
{
    const __m256i one = _mm256_set1_epi32(1);
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256i vote = _mm256_or_si256(gw_mask8(bits[i / 8]), one);
        gw_store256(lanes + i, _mm256_add_epi32(gw_load256(lanes + i), vote));
    }
    gw_sign_vote_values(lanes, bits, i, len);
}

void gw_sign_majority_avx2(uint8_t *bits, const int32_t *lanes, const uint8_t *ties, size_t len)
{
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        const __m256i lane = gw_load256(lanes + i);
        const uint32_t is_tie =
            sign_mask8(_mm256_castsi256_ps(_mm256_cmpeq_epi32(lane, _mm256_setzero_si256())));
        bits[i / 8] = (uint8_t)(sign_mask8(_mm256_castsi256_ps(lane)) | (is_tie & ties[i / 8]));
    }
    gw_sign_majority_values(bits, lanes, ties, i, len);
}

#else
typedef int gw_classic_sign_avx2_not_built; /* a translation unit must not be empty */
#endif
