/*
 * Every fusion plan, by the definition of the serial level: the reference that the solvers are tested
 * against.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"

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

/* The last group of a partial plan. */
typedef struct brute_group {
    gw_serial_clock clock; /* before this group */
    int64_t len;           /* of tensors first..end-1 */
    gw_plan_tick bwd;
    int64_t error; /* of the groups before */
    uint32_t first, end, method, forbidden;
} brute_group;

static void add_tensor(brute_group *group, const gw_plan_tensor *tensor)
{
    group->end++;
    group->len += tensor->len;
    group->bwd += tensor->bwd;
    group->forbidden |= tensor->forbidden;
    group->method = 0;
}

static brute_group open_group(const gw_plan_problem *problem, uint32_t first, const gw_serial_clock *clock,
                              int64_t error)
{
    brute_group group = {*clock, 0, 0, error, first, first, 0, 0};
    add_tensor(&group, &problem->tensors[first]);
    return group;
}

/* Error of the groups up to this one. */
static int64_t error_after(const gw_plan_problem *problem, const brute_group *group)
{
    return group->error + problem->methods[group->method].error * group->len;
}

static int group_allowed(const gw_plan_problem *problem, const brute_group *group)
{
    return (group->forbidden >> group->method & 1u) == 0 &&
           (problem->group_len_max == 0 || group->len <= problem->group_len_max) &&
           (problem->error_max == 0 || error_after(problem, group) <= problem->error_max);
}

/* Depth-first over groups; a group's methods, then its extent. Returns the number of groups, 0: no plan. */
static uint32_t search(const gw_plan_problem *problem, gw_plan_group *best_groups, gw_plan_cert *cert)
{
    brute_group stack[BRUTE_TENSORS_MAX + 1];
    const gw_serial_clock zero = GW_SERIAL_CLOCK_ZERO;
    uint32_t n = problem->tensor_count;
    uint32_t best_count = 0;
    uint32_t depth = 0;
    cert->makespan = INT64_MAX;
    cert->labels = 0;
    stack[0] = open_group(problem, 0, &zero, 0);
    for (;;) {
        brute_group *top = &stack[depth];
        if (top->method == problem->method_count && top->end == n) {
            if (depth == 0) {
                return best_count;
            }
            stack[--depth].method++;
            continue;
        }
        if (top->method == problem->method_count) { /* all methods tried: one tensor more */
            add_tensor(top, &problem->tensors[top->end]);
        }
        if (!group_allowed(problem, top)) {
            top->method++;
            continue;
        }
        gw_serial_clock clock = top->clock;
        gw_serial_group(&clock, &problem->methods[top->method], top->bwd, top->len);
        if (top->end < n) {
            stack[++depth] = open_group(problem, top->end, &clock, error_after(problem, top));
            continue;
        }
        cert->labels++;
        gw_plan_tick total = gw_serial_finish(&clock, problem->decode);
        if (total < cert->makespan) {
            cert->makespan = total;
            best_count = depth + 1;
            for (uint32_t j = 0; j <= depth; j++) {
                best_groups[j] =
                    (gw_plan_group){stack[j].first, stack[j].end - stack[j].first, stack[j].method};
            }
        }
        top->method++;
    }
}

gw_status gw_brute_fuse(const gw_plan_problem *problem, gw_plan *plan, gw_plan_cert *cert)
{
    gw_plan_group groups[BRUTE_TENSORS_MAX];
    if (!small_enough(problem)) {
        return GW_ERR_LIMIT;
    }
    uint32_t count = search(problem, groups, cert);
    if (count == 0) {
        return GW_ERR_INFEASIBLE;
    }
    if (plan->capacity < count) {
        return GW_ERR_DST;
    }
    for (uint32_t j = 0; j < count; j++) {
        plan->groups[j] = groups[j];
    }
    plan->group_count = count;
    cert->lower_bound = cert->makespan;
    cert->proven = 1;
    cert->rounds = 1;
    cert->stopped = 0;
    return GW_OK;
}
