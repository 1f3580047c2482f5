/*
 * Merged-gradient wait-free backpropagation (MG-WFBP, INFOCOM 2019), one greedy pass: a tensor joins the open
 * group when the merged message starts before the group's own would have paid its startup time, because then
 * merging saves more startup than it delays. Startup of the encoder counts as well; without an encoder this
 * is the published rule.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "baselines.h"

gw_status gw_mgwfbp(const gw_plan_problem *problem, uint32_t method_index, gw_plan *plan)
{
    const gw_plan_method *method = &problem->methods[method_index];
    gw_plan_vector own, both;
    gw_method_vector(method, 0, &own);
    const gw_plan_tick startup = own.net + own.gpu + own.cpu;
    gw_serial_clock clock = GW_SERIAL_CLOCK_ZERO;
    uint32_t first = 0;
    int64_t len = 0;
    gw_plan_tick bwd = 0;
    plan->group_count = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        len += problem->tensors[i].len;
        bwd += problem->tensors[i].bwd;
        gw_serial_clock closed = clock;
        gw_serial_group(&closed, method, bwd, len);
        if (i + 1 < problem->tensor_count) {
            const gw_plan_tensor *joining = &problem->tensors[i + 1];
            gw_serial_clock merged = clock;
            gw_serial_group(&merged, method, bwd + joining->bwd, len + joining->len);
            gw_method_vector(method, len, &own);
            gw_method_vector(method, len + joining->len, &both);
            if (merged.c - both.net < closed.c - own.net + startup) {
                continue;
            }
        }
        if (!gw_plan_append(plan, first, i + 1, method_index)) {
            return GW_ERR_DST;
        }
        clock = closed;
        first = i + 1;
        len = 0;
        bwd = 0;
    }
    return GW_OK;
}
