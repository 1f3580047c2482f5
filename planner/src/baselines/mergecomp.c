/*
 * MergeComp Algorithm 2: the best partition into at most Y = 2, 3 or 4 groups. The makespan over one cut is
 * taken to be unimodal, so the last cut is found by bisection on its slope; earlier cuts are tried
 * exhaustively. Where the slope is flat bisection may turn the wrong way: that is the published method, and
 * its misses against the exact optimum are regression tests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "baselines.h"

typedef struct mergecomp {
    const gw_plan_problem *problem;
    const gw_plan_method *method;
    gw_plan_sums sums;
    uint64_t evaluated;
    gw_plan_tick best;
    uint32_t cuts[3]; /* of the best, ascending; tensor_count: unused */
} mergecomp;

static void step(const mergecomp *s, gw_serial_clock *clock, uint32_t first, uint32_t end)
{
    gw_serial_group(clock, s->method, s->sums.bwd[end] - s->sums.bwd[first],
                    s->sums.len[end] - s->sums.len[first]);
}

static gw_plan_tick cut_at(mergecomp *s, gw_serial_clock clock, uint32_t first, uint32_t cut)
{
    uint32_t n = s->problem->tensor_count;
    step(s, &clock, first, cut);
    step(s, &clock, cut, n);
    s->evaluated++;
    return gw_serial_finish(&clock, s->problem->decode);
}

/* Best cut of first..n-1 into two groups, first < cut < n, after the cuts `a` and `b` (0: none). */
static void bisect(mergecomp *s, const gw_serial_clock *clock, uint32_t a, uint32_t b)
{
    uint32_t n = s->problem->tensor_count;
    uint32_t first = b > 0 ? b : a;
    uint32_t low = first + 1;
    uint32_t high = n - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cut_at(s, *clock, first, middle) <= cut_at(s, *clock, first, middle + 1)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    gw_plan_tick makespan = cut_at(s, *clock, first, low);
    if (makespan < s->best) {
        s->best = makespan;
        s->cuts[0] = a > 0 ? a : low;
        s->cuts[1] = a == 0 ? n : b > 0 ? b : low;
        s->cuts[2] = b > 0 ? low : n;
    }
}

gw_status gw_mergecomp(const gw_plan_problem *problem, uint32_t method, uint32_t group_count_max,
                       gw_plan *plan, gw_plan_cert *cert, gw_arena *arena)
{
    uint32_t n = problem->tensor_count;
    const gw_serial_clock zero = GW_SERIAL_CLOCK_ZERO;
    mergecomp s = {.problem = problem, .method = &problem->methods[method], .cuts = {n, n, n}};
    if (!gw_plan_sums_make(problem, arena, &s.sums)) {
        return GW_ERR_WORKSPACE;
    }
    gw_serial_clock whole = zero;
    step(&s, &whole, 0, n);
    s.best = gw_serial_finish(&whole, problem->decode);
    if (n >= 2) {
        bisect(&s, &zero, 0, 0);
    }
    for (uint32_t a = 1; group_count_max >= 3 && a + 1 < n; a++) {
        gw_serial_clock after_a = zero;
        step(&s, &after_a, 0, a);
        bisect(&s, &after_a, a, 0);
        for (uint32_t b = a + 1; group_count_max >= 4 && b + 1 < n; b++) {
            gw_serial_clock after_b = after_a;
            step(&s, &after_b, a, b);
            bisect(&s, &after_b, a, b);
        }
    }
    uint32_t first = 0;
    plan->group_count = 0;
    for (uint32_t j = 0; j < 4 && first < n; j++) {
        uint32_t end = j < 3 ? s.cuts[j] : n;
        if (!gw_plan_append(plan, first, end, method)) {
            return GW_ERR_DST;
        }
        first = end;
    }
    cert->labels = s.evaluated;
    return GW_OK;
}
