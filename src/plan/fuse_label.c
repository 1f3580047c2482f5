/*
 * Fused groups through the label engine: any curves, decode, methods, forbidden methods, memory cap.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "labels.h"

/* What the tensors from k on add to the error. 0 when the arena is too small. */
static int open_errors(const gw_plan_problem *problem, gw_arena *arena, gw_label_source *source)
{
    const uint32_t n = problem->tensor_count;
    source->error_least = NULL;
    source->error_most = NULL;
    if (problem->error_max == 0) {
        return 1;
    }
    int64_t *least = gw_arena_take(arena, (size_t)n + 1, sizeof *least);
    int64_t *most = gw_arena_take(arena, (size_t)n + 1, sizeof *most);
    if (least == NULL || most == NULL) {
        return 0;
    }
    int64_t largest = 0;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        largest = gw_tick_max(largest, problem->methods[m].error);
    }
    least[n] = 0;
    most[n] = 0;
    for (uint32_t k = n; k-- > 0;) {
        const int64_t elems = problem->tensors[k].elems;
        least[k] = least[k + 1] + (elems > 0 ? gw_plan_error_min(problem, k) : 0);
        most[k] = most[k + 1] + largest * elems;
    }
    source->error_least = least;
    source->error_most = most;
    return 1;
}

/* Prefix sums and flags of a problem; 0 when the arena is too small. */
static int open_source(const gw_plan_problem *problem, gw_arena *arena, gw_label_source *source)
{
    gw_plan_sums sums;
    if (!gw_plan_sums_make(problem, arena, &sums)) {
        return 0;
    }
    source->tensor_count = problem->tensor_count;
    source->bwd_sum = sums.bwd;
    source->elems_sum = sums.elems;
    source->decode = problem->decode;
    source->has_cpu = 0;
    source->has_tail = 0;
    source->has_tail_cpu = 0;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        const gw_plan_method *method = &problem->methods[m];
        const int on_cpu = method->device == GW_PLAN_CPU;
        const int decodes = !gw_cost_is_zero(&method->dec) || !gw_cost_is_zero(&method->dec_more);
        const int copies = on_cpu && !gw_cost_is_zero(&method->host);
        source->has_cpu |= copies || (on_cpu && !gw_cost_is_zero(&method->enc));
        source->has_tail |= !on_cpu && decodes;
        source->has_tail_cpu |= copies || (on_cpu && decodes);
    }
    source->vector_count_max = problem->method_count;
    source->problem = problem;
    source->tree = NULL;
    return open_errors(problem, arena, source);
}

gw_plan_tick gw_label_root_bound(const gw_plan_problem *problem, gw_plan_tick ub, gw_arena *arena)
{
    gw_label_source source;
    return open_source(problem, arena, &source) ? gw_label_bound(&source, ub, arena) : 0;
}

/* Bucket plans of a few sizes give a first plan, so that bounds can prune from the start. */
static gw_plan_tick first_plan(const gw_plan_problem *problem, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    gw_plan_bucket_rule best_rule = {0, 0, 0, 0};
    for (uint32_t m = 0; m < problem->method_count; m++) {
        for (int64_t mib = 0; mib <= 64; mib = mib == 0 ? 1 : 2 * mib) {
            gw_plan_tick makespan;
            int64_t cap = mib << 18; /* float32 elements per MiB */
            const gw_plan_bucket_rule rule = {m, cap, cap, problem->group_elems_max > 0};
            if (problem->group_elems_max > 0 && cap > problem->group_elems_max) {
                break;
            }
            if (gw_bucket_fill(problem, &rule, plan) == GW_OK &&
                gw_plan_eval(problem, plan, &makespan) == GW_OK && makespan < best) {
                best = makespan;
                best_rule = rule;
            }
        }
    }
    if (best < INT64_MAX) {
        (void)gw_bucket_fill(problem, &best_rule, plan);
    }
    return best;
}

gw_status gw_label_fuse(const gw_plan_problem *problem, const gw_plan_limits *limits, gw_plan *plan,
                        gw_plan_cert *cert, gw_arena *arena)
{
    uint32_t n = problem->tensor_count;
    gw_label_source source;
    gw_label_path path = {gw_arena_take(arena, n, sizeof(gw_label_step)), 0};
    if (path.steps == NULL || !open_source(problem, arena, &source)) {
        return GW_ERR_WORKSPACE;
    }
    if (plan->capacity < n) {
        return GW_ERR_DST;
    }
    cert->makespan = first_plan(problem, plan);
    gw_status status = gw_label_search(&source, limits, &path, cert, arena);
    if (status != GW_OK || path.count == 0) {
        return status; /* the first plan is the best */
    }
    plan->group_count = 0;
    for (uint32_t j = path.count; j-- > 0;) {
        const gw_label_step *step = &path.steps[j];
        (void)gw_plan_append(plan, step->first, step->first + step->tensor_count, step->option);
    }
    return GW_OK;
}
