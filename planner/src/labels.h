/*
 * The label engine: one search for fused groups and for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LABELS_H
#define GW_LABELS_H

#include "label_bounds.h"

typedef struct gw_label_step {
    uint32_t first;
    uint32_t tensor_count;
    uint32_t option; /* method, or index of the vector in its class */
} gw_label_step;

/* A path, from the last step to the first. */
typedef struct gw_label_path {
    gw_label_step *steps; /* room for tensor_count */
    uint32_t count;       /* 0: nothing better than the caller's plan was found */
} gw_label_path;

/*
 * Looks for a plan shorter than the one that the caller has. cert->makespan: the makespan of that plan, or
 * INT64_MAX; receives the best, like the other fields of cert. limits may be NULL.
 */
gw_status gw_label_search(const gw_label_source *source, const gw_plan_limits *limits, gw_label_path *path,
                          gw_plan_cert *cert, gw_arena *arena);

/* The smaller of ub and the bound of the empty schedule with the source's bound_rate. 0 when the arena is too
 * small, or the guard (NULL: none) stopped it. */
gw_plan_tick gw_label_bound(const gw_label_source *source, gw_plan_tick ub, gw_clock_guard *guard,
                            gw_arena *arena);

#endif
