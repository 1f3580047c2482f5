/*
 * Rounding of RAW chunks and survey of bins: 16 values at a time by round_neon.h.
 *
 * Not timed. Instructions a value by scripts/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2:
 * round of fp32 to explicit levels, nearest, 11.1 (24.2), 4.1 and 2.1; survey 18.0 (26.2), 4.9 and 2.4.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/bins.h"
#include "neon/kernels_neon.h"
#include "neon/round_neon.h"

#if defined(GW_NEON)

GW_TEMPLATE void round_span(uint8_t *dst, const gw_span *span, const gw_round_rule *rule, uint32_t dtype)
{
    const size_t size = gw_traits_of(dtype)->size;
    const gw_rounder r = gw_rounder_of(rule);
    for (size_t i = 0; i < span->len; i += 16) {
        const size_t count = span->len - i < 16 ? span->len - i : 16;
        gw_rounded16 v;
        gw_round16_of_span(&v, span, i, count, &r, dtype);
        if (count == 16) {
            gw_store_rounded16(dst + size * i, &v, dtype);
        } else {
            uint8_t last[64];
            gw_store_rounded16(last, &v, dtype);
            GW_MEMCPY(dst + size * i, last, size * count);
        }
    }
}

void gw_round_neon(void *out, const gw_span *span, const gw_round_rule *rule)
{
    switch (rule->dtype) {
    case GW_FP32:
        round_span((uint8_t *)out, span, rule, GW_FP32);
        break;
    case GW_BF16:
        round_span((uint8_t *)out, span, rule, GW_BF16);
        break;
    case GW_FP16:
        round_span((uint8_t *)out, span, rule, GW_FP16);
        break;
    default:
        break;
    }
}

/* The bins of 16 values (gcomp/bins.h), from what rounding left in bytes. */
GW_TEMPLATE void store_bins(uint16_t bins[16], const gw_rounded16 *v, uint32_t dtype)
{
    /* Values with exponent 0 have level 0 unless they are fp16. */
    uint16x8_t low = vshll_n_u8(vget_low_u8(v->exponent), 2), high = vshll_n_u8(vget_high_u8(v->exponent), 2);
    low = vaddw_u8(low, vget_low_u8(v->level));
    high = vaddw_u8(high, vget_high_u8(v->level));
    if (dtype == GW_FP16) {
        const uint8x16_t is_minus_zero =
            vandq_u8(vceqq_u8(v->byte[0], vdupq_n_u8(0)), vceqq_u8(v->byte[1], vdupq_n_u8(0x80)));
        const int8x16_t zero = vreinterpretq_s8_u8(v->is_zero),
                        minus_zero = vreinterpretq_s8_u8(is_minus_zero);
        const uint16x8_t zero_bin = vdupq_n_u16(GW_BIN_FP16_ZERO), minus_zero_bin = vdupq_n_u16(4 * 31);
        low = vbslq_u16(vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(zero))), zero_bin, low);
        high = vbslq_u16(vreinterpretq_u16_s16(vmovl_s8(vget_high_s8(zero))), zero_bin, high);
        low = vbslq_u16(vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(minus_zero))), minus_zero_bin, low);
        high = vbslq_u16(vreinterpretq_u16_s16(vmovl_s8(vget_high_s8(minus_zero))), minus_zero_bin, high);
    } else {
        /* 1 for what is not +0 there. */
        const uint8x16_t other =
            vandq_u8(vbicq_u8(vceqq_u8(v->exponent, vdupq_n_u8(0)), v->is_zero), vdupq_n_u8(1));
        low = vaddw_u8(low, vget_low_u8(other));
        high = vaddw_u8(high, vget_high_u8(other));
    }
    gw_store_u16x8(bins, low);
    gw_store_u16x8(bins + 8, high);
}

GW_TEMPLATE void survey_span(uint32_t *count, const gw_span *span, size_t period, const gw_round_rule *rule,
                             uint32_t dtype)
{
    const gw_rounder r = gw_rounder_of(rule);
    for (size_t start = 0; start < span->len; start += period) {
        const size_t stop = span->len - start < 64 ? span->len : start + 64;
        for (size_t i = start; i < stop; i += 16) {
            const size_t left = stop - i < 16 ? stop - i : 16;
            uint16_t bins[16];
            gw_rounded16 v;
            gw_round16_of_span(&v, span, i, left, &r, dtype);
            store_bins(bins, &v, dtype);
            for (size_t j = 0; j < left; j++) {
                count[bins[j]]++;
            }
        }
    }
}

void gw_survey_neon(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                    const gw_round_rule *rule)
{
    (void)mask_count;
    switch (rule->dtype) {
    case GW_FP32:
        survey_span(count, span, period, rule, GW_FP32);
        break;
    case GW_BF16:
        survey_span(count, span, period, rule, GW_BF16);
        break;
    case GW_FP16:
        survey_span(count, span, period, rule, GW_FP16);
        break;
    default:
        break;
    }
}

#else
typedef int gw_round_neon_not_built; /* a translation unit must not be empty */
#endif
