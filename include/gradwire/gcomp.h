/*
 * gcomp.h: near-lossless compression of gradients (GCOMP).
 *
 *   values -> drop low bits -> Huffman codes and packed bits -> frame     gw_gcomp_encode
 *   frame -> values, stored or added to others                            gw_gcomp_decode, *_decode_add
 *   frame + values -> frame, chunk by chunk in cache                      gw_gcomp_decode_add_encode
 *
 * Each value loses the low mantissa bits that are too small to change the parameter update. How many these
 * are follows from a precision map: one byte per parameter, computed once per training step from the
 * parameters and the optimizer's state (gw_gcomp_map_*, below). Without a map, a constant or an error target
 * decides. Exponents are Huffman coded, the kept mantissa bits are packed, a zero costs one short code.
 * docs/format.md describes the bytes, docs/numerics.md the arithmetic and its error bounds.
 *
 * "The paper", whose sections are named below, is Li, Guo, Qian, Zhang, Yang and Xu, "Near-Lossless Gradient
 * Compression for Data-Parallel Distributed DNN Training" (SoCC 2024).
 *
 * Words used in this header:
 *   frame            the encoded form of an array of values: header, directory, chunks. One message
 *   chunk            2^chunk_log2 consecutive values of a frame, which decode on their own
 *   codebook         code lengths of the Huffman code. Consecutive chunks that share one are a group. It is
 *                    stored in the frame, or installed in the handles of sender and receiver beforehand
 *   label            the byte that is Huffman coded for a value: zero, escape (the value is stored whole), or
 *                    an exponent, in explicit frames together with the drop
 *   drop             number of low mantissa bits that a value loses
 *   step, cap        drops are multiples of the step and at most the cap
 *   quantum          the power of two of which a decoded value is a multiple: the place value of its lowest
 *                    kept bit
 *   quantum mode     how the receiver learns the quanta (gw_gcomp_quantum_mode): explicit, derived, carried
 *   constant frame   a derived frame that needs no map: its header has one drop for all values
 *   dead zone        option: a value below its quantum becomes 0 or one quantum
 *   precision map    one byte per value, from which the quantum follows
 *   quarter-octave   exponent and top two mantissa bits of an fp32 (its bits >> 21): the scale of the map
 *   base             quarter-octave from which the bytes of a map count
 *   ratio            |num / (lr * c)| * wire_scale, what the map is made of (docs/numerics.md section 2.1)
 *   wire scale       value on the wire / gradient that the optimizer sees: N for a plain sum of N ranks
 *   hop              one step of a ring all-reduce: received frame + own values -> frame
 *
 * Rules of this header:
 *   - GW_ERR_ARG: a pointer that the call needs is NULL, or a number is out of its range
 *   - GW_ERR_STATE: the handle is not initialised
 *   - GW_ERR_WORKSPACE: workspace->size is below gw_gcomp_workspace_size()
 *   - GW_ERR_DST: the capacity is below the bound that the call names
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_GCOMP_H
#define GRADWIRE_GCOMP_H

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -----------------------------------------------------------------------------------------------------------
 * Options and handle
 * -------------------------------------------------------------------------------------------------------- */

typedef enum gw_gcomp_quantum_mode {
    GW_GCOMP_EXPLICIT = 0, /* the label of a value has its drop; any receiver can decode */
    GW_GCOMP_DERIVED = 1,  /* the receiver computes the quanta from its own copy of the map */
    /* the frame stores one quantum per block of values; any receiver can decode. The error of a single
     * parameter is not bounded */
    GW_GCOMP_CARRIED = 2
} gw_gcomp_quantum_mode;

typedef enum gw_gcomp_rounding {
    GW_GCOMP_TRUNCATE = 0,  /* toward zero, as in the paper; the bias adds up over hops */
    GW_GCOMP_NEAREST = 1,   /* nearest, ties to even: smallest error of one hop */
    GW_GCOMP_STOCHASTIC = 2 /* unbiased; recommended for several hops */
} gw_gcomp_rounding;

typedef enum gw_gcomp_preset {
    GW_GCOMP_FAST = 0, /* one codebook per 2^17 values, built from a sample of them */
    GW_GCOMP_SMALL = 1 /* one codebook per chunk, built from all of its values */
} gw_gcomp_preset;

/* The part of a precision map that belongs to one frame, at the sender or at the receiver.
 * gw_gcomp_map_build() makes the bytes and gw_gcomp_map_digest() the digests (section "Precision map" below).
 */
typedef struct gw_gcomp_map {
    const uint8_t *bytes;   /* len bytes, one per value of the frame */
    const uint32_t *digest; /* one word per chunk; NULL unless the mode is derived */
    uint32_t base;          /* from gw_gcomp_map_base(), 1..1023 */
    float wire_scale;       /* of the map's rule, a normal number > 0. Read in derived mode only */
    uint64_t len;           /* values of the frame */
    uint32_t chunk_log2;    /* of the digests, equal to the frame's. Read in derived mode only */
} gw_gcomp_map;

/* What chooses the quanta. DROP and NMSE are kinds for gw_gcomp_options, MAP and BLOCKS for gw_gcomp_source.
 */
typedef enum gw_gcomp_quantum_kind {
    GW_GCOMP_QUANTUM_DEFAULT = 0, /* in a source: as the handle's options say; there: no drop */
    /* explicit and derived: every value loses the same number of mantissa bits */
    GW_GCOMP_QUANTUM_DROP = 1,
    /* carried: the encoder chooses the quanta such that the expected squared error of a frame is about `nmse`
     * times the sum of its squares. The choice is made for each chunk of a frame, from a sample of at least
     * one value in eight. The error that it lets expect is, for a chunk of 32 blocks or more, at most 1.125
     * times its share (of fewer blocks 2 times; with most values just below their quanta, in dead zones, 1.7
     * times), for a block 4 times. Mantissas that are not spread evenly can make the real one 1.5 times as
     * large with stochastic rounding, 3 times with the others. Whatever the values, that of a block is at
     * most 24 and 48 times its share. docs/numerics.md section 6 */
    GW_GCOMP_QUANTUM_NMSE = 2,
    /* a precision map. Carried: the quantum of a block is the one of the median of its map bytes, zeros left
     * out; only bytes and base of the map are read */
    GW_GCOMP_QUANTUM_MAP = 3,
    GW_GCOMP_QUANTUM_BLOCKS = 4 /* carried: the caller chooses the quantum of every block */
} gw_gcomp_quantum_kind;

/* The kind and what it needs. Members of other kinds are not read. */
typedef struct gw_gcomp_quantum {
    gw_gcomp_quantum_kind kind;
    uint32_t drop;           /* DROP: bits. Limited to cap, then rounded down to a multiple of step */
    float nmse;              /* NMSE: a normal number > 0, at most 1 */
    const gw_gcomp_map *map; /* MAP */
    /* BLOCKS: one byte per block, ceil(len / 2^block_log2) of them: the quantum as the exponent field of an
     * fp32; 0: no bits are dropped. A byte above 254 (fp16: 142) counts as 254 (142). A byte more than 62
     * below the largest of its chunk counts as 0 */
    const uint8_t *blocks;
} gw_gcomp_quantum;

/* Make a gw_gcomp_quantum of each kind. An argument of 0 or NULL gives DEFAULT. */
static inline gw_gcomp_quantum gw_gcomp_quantum_of_drop(uint32_t drop)
{
    const gw_gcomp_quantum quantum = {drop == 0 ? GW_GCOMP_QUANTUM_DEFAULT : GW_GCOMP_QUANTUM_DROP, drop, 0,
                                      NULL, NULL};
    return quantum;
}
static inline gw_gcomp_quantum gw_gcomp_quantum_of_nmse(float nmse)
{
    const gw_gcomp_quantum quantum = {nmse == 0 ? GW_GCOMP_QUANTUM_DEFAULT : GW_GCOMP_QUANTUM_NMSE, 0, nmse,
                                      NULL, NULL};
    return quantum;
}
static inline gw_gcomp_quantum gw_gcomp_quantum_of_map(const gw_gcomp_map *map)
{
    const gw_gcomp_quantum quantum = {map == NULL ? GW_GCOMP_QUANTUM_DEFAULT : GW_GCOMP_QUANTUM_MAP, 0, 0,
                                      map, NULL};
    return quantum;
}
static inline gw_gcomp_quantum gw_gcomp_quantum_of_blocks(const uint8_t *blocks)
{
    const gw_gcomp_quantum quantum = {blocks == NULL ? GW_GCOMP_QUANTUM_DEFAULT : GW_GCOMP_QUANTUM_BLOCKS, 0,
                                      0, NULL, blocks};
    return quantum;
}

/* Set all fields with gw_gcomp_options_init(), then change some. */
typedef struct gw_gcomp_options {
    gw_dtype dtype;
    gw_gcomp_quantum_mode quantum_mode;
    gw_gcomp_rounding rounding;
    gw_gcomp_preset preset;
    uint32_t step; /* step of drops; 0: explicit 6 (fp32), 2 (bf16), 3 (fp16), derived and carried 1 */
    uint32_t cap;  /* largest drop in bits; UINT32_MAX: the largest allowed, explicit 18, 6, 9 (fp32, bf16,
                      fp16), derived 23, 7, 10. gw_gcomp_init() rounds it down to a multiple of step */
    gw_gcomp_quantum quantum; /* for sources whose own is DEFAULT. Here: DEFAULT, DROP or NMSE */
    /* For sources with a map: the tolerance t, 1..23 bits, default 23. One encode moves no parameter by more
     * than 2^-t of |num|, the numerator of the ratio (nearest: half of that, except next to the largest
     * finite number; docs/numerics.md section 6). Sender and receiver of a derived frame must use the same.
     */
    uint32_t tolerance_bits;
    /* 1: a value below its quantum becomes 0 or one quantum. Needs derived or carried mode, step 1 and the
     * largest cap. Default 0. Recommended for carried mode, for maps with a noise limit, and for optimizers
     * without a second moment */
    int dead_zone;
    uint32_t block_log2; /* carried: log2 of the values of a block, 6..14, <= chunk_log2; default 9 */
    uint32_t chunk_log2; /* 10..15, default 14 */
    int strict;          /* 1: -0, subnormals and NaN payloads are kept bit for bit */
    int checksum;        /* 1: CRC32C per chunk and over the metadata */
    uint32_t backends;   /* permitted backends, default GW_BACKEND_ALL */
    uint64_t len_max;    /* frames with more values are refused with GW_ERR_LIMIT; default 2^48 */
} gw_gcomp_options;

/* Fills in the defaults: explicit mode, nearest rounding, preset fast. options must not be NULL. */
GW_API void gw_gcomp_options_init(gw_gcomp_options *options, gw_dtype dtype);

/* A codec handle: options, kernels, installed codebooks. Plain data, which may be copied and moved. Calls
 * that take it as const only read it, so threads may share one. */
typedef struct gw_gcomp {
    union {
        uint64_t align;
        unsigned char bytes[4096];
    } opaque;
} gw_gcomp;

/* Initialises a handle. GW_OK; GW_ERR_ARG (NULL); GW_ERR_OPTION (a field is out of range, or docs/format.md
 * section 2 does not allow the combination). On failure *codec is unchanged. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_init(gw_gcomp *codec, const gw_gcomp_options *options);

/* Bytes of workspace that any call with this handle needs. It depends on the options alone and is below 1
 * MiB. 0 if the handle is not initialised. */
GW_API size_t gw_gcomp_workspace_size(const gw_gcomp *codec);

/* Upper bound of the bytes of a frame of len values: header, extension, directory, and chunks none of which
 * could be compressed. 0 if len is above 2^48 or makes more than 2^32 chunks, if the bound does not fit
 * size_t, or if the handle is not initialised. */
GW_API size_t gw_gcomp_frame_bound(const gw_gcomp *codec, uint64_t len);

/* -----------------------------------------------------------------------------------------------------------
 * Encode
 * -------------------------------------------------------------------------------------------------------- */

/* Consecutive values of a source with a random stream of their own. Typically one parameter of a bucket that
 * holds several. */
typedef struct gw_gcomp_segment {
    uint64_t seed;
    uint64_t first_element; /* index of its first value in the parameter */
    uint64_t len;
} gw_gcomp_segment;

/* What one encode works on. */
typedef struct gw_gcomp_source {
    const void *values; /* len elements of the codec's dtype */
    uint64_t len;
    /* DEFAULT, MAP or BLOCKS. GW_ERR_ARG for a kind that does not exist in the handle's quantum mode, and in
     * carried mode if neither the source nor the options choose the quanta */
    gw_gcomp_quantum quantum;
    /* The next five fields are key and counter of stochastic rounding (docs/numerics.md section 4). Random
     * bits belong to an element of the tensor: the result depends neither on how the tensor is split into
     * frames nor on threads. */
    uint64_t seed;
    uint64_t first_element; /* index of values[0] in its tensor */
    uint32_t step_index;    /* training step */
    uint16_t rank, hop;     /* who encodes, and in which hop */
    /* For a source that holds several tensors: segment_count > 0 segments, whose seed and first_element
     * replace the two above. values[0] is value number segment_offset of the segments; their lengths add up
     * to at least segment_offset + len. Stochastic rounding into explicit frames finds the drop steps of the
     * labels of such a source from the rounded values (docs/numerics.md section 3) */
    const gw_gcomp_segment *segments;
    size_t segment_count;
    uint64_t segment_offset;
} gw_gcomp_source;

/*
 * Encodes a source into one frame (sections 4.1 to 4.4 of the paper).
 *
 *   - dst->capacity: at least gw_gcomp_frame_bound(), even if the frame turns out smaller
 *   - GW_OK: dst->size is the size of the frame
 *   - GW_ERR_ARG, GW_ERR_STATE, GW_ERR_DST, GW_ERR_WORKSPACE, GW_ERR_LIMIT (len is above len_max or above
 *     what a frame can hold: cut the source): dst->size is 0, dst->data is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_encode(const gw_gcomp *codec, const gw_gcomp_source *source,
                                               gw_buffer *dst, const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Frames
 * -------------------------------------------------------------------------------------------------------- */

typedef enum gw_gcomp_chunk_kind {
    GW_GCOMP_CHUNK_ZERO = 0, /* no bytes: all values are +0 */
    GW_GCOMP_CHUNK_RAW = 1,  /* the values as they are: coding would not make them smaller */
    GW_GCOMP_CHUNK_CODED = 2 /* Huffman codes and packed bits */
} gw_gcomp_chunk_kind;

/* Contents of a frame's header. */
typedef struct gw_gcomp_frame_info {
    gw_dtype dtype;
    gw_gcomp_quantum_mode quantum_mode;
    uint32_t step, cap;
    int32_t drop_offset;  /* what is added to a map byte to get a drop (docs/format.md section 3) */
    int strict, checksum; /* as in gw_gcomp_options */
    int installed;        /* 1: the codebook is not in the frame, the receiver must have installed it */
    int constant;         /* 1: derived with one drop for all values, no map needed */
    uint32_t chunk_log2;
    uint32_t block_log2; /* carried only, else 0 */
    uint64_t len;
    uint64_t chunk_count;
    uint64_t frame_size;                       /* bytes of the whole frame */
    uint64_t directory_offset;                 /* bytes */
    uint64_t payload_offset;                   /* bytes; where chunk 0 starts */
    uint32_t codebook_id, codebook_generation; /* installed only, else 0 */
    uint32_t codebook_crc;                     /* installed only, else 0: CRC32C of the serialised codebook */
    uint64_t map_hash;                         /* of the map; derived and not constant only, else 0 */
    float wire_scale;                          /* derived and not constant only, else 0 */
    uint32_t meta_crc;                         /* checksum only, else 0 */
} gw_gcomp_frame_info;

/*
 * Reads a frame's header, for instance to learn how many bytes to receive. Needs no handle. It checks rules 1
 * to 8 and 10 of docs/format.md section 8.
 *
 *   - src_size: 72 bytes always suffice: the 32 of the header and at most 40 of the parts of the extension
 *     that its flags announce. Fewer do if they include these. info->frame_size is the size of the whole
 *     frame
 *   - len_max: as in gw_gcomp_options: a frame with more values gives GW_ERR_LIMIT
 *   - statuses: as the rules say. After GW_ERR_SHORT call again with more bytes
 *   - on failure *info is zeroed
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_peek(const void *src, size_t src_size, uint64_t len_max,
                                                   gw_gcomp_frame_info *info);

/* A received frame. */
typedef struct gw_gcomp_frame {
    const void *data;
    size_t size; /* bytes of the frame. More than info->frame_size gives GW_ERR_TRAILING */
    /* The receiver's copy of the map that the frame was made with. Read for derived frames that are not
     * constant; may be NULL for all others */
    const gw_gcomp_map *map;
} gw_gcomp_frame;

/* Where decoded values go. */
typedef struct gw_gcomp_target {
    void *values;       /* in: elements of the frame's dtype */
    uint64_t capacity;  /* in: elements */
    uint64_t len;       /* out: number of values written, 0 on failure */
    uint64_t bad_chunk; /* out: the lowest bad chunk, UINT64_MAX unless a chunk is at fault */
    /* in: factor by which every decoded value is multiplied before it is stored or added (docs/numerics.md
     * section 5). 0 and 1: no multiplication. Else it must be a normal number (GW_ERR_ARG). Zero the struct
     * or set this field: it is always read */
    float scale;
    /* out, gw_gcomp_decode_add_frames() and gw_collective_sum() only: index of the frame at fault, else 0 */
    size_t bad_frame;
} gw_gcomp_target;

/*
 * Checks everything but the contents of the chunks: rules 1 to 16 of docs/format.md section 8. It costs one
 * pass over the directory and writes *info only, which is zeroed on failure.
 *
 *   - GW_ERR_TABLE: the frame's codebook is not installed. Install it with gw_gcomp_codebook_install(), or
 *     have the sender encode with codebooks in the frame
 *   - GW_ERR_MAP: frame->map is not the map that the sender used. Have the sender encode again in explicit or
 *     carried mode
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_parse(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                    gw_gcomp_frame_info *info);

/* One chunk of the directory. */
typedef struct gw_gcomp_chunk {
    gw_gcomp_chunk_kind kind;
    uint64_t offset,
        size; /* bytes: from the start of the frame; of the chunk, with a codebook if it stores one */
    /* index of the chunk that stores its codebook; 0 unless the kind is CODED and the codebook is in the
     * frame */
    uint32_t codebook;
    uint32_t crc;
    uint64_t len; /* values */
} gw_gcomp_chunk;

/* Reads entry `index` of a frame's directory. info comes from gw_gcomp_frame_peek() or
 * gw_gcomp_frame_parse(), and gw_gcomp_frame_parse() must have accepted the frame, or found nothing but a
 * missing codebook or map (GW_ERR_TABLE, GW_ERR_MAP). GW_OK; GW_ERR_ARG (index, or an info that no frame of
 * this size has): *chunk is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_chunk(const gw_gcomp_frame *frame,
                                                    const gw_gcomp_frame_info *info, uint64_t index,
                                                    gw_gcomp_chunk *chunk);

/* Checks everything that gw_gcomp_decode() checks, the contents of the chunks included, but produces no
 * values. *bad_chunk is as in gw_gcomp_target; bad_chunk may be NULL. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_check(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                    uint64_t *bad_chunk, const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Decode, sums, and a hop of a ring
 * -------------------------------------------------------------------------------------------------------- */

/*
 * Decodes a whole frame.
 *
 *   - the frame's dtype must be the handle's, else GW_ERR_OPTION. Of the other options decoding reads len_max
 *     and backends, strict where it adds, tolerance_bits for derived frames, and quantum_mode for frames with
 *     an installed codebook
 *   - statuses: as in docs/format.md section 8, and GW_ERR_ARG, GW_ERR_STATE, GW_ERR_WORKSPACE. For
 *     GW_ERR_TABLE and GW_ERR_MAP see gw_gcomp_frame_parse()
 *   - GW_ERR_CORRUPT, GW_ERR_CHECKSUM of a chunk: the values of bad chunks are +0, all other chunks are
 *     decoded. The status belongs to the lowest bad chunk, target->bad_chunk. The bytes are damaged: ask for
 *     the frame again
 *   - on every other failure nothing is written to target->values
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                               gw_gcomp_target *target, const gw_workspace *workspace);

/* Decodes a frame and adds it to target->values[0..len of the frame) (docs/numerics.md section 5 defines the
 * sum). A bad chunk leaves its values as they were; the other chunks are added. All else is as in
 * gw_gcomp_decode(). */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                   gw_gcomp_target *target, const gw_workspace *workspace);

/* Chunks [chunk_first, chunk_first + chunk_count) of a frame. */
typedef struct gw_gcomp_range {
    uint64_t chunk_first;
    uint64_t chunk_count;
} gw_gcomp_range;

/*
 * Adds several frames to target->values, chunk by chunk in cache: values + frames[0] + frames[1] ..., in this
 * order, with each sum rounded. The result is the same as of one gw_gcomp_decode_add() per frame.
 *
 *   - frames: frame_count >= 1 frames of equal len and chunk_log2, else GW_ERR_MISMATCH; each with its map if
 *     it needs one
 *   - range: the chunks to work on; target->values is then the place of the first value of the range. NULL:
 *     all chunks
 *   - all frames are checked before anything is written. The status is as in gw_gcomp_decode_add(), of the
 *     first frame in the array that fails (target->bad_frame)
 *   - a chunk that is bad in any frame leaves its values as they were; the other chunks are added.
 *     target->bad_chunk is the lowest bad chunk, target->bad_frame the first frame in which it is bad
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add_frames(const gw_gcomp *codec, const gw_gcomp_frame *frames,
                                                          size_t frame_count, const gw_gcomp_range *range,
                                                          gw_gcomp_target *target,
                                                          const gw_workspace *workspace);

/*
 * One hop of a ring all-reduce: frame + source->values -> frame. Map, seed and counters come from the source.
 * The drop of a sum depends on the source's map and the sum alone. The bytes are the same as after decode,
 * add and encode in turn, but the sums stay in cache.
 *
 *   - source->len: the len of the frame, else GW_ERR_ARG
 *   - frame->map and source->quantum.map may be the same
 *   - dst->capacity: at least gw_gcomp_frame_bound()
 *   - *bad_chunk is as in gw_gcomp_target; bad_chunk may be NULL
 *   - GW_OK: dst->size is the size of the frame. On failure it is 0
 *   - if a chunk of the frame is bad, dst->data[0..capacity) is unspecified but holds nothing that this call
 *     did not compute; on any other failure it is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add_encode(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                          const gw_gcomp_source *source, gw_buffer *dst,
                                                          uint64_t *bad_chunk, const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Several threads, one frame
 * -------------------------------------------------------------------------------------------------------- */

/* To encode one frame in several threads, cut its chunks into ranges that begin at multiples of
 * gw_gcomp_range_align() chunks, encode every range into an area of memory of its own
 * (gw_gcomp_encode_range()), and join the areas (gw_gcomp_join()). The result is byte for byte the frame that
 * gw_gcomp_encode() makes. For a handle that is not initialised both functions return 0. */
GW_API uint64_t gw_gcomp_chunk_count(const gw_gcomp *codec, uint64_t len);
GW_API uint64_t gw_gcomp_range_align(const gw_gcomp *codec);

/* Bytes that the area of a range needs. 0 if the range has no chunks or is not within the frame, if len is
 * above 2^48 or makes more than 2^32 chunks, if the size does not fit size_t, or for a handle that is not
 * initialised. */
GW_API size_t gw_gcomp_range_bound(const gw_gcomp *codec, uint64_t len, const gw_gcomp_range *range);

/* An encoded range. In: area, capacity, range. Out: size, 0 on failure. */
typedef struct gw_gcomp_part {
    void *area;
    size_t capacity; /* bytes, at least gw_gcomp_range_bound() */
    gw_gcomp_range range;
    size_t size; /* bytes used */
} gw_gcomp_part;

/* Encodes part->range of the source, which describes the whole frame, into part->area. Status as
 * gw_gcomp_encode(); GW_ERR_ARG also for a range that is not aligned or not within the frame. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_encode_range(const gw_gcomp *codec, const gw_gcomp_source *source,
                                                     gw_gcomp_part *part, const gw_workspace *workspace);

/*
 * Makes the frame of the encoded parts: writes header and directory, and copies the parts behind them.
 *
 *   - parts: all ranges of the frame, in ascending order
 *   - dst->capacity: at least gw_gcomp_frame_bound()
 *   - GW_OK: dst->size is the size of the frame
 *   - GW_ERR_ARG (the parts do not tile the frame, an area overlaps dst->data[0..bound), or gw_gcomp_encode()
 *     would refuse the source, also for a len above len_max), GW_ERR_STATE, GW_ERR_DST: dst->size is 0,
 *     dst->data is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_join(const gw_gcomp *codec, const gw_gcomp_source *source,
                                             const gw_gcomp_part *parts, size_t part_count, gw_buffer *dst);

/*
 * gw_gcomp_join() in steps, for frames so large that several threads should copy. gw_gcomp_join_begin()
 * writes header and directory and sets dst->size. gw_gcomp_join_part() copies parts[part_index] to its place,
 * from any thread and in any order. The frame is complete when all parts are copied. Pass the same arguments
 * to both, unchanged in between.
 *
 *   - begin: status as gw_gcomp_join()
 *   - part: GW_OK; GW_ERR_ARG (part_index >= part_count, a source that begin refuses, the parts up to this
 *     one do not follow one another, or its area overlaps dst->data[0..size)), GW_ERR_STATE, GW_ERR_DST (the
 *     part would end after dst->size, so dst->size is not what begin set): dst->data is untouched
 *   - calls of part write disjoint bytes and may run at the same time
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_join_begin(const gw_gcomp *codec, const gw_gcomp_source *source,
                                                   const gw_gcomp_part *parts, size_t part_count,
                                                   gw_buffer *dst);
GW_API GW_MUST_CHECK gw_status gw_gcomp_join_part(const gw_gcomp *codec, const gw_gcomp_source *source,
                                                  const gw_gcomp_part *parts, size_t part_count,
                                                  size_t part_index, const gw_buffer *dst);

/*
 * gw_gcomp_decode() and gw_gcomp_decode_add() of a range of chunks. Call gw_gcomp_frame_parse() once, then
 * decode disjoint ranges in several threads with its *info.
 *
 *   - target->values is the place of the range's first value; the map still covers the whole frame
 *   - the directory entries of the range are checked again: bytes that change after gw_gcomp_frame_parse()
 *     cannot lead outside the buffers
 *   - status as gw_gcomp_decode(); GW_ERR_ARG also for a range that is not within the frame and for an *info
 *     that gw_gcomp_frame_parse() cannot return
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_range(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                     const gw_gcomp_frame_info *info,
                                                     const gw_gcomp_range *range, gw_gcomp_target *target,
                                                     const gw_workspace *workspace);
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add_range(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                         const gw_gcomp_frame_info *info,
                                                         const gw_gcomp_range *range, gw_gcomp_target *target,
                                                         const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Precision map (section 4.2 of the paper)
 * -------------------------------------------------------------------------------------------------------- */

/* The optimizers that a map can be made for, with PyTorch's semantics: the paper's, and later ones for which
 * the effect of a gradient's error on a parameter has a bound (docs/numerics.md section 2.8 has those that
 * have none). "State" names PyTorch's tensors. */
typedef enum gw_optimizer_kind {
    GW_OPTIMIZER_SGD = 1,      /* theta -= lr * (g + weight_decay * theta) */
    GW_OPTIMIZER_MOMENTUM = 2, /* SGD with momentum and dampening; state m = momentum_buffer */
    GW_OPTIMIZER_NESTEROV = 3, /* the same with nesterov = True (PyTorch then demands dampening = 0) */
    GW_OPTIMIZER_ADAGRAD = 4,  /* state v = sum */
    /* state v = square_avg, m = momentum_buffer if momentum > 0, a = grad_avg if centered */
    GW_OPTIMIZER_RMSPROP = 5,
    GW_OPTIMIZER_ADAM = 6,     /* state m = exp_avg, v = exp_avg_sq, a = max_exp_avg_sq if amsgrad */
    GW_OPTIMIZER_ADAMW = 7,    /* the same with decoupled weight decay */
    GW_OPTIMIZER_NADAM = 8,    /* state m = exp_avg, v = exp_avg_sq; mu_product is a number */
    GW_OPTIMIZER_RADAM = 9,    /* state m = exp_avg, v = exp_avg_sq */
    GW_OPTIMIZER_ADAMAX = 10,  /* state m = exp_avg, v = exp_inf: a largest magnitude, not a square */
    GW_OPTIMIZER_ADADELTA = 11 /* state v = square_avg, a = acc_delta */
} gw_optimizer_kind;

/* Hyperparameters under PyTorch's names. Fields that an optimizer does not have are ignored. */
typedef struct gw_optimizer {
    gw_optimizer_kind kind;
    uint64_t step;       /* number of the update that this gradient is for, from 1 */
    double lr;           /* > 0 */
    double peak_lr;      /* 0, or the largest later rate that counts, see below. Values up to lr mean lr */
    double weight_decay; /* >= 0 */
    double momentum;     /* MOMENTUM, NESTEROV, RMSPROP: 0 <= momentum */
    double dampening;    /* MOMENTUM: < 1. PyTorch skips it in the update that creates the buffer */
    double beta1, beta2; /* ADAM, ADAMW, NADAM, RADAM, ADAMAX: [0, 1) */
    double alpha;        /* smoothing constant. RMSPROP: [0, 1); ADADELTA, whose name is rho: [0, 1] */
    double eps;          /* all that have a second moment: >= 0 */
    double lr_decay;     /* ADAGRAD: >= 0 */
    int centered;        /* RMSPROP: 0 or 1 */
    int amsgrad;         /* ADAM, ADAMW: 0 or 1 */
    int maximize;        /* 0 or 1: the update uses -g */
    int decoupled_weight_decay; /* NADAM, RADAM: 0 or 1 */
    double momentum_decay;      /* NADAM: >= 0 */
    double mu_product;          /* NADAM: [0, 1], PyTorch's mu_product before the update; 1 in step 1 */
} gw_optimizer;

/*
 * About peak_lr (docs/numerics.md section 2.7). A momentum keeps a part of every gradient, and so of its
 * rounding error. Later updates apply that part again, at their own learning rates. If a later rate is larger
 * than lr, as in a warm-up or after a restart, the error grows with it.
 *
 * So set peak_lr to the maximum over later updates of: the rate of the update, times the share of this
 * gradient that the momentum still holds then. The map then holds for max(lr, peak_lr) and for all smaller
 * rates. If the rate is constant or falls, or without a momentum, leave peak_lr 0.
 */

/* Parameters and optimizer state from before the update, len fp32 values each. Arrays that the optimizer does
 * not use may be NULL. So may m in the first update of MOMENTUM and NESTEROV, when PyTorch has no buffer yet,
 * and param and m with noise_only. */
typedef struct gw_optimizer_state {
    const float *param; /* theta */
    const float *m;     /* momentum_buffer, exp_avg */
    const float *v;     /* sum, square_avg, exp_avg_sq, exp_inf */
    const float *a;     /* grad_avg, max_exp_avg_sq, acc_delta */
} gw_optimizer_state;

/*
 * Limits of the quantum Q of a parameter (docs/numerics.md sections 2.5 to 2.7). Where several are set, the
 * smallest one counts.
 *
 *   - tolerance: one encode moves no parameter by more than 2^-tolerance_bits of its own size
 *   - noise: Q <= noise * sqrt(v) * wire_scale, where v is the parameter's second moment. One encode then
 *     adds at most noise^2 / 4 of v to the square of a gradient. ADAMAX: Q <= noise * exp_inf * wire_scale.
 *     Not for SGD, MOMENTUM and NESTEROV, which have no second moment
 *   - update: for momenta when later learning rates are not known (else set peak_lr). Assumes that some later
 *     rate is so large that the momentum moves the parameter by 2^-update_bits of its size in one step. Hence
 *     Q is at most 2^(update_bits - tolerance_bits) of the momentum's own part of the update, in units of the
 *     gradient. Ignored without a momentum. In the first update, when the momentum is empty, nothing is
 *     dropped
 */
typedef struct gw_gcomp_map_limits {
    uint32_t tolerance_bits; /* 1..23: equal to tolerance_bits of the handle that will use the map */
    float noise;             /* 0: no noise limit; else 2^-8..1 */
    int noise_only;          /* 0 or 1. 1: the tolerance does not count; needs a noise limit */
    uint32_t update_bits;    /* 0: no update limit; else 1..23. Not with noise_only */
} gw_gcomp_map_limits;

/* What one optimizer step contributes to a map, reduced to a few factors. gw_gcomp_map_scan() and
 * gw_gcomp_map_build() compute the ratio of every parameter from them (docs/numerics.md section 2.1 has the
 * formula of each optimizer). Plain data. Only gw_gcomp_map_rule_init() makes it; callers need not read it.
 */
typedef struct gw_gcomp_map_rule {
    uint32_t kind;   /* gw_optimizer_kind, 0 = not initialised */
    uint32_t uses;   /* state arrays that are read, besides param: bit 0 m, bit 1 v, bit 2 a */
    uint32_t limits; /* bit 0 tolerance, bit 1 noise, bit 2 rates below peak_lr, bit 3 update. param is read
                        for bit 0 */
    float p_param, p_m; /* ratio = |(p_param*theta - p_m*m) * s - (q_param*theta + q_m*m)| */
    float q_param, q_m;
    float s_scale, eps; /* s = sqrt(second moment * s_scale) + eps, or 1; ADADELTA: a quotient of roots */
    float a_scale;      /* AMSGrad: scale of max_exp_avg_sq */
    float noise;        /* limit of the ratio = sqrt(second moment * scale) * noise */
    float update;       /* limit of the ratio = (|p_m*m| * s + |q_m*m|) * update */
    float wire_scale;
} gw_gcomp_map_rule;

/*
 * Makes the rule of one step.
 *
 *   - wire_scale: value on the wire / gradient that the optimizer will see: N for the plain sum of N ranks, 1
 *     for data divided beforehand, times any loss scale. A normal number > 0
 *   - limits: NULL: the tolerance alone. Without a noise limit the rule does not depend on tolerance_bits
 *   - if the learning rate or a factor is not positive and finite, maps made with the rule drop nothing (all
 *     bytes 0)
 *   - GW_OK; GW_ERR_ARG (NULL, step 0, wire_scale); GW_ERR_OPTION (unknown kind, a hyperparameter or limit
 *     out of range, a noise limit for an optimizer without a second moment)
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_rule_init(const gw_optimizer *optimizer, float wire_scale,
                                                      const gw_gcomp_map_limits *limits,
                                                      gw_gcomp_map_rule *rule);

/*
 * A map is made in two passes over the state. Each pass may be cut into ranges for several threads.
 *
 *   - first gw_gcomp_map_scan() finds the largest quarter-octave of the ratios of a range, or of the noise
 *     limits where these are smaller; 0 if there is none. gw_gcomp_map_base() turns the maximum over all
 *     ranges into the base of the map. If ranks do not hold the same state, take the maximum over all ranks
 *     too
 *   - then gw_gcomp_map_build() writes one byte per parameter: quarter-octave - base, at most 255; 0: nothing
 *     is dropped
 *   - backends: mask of permitted backends (GW_BACKEND_ALL)
 *   - map_bytes: len bytes, which must not overlap the state
 *   - GW_OK; GW_ERR_ARG (NULL, a base outside 1..1023, or a rule that gw_gcomp_map_rule_init() did not make:
 *     unknown kind, arrays or a limit that its optimizer does not have, a subnormal factor or a bad
 *     wire_scale): nothing is written
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_scan(const gw_gcomp_map_rule *rule,
                                                 const gw_optimizer_state *state, size_t len,
                                                 uint32_t backends, uint32_t *top);
GW_API uint32_t gw_gcomp_map_base(uint32_t top);
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_build(const gw_gcomp_map_rule *rule,
                                                  const gw_optimizer_state *state, size_t len, uint32_t base,
                                                  uint32_t backends, uint8_t *map_bytes);

/*
 * Makes the digests of a map, which derived frames need: digest[i] = CRC32C of the map bytes of chunk i. Once
 * per map is enough, however many hops use it.
 *
 *   - chunk_log2: 10..15. Chunks of 2^chunk_log2 values are counted from map_bytes[0], which belongs to the
 *     frame's first value
 *   - digest: ceil(len / 2^chunk_log2) words
 *   - GW_OK; GW_ERR_ARG
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_digest(const uint8_t *map_bytes, size_t len, uint32_t chunk_log2,
                                                   uint32_t *digest);

/* -----------------------------------------------------------------------------------------------------------
 * Installed codebooks, which many frames share (section 4.3 of the paper: renewed every k iterations)
 * -------------------------------------------------------------------------------------------------------- */

/* Most bytes of a serialised codebook: 4, 254 nibbles, 8 for a zero mask, and padding. */
#define GW_GCOMP_CODEBOOK_SIZE_MAX 140

/* Ids of callers' codebooks are below this. The others are for codebooks that the format may define. */
#define GW_GCOMP_CODEBOOK_ID_END 0xffffff00u

/* Counts labels over many calls. Plain data; start with gw_gcomp_histogram_init(). window_start and relative
 * are 255 until values have chosen them. */
typedef struct gw_gcomp_histogram {
    uint32_t dtype, quantum_mode; /* gw_dtype, gw_gcomp_quantum_mode */
    uint32_t window_start;        /* explicit: the lowest of the 63 exponents that labels can name */
    uint32_t relative;            /* 1: labels hold exponents relative to the map */
    uint64_t count[256];          /* by label, docs/format.md section 3 */
    uint64_t mask_count[10];      /* classes of bytes of the zero mask, docs/format.md section 5.3 */
} gw_gcomp_histogram;

/* Makes a histogram empty, for the dtype and quantum mode of the handle. The first values that are added
 * choose window_start and relative. GW_OK; GW_ERR_ARG (NULL); GW_ERR_STATE (handle not initialised). */
GW_API GW_MUST_CHECK gw_status gw_gcomp_histogram_init(gw_gcomp_histogram *histogram, const gw_gcomp *codec);

/*
 * Counts the labels that gw_gcomp_encode() would make of a source. On failure the histogram is unchanged.
 *
 *   - GW_OK; GW_ERR_ARG; GW_ERR_LIMIT; GW_ERR_WORKSPACE
 *   - GW_ERR_STATE: the handle is not initialised, or its dtype or quantum mode differs from the histogram's,
 *     or the histogram has relative exponents and the source has no map
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_histogram_add(gw_gcomp_histogram *histogram, const gw_gcomp *codec,
                                                      const gw_gcomp_source *source,
                                                      const gw_workspace *workspace);

/*
 * Builds the codebook of the counts, serialised as in docs/format.md section 5.1. Label 1 (escape) always
 * gets a code, so that every value can be encoded. So does label 0 (zero) or, if zeros are stored as a mask,
 * every class of mask bytes. Ranks that add their counts (both arrays, for equal window_start and relative)
 * get equal codebooks.
 *
 *   - dst->capacity: GW_GCOMP_CODEBOOK_SIZE_MAX always suffices
 *   - GW_OK: dst->size is the size of the codebook
 *   - GW_ERR_ARG (NULL, or a window_start or counts of labels that the dtype does not have), GW_ERR_DST (the
 *     codebook is larger than the capacity): dst->size is 0, dst->data is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_codebook_build(const gw_gcomp_histogram *histogram, gw_buffer *dst);

/*
 * Gives the handle a serialised codebook, named by an id and a generation. A frame made with it carries both,
 * and the codebook's CRC32C; decoding it with a handle that does not have this very codebook gives
 * GW_ERR_TABLE (install it there). The handle keeps the two codebooks installed last.
 *
 * Messages of a few KiB gain most: an encode that does not build a codebook takes two fifths to two thirds of
 * the time (docs/kernels.md).
 *
 *   - id: below GW_GCOMP_CODEBOOK_ID_END
 *   - codebook: must contain label 1 and, besides, label 0 or, if zeros are stored as a mask, all classes of
 *     mask bytes
 *   - encode: 1: the handle encodes with it from now on, in one pass; 0: for decoding only. If it has
 *     relative exponents, a derived source must then have a map, else GW_ERR_ARG
 *   - GW_OK; GW_ERR_ARG; GW_ERR_STATE; GW_ERR_TABLE (the codebook breaks a rule of docs/format.md section
 *     5.1): the handle is unchanged
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_codebook_install(gw_gcomp *codec, uint32_t id, uint32_t generation,
                                                         const uint8_t *codebook, size_t codebook_size,
                                                         int encode);

/* From now on the handle stores codebooks in its frames again. Installed codebooks stay for decoding. GW_OK;
 * GW_ERR_ARG (NULL); GW_ERR_STATE (handle not initialised). */
GW_API GW_MUST_CHECK gw_status gw_gcomp_codebook_uninstall(gw_gcomp *codec);

/* -----------------------------------------------------------------------------------------------------------
 * Rate control: which tolerance or noise limit gives frames of a wanted size
 * -------------------------------------------------------------------------------------------------------- */

/* A curve is the predicted size at every setting of one limit. A point is one setting. */
typedef enum gw_gcomp_rate_kind {
    GW_GCOMP_RATE_TOLERANCE = 0, /* point i: tolerance_bits i + 1. 23 points */
    GW_GCOMP_RATE_NOISE = 1      /* point i: noise 2^(-i / 2), from 1 down to 2^-8. 17 points */
} gw_gcomp_rate_kind;

#define GW_GCOMP_RATE_POINTS 23

/*
 * Predicted size and error of the frames that gw_gcomp_encode() makes, at every point of a curve. Plain data;
 * start with gw_gcomp_rate_init().
 *
 * To predict for several sources or several ranks together, add their rates field by field (except kind). The
 * integers do not depend on the order of the additions, and gw_gcomp_rate_tolerance() and
 * gw_gcomp_rate_noise() read nothing else: ranks that add up their rates choose the same point. square and
 * error are sums in binary64: they are equal on all ranks only if all add in the same order.
 */
typedef struct gw_gcomp_rate {
    uint64_t len;                        /* values */
    uint64_t front_size;                 /* bytes of headers and extensions, with one frame per source */
    uint64_t cost[GW_GCOMP_RATE_POINTS]; /* 256 times the number of all other bits; 0 at points that the kind
                                            does not have */
    uint64_t nonzeros[GW_GCOMP_RATE_POINTS]; /* decoded values that are not zero */
    double square;                           /* sum of squares of the values */
    /* expected sum of squared errors, on the wire; NMSE = error / square */
    double error[GW_GCOMP_RATE_POINTS];
    gw_gcomp_rate_kind kind;
} gw_gcomp_rate;

/* Makes a rate empty. GW_OK; GW_ERR_ARG (NULL, unknown kind): *rate is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_init(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind);

/*
 * Adds a source. Takes one pass over its values and map (NOISE: two), each after a pass over a sample of
 * them.
 *
 *   - codec: derived mode, step 1, the largest cap, and no installed codebook for encoding. Rounding,
 *     dead_zone, preset, chunk_log2, strict and checksum are as in the encode that is predicted
 *   - TOLERANCE: the map has no noise limit. tolerance_bits of the handle is not read
 *   - NOISE: the map was made with noise = 1, noise_only and the tolerance_bits of the handle
 *   - a map with both limits is not supported, because a point changes only one of them. Make a map of each
 *     limit and a rate of each map: the frame with both limits is at least as large as the larger of the two
 *     predictions
 *   - TOLERANCE: size and nonzeros are exact for the frame that gw_gcomp_encode() makes of this source.
 *     NOISE: exact at every second point (noise 1, 1/2, 1/4, ...). At the points between, the prediction can
 *     differ from a map made for that limit, because map bytes are quarter-octaves. On three real gradients
 *     of a million values the size differed by up to 1.3 % with stochastic rounding; with nearest and
 *     truncate by up to 10 % at a quarter bit per value and less, else by up to 2 %
 *   - the result does not depend on the backends
 *   - pieces of a frame may be added one by one if they start at multiples of gw_gcomp_range_align() chunks
 *     and have first_element set: cost and nonzeros are then the same as for the whole
 *   - GW_OK; GW_ERR_ARG (also: no map); GW_ERR_STATE; GW_ERR_LIMIT; GW_ERR_WORKSPACE; GW_ERR_OPTION (a codec
 *     other than above): the rate is unchanged
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_add(gw_gcomp_rate *rate, const gw_gcomp *codec,
                                                 const gw_gcomp_source *source,
                                                 const gw_workspace *workspace);

/* Predicted bytes of all frames at a point; 0 if the curve has no such point or rate is NULL. */
GW_API uint64_t gw_gcomp_rate_size(const gw_gcomp_rate *rate, uint32_t point);

/*
 * The most precise setting whose predicted size is at most size_max bytes: the largest tolerance_bits, or the
 * smallest noise limit.
 *
 *   - rates that were added up over ranks: size_max is for all ranks together
 *   - GW_OK; GW_ERR_ARG (NULL, a rate of the other kind); GW_ERR_LIMIT (even the least precise setting is
 *     larger: raise size_max): the result is 0
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_tolerance(const gw_gcomp_rate *rate, uint64_t size_max,
                                                       uint32_t *tolerance_bits);
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_noise(const gw_gcomp_rate *rate, uint64_t size_max,
                                                   float *noise);

#ifdef __cplusplus
}
#endif

#endif
