/*
 * ByteComp's published algorithms at the serial level, as baselines.
 *
 * Algorithm 1: start from the dense option of every tensor. Visit size classes in the order given (largest
 * first) and inside a class the tensor latest in backprop first; try every candidate, keep the best, ties
 * keep the current one. Tensors that cannot shorten the iteration are skipped. Repeat until a sweep improves
 * nothing (the paper makes one sweep).
 *
 * Algorithm 2: groups of equal (class, option) among compressed tensors; from each group the u earliest in
 * backprop move to the CPU; all combinations of counts u are tried.
 *
 * Both are heuristics: moving single tensors stalls on ties, and offloading the earliest is not always best
 * (planner/tests).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_arena.h"
#include "serial_clock.h"

#define COMBINATIONS_MAX (UINT64_C(1) << 16)

size_t gw_plan_bytecomp_workspace_size(const gw_plan_tree *tree)
{
    return tree == NULL ? 0 : (size_t)tree->tensor_count * 6 * sizeof(uint32_t) + 128;
}

/*
 * Makespan; *bubble receives the last tensor k before which the network was idle and at the end of whose
 * communication no earlier decode is left.
 *
 * A tensor i < k whose option costs nothing but network time cannot shorten the iteration by another
 * option: encoders then finish no earlier anywhere, so k's communication starts no earlier (it did not
 * wait for the network) and ends no earlier, so neither does its decode (it did not wait for decodes).
 * After k every clock then has the same value or a later one, the sum of decodes included. An idle network
 * alone is not enough: a long decode queued before the bubble may end after it.
 */
static gw_plan_tick run(const gw_plan_tree *tree, const uint32_t *choice, uint32_t *bubble)
{
    gw_serial_clock clock = GW_SERIAL_CLOCK_ZERO;
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        const gw_plan_vector *v = gw_tree_vector(tree, i, choice[i]);
        gw_plan_tick network_end = clock.c;
        gw_plan_tick decode_end =
            tree->decode == GW_PLAN_DECODE_SERIAL ? gw_tick_max(clock.q, clock.r) : clock.f;
        gw_serial_step(&clock, tree->bwd[i], v);
        if (bubble != NULL && clock.c - v->net > network_end && clock.c >= decode_end) {
            *bubble = i;
        }
    }
    return gw_serial_finish(&clock, tree->decode);
}

/* A choice with its makespan, and the effort spent on it. */
typedef struct bytecomp {
    const gw_plan_tree *tree;
    const gw_plan_bytecomp_input *input;
    uint32_t *choice; /* the best so far */
    gw_plan_tick best;
    uint64_t evaluated;
    int stopped;
    /* Algorithm 2 */
    uint32_t group_count;
    uint32_t *group_of;   /* [tensor_count] GW_PLAN_NO_INDEX: not in a group */
    uint32_t *group_size; /* [group] */
    uint32_t *moved;      /* [group] tensors moved so far in this trial */
    uint32_t *count;      /* [group] tensors to move in this trial */
    uint32_t *gpu_choice; /* [tensor_count] result of Algorithm 1 */
    uint32_t *trial;      /* [tensor_count] */
} bytecomp;

/* Tries every candidate of tensor i; returns 1 when one shortens the iteration. */
static int improve_tensor(bytecomp *s, uint32_t i)
{
    const gw_plan_tree *tree = s->tree;
    uint32_t first = tree->class_first[tree->tensor_class[i]];
    uint32_t end = tree->class_first[tree->tensor_class[i] + 1];
    uint32_t kept = s->choice[i];
    int improved = 0;
    for (uint32_t v = 0; v < end - first; v++) {
        if (s->input->candidate != NULL && s->input->candidate[first + v] == 0) {
            continue;
        }
        s->choice[i] = v;
        gw_plan_tick makespan = run(tree, s->choice, NULL);
        s->evaluated++;
        if (makespan < s->best) {
            s->best = makespan;
            kept = v;
            improved = 1;
        }
    }
    s->choice[i] = kept;
    return improved;
}

static void algorithm_1(bytecomp *s)
{
    const gw_plan_tree *tree = s->tree;
    s->best = run(tree, s->choice, NULL);
    for (int improved = 1; improved;) {
        improved = 0;
        for (uint32_t c = 0; c < tree->class_count; c++) {
            for (uint32_t i = tree->tensor_count; i-- > 0;) {
                if (tree->tensor_class[i] != c) {
                    continue;
                }
                uint32_t bubble = 0;
                (void)run(tree, s->choice, &bubble);
                const gw_plan_vector *now = gw_tree_vector(tree, i, s->choice[i]);
                int skipped =
                    i < bubble && now->gpu == 0 && now->cpu == 0 && now->tail == 0 && now->tail_cpu == 0;
                improved |= !skipped && improve_tensor(s, i);
            }
        }
    }
}

/* Groups of equal class and option among the tensors that Algorithm 1 compressed and the CPU can take. */
static void make_groups(bytecomp *s)
{
    const gw_plan_tree *tree = s->tree;
    s->group_count = 0;
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        uint32_t v = tree->class_first[tree->tensor_class[i]] + s->choice[i];
        s->gpu_choice[i] = s->choice[i];
        s->group_of[i] = GW_PLAN_NO_INDEX;
        if (s->choice[i] == s->input->start[i] || s->input->cpu_of[v] == GW_PLAN_NO_INDEX) {
            continue;
        }
        for (uint32_t j = 0; j < i && s->group_of[i] == GW_PLAN_NO_INDEX; j++) {
            if (s->group_of[j] != GW_PLAN_NO_INDEX && tree->tensor_class[j] == tree->tensor_class[i] &&
                s->choice[j] == s->choice[i]) {
                s->group_of[i] = s->group_of[j];
            }
        }
        if (s->group_of[i] == GW_PLAN_NO_INDEX) {
            s->group_size[s->group_count] = 0;
            s->count[s->group_count] = 0;
            s->group_of[i] = s->group_count++;
        }
        s->group_size[s->group_of[i]]++;
    }
}

/* 1 when there are more than COMBINATIONS_MAX combinations of counts. */
static int too_many_combinations(const bytecomp *s)
{
    uint64_t combinations = 1;
    for (uint32_t g = 0; g < s->group_count && combinations <= COMBINATIONS_MAX; g++) {
        combinations *= s->group_size[g] + UINT64_C(1);
    }
    return combinations > COMBINATIONS_MAX;
}

/* The count after `count`: all, or only powers of two and the group's size. */
static uint32_t next_count(uint32_t count, uint32_t size, int powers)
{
    uint32_t next = !powers || count == 0 ? count + 1 : 2 * count;
    return count < size && next > size ? size : next;
}

/* Advances the counts; 0 after the last combination. */
static int next_combination(bytecomp *s, int powers)
{
    uint32_t g = 0;
    while (g < s->group_count && s->count[g] == s->group_size[g]) {
        s->count[g++] = 0;
    }
    if (g == s->group_count) {
        return 0;
    }
    s->count[g] = next_count(s->count[g], s->group_size[g], powers);
    return 1;
}

/* Moves the first count[g] tensors of each group to the CPU. */
static void make_trial(bytecomp *s)
{
    const gw_plan_tree *tree = s->tree;
    for (uint32_t g = 0; g < s->group_count; g++) {
        s->moved[g] = 0;
    }
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        uint32_t group = s->group_of[i];
        s->trial[i] = s->gpu_choice[i];
        if (group != GW_PLAN_NO_INDEX && s->moved[group] < s->count[group]) {
            s->moved[group]++;
            uint32_t first = tree->class_first[tree->tensor_class[i]];
            s->trial[i] = s->input->cpu_of[first + s->gpu_choice[i]] - first;
        }
    }
}

static void algorithm_2(bytecomp *s)
{
    make_groups(s);
    int powers = too_many_combinations(s);
    for (uint64_t tried = 1; next_combination(s, powers); tried++) {
        if (tried > COMBINATIONS_MAX) {
            s->stopped = 1;
            return;
        }
        make_trial(s);
        gw_plan_tick makespan = run(s->tree, s->trial, NULL);
        s->evaluated++;
        if (makespan < s->best) {
            s->best = makespan;
            for (uint32_t i = 0; i < s->tree->tensor_count; i++) {
                s->choice[i] = s->trial[i];
            }
        }
    }
}

gw_status gw_plan_bytecomp(const gw_plan_tree *tree, const gw_plan_bytecomp_input *input, uint32_t *choice,
                           gw_plan_cert *cert, const gw_workspace *workspace)
{
    if (input == NULL || input->start == NULL || choice == NULL || cert == NULL) {
        return GW_ERR_ARG;
    }
    gw_plan_tick makespan;
    gw_status status = gw_plan_tree_eval(tree, input->start, &makespan); /* checks the tree */
    if (status != GW_OK) {
        return status;
    }
    uint32_t n = tree->tensor_count;
    gw_arena arena;
    if (!gw_arena_open(&arena, workspace)) {
        return GW_ERR_WORKSPACE;
    }
    bytecomp s = {.tree = tree, .input = input, .choice = choice};
    s.group_of = gw_arena_take(&arena, n, sizeof(uint32_t));
    s.gpu_choice = gw_arena_take(&arena, n, sizeof(uint32_t));
    s.group_size = gw_arena_take(&arena, n, sizeof(uint32_t));
    s.moved = gw_arena_take(&arena, n, sizeof(uint32_t));
    s.count = gw_arena_take(&arena, n, sizeof(uint32_t));
    s.trial = gw_arena_take(&arena, n, sizeof(uint32_t));
    if (s.group_of == NULL || s.gpu_choice == NULL || s.group_size == NULL || s.moved == NULL ||
        s.count == NULL || s.trial == NULL) {
        return GW_ERR_WORKSPACE;
    }
    gw_plan_tick backprop = 0; /* a bound; callers that want a better one use gw_plan_tree_solve() */
    for (uint32_t i = 0; i < n; i++) {
        choice[i] = input->start[i];
        backprop += tree->bwd[i];
    }
    algorithm_1(&s);
    if (input->cpu_of != NULL) {
        algorithm_2(&s);
    }
    *cert = (gw_plan_cert){s.best, backprop, s.best == backprop, s.evaluated, 1, s.stopped};
    return GW_OK;
}
