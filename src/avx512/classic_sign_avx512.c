/*
 * Signs and votes of the classic codecs: what AVX2 does not do nearly as fast.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "classic/sign_values.h"

/* ---- momentum ----------------------------------------------------------------------------------------- */

/* The first `len` of 8 lanes. */
static inline __mmask8 first8(size_t len)
{
    return (__mmask8)(len >= 8 ? 0xffu : (1u << len) - 1u);
}

/* gw_f32_flush() of eight values. */
static inline __m256 flush8(__m256i bits)
{
    const __mmask8 is_kept = _mm256_test_epi32_mask(bits, _mm256_set1_epi32(GW_F32_INF));
    return _mm256_castsi256_ps(_mm256_maskz_mov_epi32(is_kept, bits));
}

/* gw_narrow_double() of eight values. NaN is not below the limit. */
static inline __m256 narrow8(__m512d x)
{
    const __mmask8 is_kept = _mm512_cmp_pd_mask(_mm512_abs_pd(x), _mm512_set1_pd(0x1p-126), _CMP_NLT_UQ);
    return _mm512_maskz_cvtpd_ps(is_kept, x);
}

/* The new momentum of eight values. */
static inline __m256 momentum8(__m256i momentum, __m256 x, __m512d beta, __m512d rest)
{
    const __m256 kept = flush8(momentum);
    const __m512d a = _mm512_mul_pd(beta, _mm512_cvtps_pd(kept));
    return narrow8(_mm512_add_pd(a, _mm512_mul_pd(rest, _mm512_cvtps_pd(x))));
}

void gw_sign_momentum_avx512(float *dst, const float *momentum, const float *x, size_t len, float beta,
                             float rest)
{
    const __m512d b = _mm512_set1_pd((double)beta), r = _mm512_set1_pd((double)rest);
    const uint8_t *old = (const uint8_t *)momentum;
    uint8_t *out = (uint8_t *)dst;

    for (size_t i = 0; i < len; i += 8) {
        const __mmask8 mask = first8(len - i);
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

void gw_sign_unpack_avx512(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
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
