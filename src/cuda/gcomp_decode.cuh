/*
 * Decode of one chunk by a block of 256 threads: docs/format.md sections 3 to 5, rules 18 to 26 of section 8.
 *
 * The chunk is copied to shared memory. From its counts every thread works out one node of the tree; then the
 * nodes of one depth are produced together from those one deeper, in two byte arrays that alternate:
 *
 *   inner node  a thread merges 32 consecutive ranks, one word of the bitmap. Where its left and right ranks
 *               start follows from the set bits before the word: a sum over the lanes of the warp, and over
 *               the tasks (32 words each) of the node, counted beforehand. Eight ranks at a time: a byte of
 *               the bitmap picks two byte permutations.
 *   leaf        a thread unpacks 32 numbers of k bits, k words.
 *   root        stays in registers; its owner looks up the 32 ranks, a block-wide sum of digit counts gives
 *               the places of its digits in the planes, and it assembles the values four by four.
 *
 * Set bits, counts and padding are checked before anything is addressed by them: with all counts right no
 * index leaves its array, whatever the bytes are, and if another agent changes them meanwhile, a place is
 * wrong by no more than the words of one task, which the arrays have to spare.
 *
 * A chunk that is too large for shared memory is read where it lies, with the arrays in the workspace: the
 * same code with pointers for places.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_DECODE_CUH
#define GW_CUDA_GCOMP_DECODE_CUH

#include "cuda/gcomp_round.cuh"

/* At most 32 a level of 2^15 values and one more for each node. */
enum { GW_TASKS_MAX = 32 * 11 + 32 + GW_TREE_NODES };

/* A node while its values are produced: byte offsets of its run, of its place and its children's in the
 * arrays. */
struct alignas(16) gw_node_work {
    uint32_t run, out, left, right;
    uint32_t first_task, words, kind,
        unused; /* kind: GW_KIND_INNER, or the width of a leaf and, from bit 8, its first rank */
};

enum { GW_KIND_INNER = 8 };

/* Where the values of a chunk go. */
struct gw_decode_out {
    uint8_t *dst;
    const uint8_t *addend; /* NULL: values are stored as they are */
    uint32_t strict;       /* of sums */
    uint32_t is_wide;      /* dst, and addend where there is one, are 16-byte aligned */
};

struct alignas(128) gw_decode_state {
    uint2 selector[256]; /* gw_selector_of() */
    uint32_t entry[256]; /* by rank, see gw_entry_of() */
    uint32_t flags[32];  /* derived: gw_digit_flags() by class */
    uint4 warp_sum[GW_WARPS];
    uint4 counted, counted_next; /* digits and escapes of the values so far, see gw_scan_counts() */
    uint32_t sums[GW_WARPS];
    alignas(16) uint8_t book[GW_CUDA_BOOK_SIZE_MAX + 12];
    gw_cuda_tree tree;
    gw_node_work node[GW_TREE_NODES];
    uint32_t len[GW_TREE_NODES];
    uint16_t task
        [GW_TASKS_MAX]; /* 32 words of a node: node | word / 32 << 8; by level, deepest first, root last */
    uint16_t task_ones[GW_TASKS_MAX + 8]; /* set bits of the tasks before, modulo 2^16 */
    uint16_t task_start[16];              /* by level */
    uint32_t plane_start[8];              /* bits from the first word of the chunk */
    uint32_t plane_len[8];
    uint32_t escape_start, escape_len; /* bytes; values */
    uint32_t exponent_base;            /* of labels */

    /* Of the chunk, by thread 0. */
    gw_decode_out out; /* of the pass over the values: here it costs no registers */
    uint64_t unit, index, offset, size, owner_offset, owner_size;
    uint64_t units;        /* of the whole call */
    const uint8_t *levels; /* of the chunk's first value */
    uint32_t item, kind, crc, book_crc, is_owner, status, is_last, slot;
    uint64_t book_owner; /* whose tree is in `tree`: item + 1 << 40 | chunk; 0: nobody's */
    uint32_t book_size;

    /* Two level arrays, then the chunk, to the end of the dynamic shared memory. */
    alignas(128) uint4 arrays[1];
};

/* ---- places -------------------------------------------------------------------------------------------- */

/* Places in shared memory: 32-bit addresses. */
struct gw_shared_space {
    static constexpr bool IS_SHARED = true;
    uint32_t base;
    GW_DEVICE_MEMBER uint32_t load8(uint32_t at) const
    {
        return gw_shared_load8(base + at);
    }
    GW_DEVICE_MEMBER uint32_t load32(uint32_t at) const
    {
        return gw_shared_load32(base + at);
    }
    GW_DEVICE_MEMBER void store128(uint32_t at, uint4 x) const
    {
        gw_shared_store128(base + at, x);
    }
};

/* Places in any memory; loads at `size` and beyond give 0, since a window reads up to two words more than
 * a frame has. */
struct gw_any_space {
    static constexpr bool IS_SHARED = false;
    uint8_t *base;
    uint32_t size;
    GW_DEVICE_MEMBER uint32_t load8(uint32_t at) const
    {
        return at < size ? base[at] : 0;
    }
    GW_DEVICE_MEMBER uint32_t load32(uint32_t at) const
    {
        return at < size ? *(const uint32_t *)(const void *)(base + at) : 0;
    }
    GW_DEVICE_MEMBER void store128(uint32_t at, uint4 x) const
    {
        *(uint4 *)(void *)(base + at) = x;
    }
};

/* 32 bits of a bit string from bit `at` on. */
template <typename SPACE> GW_DEVICE uint32_t gw_window(const SPACE &words, uint32_t at)
{
    const uint32_t word = at >> 5 << 2;
    return __funnelshift_r(words.load32(word), words.load32(word + 4), at);
}

GW_DEVICE uint32_t gw_byte_of(uint32_t x, uint32_t i)
{
    return __byte_perm(x, 0, 0x4440 + i);
}

/* ---- merge --------------------------------------------------------------------------------------------- */

/* What gw_merge32() looks up for a byte m of a bitmap: how to pick the first and the second four of eight
 * ranks from the next four left and right ones each, how many bits to shift the sides between (left: bits
 * 16 up of x; right: third byte of y), and how many go right. */
GW_DEVICE uint2 gw_selector_of(uint32_t m)
{
    uint32_t s[2];
    uint32_t ones[2];
    GW_UNROLL
    for (int h = 0; h < 2; h++) {
        uint32_t l = 0x10, r = 0x10 + 4; /* the extra bit lets a digit be shifted out */
        s[h] = 0;
        GW_UNROLL
        for (int j = 0; j < 4; j++) {
            const uint32_t bit = m >> (4 * h + j) & 1;
            s[h] |= ((bit ? r : l) & 7) << 4 * j;
            r += bit;
            l += 1 - bit;
        }
        ones[h] = r - 0x14;
    }
    const uint32_t p = ones[0];
    return make_uint2(s[0] | (32 - 8 * p) << 16, s[1] | 8 * p << 16 | (p + ones[1]) << 24);
}

/* out = 32 merged ranks. l, r: places of the next left and right rank. */
template <typename LEVEL>
GW_DEVICE void gw_merge32(uint32_t out[8], const LEVEL &level, uint32_t selectors, uint32_t l, uint32_t r,
                          uint32_t bits)
{
    const uint32_t both = l + r;
    GW_UNROLL
    for (int j = 0; j < 4; j++) {
        const uint2 s = gw_shared_load64(selectors + 8 * gw_byte_of(bits, j));
        const uint32_t lw = l & ~3u, rw = r & ~3u;
        const uint32_t l0 = level.load32(lw), l1 = level.load32(lw + 4), l2 = level.load32(lw + 8);
        const uint32_t r0 = level.load32(rw), r1 = level.load32(rw + 4), r2 = level.load32(rw + 8);
        const uint32_t la = __funnelshift_r(l0, l1, l << 3), lb = __funnelshift_r(l1, l2, l << 3);
        const uint32_t ra = __funnelshift_r(r0, r1, r << 3), rb = __funnelshift_r(r1, r2, r << 3);
        out[2 * j] = gw_permute(la, ra, s.x);
        /* The second four start behind what the first took. */
        out[2 * j + 1] = gw_permute(__funnelshift_rc(la, lb, s.x >> 16),
                                    __funnelshift_rc(ra, rb, gw_byte_of(s.y, 2)), s.y);
        r += s.y >> 24;
        l = both + 8 * (j + 1) - r;
    }
}

/* ---- leaves -------------------------------------------------------------------------------------------- */

/* 32 numbers of W bits from W words, plus add in every byte. */
template <int W, typename WORDS>
GW_DEVICE void gw_unpack32(uint32_t out[8], const WORDS &words, uint32_t at, uint32_t add)
{
    const uint32_t pair = (1u << 2 * W) - 1, one = (1u << W) - 1;
    uint32_t w[W + 1];
    GW_UNROLL
    for (int j = 0; j < W; j++) {
        w[j] = words.load32(at + 4 * j);
    }
    w[W] = 0;
    GW_UNROLL
    for (int j = 0; j < 8; j++) {
        const int bit = 4 * W * j;
        uint32_t x = bit % 32 + 4 * W <= 32 ? w[bit / 32] >> bit % 32
                                            : __funnelshift_r(w[bit / 32], w[bit / 32 + 1], bit % 32);
        x = (x & pair) + (x & pair << 2 * W) * (1u << (16 - 2 * W));
        x = (x & (one | one << 16)) + (x & (one | one << 16) << W) * (1u << (8 - W));
        out[j] = x + add;
    }
}

/* 32 numbers of width k from k words; what lies behind the end of a run (only in the last words of a node)
 * reads as anything: loads of shared memory stay inside, others are checked. */
template <typename WORDS>
GW_DEVICE void gw_unpack_any(uint32_t out[8], const WORDS &words, uint32_t run, uint32_t width, uint32_t word,
                             uint32_t add)
{
    const uint32_t at = run + 4 * width * word;
    switch (width) {
    case 1:
        gw_unpack32<1>(out, words, at, add);
        break;
    case 2:
        gw_unpack32<2>(out, words, at, add);
        break;
    case 3:
        gw_unpack32<3>(out, words, at, add);
        break;
    case 4:
        gw_unpack32<4>(out, words, at, add);
        break;
    case 5:
        gw_unpack32<5>(out, words, at, add);
        break;
    case 6:
        gw_unpack32<6>(out, words, at, add);
        break;
    case 7:
        gw_unpack32<7>(out, words, at, add);
        break;
    default:
        GW_UNROLL
        for (int j = 0; j < 8; j++) {
            out[j] = add;
        }
        break;
    }
}

/* ---- tables of a codebook ------------------------------------------------------------------------------ */

/* Class of a label, in the low bits of an entry: derived frames turn GW_CLASS_ORDINARY into itself plus
 * the octaves that may be dropped, an index of s.flags. */
enum {
    GW_CLASS_ZERO = 0,
    GW_CLASS_ORDINARY = 1,
    GW_CLASS_ESCAPE = 31,
    GW_ENTRY_ORDINARY = 1 << 5,
    GW_BIAS_ZERO = 2048
};

#define GW_ESCAPE_EXPLICIT (1u << 16)
#define GW_ESCAPE_DERIVED  (1u << 28)

/*
 * Entry of a label. Explicit: exponent in place, below it gw_digit_flags() (no bit above 12), and
 * GW_ESCAPE_EXPLICIT. Derived: exponent in place, class, and in bits 8 to 19 what a map byte has to be added
 * to to get the quarter-octaves of room: drop_base - (4 E + 3) (docs/format.md section 3), plus GW_BIAS_ZERO;
 * drop_base is that of a map, so this fits.
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_entry_of(uint32_t label, uint32_t derived, uint32_t base, int32_t drop_base)
{
    typedef gw_type<DTYPE> type;
    if (label == 0) {
        return derived ? (uint32_t)GW_CLASS_ZERO : 0;
    }
    if (label == 1) {
        return derived ? (uint32_t)GW_CLASS_ESCAPE : GW_ESCAPE_EXPLICIT;
    }
    if (derived) {
        const uint32_t e = label - (type::IS_FP16 ? 2 : 1);
        const uint32_t wide = type::IS_FP16 ? (e == 0 ? 1 : e) + type::BIAS : e;
        const uint32_t bias = (uint32_t)(drop_base - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO) & 0xfff;
        return e << type::EXPONENT_SHIFT | bias << 8 | GW_ENTRY_ORDINARY | GW_CLASS_ORDINARY;
    }
    const uint32_t e = type::IS_FP16 ? (label >> 2) - 1 : (label >> 2) + base;
    return e << type::EXPONENT_SHIFT | gw_digit_flags<DTYPE>(type::M + 1 - (label & 3) * type::STEP);
}

/* Octaves that map byte k lets a value of this exponent lose. */
GW_DEVICE uint32_t gw_octaves_of(uint32_t bias, uint32_t k, uint32_t cap)
{
    const int32_t octaves = ((int32_t)(k + bias) - GW_BIAS_ZERO) >> 2;
    const uint32_t some = octaves < 0 ? 0 : (uint32_t)octaves;
    return k == 0 ? 0 : some < cap ? some : cap;
}

/* Makes the tables of s.tree. */
template <uint32_t DTYPE>
GW_DEVICE void gw_decode_tables(gw_decode_state &s, const gw_cuda_frame_state &frame)
{
    typedef gw_type<DTYPE> type;
    const uint32_t t = gw_thread_now();
    if (t < s.tree.label_count) {
        s.entry[t] = gw_entry_of<DTYPE>(s.tree.label_of_rank[t], frame.levels, s.tree.base, frame.drop_base);
    }
    if (t < 32) {
        const uint32_t octaves = t - GW_CLASS_ORDINARY;
        const uint32_t drop =
            frame.constant ? frame.cap : octaves - octaves % (frame.step == 0 ? 1 : frame.step);
        s.flags[t] = t == GW_CLASS_ZERO     ? 0
                     : t == GW_CLASS_ESCAPE ? GW_ESCAPE_DERIVED
                     : octaves > frame.cap  ? 0
                                            : gw_digit_flags<DTYPE>(type::M + 1 - drop);
    }
    __syncthreads();
}

/* ---- parts --------------------------------------------------------------------------------------------- */

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

/*
 * Rules 21 to 23 of the chunk at words[0..size), which lies behind the codebook: lengths and places of all
 * parts, the tasks. Returns true, to all threads, if a rule is broken. Ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_parts(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t chunk_len,
                             uint32_t level_size)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    const uint32_t planes = DERIVED ? 7 : 4;
    const uint32_t node_count = tree.node_count, depth_max = tree.depth_max;
    const uint32_t size_words = size >> 2;
    const uint32_t halves = planes + 1 + tree.inner_count, header_words = (halves + 1) / 2;
    if (size_words < header_words) {
        return true;
    }
    const bool is_node = t < node_count;
    const gw_tree_node node = tree.node[is_node ? t : 0];
    const bool inner = node.right != 0;
    bool bad = (halves & 1) != 0 && gw_half_at(words, halves) != 0;

    /* Lengths, from the root down. */
    const gw_tree_node parent = tree.node[node.parent];
    uint32_t right_len = 0, parent_right = 0;
    if (is_node) {
        right_len = inner ? gw_half_at(words, planes + 1 + node.inner_index) : 0;
        parent_right = t == 0 ? 0 : gw_half_at(words, planes + 1 + parent.inner_index);
    }
    if (t == 0) {
        s.len[0] = chunk_len;
    }
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t d = 1; d <= depth_max; d++) {
        if (is_node && node.depth == d) {
            const uint32_t of_parent = s.len[node.parent];
            s.len[t] = node.is_right ? parent_right : of_parent - parent_right;
        }
        __syncthreads();
    }
    const uint32_t len = is_node ? s.len[t] : 0;
    bad = bad || (inner && is_node && right_len > len);
    if (t < 8) {
        const uint32_t count = t < planes + 1 ? gw_half_at(words, t) : 0;
        bad = bad || count > chunk_len;
        if (t < planes) {
            s.plane_len[t] = count;
        } else if (t == planes) {
            s.escape_len = count;
        }
    }
    if (__syncthreads_or(bad)) { /* sums below are bounded from here on */
        return true;
    }

    /* Runs in preorder, planes, escapes. */
    uint32_t run_words;
    const uint32_t run_bits = len * (inner ? 1 : node.width);
    const uint32_t run = header_words + gw_block_scan((run_bits + 31) >> 5, s.sums, &run_words);
    uint32_t at = header_words + run_words;
    uint32_t my_start = run,
             my_bits =
                 run_bits; /* what this thread checks the padding of: its node, then a plane, the escapes */
    uint32_t plane_at = 0, plane_bits = 0;
    GW_UNROLL
    for (uint32_t p = 0; p < planes; p++) {
        const uint32_t bits = gw_plane_width<DTYPE>(p) * s.plane_len[p];
        if (t == p) {
            s.plane_start[p] = 32 * at;
        }
        plane_at = t == p ? at : plane_at;
        plane_bits = t == p ? bits : plane_bits;
        at += (bits + 31) >> 5;
    }
    const uint32_t escape_bits = 8 * gw_type<DTYPE>::SIZE * s.escape_len;
    if (t == 0) {
        s.escape_start = 4 * at;
    }
    plane_at = t == 7 ? at : plane_at;
    plane_bits = t == 7 ? escape_bits : plane_bits;
    at += (escape_bits + 31) >> 5;
    if (at > size_words || size_words - at >= 4) {
        return true;
    }
    bad = is_node && !gw_is_padded(words, my_start, my_bits);
    bad = bad || (t < 8 && !gw_is_padded(words, plane_at, plane_bits));
    bad = bad || (t < size_words - at && words.load32(4 * (at + t)) != 0);

    /* Places in the level arrays, and tasks, in the order of by_depth: thread t now stands for the t-th
     * node of it. */
    const uint32_t n = is_node ? tree.by_depth[t] : 0;
    const uint32_t level = is_node ? depth_max - tree.node[n].depth : 0;
    const uint32_t n_len = is_node ? s.len[n] : 0;
    const uint32_t n_words = (n_len + 31) >> 5, n_tasks = (n_words + 31) >> 5;
    uint32_t all;
    const uint32_t before = gw_block_scan(n_words | n_tasks << 16, s.sums, &all);
    if (is_node && t == tree.level_start[level]) {
        s.task_start[level] = (uint16_t)(before >> 16);
    }
    if (is_node) {
        s.node[n].out = before & 0xffff; /* words before, for a moment */
        s.node[n].first_task = before >> 16;
        s.node[n].words = n_words;
        GW_NO_UNROLL
        for (uint32_t k = 0; k < n_tasks; k++) {
            s.task[(before >> 16) + k] = (uint16_t)(n | k << 8);
        }
    }
    const uint32_t tasks = all >> 16;
    if (t == 0) {
        s.task_start[depth_max + 1] = (uint16_t)tasks;
    }
    __syncthreads();
    uint32_t out = 0;
    if (is_node) {
        const uint32_t my_level = depth_max - node.depth;
        const uint32_t first = s.node[tree.by_depth[tree.level_start[my_level]]].out;
        out = (my_level & 1) * level_size + 32 * (s.node[t].out - first);
    }
    __syncthreads();
    if (is_node) {
        s.node[t].out = out;
        s.node[t].run = 4 * run;
        s.node[t].kind = inner ? (uint32_t)GW_KIND_INNER : node.width | (uint32_t)node.first_rank << 8;
    }
    __syncthreads();
    if (is_node && inner) {
        s.node[t].left = s.node[t + 1].out;
        s.node[t].right = s.node[node.right].out;
    }

    /* Set bits of every task, then of all tasks before. */
    GW_NO_UNROLL
    for (uint32_t task = warp; task < tasks; task += GW_WARPS) {
        const uint32_t what = s.task[task];
        const uint32_t of = what & 255, word = (what >> 8) * 32 + lane;
        uint32_t ones = 0;
        if (s.node[of].kind == GW_KIND_INNER && word < s.node[of].words) {
            ones = __popc(words.load32(s.node[of].run + 4 * word));
        }
        ones = __reduce_add_sync(GW_FULL_MASK, ones);
        if (lane == 0) {
            s.task_ones[task] = (uint16_t)ones;
        }
    }
    __syncthreads();
    uint32_t mine[3], sum = 0;
    GW_UNROLL
    for (uint32_t k = 0; k < 3; k++) {
        mine[k] = 3 * t + k < tasks ? s.task_ones[3 * t + k] : 0;
        sum += mine[k];
    }
    uint32_t ones_before = gw_block_scan(sum, s.sums, &all);
    GW_UNROLL
    for (uint32_t k = 0; k < 3; k++) {
        if (3 * t + k <= tasks) {
            s.task_ones[3 * t + k] = (uint16_t)ones_before;
        }
        ones_before += mine[k];
    }
    __syncthreads();
    if (is_node && inner) {
        const uint32_t first_task = s.node[t].first_task, end = first_task + ((s.node[t].words + 31) >> 5);
        bad = bad || ((s.task_ones[end] - s.task_ones[first_task]) & 0xffff) != right_len;
    }
    return __syncthreads_or(bad) != 0;
}

/* ---- escapes ------------------------------------------------------------------------------------------- */

/* Rule 26: could an encoder with this codebook have had to escape this value? bits: the value in the low
 * bits; k: its map byte (derived). gw_is_escape_allowed() of core. */
template <uint32_t DTYPE>
GW_DEVICE bool gw_is_escape_allowed(const gw_cuda_tree &tree, const gw_cuda_frame_state &frame, uint32_t bits,
                                    uint32_t k)
{
    typedef gw_type<DTYPE> type;
    const uint32_t magnitude = bits & (DTYPE == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    const uint32_t exponent = magnitude >> type::M;
    if (bits == 0) {
        return (tree.has_code[0] & 1) == 0;
    }
    if (exponent == type::SPECIAL) {
        return true;
    }
    if (magnitude == 0 || (exponent == 0 && !type::IS_FP16)) {
        return frame.strict != 0;
    }
    if (frame.levels) {
        const uint32_t wide = type::IS_FP16 ? (exponent == 0 ? 1 : exponent) + type::BIAS : exponent;
        uint32_t drop = frame.cap;
        if (!frame.constant) {
            drop = gw_octaves_of((uint32_t)(frame.drop_base - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO), k,
                                 frame.cap);
            drop -= drop % frame.step;
        }
        const uint32_t label = exponent + (type::IS_FP16 ? 2 : 1);
        return (magnitude & ((1u << drop) - 1)) == 0 && (tree.has_code[label >> 5] >> (label & 31) & 1) == 0;
    }
    GW_NO_UNROLL
    for (uint32_t level = 0; level < 4; level++) {
        if ((magnitude & ((1u << level * type::STEP) - 1)) != 0) {
            break;
        }
        const uint32_t x = type::IS_FP16 ? exponent + 1 : exponent - tree.base;
        if ((!type::IS_FP16 && (exponent <= tree.base || x > 63)) ||
            (tree.has_code[(4 * x + level) >> 5] >> ((4 * x + level) & 31) & 1) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

GW_DEVICE uint32_t gw_flush_bits(uint32_t bits, uint32_t strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

GW_DEVICE uint32_t gw_widen_half(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) {
        return sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
    }
    if (magnitude >= 0x400) {
        return sign | ((magnitude << 13) + (112u << 23));
    }
    if (magnitude == 0) {
        return sign;
    }
    /* Subnormal: the leading one moves to where fp32 has its hidden bit. */
    const uint32_t shift = __clz(magnitude) - 21;
    magnitude <<= shift;
    return sign | (113 - shift) << 23 | (magnitude & 0x3ff) << 13;
}

/* `bits` is not NaN; to nearest, ties to even. */
GW_DEVICE uint32_t gw_narrow_half(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000u) { /* 65520, halfway between the largest finite value and 2^16 */
        return sign | 0x7c00;
    }
    if (magnitude >= 0x38800000u) { /* 2^-14: normal */
        magnitude -= 112u << 23;
        return sign | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below 2^-25, half of the smallest subnormal */
        return sign;
    }
    const uint32_t m = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t shift = 126 - exponent;
    return sign | (m + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift;
}

/* docs/numerics.md section 5; a is the accumulator's value, b the frame's. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_of(uint32_t a, uint32_t b, uint32_t strict)
{
    if (DTYPE == GW_FP16) {
        a = gw_widen_half(a);
        b = gw_widen_half(b);
    } else {
        a = gw_flush_bits(DTYPE == GW_BF16 ? a << 16 : a, strict);
        b = gw_flush_bits(DTYPE == GW_BF16 ? b << 16 : b, strict);
    }
    uint32_t sum = __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
    const bool nan = (sum & 0x7fffffff) > 0x7f800000u;
    if (DTYPE == GW_FP16) {
        sum = nan ? 0x7e00 : gw_narrow_half(sum);
        return !strict && sum == 0x8000 ? 0 : sum;
    }
    sum = nan ? 0x7fc00000u : gw_flush_bits(sum, strict);
    return DTYPE == GW_BF16 && !nan ? (sum + 0x7fff + (sum >> 16 & 1)) >> 16
           : DTYPE == GW_BF16       ? sum >> 16
                                    : sum;
}

template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_word(uint32_t a, uint32_t b, uint32_t strict)
{
    return DTYPE == GW_FP32 ? gw_sum_of<DTYPE>(a, b, strict)
                            : gw_sum_of<DTYPE>(a & 0xffff, b & 0xffff, strict) |
                                  gw_sum_of<DTYPE>(a >> 16, b >> 16, strict) << 16;
}

/* ---- output -------------------------------------------------------------------------------------------- */

/* 16 bytes of values to byte `at` of the chunk, of which `size` (0 to 16) exist. */
template <uint32_t DTYPE>
GW_DEVICE void gw_store_values(const gw_decode_out &out, uint32_t at, uint4 x, uint32_t size)
{
    if (out.is_wide && size >= 16) {
        if (out.addend != nullptr) {
            const uint4 a = *(const uint4 *)(const void *)(out.addend + at);
            x = make_uint4(gw_sum_word<DTYPE>(a.x, x.x, out.strict), gw_sum_word<DTYPE>(a.y, x.y, out.strict),
                           gw_sum_word<DTYPE>(a.z, x.z, out.strict),
                           gw_sum_word<DTYPE>(a.w, x.w, out.strict));
        }
        *(uint4 *)(void *)(out.dst + at) = x;
        return;
    }
    GW_NO_UNROLL
    for (uint32_t i = 0; i < 16 && i < size; i += gw_type<DTYPE>::SIZE) {
        const uint32_t word = i < 8 ? (i < 4 ? x.x : x.y) : i < 12 ? x.z : x.w;
        if (DTYPE == GW_FP32) {
            const uint32_t a =
                out.addend == nullptr ? 0 : *(const uint32_t *)(const void *)(out.addend + at + i);
            *(uint32_t *)(void *)(out.dst + at + i) =
                out.addend == nullptr ? word : gw_sum_of<DTYPE>(a, word, out.strict);
        } else {
            const uint32_t v = (i & 2) != 0 ? word >> 16 : word & 0xffff;
            const uint32_t a =
                out.addend == nullptr ? 0 : *(const uint16_t *)(const void *)(out.addend + at + i);
            *(uint16_t *)(void *)(out.dst + at + i) =
                (uint16_t)(out.addend == nullptr ? v : gw_sum_of<DTYPE>(a, v, out.strict));
        }
    }
}

/* ---- join ---------------------------------------------------------------------------------------------- */

/* Digits and escapes of some values, 16 bits each: planes 1 | 2, 3 | 4, R4 | R2 (explicit: escapes), R1 |
 * escapes. */
struct gw_counts {
    uint32_t a, b, c, d;
};

GW_DEVICE gw_counts gw_unpack_counts(uint4 x)
{
    const gw_counts counts = {x.x, x.y, x.z, x.w};
    return counts;
}

/*
 * Sums over the threads before this one and all calls before; in *total over all threads, too. The sums so
 * far wait in s.counted, not in registers: thread 0 brings them up to date at the beginning of a round,
 * behind its barrier.
 */
template <bool DERIVED>
GW_DEVICE gw_counts gw_scan_counts(gw_decode_state &s, gw_counts mine, gw_counts *total)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    gw_counts x = mine;
    GW_UNROLL
    for (uint32_t d = 1; d < 32; d *= 2) {
        const uint32_t a = __shfl_up_sync(GW_FULL_MASK, x.a, d);
        const uint32_t b = __shfl_up_sync(GW_FULL_MASK, x.b, d);
        const uint32_t c = __shfl_up_sync(GW_FULL_MASK, x.c, d);
        const uint32_t e = DERIVED ? __shfl_up_sync(GW_FULL_MASK, x.d, d) : 0;
        if (lane >= d) {
            x.a += a;
            x.b += b;
            x.c += c;
            x.d += e;
        }
    }
    if (lane == 31) {
        s.warp_sum[warp] = make_uint4(x.a, x.b, x.c, x.d);
    }
    __syncthreads();
    gw_counts carry = gw_unpack_counts(s.counted);
    gw_counts before = {carry.a + x.a - mine.a, carry.b + x.b - mine.b, carry.c + x.c - mine.c,
                        carry.d + x.d - mine.d};
    GW_UNROLL
    for (uint32_t v = 0; v < GW_WARPS; v++) {
        const uint4 sum = s.warp_sum[v];
        if (v < warp) {
            before.a += sum.x;
            before.b += sum.y;
            before.c += sum.z;
            before.d += sum.w;
        }
        carry.a += sum.x;
        carry.b += sum.y;
        carry.c += sum.z;
        carry.d += sum.w;
    }
    if (threadIdx.x == 0) {
        s.counted_next = make_uint4(carry.a, carry.b, carry.c, carry.d);
    }
    *total = carry;
    return before;
}

/* Adds the sum of eight values' flags to the bytes of even and odd nibbles. */
template <bool DERIVED> GW_DEVICE void gw_add_flags(uint32_t &even, uint32_t &odd, uint32_t sum)
{
    even += sum & (DERIVED ? 0x0f0f0f0fu : 0x000f0f0fu);
    odd += sum >> 4 & (DERIVED ? 0x0f0f0f0fu : 0x00000f0fu);
}

GW_DEVICE gw_counts gw_counts_of(uint32_t even, uint32_t odd)
{
    gw_counts x;
    x.a = (even & 255) | (odd & 255) << 16;
    x.b = (even >> 8 & 255) | (odd & 0xff00) << 8;
    x.c = (even >> 16 & 255) | (odd & 0xff0000);
    x.d = even >> 24 | odd >> 24 << 16;
    return x;
}

/* The whole of the counts, as the header of the chunk announces them. */
template <bool DERIVED> GW_DEVICE gw_counts gw_announced(const gw_decode_state &s)
{
    gw_counts x;
    x.a = s.plane_len[0] | s.plane_len[1] << 16;
    x.b = s.plane_len[2] | s.plane_len[3] << 16;
    x.c = DERIVED ? s.plane_len[4] | s.plane_len[5] << 16 : s.escape_len;
    x.d = DERIVED ? s.plane_len[6] | s.escape_len << 16 : 0;
    return x;
}

/* Both halves of x are at most those of y. */
GW_DEVICE bool gw_is_within(uint32_t x, uint32_t y)
{
    return (x & 0xffff) <= (y & 0xffff) && x >> 16 <= y >> 16;
}

GW_DEVICE bool gw_is_within(const gw_counts &x, const gw_counts &y)
{
    return gw_is_within(x.a, y.a) && gw_is_within(x.b, y.b) && gw_is_within(x.c, y.c) &&
           gw_is_within(x.d, y.d);
}

/* A digit of w for each of four values that have one in this plane. */
template <uint32_t FLAG, uint32_t WIDTH>
GW_DEVICE void gw_push_digits(uint32_t z[4], uint32_t w, const uint32_t g[4])
{
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        gw_push_digit<FLAG, WIDTH>(z[i], w, g[i]);
    }
}

/*
 * Root, look-up, places of the digits, values: 8192 at a time, 32 a thread. Rules 24 to 26: returns true, to
 * all threads, if one is broken. Values go to s.out, if
 * `stores`. Begins with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename LEVEL>
GW_DEVICE bool gw_join_chunk(gw_decode_state &s, const gw_cuda_frame_state &frame, const WORDS &words,
                             const LEVEL &level, uint32_t stage_base, uint32_t chunk_len, bool stores)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t BATCH = 64 / type::SIZE; /* values of a thread that are staged together */
    constexpr uint32_t ESCAPE = DERIVED ? GW_ESCAPE_DERIVED : GW_ESCAPE_EXPLICIT;
    /* Entries wait in registers. Places in any memory take more of those, and there is no speed to lose. */
    constexpr bool KEEPS = !DERIVED && WORDS::IS_SHARED;
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t entries = gw_place_of(s.entry), selectors = gw_place_of(s.selector),
                   flags = gw_place_of(s.flags);
    const uint32_t stage = stage_base + 2048 * warp; /* 64 bytes a lane */
    /* Quarters of 16 bytes change places so that no two lanes of a store or load meet in a bank. */
    const uint32_t mine_at = stage + 64 * lane + 16 * (lane >> 1 & 3);
    const uint32_t all_at = stage + 64 * (lane >> 2) + 16 * ((lane & 3) ^ (lane >> 3 & 3));
    const uint32_t cap = frame.cap;
    const bool constant = frame.constant != 0;
    bool bad = false;

    GW_NO_UNROLL
    for (uint32_t first = 0; first < chunk_len; first += 32 * GW_THREADS) {
        __syncthreads();
        if (tid == 0) {
            s.counted = first == 0 ? make_uint4(0, 0, 0, 0) : s.counted_next;
        }
        const bool is_whole = chunk_len - first >= 32 * GW_THREADS; /* of 8192 values none is missing */
        const uint32_t word = first / 32 + tid;
        const uint32_t valid =
            32 * word < chunk_len ? (chunk_len - 32 * word < 32 ? chunk_len - 32 * word : 32) : 0;
        const gw_node_work &root = s.node[0];
        uint32_t x[8];
        GW_UNROLL
        for (int j = 0; j < 8; j++) {
            x[j] = 0;
        }
        if (root.kind == GW_KIND_INNER) {
            const uint32_t bits = valid != 0 ? words.load32(root.run + 4 * word) : 0;
            const uint32_t count = __popc(bits);
            const uint32_t in_warp = gw_warp_scan(count) - count;
            if (valid != 0) {
                const uint32_t task = root.first_task + (word >> 5);
                const uint32_t ones =
                    (((uint32_t)s.task_ones[task] - s.task_ones[root.first_task]) & 0xffff) + in_warp;
                gw_merge32(x, level, selectors, root.left + 32 * word - ones, root.right + ones, bits);
            }
        } else if (valid != 0) {
            gw_unpack_any(x, words, root.run, root.kind & 15, word, (root.kind >> 8) * 0x01010101u);
        }

        /* Entries: exponent in place, and (explicit) flags or (derived) the index of flags. A derived one
         * is worked out again when its value is assembled, and its map byte is read again (it is near by
         * then): ranks take fewer registers. */
        uint32_t e[KEEPS ? 32 : 1], k[4] = {0, 0, 0, 0};
        uint32_t even = 0, odd = 0;
        const auto load_levels =
            [&](uint32_t half) { /* map bytes of 16 values */
                                 const uint32_t left = valid > 16 * half ? valid - 16 * half : 0;
                                 gw_load_levels(
                                     k, s.levels + (left != 0 ? 32 * (uint64_t)word + 16 * half : 0), left);
            };
        const auto derived_entry = [&](uint32_t i) {
            const uint32_t entry = gw_shared_load32(entries + 4 * gw_byte_of(x[i / 4], i % 4));
            const uint32_t octaves =
                constant ? cap : gw_octaves_of(entry >> 8 & 0xfff, gw_byte_of(k[i / 4 % 4], i % 4), cap);
            const uint32_t index = (entry & 31) + ((entry & GW_ENTRY_ORDINARY) != 0 ? octaves : 0);
            return i < valid ? (entry & ~type::MANTISSA) | index : 0;
        };
        const auto explicit_entry = [&](uint32_t i, bool has_all) {
            const uint32_t entry = gw_shared_load32(entries + 4 * gw_byte_of(x[i / 4], i % 4));
            return has_all || i < valid ? entry : 0;
        };
        const auto look_up = [&](bool has_all) {
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t sum = 0;
                if (DERIVED && !constant && j % 2 == 0) {
                    load_levels(j / 2);
                }
                GW_UNROLL
                for (uint32_t i = 8 * j; i < 8 * j + 8; i++) {
                    if (DERIVED) {
                        sum += gw_shared_load32(flags + 4 * (derived_entry(i) & 31));
                    } else {
                        const uint32_t entry = explicit_entry(i, has_all);
                        e[KEEPS ? i : 0] = entry;
                        sum += entry;
                    }
                }
                gw_add_flags<DERIVED>(even, odd, sum);
            }
        };
        if (KEEPS && is_whole) {
            look_up(true);
        } else {
            look_up(false);
        }
        gw_counts upto;
        const gw_counts at = gw_scan_counts<DERIVED>(s, gw_counts_of(even, odd), &upto);
        if (!gw_is_within(upto, gw_announced<DERIVED>(
                                    s))) { /* the same for all threads: no digit is read beyond a plane */
            return true;
        }

        const uint32_t w1 = type::W1, w2 = type::W2;
        uint32_t b1 = s.plane_start[0] + w1 * (at.a & 0xffff), b2 = s.plane_start[1] + w2 * (at.a >> 16);
        uint32_t b3 = s.plane_start[2] + w2 * (at.b & 0xffff), b4 = s.plane_start[3] + w2 * (at.b >> 16);
        uint32_t c4 = 0, c2 = 0, c1 = 0;
        if (DERIVED) {
            c4 = s.plane_start[4] + 4 * (at.c & 0xffff);
            c2 = s.plane_start[5] + 2 * (at.c >> 16);
            c1 = s.plane_start[6] + (at.d & 0xffff);
        }
        uint32_t escape = s.escape_start + type::SIZE * (DERIVED ? at.d >> 16 : at.c & 0xffff);

        GW_UNROLL
        for (uint32_t batch = 0; batch < 32 / BATCH; batch++) {
            uint32_t escapes = 0; /* of the batch, by value */
            uint32_t packed[4];
            GW_UNROLL
            for (uint32_t j = 0; j < BATCH / 4; j++) {
                uint32_t f[4], g[4], sum = 0;
                if (DERIVED && !constant && j % 4 == 0) {
                    load_levels((BATCH * batch + 4 * j) / 16);
                }
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t at_i = BATCH * batch + 4 * j + i;
                    f[i] = DERIVED ? derived_entry(at_i)
                           : KEEPS ? e[KEEPS ? at_i : 0]
                                   : explicit_entry(at_i, false);
                    g[i] = DERIVED ? gw_shared_load32(flags + 4 * (f[i] & 31)) : f[i];
                    sum += g[i];
                }
                /* The digits of a value, last one first, pushed in at the top; plane after plane. */
                uint32_t z[4] = {0, 0, 0, 0}, v[4], w;
                if (DERIVED) {
                    w = gw_window(words, c1);
                    c1 += sum >> 24 & 15;
                    gw_push_digits<1 << 24, 1>(z, w, g);
                    w = gw_window(words, c2);
                    c2 += 2 * (sum >> 20 & 15);
                    gw_push_digits<1 << 20, 2>(z, w, g);
                    w = gw_window(words, c4);
                    c4 += 4 * (sum >> 16 & 15);
                    gw_push_digits<1 << 16, 4>(z, w, g);
                }
                if ((sum >> 12 & 15) != 0) { /* few values keep all their bits, or all do */
                    w = gw_window(words, b4);
                    b4 += w2 * (sum >> 12 & 15);
                    gw_push_digits<1 << 12, type::W2>(z, w, g);
                }
                w = gw_window(words, b3);
                b3 += w2 * (sum >> 8 & 15);
                gw_push_digits<1 << 8, type::W2>(z, w, g);
                w = gw_window(words, b2);
                b2 += w2 * (sum >> 4 & 15);
                gw_push_digits<1 << 4, type::W2>(z, w, g);
                w = gw_window(words, b1);
                b1 += w1 * (sum & 15);
                gw_push_digits<1, type::W1>(z, w, g);
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    v[i] = gw_select_bits<0x80000000u>(
                        z[i], gw_select_bits<type::MANTISSA>(z[i] >> (31 - type::EXPONENT_SHIFT), f[i]));
                    if (type::IS_FP16) { /* rule 25 */
                        bad = bad || ((v[i] & 0x7fff0000u) == 0 &&
                                      (g[i] & ~ESCAPE & (DERIVED ? 0xffffffffu : 0xffffu)) != 0);
                    }
                }
                /* Bit 8 i + j of escapes: value 4 j + i of the batch. */
                constexpr uint32_t BYTE = DERIVED ? 3 : 2, PAIR = BYTE | (BYTE + 4) << 4;
                const uint32_t four =
                    __byte_perm(__byte_perm(g[0], g[1], PAIR), __byte_perm(g[2], g[3], PAIR), 0x5410);
                escapes += (DERIVED ? four >> 4 & 0x01010101u : four & 0x01010101u) << j;
                if (type::SIZE == 4) {
                    gw_shared_store128(mine_at ^ 16 * j, make_uint4(v[0], v[1], v[2], v[3]));
                } else {
                    packed[2 * (j & 1)] = __byte_perm(v[0], v[1], 0x7632);
                    packed[2 * (j & 1) + 1] = __byte_perm(v[2], v[3], 0x7632);
                    if ((j & 1) != 0) {
                        gw_shared_store128(mine_at ^ 16 * (j / 2),
                                           make_uint4(packed[0], packed[1], packed[2], packed[3]));
                    }
                }
            }
            /* Escapes are few: their values are mended where they lie, in the order of the values. */
            uint32_t pending = 0;
            if (escapes != 0) {
                GW_NO_UNROLL
                for (uint32_t j = 0; j < BATCH / 4; j++) {
                    pending |= ((escapes >> j & 0x01010101u) * 0x10204080u >> 28) << 4 * j;
                }
            }
            GW_NO_UNROLL
            while (pending != 0) {
                const uint32_t i = __ffs(pending) - 1;
                pending &= pending - 1;
                const uint32_t value = 32 * word + BATCH * batch + i;
                const uint32_t pair = words.load32(escape & ~3u);
                const uint32_t bits = type::SIZE == 4 ? pair : pair >> 8 * (escape & 2) & 0xffff;
                escape += type::SIZE;
                const uint32_t byte = i * type::SIZE;
                const uint32_t place = (mine_at ^ (byte & 48)) + (byte & 12);
                if (type::SIZE == 4) {
                    gw_shared_store32(place, bits);
                } else {
                    const uint32_t old = gw_shared_load32(place);
                    gw_shared_store32(place, (byte & 2) != 0 ? (old & 0xffff) | bits << 16
                                                             : (old & 0xffff0000u) | bits);
                }
                const uint32_t map_byte = DERIVED && !constant ? s.levels[value] : 0;
                bad = bad || !gw_is_escape_allowed<DTYPE>(s.tree, frame, bits, map_byte);
            }
            __syncwarp();
            if (stores && is_whole && s.out.is_wide && s.out.addend == nullptr) {
                const uint32_t value =
                    first + 1024 * warp + 32 * (lane >> 2) + BATCH * batch + (lane & 3) * (16 / type::SIZE);
                uint8_t *const dst = s.out.dst + value * type::SIZE;
                GW_UNROLL
                for (uint32_t j = 0; j < 4; j++) {
                    *(uint4 *)(void *)(dst + 256 * type::SIZE * j) = gw_shared_load128(all_at + 512 * j);
                }
            } else if (stores) {
                GW_NO_UNROLL
                for (uint32_t j = 0; j < 4; j++) {
                    const uint32_t owner = 8 * j + (lane >> 2);
                    const uint32_t value =
                        first + 1024 * warp + 32 * owner + BATCH * batch + (lane & 3) * (16 / type::SIZE);
                    const uint32_t left = value < chunk_len ? (chunk_len - value) * type::SIZE : 0;
                    if (left != 0) {
                        gw_store_values<DTYPE>(s.out, value * type::SIZE, gw_shared_load128(all_at + 512 * j),
                                               left);
                    }
                }
            }
            __syncwarp();
        }
    }
    const gw_counts announced = gw_announced<DERIVED>(s);
    __syncthreads();
    const gw_counts carry = gw_unpack_counts(s.counted_next);
    bad = bad || carry.a != announced.a || carry.b != announced.b || carry.c != announced.c ||
          carry.d != announced.d;
    return __syncthreads_or(bad) != 0;
}

/* ---- CODED chunk --------------------------------------------------------------------------------------- */

/*
 * Decodes the CODED chunk at words[0..size), codebook not included, with the tables of its codebook. Stores
 * to out once everything is right if `is_checked_first`, else at once. stage: 16 KiB of shared memory, which
 * may be the array of level that the root would go to. Returns true, to all threads, if a rule is broken.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename LEVEL>
GW_DEVICE bool gw_decode_coded(gw_decode_state &s, const gw_cuda_frame_state &frame, const WORDS &words,
                               const LEVEL &level, uint32_t size, uint32_t chunk_len, uint32_t level_size,
                               uint32_t stage, bool is_checked_first)
{
    if (gw_find_parts<DTYPE, DERIVED>(s, words, size, chunk_len, level_size)) {
        return true;
    }
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t selectors = gw_place_of(s.selector);
    const uint32_t depth_max = s.tree.depth_max;
    GW_NO_UNROLL
    for (uint32_t step = 0; step < depth_max; step++) {
        const uint32_t end = s.task_start[step + 1];
        GW_NO_UNROLL
        for (uint32_t task = s.task_start[step] + warp; task < end; task += GW_WARPS) {
            const uint32_t what = s.task[task];
            const gw_node_work &node = s.node[what & 255];
            const uint32_t word = (what >> 8) * 32 + lane;
            const bool active = word < node.words;
            uint32_t x[8];
            if (node.kind == GW_KIND_INNER) {
                const uint32_t bits = active ? words.load32(node.run + 4 * word) : 0;
                const uint32_t count = __popc(bits);
                const uint32_t in_warp = gw_warp_scan(count) - count;
                const uint32_t ones =
                    (((uint32_t)s.task_ones[task] - s.task_ones[node.first_task]) & 0xffff) + in_warp;
                if (active) {
                    gw_merge32(x, level, selectors, node.left + 32 * word - ones, node.right + ones, bits);
                }
            } else if (active) {
                gw_unpack_any(x, words, node.run, node.kind & 15, word, (node.kind >> 8) * 0x01010101u);
            }
            if (active) {
                level.store128(node.out + 32 * word, make_uint4(x[0], x[1], x[2], x[3]));
                level.store128(node.out + 32 * word + 16, make_uint4(x[4], x[5], x[6], x[7]));
            }
        }
        __syncthreads();
    }
    bool bad = false;
    GW_NO_UNROLL
    for (uint32_t pass = is_checked_first ? 0 : 1; pass < 2 && !bad; pass++) {
        const bool stores = pass != 0 && s.out.dst != nullptr;
        bad = gw_join_chunk<DTYPE, DERIVED>(s, frame, words, level, stage, chunk_len, stores);
    }
    return bad;
}

/* ---- chunk --------------------------------------------------------------------------------------------- */

/* Bytes of dynamic shared memory in front of the arrays, and what a read of the copied chunk may go beyond
 * its end. */
enum { GW_DECODE_FIXED = offsetof(gw_decode_state, arrays), GW_DECODE_SLACK = 1088 };

static_assert(GW_DECODE_FIXED + GW_DECODE_SLACK <= GW_CUDA_DECODE_FIXED_MAX, "the host reserves enough");

GW_DEVICE uint32_t gw_level_size(uint32_t chunk_log2)
{
    const uint32_t size = GW_CUDA_LEVEL_SIZE(chunk_log2);
    return size < GW_CUDA_LEVEL_SIZE_MIN ? GW_CUDA_LEVEL_SIZE_MIN : size;
}

/* Once in the life of a block. */
GW_DEVICE void gw_decode_begin(gw_decode_state &s)
{
    const uint32_t t = gw_thread_now();
    s.selector[t] = gw_selector_of(t);
    if (t == 0) {
        s.book_owner = 0;
    }
    __syncthreads();
}

/* Copies up to 132 bytes of a codebook, at src, to s.book. Ends with a barrier. */
GW_DEVICE void gw_book_fetch(gw_decode_state &s, const uint8_t *src, uint64_t size)
{
    __syncthreads();
    const uint32_t t = gw_thread_now();
    if (t < GW_CUDA_BOOK_SIZE_MAX && t < size) {
        s.book[t] = src[t];
    }
    __syncthreads();
}

/*
 * Makes tree and tables of the codebook of the chunk in s (its owner is at s.owner_offset) unless they are
 * there. Returns its size, 0 if rule 20 is broken; an installed one has size 4 here.
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_book_use(gw_decode_state &s, const gw_cuda_codec &codec,
                               const gw_cuda_frame_state &frame, const uint8_t *src, uint64_t owner)
{
    if (s.book_owner == owner) {
        return s.book_size;
    }
    uint32_t size;
    if (frame.installed) {
        const gw_cuda_book &book = codec.book[frame.book];
        const uint32_t book_size = book.size_at != nullptr ? *book.size_at : book.size;
        gw_book_fetch(s, book.bytes != nullptr ? book.bytes : book.inline_bytes, book_size);
        size = gw_cuda_book_read(s.tree, s.book, book_size, gw_type<DTYPE>::IS_FP16, frame.levels, s.sums);
    } else {
        gw_book_fetch(s, src + s.owner_offset, s.owner_size);
        size = gw_cuda_book_read(s.tree, s.book, s.owner_size, gw_type<DTYPE>::IS_FP16, frame.levels, s.sums);
    }
    if (size != 0) {
        gw_cuda_tree_build(s.tree);
        gw_decode_tables<DTYPE>(s, frame);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s.book_owner = size == 0 ? 0 : owner;
        s.book_size = size;
    }
    __syncthreads();
    return size;
}

/* A chunk that is copied as it is, or is zero. size: bytes of values. */
template <uint32_t DTYPE>
GW_DEVICE void gw_decode_plain(const uint8_t *src, uint32_t size, const gw_decode_out &out)
{
    GW_NO_UNROLL
    for (uint32_t at = 16 * threadIdx.x; at < size; at += 16 * GW_THREADS) {
        const uint4 x = src == nullptr ? make_uint4(0, 0, 0, 0) : *(const uint4 *)(const void *)(src + at);
        gw_store_values<DTYPE>(out, at, x, size - at);
    }
}

/* Which chunks a call of gw_cuda_decode_chunk() can decode. What is left out of the first kind takes more
 * registers. */
enum gw_decode_paths {
    GW_DECODE_NEAR, /* all but CODED ones of derived frames and those too large for shared memory */
    GW_DECODE_REST, /* only those */
    GW_DECODE_ALL
};

enum { GW_DECODE_DEFERRED = 255 }; /* a chunk that the paths leave out; nothing was touched */

/* What surrounds a chunk. */
struct gw_decode_call {
    const gw_cuda_codec &codec;
    const gw_cuda_frame_state &frame;
    const uint8_t *src;
    const uint8_t *levels; /* of the frame's first value */
    uint32_t shared_size;  /* of the block */
    uint8_t *large;        /* a slot for chunks that do not fit it, see gw_decode_copy_room() */
    uint64_t owner_key; /* added to a chunk's index: what tells codebooks of different frames apart; not 0 */
};

/* Bytes of shared memory that are left for a copy of the chunk; 0: its level arrays do not fit, and a slot
 * is needed. */
GW_DEVICE uint32_t gw_decode_copy_room(uint32_t shared_size, uint32_t chunk_log2)
{
    const uint32_t fixed = GW_DECODE_FIXED + 2 * gw_level_size(chunk_log2) + GW_DECODE_SLACK;
    return shared_size > fixed ? shared_size - fixed : 0;
}

/* The chunk does not fit the block's shared memory with its level arrays. */
GW_DEVICE bool gw_decode_is_far(const gw_decode_call &c, uint64_t size)
{
    return size > gw_decode_copy_room(c.shared_size, c.frame.chunk_log2);
}

/* A chunk that is not far: copied to shared memory. A codebook in front (skip) is a multiple of 4 bytes;
 * it is copied, too. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_decode_near(gw_decode_state &s, const gw_decode_call &c, const uint8_t *src, uint32_t size,
                              uint32_t skip, uint32_t chunk_len, bool is_checked_first)
{
    const uint32_t level_size = gw_level_size(c.frame.chunk_log2);
    const uint32_t arrays = gw_place_of(s.arrays), copy = arrays + 2 * level_size;
    GW_NO_UNROLL
    for (uint32_t at = 16 * threadIdx.x; at < size; at += 16 * GW_THREADS) {
        gw_copy_async16(copy + at, src + at);
    }
    gw_copy_wait();
    __syncthreads();
    const gw_shared_space words = {copy + skip}, level = {arrays};
    return gw_decode_coded<DTYPE, DERIVED>(s, c.frame, words, level, size - skip, chunk_len, level_size,
                                           arrays + (s.tree.depth_max & 1) * level_size, is_checked_first);
}

/* Any chunk: read where it lies. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_decode_far(gw_decode_state &s, const gw_decode_call &c, const uint8_t *src, uint32_t size,
                             uint32_t skip, uint32_t chunk_len, bool is_checked_first)
{
    const uint32_t level_size = gw_level_size(c.frame.chunk_log2);
    const bool has_room = gw_decode_copy_room(c.shared_size, c.frame.chunk_log2) != 0;
    const uint32_t arrays = gw_place_of(s.arrays);
    const gw_any_space words = {(uint8_t *)(uintptr_t)src + skip, size - skip};
    const gw_any_space level = {has_room ? (uint8_t *)s.arrays : c.large, 2 * level_size};
    return gw_decode_coded<DTYPE, DERIVED>(s, c.frame, words, level, size - skip, chunk_len, level_size,
                                           has_room ? arrays + (s.tree.depth_max & 1) * level_size : arrays,
                                           is_checked_first);
}

/*
 * Decodes chunk `index` of a frame whose front was accepted; out.dst is the place of the chunk's first value
 * (NULL: only check). GW_OK, GW_ERR_CORRUPT or GW_ERR_CHECKSUM, to all threads; then out.dst holds anything,
 * unless is_checked_first: then it is as it was. All 256 threads of the block call it. Begins and ends with a
 * barrier.
 */
template <uint32_t DTYPE, gw_decode_paths PATHS>
GW_DEVICE uint32_t gw_cuda_decode_chunk(gw_decode_state &s, const gw_decode_call &c, uint64_t index,
                                        const gw_decode_out &out, bool is_checked_first)
{
    const gw_cuda_frame_state &frame = c.frame;
    const uint32_t chunk_len =
        (uint32_t)(frame.len - (index << frame.chunk_log2) < (uint64_t)1 << frame.chunk_log2
                       ? frame.len - (index << frame.chunk_log2)
                       : (uint64_t)1 << frame.chunk_log2);
    const uint32_t value_size = chunk_len * gw_type<DTYPE>::SIZE, raw_size = (value_size + 15) & ~15u;
    __syncthreads();
    if (threadIdx.x == 0) {
        /* Read once, by one thread: whatever happens to the bytes meanwhile, the block is of one mind. */
        gw_chunk_entry e = {0, 0, 0, 0, 0}, owner = {0, 0, 0, 0, 0};
        bool good = gw_entry_read(e, c.src, frame.directory_offset, frame.payload_offset, frame.frame_size,
                                  frame.chunk_count, frame.installed != 0, index);
        s.is_owner = good && e.kind == GW_CHUNK_CODED && !frame.installed && e.book == index;
        if (good && e.kind == GW_CHUNK_CODED && !frame.installed) {
            good = gw_entry_read(owner, c.src, frame.directory_offset, frame.payload_offset, frame.frame_size,
                                 frame.chunk_count, false, e.book);
        }
        s.out = out;
        s.levels = c.levels == nullptr ? nullptr : c.levels + (index << frame.chunk_log2);
        s.index = index;
        s.kind = good ? e.kind : 255;
        s.offset = e.offset;
        s.size = e.size;
        s.crc = e.crc;
        s.owner_offset = s.is_owner ? e.offset : owner.offset;
        s.owner_size = s.is_owner ? e.size : owner.size;
        s.book_crc = e.book;
    }
    __syncthreads();
    const uint32_t kind = s.kind;
    const uint64_t size = s.size;
    const uint8_t *data = c.src + s.offset;
    if (kind > GW_CHUNK_CODED) {
        return GW_ERR_CORRUPT;
    }
    const bool is_far = gw_decode_is_far(c, size);
    if (PATHS == GW_DECODE_NEAR && kind == GW_CHUNK_CODED && (frame.levels != 0 || is_far)) {
        return GW_DECODE_DEFERRED;
    }
    const bool is_owner = s.is_owner != 0;
    const uint32_t crc = s.crc, owner = s.book_crc;
    if (frame.checksum && (kind != GW_CHUNK_CODED || is_owner || frame.installed)) {
        const uint32_t found =
            gw_cuda_crc32c(0, size >> 2, s.sums, [=](uint64_t i) { return gw_read32(data + 4 * i); });
        if (found != crc) {
            return GW_ERR_CHECKSUM;
        }
    }
    if (kind == GW_CHUNK_ZERO) {
        if (size != 0) {
            return GW_ERR_CORRUPT;
        }
        if (out.dst != nullptr) {
            gw_decode_plain<DTYPE>(nullptr, value_size, out);
        }
        return GW_OK;
    }
    if (kind == GW_CHUNK_RAW) {
        if (size != raw_size ||
            __syncthreads_or(threadIdx.x < raw_size - value_size && data[value_size + threadIdx.x] != 0)) {
            return GW_ERR_CORRUPT;
        }
        if (out.dst != nullptr) {
            gw_decode_plain<DTYPE>(data, value_size, out);
        }
        return GW_OK;
    }
    const uint32_t book_size =
        gw_book_use<DTYPE>(s, c.codec, frame, c.src, c.owner_key + (frame.installed ? 0 : owner));
    if (book_size == 0) {
        return GW_ERR_CORRUPT;
    }
    if (frame.checksum && !is_owner && !frame.installed) {
        const uint32_t book_words = book_size >> 2;
        const uint8_t *book = c.src + s.owner_offset;
        const uint32_t found = gw_cuda_crc32c(0, book_words + (size >> 2), s.sums, [=](uint64_t i) {
            return i < book_words ? gw_read32(book + 4 * i) : gw_read32(data + 4 * (i - book_words));
        });
        if (found != crc) {
            return GW_ERR_CHECKSUM;
        }
    }
    const uint32_t skip = is_owner ? book_size : 0;
    if (size >= raw_size || size < skip) {
        return GW_ERR_CORRUPT;
    }
    bool bad;
    if (PATHS == GW_DECODE_NEAR) {
        bad = gw_decode_near<DTYPE, false>(s, c, data, (uint32_t)size, skip, chunk_len, is_checked_first);
    } else if (frame.levels != 0) {
        bad =
            is_far
                ? gw_decode_far<DTYPE, true>(s, c, data, (uint32_t)size, skip, chunk_len, is_checked_first)
                : gw_decode_near<DTYPE, true>(s, c, data, (uint32_t)size, skip, chunk_len, is_checked_first);
    } else if (PATHS == GW_DECODE_REST || is_far) {
        bad = gw_decode_far<DTYPE, false>(s, c, data, (uint32_t)size, skip, chunk_len, is_checked_first);
    } else {
        bad = gw_decode_near<DTYPE, false>(s, c, data, (uint32_t)size, skip, chunk_len, is_checked_first);
    }
    return bad ? GW_ERR_CORRUPT : GW_OK;
}

#endif
