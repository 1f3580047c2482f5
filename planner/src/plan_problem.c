/*
 * Checks of a whole problem: after them no sum in any solver can overflow. Prefix sums and groups.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"

/* A line intercept + slope * x that is nowhere below the curve for x >= 0. */
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

static gw_status check_counts(const gw_plan_problem *problem, gw_plan_fault *fault)
{
    if (problem == NULL || (problem->tensor_count > 0 && problem->tensors == NULL) ||
        (problem->method_count > 0 && problem->methods == NULL)) {
        return gw_plan_fail(fault, GW_ERR_ARG, "problem, tensors or methods are NULL", GW_PLAN_NO_INDEX);
    }
    if (problem->tensor_count == 0) {
        return gw_plan_fail(fault, GW_ERR_EMPTY, "the model has no tensors", GW_PLAN_NO_INDEX);
    }
    if (problem->method_count == 0) {
        return gw_plan_fail(fault, GW_ERR_EMPTY, "no method to send with", GW_PLAN_NO_INDEX);
    }
    if (problem->tensor_count > GW_PLAN_TENSORS_MAX || problem->method_count > GW_PLAN_METHODS_MAX) {
        return gw_plan_fail(fault, GW_ERR_LIMIT, "too many tensors or methods", GW_PLAN_NO_INDEX);
    }
    if (problem->decode != GW_PLAN_DECODE_SERIAL && problem->decode != GW_PLAN_DECODE_PARALLEL) {
        return gw_plan_fail(fault, GW_ERR_ARG, "unknown decode rule", GW_PLAN_NO_INDEX);
    }
    if (problem->group_len_max < 0 || problem->error_max < 0) {
        return gw_plan_fail(fault, GW_ERR_NEGATIVE, "group_len_max or error_max is negative",
                            GW_PLAN_NO_INDEX);
    }
    return GW_OK;
}

/* Sums of sizes and backprop times through *len and *backprop. */
static gw_status check_tensors(const gw_plan_problem *problem, gw_plan_fault *fault, int64_t *len,
                               gw_plan_tick *backprop)
{
    uint32_t all_methods =
        problem->method_count == 32 ? UINT32_MAX : (UINT32_C(1) << problem->method_count) - 1;
    *len = 0;
    *backprop = 0;
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        const gw_plan_tensor *tensor = &problem->tensors[i];
        if (tensor->len < 0) {
            return gw_plan_fail(fault, GW_ERR_NEGATIVE, "tensor size is negative", i);
        }
        if (tensor->bwd < 0) {
            return gw_plan_fail(fault, GW_ERR_NEGATIVE, "backprop time is negative", i);
        }
        if (tensor->len > GW_PLAN_TICK_MAX - *len || tensor->bwd > GW_PLAN_TICK_MAX - *backprop) {
            return gw_plan_fail(fault, GW_ERR_TICKS, "sum of sizes or backprop times is too large", i);
        }
        if (problem->group_len_max > 0 && tensor->len > problem->group_len_max) {
            return gw_plan_fail(fault, GW_ERR_INFEASIBLE, "tensor exceeds group_len_max", i);
        }
        if ((~tensor->forbidden & all_methods) == 0) {
            return gw_plan_fail(fault, GW_ERR_INFEASIBLE, "every method is forbidden for this tensor", i);
        }
        *len += tensor->len;
        *backprop += tensor->bwd;
    }
    return GW_OK;
}

enum { PARTS = 9 };

/* Largest intercept and slope over the methods, for each of their curves as often as a group pays it. The
 * owner's encode costs at most another encode of the group. */
static gw_status check_methods(const gw_plan_problem *problem, gw_plan_fault *fault,
                               gw_plan_tick intercept_max[PARTS], gw_plan_tick slope_max[PARTS])
{
    static const gw_plan_cost zero = {GW_PLAN_COST_AFFINE, 0, 0, 0, 0, NULL, NULL};
    for (uint32_t m = 0; m < problem->method_count; m++) {
        const gw_plan_method *method = &problem->methods[m];
        const gw_plan_cost *host = method->device == GW_PLAN_CPU ? &method->host : &zero;
        const int owned = method->owner_count > 0;
        const gw_plan_cost *curves[PARTS] = {
            &method->enc,
            &method->net,
            &method->dec,
            &method->dec_more,
            host,
            host,
            owned ? &method->sum : &zero,
            owned ? &method->enc : &zero,
            owned ? &method->gather : &zero,
        };
        if (method->device != GW_PLAN_GPU && method->device != GW_PLAN_CPU) {
            return gw_plan_fail(fault, GW_ERR_ARG, "method has an unknown device", m);
        }
        if (method->error < 0) {
            return gw_plan_fail(fault, GW_ERR_NEGATIVE, "method has a negative error", m);
        }
        for (int part = 0; part < PARTS; part++) {
            gw_plan_fault inner = {"", 0};
            gw_status status = gw_plan_cost_check(curves[part], &inner);
            if (status != GW_OK) {
                return gw_plan_fail(fault, status, inner.what, m);
            }
            gw_plan_tick intercept, slope;
            upper_line(curves[part], &intercept, &slope);
            intercept_max[part] = gw_tick_max(intercept_max[part], intercept);
            slope_max[part] = gw_tick_max(slope_max[part], slope);
        }
    }
    return GW_OK;
}

int64_t gw_plan_error_min(const gw_plan_problem *problem, uint32_t tensor)
{
    int64_t least = INT64_MAX;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        if ((problem->tensors[tensor].forbidden >> m & 1u) == 0 && problem->methods[m].error < least) {
            least = problem->methods[m].error;
        }
    }
    return least * problem->tensors[tensor].len;
}

/* Sums of errors stay below GW_PLAN_TICK_MAX, and every tensor alone with its best method keeps the bound. */
static gw_status check_errors(const gw_plan_problem *problem, gw_plan_fault *fault, int64_t len)
{
    for (uint32_t m = 0; m < problem->method_count; m++) {
        if (len > 0 && problem->methods[m].error > (GW_PLAN_TICK_MAX - 1) / len) {
            return gw_plan_fail(fault, GW_ERR_TICKS, "errors of the whole model are too large",
                                GW_PLAN_NO_INDEX);
        }
    }
    int64_t least = 0;
    for (uint32_t i = 0; i < problem->tensor_count && problem->error_max > 0; i++) {
        least += problem->tensors[i].len > 0 ? gw_plan_error_min(problem, i) : 0;
        if (least > problem->error_max) {
            return gw_plan_fail(fault, GW_ERR_INFEASIBLE, "no choice of methods keeps error_max", i);
        }
    }
    return GW_OK;
}

gw_status gw_problem_check_numbers(const gw_plan_problem *problem, gw_plan_fault *fault)
{
    gw_plan_tick intercept_max[PARTS] = {0};
    gw_plan_tick slope_max[PARTS] = {0};
    int64_t len = 0;
    gw_plan_tick total = 0;
    gw_status status = check_counts(problem, fault);
    if (status == GW_OK) {
        status = check_tensors(problem, fault, &len, &total);
    }
    if (status == GW_OK) {
        status = check_methods(problem, fault, intercept_max, slope_max);
    }
    if (status == GW_OK) {
        status = check_errors(problem, fault, len);
    }
    if (status != GW_OK) {
        return status;
    }
    /* Sum over any partition of all curves <= N * (largest intercepts) + len * (largest slopes). */
    gw_plan_tick count = (gw_plan_tick)problem->tensor_count;
    for (int part = 0; part < PARTS; part++) {
        if (intercept_max[part] > (GW_PLAN_TICK_MAX - 1) / count ||
            (len > 0 && slope_max[part] > (GW_PLAN_TICK_MAX - 1) / len)) {
            return gw_plan_fail(fault, GW_ERR_TICKS, "costs of the whole model are too large",
                                GW_PLAN_NO_INDEX);
        }
        gw_plan_tick sum = intercept_max[part] * count + slope_max[part] * len;
        if (sum > GW_PLAN_TICK_MAX - 1 - total || total > GW_PLAN_TICK_MAX - 1 - sum) {
            return gw_plan_fail(fault, GW_ERR_TICKS, "costs and backprop together are too large",
                                GW_PLAN_NO_INDEX);
        }
        total += sum;
    }
    return GW_OK;
}

static int names_equal(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

gw_status gw_plan_problem_check(const gw_plan_problem *problem, gw_plan_fault *fault)
{
    gw_status status = gw_problem_check_numbers(problem, fault);
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        const char *name = problem->tensors[i].name;
        for (uint32_t j = 0; name != NULL && j < i; j++) {
            if (problem->tensors[j].name != NULL && names_equal(name, problem->tensors[j].name)) {
                return gw_plan_fail(fault, GW_ERR_NAME, "tensor name occurs twice", i);
            }
        }
    }
    return GW_OK;
}

int gw_plan_sums_make(const gw_plan_problem *problem, gw_arena *arena, gw_plan_sums *sums)
{
    uint32_t n = problem->tensor_count;
    sums->len = gw_arena_take(arena, (size_t)n + 1, sizeof(int64_t));
    sums->bwd = gw_arena_take(arena, (size_t)n + 1, sizeof(gw_plan_tick));
    if (sums->len == NULL || sums->bwd == NULL) {
        return 0;
    }
    sums->len[0] = 0;
    sums->bwd[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        sums->len[i + 1] = sums->len[i] + problem->tensors[i].len;
        sums->bwd[i + 1] = sums->bwd[i] + problem->tensors[i].bwd;
    }
    return 1;
}

int gw_plan_append(gw_plan *plan, uint32_t first, uint32_t end, uint32_t method)
{
    if (plan->group_count == plan->capacity) {
        return 0;
    }
    plan->groups[plan->group_count++] = (gw_plan_group){first, end - first, method};
    return 1;
}
