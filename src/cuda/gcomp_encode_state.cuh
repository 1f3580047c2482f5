/*
 * The shared memory of a block that encodes a chunk, and the rounding of a thread's values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_ENCODE_STATE_CUH
#define GW_CUDA_GCOMP_ENCODE_STATE_CUH

#include "cuda/gcomp_round.cuh"

enum {
    GW_ENCODE_WORDS_MAX = 1024, /* of 32 values, in a chunk of 2^15 */
    GW_ENCODE_TASKS_MAX = 32 * 12 + 32 + GW_TREE_NODES,
    GW_LEVEL_TASKS_MAX = 128,      /* of one level: 32 full ones and one more of each inner node */
    GW_ROUND_LEN = 32 * GW_THREADS /* values that are handled between two barriers */
};

/* In one load of 16 bytes. */
struct alignas(16) gw_encode_node {
    uint16_t len, at;            /* values, values of smaller ranks */
    uint16_t first_task, bitmap; /* while its level is handled; word of its bitmap */
    uint16_t run;                /* word of its run in the chunk, counted from the header's first */
    uint8_t left_at, right_at;   /* leaves before its children */
    uint8_t pivot, keeps; /* first rank of the right child; 1: the left one's are needed, 2: the right */
};

struct alignas(128) gw_encode_state {
    uint32_t entry[1024]; /* explicit fp32 and bf16: gw_entry_of() by 4 * exponent field + drop steps */
    uint32_t flags[32];   /* derived: gw_digit_flags() by kept bits */
    uint32_t factor[4];   /* of gw_round_fast() by drop steps */
    uint32_t string_start[33];
    uint32_t shared_size, has_strings; /* bytes; the chunk's digits are in their strings */
    uint4 warp_sum[GW_WARPS];
    uint32_t sums[GW_WARPS];
    gw_cuda_tree tree;
    alignas(16) uint8_t codebook[GW_CUDA_CODEBOOK_SIZE_MAX + 4]; /* of the group, serialised */
    uint32_t codebook_size, codebook_crc;
    gw_encode_node node[GW_TREE_NODES];
    uint16_t task[GW_ENCODE_TASKS_MAX]; /* 32 words of a node: node | word / 32 << 8 */
    uint16_t task_ones[2 * GW_LEVEL_TASKS_MAX];
    uint32_t task_count[2];
    uint16_t right_len[GW_TREE_LEAVES];        /* by inner index */
    uint32_t escape_mask[GW_ENCODE_WORDS_MAX]; /* bit i of word w: value 32 w + i is an escape */
    /* Masked: counts of the warps by class; of a node of the mask's tree, its bytes and the word of its run
     * in the chunk; digits that wait, by warp. */
    uint32_t mask_sum[GW_WARPS][GW_MASK_CLASSES + 2];
    uint16_t mask_len[GW_MASK_NODES], mask_run[GW_MASK_NODES];
    uint8_t mask_stage[GW_WARPS][64];
    uint32_t carry[8]; /* planes: the word that the next values go on with */
    uint32_t done[4];  /* digits of the values before: planes 1 | 2, 3 | 4, R4 | R2, R1 | escapes */

    /* Of the chunk. */
    uint32_t plane_len[8], plane_word[8]; /* digits; first word in the chunk */
    uint32_t escape_len, escape_word, header_words, run_words;
    uint32_t size; /* bytes without codebook and padding */
    uint32_t any;  /* a value is not +0 */
    uint64_t unit, offset, owner;
    uint64_t units;       /* of the whole call */
    gw_frame_front front; /* these two are here rather than in registers */
    gw_cuda_source source;
    uint32_t item, status, is_last, is_owner;

    /* Two rank buffers, which the exchange of values and the planes of 8192 values share; then the
     * bitmaps; to the end of the dynamic shared memory. */
    alignas(128) uint4 arrays[1];
};

enum { GW_ENCODE_FIXED = offsetof(gw_encode_state, arrays) };
static_assert(GW_ENCODE_FIXED <= GW_CUDA_ENCODE_FIXED_MAX, "the host reserves enough");
static_assert(GW_CUDA_ENCODE_RANK_BUFFER_SIZE(14) >= GW_CUDA_RANK_BUFFER_SIZE(14) &&
                  GW_CUDA_ENCODE_RANK_BUFFER_SIZE(15) >= GW_CUDA_RANK_BUFFER_SIZE(15),
              "the ranks of a level fit");

GW_DEVICE uint32_t gw_encode_rank_buffer_size(uint32_t chunk_log2)
{
    return GW_CUDA_ENCODE_RANK_BUFFER_SIZE(chunk_log2);
}

/* Place of ranks in a rank buffer: after all smaller ranks, with a gap for every leaf, so that nodes begin at
 * multiples of 32 and never meet. */
GW_DEVICE uint32_t gw_place_after(uint32_t ranks, uint32_t leaves)
{
    return ((ranks + 31) & ~31u) + 32 * leaves;
}

/* That of node n. */
GW_DEVICE uint32_t gw_encode_place(const gw_encode_state &s, uint32_t n)
{
    return gw_place_after(s.node[n].at, s.tree.node[n].first_leaf);
}

/* Rank and digits of a rounded value: nibbles as gw_digit_flags(), escapes in nibble 7. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE uint32_t gw_rank_of(const gw_encode_state &s, const gw_rounded &x, uint32_t ranks,
                              uint32_t escape_rank, uint32_t *rank)
{
    *rank = gw_shared_load8(ranks + x.label);
    const bool is_escape = *rank == escape_rank;
    const uint32_t digits = DERIVED ? s.flags[x.keep] : 0x1111u >> 4 * (x.label & 3);
    return is_escape ? 1u << 28 : x.label == 0 ? 0 : digits;
}

/*
 * Rounds the VALUES (16 or 32) values of a thread from `first` of the frame on, of which `valid` exist, and
 * calls f(quad, bits[4], ranks[4], flags[4]) for every four of them. All lanes of the warp call it; first -
 * VALUES * lane is the same for them.
 */
template <uint32_t DTYPE, bool DERIVED, uint32_t VALUES, typename F>
GW_DEVICE void gw_round_word(const gw_encode_state &s, const gw_cuda_rounder &r, uint32_t stage,
                             uint64_t first, uint32_t valid, F f)
{
    constexpr uint32_t BATCH = 64 / gw_type<DTYPE>::SIZE, QUADS = 4 / gw_type<DTYPE>::SIZE;
    const uint32_t ranks = gw_place_of(s.tree.rank_of_label), window_start = s.tree.window_start;
    const uint32_t escape_rank = s.tree.escape_rank;
    const int32_t drop_offset = r.from.drop_offset;
    const uint64_t warp_first = first - VALUES * gw_lane();
    const uint32_t mine = gw_exchange_mine(stage, gw_lane());
    uint32_t k[4] = {0, 0, 0, 0}; /* map bytes of 16 values: those of all would not fit registers */
    gw_cuda_random random = gw_random_begin(r, first);
    GW_UNROLL
    for (uint32_t batch = 0; batch < VALUES / BATCH; batch++) {
        gw_stage_batch<DTYPE>(stage, r.from.values, r.from.len, batch, [=](uint32_t lane) {
            return warp_first + VALUES * lane;
        });
        uint4 v = gw_staged(mine, 0), next = v; /* one quarter ahead: the whole would not fit registers */
        GW_UNROLL
        for (uint32_t j = 0; j < BATCH / 4; j++) {
            const uint32_t quad = batch * (BATCH / 4) + j;
            uint32_t words[4], bits[4], rank[4], flags[4];
            if (j % QUADS == 0) {
                v = next;
                if (j / QUADS < 3) {
                    next = gw_staged(mine, j / QUADS + 1);
                }
            }
            if (quad % 4 == 0 && r.rule.has_map && valid > 4 * quad) {
                gw_load_map<DTYPE>(k, r.from, drop_offset, first + 4 * quad, valid - 4 * quad);
            }
            gw_random_next(words, r, random);
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const gw_rounded x =
                    gw_round_value<DTYPE, DERIVED>(r, drop_offset, gw_quad_value<DTYPE>(v, j % QUADS, i),
                                                   k[quad % 4] >> 8 * i & 255, words[i], window_start);
                bits[i] = x.bits;
                flags[i] = gw_rank_of<DTYPE, DERIVED>(s, x, ranks, escape_rank, &rank[i]);
                if (4 * quad + i >= valid) {
                    bits[i] = 0;
                    flags[i] = 0;
                }
            }
            f(quad, bits, rank, flags);
        }
    }
}

/* Digits and escapes from sums of flags in bytes: planes 1 | 2 << 16, 3 | 4, R4 | R2, R1 | escapes. */
GW_DEVICE void gw_counts_of_flags(uint32_t count[4], uint32_t even, uint32_t odd)
{
    count[0] = (even & 255) | (odd & 255) << 16;
    count[1] = (even >> 8 & 255) | (odd & 0xff00) << 8;
    count[2] = (even >> 16 & 255) | (odd & 0xff0000);
    count[3] = even >> 24 | odd >> 24 << 16;
}

#endif
