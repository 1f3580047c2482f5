/*
 * The parts of a CODED chunk: nodes with their lengths and runs, planes, escapes; rules 21 to 23 of
 * docs/format.md section 8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_PARTS_CUH
#define GW_CUDA_GCOMP_PARTS_CUH

#include "cuda/gcomp_merge.cuh"

template <typename WORDS> GW_DEVICE uint32_t gw_half_at(const WORDS &words, uint32_t i)
{
    const uint32_t word = words.load32(i >> 1 << 2);
    return (i & 1) != 0 ? word >> 16 : word & 0xffff;
}

/* 1 if word `at` (in words) has bits from `bits` mod 32 on, where `bits` are in use up to there. */
template <typename WORDS> GW_DEVICE bool gw_is_padded(const WORDS &words, uint32_t start, uint32_t bits)
{
    return (bits & 31) == 0 || words.load32(4 * (start + (bits >> 5))) >> (bits & 31) == 0;
}

/* State of the search for the nodes of a tree. */
template <typename WORDS, typename TREE> struct gw_find {
    gw_decode_state &s;
    const WORDS &words;
    const TREE &tree;
    uint32_t size_words;
    uint32_t runs_at;   /* words before the first run */
    uint32_t counts_at; /* half of the header with the first right_len */
    uint32_t skip;      /* halves between the first and the second */
    uint32_t is_masked; /* 1: the bitmap of the root is no run of the chunk */
    uint32_t rank_buffer_size;
};

/* Halves of the header of a chunk that are in use. */
template <bool DERIVED> GW_DEVICE uint32_t gw_header_halves(const gw_cuda_tree &tree)
{
    return (DERIVED ? 7 : 4) + 1 + tree.inner_count + (tree.is_masked ? tree.mask.inner_count : 0);
}

/* Lengths of the right children from the header; in s.taken, what the inner nodes before a node give to their
 * right children. By one warp. */
template <typename WORDS, typename TREE> GW_DEVICE void gw_find_lengths(const gw_find<WORDS, TREE> &f)
{
    gw_decode_state &s = f.s;
    const TREE &tree = f.tree;
    const uint32_t lane = gw_lane(), node_count = tree.node_count;
    uint32_t sum = 0;
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const uint32_t n = first + lane;
        const bool is_inner = n < node_count && tree.node[n].right != 0;
        const uint32_t right_len =
            is_inner ? gw_half_at(f.words, f.counts_at + tree.node[n].inner_index + (n == 0 ? 0 : f.skip))
                     : 0;
        const uint32_t upto = gw_warp_scan(right_len);
        if (n < node_count) {
            s.taken[n] = sum + upto - right_len;
            s.node[n].right_len = right_len;
        }
        if (is_inner) {
            s.node[tree.node[n].right].first_task = right_len;
        }
        sum += __shfl_sync(GW_FULL_MASK, upto, 31);
    }
    __syncwarp();
}

/* Runs and places of the nodes, in preorder. *end: words of the header and the runs. Returns true, to all
 * lanes, if a length is impossible, or if `bad` is true in a lane. By one warp. */
template <typename WORDS, typename TREE>
GW_DEVICE bool gw_find_runs(const gw_find<WORDS, TREE> &f, bool bad, uint32_t *end)
{
    gw_decode_state &s = f.s;
    const TREE &tree = f.tree;
    const uint32_t lane = gw_lane(), node_count = tree.node_count, depth_max = tree.depth_max;
    uint32_t sum = f.runs_at; /* words before, words of leaves << 16 */
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const bool is_node = first + lane < node_count;
        const uint32_t n = is_node ? first + lane : 0;
        const gw_tree_node node = tree.node[n];
        const bool inner = node.right != 0;
        const uint32_t right_len = s.node[n].right_len;
        const uint32_t len = s.node[node.head].first_task - (s.taken[n] - s.taken[node.head]);
        /* A difference below 0 is negative here; it is so first where a node gives more than it has. */
        bad = bad || (int32_t)len < (int32_t)right_len;
        if (__any_sync(GW_FULL_MASK, bad)) { /* sums below are bounded from here on */
            return true;
        }
        const uint32_t run_bits = len * (inner ? 1 : node.width);
        const uint32_t run_words = f.is_masked && n == 0 ? 0 : (run_bits + 31) >> 5;
        const uint32_t mine = is_node ? run_words | (inner ? 0 : (len + 31) >> 5) << 16 : 0;
        const uint32_t upto = gw_warp_scan(mine), before = sum + upto - mine;
        if (is_node) {
            const uint32_t place = before >> 16 << 5, is_odd = (depth_max - node.depth) & 1;
            gw_node_work &work = s.node[n];
            work.run = 4 * (before & 0xffff);
            work.out = place + (is_odd ? f.rank_buffer_size : 0);
            work.left = place + (is_odd ? 0 : f.rank_buffer_size);
            work.right = run_bits;
            work.words = (len + 31) >> 5;
            work.kind = inner ? (uint32_t)GW_KIND_INNER : node.width | (uint32_t)node.first_rank << 8;
        }
        sum += __shfl_sync(GW_FULL_MASK, upto, 31);
    }
    *end = sum & 0xffff;
    return false;
}

/* Planes and escapes, a lane each, from word `at` on; `count`: digits or escapes of the lane's part. Returns
 * 0, or which check failed: 1, to all lanes, if the chunk's size is wrong; 2, to a lane, if padding is not
 * zero. By one warp. */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename TREE>
GW_DEVICE uint32_t gw_find_planes(const gw_find<WORDS, TREE> &f, uint32_t at, uint32_t count)
{
    gw_decode_state &s = f.s;
    const uint32_t lane = gw_lane(), planes = DERIVED ? 7 : 4;
    const bool is_part = lane < planes + 1;
    const uint32_t bits =
        count * (lane == planes ? 8 * gw_type<DTYPE>::SIZE : gw_plane_width<DTYPE>(is_part ? lane : 0));
    const uint32_t part_words = is_part ? (bits + 31) >> 5 : 0;
    const uint32_t upto = at + gw_warp_scan(part_words), start = upto - part_words;
    const uint32_t end = __shfl_sync(GW_FULL_MASK, upto, 31);
    if (end > f.size_words || f.size_words - end >= 4) {
        return 1;
    }
    if (is_part) {
        const uint32_t part = lane == planes ? (uint32_t)GW_PART_ESCAPES : lane;
        const uint32_t begin = 8 * f.words.place(4 * start);
        s.part[part] = make_uint2(begin, begin + bits);
        s.part_len[part] = count;
    }
    const bool bad = (is_part && !gw_is_padded(f.words, start, bits)) ||
                     (lane < f.size_words - end && f.words.load32(4 * (end + lane)) != 0);
    __syncwarp();
    return bad ? 2 : 0;
}

/* Tasks of all nodes, in the order of by_depth. Returns true, to a lane, if the padding of a run is not zero.
 * By one warp. */
template <typename WORDS, typename TREE> GW_DEVICE bool gw_find_tasks(const gw_find<WORDS, TREE> &f)
{
    gw_decode_state &s = f.s;
    const TREE &tree = f.tree;
    const uint32_t lane = gw_lane(), node_count = tree.node_count, depth_max = tree.depth_max;
    bool bad = false;
    uint32_t sum = 0;
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const uint32_t i = first + lane;
        const bool is_node = i < node_count;
        const uint32_t n = tree.by_depth[is_node ? i : 0], level = depth_max - tree.node[n].depth;
        gw_node_work &work = s.node[n];
        const uint32_t tasks = is_node ? (work.words + 31) >> 5 : 0;
        const uint32_t all = gw_warp_scan(tasks), before = sum + all - tasks;
        if (is_node) {
            bad = bad || ((n != 0 || !f.is_masked) && !gw_is_padded(f.words, work.run >> 2, work.right));
            work.right = s.node[tree.node[n].right].out; /* of a leaf: never used */
            work.first_task = before;
            if (i == tree.level_start[level]) {
                s.task_start[level] = before;
            }
        }
        GW_NO_UNROLL
        for (uint32_t k = 0; k < tasks; k++) {
            s.task[before + k] = (uint16_t)(n | k << 8);
        }
        sum += __shfl_sync(GW_FULL_MASK, all, 31);
    }
    if (lane == 0) {
        s.task_start[depth_max + 1] = sum;
    }
    return bad;
}

/* Counts the set bits of all runs, and of those before each task. A warp takes a node: one after another, its
 * tasks cost a load, a count and a sum each. Returns true, to all threads, if they are not the lengths of the
 * right children. Ends with a barrier. */
template <typename WORDS>
GW_DEVICE bool gw_count_runs(gw_decode_state &s, const WORDS &words, uint32_t node_count, bool is_masked)
{
    const uint32_t lane = gw_lane();
    bool bad = false;
    GW_NO_UNROLL
    for (uint32_t n = threadIdx.x >> 5; n < node_count; n += GW_WARPS) {
        const gw_node_work node = gw_node_load(s, n);
        uint32_t ones = 0;
        if (node.kind == GW_KIND_INNER) {
            GW_NO_UNROLL
            for (uint32_t first = 0; first < node.words; first += 32) {
                const uint32_t word = first + lane;
                if (lane == 0) {
                    s.task_ones[node.first_task + (first >> 5)] = (uint16_t)ones;
                }
                uint32_t bits = 0;
                if (word < node.words) {
                    bits = is_masked && n == 0 ? gw_shared_load32(s.mask_place + 4 * word)
                                               : words.load32(node.run + 4 * word);
                }
                ones += __reduce_add_sync(GW_FULL_MASK, __popc(bits));
            }
            bad = bad || ones != node.right_len;
        }
    }
    return __syncthreads_or(bad) != 0;
}

/*
 * Rules 21 and 22 for the runs of a zero mask of mask_len bytes in the chunk at words[0..size): lengths,
 * places, tasks; s.mask_words. By one warp. Returns true, to all lanes, if a rule is broken.
 */
template <bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_mask_nodes(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t mask_len,
                                  uint32_t rank_buffer_size)
{
    const uint32_t header_words = (gw_header_halves<DERIVED>(s.tree) + 1) / 2;
    /* Planes, escapes, values that are not zero. */
    const gw_find<WORDS, gw_mask_tree> f = {
        s, words, s.tree.mask, size >> 2, header_words, (DERIVED ? 7 : 4) + 2, 0, 0, rank_buffer_size};
    if (f.size_words < header_words) {
        return true;
    }
    if (gw_lane() == 0) {
        s.node[0].first_task = mask_len;
    }
    gw_find_lengths(f);
    uint32_t end = 0;
    if (gw_find_runs(f, false, &end) || end > f.size_words) {
        return true;
    }
    __syncwarp();
    if (gw_lane() == 0) {
        s.mask_words = end - header_words;
    }
    const bool bad = gw_find_tasks(f);
    return __any_sync(GW_FULL_MASK, bad) != 0;
}

/*
 * Rules 21 and 22 of the chunk at words[0..size): lengths and places of all parts, the tasks. By one warp:
 * there are about 30 nodes, and eight warps would take as long. Returns true, to all lanes, if a rule is
 * broken.
 *
 * Lengths need no walk from the root. A left child has its parent's number plus one, so the nodes from one
 * that is not a left child, the head, down to a leaf have consecutive numbers; each has the length of the
 * head less what those above it in this row give to their right children: a difference of two prefix sums in
 * preorder.
 *
 * A node starts in its rank buffer after the values, rounded up to words, of all leaves before it: what a
 * node's own leaves take is enough for it, and a left child starts at its parent's offset in the other array.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_nodes(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t chunk_len,
                             uint32_t rank_buffer_size)
{
    const uint32_t lane = gw_lane();
    const uint32_t planes = DERIVED ? 7 : 4;
    const uint32_t halves = gw_header_halves<DERIVED>(s.tree), header_words = (halves + 1) / 2;
    const uint32_t is_masked = s.tree.is_masked;
    const gw_find<WORDS, gw_cuda_tree> f = {s,
                                            words,
                                            s.tree,
                                            size >> 2,
                                            header_words + (is_masked ? s.mask_words : 0),
                                            planes + 1,
                                            is_masked ? s.tree.mask.inner_count : 0,
                                            is_masked,
                                            rank_buffer_size};
    if (f.size_words < header_words) {
        return true;
    }
    const uint32_t count = lane < planes + 1 ? gw_half_at(words, lane) : 0;
    bool bad = ((halves & 1) != 0 && gw_half_at(words, halves) != 0) || count > chunk_len;
    if (is_masked && lane == 0) {
        bad = bad || ((chunk_len & 31) != 0 &&
                      gw_shared_load32(s.mask_place + 4 * (chunk_len >> 5)) >> (chunk_len & 31) != 0);
    }
    if (lane == 0) {
        s.node[0].first_task = chunk_len;
    }
    gw_find_lengths(f);
    uint32_t runs_end = 0;
    if (gw_find_runs(f, bad, &runs_end)) {
        return true;
    }
    const uint32_t found = gw_find_planes<DTYPE, DERIVED>(f, runs_end, count);
    if (found == 1) {
        return true;
    }
    bad = gw_find_tasks(f) || found != 0;
    return __any_sync(GW_FULL_MASK, bad) != 0;
}

/* Rules 21 to 23: the same, by find(), and set bits of all tasks of node_count nodes. Returns true, to all
 * threads, if a rule is broken. Ends with a barrier. */
template <typename WORDS, typename FIND>
GW_DEVICE bool gw_find_parts(gw_decode_state &s, const WORDS &words, uint32_t node_count, bool is_masked,
                             FIND find)
{
    if (threadIdx.x < 32) {
        const bool is_bad = find();
        if (gw_lane() == 0) {
            s.is_bad = is_bad;
        }
    }
    __syncthreads();
    return s.is_bad || gw_count_runs(s, words, node_count, is_masked);
}

#endif
