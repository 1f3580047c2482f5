/*
 * What the label engine searches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LABEL_SOURCE_H
#define GW_LABEL_SOURCE_H

#include "plan_solvers.h"

/*
 * What the engine searches: paths 0 = k_0 < k_1 < ... = tensor_count, where a step from i to k sends tensors
 * i .. k-1 as one message with one of the vectors of gw_label_vectors().
 */
typedef struct gw_label_source {
    uint32_t tensor_count;
    const gw_plan_tick *bwd_sum; /* [tensor_count + 1] */
    gw_plan_decode decode;
    int has_cpu;               /* some vector has cpu > 0 */
    int has_tail;              /* some vector has tail > 0 */
    int has_tail_cpu;          /* some vector has tail_cpu > 0 */
    uint32_t vector_count_max; /* most vectors a step can have */
    /* fused groups (tree == NULL) */
    const gw_plan_problem *problem;
    uint32_t masked;        /* bit m set: method m is not used */
    const int64_t *len_sum; /* [tensor_count + 1] */
    /* [tensor_count + 1] least and largest error of the tensors from k on; NULL: no bound of errors */
    const int64_t *error_least;
    const int64_t *error_most;
    /* Prices of an error of 2^GW_RATE_SHIFT in ticks; 0: none. Messages pay the first on the network; the
     * second is for bounds alone */
    int64_t net_rate;
    int64_t bound_rate;
    /* option tree: every step is one tensor */
    const gw_plan_tree *tree;
} gw_label_source;

#define GW_RATE_SHIFT 24

/* Price of a message's error, capped so that sums fit. */
gw_plan_tick gw_label_penalty(const gw_label_source *source, int64_t rate, uint32_t method, int64_t len);

/* Whether a step first..end-1 is allowed, which has grown by a tensor; adds to the union of forbidden
 * methods. */
static inline int gw_label_allows(const gw_label_source *source, uint32_t first, uint32_t end,
                                  uint32_t tensor, uint32_t *forbidden)
{
    if (source->tree != NULL) {
        return first + 1 == end;
    }
    *forbidden |= source->problem->tensors[tensor].forbidden;
    int64_t cap = source->problem->group_len_max;
    return cap == 0 || source->len_sum[end] - source->len_sum[first] <= cap;
}

/* Vectors of the step first..end-1; forbidden is the union over its tensors. */
uint32_t gw_label_vectors(const gw_label_source *source, uint32_t first, uint32_t end, uint32_t forbidden,
                          gw_plan_vector *scratch, const gw_plan_vector **vectors);

#endif
