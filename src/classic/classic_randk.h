/*
 * The positions of RANDK: keep_len of len, drawn from seed, element_first and round.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_RANDK_H
#define GW_CLASSIC_RANDK_H

#include "classic/classic_handle.h"

typedef struct gw_randk_stream {
    uint64_t seed;
    uint64_t element_first;
    uint32_t round;
} gw_randk_stream;

/* Words of the bitmap. */
static inline uint64_t gw_randk_words(uint64_t len)
{
    return len / 64 + (len % 64 != 0);
}

/* Sets keep_len bits of bitmap[0..gw_randk_words(len)), keep_len <= len <= 2^32. */
void gw_randk_draw(uint64_t *bitmap, uint64_t len, uint64_t keep_len, const gw_randk_stream *stream);

#endif
