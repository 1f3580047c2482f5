/*
 * Rules that frameworks use today: buckets, even splits, sweeps. They fill a plan; gw_plan_solve() evaluates.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

static int put_group(gw_plan *plan, uint32_t first, uint32_t end, uint32_t method)
{
    if (plan->group_count == plan->capacity) {
        return 0;
    }
    plan->groups[plan->group_count].first = first;
    plan->groups[plan->group_count].tensor_count = end - first;
    plan->groups[plan->group_count].method = method;
    plan->group_count++;
    return 1;
}

gw_plan_status gw_plan_bucket(const gw_plan_problem *problem, uint32_t method, int64_t first_cap_elems,
                              int64_t cap_elems, int fill, gw_plan *plan)
{
    if (plan == NULL || plan->groups == NULL || first_cap_elems < 0 || cap_elems < 0) {
        return GW_PLAN_ERR_ARG;
    }
    gw_plan_status status = gw_problem_check_numbers(problem, NULL);
    if (status != GW_PLAN_OK) {
        return status;
    }
    return method < problem->method_count
               ? gw_bucket_fill(problem, method, first_cap_elems, cap_elems, fill, plan)
               : GW_PLAN_ERR_ARG;
}

gw_plan_status gw_bucket_fill(const gw_plan_problem *problem, uint32_t method, int64_t first_cap_elems,
                              int64_t cap_elems, int fill, gw_plan *plan)
{
    plan->group_count = 0;
    int64_t cap = first_cap_elems;
    int64_t held = 0;
    uint32_t first = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        int64_t elems = problem->tensors[i].elems;
        if (fill && i > first && held + elems > cap) {
            if (!put_group(plan, first, i, method)) {
                return GW_PLAN_ERR_CAPACITY;
            }
            first = i;
            held = 0;
            cap = cap_elems;
        }
        held += elems;
        if (!fill && held >= cap) {
            if (!put_group(plan, first, i + 1, method)) {
                return GW_PLAN_ERR_CAPACITY;
            }
            first = i + 1;
            held = 0;
            cap = cap_elems;
        }
    }
    if (first < problem->tensor_count && !put_group(plan, first, problem->tensor_count, method)) {
        return GW_PLAN_ERR_CAPACITY;
    }
    return GW_PLAN_OK;
}

/* Cuts after the tensors where the running sum of elements passes j / group_count of the total. */
gw_plan_status gw_even_split(const gw_plan_problem *problem, uint32_t method, uint32_t group_count,
                             gw_plan *plan)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        total += problem->tensors[i].elems;
    }
    plan->group_count = 0;
    int64_t held = 0;
    int64_t share = total / (int64_t)group_count;
    uint32_t first = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        held += problem->tensors[i].elems;
        if (i + 1 == problem->tensor_count || held >= share * ((int64_t)plan->group_count + 1)) {
            if (!put_group(plan, first, i + 1, method)) {
                return GW_PLAN_ERR_CAPACITY;
            }
            first = i + 1;
        }
    }
    return GW_PLAN_OK;
}

gw_plan_status gw_baseline_best_even(const gw_plan_problem *problem, uint32_t method, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    uint32_t best_count = 0;
    for (uint32_t count = 2; count <= 32; count++) {
        gw_plan_tick makespan;
        if (gw_even_split(problem, method, count, plan) == GW_PLAN_OK &&
            gw_plan_eval(problem, plan, &makespan) == GW_PLAN_OK && makespan < best) {
            best = makespan;
            best_count = count;
        }
    }
    return best_count == 0 ? GW_PLAN_ERR_INFEASIBLE : gw_even_split(problem, method, best_count, plan);
}

gw_plan_status gw_baseline_bucket_sweep(const gw_plan_problem *problem, uint32_t method, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    int64_t best_cap = 0;
    for (int64_t mib = 1; mib <= 64; mib++) {
        gw_plan_tick makespan;
        if (gw_bucket_fill(problem, method, mib << 18, mib << 18, 0, plan) == GW_PLAN_OK &&
            gw_plan_eval(problem, plan, &makespan) == GW_PLAN_OK && makespan < best) {
            best = makespan;
            best_cap = mib << 18;
        }
    }
    return best_cap == 0 ? GW_PLAN_ERR_INFEASIBLE
                         : gw_bucket_fill(problem, method, best_cap, best_cap, 0, plan);
}
