/*
 * gradwire/plan.h - what to fuse, what to compress, how to send it.
 *
 * Given the gradients of one training step in the order in which backprop produces them, cost curves of
 * encoders, links and decoders, and the shape of a cluster, the functions below return the schedule with the
 * shortest iteration together with a proven lower bound. They restate and extend three published planners:
 * Cupcake (optimal fusion, MLSys 2023), MergeComp (partition search, 2021) and ByteComp/Espresso (decision
 * tree, EuroSys 2023).
 *
 * Conventions that hold for every function here:
 *   - Times are gw_plan_tick: signed 64-bit counts of 2^-20 ns, slopes are ticks per element. Sums are exact,
 *     so the solvers and the evaluator agree bit for bit and results do not depend on the machine.
 *   - A problem whose longest possible schedule could reach GW_PLAN_TICK_MAX is refused, not wrapped.
 *   - No allocation, no threads, no clock, no input or output: the caller passes memory, and, if it wants a
 *     time limit, a clock. Without a clock equal input gives an equal plan.
 *   - Functions are reentrant; two calls may run at once when they do not share output or workspace memory.
 *   - On failure outputs are left as they were unless the description says otherwise; a gw_plan that a solver
 *     should have filled has unspecified groups.
 *   - Index 0 is the gradient that backprop finishes first (the layer nearest to the loss).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_PLAN_H
#define GRADWIRE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int64_t gw_plan_tick;

#define GW_PLAN_TICKS_PER_US INT64_C(1048576000) /* 1000 * 2^20 */
#define GW_PLAN_TICK_MAX     (INT64_C(1) << 58) /* about 275 s: bound of every schedule the planners accept */
#define GW_PLAN_TENSORS_MAX  65535u
#define GW_PLAN_METHODS_MAX  32u
#define GW_PLAN_NO_INDEX     UINT32_MAX

typedef enum gw_plan_status {
    GW_PLAN_OK = 0,
    GW_PLAN_ERR_ARG = 1,         /* NULL pointer, unknown enumerator, contradicting options */
    GW_PLAN_ERR_EMPTY = 2,       /* no tensor, or no method */
    GW_PLAN_ERR_NEGATIVE = 3,    /* negative time, size or slope */
    GW_PLAN_ERR_OVERFLOW = 4,    /* a schedule of this problem could reach GW_PLAN_TICK_MAX */
    GW_PLAN_ERR_CURVE = 5,       /* table not ascending in x, or descending in y */
    GW_PLAN_ERR_NAME = 6,        /* two tensors share a name */
    GW_PLAN_ERR_CAPACITY = 7,    /* an output array is too short */
    GW_PLAN_ERR_WORKSPACE = 8,   /* workspace NULL, misaligned for int64_t, or too small */
    GW_PLAN_ERR_UNSUPPORTED = 9, /* this algorithm cannot solve this kind of problem exactly as published */
    GW_PLAN_ERR_LIMIT = 10,      /* too many plans for brute force, or work ran out with no plan */
    GW_PLAN_ERR_PLAN = 11,       /* the plan does not fit: gaps, overlaps, unknown or forbidden method */
    GW_PLAN_ERR_INFEASIBLE = 12, /* no plan is allowed: a tensor above group_elems_max, no method left */
    GW_PLAN_ERR_COUNT = 13       /* more tensors or methods than the limits above */
} gw_plan_status;

/* Returns a short English sentence for a status; never NULL. */
const char *gw_plan_status_string(gw_plan_status status);

/* Where and why a check failed. `what` is a static string, `index` the tensor, method or table row. */
typedef struct gw_plan_fault {
    const char *what;
    uint32_t index;
} gw_plan_fault;

/* ------------------------------------------------------------------------------------------- costs -- */

/*
 * Cost of handling x >= 0 elements, in ticks. All curves are non-negative and never fall with x.
 *   AFFINE  a + b x                 startup plus rate (Cupcake Section 3, MergeComp Section 3.2)
 *   MAXLIN  max(a, b x)             flat up to a knee, then proportional: GPU kernels as measured
 *   HINGE   a + b max(0, x - t)     flat up to t, then a ramp
 *   TABLE   linear between (table_x[i], table_y[i]), constant before the first row, last slope behind the
 *           last row; divisions round down
 */
typedef enum gw_plan_cost_kind {
    GW_PLAN_COST_AFFINE = 0,
    GW_PLAN_COST_MAXLIN = 1,
    GW_PLAN_COST_HINGE = 2,
    GW_PLAN_COST_TABLE = 3
} gw_plan_cost_kind;

typedef struct gw_plan_cost {
    gw_plan_cost_kind kind;
    gw_plan_tick a;              /* >= 0 */
    gw_plan_tick b;              /* ticks per element, >= 0 */
    int64_t t;                   /* HINGE only, elements, >= 0 */
    uint32_t table_len;          /* TABLE only, rows, >= 1 */
    const int64_t *table_x;      /* elements, strictly ascending, >= 0; borrowed */
    const gw_plan_tick *table_y; /* ticks, non-descending, >= 0; borrowed */
} gw_plan_cost;

/* Checks one curve. Returns GW_PLAN_OK, GW_PLAN_ERR_ARG, _NEGATIVE, _CURVE; fault may be NULL. */
gw_plan_status gw_plan_cost_check(const gw_plan_cost *cost, gw_plan_fault *fault);

/* Cost of `elems` >= 0 elements for a checked curve. Saturates at INT64_MAX instead of wrapping. */
gw_plan_tick gw_plan_cost_eval(const gw_plan_cost *cost, int64_t elems);

/* One measurement: `elems` elements took `ticks`. */
typedef struct gw_plan_point {
    int64_t elems;
    gw_plan_tick ticks;
} gw_plan_point;

typedef struct gw_plan_fit {
    gw_plan_cost cost; /* TABLE is never returned by the fit: it has no error to state */
    double error_max;  /* largest |fit - measured| / measured over the points */
    double error_mean; /* mean of the same */
    double r2;         /* coefficient of determination */
} gw_plan_fit;

/* Fits above this relative error deserve a warning: the optimum may move (ResNet101: from 36 groups to 2). */
#define GW_PLAN_FIT_ERROR_WARN 0.10

/*
 * Fits the curve form `kind` (AFFINE, MAXLIN or HINGE) to points[0..point_count) with non-negative
 * coefficients, minimising the sum of squared relative errors. Needs at least two points with different
 * elems and positive ticks; points in any order. GW_PLAN_ERR_ARG, _NEGATIVE (elems < 0 or ticks <= 0).
 */
gw_plan_status gw_plan_cost_fit(const gw_plan_point *points, size_t point_count, gw_plan_cost_kind kind,
                                gw_plan_fit *fit);

/* The form with the smallest error_max; ties prefer AFFINE, then MAXLIN, then HINGE. */
gw_plan_status gw_plan_cost_fit_best(const gw_plan_point *points, size_t point_count, gw_plan_fit *fit);

/* ----------------------------------------------------------------------------------------- problem -- */

typedef enum gw_plan_device { GW_PLAN_GPU = 0, GW_PLAN_CPU = 1 } gw_plan_device;

typedef struct gw_plan_tensor {
    const char *name;   /* borrowed; may be NULL; otherwise unique within a problem */
    int64_t elems;      /* >= 0 */
    gw_plan_tick bwd;   /* backprop time from the previous gradient to this one, >= 0 */
    uint32_t forbidden; /* bit m set: no group that holds this tensor may use method m */
} gw_plan_tensor;

/*
 * What a fused group may do: encode on enc_device (a GPU encode delays backprop, a CPU encode queues on the
 * CPU after the group is ready), occupy the network, decode. Uncompressed sending has zero enc and dec.
 */
typedef struct gw_plan_method {
    const char *name; /* borrowed */
    gw_plan_cost enc;
    gw_plan_cost net;
    gw_plan_cost dec;
    gw_plan_device enc_device;
} gw_plan_method;

/*
 * When decodes run at the serial level.
 *
 *   SERIAL: in order on the GPU after backprop. The iteration takes max(E + W, Q) with E the end of backprop
 *   and encoding, W the sum of decodes, Q the maximum over groups of (network end + this and later decodes).
 *
 *   PARALLEL: each right after its network end, for free: the rule of ByteComp's released simulator.
 */
typedef enum gw_plan_decode { GW_PLAN_DECODE_SERIAL = 0, GW_PLAN_DECODE_PARALLEL = 1 } gw_plan_decode;

typedef struct gw_plan_problem {
    const gw_plan_tensor *tensors;
    uint32_t tensor_count;
    const gw_plan_method *methods;
    uint32_t method_count;
    gw_plan_decode decode;
    int64_t group_elems_max; /* largest fused group in elements (memory cap); 0: no limit */
} gw_plan_problem;

/*
 * Checks everything the solvers rely on: counts, signs, curves, unique names (O(N^2) comparisons), and that
 * no schedule can reach GW_PLAN_TICK_MAX. fault (may be NULL) receives place and reason on failure. Solvers
 * repeat all of it but the comparison of names.
 */
gw_plan_status gw_plan_problem_check(const gw_plan_problem *problem, gw_plan_fault *fault);

/* ------------------------------------------------------------------------------------------ result -- */

typedef struct gw_plan_group {
    uint32_t first;        /* index of the first tensor */
    uint32_t tensor_count; /* >= 1 */
    uint32_t method;
} gw_plan_group;

/* Groups in order. The caller sets groups and capacity (tensor_count suffices), solvers group_count. */
typedef struct gw_plan {
    gw_plan_group *groups;
    uint32_t capacity;
    uint32_t group_count;
} gw_plan;

/* Every solver returns one. proven: makespan == lower_bound; gap = (makespan - lower_bound) / lower_bound. */
typedef struct gw_plan_cert {
    gw_plan_tick makespan;
    gw_plan_tick lower_bound;
    int proven;
    uint64_t labels; /* states, table cells or plans examined */
    uint32_t rounds; /* passes of the label solver */
    int stopped;     /* 1: a limit ended the search before its own goal */
} gw_plan_cert;

/*
 * Limits of the searching solvers; all zero means: no clock, no work limit, default label cap, prove
 * optimality. The clock is called between tensors only. With a clock the plan may depend on the machine's
 * speed; with work_max alone it does not.
 */
typedef struct gw_plan_limits {
    int64_t (*clock)(void *context); /* any monotonic unit */
    void *clock_context;
    int64_t clock_max;  /* stop when clock() - clock() at the start exceeds this; 0: none */
    uint64_t work_max;  /* label extensions; 0: none */
    uint32_t label_cap; /* labels kept per tensor boundary in the last round; 0: what the workspace holds */
    uint32_t gap_ppm;   /* stop once (makespan - lower bound) <= makespan * gap_ppm / 10^6; at most 10^6 */
} gw_plan_limits;

typedef enum gw_plan_algorithm {
    GW_PLAN_AUTO = 0,    /* FUSE_AFFINE where it is exact, else LABELS */
    GW_PLAN_FUSE_AFFINE, /* exact O(N Y) fusion: one method, affine GPU encode and net, no decode, no caps */
    GW_PLAN_FUSE_AFFINE_N2, /* the same by the O(N^2 Y) recurrence: any net curve */
    GW_PLAN_LABELS,         /* Pareto labels: any curves, decode, several methods, CPU encodes */
    GW_PLAN_BRUTE,          /* all partitions and methods, at most 2^22 plans */
    GW_PLAN_LAYERWISE,      /* every tensor alone (all following take method `method`) */
    GW_PLAN_ONE_GROUP,
    GW_PLAN_DDP,          /* PyTorch DDP: first bucket 1 MiB, then 25 MiB */
    GW_PLAN_HOROVOD,      /* fusion buffer of 128 MiB, filled in order; see gw_plan_bucket for other sizes */
    GW_PLAN_BUCKET_SWEEP, /* best bucket size out of 1..64 MiB */
    GW_PLAN_EVEN,         /* best even split into 2..32 groups, by elements */
    GW_PLAN_MGWFBP,       /* merged-gradient WFBP, greedy from the last tensor (INFOCOM 2019) */
    GW_PLAN_CUPCAKE, /* Cupcake Algorithm 1, empty group costs 0 (the reading that is exact for affine) */
    GW_PLAN_CUPCAKE_LITERAL, /* the same, empty group costs the startup time, as literally printed */
    GW_PLAN_MERGECOMP2,      /* MergeComp Algorithm 2 with at most 2, 3 or 4 groups */
    GW_PLAN_MERGECOMP3,
    GW_PLAN_MERGECOMP4,
    GW_PLAN_ALGORITHM_COUNT
} gw_plan_algorithm;

/* Lower-case name as the command line uses it, or NULL. */
const char *gw_plan_algorithm_name(gw_plan_algorithm algorithm);

/* Bytes of workspace with which `algorithm` runs well on the problem; 0 when solvers refuse it. More lets
 * GW_PLAN_LABELS keep more labels; less is accepted down to a few labels per tensor. */
size_t gw_plan_workspace_size(const gw_plan_problem *problem, gw_plan_algorithm algorithm);

/*
 * Solves the problem at the serial level. Baselines compress every group with `method` (an index; exact
 * solvers and GW_PLAN_BRUTE choose among all methods and ignore it). limits may be NULL. workspace must be
 * aligned for int64_t. cert is written on GW_PLAN_OK only. cert->lower_bound of a baseline is the
 * bound that the relaxations give, so its gap overstates the distance to the optimum.
 */
gw_plan_status gw_plan_solve(const gw_plan_problem *problem, gw_plan_algorithm algorithm, uint32_t method,
                             const gw_plan_limits *limits, void *workspace, size_t workspace_size,
                             gw_plan *plan, gw_plan_cert *cert);

/*
 * Fills buckets in order: closes a bucket as soon as it holds at least cap_elems elements (first_cap_elems
 * for the first). fill == 0 is PyTorch's rule (the tensor that crosses the cap stays in), fill == 1 Horovod's
 * (a tensor that does not fit opens the next bucket). Checks the problem as solvers do.
 * GW_PLAN_ERR_ARG (unknown method, negative cap), GW_PLAN_ERR_CAPACITY.
 */
gw_plan_status gw_plan_bucket(const gw_plan_problem *problem, uint32_t method, int64_t first_cap_elems,
                              int64_t cap_elems, int fill, gw_plan *plan);

/* -------------------------------------------------------------------------- codecs, links, options -- */

typedef struct gw_plan_link {
    gw_plan_tick alpha;    /* startup of one collective (of one step with GW_PLAN_ALPHA_PER_STEP) */
    gw_plan_tick beta_kib; /* ticks per 1024 bytes through the bottleneck link of one rank */
} gw_plan_link;

#define GW_PLAN_ALPHA_PER_STEP 1u /* ring: r - 1 steps, all-reduce 2 (r - 1), trees log2 r */
#define GW_PLAN_FLAT_USES_BOTH 2u /* flat collectives occupy the intra link too (event level) */

typedef struct gw_plan_cluster {
    uint32_t nodes; /* machines, >= 1 */
    uint32_t gpus;  /* GPUs a machine, >= 1 */
    gw_plan_link intra;
    gw_plan_link inter;
    uint32_t flags;
} gw_plan_cluster;

/* Collectives a codec's payload may use; bits of gw_plan_codec.collectives. */
#define GW_PLAN_ALLREDUCE 1u /* payloads can be summed on the way (dense, FP16, homomorphic codecs) */
#define GW_PLAN_ALLGATHER 2u
#define GW_PLAN_ALLTOALL  4u
#define GW_PLAN_GATHER    8u

typedef struct gw_plan_codec {
    const char *name;
    gw_plan_cost enc[2];       /* by gw_plan_device; elements are dense elements in */
    gw_plan_cost dec[2];       /* elements are dense elements out */
    gw_plan_tick dec_peer_kib; /* extra decode ticks per 1024 payload bytes for every further contribution */
    int64_t payload_header;    /* bytes a message */
    int64_t payload_num;       /* payload bytes = header + ceil(elems * num / den) */
    int64_t payload_den;
    uint32_t collectives; /* at least one bit */
    uint32_t devices;     /* bit GW_PLAN_GPU, bit GW_PLAN_CPU */
} gw_plan_codec;

/*
 * Curves of one fused group sent flat over all r = nodes * gpus ranks with one collective: ALLREDUCE and
 * ALLTOALL carry 2 (r - 1) / r payloads, ALLGATHER and GATHER r - 1, over the inter link (the intra link when
 * nodes is 1). The slope is rounded to the nearest tick per element. `codec` may be NULL: dense float32.
 * GW_PLAN_ERR_UNSUPPORTED when the codec lacks collective or device.
 */
gw_plan_status gw_plan_method_make(const gw_plan_codec *codec, const gw_plan_cluster *cluster,
                                   uint32_t collective, gw_plan_device device, gw_plan_method *method);

/* ByteComp's decision tree (their Figure 7). One operation of an option: */
typedef enum gw_plan_op {
    GW_PLAN_OP_COMP_GPU = 0,
    GW_PLAN_OP_COMP_CPU,
    GW_PLAN_OP_DEC_GPU,
    GW_PLAN_OP_DEC_CPU,
    /* flat: over all ranks */
    GW_PLAN_OP_FLAT_ALLREDUCE,
    GW_PLAN_OP_FLAT_RS,
    GW_PLAN_OP_FLAT_REDUCE,
    GW_PLAN_OP_FLAT_A2A,
    GW_PLAN_OP_FLAT_GATHER,
    GW_PLAN_OP_FLAT_ALLGATHERC,
    GW_PLAN_OP_FLAT_AG,
    GW_PLAN_OP_FLAT_BCAST,
    /* inside a machine */
    GW_PLAN_OP_INTRA_RS,
    GW_PLAN_OP_INTRA_REDUCE,
    GW_PLAN_OP_INTRA_A2A,
    GW_PLAN_OP_INTRA_GATHER,
    GW_PLAN_OP_INTRA_AG,
    GW_PLAN_OP_INTRA_BCAST,
    /* between machines */
    GW_PLAN_OP_INTER_ALLREDUCE,
    GW_PLAN_OP_INTER_RS,
    GW_PLAN_OP_INTER_REDUCE,
    GW_PLAN_OP_INTER_A2A,
    GW_PLAN_OP_INTER_GATHER,
    GW_PLAN_OP_INTER_ALLGATHERC,
    GW_PLAN_OP_INTER_AG,
    GW_PLAN_OP_INTER_BCAST,
    GW_PLAN_OP_COUNT
} gw_plan_op;

#define GW_PLAN_OPTION_OPS_MAX 12u
#define GW_PLAN_OPTION_COUNT   4341u

typedef struct gw_plan_option {
    uint8_t op_count;
    uint8_t comp_count;                  /* compressions in the path */
    uint8_t ops[GW_PLAN_OPTION_OPS_MAX]; /* gw_plan_op */
} gw_plan_option;

const char *gw_plan_op_name(gw_plan_op op);

/* Which options gw_plan_options_list() returns; zero is all 4341. */
#define GW_PLAN_OPTIONS_GPU_ONLY     1u /* 174 */
#define GW_PLAN_OPTIONS_DENSE_ONLY   2u /* 9 */
#define GW_PLAN_OPTIONS_SCATTER_ONLY 4u /* first steps reduce-scatter and all-to-all only: 1188 */
#define GW_PLAN_OPTIONS_ONE_DEVICE   8u /* one device in the whole option: 339 */

/*
 * Lists the tree in its grammar's order. comp_max limits the compressions in a path (UINT32_MAX: no limit).
 * Writes up to `capacity` options and always stores the full number in *count; options may be NULL with
 * capacity 0. GW_PLAN_ERR_CAPACITY when capacity is positive and too small.
 */
gw_plan_status gw_plan_options_list(uint32_t filter, uint32_t comp_max, gw_plan_option *options,
                                    uint32_t capacity, uint32_t *count);

/* Where a stage runs. */
typedef enum gw_plan_resource {
    GW_PLAN_ON_GPU = 0,
    GW_PLAN_ON_CPU = 1,
    GW_PLAN_ON_INTRA = 2,
    GW_PLAN_ON_INTER = 3,
    GW_PLAN_RESOURCE_COUNT = 4
} gw_plan_resource;

typedef struct gw_plan_stage {
    gw_plan_tick duration;
    uint8_t resource; /* gw_plan_resource */
    uint8_t queue;    /* pipelined level: 0 first intra or flat step, 1 inter, 2 second intra step */
    uint8_t decode;   /* 1: decompression */
    uint8_t op;       /* gw_plan_op, GW_PLAN_OP_COUNT for a fused group's network stage */
} gw_plan_stage;

/* One message: the backprop time it waits for, then its stages in order. */
typedef struct gw_plan_job {
    gw_plan_tick bwd;
    uint32_t stage_count;
    gw_plan_stage stages[GW_PLAN_OPTION_OPS_MAX];
} gw_plan_job;

/*
 * Durations of `option` for a tensor of `elems` elements. Payload state: fraction of the tensor held (split
 * by scatter steps, restored by gathers) and number of contributions not yet summed; see docs/planning.md.
 * codec may be NULL for an option without compression. A collective the codec does not allow, or a device it
 * does not support, gives GW_PLAN_ERR_UNSUPPORTED.
 */
gw_plan_status gw_plan_option_price(const gw_plan_option *option, const gw_plan_codec *codec,
                                    const gw_plan_cluster *cluster, int64_t elems, gw_plan_job *job);

/* What the serial level sees of a job: GPU and CPU time before the first network step, first to last network
 * step with everything between, time behind the last network step. */
typedef struct gw_plan_vector {
    gw_plan_tick gpu;
    gw_plan_tick cpu;
    gw_plan_tick net;
    gw_plan_tick tail;
    uint32_t option; /* caller's index */
} gw_plan_vector;

void gw_plan_job_vector(const gw_plan_job *job, gw_plan_vector *vector);

/* Removes vectors that another one beats or equals in all four times; keeps the earliest of equals; returns
 * the number left, sorted by (gpu, cpu, net, tail). Exact at the serial level, where a schedule never gets
 * longer when a time gets shorter. scratch is count entries. */
uint32_t gw_plan_vectors_reduce(gw_plan_vector *vectors, uint32_t count, gw_plan_vector *scratch);

/* Option-tree problem: tensor i may use class_vectors[class_first[c] .. class_first[c + 1]) with c =
 * tensor_class[i] (one class a distinct size). Tensors are sent one by one, in order. */
typedef struct gw_plan_tree {
    const gw_plan_tick *bwd;      /* [tensor_count] */
    const uint32_t *tensor_class; /* [tensor_count] */
    uint32_t tensor_count;
    const gw_plan_vector *vectors;
    const uint32_t *class_first; /* [class_count + 1] */
    uint32_t class_count;
    gw_plan_decode decode;
} gw_plan_tree;

size_t gw_plan_tree_workspace_size(const gw_plan_tree *tree);

/* Exact serial-level choice of one vector per tensor (choice[i] indexes vectors of the tensor's class, from
 * 0). Same limits, certificate and workspace rules as gw_plan_solve() with GW_PLAN_LABELS. */
gw_plan_status gw_plan_tree_solve(const gw_plan_tree *tree, const gw_plan_limits *limits, void *workspace,
                                  size_t workspace_size, uint32_t *choice, gw_plan_cert *cert);

/* Serial-level makespan of a choice, by the definition; separate code from the solver. */
gw_plan_status gw_plan_tree_eval(const gw_plan_tree *tree, const uint32_t *choice, gw_plan_tick *makespan);

/* All choices, at most 2^22. */
gw_plan_status gw_plan_tree_brute(const gw_plan_tree *tree, uint32_t *choice, gw_plan_cert *cert);

/*
 * ByteComp Algorithm 1 (greedy GPU choice, same-size tensors visited latest in backprop first, sweeps until
 * nothing improves) and Algorithm 2 (which of the compressed tensors go to the CPU: in each group of equal
 * size and option the earliest in backprop first, all combinations of counts). cpu_of[v] names the vector of
 * the same class that is vector v with every device replaced by the CPU (GW_PLAN_NO_INDEX: none); NULL skips
 * Algorithm 2. candidate[v] != 0 admits v to Algorithm 1 (NULL: all). start[i] is the dense option Algorithm
 * 1 begins with. Their optimality claims (Lemma 1, Theorem 1) do not hold; see docs/planning.md. At most 2^16
 * combinations are tried in Algorithm 2; beyond that only offload counts of powers of two.
 */
gw_plan_status gw_plan_bytecomp(const gw_plan_tree *tree, const uint32_t *start, const uint8_t *candidate,
                                const uint32_t *cpu_of, void *workspace, size_t workspace_size,
                                uint32_t *choice, gw_plan_cert *cert);
size_t gw_plan_bytecomp_workspace_size(const gw_plan_tree *tree);

/* --------------------------------------------------------------------------------------- timelines -- */

typedef enum gw_plan_level {
    GW_PLAN_LEVEL_SERIAL = 0,    /* one network, messages in order: what the solvers optimise */
    GW_PLAN_LEVEL_PIPELINED = 1, /* one in-order queue per network step, GPU and CPU */
    GW_PLAN_LEVEL_EVENT =
        2 /* resources GPU, CPU, intra, inter; first ready first served; compression preempts backprop */
} gw_plan_level;

typedef enum gw_plan_span_kind {
    GW_PLAN_SPAN_BACKPROP = 0,
    GW_PLAN_SPAN_ENCODE = 1,
    GW_PLAN_SPAN_NETWORK = 2,
    GW_PLAN_SPAN_DECODE = 3
} gw_plan_span_kind;

typedef struct gw_plan_span {
    gw_plan_tick start;
    gw_plan_tick end;
    uint32_t job;
    uint8_t resource; /* gw_plan_resource */
    uint8_t kind;     /* gw_plan_span_kind */
    uint8_t stage;    /* index in the job, 255 for backprop */
} gw_plan_span;

/* Expands a plan into jobs (jobs_capacity >= group_count). Checks the plan against the problem. */
gw_plan_status gw_plan_jobs(const gw_plan_problem *problem, const gw_plan *plan, gw_plan_job *jobs,
                            uint32_t jobs_capacity);

/* Makespan of a plan at the serial level, by the definition and in code the solvers do not share. */
gw_plan_status gw_plan_eval(const gw_plan_problem *problem, const gw_plan *plan, gw_plan_tick *makespan);

/* Upper bound of spans a timeline can have, and bytes of workspace (event level; 0 otherwise). */
size_t gw_plan_timeline_span_count_max(const gw_plan_job *jobs, uint32_t job_count);
size_t gw_plan_timeline_workspace_size(uint32_t job_count);

/*
 * Runs jobs at a level and returns the makespan (start of backprop to the last end). spans may be NULL;
 * otherwise *span_count receives the number written, in order of job and stage (event level: of start time).
 * flags: those of gw_plan_cluster. When span_capacity is too small, the makespan and *span_count, the number
 * needed, are valid all the same and the status is GW_PLAN_ERR_CAPACITY.
 */
gw_plan_status gw_plan_timeline(gw_plan_level level, gw_plan_decode decode, uint32_t flags,
                                const gw_plan_job *jobs, uint32_t job_count, gw_plan_span *spans,
                                size_t span_capacity, size_t *span_count, void *workspace,
                                size_t workspace_size, gw_plan_tick *makespan);

#ifdef __cplusplus
}
#endif

#endif /* GRADWIRE_PLAN_H */
