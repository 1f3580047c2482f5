/*
 * Signs and votes of the classic codecs: 64 bits at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/classic_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "gradwire/gradwire.h"

/* ---- pack -----------------------------------------------------------------------------------------------
 */

/* Negative ones of 16 values of fp32; *largest collects magnitudes, shifted left by one. */
static inline uint64_t negative16(__m512i x, __m512i *largest)
{
    *largest = _mm512_max_epu32(*largest, _mm512_slli_epi32(x, 1));
    return _mm512_mask_test_epi32_mask(_mm512_movepi32_mask(x), x, _mm512_set1_epi32(GW_F32_INF));
}

static uint32_t pack_fp32(uint8_t *bits, const uint8_t *src, size_t len)
{
    __m512i largest = _mm512_setzero_si512(), other = largest;
    size_t i = 0;

    for (; i + 64 <= len; i += 64) {
        const uint8_t *at = src + 4 * i;
        const uint64_t a = negative16(_mm512_loadu_si512(at), &largest);
        const uint64_t b = negative16(_mm512_loadu_si512(at + 64), &other);
        const uint64_t c = negative16(_mm512_loadu_si512(at + 128), &largest);
        const uint64_t d = negative16(_mm512_loadu_si512(at + 192), &other);
        gw_store64(bits + i / 8, a | b << 16 | c << 32 | d << 48);
    }
    for (; i < len; i += 16) {
        const __m512i x = _mm512_maskz_loadu_epi32(gw_first16(len - i), src + 4 * i);
        const uint64_t word = negative16(x, &largest);
        bits[i / 8] = (uint8_t)word;
        if (len - i > 8) {
            bits[i / 8 + 1] = (uint8_t)(word >> 8);
        }
    }
    largest = _mm512_max_epu32(largest, other);
    return _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32((int)(GW_F32_INF << 1))) != 0;
}

/* The same for 32 values of a 16-bit type. `counted`: bits of which one is set in what is not flushed. */
static inline uint64_t negative32(__m512i x, short counted, __m512i *largest)
{
    *largest = _mm512_max_epu16(*largest, _mm512_slli_epi16(x, 1));
    return _mm512_mask_test_epi16_mask(_mm512_movepi16_mask(x), x, _mm512_set1_epi16(counted));
}

GW_TEMPLATE uint32_t pack_half(uint8_t *bits, const uint8_t *src, short counted, uint32_t infinity,
                               size_t len)
{
    __m512i largest = _mm512_setzero_si512(), other = largest;
    size_t i = 0;

    for (; i + 64 <= len; i += 64) {
        const uint64_t low = negative32(_mm512_loadu_si512(src + 2 * i), counted, &largest);
        const uint64_t high = negative32(_mm512_loadu_si512(src + 2 * i + 64), counted, &other);
        gw_store64(bits + i / 8, low | high << 32);
    }
    for (; i < len; i += 32) {
        const __mmask32 mask = (__mmask32)gw_low_mask(gw_min_size(len - i, 32));
        uint64_t word = negative32(_mm512_maskz_loadu_epi16(mask, src + 2 * i), counted, &largest);
        for (size_t j = i; j < gw_min_size(len, i + 32); j += 8) {
            bits[j / 8] = (uint8_t)word;
            word >>= 8;
        }
    }
    largest = _mm512_max_epu16(largest, other);
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16((short)(infinity << 1))) != 0;
}

uint32_t gw_sign_pack_avx512(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    const uint8_t *elements = (const uint8_t *)src;

    if (dtype == GW_FP32) {
        return pack_fp32(bits, elements, len);
    }
    return dtype == GW_BF16 ? pack_half(bits, elements, 0x7f80, 0x7f80, len)
                            : pack_half(bits, elements, 0x7fff, 0x7c00, len);
}

/* ---- sums and state -------------------------------------------------------------------------------------
 */

void gw_sign_sums_avx512(gw_sign_sums *sums, const float *x, size_t len)
{
    __m512d negative0 = _mm512_setzero_pd(), negative1 = negative0, positive0 = negative0,
            positive1 = negative0;
    double lanes[GW_SIGN_LANES];
    size_t count = 0;

    for (size_t i = 0; i < len; i += 16) {
        /* What follows the end is +0, and changes no sum. */
        const __m512 values = _mm512_maskz_loadu_ps(gw_first16(len - i), x + i);
        const uint32_t mask = _mm512_movepi32_mask(_mm512_castps_si512(values));
        const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(values));
        const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1));
        const __mmask8 low_mask = (__mmask8)mask, high_mask = (__mmask8)(mask >> 8);
        negative0 = _mm512_mask_add_pd(negative0, low_mask, negative0, low);
        negative1 = _mm512_mask_add_pd(negative1, high_mask, negative1, high);
        positive0 = _mm512_mask_add_pd(positive0, (__mmask8)~low_mask, positive0, low);
        positive1 = _mm512_mask_add_pd(positive1, (__mmask8)~high_mask, positive1, high);
        count += (size_t)_mm_popcnt_u32(mask);
    }
    sums->negative_count = count;
    _mm512_storeu_pd(lanes, negative0);
    _mm512_storeu_pd(lanes + 8, negative1);
    sums->negative = gw_sign_fold(lanes);
    _mm512_storeu_pd(lanes, positive0);
    _mm512_storeu_pd(lanes + 8, positive1);
    sums->positive = gw_sign_fold(lanes);
}

static inline __m512i residual16(__m512 x, __m512 positive, __m512 negative)
{
    const __mmask16 mask = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return gw_flush16(_mm512_castps_si512(_mm512_sub_ps(x, _mm512_mask_mov_ps(positive, mask, negative))));
}

void gw_sign_residual_avx512(float *residual, const float *x, size_t len, float positive, float negative)
{
    const __m512 plus = _mm512_set1_ps(positive), minus = _mm512_set1_ps(negative);
    uint8_t *out = (uint8_t *)residual;
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        _mm512_storeu_si512(out + 4 * i, residual16(_mm512_loadu_ps(x + i), plus, minus));
    }
    if (i < len) {
        const __mmask16 mask = gw_first16(len - i);
        _mm512_mask_storeu_epi32(out + 4 * i, mask,
                                 residual16(_mm512_maskz_loadu_ps(mask, x + i), plus, minus));
    }
}

/* The new momentum of eight values. */
static inline __m256 momentum8(__m256i momentum, __m256 x, __m512d beta, __m512d rest)
{
    const __m256 kept = gw_flush8_512(momentum);
    const __m512d a = _mm512_mul_pd(beta, _mm512_cvtps_pd(kept));
    return gw_narrow8(_mm512_add_pd(a, _mm512_mul_pd(rest, _mm512_cvtps_pd(x))));
}

void gw_sign_momentum_avx512(float *dst, const float *momentum, const float *x, size_t len, float beta,
                             float rest)
{
    const __m512d b = _mm512_set1_pd((double)beta), r = _mm512_set1_pd((double)rest);
    const uint8_t *old = (const uint8_t *)momentum;
    uint8_t *out = (uint8_t *)dst;

    for (size_t i = 0; i < len; i += 8) {
        const __mmask8 mask = gw_first8(len - i);
        const __m256i kept = _mm256_maskz_loadu_epi32(mask, old + 4 * i);
        const __m256 y = momentum8(kept, _mm256_maskz_loadu_ps(mask, x + i), b, r);
        if (len - i >= 8) {
            _mm256_storeu_ps((float *)(void *)(out + 4 * i), y);
        } else {
            _mm256_mask_storeu_epi32(out + 4 * i, mask, _mm256_castps_si256(y));
        }
    }
}

/* ---- decode ---------------------------------------------------------------------------------------------
 */

/* Values before the first whole byte. */
static inline size_t head_len(unsigned first, size_t len)
{
    return gw_min_size(len, (8 - first) % 8);
}

void gw_sign_unpack_avx512(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
                           uint32_t positive, uint32_t negative)
{
    const uint32_t values[2] = {positive, negative};
    const size_t head = head_len(first, len);
    uint8_t *out = (uint8_t *)dst + head * size;
    size_t i = 0;

    gw_sign_unpack_values((uint8_t *)dst, size, bits, first, first + head, values);
    bits += (first + head) / 8;
    len -= head;
    if (size == 4) {
        const __m512i plus = _mm512_set1_epi32((int)positive), minus = _mm512_set1_epi32((int)negative);
        for (; i + 16 <= len; i += 16) {
            const __mmask16 mask = gw_load16(bits + i / 8);
            _mm512_storeu_si512(out + 4 * i, _mm512_mask_mov_epi32(plus, mask, minus));
        }
    } else {
        const __m512i plus = _mm512_set1_epi16((short)positive), minus = _mm512_set1_epi16((short)negative);
        for (; i + 32 <= len; i += 32) {
            const __mmask32 mask = gw_load32(bits + i / 8);
            _mm512_storeu_si512(out + 2 * i, _mm512_mask_mov_epi16(plus, mask, minus));
        }
    }
    if (i < len) {
        gw_sign_unpack_values(out + size * i, size, bits, i, len, values);
    }
}

void gw_sign_add_avx512(float *sum, const uint8_t *bits, unsigned first, size_t len, float positive,
                        float negative)
{
    const float values[2] = {positive, negative};
    const __m512 plus = _mm512_set1_ps(positive), minus = _mm512_set1_ps(negative);
    const size_t head = head_len(first, len);
    uint8_t *out = (uint8_t *)(void *)sum + 4 * head;
    size_t i = 0;

    gw_sign_add_values(sum, bits, first, first + head, values);
    bits += (first + head) / 8;
    len -= head;
    for (; i + 16 <= len; i += 16) {
        const __m512 x = _mm512_mask_mov_ps(plus, gw_load16(bits + i / 8), minus);
        _mm512_storeu_si512(out + 4 * i, gw_accumulate16(_mm512_loadu_si512(out + 4 * i), x));
    }
    if (i < len) {
        gw_sign_add_values((float *)(void *)(out + 4 * i), bits, i, len, values);
    }
}

/* ---- votes ----------------------------------------------------------------------------------------------
 */

void gw_sign_votes_avx512(int32_t *lanes, const uint8_t *bits, size_t len)
{
    const __m512i plus = _mm512_set1_epi32(1), minus = _mm512_set1_epi32(-1);
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        const __m512i vote = _mm512_mask_mov_epi32(plus, gw_load16(bits + i / 8), minus);
        _mm512_storeu_si512(lanes + i, _mm512_add_epi32(_mm512_loadu_si512(lanes + i), vote));
    }
    gw_sign_vote_values(lanes, bits, i, len);
}

void gw_sign_majority_avx512(uint8_t *bits, const int32_t *lanes, const uint8_t *ties, size_t len)
{
    size_t i = 0;

    for (; i + 16 <= len; i += 16) {
        const __m512i lane = _mm512_loadu_si512(lanes + i);
        const uint32_t is_tie = _mm512_testn_epi32_mask(lane, lane);
        gw_store16(bits + i / 8,
                   (uint16_t)(_mm512_movepi32_mask(lane) | (is_tie & (uint32_t)gw_load16(ties + i / 8))));
    }
    gw_sign_majority_values(bits, lanes, ties, i, len);
}

#else
typedef int gw_classic_sign_avx512_not_built; /* a translation unit must not be empty */
#endif
