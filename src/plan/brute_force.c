/*
 * Every plan, one after the other, by the definition of the serial level: the referee of the solvers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

#define BRUTE_TENSORS_MAX 23u

/* Number of partitions times methods: M (M + 1)^(N - 1). */
static int small_enough(const gw_plan_problem *problem)
{
    uint64_t plans = problem->method_count;
    for (uint32_t i = 1; i < problem->tensor_count; i++) {
        plans *= (uint64_t)problem->method_count + 1;
        if (plans > GW_PLAN_BRUTE_MAX) {
            return 0;
        }
    }
    return problem->tensor_count <= BRUTE_TENSORS_MAX;
}

gw_plan_status gw_brute_fuse(const gw_plan_problem *problem, gw_plan *plan, gw_plan_cert *cert)
{
    if (!small_enough(problem)) {
        return GW_PLAN_ERR_LIMIT;
    }
    uint32_t n = problem->tensor_count;
    struct {
        gw_serial_clock clock; /* before this group */
        int64_t elems;         /* of the group as it stands */
        gw_plan_tick bwd;
        uint32_t first, end, method, forbidden;
    } stack[BRUTE_TENSORS_MAX + 1];
    gw_plan_group best_groups[BRUTE_TENSORS_MAX];
    uint32_t best_count = 0;
    gw_plan_tick best = INT64_MAX;
    uint64_t leaves = 0;
    uint32_t depth = 0;
    stack[0].clock = (gw_serial_clock){0, 0, 0, 0, 0, 0};
    stack[0].first = 0;
    stack[0].end = 1;
    stack[0].elems = problem->tensors[0].elems;
    stack[0].bwd = problem->tensors[0].bwd;
    stack[0].forbidden = problem->tensors[0].forbidden;
    stack[0].method = 0;
    for (;;) {
        if (stack[depth].method == problem->method_count) { /* this extent is exhausted: one tensor more */
            if (stack[depth].end == n) {
                if (depth == 0) {
                    break;
                }
                depth--;
                stack[depth].method++;
                continue;
            }
            const gw_plan_tensor *tensor = &problem->tensors[stack[depth].end++];
            stack[depth].elems += tensor->elems;
            stack[depth].bwd += tensor->bwd;
            stack[depth].forbidden |= tensor->forbidden;
            stack[depth].method = 0;
        }
        uint32_t m = stack[depth].method;
        if ((stack[depth].forbidden >> m & 1u) != 0 ||
            (problem->group_elems_max > 0 && stack[depth].elems > problem->group_elems_max)) {
            stack[depth].method++;
            continue;
        }
        gw_serial_clock clock = stack[depth].clock;
        gw_serial_group(&clock, &problem->methods[m], stack[depth].bwd, stack[depth].elems);
        uint32_t end = stack[depth].end;
        if (end == n) {
            leaves++;
            gw_plan_tick total = gw_serial_finish(&clock, problem->decode);
            if (total < best) {
                best = total;
                best_count = depth + 1;
                for (uint32_t j = 0; j <= depth; j++) {
                    best_groups[j].first = stack[j].first;
                    best_groups[j].tensor_count = stack[j].end - stack[j].first;
                    best_groups[j].method = stack[j].method;
                }
            }
            stack[depth].method++;
            continue;
        }
        depth++;
        stack[depth].clock = clock;
        stack[depth].first = end;
        stack[depth].end = end + 1;
        stack[depth].elems = problem->tensors[end].elems;
        stack[depth].bwd = problem->tensors[end].bwd;
        stack[depth].forbidden = problem->tensors[end].forbidden;
        stack[depth].method = 0;
    }
    if (best_count == 0) {
        return GW_PLAN_ERR_INFEASIBLE;
    }
    if (plan->capacity < best_count) {
        return GW_PLAN_ERR_CAPACITY;
    }
    for (uint32_t j = 0; j < best_count; j++) {
        plan->groups[j] = best_groups[j];
    }
    plan->group_count = best_count;
    cert->makespan = best;
    cert->lower_bound = best;
    cert->proven = 1;
    cert->labels = leaves;
    cert->rounds = 1;
    cert->stopped = 0;
    return GW_PLAN_OK;
}
