/*
 * The CODED chunk of docs/format.md for the layout experiment: a reader of frames, the stages of a chunk
 * decode, and a plain C decoder to compare with. fp32; of other types the parts of a chunk are found and the
 * labels decoded, for statistics. Independent of src/: frames come from the library's public encoder.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LAYOUT_CHUNK_H
#define GW_LAYOUT_CHUNK_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LAY_SLOP = 64, /* room behind the last element of every workspace array */
    LAY_CHUNK_MAX = 1 << 15,
    LAY_NODES_MAX = 175, /* 88 leaves */
    LAY_PLANES_MAX = 7,
    LAY_LABEL_ZERO = 0,
    LAY_LABEL_ESCAPE = 1
};

typedef struct lay_node {
    uint16_t first_rank;
    uint16_t right; /* inner node: index of the right child, the left one is the next node; leaf: 0 */
    uint8_t width;  /* leaf */
    uint8_t depth;
} lay_node;

typedef struct lay_book {
    uint32_t base;
    uint32_t label_count, node_count, inner_count;
    uint8_t label_of_rank[256 + LAY_SLOP];
    lay_node node[LAY_NODES_MAX];
    uint8_t postorder[LAY_NODES_MAX];
} lay_book;

/* How a derived value's drop follows from its exponent and map byte (docs/format.md section 3). */
typedef struct lay_rule {
    uint32_t dtype; /* 1 fp32, 2 bf16, 3 fp16 */
    uint32_t derived;
    int32_t drop_base;
    uint32_t cap, step;
    uint8_t keep[32]; /* keep[n] = 24 - (n rounded down to a multiple of step), n <= 23; 24 above */
} lay_rule;

typedef struct lay_frame {
    const uint8_t *bytes;
    size_t size;
    uint64_t count, chunk_count;
    uint32_t chunk_log2;
    const uint8_t *directory;
    lay_rule rule;
} lay_frame;

/* The parts of a chunk, found from its counts. */
typedef struct lay_parts {
    size_t len;
    size_t node_len[LAY_NODES_MAX];
    size_t node_at[LAY_NODES_MAX]; /* first value of the node within its level of the tree */
    const uint8_t *run[LAY_NODES_MAX];
    size_t plane_len[LAY_PLANES_MAX];
    const uint8_t *plane[LAY_PLANES_MAX];
    size_t escape_len;
    const uint8_t *escape;
} lay_parts;

typedef struct lay_scratch {
    alignas(64) uint8_t level[2][LAY_CHUNK_MAX + LAY_SLOP];
    alignas(64) uint8_t plane[LAY_PLANES_MAX][LAY_CHUNK_MAX + LAY_SLOP];
    lay_parts parts;
} lay_scratch;

typedef struct lay_joined {
    size_t plane_len[LAY_PLANES_MAX];
    size_t escape_len;
} lay_joined;

/*
 * merge: out[i] = next of right if bit i of bitmap is set, else next of left; returns the set bits. Reads
 * the bitmap in
 * [0, ceil(len / 8)); slop of out may be written. Hostile bitmaps: left and right are read at most len +
 * slop far.
 */
typedef size_t lay_merge_fn(uint8_t *out, const uint8_t *left, const uint8_t *right, const uint8_t *bitmap,
                            size_t len);

/* unpack: out[i] = table[number i], numbers of `width` (1..7) bits; table has 2^width entries and is
 * readable for 128.
 * Reads exactly the run. Slop of out may be written. Returns 1 if the padding is zero. table NULL: out[i] =
 * number i. */
typedef int lay_unpack_fn(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table);

/* join: labels, planes and escapes to fp32 bits. Planes are workspace arrays with slop: unpacked digits, or
 * the packed
 * planes themselves if the backend says so. levels: map bytes, derived only. */
typedef void lay_join_fn(uint32_t *dst, lay_joined *joined, const uint8_t *labels,
                         uint8_t *const plane[LAY_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                         const uint8_t *levels, size_t len, uint32_t base, const lay_rule *rule);

typedef struct lay_kernels {
    lay_merge_fn *merge;
    lay_unpack_fn *unpack;
    lay_join_fn *join;
    int join_packed; /* join reads packed planes */
} lay_kernels;

extern const lay_kernels lay_kernels_avx512, lay_kernels_avx2;

/* All return 1 on success. */
int lay_frame_open(lay_frame *frame, const uint8_t *bytes, size_t size);
int lay_book_read(lay_book *book, const uint8_t *src, size_t size, uint32_t derived, size_t *used);
int lay_parts_find(lay_parts *parts, const lay_book *book, const uint8_t *data, size_t size, size_t len,
                   const lay_rule *rule);

/* Place of a chunk; kind 0 ZERO, 1 RAW, 2 CODED. */
typedef struct lay_place {
    uint64_t offset, size;
    uint32_t kind, book;
    size_t len;
} lay_place;
lay_place lay_frame_place(const lay_frame *frame, uint64_t index);

typedef struct lay_times {
    uint64_t parts, runs, planes, join; /* time-stamp counter ticks */
} lay_times;

/* Value by value, one bit cursor a node. */
int lay_decode_plain(uint32_t *dst, const lay_book *book, const lay_parts *parts, const uint8_t *levels,
                     const lay_rule *rule);

/* One chunk through the stages. next, next_size: bytes to prefetch meanwhile. */
int lay_decode_stages(const lay_kernels *k, uint32_t *dst, const lay_book *book, const uint8_t *data,
                      size_t size, size_t len, const uint8_t *levels, const lay_rule *rule,
                      lay_scratch *scratch, const uint8_t *next, size_t next_size, lay_times *times);

/* The first chunk_count chunks of a frame. kernels NULL: plain. times may be NULL. */
int lay_decode_frame(const lay_kernels *k, uint32_t *dst, const lay_frame *frame, uint64_t chunk_count,
                     const uint8_t *levels, lay_scratch *scratch, lay_times *times);

static inline uint32_t lay_load16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t lay_load32(const uint8_t *p)
{
    return lay_load16(p) | lay_load16(p + 2) << 16;
}

static inline uint64_t lay_load64(const uint8_t *p)
{
    return (uint64_t)lay_load32(p) | (uint64_t)lay_load32(p + 4) << 32;
}

static inline size_t lay_run_size(size_t len, unsigned width)
{
    return (len * width + 31) / 32 * 4;
}

static inline unsigned lay_plane_width(unsigned p)
{
    return p < 4 ? 6u : 4u >> (p - 4);
}

#endif
