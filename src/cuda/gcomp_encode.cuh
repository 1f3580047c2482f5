/*
 * Encode of one chunk by a block of 256 threads: docs/format.md sections 3, 5 and 6.
 *
 *   1  A thread rounds 32 consecutive values at a time and looks up their ranks; digits and escapes are only
 *      counted.
 *   2  Ranks move down the tree level by level, in two byte arrays that alternate. A thread compares 32 ranks
 *      of a node with its pivot, which makes a word of the node's bitmap; sums of set bits say where its
 *      ranks go. A node lies in its array behind the values of smaller ranks, so what a leaf holds stays
 *      there.
 *   3  Now all sizes are known, and the place of the chunk follows from those of the chunks before (the
 *      caller's business).
 *   4  Bitmaps and packed leaves are written out; then the values are rounded once more, and their digits
 *      are put together in shared memory, 4096 values of fp32 or 8192 of 16 bits at a time. Rounding twice
 *      costs less than keeping 4 bytes a value would: there would be room for fewer blocks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_ENCODE_CUH
#define GW_CUDA_GCOMP_ENCODE_CUH

#include "cuda/gcomp_round.cuh"

enum {
    GW_ENCODE_WORDS_MAX = 1024, /* of 32 values, in a chunk of 2^15 */
    GW_ENCODE_TASKS_MAX = 32 * 11 + 32 + GW_TREE_NODES,
    GW_ROUND_LEN = 32 * GW_THREADS /* values that are handled between two barriers */
};

struct alignas(16) gw_encode_node {
    uint32_t len, at;            /* values, values of smaller ranks */
    uint16_t first_task, bitmap; /* while its level is handled; word of its bitmap */
    uint16_t run, unused;        /* word of its run in the chunk, counted from the header's first */
};

struct alignas(128) gw_encode_state {
    uint32_t flags[32]; /* derived: gw_digit_flags() by kept bits */
    uint4 warp_sum[GW_WARPS];
    uint32_t sums[GW_WARPS];
    gw_cuda_tree tree;
    alignas(16) uint8_t book[GW_CUDA_BOOK_SIZE_MAX + 12]; /* of the group, serialised */
    uint32_t book_size, book_crc;
    gw_encode_node node[GW_TREE_NODES];
    uint16_t task[GW_ENCODE_TASKS_MAX]; /* 32 words of a node: node | word / 32 << 8 */
    uint16_t task_ones[GW_ENCODE_TASKS_MAX + 8];
    uint16_t right_len[GW_TREE_LEAVES];        /* by inner index */
    uint32_t escape_mask[GW_ENCODE_WORDS_MAX]; /* bit i of word w: value 32 w + i is an escape */
    uint32_t carry[8];                         /* planes: the word that the next values go on with */
    uint32_t done[4]; /* digits of the values before: planes 1 | 2, 3 | 4, R4 | R2, R1 | escapes */

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

    /* Two level arrays, which the exchange of values and the planes of 8192 values share; then the
     * bitmaps; to the end of the dynamic shared memory. */
    alignas(128) uint4 arrays[1];
};

enum { GW_ENCODE_FIXED = offsetof(gw_encode_state, arrays) };
static_assert(GW_ENCODE_FIXED <= GW_CUDA_ENCODE_FIXED_MAX, "the host reserves enough");
static_assert(GW_CUDA_ENCODE_LEVEL_SIZE(14) >= GW_CUDA_LEVEL_SIZE(14) &&
                  GW_CUDA_ENCODE_LEVEL_SIZE(15) >= GW_CUDA_LEVEL_SIZE(15),
              "the ranks of a level fit");

GW_DEVICE uint32_t gw_encode_level_size(uint32_t chunk_log2)
{
    return GW_CUDA_ENCODE_LEVEL_SIZE(chunk_log2);
}

/* Place of the ranks of node n in its level array: behind all smaller ranks, a gap for every leaf, so that
 * nodes begin at multiples of 32 and never meet. */
GW_DEVICE uint32_t gw_encode_place(const gw_encode_state &s, uint32_t n)
{
    return ((s.node[n].at + 31) & ~31u) + 32 * s.tree.node[n].first_leaf;
}

/* ---- one thread's values ------------------------------------------------------------------------------- */

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
    const uint32_t ranks = gw_place_of(s.tree.rank_of_label), base = s.tree.base;
    const uint32_t escape_rank = s.tree.escape_rank;
    const int32_t drop_base = r.from.drop_base;
    const uint64_t warp_first = first - VALUES * gw_lane();
    const uint32_t mine = gw_exchange_mine(stage, gw_lane());
    uint32_t k[4] = {0, 0, 0, 0}; /* map bytes of 16 values: those of all would not fit registers */
    gw_cuda_random random = gw_random_begin(r, first);
    GW_UNROLL
    for (uint32_t batch = 0; batch < VALUES / BATCH; batch++) {
        gw_stage_batch<DTYPE>(stage, r.from.values, r.from.len, batch,
                              [=](uint32_t lane) { return warp_first + VALUES * lane; });
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
                gw_load_levels(k, r.from.levels + first + 4 * quad, valid - 4 * quad);
            }
            gw_random_next(words, r, random);
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const gw_rounded x =
                    gw_round_value<DTYPE, DERIVED>(r, drop_base, gw_quad_value<DTYPE>(v, j % QUADS, i),
                                                   k[quad % 4] >> 8 * i & 255, words[i], base);
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

/* ---- 1: ranks ------------------------------------------------------------------------------------------ */

/* Ranks of the chunk's values into the first level array; counts into s. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_rank_chunk(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t chunk_len,
                             uint32_t level_size)
{
    const uint32_t tid = threadIdx.x;
    const uint32_t level = gw_place_of(s.arrays), stage = level + level_size + 2048 * (tid >> 5);
    uint32_t even = 0, odd = 0, any = 0;
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += GW_ROUND_LEN) {
        const uint32_t word = at / 32 + tid;
        const uint32_t valid =
            32 * word < chunk_len ? (chunk_len - 32 * word < 32 ? chunk_len - 32 * word : 32) : 0;
        uint32_t x[8], sum = 0, escapes = 0;
        gw_round_word<DTYPE, DERIVED, 32>(
            s, r, stage, first + 32 * (uint64_t)word, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *rank, const uint32_t *flags) {
                x[quad] = rank[0] | rank[1] << 8 | rank[2] << 16 | rank[3] << 24;
                any |= bits[0] | bits[1] | bits[2] | bits[3];
                escapes |= (flags[0] >> 28 | flags[1] >> 28 << 1 | flags[2] >> 28 << 2 | flags[3] >> 28 << 3)
                           << 4 * quad;
                sum += flags[0] + flags[1] + flags[2] + flags[3];
                if ((quad & 1) != 0) {
                    even += sum & 0x0f0f0f0f;
                    odd += sum >> 4 & 0x0f0f0f0f;
                    sum = 0;
                }
            });
        if (valid != 0) {
            gw_shared_store128(level + 32 * word, make_uint4(x[0], x[1], x[2], x[3]));
            gw_shared_store128(level + 32 * word + 16, make_uint4(x[4], x[5], x[6], x[7]));
            s.escape_mask[word] = escapes;
        }
    }
    /* At most 128 of a kind a thread, so 2^15 a block. */
    const uint32_t counts[4] = {(even & 255) | (odd & 255) << 16, (even >> 8 & 255) | (odd & 0xff00) << 8,
                                (even >> 16 & 255) | (odd & 0xff0000), even >> 24 | odd >> 24 << 16};
    uint32_t all[4];
    GW_UNROLL
    for (int i = 0; i < 4; i++) {
        all[i] = __reduce_add_sync(GW_FULL_MASK, counts[i]);
    }
    any = __reduce_or_sync(GW_FULL_MASK, any);
    __syncthreads();
    if (gw_lane() == 0) {
        s.warp_sum[tid >> 5] = make_uint4(all[0], all[1], all[2], all[3]);
        s.sums[tid >> 5] = any;
    }
    __syncthreads();
    if (tid == 0) {
        uint4 sum = make_uint4(0, 0, 0, 0);
        any = 0;
        for (uint32_t w = 0; w < GW_WARPS; w++) {
            sum.x += s.warp_sum[w].x;
            sum.y += s.warp_sum[w].y;
            sum.z += s.warp_sum[w].z;
            sum.w += s.warp_sum[w].w;
            any |= s.sums[w];
        }
        s.any = any;
        s.plane_len[0] = sum.x & 0xffff;
        s.plane_len[1] = sum.x >> 16;
        s.plane_len[2] = sum.y & 0xffff;
        s.plane_len[3] = sum.y >> 16;
        s.plane_len[4] = sum.z & 0xffff;
        s.plane_len[5] = sum.z >> 16;
        s.plane_len[6] = sum.w & 0xffff;
        s.escape_len = sum.w >> 16;
    }
    __syncthreads();
}

/* ---- 2: tree ------------------------------------------------------------------------------------------- */

/* Bit j: byte j of x is at least that of pivot, for j = 0..3; pivot has four equal bytes. small: all bytes
 * are below 128. */
GW_DEVICE uint32_t gw_compare4(uint32_t x, uint32_t pivot, bool small)
{
    const uint32_t high = (small ? x + (0x80808080u - pivot) : __vcmpgeu4(x, pivot)) & 0x80808080u;
    return (high >> 7) * 0x10204080u >> 28; /* no two of the shifted copies meet */
}

/* Partitions the ranks along the tree: lengths of all nodes, bitmaps at `bitmaps`. Begins and ends with a
 * barrier. */
GW_DEVICE void gw_partition_chunk(gw_encode_state &s, uint32_t chunk_len, uint32_t level_size,
                                  uint32_t bitmaps)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    const uint32_t depth_max = tree.depth_max;
    const bool small = tree.label_count <= 128;
    uint32_t bitmap = 0; /* words of it so far */
    if (t == 0) {
        s.node[0].len = chunk_len;
        s.node[0].at = 0;
    }
    GW_NO_UNROLL
    for (uint32_t depth = 0; depth < depth_max; depth++) {
        const uint32_t from = gw_place_of(s.arrays) + (depth & 1) * level_size;
        const uint32_t to = gw_place_of(s.arrays) + (1 - (depth & 1)) * level_size;
        const uint32_t first = tree.level_start[depth_max - depth];
        const uint32_t count = tree.level_start[depth_max - depth + 1] - first;
        __syncthreads();

        /* Tasks: thread t has node t of the level. */
        const uint32_t n = t < count ? tree.by_depth[first + t] : 0;
        const bool inner = t < count && tree.node[n].right != 0;
        const uint32_t words = inner ? (s.node[n].len + 31) >> 5 : 0, tasks = (words + 31) >> 5;
        uint32_t all;
        const uint32_t before = gw_block_scan(words | tasks << 16, s.sums, &all);
        if (inner) {
            s.node[n].first_task = (uint16_t)(before >> 16);
            s.node[n].bitmap = (uint16_t)(bitmap + (before & 0xffff));
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                s.task[(before >> 16) + k] = (uint16_t)(n | k << 8);
            }
        }
        bitmap += all & 0xffff;
        const uint32_t task_count = all >> 16;
        __syncthreads();

        GW_NO_UNROLL
        for (uint32_t task = warp; task < task_count; task += GW_WARPS) {
            const uint32_t what = s.task[task], of = what & 255, word = (what >> 8) * 32 + lane;
            const uint32_t len = s.node[of].len;
            uint32_t bits = 0;
            if (32 * word < len) {
                const uint32_t place = from + gw_encode_place(s, of) + 32 * word;
                const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
                const uint32_t pivot = tree.node[tree.node[of].right].first_rank * 0x01010101u;
                bits = gw_compare4(a.x, pivot, small) | gw_compare4(a.y, pivot, small) << 4 |
                       gw_compare4(a.z, pivot, small) << 8 | gw_compare4(a.w, pivot, small) << 12 |
                       gw_compare4(b.x, pivot, small) << 16 | gw_compare4(b.y, pivot, small) << 20 |
                       gw_compare4(b.z, pivot, small) << 24 | gw_compare4(b.w, pivot, small) << 28;
                const uint32_t valid = len - 32 * word;
                bits &= valid < 32 ? (1u << valid) - 1 : ~0u;
                gw_shared_store32(bitmaps + 4 * (s.node[of].bitmap + word), bits);
            }
            const uint32_t ones = __reduce_add_sync(GW_FULL_MASK, __popc(bits));
            if (lane == 0) {
                s.task_ones[task] = (uint16_t)ones;
            }
        }
        __syncthreads();
        /* At most 32 tasks a level and one more a node: fewer than 256. */
        const uint32_t mine = t < task_count ? s.task_ones[t] : 0;
        const uint32_t ones_before = gw_block_scan(mine, s.sums, &all);
        if (t <= task_count) {
            s.task_ones[t] = (uint16_t)ones_before;
        }
        __syncthreads();
        if (inner) {
            const uint32_t first_task = s.node[n].first_task;
            const uint32_t right_len = (s.task_ones[first_task + tasks] - s.task_ones[first_task]) & 0xffff;
            const uint32_t right = tree.node[n].right;
            s.right_len[tree.node[n].inner_index] = (uint16_t)right_len;
            s.node[n + 1].len = s.node[n].len - right_len;
            s.node[n + 1].at = s.node[n].at;
            s.node[right].len = right_len;
            s.node[right].at = s.node[n].at + s.node[n].len - right_len;
        }
        __syncthreads();

        GW_NO_UNROLL
        for (uint32_t task = warp; task < task_count; task += GW_WARPS) {
            const uint32_t what = s.task[task], of = what & 255, word = (what >> 8) * 32 + lane;
            const uint32_t len = s.node[of].len, right = tree.node[of].right;
            const bool active = 32 * word < len;
            const uint32_t bits = active ? gw_shared_load32(bitmaps + 4 * (s.node[of].bitmap + word)) : 0;
            const uint32_t ones = __popc(bits);
            const uint32_t before_word = ((s.task_ones[task] - s.task_ones[s.node[of].first_task]) & 0xffff) +
                                         gw_warp_scan(ones) - ones;
            if (active) {
                const uint32_t place = from + gw_encode_place(s, of) + 32 * word;
                const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
                const uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
                /* Of a leaf of a single label nobody needs the ranks. */
                const gw_tree_node &left_node = tree.node[of + 1], &right_node = tree.node[right];
                const bool keeps_left = left_node.right != 0 || left_node.width != 0;
                const bool keeps_right = right_node.right != 0 || right_node.width != 0;
                const uint32_t valid = len - 32 * word;
                uint32_t l = to + gw_encode_place(s, of + 1) + 32 * word - before_word;
                uint32_t r = to + gw_encode_place(s, right) + before_word;
                GW_UNROLL
                for (uint32_t i = 0; i < 32; i++) {
                    const bool is_right = (bits >> i & 1) != 0;
                    if ((is_right ? keeps_right : keeps_left) && i < valid) {
                        gw_shared_store8(is_right ? r : l, x[i / 4] >> 8 * (i % 4) & 255);
                    }
                    r += is_right ? 1 : 0;
                    l += is_right ? 0 : 1;
                }
            }
        }
    }
    __syncthreads();
}

/* ---- 3: sizes ------------------------------------------------------------------------------------------ */

/* Places of all parts and the size of the chunk, into s. Begins and ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_plan_chunk(gw_encode_state &s)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t t = threadIdx.x;
    const uint32_t planes = DERIVED ? 7 : 4;
    const uint32_t header_words = (planes + 1 + tree.inner_count + 1) / 2;
    uint32_t run_bits = 0;
    if (t < tree.node_count) {
        run_bits = s.node[t].len * (tree.node[t].right != 0 ? 1 : tree.node[t].width);
    }
    uint32_t run_words;
    const uint32_t before = gw_block_scan((run_bits + 31) >> 5, s.sums, &run_words);
    if (t < tree.node_count) {
        s.node[t].run = (uint16_t)(header_words + before);
    }
    if (t == 0) {
        uint32_t at = header_words + run_words;
        GW_UNROLL
        for (uint32_t p = 0; p < planes; p++) {
            s.plane_word[p] = at;
            at += (gw_plane_width<DTYPE>(p) * s.plane_len[p] + 31) >> 5;
        }
        s.escape_word = at;
        at += (8 * gw_type<DTYPE>::SIZE * s.escape_len + 31) >> 5;
        s.header_words = header_words;
        s.run_words = run_words;
        s.size = 4 * at;
    }
    __syncthreads();
}

/* ---- 4: bytes ------------------------------------------------------------------------------------------ */

/* 32 numbers of W bits, from bytes (the upper bits of each are zero), to W words. */
template <int W> GW_DEVICE void gw_pack32(uint32_t *dst, const uint32_t x[8], uint32_t words)
{
    uint32_t out[W + 1];
    GW_UNROLL
    for (int j = 0; j <= W; j++) {
        out[j] = 0;
    }
    GW_UNROLL
    for (int j = 0; j < 8; j++) {
        uint32_t four = (x[j] & 0x00ff00ffu) | (x[j] >> (8 - W) & 0x00ff00ffu << W);
        four = (four & 0xffffu) | (four >> (16 - 2 * W) & 0xffffu << 2 * W);
        const int bit = 4 * W * j;
        out[bit / 32] |= four << bit % 32;
        if (bit % 32 + 4 * W > 32) {
            out[bit / 32 + 1] |= four >> (32 - bit % 32);
        }
    }
    GW_UNROLL
    for (int j = 0; j < W; j++) {
        if ((uint32_t)j < words) {
            dst[j] = out[j];
        }
    }
}

/* Header and runs to dst. */
template <bool DERIVED>
GW_DEVICE void gw_write_runs(gw_encode_state &s, uint32_t *dst, uint32_t level_size, uint32_t bitmaps)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    const uint32_t planes = DERIVED ? 7 : 4;
    if (t < s.header_words) {
        uint32_t half[2];
        GW_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * t + h;
            half[h] = i < planes                          ? s.plane_len[i]
                      : i == planes                       ? s.escape_len
                      : i < planes + 1 + tree.inner_count ? s.right_len[i - planes - 1]
                                                          : 0;
        }
        dst[t] = half[0] | half[1] << 16;
    }

    const bool has_run = t < tree.node_count && (tree.node[t].right != 0 || tree.node[t].width != 0);
    const uint32_t tasks = has_run ? (s.node[t].len + 1023) >> 10 : 0;
    uint32_t task_count;
    const uint32_t before = gw_block_scan(tasks, s.sums, &task_count);
    GW_NO_UNROLL
    for (uint32_t k = 0; k < tasks; k++) {
        s.task[before + k] = (uint16_t)(t | k << 8);
    }
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t task = warp; task < task_count; task += GW_WARPS) {
        const uint32_t what = s.task[task], n = what & 255, word = (what >> 8) * 32 + lane;
        const gw_tree_node node = tree.node[n];
        const uint32_t len = s.node[n].len;
        if (32 * word >= len) {
            continue;
        }
        if (node.right != 0) {
            dst[s.node[n].run + word] = gw_shared_load32(bitmaps + 4 * (s.node[n].bitmap + word));
            continue;
        }
        const uint32_t place =
            gw_place_of(s.arrays) + (node.depth & 1) * level_size + gw_encode_place(s, n) + 32 * word;
        const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
        uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        const uint32_t valid = len - 32 * word, base = node.first_rank * 0x01010101u;
        GW_UNROLL
        for (uint32_t j = 0; j < 8; j++) {
            /* Ranks are not below the first of their leaf, so no byte borrows; behind the end is anything. */
            const uint32_t left = valid > 4 * j ? valid - 4 * j : 0;
            const uint32_t keep = left >= 4 ? ~0u : (1u << 8 * left) - 1;
            x[j] = (x[j] & keep) - (base & keep);
        }
        uint32_t *to = dst + s.node[n].run + node.width * word;
        const uint32_t words = ((valid < 32 ? valid : 32) * node.width + 31) >> 5;
        switch (node.width) {
        case 1:
            gw_pack32<1>(to, x, words);
            break;
        case 2:
            gw_pack32<2>(to, x, words);
            break;
        case 3:
            gw_pack32<3>(to, x, words);
            break;
        case 4:
            gw_pack32<4>(to, x, words);
            break;
        case 5:
            gw_pack32<5>(to, x, words);
            break;
        case 6:
            gw_pack32<6>(to, x, words);
            break;
        default:
            gw_pack32<7>(to, x, words);
            break;
        }
    }
    __syncthreads();
}

/* Word i (0 or 1) of the first or second half of v. */
GW_DEVICE uint32_t gw_pick(const uint4 &v, bool second, uint32_t i)
{
    return i == 0 ? (second ? v.z : v.x) : second ? v.w : v.y;
}

/* ORs n <= 24 bits into the bit string at `place`, from bit `at` on. */
GW_DEVICE void gw_or_bits(uint32_t place, uint32_t at, uint32_t digits, uint32_t n)
{
    if (n != 0) {
        const uint32_t word = place + 4 * (at >> 5), shift = at & 31;
        gw_shared_or32(word, digits << shift);
        if (shift + n > 32) {
            gw_shared_or32(word + 4, digits >> (32 - shift));
        }
    }
}

/*
 * Planes of the chunk to dst: values are rounded again, 4096 or 8192 at a time. Digits are ORed together in
 * shared memory, which the level arrays have left; the last word of a plane waits for the next of them.
 * Begins and ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_planes(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                               uint32_t chunk_len, uint32_t *dst)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t PLANES = DERIVED ? 7 : 4, M = type::M, W1 = type::W1, W2 = type::W2;
    constexpr uint32_t VALUES = type::SIZE == 4 ? 16 : 32; /* of a thread: they wait where they were staged */
    constexpr uint32_t ROUND = VALUES * GW_THREADS;
    constexpr uint32_t PLANE_WORDS = ROUND * W2 / 32 + 4; /* of one of the first four */
    constexpr uint32_t REST4 = 4 * PLANE_WORDS, REST2 = REST4 + ROUND * 4 / 32 + 4,
                       REST1 = REST2 + ROUND * 2 / 32 + 4;
    constexpr uint32_t STAGE_WORDS = DERIVED ? REST1 + ROUND / 32 + 4 : REST4;
    static_assert(4 * STAGE_WORDS + 128 + 2048 * GW_WARPS <= 2 * GW_CUDA_ENCODE_LEVEL_SIZE(12),
                  "planes and exchange fit");
    /* A value while it waits: field, from bit TAG on the number of its digits in planes 1 to 4 (at most
     * 4), above that the bits that remain (16-bit types: fewer than 4). The two of a word are 16 bits each
     * where that fits. */
    constexpr bool PACKED = type::SIZE == 2;
    constexpr uint32_t TAG = M + 1;
    static_assert(TAG + 3 + (PACKED ? 2 : 3) <= (PACKED ? 16 : 32), "a waiting value fits");
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t planes = gw_place_of(s.arrays);
    const uint32_t exchange = planes + ((4 * STAGE_WORDS + 127) & ~127u) + 2048 * warp;
    const uint32_t waiting = gw_exchange_mine(exchange, lane);
    __syncthreads();
    if (tid < 8) {
        s.carry[tid] = 0;
        s.done[tid & 3] = 0;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += ROUND) {
        GW_NO_UNROLL
        for (uint32_t i = tid; i < STAGE_WORDS; i += GW_THREADS) {
            gw_shared_store32(planes + 4 * i, 0);
        }
        __syncthreads();
        const uint32_t mine_at = at + VALUES * tid; /* the first value of this thread */
        const uint32_t left = mine_at < chunk_len ? chunk_len - mine_at : 0;
        const uint32_t valid = left < VALUES ? left : VALUES;

        /* Counts first, to know where digits go. A thread's rounded values wait in place of the values that
         * it has read. */
        uint32_t even = 0, odd = 0, sum = 0, half[2] = {0, 0};
        gw_round_word<DTYPE, DERIVED, VALUES>(
            s, r, exchange, first + mine_at, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *, const uint32_t *flags) {
                uint32_t all[4];
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    /* Sign and mantissa; above them the number of digits in planes 1 to 4, and the bits
                     * that remain. */
                    const uint32_t field = bits[i] >> (8 * type::SIZE - 1) << M | (bits[i] & ((1u << M) - 1));
                    const uint32_t whole = __popc(flags[i] & 0x1111);
                    const uint32_t rest = (flags[i] >> 14 & 4) | (flags[i] >> 19 & 2) | (flags[i] >> 24 & 1);
                    all[i] = field | whole << TAG | rest << (TAG + 3);
                }
                if (!PACKED) {
                    gw_shared_store128(waiting ^ 16 * quad, make_uint4(all[0], all[1], all[2], all[3]));
                } else if ((quad & 1) == 0) {
                    half[0] = all[0] | all[1] << 16;
                    half[1] = all[2] | all[3] << 16;
                } else {
                    gw_shared_store128(
                        waiting ^ 16 * (quad / 2),
                        make_uint4(half[0], half[1], all[0] | all[1] << 16, all[2] | all[3] << 16));
                }
                sum += flags[0] + flags[1] + flags[2] + flags[3];
                if ((quad & 1) != 0) {
                    even += sum & 0x0f0f0f0f;
                    odd += sum >> 4 & 0x0f0f0f0f;
                    sum = 0;
                }
            });
        const uint32_t mine[4] = {(even & 255) | (odd & 255) << 16, (even >> 8 & 255) | (odd & 0xff00) << 8,
                                  (even >> 16 & 255) | (odd & 0xff0000), even >> 24 | odd >> 24 << 16};
        uint32_t upto[4];
        GW_UNROLL
        for (uint32_t c = 0; c < (DERIVED ? 4 : 2); c++) {
            upto[c] = gw_warp_scan(mine[c]);
        }
        if (lane == 31) {
            s.warp_sum[warp] = make_uint4(upto[0], upto[1], DERIVED ? upto[2] : 0, DERIVED ? upto[3] : 0);
        }
        __syncthreads();
        uint32_t before[4] = {upto[0] - mine[0], upto[1] - mine[1], DERIVED ? upto[2] - mine[2] : 0,
                              DERIVED ? upto[3] - mine[3] : 0};
        uint32_t total[4] = {0, 0, 0, 0};
        GW_UNROLL
        for (uint32_t v = 0; v < GW_WARPS; v++) {
            const uint4 w = s.warp_sum[v];
            const uint32_t part[4] = {w.x, w.y, w.z, w.w};
            GW_UNROLL
            for (uint32_t c = 0; c < 4; c++) {
                before[c] += v < warp ? part[c] : 0;
                total[c] += part[c];
            }
        }

        /* Bits of every plane before this thread's; the stage begins with the word that the values before
         * have begun. */
        uint32_t position[PLANES];
        GW_UNROLL
        for (uint32_t p = 0; p < PLANES; p++) {
            const uint32_t width = gw_plane_width<DTYPE>(p);
            const uint32_t already = (p & 1) != 0 ? s.done[p / 2] >> 16 : s.done[p / 2] & 0xffff;
            const uint32_t ahead = (p & 1) != 0 ? before[p / 2] >> 16 : before[p / 2] & 0xffff;
            position[p] = (width * already & 31) + width * ahead;
        }
        GW_NO_UNROLL
        for (uint32_t quad = 0; quad < VALUES / 4; quad++) {
            uint32_t q[4];
            const uint4 v = gw_staged(waiting, PACKED ? quad / 2 : quad);
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t low = PACKED ? gw_pick(v, (quad & 1) != 0, i / 2) : gw_pick(v, i >= 2, i & 1);
                q[i] = PACKED ? low >> 16 * (i & 1) & 0xffff : low;
            }
            GW_UNROLL
            for (uint32_t p = 0; p < 4; p++) {
                constexpr uint32_t TOP = M + 1 - W1;
                const uint32_t width = p == 0 ? W1 : W2;
                const uint32_t shift = p == 0 ? TOP : TOP - p * W2;
                uint32_t digits = 0, n = 0;
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t digit = q[i] >> shift & ((1u << width) - 1);
                    const bool has = (q[i] >> TAG & 7) > p;
                    digits |= has ? digit << n : 0;
                    n += has ? width : 0;
                }
                gw_or_bits(planes + 4 * PLANE_WORDS * p, position[p], digits, n);
                position[p] += n;
            }
            if (DERIVED) {
                GW_UNROLL
                for (uint32_t p = 4; p < PLANES; p++) {
                    const uint32_t width = 4u >> (p - 4);
                    const uint32_t place = planes + 4 * (p == 4 ? REST4 : p == 5 ? REST2 : REST1);
                    uint32_t digits = 0, n = 0;
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        const uint32_t whole = q[i] >> TAG & 7, rest = q[i] >> (TAG + 3);
                        /* Bits of the field up to this digit's end: those of the planes before it, and its
                         * own. */
                        const uint32_t above =
                            (whole == 0 ? 0 : W1 + (whole - 1) * W2) + (p == 4   ? 4
                                                                        : p == 5 ? (rest & 4) + 2
                                                                                 : rest);
                        const bool has = (rest & width) != 0;
                        const uint32_t digit = q[i] >> ((M + 1 - above) & 31) & ((1u << width) - 1);
                        digits |= has ? digit << n : 0;
                        n += has ? width : 0;
                    }
                    gw_or_bits(place, position[p], digits, n);
                    position[p] += n;
                }
            }
        }
        __syncthreads();

        /* Full words go out, and after the last values the one that is begun, too. */
        const bool is_end = at + ROUND >= chunk_len;
        uint32_t kept = 0;
        GW_UNROLL
        for (uint32_t p = 0; p < PLANES; p++) {
            const uint32_t width = gw_plane_width<DTYPE>(p);
            const uint32_t place = planes + 4 * (p < 4    ? PLANE_WORDS * p
                                                 : p == 4 ? REST4
                                                 : p == 5 ? REST2
                                                          : REST1);
            const uint32_t start = width * ((p & 1) != 0 ? s.done[p / 2] >> 16 : s.done[p / 2] & 0xffff);
            const uint32_t bits =
                (start & 31) + width * ((p & 1) != 0 ? total[p / 2] >> 16 : total[p / 2] & 0xffff);
            const uint32_t words = is_end ? (bits + 31) >> 5 : bits >> 5;
            uint32_t *to = dst + s.plane_word[p] + (start >> 5);
            GW_NO_UNROLL
            for (uint32_t i = tid; i < words; i += GW_THREADS) {
                to[i] = gw_shared_load32(place + 4 * i) | (i == 0 ? s.carry[p] : 0);
            }
            if (tid == p && !is_end) {
                kept = gw_shared_load32(place + 4 * words) | (words == 0 ? s.carry[p] : 0);
            }
        }
        __syncthreads();
        if (tid < PLANES) {
            s.carry[tid] = kept;
        }
        if (tid == 0) {
            GW_UNROLL
            for (uint32_t c = 0; c < 4; c++) {
                s.done[c] += total[c];
            }
        }
    }
    __syncthreads();
}

/* Escapes of the chunk to dst: few, so their values are looked up one by one. Begins with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_escapes(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                                uint32_t chunk_len, uint32_t *dst)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE;
    const uint32_t t = threadIdx.x, words = (chunk_len + 31) >> 5;
    uint32_t mask[4], count = 0;
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        mask[i] = 4 * t + i < words ? s.escape_mask[4 * t + i] : 0;
        count += __popc(mask[i]);
    }
    uint32_t total;
    uint32_t at = gw_block_scan(count, s.sums, &total);
    uint8_t *to = (uint8_t *)(dst + s.escape_word);
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        GW_NO_UNROLL
        while (mask[i] != 0) {
            const uint32_t bit = __ffs(mask[i]) - 1;
            mask[i] &= mask[i] - 1;
            const uint32_t bits =
                gw_round_at<DTYPE, DERIVED>(r, first + 32 * (4 * t + i) + bit, s.tree.base).bits;
            if (SIZE == 4) {
                *(uint32_t *)(void *)(to + 4 * at) = bits;
            } else {
                *(uint16_t *)(void *)(to + 2 * at) = (uint16_t)bits;
            }
            at++;
        }
    }
    if (SIZE == 2 && t == 0 && (total & 1) != 0) {
        *(uint16_t *)(void *)(to + 2 * total) = 0;
    }
}

/* The chunk as RAW to dst, which is 16-byte aligned: rounded values and padding. Begins and ends with a
 * barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_raw(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t chunk_len,
                            uint8_t *dst)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE, BATCH = 64 / SIZE;
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t stage = gw_place_of(s.arrays) + 2048 * warp, stage_out = stage + 2048 * GW_WARPS;
    const uint32_t mine = gw_exchange_mine(stage_out, lane), all = gw_exchange_all(stage_out, lane);
    const uint32_t raw_size = (chunk_len * SIZE + 15) & ~15u;
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += GW_ROUND_LEN) {
        const uint32_t word = at / 32 + tid;
        const uint32_t valid =
            32 * word < chunk_len ? (chunk_len - 32 * word < 32 ? chunk_len - 32 * word : 32) : 0;
        uint32_t half[2] = {0, 0};
        gw_round_word<DTYPE, DERIVED, 32>(
            s, r, stage, first + 32 * (uint64_t)word, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *, const uint32_t *) {
                const uint32_t j = quad % (BATCH / 4);
                if (SIZE == 4) {
                    gw_shared_store128(mine ^ 16 * j, make_uint4(bits[0], bits[1], bits[2], bits[3]));
                } else if ((j & 1) == 0) {
                    half[0] = bits[0] | bits[1] << 16;
                    half[1] = bits[2] | bits[3] << 16;
                } else {
                    gw_shared_store128(
                        mine ^ 16 * (j / 2),
                        make_uint4(half[0], half[1], bits[0] | bits[1] << 16, bits[2] | bits[3] << 16));
                }
                if (j == BATCH / 4 - 1) {
                    __syncwarp();
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        const uint32_t owner = 8 * i + (lane >> 2);
                        const uint32_t byte =
                            SIZE * (at + 1024 * warp + 32 * owner + BATCH * (quad / (BATCH / 4))) +
                            16 * (lane & 3);
                        if (byte < raw_size) {
                            *(uint4 *)(void *)(dst + byte) = gw_shared_load128(all + 512 * i);
                        }
                    }
                    __syncwarp();
                }
            });
    }
    __syncthreads();
}

/* ---- chunk --------------------------------------------------------------------------------------------- */

/* Tree and tables of the codebook whose lengths and base are in s.tree. Begins and ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_encode_tables(gw_encode_state &s)
{
    gw_cuda_tree_build(s.tree);
    /* Labels without a code have the rank of the escape. Without an escape every label that occurs has a
     * code. */
    const uint32_t t = threadIdx.x;
    if ((s.tree.has_code[t >> 5] >> (t & 31) & 1) == 0) {
        s.tree.rank_of_label[t] = (uint8_t)s.tree.escape_rank;
    }
    if (DERIVED && t < 32) {
        s.flags[t] = t <= gw_type<DTYPE>::M + 1 ? gw_digit_flags<DTYPE>(t) : 0;
    }
    __syncthreads();
}

/*
 * Reads an installed codebook into s.tree, its lengths and base. False, to all threads, if it breaks rule 20
 * or labels 0 and 1 lack codes. Begins and ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_encode_read_book(gw_encode_state &s, const gw_cuda_book &book)
{
    const uint32_t t = threadIdx.x;
    const uint32_t size = book.size_at != nullptr ? *book.size_at : book.size;
    __syncthreads();
    if (t < GW_CUDA_BOOK_SIZE_MAX && t < size) {
        s.book[t] = (book.bytes != nullptr ? book.bytes : book.inline_bytes)[t];
    }
    const uint32_t used = gw_cuda_book_read(s.tree, s.book, size, gw_type<DTYPE>::IS_FP16, DERIVED, s.sums);
    if (used == 0 || used != size || s.tree.length[0] == 0 || s.tree.length[1] == 0) {
        return false;
    }
    __syncthreads();
    if (t == 0) {
        s.book_size = 0; /* nothing of it goes into the frame */
        s.book_crc = 0;
    }
    __syncthreads();
    return true;
}

/* Measures a chunk with the codebook of s: s.size, s.any, and what gw_cuda_write_coded() needs. Ends with
 * a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_cuda_measure_chunk(gw_encode_state &s, const gw_cuda_rounder &r, uint32_t chunk_log2,
                                     uint64_t first, uint32_t chunk_len)
{
    const uint32_t level_size = gw_encode_level_size(chunk_log2);
    gw_rank_chunk<DTYPE, DERIVED>(s, r, first, chunk_len, level_size);
    if (s.any != 0) {
        gw_partition_chunk(s, chunk_len, level_size, gw_place_of(s.arrays) + 2 * level_size);
        gw_plan_chunk<DTYPE, DERIVED>(s);
    }
}

/* Writes the chunk that was measured, s.size bytes (no codebook, no padding behind), to dst, which is
 * 4-byte aligned. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_cuda_write_coded(gw_encode_state &s, const gw_cuda_rounder &r, uint32_t chunk_log2,
                                   uint64_t first, uint32_t chunk_len, uint32_t *dst)
{
    const uint32_t level_size = gw_encode_level_size(chunk_log2);
    gw_write_runs<DERIVED>(s, dst, level_size, gw_place_of(s.arrays) + 2 * level_size);
    gw_write_planes<DTYPE, DERIVED>(s, r, first, chunk_len, dst);
    gw_write_escapes<DTYPE, DERIVED>(s, r, first, chunk_len, dst);
    __syncthreads();
}

#endif
