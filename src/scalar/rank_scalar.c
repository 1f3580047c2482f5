/*
 * Rank: from rounded values to ranks in the codebook, with the counts from which the size of the chunk follows.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bins.h"
#include "core/kernels.h"

static inline void rank_range(uint8_t *ranks, uint8_t *keep, uint32_t *count, const uint32_t *bits, size_t len,
                              const gw_ranker *ranker, uint32_t dtype, uint32_t derived)
{
    /* Four sub-tables, so that runs of one rank do not wait for their own increments. */
    uint32_t sub[4][256];
    GW_MEMSET(sub, 0, sizeof sub);
    for (size_t i = 0; i < len; i++) {
        uint8_t rank = ranker->rank[gw_bin_of(bits[i], keep[i], dtype, derived)];
        ranks[i] = rank;
        keep[i] = rank == ranker->escape_rank || rank == ranker->zero_rank ? 0 : keep[i];
        sub[i & 3][rank]++;
    }
    for (size_t r = 0; r < 256; r++) {
        count[r] = sub[0][r] + sub[1][r] + sub[2][r] + sub[3][r];
    }
}

void gw_rank_scalar(uint8_t *ranks, uint8_t *keep, uint32_t *count, const uint32_t *bits, size_t len,
                    const gw_ranker *ranker)
{
    switch (ranker->dtype * 2 + ranker->derived) {
    case GW_FP32 * 2:
        rank_range(ranks, keep, count, bits, len, ranker, GW_FP32, 0);
        break;
    case GW_FP32 * 2 + 1:
        rank_range(ranks, keep, count, bits, len, ranker, GW_FP32, 1);
        break;
    default:
        rank_range(ranks, keep, count, bits, len, ranker, ranker->dtype, ranker->derived);
        break;
    }
}
