/*
 * The sparse family: selection by magnitude, the momentum of DGC, sums of squares.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

#include "classic/sparse_value.h"

KC_SELECT_CLASSIC(sparse_select);
KC_SELECT_CLASSIC(sparse_momentum);
KC_SELECT_CLASSIC(sparse_squares);

/* ---- select -------------------------------------------------------------------------------------------- */

typedef struct select_call {
    gw_sparse_select_fn *fn;
    uint32_t *positions;
    float *values;
    const void *x;
    size_t len;
    gw_sparse_scan scan;
    size_t count;
} select_call;

static void call_select(void *context)
{
    select_call *c = (select_call *)context;
    c->count = c->fn(c->positions, c->values, c->x, c->len, &c->scan);
}

/* Of a value of the array, next to one, or far away. */
static uint32_t pick_bound(kc_rng *rng, const uint8_t *x, size_t len)
{
    const uint32_t near = len == 0 ? 0 : kct_load_bits(x + 4 * kc_below(rng, (uint32_t)len)) & 0x7fffffffu;
    const uint32_t bound = kc_below(rng, 8) == 0 ? (uint32_t)kc_random(rng) : near + kc_below(rng, 3);
    return kc_below(rng, 8) == 0 || bound < 0x00800000u ? 0 : bound;
}

static void model_select(select_call *c)
{
    c->count = 0;
    for (size_t i = 0; i < c->len; i++) {
        const uint32_t bits = kct_load_bits((const uint8_t *)c->x + 4 * i), magnitude = bits & 0x7fffffffu;
        c->scan.largest = magnitude > c->scan.largest ? magnitude : c->scan.largest;
        if (magnitude >= c->scan.bound) {
            c->positions[c->count] = c->scan.first + (uint32_t)i;
            kct_store_bits(c->values + c->count, magnitude < 0x00800000u ? 0 : bits);
            c->count++;
        }
    }
}

static void compare_select(kc_test *t, kc_failure kind, const select_call *expected, const select_call *got)
{
    kc_equal_number(t, kind, "count", expected->count, got->count);
    kc_equal_number(t, kind, "largest", expected->scan.largest, got->scan.largest);
    if (expected->count == got->count) {
        kc_equal(t, kind, "positions", expected->positions, got->positions, got->count, 4);
        kc_equal(t, kind, "values", expected->values, got->values, got->count, 4);
    }
}

static void select_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint8_t *x = kc_plain(0);
    kct_floats(&t->rng, x, s->len, s->pattern);
    const uint32_t first = kc_below(&t->rng, 3) == 0 ? 0u - (uint32_t)s->len : (uint32_t)kc_random(&t->rng);
    const uint32_t largest = kc_below(&t->rng, 2) == 0 ? 0 : (uint32_t)kc_random(&t->rng);
    const gw_sparse_scan scan = {first, pick_bound(&t->rng, x, s->len), largest};
    kc_describe(t, "first %u, bound %08x, largest %08x, flush mode %u, %s", scan.first, scan.bound, largest,
                s->config, kc_value_pattern_name(s->pattern));
    select_call expected = {
        (gw_sparse_select_fn *)t->reference, kc_u32(kc_plain(1)), kct_f32(kc_plain(2)), x, s->len, scan, 0};
    select_call got = expected;
    got.fn = (gw_sparse_select_fn *)t->fn;
    got.x = kc_in(t, "x", x, 4 * s->len, 0, s->src, 1);
    got.positions = kc_u32(kc_out(t, "positions", 4 * s->len, 0, s->dst, 4));
    got.values = kct_f32(kc_out(t, "values", 4 * s->len, 0, kc_place_other(t), 4));
    if (!kct_both(t, call_select, &expected, &got, (int)s->config)) {
        return;
    }
    compare_select(t, KC_OUTPUT, &expected, &got);
    if (t->is_reference) {
        select_call model = expected;
        model.positions = kc_u32(kc_plain(3));
        model.values = kct_f32(kc_plain(4));
        model.scan = scan;
        model_select(&model);
        compare_select(t, KC_MODEL, &model, &got);
    }
}

static void test_select(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, select_body);
}

/* One value in a hundred: the usual share of Top-k. */
static void bench_select(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    for (size_t i = 0; i < len; i++) {
        kct_store_bits(kc_plain(0) + 4 * i, kc_below(&rng, 100) == 0 ? 0x3f800000u : 0x3f000000u);
    }
    select_call call = {(gw_sparse_select_fn *)t->fn,
                        kc_u32(kc_plain(1)),
                        kct_f32(kc_plain(2)),
                        kc_plain(0),
                        len,
                        {0, 0x3f400000u, 0},
                        0};
    kc_bench(t, call_select, &call);
}

/* ---- momentum ------------------------------------------------------------------------------------------ */

typedef struct momentum_call {
    gw_sparse_momentum_fn *fn;
    void *u_next, *v_next;
    const void *u, *v;
    const float *x;
    size_t len;
    gw_sparse_step step;
} momentum_call;

static void call_momentum(void *context)
{
    const momentum_call *c = (const momentum_call *)context;
    c->fn(c->u_next, c->v_next, c->u, c->v, c->x, c->len, &c->step);
}

/* Products and sums of fp32 numbers, rounded once: the flush comes before the rounding of products, after
 * that of sums. */
static double product(double a, double b)
{
    const double exact = a * b;
    return fabs(exact) < 0x1p-126 ? 0.0 : kct_double(kct_fp32(exact, 1));
}

static double sum(double a, double b)
{
    return kct_double(kct_fp32(a + b, 1));
}

static void model_momentum(const momentum_call *c)
{
    for (size_t i = 0; i < c->len; i++) {
        const double x = kct_double(kct_load_bits((const uint8_t *)c->x + 4 * i));
        const double u = kct_double(kct_fp32(kct_double(kct_load_bits((const uint8_t *)c->u + 4 * i)), 1));
        const double v = kct_double(kct_fp32(kct_double(kct_load_bits((const uint8_t *)c->v + 4 * i)), 1));
        const double y = product(x, (double)c->step.factor), m = (double)c->step.momentum;
        const double w = sum(product(m, u), y);
        const double next = sum(v, c->step.nesterov ? sum(product(m, w), y) : w);
        kct_store_bits((uint8_t *)c->u_next + 4 * i, kct_fp32(w, 1));
        kct_store_bits((uint8_t *)c->v_next + 4 * i, kct_fp32(next, 1));
    }
}

/* 0, 1 where `one`, a usual factor, or any in between. */
static float pick_factor(kc_rng *rng, int one)
{
    switch (kc_below(rng, 5)) {
    case 0:
        return 0.0f;
    case 1:
        return one ? 1.0f : 0x1.fffffep-1f;
    case 2:
        return gw_float_from_bits(0x00800000u + kc_below(rng, 0x3f000000u));
    default:
        return 0.9f;
    }
}

static void momentum_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int nesterov = s->config % 2 != 0, in_place = s->config / 2 % 2 != 0,
              flush_mode = s->config / 4 != 0;
    const size_t len = s->len;
    uint8_t *x = kc_plain(0), *u = kc_plain(1), *v = kc_plain(2);
    gw_sparse_step step;
    gw_sparse_step_make(&step, pick_factor(&t->rng, 0), pick_factor(&t->rng, 1), nesterov);
    kct_loaded(&t->rng, x, len, s->pattern, 0);
    kct_floats(&t->rng, u, len, kc_below(&t->rng, KC_VALUE_PATTERNS));
    kct_floats(&t->rng, v, len, kc_below(&t->rng, KC_VALUE_PATTERNS));
    for (size_t i = 0; i < len && kc_below(&t->rng, 3) != 0; i++) { /* around the floor; sums that cancel */
        if (kc_below(&t->rng, 2) == 0 && step.momentum_floor < 0x7f000000u) {
            kct_store_bits(u + 4 * i, (uint32_t)kc_below(&t->rng, 2) << 31 |
                                          (step.momentum_floor - 1 + kc_below(&t->rng, 3)));
        } else if (kc_below(&t->rng, 2) == 0) {
            kct_store_bits(v + 4 * i, (kct_load_bits(x + 4 * i) ^ 0x80000000u) + kc_below(&t->rng, 2));
        }
    }
    kc_describe(t, "momentum %a, factor %a, nesterov %d, %s, flush mode %d, %s", (double)step.momentum,
                (double)step.factor, nesterov, in_place ? "in place" : "separate", flush_mode,
                kc_value_pattern_name(s->pattern));
    momentum_call expected = {
        (gw_sparse_momentum_fn *)t->reference, kc_plain(3), kc_plain(4), u, v, kct_f32(x), len, step};
    momentum_call got = expected;
    got.fn = (gw_sparse_momentum_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    if (in_place) {
        got.u = got.u_next = kc_inout(t, "u", u, 4 * len, 0, s->dst, 1);
        got.v = got.v_next = kc_inout(t, "v", v, 4 * len, 0, kc_place_other(t), 1);
    } else {
        got.u = kc_in(t, "u", u, 4 * len, 0, kc_place_other(t), 1);
        got.v = kc_in(t, "v", v, 4 * len, 0, kc_place_other(t), 1);
        got.u_next = kc_out(t, "u_next", 4 * len, 0, s->dst, 1);
        got.v_next = kc_out(t, "v_next", 4 * len, 0, kc_place_other(t), 1);
    }
    if (!kct_both(t, call_momentum, &expected, &got, flush_mode)) {
        return;
    }
    kct_equal_floats(t, KC_OUTPUT, "u_next", kc_plain(3), got.u_next, len);
    kct_equal_floats(t, KC_OUTPUT, "v_next", kc_plain(4), got.v_next, len);
    if (t->is_reference) {
        momentum_call model = expected;
        model.u_next = kc_plain(5);
        model.v_next = kc_plain(6);
        model_momentum(&model);
        kct_equal_floats(t, KC_MODEL, "u_next", kc_plain(5), got.u_next, len);
        kct_equal_floats(t, KC_MODEL, "v_next", kc_plain(6), got.v_next, len);
    }
}

static void test_momentum(kc_test *t)
{
    kc_walk(t, 8, KC_VALUE_PATTERNS, momentum_body);
}

static void bench_momentum(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    gw_sparse_step step;
    gw_sparse_step_make(&step, 0.9f, 1.0f, 0);
    for (unsigned i = 0; i < 3; i++) {
        kct_loaded(&rng, kc_plain(i), len, 9, 1);
    }
    momentum_call call = {(gw_sparse_momentum_fn *)t->fn, kc_plain(3), kc_plain(4), kc_plain(1), kc_plain(2),
                          kct_f32(kc_plain(0)),           len,         step};
    kc_bench(t, call_momentum, &call);
}

/* ---- squares ------------------------------------------------------------------------------------------- */

typedef struct squares_call {
    gw_sparse_squares_fn *fn;
    double *sums;
    const float *x;
    size_t len;
} squares_call;

static void call_squares(void *context)
{
    const squares_call *c = (const squares_call *)context;
    c->fn(c->sums, c->x, c->len);
}

static void squares_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint8_t *x = kc_plain(0);
    double before[GW_SPARSE_SUMS], expected_sums[GW_SPARSE_SUMS], model[GW_SPARSE_SUMS];
    kct_loaded(&t->rng, x, s->len, s->pattern, 1);
    for (size_t i = 0; i < GW_SPARSE_SUMS; i++) {
        before[i] = kc_below(&t->rng, 4) == 0
                        ? 0.0
                        : ldexp((double)(kc_random(&t->rng) >> 11), (int)kc_below(&t->rng, 400) - 200);
    }
    memcpy(expected_sums, before, sizeof before);
    memcpy(model, before, sizeof before);
    kc_describe(t, "flush mode %u, %s", s->config, kc_value_pattern_name(s->pattern));
    squares_call expected = {(gw_sparse_squares_fn *)t->reference, expected_sums, kct_f32(x), s->len};
    squares_call got = expected;
    got.fn = (gw_sparse_squares_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * s->len, 0, s->src, 4));
    got.sums = (double *)(void *)kc_inout(t, "sums", before, sizeof before, 0, s->dst, 8);
    if (!kct_both(t, call_squares, &expected, &got, (int)s->config)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "sums", expected_sums, got.sums, GW_SPARSE_SUMS, sizeof(double));
    if (t->is_reference) {
        for (size_t lane = 0; lane < GW_SPARSE_SUMS; lane++) {
            for (size_t i = lane; i < s->len; i += GW_SPARSE_SUMS) {
                const double value = kct_double(kct_load_bits(x + 4 * i));
                model[lane] += value * value;
            }
        }
        kc_equal(t, KC_MODEL, "sums", model, got.sums, GW_SPARSE_SUMS, sizeof(double));
    }
}

static void test_squares(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, squares_body);
}

static void bench_squares(kc_test *t)
{
    kc_rng rng = {1};
    static double sums[GW_SPARSE_SUMS];
    kct_loaded(&rng, kc_plain(0), t->kernel->bench_len, 9, 1);
    squares_call call = {(gw_sparse_squares_fn *)t->fn, sums, kct_f32(kc_plain(0)), t->kernel->bench_len};
    kc_bench(t, call_squares, &call);
}

const kc_kernel kc_classic_sparse_family[] = {
    {"sparse_select", select_sparse_select, test_select, bench_select, 4096},
    {"sparse_momentum", select_sparse_momentum, test_momentum, bench_momentum, 4096},
    {"sparse_squares", select_sparse_squares, test_squares, bench_squares, 4096},
    {NULL, NULL, NULL, NULL, 0},
};
