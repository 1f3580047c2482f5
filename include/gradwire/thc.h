/*
 * thc.h: homomorphic compression of gradients (THC): compressed gradients are added as integers and
 * decompressed once, after the sum.
 *
 * Workers rotate their values and quantize them to indices of 1 to 4 bits. Aggregators replace each index by
 * the integer that a table has for it, and add these integers. Workers decode the sum once: they undo table,
 * scale and rotation. "The paper" below is Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher and Yu, "THC:
 * Accelerating Distributed Deep Learning Using Tensor Homomorphic Compression" (NSDI 2024).
 *
 * One round of one tensor:
 *
 *   every worker   gw_thc_norms()           one pattern per block
 *   any collective integer MAX of the patterns, as uint32 (gw_thc_norms_max() is that MAX)
 *   every worker   gw_thc_encode()          indices of any block range whose maxima have arrived
 *   aggregators    gw_thc_agg_*()           integer sums, any order, any tree
 *   every worker   gw_thc_decode()          sum or mean, by the number of contributors
 *
 * Words used in this header:
 *   block            2^block_log2 elements that are rotated and scaled together. Blocks are numbered from 0
 *                    through the tensor. The last one, of r elements, is padded with zeros to the next power
 *                    of two, at least 64
 *   pattern          the norm of a block (plain: maximum, and negated minimum) as a uint32 that orders like
 *                    the number
 *   maxima           the patterns of a block after MAX over all workers: the scale that all workers share
 *   index            1 to 4 bits that name an entry of the table
 *   table            the quantization table: which integer (grid point), 0..g, each index stands for
 *   g, granularity   the largest grid point
 *   n, worker_max    the largest number of workers in a sum
 *   t, threshold     rotated values are clamped to +-t standard deviations. p is the share of values that are
 *   p                clamped: t = Phi^-1(1 - p / 2)
 *   lane             one unsigned integer of a sum, of lane_bits bits; one per element, padding included
 *   contributor set  bitmap of the workers that are part of a sum. They are its members
 *   error memory     error feedback: what quantization took from a value is added to it in the next round
 *   round            one exchange of one tensor; usually the training step
 *
 * Frames (gw_thc_frame_*()) hold indices or sums, with everything needed to decode them, for a file or
 * message. Packets (gw_thc_packet_*(), gw_thc_server_*()) hold a few blocks each and suit switches and NICs.
 * docs/format-thc.md has the bytes of both, docs/numerics-thc.md every rounding.
 *
 * Every call takes a range of blocks. Results do not depend on how a tensor is cut into ranges.
 *
 * Rules of this header:
 *   - GW_ERR_ARG: a pointer that the call needs is NULL, or a range is not within its tensor
 *   - GW_ERR_STATE: the handle is not initialised
 *   - GW_ERR_WORKSPACE: workspace->size is too small; gw_thc_workspace_size() says what is needed
 *   - *bad_block (bad_block may be NULL) and target->bad_block: the lowest bad block, UINT64_MAX unless a
 *     block is at fault
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_THC_H
#define GRADWIRE_THC_H

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits. A lane must hold n * g, and decoding computes 2 * sum - k * g (k contributors), which must be exact
 * in fp32: hence n * g <= 2^23 (docs/numerics-thc.md section 7). */
#define GW_THC_BITS_MAX        4u
#define GW_THC_GRANULARITY_MAX 255u
#define GW_THC_WORKERS_MAX     65535u
#define GW_THC_BLOCK_LOG2_MIN  6u
#define GW_THC_BLOCK_LOG2_MAX  13u
#define GW_THC_SUM_MAX         8388608u /* 2^23 */

/* The pattern that marks a block with NaN or infinity in it (policy GW_THC_NONFINITE_PROPAGATE). */
#define GW_THC_NORM_NONFINITE 0x7fc00000u

/* Bytes of a contributor set for n workers. Worker r is bit r % 8 of byte r / 8. The size is a multiple of
 * 8. */
#define GW_THC_SET_SIZE(n) (((size_t)(n) + 63u) / 64u * 8u)

/* ------------ tables ------------ */

/* A quantization table (paper, section 4.3): index z in 0..2^bits-1 stands for grid point value[z]. A valid
 * table has bits 1..4, value[0] = 0 and value[2^bits - 1] = granularity; the entries between are strictly
 * increasing, the entries behind are zero. */
typedef struct gw_thc_table {
    uint8_t bits;
    uint8_t granularity;
    uint8_t value[16];
} gw_thc_table;

/*
 * Costs of a table: expected squared errors for a standard normal variable x, which rotated values resemble
 * (paper, section 5.2).
 *   quantization  of values within [-t, t]: integral of (x - lo)(hi - x) phi(x) dx, where lo and hi are the
 *                 grid values around x and phi is the normal density
 *   truncation    of the clamp: E[(|x| - t)^2; |x| > t], a squared bias
 *   total         quantization + truncation
 *   threshold     t = Phi^-1(1 - p / 2)
 */
typedef struct gw_thc_table_cost {
    double quantization;
    double truncation;
    double total;
    double threshold;
} gw_thc_table_cost;

/* GW_OK iff *table is valid as defined above; GW_ERR_ARG if NULL; else GW_ERR_TABLE. */
GW_API gw_status gw_thc_table_check(const gw_thc_table *table);

/* The identity table 0, 1, ..., 2^bits - 1, for uniform quantization. For bits outside 1..4 the table is not
 * valid. */
GW_API gw_thc_table gw_thc_table_uniform(unsigned bits);

/* Bytes of workspace for gw_thc_table_solve(), any bits and granularity. */
#define GW_THC_TABLE_WORKSPACE_SIZE 45064u

/*
 * Finds the best of all tables of `bits` and `granularity` for the share p of clamped values (paper, section
 * 5.2 and appendix B). Tables need not be symmetric. Takes O(2^bits * granularity^2) steps. If several tables
 * have equal cost, in units of 2^-60, the lexicographically smallest wins (docs/numerics-thc.md section 10).
 *   - bits: 1..4
 *   - granularity: 2^bits - 1 .. 255
 *   - p: 2^-13 .. 0.9 (so t <= 4, the largest threshold that options and frames allow)
 *   - *cost (cost may be NULL): absolute error below 1e-13
 *   - workspace: GW_THC_TABLE_WORKSPACE_SIZE bytes
 *   - GW_ERR_ARG, GW_ERR_OPTION for a parameter out of range, GW_ERR_WORKSPACE: nothing is written
 */
GW_API GW_MUST_CHECK gw_status gw_thc_table_solve(unsigned bits, unsigned granularity, double p,
                                                  gw_thc_table *table, gw_thc_table_cost *cost,
                                                  const gw_workspace *workspace);

/* Costs of any valid table at p. Range of p and errors as in gw_thc_table_solve(); GW_ERR_TABLE for an
 * invalid table. */
GW_API GW_MUST_CHECK gw_status gw_thc_table_price(const gw_thc_table *table, double p,
                                                  gw_thc_table_cost *cost);

/* t = Phi^-1(1 - p / 2) rounded to fp32, as its bit pattern; 0 if p is outside 2^-13 .. 0.9. */
GW_API uint32_t gw_thc_threshold_bits(double p);

/* ------------ options and handle ------------ */

typedef enum gw_thc_transform {
    GW_THC_PLAIN = 0,  /* no rotation; values are in [min, max] of the block over all workers (paper,
                          Algorithms 1 and 2) */
    GW_THC_ROTATED = 1 /* randomized Hadamard transform; values are clamped to +-t * norm / sqrt(block length)
                          (Algorithm 3) */
} gw_thc_transform;

/* What a worker does with a block that has NaN or infinity in it, or whose norm or range is too large for
 * fp32 (docs/numerics-thc.md section 3). */
typedef enum gw_thc_nonfinite {
    GW_THC_NONFINITE_ERROR = 0,     /* the call fails with GW_ERR_NONFINITE before any output */
    GW_THC_NONFINITE_PROPAGATE = 1, /* the block is marked in its pattern; every worker decodes it to NaN */
    GW_THC_NONFINITE_ZERO = 2       /* this worker contributes zeros for the whole block */
} gw_thc_nonfinite;

/* Options for all three algorithms. Set all fields with gw_thc_options_init(), then change what you need. All
 * workers of a job use the same ones (gw_thc_options_hash()). */
typedef struct gw_thc_options {
    gw_thc_table table;
    uint32_t threshold_bits; /* t as fp32 pattern, 1/16 <= t <= 4; must be 0 for GW_THC_PLAIN */
    uint32_t worker_max;     /* n: 1..GW_THC_WORKERS_MAX */
    uint32_t job;            /* tells jobs apart on shared aggregators */
    uint64_t seed;           /* key of the random signs of the rotation and of rounding; any value */
    gw_dtype dtype;          /* of inputs and outputs */
    gw_thc_transform transform;
    gw_thc_nonfinite nonfinite;
    uint32_t block_log2; /* 6..13 */
    uint32_t lane_bits;  /* 8, 16 or 32, with n * g <= 2^lane_bits - 1 and n * g <= 2^23 */
    int error_feedback;  /* 1: calls get an error memory; gw_thc_init() refuses it where the error would grow
                            without bound */
    int checksum;        /* 1: gw_thc_frame_encode() ends a frame with a CRC32C */
    uint32_t backends;   /* mask of gw_backend bits that may be used; scalar always is */
} gw_thc_options;

/* What options are chosen for. */
typedef struct gw_thc_goal {
    unsigned bits;       /* of an index: 1..4 */
    uint32_t worker_max; /* 1..GW_THC_WORKERS_MAX */
    unsigned lane_bits;  /* 8, 16, 32, or 0: by worker_max */
    int error_feedback;  /* 0 or 1 */
} gw_thc_goal;

/*
 * Fills *options with the recommended values: rotated, fp32, blocks of 1024, all backends, no checksum,
 * non-finite blocks are errors, seed and job 0.
 *
 * Lanes are the narrowest that give a useful table: 8 bits with the largest granularity <= 31 that fits, else
 * 16 bits with granularity <= 51, else 32. p is a power of 1/2, with its optimal table: the one that
 * minimises quantization + truncation with error feedback, quantization / n + truncation without.
 *   - workspace: as in gw_thc_table_solve(). May be NULL for worker_max <= 1285 with lane_bits 0: these
 *     tables are part of the library
 *   - GW_ERR_ARG, GW_ERR_OPTION, GW_ERR_OVERFLOW if the given lane_bits cannot hold the sum (give 0 or more
 *     bits), GW_ERR_WORKSPACE: *options is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_thc_options_init(gw_thc_options *options, const gw_thc_goal *goal,
                                                   const gw_workspace *workspace);

/* The options that gw_thc_design_make() recommends, and what they cost per element of a tensor. */
typedef struct gw_thc_design {
    gw_thc_options options;
    double p;
    gw_thc_table_cost cost;
    double error_one;  /* squared error / squared norm, for one worker: quantization + truncation */
    double error_mean; /* of the mean of n equal vectors: quantization / n + truncation */
    double up_bits;    /* bits per element from a worker: indices and norm */
    double down_bits;  /* bits per element to a worker: lanes and maximum */
} gw_thc_design;

/* gw_thc_options_init() with predictions. Errors as there. */
GW_API GW_MUST_CHECK gw_status gw_thc_design_make(gw_thc_design *design, const gw_thc_goal *goal,
                                                  const gw_workspace *workspace);

/* The handle: checked options, quantizer tables and kernels. It may be copied, and shared by threads. */
typedef struct gw_thc {
    union {
        uint64_t align;
        unsigned char bytes[1024];
    } opaque;
} gw_thc;

/*
 * Checks *options and prepares a handle.
 *   - GW_ERR_ARG
 *   - GW_ERR_TABLE: options->table is not valid
 *   - GW_ERR_OPTION for a field out of range, or for error feedback where quantization + truncation is 1 or
 *     more: the error memory would grow without bound. Use more bits
 *   - GW_ERR_OVERFLOW for n * g > min(2^lane_bits - 1, 2^23): use wider lanes, a smaller granularity or fewer
 *     workers
 *   - on failure *thc is zeroed
 */
GW_API GW_MUST_CHECK gw_status gw_thc_init(gw_thc *thc, const gw_thc_options *options);

/* The options of a handle, inside it; NULL if it is not initialised. */
GW_API const gw_thc_options *gw_thc_options_of(const gw_thc *thc);

/* 64-bit hash of the options that must agree between workers and aggregators: table, threshold, seed,
 * transform, block size, workers, lanes, and whether nonfinite is PROPAGATE. job must agree too but is not
 * part of it. 0 if thc is not initialised. It detects mistakes, not attackers. */
GW_API uint64_t gw_thc_options_hash(const gw_thc *thc);

/* ------------ geometry ------------ */

/* Blocks of a tensor of `len` elements: ceil(len / 2^block_log2). 0 if thc is not initialised. */
GW_API uint64_t gw_thc_block_count(const gw_thc *thc, uint64_t len);

/* Lanes of one block: 2^block_log2, or fewer for the last one; 0 for a block beyond the tensor. */
GW_API size_t gw_thc_block_lanes(const gw_thc *thc, uint64_t len, uint64_t block);

/* Of blocks [block_first, block_first + block_count) of a tensor of `len` elements: number of lanes, bytes of
 * packed indices, bytes of lanes. Bytes are SIZE_MAX where size_t cannot hold them. */
GW_API uint64_t gw_thc_range_lanes(const gw_thc *thc, uint64_t len, uint64_t block_first,
                                   uint64_t block_count);
GW_API size_t gw_thc_indices_size(const gw_thc *thc, uint64_t len, uint64_t block_first,
                                  uint64_t block_count);
GW_API size_t gw_thc_lanes_size(const gw_thc *thc, uint64_t len, uint64_t block_first, uint64_t block_count);

/* uint32 patterns per block: 1 (norm) for GW_THC_ROTATED, 2 (maximum and negated minimum) for
 * GW_THC_PLAIN. */
GW_API size_t gw_thc_patterns_per_block(const gw_thc *thc);

/* Bytes of workspace for the calls below. GW_THC_WORKSPACE_SIZE_MAX suffices for every handle. */
#define GW_THC_WORKSPACE_SIZE_MAX 73792u /* 9 * 2^13 + 64 */
GW_API size_t gw_thc_workspace_size(const gw_thc *thc);

/* ------------ worker: two phases ------------ */

/* The tensor, blocks, round and worker that a call works on. A range of more than 2^32 blocks gives
 * GW_ERR_LIMIT. */
typedef struct gw_thc_range {
    uint64_t len; /* elements of the whole tensor */
    uint64_t block_first;
    uint64_t block_count;
    uint32_t round; /* any value; round 0 follows round 2^32 - 1 */
    uint32_t rank;  /* of the worker: 0..worker_max-1. Decoders do not read it */
} gw_thc_range;

/* Inputs of a worker's calls. All arrays begin at the first element or block of the range. The element that
 * is encoded is x = value + error, rounded once to fp32; subnormal results and -0 count as +0
 * (docs/numerics-thc.md section 2). */
typedef struct gw_thc_source {
    const void *values; /* elements of options.dtype */
    float *error;       /* error memory of the same elements; NULL iff options.error_feedback is 0. Only
                           gw_thc_encode() and gw_thc_frame_encode() write it */
    /* The following are read by gw_thc_encode() and gw_thc_frame_encode() only. */
    const uint32_t *patterns;     /* maxima over all workers */
    const float *rotated;         /* of gw_thc_prepare(); NULL: encode rotates the values itself */
    const uint32_t *own_patterns; /* of gw_thc_prepare(), with `rotated` */
} gw_thc_source;

/*
 * Phase one: this worker's patterns of the range. Rotated: the fp32 norm of each block (paper, Algorithm 3
 * line 7), summed in a fixed order. Plain: codes of the maximum and of minus the minimum, which order like
 * the numbers (Algorithm 1). An integer MAX over all workers of each uint32 makes the maxima that
 * gw_thc_encode() reads.
 *   - patterns: block_count * gw_thc_patterns_per_block() words
 *   - GW_ERR_NONFINITE (see gw_thc_nonfinite) of *bad_block: patterns[] is then unspecified
 *   - GW_ERR_ARG, GW_ERR_STATE, GW_ERR_WORKSPACE, GW_ERR_LIMIT: nothing is written
 */
GW_API GW_MUST_CHECK gw_status gw_thc_norms(const gw_thc *thc, const gw_thc_range *range,
                                            const gw_thc_source *source, uint32_t *patterns,
                                            uint64_t *bad_block, const gw_workspace *workspace);

/* dst[i] = max(dst[i], src[i]) as unsigned integers: the reduction of phase one. dst == src allowed. */
GW_API void gw_thc_norms_max(uint32_t *dst, const uint32_t *src, size_t len);

/* 64-bit hash of a pattern array (FNV-1a over its little-endian bytes), as carried by packets. */
GW_API uint64_t gw_thc_norms_hash(const uint32_t *patterns, size_t len);

/* Checks an array of patterns, for instance the maxima: GW_OK if gw_thc_norms() can make each of them, else
 * GW_ERR_CORRUPT. *bad_block is counted from the start of the array. */
GW_API gw_status gw_thc_norms_check(const gw_thc *thc, const uint32_t *patterns, uint64_t block_count,
                                    uint64_t *bad_block);

/* Where gw_thc_prepare() writes. */
typedef struct gw_thc_prepared {
    uint32_t *own_patterns; /* one per block */
    float *rotated;     /* gw_thc_range_lanes() values, each block scaled by a power of two that follows from
                           own_patterns */
    uint64_t bad_block; /* out */
} gw_thc_prepared;

/* Phase one together with the rotation: makes what gw_thc_norms() makes, and the rotated values, so that
 * gw_thc_encode() need not rotate after the norms have travelled. For GW_THC_ROTATED only, else
 * GW_ERR_OPTION. */
GW_API GW_MUST_CHECK gw_status gw_thc_prepare(const gw_thc *thc, const gw_thc_range *range,
                                              const gw_thc_source *source, gw_thc_prepared *prepared,
                                              const gw_workspace *workspace);

/*
 * Phase two. Clamps the values, quantizes them stochastically and without bias, and packs the indices of the
 * range into indices->data (paper, Algorithm 3 lines 9-13). The bytes depend on options, round, rank, block
 * number, values and maxima alone: encoding again for a retransmission gives the same bytes, and so does any
 * other cut into ranges.
 *   - source->rotated not NULL (GW_THC_ROTATED only, else GW_ERR_OPTION): the same indices without rotating
 *     again. values and error are then read only if options.error_feedback is 1, else both may be NULL
 *   - source->error is replaced by the new error x - decode(own indices), clamping included (Algorithm 3,
 *     line 22). Where a block is marked non-finite all of x is kept, or +0 where x itself is the cause
 *   - indices->capacity: at least gw_thc_indices_size(); indices->size is set to it
 *   - statuses: as in gw_thc_norms(), GW_ERR_DST, GW_ERR_CORRUPT for an impossible pattern, GW_ERR_STATE if a
 *     maximum is below this worker's own value: phase one ran on other data, repeat it
 *   - on failure the error memory is untouched. After GW_ERR_CORRUPT, GW_ERR_NONFINITE and GW_ERR_STATE of a
 *     block indices->data may hold zeros where it was written; after the others it is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_thc_encode(const gw_thc *thc, const gw_thc_range *range,
                                             const gw_thc_source *source, gw_buffer *indices,
                                             uint64_t *bad_block, const gw_workspace *workspace);

/* One worker's packed indices, and the maxima they were made with. */
typedef struct gw_thc_indices {
    const void *data;
    size_t size;              /* at least gw_thc_indices_size() of the range, else GW_ERR_SHORT */
    const uint32_t *patterns; /* maxima of the range */
} gw_thc_indices;

/* For a contribution that was not part of the sum, for instance because it came too late: puts it back into
 * the error memory, error += decode(own indices), for the range. The result is x of that round to within one
 * rounding of fp32 per value. Needs options.error_feedback, else GW_ERR_OPTION. */
GW_API GW_MUST_CHECK gw_status gw_thc_error_restore(const gw_thc *thc, const gw_thc_range *range,
                                                    const gw_thc_indices *indices, float *error,
                                                    const gw_workspace *workspace);

/* Error memory as bytes, for checkpoints and for moving it to other buckets. The caller numbers all elements
 * of a model. It saves each bucket with the number of its first element, and may later load arrays that cut
 * the same numbering in other places. Each saved array has 40 bytes of header and checksum
 * (docs/format-thc.md section 5). */
GW_API size_t gw_thc_error_saved_size(uint64_t len);
GW_API GW_MUST_CHECK gw_status gw_thc_error_save(const float *error, uint64_t element_first, uint64_t len,
                                                 gw_buffer *dst);
/* Copies the elements that a saved array and [element_first, element_first + len) have in common; other
 * elements keep their value. *loaded (loaded may be NULL) is how many. GW_ERR_SHORT, _MAGIC, _VERSION,
 * _HEADER, _TRAILING, _CHECKSUM, _NONFINITE: nothing is copied, *loaded is 0. */
GW_API GW_MUST_CHECK gw_status gw_thc_error_load(const void *src, size_t src_size, float *error,
                                                 uint64_t element_first, uint64_t len, uint64_t *loaded);

/* ------------ aggregation ------------ */

/* The aggregator. It computes with integers only, and firmware builds (GW_FIRMWARE) have no function
 * pointers. One handle serves any number of sums and threads. Lanes are little-endian unsigned integers of
 * lane_bits bits. Every call checks all of its input before it changes anything. The order of additions, and
 * the tree of partial sums, do not change the result. */
typedef struct gw_thc_agg {
    union {
        uint64_t align;
        unsigned char bytes[192];
    } opaque;
} gw_thc_agg;

typedef struct gw_thc_agg_options {
    gw_thc_table table;
    uint32_t worker_max; /* 1..GW_THC_WORKERS_MAX */
    uint32_t lane_bits;  /* 8, 16 or 32 */
    uint32_t backends;   /* as in gw_thc_options; firmware builds ignore it */
} gw_thc_agg_options;

/* GW_ERR_ARG, GW_ERR_TABLE, GW_ERR_OPTION (worker_max or lane_bits out of range), GW_ERR_OVERFLOW (n * g too
 * large). On failure *agg is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_init(gw_thc_agg *agg, const gw_thc_agg_options *options);

/* A sum in the caller's memory: all zeros at the start. */
typedef struct gw_thc_partial {
    uint8_t *lanes;
    uint8_t *set; /* its contributors: GW_THC_SET_SIZE(worker_max) bytes */
    size_t len;   /* lanes, a multiple of 64, else GW_ERR_ARG */
} gw_thc_partial;

/* Adds one worker's indices: lane i += table[index i], and rank joins the set. GW_ERR_DUP (rank is in the set
 * already, or not below worker_max), GW_ERR_OVERFLOW (the set already has worker_max members, so no
 * aggregator made it). */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_indices(const gw_thc_agg *agg, const gw_thc_partial *sum,
                                                      const uint8_t *indices, uint32_t rank);

/* gw_thc_agg_add_indices() for source_count workers in one pass. Either all are added or none. ranks must be
 * distinct and not in the set. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_indices_many(const gw_thc_agg *agg, const gw_thc_partial *sum,
                                                           const uint8_t *const *indices,
                                                           const uint32_t *ranks, size_t source_count);

/*
 * Adds a partial sum: lane i += in_lanes[i], and in_set joins the set.
 *   - GW_ERR_DUP: the sets overlap, or in_set names a worker not below worker_max
 *   - GW_ERR_OVERFLOW: both together have more than worker_max members
 *   - GW_ERR_CORRUPT: a lane of in_lanes exceeds members(in_set) * g (an empty set must have zero lanes)
 *   - in_lanes == sum->lanes is never valid: the sets would overlap
 */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_lanes(const gw_thc_agg *agg, const gw_thc_partial *sum,
                                                    const uint8_t *in_lanes, const uint8_t *in_set);

/* gw_thc_agg_add_lanes() for source_count partial sums. Either all are added or none. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_lanes_many(const gw_thc_agg *agg, const gw_thc_partial *sum,
                                                         const uint8_t *const *in_lanes,
                                                         const uint8_t *const *in_sets, size_t source_count);

/* gw_thc_agg_add_lanes() where only the number of contributors is known, not the set: *members += in_members.
 * GW_ERR_OVERFLOW if that exceeds worker_max. A contribution that is added twice cannot be detected this
 * way. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_counted(const gw_thc_agg *agg, uint8_t *lanes, size_t len,
                                                      uint32_t *members, const uint8_t *in_lanes,
                                                      uint32_t in_members);

/* Members of a set for worker_max workers; UINT32_MAX if a bit at or above worker_max is set. */
GW_API uint32_t gw_thc_set_members(const uint8_t *set, uint32_t worker_max);

/* For a raw integer all-reduce (MPI_SUM, ncclUint8, ncclUint32, a switch that adds words): makes a buffer of
 * all lanes of the range, then one count lane of value 1 per block, then zero bytes up to a multiple of 4.
 * gw_thc_decode_reduced() decodes element-wise sums of such buffers. No carry leaves a lane, so bytes may be
 * added as uint32 words. indices->patterns is not read. */
GW_API size_t gw_thc_reduced_size(const gw_thc *thc, uint64_t len, uint64_t block_first,
                                  uint64_t block_count);
GW_API GW_MUST_CHECK gw_status gw_thc_expand(const gw_thc *thc, const gw_thc_range *range,
                                             const gw_thc_indices *indices, gw_buffer *dst);

/* ------------ receiver ------------ */

typedef enum gw_thc_mode {
    GW_THC_SUM = 0, /* the sum over the contributors */
    GW_THC_MEAN = 1 /* divided by the number of contributors of each block */
} gw_thc_mode;

/* Summed lanes of a range. */
typedef struct gw_thc_sum {
    const void *data; /* gw_thc_decode(): lanes; gw_thc_decode_reduced(): lanes and counts */
    size_t size;      /* bytes, at least gw_thc_lanes_size() or gw_thc_reduced_size(), else GW_ERR_SHORT */
    const uint32_t *members;  /* contributors of each block; gw_thc_decode_reduced() does not read it. 0: the
                                  block is missing, its lanes must be zero, and it decodes to +0.0 */
    const uint32_t *patterns; /* maxima of the range; 0 decodes to +0.0, GW_THC_NORM_NONFINITE to NaN
                                 (canonical quiet) */
} gw_thc_sum;

/* Where decoded values go. */
typedef struct gw_thc_target {
    void *values;       /* in: elements of options.dtype, from the first of the range on */
    uint64_t capacity;  /* in: elements */
    uint64_t len;       /* out: elements written, 0 on failure */
    uint64_t missing;   /* out: missing blocks */
    uint64_t bad_block; /* out */
} gw_thc_target;

/*
 * Decodes summed lanes (paper, Algorithm 3 lines 18-20): centre, scale, rotate back.
 *   - a block with a lane above members * g, more than worker_max members, an impossible pattern, or zero
 *     norm with non-zero lanes is zero-filled and the others are decoded: GW_ERR_CORRUPT (GW_ERR_OVERFLOW for
 *     the members) of the lowest such block
 *   - GW_ERR_DST if target->capacity is below the elements of the range. Other errors too are found before
 *     target->values is written
 */
GW_API GW_MUST_CHECK gw_status gw_thc_decode(const gw_thc *thc, const gw_thc_range *range,
                                             const gw_thc_sum *sum, gw_thc_mode mode, gw_thc_target *target,
                                             const gw_workspace *workspace);

/* Decodes the output of a raw all-reduce over gw_thc_expand() buffers; members come from the count lanes. */
GW_API GW_MUST_CHECK gw_status gw_thc_decode_reduced(const gw_thc *thc, const gw_thc_range *range,
                                                     const gw_thc_sum *sum, gw_thc_mode mode,
                                                     gw_thc_target *target, const gw_workspace *workspace);

/* Contributors of block i (counted from the start of the range) of the output of a raw all-reduce; 0: the
 * block is missing. Only gw_thc_decode_reduced() checks the number. UINT32_MAX if the range does not fit thc
 * and reduced_size, or has no block i. */
GW_API uint32_t gw_thc_reduced_members(const gw_thc *thc, const gw_thc_range *range, const void *reduced,
                                       size_t reduced_size, uint64_t i);

/* Decodes one worker's indices. The result is its contribution to the sum: x minus the new error. */
GW_API GW_MUST_CHECK gw_status gw_thc_decode_indices(const gw_thc *thc, const gw_thc_range *range,
                                                     const gw_thc_indices *indices, gw_thc_target *target,
                                                     const gw_workspace *workspace);

/* ------------ frames ------------ */

/* Frame flags. */
#define GW_THC_FLAG_SUM        1u  /* payload is lanes with contributor sets, not one worker's indices */
#define GW_THC_FLAG_ROTATED    2u  /* GW_THC_ROTATED; else GW_THC_PLAIN */
#define GW_THC_FLAG_NONFINITE  4u  /* patterns may be GW_THC_NORM_NONFINITE (or 0xffffffff when plain) */
#define GW_THC_FLAG_CHECKSUM   8u  /* the last four bytes are the CRC32C of all others */
#define GW_THC_FLAG_BLOCK_SETS 16u /* a sum with one contributor set per block instead of one for all */

#define GW_THC_FRAME_HEADER_SIZE 96u

/* A received frame. */
typedef struct gw_thc_frame {
    const void *data;
    size_t size;       /* bytes */
    uint64_t len_max;  /* a frame of more elements is refused with GW_ERR_LIMIT */
    uint32_t backends; /* as in gw_thc_options */
} gw_thc_frame;

/* Contents of a frame header, checked. Offsets are from the start of the frame. */
typedef struct gw_thc_frame_info {
    gw_thc_options options; /* error_feedback 0; nonfinite PROPAGATE iff the flag is set, else ERROR;
                               backends: all after peek, as in the frame struct after check */
    uint32_t flags;
    uint32_t round;
    uint32_t rank; /* of the worker of an index frame */
    uint64_t block_first;
    uint64_t block_count;
    uint64_t len;        /* elements in this frame */
    uint64_t frame_size; /* bytes, a multiple of 16 */
    uint64_t norms_offset;
    uint64_t sets_offset;
    uint64_t set_size; /* bytes of one set */
    uint64_t payload_offset;
    uint64_t payload_size;
} gw_thc_frame_info;

/*
 * Reads and checks the header at src.
 *   - src_size: GW_THC_FRAME_HEADER_SIZE bytes suffice, also if the frame has an extension. info->frame_size
 *     then says how many bytes the frame has
 *   - errors in this order: GW_ERR_ARG, GW_ERR_SHORT, then the rules of the header from left to right
 *     (docs/format-thc.md section 6 has each rule and its status): *info is then zeroed
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_peek(const void *src, size_t src_size, gw_thc_frame_info *info);

/* Checks a whole frame: what gw_thc_frame_peek() checks; GW_ERR_LIMIT; GW_ERR_SHORT or GW_ERR_TRAILING if
 * frame->size is not the size of the frame; GW_ERR_HEADER for padding that is not zero; GW_ERR_CHECKSUM;
 * pattern, set and lanes of every block (GW_ERR_CORRUPT, GW_ERR_DUP). *bad_block is counted from the start of
 * the frame. On failure *info is zeroed, as by gw_gcomp_frame_parse(). */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_check(const gw_thc_frame *frame, gw_thc_frame_info *info,
                                                  uint64_t *bad_block);

/* Bytes of an index frame of `len` elements (all of their blocks), a multiple of 16 so that frames in a row
 * stay aligned; SIZE_MAX if size_t is too small. */
GW_API size_t gw_thc_frame_bound(const gw_thc *thc, uint64_t len);

/*
 * One worker's range as a frame: header, patterns, indices. Encodes as gw_thc_encode() does.
 *   - dst->capacity: at least gw_thc_frame_bound() of the elements of the range; dst->size gets the size
 *   - GW_ERR_LIMIT for a range of 2^32 blocks, one more than the header can hold
 *   - on failure dst->data holds what gw_thc_encode() leaves
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_encode(const gw_thc *thc, const gw_thc_range *range,
                                                   const gw_thc_source *source, gw_buffer *dst,
                                                   uint64_t *bad_block, const gw_workspace *workspace);

/* Bytes of a sum frame of `len` elements, a multiple of 16; SIZE_MAX if size_t is too small. flags: 0 or any
 * of GW_THC_FLAG_CHECKSUM, GW_THC_FLAG_BLOCK_SETS; others are ignored. */
GW_API size_t gw_thc_frame_sum_bound(const gw_thc *thc, uint64_t len, uint32_t flags);

/* Makes an empty sum frame (no contributor, all lanes zero) to which frames like `like` can be added. `like`
 * is an index or sum frame, which is checked completely. flags as in gw_thc_frame_sum_bound(); others give
 * GW_ERR_OPTION. */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_sum_init(const gw_thc_frame *like, uint32_t flags,
                                                     gw_buffer *dst);

/*
 * Adds a frame to a sum frame. *sum was made by gw_thc_frame_sum_init() and is trusted; *frame is not. All of
 * this is checked before the first addition:
 *   - GW_ERR_STATE: *sum is not a sum frame
 *   - statuses of gw_thc_frame_check() for *frame
 *   - GW_ERR_ROUND if job or round differ, GW_ERR_MISMATCH if another gw_thc_field differs;
 *     gw_thc_frame_mismatch() says which
 *   - GW_ERR_OPTION for a frame with one set per block and a sum with one set for all
 *   - GW_ERR_DUP for overlapping sets; GW_ERR_OVERFLOW
 *
 * A sum without a checksum stays without one.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_sum_add(const gw_buffer *sum, const gw_thc_frame *frame,
                                                    uint64_t *bad_block);

/* What a frame and a sum must have in common, in the order of comparison. */
typedef enum gw_thc_field {
    GW_THC_FIELD_NONE = 0,
    GW_THC_FIELD_JOB,
    GW_THC_FIELD_ROUND,
    GW_THC_FIELD_DTYPE,
    GW_THC_FIELD_BLOCK_LEN,
    GW_THC_FIELD_TRANSFORM,
    GW_THC_FIELD_NONFINITE, /* whether patterns may mark blocks */
    GW_THC_FIELD_LEN,
    GW_THC_FIELD_BLOCK_FIRST,
    GW_THC_FIELD_LANE_BITS,
    GW_THC_FIELD_WORKER_MAX,
    GW_THC_FIELD_THRESHOLD,
    GW_THC_FIELD_SEED,
    GW_THC_FIELD_TABLE,
    GW_THC_FIELD_NORMS /* the patterns */
} gw_thc_field;

/* The first field in which a frame and a sum differ; GW_THC_FIELD_NONE if they agree in all, or if one of
 * them is not a frame. Neither payloads nor checksums are read. */
GW_API gw_thc_field gw_thc_frame_mismatch(const gw_buffer *sum, const gw_thc_frame *frame);

/* Name of a field for messages ("seed", "block length", ...), "unknown" for any other number. Static
 * storage. */
GW_API const char *gw_thc_field_name(gw_thc_field field);

/*
 * Decodes an index or sum frame; see gw_thc_decode(). The options come from the frame.
 *   - workspace: GW_THC_WORKSPACE_SIZE_MAX bytes always suffice
 *   - target->bad_block: relative to the frame
 *   - GW_ERR_CORRUPT, GW_ERR_DUP: the bad blocks are zero-filled. GW_ERR_CHECKSUM: everything is. Other
 *     errors leave target->values untouched
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_decode(const gw_thc_frame *frame, gw_thc_mode mode,
                                                   gw_thc_target *target, const gw_workspace *workspace);

/* Contributors of a block (relative to the frame) of a checked frame. */
GW_API uint32_t gw_thc_frame_members(const void *src, const gw_thc_frame_info *info, uint64_t block);

/* ------------ packets ------------ */

/* A packet carries a few blocks of one round. All offsets are fixed and all integers little-endian
 * (docs/format-thc.md section 4): a header of 48 bytes; the contributor set, in types LANES, RESULT and
 * MAXIMA; then the payload. Firmware needs nothing else from this header. */
#define GW_THC_PACKET_HEADER_SIZE 48u

typedef enum gw_thc_packet_type {
    GW_THC_PACKET_INDICES = 1, /* worker -> aggregator: packed indices */
    GW_THC_PACKET_LANES = 2,   /* aggregator -> aggregator: a partial sum */
    GW_THC_PACKET_RESULT = 3,  /* aggregator -> worker: the sum */
    GW_THC_PACKET_NOTICE = 4,  /* aggregator -> worker: its packet's round is over, the slot is at `round` */
    GW_THC_PACKET_NORMS = 5,   /* worker -> aggregator: norm patterns */
    GW_THC_PACKET_MAXIMA = 6   /* aggregator -> worker: their maxima */
} gw_thc_packet_type;

/* The header, field by field in wire order; on a little-endian machine these are the bytes themselves. */
typedef struct gw_thc_packet_header {
    uint32_t magic;        /*  0: "gWp", 0x1a */
    uint8_t version;       /*  4: 0 */
    uint8_t type;          /*  5: gw_thc_packet_type */
    uint8_t bits;          /*  6 */
    uint8_t granularity;   /*  7 */
    uint8_t lane_bits;     /*  8: 0 for INDICES and NOTICE, 32 for NORMS and MAXIMA */
    uint8_t block_log2;    /*  9 */
    uint16_t worker_max;   /* 10 */
    uint32_t job;          /* 12 */
    uint32_t round;        /* 16 */
    uint32_t block_first;  /* 20 */
    uint16_t block_count;  /* 24: at least 1; 0 for NOTICE */
    uint16_t rank;         /* 26: sender, or addressee of a NOTICE; 0 for LANES, RESULT, MAXIMA */
    uint32_t len;          /* 28: lanes, a multiple of 64; patterns for NORMS and MAXIMA; 0 for NOTICE */
    uint64_t options_hash; /* 32: gw_thc_options_hash() */
    uint64_t norms_hash;   /* 40: gw_thc_norms_hash() of the blocks' maxima; 0 for NORMS, MAXIMA and NOTICE */
} gw_thc_packet_header;

typedef struct gw_thc_packet {
    gw_thc_packet_header header;
    const uint8_t *set; /* into the packet, NULL where there is none */
    const uint8_t *payload;
    size_t payload_size;
} gw_thc_packet;

/* Bytes of a packet of this type with `len` lanes (or patterns). */
GW_API size_t gw_thc_packet_size(unsigned type, unsigned bits, unsigned lane_bits, uint32_t worker_max,
                                 uint32_t len);

/*
 * Parses and checks bytes from the network. Every header byte is read once. *packet is written on success
 * only and points into src. On an error drop the packet.
 *   - GW_ERR_SHORT, GW_ERR_MAGIC, GW_ERR_VERSION, GW_ERR_UNSUPPORTED (type), GW_ERR_HEADER, GW_ERR_OVERFLOW,
 *     GW_ERR_TRAILING
 *   - GW_ERR_DUP: rank >= worker_max, or a set with padding bits or workers beyond worker_max
 *   - GW_ERR_CORRUPT: a lane above members * g, or a pattern that no worker can have. Patterns that mark
 *     non-finite blocks are allowed
 */
GW_API GW_MUST_CHECK gw_status gw_thc_packet_parse(const uint8_t *src, size_t src_size,
                                                   gw_thc_packet *packet);

/* Writes 48 header bytes; magic and version are filled in, nothing is checked. Set and payload follow
 * them. */
GW_API void gw_thc_packet_write(uint8_t *dst, const gw_thc_packet_header *header);

/* ------------ parameter server ------------ */

/*
 * A parameter server, for aggregation in the network (paper, Pseudocode 1, made safe against lost, late and
 * repeated packets). Packets go in and packets come out; the caller transports them and keeps the time.
 * Memory is fixed at creation.
 *
 * The server has slot_count slots. A packet with first block b belongs to slot (b / blocks_per_packet) %
 * slot_count. A version is the sum (or maximum) of the same blocks in one round. A slot keeps two versions:
 * the current one and the one before.
 *
 * A version is open until all workers, or `quorum` of them, have contributed, or gw_thc_server_seal() closes
 * it. A packet of a newer round (modulo 2^32), or of a later block of the same round in the same slot, opens
 * the slot's next version. That needs two things: the current version is closed, and the one before is free,
 * because all workers were seen at the current version or gw_thc_server_drop() freed it. A worker that sends
 * its packet for a closed version gets the result again.
 */
typedef enum gw_thc_op {
    GW_THC_OP_SUM = 0, /* INDICES and LANES in, RESULT out */
    GW_THC_OP_MAX = 1  /* NORMS in, MAXIMA out: phase one */
} gw_thc_op;

typedef struct gw_thc_server_options {
    gw_thc_table table;
    uint32_t worker_max;
    uint32_t lane_bits; /* of sums; ignored for GW_THC_OP_MAX */
    uint32_t block_log2;
    uint64_t options_hash; /* of the workers' options: gw_thc_options_hash() */
    uint32_t job;
    uint32_t round_first;       /* the first round accepted */
    uint32_t round_window;      /* a packet may open a slot at most so many rounds ahead: >= 1 */
    uint32_t quorum;            /* contributors that close a version: 1..worker_max */
    uint32_t slot_count;        /* >= 1 */
    uint32_t slot_len;          /* lanes (or patterns) of the largest packet; a multiple of 64 for sums */
    uint32_t blocks_per_packet; /* 1..65535 */
    uint32_t backends;          /* as in gw_thc_agg_options */
    gw_thc_op op;
} gw_thc_server_options;

/* The handle. It points to the memory given at creation, so a copy of it is the same server. */
typedef struct gw_thc_server {
    union {
        uint64_t align;
        unsigned char bytes[384];
    } opaque;
} gw_thc_server;

/* What the caller should do with a received packet, besides looking at the status. */
typedef enum gw_thc_action {
    GW_THC_ACTION_NONE = 0,
    GW_THC_ACTION_BROADCAST = 1, /* send `packet` to all workers: a version was closed */
    GW_THC_ACTION_REPLY = 2      /* send `packet` to worker `rank` only */
} gw_thc_action;

typedef struct gw_thc_reply {
    gw_thc_action action;
    uint32_t rank;
    const uint8_t *packet; /* in the server's memory or in `notice`; valid until the server's next call */
    size_t packet_size;
    uint8_t notice[GW_THC_PACKET_HEADER_SIZE];
} gw_thc_reply;

/* Bytes of memory for a server; 0 if the options are not valid or size_t is too small. */
GW_API size_t gw_thc_server_memory_size(const gw_thc_server_options *options);

/* GW_ERR_ARG (also for memory that is not aligned for uint64_t), GW_ERR_OPTION, GW_ERR_TABLE,
 * GW_ERR_OVERFLOW, GW_ERR_WORKSPACE (memory_size). On failure *server is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_thc_server_init(gw_thc_server *server, const gw_thc_server_options *options,
                                                  void *memory, size_t memory_size);

/*
 * Takes one packet. Only GW_OK changes a sum or a maximum. Send what *reply says after any status.
 *   - GW_OK: added
 *   - GW_ERR_DUP: this worker's packet is already part of the version. If the version is closed, the reply
 *     repeats the result
 *   - GW_ERR_ROUND: another job, or a round that is over or beyond the window. The reply is that round's
 *     result if the slot still has it, else a NOTICE
 *   - GW_ERR_STATE: the slot is still busy with an earlier round; the worker sends its packet again later
 *   - GW_ERR_MISMATCH: other options or blocks than the server's, or other blocks or maxima than the first
 *     packet of the version; the fields of the header say which
 *   - GW_ERR_LIMIT: a packet larger than a slot
 *   - GW_ERR_CORRUPT: a lane or a norm that is impossible (codes of plain blocks are not checked here, but by
 *     gw_thc_packet_parse() and gw_thc_norms_check())
 *   - others: see gw_thc_packet_parse()
 */
GW_API GW_MUST_CHECK gw_status gw_thc_server_receive(gw_thc_server *server, const uint8_t *packet,
                                                     size_t packet_size, gw_thc_reply *reply);

/* Closes the open version of a slot before all workers have contributed, for instance when the caller's clock
 * says so. The reply broadcasts the result. GW_ERR_ARG (NULL, a slot that the server does not have);
 * GW_ERR_STATE if no version is open: the reply has GW_THC_ACTION_NONE. */
GW_API GW_MUST_CHECK gw_status gw_thc_server_seal(gw_thc_server *server, uint32_t slot, gw_thc_reply *reply);

/* Frees the version before the current one of a slot, although some workers may not have its result yet. */
GW_API GW_MUST_CHECK gw_status gw_thc_server_drop(gw_thc_server *server, uint32_t slot);

/* 1 if the slot has an open version, else 0; *round and *members (may be NULL) get its round and its
 * contributors so far, 0 where there is no such slot. */
GW_API int gw_thc_server_slot_open(const gw_thc_server *server, uint32_t slot, uint32_t *round,
                                   uint32_t *members);

#ifdef __cplusplus
}
#endif

#endif
