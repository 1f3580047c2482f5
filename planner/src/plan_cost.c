/*
 * Cost curves: checks and evaluation.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_cost.h"
#include "wide.h"

static gw_status check_number(int64_t value, gw_plan_fault *fault, const char *negative, const char *large,
                              uint32_t index)
{
    return value < 0                  ? gw_plan_fail(fault, GW_ERR_NEGATIVE, negative, index)
           : value > GW_PLAN_TICK_MAX ? gw_plan_fail(fault, GW_ERR_TICKS, large, index)
                                      : GW_OK;
}

static gw_status check_table(const gw_plan_cost *cost, gw_plan_fault *fault)
{
    const int64_t *x = cost->table_x;
    const gw_plan_tick *y = cost->table_y;
    if (cost->table_len == 0 || x == NULL || y == NULL) {
        return gw_plan_fail(fault, GW_ERR_ARG, "cost table is empty", 0);
    }
    for (uint32_t i = 0; i < cost->table_len; i++) {
        static const char negative[] = "cost table row is negative";
        static const char large[] = "cost table row exceeds 2^58";
        gw_status status = check_number(x[i], fault, negative, large, i);
        status = status == GW_OK ? check_number(y[i], fault, negative, large, i) : status;
        if (status != GW_OK) {
            return status;
        }
        if (i > 0 && (x[i] <= x[i - 1] || y[i] < y[i - 1])) {
            return gw_plan_fail(fault, GW_ERR_CURVE, "cost table does not ascend", i);
        }
    }
    return GW_OK;
}

gw_status gw_plan_cost_check(const gw_plan_cost *cost, gw_plan_fault *fault)
{
    static const char negative[] = "curve coefficient is negative";
    static const char large[] = "curve coefficient exceeds 2^58";
    gw_status status;
    if (cost == NULL) {
        return gw_plan_fail(fault, GW_ERR_ARG, "curve is NULL", 0);
    }
    switch (cost->kind) {
    case GW_PLAN_COST_AFFINE:
    case GW_PLAN_COST_MAXLIN:
    case GW_PLAN_COST_HINGE:
        status = check_number(cost->a, fault, negative, large, 0);
        if (status == GW_OK) {
            status = check_number(cost->b, fault, negative, large, 0);
        }
        if (status == GW_OK && cost->kind == GW_PLAN_COST_HINGE) {
            status =
                check_number(cost->t, fault, "hinge position is negative", "hinge position exceeds 2^58", 0);
        }
        return status;
    case GW_PLAN_COST_TABLE:
        return check_table(cost, fault);
    default:
        return gw_plan_fail(fault, GW_ERR_ARG, "unknown curve kind", 0);
    }
}

gw_plan_tick gw_cost_table_at(const gw_plan_cost *cost, int64_t len)
{
    const int64_t *x = cost->table_x;
    const gw_plan_tick *y = cost->table_y;
    uint32_t rows = cost->table_len;
    if (len <= x[0] || rows == 1) {
        return y[0];
    }
    uint32_t low = 0; /* invariant: x[low] <= len, segment low .. low + 1 exists */
    uint32_t high = rows - 1;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (x[middle] <= len) {
            low = middle;
        } else {
            high = middle;
        }
    }
    /* exact: curves must not fall, and the solvers' bounds rely on that */
    return gw_add_saturated(y[low],
                            gw_mul_div(len - x[low], y[high] - y[low], x[high] - x[low], GW_WIDE_DOWN));
}

static int64_t mul_add(int64_t a, int64_t b, int64_t x)
{
    return gw_add_saturated(a, gw_mul_saturated(b, x));
}

gw_plan_tick gw_plan_cost_eval(const gw_plan_cost *cost, int64_t len)
{
    switch (cost->kind) {
    case GW_PLAN_COST_AFFINE:
        return mul_add(cost->a, cost->b, len);
    case GW_PLAN_COST_MAXLIN:
        return gw_tick_max(cost->a, mul_add(0, cost->b, len));
    case GW_PLAN_COST_HINGE:
        return len > cost->t ? mul_add(cost->a, cost->b, len - cost->t) : cost->a;
    case GW_PLAN_COST_TABLE:
    default:
        return gw_cost_table_at(cost, len);
    }
}

int gw_cost_is_zero(const gw_plan_cost *cost)
{
    if (cost->kind == GW_PLAN_COST_TABLE) {
        return cost->table_y[cost->table_len - 1] == 0;
    }
    return cost->a == 0 && cost->b == 0;
}
