/*
 * Labels of a chunk whose codebook is not known yet: counted on top of existing counts, and replaced by
 * ranks. From one label to all of them, and the shapes of real chunks: a bell near the largest label, a long
 * tail, zeros.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(count);
KC_SELECT(rank);

enum { LABEL_PATTERNS = 8 };

static const char *labels_name(unsigned pattern)
{
    static const char *const name[LABEL_PATTERNS] = {"random",       "one label",   "bell",  "bell and tail",
                                                     "mostly zeros", "all largest", "zeros", "few below 64"};
    return name[pattern];
}

/* Sums of geometric steps below `top`: a quarter of the labels is one step further down than the others. */
static uint8_t bell_label(kc_rng *rng, uint32_t top, uint32_t tail)
{
    uint32_t down = 0;
    while (down + 4 < top && kc_below(rng, tail) != 0) {
        down += 1 + kc_below(rng, 4);
    }
    return (uint8_t)(top - down);
}

static void fill_labels(kc_rng *rng, uint8_t *labels, size_t len, unsigned pattern)
{
    const uint32_t top = 8 + kc_below(rng, GW_LABELS - 8), one = kc_below(rng, GW_LABELS);
    for (size_t i = 0; i < len; i++) {
        switch (pattern) {
        case 0:
            labels[i] = (uint8_t)kc_random(rng);
            break;
        case 1:
            labels[i] = (uint8_t)one;
            break;
        case 2:
            labels[i] = bell_label(rng, top, 3);
            break;
        case 3:
            labels[i] = bell_label(rng, top, 20);
            break;
        case 4:
            labels[i] = kc_below(rng, 10) != 0 ? 0 : bell_label(rng, top, 3);
            break;
        case 5:
            labels[i] = GW_LABELS - 1;
            break;
        case 6:
            labels[i] = 0;
            break;
        default:
            labels[i] = (uint8_t)kc_below(rng, 64);
            break;
        }
    }
}

/* ---- count --------------------------------------------------------------------------------------------- */

typedef struct count_call {
    gw_count_fn *fn;
    uint32_t *count;
    const uint8_t *labels;
    size_t len;
} count_call;

static void call_count(void *context)
{
    const count_call *c = (const count_call *)context;
    c->fn(c->count, c->labels, c->len);
}

static void count_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint32_t before[GW_LABELS], expected_count[GW_LABELS];
    uint8_t *labels = kc_plain(0);
    fill_labels(&t->rng, labels, s->len, s->pattern);
    for (size_t i = 0; i < GW_LABELS; i++) {
        before[i] = (uint32_t)kc_random(&t->rng) >> kc_below(&t->rng, 32); /* counts may wrap */
    }
    memcpy(expected_count, before, sizeof before);
    kc_describe(t, "%s", labels_name(s->pattern));

    count_call expected = {(gw_count_fn *)t->reference, expected_count, labels, s->len};
    count_call got = expected;
    got.fn = (gw_count_fn *)t->fn;
    got.labels = kc_in(t, "labels", labels, s->len, GW_SLOP, s->src, 1);
    got.count = kc_u32(kc_inout(t, "count", before, sizeof before, 0, s->dst, 4));
    if (!kc_guarded(t, call_count, &expected) || !kc_guarded(t, call_count, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "count", expected_count, got.count, GW_LABELS, 4);
    if (t->is_reference) {
        for (uint32_t label = 0; label < GW_LABELS; label++) {
            for (const uint8_t *at = labels; at < labels + s->len; at++) {
                before[label] += *at == label;
            }
        }
        kc_equal(t, KC_MODEL, "count", before, got.count, GW_LABELS, 4);
    }
}

static void test_count(kc_test *t)
{
    kc_walk(t, 1, LABEL_PATTERNS, count_body);
}

static void bench_count(kc_test *t)
{
    kc_rng rng = {1};
    static uint32_t count[GW_LABELS];
    for (size_t i = 0; i < t->kernel->bench_len; i++) {
        kc_plain(0)[i] = bell_label(&rng, 240, 5);
    }
    count_call call = {(gw_count_fn *)t->fn, count, kc_plain(0), t->kernel->bench_len};
    kc_bench(t, call_count, &call);
}

/* ---- rank ---------------------------------------------------------------------------------------------- */

typedef struct rank_call {
    gw_rank_fn *fn;
    uint8_t *labels;
    size_t len;
    const uint8_t *rank;
} rank_call;

static void call_rank(void *context)
{
    const rank_call *c = (const rank_call *)context;
    c->fn(c->labels, c->len, c->rank);
}

static void rank_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint8_t *labels = kc_plain(0), *ranks = kc_plain(1), *model = kc_plain(2);
    uint8_t rank[GW_LABELS];
    fill_labels(&t->rng, labels, s->len, s->pattern);
    /* All ranks, those of some labels next to each other, or everywhere the same. */
    const uint32_t first = kc_below(&t->rng, GW_LABELS), count = kc_below(&t->rng, GW_LABELS);
    const uint8_t other = (uint8_t)kc_random(&t->rng);
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        const int is_own = s->config == 0 || (s->config == 1 && (label - first) % GW_LABELS < count);
        rank[label] = is_own ? (uint8_t)kc_random(&t->rng) : other;
    }
    memcpy(ranks, labels, s->len);
    for (size_t i = 0; i < s->len; i++) {
        model[i] = rank[labels[i]];
    }
    kc_describe(t, "%s, labels %u from %u, others %u", labels_name(s->pattern), count, first, other);

    rank_call expected = {(gw_rank_fn *)t->reference, ranks, s->len, rank};
    rank_call got = expected;
    got.fn = (gw_rank_fn *)t->fn;
    got.labels = kc_inout(t, "labels", labels, s->len, GW_SLOP, s->src, 1);
    got.rank = kc_in(t, "rank", rank, sizeof rank, 0, s->dst, 1);
    if (!kc_guarded(t, call_rank, &expected) || !kc_guarded(t, call_rank, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "ranks", ranks, got.labels, s->len, 1);
    if (t->is_reference) {
        kc_equal(t, KC_MODEL, "ranks", model, got.labels, s->len, 1);
    }
}

static void test_rank(kc_test *t)
{
    kc_walk(t, 3, LABEL_PATTERNS, rank_body);
}

static void bench_rank(kc_test *t)
{
    kc_rng rng = {1};
    static uint8_t rank[GW_LABELS]; /* every call works on the results of the one before: the table maps
                                     * labels to themselves */
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        rank[label] = (uint8_t)label;
    }
    for (size_t i = 0; i < t->kernel->bench_len; i++) {
        kc_plain(0)[i] = bell_label(&rng, 240, 5);
    }
    rank_call call = {(gw_rank_fn *)t->fn, kc_plain(0), t->kernel->bench_len, rank};
    kc_bench(t, call_rank, &call);
}

const kc_kernel kc_labels_family[] = {
    {"count", select_count, test_count, bench_count, 16384},
    {"rank", select_rank, test_rank, bench_rank, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
