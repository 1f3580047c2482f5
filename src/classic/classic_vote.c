/*
 * Sums of signs as numbers, and majority votes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_sign.h"
#include "core/philox.h"

void gw_sign_sum_add(void *lanes, const gw_classic_payload *payload)
{
    payload->kernels->classic.sign_votes((int32_t *)lanes, payload->data, (size_t)payload->info->len);
}

void gw_sign_sum_decode(const void *lanes, const gw_classic_payload *first, const gw_classic_sink *sink)
{
    const int32_t *sums = (const int32_t *)lanes;
    const size_t len = (size_t)first->info->len;
    float *x = (float *)(void *)first->workspace;

    for (size_t i = 0; i < len; i += GW_CLASSIC_BLOCK_LEN) {
        const size_t block_len = gw_min_size(len - i, GW_CLASSIC_BLOCK_LEN);
        for (size_t j = 0; j < block_len; j++) {
            x[j] = (float)sums[i + j];
        }
        gw_classic_sink_put(sink, first->kernels, i, x, block_len);
    }
}

/* Bits 64 * index .. of the stream of ties: docs/numerics-classic.md, "Random bits". */
static uint64_t tie_word(const gw_classic_frame_info *info, uint64_t index)
{
    const uint64_t counter = index / 2;
    uint32_t out[4];

    gw_philox4x32(out, info->seed, (uint32_t)counter, (uint32_t)(counter >> 32) | GW_CLASSIC_DOMAIN_TIES,
                  info->round, 0);
    return index % 2 == 0 ? out[0] | (uint64_t)out[1] << 32 : out[2] | (uint64_t)out[3] << 32;
}

/* Bits of elements [element, element + len), rounded up to 64. */
static void make_ties(uint8_t *ties, const gw_classic_frame_info *info, uint64_t element, size_t len)
{
    const unsigned shift = (unsigned)(element % 64);
    uint64_t index = element / 64, word = tie_word(info, index);

    for (size_t i = 0; i < len; i += 64) {
        const uint64_t next = tie_word(info, ++index);
        gw_store64(ties + i / 8, shift == 0 ? word : word >> shift | next << (64 - shift));
        word = next;
    }
}

void gw_sign_sum_vote(const void *lanes, const gw_classic_payload *first, uint8_t *payload)
{
    const int32_t *sums = (const int32_t *)lanes;
    const gw_classic_frame_info *info = first->info;
    const size_t len = (size_t)info->len;
    uint8_t ties[GW_CLASSIC_BLOCK_LEN / 8];

    for (size_t i = 0; i < len; i += GW_CLASSIC_BLOCK_LEN) {
        const size_t block_len = gw_min_size(len - i, GW_CLASSIC_BLOCK_LEN);
        make_ties(ties, info, info->element_first + i, block_len);
        first->kernels->classic.sign_majority(payload + i / 8, sums + i, ties, block_len);
    }
}
