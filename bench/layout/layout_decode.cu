/*
 * A CODED chunk of docs/format.md (fp32, explicit, 16 K values) decoded by one block of 256 threads, bottom-up: the nodes
 * of one depth are produced together from those one deeper, in two byte buffers of shared memory that alternate.
 *
 *   inner node  a thread merges 32 consecutive values = one word of the bitmap; where its left and right values start
 *               follows from a prefix sum of set bits over all runs. Eight values at a time: a byte of the bitmap picks
 *               two byte-permute selectors from a table.
 *   flat leaf   a thread unpacks 32 numbers of k bits = k words.
 *   root        stays in registers; its owner looks up the 32 values, a block-wide prefix sum of digit counts gives the
 *               places of its digits in the planes, and it walks the values four by four.
 *
 * The codebook comes parsed (lay_gpu_book), as a small kernel per codebook would leave it. Checks of the format (set bits,
 * counts, padding) are in, but for rule 26.
 *
 * Compiled by a C++ compiler this file is a program that runs the kernel with threads for lanes (see below) to show that
 * the code that is counted decodes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdint.h>

#ifndef STREAM
#define STREAM 0 /* 1: mantissas as one stream of variable length instead of digit planes (a variant to compare) */
#endif
#ifndef MERGE
#define MERGE 8  /* values merged per step: 8, 4 (one selector) or 1 (byte by byte) */
#endif

#if defined(__CUDACC__)
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define INLINE __device__ __forceinline__
extern __shared__ uint4 shared_memory[];
#define SHARED (*(shared_state *)shared_memory)
#define TID threadIdx.x
#define BLOCK blockIdx.x
#else
#include "layout_shim.h"
#endif

enum { THREADS = 256, WARPS = 8, CHUNK = 16384, BUFFER = CHUNK + 32 * 88, NODES = 175, TASKS = 1024 };

/* Low bits of an entry: counters of 4 bits that eight values cannot overflow. High bits: exponent in place. */
enum { HAS1 = 1, HAS2 = 1 << 4, HAS3 = 1 << 8, HAS4 = 1 << 12, ESCAPE = 1 << 16 };

struct lay_gpu_node {
    uint8_t first_rank, right, width, depth; /* right = 0: leaf */
};

struct lay_gpu_book {
    uint32_t node_count, inner_count, depth_max, unused;
    uint32_t entry[256];        /* by rank */
    lay_gpu_node node[176];
    uint8_t by_depth[176];      /* nodes, deepest first */
    uint32_t by_depth_start[13]; /* by_depth_start[d] .. by_depth_start[d + 1]: nodes of depth depth_max - d */
};

struct lay_gpu_chunk {
    uint64_t offset;            /* bytes; behind the codebook */
    uint32_t size, book;        /* size: a multiple of 4 and less than CHUNK * 4 */
};

struct shared_state {
    uint32_t entry[256];
    uint32_t selector[256];     /* of 8 merged values */
    uint8_t buffer[2][BUFFER];
    uint16_t *ones;             /* set bits before word i of the chunk, modulo 2^16; behind the words */
    uint32_t task[TASKS];       /* what a warp does in one go, 32 words of a node: node | first word << 8 */
    uint32_t task_start[14];    /* by depth, deepest first */
    uint32_t node_len[176], node_at[176], node_run[176]; /* run: word of the chunk */
    uint32_t plane_bit[4], plane_len[4]; /* where planes start, in bits of the chunk */
    uint32_t escape_word, escape_len;
    uint32_t warp_sum[WARPS][4];
    uint32_t bad;
    uint32_t shift;             /* where the chunk starts in words4, in words */
    uint4 words4[1];            /* the chunk; to the end of the dynamic shared memory; then 4 words to spare, then ones[] */
};

INLINE uint32_t *words_of(shared_state &s)
{
    return (uint32_t *)(void *)s.words4 + s.shift;
}

INLINE uint32_t byte_of(uint32_t x, uint32_t i)
{
    return __byte_perm(x, 0, 0x4440 + i);
}

/* Four bytes at any byte address of a word array. */
INLINE uint32_t load4(const uint8_t *base, uint32_t at)
{
    const uint32_t *w = (const uint32_t *)(const void *)(base + (at & ~3u));
    return __funnelshift_r(w[0], w[1], at << 3);
}

/* ---- merge ------------------------------------------------------------------------------------------------------- */

/* out[0..8) = 32 merged bytes. l, r: addresses in `below` of the next left and right value. */
INLINE void merge32(uint32_t out[8], const uint8_t *below, const uint32_t *selector, uint32_t l, uint32_t r, uint32_t bits)
{
#if MERGE == 8
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t m = byte_of(bits, j);
        const uint32_t s = selector[m];
        const uint32_t *lw = (const uint32_t *)(const void *)(below + (l & ~3u));
        const uint32_t *rw = (const uint32_t *)(const void *)(below + (r & ~3u));
        const uint32_t l0 = lw[0], l1 = lw[1], l2 = lw[2], r0 = rw[0], r1 = rw[1], r2 = rw[2];
        const uint32_t la = __funnelshift_r(l0, l1, l << 3), lb = __funnelshift_r(l1, l2, l << 3);
        const uint32_t ra = __funnelshift_r(r0, r1, r << 3), rb = __funnelshift_r(r1, r2, r << 3);
        out[2 * j] = __byte_perm(la, ra, s);
        /* The second four start behind what the first took: p right values and 4 - p left ones. */
        const uint32_t p = __popc(m & 15) << 3;
        out[2 * j + 1] = __byte_perm(__funnelshift_rc(la, lb, 32 - p), __funnelshift_rc(ra, rb, p), s >> 16);
        const uint32_t n = __popc(m);
        r += n;
        l += 8 - n;
    }
#elif MERGE == 4
    #pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t s = selector[bits >> 4 * j & 15];
        out[j] = __byte_perm(load4(below, l), load4(below, r), s);
        r += s >> 16;
        l += 4 - (s >> 16);
    }
#else
    #pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t x = 0;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool right = (bits >> (4 * j + i) & 1) != 0;
            x |= (uint32_t)below[right ? r : l] << 8 * i;
            r += right ? 1 : 0;
            l += right ? 0 : 1;
        }
        out[j] = x;
    }
#endif
}

/* The thread's word of an inner node: start of both sides from the prefix sums. */
INLINE uint32_t merge_word(uint32_t out[8], shared_state &s, uint32_t node, uint32_t right, uint32_t word,
                           const uint8_t *below)
{
    const uint32_t run = s.node_run[node];
    const uint16_t *before = s.ones + s.shift + run;
    const uint32_t ones = (uint32_t)(uint16_t)(before[word] - before[0]);
    const uint32_t bits = words_of(s)[run + word];
    merge32(out, below, s.selector, s.node_at[node + 1] + 32 * word - ones, s.node_at[right] + ones, bits);
    return ones + __popc(bits);
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

INLINE void unpack32(uint32_t out[8], const uint32_t *words, uint32_t at, uint32_t width, uint32_t add)
{
    const uint32_t one = (1u << width) - 1;
    const uint32_t low = one | one << 16, pair = (1u << 2 * width) - 1;
    const uint32_t up2 = 16 - 2 * width, up1 = 8 - width;
    #pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t bit = 4 * j * width;
        const uint32_t *w = words + at + (bit >> 5);
        uint32_t x = __funnelshift_r(w[0], w[1], bit);
        x = (x & pair) | (x << up2 & pair << 16);
        x = (x & low) | (x << up1 & low << 8);
        out[j] = x + add;
    }
}

INLINE void store32(uint8_t *dst, const uint32_t x[8])
{
    uint4 *d = (uint4 *)(void *)dst;
    d[0] = make_uint4(x[0], x[1], x[2], x[3]);
    d[1] = make_uint4(x[4], x[5], x[6], x[7]);
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

INLINE uint32_t half_at(const uint32_t *words, uint32_t i)
{
    return ((const uint16_t *)(const void *)words)[i];
}

/* One thread: lengths and places of nodes and planes, then the list of tasks. Returns 0 if the counts do not fit. */
INLINE bool find_parts(shared_state &s, const lay_gpu_book &book, uint32_t size_words)
{
    /* @parts */
    const uint32_t *w = words_of(s);
    uint32_t count = 5;
    uint32_t at = (5 + book.inner_count + 1) / 2;
    bool good = true;
    if (at > size_words) {
        return false;
    }
    s.node_len[0] = CHUNK;
    #pragma unroll 1
    for (uint32_t i = 0; i < book.node_count; i++) {
        /* @parts_node */
        const lay_gpu_node node = book.node[i];
        const uint32_t len = s.node_len[i];
        uint32_t width = node.width;
        s.node_run[i] = at;
        if (node.right != 0) {
            const uint32_t right_len = half_at(w, count++);
            good = good && right_len <= len;
            s.node_len[i + 1] = len - right_len;
            s.node_len[node.right] = right_len;
            width = 1;
        }
        at += (len * width + 31) >> 5;
        /* @parts */
    }
    #pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        const uint32_t len = half_at(w, p);
        good = good && len <= CHUNK;
        s.plane_len[p] = len;
        s.plane_bit[p] = 32 * at;
        at += (6 * len + 31) >> 5;
    }
    s.escape_len = half_at(w, 4);
    s.escape_word = at;
    good = good && at + s.escape_len <= size_words && size_words - at - s.escape_len < 4;
    if (!good) {
        return false;
    }
    /* The root is no task: its words are merged by the threads that join them. */
    uint32_t tasks = 0;
    #pragma unroll 1
    for (uint32_t d = 0; d <= book.depth_max; d++) {
        /* @parts_depth */
        uint32_t place = 0;
        s.task_start[d] = tasks;
        #pragma unroll 1
        for (uint32_t i = book.by_depth_start[d]; i < book.by_depth_start[d + 1]; i++) {
            /* @parts_node */
            const uint32_t n = book.by_depth[i];
            const uint32_t words = (s.node_len[n] + 31) >> 5;
            s.node_at[n] = place;
            place += 32 * words;
            #pragma unroll 1
            for (uint32_t first = 0; first < words && (d < book.depth_max || book.depth_max == 0); first += 32) {
                /* @parts_task */
                s.task[tasks++] = n | first << 8;
                /* @parts_node */
            }
        }
        /* @parts */
    }
    s.task_start[book.depth_max + 1] = tasks;
    return true;
}

/* @other */
INLINE uint32_t selector_of(uint32_t m)
{
    uint32_t s = 0, l = 0, r = 4;
#if MERGE == 8
    for (uint32_t j = 0; j < 8; j++) {
        if (j == 4) {
            l = 0;
            r = 4;
        }
        s |= (m >> j & 1 ? r++ : l++) << 4 * j;
    }
#else
    for (uint32_t j = 0; j < 4; j++) {
        s |= (m >> j & 1 ? r++ : l++) << 4 * j;
    }
    s |= (r - 4) << 16;
#endif
    return s;
}

/* ---- join -------------------------------------------------------------------------------------------------------- */

/* 32 bits of a plane from bit b on. */
INLINE uint32_t window(const uint32_t *words, uint32_t b)
{
    return __funnelshift_r(words[b >> 5], words[(b >> 5) + 1], b);
}

/* Sums of a word over the threads before this one, of all warps; *total gets the sum over all. */
struct counts {
    uint32_t a, b, c; /* planes 1 and 2, planes 3 and 4, 16 bits each; escapes */
};

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
        *(uint4 *)(void *)s.warp_sum[warp] = make_uint4(x.a, x.b, x.c, 0);
    }
    __syncthreads();
    counts before = {carry.a + x.a - mine.a, carry.b + x.b - mine.b, carry.c + x.c - mine.c};
    #pragma unroll
    for (uint32_t v = 0; v < WARPS; v++) {
        const uint4 sum = *(const uint4 *)(const void *)s.warp_sum[v];
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

/* ---- kernel ------------------------------------------------------------------------------------------------------ */

KERNEL lay_decode(uint32_t *dst, const uint8_t *frame, const lay_gpu_chunk *chunks, const lay_gpu_book *books,
                  uint32_t *status)
{
    shared_state &s = SHARED;
    const uint32_t tid = TID, lane = tid & 31, warp = tid >> 5;
    const lay_gpu_chunk chunk = chunks[BLOCK];
    const lay_gpu_book &book = books[chunk.book];
    const uint32_t size_words = chunk.size >> 2;

    /* @copy */
    /* A codebook in front of the chunk moves it by a multiple of 4 bytes; the copy begins at the multiple of 16 below. */
    const uint32_t shift = (uint32_t)(chunk.offset & 15) >> 2;
    const uint4 *src = (const uint4 *)(const void *)(frame + (chunk.offset & ~(uint64_t)15));
    uint4 *to_words = s.words4;
    #pragma unroll 1
    for (uint32_t i = tid; i < (size_words + shift + 3) >> 2; i += THREADS) {
        to_words[i] = src[i];
    }
    /* @setup */
    s.entry[tid] = book.entry[tid];
    s.selector[tid] = selector_of(tid);
    if (tid == 0) {
        s.bad = 0;
        s.shift = shift;
        s.ones = (uint16_t *)(void *)(s.words4 + ((size_words + shift + 3) >> 2) + 1);
    }
    __syncthreads();

    if (tid == 0 && !find_parts(s, book, size_words)) {
        s.bad = 1;
    }
    __syncthreads();
    if (s.bad) {
        if (tid == 0) {
            status[BLOCK] = 1;
        }
        return;
    }

    /* @ones */
    /* Set bits before every word of the runs, leaves included: they do no harm. Four words at a time; what the words
     * before the chunk hold does not matter either, only differences are used. */
    {
        uint16_t *ones = s.ones;
        const uint32_t end = ((s.plane_bit[0] >> 5) + shift + 3) >> 2;
        const uint32_t each = (end + THREADS - 1) / THREADS;
        const uint32_t first = tid * each < end ? tid * each : end, last = first + each < end ? first + each : end;
        uint32_t sum = 0;
        #pragma unroll 1
        for (uint32_t i = first; i < last; i++) {
            /* @ones_loop */
            const uint4 w = s.words4[i];
            sum += __popc(w.x) + __popc(w.y) + __popc(w.z) + __popc(w.w);
            /* @ones */
        }
        counts carry = {0, 0, 0};
        uint32_t before = scan(s, counts{sum, 0, 0}, carry).a;
        #pragma unroll 1
        for (uint32_t i = first; i < last; i++) {
            /* @ones_loop */
            const uint4 w = s.words4[i];
            const uint32_t x = before + __popc(w.x), y = x + __popc(w.y), z = y + __popc(w.z);
            *(uint2 *)(void *)(ones + 4 * i) = make_uint2(__byte_perm(before, x, 0x5410), __byte_perm(y, z, 0x5410));
            before = z + __popc(w.w);
            /* @ones */
        }
    }

    /* From the deepest nodes to the children of the root. */
    /* @depth */
    bool bad = false;
    #pragma unroll 1
    for (uint32_t d = 0; d < book.depth_max; d++) {
        __syncthreads();
        uint8_t *out = s.buffer[d & 1];
        const uint8_t *below = s.buffer[(d + 1) & 1];
        #pragma unroll 1
        for (uint32_t t = s.task_start[d] + warp; t < s.task_start[d + 1]; t += WARPS) {
            /* @task */
            const uint32_t node = s.task[t] & 255, word = (s.task[t] >> 8) + lane;
            const lay_gpu_node what = book.node[node];
            const uint32_t words = (s.node_len[node] + 31) >> 5;
            if (word >= words) {
                continue;
            }
            uint32_t x[8];
            if (what.right != 0) {
                /* @merge */
                const uint32_t ones = merge_word(x, s, node, what.right, word, below);
                bad |= word == words - 1 && ones != s.node_len[what.right];
            } else if (what.width != 0) {
                /* @flat */
                unpack32(x, words_of(s), s.node_run[node] + word * what.width, what.width, what.first_rank * 0x01010101u);
            } else {
                /* @const */
                #pragma unroll
                for (int j = 0; j < 8; j++) {
                    x[j] = what.first_rank * 0x01010101u;
                }
            }
            /* @task */
            store32(out + s.node_at[node] + 32 * word, x);
        }
    }

    /* @once */
    /* Root, look-up, places of the digits, values: 8192 at a time, 32 a thread. */
    const uint32_t top = book.depth_max;
    const uint8_t *below = s.buffer[(top + 1) & 1];
    uint4 *stage = (uint4 *)(void *)(s.buffer[top & 1]) + 128 * warp; /* 16 values a lane */
    counts carry = {0, 0, 0};
    #pragma unroll 1
    for (uint32_t round = 0; round < 2; round++) {
        /* @root */
        __syncthreads();
        const uint32_t word = THREADS * round + tid;
        const lay_gpu_node root = book.node[0];
        uint32_t x[8];
        if (root.right != 0) {
            /* @root_merge */
            const uint32_t ones = merge_word(x, s, 0, root.right, word, below);
            bad |= word == CHUNK / 32 - 1 && ones != s.node_len[root.right];
        } else if (root.width != 0) {
            /* @never */
            unpack32(x, words_of(s), s.node_run[0] + word * root.width, root.width, root.first_rank * 0x01010101u);
        } else {
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                x[j] = root.first_rank * 0x01010101u;
            }
        }
        /* @look_up */
        uint32_t e[32];
        uint32_t even = 0, odd = 0;
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t sum = 0;
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                e[8 * j + i] = s.entry[byte_of(x[2 * j + i / 4], i % 4)];
                sum += e[8 * j + i];
            }
            even += sum & 0x0f0f0f;
            odd += sum >> 4 & 0x000f0f;
        }
        const counts mine = {(even & 255) | (odd & 255) << 16, (even >> 8 & 255) | (odd & 0xff00) << 8, even >> 16};
        /* @scan */
        const counts at = scan(s, mine, carry);

/* @join */
#if STREAM
        uint32_t b0 = s.plane_bit[0] + 6 * ((at.a & 0xffff) + (at.a >> 16) + (at.b & 0xffff) + (at.b >> 16));
#else
        uint32_t b1 = s.plane_bit[0] + 6 * (at.a & 0xffff), b2 = s.plane_bit[1] + 6 * (at.a >> 16);
        uint32_t b3 = s.plane_bit[2] + 6 * (at.b & 0xffff), b4 = s.plane_bit[3] + 6 * (at.b >> 16);
#endif
        uint32_t escape = at.c;
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t *f = e + 16 * half + 4 * j;
                const uint32_t sum = f[0] + f[1] + f[2] + f[3];
                uint32_t v[4];
#if STREAM
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    /* Fields of a value, lowest kept bit first, moved up to bit 31. */
                    const uint32_t n = 6 * __popc(f[i] & (HAS1 | HAS2 | HAS3 | HAS4));
                    const uint32_t w = window(words_of(s), b0);
                    const uint32_t z = n == 0 ? 0 : w << (32 - n);
                    b0 += n;
                    v[i] = (z & 0x80000000u) | (f[i] & 0x7f800000u) | (z >> 8 & 0x7fffffu);
                }
#else
                uint32_t w1 = window(words_of(s), b1), w2 = window(words_of(s), b2), w3 = window(words_of(s), b3);
                uint32_t w4 = 0;
                if ((sum & 15 * HAS4) != 0) {
                    /* @plane4 */
                    w4 = window(words_of(s), b4);
                    b4 += 6 * (sum >> 12 & 15);
                }
                /* @join */
                b1 += 6 * (sum & 15);
                b2 += 6 * (sum >> 4 & 15);
                b3 += 6 * (sum >> 8 & 15);
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    /* The digits of a value, last one first, pushed in at the top. */
                    uint32_t z = 0;
                    if ((sum & 15 * HAS4) != 0 && (f[i] & HAS4) != 0) {
                        /* @plane4 */
                        z = w4 << 26;
                        w4 >>= 6;
                    }
                    /* @join */
                    if ((f[i] & HAS3) != 0) {
                        z = __funnelshift_r(z, w3, 6);
                        w3 >>= 6;
                    }
                    if ((f[i] & HAS2) != 0) {
                        z = __funnelshift_r(z, w2, 6);
                        w2 >>= 6;
                    }
                    if ((f[i] & HAS1) != 0) {
                        z = __funnelshift_r(z, w1, 6);
                        w1 >>= 6;
                    }
                    v[i] = (z & 0x80000000u) | (f[i] & 0x7f800000u) | (z >> 8 & 0x7fffffu);
                }
#endif
                if ((sum & 15 * ESCAPE) != 0) {
                    /* @escape */
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if ((f[i] & ESCAPE) != 0) {
                            v[i] = escape < s.escape_len ? words_of(s)[s.escape_word + escape] : 0;
                            escape++;
                        }
                    }
                }
                /* @join */
                stage[4 * lane + (j ^ (lane >> 1 & 3))] = make_uint4(v[0], v[1], v[2], v[3]);
            }
            __syncwarp();
            uint4 *to = (uint4 *)(void *)(dst + (uint64_t)BLOCK * CHUNK + 8192 * round + 1024 * warp + 16 * half);
            #pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t owner = 8 * k + (lane >> 2), quad = lane & 3;
                to[8 * owner + quad] = stage[4 * owner + (quad ^ (owner >> 1 & 3))];
            }
            __syncwarp();
        }
    }
    /* @once */
    bad |= (carry.a & 0xffff) != s.plane_len[0] || carry.a >> 16 != s.plane_len[1] || (carry.b & 0xffff) != s.plane_len[2] ||
           carry.b >> 16 != s.plane_len[3] || carry.c != s.escape_len;
    bad = __syncthreads_or(bad);
    if (tid == 0) {
        status[BLOCK] = bad;
    }
}

#if !defined(__CUDACC__)
#include "layout_shim_main.h"
#endif
