/*
 * Planner properties and the papers' known misses.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wide.h"
#include "plan_random.h"

#define US GW_PLAN_TICKS_PER_US

static int64_t workspace[1 << 20];
static const gw_workspace space = {workspace, sizeof workspace};

static gw_plan_cost affine(gw_plan_tick a, gw_plan_tick b)
{
    gw_plan_cost cost = {GW_PLAN_COST_AFFINE, a, b, 0, 0, NULL, NULL};
    return cost;
}

static gw_plan_method method_of(gw_plan_cost enc, gw_plan_cost net, gw_plan_cost dec)
{
    gw_plan_method method;
    memset(&method, 0, sizeof method);
    method.name = "m";
    method.enc = enc;
    method.net = net;
    method.dec = dec;
    return method;
}

static gw_status solve(const gw_plan_problem *problem, gw_plan_algorithm algorithm, gw_plan_cert *cert)
{
    static gw_plan_group groups[4096];
    gw_plan plan = {groups, 4096, 0};
    const gw_plan_solver solver = {.algorithm = algorithm};
    gw_status status = gw_plan_solve(problem, &solver, &plan, cert, &space);
    if (status == GW_OK) {
        gw_plan_tick makespan = -1;
        assert_int_equal(gw_plan_eval(problem, &plan, &makespan), GW_OK);
        assert_true(makespan == cert->makespan);
        assert_true(cert->lower_bound <= cert->makespan);
    }
    return status;
}

/* ---- 128 bits ---- */

/* The quotient times the divisor is at most the product, and one more is not. */
static void divisions_are_exact(void **state)
{
    (void)state;
    plan_random random = {20261123};
    for (int i = 0; i < 200000; i++) {
        int64_t numbers[3];
        for (int j = 0; j < 3; j++) {
            numbers[j] = (int64_t)(random_next(&random) >> (unsigned)random_between(&random, 1, 63));
        }
        const int64_t divisor = numbers[2] > 0 ? numbers[2] : 1;
        const gw_wide product = gw_wide_mul(gw_wide_from(numbers[0]), numbers[1]);
        const int64_t quotient = gw_wide_div(product, gw_wide_from(divisor), GW_WIDE_DOWN);
        const gw_wide back = gw_wide_mul(gw_wide_from(quotient), divisor);
        assert_false(gw_wide_less(product, back));
        const gw_wide rest = gw_wide_sub(product, back);
        assert_true(quotient == INT64_MAX || gw_wide_less(rest, gw_wide_from(divisor)));
        const int64_t up = gw_wide_div(product, gw_wide_from(divisor), GW_WIDE_UP);
        assert_true(quotient == INT64_MAX || up == quotient + ((rest.high | rest.low) != 0));
        const unsigned shift = (unsigned)random_between(&random, 1, 62);
        const int64_t power = INT64_C(1) << shift;
        assert_int_equal(gw_mul_shift(numbers[0], numbers[1], shift),
                         gw_wide_div(product, gw_wide_from(power), GW_WIDE_DOWN));
    }
}

/* ---- curves ---- */

static void curves(void **state)
{
    (void)state;
    gw_plan_cost maxlin = {GW_PLAN_COST_MAXLIN, 100, 3, 0, 0, NULL, NULL};
    gw_plan_cost hinge = {GW_PLAN_COST_HINGE, 100, 3, 10, 0, NULL, NULL};
    const int64_t x[3] = {10, 20, 40};
    const gw_plan_tick y[3] = {5, 10, 10};
    gw_plan_cost table = {GW_PLAN_COST_TABLE, 0, 0, 0, 3, x, y};
    assert_true(gw_plan_cost_eval(&maxlin, 33) == 100 && gw_plan_cost_eval(&maxlin, 34) == 102);
    assert_true(gw_plan_cost_eval(&hinge, 10) == 100 && gw_plan_cost_eval(&hinge, 12) == 106);
    assert_true(gw_plan_cost_eval(&table, 0) == 5 && gw_plan_cost_eval(&table, 15) == 7 &&
                gw_plan_cost_eval(&table, 20) == 10 && gw_plan_cost_eval(&table, 1000000) == 10);
    /* products beyond 64 bits: exact, so the curve does not fall */
    const int64_t wide_x[2] = {1, (INT64_C(1) << 40) + 1};
    const gw_plan_tick wide_y[2] = {0, (INT64_C(1) << 57) + 12345};
    gw_plan_cost wide = {GW_PLAN_COST_TABLE, 0, 0, 0, 2, wide_x, wide_y};
    assert_true(gw_plan_cost_eval(&wide, wide_x[1]) == wide_y[1]);
    assert_true(gw_plan_cost_eval(&wide, 1 + (INT64_C(1) << 39)) == wide_y[1] / 2);
    gw_plan_tick before = 0;
    for (int64_t len = 1; len < INT64_C(1) << 40; len += 1 + len / 500) {
        gw_plan_tick now = gw_plan_cost_eval(&wide, len);
        gw_plan_tick next = gw_plan_cost_eval(&wide, len + 1);
        assert_true(now >= before && next >= now);
        before = now;
    }
    gw_plan_cost huge = affine(1, INT64_MAX / 2);
    assert_true(gw_plan_cost_eval(&huge, 1000) == INT64_MAX);
    gw_plan_fault fault = {"", 0};
    gw_plan_cost negative = affine(-1, 0);
    assert_int_equal(gw_plan_cost_check(&negative, &fault), GW_ERR_NEGATIVE);
    const gw_plan_tick falling[3] = {5, 4, 10};
    gw_plan_cost bad = {GW_PLAN_COST_TABLE, 0, 0, 0, 3, x, falling};
    assert_int_equal(gw_plan_cost_check(&bad, &fault), GW_ERR_CURVE);
    assert_int_equal(fault.index, 1);
}

static void fits(void **state)
{
    (void)state;
    gw_plan_cost truth[3] = {affine(150 * US, 2000),
                             {GW_PLAN_COST_MAXLIN, 356 * US, 356000, 0, 0, NULL, NULL},
                             {GW_PLAN_COST_HINGE, 80 * US, 90000, 1 << 18, 0, NULL, NULL}};
    for (int kind = 0; kind < 3; kind++) {
        gw_plan_point points[17];
        for (int i = 0; i < 17; i++) {
            points[i].len = INT64_C(1) << (10 + i);
            points[i].ticks = gw_plan_cost_eval(&truth[kind], points[i].len);
        }
        gw_plan_fit fit;
        assert_int_equal(gw_plan_cost_fit(points, 17, (gw_plan_cost_kind)kind, &fit), GW_OK);
        assert_true(fit.error_max < 1e-4);
        gw_plan_fit best;
        assert_int_equal(gw_plan_cost_fit_best(points, 17, &best), GW_OK);
        assert_true(best.error_max <= fit.error_max);
        if (kind == 1) { /* the knee cannot be fitted by a line: the error says so */
            assert_int_equal(gw_plan_cost_fit(points, 17, GW_PLAN_COST_AFFINE, &fit), GW_OK);
            assert_true(fit.error_max > GW_PLAN_FIT_ERROR_WARN);
        }
    }
    gw_plan_point same[2] = {{5, 10}, {5, 11}};
    gw_plan_fit fit;
    assert_int_equal(gw_plan_cost_fit(same, 2, GW_PLAN_COST_AFFINE, &fit), GW_ERR_ARG);
    gw_plan_point zero[2] = {{5, 0}, {6, 11}};
    assert_int_equal(gw_plan_cost_fit(zero, 2, GW_PLAN_COST_AFFINE, &fit), GW_ERR_NEGATIVE);
}

/* A hinge was also fitted without a flat piece, with t = -1, which gw_plan_cost_check() refuses. Every fit
 * is a valid curve now. */
static void fits_are_valid_curves(void **state)
{
    (void)state;
    const gw_plan_point reported[3] = {{7216, (gw_plan_tick)(173.555168 * (double)US)},
                                       {970123, 802009 * (US / 1000)},
                                       {2, 17353 * (US / 1000)}};
    plan_random random = {12};
    gw_plan_point points[6];
    for (int i = 0; i < 100000; i++) {
        const size_t count = i == 0 ? 3 : (size_t)random_between(&random, 2, 6);
        const int wide = random_between(&random, 0, 7) == 0; /* up to the limits */
        for (size_t p = 0; p < count; p++) {
            points[p].len =
                random_between(&random, 0, INT64_C(1) << random_between(&random, 0, wide ? 58 : 30));
            points[p].ticks =
                random_between(&random, 1, INT64_C(1) << random_between(&random, 0, wide ? 58 : 44));
        }
        const gw_plan_point *used = i == 0 ? reported : points;
        for (int kind = GW_PLAN_COST_AFFINE; kind <= GW_PLAN_COST_HINGE; kind++) {
            gw_plan_fit fit;
            gw_status status = gw_plan_cost_fit(used, count, (gw_plan_cost_kind)kind, &fit);
            assert_true(status == GW_OK || status == GW_ERR_ARG); /* all points of one size */
            assert_true(status != GW_OK || gw_plan_cost_check(&fit.cost, NULL) == GW_OK);
        }
    }
    points[0] = (gw_plan_point){GW_PLAN_TICK_MAX + 1, 1};
    points[1] = (gw_plan_point){1, 1};
    gw_plan_fit fit;
    assert_int_equal(gw_plan_cost_fit(points, 2, GW_PLAN_COST_HINGE, &fit), GW_ERR_TICKS);
}

/* A table over more than 2^62 elements passed the check and evaluated to 0 in its middle. */
static void curves_out_of_range(void **state)
{
    (void)state;
    const int64_t x[2] = {0, INT64_MAX};
    const gw_plan_tick y[2] = {0, INT64_MAX};
    gw_plan_cost table = {GW_PLAN_COST_TABLE, 0, 0, 0, 2, x, y};
    gw_plan_fault fault = {"", 0};
    assert_int_equal(gw_plan_cost_check(&table, &fault), GW_ERR_TICKS);
    assert_int_equal(fault.index, 1);
    const int64_t last_x[2] = {0, GW_PLAN_TICK_MAX};
    const gw_plan_tick last_y[2] = {0, GW_PLAN_TICK_MAX};
    gw_plan_cost largest = {GW_PLAN_COST_TABLE, 0, 0, 0, 2, last_x, last_y};
    assert_int_equal(gw_plan_cost_check(&largest, NULL), GW_OK);
    for (int64_t len = 1; len < GW_PLAN_TICK_MAX; len += len / 3 + 1) {
        assert_true(gw_plan_cost_eval(&largest, len) == len);
    }
    for (int field = 0; field < 3; field++) {
        gw_plan_cost hinge = {GW_PLAN_COST_HINGE, 0, 0, 0, 0, NULL, NULL};
        int64_t *fields[3] = {&hinge.a, &hinge.b, &hinge.t};
        *fields[field] = GW_PLAN_TICK_MAX;
        assert_int_equal(gw_plan_cost_check(&hinge, NULL), GW_OK);
        *fields[field] = GW_PLAN_TICK_MAX + 1;
        assert_int_equal(gw_plan_cost_check(&hinge, NULL), GW_ERR_TICKS);
    }
}

/* ---- bad problems ---- */

static void refusals(void **state)
{
    (void)state;
    gw_plan_tensor tensors[2] = {{"a", 10, 5, 0}, {"b", 10, 5, 0}};
    gw_plan_method method = method_of(affine(1, 1), affine(1, 1), affine(0, 0));
    gw_plan_problem good = {tensors, 2, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
    gw_plan_fault fault = {"", 9};
    gw_plan_cert cert;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_OK);
    gw_plan_problem p = good;
    p.tensor_count = 0;
    assert_int_equal(gw_plan_problem_check(&p, &fault), GW_ERR_EMPTY);
    assert_int_equal(solve(&p, GW_PLAN_AUTO, &cert), GW_ERR_EMPTY);
    p = good;
    p.method_count = 0;
    assert_int_equal(gw_plan_problem_check(&p, &fault), GW_ERR_EMPTY);
    tensors[1].name = "a";
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_NAME);
    assert_int_equal(fault.index, 1);
    tensors[1].name = "b";
    tensors[1].bwd = -1;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_NEGATIVE);
    assert_int_equal(fault.index, 1);
    tensors[1].bwd = INT64_MAX;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_TICKS);
    tensors[1].bwd = 5;
    tensors[0].len = -1;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_NEGATIVE);
    tensors[0].len = INT64_C(1) << 40;
    method.net.b = 1 << 20;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_TICKS);
    assert_true(fault.index == GW_PLAN_NO_INDEX); /* no tensor is at fault alone */
    method.net.b = 1;
    method.error = INT64_C(1) << 50;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_TICKS);
    assert_true(fault.index == GW_PLAN_NO_INDEX);
    method.error = 0;
    tensors[0].len = 10;
    tensors[0].forbidden = 1;
    assert_int_equal(gw_plan_problem_check(&good, &fault), GW_ERR_INFEASIBLE);
    tensors[0].forbidden = 0;
    p = good;
    p.group_len_max = 9;
    assert_int_equal(gw_plan_problem_check(&p, &fault), GW_ERR_INFEASIBLE);

    /* short outputs and workspaces are refused, plans that do not fit too */
    gw_plan_group groups[2];
    gw_plan none = {groups, 0, 0};
    const gw_plan_solver layerwise = {.algorithm = GW_PLAN_LAYERWISE};
    const gw_plan_solver labels = {.algorithm = GW_PLAN_LABELS};
    assert_int_equal(gw_plan_solve(&good, &layerwise, &none, &cert, &space), GW_ERR_DST);
    gw_plan plan = {groups, 2, 0};
    const gw_workspace spaces[3] = {{workspace, 64}, {NULL, 0}, {(char *)workspace + 1, 3}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gw_plan_solve(&good, &labels, &plan, &cert, &spaces[i]), GW_ERR_WORKSPACE);
    }
    assert_int_equal(gw_plan_solve(&good, NULL, &plan, &cert, &spaces[0]), GW_ERR_WORKSPACE);
    assert_int_equal(gw_plan_solve(&good, NULL, &plan, &cert, NULL), GW_ERR_WORKSPACE);
    const gw_workspace odd = {(char *)workspace + 1, gw_plan_workspace_size(&good, GW_PLAN_LABELS)};
    assert_int_equal(gw_plan_solve(&good, &labels, &plan, &cert, &odd), GW_OK);
    gw_plan_tick makespan = 77;
    groups[0] = (gw_plan_group){0, 1, 0};
    plan.group_count = 1;
    assert_int_equal(gw_plan_eval(&good, &plan, &makespan), GW_ERR_PLAN);
    groups[1] = (gw_plan_group){0, 1, 0};
    plan.group_count = 2;
    assert_int_equal(gw_plan_eval(&good, &plan, &makespan), GW_ERR_PLAN);
    groups[1] = (gw_plan_group){1, 2, 0};
    assert_int_equal(gw_plan_eval(&good, &plan, &makespan), GW_ERR_PLAN);
    groups[1] = (gw_plan_group){1, 1, 1};
    assert_int_equal(gw_plan_eval(&good, &plan, &makespan), GW_ERR_PLAN);
    assert_true(makespan == 77);
    groups[1].method = 0;
    assert_int_equal(gw_plan_eval(&good, &plan, &makespan), GW_OK);
}

/* ---- edges ---- */

static void edges(void **state)
{
    (void)state;
    gw_plan_cert a, b;
    /* one tensor, zero sizes, zero times, free encoding (every cut is free: Y = N) */
    gw_plan_tensor tensors[200];
    for (int i = 0; i < 200; i++) {
        tensors[i] = (gw_plan_tensor){NULL, i % 3 == 0 ? 0 : i, i % 5 == 0 ? 0 : 7, 0};
    }
    gw_plan_method method = method_of(affine(0, 0), affine(0, 2), affine(0, 0));
    gw_plan_problem p = {tensors, 1, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
    assert_int_equal(solve(&p, GW_PLAN_AUTO, &a), GW_OK);
    assert_true(a.proven && a.makespan == 0);
    p.tensor_count = 200;
    assert_int_equal(solve(&p, GW_PLAN_FUSE_AFFINE, &a), GW_OK);
    assert_int_equal(solve(&p, GW_PLAN_LABELS, &b), GW_OK);
    assert_true(a.proven && b.proven && a.makespan == b.makespan);
    /* a pinned tensor and a memory cap are respected */
    gw_plan_method two[2] = {method_of(affine(0, 0), affine(1, 9), affine(0, 0)),
                             method_of(affine(5, 1), affine(1, 1), affine(2, 0))};
    gw_plan_problem q = {tensors, 12, two, 2, GW_PLAN_DECODE_SERIAL, 30, 0};
    tensors[5].forbidden = 2;
    tensors[7].forbidden = 1;
    assert_int_equal(solve(&q, GW_PLAN_AUTO, &a), GW_OK);
    assert_int_equal(solve(&q, GW_PLAN_BRUTE, &b), GW_OK);
    assert_true(a.proven && a.makespan == b.makespan);
    assert_int_equal(solve(&q, GW_PLAN_FUSE_AFFINE, &a), GW_ERR_OPTION);
}

/* Affine O(N Y), O(N^2 Y) and labels agree beyond what brute force reaches. */
static void solvers_agree(void **state)
{
    (void)state;
    static gw_plan_tensor tensors[300];
    plan_random random = {7};
    for (int round = 0; round < 60; round++) {
        uint32_t n = (uint32_t)random_between(&random, 30, 300);
        int ties = round % 2;
        for (uint32_t i = 0; i < n; i++) {
            tensors[i] = (gw_plan_tensor){NULL, random_between(&random, 0, ties ? 5 : 3000000),
                                          random_between(&random, 0, ties ? 9 : 900 * US), 0};
        }
        gw_plan_method method = method_of(
            affine(random_between(&random, 0, ties ? 4 : 300 * US), ties ? 1 : 90000),
            affine(random_between(&random, 0, ties ? 9 : 200 * US), ties ? 2 : 150000), affine(0, 0));
        gw_plan_problem p = {tensors, n, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
        gw_plan_cert a, b, c;
        assert_int_equal(solve(&p, GW_PLAN_FUSE_AFFINE, &a), GW_OK);
        assert_int_equal(solve(&p, GW_PLAN_FUSE_AFFINE_N2, &b), GW_OK);
        assert_int_equal(solve(&p, GW_PLAN_LABELS, &c), GW_OK);
        assert_true(a.makespan == b.makespan);
        assert_true(c.lower_bound <= a.makespan && c.makespan >= a.makespan);
        assert_true(!c.proven || c.makespan == a.makespan);
    }
}

/* Same input, same plan: also from a dirty workspace. */
static void deterministic(void **state)
{
    (void)state;
    plan_random random = {99};
    random_problem r;
    random_problem_make(&random, SHAPE_JOINT, 20, &r);
    gw_plan_group first[24], again[24];
    gw_plan a = {first, 24, 0};
    gw_plan b = {again, 24, 0};
    gw_plan_cert x, y;
    memset(workspace, 0, sizeof workspace);
    assert_int_equal(gw_plan_solve(&r.problem, NULL, &a, &x, &space), GW_OK);
    memset(workspace, 0xAB, sizeof workspace);
    assert_int_equal(gw_plan_solve(&r.problem, NULL, &b, &y, &space), GW_OK);
    assert_int_equal(a.group_count, b.group_count);
    assert_memory_equal(first, again, a.group_count * sizeof *first);
    assert_true(x.makespan == y.makespan && x.labels == y.labels);
}

/* ---- the published algorithms' misses ---- */

/* Counts instances where `algorithm` is worse than brute force, and the largest excess in percent. */
static void count_misses(random_shape shape, gw_plan_algorithm algorithm, int count, int *misses,
                         double *worst)
{
    *misses = 0;
    *worst = 0;
    for (int i = 0; i < count; i++) {
        plan_random random = {1000003u * (uint64_t)i + (uint64_t)shape};
        random_problem r;
        random_problem_make(&random, shape, (uint32_t)random_between(&random, 3, 10), &r);
        gw_plan_cert best, got;
        assert_int_equal(solve(&r.problem, GW_PLAN_BRUTE, &best), GW_OK);
        assert_int_equal(solve(&r.problem, algorithm, &got), GW_OK);
        assert_true(got.makespan >= best.makespan);
        if (got.makespan > best.makespan) {
            double excess = 100 * ((double)got.makespan / (double)best.makespan - 1);
            (*misses)++;
            *worst = excess > *worst ? excess : *worst;
        }
    }
}

static void cupcake_misses(void **state)
{
    (void)state;
    int misses;
    double worst;
    count_misses(SHAPE_AFFINE, GW_PLAN_CUPCAKE, 3000, &misses, &worst);
    assert_int_equal(misses, 0); /* exact where its proof holds */
    count_misses(SHAPE_AFFINE, GW_PLAN_CUPCAKE_LITERAL, 3000, &misses, &worst);
    print_message("cupcake, literal empty group: %d of 3000 missed, at most %.1f %%\n", misses, worst);
    assert_true(misses > 300);
    count_misses(SHAPE_AFFINE_DECODE, GW_PLAN_CUPCAKE, 3000, &misses, &worst);
    print_message("cupcake, decode: %d of 3000 missed, at most %.1f %%\n", misses, worst);
    assert_true(misses > 100);
    count_misses(SHAPE_HINGE, GW_PLAN_CUPCAKE, 3000, &misses, &worst);
    print_message("cupcake, knee a + b (x - t)+: %d of 3000 missed, at most %.1f %%\n", misses, worst);
    assert_true(misses > 10);
    count_misses(SHAPE_MAXLIN, GW_PLAN_CUPCAKE, 20000, &misses, &worst);
    print_message("cupcake, knee max(a, b x): %d of 20000 missed, at most %.2f %%\n", misses, worst);
    assert_true(misses > 0);
}

static void mergecomp_gaps(void **state)
{
    (void)state;
    int two, three, four;
    double worst;
    count_misses(SHAPE_AFFINE, GW_PLAN_MERGECOMP2, 3000, &two, &worst);
    print_message("mergecomp, 2 groups: %d of 3000 missed, at most %.1f %%\n", two, worst);
    count_misses(SHAPE_AFFINE, GW_PLAN_MERGECOMP3, 3000, &three, &worst);
    count_misses(SHAPE_AFFINE, GW_PLAN_MERGECOMP4, 3000, &four, &worst);
    print_message("mergecomp, 3 groups: %d, 4 groups: %d\n", three, four);
    assert_true(two > three && three > four && four > 0);
}

/* MG-WFBP merges where that saves startup: not because encoding what is there takes long. */
static void mgwfbp_merges(void **state)
{
    (void)state;
    gw_plan_tensor tensors[10];
    gw_plan_group groups[10];
    for (int i = 0; i < 10; i++) {
        tensors[i] = (gw_plan_tensor){NULL, 1000, 100, 0};
    }
    for (int slow = 0; slow < 2; slow++) { /* 100 backprop and 1000 slow encoding a tensor, startup 250 */
        gw_plan_method method = method_of(affine(0, slow), affine(250, 0), affine(0, 0));
        gw_plan_problem p = {tensors, 10, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
        gw_plan plan = {groups, 10, 0};
        gw_plan_cert cert;
        const gw_plan_solver solver = {.algorithm = GW_PLAN_MGWFBP};
        assert_int_equal(gw_plan_solve(&p, &solver, &plan, &cert, &space), GW_OK);
        assert_int_equal(plan.group_count, slow ? 10 : 1);
    }
}

/* ByteComp Lemma 1: two equal tensors, backprop 1 each, GPU encode 1, CPU encode 3, network 5. Moving the
 * earlier one to the CPU, as the lemma says, gives 13 first come first served and 14 in order; the later one
 * gives 12. */
static void bytecomp_lemma_1(void **state)
{
    (void)state;
    const gw_plan_vector vectors[2] = {{1, 0, 5, 0, 0, 0}, {0, 3, 5, 0, 0, 1}};
    const gw_plan_tick bwd[2] = {1, 1};
    const uint32_t classes[2] = {0, 0};
    const uint32_t class_first[2] = {0, 2};
    gw_plan_tree tree = {bwd, classes, 2, vectors, class_first, 1, GW_PLAN_DECODE_SERIAL};
    const uint32_t early[2] = {1, 0};
    const uint32_t late[2] = {0, 1};
    gw_plan_tick makespan = 0;
    assert_int_equal(gw_plan_tree_eval(&tree, early, &makespan), GW_OK);
    assert_int_equal(makespan, 14);
    assert_int_equal(gw_plan_tree_eval(&tree, late, &makespan), GW_OK);
    assert_int_equal(makespan, 12);
    /* the event level serves the ready tensor first */
    gw_plan_job jobs[2];
    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < 2; i++) {
            int on_cpu = i == which;
            memset(&jobs[i], 0, sizeof jobs[i]);
            jobs[i].bwd = 1;
            jobs[i].stage_count = 2;
            jobs[i].stages[0].duration = on_cpu ? 3 : 1;
            jobs[i].stages[0].resource = on_cpu ? GW_PLAN_ON_CPU : GW_PLAN_ON_GPU;
            jobs[i].stages[1].duration = 5;
            jobs[i].stages[1].resource = GW_PLAN_ON_INTER;
            jobs[i].stages[0].kind = GW_PLAN_SPAN_ENCODE;
            jobs[i].stages[1].kind = GW_PLAN_SPAN_NETWORK;
        }
        const gw_plan_run run = {jobs, 2, GW_PLAN_LEVEL_EVENT, GW_PLAN_DECODE_SERIAL, 0};
        assert_int_equal(gw_plan_timeline(&run, NULL, &makespan, &space), GW_OK);
        assert_int_equal(makespan, which == 0 ? 13 : 12);
    }
    gw_plan_cert cert;
    uint32_t choice[2];
    assert_int_equal(gw_plan_tree_solve(&tree, NULL, choice, &cert, &space), GW_OK);
    assert_true(cert.proven && cert.makespan == 12);
}

/* ---- option tree ---- */

static uint32_t count_options(uint32_t filter, uint32_t comp_max)
{
    uint32_t count = 0;
    assert_int_equal(gw_plan_options_list(filter, comp_max, NULL, 0, &count), GW_OK);
    return count;
}

static int compare_options(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(gw_plan_option));
}

static void option_counts(void **state)
{
    (void)state;
    static gw_plan_option options[GW_PLAN_OPTION_COUNT];
    uint32_t count = 0;
    assert_int_equal(gw_plan_options_list(0, UINT32_MAX, options, GW_PLAN_OPTION_COUNT, &count), GW_OK);
    assert_int_equal(count, 4341);
    uint32_t histogram[13] = {0};
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        histogram[options[i].comp_count]++;
        longest = options[i].op_count > longest ? options[i].op_count : longest;
    }
    const uint32_t expected[5] = {9, 236, 1152, 1920, 1024};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(histogram[i], expected[i]);
    }
    assert_int_equal(longest, 12);
    qsort(options, count, sizeof *options, compare_options);
    for (uint32_t i = 1; i < count; i++) {
        assert_true(memcmp(&options[i - 1], &options[i], sizeof *options) != 0); /* all paths distinct */
    }
    assert_int_equal(count_options(GW_PLAN_OPTIONS_GPU_ONLY, UINT32_MAX), 174);
    assert_int_equal(count_options(GW_PLAN_OPTIONS_DENSE_ONLY, UINT32_MAX), 9);
    assert_int_equal(count_options(GW_PLAN_OPTIONS_SCATTER_ONLY, UINT32_MAX), 1188);
    assert_int_equal(count_options(GW_PLAN_OPTIONS_ONE_DEVICE, UINT32_MAX), 339);
    assert_int_equal(count_options(GW_PLAN_OPTIONS_GPU_ONLY | GW_PLAN_OPTIONS_SCATTER_ONLY, UINT32_MAX), 54);
    assert_int_equal(count_options(0, 1), 245);
    assert_int_equal(count_options(0, 2), 1397);
    assert_int_equal(count_options(0, 3), 3317);
    assert_int_equal(gw_plan_options_list(0, UINT32_MAX, options, 10, &count), GW_ERR_DST);
    assert_int_equal(gw_plan_options_list(64, UINT32_MAX, NULL, 0, &count), GW_ERR_ARG);
}

/* A byte an element; on the GPU 1 tick an element to encode and decode, on the CPU 2. */
static gw_plan_codec simple_codec(void)
{
    gw_plan_codec codec;
    memset(&codec, 0, sizeof codec);
    codec.name = "c";
    for (int device = 0; device < 2; device++) {
        codec.enc[device] = affine(0, device + 1);
        codec.dec[device] = affine(0, device + 1);
        codec.sum[device] = affine(0, device + 1);
    }
    codec.payload_num = 1;
    codec.payload_den = 1;
    codec.collectives = 31;
    codec.devices = 3;
    return codec;
}

/* Hand-priced options: 2 machines of 2 GPUs, 8 elements, alpha 0, 1024 ticks per KiB = 1 tick a byte. */
static void option_prices(void **state)
{
    (void)state;
    gw_plan_codec codec = simple_codec();
    gw_plan_cluster cluster = {2, 2, {0, 1024}, {0, 1024}, 0, {0, 0}, 0, {{0, 0}}};
    gw_plan_job job;
    gw_plan_option dense = {3, 0, {GW_PLAN_OP_INTRA_RS, GW_PLAN_OP_INTER_ALLREDUCE, GW_PLAN_OP_INTRA_AG}};
    assert_int_equal(gw_plan_option_price(&dense, &codec, &cluster, 8, &job), GW_OK);
    assert_int_equal(job.stages[0].duration, 16); /* (2 - 1) / 2 * 32 bytes */
    assert_int_equal(job.stages[1].duration,
                     32); /* 2 (2 - 1) / 2 * 16 bytes, twice: both GPUs share the link */
    assert_int_equal(job.stages[2].duration, 16);
    gw_plan_option two = {7,
                          2,
                          {GW_PLAN_OP_COMP_GPU, GW_PLAN_OP_INTRA_A2A, GW_PLAN_OP_DEC_CPU, GW_PLAN_OP_COMP_GPU,
                           GW_PLAN_OP_INTER_ALLGATHERC, GW_PLAN_OP_INTRA_AG, GW_PLAN_OP_DEC_GPU}};
    assert_int_equal(gw_plan_option_price(&two, &codec, &cluster, 8, &job), GW_OK);
    const gw_plan_tick expected[7] = {8, 4, 8, 4, 8, 8, 8};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(job.stages[i].duration, expected[i]);
    }
    gw_plan_vector v;
    gw_plan_job_vector(&job, &v);
    assert_true(v.gpu == 8 && v.cpu == 0 && v.net == 4 + 8 + 4 + 8 + 8 && v.tail == 8);
    codec.collectives = GW_PLAN_ALLGATHER;
    assert_int_equal(gw_plan_option_price(&two, &codec, &cluster, 8, &job), GW_ERR_OPTION);
    assert_int_equal(gw_plan_option_price(&two, NULL, &cluster, 8, &job), GW_ERR_OPTION);
    cluster.nodes = 0;
    assert_int_equal(gw_plan_option_price(&dense, &codec, &cluster, 8, &job), GW_ERR_ARG);
}

/* An operation that was measured has its own startup, once, and its own time for the bytes that the links
 * count; others follow from the links. */
static void option_prices_of_measured_operations(void **state)
{
    (void)state;
    const gw_plan_codec codec = simple_codec();
    gw_plan_cluster cluster = {4, 2, {3, 1024}, {3, 1024}, GW_PLAN_ALPHA_PER_STEP, {0, 0}, 0, {{0, 0}}};
    const gw_plan_option rooted = {
        4,
        0,
        {GW_PLAN_OP_INTRA_REDUCE, GW_PLAN_OP_INTER_REDUCE, GW_PLAN_OP_INTER_BCAST, GW_PLAN_OP_INTRA_BCAST}};
    gw_plan_job job;
    cluster.ops[GW_PLAN_OP_INTER_REDUCE] =
        (gw_plan_link){100, 2048}; /* two messages pass, one after the other */
    assert_int_equal(gw_plan_option_price(&rooted, &codec, &cluster, 8, &job), GW_OK);
    assert_int_equal(job.stages[1].duration, 2 * 3 + 32); /* its bit is not set */
    cluster.op_set = 1u << GW_PLAN_OP_INTER_REDUCE;
    assert_int_equal(gw_plan_option_price(&rooted, &codec, &cluster, 8, &job), GW_OK);
    const gw_plan_tick expected[4] = {3 + 32, 100 + 2 * 32, 2 * 3 + 32, 3 + 32};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(job.stages[i].duration, expected[i]);
    }
    /* Both ranks of a machine share its link after a scatter step inside: the bytes count twice. */
    const gw_plan_option scattered = {5,
                                      1,
                                      {GW_PLAN_OP_INTRA_RS, GW_PLAN_OP_COMP_GPU, GW_PLAN_OP_INTER_ALLGATHERC,
                                       GW_PLAN_OP_DEC_GPU, GW_PLAN_OP_INTRA_AG}};
    cluster.op_set |= 1u << GW_PLAN_OP_INTER_ALLGATHERC;
    cluster.ops[GW_PLAN_OP_INTER_ALLGATHERC] = (gw_plan_link){7, 3 * 1024};
    assert_int_equal(gw_plan_option_price(&scattered, &codec, &cluster, 8, &job), GW_OK);
    assert_int_equal(job.stages[2].duration,
                     7 + 3 * 2 * 3 * 4); /* 3 ranks' payloads of 4 values, a byte each */
    gw_plan_cluster bad = cluster;
    bad.ops[GW_PLAN_OP_INTER_REDUCE].alpha = -1;
    assert_int_equal(gw_plan_option_price(&rooted, &codec, &bad, 8, &job), GW_ERR_NEGATIVE);
    bad.ops[GW_PLAN_OP_INTER_REDUCE].alpha = GW_PLAN_TICK_MAX + 1;
    assert_int_equal(gw_plan_option_price(&rooted, &codec, &bad, 8, &job), GW_ERR_TICKS);
    for (uint32_t op = 0; op < 32; op++) {
        bad = cluster;
        bad.op_set |= UINT32_C(1) << op;
        assert_int_equal(gw_plan_option_price(&rooted, &codec, &bad, 8, &job),
                         op > GW_PLAN_OP_DEC_CPU && op < GW_PLAN_OP_COUNT ? GW_OK : GW_ERR_ARG);
    }
}

/* An option that sends compressed payloads without a compression dereferenced its codec, which may be
 * NULL. */
static void option_without_a_codec(void **state)
{
    (void)state;
    gw_plan_codec codec = simple_codec();
    const gw_plan_cluster cluster = {2, 2, {0, 1024}, {0, 1024}, 0, {0, 0}, 0, {{0, 0}}};
    for (int op = 0; op < GW_PLAN_OP_COUNT; op++) {
        const gw_plan_option option = {1, 0, {(uint8_t)op}};
        const int compressed = op == GW_PLAN_OP_FLAT_A2A || op == GW_PLAN_OP_FLAT_GATHER ||
                               op == GW_PLAN_OP_FLAT_ALLGATHERC || op == GW_PLAN_OP_INTRA_A2A ||
                               op == GW_PLAN_OP_INTRA_GATHER || op == GW_PLAN_OP_INTER_A2A ||
                               op == GW_PLAN_OP_INTER_GATHER || op == GW_PLAN_OP_INTER_ALLGATHERC;
        gw_plan_job job;
        assert_int_equal(gw_plan_option_price(&option, NULL, &cluster, 8, &job), op <= GW_PLAN_OP_DEC_CPU
                                                                                     ? GW_ERR_OPTION
                                                                                 : compressed ? GW_ERR_ARG
                                                                                              : GW_OK);
        assert_int_equal(gw_plan_option_price(&option, &codec, &cluster, 8, &job),
                         op == GW_PLAN_OP_DEC_GPU || op == GW_PLAN_OP_DEC_CPU || compressed ? GW_ERR_ARG
                                                                                            : GW_OK);
    }
}

/* ByteComp's algorithms never beat the exact plan, and sometimes lose: Theorem 1 does not hold. */
static void bytecomp_gaps(void **state)
{
    (void)state;
    int worse = 0;
    for (int i = 0; i < 2000; i++) {
        plan_random random = {(uint64_t)i};
        gw_plan_vector vectors[8];
        gw_plan_tick bwd[6];
        uint32_t classes[6];
        uint32_t start[6], choice[6], exact[6];
        const uint32_t class_first[3] = {0, 3, 6};
        const uint32_t cpu_of[6] = {GW_PLAN_NO_INDEX, 2, GW_PLAN_NO_INDEX,
                                    GW_PLAN_NO_INDEX, 5, GW_PLAN_NO_INDEX};
        const uint8_t candidate[6] = {1, 1, 0, 1, 1, 0};
        for (uint32_t c = 0; c < 2; c++) { /* dense, GPU, CPU */
            gw_plan_tick net = random_between(&random, 4, 12);
            vectors[3 * c] = (gw_plan_vector){0, 0, net, 0, 0, 0};
            vectors[3 * c + 1] = (gw_plan_vector){random_between(&random, 1, 4), 0, net / 3,
                                                  random_between(&random, 0, 2), 0, 1};
            vectors[3 * c + 2] =
                (gw_plan_vector){0, random_between(&random, 1, 9), net / 3, 0, vectors[3 * c + 1].tail, 2};
        }
        for (uint32_t t = 0; t < 6; t++) {
            bwd[t] = random_between(&random, 0, 5);
            classes[t] = (uint32_t)random_between(&random, 0, 1);
            start[t] = 0;
        }
        gw_plan_tree tree = {bwd, classes, 6, vectors, class_first, 2, GW_PLAN_DECODE_SERIAL};
        gw_plan_cert greedy, best;
        const gw_plan_bytecomp_input input = {start, candidate, cpu_of};
        assert_int_equal(gw_plan_bytecomp(&tree, &input, choice, &greedy, &space), GW_OK);
        assert_int_equal(gw_plan_tree_solve(&tree, NULL, exact, &best, &space), GW_OK);
        gw_plan_tick evaluated;
        assert_int_equal(gw_plan_tree_eval(&tree, choice, &evaluated), GW_OK);
        assert_true(evaluated == greedy.makespan && greedy.makespan >= best.makespan && best.proven);
        worse += greedy.makespan > best.makespan;
    }
    print_message("bytecomp: %d of 2000 plans are not optimal\n", worse);
    assert_true(worse > 100);
}

/* Algorithm 1 without its rule for tensors that need not be looked at. */
static void try_all(const gw_plan_tree *tree, const uint32_t *start, const uint8_t *candidate,
                    uint32_t *choice)
{
    gw_plan_tick best;
    memcpy(choice, start, tree->tensor_count * sizeof *choice);
    assert_int_equal(gw_plan_tree_eval(tree, choice, &best), GW_OK);
    for (int improved = 1; improved;) {
        improved = 0;
        for (uint32_t c = 0; c < tree->class_count; c++) {
            for (uint32_t i = tree->tensor_count; i-- > 0;) {
                if (tree->tensor_class[i] != c) {
                    continue;
                }
                uint32_t kept = choice[i];
                for (uint32_t v = 0; v < tree->class_first[c + 1] - tree->class_first[c]; v++) {
                    gw_plan_tick makespan;
                    choice[i] = v;
                    assert_int_equal(gw_plan_tree_eval(tree, choice, &makespan), GW_OK);
                    if ((candidate == NULL || candidate[tree->class_first[c] + v] != 0) && makespan < best) {
                        best = makespan;
                        kept = v;
                        improved = 1;
                    }
                }
                choice[i] = kept;
            }
        }
    }
}

/* Tensors that the rule skips could not have improved anything, whatever the start and the candidates. */
static void bytecomp_skips_no_gain(void **state)
{
    (void)state;
    uint64_t evaluated = 0;
    for (int i = 0; i < 40000; i++) {
        plan_random random = {(uint64_t)i};
        gw_plan_vector vectors[8];
        gw_plan_tick bwd[7];
        uint32_t classes[7], start[7], choice[7], expected[7];
        const uint32_t class_first[3] = {0, 4, 8};
        uint8_t candidate[8];
        int64_t longest = random_between(&random, 1, 12); /* of a decode: sometimes more than the network */
        for (uint32_t v = 0; v < 8; v++) {
            vectors[v] =
                (gw_plan_vector){random_between(&random, 0, 4),       random_between(&random, 0, 2) * 3,
                                 random_between(&random, 0, 9),       0,
                                 random_between(&random, 0, longest), v};
            if (random_between(&random, 0, 1) == 0) { /* on the GPU */
                vectors[v].tail = vectors[v].tail_cpu;
                vectors[v].tail_cpu = 0;
            }
            candidate[v] = random_between(&random, 0, 3) != 0;
        }
        vectors[0] = (gw_plan_vector){0, 0, random_between(&random, 0, 12), 0, 0, 0};
        vectors[4] = (gw_plan_vector){0, 0, random_between(&random, 0, 12), 0, 0, 4};
        int any_start = random_between(&random, 0, 2) == 0;
        for (uint32_t t = 0; t < 7; t++) {
            bwd[t] = random_between(&random, 0, 6);
            classes[t] = (uint32_t)random_between(&random, 0, 1);
            start[t] = any_start ? (uint32_t)random_between(&random, 0, 3) : 0;
        }
        const uint8_t *allowed = random_between(&random, 0, 1) ? candidate : NULL;
        gw_plan_tree tree = {bwd,
                             classes,
                             7,
                             vectors,
                             class_first,
                             2,
                             random_between(&random, 0, 1) ? GW_PLAN_DECODE_SERIAL : GW_PLAN_DECODE_PARALLEL};
        gw_plan_cert cert;
        const gw_plan_bytecomp_input input = {start, allowed, NULL};
        assert_int_equal(gw_plan_bytecomp(&tree, &input, choice, &cert, &space), GW_OK);
        try_all(&tree, start, allowed, expected);
        assert_memory_equal(choice, expected, sizeof choice);
        evaluated += cert.labels;
    }
    print_message("bytecomp: %llu plans evaluated\n", (unsigned long long)evaluated);
}

/* ---- methods from codecs ---- */

static gw_plan_tick net_of(const gw_plan_codec *codec, const gw_plan_cluster *cluster, uint32_t collective,
                           int64_t len)
{
    gw_plan_method method;
    assert_int_equal(gw_plan_method_make(codec, cluster, collective, GW_PLAN_GPU, &method), GW_OK);
    return gw_plan_cost_eval(&method.net, len) +
           (method.owner_count > 0 ? gw_plan_cost_eval(&method.gather, len) : 0);
}

/* The k GPUs of a machine share its link, and the owner's step is part of A2A_AG: the time was that of one
 * collective of 2 (r - 1) / r payloads, whatever k was. 1 tick a byte, 1 byte an element. */
static void method_networks(void **state)
{
    (void)state;
    gw_plan_codec codec = simple_codec();
    const gw_plan_cluster machines = {8, 4, {0, 1024}, {5, 1024}, 0, {0, 0}, 0, {{0, 0}}};
    const gw_plan_cluster flat = {1, 32, {5, 1024}, {5, 1024}, 0, {0, 0}, 0, {{0, 0}}};
    assert_int_equal(net_of(&codec, &machines, GW_PLAN_ALLREDUCE, 3200), 5 + 6400); /* 62/32 a slope: 2 */
    assert_int_equal(net_of(&codec, &machines, GW_PLAN_ALLGATHER, 3200), 5 + 31 * 3200);
    codec.payload_num = 32;
    /* all-to-all 4 * 7/8 of a payload of 32 bytes, all-gather 31/32; two startups */
    assert_int_equal(net_of(&codec, &machines, GW_PLAN_A2A_AG, 100), 10 + 100 * 112 + 100 * 31);
    assert_int_equal(net_of(&codec, &flat, GW_PLAN_A2A_AG, 100), 10 + 100 * 31 + 100 * 31);
    /* the same bytes as the option's steps */
    const gw_plan_option option = {5,
                                   2,
                                   {GW_PLAN_OP_COMP_GPU, GW_PLAN_OP_FLAT_A2A, GW_PLAN_OP_DEC_GPU,
                                    GW_PLAN_OP_COMP_GPU, GW_PLAN_OP_FLAT_AG}};
    gw_plan_job job;
    assert_int_equal(gw_plan_option_price(&option, &codec, &machines, 3200, &job), GW_OK);
    assert_int_equal(job.stages[1].duration, 5 + 3200 * 112);
    codec.rounds = 2; /* norms, then lanes */
    assert_int_equal(net_of(&codec, &machines, GW_PLAN_ALLREDUCE, 100), 10 + 100 * 62);
    gw_plan_method method;
    for (uint32_t alone = GW_PLAN_ALLTOALL; alone <= GW_PLAN_GATHER; alone *= 2) {
        assert_int_equal(gw_plan_method_make(&codec, &machines, alone, GW_PLAN_GPU, &method), GW_ERR_OPTION);
    }
    /* further contributions cost the decoder of an all-gather */
    codec.dec_peer_kib = 1024;
    assert_int_equal(gw_plan_method_make(&codec, &machines, GW_PLAN_ALLGATHER, GW_PLAN_GPU, &method), GW_OK);
    assert_int_equal(gw_plan_cost_eval(&method.dec_more, 10), 31 * 320);
}

/* A codec on the CPU occupies the CPU before and after the network and pays for copies; its decodes do not
 * wait for the end of backprop. They were priced as if the GPU made them. */
static void methods_on_the_cpu(void **state)
{
    (void)state;
    const gw_plan_codec codec = simple_codec();
    const gw_plan_cluster cluster = {2, 1, {0, 1024}, {0, 1024}, 0, {3, 1024}, 0, {{0, 0}}};
    gw_plan_method method;
    assert_int_equal(gw_plan_method_make(&codec, &cluster, GW_PLAN_A2A_AG, GW_PLAN_CPU, &method), GW_OK);
    const gw_plan_tensor tensors[2] = {{NULL, 10, 5, 0}, {NULL, 10, 500, 0}};
    const gw_plan_problem problem = {tensors, 2, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
    gw_plan_group groups[2] = {{0, 1, 0}, {1, 1, 0}};
    const gw_plan plan = {groups, 2, 2};
    /* copy 3 + 40, encode 20; all-to-all 10 (slope 1/2, rounded up), owner: sum 2 * 5 + encode 2 * 5,
     * all-gather 10; decode 20, copy 43 */
    gw_plan_tick makespan = 0;
    assert_int_equal(gw_plan_eval(&problem, &plan, &makespan), GW_OK);
    assert_int_equal(makespan, 505 + 63 + 10 + 20 + 10 + 63);
    gw_plan_job jobs[2];
    assert_int_equal(gw_plan_jobs(&problem, &plan, jobs, 2), GW_OK);
    static const uint8_t expected[7][2] = {
        {GW_PLAN_ON_CPU, GW_PLAN_SPAN_COPY},        {GW_PLAN_ON_CPU, GW_PLAN_SPAN_ENCODE},
        {GW_PLAN_ON_INTER, GW_PLAN_SPAN_NETWORK},   {GW_PLAN_ON_CPU_SUM, GW_PLAN_SPAN_SUM},
        {GW_PLAN_ON_INTER, GW_PLAN_SPAN_NETWORK},   {GW_PLAN_ON_CPU_DECODE, GW_PLAN_SPAN_DECODE},
        {GW_PLAN_ON_CPU_DECODE, GW_PLAN_SPAN_COPY},
    };
    assert_int_equal(jobs[0].stage_count, 7);
    for (int s = 0; s < 7; s++) {
        assert_int_equal(jobs[0].stages[s].resource, expected[s][0]);
        assert_int_equal(jobs[0].stages[s].kind, expected[s][1]);
    }
    gw_plan_vector v;
    gw_plan_job_vector(&jobs[0], &v);
    assert_true(v.gpu == 0 && v.cpu == 63 && v.net == 40 && v.tail == 0 && v.tail_cpu == 63);
    /* an option on the CPU pays for the same copies */
    const gw_plan_option option = {
        3, 1, {GW_PLAN_OP_COMP_CPU, GW_PLAN_OP_FLAT_ALLGATHERC, GW_PLAN_OP_DEC_CPU}};
    assert_int_equal(gw_plan_option_price(&option, &codec, &cluster, 10, &jobs[0]), GW_OK);
    assert_int_equal(jobs[0].stage_count, 5);
    assert_true(jobs[0].stages[0].kind == GW_PLAN_SPAN_COPY && jobs[0].stages[0].duration == 43);
    assert_true(jobs[0].stages[4].kind == GW_PLAN_SPAN_COPY && jobs[0].stages[4].duration == 43);
    assert_int_equal(jobs[0].stages[4].resource, GW_PLAN_ON_CPU_DECODE);
}

/* Where products left 64 bits, prices saturated and were then divided: they came out small and passed. */
static void prices_beyond_64_bits(void **state)
{
    (void)state;
    const int64_t most = GW_PLAN_TICK_MAX;
    const gw_plan_cluster plain = {8, 4, {0, 1024}, {0, 1024}, 0, {0, 1024}, 0, {{0, 0}}};
    const gw_plan_option option = {
        3, 1, {GW_PLAN_OP_COMP_GPU, GW_PLAN_OP_FLAT_ALLGATHERC, GW_PLAN_OP_DEC_GPU}};
    gw_plan_method method;
    gw_plan_job job;
    for (int which = 0; which < 8; which++) {
        gw_plan_codec codec = simple_codec();
        gw_plan_cluster cluster = plain;
        int64_t len = 1000;
        gw_status made = GW_ERR_TICKS;
        switch (which) {
        case 0:
            cluster.inter.beta_kib = most; /* fits, but not its products */
            codec.payload_header = 1000;
            break;
        case 1:
            cluster.inter.beta_kib = most + 1;
            break;
        case 2:
            cluster.inter.alpha = INT64_MAX;
            break;
        case 3:
            codec.payload_num = GW_PLAN_PAYLOAD_MAX;
            len = most;
            made = GW_OK; /* the curve fits, its value for so many elements does not */
            break;
        case 4:
            codec.payload_num = GW_PLAN_PAYLOAD_MAX + 1;
            break;
        case 5:
            codec.dec_peer_kib = most;
            made = GW_OK;
            break;
        case 6:
            len = INT64_MAX;
            made = GW_OK;
            break;
        default:
            cluster.flags = GW_PLAN_ALPHA_PER_STEP;
            cluster.inter.alpha = most;
            break;
        }
        const gw_status priced = gw_plan_option_price(&option, &codec, &cluster, len, &job);
        assert_int_equal(priced, GW_ERR_TICKS);
        assert_int_equal(gw_plan_method_make(&codec, &cluster, GW_PLAN_ALLGATHER, GW_PLAN_GPU, &method),
                         made);
    }
    /* num / den in lowest terms or not: 2^46 / 2^44 is 4 */
    gw_plan_codec codec = simple_codec();
    codec.payload_num = GW_PLAN_PAYLOAD_MAX;
    codec.payload_den = GW_PLAN_PAYLOAD_MAX / 4;
    gw_plan_method reduced;
    assert_int_equal(gw_plan_method_make(&codec, &plain, GW_PLAN_ALLGATHER, GW_PLAN_GPU, &method), GW_OK);
    assert_int_equal(gw_plan_option_price(&option, &codec, &plain, INT64_C(1) << 40, &job), GW_OK);
    assert_true(job.stages[1].duration == (INT64_C(1) << 42) * 31);
    codec.payload_num = 4;
    codec.payload_den = 1;
    assert_int_equal(gw_plan_method_make(&codec, &plain, GW_PLAN_ALLGATHER, GW_PLAN_GPU, &reduced), GW_OK);
    assert_true(method.net.a == reduced.net.a && method.net.b == reduced.net.b);
    /* times of a job add up to more than 64 bits */
    gw_plan_vector v;
    for (uint32_t s = 0; s < job.stage_count; s++) {
        job.stages[s].duration = INT64_MAX;
    }
    gw_plan_job_vector(&job, &v);
    assert_true(v.gpu == INT64_MAX && v.net == INT64_MAX && v.tail == INT64_MAX);
}

/* Coarse methods only as far as the bound of the error allows, and where they shorten the iteration most. */
static void errors_are_bounded(void **state)
{
    (void)state;
    const gw_plan_tensor tensors[3] = {{NULL, 10, 0, 0}, {NULL, 10, 0, 0}, {NULL, 5, 100, 0}};
    gw_plan_method two[2] = {method_of(affine(0, 0), affine(0, 10), affine(0, 0)),
                             method_of(affine(0, 0), affine(0, 1), affine(0, 0))};
    two[1].error = 7;
    gw_plan_problem problem = {tensors, 3, two, 2, GW_PLAN_DECODE_SERIAL, 0, 0};
    const int64_t bounds[5] = {0, 1, 69, 70, 1000};
    const gw_plan_tick expected[5] = {105, 250, 205, 160, 105};
    for (int i = 0; i < 5; i++) {
        gw_plan_group groups[3];
        gw_plan plan = {groups, 3, 0};
        gw_plan_cert cert;
        problem.error_max = bounds[i];
        const gw_plan_solver labels = {.algorithm = GW_PLAN_LABELS};
        assert_int_equal(gw_plan_solve(&problem, &labels, &plan, &cert, &space), GW_OK);
        int64_t error = 0;
        for (uint32_t j = 0; j < plan.group_count; j++) {
            for (uint32_t t = 0; t < groups[j].tensor_count; t++) {
                error += two[groups[j].method].error * tensors[groups[j].first + t].len;
            }
        }
        assert_true(cert.proven && cert.makespan == expected[i]);
        assert_true(bounds[i] == 0 || error <= bounds[i]);
    }
    const gw_plan_group coarse = {0, 3, 1};
    const gw_plan plan = {(gw_plan_group *)(uintptr_t)&coarse, 1, 1};
    gw_plan_tick makespan = 0;
    problem.error_max = 174;
    assert_int_equal(gw_plan_eval(&problem, &plan, &makespan), GW_ERR_PLAN);
    problem.error_max = 175;
    assert_int_equal(gw_plan_eval(&problem, &plan, &makespan), GW_OK);
    two[0].error = 8;
    problem.error_max = 174;
    gw_plan_fault fault;
    assert_int_equal(gw_plan_problem_check(&problem, &fault), GW_ERR_INFEASIBLE);
    two[0].error = GW_PLAN_TICK_MAX;
    assert_int_equal(gw_plan_problem_check(&problem, &fault), GW_ERR_TICKS);
}

/* The only method that a tensor allows may be too coarse for all of them. */
static void coarse_methods_may_be_needed(void **state)
{
    (void)state;
    const gw_plan_tensor tensors[3] = {{NULL, 10, 5, 0}, {NULL, 10, 5, 1}, {NULL, 10, 5, 0}};
    gw_plan_method two[2] = {method_of(affine(0, 0), affine(0, 10), affine(0, 0)),
                             method_of(affine(3, 0), affine(0, 1), affine(2, 0))};
    two[1].device = GW_PLAN_CPU;
    two[1].error = 7;
    gw_plan_problem problem = {tensors, 3, two, 2, GW_PLAN_DECODE_SERIAL, 0, 0};
    gw_plan_cert labels, brute;
    for (problem.error_max = 70; problem.error_max <= 210; problem.error_max += 70) {
        assert_int_equal(solve(&problem, GW_PLAN_BRUTE, &brute), GW_OK);
        assert_int_equal(solve(&problem, GW_PLAN_LABELS, &labels), GW_OK);
        assert_true(labels.proven && labels.makespan == brute.makespan);
    }
}

/* Codec work of a group and its error, from the definition. */
static void price_of(const gw_plan_problem *problem, const gw_plan_group *group, gw_plan_tick *work,
                     int64_t *error)
{
    const gw_plan_method *m = &problem->methods[group->method];
    int64_t x = 0;
    for (uint32_t i = group->first; i < group->first + group->tensor_count; i++) {
        x += problem->tensors[i].len;
    }
    *work =
        gw_plan_cost_eval(&m->enc, x) + gw_plan_cost_eval(&m->dec, x) + gw_plan_cost_eval(&m->dec_more, x);
    if (m->device == GW_PLAN_CPU) {
        *work += 2 * gw_plan_cost_eval(&m->host, x);
    }
    if (m->owner_count > 0) {
        const int64_t share = x / m->owner_count;
        *work += gw_plan_cost_eval(&m->sum, x - share) +
                 gw_plan_cost_eval(&m->enc, share + (x % m->owner_count != 0));
    }
    *error = m->error * x;
}

/* Where the network is hidden behind backprop nothing is compressed. */
static void hidden_messages_travel_dense(void **state)
{
    (void)state;
    const gw_plan_tensor tensors[4] = {
        {NULL, 10, 0, 0}, {NULL, 10, 1000, 0}, {NULL, 10, 1000, 0}, {NULL, 40, 1000, 0}};
    gw_plan_method methods[3] = {method_of(affine(1, 1), affine(0, 1), affine(1, 1)),
                                 method_of(affine(0, 0), affine(0, 10), affine(0, 0)),
                                 method_of(affine(2, 1), affine(0, 1), affine(2, 1))};
    for (int i = 0; i < 3; i += 2) {
        methods[i].device = GW_PLAN_CPU;
        methods[i].host = affine(0, 0);
    }
    const gw_plan_problem problem = {tensors, 4, methods, 3, GW_PLAN_DECODE_SERIAL, 0, 0};
    gw_plan_group groups[4];
    gw_plan plan = {groups, 4, 0};
    gw_plan_cert cert;
    assert_int_equal(gw_plan_solve(&problem, NULL, &plan, &cert, &space), GW_OK);
    assert_true(cert.proven);
    /* The last tensor alone has nothing to hide behind: 41 + 40 + 41 compressed, 400 dense. */
    assert_true(cert.makespan == 3000 + 41 + 40 + 41);
    for (uint32_t j = 0; j < plan.group_count; j++) {
        const int is_last = j + 1 == plan.group_count;
        assert_int_equal(groups[j].method, is_last ? 0 : 1);
    }
}

/* No group of a solved plan could have less codec work, or as much and a smaller error, at the same makespan.
 */
static void no_group_could_be_cheaper(void **state)
{
    (void)state;
    plan_random random = {4242};
    int ties = 0;
    for (int round = 0; round < 400; round++) {
        random_problem r;
        random_problem_make(&random, SHAPE_JOINT, (uint32_t)random_between(&random, 1, 14), &r);
        gw_plan_group groups[24];
        gw_plan plan = {groups, 24, 0};
        gw_plan_cert cert;
        const gw_plan_solver labels = {.algorithm = GW_PLAN_LABELS};
        if (gw_plan_solve(&r.problem, &labels, &plan, &cert, &space) != GW_OK) {
            continue;
        }
        gw_plan_tick makespan = -1;
        assert_int_equal(gw_plan_eval(&r.problem, &plan, &makespan), GW_OK);
        assert_true(makespan == cert.makespan);
        for (uint32_t j = 0; j < plan.group_count; j++) {
            const uint32_t was = groups[j].method;
            gw_plan_tick work, other;
            int64_t error, other_error;
            price_of(&r.problem, &groups[j], &work, &error);
            for (uint32_t m = 0; m < r.problem.method_count; m++) {
                groups[j].method = m;
                if (m == was || gw_plan_eval(&r.problem, &plan, &makespan) != GW_OK ||
                    makespan > cert.makespan) {
                    continue;
                }
                price_of(&r.problem, &groups[j], &other, &other_error);
                ties++;
                assert_true(other > work || (other == work && other_error >= error));
            }
            groups[j].method = was;
        }
    }
    assert_true(ties > 50);
}

/* ---- timelines ---- */

static void random_jobs(plan_random *random, gw_plan_job *jobs, uint32_t n, int chain)
{
    for (uint32_t j = 0; j < n; j++) {
        memset(&jobs[j], 0, sizeof jobs[j]);
        jobs[j].bwd = random_between(random, 0, 6);
        if (chain) { /* encode on the GPU, one network step, nothing after it */
            jobs[j].stage_count = 2;
            jobs[j].stages[0] = (gw_plan_stage){random_between(random, 0, 5), GW_PLAN_ON_GPU, 0,
                                                GW_PLAN_SPAN_ENCODE, GW_PLAN_OP_COUNT};
            jobs[j].stages[1] = (gw_plan_stage){random_between(random, 0, 8), GW_PLAN_ON_INTER, 1,
                                                GW_PLAN_SPAN_NETWORK, GW_PLAN_OP_COUNT};
            continue;
        }
        jobs[j].stage_count = (uint32_t)random_between(random, 1, 6);
        uint8_t queue = 0;
        for (uint32_t s = 0; s < jobs[j].stage_count; s++) {
            uint8_t resource = (uint8_t)random_between(random, 0, GW_PLAN_RESOURCE_COUNT - 1);
            uint8_t kind = resource >= GW_PLAN_ON_INTRA ? GW_PLAN_SPAN_NETWORK : GW_PLAN_SPAN_ENCODE;
            queue = (uint8_t)random_between(random, queue, 2);
            jobs[j].stages[s] =
                (gw_plan_stage){random_between(random, 0, 6), resource, queue, kind, GW_PLAN_OP_COUNT};
        }
    }
}

static gw_plan_tick run_level(gw_plan_level level, gw_plan_decode decode, const gw_plan_job *jobs, uint32_t n,
                              gw_plan_spans *spans)
{
    const gw_plan_run run = {jobs, n, level, decode, 0};
    gw_plan_tick makespan = -1;
    assert_int_equal(gw_plan_timeline(&run, spans, &makespan, &space), GW_OK);
    return makespan;
}

static void event_equals_serial_on_chains(void **state)
{
    (void)state;
    gw_plan_job jobs[12];
    for (int i = 0; i < 5000; i++) {
        plan_random random = {(uint64_t)i};
        uint32_t n = (uint32_t)random_between(&random, 1, 12);
        random_jobs(&random, jobs, n, 1);
        /* first come first served equals in order when encodes of zero length do not let a later job overtake
         */
        gw_plan_tick serial = run_level(GW_PLAN_LEVEL_SERIAL, GW_PLAN_DECODE_SERIAL, jobs, n, NULL);
        assert_true(serial == run_level(GW_PLAN_LEVEL_EVENT, GW_PLAN_DECODE_SERIAL, jobs, n, NULL));
        assert_true(serial == run_level(GW_PLAN_LEVEL_PIPELINED, GW_PLAN_DECODE_SERIAL, jobs, n, NULL));
    }
}

/* A longer duration never shortens the serial or the pipelined schedule. At the event level it may: jobs are
 * served as they become ready, so a delay can let a more useful one go first. */
static void monotone_levels(void **state)
{
    (void)state;
    gw_plan_job jobs[8];
    int anomalies = 0;
    for (int i = 0; i < 20000; i++) {
        plan_random random = {(uint64_t)i * 77};
        uint32_t n = (uint32_t)random_between(&random, 1, 8);
        random_jobs(&random, jobs, n, 0);
        gw_plan_decode decode =
            random_between(&random, 0, 1) ? GW_PLAN_DECODE_SERIAL : GW_PLAN_DECODE_PARALLEL;
        gw_plan_tick before[3];
        for (int level = 0; level < 3; level++) {
            before[level] = run_level((gw_plan_level)level, decode, jobs, n, NULL);
        }
        uint32_t j = (uint32_t)random_between(&random, 0, (int64_t)n - 1);
        uint32_t s = (uint32_t)random_between(&random, 0, (int64_t)jobs[j].stage_count - 1);
        if (random_between(&random, 0, 3) == 0) {
            jobs[j].bwd += 1;
        } else if (jobs[j].stages[s].resource == GW_PLAN_ON_GPU ||
                   jobs[j].stages[s].resource >= GW_PLAN_ON_INTRA || jobs[j].stages[s].duration > 0) {
            jobs[j].stages[s].duration += random_between(&random, 1, 3);
        }
        for (int level = 0; level < 2; level++) {
            assert_true(run_level((gw_plan_level)level, decode, jobs, n, NULL) >= before[level]);
        }
        anomalies += run_level(GW_PLAN_LEVEL_EVENT, decode, jobs, n, NULL) < before[2];
    }
    print_message("event level: %d of 20000 schedules got shorter when a stage got longer\n", anomalies);
    assert_true(anomalies > 0);
}

/* Spans cover every stage once, do not overlap on a resource (serial network apart) and end at the makespan.
 */
static void spans_are_sound(void **state)
{
    (void)state;
    gw_plan_job jobs[10];
    gw_plan_span spans[512];
    for (int i = 0; i < 3000; i++) {
        plan_random random = {(uint64_t)i * 31 + 5};
        uint32_t n = (uint32_t)random_between(&random, 1, 10);
        random_jobs(&random, jobs, n, 0);
        for (int level = 0; level < 3; level++) {
            gw_plan_spans list = {spans, 512, 0};
            gw_plan_tick makespan = run_level((gw_plan_level)level, GW_PLAN_DECODE_SERIAL, jobs, n, &list);
            size_t count = list.count;
            assert_true(count <= gw_plan_timeline_span_count_max(jobs, n));
            gw_plan_tick last = 0;
            gw_plan_tick sum = 0;
            for (size_t a = 0; a < count; a++) {
                assert_true(spans[a].start >= 0 && spans[a].end >= spans[a].start);
                last = spans[a].end > last ? spans[a].end : last;
                sum += spans[a].end - spans[a].start;
                for (size_t b = 0; level == GW_PLAN_LEVEL_EVENT && b < a; b++) {
                    if (spans[a].resource == spans[b].resource) {
                        assert_true(spans[a].start >= spans[b].end || spans[b].start >= spans[a].end);
                    }
                }
            }
            for (uint32_t j = 0; j < n; j++) {
                sum -= jobs[j].bwd;
                for (uint32_t s = 0; s < jobs[j].stage_count; s++) {
                    sum -= jobs[j].stages[s].duration;
                }
            }
            assert_true(last == makespan);
            if (level == GW_PLAN_LEVEL_EVENT) {
                assert_true(sum == 0);
            }
        }
    }
    gw_plan_tick makespan = 0;
    random_jobs(&(plan_random){3}, jobs, 3, 0);
    const gw_plan_run run = {jobs, 3, GW_PLAN_LEVEL_SERIAL, GW_PLAN_DECODE_SERIAL, 0};
    gw_plan_spans list = {spans, 1, 0};
    assert_int_equal(gw_plan_timeline(&run, &list, &makespan, NULL), GW_ERR_DST);
    assert_true(list.count > 1 && makespan > 0);
    gw_plan_run event = run;
    event.level = GW_PLAN_LEVEL_EVENT;
    assert_int_equal(gw_plan_timeline(&event, NULL, &makespan, NULL), GW_ERR_WORKSPACE);
    jobs[1].stages[0].duration = -1;
    assert_int_equal(gw_plan_timeline(&run, NULL, &makespan, NULL), GW_ERR_NEGATIVE);
}

/* Plan evaluation and the serial timeline of its jobs are the same tick. */
static void jobs_equal_plan(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        plan_random random = {(uint64_t)i * 13};
        random_problem r;
        random_problem_make(&random, i % 2 ? SHAPE_JOINT : SHAPE_ANY,
                            (uint32_t)random_between(&random, 1, 20), &r);
        gw_plan_group groups[24];
        gw_plan plan = {groups, 24, 0};
        gw_plan_cert cert;
        gw_plan_job jobs[24];
        const gw_plan_solver labels = {.algorithm = GW_PLAN_LABELS};
        assert_int_equal(gw_plan_solve(&r.problem, &labels, &plan, &cert, &space), GW_OK);
        assert_int_equal(gw_plan_jobs(&r.problem, &plan, jobs, 24), GW_OK);
        assert_true(run_level(GW_PLAN_LEVEL_SERIAL, r.problem.decode, jobs, plan.group_count, NULL) ==
                    cert.makespan);
    }
}

static int64_t fake_now;
static int64_t fake_clock(void *context)
{
    (void)context;
    return fake_now += 1000;
}

/* Limits end the search early and leave a valid certificate. */
static void limits_hold(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        plan_random random = {(uint64_t)i * 3};
        random_problem r;
        random_problem_make(&random, SHAPE_JOINT, 24, &r);
        gw_plan_group groups[24];
        gw_plan plan = {groups, 24, 0};
        gw_plan_cert exact, cut;
        gw_plan_solver labels = {.algorithm = GW_PLAN_LABELS};
        assert_int_equal(gw_plan_solve(&r.problem, &labels, &plan, &exact, &space), GW_OK);
        if (i % 2) {
            labels.limits.work_max = 1;
        } else {
            labels.limits.clock = fake_clock;
            labels.limits.clock_max = 1;
        }
        gw_status status = gw_plan_solve(&r.problem, &labels, &plan, &cut, &space);
        if (status == GW_ERR_LIMIT) {
            continue; /* no simple plan fits the constraints and no time to search */
        }
        gw_plan_tick makespan = -1;
        assert_int_equal(status, GW_OK);
        assert_int_equal(gw_plan_eval(&r.problem, &plan, &makespan), GW_OK);
        assert_true(makespan == cut.makespan && cut.lower_bound <= exact.makespan &&
                    cut.makespan >= exact.lower_bound);
    }
}

/* Arguments that a caller may get wrong are refused, not read or computed with. */
static void bad_arguments(void **state)
{
    (void)state;
    gw_plan_tensor tensors[2] = {{NULL, INT64_MAX, 0, 0}, {NULL, 10, 0, 0}};
    gw_plan_method method = method_of(affine(1, 1), affine(1, 1), affine(0, 0));
    gw_plan_problem p = {tensors, 2, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
    gw_plan_group groups[2];
    gw_plan plan = {groups, 2, 0};
    gw_plan_bucket_rule rule = {0, 5, 5, 1};
    assert_int_equal(gw_plan_bucket(&p, &rule, &plan), GW_ERR_TICKS);
    tensors[0].len = 10;
    rule.method = 1;
    assert_int_equal(gw_plan_bucket(&p, &rule, &plan), GW_ERR_ARG);
    rule.method = 0;
    assert_int_equal(gw_plan_bucket(&p, &rule, &plan), GW_OK);
    assert_int_equal(plan.group_count, 2);
    assert_true(gw_plan_workspace_size(&p, GW_PLAN_AUTO) > 0);
    method.dec.kind = GW_PLAN_COST_TABLE; /* without rows */
    assert_true(gw_plan_workspace_size(&p, GW_PLAN_AUTO) == 0);
    gw_plan_codec codec = simple_codec();
    codec.devices = UINT32_MAX;
    gw_plan_cluster cluster = {2, 2, {0, 1024}, {0, 1024}, 0, {0, 0}, 0, {{0, 0}}};
    assert_int_equal(gw_plan_method_make(&codec, &cluster, GW_PLAN_ALLGATHER, (gw_plan_device)2, &method),
                     GW_ERR_ARG);
    assert_int_equal(gw_plan_method_make(NULL, &cluster, GW_PLAN_ALLREDUCE, (gw_plan_device)7, &method),
                     GW_ERR_ARG);
}

/* A gap above 100 % accepts any plan and does not overflow, whatever the makespan. */
static void gap_of_any_size(void **state)
{
    (void)state;
    gw_plan_tensor tensors[2] = {{NULL, 10, INT64_C(1) << 56, 2}, {NULL, 10, INT64_C(1) << 56, 1}};
    gw_plan_method two[2] = {method_of(affine(0, 0), affine(1, 9), affine(0, 0)),
                             method_of(affine(5, 1), affine(1, 1), affine(2, 0))};
    gw_plan_problem p = {tensors, 2, two, 2, GW_PLAN_DECODE_SERIAL, 0, 0};
    gw_plan_group groups[2];
    gw_plan plan = {groups, 2, 0};
    gw_plan_cert cert;
    gw_plan_tick makespan = -1;
    const gw_plan_solver labels = {.algorithm = GW_PLAN_LABELS, .limits = {.gap_ppm = UINT32_MAX}};
    for (int open = 0; open < 2; open++) { /* first without a bucket plan to start from */
        assert_int_equal(gw_plan_solve(&p, &labels, &plan, &cert, &space), GW_OK);
        assert_int_equal(gw_plan_eval(&p, &plan, &makespan), GW_OK);
        assert_true(makespan == cert.makespan && cert.lower_bound <= makespan);
        tensors[0].forbidden = tensors[1].forbidden = 0;
    }
}

/* `option` belongs to the caller: the choice is right also when all vectors carry the same. */
static void tree_options_are_the_callers(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        plan_random random = {(uint64_t)i};
        gw_plan_vector vectors[8];
        gw_plan_tick bwd[4];
        const uint32_t classes[4] = {0, 1, 0, 1};
        const uint32_t class_first[3] = {0, 4, 8};
        uint32_t choice[4];
        for (int v = 0; v < 8; v++) {
            vectors[v] = (gw_plan_vector){random_between(&random, 0, 9),
                                          random_between(&random, 0, 9) * (v % 2),
                                          random_between(&random, 0, 9),
                                          random_between(&random, 0, 9),
                                          0,
                                          5};
            if (v % 3 == 0) {
                vectors[v].tail_cpu = vectors[v].tail;
                vectors[v].tail = 0;
            }
        }
        for (int t = 0; t < 4; t++) {
            bwd[t] = random_between(&random, 0, 6);
        }
        gw_plan_tree tree = {bwd, classes, 4, vectors, class_first, 2, GW_PLAN_DECODE_SERIAL};
        gw_plan_cert exact, brute;
        gw_plan_tick makespan = -1;
        assert_int_equal(gw_plan_tree_solve(&tree, NULL, choice, &exact, &space), GW_OK);
        assert_int_equal(gw_plan_tree_eval(&tree, choice, &makespan), GW_OK);
        assert_true(makespan == exact.makespan);
        assert_int_equal(gw_plan_tree_brute(&tree, choice, &brute), GW_OK);
        assert_true(exact.proven && brute.makespan == exact.makespan);
    }
}

/* ---- structs for other languages ---- */

static void structs_are_described(void **state)
{
    (void)state;
    size_t count = 0;
    size_t problem_size = 0;
    const gw_abi_struct *structs = gw_plan_abi_structs(&count);
    assert_int_equal(gw_plan_abi_version(), GW_ABI_VERSION);
    assert_true(count > 20);
    for (size_t i = 0; i < count; i++) {
        const gw_abi_field *last = &structs[i].fields[structs[i].field_count - 1];
        assert_memory_equal(structs[i].name, "gw_plan", 7); /* how Python tells them from the codecs' */
        assert_true(last->offset + last->size <= structs[i].size);
        assert_true(structs[i].size - last->offset - last->size < 8);
        problem_size = strcmp(structs[i].name, "gw_plan_problem") == 0 ? structs[i].size : problem_size;
    }
    assert_int_equal(problem_size, sizeof(gw_plan_problem));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divisions_are_exact),
        cmocka_unit_test(curves),
        cmocka_unit_test(fits),
        cmocka_unit_test(fits_are_valid_curves),
        cmocka_unit_test(curves_out_of_range),
        cmocka_unit_test(refusals),
        cmocka_unit_test(edges),
        cmocka_unit_test(solvers_agree),
        cmocka_unit_test(deterministic),
        cmocka_unit_test(cupcake_misses),
        cmocka_unit_test(mergecomp_gaps),
        cmocka_unit_test(mgwfbp_merges),
        cmocka_unit_test(bytecomp_lemma_1),
        cmocka_unit_test(option_counts),
        cmocka_unit_test(option_prices),
        cmocka_unit_test(option_prices_of_measured_operations),
        cmocka_unit_test(option_without_a_codec),
        cmocka_unit_test(method_networks),
        cmocka_unit_test(methods_on_the_cpu),
        cmocka_unit_test(prices_beyond_64_bits),
        cmocka_unit_test(errors_are_bounded),
        cmocka_unit_test(coarse_methods_may_be_needed),
        cmocka_unit_test(hidden_messages_travel_dense),
        cmocka_unit_test(no_group_could_be_cheaper),
        cmocka_unit_test(bytecomp_gaps),
        cmocka_unit_test(bytecomp_skips_no_gain),
        cmocka_unit_test(event_equals_serial_on_chains),
        cmocka_unit_test(monotone_levels),
        cmocka_unit_test(spans_are_sound),
        cmocka_unit_test(jobs_equal_plan),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(gap_of_any_size),
        cmocka_unit_test(tree_options_are_the_callers),
        cmocka_unit_test(structs_are_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
