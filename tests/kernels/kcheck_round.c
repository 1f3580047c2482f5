/*
 * Round: every dtype, rounding, kind of levels, constant and strict, against scalar; scalar against a model
 * that searches the neighbours on the coarser grid instead of adding and masking.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(round);

typedef struct round_call {
    gw_round_fn *fn;
    uint32_t *bits;
    uint16_t *bins;
    uint8_t *keep;
    const void *values;
    const uint8_t *levels;
    size_t len;
    uint64_t element;
    const gw_round_rule *rule;
    uint32_t any;
} round_call;

static void call_round(void *context)
{
    round_call *c = (round_call *)context;
    c->any = c->fn(c->bits, c->bins, c->keep, c->values, c->levels, c->len, c->element, c->rule);
}

/* Philox4x32-10 from its paper: rounds of two products on a state and a key that are arrays. */
static void model_philox(uint32_t x[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t a = 0xd2511f53u * (uint64_t)x[0], b = 0xcd9e8d57u * (uint64_t)x[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k0, (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ x[3] ^ k1, (uint32_t)a};
        memcpy(x, next, sizeof next);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

typedef struct model_value {
    uint32_t bits;
    uint16_t bin;
    uint8_t keep;
} model_value;

static unsigned model_drop(const gw_round_rule *rule, unsigned k, uint32_t magnitude, int in_derived)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const unsigned m = t->mantissa_bits;
    unsigned e = magnitude >> m;
    if (rule->constant) {
        return rule->cap;
    }
    if (rule->dtype == GW_FP16) {
        e = (e > 1 ? e : 1) + 112;
    }
    const unsigned quarter = in_derived ? 3 : magnitude >> (m - 2) & 3;
    const long room = (long)k + rule->drop_base - (long)(4 * e + quarter);
    if (k == 0 || room < 4) {
        return 0;
    }
    const unsigned drop = room / 4 > (long)rule->cap ? rule->cap : (unsigned)(room / 4);
    return rule->floor[drop];
}

/* The bin as kernels.h words it. */
static uint16_t model_bin(const gw_round_rule *rule, uint32_t bits, unsigned drop)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const uint32_t magnitude = rule->dtype == GW_FP32 ? bits & 0x7fffffff : bits & 0x7fff;
    const unsigned e = magnitude >> t->mantissa_bits;
    if (rule->dtype == GW_FP16 && magnitude == 0) {
        return (uint16_t)(bits == 0 ? 1023 : 4 * 31);
    }
    if (rule->dtype != GW_FP16 && e == 0) {
        return bits != 0;
    }
    return (uint16_t)(4 * e + (rule->derived ? 0 : drop / t->explicit_step));
}

static model_value model_round(const gw_round_rule *rule, uint32_t value, unsigned k, uint64_t element)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const unsigned m = t->mantissa_bits;
    const uint32_t sign_bit = rule->dtype == GW_FP32 ? 0x80000000u : 0x8000u;
    const int is_fp16 = rule->dtype == GW_FP16;
    const uint32_t exponent = (value & (sign_bit - 1)) >> m;
    const int is_tiny = exponent == 0 && (!is_fp16 || (value & (sign_bit - 1)) == 0);
    model_value out = {value, model_bin(rule, value, 0), (uint8_t)(m + 1)};
    if (exponent == t->exponent_mask) {
        return out;
    }
    if (is_tiny && !rule->strict) {
        out.bits = 0;
        out.bin = model_bin(rule, 0, 0);
    }
    if (is_tiny && !is_fp16) {
        return out;
    }
    const uint32_t magnitude = out.bits & (sign_bit - 1);
    uint32_t sign = out.bits & sign_bit;
    unsigned drop = model_drop(rule, k, magnitude, rule->derived != 0);
    const uint64_t unit = (uint64_t)1 << drop;
    const uint64_t down = magnitude / unit * unit, up = down + unit, rest = magnitude - down;
    uint64_t rounded = down;
    if (rest != 0 && rule->rounding == GW_GCOMP_NEAREST) {
        const int is_odd = (down / unit) % 2 == 1;
        rounded = 2 * rest > unit || (2 * rest == unit && is_odd) ? up : down;
    } else if (rest != 0 && rule->rounding == GW_GCOMP_STOCHASTIC) {
        uint32_t x[4] = {(uint32_t)(element / 4), (uint32_t)(element / 4 >> 32), rule->step_index,
                         rule->rank_hop};
        model_philox(x, (uint32_t)rule->seed, (uint32_t)(rule->seed >> 32));
        rounded = x[element % 4] % unit + rest >= unit ? up : down;
    }
    if (rounded >> m == t->exponent_mask) {
        rounded = down;
    }
    if (is_fp16 && !rule->strict && rounded == 0) {
        sign = 0;
    }
    out.bin = model_bin(rule, sign | (uint32_t)rounded, drop);
    if (rule->derived && drop != 0) {
        drop = model_drop(rule, k, (uint32_t)rounded, 1);
    }
    out.bits = sign | (uint32_t)rounded;
    out.keep = (uint8_t)(m + 1 - drop);
    return out;
}

static void check_model(kc_test *t, const round_call *c)
{
    const int wide = c->rule->dtype == GW_FP32;
    uint32_t *bits = kc_u32(kc_plain(5));
    uint16_t *bins = kc_u16(kc_plain(6));
    uint8_t *keep = kc_plain(7);
    uint32_t any = 0;
    for (size_t i = 0; i < c->len; i++) {
        const uint8_t *p = (const uint8_t *)c->values;
        const uint32_t value = wide ? gw_load32(p + 4 * i) : gw_load16(p + 2 * i);
        const model_value v =
            model_round(c->rule, value, c->levels == NULL ? 0 : c->levels[i], c->element + i);
        bits[i] = v.bits;
        bins[i] = v.bin;
        keep[i] = v.keep;
        any |= v.bits;
    }
    kc_equal(t, KC_MODEL, "bits", bits, c->bits, c->len, 4);
    kc_equal(t, KC_MODEL, "bins", bins, c->bins, c->len, 2);
    kc_equal(t, KC_MODEL, "keep", keep, c->keep, c->rule->derived ? c->len : 0, 1);
    kc_equal_number(t, KC_MODEL, "result", any, c->any);
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    unsigned config = s->config;
    const uint32_t dtype = 1 + config % 3;
    config /= 3;
    const uint32_t rounding = config % 3;
    config /= 3;
    const uint32_t derived = config & 1, constant = config >> 1 & 1, strict = config >> 2 & 1;
    const size_t element_size = gw_traits_of(dtype)->size;
    uint8_t *values = kc_plain(0), *levels = kc_plain(1);
    gw_round_rule rule;

    kc_values(&t->rng, values, dtype, s->len, s->pattern);
    kc_levels(&t->rng, levels, s->len, kc_below(&t->rng, KC_LEVEL_PATTERNS));
    const uint32_t near = s->len == 0 ? 0 : dtype == GW_FP32 ? gw_load32(values) : gw_load16(values);
    kc_round_rule(&t->rng, &rule, dtype, rounding, derived, constant, strict, near);
    /* Element numbers around 2^34, where the Philox counter carries into its second word, and others. */
    uint64_t element = kc_random(&t->rng) >> kc_below(&t->rng, 60);
    if (kc_below(&t->rng, 4) == 0) {
        element = ((uint64_t)1 << 34) - kc_below(&t->rng, 80);
    }
    kc_describe(
        t,
        "dtype %u, rounding %u, derived %u, constant %u, strict %u, cap %u, drop_base %d, element %llu, %s",
        dtype, rounding, derived, constant, strict, rule.cap, rule.drop_base, (unsigned long long)element,
        kc_value_pattern_name(s->pattern));

    round_call expected = {(gw_round_fn *)t->reference,
                           kc_u32(kc_plain(2)),
                           kc_u16(kc_plain(3)),
                           kc_plain(4),
                           values,
                           constant ? NULL : levels,
                           s->len,
                           element,
                           &rule,
                           0};
    round_call got = expected;
    got.fn = (gw_round_fn *)t->fn;
    got.values = kc_in(t, "values", values, s->len * element_size, 0, s->src, 1);
    got.levels = constant ? NULL : kc_in(t, "levels", levels, s->len, 0, kc_place_other(t), 1);
    got.rule = (const gw_round_rule *)(const void *)kc_in(t, "rule", &rule, sizeof rule, 0,
                                                          (kc_place){KC_AT_END, 0}, 8);
    got.bits = kc_u32(kc_out(t, "bits", 4 * s->len, GW_SLOP, s->dst, 4));
    got.bins = kc_u16(kc_out(t, "bins", 2 * s->len, GW_SLOP, kc_place_other(t), 2));
    got.keep = kc_out(t, "keep", s->len, GW_SLOP, kc_place_other(t), 1);
    if (!kc_guarded(t, call_round, &expected) || !kc_guarded(t, call_round, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "bits", expected.bits, got.bits, s->len, 4);
    kc_equal(t, KC_OUTPUT, "bins", expected.bins, got.bins, s->len, 2);
    kc_equal(t, KC_OUTPUT, "keep", expected.keep, got.keep, derived ? s->len : 0, 1); /* explicit: anything */
    kc_equal_number(t, KC_OUTPUT, "result", expected.any, got.any);
    if (t->is_reference) {
        check_model(t, &got);
    }
}

static void test_round(kc_test *t)
{
    kc_walk(t, 3 * 3 * 2 * 2 * 2, KC_VALUE_PATTERNS, body);
}

static void bench_round(kc_test *t)
{
    kc_rng rng = {1};
    gw_round_rule rule;
    kc_values(&rng, kc_plain(0), GW_FP32, t->kernel->bench_len, 9);
    kc_levels(&rng, kc_plain(1), t->kernel->bench_len, 4);
    kc_round_rule(&rng, &rule, GW_FP32, GW_GCOMP_NEAREST, 0, 0, 0, gw_load32(kc_plain(0)));
    rule.drop_base = 4 * 116 - 100;
    round_call call = {(gw_round_fn *)t->fn,
                       kc_u32(kc_plain(2)),
                       kc_u16(kc_plain(3)),
                       kc_plain(4),
                       kc_plain(0),
                       kc_plain(1),
                       t->kernel->bench_len,
                       0,
                       &rule,
                       0};
    kc_bench(t, call_round, &call);
}

const kc_kernel kc_round_family[] = {
    {"round", select_round, test_round, bench_round, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
