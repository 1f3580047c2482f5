/*
 * collective.h: the steps of a compressed all-reduce and reduce-scatter. The caller moves the bytes between
 * them, owns the memory and the threads; docs/collectives.md draws the data flow.
 *
 * A *bucket* of len values is cut into one *shard* per rank, its owner, and every shard into *pieces* of at
 * most piece_len values. A piece travels as one frame. All calls work on one piece, in any order and from any
 * threads, so that pieces overlap with transport. All ranks compute the same layout.
 *
 * All-to-all and all-gather (A2A+AG), the default: two roundings for any number of ranks.
 *
 *   every rank    gw_collective_encode()   its values of each piece -> a frame for the owner (hop 0)
 *   transport     to the owner
 *   owner         gw_collective_reduce()   frames of the others + its own values -> one frame (hop 1)
 *   transport     that frame, unchanged, to all
 *   every rank    gw_collective_decode()   the frame -> values; the owner too, so that all hold equal bits
 *
 * Reduce-scatter ends after gw_collective_sum(), which leaves the values of the sum at the owner. Ring: the
 * same with gw_collective_hop(), one neighbour and as many roundings as ranks. THC: gw_collective_lanes_*().
 *
 * Rules of this header:
 *   - GW_ERR_ARG: a pointer that the call needs is NULL, a layout that gw_collective_layout_init() did not
 *     make, or an index that the layout does not have
 *   - workspaces: gw_gcomp_workspace_size() of the codec, one per thread
 *   - what a rank sends when it has nothing to send, because of an error, is a *notice*
 *     (gw_collective_notice_write()): no rank waits for a message that does not come
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_COLLECTIVE_H
#define GRADWIRE_COLLECTIVE_H

#include "gradwire/gcomp.h"
#include "gradwire/thc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -----------------------------------------------------------------------------------------------------------
 * Layout
 * -------------------------------------------------------------------------------------------------------- */

#define GW_COLLECTIVE_RANKS_MAX 65535u

/* How a bucket is cut into pieces. Set to zeros, then fill in; equal on all ranks. */
typedef struct gw_collective_shape {
    uint64_t len;        /* values of the bucket, at most 2^48 */
    uint32_t rank_count; /* 1..GW_COLLECTIVE_RANKS_MAX */
    uint32_t chunk_log2; /* of the codec: 12..15; 0 = 14 */
    /* 0: shards of about len / rank_count values, multiples of 64 but the last that is not empty; none is
     * more than 64 longer than another. Else shard r has the values [r * shard_len, (r + 1) * shard_len) that
     * exist, as reduce-scatter needs; rank_count * shard_len >= len */
    uint64_t shard_len;
    /* 0: 2^18 values. At least 2^12. Multiples of 2^17 share codebooks best. Short pieces overlap more with
     * transport, long ones have fewer messages */
    uint64_t piece_len;
} gw_collective_shape;

/* A checked shape and what follows from it. Plain data, made by gw_collective_layout_init() only. */
typedef struct gw_collective_layout {
    gw_collective_shape shape; /* with the defaults filled in */
    uint32_t shard_pieces;     /* pieces of every shard; the last ones may be empty */
    uint32_t piece_count;      /* rank_count * shard_pieces: piece i belongs to rank i / shard_pieces */
    uint32_t piece_chunks;     /* words of digest of every piece, used or not */
    uint32_t reserved;
} gw_collective_layout;

/* GW_OK; GW_ERR_ARG; GW_ERR_OPTION (a field out of range); GW_ERR_LIMIT (more than 2^31 pieces, or
 * 2^32 chunks in one). On failure *layout is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_collective_layout_init(gw_collective_layout *layout,
                                                         const gw_collective_shape *shape);

/* One piece of a bucket. */
typedef struct gw_collective_piece {
    uint32_t owner;
    uint64_t first;        /* index in the bucket of its first value */
    uint64_t len;          /* 0: the piece is empty, and nothing is sent for it */
    uint64_t digest_first; /* index of its first word in the map's digests */
} gw_collective_piece;

/* Piece `index` of a bucket. GW_ERR_ARG (index, or a layout that is not initialised): *piece is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_collective_piece_at(const gw_collective_layout *layout, uint32_t index,
                                                      gw_collective_piece *piece);

/* Values [*first, *first + *len) are the shard of `rank`. GW_ERR_ARG: both are 0. */
GW_API GW_MUST_CHECK gw_status gw_collective_shard_at(const gw_collective_layout *layout, uint32_t rank,
                                                      uint64_t *first, uint64_t *len);

/* Bytes that suffice for the message of any piece of the layout, frame or notice: what to post receives with.
 * A frame delimits itself (gw_gcomp_frame_peek()), so transports that take short messages need no exchange of
 * sizes. The shortest frame has 48 bytes, a notice GW_COLLECTIVE_NOTICE_SIZE: on a byte stream do not wait
 * for more than that before looking. 0 for a layout or codec that is not valid. */
GW_API size_t gw_collective_message_bound(const gw_collective_layout *layout, const gw_gcomp *codec);

/* Bytes that the message of a piece of len values may be expected to have with these options, from the
 * gradients of docs/results/gcomp-dial.md: for first estimates of time and memory, until real sizes are
 * known. Not a bound. */
GW_API uint64_t gw_collective_message_estimate(const gw_gcomp *codec, uint64_t len);

/* The ring's schedule. In step 0 to rank_count - 1 every rank works on one shard, in steps 1 and up on what
 * its left neighbour sent in the step before; in the last one it owns it. Then frames of shards travel on,
 * unchanged: in step s of the gather, 0 to rank_count - 2, rank r sends the shard (r - s) modulo rank_count
 * and receives the one before. Arguments out of range give UINT32_MAX. */
GW_API uint32_t gw_collective_ring_shard(uint32_t rank_count, uint32_t rank, uint32_t step);
GW_API uint32_t gw_collective_ring_gather_shard(uint32_t rank_count, uint32_t rank, uint32_t step);

/* -----------------------------------------------------------------------------------------------------------
 * Maps of buckets
 * -------------------------------------------------------------------------------------------------------- */

/* A parameter, or a part of one, in a bucket. */
typedef struct gw_collective_segment {
    uint64_t offset; /* index in the bucket of its first value */
    uint64_t len;
    /* NULL: nothing of it is dropped. All rules of a bucket have one wire_scale */
    const gw_gcomp_map_rule *rule;
    /* Of these values, before the step. Arrays of m, v and a that the rule reads and that are NULL count as
     * zeros: state that the optimizer has not made yet */
    gw_optimizer_state state;
    uint64_t seed;          /* the parameter's random stream */
    uint64_t first_element; /* index in the parameter of the first value */
} gw_collective_segment;

/* Segments in ascending order of offset, without overlap. What lies between them is padding: it drops
 * nothing. */
typedef struct gw_collective_segments {
    const gw_collective_segment *at;
    size_t count;
} gw_collective_segments;

/* The map of a bucket. bytes and digest are the caller's memory. */
typedef struct gw_collective_map {
    uint8_t *bytes;   /* len bytes of the layout */
    uint32_t *digest; /* gw_collective_digest_len() words */
    uint32_t base;
    float wire_scale; /* of the rules; 1 if there is none */
} gw_collective_map;

/* Words of digest: piece_count * piece_chunks. 0 for an invalid layout. */
GW_API uint64_t gw_collective_digest_len(const gw_collective_layout *layout);

/*
 * First pass: *top is the largest quarter-octave of the piece, as of gw_gcomp_map_scan(). The base of the map
 * is gw_gcomp_map_base() of the maximum over all pieces.
 *
 * The pass may be left out and the base of the step before used again while the largest map byte that
 * gw_collective_map_build() reports stays between GW_COLLECTIVE_MAP_BYTE_LOW and 254: nothing is cut more
 * than it should be with any base, but above 254 quanta are smaller than they could be, and far below it the
 * window ends early. That needs a base with room above: the largest map byte of gw_gcomp_map_base(top) is
 * 255, that of gw_gcomp_map_base(top + 16) is 239, with the same quanta. Ranks with equal state decide alike.
 *
 *   - GW_OK; GW_ERR_ARG (also: segments that overlap, leave the bucket or are not in order, a bad rule, rules
 *     with different wire scales, a parameter that is NULL where its rule reads it; all segments are checked
 *     in every call, not those of the piece alone): nothing is written
 */
#define GW_COLLECTIVE_MAP_BYTE_LOW 224u
GW_API GW_MUST_CHECK gw_status gw_collective_map_scan(const gw_collective_layout *layout, uint32_t piece,
                                                      const gw_collective_segments *segments,
                                                      uint32_t backends, uint32_t *top);

/* Second pass: map bytes and digests of the piece, with map->base; map->wire_scale is not written.
 * *map_byte_max is its largest map byte. Statuses as above, GW_ERR_ARG also for a base outside 1..1023 and a
 * map->wire_scale other than that of the rules. On failure nothing is written. */
GW_API GW_MUST_CHECK gw_status gw_collective_map_build(const gw_collective_layout *layout, uint32_t piece,
                                                       const gw_collective_segments *segments,
                                                       uint32_t backends, gw_collective_map *map,
                                                       uint32_t *map_byte_max);

/* Random streams of a bucket for gw_collective_bucket, padding included: at most 2 * segments->count + 1 of
 * them (GW_ERR_DST if capacity is smaller). They depend on seeds and elements of the parameters alone, so a
 * new bucketing gives a value of gw_collective_encode() the same random word. The words of a sum depend on
 * the rank that encodes it too, and so on who owns the value. */
GW_API GW_MUST_CHECK gw_status gw_collective_streams(const gw_collective_layout *layout,
                                                     const gw_collective_segments *segments,
                                                     gw_gcomp_segment *streams, size_t capacity,
                                                     size_t *stream_count);

/* -----------------------------------------------------------------------------------------------------------
 * Steps
 * -------------------------------------------------------------------------------------------------------- */

/* A rank's input to an operation. Set to zeros, then fill in. */
typedef struct gw_collective_bucket {
    const gw_collective_layout *layout;
    const gw_gcomp *codec;        /* with the chunk_log2 of the layout */
    const gw_collective_map *map; /* NULL: none, as in gw_gcomp_source */
    const void *values; /* layout->shape.len elements of the codec's dtype: this rank's contribution */
    uint32_t rank;
    uint32_t step_index; /* training step */
    /* Random streams of the bucket (gw_collective_streams()), or stream_count = 0 and one seed for all of it
     */
    const gw_gcomp_segment *streams;
    size_t stream_count;
    uint64_t seed;
    uint64_t first_element;
    /* Contributions have quanta 2^-contribution_bits of those of the sum, or larger ones where the map's base
     * is 4 * contribution_bits or less: no base is below 1. Derived and carried quanta with a map only, else
     * without effect. With log2(rank_count) / 2, rounded up, and a base above that, the bound of the variance
     * of all contributions' stochastic rounding together is that of one encode of the sum (docs/numerics.md
     * section 6). 0..16, else GW_ERR_ARG */
    uint32_t contribution_bits;
} gw_collective_bucket;

/* What failed in a step, and whose message it was. Written by every step. */
typedef struct gw_collective_failure {
    gw_status status;
    uint32_t rank;  /* whose message it was; this rank if it was none */
    uint32_t piece; /* index */
    /* GW_ERR_MAP: what differs between the frame and this rank's map, a mask of gw_collective_difference (all
     * of them: this rank has no map); else 0 */
    uint32_t difference;
    uint64_t bad_chunk; /* of the piece; UINT64_MAX unless a chunk is at fault */
} gw_collective_failure;

typedef enum gw_collective_difference {
    GW_COLLECTIVE_BASE = 1,  /* base, tolerance or cap */
    GW_COLLECTIVE_SCALE = 2, /* wire scale */
    /* Map bytes differ, or layouts; gw_collective_map_pairs() finds which bytes. In a failure: all of the
     * others are equal */
    GW_COLLECTIVE_MAP_BYTES = 4
} gw_collective_difference;

/* This rank's values of a piece as a frame, hop 0. Status and dst as gw_gcomp_encode(); an empty piece gives
 * dst->size 0. */
GW_API GW_MUST_CHECK gw_status gw_collective_encode(const gw_collective_bucket *bucket, uint32_t piece,
                                                    gw_buffer *dst, const gw_workspace *workspace);

/*
 * The owner's step: the sum of all contributions to a piece, in the order of the ranks, as a frame (hop 1).
 *
 *   - messages: rank_count of them, that of rank r at index r. That of this rank is not read: its values are
 *     taken from the bucket, unrounded. The field map is not read
 *   - frames may have another quantum mode than the codec's, as their senders chose
 *   - a notice among them gives the status that it carries
 *   - dst->capacity: at least gw_gcomp_frame_bound() of the piece's len
 *   - GW_OK: dst->size is the size of the frame
 *   - GW_ERR_MISMATCH: a frame of another len, dtype or chunk_log2. GW_ERR_ARG also if this rank does not own
 *     the piece. Others: as gw_gcomp_decode() and gw_gcomp_encode()
 *   - on failure dst->size is 0 and dst->data holds nothing that this call did not compute; *failure says
 *     who. The caller sends a notice to all
 */
GW_API GW_MUST_CHECK gw_status gw_collective_reduce(const gw_collective_bucket *bucket, uint32_t piece,
                                                    const gw_gcomp_frame *messages, gw_buffer *dst,
                                                    gw_collective_failure *failure,
                                                    const gw_workspace *workspace);

/*
 * gw_collective_reduce(), but the sum is left as values, for the caller's reduce-scatter.
 *   - target->values: where they go; may be the piece's own values in the bucket. Each is multiplied by
 *     target->scale once
 *   - a chunk that is bad in any frame leaves its values of the target as they were
 */
GW_API GW_MUST_CHECK gw_status gw_collective_sum(const gw_collective_bucket *bucket, uint32_t piece,
                                                 const gw_gcomp_frame *messages, gw_gcomp_target *target,
                                                 gw_collective_failure *failure,
                                                 const gw_workspace *workspace);

/*
 * A step of a ring: message of the left neighbour + own values -> frame for the right one, or, in the last
 * step, the frame of the finished piece. Otherwise as gw_collective_reduce().
 *   - piece: one of the shard of gw_collective_ring_shard(), which implies the step; in step 0 message is not
 *     read
 *   - partial sums are contributions: they have quanta of contribution_bits, the finished piece has those of
 *     the map
 */
GW_API GW_MUST_CHECK gw_status gw_collective_hop(const gw_collective_bucket *bucket, uint32_t piece,
                                                 const gw_gcomp_frame *message, gw_buffer *dst,
                                                 gw_collective_failure *failure,
                                                 const gw_workspace *workspace);

/*
 * Decodes the message of a finished piece to target->values, the piece's place, as gw_gcomp_decode().
 *   - target->scale = 1 / rank_count: the mean, without a pass of its own
 *   - *failure for a bad message: the owner, or what a notice says
 */
GW_API GW_MUST_CHECK gw_status gw_collective_decode(const gw_collective_bucket *bucket, uint32_t piece,
                                                    const gw_gcomp_frame *message, gw_gcomp_target *target,
                                                    gw_collective_failure *failure,
                                                    const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Agreement
 * -------------------------------------------------------------------------------------------------------- */

/* A message that says that a step failed, in place of a frame. Little-endian; checked when it is read. */
#define GW_COLLECTIVE_NOTICE_SIZE 32u
GW_API GW_MUST_CHECK gw_status gw_collective_notice_write(const gw_collective_failure *failure,
                                                          gw_buffer *dst);

/* 1 and *failure if the message is a notice; 0 if it is not; *failure then has status GW_OK. A damaged
 * notice, or one that names no failure, gives 1, GW_ERR_CORRUPT, and UINT32_MAX as rank and piece: the sender
 * is at fault. */
GW_API int gw_collective_notice_read(const void *src, size_t src_size, gw_collective_failure *failure);

/*
 * The status word of an operation: 0 for GW_OK, else status, rank, piece and difference, ordered such that
 * the larger one is worse. Exchange it after the last decode by one all-reduce MAX of a uint64: all ranks
 * then have the same outcome.
 *   - one word may stand for many buckets; words are below 2^63, so signed integers do as well
 *   - a failure that cannot be retried is above all that can
 *   - a status above 255 is written as GW_ERR_CORRUPT
 *   - a rank that is not below GW_COLLECTIVE_RANKS_MAX is read as UINT32_MAX
 *   - a word that no failure has is read as GW_ERR_CORRUPT with rank and piece UINT32_MAX
 */
GW_API uint64_t gw_collective_word_write(const gw_collective_failure *failure);
GW_API void gw_collective_word_read(uint64_t word, gw_collective_failure *failure);

typedef enum gw_collective_outcome {
    GW_COLLECTIVE_DONE = 0,
    /* Maps or codebooks differ. Inputs that were not overwritten can be sent again with explicit or carried
       quanta */
    GW_COLLECTIVE_RETRY = 1,
    GW_COLLECTIVE_FAIL = 2 /* anything else */
} gw_collective_outcome;
GW_API gw_collective_outcome gw_collective_word_outcome(uint64_t word);

/*
 * Comparing maps before anything is sent, off the critical path: every rank fills words, the ranks reduce
 * them by integer MAX, every rank reads the same answer, and all choose the same quantum mode. Each word
 * travels beside its complement: the maximum of both fits together only if all ranks had the same.
 *
 *   gw_collective_map_words   base, scale and all digests: GW_COLLECTIVE_MAP_WORDS words of uint64
 *   gw_collective_map_differs the mask of gw_collective_difference that the reduced words show
 *   gw_collective_map_pairs   2 * gw_collective_digest_len() words of uint32: all digests, to find the chunks
 *   gw_collective_map_chunk   the first one, from `start` on, of the reduced digests that differs
 *
 * Mask 0: all maps are equal. UINT64_MAX: no digest differs; else it is chunk i % piece_chunks of piece i /
 * piece_chunks. Digests that a piece does not use are not read. The layout is part of the words.
 */
#define GW_COLLECTIVE_MAP_WORDS 6u
GW_API GW_MUST_CHECK gw_status gw_collective_map_words(const gw_collective_layout *layout,
                                                       const gw_collective_map *map,
                                                       uint64_t words[GW_COLLECTIVE_MAP_WORDS]);
GW_API uint32_t gw_collective_map_differs(const uint64_t words[GW_COLLECTIVE_MAP_WORDS]);
GW_API GW_MUST_CHECK gw_status gw_collective_map_pairs(const gw_collective_layout *layout,
                                                       const gw_collective_map *map, uint32_t *pairs);
GW_API uint64_t gw_collective_map_chunk(const gw_collective_layout *layout, const uint32_t *pairs,
                                        uint64_t start);

/* -----------------------------------------------------------------------------------------------------------
 * THC: sums inside an unmodified all-reduce
 * -------------------------------------------------------------------------------------------------------- */

/*
 * THC in the same shape, without owners and frames: any all-reduce that adds integers does the sum.
 *
 *   every rank   gw_thc_norms()               patterns of its blocks
 *   transport    all-reduce: MAX of uint32
 *   every rank   gw_collective_lanes_encode() lanes and counts
 *   transport    all-reduce: SUM of uint8, uint16 or uint32, by options.lane_bits
 *   every rank   gw_thc_decode_reduced()      values
 *
 * Block ranges of gw_thc_range take the place of pieces. gw_thc_options_init() with worker_max = number of
 * ranks and lane_bits = 0 chooses the narrowest lanes that hold the sum.
 */

/* gw_thc_encode() and gw_thc_expand() in one: the buffer of gw_thc_reduced_size() bytes that the all-reduce
 * adds up. The last range->block_count counts are lanes too. workspace: gw_collective_lanes_workspace_size().
 * Statuses of both calls; GW_ERR_ARG also if the output overlaps the workspace or anything of *source. On
 * failure dst->size is 0, and dst->data holds zeros where it was written. */
GW_API size_t gw_collective_lanes_workspace_size(const gw_thc *thc);
GW_API GW_MUST_CHECK gw_status gw_collective_lanes_encode(const gw_thc *thc, const gw_thc_range *range,
                                                          const gw_thc_source *source, gw_buffer *dst,
                                                          uint64_t *bad_block, const gw_workspace *workspace);

/* Elements of lane_bits bits in such a buffer, counts and padding included: the count of the all-reduce. */
GW_API uint64_t gw_collective_lanes_len(const gw_thc *thc, const gw_thc_range *range);

#ifdef __cplusplus
}
#endif

#endif
