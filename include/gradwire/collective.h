/*
 * collective.h: the steps of a compressed all-reduce and reduce-scatter. The caller transports the messages
 * and owns the memory and the threads. docs/collectives.md draws the data flow; gcomp.h explains the words of
 * the codec (frame, chunk, quantum, precision map, quarter-octave).
 *
 * Words used in this header:
 *   bucket        array of len values, equal in shape on all ranks, that is summed over the ranks
 *   shard         the part of a bucket that one rank sums. This rank is its owner
 *   piece         at most piece_len values of a shard. It travels as one frame
 *   layout        how a bucket is cut into shards and pieces. All ranks compute the same one
 *   contribution  the frame with one rank's values of a piece, on its way to the owner
 *   hop           0 for contributions, 1 for the frame with the sum. In a ring: the step
 *   notice        the message that a rank sends in place of a frame when a step has failed, so that no rank
 *                 waits for a message that does not come
 *   digest        CRC32C of the map bytes of a chunk: equal digests mean equal maps
 *
 * Each call works on one piece. Calls may be made in any order and from any threads, so that coding and
 * transport of different pieces overlap.
 *
 * All-to-all and all-gather (A2A+AG), the default: two roundings for any number of ranks.
 *
 *   every rank    gw_collective_encode()   its values of each piece -> a frame for the owner (hop 0)
 *   transport     to the owner
 *   owner         gw_collective_reduce()   frames of the others + its own values -> one frame (hop 1)
 *   transport     that frame, unchanged, to all ranks
 *   every rank    gw_collective_decode()   the frame -> values; the owner too, so that all hold equal bits
 *
 * For a reduce-scatter the owner calls gw_collective_sum() in place of gw_collective_reduce(). It leaves the
 * sum as values, and nothing follows. In a ring gw_collective_hop() takes the place of encode and reduce, and
 * gw_collective_hop_sum() that of the sum: each rank talks to its two neighbours, and there are as many
 * roundings as ranks. For THC see gw_collective_lanes_*().
 *
 * Rules of this header:
 *   - GW_ERR_ARG: a pointer that the call needs is NULL, a layout that gw_collective_layout_init() did not
 *     make, or an index that the layout does not have
 *   - workspaces: gw_gcomp_workspace_size() of the codec, one per thread
 *   - when a step fails on a rank, the rank sends a notice (gw_collective_notice_write()) wherever it would
 *     have sent a frame
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
    uint32_t chunk_log2; /* of the codec: 10..15; 0 = 14 */
    /* 0: shards of about len / rank_count values. Their lengths are multiples of 64, except for the last
     * shard that is not empty, and differ by at most 64. Else shard r has the values [r * shard_len, (r + 1)
     * * shard_len) of the bucket, as reduce-scatter needs; rank_count * shard_len >= len */
    uint64_t shard_len;
    /* 0: 2^18 values. At least 2^12. Multiples of 2^17 compress best: with preset fast 2^17 values share a
     * codebook. Short pieces overlap more with transport; long ones need fewer messages */
    uint64_t piece_len;
} gw_collective_shape;

/* A checked shape and what follows from it. Plain data, made by gw_collective_layout_init() only. */
typedef struct gw_collective_layout {
    gw_collective_shape shape; /* with the defaults filled in */
    uint32_t shard_pieces;     /* pieces of every shard; the last ones may be empty */
    uint32_t piece_count;      /* rank_count * shard_pieces: piece i belongs to rank i / shard_pieces */
    uint32_t piece_chunks;     /* words of digest that every piece has, whether it uses them or not */
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
    uint64_t len;          /* 0: the piece is empty; nothing is sent for it */
    uint64_t digest_first; /* index of its first word in the map's digests */
} gw_collective_piece;

/* Piece `index` of a bucket. GW_ERR_ARG (index, or a layout that is not initialised): *piece is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_collective_piece_at(const gw_collective_layout *layout, uint32_t index,
                                                      gw_collective_piece *piece);

/* Values [*first, *first + *len) are the shard of `rank`. GW_ERR_ARG: both are 0. */
GW_API GW_MUST_CHECK gw_status gw_collective_shard_at(const gw_collective_layout *layout, uint32_t rank,
                                                      uint64_t *first, uint64_t *len);

/* Upper bound of the bytes of any message, frame or notice, of the layout: post receives of this size. A
 * frame says how long it is (gw_gcomp_frame_peek()), so sizes need not be exchanged if the transport accepts
 * messages shorter than the receive. On a byte stream read GW_COLLECTIVE_NOTICE_SIZE bytes first: a notice
 * has that many, the shortest frame 48. 0 if the layout or codec is not valid. */
GW_API size_t gw_collective_message_bound(const gw_collective_layout *layout, const gw_gcomp *codec);

/* Expected bytes of the message of a piece of len values with these options, measured with the gradients of
 * docs/results/gcomp-dial.md. For first estimates of time and memory only: it is not a bound. */
GW_API uint64_t gw_collective_message_estimate(const gw_gcomp *codec, uint64_t len);

/*
 * The schedule of a ring. First come steps 0 to rank_count - 1, in which sums are made. In each of them a
 * rank works on one shard: gw_collective_ring_shard(). From step 1 on its input is what the left neighbour
 * sent in the step before. In the last step a rank works on the shard that it owns.
 *
 * Then come steps 0 to rank_count - 2 of the gather, in which the frames of finished shards travel on
 * unchanged. In step s rank r sends the shard gw_collective_ring_gather_shard(), which is (r - s) modulo
 * rank_count, and receives the one before that. Arguments out of range give UINT32_MAX.
 */
GW_API uint32_t gw_collective_ring_shard(uint32_t rank_count, uint32_t rank, uint32_t step);
GW_API uint32_t gw_collective_ring_gather_shard(uint32_t rank_count, uint32_t rank, uint32_t step);

/* -----------------------------------------------------------------------------------------------------------
 * Maps of buckets
 * -------------------------------------------------------------------------------------------------------- */

/* A parameter, or a part of one, in a bucket. */
typedef struct gw_collective_segment {
    uint64_t offset; /* index in the bucket of its first value */
    uint64_t len;
    /* how its map bytes are made; NULL: no bits are dropped. All rules of a bucket have the same
     * wire_scale */
    const gw_gcomp_map_rule *rule;
    /* parameters and optimizer state of these values from before the step. Arrays m, v and a that the rule
     * reads and that are NULL count as zeros: the optimizer has not made them yet */
    gw_optimizer_state state;
    uint64_t seed;          /* the parameter's random stream */
    uint64_t first_element; /* index in the parameter of the first value */
} gw_collective_segment;

/* Segments in ascending order of offset, without overlap. Values between them are padding, which loses no
 * bits. */
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
 * First pass over the state: *top is the largest quarter-octave of the piece, as in gw_gcomp_map_scan().
 * gw_gcomp_map_base() makes the base of the map from the maximum over all pieces.
 *
 * The first pass may be skipped in most steps: keep the base of the step before as long as the largest map
 * byte that gw_collective_map_build() reports is in GW_COLLECTIVE_MAP_BYTE_LOW..254. Any base is safe: no
 * value loses more bits than it may. But map bytes end at 255, so with a base that is too small the largest
 * quanta are smaller than they could be; with a base that is too large the bytes of small quanta become 0,
 * and their values lose no bits. To leave room for growth, take gw_gcomp_map_base(top + 16), with which the
 * largest map byte is 239; with gw_gcomp_map_base(top) it is 255. The quanta are the same. Ranks with equal
 * state decide alike.
 *
 *   - GW_OK; GW_ERR_ARG: nothing is written. Also for segments that overlap, leave the bucket or are not in
 *     order, a bad rule, rules with different wire scales, and a parameter that is NULL where its rule reads
 *     it. Every call checks all segments of the bucket
 */
#define GW_COLLECTIVE_MAP_BYTE_LOW 224u
GW_API GW_MUST_CHECK gw_status gw_collective_map_scan(const gw_collective_layout *layout, uint32_t piece,
                                                      const gw_collective_segments *segments,
                                                      uint32_t backends, uint32_t *top);

/* Second pass over the state: writes map bytes and digests of the piece, with the base in map->base. The
 * caller sets map->wire_scale to the rules' wire_scale. *map_byte_max is the largest map byte of the piece.
 * Statuses as in gw_collective_map_scan(); GW_ERR_ARG also for a base outside 1..1023 and if map->wire_scale
 * is not the rules'. On failure nothing is written. */
GW_API GW_MUST_CHECK gw_status gw_collective_map_build(const gw_collective_layout *layout, uint32_t piece,
                                                       const gw_collective_segments *segments,
                                                       uint32_t backends, gw_collective_map *map,
                                                       uint32_t *map_byte_max);

/* Makes the random streams of a bucket (gw_collective_bucket.streams) from its segments, padding included: at
 * most 2 * segments->count + 1 of them (GW_ERR_DST if capacity is smaller). They depend on the seeds and
 * elements of the parameters alone: gw_collective_encode() rounds a value with the same random word whatever
 * bucket it is in. The random words of a sum depend on the rank that encodes it too, and so on which rank
 * owns the value. */
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
    /* random streams of the bucket from gw_collective_streams(). stream_count = 0: one stream for all of it,
     * with the seed and first_element below */
    const gw_gcomp_segment *streams;
    size_t stream_count;
    uint64_t seed;
    uint64_t first_element;
    /* Makes contributions more precise than the sum: their quanta are 2^-contribution_bits times the quanta
     * of the sum. Rounding errors of rank_count contributions add up. With log2(rank_count) / 2, rounded up,
     * and a map whose base is above 4 * contribution_bits, all of them together have the variance bound of
     * one encode of the sum, for stochastic rounding (docs/numerics.md section 6). With a smaller base the
     * quanta are larger than said above, because no base is below 1. Only for derived and carried mode with a
     * map, else without effect. 0..16, else GW_ERR_ARG */
    uint32_t contribution_bits;
} gw_collective_bucket;

/* What failed in a step. Every step that has one as output writes it. */
typedef struct gw_collective_failure {
    gw_status status;
    uint32_t rank;  /* the rank whose message was bad; this rank if no message was */
    uint32_t piece; /* index */
    /* GW_ERR_MAP: in what the frame's map and this rank's differ, a mask of gw_collective_difference (all
     * bits: this rank has no map). 0 for any other status */
    uint32_t difference;
    uint64_t bad_chunk; /* of the piece; UINT64_MAX unless a chunk is at fault */
} gw_collective_failure;

typedef enum gw_collective_difference {
    GW_COLLECTIVE_BASE = 1,  /* base, tolerance or cap */
    GW_COLLECTIVE_SCALE = 2, /* wire scale */
    /* Map bytes or layouts differ; gw_collective_map_pairs() finds the chunk. In a gw_collective_failure this
     * bit means that base, tolerance, cap and wire scale are equal */
    GW_COLLECTIVE_MAP_BYTES = 4
} gw_collective_difference;

/* This rank's values of a piece as a frame, hop 0. Status and dst as gw_gcomp_encode(); an empty piece gives
 * dst->size 0. */
GW_API GW_MUST_CHECK gw_status gw_collective_encode(const gw_collective_bucket *bucket, uint32_t piece,
                                                    gw_buffer *dst, const gw_workspace *workspace);

/*
 * The owner's step: adds all contributions to a piece, in the order of the ranks, and encodes the sum into a
 * frame (hop 1).
 *
 *   - messages: rank_count of them, with the message of rank r at index r. The one of this rank is not read:
 *     its values are taken from the bucket, unrounded. The field `map` is not read
 *   - frames may have another quantum mode than the codec, because senders choose theirs
 *   - if a message is a notice, the status is the one that it carries
 *   - dst->capacity: at least gw_gcomp_frame_bound() of the piece's len
 *   - GW_OK: dst->size is the size of the frame
 *   - GW_ERR_MISMATCH: a frame of another len, dtype or chunk_log2. GW_ERR_ARG also if this rank does not own
 *     the piece. Others: as gw_gcomp_decode() and gw_gcomp_encode()
 *   - on failure dst->size is 0, dst->data holds nothing that this call did not compute, and *failure says
 *     whose message was bad. The caller sends a notice to all ranks
 */
GW_API GW_MUST_CHECK gw_status gw_collective_reduce(const gw_collective_bucket *bucket, uint32_t piece,
                                                    const gw_gcomp_frame *messages, gw_buffer *dst,
                                                    gw_collective_failure *failure,
                                                    const gw_workspace *workspace);

/*
 * gw_collective_reduce() for a reduce-scatter: the sum is left as values, not encoded.
 *
 *   - target->values: where they go; may be the piece's own values in the bucket. Each is multiplied by
 *     target->scale once
 *   - a chunk that is bad in any frame leaves its values of the target as they were
 */
GW_API GW_MUST_CHECK gw_status gw_collective_sum(const gw_collective_bucket *bucket, uint32_t piece,
                                                 const gw_gcomp_frame *messages, gw_gcomp_target *target,
                                                 gw_collective_failure *failure,
                                                 const gw_workspace *workspace);

/*
 * A step of a ring: message of the left neighbour + own values -> frame for the right neighbour. In the last
 * step it is the frame of the finished piece. All else as in gw_collective_reduce().
 *
 *   - piece: one of the shard gw_collective_ring_shard(). It tells the step; in step 0 message is not read
 *   - partial sums have the quanta of contributions (contribution_bits), the finished piece has the quanta of
 *     the map
 */
GW_API GW_MUST_CHECK gw_status gw_collective_hop(const gw_collective_bucket *bucket, uint32_t piece,
                                                 const gw_gcomp_frame *message, gw_buffer *dst,
                                                 gw_collective_failure *failure,
                                                 const gw_workspace *workspace);

/* The last step of a ring for a reduce-scatter, as gw_collective_sum(): the sum is left as values. GW_ERR_ARG
 * also if this rank does not own the piece. */
GW_API GW_MUST_CHECK gw_status gw_collective_hop_sum(const gw_collective_bucket *bucket, uint32_t piece,
                                                     const gw_gcomp_frame *message, gw_gcomp_target *target,
                                                     gw_collective_failure *failure,
                                                     const gw_workspace *workspace);

/*
 * Decodes the message of a finished piece to target->values, the place of the piece, as gw_gcomp_decode().
 *
 *   - target->scale = 1 / rank_count gives the mean without another pass
 *   - *failure for a bad message: names the owner, or what the notice says
 */
GW_API GW_MUST_CHECK gw_status gw_collective_decode(const gw_collective_bucket *bucket, uint32_t piece,
                                                    const gw_gcomp_frame *message, gw_gcomp_target *target,
                                                    gw_collective_failure *failure,
                                                    const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Agreement
 * -------------------------------------------------------------------------------------------------------- */

/* Writes a notice. Its bytes are little-endian and are checked when it is read. */
#define GW_COLLECTIVE_NOTICE_SIZE 32u
GW_API GW_MUST_CHECK gw_status gw_collective_notice_write(const gw_collective_failure *failure,
                                                          gw_buffer *dst);

/* Returns 1 and fills *failure if the message is a notice; returns 0, with GW_OK in *failure, if it is not. A
 * damaged notice, or one that names no failure, gives 1 with status GW_ERR_CORRUPT and UINT32_MAX as rank and
 * piece: its sender is at fault. */
GW_API int gw_collective_notice_read(const void *src, size_t src_size, gw_collective_failure *failure);

/*
 * The status word of an operation: 0 for GW_OK, else status, rank, piece and difference in one number, the
 * larger the worse. After the last decode reduce it over the ranks by one all-reduce MAX of a uint64: all
 * ranks then know the same outcome.
 *
 *   - one word may stand for many buckets. Words are below 2^63, so signed integers do as well
 *   - a failure that cannot be retried is above all that can
 *   - a status above 255 is written as GW_ERR_CORRUPT
 *   - a rank that is not below GW_COLLECTIVE_RANKS_MAX is read as UINT32_MAX
 *   - a word that no failure has is read as GW_ERR_CORRUPT with rank and piece UINT32_MAX
 */
GW_API uint64_t gw_collective_word_write(const gw_collective_failure *failure);
GW_API void gw_collective_word_read(uint64_t word, gw_collective_failure *failure);

typedef enum gw_collective_outcome {
    GW_COLLECTIVE_DONE = 0,
    /* Maps or codebooks differ. Repeat the operation in explicit or carried mode, if the inputs were not
     * overwritten */
    GW_COLLECTIVE_RETRY = 1,
    GW_COLLECTIVE_FAIL = 2 /* anything else */
} gw_collective_outcome;
GW_API gw_collective_outcome gw_collective_word_outcome(uint64_t word);

/*
 * Compares the maps of all ranks before anything is sent, off the critical path. Every rank fills words, the
 * ranks reduce them by integer MAX, and every rank reads the same answer from the result: all choose the same
 * quantum mode. Each word travels beside its complement. The two maxima are complements of each other only if
 * all ranks had the same word.
 *
 *   gw_collective_map_words   base, scale and all digests, in GW_COLLECTIVE_MAP_WORDS words of uint64
 *   gw_collective_map_differs what differs: a mask of gw_collective_difference. 0: all maps are equal
 *   gw_collective_map_pairs   all digests, in 2 * gw_collective_digest_len() words of uint32, to find chunks
 *   gw_collective_map_chunk   the first digest, from `start` on, that differs. UINT64_MAX: none
 *
 * Digest i belongs to chunk i % piece_chunks of piece i / piece_chunks. Digests that a piece does not use are
 * not read. The layout is part of the words.
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
 * All-reduce with THC (thc.h). There are no owners and no frames: the sum is made by any all-reduce that adds
 * integers.
 *
 *   every rank   gw_thc_norms()               patterns of its blocks
 *   transport    all-reduce: MAX of uint32
 *   every rank   gw_collective_lanes_encode() lanes and counts
 *   transport    all-reduce: SUM of uint8, uint16 or uint32, by options.lane_bits
 *   every rank   gw_thc_decode_reduced()      values
 *
 * Ranges of blocks (gw_thc_range) take the place of pieces. gw_thc_options_init() with worker_max = number of
 * ranks and lane_bits = 0 chooses the narrowest lanes that hold the sum.
 */

/* gw_thc_encode() and gw_thc_expand() in one: makes the buffer of gw_thc_reduced_size() bytes that the
 * all-reduce adds up. The last range->block_count counts are lanes too. workspace:
 * gw_collective_lanes_workspace_size() bytes. Statuses as in both calls; GW_ERR_ARG also if the output
 * overlaps the workspace or anything of *source. On failure dst->size is 0, and dst->data holds zeros where
 * it was written. */
GW_API size_t gw_collective_lanes_workspace_size(const gw_thc *thc);
GW_API GW_MUST_CHECK gw_status gw_collective_lanes_encode(const gw_thc *thc, const gw_thc_range *range,
                                                          const gw_thc_source *source, gw_buffer *dst,
                                                          uint64_t *bad_block, const gw_workspace *workspace);

/* Elements of lane_bits bits in that buffer, counts and padding included: the count for the all-reduce. */
GW_API uint64_t gw_collective_lanes_len(const gw_thc *thc, const gw_thc_range *range);

#ifdef __cplusplus
}
#endif

#endif
