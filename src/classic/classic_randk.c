/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_randk.h"

#include "core/philox.h"

/* The high 64 bits of draw * len, len <= 2^32. */
static uint64_t scale_draw(uint64_t draw, uint64_t len)
{
    return ((draw >> 32) * len + ((draw & 0xffffffffu) * len >> 32)) >> 32;
}

/* Sets a bit. Returns 1 if it was not set. */
static uint64_t set_bit(uint64_t *bitmap, uint64_t position)
{
    const uint64_t bit = (uint64_t)1 << position % 64, old = bitmap[position / 64];
    bitmap[position / 64] = old | bit;
    return (old & bit) == 0;
}

/* count <= len / 2: every draw finds a bit that is not set with a probability of at least 1/2, so that the
 * limit, below which 1.4 * count draws are expected, is reached by a seed made for it at most. Then the
 * lowest bits are set. */
static void draw_bits(uint64_t *bitmap, uint64_t len, uint64_t count, const gw_randk_stream *stream)
{
    const uint64_t limit = gw_min_u64(2 * count + 4096, (uint64_t)1 << 32);
    const uint32_t high = (uint32_t)(stream->element_first >> 32) & 0x1fffffffu;
    uint64_t left = count;
    for (uint64_t pair = 0; left != 0 && pair < limit; pair++) {
        uint32_t out[4];
        gw_philox4x32(out, stream->seed, (uint32_t)pair, high | GW_CLASSIC_DOMAIN_POSITIONS, stream->round,
                      (uint32_t)stream->element_first);
        left -= set_bit(bitmap, scale_draw(out[0] | (uint64_t)out[1] << 32, len));
        if (left != 0) {
            left -= set_bit(bitmap, scale_draw(out[2] | (uint64_t)out[3] << 32, len));
        }
    }
    for (uint64_t position = 0; left != 0; position++) {
        left -= set_bit(bitmap, position);
    }
}

void gw_randk_draw(uint64_t *bitmap, uint64_t len, uint64_t keep_len, const gw_randk_stream *stream)
{
    const uint64_t words = gw_randk_words(len);
    const int is_complement = keep_len > len / 2;
    for (uint64_t i = 0; i < words; i++) {
        bitmap[i] = 0;
    }
    draw_bits(bitmap, len, is_complement ? len - keep_len : keep_len, stream);
    for (uint64_t i = 0; is_complement && i < words; i++) {
        const uint64_t used = gw_min_u64(len - 64 * i, 64);
        bitmap[i] = ~bitmap[i] & (UINT64_MAX >> (64 - used));
    }
}
