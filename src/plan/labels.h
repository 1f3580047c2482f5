/*
 * The label engine: one search for fused groups and for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LABELS_H
#define GW_LABELS_H

#include "plan_internal.h"

/*
 * What the engine searches: paths 0 = k_0 < k_1 < ... = tensor_count, where a step from i to k sends tensors
 * i .. k-1 as one message with one of the vectors that list() names. Tensor sums are prefix sums.
 */
typedef struct gw_label_source {
    uint32_t tensor_count;
    const gw_plan_tick *bwd_sum; /* [tensor_count + 1] */
    gw_plan_decode decode;
    int has_cpu;               /* some vector has cpu > 0 */
    int has_tail;              /* some vector has tail > 0 */
    uint32_t vector_count_max; /* most vectors a step can have */
    /* fused groups (tree == NULL) */
    const gw_plan_problem *problem;
    const int64_t *elems_sum; /* [tensor_count + 1] */
    /* option tree: every step is one tensor */
    const gw_plan_tree *tree;
} gw_label_source;

/* One step of the best path, written from the last to the first. */
typedef struct gw_label_step {
    uint32_t first;
    uint32_t tensor_count;
    uint32_t option; /* method, or place of the vector in its class */
} gw_label_step;

/*
 * Improves on *ub (the makespan of a plan that the caller holds, or INT64_MAX). steps has room for
 * tensor_count entries; *step_count stays 0 when nothing better than the caller's plan was found. cert
 * receives the best makespan and the bound.
 */
gw_plan_status gw_label_search(const gw_label_source *source, const gw_plan_limits *limits, gw_plan_tick ub,
                               gw_arena *arena, gw_label_step *steps, uint32_t *step_count,
                               gw_plan_cert *cert);

/* The smaller of ub and the bound of the empty schedule. 0 when the arena is too small. */
gw_plan_tick gw_label_bound(const gw_label_source *source, gw_plan_tick ub, gw_arena *arena);

#endif
