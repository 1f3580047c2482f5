/*
 * Survey: bins of 64 values at a time, then counted one by one. Four tables take turns, so that runs of equal bins do not
 * wait for their own increments; a sample is too short to pay for clearing and adding them.
 *
 * Bound: one store a cycle, so 1 cycle/value.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/round_block_avx512.h"

#if defined(GW_AVX512_COMPILED)

/* The bins of up to 64 values. */
GW_TEMPLATE void bins_of(uint16_t bins[64], gw_bytes v, __m512i k, uint64_t element, const gw_rounder *r, uint32_t dtype,
                         uint32_t derived)
{
    gw_block b = gw_round64_any(v, k, element, r, dtype, derived);
    if (dtype == GW_FP16 && !derived) {
        gw_clear_cut(&b);
    }
    const gw_nonzero nonzero = gw_nonzero_of(&b.v, dtype, r->rule->strict);
    __m512i level = _mm512_setzero_si512();
    if (!derived) {
        level = _mm512_maskz_mov_epi8(b.level1, GW_BYTE(1));
        level = _mm512_mask_mov_epi8(level, b.level2, GW_BYTE(2));
        level = _mm512_mask_mov_epi8(level, b.level3, GW_BYTE(3));
    }
    if (dtype != GW_FP16) {
        /* Exponent 0: bin 1 for all but +0. */
        level = _mm512_mask_mov_epi8(level, _kandn_mask64(nonzero.magnitude, nonzero.value), GW_BYTE(1));
    }
    for (unsigned half = 0; half < 2; half++) {
        const __m256i e8 = half == 0 ? _mm512_castsi512_si256(b.v.e) : _mm512_extracti64x4_epi64(b.v.e, 1);
        const __m256i level8 = half == 0 ? _mm512_castsi512_si256(level) : _mm512_extracti64x4_epi64(level, 1);
        __m512i bin = _mm512_slli_epi16(_mm512_cvtepu8_epi16(e8), 2);
        bin = _mm512_or_si512(bin, _mm512_cvtepu8_epi16(level8));
        if (dtype == GW_FP16) {
            const __mmask32 has_value = (__mmask32)(_cvtmask64_u64(nonzero.value) >> 32 * half);
            const __mmask32 has_magnitude = (__mmask32)(_cvtmask64_u64(nonzero.magnitude) >> 32 * half);
            bin = _mm512_mask_mov_epi16(bin, ~has_magnitude, _mm512_set1_epi16(4 * 31));
            bin = _mm512_mask_mov_epi16(bin, ~has_value, _mm512_set1_epi16(GW_BIN_FP16_ZERO));
        }
        _mm512_storeu_si512(bins + 32 * half, bin);
    }
}

/* Adds the bins of values [at, at + len), len <= 64. */
GW_TEMPLATE void survey64(uint32_t *const count[4], const gw_span *span, size_t at, size_t len, const gw_rounder *r,
                          uint32_t dtype, uint32_t derived)
{
    const size_t size = gw_traits_of(dtype)->size;
    uint16_t bins[64];
    const gw_bytes v = gw_load_bytes((const uint8_t *)span->values + size * at, len, dtype);
    const __m512i k = gw_load_levels_part(r, at, gw_low_mask(len));
    bins_of(bins, v, k, span->element + at, r, dtype, derived);
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        uint64_t four;
        GW_MEMCPY(&four, bins + i, 8);
        count[0][four & 0xffff]++;
        count[1][four >> 16 & 0xffff]++;
        count[2][four >> 32 & 0xffff]++;
        count[3][four >> 48]++;
    }
    for (; i < len; i++) {
        count[0][bins[i]]++;
    }
}

GW_TEMPLATE void survey_span(uint32_t *count, const gw_span *span, size_t period, const gw_round_rule *rule, uint32_t dtype,
                             uint32_t derived)
{
    enum { LONG = 4096 };
    gw_rounder r;
    gw_drop_tables tables;
    uint32_t more[3][GW_BINS];
    uint32_t *tables_of[4] = {count, count, count, count};
    const int is_long = span->len / period >= LONG / 64;
    gw_rounder_init(&r, &tables, span, rule);
    if (is_long) {
        GW_MEMSET(more, 0, sizeof more);
        tables_of[1] = more[0];
        tables_of[2] = more[1];
        tables_of[3] = more[2];
    }
    for (size_t at = 0; at < span->len; at += period) {
        const size_t left = span->len - at;
        survey64(tables_of, span, at, left < 64 ? left : 64, &r, dtype, derived);
    }
    if (is_long) {
        for (size_t bin = 0; bin < GW_BINS; bin++) {
            count[bin] += more[0][bin] + more[1][bin] + more[2][bin];
        }
    }
}

void gw_survey_avx512(uint32_t *count, const gw_span *span, size_t period, const gw_round_rule *rule)
{
    switch (rule->dtype * 2 + rule->derived) {
    case GW_FP32 * 2: survey_span(count, span, period, rule, GW_FP32, 0); break;
    case GW_FP32 * 2 + 1: survey_span(count, span, period, rule, GW_FP32, 1); break;
    case GW_BF16 * 2: survey_span(count, span, period, rule, GW_BF16, 0); break;
    case GW_BF16 * 2 + 1: survey_span(count, span, period, rule, GW_BF16, 1); break;
    case GW_FP16 * 2: survey_span(count, span, period, rule, GW_FP16, 0); break;
    case GW_FP16 * 2 + 1: survey_span(count, span, period, rule, GW_FP16, 1); break;
    default: break;
    }
}

#else
typedef int gw_survey_avx512_not_built; /* a translation unit must not be empty */
#endif
