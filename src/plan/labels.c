/*
 * Pareto labels: exact search at the serial level for any curves, decode rule and set of vectors.
 *
 * A label after k tensors holds the clocks of a partial schedule: e (backprop and GPU encoding), p (CPU
 * queue), c (network), d = e + decodes so far, q (see below). Every later clock is a non-descending function
 * of them (only max and + occur), so a label that is not smaller than another one in any clock can be
 * dropped. Under the serial decode rule q = max over groups of (network end + decodes from that group on) and
 * the iteration is max(d, q); under the parallel rule d = e and q = max(network end + own decode).
 *
 * Three things keep the frontier small, none of them loses an optimum:
 *   - Clamping. The next network step cannot start before e + (backprop of the next tensor), so a c below
 * that is lifted to it; q is lifted to what the next step or the end of backprop will make of it anyway.
 *   - Bounds on the rest of the schedule: label_bounds.c.
 *   - An incumbent. A label whose bound reaches the makespan of a known plan is dropped.
 *
 * Rounds with sharper bounds and growing caps of labels a tensor boundary give good plans early. Labels
 * dropped by a cap leave their smallest bound behind: the optimum is not below min(best plan, that bound),
 * the certificate.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "label_bounds.h"

#define CAP_MIN            4u
#define CAP_DEFAULT        4096u
#define SUFFIX_CAP_MIN     8u
#define SUFFIX_CAP_DEFAULT 4096u

typedef struct label {
    gw_clocks clocks;
    gw_plan_tick bound;
    uint32_t parent; /* pool index */
    uint32_t from;   /* tensor boundary of the parent */
    uint32_t option;
    uint32_t unused;
} label;

typedef struct sort_key {
    gw_plan_tick bound;
    uint32_t index;
    uint32_t unused;
} sort_key;

typedef struct engine {
    const gw_label_source *source;
    uint32_t n;
    gw_bounds bounds;
    label *pool;
    uint32_t *pool_first; /* [n + 2] */
    label *buffer;
    sort_key *keys;
    sort_key *keys_spare;
    uint32_t buffer_cap;
    uint8_t *dead;          /* [n] no longer useful as a start */
    gw_plan_tick *earliest; /* [n] smallest e of the labels there */
    gw_plan_tick ub;
    gw_plan_tick dropped; /* smallest bound given up in this round */
    gw_plan_tick root;    /* bound of the empty schedule in this round */
} engine;

/* Whether a message may start at `first` when it already ends at `end`; extends the union of forbidden
 * methods. */
static int step_allowed(const gw_label_source *source, uint32_t first, uint32_t end, uint32_t *forbidden)
{
    if (source->tree != NULL) {
        return first + 1 == end;
    }
    *forbidden |= source->problem->tensors[first].forbidden;
    int64_t cap = source->problem->group_elems_max;
    return cap == 0 || source->elems_sum[end] - source->elems_sum[first] <= cap;
}

/* Appends a step to a partial schedule. */
static gw_clocks extend(const engine *g, const gw_clocks *l, gw_plan_tick bwd, const gw_plan_vector *v)
{
    gw_clocks next;
    next.e = l->e + bwd + v->gpu;
    gw_plan_tick ready = next.e;
    next.p = l->p;
    if (v->cpu > 0) {
        next.p = gw_tick_max(l->p, next.e) + v->cpu;
        ready = next.p;
    }
    next.c = gw_tick_max(l->c, ready) + v->net;
    if (g->bounds.serial_tail) {
        next.d = l->d + bwd + v->gpu + v->tail;
        next.q = gw_tick_max(l->q, next.c) + v->tail;
    } else {
        next.d = next.e;
        next.q = gw_tick_max(l->q, next.c + v->tail);
    }
    return next;
}

static int key_less(const sort_key *a, const sort_key *b, const label *labels)
{
    if (a->bound != b->bound) {
        return a->bound < b->bound;
    }
    const gw_clocks *x = &labels[a->index].clocks;
    const gw_clocks *y = &labels[b->index].clocks;
    if (x->e != y->e) {
        return x->e < y->e;
    }
    if (x->c != y->c) {
        return x->c < y->c;
    }
    if (x->d != y->d) {
        return x->d < y->d;
    }
    if (x->q != y->q) {
        return x->q < y->q;
    }
    if (x->p != y->p) {
        return x->p < y->p;
    }
    return a->index < b->index;
}

/* Bottom-up merge sort; the order is total, so the result does not depend on the method. */
static sort_key *sort_keys(sort_key *keys, sort_key *spare, uint32_t count, const label *labels)
{
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t low = 0; low < count; low += 2 * width) {
            uint32_t middle = low + width < count ? low + width : count;
            uint32_t high = low + 2 * width < count ? low + 2 * width : count;
            uint32_t a = low;
            uint32_t b = middle;
            for (uint32_t out = low; out < high; out++) {
                if (a < middle && (b >= high || !key_less(&keys[b], &keys[a], labels))) {
                    spare[out] = keys[a++];
                } else {
                    spare[out] = keys[b++];
                }
            }
        }
        sort_key *swap = keys;
        keys = spare;
        spare = swap;
    }
    return keys;
}

static int dominated_by_any(const gw_clocks *l, const label *others, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        const gw_clocks *o = &others[r].clocks;
        if (o->c <= l->c && o->e <= l->e && o->d <= l->d && o->q <= l->q && o->p <= l->p) {
            return 1;
        }
    }
    return 0;
}

/*
 * Reduces buffer[0..count) to its non-dominated labels, at most cap, written to kept. In order of bound
 * (which no clock can lower) a label comes after everything that dominates it. Returns the number kept; the
 * smallest bound beyond the cap goes to g->dropped.
 */
static uint32_t reduce(engine *g, uint32_t count, uint32_t cap, label *kept)
{
    for (uint32_t i = 0; i < count; i++) {
        g->keys[i].bound = g->buffer[i].bound;
        g->keys[i].index = i;
    }
    const sort_key *order = sort_keys(g->keys, g->keys_spare, count, g->buffer);
    uint32_t kept_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const label *l = &g->buffer[order[i].index];
        if (dominated_by_any(&l->clocks, kept, kept_count)) {
            continue;
        }
        if (kept_count == cap) {
            g->dropped = gw_tick_min(g->dropped, l->bound);
            break;
        }
        kept[kept_count++] = *l;
    }
    return kept_count;
}

/* One round. Returns 0 when time ran out. Labels with a bound >= limit are given up. */
static int run_round(engine *g, uint32_t cap, gw_plan_tick gap, gw_clock_guard *guard, gw_label_step *steps,
                     uint32_t *step_count)
{
    const gw_label_source *source = g->source;
    uint32_t n = g->n;
    g->dropped = INT64_MAX;
    label *root = &g->pool[0];
    *root = (label){{0, 0, 0, 0, 0}, 0, 0, 0, 0, 0};
    gw_bounds_clamp(&g->bounds, 0, &root->clocks);
    root->bound = gw_bounds_at(&g->bounds, 0, &root->clocks);
    g->root = root->bound;
    if (root->bound >= g->ub) {
        return 1; /* nothing is shorter than the plan at hand */
    }
    g->pool_first[0] = 0;
    g->pool_first[1] = 1;
    g->earliest[0] = 0;
    for (uint32_t k = 0; k < n; k++) {
        g->dead[k] = 0;
    }
    for (uint32_t k = 1; k <= n; k++) {
        uint32_t buffered = 0;
        uint32_t flush_at = 8 * cap < g->buffer_cap ? 8 * cap : g->buffer_cap;
        uint32_t settled = 0;           /* first labels of the buffer, already reduced: they often dominate */
        gw_plan_tick worst = INT64_MAX; /* largest bound kept, once the cap is full */
        uint32_t forbidden = 0;
        for (uint32_t i = k; i-- > 0;) {
            if (!step_allowed(source, i, k, &forbidden)) {
                break;
            }
            uint32_t begin = g->pool_first[i];
            uint32_t end = g->pool_first[i + 1];
            if (g->dead[i] || begin == end) {
                continue;
            }
            gw_plan_tick limit = g->ub - gap;
            const gw_plan_vector *vectors;
            uint32_t count = gw_label_vectors(source, i, k, forbidden, g->bounds.scratch, &vectors);
            gw_plan_tick bwd = source->bwd_sum[k] - source->bwd_sum[i];
            /* A message only gets longer with more tensors: when even the earliest start and the shortest
             * message end too late, so do all later ones. */
            gw_plan_tick shortest = INT64_MAX;
            for (uint32_t v = 0; v < count; v++) {
                shortest =
                    gw_tick_min(shortest, vectors[v].gpu + vectors[v].cpu + vectors[v].net + vectors[v].tail);
            }
            if (count == 0) {
                break; /* more tensors only forbid more methods */
            }
            if (g->earliest[i] + bwd + shortest >= limit) {
                g->dead[i] = 1;
                g->dropped = gw_tick_min(g->dropped, g->earliest[i] + bwd + shortest);
                continue;
            }
            for (uint32_t v = 0; v < count; v++) {
                for (uint32_t l = begin; l < end; l++) {
                    label next;
                    next.clocks = extend(g, &g->pool[l].clocks, bwd, &vectors[v]);
                    next.parent = l;
                    next.from = i;
                    next.option = source->tree != NULL ? v : vectors[v].option;
                    if (k == n) {
                        gw_plan_tick total = gw_tick_max(next.clocks.d, next.clocks.q);
                        if (total < g->ub) {
                            g->ub = total;
                            /* Write the path now: later rounds overwrite the pool. */
                            uint32_t length = 0;
                            uint32_t at_end = n;
                            for (label at = next; at_end > 0; at = g->pool[at.parent]) {
                                steps[length].first = at.from;
                                steps[length].tensor_count = at_end - at.from;
                                steps[length].option = at.option;
                                at_end = at.from;
                                length++;
                            }
                            *step_count = length;
                        }
                        continue;
                    }
                    next.bound = gw_bounds_quick(&g->bounds, k, &next.clocks);
                    if (next.bound >= limit) {
                        g->dropped = gw_tick_min(g->dropped, next.bound);
                        continue;
                    }
                    gw_bounds_clamp(&g->bounds, k, &next.clocks);
                    next.bound = gw_bounds_at(&g->bounds, k, &next.clocks);
                    if (next.bound >= limit) {
                        g->dropped = gw_tick_min(g->dropped, next.bound);
                        continue;
                    }
                    next.bound = gw_tick_max(next.bound, g->pool[l].bound);
                    if (next.bound > worst) { /* the cap is full of better ones */
                        g->dropped = gw_tick_min(g->dropped, next.bound);
                        continue;
                    }
                    next.unused = 0;
                    if (dominated_by_any(&next.clocks, g->buffer, settled)) {
                        continue;
                    }
                    g->buffer[buffered++] = next;
                    if (buffered == flush_at) {
                        label *kept = g->pool + g->pool_first[k];
                        buffered = reduce(g, buffered, cap, kept);
                        for (uint32_t b = 0; b < buffered; b++) {
                            g->buffer[b] = kept[b];
                        }
                        worst = buffered == cap ? kept[cap - 1].bound : INT64_MAX;
                        settled = buffered < 16 ? buffered : 16;
                    }
                }
            }
            guard->work += (uint64_t)count * (end - begin);
        }
        if (k < n) {
            g->pool_first[k + 1] = g->pool_first[k] + reduce(g, buffered, cap, g->pool + g->pool_first[k]);
            g->earliest[k] = INT64_MAX;
            for (uint32_t l = g->pool_first[k]; l < g->pool_first[k + 1]; l++) {
                g->earliest[k] = gw_tick_min(g->earliest[k], g->pool[l].clocks.e);
            }
            if (gw_out_of_time(guard)) {
                return 0;
            }
        }
    }
    return 1;
}

size_t gw_label_workspace(uint32_t tensor_count, uint32_t vector_count_max)
{
    size_t n = tensor_count;
    size_t labels_wanted = n * CAP_DEFAULT < (size_t)1 << 18 ? n * CAP_DEFAULT : (size_t)1 << 18;
    labels_wanted = labels_wanted < n * 64 ? n * 64 : labels_wanted;
    size_t buffer = 8 * (size_t)CAP_DEFAULT;
    uint32_t suffixes = SUFFIX_CAP_DEFAULT;
    while (suffixes > 256 && n * suffixes > (size_t)1 << 21) {
        suffixes /= 2;
    }
    return gw_bounds_size(tensor_count, vector_count_max, 1, suffixes) + (n + 2) * 4 + n + 8 * n + 64 +
           labels_wanted * sizeof(label) + buffer * (sizeof(label) + 2 * sizeof(sort_key)) +
           n * sizeof(gw_label_step) + 3 * 8 * (n + 2);
}

/* Buckets a boundary: what three quarters of the workspace hold, between 8 and 4096. */
static uint32_t suffix_cap(const gw_label_source *source, size_t size)
{
    uint32_t cap = SUFFIX_CAP_DEFAULT;
    while (cap > SUFFIX_CAP_MIN && gw_bounds_size(source->tensor_count, source->vector_count_max,
                                                  source->has_cpu, cap) > size / 4 * 3) {
        cap /= 2;
    }
    return cap;
}

gw_plan_tick gw_label_bound(const gw_label_source *source, gw_plan_tick ub, gw_arena *arena)
{
    gw_bounds bounds;
    uint32_t cap = suffix_cap(source, arena->size - arena->used);
    cap = cap < 64 ? cap : 64;
    if (!gw_bounds_open(&bounds, source, cap, arena)) {
        return 0;
    }
    (void)gw_bounds_build(&bounds, cap, ub, NULL);
    gw_clocks root = {0, 0, 0, 0, 0};
    gw_bounds_clamp(&bounds, 0, &root);
    return gw_bounds_at(&bounds, 0, &root);
}

/* The gap that the caller accepts, in ticks. Above 10^6 ppm any plan is good enough. */
static gw_plan_tick accepted_gap(gw_plan_tick ub, const gw_plan_limits *limits)
{
    const gw_plan_tick ppm = limits->gap_ppm < 1000000 ? (gw_plan_tick)limits->gap_ppm : 1000000;
    return ub == INT64_MAX ? 0 : ub / 1000000 * ppm;
}

gw_plan_status gw_label_search(const gw_label_source *source, const gw_plan_limits *limits, gw_plan_tick ub,
                               gw_arena *arena, gw_label_step *steps, uint32_t *step_count,
                               gw_plan_cert *cert)
{
    static const gw_plan_limits no_limits = {NULL, NULL, 0, 0, 0, 0};
    engine g;
    g.source = source;
    g.n = source->tensor_count;
    limits = limits != NULL ? limits : &no_limits;
    uint32_t n = g.n;
    gw_clock_guard guard = {limits, limits->clock != NULL ? limits->clock(limits->clock_context) : 0, 0};
    uint32_t suffix_max = suffix_cap(source, arena->size - arena->used);
    if (!gw_bounds_open(&g.bounds, source, suffix_max, arena)) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    g.pool_first = gw_arena_take(arena, (size_t)n + 2, sizeof(uint32_t));
    g.dead = gw_arena_take(arena, n, 1);
    g.earliest = gw_arena_take(arena, n, sizeof(gw_plan_tick));
    if (g.pool_first == NULL || g.dead == NULL || g.earliest == NULL) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    /* Split what is left: per label kept a pool entry, and 8 * cap buffered candidates of one boundary. */
    size_t left = arena->size - arena->used;
    size_t per_cap = (size_t)n * sizeof(label) + 8 * (sizeof(label) + 2 * sizeof(sort_key));
    size_t cap_fits = left > 256 ? (left - 256) / per_cap : 0;
    if (cap_fits < CAP_MIN) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    uint32_t cap_max = cap_fits < (1u << 20) ? (uint32_t)cap_fits : 1u << 20;
    if (limits->label_cap != 0 && limits->label_cap < cap_max) {
        cap_max = limits->label_cap;
    }
    g.buffer_cap = 8 * (cap_max < CAP_MIN ? CAP_MIN : cap_max);
    g.pool = gw_arena_take(arena, (size_t)n * cap_max + 1, sizeof(label));
    g.buffer = gw_arena_take(arena, g.buffer_cap, sizeof(label));
    g.keys = gw_arena_take(arena, g.buffer_cap, sizeof(sort_key));
    g.keys_spare = gw_arena_take(arena, g.buffer_cap, sizeof(sort_key));
    if (g.keys_spare == NULL) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    g.ub = ub;
    g.root = 0;
    *step_count = 0;
    cert->lower_bound = gw_tick_min(ub, source->bwd_sum[n]);
    cert->rounds = 0;
    cert->stopped = 0;
    /* Sharper bounds are cheaper than more labels, so buckets grow first. */
    uint32_t buckets = suffix_max < 64 ? suffix_max : 64;
    uint32_t cap = cap_max < 8 ? cap_max : 8;
    for (;;) {
        gw_plan_tick gap = accepted_gap(g.ub, limits);
        int finished = gw_bounds_build(&g.bounds, buckets, g.ub, &guard) &&
                       run_round(&g, cap, gap, &guard, steps, step_count);
        cert->rounds++;
        if (finished) {
            cert->lower_bound = gw_tick_max(cert->lower_bound, gw_tick_min(g.ub, g.dropped));
        }
        cert->lower_bound = gw_tick_max(cert->lower_bound, gw_tick_min(g.ub, g.root));
        if (g.ub - cert->lower_bound <= accepted_gap(g.ub, limits)) {
            break;
        }
        if (!finished || (cap == cap_max && buckets == suffix_max) || gw_out_of_time(&guard)) {
            cert->stopped = 1;
            break;
        }
        /* Labels of a tree are cheap (a boundary has one predecessor): once the gap is small, only they grow.
         */
        int labels_only = source->tree != NULL && cap < cap_max && (g.ub - cert->lower_bound) < g.ub / 1000;
        uint32_t growth = labels_only ? 16 : buckets < suffix_max ? 2 : 8;
        cap = cap > cap_max / growth ? cap_max : cap * growth;
        if (!labels_only) {
            buckets = buckets > suffix_max / 4 ? suffix_max : buckets * 4;
        }
    }
    if (g.ub == INT64_MAX) {
        return GW_PLAN_ERR_LIMIT;
    }
    cert->makespan = g.ub;
    cert->proven = cert->lower_bound == g.ub;
    cert->labels = guard.work;
    return GW_PLAN_OK;
}
