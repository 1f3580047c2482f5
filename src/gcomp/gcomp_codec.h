/*
 * Inside of a codec handle, the workspace, and the steps that encode, decode and hop share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_CODEC_H
#define GW_GCOMP_CODEC_H

#include "gcomp/codebook.h"
#include "gcomp/gcomp_frame.h"
#include "core/kernels.h"
#include "gcomp/segments.h"

enum {
    GW_GROUP_LOG2 = 17,       /* values that share a codebook in preset fast */
    GW_SAMPLE_RUN_LEN = 64,   /* a sample takes runs of this many values */
    GW_SAMPLE_LEN_MAX = 8192, /* 64 of every 1024 of 2^17 values */
    GW_INSTALLED_MAX = 2
};

/* docs/format.md section 7: digests are multiplied by it for the high word of the map hash. */
#define GW_MAP_HASH_FACTOR 0x9e3779b1u

typedef struct gw_installed_codebook {
    uint32_t id, generation;
    uint32_t crc; /* CRC32C of the serialised codebook */
    gw_codebook codebook;
} gw_installed_codebook;

typedef struct gw_codec {
    uint32_t tag; /* GW_CODEC_TAG once initialised */
    uint32_t installed_count;
    uint32_t newest; /* index of the installed codebook that came last */
    /* index of the installed codebook that encodes, -1: codebooks travel in the frame */
    int32_t encode_with;
    gw_gcomp_options options; /* step and cap resolved */
    gw_kernels kernels;
    gw_installed_codebook installed[GW_INSTALLED_MAX];
} gw_codec;

#define GW_CODEC_TAG 0x47434f4du

_Static_assert(sizeof(gw_codec) <= sizeof(gw_gcomp), "gw_gcomp has room for the handle");

/* The contents of a handle, NULL if it is not initialised. */
const gw_codec *gw_codec_of(const gw_gcomp *codec);

/* Arrays of one call, carved out of the workspace, each with room for the longest chunk unless a comment says
 * otherwise. */
typedef struct gw_scratch {
    uint8_t *escapes; /* encode: escapes */
    uint8_t *values;  /* decode: the values of a masked chunk that are not +0; the same memory */
    uint16_t *place;  /* decode: positions of the escapes; the same memory */
    /* encode: the two arrays of gw_write_runs(); decode: those of gw_read_runs() */
    uint8_t *rank_buffer[2];
    uint8_t *plane[GW_PLANES_MAX];
    /* the same for the zero mask. Room for one bit per value */
    uint8_t *mask[2];
    uint8_t *map_bytes;  /* carried: the map bytes of a chunk */
    uint8_t *quanta;     /* carried: one byte per block of a group */
    uint8_t *sums;       /* hop: 2^17 elements; decode_add: the values of a chunk */
    uint32_t *bin_count; /* GW_BINS */
    uint32_t *count;     /* GW_LABELS */
    gw_codebook *codebook;
    gw_codebook_scratch *codebook_scratch;
    gw_tree *tree;
    gw_tree *mask_tree; /* masked codebooks only */
    gw_ranker *ranker;
    gw_joiner *joiner;
} gw_scratch;

size_t gw_scratch_size(const gw_codec *codec);
void gw_scratch_carve(gw_scratch *scratch, const gw_codec *codec, void *workspace);

/* Chunks of a group. */
uint32_t gw_group_chunks(const gw_codec *codec);

/* floor[n] = n rounded down to the step, for n = 0..31. */
void gw_floor_table(uint8_t floor[32], uint32_t step);

/* drop_offset of a map (docs/numerics.md section 2.5). */
int32_t gw_drop_offset(const gw_codec *codec, gw_gcomp_quantum_mode quantum_mode, uint32_t map_base);

/* docs/format.md section 7. */
uint64_t gw_map_hash(const gw_gcomp_frame_info *info, const uint32_t *digest, const gw_kernels *kernels);

/* ---- encode -------------------------------------------------------------------------------------------- */

/* One frame being encoded. */
typedef struct gw_encoding {
    const gw_codec *codec;
    const gw_gcomp_source *source;
    gw_gcomp_frame_info info;
    gw_round_rule rule;
    gw_scratch scratch;
    uint8_t *entries; /* directory entry of chunk entries_first */
    uint64_t entries_first;
    uint8_t *payload;          /* where the next chunk goes */
    uint64_t offset;           /* what the directory says about that place */
    uint32_t window;           /* base of the last exact codebook, the guess for the next */
    gw_segment_place segments; /* where the next group is in the segments, if the source has any */
} gw_encoding;

/* Checks handle, source and workspace, and fills in all but entries, payload and offset. */
gw_status gw_encoding_begin(gw_encoding *encoding, const gw_gcomp *codec, const gw_gcomp_source *source,
                            const gw_workspace *workspace);

/* 1 unless gw_gcomp_encode() refuses the source with GW_ERR_ARG. */
int gw_encoding_is_source_valid(const gw_codec *codec, const gw_gcomp_source *source);

/* The info of the source's frame without frame_size and meta_crc. */
void gw_encoding_fill_info(gw_gcomp_frame_info *info, const gw_codec *codec, const gw_gcomp_source *source);

/* Chooses the window for bin_count[GW_BINS] and sets count[GW_LABELS] to the counts of its labels. Returns
 * the base of the window. */
uint32_t gw_survey_fold(uint32_t *count, const uint32_t *bin_count, uint32_t dtype, uint32_t derived);

/* Encodes the group of chunks that starts at chunk `first`; values is the place of the group's first
 * value. */
void gw_encode_group(gw_encoding *encoding, uint64_t first, const uint8_t *values);

/* Points entries and payload into dst, at the first chunk. */
void gw_encoding_aim(gw_encoding *encoding, const gw_buffer *dst);

/* Writes header and checksum of a frame whose directory and payload are in place, and sets dst->size. */
void gw_encoding_finish(gw_encoding *encoding, gw_buffer *dst);

/* ---- decode -------------------------------------------------------------------------------------------- */

/* One frame being decoded. */
typedef struct gw_decoding {
    const gw_codec *codec;
    const uint8_t *src;
    gw_gcomp_frame_info info;
    const uint8_t
        *map_bytes; /* map bytes from the frame's first value on; NULL unless the frame needs a map */
    gw_scratch scratch;
    const gw_installed_codebook *installed; /* INSTALLED frames only */
    const uint8_t *addend;                  /* if not NULL, the values that the decoded chunk is added to */
    const uint8_t *beside;                  /* if not NULL, memory to prefetch while the chunk is decoded */
    size_t beside_size;
    float scale;             /* of decoded values; 1: none */
    uint64_t codebook_owner; /* chunk whose codebook the tree was built from; UINT64_MAX: none */
    uint32_t codebook_crc;   /* its CRC32C */
    size_t codebook_size;
} gw_decoding;

/* Derived frames without a constant drop. */
static inline int gw_info_needs_map(const gw_gcomp_frame_info *info)
{
    return info->quantum_mode == GW_GCOMP_DERIVED && !info->constant;
}

/* 1 if a frame of this info, whose map may never have been looked at, can be decoded with the map. */
static inline int gw_info_fits_map(const gw_gcomp_frame_info *info, const gw_gcomp_map *map)
{
    return !gw_info_needs_map(info) ||
           (map != NULL && map->len == info->len && (info->len == 0 || map->bytes != NULL));
}

/* Prepares to decode a checked frame. */
gw_status gw_decoding_begin(gw_decoding *decoding, const gw_codec *codec, const gw_gcomp_frame *frame,
                            const gw_gcomp_frame_info *info, const gw_workspace *workspace);

/* The same for a frame that was checked before and whose bytes may have changed: its header is read and
 * checked again. GW_ERR_CORRUPT if len, chunk_log2 or dtype are not those of `checked`; no other field of it
 * is read. */
gw_status gw_decoding_reopen(gw_decoding *decoding, const gw_codec *codec, const gw_gcomp_frame *frame,
                             const gw_gcomp_frame_info *checked, const gw_workspace *workspace);

/* Applies rules 18 to 26 to one chunk and writes its values, or their sums with the addend, to dst (frame
 * dtype). On failure dst is zero-filled. */
gw_status gw_decode_chunk(gw_decoding *decoding, uint64_t index, uint8_t *dst);

/* values[i] * scale, as docs/numerics.md section 5 says. */
void gw_scale_values(const gw_codec *codec, void *values, gw_dtype dtype, size_t len, float scale);

/* accumulator + values -> out, in the frame's dtype. */
void gw_add_values(const gw_codec *codec, const gw_gcomp_frame_info *info, void *out, const void *accumulator,
                   const void *values, size_t len);

/* The map of a source, NULL if another kind chooses its quanta. */
static inline const gw_gcomp_map *gw_source_map(const gw_gcomp_source *source)
{
    return source->quantum.kind == GW_GCOMP_QUANTUM_MAP ? source->quantum.map : NULL;
}

/* 1 if the source, or the options where it leaves that to them, choose quanta that the quantum mode can have.
 */
static inline int gw_source_has_quantum(const gw_gcomp_source *source, const gw_gcomp_options *options)
{
    const int carried = options->quantum_mode == GW_GCOMP_CARRIED;
    switch (source->quantum.kind) {
    case GW_GCOMP_QUANTUM_DEFAULT:
        return !carried || options->quantum.kind == GW_GCOMP_QUANTUM_NMSE;
    case GW_GCOMP_QUANTUM_MAP:
        return source->quantum.map != NULL;
    case GW_GCOMP_QUANTUM_BLOCKS:
        return carried && source->quantum.blocks != NULL;
    default:
        return 0;
    }
}

#endif
