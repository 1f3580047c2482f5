/*
 * Option trees: dominance reduction, exact serial-level choice through the label engine, evaluation, brute
 * force.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "labels.h"

static int vector_less(const gw_plan_vector *a, const gw_plan_vector *b)
{
    if (a->gpu != b->gpu) {
        return a->gpu < b->gpu;
    }
    if (a->cpu != b->cpu) {
        return a->cpu < b->cpu;
    }
    if (a->net != b->net) {
        return a->net < b->net;
    }
    if (a->tail != b->tail) {
        return a->tail < b->tail;
    }
    return a->tail_cpu < b->tail_cpu;
}

uint32_t gw_plan_vectors_reduce(gw_plan_vector *vectors, uint32_t count, gw_plan_vector *scratch)
{
    /* Stable merge sort: of equal vectors the earliest comes first and survives. */
    gw_plan_vector *from = vectors;
    gw_plan_vector *to = scratch;
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t low = 0; low < count; low += 2 * width) {
            uint32_t middle = low + width < count ? low + width : count;
            uint32_t high = low + 2 * width < count ? low + 2 * width : count;
            uint32_t a = low;
            uint32_t b = middle;
            for (uint32_t out = low; out < high; out++) {
                to[out] =
                    a < middle && (b >= high || !vector_less(&from[b], &from[a])) ? from[a++] : from[b++];
            }
        }
        gw_plan_vector *swap = from;
        from = to;
        to = swap;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        int dominated = 0;
        for (uint32_t r = 0; r < kept && !dominated; r++) {
            const gw_plan_vector *v = &vectors[r];
            dominated = v->gpu <= from[i].gpu && v->cpu <= from[i].cpu && v->net <= from[i].net &&
                        v->tail <= from[i].tail && v->tail_cpu <= from[i].tail_cpu;
        }
        if (!dominated) {
            /* kept <= i, so when from == vectors nothing unread is overwritten. */
            vectors[kept++] = from[i];
        }
    }
    return kept;
}

/* Checks the vectors of a class; *longest receives the largest sum of times. */
static gw_status check_class(const gw_plan_tree *tree, uint32_t class_index, gw_plan_tick *longest)
{
    *longest = 0;
    for (uint32_t v = tree->class_first[class_index]; v < tree->class_first[class_index + 1]; v++) {
        const gw_plan_vector *vector = &tree->vectors[v];
        if (vector->gpu < 0 || vector->cpu < 0 || vector->net < 0 || vector->tail < 0 ||
            vector->tail_cpu < 0) {
            return GW_ERR_NEGATIVE;
        }
        if (vector->gpu >= GW_PLAN_TICK_MAX || vector->cpu >= GW_PLAN_TICK_MAX ||
            vector->net >= GW_PLAN_TICK_MAX || vector->tail >= GW_PLAN_TICK_MAX ||
            vector->tail_cpu >= GW_PLAN_TICK_MAX) {
            return GW_ERR_TICKS;
        }
        if (vector->tail > 0 && vector->tail_cpu > 0) {
            return GW_ERR_ARG;
        }
        *longest =
            gw_tick_max(*longest, vector->gpu + vector->cpu + vector->net + vector->tail + vector->tail_cpu);
    }
    return GW_OK;
}

static gw_status check(const gw_plan_tree *tree)
{
    if (tree == NULL || (tree->tensor_count > 0 && (tree->bwd == NULL || tree->tensor_class == NULL)) ||
        tree->vectors == NULL || tree->class_first == NULL ||
        (tree->decode != GW_PLAN_DECODE_SERIAL && tree->decode != GW_PLAN_DECODE_PARALLEL)) {
        return GW_ERR_ARG;
    }
    if (tree->tensor_count == 0 || tree->class_count == 0) {
        return GW_ERR_EMPTY;
    }
    if (tree->tensor_count > GW_PLAN_TENSORS_MAX) {
        return GW_ERR_LIMIT;
    }
    for (uint32_t c = 0; c < tree->class_count; c++) {
        if (tree->class_first[c + 1] <= tree->class_first[c]) {
            return GW_ERR_INFEASIBLE;
        }
    }
    gw_plan_tick total = 0;
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        gw_plan_tick longest = 0;
        if (tree->tensor_class[i] >= tree->class_count) {
            return GW_ERR_ARG;
        }
        gw_status status = check_class(tree, tree->tensor_class[i], &longest);
        if (status != GW_OK) {
            return status;
        }
        if (tree->bwd[i] < 0) {
            return GW_ERR_NEGATIVE;
        }
        if (tree->bwd[i] >= GW_PLAN_TICK_MAX || longest + tree->bwd[i] >= GW_PLAN_TICK_MAX - total) {
            return GW_ERR_TICKS;
        }
        total += longest + tree->bwd[i];
    }
    return GW_OK;
}

static uint32_t vector_count_max(const gw_plan_tree *tree)
{
    uint32_t most = 1;
    for (uint32_t c = 0; c < tree->class_count; c++) {
        uint32_t count = tree->class_first[c + 1] - tree->class_first[c];
        most = count > most ? count : most;
    }
    return most;
}

size_t gw_plan_tree_workspace_size(const gw_plan_tree *tree)
{
    return check(tree) == GW_OK ? gw_label_workspace(tree->tensor_count, vector_count_max(tree)) : 0;
}

static gw_plan_tick evaluate(const gw_plan_tree *tree, const uint32_t *choice)
{
    gw_serial_clock clock = GW_SERIAL_CLOCK_ZERO;
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        gw_serial_step(&clock, tree->bwd[i], gw_tree_vector(tree, i, choice[i]));
    }
    return gw_serial_finish(&clock, tree->decode);
}

gw_status gw_plan_tree_eval(const gw_plan_tree *tree, const uint32_t *choice, gw_plan_tick *makespan)
{
    gw_status status = choice == NULL || makespan == NULL ? GW_ERR_ARG : check(tree);
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t i = 0; i < tree->tensor_count; i++) {
        uint32_t c = tree->tensor_class[i];
        if (choice[i] >= tree->class_first[c + 1] - tree->class_first[c]) {
            return GW_ERR_PLAN;
        }
    }
    *makespan = evaluate(tree, choice);
    return GW_OK;
}

/* A first choice: for each tensor the vector that is cheapest under one of a few mixes of GPU and network
 * time. */
static gw_plan_tick first_choice(const gw_plan_tree *tree, uint32_t *trial, uint32_t *choice)
{
    gw_plan_tick best = INT64_MAX;
    for (int mix = 0; mix <= 8; mix++) {
        for (uint32_t i = 0; i < tree->tensor_count; i++) {
            uint32_t c = tree->tensor_class[i];
            gw_plan_tick cheapest = INT64_MAX;
            for (uint32_t v = tree->class_first[c]; v < tree->class_first[c + 1]; v++) {
                const gw_plan_vector *vector = &tree->vectors[v];
                gw_plan_tick cost = mix * vector->net + (8 - mix) * (vector->gpu + vector->tail) +
                                    vector->cpu + vector->tail_cpu;
                if (cost < cheapest) {
                    cheapest = cost;
                    trial[i] = v - tree->class_first[c];
                }
            }
        }
        gw_plan_tick makespan = evaluate(tree, trial);
        if (makespan < best) {
            best = makespan;
            for (uint32_t i = 0; i < tree->tensor_count; i++) {
                choice[i] = trial[i];
            }
        }
    }
    return best;
}

gw_status gw_plan_tree_solve(const gw_plan_tree *tree, const gw_plan_limits *limits, uint32_t *choice,
                             gw_plan_cert *cert, const gw_workspace *workspace)
{
    gw_status status = choice == NULL || cert == NULL ? GW_ERR_ARG : check(tree);
    if (status != GW_OK) {
        return status;
    }
    gw_arena arena;
    if (!gw_arena_open(&arena, workspace)) {
        return GW_ERR_WORKSPACE;
    }
    uint32_t n = tree->tensor_count;
    gw_label_path path = {gw_arena_take(&arena, n, sizeof(gw_label_step)), 0};
    gw_plan_tick *bwd_sum = gw_arena_take(&arena, (size_t)n + 1, sizeof(gw_plan_tick));
    uint32_t *trial = gw_arena_take(&arena, n, sizeof(uint32_t));
    uint32_t *best = gw_arena_take(&arena, n, sizeof(uint32_t));
    if (path.steps == NULL || bwd_sum == NULL || trial == NULL || best == NULL) {
        return GW_ERR_WORKSPACE;
    }
    gw_label_source source = {.tensor_count = n,
                              .bwd_sum = bwd_sum,
                              .decode = tree->decode,
                              .vector_count_max = vector_count_max(tree),
                              .tree = tree};
    bwd_sum[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        bwd_sum[i + 1] = bwd_sum[i] + tree->bwd[i];
        uint32_t c = tree->tensor_class[i];
        for (uint32_t v = tree->class_first[c]; v < tree->class_first[c + 1]; v++) {
            source.has_cpu |= tree->vectors[v].cpu > 0;
            source.has_tail |= tree->vectors[v].tail > 0;
            source.has_tail_cpu |= tree->vectors[v].tail_cpu > 0;
        }
    }
    gw_plan_cert result = {first_choice(tree, trial, best), 0, 0, 0, 0, 0};
    status = gw_label_search(&source, limits, &path, &result, &arena);
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t j = 0; j < path.count; j++) {
        best[path.steps[j].first] = path.steps[j].option;
    }
    for (uint32_t i = 0; i < n; i++) {
        choice[i] = best[i];
    }
    *cert = result;
    return GW_OK;
}

#define BRUTE_TENSORS_MAX 23u

gw_status gw_plan_tree_brute(const gw_plan_tree *tree, uint32_t *choice, gw_plan_cert *cert)
{
    gw_status status = choice == NULL || cert == NULL ? GW_ERR_ARG : check(tree);
    if (status != GW_OK) {
        return status;
    }
    uint32_t n = tree->tensor_count;
    uint64_t plans = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = tree->tensor_class[i];
        plans *= tree->class_first[c + 1] - tree->class_first[c];
        if (plans > GW_PLAN_BRUTE_MAX || i >= BRUTE_TENSORS_MAX) {
            return GW_ERR_LIMIT;
        }
    }
    uint32_t digit[BRUTE_TENSORS_MAX] = {0};
    gw_serial_clock before[BRUTE_TENSORS_MAX + 1];
    before[0] = GW_SERIAL_CLOCK_ZERO;
    gw_plan_tick best = INT64_MAX;
    uint32_t depth = 0;
    for (;;) {
        uint32_t c = tree->tensor_class[depth];
        if (digit[depth] == tree->class_first[c + 1] - tree->class_first[c]) {
            if (depth == 0) {
                break;
            }
            digit[depth--] = 0;
            digit[depth]++;
            continue;
        }
        before[depth + 1] = before[depth];
        gw_serial_step(&before[depth + 1], tree->bwd[depth], gw_tree_vector(tree, depth, digit[depth]));
        if (depth + 1 < n) {
            depth++;
            continue;
        }
        gw_plan_tick total = gw_serial_finish(&before[n], tree->decode);
        if (total < best) {
            best = total;
            for (uint32_t i = 0; i < n; i++) {
                choice[i] = digit[i];
            }
        }
        digit[depth]++;
    }
    *cert = (gw_plan_cert){best, best, 1, plans, 1, 0};
    return GW_OK;
}
