/*
 * A caller's first program with the planner: two tensors, and whether to send them as one message.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/plan.h"

#include <stdio.h>

int main(void)
{
    static int64_t memory[1 << 16];
    const gw_plan_tensor tensors[2] = {{"a", 1000, 10, 0}, {"b", 1000, 10, 0}};
    const gw_plan_method method = {.name = "fp32", .net = {.kind = GW_PLAN_COST_AFFINE, .a = 100, .b = 1}};
    const gw_plan_problem problem = {
        .tensors = tensors, .tensor_count = 2, .methods = &method, .method_count = 1};
    const gw_workspace workspace = {memory, sizeof memory};
    gw_plan_group groups[2];
    gw_plan plan = {groups, 2, 0};
    gw_plan_cert cert;
    const gw_status status = gw_plan_solve(&problem, NULL, &plan, &cert, &workspace);
    if (status != GW_OK || plan.group_count != 1 || !cert.proven) {
        fprintf(stderr, "consumer: plan: %s, %u groups\n", gw_status_message(status), plan.group_count);
        return 1;
    }
    printf("%u group, %lld ticks\n", plan.group_count, (long long)cert.makespan);
    return 0;
}
