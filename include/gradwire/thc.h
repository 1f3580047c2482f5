/*
 * thc.h: homomorphic compression of gradients (THC).
 *
 * Workers rotate and quantize to indices of 1 to 4 bits; anyone in the middle expands indices through a table
 * and adds integers; workers undo table, scale and rotation once, on the sum. "The paper" below is Li et al.,
 * "THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic Compression" (NSDI 2024).
 *
 * One round of one tensor:
 *
 *   every worker   gw_thc_norms()           one pattern per block
 *   any collective integer MAX of the patterns, as uint32 (gw_thc_norms_max() is that MAX)
 *   every worker   gw_thc_encode()          indices of any block range whose maxima have arrived
 *   anyone         gw_thc_agg_*()           integer sums, any order, any tree
 *   every worker   gw_thc_decode()          sum or mean, by the number of contributors
 *
 * Frames (gw_thc_frame_*()) put indices or sums, with everything needed to decode them, in a file or message;
 * packets (gw_thc_packet_*(), gw_thc_server_*()) carry a few blocks each and suit switches and NICs.
 * docs/format-thc.md has the bytes of both, docs/numerics-thc.md every rounding.
 *
 * A tensor of `count` elements is cut into blocks of 2^block_log2 elements. The last block, of r elements,
 * travels as max(64, next power of two >= r) lanes, zero-padded. Blocks are numbered from 0 through the
 * tensor; every call takes a range of them, and results do not depend on how ranges are cut.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_THC_H
#define GRADWIRE_THC_H

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits. Lanes hold n * g exactly, and 2 * sum - k * g must be exact in fp32: hence n * g <= 2^23
 * (docs/numerics-thc.md). */
#define GW_THC_BITS_MAX        4u
#define GW_THC_GRANULARITY_MAX 255u
#define GW_THC_WORKERS_MAX     65535u
#define GW_THC_BLOCK_LOG2_MIN  6u
#define GW_THC_BLOCK_LOG2_MAX  13u
#define GW_THC_SUM_MAX         8388608u /* 2^23 */

/* The pattern that marks a block with NaN or infinity in it (policy GW_THC_NONFINITE_PROPAGATE). */
#define GW_THC_NORM_NONFINITE 0x7fc00000u

/* Bytes of a contributor set for n workers: bit r of the set is bit r % 8 of byte r / 8; whole 8-byte words.
 */
#define GW_THC_SET_SIZE(n) (((size_t)(n) + 63u) / 64u * 8u)

/* ------------ tables ------------ */

/*
 * A quantization table T (paper, section 4.3): index z in 0..2^bits-1 stands for grid point value[z] of
 * 0..granularity. Valid iff bits is 1..4, value[0] = 0, value[2^bits - 1] = granularity, strictly increasing
 * between, zero behind.
 */
typedef struct gw_thc_table {
    uint8_t bits;
    uint8_t granularity;
    uint8_t value[16];
} gw_thc_table;

/*
 * Costs of a table under a standard normal variable x, in units of its variance (paper, section 5.2).
 *   quantization  integral over [-t, t] of (x - lo)(hi - x) phi(x) dx, lo and hi the grid values around x
 *   truncation    E[(|x| - t)^2; |x| > t], the squared bias of the clamp
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

/* The identity table 0, 1, ..., 2^bits - 1 of uniform THC. bits outside 1..4 gives a table that is not valid.
 */
GW_API gw_thc_table gw_thc_table_uniform(unsigned bits);

/* Bytes of workspace for gw_thc_table_solve(), any bits and granularity. */
#define GW_THC_TABLE_WORKSPACE_SIZE 45056u

/*
 * The exact optimum over all tables of `bits` and `granularity` for the share p of values clamped (paper,
 * section 5.2 and appendix B, solved by dynamic programming over grid points in O(2^bits * granularity^2), no
 * symmetry assumed). Among tables of equal cost, in units of 2^-60, the lexicographically smallest:
 * docs/numerics-thc.md has the normative order of operations. The costs' absolute error is below 1e-13.
 *
 *   bits         1..4
 *   granularity  2^bits - 1 .. 255
 *   p            2^-13 .. 0.9 (t <= 4, the largest threshold that contexts and frames take)
 *   workspace    GW_THC_TABLE_WORKSPACE_SIZE bytes, any alignment of 8
 *   cost         may be NULL
 *
 * GW_ERR_ARG for NULL or a misaligned workspace, GW_ERR_OPTION for a parameter out of range,
 * GW_ERR_WORKSPACE. Outputs are written on success only.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_table_solve(gw_thc_table *table, gw_thc_table_cost *cost, unsigned bits,
                                                  unsigned granularity, double p, void *workspace,
                                                  size_t workspace_size);

/* Costs of any valid table at p; same ranges and errors as above, GW_ERR_TABLE for an invalid table. */
GW_API GW_MUST_CHECK gw_status gw_thc_table_price(gw_thc_table_cost *cost, const gw_thc_table *table,
                                                  double p);

/* t = Phi^-1(1 - p / 2) rounded to fp32, as its bit pattern; 0 if p is outside 2^-13 .. 0.9. */
GW_API uint32_t gw_thc_threshold_bits(double p);

/* ------------ configuration ------------ */

typedef enum gw_thc_transform {
    GW_THC_PLAIN = 0,  /* no rotation; range [min, max] of the block over all workers: Algorithms 1 and 2 */
    GW_THC_ROTATED = 1 /* randomized Hadamard transform; the range is +-t * norm / sqrt(block): Algorithm 3 */
} gw_thc_transform;

/* What gw_thc_norms(), gw_thc_prepare() and gw_thc_encode() do with a block that holds NaN or infinity, or
 * whose norm or range exceeds fp32. Integer lanes cannot carry such values (docs/numerics-thc.md, section 3,
 * says why no policy sends such blocks raw). */
typedef enum gw_thc_nonfinite {
    GW_THC_NONFINITE_ERROR = 0,     /* GW_ERR_NONFINITE before any output */
    GW_THC_NONFINITE_PROPAGATE = 1, /* the block is marked in its pattern; everybody decodes it to NaN */
    GW_THC_NONFINITE_ZERO = 2       /* this worker contributes zeros for the whole block */
} gw_thc_nonfinite;

/* One configuration for all three algorithms. All workers of a job use the same one (gw_thc_config_hash()).
 */
typedef struct gw_thc_config {
    gw_thc_table table;
    uint32_t threshold_bits; /* t as fp32 pattern, 1/16 <= t <= 4; must be 0 for GW_THC_PLAIN */
    uint32_t worker_max;     /* n: 1..GW_THC_WORKERS_MAX */
    uint32_t job;            /* tells jobs apart on shared aggregators */
    uint64_t seed;           /* key of signs and rounding; any value */
    uint8_t dtype;           /* gw_dtype of inputs and outputs */
    uint8_t transform;       /* gw_thc_transform */
    uint8_t nonfinite;       /* gw_thc_nonfinite */
    uint8_t block_log2;      /* 6..13 */
    uint8_t lane_bits;       /* 8, 16 or 32, with n * g <= 2^lane_bits - 1 and n * g <= 2^23 */
    uint8_t error_feedback;  /* 1: calls get an error array; refused where feedback would diverge */
} gw_thc_config;

/*
 * Fills *config with the recommended values for `worker_max` workers: rotated, fp32, blocks of 1024, lanes of
 * 8 bits with the largest granularity <= 31 that fits, else 16 bits with granularity <= 51, else 32; the
 * optimal table for a p that minimises quantization + truncation with error feedback and quantization / n +
 * truncation without (p a power of 1/2); non-finite blocks are errors; seed and job 0. Tables come from
 * rodata where listed, else workspace (as for gw_thc_table_solve(); may be NULL for worker_max <= 1285 with
 * lane_bits 0) is used.
 *
 * bits 1..4; lane_bits 0 (choose) or 8, 16, 32. GW_ERR_ARG, GW_ERR_OPTION, GW_ERR_OVERFLOW if a given
 * lane_bits cannot hold the sum, GW_ERR_WORKSPACE. *p_out (may be NULL) gets p. *config and *p_out are
 * written on success only.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_config_default(gw_thc_config *config, double *p_out, unsigned bits,
                                                     uint32_t worker_max, unsigned lane_bits,
                                                     int error_feedback, void *workspace,
                                                     size_t workspace_size);

/*
 * The context: a checked configuration, quantizer tables and kernels. Caller's memory, no pointers into
 * itself; it may be copied. Read-only after gw_thc_init(), so any number of threads may share one. Treat the
 * members as private.
 */
typedef struct gw_thc {
    uint32_t tag;
    gw_thc_config config;
    uint64_t hash;
    union {
        void (*align)(void);
        unsigned char bytes[15 * sizeof(void (*)(void))];
    } kernels;         /* the library's table */
    uint8_t cell[256]; /* grid cell -> index z with value[z] <= cell < value[z + 1] */
} gw_thc;

/*
 * Checks *config and builds *thc. `backends` is a mask of gw_backend bits; scalar is always used as a
 * fallback.
 *
 * GW_ERR_ARG; GW_ERR_TABLE; GW_ERR_OPTION for a field out of range, or for error feedback where quantization
 * + truncation is 1 or more and the memory would grow without bound; GW_ERR_OVERFLOW for n * g >
 * min(2^lane_bits - 1, 2^23). On failure *thc is zeroed.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_init(gw_thc *thc, const gw_thc_config *config, uint32_t backends);

/* 64-bit hash of every field that must agree between workers and aggregators except job and round: table,
 * threshold, seed, transform, block size, workers, lanes. 0 if thc is not initialised. Detects mistakes, not
 * attackers. */
GW_API uint64_t gw_thc_config_hash(const gw_thc *thc);

/* ------------ geometry ------------ */

/* Blocks of a tensor of `count` elements: ceil(count / 2^block_log2). 0 if thc is not initialised. */
GW_API uint64_t gw_thc_block_count(const gw_thc *thc, uint64_t count);

/* Lanes of one block: 2^block_log2, or fewer for the last one; 0 for a block beyond the tensor. */
GW_API size_t gw_thc_block_lanes(const gw_thc *thc, uint64_t count, uint64_t block);

/* Lanes, and bytes of packed indices or of lanes, of blocks [first_block, first_block + block_count). Bytes
 * saturate at SIZE_MAX where size_t cannot hold them. */
GW_API uint64_t gw_thc_range_lanes(const gw_thc *thc, uint64_t count, uint64_t first_block,
                                   uint64_t block_count);
GW_API size_t gw_thc_indices_size(const gw_thc *thc, uint64_t count, uint64_t first_block,
                                  uint64_t block_count);
GW_API size_t gw_thc_lanes_size(const gw_thc *thc, uint64_t count, uint64_t first_block,
                                uint64_t block_count);

/* uint32 patterns per block: 1 (norm) for GW_THC_ROTATED, 2 (maximum and negated minimum) for GW_THC_PLAIN.
 */
GW_API size_t gw_thc_patterns_per_block(const gw_thc *thc);

/* Bytes of workspace for the calls below; alignment of float. GW_THC_WORKSPACE_SIZE_MAX suffices for every
 * context. */
#define GW_THC_WORKSPACE_SIZE_MAX 73728u /* 9 * 2^13 */
GW_API size_t gw_thc_workspace_size(const gw_thc *thc);

/* ------------ worker: two phases ------------ */

/* Which tensor, blocks, round and rank a call works on. All ranges are checked against count. */
typedef struct gw_thc_range {
    uint64_t count; /* elements of the whole tensor; at most 2^32 blocks */
    uint64_t first_block;
    uint64_t block_count;
    uint32_t round; /* any; rounds follow each other modulo 2^32 */
    uint32_t rank;  /* 0..worker_max-1 */
} gw_thc_range;

/*
 * Phase one. patterns[0 .. block_count * gw_thc_patterns_per_block()) = this worker's norm patterns of the
 * range.
 *
 *   src    the first element of the range (not of the tensor), config.dtype
 *   error  error memory of the same elements, fp32, read only; NULL iff config.error_feedback is 0
 *
 * An element is src + error, rounded once to fp32; subnormal results and -0 count as +0
 * (docs/numerics-thc.md). Rotated: the fp32 norm of the block (paper, Algorithm 3 line 7; a fixed order of
 * summation). Plain: order-preserving codes of the maximum and of minus the minimum (Algorithm 1). An integer
 * MAX over workers of each uint32 is what gw_thc_encode() wants.
 *
 * GW_ERR_NONFINITE by policy: patterns[] is then unspecified, *bad_block (may be NULL) is the lowest block
 * concerned. GW_ERR_ARG, GW_ERR_STATE, GW_ERR_WORKSPACE, GW_ERR_LIMIT (more than 2^32 blocks).
 */
GW_API GW_MUST_CHECK gw_status gw_thc_norms(const gw_thc *thc, const gw_thc_range *range, const void *src,
                                            const float *error, uint32_t *patterns, void *workspace,
                                            size_t workspace_size, uint64_t *bad_block);

/* dst[i] = max(dst[i], src[i]) as unsigned integers. The reduction that gw_thc_norms() is made for. dst ==
 * src allowed. */
GW_API void gw_thc_norms_max(uint32_t *dst, const uint32_t *src, size_t len);

/* 64-bit hash of a pattern array (FNV-1a over its little-endian bytes), as carried by packets. */
GW_API uint64_t gw_thc_norms_hash(const uint32_t *patterns, size_t len);

/* GW_OK iff every pattern of the reduced array is one that gw_thc_norms() can give; else GW_ERR_CORRUPT and
 * the lowest bad block relative to the array in *bad_block (may be NULL). */
GW_API gw_status gw_thc_norms_check(const gw_thc *thc, const uint32_t *patterns, uint64_t block_count,
                                    uint64_t *bad_block);

/*
 * Phase one with the rotation done at once, while norms travel: as gw_thc_norms(), and rotated[] gets the
 * block's rotated values (gw_thc_range_lanes() floats, scaled by a power of two that own_patterns implies).
 * For GW_THC_ROTATED only.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_prepare(const gw_thc *thc, const gw_thc_range *range, const void *src,
                                              const float *error, uint32_t *own_patterns, float *rotated,
                                              void *workspace, size_t workspace_size, uint64_t *bad_block);

/*
 * Phase two. Clamps, quantizes stochastically and without bias, and packs the range into indices[0 ..
 * indices_capacity) (paper, Algorithm 3 lines 9-13). The bytes are a function of configuration, round, rank,
 * block number, values and maxima alone: a retransmission is identical, and any split gives the same bytes.
 *
 *   patterns  the maxima over all workers, for the range
 *   error     read and replaced by the new error x - decode(own indices), clamping included (Algorithm 3,
 *             line 22); NULL iff config.error_feedback is 0. Where a block is marked non-finite the whole x
 *             is kept, or +0 where x itself is the cause
 *
 * Errors as gw_thc_norms(), and GW_ERR_DST, GW_ERR_CORRUPT for an impossible pattern, GW_ERR_STATE if a
 * maximum is below this worker's own value (phase one ran on other data). error is untouched by every error.
 * After the last two and GW_ERR_NONFINITE indices[] may hold zeros where it was written; after the others it
 * is untouched.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_encode(const gw_thc *thc, const gw_thc_range *range, const void *src,
                                             float *error, const uint32_t *patterns, uint8_t *indices,
                                             size_t indices_capacity, void *workspace, size_t workspace_size,
                                             uint64_t *bad_block);

/* Phase two from the output of gw_thc_prepare(): same indices, same errors; src and error are read again only
 * if config.error_feedback is 1, else both may be NULL. */
GW_API GW_MUST_CHECK gw_status gw_thc_encode_prepared(const gw_thc *thc, const gw_thc_range *range,
                                                      const float *rotated, const uint32_t *own_patterns,
                                                      const void *src, float *error, const uint32_t *patterns,
                                                      uint8_t *indices, size_t indices_capacity,
                                                      void *workspace, size_t workspace_size,
                                                      uint64_t *bad_block);

/*
 * Puts a contribution that was left out of the sum back into the error memory: error += decode(own indices),
 * for the range. The result is x of that round to within one rounding of fp32 a value.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_error_restore(const gw_thc *thc, const gw_thc_range *range,
                                                    float *error, const uint32_t *patterns,
                                                    const uint8_t *indices, size_t indices_size,
                                                    void *workspace, size_t workspace_size);

/*
 * Error memory as bytes, for checkpoints and new bucket layouts. Memory is indexed by element of a
 * caller-chosen global numbering: save each bucket with its first element, then load any other cut of the
 * same numbering; elements that no saved piece covers keep their value. 40 bytes of header and checksum per
 * piece (docs/format-thc.md).
 */
GW_API size_t gw_thc_error_saved_size(uint64_t len);
GW_API GW_MUST_CHECK gw_status gw_thc_error_save(const float *error, uint64_t first_element, uint64_t len,
                                                 uint8_t *dst, size_t dst_capacity);
/* Copies what src and [first_element, first_element + len) have in common; *loaded (may be NULL) = how many.
 * GW_ERR_SHORT, _MAGIC, _VERSION, _HEADER, _TRAILING, _CHECKSUM, _NONFINITE: nothing copied. */
GW_API GW_MUST_CHECK gw_status gw_thc_error_load(float *error, uint64_t first_element, uint64_t len,
                                                 const uint8_t *src, size_t src_size, uint64_t *loaded);

/* ------------ aggregation ------------ */

/*
 * The aggregator: integers only, no float, no allocation, no function pointer in firmware builds
 * (GW_FIRMWARE). One object serves any number of sums; it is read-only after init. Lanes are little-endian
 * unsigned integers of lane_bits, any alignment. `len` counts lanes and is a multiple of 64. A sum is a lane
 * array and a contributor set, both the caller's, both zero at the start. Every add checks everything before
 * it changes anything; addition is commutative and associative, so every tree of partial sums ends in the
 * same bits.
 */
typedef struct gw_thc_agg {
    uint32_t tag;
    uint32_t worker_max;
    uint32_t lane_bits;
    gw_thc_table table;
    union {
        void (*align)(void);
        unsigned char bytes[3 * sizeof(void (*)(void))];
    } kernels; /* the library's table */
} gw_thc_agg;

/* GW_ERR_ARG, GW_ERR_TABLE, GW_ERR_OPTION (worker_max or lane_bits out of range), GW_ERR_OVERFLOW (n * g too
 * large). On failure *agg is zeroed. Firmware builds ignore `backends`. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_init(gw_thc_agg *agg, const gw_thc_table *table,
                                               uint32_t worker_max, unsigned lane_bits, uint32_t backends);

/* lanes[i] += table[index i], and rank joins the set. GW_ERR_STATE, GW_ERR_ARG, GW_ERR_DUP (rank is in the
 * set or not below worker_max), GW_ERR_OVERFLOW (the set already has worker_max members: it is not a set that
 * this object made). */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_indices(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set,
                                                      size_t len, const uint8_t *indices, uint32_t rank);

/* The same for `source_count` sources in one pass; all or nothing. ranks must be distinct and not in the set.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_indices_many(const gw_thc_agg *agg, uint8_t *lanes,
                                                           uint8_t *set, size_t len,
                                                           const uint8_t *const *indices,
                                                           const uint32_t *ranks, size_t source_count);

/*
 * lanes[i] += in_lanes[i], and in_set joins the set: sums of sums. GW_ERR_DUP if the sets overlap or in_set
 * names a worker not below worker_max, GW_ERR_OVERFLOW if both together have more than worker_max members,
 * GW_ERR_CORRUPT if a lane of in_lanes exceeds members(in_set) * g (so an empty set must come with zero
 * lanes). lanes is untouched then. in_lanes == lanes is never valid, the sets would overlap.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_lanes(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set,
                                                    size_t len, const uint8_t *in_lanes,
                                                    const uint8_t *in_set);

/* The same for `source_count` partial sums; all or nothing. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_lanes_many(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set,
                                                         size_t len, const uint8_t *const *in_lanes,
                                                         const uint8_t *const *in_sets, size_t source_count);

/* The same with counts instead of sets, where only a number of contributors is known: *k += k_in.
 * GW_ERR_OVERFLOW if *k + k_in > worker_max. Duplicates cannot be seen this way. */
GW_API GW_MUST_CHECK gw_status gw_thc_agg_add_counted(const gw_thc_agg *agg, uint8_t *lanes, uint32_t *k,
                                                      size_t len, const uint8_t *in_lanes, uint32_t k_in);

/* Members of a set for worker_max workers; UINT32_MAX if a bit at or above worker_max is set. */
GW_API uint32_t gw_thc_set_members(const uint8_t *set, uint32_t worker_max);

/*
 * Raw integer all-reduce (MPI_SUM, ncclUint8, ncclUint32, a switch that adds words): a buffer of all lanes of
 * the range, then one count lane of value 1 per block, then zero bytes up to a multiple of 4. Element-wise
 * sums of such buffers, by anyone, are decoded by gw_thc_decode_reduced(). No carry leaves a lane, so bytes
 * may be added as uint32 words.
 */
GW_API size_t gw_thc_reduced_size(const gw_thc *thc, uint64_t count, uint64_t first_block,
                                  uint64_t block_count);
GW_API GW_MUST_CHECK gw_status gw_thc_expand(const gw_thc *thc, const gw_thc_range *range,
                                             const uint8_t *indices, size_t indices_size, uint8_t *dst,
                                             size_t dst_capacity);

/* ------------ receiver ------------ */

typedef enum gw_thc_mode {
    GW_THC_SUM = 0, /* the sum over the contributors */
    GW_THC_MEAN = 1 /* divided by the number of contributors of each block */
} gw_thc_mode;

/*
 * Decodes summed lanes into dst (paper, Algorithm 3 lines 18-20): centre, scale, rotate back.
 *
 *   lanes     gw_thc_lanes_size() bytes of the range
 *   members   contributors of each block of the range (block_count values); 0: the block is missing, its
 *             lanes must be zero, and it decodes to +0.0
 *   patterns  maxima of the range; 0 decodes to +0.0, GW_THC_NORM_NONFINITE to NaN (canonical quiet)
 *   dst       first element of the range, config.dtype; all elements of the range are written
 *   missing   NULL, or *missing gets the number of missing blocks
 *
 * range->rank is not used. A block with a lane above members * g, more than worker_max members, an impossible
 * pattern, or zero norm with non-zero lanes is zero-filled and the others are decoded: GW_ERR_CORRUPT
 * (GW_ERR_OVERFLOW for the members) of the lowest such block, *bad_block (may be NULL) its number. Other
 * errors are found before dst is written.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_decode(const gw_thc *thc, const gw_thc_range *range,
                                             const uint8_t *lanes, size_t lanes_size, const uint32_t *members,
                                             const uint32_t *patterns, gw_thc_mode mode, void *dst,
                                             size_t dst_capacity, void *workspace, size_t workspace_size,
                                             uint64_t *missing, uint64_t *bad_block);

/* Decodes the output of a raw all-reduce over gw_thc_expand() buffers; members come from the count lanes. */
GW_API GW_MUST_CHECK gw_status gw_thc_decode_reduced(const gw_thc *thc, const gw_thc_range *range,
                                                     const uint8_t *reduced, size_t reduced_size,
                                                     const uint32_t *patterns, gw_thc_mode mode, void *dst,
                                                     size_t dst_capacity, void *workspace,
                                                     size_t workspace_size, uint64_t *missing,
                                                     uint64_t *bad_block);

/* Contributors of block i (counted from the start of the range) of such an output; 0: missing. Checked by
 * gw_thc_decode_reduced() only. UINT32_MAX if the range does not fit thc and reduced_size, or has no block i.
 */
GW_API uint32_t gw_thc_reduced_members(const gw_thc *thc, const gw_thc_range *range, const uint8_t *reduced,
                                       size_t reduced_size, uint64_t i);

/* Decodes one worker's indices: what it contributes to the sum, x - error. range->rank is not used. */
GW_API GW_MUST_CHECK gw_status gw_thc_decode_indices(const gw_thc *thc, const gw_thc_range *range,
                                                     const uint8_t *indices, size_t indices_size,
                                                     const uint32_t *patterns, void *dst, size_t dst_capacity,
                                                     void *workspace, size_t workspace_size,
                                                     uint64_t *bad_block);

/* ------------ frames ------------ */

/* Frame flags. */
#define GW_THC_FLAG_SUM        1u  /* payload is lanes with contributor sets, not one worker's indices */
#define GW_THC_FLAG_ROTATED    2u  /* GW_THC_ROTATED; else GW_THC_PLAIN */
#define GW_THC_FLAG_NONFINITE  4u  /* patterns may be GW_THC_NORM_NONFINITE (or 0xffffffff when plain) */
#define GW_THC_FLAG_CHECKSUM   8u  /* the last four bytes are the CRC32C of all others */
#define GW_THC_FLAG_BLOCK_SETS 16u /* a sum with one contributor set per block instead of one for all */

#define GW_THC_FRAME_HEADER_SIZE 96u

/* What a frame header says, checked. Offsets are from the start of the frame. */
typedef struct gw_thc_frame_info {
    gw_thc_config config; /* error_feedback 0; nonfinite PROPAGATE iff the flag is set, else ERROR */
    uint32_t flags;
    uint32_t round;
    uint32_t rank; /* of an index frame */
    uint64_t first_block;
    uint64_t block_count;
    uint64_t count;      /* elements in this frame */
    uint64_t frame_size; /* bytes */
    uint64_t norms_offset;
    uint64_t sets_offset;
    uint64_t set_size; /* bytes of one set */
    uint64_t payload_offset;
    uint64_t payload_size;
} gw_thc_frame_info;

/*
 * Reads and checks the header at src. Only the first GW_THC_FRAME_HEADER_SIZE bytes are needed: src_size may
 * be smaller than the frame, info->frame_size says how much is wanted. Errors in this order: GW_ERR_ARG,
 * GW_ERR_SHORT, then the header left to right (docs/format-thc.md lists each rule and code). *info is written
 * on success only.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_peek(const uint8_t *src, size_t src_size,
                                                 gw_thc_frame_info *info);

/*
 * Header and content: all of the above, GW_ERR_SHORT or GW_ERR_TRAILING if src_size is not the frame's,
 * GW_ERR_LIMIT if it has more than count_max elements, GW_ERR_CHECKSUM, and every block's pattern, set and
 * lanes (GW_ERR_CORRUPT, GW_ERR_DUP). *bad_block (may be NULL) is the lowest bad block, relative to the
 * frame, for the last two. backends, here and below: the permitted ones, as for gw_thc_init().
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_check(const uint8_t *src, size_t src_size, uint64_t count_max,
                                                  gw_thc_frame_info *info, uint64_t *bad_block,
                                                  uint32_t backends);

/* Bytes of an index frame and of a sum frame of `count` elements (all of their blocks), SIZE_MAX if size_t is
 * too small. flags: GW_THC_FLAG_CHECKSUM and, for sums, GW_THC_FLAG_BLOCK_SETS count. */
GW_API size_t gw_thc_frame_bound(const gw_thc *thc, uint64_t count, uint32_t flags);
GW_API size_t gw_thc_frame_sum_bound(const gw_thc *thc, uint64_t count, uint32_t flags);

/*
 * One worker's range as a frame: header, patterns, indices. Encodes as gw_thc_encode() does. flags: 0 or
 * GW_THC_FLAG_CHECKSUM. *dst_size gets the size. GW_ERR_LIMIT for a range of 2^32 blocks, one more than the
 * header can say. On failure *dst_size is 0 and dst holds what gw_thc_encode() leaves.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_encode(const gw_thc *thc, const gw_thc_range *range,
                                                   uint32_t flags, const void *src, float *error,
                                                   const uint32_t *patterns, uint8_t *dst,
                                                   size_t dst_capacity, size_t *dst_size, void *workspace,
                                                   size_t workspace_size, uint64_t *bad_block);

/*
 * An empty sum frame (no contributor, zero lanes) that accepts frames like `like` (an index or sum frame,
 * checked completely). flags: 0 or any of GW_THC_FLAG_CHECKSUM, GW_THC_FLAG_BLOCK_SETS.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_sum_init(const uint8_t *like, size_t like_size, uint32_t flags,
                                                     uint8_t *dst, size_t dst_capacity, size_t *dst_size,
                                                     uint32_t backends);

/*
 * sum += frame. sum is a sum frame in memory that gw_thc_frame_sum_init() made (so it is trusted); frame is
 * hostile bytes. Checked before the first add: frame as gw_thc_frame_check(); GW_ERR_HEADER if any of dtype,
 * geometry, table, threshold, seed, job, round, block range, workers or patterns differ (job and round:
 * GW_ERR_ROUND); GW_ERR_DUP for overlapping sets; GW_ERR_OVERFLOW. A frame with block sets needs a sum with
 * block sets (GW_ERR_OPTION). A sum without a checksum stays without one.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_sum_add(uint8_t *sum, size_t sum_size, const uint8_t *frame,
                                                    size_t frame_size, uint64_t *bad_block,
                                                    uint32_t backends);

/*
 * Decodes an index or sum frame into dst; see gw_thc_decode(). The configuration comes from the frame.
 * *dst_len gets the elements written, 0 on failure. count_max bounds what the frame may ask for. thc_memory
 * is scratch for a context built from the header. On GW_ERR_CORRUPT and GW_ERR_DUP the bad blocks are
 * zero-filled, on GW_ERR_CHECKSUM everything is; other errors write nothing.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_frame_decode(const uint8_t *src, size_t src_size, uint64_t count_max,
                                                   gw_thc_mode mode, void *dst, size_t dst_capacity,
                                                   size_t *dst_len, gw_thc *thc_memory, void *workspace,
                                                   size_t workspace_size, uint64_t *missing,
                                                   uint64_t *bad_block, uint32_t backends);

/* Contributors of a block (relative to the frame) of a checked frame. */
GW_API uint32_t gw_thc_frame_members(const uint8_t *src, const gw_thc_frame_info *info, uint64_t block);

/* ------------ packets ------------ */

/*
 * A packet carries a few blocks of one round. Fixed offsets, little-endian (docs/format-thc.md): 48 bytes of
 * header, for types LANES and RESULT, MAXIMA the contributor set, then the payload. Firmware needs nothing
 * but this.
 */
#define GW_THC_PACKET_HEADER_SIZE 48u

typedef enum gw_thc_packet_type {
    GW_THC_PACKET_INDICES = 1, /* worker -> aggregator: packed indices */
    GW_THC_PACKET_LANES = 2,   /* aggregator -> aggregator: a partial sum */
    GW_THC_PACKET_RESULT = 3,  /* aggregator -> worker: the sum */
    GW_THC_PACKET_NOTICE = 4,  /* aggregator -> worker: your round is over, the slot is at `round` */
    GW_THC_PACKET_NORMS = 5,   /* worker -> aggregator: norm patterns */
    GW_THC_PACKET_MAXIMA = 6   /* aggregator -> worker: their maxima */
} gw_thc_packet_type;

/* The header, field by field in wire order; on a little-endian machine these are the bytes themselves. */
typedef struct gw_thc_packet_header {
    uint32_t magic;       /*  0: "gWp", 0x1a */
    uint8_t version;      /*  4: 0 */
    uint8_t type;         /*  5: gw_thc_packet_type */
    uint8_t bits;         /*  6 */
    uint8_t granularity;  /*  7 */
    uint8_t lane_bits;    /*  8: 0 for INDICES and NOTICE, 32 for NORMS and MAXIMA */
    uint8_t block_log2;   /*  9 */
    uint16_t worker_max;  /* 10 */
    uint32_t job;         /* 12 */
    uint32_t round;       /* 16 */
    uint32_t first_block; /* 20 */
    uint16_t block_count; /* 24: at least 1; 0 for NOTICE */
    uint16_t rank;        /* 26: sender, or addressee of a NOTICE; 0 for LANES, RESULT, MAXIMA */
    uint32_t len;         /* 28: lanes, a multiple of 64; patterns for NORMS and MAXIMA; 0 for NOTICE */
    uint64_t config_hash; /* 32: gw_thc_config_hash() */
    uint64_t norms_hash;  /* 40: gw_thc_norms_hash() of the blocks' maxima; 0 for NORMS, MAXIMA and NOTICE */
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
 * Parses and checks bytes from the network: GW_ERR_SHORT, _MAGIC, _VERSION, _UNSUPPORTED (type), _HEADER,
 * _OVERFLOW, _DUP (rank >= worker_max), _TRAILING, _CORRUPT (padding or workers beyond worker_max in the set:
 * DUP; a lane above members * g; a pattern that no worker can have, marks apart). Every header byte is read
 * once. *packet is written on success only and points into src.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_packet_parse(const uint8_t *src, size_t src_size,
                                                   gw_thc_packet *packet);

/* Writes 48 header bytes; magic and version are filled in, nothing is checked. Set and payload follow them.
 */
GW_API void gw_thc_packet_write(uint8_t *dst, const gw_thc_packet_header *header);

/* ------------ parameter server ------------ */

/*
 * Aggregation in the network (paper, Pseudocode 1, made safe). Blocks map to slots: the packet with first
 * block b uses slot (b / blocks_per_packet) % slot_count. A slot keeps two versions: the current one and the
 * one before. Packets in, packets out; transport and time are the caller's; memory is fixed at creation.
 *
 * A version is open until all workers, or `quorum` of them, have contributed or gw_thc_server_seal() closes
 * it. A newer round (modulo 2^32), or a later block of the same round on the same slot, opens the slot's next
 * version only when the current one is closed and the one before is free: all workers were seen at the
 * current version, or gw_thc_server_drop() gave it up. A worker that asks for a closed version (by sending
 * its packet again) gets the result again. Nothing is added for duplicates, late or foreign packets.
 */
typedef enum gw_thc_op {
    GW_THC_OP_SUM = 0, /* INDICES and LANES in, RESULT out */
    GW_THC_OP_MAX = 1  /* NORMS in, MAXIMA out: phase one */
} gw_thc_op;

typedef struct gw_thc_server_config {
    gw_thc_table table;
    uint32_t worker_max;
    uint32_t lane_bits; /* of sums; ignored for GW_THC_OP_MAX */
    uint32_t block_log2;
    uint64_t config_hash;
    uint32_t job;
    uint32_t first_round;       /* the first round accepted */
    uint32_t round_window;      /* how many rounds ahead of a slot a packet may open it: >= 1 */
    uint32_t quorum;            /* contributors that close a version: 1..worker_max */
    uint32_t slot_count;        /* >= 1 */
    uint32_t slot_len;          /* lanes (or patterns) of the largest packet; a multiple of 64 for sums */
    uint32_t blocks_per_packet; /* 1..65535 */
    uint32_t op;                /* gw_thc_op */
} gw_thc_server_config;

typedef struct gw_thc_server {
    uint32_t tag;
    gw_thc_server_config config;
    uint8_t result_type;
    uint32_t set_size;
    size_t version_size;
    size_t slot_size;
    uint8_t *memory;
    gw_thc_agg agg;
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

/* Bytes of memory for a server; 0 if the configuration is not valid or size_t too small. Alignment of
 * uint64_t. */
GW_API size_t gw_thc_server_memory_size(const gw_thc_server_config *config);

/* GW_ERR_ARG, GW_ERR_OPTION, GW_ERR_TABLE, GW_ERR_OVERFLOW, GW_ERR_WORKSPACE. The server keeps the pointer
 * `memory`. */
GW_API GW_MUST_CHECK gw_status gw_thc_server_init(gw_thc_server *server, const gw_thc_server_config *config,
                                                  void *memory, size_t memory_size, uint32_t backends);

/*
 * One packet in. GW_OK: added. GW_ERR_DUP: already there (the reply repeats the result if the version is
 * closed). GW_ERR_ROUND: another job, or a round that is over or beyond the window; the reply is that round's
 * result if the slot still has it, else a NOTICE. GW_ERR_STATE: the slot is still busy with an earlier round,
 * send again later. Others: see gw_thc_packet_parse(); GW_ERR_HEADER also where the packet differs from the
 * server or from the first packet of the version; GW_ERR_LIMIT for a packet larger than a slot;
 * GW_ERR_CORRUPT for a lane or a norm that cannot be (codes of plain blocks are not checked here, but by
 * gw_thc_packet_parse() and gw_thc_norms_check()). Only GW_OK changes a sum or a maximum.
 */
GW_API GW_MUST_CHECK gw_status gw_thc_server_receive(gw_thc_server *server, const uint8_t *packet,
                                                     size_t packet_size, gw_thc_reply *reply);

/* Closes the open version of a slot (partial aggregation on the caller's clock); the reply broadcasts it.
 * GW_ERR_STATE if no version is open. */
GW_API GW_MUST_CHECK gw_status gw_thc_server_seal(gw_thc_server *server, uint32_t slot, gw_thc_reply *reply);

/* Frees the slot's version before the current one, although not every worker was seen since. */
GW_API GW_MUST_CHECK gw_status gw_thc_server_drop(gw_thc_server *server, uint32_t slot);

/* 1 if the slot has an open version, 0 if not; its round and contributors so far through the pointers (may be
 * NULL). */
GW_API int gw_thc_server_slot_open(const gw_thc_server *server, uint32_t slot, uint32_t *round,
                                   uint32_t *members);

/* ------------ planning ------------ */

/* What gw_thc_plan() recommends and predicts for one tensor element. */
typedef struct gw_thc_plan {
    gw_thc_config config;
    double p;
    gw_thc_table_cost cost;
    double error_one;  /* normalised squared error of one worker's contribution: quantization + truncation */
    double error_mean; /* of the mean of n equal vectors: quantization / n + truncation */
    double up_bits;    /* bits per element from a worker: indices and norm */
    double down_bits;  /* bits per element to a worker: lanes and maximum */
} gw_thc_plan;

/* Errors as gw_thc_config_default(). */
GW_API GW_MUST_CHECK gw_status gw_thc_plan_make(gw_thc_plan *plan, unsigned bits, uint32_t worker_max,
                                                unsigned lane_bits, int error_feedback, void *workspace,
                                                size_t workspace_size);

#ifdef __cplusplus
}
#endif

#endif
