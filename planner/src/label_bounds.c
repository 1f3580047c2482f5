/*
 * Lower bounds by relaxing the end of the schedule.
 *
 * Fix how the tensors from k on are sent. As a function of the clocks (e, c, d) at boundary k the end of that
 * continuation is at least max(c + net, e + release, d + compute):
 *   net      the network never waits for data: all its steps in a row (and the last decode),
 *   release  the network is free: the slowest chain "ready at some tensor, then all later network steps",
 *   compute  backprop, encodes and decodes from k on.
 * Without decodes and CPU work the first two are exact (max and + only). Prepending a step with backprop and
 * GPU time x, CPU time p, network time g and decode t gives net' = g + max(net, t),  release' = x + max(p + g
 * + max(net, t), release),  compute' = x + t + compute. So continuations are triples, computed backwards like
 * labels; only non-dominated ones matter. To stay small, a boundary has a number of buckets by net, and each
 * keeps the smallest of each component separately: a triple that is not larger than any of the merged ones,
 * hence still a bound. The bound of a label is the minimum over the buckets of max(c + net, e + release, d +
 * compute).
 *
 * Where the problem bounds the error, a second set of triples charges for it (Lagrange): with a rate in ticks
 * for an error, each message adds a penalty to all three components. A completion that keeps the bound has
 * errors of at most what is left of it, so its end is at least the bound with penalties minus the price of
 * what is left.
 *
 * Queueing on the CPU is not in the triples. When some vector encodes or decodes there, weighted sums of all
 * clocks are added: for weights w of sum 16, 16 T >= w . clocks + (cheapest continuation when a step costs
 * its weighted durations).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "label_bounds.h"

#define WEIGHT_SUM  16
#define WEIGHTS_MAX 32

typedef struct weights {
    int8_t c, e, p, d, r;
} weights;

struct gw_bound_line {
    gw_plan_tick constant;
    weights weight;
};

static int64_t len_of(const gw_label_source *source, uint32_t first, uint32_t end)
{
    return source->tree == NULL ? source->len_sum[end] - source->len_sum[first] : 0;
}

/* Lists the vectors of all steps that start at `first` into b->row; returns the end boundary after the last
 * step. */
static uint32_t list_row(gw_bounds *b, uint32_t first)
{
    const gw_label_source *source = b->source;
    uint32_t n = source->tensor_count;
    uint32_t used = 0;
    uint32_t forbidden = 0;
    uint32_t end = first + 1;
    for (; end <= n && gw_label_allows(source, first, end, end - 1, &forbidden); end++) {
        const gw_plan_vector *vectors;
        uint32_t count = gw_label_vectors(source, first, end, forbidden, b->scratch, &vectors);
        if (count == 0) {
            break; /* more tensors only forbid more */
        }
        b->row_first[end - first - 1] = used;
        for (uint32_t v = 0; v < count; v++) {
            b->row_penalty[used] =
                gw_label_penalty(source, b->rate, vectors[v].option, len_of(source, first, end));
            b->row[used++] = vectors[v];
        }
    }
    b->row_first[end - first - 1] = used;
    return end;
}

/* ---- weighted lines, with CPU work only ---- */

static uint32_t make_weights(const gw_bounds *b, weights *list)
{
    uint32_t count = 0;
    const int decodes_most = b->serial_tail_cpu ? WEIGHT_SUM : 0;
    const int encodes_most = b->source->has_cpu ? WEIGHT_SUM : 0;
    for (int decodes = 0; decodes <= decodes_most; decodes += 4) {
        for (int encodes = 0; encodes + decodes <= WEIGHT_SUM && encodes <= encodes_most; encodes += 4) {
            for (int net = 0; net + encodes + decodes <= WEIGHT_SUM && encodes + decodes > 0; net += 4) {
                const int8_t rest = (int8_t)(WEIGHT_SUM - decodes - encodes - net);
                list[count++] = (weights){(int8_t)net, b->serial_tail ? 0 : rest, (int8_t)encodes,
                                          b->serial_tail ? rest : 0, (int8_t)decodes}; /* at most 30 */
            }
        }
    }
    return count;
}

/* Weighted cost of a step; the last of all also pays what must still follow its clocks. */
static gw_plan_tick weigh_step(weights w, const gw_plan_vector *v, gw_plan_tick bwd, gw_plan_tick serial_tail,
                               int is_last)
{
    gw_plan_tick sum = w.c * v->net + w.e * (bwd + v->gpu) + w.p * v->cpu +
                       w.d * (bwd + v->gpu + serial_tail) + w.r * v->tail_cpu;
    if (is_last) {
        const gw_plan_tick tail = v->tail + v->tail_cpu;
        sum += w.c * tail + w.e * (v->cpu + v->net + tail) + w.p * (v->cpu > 0 ? v->net + tail : 0);
    }
    return sum;
}

static void build_lines(gw_bounds *b)
{
    uint32_t n = b->source->tensor_count;
    weights list[WEIGHTS_MAX];
    uint32_t count = make_weights(b, list);
    for (uint32_t k = n; k-- > 0;) {
        uint32_t last = list_row(b, k);
        gw_bound_line *at_k = b->lines + (size_t)k * WEIGHTS_MAX;
        b->line_len[k] = count;
        for (uint32_t w = 0; w < count; w++) {
            at_k[w].constant = INT64_MAX;
            at_k[w].weight = list[w];
        }
        for (uint32_t end = k + 1; end < last; end++) {
            gw_plan_tick bwd = b->source->bwd_sum[end] - b->source->bwd_sum[k];
            const gw_bound_line *at_end = b->lines + (size_t)end * WEIGHTS_MAX;
            if (end < n && at_end[0].constant == INT64_MAX) {
                continue; /* no method is left for a tensor from here on */
            }
            for (uint32_t v = b->row_first[end - k - 1]; v < b->row_first[end - k]; v++) {
                gw_plan_tick tail = b->serial_tail ? b->row[v].tail : 0;
                for (uint32_t w = 0; w < count; w++) {
                    gw_plan_tick cost = weigh_step(list[w], &b->row[v], bwd, tail, end == n) +
                                        WEIGHT_SUM * b->row_penalty[v] + (end == n ? 0 : at_end[w].constant);
                    at_k[w].constant = gw_tick_min(at_k[w].constant, cost);
                }
            }
        }
    }
}

/* ---- frontiers ---- */

size_t gw_bounds_size(uint32_t tensor_count, uint32_t vector_count_max, int has_lines, uint32_t suffix_cap)
{
    size_t n = tensor_count;
    return n * 16 + (n + 1) * (4 + sizeof(gw_suffix)) +
           (size_t)vector_count_max * (n + 1) * (sizeof(gw_plan_vector) + 8) + (n + 2) * 4 +
           (n + 2) * suffix_cap * sizeof(gw_suffix) +
           (has_lines ? (n + 1) * (WEIGHTS_MAX * sizeof(gw_bound_line) + 4) : 0) + 96;
}

int gw_bounds_open(gw_bounds *b, const gw_label_source *source, int64_t rate, uint32_t suffix_cap,
                   gw_arena *arena)
{
    uint32_t n = source->tensor_count;
    b->source = source;
    b->rate = rate;
    b->serial_tail = source->has_tail && source->decode == GW_PLAN_DECODE_SERIAL;
    b->serial_tail_cpu = source->has_tail_cpu && source->decode == GW_PLAN_DECODE_SERIAL;
    const int has_lines = source->has_cpu || b->serial_tail_cpu;
    b->suffix_cap_max = suffix_cap;
    b->net_min = gw_arena_take(arena, n, sizeof(gw_plan_tick));
    b->gpu_min = gw_arena_take(arena, n, sizeof(gw_plan_tick));
    b->suffix_len = gw_arena_take(arena, (size_t)n + 1, sizeof(uint32_t));
    b->least = gw_arena_take(arena, (size_t)n + 1, sizeof(gw_suffix));
    b->scratch = gw_arena_take(arena, source->vector_count_max, sizeof(gw_plan_vector));
    const size_t row_max = (size_t)source->vector_count_max * (source->tree != NULL ? 1 : n);
    b->row = gw_arena_take(arena, row_max, sizeof(gw_plan_vector));
    b->row_penalty = gw_arena_take(arena, row_max, sizeof(gw_plan_tick));
    b->row_first = gw_arena_take(arena, (size_t)n + 2, sizeof(uint32_t));
    b->suffixes = gw_arena_take(arena, ((size_t)n + 1) * suffix_cap, sizeof(gw_suffix));
    b->buckets = gw_arena_take(arena, suffix_cap, sizeof(gw_suffix));
    b->lines = NULL;
    b->line_len = NULL;
    if (has_lines) {
        b->lines = gw_arena_take(arena, ((size_t)n + 1) * WEIGHTS_MAX, sizeof(gw_bound_line));
        b->line_len = gw_arena_take(arena, (size_t)n + 1, sizeof(uint32_t));
    }
    if (b->net_min == NULL || b->gpu_min == NULL || b->suffix_len == NULL || b->least == NULL ||
        b->scratch == NULL || b->row == NULL || b->row_penalty == NULL || b->row_first == NULL ||
        b->suffixes == NULL || b->buckets == NULL ||
        (has_lines && (b->lines == NULL || b->line_len == NULL))) {
        return 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t forbidden = source->tree == NULL ? source->problem->tensors[k].forbidden : 0;
        const gw_plan_vector *vectors;
        uint32_t count = gw_label_vectors(source, k, k + 1, forbidden, b->scratch, &vectors);
        b->net_min[k] = INT64_MAX;
        b->gpu_min[k] = INT64_MAX;
        for (uint32_t v = 0; v < count; v++) {
            b->net_min[k] = gw_tick_min(b->net_min[k], vectors[v].net);
            b->gpu_min[k] = gw_tick_min(b->gpu_min[k], vectors[v].gpu);
        }
    }
    if (has_lines) {
        build_lines(b);
    }
    return 1;
}

/* A step of the row before a continuation. */
static gw_suffix prepend(const gw_bounds *b, uint32_t row, gw_plan_tick bwd, const gw_suffix *rest)
{
    const gw_plan_vector *v = &b->row[row];
    const gw_plan_tick penalty = b->row_penalty[row];
    gw_plan_tick x = bwd + v->gpu;
    gw_suffix s;
    s.net = penalty + v->net + gw_tick_max(rest->net, v->tail + v->tail_cpu);
    s.release = x + gw_tick_max(v->cpu + s.net, penalty + rest->release);
    s.compute = x + penalty + (b->serial_tail ? v->tail : 0) + rest->compute;
    s.release_min = 0;
    return s;
}

/* Range of `net` over all continuations from k, from the first and the last entry of each list. */
static void net_range(const gw_bounds *b, uint32_t k, uint32_t last, gw_plan_tick *lowest,
                      gw_plan_tick *highest)
{
    *lowest = INT64_MAX;
    *highest = 0;
    for (uint32_t end = k + 1; end < last; end++) {
        const gw_suffix *rest = b->suffixes + (size_t)end * b->suffix_cap_max;
        gw_plan_tick bwd = b->source->bwd_sum[end] - b->source->bwd_sum[k];
        uint32_t len = b->suffix_len[end];
        for (uint32_t v = b->row_first[end - k - 1]; len > 0 && v < b->row_first[end - k]; v++) {
            *lowest = gw_tick_min(*lowest, prepend(b, v, bwd, &rest[0]).net);
            *highest = gw_tick_max(*highest, prepend(b, v, bwd, &rest[len - 1]).net);
        }
    }
}

/* Sorts the continuations that start with one step into buckets of width 2^shift. */
static void fill_buckets(gw_bounds *b, uint32_t k, uint32_t end, gw_plan_tick limit, gw_plan_tick lowest,
                         unsigned shift)
{
    const gw_suffix *rest = b->suffixes + (size_t)end * b->suffix_cap_max;
    uint32_t rest_len = b->suffix_len[end];
    gw_plan_tick bwd = b->source->bwd_sum[end] - b->source->bwd_sum[k];
    for (uint32_t v = b->row_first[end - k - 1]; v < b->row_first[end - k]; v++) {
        for (uint32_t i = 0; i < rest_len; i++) {
            gw_suffix s = prepend(b, v, bwd, &rest[i]);
            if (s.net >= limit) {
                break; /* entries ascend in net */
            }
            if (s.release >= limit || s.compute >= limit) {
                continue;
            }
            gw_suffix *bucket = &b->buckets[(s.net - lowest) >> shift];
            bucket->net = gw_tick_min(bucket->net, s.net);
            bucket->release = gw_tick_min(bucket->release, s.release);
            bucket->compute = gw_tick_min(bucket->compute, s.compute);
        }
    }
}

/* Keeps the buckets of boundary k that no other one dominates. */
static void keep_buckets(gw_bounds *b, uint32_t k, uint32_t cap)
{
    gw_suffix *kept = b->suffixes + (size_t)k * b->suffix_cap_max;
    gw_plan_tick release_min = INT64_MAX;
    gw_plan_tick compute_min = INT64_MAX;
    uint32_t len = 0;
    for (uint32_t i = 0; i < cap; i++) {
        gw_suffix s = b->buckets[i];
        if (s.net == INT64_MAX) {
            continue;
        }
        int dominated = 0;
        if (s.release >= release_min && s.compute >= compute_min) { /* possibly: look for one that does */
            for (uint32_t r = len; r-- > 0 && !dominated;) {
                dominated = kept[r].release <= s.release && kept[r].compute <= s.compute;
            }
        }
        if (dominated) {
            continue;
        }
        release_min = gw_tick_min(release_min, s.release);
        compute_min = gw_tick_min(compute_min, s.compute);
        s.release_min = release_min;
        kept[len++] = s;
    }
    b->suffix_len[k] = len;
    if (len > 0) {
        b->least[k] = (gw_suffix){kept[0].net, release_min, compute_min, release_min};
    }
}

/* The frontier at boundary k from those after it. Returns the work done. */
static uint64_t build_at(gw_bounds *b, uint32_t k, uint32_t cap, gw_plan_tick ub)
{
    /* e, c and d are at least the backprop so far, so a component that reaches `limit` cannot beat ub. */
    gw_plan_tick limit = ub == INT64_MAX ? INT64_MAX : ub - b->source->bwd_sum[k];
    if (b->rate > 0 && ub < INT64_MAX) {
        const gw_clocks none = GW_CLOCKS_ZERO;
        limit = gw_add_saturated(limit, gw_bounds_allowance(b, &none));
    }
    uint32_t last = list_row(b, k);
    gw_plan_tick lowest, highest;
    net_range(b, k, last, &lowest, &highest);
    if (lowest >= limit) {
        b->suffix_len[k] = 0;
        return 0; /* nothing after this ends before ub, or there is no continuation */
    }
    highest = gw_tick_min(highest, limit);
    unsigned shift = 0;
    while (((highest - lowest) >> shift) >= (gw_plan_tick)cap) {
        shift++;
    }
    for (uint32_t i = 0; i < cap; i++) {
        b->buckets[i] = (gw_suffix){INT64_MAX, INT64_MAX, INT64_MAX, 0};
    }
    uint64_t work = 0;
    for (uint32_t end = k + 1; end < last; end++) {
        work += (uint64_t)b->suffix_len[end] * (b->row_first[end - k] - b->row_first[end - k - 1]);
        fill_buckets(b, k, end, limit, lowest, shift);
    }
    keep_buckets(b, k, cap);
    return work;
}

int gw_bounds_build(gw_bounds *b, uint32_t cap, gw_plan_tick ub, gw_clock_guard *guard)
{
    uint32_t n = b->source->tensor_count;
    b->suffixes[(size_t)n * b->suffix_cap_max] = (gw_suffix){0, 0, 0, 0};
    b->suffix_len[n] = 1;
    b->least[n] = (gw_suffix){0, 0, 0, 0};
    for (uint32_t k = n; k-- > 0;) {
        if (guard != NULL && gw_out_of_time(guard)) {
            return 0;
        }
        uint64_t work = build_at(b, k, cap, ub);
        if (guard != NULL) {
            guard->work += work;
        }
    }
    return 1;
}

gw_plan_tick gw_bounds_at(const gw_bounds *b, uint32_t k, const gw_clocks *clocks)
{
    const gw_suffix *list = b->suffixes + (size_t)k * b->suffix_cap_max;
    uint32_t len = b->suffix_len[k];
    /* First entry whose network chain is the longer one; release_min falls along the list. */
    uint32_t low = 0;
    uint32_t high = len;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (clocks->c + list[middle].net >= clocks->e + list[middle].release_min) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    gw_plan_tick best = INT64_MAX;
    for (uint32_t i = low; i < len && clocks->c + list[i].net < best; i++) {
        gw_plan_tick end = gw_tick_max(clocks->c + list[i].net, clocks->e + list[i].release);
        best = gw_tick_min(best, gw_tick_max(end, clocks->d + list[i].compute));
    }
    for (uint32_t i = low; i-- > 0 && clocks->e + list[i].release_min < best;) {
        gw_plan_tick end = gw_tick_max(clocks->c + list[i].net, clocks->e + list[i].release);
        best = gw_tick_min(best, gw_tick_max(end, clocks->d + list[i].compute));
    }
    if (b->lines != NULL) {
        const gw_bound_line *line = b->lines + (size_t)k * WEIGHTS_MAX;
        for (uint32_t i = 0; i < b->line_len[k]; i++, line++) {
            gw_plan_tick sum = line->weight.c * clocks->c + line->weight.e * clocks->e +
                               line->weight.p * clocks->p + line->weight.d * clocks->d +
                               line->weight.r * clocks->r + line->constant;
            best = gw_tick_max(best, (sum + WEIGHT_SUM - 1) / WEIGHT_SUM);
        }
    }
    if (b->rate > 0 && best < INT64_MAX) {
        best -= gw_bounds_allowance(b, clocks);
    }
    return gw_tick_max(best, gw_tick_max(clocks->q, clocks->r));
}

void gw_bounds_clamp(const gw_bounds *b, uint32_t k, gw_clocks *clocks)
{
    const gw_label_source *source = b->source;
    gw_plan_tick ready = clocks->e + (source->bwd_sum[k + 1] - source->bwd_sum[k]) + b->gpu_min[k];
    gw_plan_tick left = source->bwd_sum[source->tensor_count] - source->bwd_sum[k];
    clocks->c = gw_tick_max(clocks->c, ready);
    if (source->has_cpu) {
        clocks->p = gw_tick_max(clocks->p, ready);
    }
    clocks->q = gw_tick_max(clocks->q, clocks->c + b->net_min[k]);
    if (b->serial_tail_cpu) {
        clocks->r = gw_tick_max(clocks->r, clocks->c + b->net_min[k]);
    }
    clocks->q = gw_tick_max(clocks->q, (b->serial_tail ? clocks->d : clocks->e) + left);
}
