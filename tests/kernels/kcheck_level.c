/*
 * Levels of the classic codecs: random bits, norms, quantize, decode. Models: Philox by its formula, sums by
 * lane number, levels in double.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>

KC_SELECT_MEMBER(random, classic.level_random);
KC_SELECT_MEMBER(largest, classic.level_largest);
KC_SELECT_MEMBER(moments, classic.level_moments);
KC_SELECT_MEMBER(quantize, classic.level_quantize);
KC_SELECT_MEMBER(decode, classic.level_decode);

/* ---- random bits --------------------------------------------------------------------------------------- */

typedef struct random_call {
    gw_level_random_fn *fn;
    uint16_t *random;
    uint64_t first;
    size_t group_count;
    gw_level_stream stream;
} random_call;

static void call_random(void *context)
{
    const random_call *c = (const random_call *)context;
    c->fn(c->random, c->first, c->group_count, &c->stream);
}

static uint16_t model_random(const gw_level_stream *stream, uint64_t first, size_t i)
{
    const uint64_t group = (first + i / 128) % ((uint64_t)1 << 57);
    const uint64_t counter = group * 16 + i % 16;
    const gw_thc_stream words = {stream->seed, (uint32_t)(counter / 4294967296u) + 0x20000000u, stream->round,
                                 0};
    const uint32_t word =
        kct_philox(&words, (uint32_t)(counter % 4294967296u), stream->rank, (unsigned)(i / 32 % 4));
    return (uint16_t)(i / 16 % 2 != 0 ? word / 65536 : word % 65536);
}

static void random_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    random_call expected;
    memset(&expected, 0, sizeof expected);
    expected.fn = (gw_level_random_fn *)t->reference;
    expected.random = kc_u16(kc_plain(0));
    expected.group_count = s->len % 41;
    expected.stream.seed = kc_random(&t->rng);
    expected.stream.round = kc_below(&t->rng, 1000);
    expected.stream.rank = kc_below(&t->rng, 8) == 0 ? UINT32_MAX : kc_below(&t->rng, 64);
    expected.first = kc_random(&t->rng) >> (7 + kc_below(&t->rng, 57));
    if (s->config != 0) { /* across the carry of the counter's low word, and the last group */
        const uint64_t end = s->config == 1 ? (uint64_t)1 << (28 + kc_below(&t->rng, 29)) : (uint64_t)1 << 57;
        expected.first = end - kc_below(&t->rng, 20);
    }
    const size_t len = 128 * expected.group_count;
    kc_describe(t, "%zu groups from %llu", expected.group_count, (unsigned long long)expected.first);
    random_call got = expected;
    got.fn = (gw_level_random_fn *)t->fn;
    got.random = kc_u16(kc_out(t, "random", 2 * len, 0, s->dst, 2));
    if (!kct_both(t, call_random, &expected, &got, 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "random", expected.random, got.random, len, 2);
    if (t->is_reference) {
        uint16_t *model = kc_u16(kc_plain(1));
        for (size_t i = 0; i < len; i++) {
            model[i] = model_random(&expected.stream, expected.first, i);
        }
        kc_equal(t, KC_MODEL, "random", model, got.random, len, 2);
    }
}

static void test_random(kc_test *t)
{
    kc_walk(t, 3, 1, random_body);
}

static void bench_random(kc_test *t)
{
    random_call call = {
        (gw_level_random_fn *)t->fn, kc_u16(kc_plain(0)), 12345, t->kernel->bench_len / 128, {1, 2, 3}};
    kc_bench(t, call_random, &call);
}

/* ---- norms --------------------------------------------------------------------------------------------- */

typedef struct norm_call {
    kc_fn fn;
    const float *x;
    size_t len;
    gw_level_moments moments;
    uint32_t largest;
} norm_call;

static void call_largest(void *context)
{
    norm_call *c = (norm_call *)context;
    c->largest = ((gw_level_largest_fn *)c->fn)(c->x, c->len);
}

static void call_moments(void *context)
{
    norm_call *c = (norm_call *)context;
    ((gw_level_moments_fn *)c->fn)(&c->moments, c->x, c->len);
}

static uint32_t model_largest(const uint8_t *x, size_t len)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < len; i++) {
        const uint32_t magnitude = kct_load_bits(x + 4 * i) % 0x80000000u;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Sum over lanes in the order of a tree: lane j of `stride` lanes has those of j and j + stride. */
static double model_lane(const uint8_t *x, size_t len, size_t lane, size_t stride, int is_square)
{
    if (stride < 16) {
        return model_lane(x, len, lane, 2 * stride, is_square) +
               model_lane(x, len, lane + stride, 2 * stride, is_square);
    }
    double sum = 0;
    for (size_t i = lane; i < len; i += 16) {
        const double value = kct_double(kct_load_bits(x + 4 * i));
        sum += is_square ? value * value : value;
    }
    return sum;
}

static void largest_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    norm_call expected = {t->reference, NULL, s->len, {0, 0, 0}, 0};
    kct_floats(&t->rng, kc_plain(0), s->len, s->pattern);
    kc_describe(t, "%zu values, pattern %s", s->len, kc_value_pattern_name(s->pattern));
    expected.x = kct_f32(kc_plain(0));
    norm_call got = expected;
    got.fn = t->fn;
    got.x = kct_f32(kc_in(t, "x", kc_plain(0), 4 * s->len, 0, s->src, 4));
    if (!kct_both(t, call_largest, &expected, &got, s->config != 0)) {
        return;
    }
    kc_equal_number(t, KC_OUTPUT, "largest", expected.largest, got.largest);
    if (t->is_reference) {
        kc_equal_number(t, KC_MODEL, "largest", model_largest(kc_plain(0), s->len), got.largest);
    }
}

static void test_largest(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, largest_body);
}

static void moments_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    norm_call expected = {t->reference, NULL, s->len, {0, 0, 0}, 0};
    kct_loaded(&t->rng, kc_plain(0), s->len, s->pattern, s->config / 2 != 0);
    kc_describe(t, "%zu values, flush mode %u, pattern %s", s->len, s->config % 2,
                kc_value_pattern_name(s->pattern));
    expected.x = kct_f32(kc_plain(0));
    expected.moments.sum = kc_below(&t->rng, 1000) - 500.0;
    expected.moments.squares = kc_below(&t->rng, 1000);
    expected.moments.largest = kc_below(&t->rng, 3) * 0x3f800000u;
    const gw_level_moments before = expected.moments;
    norm_call got = expected;
    got.fn = t->fn;
    got.x = kct_f32(kc_in(t, "x", kc_plain(0), 4 * s->len, 0, s->src, 4));
    if (!kct_both(t, call_moments, &expected, &got, s->config % 2 != 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "moments", &expected.moments.sum, &got.moments.sum, 2, 8);
    kc_equal_number(t, KC_OUTPUT, "largest", expected.moments.largest, got.moments.largest);
    if (t->is_reference) {
        const uint32_t largest = model_largest(kc_plain(0), s->len);
        gw_level_moments model = before;
        model.largest = largest > before.largest ? largest : before.largest;
        if (largest < 0x7f800000u) {
            model.sum += model_lane(kc_plain(0), s->len, 0, 1, 0);
            model.squares += model_lane(kc_plain(0), s->len, 0, 1, 1);
        }
        kc_equal(t, KC_MODEL, "moments", &model.sum, &got.moments.sum, 2, 8);
        kc_equal_number(t, KC_MODEL, "largest", model.largest, got.moments.largest);
    }
}

static void test_moments(kc_test *t)
{
    kc_walk(t, 4, KC_VALUE_PATTERNS, moments_body);
}

static void bench_norm(kc_test *t, kc_call *function)
{
    kc_rng rng = {1};
    norm_call call = {t->fn, kct_f32(kc_plain(0)), t->kernel->bench_len, {0, 0, 0}, 0};
    kct_loaded(&rng, kc_plain(0), call.len, 1, 1);
    kc_bench(t, function, &call);
}

static void bench_largest(kc_test *t)
{
    bench_norm(t, call_largest);
}

static void bench_moments(kc_test *t)
{
    bench_norm(t, call_moments);
}

/* ---- quantize ------------------------------------------------------------------------------------------ */

typedef struct quantize_call {
    gw_level_quantize_fn *fn;
    int8_t *levels;
    const float *x;
    const uint16_t *random;
    size_t len;
    gw_level_rule rule;
} quantize_call;

static void call_quantize(void *context)
{
    const quantize_call *c = (const quantize_call *)context;
    c->fn(c->levels, c->x, c->random, c->len, &c->rule);
}

static int8_t *levels_at(uint8_t *p)
{
    return (int8_t *)(void *)p;
}

static int8_t model_level(uint32_t bits, uint32_t random, const gw_level_rule *rule)
{
    const double product = kct_double(kct_fp32(fabs(kct_double(bits)) * (double)rule->scale, 0));
    double position = kct_double(kct_fp32(product + 0.5, 0));
    const double limit = 65536.0 * rule->level_max;
    position = position < limit ? floor(position) : limit;
    const int level = (int)floor((position + random) / 65536);
    return (int8_t)(bits >= 0x80000000u ? -level : level);
}

static void quantize_body(kc_test *t)
{
    static const uint32_t most[6] = {1, 2, 4, 15, 64, 127};
    const kc_shape *s = &t->shape;
    quantize_call expected;
    memset(&expected, 0, sizeof expected);
    expected.rule.level_max = most[s->config % 6];
    const uint32_t largest = kct_loaded(&t->rng, kc_plain(0), s->len, s->pattern, 1);
    /* Norms around the largest value, below it in one case of three; or any scale. */
    const double norm =
        ldexp(0.5 + kc_below(&t->rng, 1u << 20) * 0x1p-20, (int)largest - 126 + (int)kc_below(&t->rng, 3));
    expected.rule.scale = gw_float_from_bits(
        kct_fp32(norm == 0 ? 0 : 65536.0 * expected.rule.level_max / norm, 1) % 0x7f800000u);
    if (kc_below(&t->rng, 8) == 0) {
        expected.rule.scale =
            gw_float_from_bits(kc_below(&t->rng, 2) * (kc_below(&t->rng, 254u << 23) + 0x800000u));
    }
    for (size_t i = 0; i < s->len; i++) {
        const uint32_t random =
            kc_below(&t->rng, 4) == 0 ? 65535 * kc_below(&t->rng, 2) : kc_below(&t->rng, 65536);
        kc_u16(kc_plain(1))[i] = (uint16_t)random;
    }
    kc_describe(t, "%zu values, s %u, scale %g, pattern %s", s->len, expected.rule.level_max,
                (double)expected.rule.scale, kc_value_pattern_name(s->pattern));
    expected.fn = (gw_level_quantize_fn *)t->reference;
    expected.levels = levels_at(kc_plain(2));
    expected.x = kct_f32(kc_plain(0));
    expected.random = kc_u16(kc_plain(1));
    expected.len = s->len;
    quantize_call got = expected;
    got.fn = (gw_level_quantize_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", kc_plain(0), 4 * s->len, 0, s->src, 4));
    got.random = kc_u16(kc_in(t, "random", kc_plain(1), 2 * s->len, 0, kc_place_other(t), 2));
    got.levels = levels_at(kc_out(t, "levels", s->len, 0, s->dst, 1));
    if (!kct_both(t, call_quantize, &expected, &got, s->config / 6 != 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "levels", expected.levels, got.levels, s->len, 1);
    if (t->is_reference) {
        int8_t *model = levels_at(kc_plain(3));
        for (size_t i = 0; i < s->len; i++) {
            model[i] = model_level(kct_load_bits(kc_plain(0) + 4 * i), expected.random[i], &expected.rule);
        }
        kc_equal(t, KC_MODEL, "levels", model, got.levels, s->len, 1);
    }
}

static void test_quantize(kc_test *t)
{
    kc_walk(t, 12, KC_VALUE_PATTERNS, quantize_body);
}

static void bench_quantize(kc_test *t)
{
    kc_rng rng = {1};
    quantize_call call = {(gw_level_quantize_fn *)t->fn, levels_at(kc_plain(2)), kct_f32(kc_plain(0)),
                          kc_u16(kc_plain(1)),           t->kernel->bench_len,   {65536.0f * 4, 4}};
    kc_random_bytes(&rng, kc_plain(1), 2 * call.len);
    for (size_t i = 0; i < call.len; i++) {
        kct_store_bits(kc_plain(0) + 4 * i, kct_fp32(kc_below(&rng, 1u << 24) * 0x1p-23 - 1, 1));
    }
    kc_bench(t, call_quantize, &call);
}

/* ---- decode -------------------------------------------------------------------------------------------- */

typedef struct decode_call {
    gw_level_decode_fn *fn;
    float *dst;
    const int8_t *levels;
    size_t len;
    float step;
} decode_call;

static void call_decode(void *context)
{
    const decode_call *c = (const decode_call *)context;
    c->fn(c->dst, c->levels, c->len, c->step);
}

static void decode_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    decode_call expected = {(gw_level_decode_fn *)t->reference, kct_f32(kc_plain(1)), levels_at(kc_plain(0)),
                            s->len, 0};
    kc_random_bytes(&t->rng, kc_plain(0), s->len);
    if (s->pattern != 0) {
        expected.step = gw_float_from_bits((17u << 23) + kc_below(&t->rng, 230u << 23));
    }
    kc_describe(t, "%zu levels, step %g", s->len, (double)expected.step);
    decode_call got = expected;
    got.fn = (gw_level_decode_fn *)t->fn;
    got.levels = levels_at(kc_in(t, "levels", kc_plain(0), s->len, 0, s->src, 1));
    got.dst = kct_f32(kc_out(t, "dst", 4 * s->len, 0, s->dst, 4));
    if (!kct_both(t, call_decode, &expected, &got, s->config != 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, s->len, 4);
    if (t->is_reference) {
        uint8_t *model = kc_plain(2);
        for (size_t i = 0; i < s->len; i++) {
            kct_store_bits(model + 4 * i, kct_fp32(expected.levels[i] * (double)expected.step, 0));
        }
        kc_equal(t, KC_MODEL, "dst", model, got.dst, s->len, 4);
    }
}

static void test_decode(kc_test *t)
{
    kc_walk(t, 2, 4, decode_body);
}

static void bench_decode(kc_test *t)
{
    kc_rng rng = {1};
    decode_call call = {(gw_level_decode_fn *)t->fn, kct_f32(kc_plain(1)), levels_at(kc_plain(0)),
                        t->kernel->bench_len, 0.25f};
    kc_random_bytes(&rng, kc_plain(0), call.len);
    kc_bench(t, call_decode, &call);
}

const kc_kernel kc_level_family[] = {
    {"level_random", select_random, test_random, bench_random, 4096},
    {"level_largest", select_largest, test_largest, bench_largest, 4096},
    {"level_moments", select_moments, test_moments, bench_moments, 4096},
    {"level_quantize", select_quantize, test_quantize, bench_quantize, 4096},
    {"level_decode", select_decode, test_decode, bench_decode, 4096},
    {NULL, NULL, NULL, NULL, 0},
};
