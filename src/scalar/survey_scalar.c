/*
 * Survey: rounds values, all or a sample, and counts their bins. It needs no window, so it can run before the
 * codebook's base is known.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "scalar/round_block.h"

/* Adds the bytes of the zero mask of a block. */
static void count_mask(uint32_t *mask_count, const gw_rounded *block, size_t len)
{
    for (size_t at = 0; at < len; at += 8) {
        const size_t bits = len - at < 8 ? len - at : 8;
        uint32_t mask = 0;
        for (size_t i = 0; i < bits; i++) {
            mask |= (uint32_t)(block->bits[at + i] != 0) << i;
        }
        mask_count[mask]++;
    }
}

void gw_survey_scalar(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                      const gw_round_rule *rule)
{
    const size_t run = period == 64 ? GW_BLOCK_LEN : 64;
    const size_t step = period == 64 ? GW_BLOCK_LEN : period;
    gw_rounded block;
    for (size_t at = 0; at < span->len; at += step) {
        const size_t len = span->len - at < run ? span->len - at : run;
        gw_round_block_scalar(&block, span, at, len, rule);
        for (size_t i = 0; i < len; i++) {
            count[block.bins[i]]++;
        }
        if (mask_count != NULL) {
            count_mask(mask_count, &block, len);
        }
    }
}
