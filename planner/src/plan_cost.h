/*
 * Unchecked evaluation of cost curves.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_COST_H
#define GW_PLAN_COST_H

#include "gradwire/plan.h"

static inline gw_plan_tick gw_tick_max(gw_plan_tick a, gw_plan_tick b)
{
    return a > b ? a : b;
}
static inline gw_plan_tick gw_tick_min(gw_plan_tick a, gw_plan_tick b)
{
    return a < b ? a : b;
}

/* Slow path of gw_cost_at(): the table. */
gw_plan_tick gw_cost_table_at(const gw_plan_cost *cost, int64_t len);

/* Curve value without overflow checks: gw_plan_problem_check() has bounded a + b * (sum of all elements). */
static inline gw_plan_tick gw_cost_at(const gw_plan_cost *cost, int64_t len)
{
    switch (cost->kind) {
    case GW_PLAN_COST_AFFINE:
        return cost->a + cost->b * len;
    case GW_PLAN_COST_MAXLIN:
        return gw_tick_max(cost->a, cost->b * len);
    case GW_PLAN_COST_HINGE:
        return cost->a + (len > cost->t ? cost->b * (len - cost->t) : 0);
    case GW_PLAN_COST_TABLE:
    default:
        return gw_cost_table_at(cost, len);
    }
}

/* 1 when the curve is 0 everywhere. */
int gw_cost_is_zero(const gw_plan_cost *cost);

/* Stores place and reason of a failure (fault may be NULL) and returns status. */
static inline gw_status gw_plan_fail(gw_plan_fault *fault, gw_status status, const char *what, uint32_t index)
{
    if (fault != NULL) {
        fault->what = what;
        fault->index = index;
    }
    return status;
}

#endif
