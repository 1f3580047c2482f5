/*
 * What host and device code of GCOMP share: parameters of the kernels, layout of the workspace. Plain C
 * and C++; all pointers are to device memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_PARAMS_H
#define GW_GCOMP_PARAMS_H

#include <stdint.h>

#include "gradwire/cuda.h"

/* ---- what the caller gives ----------------------------------------------------------------------------- */

enum { GW_CUDA_CODEBOOK_SIZE_MAX = 140 };

/* An installed codebook, serialised (docs/format.md section 5.1): at `bytes`, or here if that is NULL. */
typedef struct gw_cuda_codebook {
    const uint8_t *bytes;
    const uint32_t *size_at; /* NULL: size */
    uint32_t id, generation;
    uint32_t size;
    uint32_t crc; /* of inline_bytes; a codebook at `bytes` is read where its CRC32C is needed */
    uint8_t inline_bytes[GW_CUDA_CODEBOOK_SIZE_MAX];
} gw_cuda_codebook;

/* gw_gcomp_options after gw_gcomp_init() has resolved them, and the codebooks of the handle. */
typedef struct gw_cuda_codec {
    uint32_t dtype, quantum_mode, rounding, preset;
    uint32_t step, cap, constant_drop, tolerance_bits;
    uint32_t chunk_log2, strict, checksum;
    int32_t encode_with; /* index of the codebook that encodes, -1: codebooks travel in the frame */
    uint32_t codebook_count;
    uint32_t dead_zone;
    uint32_t block_log2; /* carried, else 0 */
    float target_nmse;
    uint64_t len_max;
    gw_cuda_codebook codebook[2];
} gw_cuda_codec;

/* The part of a map that all items of a call share. */
typedef struct gw_cuda_map {
    const uint32_t *base_at; /* NULL: base */
    uint32_t base;
    uint32_t wire_scale; /* bits of the fp32 */
    uint32_t chunk_log2; /* of the digests */
    uint32_t is_present; /* 0: there is no map */
} gw_cuda_map;

/* The options of rounding in the form that kernels use, as constants. */
typedef struct gw_cuda_rounding {
    uint32_t nearest, stochastic; /* masks: all ones or zero */
    uint32_t strict;
    uint32_t has_map;   /* values have map bytes */
    uint32_t dead_zone; /* 1: a value below its quantum becomes 0 or one quantum */
    uint32_t cap;       /* without a map the drop of every value */
    uint32_t cap_steps; /* explicit: cap in steps */
    uint32_t step;
    uint32_t step_inverse; /* 256 / step, rounded up: n * step_inverse >> 8 = n / step for n up to 23 */
} gw_cuda_rounding;

/* What all calls have: the handle, and what it is used on. */
typedef struct gw_gcomp_work {
    gw_cuda_codec codec;
    gw_cuda_map map;
    /* Encode, histogram: */
    gw_cuda_rounding rounding;
    gw_cuda_gcomp_key key;
    const gw_cuda_gcomp_key *key_at; /* NULL: key */

    uint32_t item_count;
    uint32_t reserved;
    const gw_cuda_gcomp_item *items; /* NULL: item */
    gw_cuda_gcomp_item item;
} gw_gcomp_work;

/* ---- decode -------------------------------------------------------------------------------------------- */

typedef enum gw_cuda_decode_mode {
    GW_CUDA_DECODE_VALUES,   /* dst = values; a bad chunk's are +0 */
    GW_CUDA_DECODE_ADD,      /* dst += values; a bad chunk's part stays as it was */
    GW_CUDA_DECODE_VALIDATE, /* dst is not touched */
    GW_CUDA_DECODE_SUM       /* dst = addend + values; a bad chunk's values are not read */
} gw_cuda_decode_mode;

/* Workspace, all zero at the start. */
typedef struct gw_cuda_decode_head {
    uint64_t ticket; /* next chunk of the call, counted over all items */
    uint64_t deferred_count, deferred_ticket;
    uint32_t items_done; /* whose front has been checked */
    uint32_t blocks_done;
    uint32_t slot_busy[64];
} gw_cuda_decode_head;

enum { GW_CUDA_LARGE_SLOTS_MAX = 64 };

/* A frame whose front has been checked. All zero at the start. */
typedef struct gw_cuda_frame_state {
    uint32_t slices_done;
    uint32_t is_directory_bad;
    uint64_t bad; /* complement of (lowest bad chunk << 8 | status); 0: none */
    uint32_t status;
    uint32_t dtype, quantum_mode, chunk_log2, step, cap; /* quantum_mode: gw_gcomp_quantum_mode */
    int32_t drop_offset;
    uint32_t strict, checksum, installed, constant;
    uint32_t codebook;   /* installed: index in the codec */
    uint32_t block_log2; /* carried, else 0 */
    uint64_t len, chunk_count, frame_size, directory_offset, payload_offset;
} gw_cuda_frame_state;

/* A sum of several frames, decoded one after the other. All zero at the start. */
typedef struct gw_cuda_sum_state {
    /* Complement of (lowest bad chunk << 28 | first frame that is bad there << 8 | status); 0: none. */
    uint64_t bad;
    uint64_t len; /* of the first frame, and its chunk_log2: those of all */
    uint32_t chunk_log2;
    uint32_t status; /* of the first frame that is refused, bad_frame */
    uint32_t bad_frame;
    uint32_t reserved;
} gw_cuda_sum_state;

/* Where a decode is part of such a sum. state NULL: it is not. */
typedef struct gw_cuda_sum {
    gw_cuda_sum_state *state;
    uint8_t *marks; /* 1: the chunk is bad in a frame. Zero at the start */
    uint8_t *sums;  /* of all values */
    /* The target, written at the end. */
    uint8_t *values;
    uint64_t capacity;
    gw_cuda_result *result;
    uint32_t index; /* of the frame */
    uint32_t reserved;
} gw_cuda_sum;

typedef struct gw_gcomp_decode_params {
    gw_gcomp_work work;
    uint32_t mode;
    uint32_t slices;      /* blocks of gw_device_gcomp_check for the directory of one item */
    uint32_t shared_size; /* of gw_device_gcomp_decode_* */
    gw_cuda_decode_head *head;
    gw_cuda_frame_state *frames; /* item_count */
    uint64_t *chunk_first;       /* item_count + 1: chunks of the items before */
    uint64_t *deferred;   /* chunks that the first kernel leaves to the second, counted over all items */
    uint8_t *large;       /* large_slots * GW_CUDA_LARGE_SIZE: for chunks that do not fit shared memory */
    uint32_t large_slots; /* at most GW_CUDA_LARGE_SLOTS_MAX */
    uint64_t chunk_total; /* places in deferred: the most chunks of all items (validation: from the hint) */
    uint32_t exact_len;   /* 1: frames of another length than dst_capacity are refused, GW_ERR_ARG */
    gw_cuda_sum sum;
} gw_gcomp_decode_params;

/* Bytes of the ranks of one level of a tree: each of 89 leaves may add a gap of 31, and a merge reads up to
 * 43 beyond the last rank. */
#define GW_CUDA_RANK_BUFFER_SIZE(chunk_log2) (((uint32_t)1 << (chunk_log2)) + 32u * 90u + 64u)
/* The staging of 8 warps reuses such an array. */
#define GW_CUDA_RANK_BUFFER_SIZE_MIN (8u * 2048u)
/* Shared memory of gw_device_gcomp_check. */
#define GW_CUDA_CHECK_SHARED_SIZE (6u * 1024u)
/* Shared memory of a decode but for rank buffers and copy of the chunk, rounded up. */
#define GW_CUDA_DECODE_FIXED_MAX (17u * 1024u)
#define GW_CUDA_LARGE_SIZE       (2u * GW_CUDA_RANK_BUFFER_SIZE(15))

/* ---- encode -------------------------------------------------------------------------------------------- */

/* Codebook of a group of chunks (docs/encoder-profile.md), made by gw_device_gcomp_codebook_*, with its
 * tree, which every chunk would otherwise have to build again. A multiple of 16 bytes. */
#define GW_CUDA_TREE_SIZE 3296u
typedef struct gw_cuda_group_codebook {
    uint32_t window_start, size, crc, reserved;
    uint8_t bytes[GW_CUDA_CODEBOOK_SIZE_MAX + 4];
    uint8_t tree[GW_CUDA_TREE_SIZE]; /* a gw_cuda_tree */
} gw_cuda_group_codebook;

/* A frame that is being encoded. All zero at the start. */
typedef struct gw_cuda_encode_state {
    uint64_t chunks_done;
} gw_cuda_encode_state;

/* Workspace, all zero at the start. */
typedef struct gw_cuda_encode_head {
    uint64_t ticket; /* next chunk of the call, counted over all items */
    uint64_t group_ticket;
} gw_cuda_encode_head;

/* What other blocks read about a chunk, both zero at the start. A unit is a chunk counted over all
 * items; an item without values has one, too. */
typedef struct gw_cuda_chunk_word {
    uint64_t owner; /* 0: not known; 1: would not be CODED if it had to store the codebook; 3: would be */
    uint64_t
        size; /* bits 62 and up: 0 not known, 1 size of the chunk, 2 place of its end; below in 16 bytes */
} gw_cuda_chunk_word;

/*
 * Shared memory of an encode: the state; two rank buffers, at least as much as the planes of 8192 values
 * (16-bit types; 4096 of fp32) and the exchange of 8 warps take; bitmaps of all levels, at most 12 bits a
 * value and a word more a node.
 */
#define GW_CUDA_ENCODE_FIXED_MAX (18u * 1024u)
#define GW_CUDA_ENCODE_RANK_BUFFER_SIZE(chunk_log2)                                                          \
    ((chunk_log2) < 14 ? 18u * 1024u : (chunk_log2) == 14 ? 19u * 1024u - 128u : 35u * 1024u)
#define GW_CUDA_ENCODE_BITMAPS_SIZE(chunk_log2) (((uint32_t)12 << (chunk_log2)) / 8u + 4u * 180u)
#define GW_CUDA_ENCODE_SHARED_SIZE(chunk_log2)                                                               \
    (GW_CUDA_ENCODE_FIXED_MAX + 2u * GW_CUDA_ENCODE_RANK_BUFFER_SIZE(chunk_log2) +                           \
     GW_CUDA_ENCODE_BITMAPS_SIZE(chunk_log2))

/*
 * With more, explicit frames are rounded once: the digits of every warp's values wait there, in 32 strings
 * (four planes of eight warps) with four words of zeros before each and after the last. They are at the
 * end, where the bitmaps would be if they took more than 4 bits a value; if they do, digits are made again.
 * A warp takes up to 512 values, also of chunks so short that not all warps get some.
 */
#define GW_CUDA_ENCODE_STRING_WORDS(chunk_log2, dtype)                                                       \
    ((((uint32_t)1 << ((chunk_log2) < 12 ? 12 : (chunk_log2))) / 8u *                                        \
      ((dtype) == GW_FP32   ? 6u                                                                             \
       : (dtype) == GW_BF16 ? 2u                                                                             \
                            : 3u)) /                                                                         \
     32u)
#define GW_CUDA_ENCODE_STRINGS_SIZE(chunk_log2, dtype)                                                       \
    (4u * (32u * (GW_CUDA_ENCODE_STRING_WORDS(chunk_log2, dtype) + 4u) + 4u))
#define GW_CUDA_ENCODE_TAIL_SIZE(chunk_log2, dtype)                                                          \
    (GW_CUDA_ENCODE_STRINGS_SIZE(chunk_log2, dtype) + ((uint32_t)1 << (chunk_log2)) / 2u + 4u * 180u)
#define GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, dtype)                                                   \
    (GW_CUDA_ENCODE_FIXED_MAX + 2u * GW_CUDA_ENCODE_RANK_BUFFER_SIZE(chunk_log2) +                           \
     (GW_CUDA_ENCODE_TAIL_SIZE(chunk_log2, dtype) > GW_CUDA_ENCODE_BITMAPS_SIZE(chunk_log2)                  \
          ? GW_CUDA_ENCODE_TAIL_SIZE(chunk_log2, dtype)                                                      \
          : GW_CUDA_ENCODE_BITMAPS_SIZE(chunk_log2)))

typedef struct gw_gcomp_encode_params {
    gw_gcomp_work work;
    uint32_t shared_size; /* of gw_device_gcomp_encode_* */
    uint64_t unit_total;  /* with items NULL: chunks, or 1; else the most that the device may count */
    uint64_t group_total; /* the same for groups */
    gw_cuda_encode_head *head;
    gw_cuda_encode_state *states; /* item_count */
    uint64_t *unit_first;         /* items only: item_count + 1, by gw_device_gcomp_count or _hop_items */
    uint64_t *group_first;        /* items only: item_count + 1 */
    gw_cuda_group_codebook *codebooks; /* by group */
    gw_cuda_chunk_word *words;         /* by unit */
    /* Carried, made by gw_device_gcomp_quanta: quanta of all blocks, 2^(chunk_log2 - block_log2) bytes a
     * unit, and the drop_offset of every unit. */
    uint8_t *quanta;
    int32_t *drop_offsets;
} gw_gcomp_encode_params;

/* A source made of segments: its values are rounded first. */
typedef struct gw_gcomp_segment_params {
    gw_gcomp_encode_params from; /* with the values as they are */
    const gw_gcomp_segment *segments;
    uint64_t *starts; /* of the segments, in values: segment_count */
    uint64_t segment_offset;
    uint32_t segment_count;
    uint32_t reserved;
    gw_cuda_result *result; /* the status of the source; GW_ERR_ARG if they have fewer values */
    uint8_t *rounded;
} gw_gcomp_segment_params;

#define GW_CUDA_SEGMENTS_SHARED_SIZE (2u * 1024u)

/* Shared memory of gw_device_gcomp_quanta: counts of map bytes of eight warps, quanta of a chunk. */
#define GW_CUDA_QUANTA_SHARED_SIZE (9u * 1024u)

/* Shared memory of gw_device_gcomp_codebook_*, gw_device_gcomp_histogram_* and
 * gw_device_gcomp_codebook_build. */
#define GW_CUDA_SURVEY_SHARED_SIZE (32u * 1024u)

/* ---- a batch of hops ----------------------------------------------------------------------------------- */

/* What gw_device_gcomp_hop_items makes of hops: items of a decode and of an encode, with sums in between. */
typedef struct gw_gcomp_hop_params {
    gw_gcomp_encode_params out; /* unit_first and group_first are filled in, too */
    const gw_cuda_gcomp_hop *hops;
    gw_cuda_gcomp_item *in_items, *out_items;
    gw_cuda_result *between; /* what the encode of an item comes after */
    uint8_t *sums;           /* of all items, each at a multiple of 16 */
    uint64_t sums_size;
} gw_gcomp_hop_params;

/* ---- codebooks across frames -------------------------------------------------------------------- */

typedef struct gw_gcomp_histogram_params {
    gw_gcomp_work work;        /* dst of an item: the histogram; dst_capacity is not looked at */
    uint64_t unit_total;       /* with items NULL: chunks, or 1 */
    gw_cuda_encode_head *head; /* zero at the start; group_ticket counts the blocks that are done */
    uint64_t *chunk_first;     /* items only: item_count + 1, by gw_device_gcomp_histogram_items */
    uint64_t *chunks_before;   /* items only: chunk_count of the items' histograms as the call found them */
} gw_gcomp_histogram_params;

/* Arrays of as many as there are blocks. */
typedef struct gw_gcomp_codebook_build_params {
    uint32_t dtype, quantum_mode;
    const gw_cuda_gcomp_histogram *histogram;
    uint8_t *codebook;       /* GW_CUDA_CODEBOOK_SIZE_MAX bytes each */
    uint32_t *codebook_size; /* NULL: not wanted */
    gw_cuda_result *result;  /* size: bytes of the codebook */
} gw_gcomp_codebook_build_params;

/* ---- device entry points ------------------------------------------------------------------------------- */

/* What a kernel of the caller's passes to the functions of gcomp_device.cuh. */
typedef struct gw_device_codec {
    gw_cuda_codec codec;
    gw_cuda_map map; /* its digests are not needed */
    gw_cuda_rounding rounding;
    gw_cuda_gcomp_key key;
} gw_device_codec;

#endif
