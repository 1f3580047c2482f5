/*
 * From code lengths to the tree of docs/format.md section 5.1, by a block of 256 threads.
 *
 * Nothing here walks the tree. With codes filled up to 12 bits, leaf i begins at the sum of 2^(12 - depth) of
 * the leaves before it. A node that begins at such a place c and has depth d covers 2^(12 - d) codes, so the
 * nodes that begin at leaf i have the depths from 12 minus the number of trailing zeros of c down to the
 * leaf's own; preorder numbers follow from a sum, and the right child of an inner node is the first node that
 * begins at c + 2^(11 - d).
 *
 * The tree of a masked codebook (docs/format.md section 5.3) has one root more: its left child is a leaf,
 * zero, with rank 0, its right child the root of the labels, and its bitmap is the zero mask, whose bytes
 * have a tree of their own.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_TREE_CUH
#define GW_CUDA_GCOMP_TREE_CUH

#include "cuda/device.cuh"
#include "cuda/gcomp_params.h"

enum {
    GW_TREE_NODES = 180,
    GW_TREE_LEAVES = 88,
    GW_TREE_CODE_LEN = 11,
    GW_TREE_DEPTH_MAX = 12, /* a masked codebook has a level more */
    GW_TREE_NO_RANK = 256,
    GW_MASK_CLASSES = 10,
    GW_MASK_NODES = 20,
    GW_THREADS = 256,
    GW_WARPS = 8
};

#define GW_FULL_MASK 0xffffffffu

/* A node; numbers in preorder. */
struct gw_tree_node {
    uint8_t right; /* inner node: its right child, the left one is the next node; leaf: 0 */
    uint8_t width; /* leaf: bits of an index */
    uint8_t depth;
    uint8_t first_rank;
    uint8_t head;        /* itself unless it is a left child; then the head of its parent */
    uint8_t inner_index; /* inner node: how many inner nodes come before it */
    uint8_t first_leaf;  /* leaves to the left */
    uint8_t unused;
};

/* The tree of the bytes of a zero mask. */
struct gw_mask_tree {
    uint32_t node_count, inner_count, depth_max;
    uint8_t depth[12];         /* by class, 0: no code: what the rest is made from */
    uint8_t rank_of_byte[256]; /* 0 without a code */
    uint8_t byte_of_rank[256];
    gw_tree_node node[GW_MASK_NODES];
    uint8_t by_depth[GW_MASK_NODES], level_start[16]; /* as in gw_cuda_tree */
    uint8_t leaf_of_class[12];                        /* 255: no code */
    /* Of the leaves. */
    uint16_t leaf_code[12], leaf_rank[12];
    uint8_t leaf_depth[12], leaf_width[12], leaf_inner[12];
};

struct alignas(16) gw_cuda_tree {
    uint32_t node_count, inner_count, depth_max;
    uint32_t label_count;  /* ranks */
    uint32_t escape_rank;  /* GW_TREE_NO_RANK: none */
    uint32_t window_start; /* the first byte of the codebook: the window, or 1: relative exponents */
    uint32_t is_masked;
    uint32_t has_code[8];       /* by label */
    uint8_t length[256];        /* by label: what the rest is made from */
    uint8_t rank_of_label[256]; /* of labels with a code */
    uint8_t label_of_rank[256];
    gw_tree_node node[GW_TREE_NODES];
    uint8_t by_depth[GW_TREE_NODES]; /* nodes, deepest first, in preorder within a depth */
    uint8_t level_start[16]; /* first in by_depth of level depth_max - depth; the last one is node_count */
    gw_mask_tree mask;       /* if is_masked */
};

/* State while a tree is built. */
struct gw_tree_scratch {
    uint16_t count[GW_WARPS][16];
    /* Of the leaves, one of which zero may be. */
    uint16_t leaf_code[GW_TREE_LEAVES + 8], leaf_rank[GW_TREE_LEAVES + 8];
    uint8_t leaf_depth[GW_TREE_LEAVES + 8], leaf_width[GW_TREE_LEAVES + 8], leaf_inner[GW_TREE_LEAVES + 8];
    uint8_t leaf_of[GW_TREE_LEAVES + 8]; /* leaf of block j of length l: [8 (l - 1) + j] */
};

GW_DEVICE uint32_t gw_lane(void)
{
    return threadIdx.x & 31;
}

/* Inclusive sum over the lanes of a warp. */
GW_DEVICE uint32_t gw_warp_scan(uint32_t x)
{
    GW_UNROLL
    for (uint32_t d = 1; d < 32; d *= 2) {
        x = gw_shuffle_up_add(x, d);
    }
    return x;
}

/*
 * Sum over the threads before this one, in *total over all; `sums` is 8 words of shared memory. Two barriers,
 * so that code before and after may use the same words.
 */
GW_DEVICE uint32_t gw_block_scan(uint32_t x, uint32_t *sums, uint32_t *total)
{
    const uint32_t upto = gw_warp_scan(x);
    __syncthreads();
    if (gw_lane() == 31) {
        sums[threadIdx.x >> 5] = upto;
    }
    __syncthreads();
    uint32_t before = upto - x, all = 0;
    GW_UNROLL
    for (uint32_t w = 0; w < GW_WARPS; w++) {
        const uint32_t sum = sums[w];
        before += w < threadIdx.x >> 5 ? sum : 0;
        all += sum;
    }
    *total = all;
    return before;
}

/* The same of x < 2^(BITS + 24), low BITS of 24 at most and the rest summed apart, so that no sum of 256
 * overflows. */
template <uint32_t BITS> GW_DEVICE uint64_t gw_block_scan64(uint64_t x, uint32_t *sums, uint64_t *total)
{
    uint32_t low, high;
    const uint64_t before_low = gw_block_scan((uint32_t)(x & ((1u << BITS) - 1)), sums, &low);
    const uint64_t before_high = gw_block_scan((uint32_t)(x >> BITS), sums, &high);
    *total = low + ((uint64_t)high << BITS);
    return before_low + (before_high << BITS);
}

/* The largest x of the block, to all threads; `sums` and barriers as above. */
GW_DEVICE uint32_t gw_block_max(uint32_t x, uint32_t *sums)
{
    const uint32_t of_warp = __reduce_max_sync(GW_FULL_MASK, x);
    __syncthreads();
    if (gw_lane() == 0) {
        sums[threadIdx.x >> 5] = of_warp;
    }
    __syncthreads();
    uint32_t largest = 0;
    GW_UNROLL
    for (uint32_t w = 0; w < GW_WARPS; w++) {
        largest = sums[w] > largest ? sums[w] : largest;
    }
    return largest;
}

/*
 * Places of a stable counting sort over the block by a key of 0..15 (16 and more: not sorted). count is
 * scratch. One barrier; the caller puts one before the next use of count.
 */
GW_DEVICE uint32_t gw_sort_place(uint16_t count[GW_WARPS][16], uint32_t key)
{
    const uint32_t t = gw_thread_now(), lane = t & 31, warp = t >> 5;
    const uint32_t below = (1u << lane) - 1;
    uint32_t before = 0, mine = 0;
    GW_NO_UNROLL
    for (uint32_t k = 0; k < 16; k++) {
        const uint32_t votes = __ballot_sync(GW_FULL_MASK, key == k);
        before = key == k ? __popc(votes & below) : before;
        mine = lane == k ? __popc(votes) : mine;
    }
    if (lane < 16) {
        count[warp][lane] = (uint16_t)mine;
    }
    __syncthreads();
    uint32_t total = 0, earlier = 0;
    GW_UNROLL
    for (uint32_t w = 0; w < GW_WARPS; w++) {
        const uint32_t n = lane < 16 ? count[w][lane] : 0;
        earlier += w < warp ? n : 0;
        total += n;
    }
    const uint32_t start = gw_warp_scan(total) - total + earlier;
    return before + __shfl_sync(GW_FULL_MASK, start, key & 15);
}

/* Block j of n labels of one length. Returns its width, or 16 if there is no such block; *skip =
 * labels before it. */
GW_DEVICE uint32_t gw_tree_block(uint32_t n, uint32_t j, uint32_t *skip)
{
    const uint32_t whole = n >> 7;
    uint32_t rest = n & 127;
    if (j < whole) {
        *skip = 128 * j;
        return 7;
    }
    GW_NO_UNROLL
    for (uint32_t i = whole; i < j && rest != 0; i++) {
        rest &= ~(0x80000000u >> __clz(rest));
    }
    *skip = n - rest;
    return rest == 0 ? 16 : 31 - __clz(rest);
}

/* A thread's label, t, while a tree is built. */
struct gw_tree_label {
    uint32_t length; /* of its code; 0: it has none */
    uint32_t n;      /* labels of this length */
    uint32_t index;  /* of the label among them */
};

/* Leaves in the order of depths: their depths, widths and numbers. Thread 8 (l - 1) + j has block j of the
 * labels of length l. of_length: labels of length l, in lane l. Returns the number of leaves. */
GW_DEVICE uint32_t gw_tree_leaves(gw_tree_scratch &s, uint32_t of_length, uint32_t label_count,
                                  uint32_t is_masked)
{
    const uint32_t t = gw_thread_now(), l = (t >> 3) + 1;
    const uint32_t of_l = __shfl_sync(GW_FULL_MASK, of_length, l & 15);
    uint32_t skip, width = 16, depth = 0;
    if (t < GW_TREE_LEAVES) {
        width = gw_tree_block(of_l, t & 7, &skip);
        depth = (label_count == 1 ? 0 : l - width) + is_masked;
    }
    __syncthreads();
    const uint32_t leaf = gw_sort_place(s.count, width == 16 ? 16 : depth) + is_masked;
    if (is_masked && t == 0) {
        s.leaf_depth[0] = 1; /* zero */
        s.leaf_width[0] = 0;
    }
    if (width != 16) {
        s.leaf_depth[leaf] = (uint8_t)depth;
        s.leaf_width[leaf] = (uint8_t)width;
        s.leaf_of[t] = (uint8_t)leaf;
    }
    return (uint32_t)__syncthreads_count(width != 16) + is_masked;
}

/* First codes and ranks of the leaves, and inner nodes before them: three a lane of one warp. */
template <typename LEAVES> GW_DEVICE void gw_tree_number_leaves(LEAVES &s, uint32_t leaf_count)
{
    const uint32_t lane = gw_lane();
    uint32_t size[3], sum = 0; /* codes, ranks << 16 */
    GW_UNROLL
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t i = 3 * lane + k;
        size[k] =
            i < leaf_count ? 1u << (GW_TREE_DEPTH_MAX - s.leaf_depth[i]) | 0x10000u << s.leaf_width[i] : 0;
        sum += size[k];
    }
    uint32_t at = gw_warp_scan(sum) - sum;
    uint32_t inner[3], inner_sum = 0;
    GW_UNROLL
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t i = 3 * lane + k, code = at & 0xffff;
        inner[k] = 0;
        if (i < leaf_count) {
            const uint32_t top = i == 0 ? 0 : GW_TREE_DEPTH_MAX + 1 - __ffs(code);
            inner[k] = s.leaf_depth[i] - top;
            s.leaf_code[i] = (uint16_t)code;
            s.leaf_rank[i] = (uint16_t)(at >> 16);
        }
        inner_sum += inner[k];
        at += size[k];
    }
    uint32_t before = gw_warp_scan(inner_sum) - inner_sum;
    GW_UNROLL
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t i = 3 * lane + k;
        if (i <= leaf_count) {
            s.leaf_inner[i] = (uint8_t)before; /* one entry after the last leaf: all inner nodes */
        }
        before += inner[k];
    }
}

/* The nodes that begin at leaf t. */
template <typename TREE, typename LEAVES>
GW_DEVICE void gw_tree_nodes(TREE &tree, const LEAVES &s, uint32_t t, uint32_t leaf_count)
{
    const uint32_t code = s.leaf_code[t], before = s.leaf_inner[t];
    const uint32_t inner = s.leaf_inner[t + 1] - before;
    const uint32_t leaf_depth = s.leaf_depth[t], top = leaf_depth - inner;
    const uint32_t first = t + before;
    GW_NO_UNROLL
    for (uint32_t k = 0; k <= inner; k++) {
        gw_tree_node &node = tree.node[first + k];
        node.depth = (uint8_t)(top + k);
        node.first_rank = (uint8_t)s.leaf_rank[t];
        node.inner_index = (uint8_t)(before + k);
        node.first_leaf = (uint8_t)t;
        node.right = 0;
        node.width = k == inner ? s.leaf_width[t] : (uint8_t)0;
        node.head = (uint8_t)first;
        if (k < inner) {
            const uint32_t middle = code + (1u << (GW_TREE_DEPTH_MAX - 1 - top - k));
            uint32_t low = t + 1, high = leaf_count - 1; /* the leaf with this code is one of them */
            GW_NO_UNROLL
            while (low < high) {
                const uint32_t at = (low + high) >> 1;
                if (s.leaf_code[at] < middle) {
                    low = at + 1;
                } else {
                    high = at;
                }
            }
            node.right = (uint8_t)(low + s.leaf_inner[low]);
        }
    }
}

/* Rank of label t. */
GW_DEVICE void gw_tree_rank(gw_cuda_tree &s, const gw_tree_scratch &scratch, uint32_t t,
                            const gw_tree_label &label)
{
    if (label.length != 0) {
        /* The block that a label is in: the highest bit in which the number of labels and the label's
         * place differ. */
        const uint32_t whole = label.n >> 7, rest = label.n & 127;
        uint32_t j = label.index >> 7, in_block = label.index & 127;
        if (j == whole) {
            const uint32_t bit = 31 - __clz(rest ^ in_block);
            j = whole + __popc(rest >> bit) - 1;
            in_block &= (1u << bit) - 1;
        }
        const uint32_t rank = scratch.leaf_rank[scratch.leaf_of[8 * (label.length - 1) + j]] + in_block;
        s.rank_of_label[t] = (uint8_t)rank;
        s.label_of_rank[rank] = (uint8_t)t;
        if (t == 1) {
            s.escape_rank = rank;
        }
    } else if (t == 1) {
        s.escape_rank = GW_TREE_NO_RANK;
    }
    if (t == 0 && s.is_masked) {
        s.rank_of_label[0] = 0;
        s.label_of_rank[0] = 0;
    }
}

/* Nodes by depth, deepest first, and where each level starts. */
GW_DEVICE void gw_tree_levels(gw_cuda_tree &s, gw_tree_scratch &scratch, uint32_t t, uint32_t node_count,
                              uint32_t depth_max)
{
    const uint32_t level = t < node_count ? depth_max - s.node[t].depth : 16;
    const uint32_t place = gw_sort_place(scratch.count, level);
    if (t < node_count) {
        s.by_depth[place] = (uint8_t)t;
    }
    if (t < 16) {
        uint32_t start = 0; /* of level t, summed again: 16 threads, once a tree */
        for (uint32_t k = 0; k < t; k++) {
            for (uint32_t w = 0; w < GW_WARPS; w++) {
                start += scratch.count[w][k];
            }
        }
        if (t <= depth_max + 1) {
            s.level_start[t] = (uint8_t)start;
        }
    }
}

/* ---- zero masks ---------------------------------------------------------------------------------------- */

/* log2 of the number of bytes in a class. */
GW_DEVICE uint32_t gw_mask_width(uint32_t c)
{
    return c < 8 ? 0x24666530u >> 4 * c & 15 : c == 8;
}

/* Bytes by number of set bits, then by value (gcomp/mask_code.c), and the class of every byte. */
struct gw_mask_bytes {
    uint8_t order[256], class_of[256];
};

GW_HOST_DEVICE constexpr gw_mask_bytes gw_mask_bytes_make()
{
    gw_mask_bytes t = {};
    const int first[11] = {0, 1, 9, 41, 105, 169, 233, 249, 253, 255, 256};
    int n = 0, c = 0;
    for (int ones = 0; ones <= 8; ones++) {
        for (int byte = 0; byte < 256; byte++) {
            int found = 0;
            for (int bit = 0; bit < 8; bit++) {
                found += byte >> bit & 1;
            }
            if (found == ones) {
                c += n == first[c + 1];
                t.order[n] = (uint8_t)byte;
                t.class_of[byte] = (uint8_t)c;
                n++;
            }
        }
    }
    return t;
}

GW_LOOKUP gw_mask_bytes gw_mask_lookup = gw_mask_bytes_make();

/* Leaves and nodes from m.depth. By one warp. */
GW_DEVICE void gw_mask_tree_build(gw_mask_tree &m)
{
    const uint32_t lane = gw_lane();
    const uint32_t depth = lane < GW_MASK_CLASSES ? m.depth[lane] : 0;
    const uint32_t leaf_count = __popc(__ballot_sync(GW_FULL_MASK, depth != 0));
    uint32_t leaf = 0;
    GW_NO_UNROLL
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint32_t other = __shfl_sync(GW_FULL_MASK, depth, c);
        leaf += other != 0 && (other < depth || (other == depth && c < lane));
    }
    if (depth != 0) {
        m.leaf_depth[leaf] = (uint8_t)(leaf_count == 1 ? 0 : depth);
        m.leaf_width[leaf] = (uint8_t)gw_mask_width(lane);
    }
    if (lane < GW_MASK_CLASSES) {
        m.leaf_of_class[lane] = (uint8_t)(depth != 0 ? leaf : 255);
    }
    __syncwarp();
    gw_tree_number_leaves(m, leaf_count);
    __syncwarp();
    if (lane < leaf_count) {
        gw_tree_nodes(m, m, lane, leaf_count);
    }
    __syncwarp();
    const uint32_t node_count = 2 * leaf_count - 1, depth_max = m.leaf_depth[leaf_count - 1];
    const uint32_t own = lane < node_count ? m.node[lane].depth : 0;
    uint32_t place = 0, start = 0; /* of node `lane` among all, of level `lane` */
    GW_NO_UNROLL
    for (uint32_t n = 0; n < node_count; n++) {
        const uint32_t other = m.node[n].depth;
        place += other > own || (other == own && n < lane);
        start += depth_max - other < lane;
    }
    if (lane < node_count) {
        m.by_depth[place] = (uint8_t)lane;
    }
    if (lane < 16) {
        m.level_start[lane] = (uint8_t)start;
    }
    if (lane == 0) {
        m.node_count = node_count;
        m.inner_count = leaf_count - 1;
        m.depth_max = depth_max;
    }
}

/* The leaf after those of node n. A node of depth d covers 2^(12 - d) codes from that of its first leaf on.
 */
GW_DEVICE uint32_t gw_mask_leaf_end(const gw_mask_tree &m, uint32_t n)
{
    const uint32_t leaf_count = m.inner_count + 1, first = m.node[n].first_leaf;
    const uint32_t end = m.leaf_code[first] + (1u << (GW_TREE_DEPTH_MAX - m.node[n].depth));
    uint32_t leaf = first + 1;
    GW_NO_UNROLL
    while (leaf < leaf_count && m.leaf_code[leaf] < end) {
        leaf++;
    }
    return leaf;
}

/* Ranks and bytes of the leaves; thread t has byte t of the order. */
GW_DEVICE void gw_mask_tree_ranks(gw_mask_tree &m)
{
    const uint32_t t = gw_thread_now(), byte = gw_mask_lookup.order[t], c = gw_mask_lookup.class_of[byte];
    uint32_t first = 0;
    GW_UNROLL
    for (uint32_t i = 0; i < GW_MASK_CLASSES; i++) {
        first += i < c ? 1u << gw_mask_width(i) : 0;
    }
    const uint32_t leaf = m.leaf_of_class[c];
    const uint32_t rank = leaf == 255 ? 0 : m.leaf_rank[leaf] + t - first;
    m.rank_of_byte[byte] = (uint8_t)rank;
    if (leaf != 255) {
        m.byte_of_rank[rank] = (uint8_t)byte;
    }
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* Builds the tree of s.length, which is complete (docs/format.md section 5.1), and if s.is_masked that of
 * s.mask.depth; window_start is not changed. Begins and ends with a barrier. */
GW_DEVICE void gw_cuda_tree_build(gw_cuda_tree &s, gw_tree_scratch &scratch)
{
    const uint32_t t = gw_thread_now(), lane = t & 31, warp = t >> 5;
    gw_tree_label label;

    __syncthreads();
    label.length = s.length[t];
    const uint32_t coded = __ballot_sync(GW_FULL_MASK, label.length != 0);
    if (lane == 0) {
        s.has_code[warp] = coded | (warp == 0 ? s.is_masked : 0); /* bit 0: zero */
    }
    const uint32_t sorted = gw_sort_place(scratch.count, label.length == 0 ? 16 : label.length);
    uint32_t of_length = 0; /* lane l: number of labels of length l */
    GW_UNROLL
    for (uint32_t w = 0; w < GW_WARPS; w++) {
        of_length += lane < 16 ? scratch.count[w][lane] : 0;
    }
    const uint32_t upto = gw_warp_scan(of_length);
    const uint32_t label_count = __shfl_sync(GW_FULL_MASK, upto, 15);
    label.n = __shfl_sync(GW_FULL_MASK, of_length, label.length & 15);
    label.index = sorted - (__shfl_sync(GW_FULL_MASK, upto, label.length & 15) - label.n);

    const uint32_t leaf_count = gw_tree_leaves(scratch, of_length, label_count, s.is_masked);
    if (warp == 0) {
        gw_tree_number_leaves(scratch, leaf_count);
    } else if (warp == 1 && s.is_masked) {
        gw_mask_tree_build(s.mask);
    }
    __syncthreads();
    if (t < leaf_count) {
        gw_tree_nodes(s, scratch, t, leaf_count);
    }
    gw_tree_rank(s, scratch, t, label);
    if (s.is_masked) {
        gw_mask_tree_ranks(s.mask);
    }
    __syncthreads();

    const uint32_t node_count = 2 * leaf_count - 1;
    const uint32_t depth_max = scratch.leaf_depth[leaf_count - 1];
    gw_tree_levels(s, scratch, t, node_count, depth_max);
    if (t == 0) {
        s.node_count = node_count;
        s.inner_count = leaf_count - 1;
        s.depth_max = depth_max;
        s.label_count = label_count + s.is_masked;
    }
    __syncthreads();
}

/* A tree to and from global memory, 16 bytes a thread; both are aligned
 * to 16. Without a barrier. */
static_assert(GW_CUDA_TREE_SIZE == sizeof(gw_cuda_tree) && GW_CUDA_TREE_SIZE <= 16 * GW_THREADS &&
                  sizeof(gw_cuda_group_codebook) % 16 == 0 &&
                  offsetof(gw_cuda_group_codebook, tree) % 16 == 0,
              "a tree is copied by 16 bytes, once a thread");

GW_DEVICE void gw_tree_store(uint8_t *dst, const gw_cuda_tree &s)
{
    if (16 * threadIdx.x < GW_CUDA_TREE_SIZE) {
        *(uint4 *)(void *)(dst + 16 * threadIdx.x) = gw_shared_load128(gw_place_of(&s) + 16 * threadIdx.x);
    }
}

GW_DEVICE void gw_tree_load(gw_cuda_tree &s, const uint8_t *src)
{
    if (16 * threadIdx.x < GW_CUDA_TREE_SIZE) {
        gw_shared_store128(gw_place_of(&s) + 16 * threadIdx.x,
                           *(const uint4 *)(const void *)(src + 16 * threadIdx.x));
    }
}

/* What codebooks a frame may have: gw_codebook_kind of core. */
struct gw_cuda_codebook_kind {
    uint32_t is_fp16;
    uint32_t derived;         /* labels are exponents alone */
    uint32_t may_be_relative; /* derived, and every value has a quantum */
};

enum { GW_CODEBOOK_MASK_SIZE = 8, GW_CODEBOOK_MASKED = 15 };

/* If n nibbles of lengths, a thread's each, make a complete code, or are a single one of length 1; `length`
 * is 0 for threads without one. By the block. */
GW_DEVICE bool gw_is_code_complete(uint32_t length, uint32_t *sums)
{
    /* Kraft sum (at most 256 * 2^10) and, above it, the number of codes. */
    const uint32_t share =
        length == 0 || length > GW_TREE_CODE_LEN ? 0 : 1u << (GW_TREE_CODE_LEN - length) | 1u << 20;
    uint32_t all;
    gw_block_scan(share, sums, &all);
    return (all & 0xfffff) == 1u << GW_TREE_CODE_LEN ||
           (all >> 20 == 1 && (all & 0xfffff) == 1u << (GW_TREE_CODE_LEN - 1));
}

/* Reads the code lengths of the classes of a zero mask. True to a thread that finds an error. By the block.
 */
GW_DEVICE bool gw_mask_read(gw_mask_tree &m, const uint8_t *bytes, uint32_t *sums)
{
    const uint32_t t = gw_thread_now();
    uint32_t depth = 0;
    if (t < GW_MASK_CLASSES) {
        depth = (uint32_t)bytes[t / 2] >> (t % 2 * 4) & 15;
        m.depth[t] = (uint8_t)depth;
    }
    const bool bad =
        depth > GW_TREE_CODE_LEN || (t >= GW_MASK_CLASSES / 2 && t < GW_CODEBOOK_MASK_SIZE && bytes[t] != 0);
    return !gw_is_code_complete(depth, sums) || bad;
}

/*
 * Rule 20 of docs/format.md section 8 for the codebook whose first `size` bytes (or 140, if there are more)
 * are in `bytes`, in shared memory. Returns, to all threads, its size in bytes, or 0 if it breaks the rule;
 * sets s.length, s.window_start, s.is_masked and s.mask.depth. Begins and ends with a barrier.
 */
GW_DEVICE uint32_t gw_cuda_codebook_read(gw_cuda_tree &s, const uint8_t *bytes, uint64_t size,
                                         const gw_cuda_codebook_kind &kind, uint32_t *sums)
{
    const uint32_t t = gw_thread_now(), is_fp16 = kind.is_fp16, derived = kind.derived;
    __syncthreads();
    if (size < 4) {
        return 0;
    }
    const uint32_t window_start = bytes[0], first = bytes[1], last = bytes[2], special = bytes[3];
    const bool has_window = !is_fp16 && !derived, is_masked = (special & 15) == GW_CODEBOOK_MASKED;
    bool bad = window_start > (has_window             ? 191u
                               : kind.may_be_relative ? 1u
                                                      : 0u) ||
               (first == 0 ? last != 0 : last < first || first < 2);
    const uint32_t nibbles = first == 0 || bad ? 0 : last - first + 1;
    const uint32_t end = 4 + (nibbles + 1) / 2, labels_size = (end + 3) & ~3u;
    const uint32_t codebook_size = labels_size + (is_masked ? (uint32_t)GW_CODEBOOK_MASK_SIZE : 0);
    bad = bad || size < codebook_size;
    if (bad) {
        return 0; /* the same for all threads */
    }
    uint32_t length = 0;
    if (t < 2) {
        length = t == 0 && is_masked ? 0 : special >> 4 * t & 15;
    } else if (nibbles != 0 && t >= first && t <= last) {
        const uint32_t at = t - first;
        length = (uint32_t)bytes[4 + at / 2] >> (at % 2 * 4) & 15;
        const bool possible = derived ? !is_fp16 || t <= 32 : t >= 4 && (!is_fp16 || t < 128);
        bad = (length != 0 && !possible) || (length == 0 && (t == first || t == last));
    }
    bad = bad || length > GW_TREE_CODE_LEN;
    if (t == 0 && nibbles % 2 != 0) {
        bad = bad || bytes[4 + nibbles / 2] >> 4 != 0;
    }
    if (t >= end && t < labels_size) {
        bad = bad || bytes[t] != 0;
    }
    s.length[t] = (uint8_t)length;
    if (t == 0) {
        s.window_start = window_start;
        s.is_masked = is_masked;
    }
    bad = !gw_is_code_complete(length, sums) || bad;
    if (is_masked) {
        bad = gw_mask_read(s.mask, bytes + labels_size, sums) || bad;
    }
    return __syncthreads_or(bad) ? 0 : codebook_size;
}

/* If the codebook that was read has codes for whatever may come: zero, the escape, all bytes of a mask.
 * After a barrier. */
GW_DEVICE bool gw_has_all_codes(const gw_cuda_tree &s)
{
    bool has_all = s.length[1] != 0 && (s.is_masked || s.length[0] != 0);
    if (s.is_masked) {
        GW_NO_UNROLL
        for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
            has_all = has_all && s.mask.depth[c] != 0;
        }
    }
    return has_all;
}

#endif
