/*
 * The solvers that gw_plan_solve() calls. The problem has been checked; plan->groups is not NULL. A solver
 * fills the plan and, unless stated otherwise, all of cert.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_SOLVERS_H
#define GW_PLAN_SOLVERS_H

#include "plan_arena.h"
#include "serial_clock.h"

#define GW_PLAN_BRUTE_MAX (UINT64_C(1) << 22)

/* Everything gw_plan_problem_check() does but the comparison of names. */
gw_status gw_problem_check_numbers(const gw_plan_problem *problem, gw_plan_fault *fault);

/* The least error that a tensor can have; its len is not 0. */
int64_t gw_plan_error_min(const gw_plan_problem *problem, uint32_t tensor);

/* Prefix sums over the tensors of a problem. */
typedef struct gw_plan_sums {
    int64_t *len;      /* [tensor_count + 1] */
    gw_plan_tick *bwd; /* [tensor_count + 1] */
} gw_plan_sums;

/* 0 when the arena is too small. */
int gw_plan_sums_make(const gw_plan_problem *problem, gw_arena *arena, gw_plan_sums *sums);

/* Appends the group first..end-1; 0 when the plan is full. */
int gw_plan_append(gw_plan *plan, uint32_t first, uint32_t end, uint32_t method);

/* Time and work spent so far. */
typedef struct gw_clock_guard {
    const gw_plan_limits *limits;
    int64_t start;
    uint64_t work;
} gw_clock_guard;

/* limits are not NULL. */
static inline gw_clock_guard gw_guard_open(const gw_plan_limits *limits)
{
    return (gw_clock_guard){limits, limits->clock != NULL ? limits->clock(limits->clock_context) : 0, 0};
}

static inline int gw_out_of_time(const gw_clock_guard *guard)
{
    const gw_plan_limits *limits = guard->limits;
    return (limits->work_max != 0 && guard->work > limits->work_max) ||
           (limits->clock != NULL && limits->clock_max > 0 &&
            limits->clock(limits->clock_context) - guard->start > limits->clock_max);
}

int gw_fuse_affine_applies(const gw_plan_problem *problem, int net_may_bend);
size_t gw_fuse_affine_workspace(uint32_t tensor_count);
gw_status gw_fuse_affine(const gw_plan_problem *problem, int quadratic, gw_plan *plan, gw_plan_cert *cert,
                         gw_arena *arena);

size_t gw_label_workspace(uint32_t tensor_count, uint32_t vector_count_max);
gw_status gw_label_fuse(const gw_plan_problem *problem, const gw_plan_limits *limits, gw_plan *plan,
                        gw_plan_cert *cert, gw_arena *arena);
/* Lower bound of the optimum from the relaxations alone; 0 when the arena is too small. */
gw_plan_tick gw_label_root_bound(const gw_plan_problem *problem, gw_plan_tick ub, gw_arena *arena);

/* Gives groups of a plan with that makespan methods of less codec work where it does not grow; the makespan
 * then. An arena that is too small changes nothing. Takes the arena from its beginning. */
gw_plan_tick gw_plan_reduce_work(const gw_plan_problem *problem, gw_plan *plan, gw_plan_tick makespan,
                                 gw_arena *arena);

gw_status gw_brute_fuse(const gw_plan_problem *problem, gw_plan *plan, gw_plan_cert *cert);

/* Fills buckets by the rule (gw_plan_bucket()), without checks. */
gw_status gw_bucket_fill(const gw_plan_problem *problem, const gw_plan_bucket_rule *rule, gw_plan *plan);

#endif
