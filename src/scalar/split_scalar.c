/*
 * Split: from rounded values to ranks in the codebook and digits in the planes, with the counts from which the size of the
 * chunk follows.
 *
 * Every digit is stored whether the value has it or not, and the position of its plane moves only if it has: branches on
 * data that changes from value to value cost more than the stores.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/digit_steps.h"

GW_TEMPLATE void split_range(uint8_t *restrict ranks, uint32_t *restrict count, uint8_t *const plane[GW_PLANES_MAX],
                               size_t plane_len[GW_PLANES_MAX], const uint32_t *restrict bits,
                               const uint16_t *restrict bins, const uint8_t *restrict keep, size_t len,
                               const gw_ranker *restrict ranker, uint32_t dtype, uint32_t derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned m = t->mantissa_bits;
    const unsigned w1 = t->digit_width[0], w2 = t->digit_width[1], w3 = t->digit_width[2], w4 = t->digit_width[3];
    /* Local copies: a store to a plane could change the caller's array of pointers, for all the compiler knows. */
    uint8_t *const p1 = plane[0], *const p2 = plane[1], *const p3 = plane[2], *const p4 = plane[3];
    uint8_t *const r4 = plane[4], *const r2 = plane[5], *const r1 = plane[6];
    gw_digit_step steps[GW_KEEP_MAX + 1];
    uint64_t nested_of_rank[256];
    uint32_t sub[4][256]; /* four sub-tables: runs of one rank do not wait for their own increments */
    uint64_t nested = 0, rest = 0;

    gw_digit_steps_fill(steps, dtype);
    if (!derived) {
        for (size_t r = 0; r < 256; r++) {
            nested_of_rank[r] = steps[ranker->keep[r]].nested;
        }
    }
    GW_MEMSET(sub, 0, sizeof sub);
    for (size_t start = 0; start < len; start += 4) {
        const size_t stop = len - start < 4 ? len - start : 4;
        for (size_t j = 0; j < stop; j++) {
            const size_t i = start + j;
            const uint8_t rank = ranker->rank[bins[i]];
            ranks[i] = rank;
            sub[j][rank]++;
            /* Sign and mantissa next to each other; the exponent between them is cut out. */
            const uint32_t z = bits[i] >> (8 * t->size - 1) << m | (bits[i] & ((1u << m) - 1));
            p1[gw_plane_at(nested, 0)] = (uint8_t)(z >> (m + 1 - w1));
            p2[gw_plane_at(nested, 1)] = (uint8_t)(z >> (w3 + w4) & ((1u << w2) - 1));
            p3[gw_plane_at(nested, 2)] = (uint8_t)(z >> w4 & ((1u << w3) - 1));
            p4[gw_plane_at(nested, 3)] = (uint8_t)(z & ((1u << w4) - 1));
            if (derived) {
                const gw_digit_step *step = &steps[keep[i] & ranker->keep[rank]];
                r4[gw_plane_at(rest, 0)] = (uint8_t)((z & step->rest_mask[0]) >> step->rest_shift[0]);
                r2[gw_plane_at(rest, 1)] = (uint8_t)((z & step->rest_mask[1]) >> step->rest_shift[1]);
                r1[gw_plane_at(rest, 2)] = (uint8_t)((z & step->rest_mask[2]) >> step->rest_shift[2]);
                nested += step->nested;
                rest += step->rest;
            } else {
                nested += nested_of_rank[rank];
            }
        }
    }
    gw_plane_lens(plane_len, nested, rest);
    for (size_t r = 0; r < 256; r++) {
        count[r] = sub[0][r] + sub[1][r] + sub[2][r] + sub[3][r];
    }
}

#define SPLIT_CASE(dtype, derived)                                                                                     \
    case (dtype) * 2 + (derived):                                                                                      \
        split_range(ranks, count, plane, plane_len, bits, bins, keep, len, ranker, (dtype), (derived));                \
        break

void gw_split_scalar(uint8_t *ranks, uint32_t *count, uint8_t *const plane[GW_PLANES_MAX],
                     size_t plane_len[GW_PLANES_MAX], const uint32_t *bits, const uint16_t *bins, const uint8_t *keep,
                     size_t len, const gw_ranker *ranker)
{
    switch (ranker->dtype * 2 + ranker->derived) {
        SPLIT_CASE(GW_FP32, 0);
        SPLIT_CASE(GW_FP32, 1);
        SPLIT_CASE(GW_BF16, 0);
        SPLIT_CASE(GW_BF16, 1);
        SPLIT_CASE(GW_FP16, 0);
        SPLIT_CASE(GW_FP16, 1);
    default:
        break;
    }
}
