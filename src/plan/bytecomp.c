/*
 * ByteComp's own algorithms at the serial level, as baselines.
 *
 * Algorithm 1: start from the dense option of every tensor. Visit size classes in the order given (largest
 * first) and inside a class the tensor latest in backprop first; try every candidate, keep the best, ties
 * keep the current one. Tensors that cannot shorten the iteration are skipped. Repeat until a sweep improves
 * nothing (the paper makes one sweep). Algorithm 2: groups of equal (class, option) among compressed tensors;
 * from each group the u earliest in backprop go to the CPU; all combinations of counts u. Both are
 * heuristics: moving single tensors stalls on ties, and offloading the earliest is not always best (see
 * tests/plan).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

#define COMBINATIONS_MAX (UINT64_C(1) << 16)

size_t gw_plan_bytecomp_workspace_size(const gw_plan_tree *tree)
{
    return tree == NULL ? 0 : (size_t)tree->tensor_count * 6 * sizeof(uint32_t) + 128;
}

static const gw_plan_vector *vector_at(const gw_plan_tree *tree, uint32_t tensor, uint32_t choice)
{
    return &tree->vectors[tree->class_first[tree->tensor_class[tensor]] + choice];
}

/*
 * Makespan; *bubble receives the last tensor k before which the network was idle and at the end of whose
 * communication no earlier decode is left.
 *
 * A tensor i < k whose option costs nothing but network time cannot shorten the iteration by another
 * option: encoders then finish no earlier anywhere, so k's communication starts no earlier (it did not
 * wait for the network) and ends no earlier, so neither does its decode (it did not wait for decodes).
 * Behind k every clock then shows the same time or a later one, the sum of decodes included. An idle
 * network alone is not enough: a long decode queued before the bubble may reach beyond it.
 */
static gw_plan_tick run(const gw_plan_tree *tree, const uint32_t *choice, uint32_t *bubble)
{
    gw_serial_clock clock = {0, 0, 0, 0, 0, 0};
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        const gw_plan_vector *v = vector_at(tree, i, choice[i]);
        gw_plan_tick network_end = clock.c;
        gw_plan_tick decode_end = tree->decode == GW_PLAN_DECODE_SERIAL ? clock.q : clock.f;
        gw_serial_step(&clock, tree->bwd[i], v->gpu, v->cpu, v->net, v->tail);
        if (bubble != NULL && clock.c - v->net > network_end && clock.c >= decode_end) {
            *bubble = i;
        }
    }
    return gw_serial_finish(&clock, tree->decode);
}

static gw_plan_tick algorithm_1(const gw_plan_tree *tree, const uint8_t *candidate, uint32_t *choice,
                                uint64_t *evaluated)
{
    uint32_t n = tree->tensor_count;
    gw_plan_tick best = run(tree, choice, NULL);
    for (int improved = 1; improved;) {
        improved = 0;
        for (uint32_t c = 0; c < tree->class_count; c++) {
            for (uint32_t i = n; i-- > 0;) {
                if (tree->tensor_class[i] != c) {
                    continue;
                }
                uint32_t bubble = 0;
                (void)run(tree, choice, &bubble);
                const gw_plan_vector *now = vector_at(tree, i, choice[i]);
                if (i < bubble && now->gpu == 0 && now->cpu == 0 && now->tail == 0) {
                    continue;
                }
                uint32_t kept = choice[i];
                for (uint32_t v = 0; v < tree->class_first[c + 1] - tree->class_first[c]; v++) {
                    if (candidate != NULL && candidate[tree->class_first[c] + v] == 0) {
                        continue;
                    }
                    choice[i] = v;
                    gw_plan_tick makespan = run(tree, choice, NULL);
                    (*evaluated)++;
                    if (makespan < best) {
                        best = makespan;
                        kept = v;
                        improved = 1;
                    }
                }
                choice[i] = kept;
            }
        }
    }
    return best;
}

/* Largest count of tensors a group may try after `count`: all, or powers of two when combinations are too
 * many. */
static uint32_t next_count(uint32_t count, uint32_t size, int powers)
{
    uint32_t next = !powers || count == 0 ? count + 1 : 2 * count;
    return count < size && next > size ? size : next;
}

static gw_plan_tick algorithm_2(const gw_plan_tree *tree, const uint32_t *start, const uint32_t *cpu_of,
                                gw_plan_tick best, uint32_t *choice, uint32_t *group_of, uint32_t *group_size,
                                uint32_t *count, uint32_t *trial, uint64_t *evaluated, int *stopped)
{
    uint32_t n = tree->tensor_count;
    uint32_t group_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        group_of[i] = GW_PLAN_NO_INDEX;
        uint32_t v = tree->class_first[tree->tensor_class[i]] + choice[i];
        if (choice[i] == start[i] || cpu_of[v] == GW_PLAN_NO_INDEX) {
            continue;
        }
        for (uint32_t j = 0; j < i && group_of[i] == GW_PLAN_NO_INDEX; j++) {
            if (group_of[j] != GW_PLAN_NO_INDEX && tree->tensor_class[j] == tree->tensor_class[i] &&
                choice[j] == choice[i]) {
                group_of[i] = group_of[j];
            }
        }
        if (group_of[i] == GW_PLAN_NO_INDEX) {
            group_size[group_count] = 0;
            group_of[i] = group_count++;
        }
        group_size[group_of[i]]++;
    }
    uint64_t combinations = 1;
    for (uint32_t g = 0; g < group_count && combinations <= COMBINATIONS_MAX; g++) {
        combinations *= group_size[g] + UINT64_C(1);
    }
    int powers = combinations > COMBINATIONS_MAX;
    for (uint32_t g = 0; g < group_count; g++) {
        count[g] = 0;
    }
    uint32_t *base = group_of + n; /* the GPU choice, n entries */
    for (uint32_t i = 0; i < n; i++) {
        base[i] = choice[i];
    }
    uint64_t tried = 0;
    for (;;) {
        uint32_t g = 0;
        while (g < group_count && count[g] == group_size[g]) {
            count[g++] = 0;
        }
        if (g == group_count) {
            break;
        }
        count[g] = next_count(count[g], group_size[g], powers);
        if (++tried > COMBINATIONS_MAX) {
            *stopped = 1;
            break;
        }
        for (uint32_t j = 0; j < group_count; j++) {
            group_size[j + n] = 0; /* offloaded so far, second half of the array */
        }
        for (uint32_t i = 0; i < n; i++) {
            trial[i] = base[i];
            uint32_t group = group_of[i];
            if (group != GW_PLAN_NO_INDEX && group_size[group + n] < count[group]) {
                group_size[group + n]++;
                uint32_t first = tree->class_first[tree->tensor_class[i]];
                trial[i] = cpu_of[first + base[i]] - first;
            }
        }
        gw_plan_tick makespan = run(tree, trial, NULL);
        (*evaluated)++;
        if (makespan < best) {
            best = makespan;
            for (uint32_t i = 0; i < n; i++) {
                choice[i] = trial[i];
            }
        }
    }
    return best;
}

gw_plan_status gw_plan_bytecomp(const gw_plan_tree *tree, const uint32_t *start, const uint8_t *candidate,
                                const uint32_t *cpu_of, void *workspace, size_t workspace_size,
                                uint32_t *choice, gw_plan_cert *cert)
{
    if (start == NULL || choice == NULL || cert == NULL) {
        return GW_PLAN_ERR_ARG;
    }
    gw_plan_tick makespan;
    gw_plan_status status = gw_plan_tree_eval(tree, start, &makespan); /* checks everything */
    if (status != GW_PLAN_OK) {
        return status;
    }
    uint32_t n = tree->tensor_count;
    gw_arena arena;
    if (!gw_arena_open(&arena, workspace, workspace_size)) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    uint32_t *group_of = gw_arena_take(&arena, 2 * (size_t)n, sizeof(uint32_t));
    uint32_t *group_size = gw_arena_take(&arena, 2 * (size_t)n, sizeof(uint32_t));
    uint32_t *count = gw_arena_take(&arena, n, sizeof(uint32_t));
    uint32_t *trial = gw_arena_take(&arena, n, sizeof(uint32_t));
    if (group_of == NULL || group_size == NULL || count == NULL || trial == NULL) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    for (uint32_t i = 0; i < n; i++) {
        choice[i] = start[i];
    }
    gw_plan_cert result = {0, 0, 0, 0, 1, 0};
    result.makespan = algorithm_1(tree, candidate, choice, &result.labels);
    if (cpu_of != NULL) {
        result.makespan = algorithm_2(tree, start, cpu_of, result.makespan, choice, group_of, group_size,
                                      count, trial, &result.labels, &result.stopped);
    }
    /* Backprop alone is a bound; callers that want a better one use gw_plan_tree_solve(). */
    for (uint32_t i = 0; i < n; i++) {
        result.lower_bound += tree->bwd[i];
    }
    result.proven = result.makespan == result.lower_bound;
    *cert = result;
    return GW_PLAN_OK;
}
