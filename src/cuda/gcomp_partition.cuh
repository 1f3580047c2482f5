/*
 * Encode, second and third step: ranks down the tree, level by level; sizes and places of all parts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_PARTITION_CUH
#define GW_CUDA_GCOMP_PARTITION_CUH

#include "cuda/gcomp_encode_state.cuh"

/* Bit i: byte i of x, eight words, is at least `pivot`. */
GW_DEVICE uint32_t gw_compare32(const uint32_t x[8], uint32_t pivot, bool small)
{
    const uint32_t four = pivot * 0x01010101u;
    uint32_t bits = 0;
    if (small) { /* all bytes are below 128 */
        GW_UNROLL
        for (int j = 7; j >= 0; j--) {
            /* The top bits of the four bytes to bits 28 to 31: no two of the shifted copies meet. */
            const uint32_t top = (x[j] + (0x80808080u - four)) & 0x80808080u;
            bits = __funnelshift_l(top * 0x00204081u, bits, 4);
        }
    } else {
        GW_UNROLL
        for (int j = 7; j >= 0; j--) {
            const uint32_t top = __vcmpgeu4(x[j], four) & 0x80808080u;
            bits = __funnelshift_l(top * 0x00204081u, bits, 4);
        }
    }
    return bits;
}

/* Stores byte i of x to the left or to the right, as bit i of the masks says. */
template <bool LEFT, bool RIGHT>
GW_DEVICE void gw_move_ranks(const uint32_t x[8], uint32_t left_bits, uint32_t right_bits, uint32_t left,
                             uint32_t right)
{
    GW_UNROLL
    for (uint32_t i = 0; i < 32; i++) {
        /* Once for both, without a condition. */
        const uint32_t rank = i % 4 == 0 ? x[i / 4] : gw_permute(x[i / 4], 0, 0x4440 | i % 4);
        if (LEFT && (left_bits >> i & 1) != 0) {
            gw_shared_store8(left, rank);
            left++;
        }
        if (RIGHT && (right_bits >> i & 1) != 0) {
            gw_shared_store8(right, rank);
            right++;
        }
    }
}

/*
 * The tasks of a level whose nodes' lengths are known, 32 words of an inner node each; bitmaps of its nodes
 * from word *bitmap on. By one warp; returns the number of tasks.
 */
GW_DEVICE uint32_t gw_tree_level_tasks(gw_encode_state &s, uint32_t depth, uint32_t *bitmap)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane();
    const uint32_t first = tree.level_start[tree.depth_max - depth];
    const uint32_t end = tree.level_start[tree.depth_max - depth + 1];
    uint16_t *list = s.task + GW_LEVEL_TASKS_MAX * (depth & 1);
    uint32_t task_count = 0;
    GW_NO_UNROLL
    for (uint32_t at = first; at < end; at += 32) {
        const uint32_t n = at + lane < end ? tree.by_depth[at + lane] : 0;
        const uint32_t right = tree.node[n].right;
        const bool inner = at + lane < end && right != 0;
        const uint32_t words = inner ? (s.node[n].len + 31u) >> 5 : 0, tasks = (words + 31) >> 5;
        const uint32_t upto = gw_warp_scan(words | tasks << 16);
        const uint32_t task = task_count + (upto >> 16) - tasks;
        if (inner) {
            s.node[n].first_task = (uint16_t)task;
            s.node[n].bitmap = (uint16_t)(*bitmap + (upto & 0xffff) - words);
            s.node[n].right_at = tree.node[right].first_leaf;
            s.node[n].left_at = tree.node[n].first_leaf;
            s.node[n].pivot = tree.node[right].first_rank;
            /* The ranks of a leaf of a single label are not needed. */
            s.node[n].keeps = (uint8_t)((tree.node[n + 1].right != 0 || tree.node[n + 1].width != 0) +
                                        2 * (tree.node[right].right != 0 || tree.node[right].width != 0));
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                list[task + k] = (uint16_t)(n | k << 8);
            }
        }
        const uint32_t all = __shfl_sync(GW_FULL_MASK, upto, 31);
        task_count += all >> 16;
        *bitmap += all & 0xffff;
    }
    return task_count;
}

/* Lengths of the children of a level's nodes, whose tasks have counted the ones. By one warp. */
GW_DEVICE void gw_split_tree_level(gw_encode_state &s, uint32_t depth)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t first = tree.level_start[tree.depth_max - depth];
    const uint32_t end = tree.level_start[tree.depth_max - depth + 1];
    const uint16_t *ones = s.task_ones + GW_LEVEL_TASKS_MAX * (depth & 1);
    GW_NO_UNROLL
    for (uint32_t at = first + gw_lane(); at < end; at += 32) {
        const uint32_t n = tree.by_depth[at], right = tree.node[n].right;
        if (right != 0) {
            const gw_encode_node node = s.node[n];
            const uint32_t tasks = (node.len + 1023u) >> 10;
            uint32_t right_len = 0;
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                right_len += ones[node.first_task + k];
            }
            s.right_len[tree.node[n].inner_index] = (uint16_t)right_len;
            s.node[n + 1].len = (uint16_t)(node.len - right_len);
            s.node[n + 1].at = node.at;
            s.node[right].len = (uint16_t)right_len;
            s.node[right].at = (uint16_t)(node.at + node.len - right_len);
        }
    }
    __syncwarp();
}

/* 32 ranks at a place in shared memory. */
GW_DEVICE void gw_load_ranks(uint32_t x[8], uint32_t place)
{
    gw_words_of(x, gw_shared_load128(place));
    gw_words_of(x + 4, gw_shared_load128(place + 16));
}

/* Bits of a node's word that stand for values. */
GW_DEVICE uint32_t gw_valid_bits(const gw_encode_node &node, uint32_t word)
{
    const uint32_t valid = node.len - 32 * word;
    return valid < 32 ? (1u << valid) - 1 : ~0u;
}

/* A level of the tree: places of the rank buffers that ranks come from and go to, and of the bitmaps; its
 * tasks and how many ones each has. */
struct gw_level {
    uint32_t from, to, bitmaps;
    const uint16_t *list;
    uint16_t *ones;
};

/* The bitmap of a task, and its ones. By a warp. */
GW_DEVICE void gw_count_task(const gw_encode_state &s, const gw_level &level, uint32_t task, bool small)
{
    const uint32_t lane = gw_lane(), what = level.list[task], word = (what >> 8) * 32 + lane;
    const gw_encode_node node = s.node[what & 255];
    uint32_t bits = 0;
    if (32 * word < node.len) {
        uint32_t x[8];
        gw_load_ranks(x, level.from + gw_place_after(node.at, node.left_at) + 32 * word);
        bits = gw_compare32(x, node.pivot, small) & gw_valid_bits(node, word);
        gw_shared_store32(level.bitmaps + 4 * (node.bitmap + word), bits);
    }
    const uint32_t ones = __reduce_add_sync(GW_FULL_MASK, __popc(bits));
    if (lane == 0) {
        level.ones[task] = (uint16_t)ones;
    }
}

/* Moves the ranks of a task to the children of its node. By a warp. */
GW_DEVICE void gw_move_task(const gw_encode_state &s, const gw_level &level, uint32_t task)
{
    const uint32_t lane = gw_lane(), what = level.list[task], k = what >> 8, word = k * 32 + lane;
    const gw_encode_node node = s.node[what & 255];
    const uint32_t tasks = (node.len + 1023u) >> 10;
    const uint32_t ones = lane < tasks ? level.ones[node.first_task + lane] : 0;
    const uint32_t right_len = __reduce_add_sync(GW_FULL_MASK, ones);
    const uint32_t before_task = __reduce_add_sync(GW_FULL_MASK, lane < k ? ones : 0);
    const bool active = 32 * word < node.len;
    const uint32_t bits = active ? gw_shared_load32(level.bitmaps + 4 * (node.bitmap + word)) : 0;
    const uint32_t mine = __popc(bits);
    const uint32_t before = before_task + gw_warp_scan(mine) - mine;
    if (active) {
        uint32_t x[8];
        gw_load_ranks(x, level.from + gw_place_after(node.at, node.left_at) + 32 * word);
        const uint32_t left = level.to + gw_place_after(node.at, node.left_at) + 32 * word - before;
        const uint32_t right =
            level.to + gw_place_after(node.at + node.len - right_len, node.right_at) + before;
        const uint32_t left_bits = ~bits & gw_valid_bits(node, word);
        if (node.keeps == 3) {
            gw_move_ranks<true, true>(x, left_bits, bits, left, right);
        } else if (node.keeps == 2) {
            gw_move_ranks<false, true>(x, left_bits, bits, left, right);
        } else {
            gw_move_ranks<true, false>(x, left_bits, bits, left, right);
        }
    }
}

/* A barrier of the block, or of the warp that is ALONE. */
template <bool ALONE> GW_DEVICE void gw_level_sync(void)
{
    if (ALONE) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

/*
 * The levels of the tree from `depth` on: by the block until a level has a single task, or to the end by its
 * first warp ALONE; returns the level that comes next. A level takes two barriers: its tasks count ones; then
 * they move ranks, while the first warp, which gets the last of these tasks, plans the next level.
 */
template <bool ALONE>
GW_DEVICE uint32_t gw_partition_levels(gw_encode_state &s, uint32_t depth, uint32_t rank_buffer_size,
                                       uint32_t bitmaps, uint32_t *bitmap)
{
    constexpr uint32_t STEP = ALONE ? 1 : GW_WARPS;
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t depth_max = s.tree.depth_max;
    const bool small = s.tree.label_count <= 128;
    GW_NO_UNROLL
    for (; depth < depth_max; depth++) {
        const gw_level level = {gw_place_of(s.arrays) + (depth & 1) * rank_buffer_size,
                                gw_place_of(s.arrays) + (1 - (depth & 1)) * rank_buffer_size, bitmaps,
                                s.task + GW_LEVEL_TASKS_MAX * (depth & 1),
                                s.task_ones + GW_LEVEL_TASKS_MAX * (depth & 1)};
        gw_level_sync<ALONE>();
        const uint32_t task_count = s.task_count[depth & 1];
        if (!ALONE && task_count <= 1) {
            break;
        }
        GW_NO_UNROLL
        for (uint32_t task = warp; task < task_count; task += STEP) {
            gw_count_task(s, level, task, small);
        }
        gw_level_sync<ALONE>();
        if (warp == 0) {
            gw_split_tree_level(s, depth);
            const uint32_t tasks = depth + 1 < depth_max ? gw_tree_level_tasks(s, depth + 1, bitmap) : 0;
            if (lane == 0) {
                s.task_count[1 - (depth & 1)] = tasks;
            }
        }
        GW_NO_UNROLL
        for (uint32_t task = (warp - 1) & (STEP - 1); task < task_count; task += STEP) {
            gw_move_task(s, level, task);
        }
    }
    return depth;
}

/*
 * Partitions the ranks along the tree: lengths of all nodes, bitmaps at `bitmaps`, of which it returns the
 * words, to the first warp. After a level of a single task most levels have one: only the first warp
 * would have work. Begins and ends with a barrier.
 */
GW_DEVICE uint32_t gw_partition_chunk(gw_encode_state &s, uint32_t chunk_len, uint32_t rank_buffer_size,
                                      uint32_t bitmaps)
{
    const bool is_first = threadIdx.x < 32;
    uint32_t bitmap = 0; /* first warp: words of it so far */
    __syncthreads();
    if (is_first) {
        if (threadIdx.x == 0) {
            s.node[0].len = (uint16_t)chunk_len;
            s.node[0].at = 0;
        }
        __syncwarp();
        const uint32_t tasks = s.tree.depth_max == 0 ? 0 : gw_tree_level_tasks(s, 0, &bitmap);
        if (threadIdx.x == 0) {
            s.task_count[0] = tasks;
        }
    }
    const uint32_t depth = gw_partition_levels<false>(s, 0, rank_buffer_size, bitmaps, &bitmap);
    __syncthreads(); /* all threads have read that there is a single task */
    if (is_first) {
        gw_partition_levels<true>(s, depth, rank_buffer_size, bitmaps, &bitmap);
    }
    __syncthreads();
    return bitmap;
}

/*
 * Bytes of the nodes of the tree of the zero mask, which is the bitmap of the root, the first one. Begins and
 * ends with a barrier.
 */
GW_DEVICE void gw_count_mask(gw_encode_state &s, uint32_t bitmaps, uint32_t mask_len)
{
    const gw_mask_tree &mask = s.tree.mask;
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    uint64_t classes = 0; /* of at most 16 bytes */
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t at = t; at < mask_len; at += GW_THREADS) {
        classes += (uint64_t)1 << 6 * gw_mask_lookup.class_of[gw_shared_load8(bitmaps + at)];
    }
    GW_NO_UNROLL
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint32_t all = __reduce_add_sync(GW_FULL_MASK, (uint32_t)(classes >> 6 * c) & 63);
        if (lane == 0) {
            s.mask_sum[warp][c] = all;
        }
    }
    __syncthreads();
    if (t < mask.node_count) {
        const uint32_t first = mask.node[t].first_leaf, end = gw_mask_leaf_end(mask, t);
        uint32_t len = 0;
        GW_NO_UNROLL
        for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
            const uint32_t leaf = mask.leaf_of_class[c];
            if (leaf >= first && leaf < end) {
                GW_UNROLL
                for (uint32_t w = 0; w < GW_WARPS; w++) {
                    len += s.mask_sum[w][c];
                }
            }
        }
        s.mask_len[t] = (uint16_t)len;
    }
    __syncthreads();
}

/* First bit in the chunk of each of the 32 strings, plane after plane; then where the planes end. By
 * one warp. */
template <uint32_t DTYPE> GW_DEVICE void gw_plan_strings(gw_encode_state &s)
{
    typedef gw_type<DTYPE> type;
    const uint32_t lane = gw_lane(), p = lane >> 3;
    const uint4 sums = s.warp_sum[lane & 7];
    const uint32_t two = p < 2 ? sums.x : sums.y;
    const uint32_t bits = (p == 0 ? type::W1 : type::W2) * ((p & 1) != 0 ? two >> 16 : two & 0xffff);
    uint32_t upto = bits;
    GW_UNROLL
    for (uint32_t d = 1; d < 8; d *= 2) {
        const uint32_t y = __shfl_up_sync(GW_FULL_MASK, upto, d);
        upto += (lane & 7) >= d ? y : 0;
    }
    s.string_start[lane] = 32 * s.plane_word[p] + upto - bits;
    if (lane == 0) {
        s.string_start[32] = 32 * s.escape_word;
    }
}

/* Places of the runs of the mask, from word `at` on; returns their words, to all lanes. By one warp. */
GW_DEVICE uint32_t gw_plan_mask(gw_encode_state &s, uint32_t at)
{
    const gw_mask_tree &mask = s.tree.mask;
    const uint32_t lane = gw_lane(), n = lane < mask.node_count ? lane : 0;
    const uint32_t width = mask.node[n].right != 0 ? 1 : mask.node[n].width;
    const uint32_t words = lane < mask.node_count ? (s.mask_len[n] * width + 31u) >> 5 : 0;
    const uint32_t upto = gw_warp_scan(words);
    if (lane < mask.node_count) {
        s.mask_run[lane] = (uint16_t)(at + upto - words);
    }
    return __shfl_sync(GW_FULL_MASK, upto, 31);
}

/* Places of all parts and the size of the chunk, into s; the tasks of gw_write_runs(). Begins and ends with a
 * barrier. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_plan_chunk(gw_encode_state &s)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane();
    const uint32_t planes = DERIVED ? 7 : 4;
    if (threadIdx.x < 32) { /* there are about 30 nodes */
        const uint32_t mask_counts = tree.is_masked ? tree.mask.inner_count : 0;
        const uint32_t header_words = (planes + 1 + tree.inner_count + mask_counts + 1) / 2;
        uint32_t words = header_words, task_count = 0;
        if (tree.is_masked) {
            words += gw_plan_mask(s, header_words);
        }
        GW_NO_UNROLL
        for (uint32_t first = 0; first < tree.node_count; first += 32) {
            const bool exists = first + lane < tree.node_count;
            const uint32_t n = exists ? first + lane : 0;
            const uint32_t len = exists ? s.node[n].len : 0;
            /* The bitmap of the root of a masked codebook is not a run. */
            const uint32_t width = n == 0 && tree.is_masked  ? 0
                                   : tree.node[n].right != 0 ? 1
                                                             : tree.node[n].width;
            const uint32_t run_words = (len * width + 31) >> 5, tasks = width == 0 ? 0 : (len + 1023) >> 10;
            const uint32_t upto = gw_warp_scan(run_words | tasks << 16);
            const uint32_t task = task_count + (upto >> 16) - tasks;
            if (exists) {
                s.node[n].run = (uint16_t)(words + (upto & 0xffff) - run_words);
            }
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                s.task[task + k] = (uint16_t)(n | k << 8);
            }
            const uint32_t all = __shfl_sync(GW_FULL_MASK, upto, 31);
            words += all & 0xffff;
            task_count += all >> 16;
        }
        if (lane == 0) {
            s.task_count[0] = task_count;
            s.header_words = header_words;
            s.run_words = words - header_words;
            GW_UNROLL
            for (uint32_t p = 0; p < planes; p++) {
                s.plane_word[p] = words;
                words += (gw_plane_width<DTYPE>(p) * s.plane_len[p] + 31) >> 5;
            }
            s.escape_word = words;
            s.size = 4 * words + ((gw_type<DTYPE>::SIZE * s.escape_len + 3) & ~3u);
        }
        if (!DERIVED) {
            __syncwarp();
            gw_plan_strings<DTYPE>(s);
        }
    }
    __syncthreads();
}

#endif
