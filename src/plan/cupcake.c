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
 * read literally (a startup time for nothing) it loses the optimum of about a quarter of random instances.
 * The plan of one group is evaluated first, since the recursion starts with a first group.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

typedef struct frame {
    gw_serial_clock clock;
    uint32_t first; /* start of the next group */
    uint32_t end;   /* next end to try */
} frame;

size_t gw_cupcake_workspace(uint32_t tensor_count)
{
    size_t n = (size_t)tensor_count + 2;
    return n * (sizeof(frame) + 16 + sizeof(uint32_t)) + 64;
}

static gw_plan_tick curve_rest(const gw_plan_cost *cost, int64_t elems, int empty, int literal_empty)
{
    return empty && !literal_empty ? 0 : gw_cost_at(cost, elems);
}

gw_plan_status gw_cupcake(const gw_plan_problem *problem, uint32_t method_index, int literal_empty,
                          const gw_plan_limits *limits, gw_arena *arena, gw_plan *plan, gw_plan_cert *cert)
{
    uint32_t n = problem->tensor_count;
    const gw_plan_method *method = &problem->methods[method_index];
    frame *stack = gw_arena_take(arena, (size_t)n + 1, sizeof(frame));
    int64_t *elems = gw_arena_take(arena, (size_t)n + 1, sizeof(int64_t));
    gw_plan_tick *bwd = gw_arena_take(arena, (size_t)n + 1, sizeof(gw_plan_tick));
    if (stack == NULL || elems == NULL || bwd == NULL) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    if (plan->capacity < n) {
        return GW_PLAN_ERR_CAPACITY;
    }
    elems[0] = 0;
    bwd[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        elems[i + 1] = elems[i] + problem->tensors[i].elems;
        bwd[i + 1] = bwd[i] + problem->tensors[i].bwd;
    }
    gw_plan_tick best = INT64_MAX;
    gw_plan_tick one = INT64_MAX;
    if (gw_baseline_best_even(problem, method_index, plan) == GW_PLAN_OK) {
        (void)gw_plan_eval(problem, plan, &best);
    }
    gw_serial_clock whole = {0, 0, 0, 0, 0, 0};
    gw_serial_group(&whole, method, bwd[n], elems[n]);
    one = gw_serial_finish(&whole, problem->decode);
    if (one <= best) {
        best = one;
        plan->groups[0] = (gw_plan_group){0, n, method_index};
        plan->group_count = 1;
    }
    uint64_t work = 0;
    int64_t start = limits != NULL && limits->clock != NULL ? limits->clock(limits->clock_context) : 0;
    uint32_t depth = 0;
    stack[0].clock = (gw_serial_clock){0, 0, 0, 0, 0, 0};
    stack[0].first = 0;
    stack[0].end = 1;
    cert->stopped = 0;
    for (;;) {
        frame *top = &stack[depth];
        if (top->end > n) {
            if (depth == 0) {
                break;
            }
            depth--;
            continue;
        }
        uint32_t first = top->first;
        uint32_t end = top->end++;
        work++;
        if (limits != NULL && (work & 1023u) == 0 &&
            ((limits->work_max != 0 && work > limits->work_max) ||
             (limits->clock != NULL && limits->clock_max > 0 &&
              limits->clock(limits->clock_context) - start > limits->clock_max))) {
            cert->stopped = 1;
            break;
        }
        gw_serial_clock clock = top->clock;
        gw_serial_group(&clock, method, bwd[end] - bwd[first], elems[end] - elems[first]);
        int empty = end == n;
        gw_plan_tick bound =
            gw_tick_max(clock.c + curve_rest(&method->net, elems[n] - elems[end], empty, literal_empty),
                        clock.e + bwd[n] - bwd[end] +
                            curve_rest(&method->enc, elems[n] - elems[end], empty, literal_empty));
        if (bound > best) {
            continue;
        }
        if (end == n) {
            gw_plan_tick total = gw_serial_finish(&clock, problem->decode);
            if (total < best) {
                best = total;
                plan->group_count = depth + 1;
                for (uint32_t j = 0; j <= depth; j++) {
                    uint32_t group_end = stack[j].end - 1;
                    plan->groups[j] =
                        (gw_plan_group){stack[j].first, group_end - stack[j].first, method_index};
                }
            }
            continue;
        }
        depth++;
        frame *next = &stack[depth];
        next->clock = clock;
        next->first = end;
        next->end = end + 1;
        gw_plan_tick delay = clock.c - clock.e;
        while (next->end < n &&
               bwd[next->end + 1] - bwd[end] + gw_cost_at(&method->enc, elems[next->end + 1] - elems[end]) <=
                   delay) {
            next->end++;
        }
    }
    cert->labels = work;
    return GW_PLAN_OK;
}
