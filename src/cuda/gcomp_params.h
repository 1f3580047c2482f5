/*
 * What host and device code of GCOMP share: parameters of the kernels, what lies in the workspace. Plain C and C++; all
 * pointers are to device memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_PARAMS_H
#define GW_CUDA_GCOMP_PARAMS_H

#include <stdint.h>

/* ---- what the caller gives ---------------------------------------------------------------------------------------- */

enum { GW_CUDA_BOOK_SIZE_MAX = 132 };

/* An installed codebook, serialised (docs/format.md section 5.1): at `bytes`, or here if that is NULL. */
typedef struct gw_cuda_book {
    const uint8_t *bytes;
    const uint32_t *size_at; /* NULL: size */
    uint32_t id, generation;
    uint32_t size;
    uint8_t inline_bytes[GW_CUDA_BOOK_SIZE_MAX];
} gw_cuda_book;

/* gw_gcomp_options after gw_gcomp_init() has resolved them, and the codebooks of the handle. */
typedef struct gw_cuda_codec {
    uint32_t dtype, levels, rounding, preset;
    uint32_t step, cap, constant_drop, param_mantissa_bits;
    uint32_t chunk_log2, strict, checksum;
    int32_t encode_with; /* index of the book that encodes, -1: codebooks travel in the frame */
    uint32_t book_count;
    uint32_t reserved;
    uint64_t count_limit;
    gw_cuda_book book[2];
} gw_cuda_codec;

/* Key and counter of stochastic rounding without the element (docs/numerics.md section 4). */
typedef struct gw_cuda_key {
    uint64_t seed;
    uint32_t step_index;
    uint16_t rank, hop;
} gw_cuda_key;

/* What all items of a call have in common of their map. */
typedef struct gw_cuda_map {
    const uint32_t *base_at; /* NULL: base */
    uint32_t base;
    uint32_t wire_scale;     /* bits of the fp32 */
    uint32_t chunk_log2;     /* of the digests */
    uint32_t is_present;     /* 0: there is no map */
} gw_cuda_map;

/* Written by the last kernel of a call. On failure size and len are 0. */
typedef struct gw_cuda_result {
    uint32_t status;    /* gw_status */
    uint32_t reserved;
    uint64_t size;      /* encode: bytes of the frame */
    uint64_t len;       /* decode: values; encode: values */
    uint64_t bad_index; /* decode: lowest bad chunk; else UINT64_MAX */
    uint64_t missing;   /* not used by GCOMP: 0 */
} gw_cuda_result;

/* One frame of a call. */
typedef struct gw_cuda_gcomp_item {
    const void *src;             /* decode: the frame, 16-byte aligned; encode: values, aligned to their element */
    void *dst;                   /* decode: values or accumulators; encode: the frame, 16-byte aligned */
    const void *addend;          /* decode, mode SUM: what is added to the values, aligned to its element */
    const uint64_t *src_size_at; /* decode: bytes of the frame; NULL: src_size. More than src_size counts as SHORT */
    uint64_t src_size;           /* decode: bytes at src; encode: values at src */
    uint64_t dst_capacity;       /* decode: elements; encode: bytes */
    const uint8_t *levels;       /* map bytes of the first value, any alignment; NULL without a map */
    const uint32_t *digest;      /* derived frames: CRC32C of the map bytes of every chunk */
    uint64_t map_len;
    uint64_t first_element;      /* stochastic rounding */
    const gw_cuda_result *after; /* NULL, or do nothing but hand on the status unless that is GW_OK */
    gw_cuda_result *result;
} gw_cuda_gcomp_item;

/* ---- decode -------------------------------------------------------------------------------------------------------- */

typedef enum gw_cuda_decode_mode {
    GW_CUDA_DECODE_VALUES,   /* dst = values; a bad chunk's are +0 */
    GW_CUDA_DECODE_ADD,      /* dst += values; a bad chunk's part stays as it was */
    GW_CUDA_DECODE_VALIDATE, /* dst is not touched */
    GW_CUDA_DECODE_SUM       /* dst = addend + values; nobody reads a bad chunk's */
} gw_cuda_decode_mode;

/* Workspace, all zero at the start. */
typedef struct gw_cuda_decode_head {
    uint64_t ticket;      /* next chunk of the call, counted over all items */
    uint32_t items_done;  /* whose front has been checked */
    uint32_t blocks_done;
    uint32_t slot_busy[64];
} gw_cuda_decode_head;

enum { GW_CUDA_LARGE_SLOTS_MAX = 64 };

/* A frame whose front has been checked. All zero at the start. */
typedef struct gw_cuda_frame_state {
    uint32_t slices_done;
    uint32_t is_directory_bad;
    uint64_t bad;            /* complement of (lowest bad chunk << 8 | status); 0: none */
    uint32_t status;
    uint32_t dtype, levels, chunk_log2, step, cap;
    int32_t drop_base;
    uint32_t strict, checksum, installed, constant;
    uint32_t book;           /* installed: index in the codec */
    uint64_t len, chunk_count, frame_size, directory_offset, payload_offset;
} gw_cuda_frame_state;

typedef struct gw_gcomp_decode_params {
    gw_cuda_codec codec;
    gw_cuda_map map;
    uint32_t mode;
    uint32_t item_count;
    uint32_t slices;      /* blocks that check the directory of one item: the grid of gw_device_gcomp_check is slices * item_count */
    uint32_t shared_size; /* of gw_device_gcomp_decode_* */
    const gw_cuda_gcomp_item *items; /* NULL: item */
    gw_cuda_gcomp_item item;
    gw_cuda_decode_head *head;
    gw_cuda_frame_state *frames; /* item_count */
    uint64_t *chunk_first;       /* item_count + 1: chunks of the items before */
    uint8_t *large;              /* large_slots * GW_CUDA_LARGE_SIZE: for chunks that do not fit shared memory */
    uint32_t large_slots;        /* at most GW_CUDA_LARGE_SLOTS_MAX */
    uint32_t reserved;
} gw_gcomp_decode_params;

/* Bytes of the ranks of one level of a tree: every leaf may add a gap of 32, and a read may go 32 beyond. */
#define GW_CUDA_LEVEL_SIZE(chunk_log2) (((uint32_t)1 << (chunk_log2)) + 32u * 89u + 32u)
/* The staging of 8 warps reuses such an array. */
#define GW_CUDA_LEVEL_SIZE_MIN (8u * 2048u)
/* Shared memory of a decode but for level arrays and copy of the chunk, rounded up. */
#define GW_CUDA_DECODE_FIXED_MAX (17u * 1024u)
#define GW_CUDA_LARGE_SIZE (2u * GW_CUDA_LEVEL_SIZE(15))

#endif
