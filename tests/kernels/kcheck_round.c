/*
 * Round: every dtype, rounding, quantum mode, constant and strict, against scalar; scalar against the
 * model.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(round);

typedef struct round_call {
    gw_round_fn *fn;
    uint8_t *out;
    const gw_span *span;
    const gw_round_rule *rule;
} round_call;

static void call_round(void *context)
{
    round_call *c = (round_call *)context;
    c->fn(c->out, c->span, c->rule);
}

static void check_model(kc_test *t, const round_call *c)
{
    uint8_t *out = kc_plain(5);
    for (size_t i = 0; i < c->span->len; i++) {
        const kc_rounded v = kc_model_round(c->rule, c->span, i);
        if (c->rule->dtype == GW_FP32) {
            gw_store32(out + 4 * i, v.bits);
        } else {
            gw_store16(out + 2 * i, (uint16_t)v.bits);
        }
    }
    kc_equal(t, KC_MODEL, "out", out, c->out, c->span->len, gw_traits_of(c->rule->dtype)->size);
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t dtype = 1 + s->config % 3, derived = s->config / 3;
    const size_t element_size = gw_traits_of(dtype)->size;
    gw_round_rule rule;
    const gw_span span = kc_span(&t->rng, &rule, s->len, dtype, derived, s->pattern);
    kc_describe(
        t,
        "dtype %u, rounding %u, derived %u, constant %u, strict %u, cap %u, drop_offset %d, element %llu, %s",
        dtype, rule.rounding, derived, rule.constant, rule.strict, rule.cap, rule.drop_offset,
        (unsigned long long)span.element, kc_value_pattern_name(s->pattern));

    round_call expected = {(gw_round_fn *)t->reference, kc_plain(2), &span, &rule};
    round_call got = expected;
    const gw_span guarded = kc_span_in(t, &span, &rule, s->src);
    got.fn = (gw_round_fn *)t->fn;
    got.span = &guarded;
    got.rule = (const gw_round_rule *)(const void *)kc_in(t, "rule", &rule, sizeof rule, 0,
                                                          (kc_place){KC_AT_END, 0}, 8);
    got.out = kc_out(t, "out", element_size * s->len, 0, s->dst, 1);
    if (!kc_guarded(t, call_round, &expected) || !kc_guarded(t, call_round, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "out", expected.out, got.out, s->len, element_size);
    if (t->is_reference) {
        check_model(t, &got);
    }
    gw_span in_place = guarded;
    if (s->len != 0) {
        memcpy(got.out, span.values, element_size * s->len);
    }
    in_place.values = got.out;
    got.span = &in_place;
    if (kc_guarded(t, call_round, &got)) {
        kc_equal(t, KC_OUTPUT, "out, in place", expected.out, got.out, s->len, element_size);
    }
}

static void test_round(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, body);
}

static void bench_round(kc_test *t)
{
    gw_round_rule rule;
    const gw_span span = kc_bench_span(&rule, t->kernel->bench_len);
    round_call call = {(gw_round_fn *)t->fn, kc_plain(2), &span, &rule};
    kc_bench(t, call_round, &call);
}

const kc_kernel kc_round_family[] = {
    {"round", select_round, test_round, bench_round, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
