/*
 * classic.h: the classic gradient compressors, in one interface.
 *
 *   FP16, BF16    casts
 *   TOPK          the k largest magnitudes; exact, ties by index [1]
 *   DGC           Top-k with momentum correction, factor masking and clipping [2]
 *   RANDK         k values at random [3]
 *   SIGNSGD       signs; majority vote [4]
 *   EFSIGNSGD     signs and the mean magnitude, with error feedback [5]
 *   SIGNUM        signs of a momentum [6]
 *   ONEBIT        signs and two means a column, with error feedback [7]
 *   QSGD          random rounding to s levels of a bucket's norm [8]
 *   TERNGRAD      random rounding to -1, 0, 1 times a block's maximum [9]
 *
 * They are here as baselines, as choices for the planner (plan.h), and for users of GRACE, BytePS or
 * DeepSpeed. docs/format-classic.md has the bytes, docs/numerics-classic.md every rounding, and where other
 * implementations differ from the papers.
 *
 * A call encodes or decodes one whole tensor; to use several threads, cut a large tensor into parts. A frame
 * says how it was made: a decoder needs neither a handle nor state.
 *
 * Words used in this header:
 *   sparse frame     a frame of TOPK, DGC or RANDK: only keep_len values are sent
 *   residual         error feedback: what was not sent, which is added to the values of the next step
 *   block, column    values that share a norm (QSGD, TERNGRAD) or two means (ONEBIT)
 *   level            QSGD, TERNGRAD: one of the s steps between 0 and the norm that a magnitude is rounded to
 *   round            the step of training, as part of the key of random bits
 *   lane             one element of a sum of encoded values
 *
 * Rules of this header:
 *   - GW_ERR_ARG: a pointer that the call needs is NULL, or a count is out of its range
 *   - GW_ERR_STATE: the handle is not initialised
 *   - GW_ERR_WORKSPACE: workspace->size is too small
 *   - where a call fails, state and accumulators are what they were before
 *   - all schemes but the casts treat subnormals and -0 as +0, in values, state and results
 *
 * [1] Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017
 * [2] Lin, Han, Mao, Wang and Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for
 *     Distributed Training", ICLR 2018
 * [3] Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018
 * [4] Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: Compressed Optimisation for Non-Convex
 *     Problems", ICML 2018
 * [5] Karimireddy, Rebjock, Stich and Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression
 *     Schemes", ICML 2019
 * [6] Bernstein, Zhao, Azizzadenesheli and Anandkumar, "signSGD with Majority Vote is Communication Efficient
 *     and Fault Tolerant", ICLR 2019
 * [7] Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
 *     Distributed Training of Speech DNNs", Interspeech 2014
 * [8] Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
 *     Quantization and Encoding", NeurIPS 2017
 * [9] Wen, Xu, Yan, Wu, Wang, Chen and Li, "TernGrad: Ternary Gradients to Reduce Communication in
 *     Distributed Deep Learning", NeurIPS 2017
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_CLASSIC_H
#define GRADWIRE_CLASSIC_H

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers appear in frames. */
typedef enum gw_classic_scheme {
    GW_CLASSIC_FP16 = 1,
    GW_CLASSIC_BF16 = 2,
    GW_CLASSIC_TOPK = 3,
    GW_CLASSIC_DGC = 4,
    GW_CLASSIC_RANDK = 5,
    GW_CLASSIC_SIGNSGD = 6,
    GW_CLASSIC_EFSIGNSGD = 7,
    GW_CLASSIC_SIGNUM = 8,
    GW_CLASSIC_ONEBIT = 9,
    GW_CLASSIC_QSGD = 10,
    GW_CLASSIC_TERNGRAD = 11
} gw_classic_scheme;

/* Short lower-case name of a scheme ("topk", ...), NULL for any other number; and back: 0 for an unknown
 * name. */
GW_API const char *gw_classic_scheme_name(gw_classic_scheme scheme);
GW_API gw_classic_scheme gw_classic_scheme_from_name(const char *name);

/* How the values of a sparse frame are stored. */
typedef enum gw_classic_values {
    GW_CLASSIC_VALUES_FP32 = 0,
    GW_CLASSIC_VALUES_FP16 = 1, /* rounded to nearest even, magnitudes limited to 65504 */
    GW_CLASSIC_VALUES_GCOMP = 2 /* a GCOMP frame in explicit mode (gcomp.h) */
} gw_classic_values;

/* How the levels of QSGD and TERNGRAD become bits. */
typedef enum gw_classic_coding {
    GW_CLASSIC_CODING_PACKED = 0, /* as many bits per value as the largest level and a sign need */
    GW_CLASSIC_CODING_MASK = 1,   /* an entropy-coded mask of zeros, then the other values packed */
    GW_CLASSIC_CODING_ELIAS = 2   /* Elias omega codes of gaps and levels, as in QSGD's paper */
} gw_classic_coding;

/* The norm that levels divide. */
typedef enum gw_classic_norm {
    GW_CLASSIC_NORM_L2 = 0, /* QSGD's paper */
    GW_CLASSIC_NORM_MAX = 1 /* the largest magnitude: TernGrad's paper, and what QSGD's code uses */
} gw_classic_norm;

/* Set all fields with gw_classic_options_init(), then change what you need. Fields with a list of schemes are
 * for these schemes; for any other scheme keep the value from init. */
typedef struct gw_classic_options {
    gw_classic_scheme scheme;
    gw_dtype dtype;    /* of values, encoded and decoded */
    uint64_t seed;     /* of all random bits: RANDK, QSGD, TERNGRAD, ties of votes */
    uint32_t backends; /* mask of gw_backend bits that may be used; scalar always is */
    int checksum;      /* 1: frames end with a CRC32C */

    /* 1: source->residual is added to the values before encoding, and receives what was not sent. DGC,
     * EFSIGNSGD, ONEBIT: always 1; SIGNUM and casts: always 0; the others: 0 or 1. */
    int error_feedback;

    /* DGC: m of u = m * u + x; SIGNUM: beta of m = beta * m + (1 - beta) * x. In [0, 1). */
    float momentum;
    int nesterov;      /* DGC: 1: v += m * u + x, after u = m * u + x */
    int momentum_mask; /* DGC: 1: u = 0 where a value was sent (momentum factor masking) */

    /* DGC: values are scaled to an L2 norm of at most `clip` (threshold / sqrt(N) in the paper). TERNGRAD:
     * magnitudes are limited to clip * standard deviation of the block. 0: no clipping. */
    float clip;
    int unbiased; /* RANDK: 1: decoded values are multiplied by len / keep_len; not with error feedback */

    gw_classic_values values; /* TOPK, DGC, RANDK */
    gw_classic_coding coding; /* QSGD, TERNGRAD */
    gw_classic_norm norm;     /* QSGD */
    uint32_t level_max;       /* QSGD: s, 1..127; TERNGRAD: 1 */

    /* QSGD, TERNGRAD: values that share a norm, a multiple of 64 in 64..2^30; 0: the whole tensor. ONEBIT:
     * values of a column, 1..2^30; 0: the tensor is one column. */
    uint32_t block_len;
} gw_classic_options;

/*
 * Fills *options with the scheme's usual values. All schemes: fp32, all backends, no checksum, seed 0, sparse
 * values in fp32.
 *   - DGC: momentum 0.9 with masking, without Nesterov and clipping
 *   - TOPK: with error feedback. RANDK: unbiased, without error feedback
 *   - SIGNUM: momentum 0.9
 *   - QSGD: 4 levels of the L2 norm in blocks of 512, mask coding
 *   - TERNGRAD: blocks of the whole tensor, clip 2.5, packed coding
 *   - GW_ERR_ARG, GW_ERR_OPTION (unknown scheme): *options is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_classic_options_init(gw_classic_options *options, gw_classic_scheme scheme);

/* The handle: checked options and kernels. It may be copied, and shared by threads. */
typedef struct gw_classic {
    union {
        uint64_t align;
        unsigned char bytes[2048];
    } opaque;
} gw_classic;

/* Checks *options and prepares a handle. GW_ERR_ARG, GW_ERR_OPTION (a field is out of range): *classic is
 * zeroed. */
GW_API GW_MUST_CHECK gw_status gw_classic_init(gw_classic *classic, const gw_classic_options *options);

/* The options of a handle, inside it; NULL if it is not initialised. */
GW_API const gw_classic_options *gw_classic_options_of(const gw_classic *classic);

/* ------------ one tensor ------------ */

/* The tensor and step that a call works on. Random bits are a function of seed, round, element number and
 * rank (positions of RANDK: not of the rank). */
typedef struct gw_classic_step {
    uint64_t len;           /* elements of the tensor, 0..2^32 */
    uint64_t element_first; /* number of its first element, so that random bits belong to the parameter, not
                               to the bucket */
    uint64_t keep_len;      /* TOPK, DGC, RANDK: values to send, 1..len (0 if len is 0); else not read */
    uint32_t round;
    uint32_t rank;
} gw_classic_step;

/* ceil(len * ratio), at least 1 and at most len; 0 for len 0 or a ratio that is not in (0, 1]. */
GW_API uint64_t gw_classic_keep_len(uint64_t len, double ratio);

/* The warm-up of DGC (section 3.4 of its paper), in which the ratio falls by equal factors from 1 to `ratio`
 * over warmup_steps steps: ratio^((step + 1) / (warmup_steps + 1)) for step < warmup_steps, then `ratio`. The
 * same bits on every machine. Returns 0 for a ratio that is not in (0, 1]. */
GW_API double gw_classic_warmup_ratio(double ratio, uint64_t step, uint64_t warmup_steps);

/* State of a tensor, in the caller's memory: all zeros at the start. */
#define GW_CLASSIC_RESIDUAL 1u
#define GW_CLASSIC_MOMENTUM 2u

/* The arrays of `len` floats that a handle's tensors need: a mask of GW_CLASSIC_RESIDUAL and
 * GW_CLASSIC_MOMENTUM. */
GW_API uint32_t gw_classic_state_arrays(const gw_classic *classic);

/* What a tensor is encoded from. */
typedef struct gw_classic_source {
    const void *values; /* step->len elements of options.dtype, any alignment */
    float *residual;    /* NULL iff gw_classic_state_arrays() does not have it; DGC: v */
    float *momentum;    /* the same; DGC: u */

    /* QSGD, TERNGRAD: one norm per block, equal on all ranks so that frames can be summed as integers, and at
     * least the block's own; usually the MAX of gw_classic_norms() over the ranks. NULL: the block's own
     * norm. Other schemes: NULL. */
    const float *norms;
} gw_classic_source;

/* Blocks of QSGD and TERNGRAD, columns of ONEBIT; 1 for the others; 0 if len is 0. */
GW_API uint64_t gw_classic_block_count(const gw_classic *classic, uint64_t len);

/* Bytes of workspace that a call for this step needs, and an upper bound of the frame's bytes. SIZE_MAX where
 * size_t cannot hold them. 0 if the handle is not initialised or the step is out of range. */
GW_API size_t gw_classic_workspace_size(const gw_classic *classic, const gw_classic_step *step);
GW_API size_t gw_classic_frame_bound(const gw_classic *classic, const gw_classic_step *step);

/*
 * The norm of every block as gw_classic_encode() computes it (QSGD, TERNGRAD). Take the MAX over the ranks to
 * get source->norms.
 *   - norms: gw_classic_block_count() floats
 *   - GW_ERR_OPTION for another scheme, GW_ERR_NONFINITE
 */
GW_API GW_MUST_CHECK gw_status gw_classic_norms(const gw_classic *classic, const gw_classic_step *step,
                                                const gw_classic_source *source, float *norms,
                                                const gw_workspace *workspace);

/*
 * Encodes a tensor into dst->data and advances its state by one step.
 *   - dst->capacity: at least the size of the frame, which is not known before; gw_classic_frame_bound()
 *     always suffices
 *   - GW_ERR_NONFINITE: a value, or its sum with the state, is NaN or infinite, or a norm is too large. Casts
 *     accept NaN and infinity; NaN becomes the canonical one
 *   - GW_ERR_DST: give gw_classic_frame_bound() bytes. GW_ERR_OPTION (keep_len). GW_ERR_STATE: a number in
 *     source->norms is not a norm, or is below the block's own
 *   - on failure dst->size is 0, state is untouched, dst->data may have been written
 */
GW_API GW_MUST_CHECK gw_status gw_classic_encode(const gw_classic *classic, const gw_classic_step *step,
                                                 const gw_classic_source *source, gw_buffer *dst,
                                                 const gw_workspace *workspace);

/* ------------ frames ------------ */

#define GW_CLASSIC_FRAME_HEADER_SIZE 80u

#define GW_CLASSIC_FLAG_CHECKSUM 1u /* the last four bytes are the CRC32C of all others */
#define GW_CLASSIC_FLAG_UNBIASED 2u /* RANDK: values are multiplied by len / keep_len when decoded */
#define GW_CLASSIC_FLAG_SHARED   4u /* QSGD, TERNGRAD: norms came from source->norms */
#define GW_CLASSIC_FLAG_VOTE     8u /* SIGNSGD, SIGNUM: the outcome of a majority vote */

/* A received frame. */
typedef struct gw_classic_frame {
    const void *data;
    size_t size;       /* bytes */
    uint64_t len_max;  /* a frame of more elements is refused with GW_ERR_LIMIT */
    uint32_t backends; /* as in gw_classic_options */
} gw_classic_frame;

/* Contents of a frame header, checked. */
typedef struct gw_classic_frame_info {
    gw_classic_scheme scheme;
    gw_dtype dtype;
    gw_classic_values values;
    gw_classic_coding coding;
    gw_classic_norm norm;
    uint32_t flags;
    uint32_t level_max;
    uint32_t block_len;
    uint32_t round;
    uint32_t rank;
    uint64_t seed;
    uint64_t element_first;
    uint64_t len;
    uint64_t keep_len;
    uint64_t frame_size; /* bytes, a multiple of 16 */
    uint64_t payload_offset;
    uint64_t payload_size; /* bytes, padding and checksum excluded */
} gw_classic_frame_info;

/* Reads and checks the header at src, for which src_size GW_CLASSIC_FRAME_HEADER_SIZE suffices.
 * docs/format-classic.md has the rules, their order and statuses. On failure *info is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_classic_frame_peek(const void *src, size_t src_size,
                                                     gw_classic_frame_info *info);

/* Checks header, size, limit, checksum and the structure of the payload. A frame that passes decodes without
 * an error. Takes about the time of a decode that stores nothing. */
GW_API GW_MUST_CHECK gw_status gw_classic_frame_check(const gw_classic_frame *frame,
                                                      gw_classic_frame_info *info,
                                                      const gw_workspace *workspace);

/* Bytes of workspace of the calls that read a frame with this header; 0 for NULL. */
GW_API size_t gw_classic_decode_workspace_size(const gw_classic_frame_info *info);

/* Where decoded values go. */
typedef struct gw_classic_target {
    void *values;      /* in: elements of the frame's dtype; gw_classic_decode_add(): fp32 */
    uint64_t capacity; /* in: elements */
    uint64_t len;      /* out: elements written, 0 on failure */

    /* In: factor of every value; the product is rounded once more. 0 and 1: no multiplication. Else it must
     * be a normal number (GW_ERR_ARG). Zero the struct or set this field: it is always read. */
    float scale;
} gw_classic_target;

/*
 * Decodes a frame.
 *   - GW_ERR_DST: target->capacity is too small; like all errors of the header found before anything is
 *     written
 *   - GW_ERR_CHECKSUM, GW_ERR_CORRUPT: the payload breaks a rule; target->values[0..len) is zero-filled
 */
GW_API GW_MUST_CHECK gw_status gw_classic_decode(const gw_classic_frame *frame, gw_classic_target *target,
                                                 const gw_workspace *workspace);

/* Decodes a frame and adds it to target->values, which is fp32 whatever the frame's dtype: value = value +
 * decoded, rounded once. In sparse frames only values that were sent are touched. On failure target->values
 * is untouched. */
GW_API GW_MUST_CHECK gw_status gw_classic_decode_add(const gw_classic_frame *frame, gw_classic_target *target,
                                                     const gw_workspace *workspace);

/* ------------ sums of encoded values ------------ */

/* Adds frames without decoding them, where the scheme allows it: votes of SIGNSGD and SIGNUM, values of RANDK
 * with one seed and round, levels of QSGD and TERNGRAD with shared norms. The order of the frames does not
 * matter, except for RANDK, which adds fp32 values. */
typedef struct gw_classic_sum {
    void *lanes;      /* gw_classic_sum_size() bytes, aligned to 4, all zeros at the start */
    size_t size;      /* bytes */
    uint32_t members; /* 0 at the start; at most GW_CLASSIC_MEMBERS_MAX */
} gw_classic_sum;

#define GW_CLASSIC_MEMBERS_MAX 65535u

/* Bytes of the lanes of a sum of frames like this one: 4 per value (RANDK: per value sent). 0 if such frames
 * cannot be summed. */
GW_API size_t gw_classic_sum_size(const gw_classic_frame_info *info);

/*
 * Adds a frame. `first` is any frame of the sum: the sum has its options, seed, round and norms. Its header
 * is checked, its payload is not.
 *   - GW_ERR_OPTION: such frames cannot be summed; decode and add them
 *   - GW_ERR_ARG, GW_ERR_DST: sum->lanes is not aligned, sum->size is too small
 *   - GW_ERR_MISMATCH: a frame of other options, round, positions or norms than `first`
 *   - GW_ERR_OVERFLOW: too many members; errors of gw_classic_frame_check()
 *   - on failure the sum is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_classic_sum_add(gw_classic_sum *sum, const gw_classic_frame *first,
                                                  const gw_classic_frame *frame,
                                                  const gw_workspace *workspace);

/* Makes a frame of the majority of each sign (SIGNSGD, SIGNUM), with GW_CLASSIC_FLAG_VOTE and otherwise like
 * `first`. A tie is broken by a random bit of seed, round and element. GW_ERR_OPTION, GW_ERR_DST,
 * GW_ERR_STATE (no member), errors of gw_classic_frame_check() for `first`. On failure dst->size is 0. */
GW_API GW_MUST_CHECK gw_status gw_classic_sum_vote(const gw_classic_sum *sum, const gw_classic_frame *first,
                                                   gw_buffer *dst, const gw_workspace *workspace);

/* Decodes a sum to the sum of the values of its members; signs count as -1 and 1. For the mean set
 * target->scale = 1 / members. target is fp32, and as in gw_classic_decode(), with its statuses for `first`.
 * GW_ERR_OPTION; GW_ERR_STATE (no member). */
GW_API GW_MUST_CHECK gw_status gw_classic_sum_decode(const gw_classic_sum *sum, const gw_classic_frame *first,
                                                     gw_classic_target *target,
                                                     const gw_workspace *workspace);

#ifdef __cplusplus
}
#endif

#endif
