/*
 * Split: from values to ranks in the codebook, digits in the planes, and escapes.
 *
 * Every digit is stored whether the value has it or not, and the position of its plane advances only if it
 * has: unpredictable branches cost more than the stores.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "gcomp/bins.h"
#include "scalar/digit_steps.h"
#include "scalar/round_block.h"

/* Tables of a split. */
typedef struct split_tables {
    gw_digit_step steps[GW_KEEP_MAX + 1]; /* by kept bits */
    uint64_t nested[GW_LABELS];           /* explicit, by label: the step of its kept bits */
    uint8_t keep_mask[GW_LABELS];         /* derived, by label: 0 for zero and escapes, else 255 */
} split_tables;

static void fill_tables(split_tables *tables, const gw_ranker *ranker, const gw_round_rule *rule)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    gw_digit_steps_fill(tables->steps, rule->dtype);
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        const int has_digits = label > GW_LABEL_ESCAPE && ranker->rank[label] != ranker->escape_rank;
        const uint32_t keep = t->mantissa_bits + 1u - (label & 3) * t->explicit_step;
        tables->nested[label] = tables->steps[has_digits ? keep : 0].nested;
        tables->keep_mask[label] = has_digits ? 255 : 0;
    }
}

static void append_escape(gw_digits *digits, uint32_t bits, uint32_t dtype)
{
    if (dtype == GW_FP32) {
        gw_store32(digits->escape + 4 * digits->escape_len, bits);
    } else {
        gw_store16(digits->escape + 2 * digits->escape_len, (uint16_t)bits);
    }
    digits->escape_len++;
}

GW_TEMPLATE void split_block(uint8_t *restrict ranks, gw_digits *restrict digits,
                             const gw_rounded *restrict block, size_t len,
                             const split_tables *restrict tables, const gw_ranker *restrict ranker,
                             uint32_t dtype, uint32_t derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned m = t->mantissa_bits;
    const unsigned w1 = t->digit_width[0], w2 = t->digit_width[1], w3 = t->digit_width[2],
                   w4 = t->digit_width[3];
    uint8_t *p[GW_PLANES_MAX];
    uint64_t nested = 0, rest = 0; /* how many digits each plane got: 16-bit counters */
    uint32_t escapes = 0;

    for (unsigned i = 0; i < GW_PLANES_MAX; i++) {
        p[i] = digits->plane[i] + digits->plane_len[i];
    }
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = block->bits[i];
        const uint8_t label = gw_label_of_bin(block->bins[i], dtype, derived, ranker->window_start);
        const uint8_t rank = ranker->rank[label];
        ranks[i] = rank;
        escapes += rank == ranker->escape_rank;
        /* Sign and mantissa without the exponent between them. */
        const uint32_t z = bits >> (8 * t->size - 1) << m | (bits & ((1u << m) - 1));
        p[0][gw_plane_at(nested, 0)] = (uint8_t)(z >> (m + 1 - w1));
        p[1][gw_plane_at(nested, 1)] = (uint8_t)(z >> (w3 + w4) & ((1u << w2) - 1));
        p[2][gw_plane_at(nested, 2)] = (uint8_t)(z >> w4 & ((1u << w3) - 1));
        p[3][gw_plane_at(nested, 3)] = (uint8_t)(z & ((1u << w4) - 1));
        if (derived) {
            const gw_digit_step *step = &tables->steps[block->keep[i] & tables->keep_mask[label]];
            p[4][gw_plane_at(rest, 0)] = (uint8_t)((z & step->rest_mask[0]) >> step->rest_shift[0]);
            p[5][gw_plane_at(rest, 1)] = (uint8_t)((z & step->rest_mask[1]) >> step->rest_shift[1]);
            p[6][gw_plane_at(rest, 2)] = (uint8_t)((z & step->rest_mask[2]) >> step->rest_shift[2]);
            nested += step->nested;
            rest += step->rest;
        } else {
            nested += tables->nested[label];
        }
    }
    size_t plane_len[GW_PLANES_MAX];
    gw_plane_lens(plane_len, nested, rest);
    for (unsigned i = 0; i < GW_PLANES_MAX; i++) {
        digits->plane_len[i] += plane_len[i];
    }
    for (size_t i = 0; escapes > 0; i++) {
        if (ranks[i] == ranker->escape_rank) {
            append_escape(digits, block->bits[i], dtype);
            escapes--;
        }
    }
}

#define SPLIT_CASE(dtype, derived)                                                                           \
    case (dtype)*2 + (derived):                                                                              \
        split_block(ranks + at, digits, &block, len, &tables, ranker, (dtype), (derived));                   \
        break

uint32_t gw_split_scalar(uint8_t *ranks, gw_digits *digits, const gw_span *span, const gw_round_rule *rule,
                         const gw_ranker *ranker)
{
    uint32_t any = 0;
    split_tables tables;
    gw_rounded block;
    fill_tables(&tables, ranker, rule);
    for (size_t at = 0; at < span->len; at += GW_BLOCK_LEN) {
        const size_t len = span->len - at < GW_BLOCK_LEN ? span->len - at : GW_BLOCK_LEN;
        any |= gw_round_block_scalar(&block, span, at, len, rule);
        switch (rule->dtype * 2 + rule->derived) {
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
    return any != 0;
}
