/*
 * A CODED chunk of docs/format.md (fp32, explicit, 16 K values) decoded by one block of 256 threads,
 * bottom-up: the nodes
 * of one depth are produced together from those one deeper, in two byte buffers of shared memory that
 * alternate.
 *
 *   inner node  a thread merges 32 consecutive values = one word of the bitmap; where its left and right
 * values start
 *               follows from a prefix sum of set bits over all runs. Eight values at a time: a byte of the
 * bitmap picks
 *               two byte-permute selectors from a table.
 *   flat leaf   a thread unpacks 32 numbers of k bits = k words.
 *   root        stays in registers; its owner looks up the 32 values, a block-wide prefix sum of digit
 * counts gives the
 *               places of its digits in the planes, and it walks the values four by four.
 *
 * The codebook comes parsed (lay_gpu_book), as a small kernel per codebook would leave it. Checks of the
 * format (set bits,
 * counts, padding) are in, but for rule 26.
 *
 * Compiled by a C++ compiler this file is a program that runs the kernel with threads for lanes (see below)
 * to show that
 * the code that is counted decodes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdint.h>

#ifndef STREAM
#define STREAM                                                                                               \
    0 /* 1: mantissas as one stream of variable length instead of digit planes (a variant to compare) */
#endif
#ifndef MERGE
#define MERGE 8 /* values merged per step: 8, 4 (one selector) or 1 (byte by byte) */
#endif

#if defined(__CUDACC__)
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define INLINE __device__ __forceinline__
#define BOTH   __host__ __device__ inline
extern __shared__ __align__(128) uint4 shared_memory[];
#define SHARED (*(shared_state *)shared_memory)
#define TID    threadIdx.x
#define BLOCK  blockIdx.x

INLINE void store_shared(uint32_t a, uint32_t x)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(a), "r"(x) : "memory");
}

/* Loads by 32-bit address of shared memory: the base is part of the address and costs no addition at every
 * access. */
INLINE uint32_t address_of(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

INLINE uint32_t load_shared(uint32_t a)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(a));
    return x;
}

INLINE uint32_t load_shared(uint32_t a, uint32_t offset)
{
    return load_shared(a + offset); /* the assembler makes it part of the instruction */
}

INLINE uint32_t load_shared8(uint32_t a)
{
    uint32_t x;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(x) : "r"(a));
    return x;
}

INLINE uint32_t load_shared16(uint32_t a)
{
    uint32_t x;
    asm volatile("{ .reg .u16 t; ld.shared.u16 t, [%1]; cvt.u32.u16 %0, t; }" : "=r"(x) : "r"(a));
    return x;
}

INLINE uint2 load_shared2(uint32_t a)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(a));
    return x;
}

INLINE uint4 load_shared4(uint32_t a)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(a));
    return x;
}

INLINE void store_shared4(uint32_t a, uint4 x)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(a), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

/* The three below in machine terms: the compiler's own choice takes up to twice as many instructions. */

/* a where mask is set, else b. */
#define SELECT_BITS(a, b, mask) select_bits<mask>(a, b)
template <uint32_t MASK> INLINE uint32_t select_bits(uint32_t a, uint32_t b)
{
    uint32_t x;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(x) : "r"(a), "r"(b), "n"(MASK));
    return x;
}

/* If the flag is set: the lowest digit of w goes into z at the top and out of w. */
template <uint32_t FLAG> INLINE void push_digit(uint32_t &z, uint32_t &w, uint32_t flags)
{
    asm("{ .reg .pred p; .reg .u32 t; and.b32 t, %2, %3; setp.ne.u32 p, t, 0; @p shf.r.wrap.b32 %0, %0, %1, "
        "6; "
        "@p shr.u32 %1, %1, 6; }"
        : "+r"(z), "+r"(w)
        : "r"(flags), "n"(FLAG));
}

/* w + 4 * (b / 32) */
INLINE uint32_t word_address(uint32_t w, uint32_t b)
{
    uint32_t a;
    asm("{ .reg .u32 t; shr.u32 t, %1, 5; mad.lo.u32 %0, t, 4, %2; }" : "=r"(a) : "r"(b), "r"(w));
    return a;
}

/* __byte_perm() without the instruction that clears the top bits of the selector's digits. */
INLINE uint32_t permute(uint32_t x, uint32_t y, uint32_t s)
{
    uint32_t z;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(s));
    return z;
}
#else
#include "layout_shim.h"
#endif

enum { THREADS = 256, WARPS = 8, CHUNK = 16384, BUFFER = CHUNK + 32 * 88, TASKS = 512 };

/* Low bits of an entry: counters of 4 bits that eight values cannot overflow. High bits: exponent in place.
 * */
enum { HAS1 = 1, HAS2 = 1 << 4, HAS3 = 1 << 8, HAS4 = 1 << 12, ESCAPE = 1 << 16 };

struct lay_gpu_node {
    uint8_t right, width, depth; /* right = 0: leaf */
    uint8_t first_rank;
    uint8_t parent, is_right, inner_index, unused;
};

struct lay_gpu_book {
    uint32_t node_count, inner_count, depth_max, unused;
    uint32_t entry[256];    /* by rank */
    lay_gpu_node node[176]; /* in preorder */
    uint8_t by_depth[176];  /* nodes, deepest first */
    uint2 selector[256];    /* selector_of() */
};

struct lay_gpu_chunk {
    uint64_t offset;     /* bytes; behind the codebook */
    uint32_t size, book; /* size: a multiple of 4 and less than CHUNK * 4 */
};

/* A node while its values are produced. Addresses are those of shared memory. */
struct alignas(16) node_state {
    uint32_t run, out, left, right; /* run: its first word; out, left, right: places in the buffers */
    uint32_t ones, words, right_len,
        kind; /* ones: address of the sum before its first word; kind: see KIND_* */
};

enum { KIND_INNER = 8 }; /* else the width of the leaf; first rank in bits 8..15 */

struct shared_state {
    uint32_t entry[256];
    uint2 selector[256]; /* of 8 merged values */
    alignas(128) uint8_t buffer[2][BUFFER];
    node_state node[176];
    uint32_t task[TASKS];    /* what a warp does in one go, 32 words of a node: node | first word << 8 */
    uint32_t task_start[14]; /* by level, deepest first */
    uint32_t level_word[14];
    uint32_t len[176], run[176];
    uint32_t plane_bit[4], plane_len[4]; /* where planes start, in bits of the chunk */
    uint32_t escape_word, escape_len;
    uint32_t bad;
    uint32_t shift; /* where the chunk starts in words4, in words */
    uint4 warp_sum[WARPS];
    uint4 words4[1]; /* the chunk; to the end of the dynamic shared memory; then 4 words to spare, then the
                                     sums of set bits before every word, 16 bits each */
};

INLINE uint32_t *words_of(shared_state &s)
{
    return (uint32_t *)(void *)s.words4 + s.shift;
}

INLINE uint32_t byte_of(uint32_t x, uint32_t i)
{
    return __byte_perm(x, 0, 0x4440 + i);
}

/* 32 bits of a bit string: w = address of the string, b = position. */
INLINE uint32_t window(uint32_t w, uint32_t b)
{
    const uint32_t a = word_address(w, b);
    return __funnelshift_r(load_shared(a), load_shared(a, 4), b);
}

/* ---- merge
 * ------------------------------------------------------------------------------------------------------- */

/* out[0..8) = 32 merged bytes. l, r: addresses of the next left and right value. */
INLINE void merge32(uint32_t out[8], uint32_t selector, uint32_t l, uint32_t r, uint32_t bits)
{
#if MERGE == 8
    const uint32_t both = l + r;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint2 s = load_shared2(selector + 8 * byte_of(bits, j));
        const uint32_t lw = l & ~3u, rw = r & ~3u;
        const uint32_t l0 = load_shared(lw), l1 = load_shared(lw, 4), l2 = load_shared(lw, 8);
        const uint32_t r0 = load_shared(rw), r1 = load_shared(rw, 4), r2 = load_shared(rw, 8);
        const uint32_t la = __funnelshift_r(l0, l1, l << 3), lb = __funnelshift_r(l1, l2, l << 3);
        const uint32_t ra = __funnelshift_r(r0, r1, r << 3), rb = __funnelshift_r(r1, r2, r << 3);
        out[2 * j] = permute(la, ra, s.x);
        /* The second four start behind what the first took. */
        out[2 * j + 1] =
            permute(__funnelshift_rc(la, lb, s.x >> 16), __funnelshift_rc(ra, rb, byte_of(s.y, 2)), s.y);
        r += s.y >> 24;
        l = both + 8 * (j + 1) - r;
    }
#elif MERGE == 4
    const uint32_t both = l + r;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t s = load_shared(selector + (bits >> 4 * j & 15) * 8);
        const uint32_t lw = l & ~3u, rw = r & ~3u;
        const uint32_t a = __funnelshift_r(load_shared(lw), load_shared(lw, 4), l << 3);
        const uint32_t b = __funnelshift_r(load_shared(rw), load_shared(rw, 4), r << 3);
        out[j] = permute(a, b, s);
        r += s >> 16;
        l = both + 4 * (j + 1) - r;
    }
#else
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t x = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool right = (bits >> (4 * j + i) & 1) != 0;
            x |= load_shared8(right ? r : l) << 8 * i;
            r += right ? 1 : 0;
            l += right ? 0 : 1;
        }
        out[j] = x;
    }
#endif
}

/* What merge32() looks up: how to pick the first and second four of eight values from the next four left
 * and right ones
 * each, how many bits to shift the sides between (left: bits 16 up of x; right: third byte of y), and how
 * many go right. */
BOTH uint2 selector_of(uint32_t m)
{
    uint32_t s[2];
    uint32_t ones[2];
#if MERGE == 4
    m &= 15;
#endif
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t l = 0x10, r = 0x10 + 4; /* the extra bit lets a digit be shifted out */
        s[h] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t bit = m >> (4 * h + j) & 1;
            s[h] |= ((bit ? r : l) & 7) << 4 * j;
            r += bit;
            l += 1 - bit;
        }
        ones[h] = r - 0x14;
    }
    const uint32_t p = ones[0];
#if MERGE == 4
    return make_uint2(s[0] | p << 16, 0);
#else
    return make_uint2(s[0] | (32 - 8 * p) << 16, s[1] | 8 * p << 16 | (p + ones[1]) << 24);
#endif
}

/* Word `word` of an inner node; returns the set bits up to and with it. */
INLINE uint32_t merge_word(uint32_t out[8], uint32_t selector, uint4 place, uint32_t ones_at, uint32_t word)
{
    const uint32_t ones = (load_shared16(ones_at + 2 * word) - load_shared16(ones_at)) & 0xffff;
    const uint32_t bits = load_shared(place.x + 4 * word);
    merge32(out, selector, place.z + 32 * word - ones, place.w + ones, bits);
    return ones + __popc(bits);
}

/* ---- leaves
 * ------------------------------------------------------------------------------------------------------ */

/* 32 numbers of W bits from W words, plus add in every byte. */
template <int W> INLINE void unpack32(uint32_t out[8], uint32_t words, uint32_t add)
{
    const uint32_t pair = (1u << 2 * W) - 1, one = (1u << W) - 1;
    uint32_t w[W + 1];
#pragma unroll
    for (int j = 0; j < W; j++) {
        w[j] = load_shared(words + 4 * j);
    }
    w[W] = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int bit = 4 * W * j;
        uint32_t x = bit % 32 + 4 * W <= 32 ? w[bit / 32] >> bit % 32
                                            : __funnelshift_r(w[bit / 32], w[bit / 32 + 1], bit % 32);
        x = (x & pair) + (x & pair << 2 * W) * (1u << (16 - 2 * W));
        x = (x & (one | one << 16)) + (x & (one | one << 16) << W) * (1u << (8 - W));
        out[j] = x + add;
    }
}

INLINE void unpack_any(uint32_t out[8], uint32_t words, uint32_t width, uint32_t word, uint32_t add)
{
    const uint32_t at = words + 4 * width * word;
    switch (width) {
    case 1:
        /* @flat1 */
        unpack32<1>(out, at, add);
        break;
    case 2:
        /* @flat2 */
        unpack32<2>(out, at, add);
        break;
    case 3:
        /* @flat3 */
        unpack32<3>(out, at, add);
        break;
    case 4:
        /* @flat4 */
        unpack32<4>(out, at, add);
        break;
    case 5:
        /* @flat5 */
        unpack32<5>(out, at, add);
        break;
    case 6:
        /* @flat6 */
        unpack32<6>(out, at, add);
        break;
    case 7:
        /* @flat7 */
        unpack32<7>(out, at, add);
        break;
    default:
/* @const */
#pragma unroll
        for (int j = 0; j < 8; j++) {
            out[j] = add;
        }
        break;
    }
}

/* ---- set-up
 * ------------------------------------------------------------------------------------------------------ */

INLINE uint32_t half_at(const uint32_t *words, uint32_t i)
{
    return ((const uint16_t *)(const void *)words)[i];
}

/* Inclusive sum over the lanes of a warp. */
INLINE uint32_t warp_scan(uint32_t x)
{
    const uint32_t lane = TID & 31;
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
        const uint32_t y = __shfl_up_sync(0xffffffffu, x, d);
        x += lane >= d ? y : 0;
    }
    return x;
}

/* One warp, a lane a node: lengths and places of nodes and planes, then the tasks. Sets bad if the counts
 * do not fit. */
INLINE void find_parts(shared_state &s, const lay_gpu_book &book, uint32_t size_words)
{
    /* @parts */
    const uint32_t lane = TID & 31;
    const uint32_t *w = words_of(s);
    const uint32_t node_count = book.node_count, depth_max = book.depth_max;
    bool bad = (5 + book.inner_count + 1) / 2 > size_words;
    if (lane == 0) {
        s.len[0] = CHUNK;
    }
    __syncwarp();
#pragma unroll 1
    for (uint32_t d = 1; d <= depth_max; d++) {
/* @parts_depth */
#pragma unroll 1
        for (uint32_t n = lane; n < node_count; n += 32) {
            const lay_gpu_node node = book.node[n];
            if (node.depth == d) {
                const uint32_t right_len = half_at(w, 5 + book.node[node.parent].inner_index),
                               len = s.len[node.parent];
                bad |= right_len > len;
                s.len[n] = node.is_right ? right_len : len - right_len;
            }
        }
        __syncwarp();
        /* @parts */
    }
    uint32_t at = (5 + book.inner_count + 1) / 2;
#pragma unroll 1
    for (uint32_t first = 0; first < node_count; first += 32) {
        /* @parts_each */
        const uint32_t n = first + lane;
        const lay_gpu_node node = book.node[n < node_count ? n : 0];
        const uint32_t size = n < node_count ? (s.len[n] * (node.right != 0 ? 1 : node.width) + 31) >> 5 : 0;
        const uint32_t sum = at + warp_scan(size);
        if (n < node_count) {
            s.run[n] = sum - size;
        }
        at = __shfl_sync(0xffffffffu, sum, 31);
        /* @parts */
    }
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        const uint32_t len = half_at(w, p);
        bad |= len > CHUNK;
        s.plane_len[p] = len;
        s.plane_bit[p] = 32 * at;
        at += (6 * len + 31) >> 5;
    }
    const uint32_t escape_len = half_at(w, 4);
    s.escape_len = escape_len;
    s.escape_word = at;
    bad |= at + escape_len > size_words || size_words - at - escape_len >= 4;
    if (__any_sync(0xffffffffu, bad)) {
        s.bad = 1;
        return;
    }

    /* Levels, deepest first: places in the buffers and tasks. The root is no task, its words are merged by
     * the threads
     * that join them. */
    uint32_t before = 0; /* words, tasks << 16 */
#pragma unroll 1
    for (uint32_t first = 0; first < node_count; first += 32) {
        /* @parts_each */
        const uint32_t i = first + lane;
        const uint32_t n = book.by_depth[i < node_count ? i : 0];
        const lay_gpu_node node = book.node[n];
        const uint32_t words = i < node_count ? (s.len[n] + 31) >> 5 : 0;
        const uint32_t tasks = n == 0 ? 0 : (words + 31) >> 5;
        const uint32_t sum = before + warp_scan(words | tasks << 16), mine = sum - (words | tasks << 16);
        if (i < node_count) {
            if (i == 0 || book.node[book.by_depth[i - 1]].depth != node.depth) {
                s.level_word[depth_max - node.depth] = mine & 0xffff;
                s.task_start[depth_max - node.depth] = mine >> 16;
            }
#pragma unroll 1
            for (uint32_t t = 0; t < tasks; t++) {
                /* @parts_task */
                s.task[(mine >> 16) + t] = n | t << 13;
                /* @parts_each */
            }
            s.node[n].words = mine & 0xffff; /* for a moment */
        }
        before = __shfl_sync(0xffffffffu, sum, 31);
        /* @parts */
    }
    __syncwarp();
    const uint32_t buffer = address_of(s.buffer[0]), words_at = address_of(w),
                   ones_at = address_of(s.words4) + 16 * ((size_words + s.shift + 3) / 4 + 1) + 2 * s.shift;
#pragma unroll 1
    for (uint32_t n = lane; n < node_count; n += 32) {
        /* @parts_each */
        const uint32_t level = depth_max - book.node[n].depth;
        s.node[n].out = buffer + (level & 1) * BUFFER + 32 * (s.node[n].words - s.level_word[level]);
        /* @parts */
    }
    __syncwarp();
#pragma unroll 1
    for (uint32_t n = lane; n < node_count; n += 32) {
        /* @parts_each */
        const lay_gpu_node node = book.node[n];
        const bool inner = node.right != 0;
        const uint32_t run = s.run[n];
        s.node[n].run = words_at + 4 * run;
        s.node[n].left = inner ? s.node[n + 1].out : 0;
        s.node[n].right = inner ? s.node[node.right].out : 0;
        s.node[n].ones = ones_at + 2 * run;
        s.node[n].words = (s.len[n] + 31) >> 5;
        s.node[n].right_len = inner ? s.len[node.right] : 0;
        s.node[n].kind = inner ? (uint32_t)KIND_INNER : node.width | (uint32_t)node.first_rank << 8;
        /* @parts */
    }
    const uint32_t tasks = before >> 16;
    s.task_start[depth_max] = tasks;
    /* @other */
}

/* ---- join
 * -------------------------------------------------------------------------------------------------------- */

struct counts {
    uint32_t a, b, c; /* planes 1 and 2, planes 3 and 4, 16 bits each; escapes */
};

/* Sums over the threads before this one, and over all threads for the next call. */
INLINE counts scan(shared_state &s, counts mine, counts &carry)
{
    const uint32_t lane = TID & 31, warp = TID >> 5;
    counts x = mine;
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
        const uint32_t a = __shfl_up_sync(0xffffffffu, x.a, d);
        const uint32_t b = __shfl_up_sync(0xffffffffu, x.b, d);
        const uint32_t c = __shfl_up_sync(0xffffffffu, x.c, d);
        if (lane >= d) {
            x.a += a;
            x.b += b;
            x.c += c;
        }
    }
    if (lane == 31) {
        s.warp_sum[warp] = make_uint4(x.a, x.b, x.c, 0);
    }
    __syncthreads();
    counts before = {carry.a + x.a - mine.a, carry.b + x.b - mine.b, carry.c + x.c - mine.c};
#pragma unroll
    for (uint32_t v = 0; v < WARPS; v++) {
        const uint4 sum = s.warp_sum[v];
        if (v < warp) {
            before.a += sum.x;
            before.b += sum.y;
            before.c += sum.z;
        }
        carry.a += sum.x;
        carry.b += sum.y;
        carry.c += sum.z;
    }
    return before;
}

/* ---- kernel
 * ------------------------------------------------------------------------------------------------------ */

KERNEL lay_decode(uint32_t *dst, const uint8_t *frame, const lay_gpu_chunk *chunks, const lay_gpu_book *books,
                  uint32_t *status)
{
    shared_state &s = SHARED;
    const uint32_t tid = TID, lane = tid & 31, warp = tid >> 5;
    const lay_gpu_chunk chunk = chunks[BLOCK];
    const lay_gpu_book &book = books[chunk.book];
    const uint32_t size_words = chunk.size >> 2;

    /* @copy */
    /* A codebook in front of the chunk moves it by a multiple of 4 bytes; the copy begins at the multiple
     * of 16 below. */
    const uint32_t shift = (uint32_t)(chunk.offset & 15) >> 2;
    const uint4 *src = (const uint4 *)(const void *)(frame + (chunk.offset & ~(uint64_t)15));
    uint4 *to_words = s.words4;
#pragma unroll 1
    for (uint32_t i = tid; i < (size_words + shift + 3) >> 2; i += THREADS) {
        to_words[i] = src[i];
    }
    /* @setup */
    s.entry[tid] = book.entry[tid];
    s.selector[tid] = book.selector[tid];
    if (tid == 0) {
        s.bad = 0;
        s.shift = shift;
    }
    __syncthreads();

    if (warp == 0) {
        find_parts(s, book, size_words);
    }
    __syncthreads();
    if (s.bad) {
        if (tid == 0) {
            status[BLOCK] = 1;
        }
        return;
    }

    /* @ones */
    /* Set bits before every word of the runs, leaves included: they do no harm. Four words at a time; what
     * the words
     * before the chunk hold does not matter either, only differences are used. */
    {
        uint16_t *ones = (uint16_t *)(void *)(s.words4 + ((size_words + shift + 3) >> 2) + 1);
        const uint32_t end = ((s.plane_bit[0] >> 5) + shift + 3) >> 2;
        const uint32_t each = (end + THREADS - 1) / THREADS;
        const uint32_t first = tid * each < end ? tid * each : end,
                       last = first + each < end ? first + each : end;
        uint32_t sum = 0;
#pragma unroll 1
        for (uint32_t i = first; i < last; i++) {
            /* @ones_loop */
            const uint4 w = s.words4[i];
            sum += __popc(w.x) + __popc(w.y) + __popc(w.z) + __popc(w.w);
            /* @ones */
        }
        const uint32_t upto = warp_scan(sum);
        if (lane == 31) {
            s.warp_sum[warp].x = upto;
        }
        __syncthreads();
        uint32_t before = upto - sum;
#pragma unroll
        for (uint32_t v = 0; v < WARPS - 1; v++) {
            before += v < warp ? s.warp_sum[v].x : 0;
        }
#pragma unroll 1
        for (uint32_t i = first; i < last; i++) {
            /* @ones_loop */
            const uint4 w = s.words4[i];
            const uint32_t x = before + __popc(w.x), y = x + __popc(w.y), z = y + __popc(w.z);
            *(uint2 *)(void *)(ones + 4 * i) =
                make_uint2(__byte_perm(before, x, 0x5410), __byte_perm(y, z, 0x5410));
            before = z + __popc(w.w);
            /* @ones */
        }
    }

    /* From the deepest nodes to the children of the root. */
    /* @depth */
    bool bad = false;
    const uint32_t selector = address_of(s.selector), entry = address_of(s.entry);
    const uint32_t depth_max = book.depth_max;
    uint32_t start = 0;
#pragma unroll 1
    for (uint32_t d = 1; d <= depth_max; d++) {
        __syncthreads();
        const uint32_t end = s.task_start[d];
#pragma unroll 1
        for (uint32_t t = start + warp; t < end; t += WARPS) {
            /* @task */
            const uint32_t task = s.task[t];
            const uint32_t node = address_of(&s.node[task & 255]), word = (task >> 8) + lane;
            const uint4 place = load_shared4(node), what = load_shared4(node + 16);
            if (word >= what.y) {
                continue;
            }
            uint32_t x[8];
            if (what.w == KIND_INNER) {
                /* @merge */
                const uint32_t ones = merge_word(x, selector, place, what.x, word);
                bad |= word == what.y - 1 && ones != what.z;
            } else {
                /* @flat */
                unpack_any(x, place.x, what.w & 15, word, (what.w >> 8) * 0x01010101u);
            }
            /* @task */
            store_shared4(place.y + 32 * word, make_uint4(x[0], x[1], x[2], x[3]));
            store_shared4(place.y + 32 * word + 16, make_uint4(x[4], x[5], x[6], x[7]));
            /* @depth */
        }
        start = end;
    }

    /* @once */
    /* Root, look-up, places of the digits, values: 8192 at a time, 32 a thread. */
    const uint32_t words = address_of(words_of(s));
    const uint32_t stage = address_of(s.buffer[depth_max & 1]) + 2048 * warp; /* 16 values a lane */
    /* Quarters of 16 bytes change places so that no two lanes of a store or load meet in a bank. */
    const uint32_t mine_at = stage + 64 * lane + 16 * (lane >> 1 & 3);
    const uint32_t all_at = stage + 64 * (lane >> 2) + 16 * ((lane & 3) ^ (lane >> 3 & 3));
    const uint32_t root = address_of(&s.node[0]);
    counts carry = {0, 0, 0};
#pragma unroll 1
    for (uint32_t round = 0; round < 2; round++) {
        /* @root */
        __syncthreads();
        const uint32_t word = THREADS * round + tid;
        const uint4 place = load_shared4(root), what = load_shared4(root + 16);
        uint32_t x[8];
        if (what.w == KIND_INNER) {
            /* @root_merge */
            const uint32_t ones = merge_word(x, selector, place, what.x, word);
            bad |= word == what.y - 1 && ones != what.z;
        } else {
            /* @never */
            unpack_any(x, place.x, what.w & 15, word, (what.w >> 8) * 0x01010101u);
        }
        /* @look_up */
        uint32_t e[32];
        uint32_t even = 0, odd = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t sum = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                e[8 * j + i] = load_shared(entry + 4 * byte_of(x[2 * j + i / 4], i % 4));
                sum += e[8 * j + i];
            }
            even += sum & 0x0f0f0f;
            odd += sum >> 4 & 0x000f0f;
        }
        const counts mine = {(even & 255) | (odd & 255) << 16, (even >> 8 & 255) | (odd & 0xff00) << 8,
                             even >> 16};
        /* @scan */
        const counts at = scan(s, mine, carry);

        /* @join */
#if STREAM
        uint32_t b4 = 0;
        uint32_t b0 = s.plane_bit[0] + 6 * ((at.a & 0xffff) + (at.a >> 16) + (at.b & 0xffff) + (at.b >> 16));
#else
        uint32_t b1 = s.plane_bit[0] + 6 * (at.a & 0xffff), b2 = s.plane_bit[1] + 6 * (at.a >> 16);
        uint32_t b3 = s.plane_bit[2] + 6 * (at.b & 0xffff), b4 = s.plane_bit[3] + 6 * (at.b >> 16);
#endif
        uint32_t escape = at.c;
        const uint32_t escape_len = s.escape_len, escapes = words + 4 * s.escape_word;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t all = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t *f = e + 16 * half + 4 * j;
                const uint32_t sum = f[0] + f[1] + f[2] + f[3];
                uint32_t v[4];
#if STREAM
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    /* A value's bits, lowest kept bit first, moved up to bit 31. */
                    const uint32_t n = 6 * __popc(f[i] & (HAS1 | HAS2 | HAS3 | HAS4));
                    const uint32_t z = __funnelshift_lc(0, window(words, b0), 32 - n);
                    b0 += n;
                    v[i] = SELECT_BITS(z, SELECT_BITS(z >> 8, f[i], 0x7fffff), 0x80000000u);
                }
#else
                uint32_t w1 = window(words, b1), w2 = window(words, b2), w3 = window(words, b3);
                b1 += 6 * (sum & 15);
                b2 += 6 * (sum >> 4 & 15);
                b3 += 6 * (sum >> 8 & 15);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    /* The digits of a value, last one first, pushed in at the top. */
                    uint32_t z = 0;
                    push_digit<HAS3>(z, w3, f[i]);
                    push_digit<HAS2>(z, w2, f[i]);
                    push_digit<HAS1>(z, w1, f[i]);
                    v[i] = SELECT_BITS(z, SELECT_BITS(z >> 8, f[i], 0x7fffff), 0x80000000u);
                }
#endif
                store_shared4(mine_at ^ 16 * j, make_uint4(v[0], v[1], v[2], v[3]));
                all |= sum;
            }
            if ((all & 15 * (HAS4 | ESCAPE)) != 0) {
                /* @rare */
                /* Few values have a fourth digit or are escapes: their words are mended where they lie. */
                uint32_t rare = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const uint32_t *f = e + 16 * half + 4 * j;
                    const uint32_t m = f[0] + 2 * f[1] + 4 * f[2] + 8 * f[3];
                    rare |= (STREAM ? m >> 16 & 15 : (m >> 12 | m >> 16) & 15) << 4 * j;
                }
#pragma unroll 1
                while (rare != 0) {
                    /* @rare_each */
                    const uint32_t i = __ffs(rare) - 1;
                    const uint32_t at_i = (mine_at ^ (i & 12) << 2) + 4 * (i & 3), old = load_shared(at_i);
                    rare &= rare - 1;
                    /* An escape has no digit and is nothing so far; a value with a fourth digit is not. */
                    if ((old & 0x7f800000u) != 0) {
                        store_shared(at_i, old | (window(words, b4) & 63));
                        b4 += 6;
                    } else {
                        store_shared(at_i, load_shared(escapes + 4 * (escape < escape_len ? escape : 0)));
                        escape++;
                    }
                    /* @rare */
                }
                /* @join */
            }
            __syncwarp();
            uint4 *to =
                (uint4 *)(void *)(dst + (uint64_t)BLOCK * CHUNK + 8192 * round + 1024 * warp + 16 * half) +
                8 * (lane >> 2) + (lane & 3);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                to[64 * k] = load_shared4(all_at + 512 * k);
            }
            __syncwarp();
        }
    }
    /* @once */
    bad |= (carry.a & 0xffff) != s.plane_len[0] || carry.a >> 16 != s.plane_len[1] ||
           (carry.b & 0xffff) != s.plane_len[2] || carry.b >> 16 != s.plane_len[3] || carry.c != s.escape_len;
    bad = __syncthreads_or(bad);
    if (tid == 0) {
        status[BLOCK] = bad;
    }
}

#if !defined(__CUDACC__)
#include "layout_shim_main.h"
#endif
