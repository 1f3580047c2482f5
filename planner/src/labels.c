/*
 * Pareto labels: exact search at the serial level for any curves, decode rule and set of vectors.
 *
 * A label after k tensors holds the clocks of a partial schedule: e (backprop and GPU encoding), p (CPU
 * queue), c (network), d = e + decodes so far, q (see below). Every later clock is a non-descending function
 * of them (only max and + occur), so a label that is not smaller than another one in any clock can be
 * dropped. Under the serial decode rule q = max over groups of (network end + decodes from that group on) and
 * the iteration is max(d, q); under the parallel rule d = e and q = max(network end + own decode). Decodes on
 * the CPU end at r under the serial rule; under the parallel rule they count in q like all others. Where the
 * problem bounds the error, x is the error so far: a sum like a clock, but with a limit instead of a cost.
 *
 * Three things keep the frontier small; none of them loses an optimum:
 *   - Clamping. The next network step cannot start before e + (backprop of the next tensor), so a smaller c
 *     is raised to that; q is raised to the least value that the next step or the end of backprop gives it;
 *     x is raised to what leaves all continuations free.
 *   - Bounds on the rest of the schedule: label_bounds.c.
 *   - The best plan known. A label whose bound reaches its makespan is dropped.
 *
 * Rounds with sharper bounds and growing caps of labels per tensor boundary give good plans early. The
 * smallest bound of all labels dropped by a cap is kept: the optimum is not below min(best plan, that bound),
 * the certificate.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "labels.h"

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
    gw_bounds priced; /* with a price of errors, if the source has one */
    gw_clock_guard guard;
    label *pool;
    uint32_t *pool_first; /* [n + 2] */
    label *buffer;
    sort_key *keys;
    sort_key *keys_spare;
    uint32_t buffer_cap;
    uint8_t *dead;          /* [n] no longer useful as a start */
    gw_plan_tick *earliest; /* [n] smallest e of the labels at a boundary */
    gw_label_path *path;    /* of the best plan found */
    gw_plan_tick ub;        /* makespan of the best plan known */
    gw_plan_tick gap;       /* accepted in this round: labels with a bound >= ub - gap are dropped */
    gw_plan_tick dropped;   /* smallest bound dropped in this round */
    gw_plan_tick root;      /* bound of the empty schedule in this round */
} engine;

/* Labels that are collected at one tensor boundary. */
typedef struct frontier {
    uint32_t k; /* the boundary */
    uint32_t cap;
    uint32_t buffered;  /* labels in the buffer */
    uint32_t flush_at;  /* number of labels at which the buffer is reduced */
    uint32_t settled;   /* first labels of the buffer, already reduced: they often dominate */
    gw_plan_tick worst; /* largest bound kept, once the cap is full */
} frontier;

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
    next.r = l->r;
    if (v->tail_cpu > 0 && g->bounds.serial_tail_cpu) {
        next.r = gw_tick_max(l->r, next.c) + v->tail_cpu;
    }
    if (g->bounds.serial_tail) {
        next.d = l->d + bwd + v->gpu + v->tail;
        next.q = gw_tick_max(l->q, next.c) + v->tail;
    } else {
        next.d = next.e;
        next.q = gw_tick_max(l->q, next.c + v->tail + (g->bounds.serial_tail_cpu ? 0 : v->tail_cpu));
    }
    next.x = l->x;
    return next;
}

static int key_less(const sort_key *a, const sort_key *b, const label *labels)
{
    if (a->bound != b->bound) {
        return a->bound < b->bound;
    }
    const gw_plan_tick *x = labels[a->index].clocks.all;
    const gw_plan_tick *y = labels[b->index].clocks.all;
    for (int i = 0; i < GW_CLOCK_COUNT; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i];
        }
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
        if (o->c <= l->c && o->e <= l->e && o->d <= l->d && o->q <= l->q && o->p <= l->p && o->r <= l->r &&
            o->x <= l->x) {
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

static void drop(engine *g, gw_plan_tick bound)
{
    g->dropped = gw_tick_min(g->dropped, bound);
}

/* Reduces the full buffer of a frontier. */
static void flush(engine *g, frontier *f)
{
    label *kept = g->pool + g->pool_first[f->k];
    f->buffered = reduce(g, f->buffered, f->cap, kept);
    for (uint32_t b = 0; b < f->buffered; b++) {
        g->buffer[b] = kept[b];
    }
    f->worst = f->buffered == f->cap ? kept[f->cap - 1].bound : INT64_MAX;
    f->settled = f->buffered < 16 ? f->buffered : 16;
}

/* A bound of the label, which is exact enough if it is below the limit. */
static gw_plan_tick bound_of(engine *g, uint32_t k, gw_clocks *clocks, gw_plan_tick limit)
{
    const int priced = g->priced.rate > 0;
    gw_plan_tick bound = gw_bounds_quick(&g->bounds, k, clocks);
    if (priced && bound < limit) {
        bound = gw_tick_max(bound, gw_bounds_quick(&g->priced, k, clocks));
    }
    if (bound < limit) {
        gw_bounds_clamp(&g->bounds, k, clocks);
        bound = gw_bounds_at(&g->bounds, k, clocks);
    }
    if (priced && bound < limit) {
        bound = gw_tick_max(bound, gw_bounds_at(&g->priced, k, clocks));
    }
    return bound;
}

/* Adds a label to a frontier unless its bound or another label says that it is useless. */
static inline void add_label(engine *g, frontier *f, label *next, gw_plan_tick limit)
{
    next->bound = bound_of(g, f->k, &next->clocks, limit);
    if (next->bound >= limit) {
        drop(g, next->bound);
        return;
    }
    next->bound = gw_tick_max(next->bound, g->pool[next->parent].bound);
    if (next->bound > f->worst) { /* the cap is full of better ones */
        drop(g, next->bound);
        return;
    }
    next->unused = 0;
    if (dominated_by_any(&next->clocks, g->buffer, f->settled)) {
        return;
    }
    g->buffer[f->buffered++] = *next;
    if (f->buffered == f->flush_at) {
        flush(g, f);
    }
}

/* Takes the path that ends with this label if it is the best so far. Written at once: later rounds overwrite
 * the pool. */
static void add_path(engine *g, const label *last)
{
    gw_plan_tick total = gw_tick_max(gw_tick_max(last->clocks.d, last->clocks.q), last->clocks.r);
    if (total >= g->ub) {
        return;
    }
    g->ub = total;
    g->path->count = 0;
    uint32_t end = g->n;
    for (label at = *last; end > 0; at = g->pool[at.parent]) {
        g->path->steps[g->path->count++] = (gw_label_step){at.from, end - at.from, at.option};
        end = at.from;
    }
}

/* Adds the error of a message that ends at boundary k. 0 when no continuation keeps the bound. */
static int add_error(const gw_label_source *source, uint32_t first, uint32_t k, uint32_t method, int64_t *x)
{
    const int64_t limit = source->problem->error_max;
    *x += source->problem->methods[method].error * (source->len_sum[k] - source->len_sum[first]);
    if (*x + source->error_least[k] > limit) {
        return 0;
    }
    *x = gw_tick_max(*x, limit - source->error_most[k]);
    return 1;
}

/* Extends every label at boundary i by one message that ends at f->k. */
static void extend_all(engine *g, frontier *f, uint32_t i, const gw_plan_vector *vectors, uint32_t count)
{
    const gw_label_source *source = g->source;
    gw_plan_tick limit = g->ub - g->gap;
    gw_plan_tick bwd = source->bwd_sum[f->k] - source->bwd_sum[i];
    uint32_t begin = g->pool_first[i];
    uint32_t end = g->pool_first[i + 1];
    for (uint32_t v = 0; v < count; v++) {
        for (uint32_t l = begin; l < end; l++) {
            label next;
            next.clocks = extend(g, &g->pool[l].clocks, bwd, &vectors[v]);
            next.parent = l;
            next.from = i;
            next.option = source->tree != NULL ? v : vectors[v].option;
            if (source->error_least != NULL && !add_error(source, i, f->k, next.option, &next.clocks.x)) {
                continue;
            }
            if (f->k < g->n) {
                add_label(g, f, &next, limit);
            } else {
                add_path(g, &next);
            }
        }
    }
    g->guard.work += (uint64_t)count * (end - begin);
}

/* Messages i..f->k-1. Returns 0 when no message that starts before i can end at f->k. */
static int add_messages(engine *g, frontier *f, uint32_t i, uint32_t forbidden)
{
    if (g->dead[i] || g->pool_first[i] == g->pool_first[i + 1]) {
        return 1;
    }
    const gw_plan_vector *vectors;
    uint32_t count = gw_label_vectors(g->source, i, f->k, forbidden, g->bounds.scratch, &vectors);
    if (count == 0) {
        return 0; /* more tensors only forbid more methods */
    }
    /* A message only gets longer with more tensors: when even the earliest start and the shortest message
     * end too late, so do all later ones. */
    gw_plan_tick shortest = INT64_MAX;
    for (uint32_t v = 0; v < count; v++) {
        shortest = gw_tick_min(shortest, vectors[v].gpu + vectors[v].cpu + vectors[v].net + vectors[v].tail +
                                             vectors[v].tail_cpu);
    }
    gw_plan_tick bwd = g->source->bwd_sum[f->k] - g->source->bwd_sum[i];
    if (g->earliest[i] + bwd + shortest >= g->ub - g->gap) {
        g->dead[i] = 1;
        drop(g, g->earliest[i] + bwd + shortest);
        return 1;
    }
    extend_all(g, f, i, vectors, count);
    return 1;
}

/* Puts the label of the empty schedule into the pool. Returns 0 when nothing can beat the best plan. */
static int open_round(engine *g)
{
    g->dropped = INT64_MAX;
    label *root = &g->pool[0];
    *root = (label){GW_CLOCKS_ZERO, 0, 0, 0, 0, 0};
    root->bound = bound_of(g, 0, &root->clocks, INT64_MAX);
    g->root = root->bound;
    g->pool_first[0] = 0;
    g->pool_first[1] = 1;
    g->earliest[0] = 0;
    for (uint32_t k = 0; k < g->n; k++) {
        g->dead[k] = 0;
    }
    return root->bound < g->ub;
}

/* One round. Returns 0 when time ran out. */
static int run_round(engine *g, uint32_t cap)
{
    if (!open_round(g)) {
        return 1;
    }
    const uint32_t flush_at = 8 * cap < g->buffer_cap ? 8 * cap : g->buffer_cap;
    for (uint32_t k = 1; k <= g->n; k++) {
        frontier f = {k, cap, 0, flush_at, 0, INT64_MAX};
        uint32_t forbidden = 0;
        for (uint32_t i = k; i-- > 0;) {
            if (!gw_label_allows(g->source, i, k, i, &forbidden) || !add_messages(g, &f, i, forbidden)) {
                break;
            }
        }
        if (k == g->n) {
            break;
        }
        g->pool_first[k + 1] = g->pool_first[k] + reduce(g, f.buffered, cap, g->pool + g->pool_first[k]);
        g->earliest[k] = INT64_MAX;
        for (uint32_t l = g->pool_first[k]; l < g->pool_first[k + 1]; l++) {
            g->earliest[k] = gw_tick_min(g->earliest[k], g->pool[l].clocks.e);
        }
        if (gw_out_of_time(&g->guard)) {
            return 0;
        }
    }
    return 1;
}

size_t gw_label_workspace(uint32_t tensor_count, uint32_t vector_count_max)
{
    size_t n = tensor_count;
    size_t label_count = n * CAP_DEFAULT < (size_t)1 << 18 ? n * CAP_DEFAULT : (size_t)1 << 18;
    label_count = label_count < n * 64 ? n * 64 : label_count;
    size_t buffer = 8 * (size_t)CAP_DEFAULT;
    uint32_t suffixes = SUFFIX_CAP_DEFAULT;
    while (suffixes > 256 && n * suffixes > (size_t)1 << 21) {
        suffixes /= 2;
    }
    return gw_bounds_size(tensor_count, vector_count_max, 1, suffixes) + (n + 2) * 4 + n + 8 * n + 64 +
           label_count * sizeof(label) + buffer * (sizeof(label) + 2 * sizeof(sort_key)) +
           n * (sizeof(gw_label_step) + sizeof(gw_plan_group)) + 5 * 8 * (n + 2);
}

/* Buckets per boundary: as many as three quarters of the workspace hold, between 8 and 4096. */
static uint32_t suffix_cap(const gw_label_source *source, size_t size)
{
    const size_t sets = source->bound_rate > 0 ? 2 : 1;
    uint32_t cap = SUFFIX_CAP_DEFAULT;
    while (cap > SUFFIX_CAP_MIN && sets * gw_bounds_size(source->tensor_count, source->vector_count_max,
                                                         source->has_cpu || source->has_tail_cpu, cap) >
                                       size / 4 * 3) {
        cap /= 2;
    }
    return cap;
}

gw_plan_tick gw_label_bound(const gw_label_source *source, gw_plan_tick ub, gw_clock_guard *guard,
                            gw_arena *arena)
{
    gw_bounds bounds;
    uint32_t cap = suffix_cap(source, arena->size - arena->used);
    const uint32_t most = source->bound_rate > 0 ? 8 : 64; /* a price is chosen from many */
    cap = cap < most ? cap : most;
    if (!gw_bounds_open(&bounds, source, source->bound_rate, cap, arena) ||
        !gw_bounds_build(&bounds, cap, ub, guard)) {
        return 0;
    }
    gw_clocks root = GW_CLOCKS_ZERO;
    gw_bounds_clamp(&bounds, 0, &root);
    return gw_tick_min(ub, gw_bounds_at(&bounds, 0, &root));
}

/* The gap that the caller accepts, in ticks. Above 10^6 ppm any plan is good enough. */
static gw_plan_tick accepted_gap(gw_plan_tick ub, const gw_plan_limits *limits)
{
    const gw_plan_tick ppm = limits->gap_ppm < 1000000 ? (gw_plan_tick)limits->gap_ppm : 1000000;
    return ub == INT64_MAX ? 0 : ub / 1000000 * ppm;
}

/* A small workspace has no room for a second set of bounds beside some labels. */
static void open_priced(engine *g, uint32_t suffix_max, gw_arena *arena)
{
    const size_t used = arena->used;
    g->priced.rate = 0;
    if (g->source->bound_rate > 0 &&
        (!gw_bounds_open(&g->priced, g->source, g->source->bound_rate, suffix_max, arena) ||
         arena->size - arena->used < used / 4)) {
        g->priced.rate = 0;
        arena->used = used;
    }
}

/* Divides the workspace. *suffix_max and *cap_max receive the largest numbers of buckets and labels. */
static gw_status open_engine(engine *g, gw_arena *arena, uint32_t *suffix_max, uint32_t *cap_max)
{
    const size_t n = g->n;
    const uint32_t label_cap = g->guard.limits->label_cap;
    *suffix_max = suffix_cap(g->source, arena->size - arena->used);
    if (!gw_bounds_open(&g->bounds, g->source, 0, *suffix_max, arena)) {
        return GW_ERR_WORKSPACE;
    }
    open_priced(g, *suffix_max, arena);
    g->pool_first = gw_arena_take(arena, n + 2, sizeof(uint32_t));
    g->dead = gw_arena_take(arena, n, 1);
    g->earliest = gw_arena_take(arena, n, sizeof(gw_plan_tick));
    if (g->pool_first == NULL || g->dead == NULL || g->earliest == NULL) {
        return GW_ERR_WORKSPACE;
    }
    /* Split what is left: per label kept a pool entry, and 8 * cap buffered candidates of one boundary. */
    size_t left = arena->size - arena->used;
    size_t per_cap = n * sizeof(label) + 8 * (sizeof(label) + 2 * sizeof(sort_key));
    size_t cap_fits = left > 256 ? (left - 256) / per_cap : 0;
    if (cap_fits < CAP_MIN) {
        return GW_ERR_WORKSPACE;
    }
    *cap_max = cap_fits < (1u << 20) ? (uint32_t)cap_fits : 1u << 20;
    if (label_cap != 0 && label_cap < *cap_max) {
        *cap_max = label_cap;
    }
    g->buffer_cap = 8 * (*cap_max < CAP_MIN ? CAP_MIN : *cap_max);
    g->pool = gw_arena_take(arena, n * *cap_max + 1, sizeof(label));
    g->buffer = gw_arena_take(arena, g->buffer_cap, sizeof(label));
    g->keys = gw_arena_take(arena, g->buffer_cap, sizeof(sort_key));
    g->keys_spare = gw_arena_take(arena, g->buffer_cap, sizeof(sort_key));
    return g->keys_spare != NULL ? GW_OK : GW_ERR_WORKSPACE;
}

/* 0 when time ran out. */
static int build_bounds(engine *g, uint32_t buckets)
{
    return gw_bounds_build(&g->bounds, buckets, g->ub, &g->guard) &&
           (g->priced.rate == 0 || gw_bounds_build(&g->priced, buckets, g->ub, &g->guard));
}

/* Rounds until the gap is accepted, a limit is reached, or buckets and labels are at their maximum. */
static void run_rounds(engine *g, uint32_t suffix_max, uint32_t cap_max, gw_plan_cert *cert)
{
    const gw_plan_limits *limits = g->guard.limits;
    /* Sharper bounds are cheaper than more labels, so buckets grow first. */
    uint32_t buckets = suffix_max < 64 ? suffix_max : 64;
    uint32_t cap = cap_max < 8 ? cap_max : 8;
    for (;;) {
        g->gap = accepted_gap(g->ub, limits);
        int finished = build_bounds(g, buckets) && run_round(g, cap);
        cert->rounds++;
        if (finished) {
            cert->lower_bound = gw_tick_max(cert->lower_bound, gw_tick_min(g->ub, g->dropped));
        }
        cert->lower_bound = gw_tick_max(cert->lower_bound, gw_tick_min(g->ub, g->root));
        if (g->ub - cert->lower_bound <= accepted_gap(g->ub, limits)) {
            return;
        }
        if (!finished || (cap == cap_max && buckets == suffix_max) || gw_out_of_time(&g->guard)) {
            cert->stopped = 1;
            return;
        }
        /* Labels of a tree are cheap (a boundary has one predecessor): once the gap is small, only they
         * grow. */
        int labels_only =
            g->source->tree != NULL && cap < cap_max && (g->ub - cert->lower_bound) < g->ub / 1000;
        uint32_t growth = labels_only ? 16 : buckets < suffix_max ? 2 : 8;
        cap = cap > cap_max / growth ? cap_max : cap * growth;
        if (!labels_only) {
            buckets = buckets > suffix_max / 4 ? suffix_max : buckets * 4;
        }
    }
}

gw_status gw_label_search(const gw_label_source *source, const gw_plan_limits *limits, gw_label_path *path,
                          gw_plan_cert *cert, gw_arena *arena)
{
    static const gw_plan_limits no_limits = {NULL, NULL, 0, 0, 0, 0};
    uint32_t suffix_max, cap_max;
    engine g;
    limits = limits != NULL ? limits : &no_limits;
    g.source = source;
    g.n = source->tensor_count;
    g.guard = gw_guard_open(limits);
    g.path = path;
    g.ub = cert->makespan;
    g.root = 0;
    gw_status status = open_engine(&g, arena, &suffix_max, &cap_max);
    if (status != GW_OK) {
        return status;
    }
    path->count = 0;
    cert->lower_bound = gw_tick_min(g.ub, source->bwd_sum[g.n]);
    cert->rounds = 0;
    cert->stopped = 0;
    run_rounds(&g, suffix_max, cap_max, cert);
    if (g.ub == INT64_MAX) {
        return GW_ERR_LIMIT;
    }
    cert->makespan = g.ub;
    cert->proven = cert->lower_bound == g.ub;
    cert->labels = g.guard.work;
    return GW_OK;
}
