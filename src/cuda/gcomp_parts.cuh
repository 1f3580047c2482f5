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

/* What gw_find_nodes() passes from step to step. */
template <typename WORDS> struct gw_find {
    gw_decode_state &s;
    const WORDS &words;
    uint32_t size_words, header_words, planes, level_size;
};

/* Lengths of the right children from the header; in s.taken, what the inner nodes before a node give to their
 * right children. By one warp. */
template <typename WORDS> GW_DEVICE void gw_find_lengths(const gw_find<WORDS> &f)
{
    gw_decode_state &s = f.s;
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane(), node_count = tree.node_count;
    uint32_t sum = 0;
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const uint32_t n = first + lane;
        const bool is_inner = n < node_count && tree.node[n].right != 0;
        const uint32_t right_len =
            is_inner ? gw_half_at(f.words, f.planes + 1 + tree.node[n].inner_index) : 0;
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
template <typename WORDS> GW_DEVICE bool gw_find_runs(const gw_find<WORDS> &f, bool bad, uint32_t *end)
{
    gw_decode_state &s = f.s;
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane(), node_count = tree.node_count, depth_max = tree.depth_max;
    uint32_t sum = f.header_words; /* words of runs, words of leaves << 16 */
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
        const uint32_t mine = is_node ? (run_bits + 31) >> 5 | (inner ? 0 : (len + 31) >> 5) << 16 : 0;
        const uint32_t upto = gw_warp_scan(mine), before = sum + upto - mine;
        if (is_node) {
            const uint32_t place = before >> 16 << 5, is_odd = (depth_max - node.depth) & 1;
            gw_node_work &work = s.node[n];
            work.run = 4 * (before & 0xffff);
            work.out = place + (is_odd ? f.level_size : 0);
            work.left = place + (is_odd ? 0 : f.level_size);
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
template <uint32_t DTYPE, typename WORDS>
GW_DEVICE uint32_t gw_find_planes(const gw_find<WORDS> &f, uint32_t at, uint32_t count)
{
    gw_decode_state &s = f.s;
    const uint32_t lane = gw_lane(), planes = f.planes;
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
template <typename WORDS> GW_DEVICE bool gw_find_tasks(const gw_find<WORDS> &f)
{
    gw_decode_state &s = f.s;
    const gw_cuda_tree &tree = s.tree;
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
            bad = bad || !gw_is_padded(f.words, work.run >> 2, work.right);
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
 * A node starts in its level array after the values, rounded up to words, of all leaves before it: what a
 * node's own leaves take is enough for it, and a left child starts at its parent's offset in the other array.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_nodes(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t chunk_len,
                             uint32_t level_size)
{
    const uint32_t lane = gw_lane();
    const uint32_t planes = DERIVED ? 7 : 4;
    const uint32_t halves = planes + 1 + s.tree.inner_count, header_words = (halves + 1) / 2;
    const gw_find<WORDS> f = {s, words, size >> 2, header_words, planes, level_size};
    if (f.size_words < header_words) {
        return true;
    }
    const uint32_t count = lane < planes + 1 ? gw_half_at(words, lane) : 0;
    bool bad = ((halves & 1) != 0 && gw_half_at(words, halves) != 0) || count > chunk_len;
    if (lane == 0) {
        s.node[0].first_task = chunk_len;
    }
    gw_find_lengths(f);
    uint32_t runs_end = 0;
    if (gw_find_runs(f, bad, &runs_end)) {
        return true;
    }
    const uint32_t found = gw_find_planes<DTYPE>(f, runs_end, count);
    if (found == 1) {
        return true;
    }
    bad = gw_find_tasks(f) || found != 0;
    return __any_sync(GW_FULL_MASK, bad) != 0;
}

/* Rules 21 to 23: the same, and set bits of all tasks. Returns true, to all threads, if a rule is
 * broken. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_parts(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t chunk_len,
                             uint32_t level_size)
{
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    if (warp == 0) {
        const bool is_bad = gw_find_nodes<DTYPE, DERIVED>(s, words, size, chunk_len, level_size);
        if (lane == 0) {
            s.is_bad = is_bad;
        }
    }
    __syncthreads();
    if (s.is_bad) {
        return true;
    }
    /* A warp takes a node: one after another, its tasks cost a load, a count and a sum each. */
    bool bad = false;
    GW_NO_UNROLL
    for (uint32_t n = warp; n < s.tree.node_count; n += GW_WARPS) {
        const gw_node_work node = gw_node_load(s, n);
        uint32_t ones = 0;
        if (node.kind == GW_KIND_INNER) {
            GW_NO_UNROLL
            for (uint32_t first = 0; first < node.words; first += 32) {
                const uint32_t word = first + lane;
                if (lane == 0) {
                    s.task_ones[node.first_task + (first >> 5)] = (uint16_t)ones;
                }
                ones += __reduce_add_sync(GW_FULL_MASK,
                                          word < node.words ? __popc(words.load32(node.run + 4 * word)) : 0);
            }
            bad = bad || ones != node.right_len;
        }
    }
    return __syncthreads_or(bad) != 0;
}

#endif
