/*
 * Rounding of RAW chunks and survey of bins: 16 values at a time by round_neon.h.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2:
 * round of fp32 to explicit quanta, nearest, 11.1 (24.2), 4.1 and 2.1; with dead zone 14.3 (91.9), 5.8
 * and 2.9; survey to explicit quanta 18.1 (26.7), 4.9 and 2.4.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/bins.h"
#include "neon/bitmap_neon.h"
#include "neon/kernels_neon.h"
#include "neon/round_neon.h"

#if defined(GW_NEON)

GW_TEMPLATE void round_span(uint8_t *dst, const gw_span *span, const gw_round_rule *rule, uint32_t dtype,
                            uint32_t by_quantum)
{
    const size_t size = gw_traits_of(dtype)->size;
    gw_random_words random;
    const gw_rounder r = gw_rounder_of(rule, &random);
    for (size_t i = 0; i < span->len; i += 16) {
        const size_t count = span->len - i < 16 ? span->len - i : 16;
        gw_rounded16 v;
        gw_round16_of_span(&v, span, i, count, &r, dtype, by_quantum);
        if (count == 16) {
            gw_store_rounded16(dst + size * i, &v, dtype);
        } else {
            uint8_t last[64];
            gw_store_rounded16(last, &v, dtype);
            GW_MEMCPY(dst + size * i, last, size * count);
        }
    }
}

#define ROUND_CASE(dtype, by_quantum)                                                                        \
    case (dtype):                                                                                            \
        round_span((uint8_t *)out, span, rule, (dtype), (by_quantum));                                       \
        break

static GW_NOINLINE void round_by_quantum(void *out, const gw_span *span, const gw_round_rule *rule)
{
    switch (rule->dtype) {
        ROUND_CASE(GW_FP32, 1);
        ROUND_CASE(GW_BF16, 1);
        ROUND_CASE(GW_FP16, 1);
    default:
        break;
    }
}

void gw_round_neon(void *out, const gw_span *span, const gw_round_rule *rule)
{
    /* Bins are not made here: relative exponents do not matter. */
    if (gw_is_by_quantum(rule) && rule->dead_zone != 0) {
        round_by_quantum(out, span, rule);
        return;
    }
    switch (rule->dtype) {
        ROUND_CASE(GW_FP32, 0);
        ROUND_CASE(GW_BF16, 0);
        ROUND_CASE(GW_FP16, 0);
    default:
        break;
    }
}

/* The bins of 16 values (gcomp/bins.h), from what rounding left in bytes. */
GW_TEMPLATE void store_bins(uint16_t bins[16], const gw_rounded16 *v, uint32_t dtype, uint32_t by_quantum)
{
    uint8x16_t exponent = v->exponent;
    if (by_quantum) {
        const uint8_t special = gw_traits_of(dtype)->exponent_mask;
        const uint8x16_t is_ordinary = dtype == GW_FP16 ? vcltq_u8(exponent, vdupq_n_u8(special))
                                                        : vcltq_u8(vsubq_u8(exponent, vdupq_n_u8(1)),
                                                                   vdupq_n_u8((uint8_t)(special - 1)));
        exponent = vbslq_u8(is_ordinary, v->turned, exponent);
    }
    /* Values with exponent 0 have drop_steps 0 unless they are fp16. */
    uint16x8_t low = vshll_n_u8(vget_low_u8(exponent), 2), high = vshll_n_u8(vget_high_u8(exponent), 2);
    low = vaddw_u8(low, vget_low_u8(v->drop_steps));
    high = vaddw_u8(high, vget_high_u8(v->drop_steps));
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

/* Adds the bytes of the zero mask of `len` values; those after the end are +0. */
static inline void count_mask(uint32_t *mask_count, uint8x16_t is_zero, size_t len)
{
    uint8x16_t mask = vbicq_u8(gw_place_bits(), is_zero);
    mask = vpaddq_u8(mask, mask);
    mask = vpaddq_u8(mask, mask);
    mask = vpaddq_u8(mask, mask);
    const uint32_t both = vgetq_lane_u16(vreinterpretq_u16_u8(mask), 0);
    mask_count[both & 255]++;
    if (len > 8) {
        mask_count[both >> 8]++;
    }
}

GW_TEMPLATE void survey_span(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                             const gw_round_rule *rule, uint32_t dtype, uint32_t by_quantum)
{
    gw_random_words random;
    const gw_rounder r = gw_rounder_of(rule, &random);
    for (size_t start = 0; start < span->len; start += period) {
        const size_t stop = span->len - start < 64 ? span->len : start + 64;
        for (size_t i = start; i < stop; i += 16) {
            const size_t left = stop - i < 16 ? stop - i : 16;
            uint16_t bins[16];
            gw_rounded16 v;
            gw_round16_of_span(&v, span, i, left, &r, dtype, by_quantum);
            store_bins(bins, &v, dtype, by_quantum);
            for (size_t j = 0; j < left; j++) {
                count[bins[j]]++;
            }
            if (mask_count != NULL) {
                count_mask(mask_count, v.is_zero, left);
            }
        }
    }
}

#define SURVEY_CASE(dtype, by_quantum)                                                                       \
    case (dtype):                                                                                            \
        survey_span(count, mask_count, span, period, rule, (dtype), (by_quantum));                           \
        break

static GW_NOINLINE void survey_by_quantum(uint32_t *count, uint32_t *mask_count, const gw_span *span,
                                          size_t period, const gw_round_rule *rule)
{
    switch (rule->dtype) {
        SURVEY_CASE(GW_FP32, 1);
        SURVEY_CASE(GW_BF16, 1);
        SURVEY_CASE(GW_FP16, 1);
    default:
        break;
    }
}

void gw_survey_neon(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                    const gw_round_rule *rule)
{
    if (gw_is_by_quantum(rule)) {
        survey_by_quantum(count, mask_count, span, period, rule);
        return;
    }
    switch (rule->dtype) {
        SURVEY_CASE(GW_FP32, 0);
        SURVEY_CASE(GW_BF16, 0);
        SURVEY_CASE(GW_FP16, 0);
    default:
        break;
    }
}

#else
typedef int gw_round_neon_not_built; /* a translation unit must not be empty */
#endif
