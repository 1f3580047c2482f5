/*
 * The best of some even splits, and of some bucket sizes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "baselines.h"

/* Cuts after the tensors where the running sum of elements passes j / group_count of the total. */
static gw_status even_split(const gw_plan_problem *problem, uint32_t method, uint32_t group_count,
                            gw_plan *plan)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        total += problem->tensors[i].len;
    }
    plan->group_count = 0;
    int64_t held = 0;
    int64_t share = total / (int64_t)group_count;
    uint32_t first = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        held += problem->tensors[i].len;
        if (i + 1 == problem->tensor_count || held >= share * ((int64_t)plan->group_count + 1)) {
            if (!gw_plan_append(plan, first, i + 1, method)) {
                return GW_ERR_DST;
            }
            first = i + 1;
        }
    }
    return GW_OK;
}

gw_status gw_baseline_best_even(const gw_plan_problem *problem, uint32_t method, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    uint32_t best_count = 0;
    for (uint32_t count = 2; count <= 32; count++) {
        gw_plan_tick makespan;
        if (even_split(problem, method, count, plan) == GW_OK &&
            gw_plan_eval(problem, plan, &makespan) == GW_OK && makespan < best) {
            best = makespan;
            best_count = count;
        }
    }
    return best_count == 0 ? GW_ERR_INFEASIBLE : even_split(problem, method, best_count, plan);
}

gw_status gw_baseline_bucket_sweep(const gw_plan_problem *problem, uint32_t method, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    gw_plan_bucket_rule best_rule = {method, 0, 0, 0};
    for (int64_t mib = 1; mib <= 64; mib++) {
        const gw_plan_bucket_rule rule = {method, mib << 18, mib << 18, 0};
        gw_plan_tick makespan;
        if (gw_bucket_fill(problem, &rule, plan) == GW_OK &&
            gw_plan_eval(problem, plan, &makespan) == GW_OK && makespan < best) {
            best = makespan;
            best_rule = rule;
        }
    }
    return best_rule.cap == 0 ? GW_ERR_INFEASIBLE : gw_bucket_fill(problem, &best_rule, plan);
}
