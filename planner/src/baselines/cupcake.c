/*
 * Cupcake Algorithm 1 (MLSys 2023, Section 4): depth-first search over the end of the next group with two
 * prunings, started from the best even split into 2..32 groups.
 *
 *   Pruning 1: a partial plan M extended by a group ending at j cannot beat the best plan when
 *              max(C_j + g(rest), E_j + backprop(rest) + h(rest)) > best, rest taken as one group.
 *   Pruning 2: while the network is busy until C, a next group that is ready before C may as well hold more:
 *              ends before j* = the last end with backprop + encode of [i, j) <= C - E are skipped.
 *
 * Pruning 2 is exact for affine costs without decode and for nothing else; pruning 1 needs h(x) + h(y) >=
 * h(x+y). The paper leaves h and g of an empty rest open. Read as 0 the search is exact for affine curves;
 * read literally (a startup time for an empty group) it loses the optimum of about a quarter of random
 * instances. The plan of one group is evaluated first, since the recursion starts with a first group.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "baselines.h"

typedef struct frame {
    gw_serial_clock clock;
    uint32_t first; /* start of the next group */
    uint32_t end;   /* next end to try */
} frame;

typedef struct cupcake {
    const gw_plan_problem *problem;
    const gw_plan_method *method;
    gw_clock_guard guard;
    gw_plan_sums sums;
    frame *stack;
    gw_plan_tick best;
    int literal_empty;
} cupcake;

size_t gw_cupcake_workspace(uint32_t tensor_count)
{
    size_t n = (size_t)tensor_count + 2;
    return n * (sizeof(frame) + 16 + sizeof(uint32_t)) + 64;
}

/* The better of the best even split and the plan of one group. */
static void first_plan(cupcake *s, uint32_t method, gw_plan *plan)
{
    uint32_t n = s->problem->tensor_count;
    gw_plan_tick even;
    s->best = INT64_MAX;
    if (gw_baseline_best_even(s->problem, method, plan) == GW_OK &&
        gw_plan_eval(s->problem, plan, &even) == GW_OK) {
        s->best = even;
    }
    gw_serial_clock whole = GW_SERIAL_CLOCK_ZERO;
    gw_serial_group(&whole, s->method, s->sums.bwd[n], s->sums.len[n]);
    gw_plan_tick one = gw_serial_finish(&whole, s->problem->decode);
    if (one <= s->best) {
        s->best = one;
        plan->group_count = 0;
        (void)gw_plan_append(plan, 0, n, method);
    }
}

/* Pruning 1: a bound of all plans whose clocks after the first `end` tensors are these. */
static gw_plan_tick bound(const cupcake *s, const gw_serial_clock *clock, uint32_t end)
{
    uint32_t n = s->problem->tensor_count;
    int64_t rest = s->sums.len[n] - s->sums.len[end];
    int free_of_cost = end == n && !s->literal_empty;
    gw_plan_vector v;
    gw_method_vector(s->method, rest, &v);
    return gw_tick_max(clock->c + (free_of_cost ? 0 : v.net),
                       clock->e + s->sums.bwd[n] - s->sums.bwd[end] + (free_of_cost ? 0 : v.gpu));
}

/* Pruning 2: the first end to try for a group that starts at `first`. */
static uint32_t first_end(const cupcake *s, const gw_serial_clock *clock, uint32_t first)
{
    const int64_t *len = s->sums.len;
    const gw_plan_tick *bwd = s->sums.bwd;
    gw_plan_tick delay = clock->c - clock->e;
    uint32_t end = first + 1;
    for (; end < s->problem->tensor_count; end++) {
        gw_plan_vector v;
        gw_method_vector(s->method, len[end + 1] - len[first], &v);
        if (bwd[end + 1] - bwd[first] + v.gpu + v.cpu > delay) {
            break;
        }
    }
    return end;
}

/* Returns 1 when a limit ended the search. */
static int search(cupcake *s, uint32_t method, gw_plan *plan)
{
    const int64_t *len = s->sums.len;
    const gw_plan_tick *bwd = s->sums.bwd;
    uint32_t n = s->problem->tensor_count;
    uint32_t depth = 0;
    s->stack[0] = (frame){GW_SERIAL_CLOCK_ZERO, 0, 1};
    for (;;) {
        frame *top = &s->stack[depth];
        if (top->end > n) {
            if (depth == 0) {
                return 0;
            }
            depth--;
            continue;
        }
        uint32_t end = top->end++;
        s->guard.work++;
        if ((s->guard.work & 1023u) == 0 && gw_out_of_time(&s->guard)) {
            return 1;
        }
        gw_serial_clock clock = top->clock;
        gw_serial_group(&clock, s->method, bwd[end] - bwd[top->first], len[end] - len[top->first]);
        if (bound(s, &clock, end) > s->best) {
            continue;
        }
        if (end < n) {
            s->stack[++depth] = (frame){clock, end, first_end(s, &clock, end)};
            continue;
        }
        gw_plan_tick total = gw_serial_finish(&clock, s->problem->decode);
        if (total < s->best) {
            s->best = total;
            plan->group_count = 0;
            for (uint32_t j = 0; j <= depth; j++) {
                (void)gw_plan_append(plan, s->stack[j].first, s->stack[j].end - 1, method);
            }
        }
    }
}

gw_status gw_cupcake(const gw_plan_problem *problem, const gw_plan_solver *solver, gw_plan *plan,
                     gw_plan_cert *cert, gw_arena *arena)
{
    uint32_t n = problem->tensor_count;
    cupcake s = {.problem = problem,
                 .method = &problem->methods[solver->method],
                 .literal_empty = solver->algorithm == GW_PLAN_CUPCAKE_LITERAL};
    s.stack = gw_arena_take(arena, (size_t)n + 1, sizeof(frame));
    if (s.stack == NULL || !gw_plan_sums_make(problem, arena, &s.sums)) {
        return GW_ERR_WORKSPACE;
    }
    if (plan->capacity < n) {
        return GW_ERR_DST;
    }
    first_plan(&s, solver->method, plan);
    s.guard = gw_guard_open(&solver->limits);
    cert->stopped = search(&s, solver->method, plan);
    cert->labels = s.guard.work;
    return GW_OK;
}
