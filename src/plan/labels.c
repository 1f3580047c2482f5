/*
 * Pareto labels: exact search at the serial level for any curves, decode rule and set of vectors.
 *
 * A label after k tensors holds the clocks of a partial schedule: e (backprop and GPU encoding), p (CPU queue),
 * c (network), d = e + decodes so far, q (see below). Every later clock is a non-descending function of them
 * (only max and + occur), so a label that is not smaller than another one in any clock can be dropped. Under the
 * serial decode rule q = max over groups of (network end + decodes from that group on) and the iteration is
 * max(d, q); under the parallel rule d = e and q = max(network end + own decode).
 *
 * Three things keep the frontier small, none of them loses an optimum:
 *   - Clamping. The next network step cannot start before e + (backprop of the next tensor), so a c below that is
 *     lifted to it; q is lifted to what the next step or the end of backprop will make of it anyway.
 *   - Bounds. For weights w over the clocks with sum 16,  16 T >= w . clocks + G_w[k], where G_w[k] is the
 *     cheapest way to send the rest when a step costs its weighted durations: a shortest path, computed backwards
 *     once. Release variant: tensors from m on are on the network no earlier than backprop reaches them, so c may
 *     be replaced by e + (backprop from k through m) with G_w[m] instead of G_w[k] (curves do not fall).
 *   - An incumbent. A label whose bound reaches the makespan of a known plan is dropped.
 *
 * Rounds with growing caps of labels a tensor boundary give good plans early. Labels dropped by a cap leave their
 * smallest bound behind: the optimum is not below min(best plan, that bound), which is the certificate.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "labels.h"

#define WEIGHT_SUM 16
#define WEIGHTS_MAX 64
#define LINES_MAX 96
#define CAP_MIN 4u
#define CAP_DEFAULT 4096u

typedef struct weights {
    int8_t c, e, p, d;
} weights;

typedef struct bound_line {
    gw_plan_tick constant;
    weights weight;
} bound_line;

typedef struct label {
    gw_plan_tick e, c, d, q, p;
    gw_plan_tick bound;
    uint32_t parent;          /* pool index */
    uint32_t from;            /* tensor boundary of the parent */
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
    int serial_tail;          /* decodes take part and follow the serial rule */
    gw_plan_tick *net_min;    /* [n] cheapest network step of a message that starts with tensor k */
    gw_plan_tick *gpu_min;    /* [n] the same for GPU time */
    bound_line *lines;        /* of boundary k: line_len[k] entries from line_first[k] */
    uint32_t *line_first;     /* [n] */
    uint32_t *line_len;       /* [n] */
    gw_plan_vector *scratch;  /* vectors of one step */
    /* search state */
    label *pool;
    uint32_t *pool_first;     /* [n + 2] */
    label *buffer;
    sort_key *keys;
    sort_key *keys_spare;
    uint32_t buffer_cap;
    uint8_t *dead;            /* [n] no longer useful as a start */
    gw_plan_tick *earliest;   /* [n] smallest e of the labels there */
    gw_plan_tick ub;
    gw_plan_tick dropped;     /* smallest bound given up in this round */
} engine;

/* Vectors of the step first..end-1; forbidden is the union over its tensors. */
static uint32_t list_vectors(const gw_label_source *source, uint32_t first, uint32_t end, uint32_t forbidden,
                             gw_plan_vector *scratch, const gw_plan_vector **vectors) {
    if (source->tree != NULL) {
        uint32_t class_index = source->tree->tensor_class[first];
        *vectors = source->tree->vectors + source->tree->class_first[class_index];
        return source->tree->class_first[class_index + 1] - source->tree->class_first[class_index];
    }
    const gw_plan_problem *problem = source->problem;
    int64_t elems = source->elems_sum[end] - source->elems_sum[first];
    uint32_t count = 0;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        if ((forbidden >> m & 1u) != 0) {
            continue;
        }
        const gw_plan_method *method = &problem->methods[m];
        gw_plan_vector *vector = &scratch[count++];
        gw_plan_tick enc = gw_cost_at(&method->enc, elems);
        vector->gpu = method->enc_device == GW_PLAN_GPU ? enc : 0;
        vector->cpu = method->enc_device == GW_PLAN_GPU ? 0 : enc;
        vector->net = gw_cost_at(&method->net, elems);
        vector->tail = gw_cost_at(&method->dec, elems);
        vector->option = m;
    }
    *vectors = scratch;
    return count;
}

/* Whether a message may start at `first` when it already ends at `end`; extends the union of forbidden methods. */
static int step_allowed(const gw_label_source *source, uint32_t first, uint32_t end, uint32_t *forbidden) {
    if (source->tree != NULL) {
        return first + 1 == end;
    }
    *forbidden |= source->problem->tensors[first].forbidden;
    int64_t cap = source->problem->group_elems_max;
    return cap == 0 || source->elems_sum[end] - source->elems_sum[first] <= cap;
}

static gw_plan_tick weigh(weights w, gw_plan_tick c, gw_plan_tick e, gw_plan_tick p, gw_plan_tick d) {
    return w.c * c + w.e * e + w.p * p + w.d * d;
}

/* Weighted cost of a step; the last step of all also pays what must still follow each clock. */
static gw_plan_tick weigh_step(weights w, const gw_plan_vector *v, gw_plan_tick serial_tail, int is_last) {
    gw_plan_tick sum = weigh(w, v->net, v->gpu, v->cpu, v->gpu + serial_tail);
    if (is_last) {
        gw_plan_tick after_network = v->tail;
        gw_plan_tick after_cpu = v->cpu > 0 ? v->net + v->tail : 0;
        sum += weigh(w, after_network, v->cpu + v->net + v->tail, after_cpu, 0);
    }
    return sum;
}

static uint32_t make_weights(const engine *g, weights *list) {
    uint32_t count = 0;
    for (int lam = 0; lam <= WEIGHT_SUM; lam++) {
        list[count++] = (weights){(int8_t)lam, (int8_t)(WEIGHT_SUM - lam), 0, 0};
    }
    if (g->serial_tail) {
        for (int lam = 0; lam <= WEIGHT_SUM; lam++) {
            list[count++] = (weights){(int8_t)lam, 0, 0, (int8_t)(WEIGHT_SUM - lam)};
        }
    }
    if (g->source->has_cpu) {
        for (int on_cpu = 4; on_cpu <= WEIGHT_SUM; on_cpu += 4) {
            for (int on_net = 0; on_net + on_cpu <= WEIGHT_SUM; on_net += 4) {
                int8_t rest = (int8_t)(WEIGHT_SUM - on_cpu - on_net);
                list[count++] = g->serial_tail ? (weights){(int8_t)on_net, 0, (int8_t)on_cpu, rest}
                                               : (weights){(int8_t)on_net, rest, (int8_t)on_cpu, 0};
            }
        }
    }
    return count;
}

/* Keeps of lines[0..count), whose slope in the weight of c ascends, those that are the maximum somewhere. */
static uint32_t upper_hull(bound_line *lines, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        while (kept >= 2) {
            const bound_line *a = &lines[kept - 2];
            const bound_line *b = &lines[kept - 1];
            /* b is nowhere above both neighbours when it lies under the chord; doubles suffice here, a line lost
             * to rounding only weakens the bound. */
            int slope_a = a->weight.c + a->weight.e;
            int slope_b = b->weight.c + b->weight.e;
            int slope_i = lines[i].weight.c + lines[i].weight.e;
            double chord = (double)a->constant +
                           ((double)lines[i].constant - (double)a->constant) * (slope_b - slope_a) /
                               (slope_i - slope_a);
            if ((double)b->constant > chord) {
                break;
            }
            kept--;
        }
        lines[kept++] = lines[i];
    }
    return kept;
}

/* Fills lines for every boundary. Costs O(steps * vectors * weights). */
static int build_bounds(engine *g, gw_arena *arena) {
    uint32_t n = g->n;
    const gw_label_source *source = g->source;
    weights list[WEIGHTS_MAX];
    uint32_t weight_count = make_weights(g, list);
    g->net_min = gw_arena_take(arena, n, sizeof(gw_plan_tick));
    g->gpu_min = gw_arena_take(arena, n, sizeof(gw_plan_tick));
    g->line_first = gw_arena_take(arena, n, sizeof(uint32_t));
    g->line_len = gw_arena_take(arena, n, sizeof(uint32_t));
    g->scratch = gw_arena_take(arena, source->vector_count_max, sizeof(gw_plan_vector));
    gw_plan_tick *rest = gw_arena_take(arena, (size_t)weight_count * (n + 1), sizeof(gw_plan_tick));
    gw_plan_tick *release = gw_arena_take(arena, WEIGHT_SUM + 1, sizeof(gw_plan_tick));
    g->lines = gw_arena_take(arena, (size_t)LINES_MAX * (n + 1), sizeof(bound_line));
    if (g->net_min == NULL || g->gpu_min == NULL || g->line_first == NULL || g->line_len == NULL || g->scratch == NULL || rest == NULL ||
        release == NULL || g->lines == NULL) {
        return 0;
    }
    for (uint32_t k = n + 1; k-- > 0;) {
        gw_plan_tick *at_k = rest + (size_t)k * weight_count;
        for (uint32_t w = 0; w < weight_count; w++) {
            at_k[w] = k == n ? 0 : INT64_MAX;
        }
        uint32_t forbidden = 0;
        for (uint32_t end = k + 1; end <= n; end++) {
            if (source->tree != NULL && end > k + 1) {
                break;
            }
            if (source->tree == NULL) {
                forbidden |= source->problem->tensors[end - 1].forbidden;
                int64_t cap = source->problem->group_elems_max;
                if (cap > 0 && source->elems_sum[end] - source->elems_sum[k] > cap) {
                    break;
                }
            }
            const gw_plan_vector *vectors;
            uint32_t count = list_vectors(source, k, end, forbidden, g->scratch, &vectors);
            const gw_plan_tick *at_end = rest + (size_t)end * weight_count;
            if (end == k + 1) {
                g->net_min[k] = vectors[0].net;
                g->gpu_min[k] = vectors[0].gpu;
                for (uint32_t v = 1; v < count; v++) {
                    g->net_min[k] = gw_tick_min(g->net_min[k], vectors[v].net);
                    g->gpu_min[k] = gw_tick_min(g->gpu_min[k], vectors[v].gpu);
                }
            }
            for (uint32_t v = 0; v < count; v++) {
                gw_plan_tick tail = g->serial_tail ? vectors[v].tail : 0;
                for (uint32_t w = 0; w < weight_count; w++) {
                    gw_plan_tick cost = weigh_step(list[w], &vectors[v], tail, end == n) + at_end[w];
                    at_k[w] = gw_tick_min(at_k[w], cost);
                }
            }
        }
    }
    /* Lines. release[lam] = max over m >= k of lam * PB[m + 1] + G[m] for the family over d (serial decodes);
     * release_all = the same maximum for the family over e, where it is one constant for every weight. */
    uint32_t base = WEIGHT_SUM + 1;
    gw_plan_tick release_all = INT64_MIN;
    for (int lam = 0; lam <= WEIGHT_SUM; lam++) {
        release[lam] = INT64_MIN;
    }
    uint32_t used = 0;
    for (uint32_t k = n; k-- > 0;) {
        gw_plan_tick done = source->bwd_sum[k];
        gw_plan_tick left = source->bwd_sum[n] - done;
        const gw_plan_tick *at_k = rest + (size_t)k * weight_count;
        bound_line *lines = g->lines + used;
        uint32_t count = 0;
        for (int lam = 0; lam <= WEIGHT_SUM; lam++) {
            release_all = gw_tick_max(release_all, lam * source->bwd_sum[k + 1] +
                                                       (WEIGHT_SUM - lam) * source->bwd_sum[n] + at_k[lam]);
            lines[count++] = (bound_line){at_k[lam] + (WEIGHT_SUM - lam) * left, list[lam]};
        }
        /* Within one family w.c + w.e rises with lam only if w.e does not fall with it; hull over w.c alone. */
        for (uint32_t i = 0; i < count; i++) {
            lines[i].weight.e = 0;
        }
        count = upper_hull(lines, count);
        for (uint32_t i = 0; i < count; i++) {
            lines[i].weight.e = (int8_t)(WEIGHT_SUM - lines[i].weight.c);
        }
        lines[count++] = (bound_line){release_all - WEIGHT_SUM * done, {0, WEIGHT_SUM, 0, 0}};
        if (g->serial_tail) {
            bound_line *family = lines + count;
            for (int lam = 0; lam <= WEIGHT_SUM; lam++) {
                family[lam] = (bound_line){at_k[base + (uint32_t)lam] + (WEIGHT_SUM - lam) * left,
                                           list[base + (uint32_t)lam]};
            }
            count += upper_hull(family, WEIGHT_SUM + 1);
            family = lines + count;
            for (int lam = 0; lam <= WEIGHT_SUM; lam++) {
                release[lam] = gw_tick_max(release[lam],
                                           lam * source->bwd_sum[k + 1] + at_k[base + (uint32_t)lam]);
                family[lam] = (bound_line){release[lam] - lam * done + (WEIGHT_SUM - lam) * left,
                                           {0, (int8_t)lam, 0, (int8_t)(WEIGHT_SUM - lam)}};
            }
            count += upper_hull(family, WEIGHT_SUM + 1);
        }
        for (uint32_t w = base * (g->serial_tail ? 2u : 1u); w < weight_count; w++) {
            lines[count++] = (bound_line){at_k[w] + (list[w].e + list[w].d) * left, list[w]};
        }
        g->line_first[k] = used;
        g->line_len[k] = count;
        used += count;
    }
    return 1;
}

/* Largest bound of a label at boundary k, or any bound >= limit as soon as one is found. */
static gw_plan_tick label_bound(const engine *g, uint32_t k, const label *l, gw_plan_tick limit) {
    const bound_line *lines = g->lines + g->line_first[k];
    uint32_t count = g->line_len[k];
    gw_plan_tick best = 0;
    for (uint32_t i = 0; i < count; i++) {
        gw_plan_tick sum = weigh(lines[i].weight, l->c, l->e, l->p, l->d) + lines[i].constant;
        best = gw_tick_max(best, sum);
        if (limit < GW_PLAN_TICK_MAX && best > (limit - 1) * WEIGHT_SUM) {
            break;
        }
    }
    /* T is an integer, so T >= sum / 16 rounded up. */
    return gw_tick_max((best + WEIGHT_SUM - 1) / WEIGHT_SUM, l->q);
}

/* Lifts clocks to the smallest value that makes no difference to any continuation. */
static void clamp(const engine *g, uint32_t k, label *l) {
    const gw_label_source *source = g->source;
    gw_plan_tick ready = l->e + (source->bwd_sum[k + 1] - source->bwd_sum[k]) + g->gpu_min[k];
    gw_plan_tick left = source->bwd_sum[g->n] - source->bwd_sum[k];
    l->c = gw_tick_max(l->c, ready);
    if (source->has_cpu) {
        l->p = gw_tick_max(l->p, ready);
    }
    l->q = gw_tick_max(l->q, l->c + g->net_min[k]);
    l->q = gw_tick_max(l->q, (g->serial_tail ? l->d : l->e) + left);
}

/* Appends a step to a label. */
static label extend(const engine *g, const label *l, gw_plan_tick bwd, const gw_plan_vector *v) {
    label next;
    next.e = l->e + bwd + v->gpu;
    gw_plan_tick ready = next.e;
    next.p = l->p;
    if (v->cpu > 0) {
        next.p = gw_tick_max(l->p, next.e) + v->cpu;
        ready = next.p;
    }
    next.c = gw_tick_max(l->c, ready) + v->net;
    if (g->serial_tail) {
        next.d = l->d + bwd + v->gpu + v->tail;
        next.q = gw_tick_max(l->q, next.c) + v->tail;
    } else {
        next.d = next.e;
        next.q = gw_tick_max(l->q, next.c + v->tail);
    }
    return next;
}

static int key_less(const sort_key *a, const sort_key *b, const label *labels) {
    if (a->bound != b->bound) {
        return a->bound < b->bound;
    }
    const label *x = &labels[a->index];
    const label *y = &labels[b->index];
    if (x->e != y->e) return x->e < y->e;
    if (x->c != y->c) return x->c < y->c;
    if (x->d != y->d) return x->d < y->d;
    if (x->q != y->q) return x->q < y->q;
    if (x->p != y->p) return x->p < y->p;
    return a->index < b->index;
}

/* Bottom-up merge sort; the order is total, so the result does not depend on the method. */
static sort_key *sort_keys(sort_key *keys, sort_key *spare, uint32_t count, const label *labels) {
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

/*
 * Reduces buffer[0..count) to its non-dominated labels, at most cap, written to kept. In order of bound (which no
 * clock can lower) a label comes after everything that dominates it. Returns the number kept; the smallest bound
 * beyond the cap goes to g->dropped.
 */
static uint32_t reduce(engine *g, uint32_t count, uint32_t cap, label *kept) {
    for (uint32_t i = 0; i < count; i++) {
        g->keys[i].bound = g->buffer[i].bound;
        g->keys[i].index = i;
    }
    const sort_key *order = sort_keys(g->keys, g->keys_spare, count, g->buffer);
    uint32_t kept_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const label *l = &g->buffer[order[i].index];
        int dominated = 0;
        for (uint32_t r = 0; r < kept_count; r++) {
            const label *o = &kept[r];
            if (o->c <= l->c && o->e <= l->e && o->d <= l->d && o->q <= l->q && o->p <= l->p) {
                dominated = 1;
                break;
            }
        }
        if (dominated) {
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

typedef struct clock_guard {
    const gw_plan_limits *limits;
    int64_t start;
    uint64_t work;
} clock_guard;

static int out_of_time(const clock_guard *guard) {
    const gw_plan_limits *limits = guard->limits;
    return (limits->work_max != 0 && guard->work > limits->work_max) ||
           (limits->clock != NULL && limits->clock_max > 0 &&
            limits->clock(limits->clock_context) - guard->start > limits->clock_max);
}

/* One round. Returns 0 when time ran out. Labels with a bound >= limit are given up. */
static int run_round(engine *g, uint32_t cap, gw_plan_tick gap, clock_guard *guard, gw_label_step *steps,
                     uint32_t *step_count) {
    const gw_label_source *source = g->source;
    uint32_t n = g->n;
    g->dropped = INT64_MAX;
    label *root = &g->pool[0];
    *root = (label){0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    clamp(g, 0, root);
    root->bound = label_bound(g, 0, root, INT64_MAX);
    g->pool_first[0] = 0;
    g->pool_first[1] = 1;
    g->earliest[0] = 0;
    for (uint32_t k = 0; k < n; k++) {
        g->dead[k] = 0;
    }
    for (uint32_t k = 1; k <= n; k++) {
        uint32_t buffered = 0;
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
            uint32_t count = list_vectors(source, i, k, forbidden, g->scratch, &vectors);
            gw_plan_tick bwd = source->bwd_sum[k] - source->bwd_sum[i];
            /* A message only gets longer with more tensors: when even the earliest start and the shortest
             * message end too late, so do all later ones. */
            gw_plan_tick shortest = INT64_MAX;
            for (uint32_t v = 0; v < count; v++) {
                shortest = gw_tick_min(shortest, vectors[v].gpu + vectors[v].cpu + vectors[v].net + vectors[v].tail);
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
                    label next = extend(g, &g->pool[l], bwd, &vectors[v]);
                    next.parent = l;
                    next.from = i;
                    next.option = vectors[v].option;
                    if (k == n) {
                        gw_plan_tick total = gw_tick_max(next.d, next.q);
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
                    clamp(g, k, &next);
                    next.bound = label_bound(g, k, &next, limit);
                    if (next.bound >= limit) {
                        g->dropped = gw_tick_min(g->dropped, next.bound);
                        continue;
                    }
                    next.bound = gw_tick_max(next.bound, g->pool[l].bound);
                    next.unused = 0;
                    g->buffer[buffered++] = next;
                    if (buffered == g->buffer_cap) {
                        label *kept = g->pool + g->pool_first[k];
                        buffered = reduce(g, buffered, cap, kept);
                        for (uint32_t b = 0; b < buffered; b++) {
                            g->buffer[b] = kept[b];
                        }
                    }
                }
            }
            guard->work += (uint64_t)count * (end - begin);
        }
        if (k < n) {
            g->pool_first[k + 1] = g->pool_first[k] + reduce(g, buffered, cap, g->pool + g->pool_first[k]);
            g->earliest[k] = INT64_MAX;
            for (uint32_t l = g->pool_first[k]; l < g->pool_first[k + 1]; l++) {
                g->earliest[k] = gw_tick_min(g->earliest[k], g->pool[l].e);
            }
            if (out_of_time(guard)) {
                return 0;
            }
        }
    }
    return 1;
}

static size_t bounds_size(uint32_t n, uint32_t vector_count_max) {
    return (size_t)n * 16 + (size_t)n * 8 + (size_t)vector_count_max * sizeof(gw_plan_vector) +
           (size_t)WEIGHTS_MAX * ((size_t)n + 1) * 8 + (WEIGHT_SUM + 1) * 8 +
           (size_t)LINES_MAX * ((size_t)n + 1) * sizeof(bound_line) + 128;
}

size_t gw_label_workspace(uint32_t tensor_count, uint32_t vector_count_max) {
    size_t n = tensor_count;
    size_t labels_wanted = n * CAP_DEFAULT < (size_t)1 << 20 ? n * CAP_DEFAULT : (size_t)1 << 20;
    labels_wanted = labels_wanted < n * 64 ? n * 64 : labels_wanted;
    size_t buffer = 8 * (size_t)CAP_DEFAULT;
    return bounds_size(tensor_count, vector_count_max) + (n + 2) * 4 + n + 8 * n + 64 + labels_wanted * sizeof(label) +
           buffer * (sizeof(label) + 2 * sizeof(sort_key)) + n * sizeof(gw_label_step) + 3 * 8 * (n + 2);
}

static void engine_open(engine *g, const gw_label_source *source) {
    g->source = source;
    g->n = source->tensor_count;
    g->serial_tail = source->has_tail && source->decode == GW_PLAN_DECODE_SERIAL;
}

gw_plan_tick gw_label_bound(const gw_label_source *source, gw_arena *arena) {
    engine g;
    engine_open(&g, source);
    if (!build_bounds(&g, arena)) {
        return 0;
    }
    label root = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    clamp(&g, 0, &root);
    return label_bound(&g, 0, &root, INT64_MAX);
}

gw_plan_status gw_label_search(const gw_label_source *source, const gw_plan_limits *limits, gw_plan_tick ub,
                               gw_arena *arena, gw_label_step *steps, uint32_t *step_count, gw_plan_cert *cert) {
    static const gw_plan_limits no_limits = {NULL, NULL, 0, 0, 0, 0};
    engine g;
    engine_open(&g, source);
    limits = limits != NULL ? limits : &no_limits;
    uint32_t n = g.n;
    clock_guard guard = {limits, limits->clock != NULL ? limits->clock(limits->clock_context) : 0, 0};
    if (!build_bounds(&g, arena)) {
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
    *step_count = 0;
    cert->lower_bound = 0;
    cert->rounds = 0;
    cert->stopped = 0;
    for (uint32_t cap = cap_max < 8 ? cap_max : 8;;) {
        gw_plan_tick gap = g.ub == INT64_MAX ? 0 : g.ub / 1000000 * (gw_plan_tick)limits->gap_ppm;
        int finished = run_round(&g, cap, gap, &guard, steps, step_count);
        cert->rounds++;
        if (finished) {
            cert->lower_bound = gw_tick_max(cert->lower_bound, gw_tick_min(g.ub, g.dropped));
        }
        cert->lower_bound = gw_tick_max(cert->lower_bound, gw_tick_min(g.ub, g.pool[0].bound));
        if (g.ub - cert->lower_bound <= g.ub / 1000000 * (gw_plan_tick)limits->gap_ppm) {
            break;
        }
        if (!finished || cap == cap_max || out_of_time(&guard)) {
            cert->stopped = 1;
            break;
        }
        cap = cap > cap_max / 8 ? cap_max : cap * 8;
    }
    if (g.ub == INT64_MAX) {
        return GW_PLAN_ERR_LIMIT;
    }
    cert->makespan = g.ub;
    cert->proven = cert->lower_bound == g.ub;
    cert->labels = guard.work;
    return GW_PLAN_OK;
}
