/*
 * GCOMP: near-lossless compression of gradients ("GCOMP", SoCC 2024; section numbers below are the paper's).
 *
 *   precision -> split -> entropy -> pack -> frame          gw_gcomp_encode
 *   frame -> unpack -> entropy -> join (-> add)             gw_gcomp_decode, gw_gcomp_decode_add
 *   both, chunk by chunk in cache: a hop of a ring          gw_gcomp_decode_add_encode
 *
 * Each value loses the mantissa bits that are too small to change the parameter update. How many these are
 * follows from a *precision map*: one byte per parameter, made once a step from the parameters and the
 * optimizer's state (gw_gcomp_map_*). Exponents, joined with the number of dropped bits, are Huffman coded;
 * the kept mantissa bits are packed in planes; a zero costs one short code. docs/format.md describes the
 * bytes, docs/numerics.md the arithmetic and its error bounds.
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
 * Precision map (section 4.2)
 * -------------------------------------------------------------------------------------------------------- */

/* The optimizers of the paper and later ones whose update bounds a parameter, with PyTorch's semantics. */
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
    uint64_t step;              /* 1-based number of the update that this gradient will make */
    double lr;                  /* > 0 */
    double peak_lr;             /* largest rate that counts, see below; 0, or at most lr: lr itself */
    double weight_decay;        /* >= 0 */
    double momentum;            /* MOMENTUM, NESTEROV, RMSPROP: 0 <= momentum */
    double dampening;           /* MOMENTUM: < 1. PyTorch skips it in the update that creates the buffer */
    double beta1, beta2;        /* ADAM, ADAMW, NADAM, RADAM, ADAMAX: [0, 1) */
    double alpha;               /* smoothing constant. RMSPROP: [0, 1); ADADELTA, whose name is rho: [0, 1] */
    double eps;                 /* all that have a second moment: >= 0 */
    double lr_decay;            /* ADAGRAD: >= 0 */
    int centered;               /* RMSPROP: 0 or 1 */
    int amsgrad;                /* ADAM, ADAMW: 0 or 1 */
    int maximize;               /* 0 or 1: the update uses -g */
    int decoupled_weight_decay; /* NADAM, RADAM: 0 or 1 */
    double momentum_decay;      /* NADAM: >= 0 */
    double mu_product;          /* NADAM: [0, 1], the state's product before the update; 1 in step 1 */
} gw_optimizer;

/*
 * The rate that counts (docs/numerics.md section 2.7). What rounding puts into a momentum is applied again by
 * later updates, at their rates. Where those can be larger than lr, peak_lr is the largest of them, each
 * times the share of the gradient that the momentum still holds then: the rate at the end of a warm-up or
 * after a restart. The map drops as if the rate were max(lr, peak_lr), and no more than any smaller rate
 * allows. For a constant or falling rate, and without a momentum, leave it 0.
 */

/* Parameters and optimizer state from *before* the update, len fp32 values each. Arrays that the optimizer
 * does not use may be NULL, and m in the first update of MOMENTUM and NESTEROV (PyTorch has no buffer yet).
 * With noise_only, param and m are not read and may be NULL. */
typedef struct gw_optimizer_state {
    const float *param; /* theta */
    const float *m;     /* momentum_buffer, exp_avg */
    const float *v;     /* sum, square_avg, exp_avg_sq, exp_inf */
    const float *a;     /* grad_avg, max_exp_avg_sq, acc_delta */
} gw_optimizer_state;

/*
 * What limits the quantum Q of a parameter (docs/numerics.md section 2); where both limits are set, the
 * smaller one counts.
 *
 *   - tolerance: one encode moves no parameter by more than 2^-tolerance_bits of its own size
 *   - noise: Q <= noise * sqrt(v) * wire_scale with v the parameter's own second moment, so that one encode
 *     adds at most noise^2 / 4 of v to the square of a gradient. ADAMAX: Q <= noise * exp_inf * wire_scale.
 *     Not for SGD, MOMENTUM and NESTEROV
 *   - update: for a momentum whose later rates are not known. The rate that counts is at least that at which
 *     the momentum moves the parameter by 2^-update_bits of its size in one step: Q is at most
 *     2^(update_bits - tolerance_bits) of the momentum's own part of the update, in units of the gradient.
 *     Ignored without a momentum. In an update that finds no momentum yet, nothing is dropped
 */
typedef struct gw_gcomp_map_limits {
    uint32_t tolerance_bits; /* 1..23: that of the codec that will use the map */
    float noise;             /* 0: no noise limit; else 2^-8..1 */
    int noise_only;          /* 1: the noise limit alone counts. 0 or 1; needs a noise limit */
    uint32_t update_bits;    /* 0: no update limit; else 1..23. Not with noise_only */
} gw_gcomp_map_limits;

/* The factors of one optimizer step that a map is made from (docs/numerics.md section 2). Plain data, made by
 * gw_gcomp_map_rule_init() only. */
typedef struct gw_gcomp_map_rule {
    uint32_t kind;      /* gw_optimizer_kind, 0 = not initialised */
    uint32_t uses;      /* which state arrays are read beside param: bit 0 m, 1 v, 2 a */
    uint32_t limits;    /* bit 0 tolerance, 1 noise, 2 any smaller rate, 3 update. param is read for bit 0 */
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
 *   - a learning rate or factor that is not positive and finite gives a rule whose maps drop nothing (all
 *     bytes 0)
 *   - GW_OK; GW_ERR_ARG (NULL, step 0, wire_scale); GW_ERR_OPTION (unknown kind, hyperparameter or limit out
 *     of range, noise limit for an optimizer without a second moment)
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_rule_init(const gw_optimizer *optimizer, float wire_scale,
                                                      const gw_gcomp_map_limits *limits,
                                                      gw_gcomp_map_rule *rule);

/*
 * A map is made in two passes over the state, each over any ranges and by any threads:
 *
 *   1. gw_gcomp_map_scan() sets *top to the largest quarter-octave (fp32 bits >> 21) of the ratios
 *      |num / (lr * c)| * wire_scale of its range, or the noise limit where it is smaller, 0 if there is
 * none. gw_gcomp_map_base() turns the maximum over all ranges (and ranks, if they do not hold the same state)
 * into the base of the map
 *   2. gw_gcomp_map_build() writes one byte per parameter: K = quarter-octave - base, at most 255; 0 = drop
 *      nothing
 *
 *   - backends: mask of permitted backends (GW_BACKEND_ALL)
 *   - map_bytes: len bytes, which must not overlap the state
 *   - GW_OK; GW_ERR_ARG (NULL, a base outside 1..1023, or a rule with an unknown kind, arrays or a limit that
 *     its optimizer does not have, a subnormal factor or a bad wire_scale): nothing is written
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_scan(const gw_gcomp_map_rule *rule,
                                                 const gw_optimizer_state *state, size_t len,
                                                 uint32_t backends, uint32_t *top);
GW_API uint32_t gw_gcomp_map_base(uint32_t top);
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_build(const gw_gcomp_map_rule *rule,
                                                  const gw_optimizer_state *state, size_t len, uint32_t base,
                                                  uint32_t backends, uint8_t *map_bytes);

/*
 * Makes the digests that a derived frame needs: digest[i] = CRC32C of the map bytes of chunk i. Made once a
 * step with the map, not once a hop.
 *
 *   - chunk_log2: 12..15; chunks of 2^chunk_log2 values are counted from map_bytes[0], the frame's first
 *     value
 *   - digest: ceil(len / 2^chunk_log2) words
 *   - GW_OK; GW_ERR_ARG
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_map_digest(const uint8_t *map_bytes, size_t len, uint32_t chunk_log2,
                                                   uint32_t *digest);

/* The part of a map that belongs to one frame, at the sender or at the receiver. */
typedef struct gw_gcomp_map {
    const uint8_t *bytes;   /* len bytes, one per value of the frame */
    const uint32_t *digest; /* one word per chunk; derived mode only, else NULL */
    uint32_t base;          /* from gw_gcomp_map_base(), 1..1023 */
    float wire_scale;       /* of the rule, a normal number > 0; derived mode only: part of the map hash */
    uint64_t len;           /* values of the frame */
    uint32_t chunk_log2;    /* of the digests, that of the frame; derived mode only */
} gw_gcomp_map;

/* -----------------------------------------------------------------------------------------------------------
 * Codec
 * -------------------------------------------------------------------------------------------------------- */

typedef enum gw_gcomp_quantum_mode {
    GW_GCOMP_EXPLICIT = 0, /* the drop travels with the exponent; any receiver decodes */
    GW_GCOMP_DERIVED = 1,  /* the receiver computes the quantum from its own equal map */
    /* the frame has one quantum per block; any receiver decodes. Bounds no single parameter */
    GW_GCOMP_CARRIED = 2
} gw_gcomp_quantum_mode;

typedef enum gw_gcomp_rounding {
    GW_GCOMP_TRUNCATE = 0,  /* toward zero, the paper's mode; biased over several hops */
    GW_GCOMP_NEAREST = 1,   /* nearest, ties to even: smallest error of one hop */
    GW_GCOMP_STOCHASTIC = 2 /* unbiased; for several hops */
} gw_gcomp_rounding;

typedef enum gw_gcomp_preset {
    GW_GCOMP_FAST = 0, /* one codebook per 2^17 values, from a sample */
    GW_GCOMP_SMALL = 1 /* an exact codebook per chunk */
} gw_gcomp_preset;

/* What chooses the quantum of a value, the power of two of which its decoded value is a multiple. */
typedef enum gw_gcomp_quantum_kind {
    GW_GCOMP_QUANTUM_DEFAULT = 0, /* in a source: as the codec's options say; there: nothing is dropped */
    /* options; explicit, derived: every value loses the same number of mantissa bits */
    GW_GCOMP_QUANTUM_DROP = 1,
    /* options; carried: the encoder chooses the quantum of a block such that the expected squared error is at
     * most `nmse` of the sum of its squares, for values that are spread evenly over their quantum (at worst 3
     * times that; stochastic 1.5 times) */
    GW_GCOMP_QUANTUM_NMSE = 2,
    /* source: a precision map. Carried: the quantum of a block is that of the median of its map bytes other
     * than 0; base and levels are read */
    GW_GCOMP_QUANTUM_MAP = 3,
    GW_GCOMP_QUANTUM_BLOCKS = 4 /* source; carried: the caller chooses the quantum of every block */
} gw_gcomp_quantum_kind;

/* The kind and what it needs. Members of other kinds are not read. */
typedef struct gw_gcomp_quantum {
    gw_gcomp_quantum_kind kind;
    uint32_t drop;           /* DROP: bits, clipped to cap, rounded down to step */
    float nmse;              /* NMSE: a normal number > 0, at most 1 */
    const gw_gcomp_map *map; /* MAP */
    /* BLOCKS: the quantum of every block as the exponent field of an fp32, 0 = nothing is cut; ceil(len /
     * 2^block_log2) bytes. Above 254 (fp16: 142) counts as that; more than 62 below the largest of the chunk
     * counts as 0 */
    const uint8_t *blocks;
} gw_gcomp_quantum;

/* The quantum of each kind; 0 and NULL give DEFAULT. */
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
    uint32_t step;            /* 0 = default: explicit 6, 2, 3 (fp32, bf16, fp16); derived and carried 1 */
    uint32_t cap;             /* largest drop in bits; UINT32_MAX = the largest allowed: explicit 18, 6, 9;
                                 derived 23, 7, 10. gw_gcomp_init() rounds it down to a multiple of step */
    gw_gcomp_quantum quantum; /* of sources that do not bring theirs: DEFAULT, DROP or NMSE */
    /* Tolerance t, 1..23 bits, default 23: one encode moves no parameter by more than 2^-t of |num| (nearest:
     * half of that, except next to the largest finite number; docs/numerics.md section 6). Sender and
     * receiver of a derived frame must agree on it. */
    uint32_t tolerance_bits;
    /* 1: a value below its quantum becomes 0 or one quantum. Needs derived or carried quanta, step 1 and the
     * largest cap. Default 0; recommended for optimizers without a second moment, with a noise limit, and for
     * carried quanta */
    int dead_zone;
    uint32_t
        block_log2; /* carried: log2 of the values that share a quantum, 6..14 and <= chunk_log2; default 9 */
    uint32_t chunk_log2; /* 12..15, default 14 */
    int strict;          /* 1: keep -0, subnormals, NaN payloads bit for bit */
    int checksum;        /* 1: CRC32C per chunk and over the metadata */
    uint32_t backends;   /* permitted backends, default GW_BACKEND_ALL */
    uint64_t len_max;    /* frames with more values are refused with GW_ERR_LIMIT; default 2^48 */
} gw_gcomp_options;

/* Fills in the defaults: explicit quanta, nearest rounding, preset fast. options must not be NULL. */
GW_API void gw_gcomp_options_init(gw_gcomp_options *options, gw_dtype dtype);

/* A codec handle: options, kernels, installed codebooks. Plain data, which may be copied and moved. Calls
 * that take it as const only read it, so threads may share one. */
typedef struct gw_gcomp {
    union {
        uint64_t align;
        unsigned char bytes[4096];
    } opaque;
} gw_gcomp;

/* Initialises a handle. GW_OK; GW_ERR_ARG (NULL); GW_ERR_OPTION (a field out of range or a combination that
 * docs/format.md section 2 does not allow). On failure *codec is what it was. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_init(gw_gcomp *codec, const gw_gcomp_options *options);

/* Bytes of workspace that one call of the codec needs: a constant below 1 MiB for given options. 0 for a
 * handle that is not initialised. */
GW_API size_t gw_gcomp_workspace_size(const gw_gcomp *codec);

/* Upper bound of the size of a frame of len values: header, extension, directory and RAW chunks. 0 if len is
 * above 2^48, if it makes more than 2^32 chunks, if the bound does not fit size_t, or for a handle that is
 * not initialised. */
GW_API size_t gw_gcomp_frame_bound(const gw_gcomp *codec, uint64_t len);

/* Consecutive values of a source that have a random stream of their own: a parameter in a bucket. */
typedef struct gw_gcomp_segment {
    uint64_t seed;
    uint64_t first_element; /* absolute index of its first value in the parameter */
    uint64_t len;
} gw_gcomp_segment;

/* What one encode works on. */
typedef struct gw_gcomp_source {
    const void *values; /* len elements of the codec's dtype */
    uint64_t len;
    /* DEFAULT, MAP or BLOCKS; a kind that the codec's levels do not have is GW_ERR_ARG, and so are carried
     * quanta whose quanta neither the source nor the options choose */
    gw_gcomp_quantum quantum;
    /* Key and counter of stochastic rounding (docs/numerics.md): bytes depend neither on how a tensor is
     * split into frames nor on threads. */
    uint64_t seed;
    uint64_t first_element; /* absolute index in the tensor of values[0] */
    uint32_t step_index;    /* training step */
    uint16_t rank, hop;
    /* If segment_count > 0: seeds and elements by segment; seed and first_element are then not read.
     * values[0] is value segment_offset of the segments, whose lengths add up to at least segment_offset +
     * len. Values are then rounded before anything else, so that an explicit value whose carry enters the
     * exponent has the drop of the rounded value */
    const gw_gcomp_segment *segments;
    size_t segment_count;
    uint64_t segment_offset;
} gw_gcomp_source;

/*
 * Writes one frame (sections 4.1 to 4.4).
 *
 *   - dst->capacity: at least gw_gcomp_frame_bound(), even where the frame turns out smaller
 *   - GW_OK: dst->size is the size of the frame
 *   - GW_ERR_ARG, GW_ERR_STATE, GW_ERR_DST, GW_ERR_WORKSPACE, GW_ERR_LIMIT (len above len_max or what a
 *     frame can hold): dst->size is 0, dst->data is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_encode(const gw_gcomp *codec, const gw_gcomp_source *source,
                                               gw_buffer *dst, const gw_workspace *workspace);

/* Chunks [chunk_first, chunk_first + chunk_count) of a frame. */
typedef struct gw_gcomp_range {
    uint64_t chunk_first;
    uint64_t chunk_count;
} gw_gcomp_range;

/*
 * Several threads, one frame: cut the chunks of the frame into ranges that begin at multiples of
 * gw_gcomp_range_align() chunks, encode every range into an area of its own, join the areas. The frame is
 * byte for byte the one that gw_gcomp_encode() makes. A handle that is not initialised has a count and an
 * alignment of 0.
 */
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
 * Moves the parts together, in order and without gaps, and writes header and directory.
 *
 *   - dst->capacity: at least gw_gcomp_frame_bound()
 *   - GW_OK: dst->size is the size of the frame
 *   - GW_ERR_ARG (the parts do not tile the frame, an area overlaps dst->data[0..bound), or encode refuses
 *     the source, a len above len_max included), GW_ERR_STATE, GW_ERR_DST: dst->size is 0, dst->data is
 *     untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_join(const gw_gcomp *codec, const gw_gcomp_source *source,
                                             const gw_gcomp_part *parts, size_t part_count, gw_buffer *dst);

/*
 * The same in steps that threads can share, where copying the parts takes longer than one thread should
 * spend. begin writes header and directory and sets dst->size; part copies parts[part_index] to its place,
 * from any thread, in any order. The frame is complete when all parts are copied. All arguments are those of
 * begin and do not change in between.
 *
 *   - begin: status as gw_gcomp_join()
 *   - part: GW_OK; GW_ERR_ARG (part_index >= part_count, a source that begin refuses, the parts up to this
 *     one do not follow one another, or its area overlaps dst->data[0..size)), GW_ERR_STATE, GW_ERR_DST (the
 *     part would end after dst->size, which then is not what begin set): dst->data is untouched
 *   - calls of part write disjoint bytes and may run at the same time
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_join_begin(const gw_gcomp *codec, const gw_gcomp_source *source,
                                                   const gw_gcomp_part *parts, size_t part_count,
                                                   gw_buffer *dst);
GW_API GW_MUST_CHECK gw_status gw_gcomp_join_part(const gw_gcomp *codec, const gw_gcomp_source *source,
                                                  const gw_gcomp_part *parts, size_t part_count,
                                                  size_t part_index, const gw_buffer *dst);

/* -----------------------------------------------------------------------------------------------------------
 * Frames
 * -------------------------------------------------------------------------------------------------------- */

typedef enum gw_gcomp_chunk_kind {
    GW_GCOMP_CHUNK_ZERO = 0,
    GW_GCOMP_CHUNK_RAW = 1,
    GW_GCOMP_CHUNK_CODED = 2
} gw_gcomp_chunk_kind;

/* What the header of a frame says. */
typedef struct gw_gcomp_frame_info {
    gw_dtype dtype;
    gw_gcomp_quantum_mode quantum_mode;
    uint32_t step, cap;
    int32_t drop_offset;
    int strict, checksum, installed, constant;
    uint32_t chunk_log2;
    uint32_t block_log2; /* carried only, else 0 */
    uint64_t len;
    uint64_t chunk_count;
    uint64_t frame_size;                       /* bytes of the whole frame */
    uint64_t directory_offset;                 /* bytes */
    uint64_t payload_offset;                   /* bytes; where chunk 0 starts */
    uint32_t codebook_id, codebook_generation; /* installed only, else 0 */
    uint32_t codebook_crc;                     /* the same: CRC32C of the serialised codebook */
    uint64_t map_hash;                         /* derived and not constant only, else 0 */
    float wire_scale;                          /* the same */
    uint32_t meta_crc;                         /* checksum only, else 0 */
} gw_gcomp_frame_info;

/*
 * Reads the header and extension at src: rules 1 to 10 of docs/format.md section 8, except rule 9, and the
 * caller's limit. No handle needed.
 *
 *   - src_size: the 32 bytes of the header and the parts of the extension that its flags announce, at most 40
 *     bytes: 80 always suffice. info->frame_size then says how many to receive
 *   - len_max: as in the options
 *   - on failure *info is zeroed
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_peek(const void *src, size_t src_size, uint64_t len_max,
                                                   gw_gcomp_frame_info *info);

/* A received frame. */
typedef struct gw_gcomp_frame {
    const void *data;
    size_t size; /* bytes; more than the frame has are refused with GW_ERR_TRAILING */
    /* the receiver's map, equal to the one that the frame was made with; read for derived frames that are not
     * constant, else ignored and may be NULL */
    const gw_gcomp_map *map;
} gw_gcomp_frame;

/* Where decoded values go. */
typedef struct gw_gcomp_target {
    void *values;       /* in: elements of the frame's dtype */
    uint64_t capacity;  /* in: elements */
    uint64_t len;       /* out: number of values written, 0 on failure */
    uint64_t bad_chunk; /* out: the lowest bad chunk, UINT64_MAX unless a chunk is at fault */
    /* in: every decoded value is multiplied by it before it is stored or added (docs/numerics.md section 5);
     * 0 and 1: not. A normal number, else GW_ERR_ARG. So a target that is not zeroed must set it */
    float scale;
    /* out, gw_gcomp_decode_add_frames() and gw_collective_sum() only: index of the frame at fault, else 0 */
    size_t bad_frame;
} gw_gcomp_target;

/* Checks all but the contents of the chunks: rules 1 to 16 of docs/format.md section 8. Costs one pass over
 * the directory. Writes nothing but *info, which is zeroed on failure. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_parse(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                    gw_gcomp_frame_info *info);

/* One chunk of the directory. */
typedef struct gw_gcomp_chunk {
    gw_gcomp_chunk_kind kind;
    uint64_t offset, size; /* bytes, codebook included where the chunk owns one */
    /* index of the owner of its codebook; 0 unless CODED with a codebook in the frame */
    uint32_t codebook;
    uint32_t crc;
    uint64_t len; /* values */
} gw_gcomp_chunk;

/* Reads entry `index` of the directory of a frame that gw_gcomp_frame_parse() has accepted, or for which it
 * found nothing but a missing codebook or map (GW_ERR_TABLE, GW_ERR_MAP); info is from gw_gcomp_frame_parse()
 * or gw_gcomp_frame_peek(). GW_OK; GW_ERR_ARG (index, or an info that no frame of this size has): *chunk is
 * zeroed. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_chunk(const gw_gcomp_frame *frame,
                                                    const gw_gcomp_frame_info *info, uint64_t index,
                                                    gw_gcomp_chunk *chunk);

/* Checks everything, the contents of the chunks included, and produces no values. *bad_chunk as in
 * gw_gcomp_target; it may be NULL. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_frame_check(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                    uint64_t *bad_chunk, const gw_workspace *workspace);

/*
 * Decodes a whole frame.
 *
 *   - the frame's dtype must be the codec's, else GW_ERR_OPTION. Of the other options only len_max and
 *     backends matter, strict for sums, tolerance_bits for derived frames, and quantum_mode for frames with
 *     an installed codebook
 *   - statuses: those of docs/format.md section 8, and GW_ERR_ARG, GW_ERR_STATE, GW_ERR_WORKSPACE
 *   - up to and including GW_ERR_DST nothing is written to target->values
 *   - GW_ERR_CORRUPT, GW_ERR_CHECKSUM of a chunk: the values of bad chunks are +0, the other chunks are
 *     decoded, the status is that of the lowest bad chunk
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                               gw_gcomp_target *target, const gw_workspace *workspace);

/* Adds a frame to target->values[0..len of the frame), as docs/numerics.md defines the sum of two values. A
 * bad chunk leaves its values as they were; the other chunks are added. Otherwise as gw_gcomp_decode(). */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                   gw_gcomp_target *target, const gw_workspace *workspace);

/*
 * Adds several frames to target->values, chunk by chunk in cache: accumulator + frames[0] + frames[1] ..., in
 * this order, each sum rounded. The result is that of one gw_gcomp_decode_add() after the other.
 *
 *   - frames: frame_count >= 1 frames of equal len and chunk_log2, else GW_ERR_MISMATCH; each with its map
 *     where it needs one
 *   - range: the chunks to work on; target->values is then the place of its first value. NULL: all
 *   - every frame is checked before anything is written; status as gw_gcomp_decode_add(), of the lowest
 *     frame (target->bad_frame)
 *   - a chunk that is bad in any frame leaves its values as they were; the other chunks are added.
 *     target->bad_chunk is the lowest bad chunk, target->bad_frame the first frame that is bad there
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add_frames(const gw_gcomp *codec, const gw_gcomp_frame *frames,
                                                          size_t frame_count, const gw_gcomp_range *range,
                                                          gw_gcomp_target *target,
                                                          const gw_workspace *workspace);

/*
 * The same as decode and decode_add for a range of the chunks of a frame that gw_gcomp_frame_parse() has
 * accepted with *info: the form for several threads.
 *
 *   - target->values is the place of the range's first value; the map is still that of the whole frame
 *   - the directory entries of the range are checked again, so bytes that change after gw_gcomp_frame_parse()
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

/*
 * One hop of a ring: frame + source->values -> frame, with the options of the codec and the map, seed and
 * counters of the source. The drop of a sum depends on the source's map and the sum alone. The bytes are
 * those of decode, add and encode one after the other, but no sum leaves the cache.
 *
 *   - source->len: that of the frame, else GW_ERR_ARG
 *   - frame->map and source->map may be the same
 *   - dst->capacity: at least gw_gcomp_frame_bound()
 *   - *bad_chunk as in gw_gcomp_target; it may be NULL
 *   - GW_OK: dst->size is the size of the frame. On failure it is 0
 *   - if a chunk of the frame is bad, dst->data[0..capacity) is unspecified but holds nothing that this call
 *     did not compute; on any other failure it is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_decode_add_encode(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                                          const gw_gcomp_source *source, gw_buffer *dst,
                                                          uint64_t *bad_chunk, const gw_workspace *workspace);

/* -----------------------------------------------------------------------------------------------------------
 * Codebooks that outlive a frame (section 4.3: renewed every k iterations)
 * -------------------------------------------------------------------------------------------------------- */

/* Bytes of a serialised codebook: 4, 254 nibbles, 8 for a zero mask, and padding. */
#define GW_GCOMP_CODEBOOK_SIZE_MAX 140

/* Counts labels over many calls. Plain data; start with gw_gcomp_histogram_init(). */
typedef struct gw_gcomp_histogram {
    uint32_t dtype, quantum_mode; /* gw_dtype, gw_gcomp_quantum_mode */
    uint32_t window_start;        /* window of explicit labels */
    uint32_t relative;            /* 1: labels have relative exponents */
    uint64_t count[256];          /* by label, docs/format.md section 3 */
    uint64_t mask_count[10];      /* classes of bytes of the zero mask, docs/format.md section 5.3 */
} gw_gcomp_histogram;

/* Empties a histogram for the codec's dtype and quantum mode; the window and the kind of exponents
 * are chosen by the first values that are added. GW_OK; GW_ERR_ARG (NULL); GW_ERR_STATE (handle not
 * initialised). */
GW_API GW_MUST_CHECK gw_status gw_gcomp_histogram_init(gw_gcomp_histogram *histogram, const gw_gcomp *codec);

/* Counts the labels of a source as gw_gcomp_encode() would make them. GW_OK; GW_ERR_ARG; GW_ERR_STATE (handle
 * not initialised, or of another dtype or quantum mode than the histogram, or a source without a map for a
 * histogram of relative exponents); GW_ERR_LIMIT; GW_ERR_WORKSPACE.
 * On failure the histogram is unchanged. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_histogram_add(gw_gcomp_histogram *histogram, const gw_gcomp *codec,
                                                      const gw_gcomp_source *source,
                                                      const gw_workspace *workspace);

/*
 * Builds the codebook of the counts, serialised as in docs/format.md section 5.1. Label 1 always gets a
 * code, and so do label 0 or, if zeros are masked, all classes of mask bytes. Ranks that pool their counts
 * (add both arrays, of equal base and relative) get equal codebooks.
 *
 *   - dst->capacity: GW_GCOMP_CODEBOOK_SIZE_MAX always suffices
 *   - GW_OK: dst->size is the size of the codebook
 *   - GW_ERR_ARG (NULL, or a base or counts of labels that the dtype does not have), GW_ERR_DST (the codebook
 *     is larger than the capacity): dst->size is 0, dst->data is untouched
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_codebook_build(const gw_gcomp_histogram *histogram, gw_buffer *dst);

/*
 * Gives the handle a serialised codebook under an id and a generation. The handle keeps the two most recent;
 * frames that name another one are refused with GW_ERR_TABLE, and so are those made with another codebook
 * under the same id and generation: a frame carries the codebook's CRC32C.
 *
 *   - codebook: must contain label 1 and label 0 or, if zeros are masked, all classes of mask bytes
 *   - encode: 1: the handle encodes with it from now on, in one pass; 0: for decoding only. With relative
 *     exponents it encodes derived sources with a map only: without one they are refused (GW_ERR_ARG)
 *   - GW_OK; GW_ERR_ARG; GW_ERR_STATE; GW_ERR_TABLE (the codebook breaks a rule of docs/format.md section
 *     5.1): the handle is unchanged
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_codebook_install(gw_gcomp *codec, uint32_t id, uint32_t generation,
                                                         const uint8_t *codebook, size_t codebook_size,
                                                         int encode);

/* Encodes with codebooks in the frame again; installed ones stay for decoding. GW_OK; GW_ERR_ARG
 * (NULL); GW_ERR_STATE (handle not initialised). */
GW_API GW_MUST_CHECK gw_status gw_gcomp_codebook_uninstall(gw_gcomp *codec);

/* -----------------------------------------------------------------------------------------------------------
 * Rate control
 * -------------------------------------------------------------------------------------------------------- */

/* The limit that differs between the points of a curve. */
typedef enum gw_gcomp_rate_kind {
    GW_GCOMP_RATE_TOLERANCE = 0, /* point i: tolerance_bits i + 1. 23 points */
    GW_GCOMP_RATE_NOISE = 1      /* point i: noise 2^(-i / 2), from 1 down to 2^-8. 17 points */
} gw_gcomp_rate_kind;

#define GW_GCOMP_RATE_POINTS 23

/*
 * Predicted size and error of what gw_gcomp_encode() makes, at every point of a curve. Plain data; start with
 * gw_gcomp_rate_init().
 *
 * Pooling: the rates of several sources, or of several ranks, are added field by field (kind is not). The
 * integers do not depend on the order, and gw_gcomp_rate_tolerance() and gw_gcomp_rate_noise() use nothing
 * else: ranks that pool their rates choose the same point. square and error are sums in binary64: they are
 * equal on all ranks if all add in the same order.
 */
typedef struct gw_gcomp_rate {
    uint64_t len;                            /* values */
    uint64_t front_size;                     /* bytes of headers and extensions: one frame per source */
    uint64_t cost[GW_GCOMP_RATE_POINTS];     /* all other bits, times 256; 0 at points that the kind lacks */
    uint64_t nonzeros[GW_GCOMP_RATE_POINTS]; /* decoded values that are not zero */
    double square;                           /* sum of squares of the values */
    double
        error[GW_GCOMP_RATE_POINTS]; /* expected sum of squared errors, on the wire; NMSE = error / square */
    gw_gcomp_rate_kind kind;
} gw_gcomp_rate;

/* Empties a rate. GW_OK; GW_ERR_ARG (NULL, unknown kind): *rate is zeroed. */
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_init(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind);

/*
 * Adds a source, in one pass over its values and map (NOISE: two), each after a pass over a sample of them.
 *
 *   - codec: derived quanta, step 1, the largest cap, and no installed codebook for encoding. Rounding,
 *     dead_zone, preset, chunk_log2, strict and checksum are those of the encode that is predicted
 *   - TOLERANCE: the map has no noise limit; tolerance_bits of the codec does not matter
 *   - NOISE: the map was made with noise = 1, noise_only and the tolerance_bits of the codec
 *   - a map with both limits has no curve: only one of its limits would change. Take one pass with a map of
 *     each limit: a frame of both is at least as large as the larger one
 *   - the size is that of the frame that gw_gcomp_encode() makes of this source, and nonzeros are those of
 *     its values, at every TOLERANCE and at NOISE of whole octaves. NOISE at the points between them: a map
 *     made for that limit differs from what one of quarter-octaves tells of it. Of three real gradients of a
 *     million values that changed the size by up to 1.3 % with stochastic rounding; with nearest and truncate
 *     by up to 10 % at a quarter bit a value and less, else by up to 2 %
 *   - the result does not depend on the backends
 *   - pieces of a frame may be added one by one if they start at its groups (gw_gcomp_range_align()) and have
 *     first_element set: cost and nonzeros are then those of the whole
 *   - GW_OK; GW_ERR_ARG (also: no map); GW_ERR_STATE; GW_ERR_LIMIT; GW_ERR_WORKSPACE; GW_ERR_OPTION (a codec
 *     other than above): the rate is unchanged
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_add(gw_gcomp_rate *rate, const gw_gcomp *codec,
                                                 const gw_gcomp_source *source,
                                                 const gw_workspace *workspace);

/* Predicted bytes of all frames at a point; 0 if the curve has no such point or rate is NULL. */
GW_API uint64_t gw_gcomp_rate_size(const gw_gcomp_rate *rate, uint32_t point);

/*
 * The largest tolerance, or the smallest noise limit, whose predicted size is at most size_max bytes.
 *
 *   - pooled rates: size_max is for all ranks together
 *   - GW_OK; GW_ERR_ARG (NULL, a rate of the other kind); GW_ERR_LIMIT (no point fits): the result is 0
 */
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_tolerance(const gw_gcomp_rate *rate, uint64_t size_max,
                                                       uint32_t *tolerance_bits);
GW_API GW_MUST_CHECK gw_status gw_gcomp_rate_noise(const gw_gcomp_rate *rate, uint64_t size_max,
                                                   float *noise);

#ifdef __cplusplus
}
#endif

#endif
