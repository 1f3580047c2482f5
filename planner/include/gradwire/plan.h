/*
 * plan.h: chooses which gradients to fuse, which to compress, and how to send them. A library of its own
 * (gradwire-plan).
 *
 * Input: the gradients of one training step in the order in which backprop produces them; cost curves of
 * encoders, links and decoders; the shape of the cluster. Output: the schedule with the shortest iteration,
 * and a proven lower bound. docs/planning.md describes the model and the solvers.
 *
 * The planners restate and extend these papers, whose own algorithms are included as baselines:
 *   Cupcake    Wang, Wu, Xu and Ng, "Cupcake: A Compression Scheduler for Scalable Communication-Efficient
 *              Distributed Training" (MLSys 2023): optimal fusion
 *   MergeComp  Wang, Wu and Ng, "MergeComp: A Compression Scheduler for Scalable Communication-Efficient
 *              Distributed Training" (arXiv 2103.15195, 2021): search for a partition
 *   ByteComp   Wang, Lin, Zhu and Ng, "ByteComp: Revisiting Gradient Compression in Distributed Training"
 *              (arXiv 2205.14465, 2022), published as "Hi-Speed DNN Training with Espresso: Unleashing the
 *              Full Potential of Gradient Compression with Near-Optimal Usage Strategies" (EuroSys 2023):
 *              decision tree
 *   MG-WFBP    Shi, Chu and Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
 *              Algorithms" (INFOCOM 2019): greedy merging
 *
 * Words used in this header:
 *   tick            unit of time, 2^-20 ns (gw_plan_tick)
 *   tensor          the gradient of one parameter. Index 0 is the one that backprop finishes first (the layer
 *                   nearest to the loss)
 *   group           consecutive tensors that are sent as one message
 *   method          how a group is sent: encode, network, decode, each with a cost curve
 *   dense           not compressed
 *   plan            groups and their methods
 *   schedule        a plan with its times. Its makespan is the time from the start of backprop to the end of
 *                   the last step
 *   level           how finely a schedule models the machine: serial, pipelined, event (gw_plan_level). The
 *                   solvers optimise at the serial level
 *   label           a partial plan with its times, as label-setting searches keep them
 *   rank, owner     a GPU of the cluster; the rank that sums a share of a message
 *   contribution    what one rank adds to a sum
 *   flat            over all ranks at once. intra, inter: inside a machine, between machines
 *   option          one way to send one tensor: a path through ByteComp's decision tree
 *   job, stage      one message on its way, and one part of that way on one resource
 *   vector          the times of a job that matter at the serial level
 *
 * The rules of gradwire.h hold. In addition:
 *   - Times are signed 64-bit ticks, slopes are ticks per element. Sums are exact: solvers and
 *     evaluator agree bit for bit, and results do not depend on the machine.
 *   - A problem whose longest schedule could reach GW_PLAN_TICK_MAX is refused (GW_ERR_TICKS).
 *   - A time limit needs a clock from the caller. Without a clock, equal input gives an equal plan.
 *   - On failure outputs are unchanged unless stated otherwise. Exception: the groups of a gw_plan that a
 *     solver should have filled are unspecified.
 *   - "Borrowed" pointers must stay valid as long as the struct is used.
 *
 * Status codes that several functions share:
 *   GW_ERR_ARG         NULL pointer, unknown enumerator, index out of range
 *   GW_ERR_OPTION      the algorithm or codec does not cover this problem (algorithm AUTO covers all)
 *   GW_ERR_DST         an output array is too short
 *   GW_ERR_LIMIT       too many tensors or methods; too many plans for brute force; a limit stopped the
 *                      search before it had a plan (raise it)
 *   GW_ERR_EMPTY ...   gradwire.h, group "Planners"; gw_plan_problem_check() says where and why
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_PLAN_H
#define GRADWIRE_PLAN_H

#include "gradwire/abi.h"
#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int64_t gw_plan_tick;

#define GW_PLAN_TICKS_PER_US INT64_C(1048576000) /* 1000 * 2^20 */
#define GW_PLAN_TICK_MAX     (INT64_C(1) << 58)  /* about 275 s: every schedule must be shorter */
#define GW_PLAN_TENSORS_MAX  65535u
#define GW_PLAN_METHODS_MAX  32u
#define GW_PLAN_NO_INDEX     UINT32_MAX

/* Where and why a check failed. */
typedef struct gw_plan_fault {
    const char *what; /* static string */
    uint32_t index;   /* of the tensor, method or table row; GW_PLAN_NO_INDEX: none of them */
} gw_plan_fault;

/* ------------------------------------------------------------------------------------------- costs -- */

/*
 * Cost of handling x >= 0 elements, in ticks. All curves are non-negative and never fall with x.
 *   AFFINE  a + b x                 startup plus rate (Cupcake section 3, MergeComp section 3.2)
 *   MAXLIN  max(a, b x)             flat up to a knee, then proportional, as GPU kernels are measured
 *   HINGE   a + b max(0, x - t)     flat up to t, then a ramp
 *   TABLE   linear between the points (table_x[i], table_y[i]), constant before the first one, with the slope
 *           of the last two after the last one; divisions round down
 */
typedef enum gw_plan_cost_kind {
    GW_PLAN_COST_AFFINE = 0,
    GW_PLAN_COST_MAXLIN = 1,
    GW_PLAN_COST_HINGE = 2,
    GW_PLAN_COST_TABLE = 3
} gw_plan_cost_kind;

/* All numbers are in 0..GW_PLAN_TICK_MAX. */
typedef struct gw_plan_cost {
    gw_plan_cost_kind kind;
    gw_plan_tick a;
    gw_plan_tick b;              /* ticks per element */
    int64_t t;                   /* HINGE only, elements */
    uint32_t table_len;          /* TABLE only, rows, >= 1 */
    const int64_t *table_x;      /* elements, strictly ascending; borrowed */
    const gw_plan_tick *table_y; /* ticks, non-descending; borrowed */
} gw_plan_cost;

/*
 * Checks one curve.
 *   - fault: place and reason of a failure; may be NULL.
 *   - Returns GW_OK, GW_ERR_ARG (NULL, unknown kind, table without rows), GW_ERR_NEGATIVE, GW_ERR_TICKS (a
 *     number above GW_PLAN_TICK_MAX) or GW_ERR_CURVE (rows that do not ascend).
 */
GW_API GW_MUST_CHECK gw_status gw_plan_cost_check(const gw_plan_cost *cost, gw_plan_fault *fault);

/* Cost of `len` >= 0 elements. The curve must pass gw_plan_cost_check(). Saturates at INT64_MAX. */
GW_API gw_plan_tick gw_plan_cost_eval(const gw_plan_cost *cost, int64_t len);

/* One measurement: `len` elements took `ticks`. */
typedef struct gw_plan_point {
    int64_t len;        /* 0..GW_PLAN_TICK_MAX */
    gw_plan_tick ticks; /* 1..GW_PLAN_TICK_MAX */
} gw_plan_point;

/* A fitted curve and how well it fits. */
typedef struct gw_plan_fit {
    gw_plan_cost cost; /* AFFINE, MAXLIN or HINGE; passes gw_plan_cost_check() */
    double error_max;  /* largest |fit - measured| / measured over the points */
    double error_mean; /* mean of the same */
    double r2;         /* coefficient of determination */
} gw_plan_fit;

/* A fit with a larger relative error deserves a warning: the optimal plan may be a very different one
 * (ResNet101: 36 groups became 2). */
#define GW_PLAN_FIT_ERROR_WARN 0.10

/*
 * Fits a curve of one form to points[0..point_count), minimising the sum of squared relative errors.
 *   - points: in any order, at least two with different len.
 *   - kind: AFFINE, MAXLIN or HINGE.
 *   - Returns GW_OK, GW_ERR_ARG, GW_ERR_NEGATIVE (len < 0 or ticks <= 0) or GW_ERR_TICKS.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_cost_fit(const gw_plan_point *points, size_t point_count,
                                                gw_plan_cost_kind kind, gw_plan_fit *fit);

/* Fits all three forms and returns the one with the smallest error_max; ties prefer AFFINE, then MAXLIN. */
GW_API GW_MUST_CHECK gw_status gw_plan_cost_fit_best(const gw_plan_point *points, size_t point_count,
                                                     gw_plan_fit *fit);

/* ----------------------------------------------------------------------------------------- problem -- */

typedef enum gw_plan_device { GW_PLAN_GPU = 0, GW_PLAN_CPU = 1 } gw_plan_device;

/* One gradient. */
typedef struct gw_plan_tensor {
    const char *name;   /* borrowed; NULL, or unique within a problem */
    int64_t len;        /* >= 0 */
    gw_plan_tick bwd;   /* backprop time from the previous gradient to this one, >= 0 */
    uint32_t forbidden; /* bit m set: no group that holds this tensor may use method m */
} gw_plan_tensor;

/*
 * How a group may be sent: it is encoded, occupies the network, and is decoded. For uncompressed sending enc
 * and dec are zero. An encode on the GPU delays backprop. An encode on the CPU queues there once the group is
 * ready.
 *
 * The CPU of a rank is modelled as three cores, each with a queue in order: one encodes, one sums as owner,
 * one decodes.
 */
typedef struct gw_plan_method {
    const char *name;      /* borrowed */
    gw_plan_device device; /* of enc, sum and dec */
    gw_plan_cost enc;
    gw_plan_cost net;
    gw_plan_cost dec;
    gw_plan_cost dec_more; /* added to dec: decoding of the further contributions of an all-gather */
    gw_plan_cost host; /* CPU only: copy of the dense group from GPU to host before enc, and back after dec */
    /* Number of owners, for methods in which each rank sums a share of the message between two exchanges; 0:
     * none. This owner's step counts as part of the time on the network. Of x elements it sums the
     * contributions of the other ranks to its share, sum(x - x / owner_count), and encodes the result, enc(x
     * / owner_count rounded up) */
    uint32_t owner_count;
    gw_plan_cost sum;
    gw_plan_cost gather; /* owner_count > 0: exchange after the owner's step; net is the one before it */
    int64_t error;       /* error of one element, see gw_plan_problem.error_max; 0..GW_PLAN_TICK_MAX */
} gw_plan_method;

/*
 * When decodes run at the serial level.
 *
 *   SERIAL    Decodes on the GPU run in order after backprop. Decodes on the CPU run in order, each once its
 *             message has arrived. The iteration takes max(E + W, Q, R):
 *               E  end of backprop and encoding
 *               W  sum of all decodes on the GPU
 *               Q  maximum over groups of: its end on the network + this and all later decodes on the GPU
 *               R  end of the last decode on the CPU
 *   PARALLEL  Each decode runs right after its network step and occupies no resource: the rule of ByteComp's
 *             released simulator.
 */
typedef enum gw_plan_decode { GW_PLAN_DECODE_SERIAL = 0, GW_PLAN_DECODE_PARALLEL = 1 } gw_plan_decode;

/* What is to be planned. */
typedef struct gw_plan_problem {
    const gw_plan_tensor *tensors;
    uint32_t tensor_count; /* 1..GW_PLAN_TENSORS_MAX */
    const gw_plan_method *methods;
    uint32_t method_count; /* 1..GW_PLAN_METHODS_MAX */
    gw_plan_decode decode;
    int64_t group_len_max; /* largest fused group in elements (memory cap); 0: no limit */
    /* Upper bound of the sum over groups of (error of the method * elements), in a unit of the caller's; 0:
     * no bound. For errors that add up over elements, such as mean squared ones, it bounds the mean error of
     * the plan */
    int64_t error_max;
} gw_plan_problem;

/*
 * Checks everything that the solvers rely on: counts, signs, curves, unique names, and that no schedule can
 * reach GW_PLAN_TICK_MAX.
 *   - fault: place and reason of a failure; may be NULL.
 *   - Names take O(N^2) comparisons. Solvers repeat all other checks themselves.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_problem_check(const gw_plan_problem *problem, gw_plan_fault *fault);

/* ------------------------------------------------------------------------------------------ result -- */

/* Tensors first to first + tensor_count - 1, sent by one method. */
typedef struct gw_plan_group {
    uint32_t first;        /* index of the first tensor */
    uint32_t tensor_count; /* >= 1 */
    uint32_t method;
} gw_plan_group;

/* Groups in order. The caller sets groups and capacity (tensor_count suffices), solvers set group_count. */
typedef struct gw_plan {
    gw_plan_group *groups;
    uint32_t capacity;
    uint32_t group_count;
} gw_plan;

/* What a solver proves about its plan. The relative gap is (makespan - lower_bound) / lower_bound. */
typedef struct gw_plan_cert {
    gw_plan_tick makespan;
    gw_plan_tick lower_bound;
    int proven;      /* 1: makespan == lower_bound */
    uint64_t labels; /* number of states, table cells or plans that were examined */
    uint32_t rounds; /* passes of the label solver */
    int stopped;     /* 1: a limit ended the search early */
} gw_plan_cert;

/* Limits of the solvers that search. All zero: no clock, no work limit, default label cap, search until the
 * plan is proven optimal. The clock is read between tensors only. With a clock the plan may depend on the
 * machine's speed; with work_max alone it does not. */
typedef struct gw_plan_limits {
    int64_t (*clock)(void *context); /* any monotonic unit; NULL: none */
    void *clock_context;
    int64_t clock_max;  /* stop when clock() minus its first value exceeds this; 0: never */
    uint64_t work_max;  /* stop after so many extensions of labels; 0: no limit */
    uint32_t label_cap; /* labels kept per tensor boundary in the last round; 0: what the workspace holds */
    uint32_t gap_ppm;   /* stop once makespan - lower bound <= makespan * gap_ppm / 10^6; at most 10^6 */
} gw_plan_limits;

typedef enum gw_plan_algorithm {
    GW_PLAN_AUTO = 0,    /* FUSE_AFFINE where it is exact, else LABELS */
    GW_PLAN_FUSE_AFFINE, /* exact fusion in O(N Y) for N tensors, Y groups: one method, affine GPU encode and
                            net, no decode, no caps */
    GW_PLAN_FUSE_AFFINE_N2, /* exact fusion in O(N^2 Y): as above with any net curve */
    GW_PLAN_LABELS,         /* exact or with a proven gap: any curves, decode, several methods, CPU encodes */
    GW_PLAN_BRUTE,          /* all partitions and methods, at most 2^22 plans */
    GW_PLAN_LAYERWISE,      /* every tensor alone. This and all following are baselines and use
                               gw_plan_solver.method */
    GW_PLAN_ONE_GROUP,      /* all tensors in one group */
    GW_PLAN_DDP,            /* buckets of PyTorch DDP: the first 1 MiB, then 25 MiB. DDP itself with fp32 */
    GW_PLAN_HOROVOD,        /* fusion buffer of 128 MiB, filled in order; gw_plan_bucket() for other sizes */
    GW_PLAN_BUCKET_SWEEP,   /* best bucket size out of 1..64 MiB */
    GW_PLAN_EVEN,           /* best even split into 2..32 groups, by elements */
    GW_PLAN_MGWFBP,         /* MG-WFBP's greedy merging */
    GW_PLAN_CUPCAKE,        /* Cupcake Algorithm 1 if an empty group costs 0: exact for affine curves */
    GW_PLAN_CUPCAKE_LITERAL, /* Cupcake Algorithm 1 as printed: an empty group costs the startup time */
    GW_PLAN_MERGECOMP2,      /* MergeComp Algorithm 2 with at most 2, 3 or 4 groups */
    GW_PLAN_MERGECOMP3,
    GW_PLAN_MERGECOMP4,
    GW_PLAN_ALGORITHM_COUNT
} gw_plan_algorithm;

/* Lower-case name, as on the command line; NULL for an unknown algorithm. Static storage. */
GW_API const char *gw_plan_algorithm_name(gw_plan_algorithm algorithm);

/* Recommended bytes of workspace for `algorithm`; 0 if solvers refuse the problem. With more, GW_PLAN_LABELS
 * can keep more labels. Less is accepted, down to a few labels per tensor. */
GW_API size_t gw_plan_workspace_size(const gw_plan_problem *problem, gw_plan_algorithm algorithm);

/* Which algorithm, and how. */
typedef struct gw_plan_solver {
    gw_plan_algorithm algorithm;
    uint32_t method; /* index of the method with which baselines send every group. Exact solvers and BRUTE do
                        not read it */
    gw_plan_limits limits; /* of LABELS and CUPCAKE */
} gw_plan_solver;

/*
 * Solves the problem at the serial level.
 *   - solver: NULL means all zero: AUTO without limits.
 *   - plan: groups and capacity are set by the caller.
 *   - cert: written on GW_OK only. The lower bound of a baseline comes from relaxations, so its gap
 *     overstates the distance to the optimum.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_solve(const gw_plan_problem *problem, const gw_plan_solver *solver,
                                             gw_plan *plan, gw_plan_cert *cert,
                                             const gw_workspace *workspace);

/* Rule for gw_plan_bucket(): a bucket is closed once it holds cap_first (first bucket) or cap elements (all
 * others). */
typedef struct gw_plan_bucket_rule {
    uint32_t method;
    int64_t cap_first; /* elements, >= 0 */
    int64_t cap;       /* elements, >= 0 */
    /* 0: the tensor that crosses the cap stays in (PyTorch); 1: it opens the next one (Horovod) */
    int fill;
} gw_plan_bucket_rule;

/* Makes a plan of buckets that are filled in order. Checks the problem as solvers do. */
GW_API GW_MUST_CHECK gw_status gw_plan_bucket(const gw_plan_problem *problem, const gw_plan_bucket_rule *rule,
                                              gw_plan *plan);

/*
 * Makespan of a plan at the serial level, computed from the definition, to check solvers with.
 *   - Returns GW_ERR_PLAN if the plan does not fit the problem.
 *   - It does not use the recurrences of FUSE_AFFINE and LABELS, which find the plan and its bound. It shares
 *     with them the checks of the problem, the evaluation of cost curves and, with LABELS, the times of one
 *     group by its method. It also shares its clocks with the last step of LABELS (which picks among plans of
 *     equal length), BRUTE and the baselines. planner/tests has an evaluation that shares nothing.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_eval(const gw_plan_problem *problem, const gw_plan *plan,
                                            gw_plan_tick *makespan);

/* -------------------------------------------------------------------------- codecs, links, options -- */

/* One operation of an option of ByteComp's decision tree (Figure 7 of the paper). RS is reduce-scatter, A2A
 * all-to-all, AG all-gather, BCAST broadcast; ALLGATHERC is an all-gather of compressed payloads. */
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

#define GW_PLAN_OPS_MAX 32u /* at least GW_PLAN_OP_COUNT */

/* Costs of a collective on one kind of link. */
typedef struct gw_plan_link {
    gw_plan_tick alpha;    /* startup of one collective; with GW_PLAN_ALPHA_PER_STEP of each of its steps */
    gw_plan_tick beta_kib; /* ticks per 1024 bytes through the bottleneck link of one rank */
} gw_plan_link;            /* both in 0..GW_PLAN_TICK_MAX */

#define GW_PLAN_ALPHA_PER_STEP 1u /* steps: ring r - 1, all-reduce 2 (r - 1), trees log2 r */
#define GW_PLAN_FLAT_USES_BOTH 2u /* flat collectives occupy the intra link too (event level) */

/* The cluster and its links: inside a machine, between machines, between GPU and host. Zero the struct before
 * you set members: ones that are added later, as op_set and ops were, are then without effect. */
typedef struct gw_plan_cluster {
    uint32_t nodes; /* machines, 1..65536 */
    uint32_t gpus;  /* GPUs per machine, 1..65536 */
    gw_plan_link intra;
    gw_plan_link inter;
    uint32_t flags;    /* GW_PLAN_ALPHA_PER_STEP, GW_PLAN_FLAT_USES_BOTH */
    gw_plan_link host; /* copies between a GPU and its host, for codecs on the CPU */
    /* Costs of operations of option trees that were measured themselves: alpha is the startup of the whole
     * operation, whatever flags say; beta_kib counts the bytes through the bottleneck link, as the links do.
     * Others follow from the links. */
    uint32_t op_set; /* bit 1 << gw_plan_op for each collective of ops */
    gw_plan_link ops[GW_PLAN_OPS_MAX];
} gw_plan_cluster;

/* Collectives that a codec's payload may use; bits of gw_plan_codec.collectives. All-to-all and gather are
 * steps of option trees only: alone they leave no rank with the whole sum. */
#define GW_PLAN_ALLREDUCE 1u /* payloads can be summed on the way (dense, FP16, homomorphic codecs) */
#define GW_PLAN_ALLGATHER 2u
#define GW_PLAN_ALLTOALL  4u
#define GW_PLAN_GATHER    8u
/* all-to-all of shares, sum by the owner of each share, all-gather of the encoded sums, as in collective.h */
#define GW_PLAN_A2A_AG 16u

/* Costs and payload sizes of a codec, from which gw_plan_method_make() and gw_plan_option_price() compute
 * times. */
typedef struct gw_plan_codec {
    const char *name;
    gw_plan_cost enc[2];       /* by gw_plan_device, over dense elements in */
    gw_plan_cost dec[2];       /* by gw_plan_device, over dense elements out */
    gw_plan_tick dec_peer_kib; /* decode time per 1024 payload bytes of every contribution after the first */
    int64_t payload_header;    /* bytes per message, 0..GW_PLAN_PAYLOAD_MAX like the next two */
    int64_t payload_num;       /* payload bytes = header + ceil(len * num / den) */
    int64_t payload_den;       /* >= 1 */
    uint32_t collectives;      /* at least one bit */
    uint32_t devices;          /* bit 1 << gw_plan_device for each device that has costs */
    gw_plan_cost sum[2];       /* A2A_AG: decode and add, over dense elements out */
    uint32_t rounds; /* ALLREDUCE: number of all-reduces of a message, which together carry the payload; 0
                        means 1. THC has 2: norms, then lanes */
    int64_t error;   /* as in gw_plan_method */
} gw_plan_codec;

#define GW_PLAN_PAYLOAD_MAX (INT64_C(1) << 46)

/*
 * Makes the method, with its curves, of a group that is sent flat over all r = n k ranks, n = nodes, k =
 * gpus, so that every rank gets the sum. The network time follows from the number of payloads that cross the
 * bottleneck: the inter link of a machine, or the intra link of a rank if n is 1.
 *   - ALLREDUCE: 2 (r - 1) / r, as a ring crosses a machine's link once
 *   - ALLGATHER: r - 1
 *   - A2A_AG: all-to-all k (n - 1) / n, as the k GPUs of a machine share its link, or (r - 1) / r if n is 1;
 *     then all-gather (r - 1) / r. The owner's step lies between
 *   - The slope is rounded to the nearest tick per element.
 *   - codec: NULL for dense float32 with GW_PLAN_ALLREDUCE.
 *   - GW_ERR_OPTION: the codec lacks the collective or the device, or the collective alone leaves no rank
 *     with the sum (ALLTOALL, GATHER). GW_ERR_TICKS: a number is out of its range, or a curve would be
 */
GW_API GW_MUST_CHECK gw_status gw_plan_method_make(const gw_plan_codec *codec, const gw_plan_cluster *cluster,
                                                   uint32_t collective, gw_plan_device device,
                                                   gw_plan_method *method);

#define GW_PLAN_OPTION_OPS_MAX 12u
#define GW_PLAN_OPTION_COUNT   4341u

/* One option: the operations of a path from the root of the tree, in order. */
typedef struct gw_plan_option {
    uint8_t op_count;
    uint8_t comp_count;                  /* compressions in the path */
    uint8_t ops[GW_PLAN_OPTION_OPS_MAX]; /* gw_plan_op */
} gw_plan_option;

/* Lower-case name of an operation; NULL for an unknown one. Static storage. */
GW_API const char *gw_plan_op_name(gw_plan_op op);

/* Filters of gw_plan_options_list(); zero lists all 4341. */
#define GW_PLAN_OPTIONS_GPU_ONLY     1u /* 174 */
#define GW_PLAN_OPTIONS_DENSE_ONLY   2u /* 9 */
#define GW_PLAN_OPTIONS_SCATTER_ONLY 4u /* without reduce and gather: 1188 */
#define GW_PLAN_OPTIONS_ONE_DEVICE   8u /* one device in the whole option: 339 */

/*
 * Lists the options of the decision tree, in the order of its grammar.
 *   - comp_max: largest number of compressions in a path; UINT32_MAX: no limit.
 *   - options: receives up to `capacity` options; may be NULL with capacity 0.
 *   - *count: always receives the full number.
 *   - Returns GW_ERR_DST if capacity is positive and too small; the options that fit are written.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_options_list(uint32_t filter, uint32_t comp_max,
                                                    gw_plan_option *options, uint32_t capacity,
                                                    uint32_t *count);

/* Where a stage runs. */
typedef enum gw_plan_resource {
    GW_PLAN_ON_GPU = 0,
    GW_PLAN_ON_CPU = 1,        /* before the first network step */
    GW_PLAN_ON_CPU_SUM = 2,    /* between network steps */
    GW_PLAN_ON_CPU_DECODE = 3, /* after the last one */
    GW_PLAN_ON_INTRA = 4,
    GW_PLAN_ON_INTER = 5,
    GW_PLAN_RESOURCE_COUNT = 6
} gw_plan_resource;

/* What a resource does. */
typedef enum gw_plan_span_kind {
    GW_PLAN_SPAN_BACKPROP = 0,
    GW_PLAN_SPAN_ENCODE = 1,
    GW_PLAN_SPAN_NETWORK = 2,
    GW_PLAN_SPAN_DECODE = 3,
    GW_PLAN_SPAN_SUM = 4, /* owner's step */
    GW_PLAN_SPAN_COPY = 5 /* between GPU and host */
} gw_plan_span_kind;

/* One step of a job. */
typedef struct gw_plan_stage {
    gw_plan_tick duration;
    uint8_t resource; /* gw_plan_resource */
    uint8_t queue;    /* for the pipelined level: 0 first intra step, or flat; 1 inter; 2 second intra step */
    uint8_t kind;     /* gw_plan_span_kind other than BACKPROP */
    uint8_t op;       /* gw_plan_op, GW_PLAN_OP_COUNT for copies and a fused group's stages */
} gw_plan_stage;

/* 12 operations of an option, copies for at most eight of them, and a copy of the result. */
#define GW_PLAN_STAGES_MAX 21u

/* One message: the backprop time before it, then its stages in order. */
typedef struct gw_plan_job {
    gw_plan_tick bwd;
    uint32_t stage_count;
    gw_plan_stage stages[GW_PLAN_STAGES_MAX];
} gw_plan_job;

/*
 * Stages and durations of `option` for a tensor of `len` elements; sets job->bwd to 0. The payload state,
 * from which the sizes follow, is the share of the tensor that a rank holds (split by scatter steps, restored
 * by gathers) and the number of contributions that are not yet summed (docs/planning.md).
 *   - Values are on the GPU at the start and at the end. What the CPU reads is copied to the host over
 *     cluster->host, and what the GPU reads is copied back; a network step takes from both and delivers to
 *     both. Copies of no duration are left out.
 *   - codec: may be NULL for an option without compression.
 *   - GW_ERR_TICKS: a number is out of its range, or a duration would be. GW_ERR_OPTION: a device without
 *     costs or a collective that the codec does not allow. GW_ERR_ARG: the operations of the option do not
 *     fit together (a decode or a collective of compressed payloads without a compression before it)
 */
GW_API GW_MUST_CHECK gw_status gw_plan_option_price(const gw_plan_option *option, const gw_plan_codec *codec,
                                                    const gw_plan_cluster *cluster, int64_t len,
                                                    gw_plan_job *job);

/* The times of a job that matter at the serial level. */
typedef struct gw_plan_vector {
    gw_plan_tick gpu; /* GPU time before the first network step */
    gw_plan_tick cpu; /* CPU time before the first network step */
    gw_plan_tick net; /* from the start of the first network step to the end of the last, with everything
                         between them */
    /* time after the last network step on the GPU, and on the CPU. One of the two must be 0 (else
     * GW_ERR_ARG) */
    gw_plan_tick tail;
    gw_plan_tick tail_cpu;
    uint32_t option; /* for the caller; not read */
} gw_plan_vector;

/* The vector of a job. Times saturate at INT64_MAX. All time after the last network step counts for the
 * device of the first stage that follows it. */
GW_API void gw_plan_job_vector(const gw_plan_job *job, gw_plan_vector *vector);

/*
 * Removes vectors that another one equals or beats in all five times; of equal ones the first stays. That
 * loses no optimum at the serial level, where a schedule never gets longer when a time gets shorter.
 *   - scratch: `count` entries.
 *   - Returns the number left, sorted by (gpu, cpu, net, tail, tail_cpu).
 */
GW_API uint32_t gw_plan_vectors_reduce(gw_plan_vector *vectors, uint32_t count, gw_plan_vector *scratch);

/* The problem of choosing an option for every tensor, where tensors are sent one by one, in order. Tensors of
 * equal size form a class. Tensor i, of class c = tensor_class[i], may use vectors[class_first[c]] to
 * vectors[class_first[c + 1] - 1]. */
typedef struct gw_plan_tree {
    const gw_plan_tick *bwd;      /* [tensor_count] */
    const uint32_t *tensor_class; /* [tensor_count] */
    uint32_t tensor_count;
    const gw_plan_vector *vectors;
    const uint32_t *class_first; /* [class_count + 1] */
    uint32_t class_count;
    gw_plan_decode decode;
} gw_plan_tree;

/* Recommended bytes of workspace for gw_plan_tree_solve(). */
GW_API size_t gw_plan_tree_workspace_size(const gw_plan_tree *tree);

/*
 * Chooses the best vector for each tensor at the serial level. Limits and certificate are as in
 * gw_plan_solve() with GW_PLAN_LABELS.
 *   - limits: NULL: none.
 *   - choice: [tensor_count] indices into the vectors of the tensor's class, from 0.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_tree_solve(const gw_plan_tree *tree, const gw_plan_limits *limits,
                                                  uint32_t *choice, gw_plan_cert *cert,
                                                  const gw_workspace *workspace);

/* Makespan of a choice at the serial level, computed from the definition. GW_ERR_PLAN: index out of range. */
GW_API GW_MUST_CHECK gw_status gw_plan_tree_eval(const gw_plan_tree *tree, const uint32_t *choice,
                                                 gw_plan_tick *makespan);

/* Finds the best choice by trying all of them. GW_ERR_LIMIT if there are more than 2^22. */
GW_API GW_MUST_CHECK gw_status gw_plan_tree_brute(const gw_plan_tree *tree, uint32_t *choice,
                                                  gw_plan_cert *cert);

/* What ByteComp's algorithms need besides the problem. */
typedef struct gw_plan_bytecomp_input {
    const uint32_t *start;    /* [tensor_count] the dense choice that Algorithm 1 begins with */
    const uint8_t *candidate; /* [vectors] nonzero: Algorithm 1 may use this vector; NULL: all */
    const uint32_t *cpu_of;   /* [vectors] the vector of the same class with every device replaced by the CPU,
                                 GW_PLAN_NO_INDEX: none; NULL skips Algorithm 2 */
} gw_plan_bytecomp_input;

/* Bytes of workspace for gw_plan_bytecomp(). */
GW_API size_t gw_plan_bytecomp_workspace_size(const gw_plan_tree *tree);

/*
 * ByteComp's algorithms, as a baseline. The paper's claims that they are optimal (Lemma 1, Theorem 1) do not
 * hold; see docs/planning.md, "The published algorithms".
 *   - Algorithm 1: greedy choice for the GPU. Of tensors of one size the latest in backprop comes first.
 *     Sweeps until nothing improves.
 *   - Algorithm 2: chooses which compressed tensors move to the CPU. Of tensors of equal size and option the
 *     earliest in backprop come first; all combinations of counts are tried. If these are more than 2^16,
 *     only counts that are powers of two are.
 *   - cert->lower_bound is the backprop time.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_bytecomp(const gw_plan_tree *tree, const gw_plan_bytecomp_input *input,
                                                uint32_t *choice, gw_plan_cert *cert,
                                                const gw_workspace *workspace);

/* --------------------------------------------------------------------------------------- timelines -- */

/* How finely a timeline models the machine. */
typedef enum gw_plan_level {
    GW_PLAN_LEVEL_SERIAL = 0,    /* one network, messages in order: what the solvers optimise */
    GW_PLAN_LEVEL_PIPELINED = 1, /* one in-order queue per network step, GPU and CPU */
    GW_PLAN_LEVEL_EVENT = 2      /* each resource serves what is ready first; stages preempt backprop */
} gw_plan_level;

/* One bar of a timeline: what a resource does from start to end. */
typedef struct gw_plan_span {
    gw_plan_tick start;
    gw_plan_tick end;
    uint32_t job;
    uint8_t resource; /* gw_plan_resource */
    uint8_t kind;     /* gw_plan_span_kind */
    uint8_t stage;    /* index in the job, 255 for backprop */
} gw_plan_span;

/* Makes one job per group of a plan (jobs_capacity >= group_count). Checks the plan against the problem. */
GW_API GW_MUST_CHECK gw_status gw_plan_jobs(const gw_plan_problem *problem, const gw_plan *plan,
                                            gw_plan_job *jobs, uint32_t jobs_capacity);

/* What a timeline runs, and how. */
typedef struct gw_plan_run {
    const gw_plan_job *jobs;
    uint32_t job_count;
    gw_plan_level level;
    gw_plan_decode decode;
    uint32_t flags; /* of gw_plan_cluster */
} gw_plan_run;

/* Where a timeline's spans go. The caller sets items and capacity, the call sets count. */
typedef struct gw_plan_spans {
    gw_plan_span *items; /* NULL: only count them */
    size_t capacity;
    size_t count;
} gw_plan_spans;

/* Upper bound of the number of spans of a timeline. */
GW_API size_t gw_plan_timeline_span_count_max(const gw_plan_job *jobs, uint32_t job_count);

/* Bytes of workspace for the event level; the other levels need none. */
GW_API size_t gw_plan_timeline_workspace_size(uint32_t job_count);

/*
 * Simulates jobs and computes the makespan: from the start of backprop to the end of the last span.
 *   - spans: in order of job and stage (event level: of start time); may be NULL.
 *   - workspace: may be NULL except at the event level.
 *   - Returns GW_ERR_DST if spans->capacity is too small; *makespan and spans->count, the number needed, are
 *     valid then, and the spans that fit are written.
 */
GW_API GW_MUST_CHECK gw_status gw_plan_timeline(const gw_plan_run *run, gw_plan_spans *spans,
                                                gw_plan_tick *makespan, const gw_workspace *workspace);

/* As gw_abi_version() and gw_abi_structs(), for the structs of this header. */
GW_API uint32_t gw_plan_abi_version(void);
GW_API const gw_abi_struct *gw_plan_abi_structs(size_t *count);

#ifdef __cplusplus
}
#endif

#endif /* GRADWIRE_PLAN_H */
