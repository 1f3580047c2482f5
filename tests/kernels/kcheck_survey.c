/*
 * Survey: bins of rounded values, all or a sample, are counted on top of existing counts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(survey);

typedef struct survey_call {
    gw_survey_fn *fn;
    uint32_t *count, *mask_count;
    const gw_span *span;
    size_t period;
    const gw_round_rule *rule;
} survey_call;

static void call_survey(void *context)
{
    const survey_call *c = (const survey_call *)context;
    c->fn(c->count, c->mask_count, c->span, c->period, c->rule);
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t dtype = 1 + s->config % 3, derived = s->config / 3;
    const size_t period = 64 * (kc_below(&t->rng, 2) == 0 ? 1 : 1 + (size_t)kc_below(&t->rng, 16));
    const int has_mask = kc_below(&t->rng, 2) != 0;
    uint32_t before[GW_BINS], expected_count[GW_BINS], mask_before[256], expected_mask[256];
    gw_round_rule rule;
    const gw_span span = kc_span(&t->rng, &rule, s->len, dtype, derived, s->pattern);
    for (size_t i = 0; i < GW_BINS; i++) {
        /* counts may wrap: no special case */
        before[i] = (uint32_t)kc_random(&t->rng) >> kc_below(&t->rng, 32);
    }
    for (size_t i = 0; i < 256; i++) {
        mask_before[i] = (uint32_t)kc_random(&t->rng) >> kc_below(&t->rng, 32);
    }
    memcpy(expected_count, before, sizeof before);
    memcpy(expected_mask, mask_before, sizeof mask_before);
    kc_describe(
        t,
        "dtype %u, rounding %u, derived %u, constant %u, dead zone %u, relative %u, strict %u, cap %u, "
        "drop_offset "
        "%d, period %zu, mask %d, %s",
        dtype, rule.rounding, derived, rule.constant, rule.dead_zone, rule.relative, rule.strict, rule.cap,
        rule.drop_offset, period, has_mask, kc_value_pattern_name(s->pattern));

    survey_call expected = {
        (gw_survey_fn *)t->reference, expected_count, has_mask ? expected_mask : NULL, &span, period, &rule};
    survey_call got = expected;
    const gw_span guarded = kc_span_in(t, &span, &rule, s->src);
    got.fn = (gw_survey_fn *)t->fn;
    got.span = &guarded;
    got.count = kc_u32(kc_inout(t, "count", before, sizeof before, 0, s->dst, 4));
    if (has_mask) {
        got.mask_count =
            kc_u32(kc_inout(t, "mask_count", mask_before, sizeof mask_before, 0, kc_place_other(t), 4));
    }
    if (!kc_guarded(t, call_survey, &expected) || !kc_guarded(t, call_survey, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "count", expected_count, got.count, GW_BINS, 4);
    if (has_mask) {
        kc_equal(t, KC_OUTPUT, "mask_count", expected_mask, got.mask_count, 256, 4);
    }
    if (t->is_reference) {
        for (size_t i = s->len; i-- > 0;) {
            if (i % period < 64) {
                before[kc_model_round(&rule, &span, i).bin]++;
            }
        }
        kc_equal(t, KC_MODEL, "count", before, got.count, GW_BINS, 4);
        for (size_t i = 0; has_mask && i < s->len; i += i % period == 56 ? period - 56 : 8) {
            uint32_t mask = 0;
            for (size_t j = 0; j < 8 && i + j < s->len; j++) {
                mask |= (uint32_t)(kc_model_round(&rule, &span, i + j).bits != 0) << j;
            }
            mask_before[mask]++;
        }
        if (has_mask) {
            kc_equal(t, KC_MODEL, "mask_count", mask_before, got.mask_count, 256, 4);
        }
    }
}

static void test_survey(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, body);
}

static void bench_survey(kc_test *t)
{
    uint32_t count[GW_BINS] = {0};
    gw_round_rule rule;
    const gw_span span = kc_bench_span(&rule, t->kernel->bench_len);
    survey_call call = {(gw_survey_fn *)t->fn, count, NULL, &span, 64, &rule};
    kc_bench(t, call_survey, &call);
}

const kc_kernel kc_survey_family[] = {
    {"survey", select_survey, test_survey, bench_survey, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
