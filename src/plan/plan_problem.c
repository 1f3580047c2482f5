/*
 * Checks of a whole problem: after them no sum in any solver can overflow.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

static gw_plan_status fail(gw_plan_fault *fault, gw_plan_status status, const char *what, uint32_t index)
{
    if (fault != NULL) {
        fault->what = what;
        fault->index = index;
    }
    return status;
}

/* A line intercept + slope * x above the curve for all x >= 0. */
static void upper_line(const gw_plan_cost *cost, gw_plan_tick *intercept, gw_plan_tick *slope)
{
    if (cost->kind != GW_PLAN_COST_TABLE) {
        *intercept = cost->a;
        *slope = cost->b;
        return;
    }
    *intercept = cost->table_y[0];
    *slope = 0;
    for (uint32_t i = 1; i < cost->table_len; i++) {
        int64_t width = cost->table_x[i] - cost->table_x[i - 1];
        int64_t rise = cost->table_y[i] - cost->table_y[i - 1];
        *slope = gw_tick_max(*slope, rise / width + (rise % width != 0));
    }
}

gw_plan_status gw_problem_check_numbers(const gw_plan_problem *problem, gw_plan_fault *fault)
{
    if (problem == NULL || (problem->tensor_count > 0 && problem->tensors == NULL) ||
        (problem->method_count > 0 && problem->methods == NULL)) {
        return fail(fault, GW_PLAN_ERR_ARG, "problem, tensors or methods are NULL", 0);
    }
    if (problem->tensor_count == 0) {
        return fail(fault, GW_PLAN_ERR_EMPTY, "the model has no tensors", 0);
    }
    if (problem->method_count == 0) {
        return fail(fault, GW_PLAN_ERR_EMPTY, "no method to send with", 0);
    }
    if (problem->tensor_count > GW_PLAN_TENSORS_MAX || problem->method_count > GW_PLAN_METHODS_MAX) {
        return fail(fault, GW_PLAN_ERR_COUNT, "too many tensors or methods", problem->tensor_count);
    }
    if (problem->decode != GW_PLAN_DECODE_SERIAL && problem->decode != GW_PLAN_DECODE_PARALLEL) {
        return fail(fault, GW_PLAN_ERR_ARG, "unknown decode rule", 0);
    }
    if (problem->group_elems_max < 0) {
        return fail(fault, GW_PLAN_ERR_NEGATIVE, "group_elems_max is negative", 0);
    }
    uint32_t all_methods =
        problem->method_count == 32 ? UINT32_MAX : (UINT32_C(1) << problem->method_count) - 1;
    int64_t elems = 0;
    gw_plan_tick total = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        const gw_plan_tensor *tensor = &problem->tensors[i];
        if (tensor->elems < 0) {
            return fail(fault, GW_PLAN_ERR_NEGATIVE, "tensor size is negative", i);
        }
        if (tensor->bwd < 0) {
            return fail(fault, GW_PLAN_ERR_NEGATIVE, "backprop time is negative", i);
        }
        if (tensor->elems > GW_PLAN_TICK_MAX - elems || tensor->bwd > GW_PLAN_TICK_MAX - total) {
            return fail(fault, GW_PLAN_ERR_OVERFLOW, "sum of sizes or backprop times is too large", i);
        }
        if (problem->group_elems_max > 0 && tensor->elems > problem->group_elems_max) {
            return fail(fault, GW_PLAN_ERR_INFEASIBLE, "tensor exceeds group_elems_max", i);
        }
        if ((~tensor->forbidden & all_methods) == 0) {
            return fail(fault, GW_PLAN_ERR_INFEASIBLE, "every method is forbidden for this tensor", i);
        }
        elems += tensor->elems;
        total += tensor->bwd;
    }
    /* Sum over any partition of enc + net + dec <= N * (largest intercepts) + elems * (largest slopes). */
    gw_plan_tick intercept_max[3] = {0, 0, 0};
    gw_plan_tick slope_max[3] = {0, 0, 0};
    for (uint32_t m = 0; m < problem->method_count; m++) {
        const gw_plan_method *method = &problem->methods[m];
        const gw_plan_cost *curves[3] = {&method->enc, &method->net, &method->dec};
        if (method->enc_device != GW_PLAN_GPU && method->enc_device != GW_PLAN_CPU) {
            return fail(fault, GW_PLAN_ERR_ARG, "method has an unknown device", m);
        }
        for (int part = 0; part < 3; part++) {
            gw_plan_fault inner = {"", 0};
            gw_plan_status status = gw_plan_cost_check(curves[part], &inner);
            if (status != GW_PLAN_OK) {
                return fail(fault, status, inner.what, m);
            }
            gw_plan_tick intercept, slope;
            upper_line(curves[part], &intercept, &slope);
            intercept_max[part] = gw_tick_max(intercept_max[part], intercept);
            slope_max[part] = gw_tick_max(slope_max[part], slope);
        }
    }
    for (int part = 0; part < 3; part++) {
        if (intercept_max[part] > (GW_PLAN_TICK_MAX - 1) / (gw_plan_tick)problem->tensor_count ||
            (elems > 0 && slope_max[part] > (GW_PLAN_TICK_MAX - 1) / elems)) {
            return fail(fault, GW_PLAN_ERR_OVERFLOW, "costs of the whole model are too large", 0);
        }
        gw_plan_tick sum =
            intercept_max[part] * (gw_plan_tick)problem->tensor_count + slope_max[part] * elems;
        if (sum > GW_PLAN_TICK_MAX - 1 - total || total > GW_PLAN_TICK_MAX - 1 - sum) {
            return fail(fault, GW_PLAN_ERR_OVERFLOW, "costs and backprop together are too large", 0);
        }
        total += sum;
    }
    return GW_PLAN_OK;
}

static int names_equal(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

gw_plan_status gw_plan_problem_check(const gw_plan_problem *problem, gw_plan_fault *fault)
{
    gw_plan_status status = gw_problem_check_numbers(problem, fault);
    if (status != GW_PLAN_OK) {
        return status;
    }
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        const char *name = problem->tensors[i].name;
        for (uint32_t j = 0; name != NULL && j < i; j++) {
            if (problem->tensors[j].name != NULL && names_equal(name, problem->tensors[j].name)) {
                return fail(fault, GW_PLAN_ERR_NAME, "tensor name occurs twice", i);
            }
        }
    }
    return GW_PLAN_OK;
}
