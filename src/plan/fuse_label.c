/*
 * Fused groups through the label engine: any curves, decode, methods, forbidden methods, memory cap.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "labels.h"

/* Prefix sums and flags of a problem; 0 when the arena is too small. */
static int open_source(const gw_plan_problem *problem, gw_arena *arena, gw_label_source *source)
{
    uint32_t n = problem->tensor_count;
    gw_plan_tick *bwd_sum = gw_arena_take(arena, (size_t)n + 1, sizeof(gw_plan_tick));
    int64_t *elems_sum = gw_arena_take(arena, (size_t)n + 1, sizeof(int64_t));
    if (bwd_sum == NULL || elems_sum == NULL) {
        return 0;
    }
    bwd_sum[0] = 0;
    elems_sum[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        bwd_sum[i + 1] = bwd_sum[i] + problem->tensors[i].bwd;
        elems_sum[i + 1] = elems_sum[i] + problem->tensors[i].elems;
    }
    source->tensor_count = n;
    source->bwd_sum = bwd_sum;
    source->elems_sum = elems_sum;
    source->decode = problem->decode;
    source->has_cpu = 0;
    source->has_tail = 0;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        const gw_plan_method *method = &problem->methods[m];
        source->has_cpu |= method->enc_device == GW_PLAN_CPU && !gw_cost_is_zero(&method->enc);
        source->has_tail |= !gw_cost_is_zero(&method->dec);
    }
    source->vector_count_max = problem->method_count;
    source->problem = problem;
    source->tree = NULL;
    return 1;
}

gw_plan_tick gw_label_root_bound(const gw_plan_problem *problem, gw_plan_tick ub, gw_arena *arena)
{
    gw_label_source source;
    return open_source(problem, arena, &source) ? gw_label_bound(&source, ub, arena) : 0;
}

/* Bucket plans of a few sizes give a first incumbent, so that bounds can prune from the start. */
static gw_plan_tick first_incumbent(const gw_plan_problem *problem, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    uint32_t best_method = 0;
    int64_t best_cap = 0;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        for (int64_t mib = 0; mib <= 64; mib = mib == 0 ? 1 : 2 * mib) {
            gw_plan_tick makespan;
            int64_t cap = mib << 18; /* float32 elements a MiB */
            if (problem->group_elems_max > 0 && cap > problem->group_elems_max) {
                break;
            }
            if (gw_bucket_fill(problem, m, cap, cap, problem->group_elems_max > 0, plan) == GW_PLAN_OK &&
                gw_plan_eval(problem, plan, &makespan) == GW_PLAN_OK && makespan < best) {
                best = makespan;
                best_method = m;
                best_cap = cap;
            }
        }
    }
    if (best < INT64_MAX) {
        (void)gw_bucket_fill(problem, best_method, best_cap, best_cap, problem->group_elems_max > 0, plan);
    }
    return best;
}

gw_plan_status gw_label_fuse(const gw_plan_problem *problem, const gw_plan_limits *limits, gw_arena *arena,
                             gw_plan *plan, gw_plan_cert *cert)
{
    uint32_t n = problem->tensor_count;
    gw_label_source source;
    gw_label_step *steps = gw_arena_take(arena, n, sizeof(gw_label_step));
    if (steps == NULL || !open_source(problem, arena, &source)) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    if (plan->capacity < n) {
        return GW_PLAN_ERR_CAPACITY;
    }
    gw_plan_tick incumbent = first_incumbent(problem, plan);
    uint32_t step_count;
    gw_plan_status status = gw_label_search(&source, limits, incumbent, arena, steps, &step_count, cert);
    if (status != GW_PLAN_OK) {
        return status;
    }
    for (uint32_t j = 0; j < step_count; j++) {
        const gw_label_step *step = &steps[step_count - 1 - j];
        plan->groups[j].first = step->first;
        plan->groups[j].tensor_count = step->tensor_count;
        plan->groups[j].method = step->option;
    }
    if (step_count > 0) {
        plan->group_count = step_count;
    }
    return GW_PLAN_OK;
}
