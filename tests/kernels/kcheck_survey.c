/*
 * Survey: bins are counted on top of what is there.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(survey);

typedef struct survey_call {
    gw_survey_fn *fn;
    uint32_t *count;
    const uint16_t *bins;
    size_t len;
} survey_call;

static void call_survey(void *context)
{
    const survey_call *c = (const survey_call *)context;
    c->fn(c->count, c->bins, c->len);
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint16_t *bins = kc_u16(kc_plain(0));
    uint32_t before[GW_BINS], expected_count[GW_BINS];

    if (s->config < 6) {
        kc_rounded(&t->rng, kc_u32(kc_plain(1)), bins, kc_plain(2), s->len, 1 + s->config % 3, s->config / 3,
                   s->pattern);
    } else { /* all bins, a few, or one: counters that are counted up again before they are stored */
        const uint32_t few = s->pattern % 3 == 0 ? GW_BINS : s->pattern % 3 == 1 ? 4 : 1;
        const uint32_t first = kc_below(&t->rng, GW_BINS + 1 - few);
        for (size_t i = 0; i < s->len; i++) {
            bins[i] = (uint16_t)(first + kc_below(&t->rng, few));
        }
    }
    for (size_t i = 0; i < GW_BINS; i++) {
        before[i] =
            (uint32_t)kc_random(&t->rng) >> kc_below(&t->rng, 32); /* counts may wrap: no special case */
    }
    memcpy(expected_count, before, sizeof before);
    kc_describe(t, "config %u, %s", s->config, kc_value_pattern_name(s->pattern));

    survey_call expected = {(gw_survey_fn *)t->reference, expected_count, bins, s->len};
    survey_call got = expected;
    got.fn = (gw_survey_fn *)t->fn;
    got.bins = kc_u16(kc_in(t, "bins", bins, 2 * s->len, GW_SLOP, s->src, 2));
    got.count = kc_u32(kc_inout(t, "count", before, sizeof before, 0, s->dst, 4));
    if (!kc_guarded(t, call_survey, &expected) || !kc_guarded(t, call_survey, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "count", expected_count, got.count, GW_BINS, 4);
    if (t->is_reference) {
        for (size_t i = s->len; i-- > 0;) {
            before[bins[i]]++;
        }
        kc_equal(t, KC_MODEL, "count", before, got.count, GW_BINS, 4);
    }
}

static void test_survey(kc_test *t)
{
    kc_walk(t, 7, KC_VALUE_PATTERNS, body);
}

static void bench_survey(kc_test *t)
{
    kc_rng rng = {1};
    uint32_t count[GW_BINS] = {0};
    kc_rounded(&rng, kc_u32(kc_plain(1)), kc_u16(kc_plain(0)), kc_plain(2), t->kernel->bench_len, GW_FP32, 0,
               9);
    survey_call call = {(gw_survey_fn *)t->fn, count, kc_u16(kc_plain(0)), t->kernel->bench_len};
    kc_bench(t, call_survey, &call);
}

const kc_kernel kc_survey_family[] = {
    {"survey", select_survey, test_survey, bench_survey, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
