/*
 * Makes code lengths and a serialised codebook from counts, by a block of 256 threads (docs/format.md
 * section 5.1, docs/encoder-profile.md).
 *
 * Package-merge (Larmore and Hirschberg 1990) in rows: a row merges the sorted leaves with the packages of
 * the row below, which are sorted, too, so the place of an item is its index in its own list plus the number
 * of items of the other list that come before it, a binary search. A leaf comes before a package of equal
 * weight.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_CODEBOOK_CUH
#define GW_CUDA_GCOMP_CODEBOOK_CUH

#include "cuda/gcomp_frame.cuh"

struct gw_codebook_state {
    uint32_t count[256];  /* by label */
    uint32_t weight[256]; /* of the labels that occur, in their order */
    uint32_t leaf[256];   /* sorted */
    uint32_t package[256];
    uint32_t row[2][512];
    uint32_t is_package[GW_TREE_CODE_LEN][16];
    uint32_t taken_leaves[GW_TREE_CODE_LEN];
    uint32_t sums[GW_WARPS];
    uint8_t label[256], leaf_label[256];
    uint8_t length[256]; /* result, by label */
    alignas(4) uint8_t bytes[GW_CUDA_CODEBOOK_SIZE_MAX + 4];
    uint32_t size;
    uint32_t window_start; /* the first byte */
    uint32_t is_masked;
    uint8_t mask_depth[12]; /* by class, if is_masked */
};

/* Items of a sorted list that are below x, or (or_equal) not above it. */
GW_DEVICE uint32_t gw_count_below(const uint32_t *list, uint32_t count, uint32_t x, bool or_equal)
{
    uint32_t low = 0, high = count;
    GW_NO_UNROLL
    while (low < high) {
        const uint32_t at = (low + high) >> 1;
        if (list[at] < x || (or_equal && list[at] == x)) {
            low = at + 1;
        } else {
            high = at;
        }
    }
    return low;
}

/* Sorts the n weights into s.leaf, and into row 0, the deepest. */
GW_DEVICE void gw_codebook_sort(gw_codebook_state &s, uint32_t n)
{
    const uint32_t t = threadIdx.x;
    if (t < n) {
        const uint32_t weight = s.weight[t];
        uint32_t place = 0;
        GW_NO_UNROLL
        for (uint32_t j = 0; j < n; j++) {
            place += s.weight[j] < weight || (s.weight[j] == weight && j < t);
        }
        s.leaf[place] = weight;
        s.leaf_label[place] = s.label[t];
        s.row[0][place] = weight;
    }
}

/* The rows above the deepest: which items are packages. Ends with a barrier. */
GW_DEVICE void gw_codebook_rows(gw_codebook_state &s, uint32_t n)
{
    const uint32_t t = threadIdx.x;
    uint32_t below_len = n;
    uint32_t from = 0;
    GW_NO_UNROLL
    for (uint32_t level = GW_TREE_CODE_LEN - 1; level > 0; level--) {
        const uint32_t packages = below_len / 2;
        if (t < 16) {
            s.is_package[level - 1][t] = 0;
        }
        if (level == GW_TREE_CODE_LEN - 1 && t >= 16 && t < 32) {
            s.is_package[GW_TREE_CODE_LEN - 1][t - 16] = 0; /* the deepest row holds leaves only */
        }
        __syncthreads();
        if (t < packages) {
            s.package[t] = s.row[from][2 * t] + s.row[from][2 * t + 1];
        }
        __syncthreads();
        if (t < n) {
            const uint32_t weight = s.leaf[t];
            s.row[from ^ 1][t + gw_count_below(s.package, packages, weight, false)] = weight;
        }
        if (t < packages) {
            const uint32_t weight = s.package[t];
            const uint32_t place = t + gw_count_below(s.leaf, n, weight, true);
            s.row[from ^ 1][place] = weight;
            atomicOr(&s.is_package[level - 1][place >> 5], 1u << (place & 31));
        }
        from ^= 1;
        below_len = n + packages;
        __syncthreads();
    }
}

/* The first 2n - 2 items of the top row are taken: a taken leaf adds one to its length; taken packages are
 * the first pairs of the row below. Leaves are taken in order, so a row has only a number of them. By one
 * warp. */
GW_DEVICE void gw_codebook_take(gw_codebook_state &s, uint32_t n)
{
    const uint32_t lane = gw_lane();
    uint32_t taken = 2 * n - 2;
    GW_NO_UNROLL
    for (uint32_t level = 0; level < GW_TREE_CODE_LEN; level++) {
        const uint32_t left = taken > 32 * lane ? taken - 32 * lane : 0;
        const uint32_t mask = left >= 32 ? ~0u : (1u << left) - 1;
        const uint32_t packages =
            __reduce_add_sync(GW_FULL_MASK, lane < 16 ? __popc(s.is_package[level][lane] & mask) : 0);
        if (lane == 0) {
            s.taken_leaves[level] = taken - packages;
        }
        taken = 2 * packages;
    }
}

/* s.length from s.count, whose sum is below 2^32 / 11. Begins and ends with a barrier. */
GW_DEVICE void gw_cuda_codebook_lengths(gw_codebook_state &s)
{
    const uint32_t t = threadIdx.x;
    __syncthreads();
    const uint32_t count = s.count[t];
    uint32_t n;
    const uint32_t before = gw_block_scan(count != 0, s.sums, &n);
    if (count != 0) {
        s.weight[before] = count;
        s.label[before] = (uint8_t)t;
    }
    s.length[t] = 0;
    __syncthreads();
    if (n <= 1) {
        if (t == 0 && n == 1) {
            s.length[s.label[0]] = 1;
        }
        __syncthreads();
        return;
    }
    gw_codebook_sort(s, n);
    gw_codebook_rows(s, n);
    if (t < 32) {
        gw_codebook_take(s, n);
    }
    __syncthreads();
    if (t < n) {
        uint32_t length = 0;
        GW_UNROLL
        for (uint32_t level = 0; level < GW_TREE_CODE_LEN; level++) {
            length += t < s.taken_leaves[level] ? 1 : 0;
        }
        s.length[s.leaf_label[t]] = (uint8_t)length;
    }
    __syncthreads();
}

/* s.bytes and s.size from s.length, s.window_start and s.is_masked with s.mask_depth. Ends with a barrier. */
GW_DEVICE void gw_cuda_codebook_write(gw_codebook_state &s)
{
    const uint32_t t = threadIdx.x;
    const uint32_t coded = __ballot_sync(GW_FULL_MASK, t > 1 && s.length[t] != 0);
    __syncthreads();
    if (gw_lane() == 0) {
        s.sums[t >> 5] = coded;
    }
    __syncthreads();
    uint32_t first = 0, last = 0;
    GW_UNROLL
    for (uint32_t w = 0; w < GW_WARPS; w++) {
        const uint32_t labels = s.sums[w];
        if (labels != 0) {
            first = first == 0 ? 32 * w + __ffs(labels) - 1 : first;
            last = 32 * w + 31 - __clz(labels);
        }
    }
    const uint32_t labels_size = first == 0 ? 4 : 4 + (((last - first + 2) / 2 + 3) & ~3u);
    const uint32_t size = labels_size + (s.is_masked ? (uint32_t)GW_CODEBOOK_MASK_SIZE : 0);
    if (t < GW_CUDA_CODEBOOK_SIZE_MAX) {
        uint32_t byte = 0;
        if (t < 4) {
            byte = t == 0   ? s.window_start
                   : t == 1 ? first
                   : t == 2 ? last
                            : (s.is_masked ? (uint32_t)GW_CODEBOOK_MASKED : s.length[0]) |
                                  (uint32_t)s.length[1] << 4;
        } else if (t >= labels_size) {
            const uint32_t c = 2 * (t - labels_size);
            byte =
                s.is_masked && c < GW_MASK_CLASSES ? s.mask_depth[c] | (uint32_t)s.mask_depth[c + 1] << 4 : 0;
        } else if (first != 0) {
            const uint32_t label = first + 2 * (t - 4);
            byte = (label <= last ? s.length[label & 255] : 0) |
                   (label + 1 <= last ? (uint32_t)s.length[(label + 1) & 255] << 4 : 0);
        }
        s.bytes[t] = (uint8_t)byte;
    }
    if (t == 0) {
        s.size = size;
    }
    __syncthreads();
}

/*
 * The codebook of the counts: `count` is that of label t, mask_count that of class t, which are looked at if
 * zeros are masked. s.window_start is set. Begins and ends with a barrier.
 */
GW_DEVICE void gw_cuda_codebook_make(gw_codebook_state &s, uint32_t count, uint32_t mask_count,
                                     bool is_masked)
{
    const uint32_t t = threadIdx.x;
    __syncthreads();
    if (t == 0) {
        s.is_masked = is_masked;
    }
    if (is_masked) {
        s.count[t] = t < GW_MASK_CLASSES ? mask_count : 0;
        gw_cuda_codebook_lengths(s);
        if (t < GW_MASK_CLASSES) {
            s.mask_depth[t] = s.length[t];
        }
        __syncthreads();
    }
    s.count[t] = t == 0 && is_masked ? 0 : count;
    gw_cuda_codebook_lengths(s);
    gw_cuda_codebook_write(s);
}

/* The tree of the codebook of s, but for what gw_cuda_tree_build() makes. */
GW_DEVICE void gw_cuda_codebook_place_leaves(gw_cuda_tree &tree, const gw_codebook_state &s)
{
    const uint32_t t = threadIdx.x;
    tree.length[t] = s.length[t];
    if (t < GW_MASK_CLASSES) {
        tree.mask.depth[t] = s.mask_depth[t];
    }
    if (t == 0) {
        tree.window_start = s.window_start;
        tree.is_masked = s.is_masked;
    }
}

/* ---- costs: src/gcomp/codebook_choice.c
 * -------------------------------------------------------------------- */

/* Sum over the threads of the block, to all of them; x < 2^48. */
GW_DEVICE uint64_t gw_block_sum64(uint64_t x, uint32_t *sums)
{
    uint64_t sum;
    gw_block_scan64<24>(x, sums, &sum);
    return sum;
}

/* 256 * log2(x), straight lines between powers of two. x is not 0. */
GW_DEVICE uint32_t gw_log2_of(uint32_t x)
{
    const uint32_t k = 31 - __clz(x), rest = x - (1u << k);
    return 256 * k + (k <= 8 ? rest << (8 - k) : rest >> (k - 8));
}

/* A code of whole bits spends at least one. */
GW_DEVICE uint64_t gw_cost_of(uint32_t count, uint32_t log2_sum)
{
    const uint32_t bits = count == 0 ? 0 : log2_sum - gw_log2_of(count);
    return (uint64_t)count * (bits < 256 ? 256 : bits);
}

/* Estimated bits, times 256, of coding labels; count: of the thread's label, 0 if that is left out. The sum
 * is below 2^32. By the block. */
GW_DEVICE uint64_t gw_cuda_labels_cost(uint32_t count, uint32_t *sums)
{
    uint32_t sum;
    gw_block_scan(count, sums, &sum);
    const uint32_t used = (uint32_t)__syncthreads_count(count != 0);
    return used < 2 ? 0 : gw_block_sum64(gw_cost_of(count, gw_log2_of(sum)), sums);
}

/*
 * gw_is_mask_better() of core: `count` is that of label t, mask_count of class t, zeros of label 0; len: all
 * values counted; overhead: bits, times 256, that the mask costs in any case. By the block.
 */
GW_DEVICE bool gw_cuda_is_mask_better(uint32_t count, uint32_t mask_count, uint32_t zeros, uint32_t len,
                                      uint64_t overhead, uint32_t *sums)
{
    const uint32_t t = threadIdx.x;
    if (2 * (uint64_t)zeros < len) {
        return false;
    }
    const uint32_t of_class = t < GW_MASK_CLASSES ? mask_count : 0;
    uint32_t bytes;
    gw_block_scan(of_class, sums, &bytes);
    const uint64_t code = of_class == bytes || of_class == 0 ? 0 : gw_cost_of(of_class, gw_log2_of(bytes));
    const uint64_t width = t < GW_MASK_CLASSES ? gw_mask_width(t) : 0;
    const uint64_t masked = gw_block_sum64(code + 256 * width * of_class, sums) +
                            gw_cuda_labels_cost(t == 0 ? 0 : count, sums) + overhead;
    const uint64_t plain = gw_cuda_labels_cost(count, sums);
    return masked < plain - plain / 32;
}

enum { GW_MASK_OVERHEAD_BITS = 448 }; /* a chunk: code lengths, counts, padding of runs */

/* Counts of classes of 64 bytes at most, six bits each. */
GW_DEVICE uint64_t gw_mask_class_bit(uint32_t byte)
{
    return (uint64_t)1 << 6 * gw_mask_lookup.class_of[byte];
}

/* Adds the packed counts of all threads to count[GW_MASK_CLASSES]. All lanes of a warp call it. */
GW_DEVICE void gw_mask_add_classes(uint32_t *count, uint64_t packed)
{
    GW_NO_UNROLL
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint32_t all = __reduce_add_sync(GW_FULL_MASK, (uint32_t)(packed >> 6 * c) & 63);
        if (gw_lane() == 0 && all != 0) {
            atomicAdd(&count[c], all);
        }
    }
}

/* ---- bins ---------------------------------------------------------------------------------------------- */

/* Window for the largest ordinary exponent field (docs/encoder-profile.md). */
GW_DEVICE uint32_t gw_window_of(uint32_t largest)
{
    const uint32_t window_start = largest + 4 > 63 ? largest + 4 - 63 : 0;
    return window_start < 191 ? window_start : 191;
}

/* Label of a bin, 4 * exponent field + drop steps; 1 where there is none. gw_label_of_bin() of core. */
GW_DEVICE uint32_t gw_cuda_label_of_bin(uint32_t bin, uint32_t dtype, uint32_t derived, uint32_t window_start)
{
    const uint32_t e = bin >> 2;
    if (dtype == GW_FP16) {
        return bin == 1023 ? 0 : e >= 31 ? 1 : derived ? e + 2 : 4 * (e + 1) + (bin & 3);
    }
    if (e == 0) {
        return bin == 0 ? 0 : 1;
    }
    if (e >= 255) {
        return 1;
    }
    if (derived) {
        return e + 1;
    }
    return e > window_start && e - window_start <= 63 ? 4 * (e - window_start) + (bin & 3) : 1;
}

/* Largest ordinary exponent field among the bins, 0 if there is none, to all threads; has(bin) says if a
 * bin has values. */
template <typename HAS> GW_DEVICE uint32_t gw_largest_exponent(uint32_t *sums, uint32_t special, HAS has)
{
    const uint32_t t = threadIdx.x; /* exponent field t */
    const bool occurs =
        t >= 1 && t < special && (has(4 * t) || has(4 * t + 1) || has(4 * t + 2) || has(4 * t + 3));
    return gw_block_max(occurs ? t : 0, sums);
}

#endif
