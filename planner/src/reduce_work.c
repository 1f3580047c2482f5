/*
 * Among plans of one makespan, one with less codec work.
 *
 * Exact solvers compare makespans alone. Where the network is hidden behind backprop many plans are equal,
 * and the one that is found may compress what could as well travel dense. This pass gives groups cheaper
 * methods as long as the makespan does not grow: first less codec work, then a smaller error, then less time
 * on the network. It is greedy, from the first message on, as the first have the most time to hide in: a plan
 * that it leaves has no single group that could be cheaper, but may not be the least of all.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"

#define PASSES_MAX 16u
#define STEPS_MAX  (UINT64_C(1) << 22) /* of the clock: some 10 ms */

typedef struct reduction {
    const gw_plan_problem *problem;
    gw_plan *plan;
    gw_plan_vector *vectors; /* [group_count] as the groups are now */
    int64_t *len;            /* [group_count] */
    gw_plan_tick *bwd;       /* [group_count] */
    uint32_t *forbidden;     /* [group_count] */
    int64_t error;           /* of the plan */
    gw_plan_tick makespan;
    uint64_t steps;
} reduction;

/* Cost of a group other than its part in the makespan. */
typedef struct group_price {
    gw_plan_tick work; /* encode, owner's step, decode, copies */
    int64_t error;
    gw_plan_tick net;
} group_price;

static group_price price_of(const gw_plan_method *method, const gw_plan_vector *v, int64_t len)
{
    const gw_plan_tick sum = gw_method_sum(method, len);
    return (group_price){v->gpu + v->cpu + v->tail + v->tail_cpu + sum, method->error * len, v->net - sum};
}

static int is_less(const group_price *a, const group_price *b)
{
    if (a->work != b->work) {
        return a->work < b->work;
    }
    return a->error != b->error ? a->error < b->error : a->net < b->net;
}

static int open_groups(reduction *t, gw_arena *arena)
{
    const uint32_t count = t->plan->group_count;
    t->vectors = gw_arena_take(arena, count, sizeof *t->vectors);
    t->len = gw_arena_take(arena, count, sizeof *t->len);
    t->bwd = gw_arena_take(arena, count, sizeof *t->bwd);
    t->forbidden = gw_arena_take(arena, count, sizeof *t->forbidden);
    if (t->vectors == NULL || t->len == NULL || t->bwd == NULL || t->forbidden == NULL) {
        return 0;
    }
    t->error = 0;
    for (uint32_t j = 0; j < count; j++) {
        const gw_plan_group *group = &t->plan->groups[j];
        t->len[j] = 0;
        t->bwd[j] = 0;
        t->forbidden[j] = 0;
        for (uint32_t i = group->first; i < group->first + group->tensor_count; i++) {
            t->len[j] += t->problem->tensors[i].len;
            t->bwd[j] += t->problem->tensors[i].bwd;
            t->forbidden[j] |= t->problem->tensors[i].forbidden;
        }
        gw_method_vector(&t->problem->methods[group->method], t->len[j], &t->vectors[j]);
        t->error += t->problem->methods[group->method].error * t->len[j];
    }
    return 1;
}

/* The makespan with `v` for group j; `before`: the clock after the groups before it. */
static gw_plan_tick makespan_with(reduction *t, gw_serial_clock before, uint32_t j, const gw_plan_vector *v)
{
    gw_serial_step(&before, t->bwd[j], v);
    for (uint32_t i = j + 1; i < t->plan->group_count; i++) {
        gw_serial_step(&before, t->bwd[i], &t->vectors[i]);
    }
    t->steps += t->plan->group_count - j;
    return gw_serial_finish(&before, t->problem->decode);
}

/* Gives group j its cheapest method that the makespan allows. Returns whether it is another one. */
static int cheaper(reduction *t, const gw_serial_clock *before, uint32_t j)
{
    const gw_plan_problem *problem = t->problem;
    const uint32_t was = t->plan->groups[j].method;
    uint32_t best = was;
    group_price least = price_of(&problem->methods[was], &t->vectors[j], t->len[j]);
    const int64_t others = t->error - least.error;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        if (m == was || (t->forbidden[j] >> m & 1u) != 0) {
            continue;
        }
        gw_plan_vector v;
        gw_method_vector(&problem->methods[m], t->len[j], &v);
        const group_price price = price_of(&problem->methods[m], &v, t->len[j]);
        if (!is_less(&price, &least) ||
            (problem->error_max > 0 && others + price.error > problem->error_max)) {
            continue;
        }
        const gw_plan_tick makespan = makespan_with(t, *before, j, &v);
        if (makespan <= t->makespan) {
            best = m;
            least = price;
            t->vectors[j] = v;
            t->error = others + price.error;
            t->makespan = makespan;
        }
    }
    t->plan->groups[j].method = best;
    return best != was;
}

gw_plan_tick gw_plan_reduce_work(const gw_plan_problem *problem, gw_plan *plan, gw_plan_tick makespan,
                                 gw_arena *arena)
{
    reduction t = {problem, plan, NULL, NULL, NULL, NULL, 0, makespan, 0};
    arena->used = 0;
    if (problem->method_count < 2 || !open_groups(&t, arena)) {
        return makespan;
    }
    int changed = 1;
    for (uint32_t pass = 0; changed && pass < PASSES_MAX; pass++) {
        gw_serial_clock clock = GW_SERIAL_CLOCK_ZERO;
        changed = 0;
        for (uint32_t j = 0; j < plan->group_count && t.steps < STEPS_MAX; j++) {
            changed |= cheaper(&t, &clock, j);
            gw_serial_step(&clock, t.bwd[j], &t.vectors[j]);
        }
    }
    return t.makespan;
}
