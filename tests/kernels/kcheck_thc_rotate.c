/*
 * Norms, extents, the rotation and its way back. The model of the transform is the recursion over halves.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

KC_SELECT_THC(norm);
KC_SELECT_THC(extent);
KC_SELECT_THC(rotate);
KC_SELECT_THC(rotate_back);

enum { NONFINITE = 0x7fc00000 };

/* ---- norm ---------------------------------------------------------------------------------------------- */

typedef struct norm_call {
    gw_thc_norm_fn *fn;
    const float *x;
    size_t len;
    uint32_t pattern;
} norm_call;

static void call_norm(void *context)
{
    norm_call *c = (norm_call *)context;
    c->pattern = c->fn(c->x, c->len);
}

static double add32(double a, double b)
{
    return kct_double(kct_fp32(a + b, 0));
}

static uint32_t model_norm(const uint8_t *x, size_t len, double *exact)
{
    double sum[64] = {0}, total = 0.0;
    int top = 0;
    for (size_t i = 0; i < len; i++) {
        const int e = (int)(kct_load_bits(x + 4 * i) >> 23 & 255);
        top = e > top ? e : top;
    }
    if (top == 255 || top == 0) {
        return top == 0 ? 0 : NONFINITE;
    }
    for (size_t i = 0; i < len; i++) {
        const double value = kct_double(kct_load_bits(x + 4 * i));
        const int e = (int)(kct_load_bits(x + 4 * i) >> 23 & 255);
        const double y = e + 60 < top ? 0.0 : ldexp(value, 128 - top);
        total += y * y;
        sum[i % 64] = add32(sum[i % 64], kct_double(kct_fp32(y * y, 0)));
    }
    for (unsigned n = 64; n > 1; n /= 2) {
        for (unsigned j = 0; j < n / 2; j++) {
            sum[j] = add32(sum[j], sum[j + n / 2]);
        }
    }
    *exact = ldexp(sqrt(total), top - 128);
    const double norm = ldexp(kct_double(kct_fp32(sqrt(sum[0]), 0)), top - 128);
    return norm >= ldexp(1.0, 128) ? (uint32_t)NONFINITE : kct_fp32(norm, 0);
}

static void norm_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config % 2 != 0;
    const size_t len = kct_len(t) == 0 ? 1 : kct_len(t);
    uint8_t *x = kc_plain(0);
    kct_loaded(&t->rng, x, len, s->pattern, s->config / 2 != 0);
    kc_describe(t, "flush mode %d, %s", flush_mode, kc_value_pattern_name(s->pattern));

    norm_call expected = {(gw_thc_norm_fn *)t->reference, kct_f32(x), len, 0};
    norm_call got = expected;
    got.fn = (gw_thc_norm_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    if (!kct_both(t, call_norm, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal_number(t, KC_OUTPUT, "pattern", expected.pattern, got.pattern);
    if (t->is_reference) {
        double exact = 0.0;
        const uint32_t model = model_norm(x, len, &exact);
        kc_equal_number(t, KC_MODEL, "pattern", model, got.pattern);
        if (model != 0 && model != NONFINITE && fabs(kct_double(got.pattern) - exact) > 5e-6 * exact) {
            kc_fail(t, KC_MODEL, "norm %g, exactly %g", kct_double(got.pattern), exact);
        }
    }
}

static void test_norm(kc_test *t)
{
    kc_walk(t, 4, KC_VALUE_PATTERNS, norm_body);
}

static void bench_norm(kc_test *t)
{
    kc_rng rng = {1};
    kct_loaded(&rng, kc_plain(0), t->kernel->bench_len, 9, 1);
    norm_call call = {(gw_thc_norm_fn *)t->fn, kct_f32(kc_plain(0)), t->kernel->bench_len, 0};
    kc_bench(t, call_norm, &call);
}

/* ---- extent -------------------------------------------------------------------------------------------- */

typedef struct extent_call {
    gw_thc_extent_fn *fn;
    const float *x;
    size_t len;
    uint32_t patterns[2];
} extent_call;

static void call_extent(void *context)
{
    extent_call *c = (extent_call *)context;
    c->fn(c->patterns, c->x, c->len);
}

/* Numbers in order: the code of +0 is 2^31, of the next number above 2^31 + 1, ... */
static uint32_t model_code(double x)
{
    const uint32_t bits = kct_fp32(fabs(x), 0);
    return x < 0.0 ? 0x7fffffffu - bits : 0x80000000u + bits;
}

static void extent_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config % 2 != 0;
    const size_t len = kct_len(t) == 0 ? 1 : kct_len(t);
    uint8_t *x = kc_plain(0);
    kct_loaded(&t->rng, x, len, s->pattern, s->config / 2 % 2 != 0);
    if (s->config / 4 != 0) { /* of one sign, where the code of 0 must not be taken for the least */
        const uint32_t sign = kc_below(&t->rng, 2) << 31;
        for (size_t i = 0; i < len; i++) {
            const uint32_t bits = kct_load_bits(x + 4 * i) & 0x7fffffff;
            kct_store_bits(x + 4 * i, bits == 0 ? 0 : bits | sign);
        }
    }
    kc_describe(t, "flush mode %d, %s", flush_mode, kc_value_pattern_name(s->pattern));

    extent_call expected = {(gw_thc_extent_fn *)t->reference, kct_f32(x), len, {0, 0}};
    extent_call got = expected;
    got.fn = (gw_thc_extent_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    if (!kct_both(t, call_extent, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "patterns", expected.patterns, got.patterns, 2, 4);
    if (t->is_reference) {
        uint32_t model[2];
        double low = (double)INFINITY, high = -low;
        int is_large = 0;
        for (size_t i = 0; i < len; i++) {
            const double value = kct_double(kct_load_bits(x + 4 * i));
            is_large |= !(fabs(value) < ldexp(1.0, 127));
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        model[0] = is_large ? 0xffffffffu : model_code(high);
        model[1] = is_large ? 0xffffffffu : model_code(0.0 - low);
        kc_equal(t, KC_MODEL, "patterns", model, got.patterns, 2, 4);
    }
}

static void test_extent(kc_test *t)
{
    kc_walk(t, 8, KC_VALUE_PATTERNS, extent_body);
}

static void bench_extent(kc_test *t)
{
    kc_rng rng = {1};
    kct_loaded(&rng, kc_plain(0), t->kernel->bench_len, 9, 1);
    extent_call call = {(gw_thc_extent_fn *)t->fn, kct_f32(kc_plain(0)), t->kernel->bench_len, {0, 0}};
    kc_bench(t, call_extent, &call);
}

/* ---- rotate -------------------------------------------------------------------------------------------- */

typedef struct rotate_call {
    gw_thc_rotate_fn *fn;
    float *dst;
    const float *src;
    size_t len;
    uint32_t exponent;
    gw_thc_stream stream;
} rotate_call;

static void call_rotate(void *context)
{
    const rotate_call *c = (const rotate_call *)context;
    c->fn(c->dst, c->src, c->len, c->exponent, &c->stream);
}

/* H of 2n values from H of their halves, which puts the largest stride last. */
static void model_transform(float *x, size_t len)
{
    const size_t half = len / 2;
    if (len == 1) {
        return;
    }
    model_transform(x, half);
    model_transform(x + half, half);
    for (size_t i = 0; i < half; i++) {
        const double a = (double)x[i], b = (double)x[half + i];
        x[i] = (float)(a + b);
        x[half + i] = (float)(a - b);
    }
}

static int model_sign(const gw_thc_stream *stream, size_t v)
{
    return (int)(kct_philox(stream, (uint32_t)(v / 128), 0, (unsigned)(v / 32 % 4)) >> v % 32 & 1);
}

static void rotate_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int in_place = s->config / 8 % 2 != 0, flush_mode = s->config / 16 != 0;
    const size_t len = kct_power(t);
    if (kct_repeats(t)) {
        return;
    }
    uint8_t *src = kc_plain(0);
    uint32_t exponent = kct_loaded(&t->rng, src, len, s->pattern, 1);
    exponent += kc_below(&t->rng, 8); /* a norm is up to 2^6.5 times the largest value */
    exponent = exponent > 254 ? 254 : exponent;
    rotate_call expected = {
        (gw_thc_rotate_fn *)t->reference, kct_f32(kc_plain(2)), kct_f32(src), len, exponent, {0, 0, 0, 0}};
    kct_stream(&t->rng, &expected.stream);
    kc_describe(t, "%zu lanes, exponent %u, %s, flush mode %d, %s", len, exponent,
                in_place ? "in place" : "separate", flush_mode, kc_value_pattern_name(s->pattern));

    rotate_call got = expected;
    got.fn = (gw_thc_rotate_fn *)t->fn;
    got.dst = kct_place(t, src, len, in_place, &got.src);
    if (!kct_both(t, call_rotate, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, 4);
    if (t->is_reference) {
        float *model = kct_f32(kc_plain(3));
        for (size_t i = 0; i < len; i++) {
            const double x = kct_double(kct_load_bits(src + 4 * i));
            const uint32_t e = kct_load_bits(src + 4 * i) >> 23 & 255;
            const double y = e + 60 < exponent ? 0.0 : ldexp(x, 128 - (int)exponent);
            model[i] = (float)(model_sign(&got.stream, i) ? -y : y);
        }
        model_transform(model, len);
        kc_equal(t, KC_MODEL, "dst", model, got.dst, len, 4);
    }
}

static void test_rotate(kc_test *t)
{
    kc_walk(t, 32, KC_VALUE_PATTERNS, rotate_body);
}

static void bench_rotate(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    const uint32_t exponent = kct_loaded(&rng, kc_plain(0), len, 9, 1);
    rotate_call call = {
        (gw_thc_rotate_fn *)t->fn, kct_f32(kc_plain(2)), kct_f32(kc_plain(0)), len, exponent, {1, 2, 3, 0}};
    kc_bench(t, call_rotate, &call);
}

/* ---- rotate back --------------------------------------------------------------------------------------- */

typedef struct back_call {
    gw_thc_rotate_back_fn *fn;
    float *y;
    const uint8_t *source; /* copied into y first where it is set: timing needs fresh values */
    size_t len;
    uint32_t exponent;
    gw_thc_stream stream;
} back_call;

static void call_back(void *context)
{
    const back_call *c = (const back_call *)context;
    if (c->source != NULL) {
        memcpy(c->y, c->source, 4 * c->len);
    }
    c->fn(c->y, c->len, c->exponent, &c->stream);
}

static void back_body(kc_test *t)
{
    static const uint8_t special[8] = {1, 2, 126, 127, 128, 129, 253, 254};
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config / 8 != 0;
    const size_t len = kct_power(t);
    const uint32_t exponent =
        kc_below(&t->rng, 2) == 0 ? special[kc_below(&t->rng, 8)] : 1 + kc_below(&t->rng, 254);
    if (kct_repeats(t)) {
        return;
    }
    uint8_t *y = kc_plain(0);
    /* What unpack writes: an integer below 2^24 times a scale of 2^-22 to 2^10. */
    const double scale = ldexp(1.0 + kc_below(&t->rng, 1u << 23) * 0x1p-23, (int)kc_below(&t->rng, 32) - 22);
    const uint32_t reach = 2u << kc_below(&t->rng, 23);
    for (size_t i = 0; i < len; i++) {
        double count = (double)kc_below(&t->rng, 2 * reach + 1) - (double)reach;
        count = s->pattern == 0 ? 0.0 : s->pattern == 1 ? (double)reach : count;
        count = s->pattern == 2 && kc_below(&t->rng, 4) != 0 ? 0.0 : count;
        kct_store_bits(y + 4 * i, kct_fp32(count * scale, 0));
    }
    kc_describe(t, "%zu lanes, exponent %u, scale %g, flush mode %d, pattern %u", len, exponent, scale,
                flush_mode, s->pattern);

    back_call expected = {
        (gw_thc_rotate_back_fn *)t->reference, kct_f32(kc_plain(2)), NULL, len, exponent, {0, 0, 0, 0}};
    kct_stream(&t->rng, &expected.stream);
    back_call got = expected;
    got.fn = (gw_thc_rotate_back_fn *)t->fn;
    got.y = kct_f32(kc_inout(t, "y", y, 4 * len, 0, s->dst, 4));
    memcpy(kc_plain(2), y, 4 * len);
    if (!kct_both(t, call_back, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "y", expected.y, got.y, len, 4);
    if (t->is_reference) {
        float *model = kct_f32(kc_plain(3));
        memcpy(model, y, 4 * len);
        model_transform(model, len);
        for (size_t i = 0; i < len; i++) {
            const double x = model_sign(&got.stream, i) ? -(double)model[i] : (double)model[i];
            /* flushed by the exact product, before rounding; both agree as the product is exact */
            const uint32_t bits = kct_fp32(ldexp(x, (int)exponent - 127), 1);
            kct_store_bits(kc_plain(3) + 4 * i, bits << 1 == 0 ? 0 : bits);
        }
        kc_equal(t, KC_MODEL, "y", kc_plain(3), got.y, len, 4);
    }
}

static void test_back(kc_test *t)
{
    kc_walk(t, 16, 8, back_body);
}

static void bench_back(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    for (size_t i = 0; i < len; i++) {
        kct_store_bits(kc_plain(0) + 4 * i, kct_fp32((double)kc_below(&rng, 31) * 0.125 - 1.9, 0));
    }
    back_call call = {
        (gw_thc_rotate_back_fn *)t->fn, kct_f32(kc_plain(2)), kc_plain(0), len, 127, {1, 2, 3, 0}};
    kc_bench(t, call_back, &call);
}

const kc_kernel kc_thc_rotate_family[] = {
    {"thc_norm", select_norm, test_norm, bench_norm, 1024},
    {"thc_extent", select_extent, test_extent, bench_extent, 1024},
    {"thc_rotate", select_rotate, test_rotate, bench_rotate, 1024},
    {"thc_back", select_rotate_back, test_back, bench_back, 1024},
    {NULL, NULL, NULL, NULL, 0},
};
