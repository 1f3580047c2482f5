/*
 * Parts of a sign payload: scales, then one bit a value.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SIGN_H
#define GW_CLASSIC_SIGN_H

#include "classic/classic_handle.h"

/* Scales of a payload of len > 0 elements. */
static inline uint64_t gw_sign_scale_count(gw_classic_scheme scheme, uint32_t block_len, uint64_t len)
{
    if (scheme == GW_CLASSIC_ONEBIT) {
        return 2 * gw_classic_blocks(block_len, len);
    }
    return scheme == GW_CLASSIC_EFSIGNSGD ? 1 : 0;
}

/* Elements of a column; schemes without columns have one. */
static inline uint64_t gw_sign_column_len(uint32_t block_len, uint64_t len)
{
    return block_len == 0 ? len : block_len;
}

static inline uint64_t gw_sign_bits_size(uint64_t len)
{
    return (len + 7) / 8;
}

/* Majority and sum of votes (classic_vote.c). */
void gw_sign_sum_add(void *lanes, const gw_classic_payload *payload);
void gw_sign_sum_decode(const void *lanes, const gw_classic_payload *first, const gw_classic_sink *sink);
void gw_sign_sum_vote(const void *lanes, const gw_classic_payload *first, uint8_t *payload);

#endif
