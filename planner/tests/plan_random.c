/* SPDX-License-Identifier: BSD-2-Clause */
#include "plan_random.h"

#include <math.h>
#include <string.h>

const char *const random_shape_names[SHAPE_COUNT] = {
    "affine", "affine+decode", "maxlin", "maxlin+decode", "hinge", "hinge+decode", "any", "joint",
};

/* splitmix64: any seed is good. */
uint64_t random_next(plan_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

int64_t random_between(plan_random *random, int64_t low, int64_t high)
{
    return low + (int64_t)(random_next(random) % (uint64_t)(high - low + 1));
}

static double unit(plan_random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

/* base * 10^(0..2) */
static int64_t log_uniform(plan_random *random, double base)
{
    return (int64_t)(base * pow(10.0, 2.0 * unit(random)));
}

enum { STYLE_LOG, STYLE_TIES, STYLE_REAL, STYLE_COUNT };

static gw_plan_tick startup(plan_random *random, int style)
{
    switch (style) {
    case STYLE_LOG:
        return log_uniform(random, 1e4);
    case STYLE_TIES:
        return random_between(random, 0, 4);
    default:
        return random_between(random, 0, 400) * GW_PLAN_TICKS_PER_US;
    }
}

static gw_plan_tick slope(plan_random *random, int style)
{
    switch (style) {
    case STYLE_LOG:
        return log_uniform(random, 1e1);
    case STYLE_TIES:
        return random_between(random, 0, 2);
    default:
        return random_between(random, 1000, 400000);
    }
}

gw_plan_cost random_cost(plan_random *random, int style, int kind, int64_t len_scale, int64_t *table_x,
                         gw_plan_tick *table_y)
{
    gw_plan_cost cost;
    memset(&cost, 0, sizeof cost);
    cost.kind = (gw_plan_cost_kind)kind;
    cost.a = startup(random, style);
    cost.b = slope(random, style);
    cost.t = random_between(random, 0, 3 * len_scale);
    if (cost.kind == GW_PLAN_COST_TABLE) {
        cost.table_len = (uint32_t)random_between(random, 1, RANDOM_TABLE_MAX);
        cost.table_x = table_x;
        cost.table_y = table_y;
        int64_t x = random_between(random, 0, len_scale);
        gw_plan_tick y = cost.a;
        for (uint32_t i = 0; i < cost.table_len; i++) {
            table_x[i] = x;
            table_y[i] = y;
            int64_t dx = random_between(random, 1, 2 * len_scale);
            x += dx;
            y += style == STYLE_TIES ? random_between(random, 0, 3) : dx * slope(random, style) / 2;
        }
    }
    return cost;
}

static const gw_plan_cost zero_cost = {GW_PLAN_COST_AFFINE, 0, 0, 0, 0, NULL, NULL};

/* The parts of a method that plain sending does not have: owner's step, host copies, further decodes. */
static void random_extras(plan_random *random, int style, int64_t scale, random_problem *out, uint32_t m)
{
    gw_plan_method *method = &out->methods[m];
    if (random_between(random, 0, 1)) {
        method->host = random_cost(random, style, GW_PLAN_COST_AFFINE, scale, NULL, NULL);
    }
    if (random_between(random, 0, 3) == 0) {
        method->dec_more = random_cost(random, style, GW_PLAN_COST_AFFINE, scale, NULL, NULL);
    }
    if (random_between(random, 0, 2) == 0) {
        method->owner_count = (uint32_t)random_between(random, 1, 6);
        method->sum = random_cost(random, style, (int)random_between(random, 0, 3), scale, out->table_x[m][3],
                                  out->table_y[m][3]);
        method->gather = random_cost(random, style, (int)random_between(random, 0, 3), scale,
                                     out->table_x[m][4], out->table_y[m][4]);
    }
}

/* A bound somewhere between the least and the largest error. */
static void random_errors(plan_random *random, random_problem *out)
{
    gw_plan_problem *problem = &out->problem;
    int64_t most = 0;
    for (uint32_t m = 1; m < problem->method_count; m++) {
        out->methods[m].error = random_between(random, 0, 5);
    }
    for (uint32_t i = 0; i < problem->tensor_count; i++) {
        out->tensors[i].forbidden = 0;
        most += 5 * out->tensors[i].len;
    }
    problem->error_max = 1 + random_between(random, 0, most);
}

void random_problem_make(plan_random *random, random_shape shape, uint32_t tensor_count, random_problem *out)
{
    memset(out, 0, sizeof *out);
    int style = (int)random_between(random, 0, STYLE_COUNT - 1);
    int64_t len_scale = style == STYLE_TIES ? 3 : style == STYLE_LOG ? 1000 : 1000000;
    for (uint32_t i = 0; i < tensor_count; i++) {
        gw_plan_tensor *tensor = &out->tensors[i];
        switch (style) {
        case STYLE_LOG:
            tensor->len = log_uniform(random, 1e2);
            tensor->bwd = log_uniform(random, 1e4);
            break;
        case STYLE_TIES:
            tensor->len = random_between(random, 0, 3);
            tensor->bwd = random_between(random, 0, 4);
            break;
        default:
            tensor->len = random_between(random, 1, 4 << random_between(random, 0, 20));
            tensor->bwd = random_between(random, 0, 1500) * GW_PLAN_TICKS_PER_US;
            break;
        }
    }
    gw_plan_problem *problem = &out->problem;
    problem->tensors = out->tensors;
    problem->tensor_count = tensor_count;
    problem->methods = out->methods;
    problem->method_count = shape == SHAPE_JOINT ? (uint32_t)random_between(random, 2, 3) : 1;
    problem->decode = GW_PLAN_DECODE_SERIAL;
    if (shape >= SHAPE_ANY && random_between(random, 0, 2) == 0) {
        problem->decode = GW_PLAN_DECODE_PARALLEL;
    }
    for (uint32_t m = 0; m < problem->method_count; m++) {
        gw_plan_method *method = &out->methods[m];
        int any = shape >= SHAPE_ANY;
        int enc_kind = any ? (int)random_between(random, 0, 3) : (int)shape / 2;
        int net_kind = any ? (int)random_between(random, 0, 3) : GW_PLAN_COST_AFFINE;
        int dec_kind = any ? (int)random_between(random, 0, 3) : GW_PLAN_COST_AFFINE;
        int has_decode = any ? random_between(random, 0, 2) > 0 : (int)shape % 2 == 1;
        method->name = "m";
        method->enc = random_cost(random, style, enc_kind, len_scale, out->table_x[m][0], out->table_y[m][0]);
        method->net = random_cost(random, style, net_kind, len_scale, out->table_x[m][1], out->table_y[m][1]);
        method->dec = has_decode ? random_cost(random, style, dec_kind, len_scale, out->table_x[m][2],
                                               out->table_y[m][2])
                                 : zero_cost;
        method->device = any && random_between(random, 0, 3) == 0 ? GW_PLAN_CPU : GW_PLAN_GPU;
        if (shape == SHAPE_JOINT && random_between(random, 0, 2) == 0) {
            method->enc = zero_cost;
        }
        if (any) {
            random_extras(random, style, len_scale, out, m);
        }
    }
    if (shape == SHAPE_JOINT && random_between(random, 0, 3) == 0) {
        for (uint32_t i = 0; i < tensor_count; i++) {
            if (random_between(random, 0, 3) == 0) {
                out->tensors[i].forbidden = 1u
                                            << random_between(random, 0, (int64_t)problem->method_count - 1);
            }
        }
        int64_t largest = 0;
        for (uint32_t i = 0; i < tensor_count; i++) {
            largest = out->tensors[i].len > largest ? out->tensors[i].len : largest;
        }
        problem->group_len_max = random_between(random, 0, 1) ? 0 : largest * random_between(random, 1, 4);
    } else if (shape == SHAPE_JOINT && random_between(random, 0, 1)) {
        random_errors(random, out);
    }
}
