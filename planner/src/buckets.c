/*
 * Buckets: groups that close once they hold so many elements.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"

gw_status gw_plan_bucket(const gw_plan_problem *problem, const gw_plan_bucket_rule *rule, gw_plan *plan)
{
    if (plan == NULL || plan->groups == NULL || rule == NULL || rule->cap_first < 0 || rule->cap < 0) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_problem_check_numbers(problem, NULL);
    if (status != GW_OK) {
        return status;
    }
    return rule->method < problem->method_count ? gw_bucket_fill(problem, rule, plan) : GW_ERR_ARG;
}

gw_status gw_bucket_fill(const gw_plan_problem *problem, const gw_plan_bucket_rule *rule, gw_plan *plan)
{
    plan->group_count = 0;
    int64_t cap = rule->cap_first;
    int64_t held = 0;
    uint32_t first = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        int64_t len = problem->tensors[i].len;
        if (rule->fill && i > first && held + len > cap) {
            if (!gw_plan_append(plan, first, i, rule->method)) {
                return GW_ERR_DST;
            }
            first = i;
            held = 0;
            cap = rule->cap;
        }
        held += len;
        if (!rule->fill && held >= cap) {
            if (!gw_plan_append(plan, first, i + 1, rule->method)) {
                return GW_ERR_DST;
            }
            first = i + 1;
            held = 0;
            cap = rule->cap;
        }
    }
    if (first < problem->tensor_count && !gw_plan_append(plan, first, problem->tensor_count, rule->method)) {
        return GW_ERR_DST;
    }
    return GW_OK;
}
