/*
 * Exact fusion for one method with affine GPU encode and no decode, in O(N Y) for Y explored layers (affine
 * network curve) or O(N^2 Y) (any network curve).
 *
 * E(k, j) = PB[k] + j a_h + b_h PS[k] is the end of backprop and encoding of the first k tensors in j groups,
 * wherever the cuts lie, because the encode cost is additive up to its startup. So among plans of the first k
 * tensors in j groups the one whose network ends first (F) is at least as good as any other in every
 * continuation (max and + are monotone), and
 *
 *     F(k, j) = min over j-1 <= i < k of  max(F(i, j-1), E(k, j)) + g(PS[k] - PS[i]).
 *
 * With g(x) = a_g + b_g x let V(i) = F(i, j-1) - b_g PS[i]; then
 *     F(k, j) = a_g + b_g PS[k] + min( E(k, j) - b_g PS[i]  over F(i) <= E,   V(i)  over F(i) > E ).
 * A candidate i with F(i) >= F(i') for a later i' is useless in both (PS does not fall), so the living
 * candidates form a stack with F and i ascending. E(k, j) does not fall with k, so the number of entries with
 * F <= E only grows or is cut by pops; the best of them is the topmost; the rest needs a minimum of V over a
 * suffix, kept in a deque of stack positions. Each candidate enters and leaves once: O(1) amortised for each
 * (k, j).
 *
 * Layers stop as soon as E(N, j) + g(s_{N-1}) cannot beat the best: the last group holds at least the last
 * tensor, and E(N, j) does not fall with j.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"

int gw_fuse_affine_applies(const gw_plan_problem *problem, int net_may_bend)
{
    const gw_plan_method *method = &problem->methods[0];
    return problem->method_count == 1 && problem->group_len_max == 0 && method->device == GW_PLAN_GPU &&
           method->owner_count == 0 && method->enc.kind == GW_PLAN_COST_AFFINE &&
           gw_cost_is_zero(&method->dec) && gw_cost_is_zero(&method->dec_more) &&
           (net_may_bend || method->net.kind == GW_PLAN_COST_AFFINE);
}

size_t gw_fuse_affine_workspace(uint32_t tensor_count)
{
    size_t n = (size_t)tensor_count + 1;
    return 6 * 8 * n + 3 * 8 * n + n * n * sizeof(uint32_t) + 64;
}

typedef struct affine_state {
    const gw_plan_method *method;
    uint32_t n;
    gw_plan_sums sums;
    gw_plan_tick *ready_base; /* PB[k] + b_h PS[k] */
    gw_plan_tick *prev;       /* F(., j-1) */
    gw_plan_tick *next;       /* F(., j) */
    gw_plan_tick *value;      /* V of stack entries */
    uint32_t *stack;
    uint32_t *deque; /* stack positions, V ascending from front to back */
    /* One row of parents per layer, in what is left of the workspace: only explored layers are touched. */
    uint32_t *parents;
    size_t layers_max;
} affine_state;

static void layer_linear(const affine_state *s, uint32_t j, uint32_t *parent)
{
    gw_plan_tick a_h = s->method->enc.a;
    gw_plan_tick a_g = s->method->net.a;
    gw_plan_tick b_g = s->method->net.b;
    uint32_t size = 0;    /* stack entries */
    uint32_t reached = 0; /* entries with F <= E */
    uint32_t front = 0;   /* deque[front .. back) */
    uint32_t back = 0;
    for (uint32_t k = j; k <= s->n; k++) {
        uint32_t i = k - 1;
        gw_plan_tick f = s->prev[i];
        gw_plan_tick v = f - b_g * s->sums.len[i];
        while (size > 0 && s->prev[s->stack[size - 1]] >= f) {
            size--;
        }
        reached = reached < size ? reached : size;
        /* Popped entries have V >= v (F larger or equal, PS smaller or equal), so this removes them too. */
        while (back > front && s->value[s->deque[back - 1]] >= v) {
            back--;
        }
        s->stack[size] = i;
        s->value[size] = v;
        s->deque[back++] = size;
        size++;
        gw_plan_tick e = s->ready_base[k] + (gw_plan_tick)j * a_h;
        while (reached < size && s->prev[s->stack[reached]] <= e) {
            reached++;
        }
        while (front < back && s->deque[front] < reached) {
            front++;
        }
        gw_plan_tick best = INT64_MAX;
        uint32_t from = 0;
        if (reached > 0) {
            from = s->stack[reached - 1];
            best = e - b_g * s->sums.len[from];
        }
        if (front < back && s->value[s->deque[front]] < best) {
            best = s->value[s->deque[front]];
            from = s->stack[s->deque[front]];
        }
        s->next[k] = best + a_g + b_g * s->sums.len[k];
        parent[k] = from;
    }
}

static void layer_quadratic(const affine_state *s, uint32_t j, uint32_t *parent)
{
    for (uint32_t k = j; k <= s->n; k++) {
        gw_plan_tick e = s->ready_base[k] + (gw_plan_tick)j * s->method->enc.a;
        gw_plan_tick best = INT64_MAX;
        uint32_t from = 0;
        for (uint32_t i = j - 1; i < k; i++) {
            gw_plan_tick end =
                gw_tick_max(s->prev[i], e) + gw_cost_at(&s->method->net, s->sums.len[k] - s->sums.len[i]);
            if (end < best) {
                best = end;
                from = i;
            }
        }
        s->next[k] = best;
        parent[k] = from;
    }
}

/* The layer of one group: only i = 0 precedes it. */
static void layer_first(const affine_state *s, uint32_t *parent)
{
    for (uint32_t k = 1; k <= s->n; k++) {
        s->next[k] = s->ready_base[k] + s->method->enc.a + gw_cost_at(&s->method->net, s->sums.len[k]);
        parent[k] = 0;
    }
}

static int open_state(const gw_plan_problem *problem, gw_arena *arena, affine_state *s)
{
    const size_t n = problem->tensor_count;
    s->method = &problem->methods[0];
    s->n = problem->tensor_count;
    if (!gw_plan_sums_make(problem, arena, &s->sums)) {
        return 0;
    }
    s->ready_base = gw_arena_take(arena, n + 1, sizeof(gw_plan_tick));
    s->prev = gw_arena_take(arena, n + 1, sizeof(gw_plan_tick));
    s->next = gw_arena_take(arena, n + 1, sizeof(gw_plan_tick));
    s->value = gw_arena_take(arena, n + 1, sizeof(gw_plan_tick));
    s->stack = gw_arena_take(arena, n + 1, sizeof(uint32_t));
    s->deque = gw_arena_take(arena, n + 1, sizeof(uint32_t));
    if (s->ready_base == NULL || s->prev == NULL || s->next == NULL || s->value == NULL || s->stack == NULL ||
        s->deque == NULL) {
        return 0;
    }
    for (size_t i = 0; i <= n; i++) {
        s->ready_base[i] = s->sums.bwd[i] + s->method->enc.b * s->sums.len[i];
    }
    s->prev[0] = 0;
    s->parents = (uint32_t *)(void *)(arena->base + arena->used);
    s->layers_max = (arena->size - arena->used) / ((n + 1) * sizeof(uint32_t));
    return 1;
}

/* Fills layers until more groups cannot help. *groups receives the best number of groups. */
static gw_status fill_layers(affine_state *s, int quadratic, gw_plan_cert *cert, uint32_t *groups)
{
    const uint32_t n = s->n;
    const size_t row = (size_t)n + 1;
    gw_plan_tick last_net = gw_cost_at(&s->method->net, s->sums.len[n] - s->sums.len[n - 1]);
    cert->makespan = INT64_MAX;
    cert->labels = 0;
    for (uint32_t j = 1; j <= n; j++) {
        gw_plan_tick floor_j = s->ready_base[n] + (gw_plan_tick)j * s->method->enc.a + last_net;
        if (floor_j >= cert->makespan) {
            break;
        }
        if (j > s->layers_max) {
            return GW_ERR_WORKSPACE;
        }
        uint32_t *parent = s->parents + (j - 1) * row;
        if (j == 1) {
            layer_first(s, parent);
        } else if (quadratic) {
            layer_quadratic(s, j, parent);
        } else {
            layer_linear(s, j, parent);
        }
        cert->labels += n - j + 1;
        if (s->next[n] < cert->makespan) {
            cert->makespan = s->next[n];
            *groups = j;
        }
        gw_plan_tick *swap = s->prev;
        s->prev = s->next;
        s->next = swap;
    }
    return GW_OK;
}

gw_status gw_fuse_affine(const gw_plan_problem *problem, int quadratic, gw_plan *plan, gw_plan_cert *cert,
                         gw_arena *arena)
{
    affine_state s;
    uint32_t groups = 0;
    if (!gw_fuse_affine_applies(problem, quadratic)) {
        return GW_ERR_OPTION;
    }
    if (!open_state(problem, arena, &s)) {
        return GW_ERR_WORKSPACE;
    }
    gw_status status = fill_layers(&s, quadratic, cert, &groups);
    if (status != GW_OK) {
        return status;
    }
    if (plan->capacity < groups) {
        return GW_ERR_DST;
    }
    uint32_t end = s.n;
    for (uint32_t j = groups; j > 0; j--) {
        uint32_t from = s.parents[(j - 1) * ((size_t)s.n + 1) + end];
        plan->groups[j - 1] = (gw_plan_group){from, end - from, 0};
        end = from;
    }
    plan->group_count = groups;
    cert->lower_bound = cert->makespan;
    cert->proven = 1;
    cert->rounds = 1;
    cert->stopped = 0;
    return GW_OK;
}
