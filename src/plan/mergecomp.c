/*
 * MergeComp Algorithm 2: the best partition into at most Y = 2, 3 or 4 groups. The makespan over one cut is
 * taken to be unimodal, so the last cut is found by bisection on its slope; earlier cuts are tried
 * exhaustively. Where the slope is flat bisection may turn the wrong way: that is the published method, and
 * its misses against the exact optimum are regression tests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

typedef struct prefix {
    const gw_plan_problem *problem;
    const gw_plan_method *method;
    const int64_t *elems;    /* [n + 1] sums */
    const gw_plan_tick *bwd; /* [n + 1] sums */
    uint64_t evaluated;
} prefix;

static void step(const prefix *s, gw_serial_clock *clock, uint32_t first, uint32_t end)
{
    gw_serial_group(clock, s->method, s->bwd[end] - s->bwd[first], s->elems[end] - s->elems[first]);
}

static gw_plan_tick cut_at(prefix *s, gw_serial_clock clock, uint32_t first, uint32_t cut)
{
    uint32_t n = s->problem->tensor_count;
    step(s, &clock, first, cut);
    step(s, &clock, cut, n);
    s->evaluated++;
    return gw_serial_finish(&clock, s->problem->decode);
}

/* Best cut of first..n-1 into two groups, first < cut < n. */
static gw_plan_tick bisect(prefix *s, const gw_serial_clock *clock, uint32_t first, uint32_t *cut)
{
    uint32_t low = first + 1;
    uint32_t high = s->problem->tensor_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cut_at(s, *clock, first, middle) <= cut_at(s, *clock, first, middle + 1)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *cut = low;
    return cut_at(s, *clock, first, low);
}

gw_plan_status gw_mergecomp(const gw_plan_problem *problem, uint32_t method, uint32_t group_count_max,
                            gw_arena *arena, gw_plan *plan, gw_plan_cert *cert)
{
    uint32_t n = problem->tensor_count;
    int64_t *elems = gw_arena_take(arena, (size_t)n + 1, sizeof(int64_t));
    gw_plan_tick *bwd = gw_arena_take(arena, (size_t)n + 1, sizeof(gw_plan_tick));
    if (elems == NULL || bwd == NULL) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    elems[0] = 0;
    bwd[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        elems[i + 1] = elems[i] + problem->tensors[i].elems;
        bwd[i + 1] = bwd[i] + problem->tensors[i].bwd;
    }
    prefix s = {problem, &problem->methods[method], elems, bwd, 0};
    const gw_serial_clock zero = {0, 0, 0, 0, 0, 0};
    uint32_t cuts[3] = {n, n, n}; /* ascending, n: unused */
    gw_serial_clock whole = zero;
    step(&s, &whole, 0, n);
    gw_plan_tick best = gw_serial_finish(&whole, problem->decode);
    uint32_t cut;
    if (n >= 2) {
        gw_plan_tick two = bisect(&s, &zero, 0, &cut);
        if (two < best) {
            best = two;
            cuts[0] = cut;
        }
    }
    for (uint32_t a = 1; group_count_max >= 3 && a + 1 < n; a++) {
        gw_serial_clock after_a = zero;
        step(&s, &after_a, 0, a);
        gw_plan_tick three = bisect(&s, &after_a, a, &cut);
        if (three < best) {
            best = three;
            cuts[0] = a;
            cuts[1] = cut;
            cuts[2] = n;
        }
        for (uint32_t b = a + 1; group_count_max >= 4 && b + 1 < n; b++) {
            gw_serial_clock after_b = after_a;
            step(&s, &after_b, a, b);
            gw_plan_tick four = bisect(&s, &after_b, b, &cut);
            if (four < best) {
                best = four;
                cuts[0] = a;
                cuts[1] = b;
                cuts[2] = cut;
            }
        }
    }
    uint32_t first = 0;
    plan->group_count = 0;
    for (uint32_t j = 0; j < 4 && first < n; j++) {
        uint32_t end = j < 3 ? cuts[j] : n;
        if (plan->group_count == plan->capacity) {
            return GW_PLAN_ERR_CAPACITY;
        }
        plan->groups[plan->group_count++] = (gw_plan_group){first, end - first, method};
        first = end;
    }
    cert->labels = s.evaluated;
    return GW_PLAN_OK;
}
