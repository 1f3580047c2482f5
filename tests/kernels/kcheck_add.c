/*
 * Sums and products. Sums: into a third array and in place, strict and not, and (not strict) with the
 * processor's flush modes on. The model adds in double (a sum of two such numbers rounded to double first is
 * rounded right: 53 >= 2 * 24 + 2 bits) and rounds with frexp and nearbyint. Products, which are exact in
 * double, are made in place.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <math.h>
#include <string.h>

KC_SELECT(add_fp32);
KC_SELECT(add_bf16);
KC_SELECT(add_fp16);
KC_SELECT(scale_fp32);

typedef struct add_call {
    gw_add_fn *fn;
    void *out;
    const void *accumulator, *values;
    size_t len;
    uint32_t strict;
    int flush_mode;
} add_call;

static void call_add(void *context)
{
    const add_call *c = (const add_call *)context;
    if (c->flush_mode) {
        kc_flush_mode(1);
    }
    c->fn(c->out, c->accumulator, c->values, c->len, c->strict);
    if (c->flush_mode) {
        kc_flush_mode(0);
    }
}

/* m mantissa bits, exponent field of infinity, smallest normal exponent. */
typedef struct layout {
    int m, top, least;
} layout;

static layout layout_of(uint32_t dtype)
{
    const layout fp32 = {23, 255, -126}, bf16 = {7, 255, -126}, fp16 = {10, 31, -14};
    return dtype == GW_FP32 ? fp32 : dtype == GW_BF16 ? bf16 : fp16;
}

static double widen(uint32_t bits, layout l)
{
    const uint32_t sign = bits >> (l.top == 31 || l.m == 7 ? 15 : 31) & 1;
    const uint32_t e = bits >> l.m & (uint32_t)l.top;
    const uint32_t f = bits & ((1u << l.m) - 1);
    double x;
    if (e == (uint32_t)l.top) {
        x = f != 0 ? (double)NAN : (double)INFINITY;
    } else if (e == 0) {
        x = ldexp((double)f, l.least - l.m);
    } else {
        x = ldexp((double)(f | 1u << l.m), (int)e - 1 + l.least - l.m);
    }
    return sign != 0 ? -x : x;
}

static uint32_t narrow(double x, layout l)
{
    const uint32_t sign = signbit(x) ? 1u << (l.top == 255 && l.m == 23 ? 31 : 15) : 0;
    const uint32_t infinity = (uint32_t)l.top << l.m;
    x = fabs(x);
    if (isinf(x)) {
        return sign | infinity;
    }
    int exponent = l.least;
    if (x > 0.0) {
        frexp(x, &exponent);
        exponent = exponent - 1 < l.least ? l.least : exponent - 1;
    }
    const double units = nearbyint(ldexp(x, l.m - exponent)); /* at most 2^(m + 1) */
    /* Counting from the first number of this exponent (or, for subnormals, from zero) carries into the
     * exponent. */
    const uint32_t field = (uint32_t)(exponent - l.least);
    const uint64_t bits = (uint64_t)units + ((uint64_t)field << l.m);
    return sign | (bits >= infinity ? infinity : (uint32_t)bits);
}

uint32_t kc_model_add(uint32_t a, uint32_t b, uint32_t dtype, uint32_t strict)
{
    const layout l = layout_of(dtype);
    const double smallest = dtype == GW_FP16 ? 0.0 : ldexp(1.0, -126);
    double x = widen(a, l), y = widen(b, l);
    if (!strict) {
        x = fabs(x) < smallest ? 0.0 : x;
        y = fabs(y) < smallest ? 0.0 : y;
        /* -0 + -0 is the only sum of zeros that keeps the sign */
        x = x == 0.0 ? 0.0 : x;
    }
    double sum = x + y;
    if (isnan(sum)) {
        return dtype == GW_FP32 ? 0x7fc00000u : dtype == GW_BF16 ? 0x7fc0 : 0x7e00;
    }
    if (!strict && fabs(sum) < smallest) {
        sum = 0.0;
    }
    uint32_t bits = narrow(sum, l);
    if (!strict && bits << (dtype == GW_FP32 ? 1 : 17) == 0) {
        bits = 0;
    }
    return bits;
}

static uint32_t get(const uint8_t *p, size_t i, uint32_t dtype)
{
    return dtype == GW_FP32 ? gw_load32(p + 4 * i) : gw_load16(p + 2 * i);
}

static void put(uint8_t *p, size_t i, uint32_t dtype, uint32_t bits)
{
    if (dtype == GW_FP32) {
        gw_store32(p + 4 * i, bits);
    } else {
        gw_store16(p + 2 * i, (uint16_t)bits);
    }
}

static void add_body(kc_test *t, uint32_t dtype)
{
    const kc_shape *s = &t->shape;
    const uint32_t strict = s->config & 1;
    const int in_place = (s->config >> 1 & 1) != 0, flush_mode = s->config >= 4 && !strict;
    const size_t cell = gw_traits_of(dtype)->size, size = s->len * cell;
    uint8_t *accumulator = kc_plain(0), *values = kc_plain(1);
    const unsigned other = kc_below(&t->rng, 2) == 0 ? s->pattern : kc_below(&t->rng, KC_VALUE_PATTERNS);
    kc_values(&t->rng, accumulator, dtype, s->len, s->pattern);
    kc_values(&t->rng, values, dtype, s->len, other);
    if (kc_below(&t->rng, 3) == 0) { /* sums that cancel but for the last bits, or exactly */
        for (size_t i = 0; i < s->len; i++) {
            if (kc_below(&t->rng, 4) != 0) {
                const uint32_t sign = dtype == GW_FP32 ? 0x80000000u : 0x8000;
                put(values, i, dtype, (get(accumulator, i, dtype) ^ sign) + kc_below(&t->rng, 3) - 1);
            }
        }
    }
    kc_describe(t, "strict %u, %s, flush mode %s, %s + %s", strict, in_place ? "in place" : "separate",
                flush_mode ? "on" : "off", kc_value_pattern_name(s->pattern), kc_value_pattern_name(other));

    add_call expected = {(gw_add_fn *)t->reference, kc_plain(2), accumulator, values, s->len, strict, 0};
    add_call got = expected;
    got.fn = (gw_add_fn *)t->fn;
    got.flush_mode = flush_mode;
    got.values = kc_in(t, "values", values, size, 0, s->src, 1);
    if (in_place) {
        got.out = kc_inout(t, "accumulator and out", accumulator, size, 0, s->dst, 1);
        got.accumulator = got.out;
    } else {
        got.accumulator = kc_in(t, "accumulator", accumulator, size, 0, kc_place_other(t), 1);
        got.out = kc_out(t, "out", size, 0, s->dst, 1);
    }
    if (!kc_guarded(t, call_add, &expected) || !kc_guarded(t, call_add, &got)) {
        kc_flush_mode(0);
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "out", expected.out, got.out, s->len, cell);
    if (t->is_reference) {
        uint8_t *out = kc_plain(3);
        for (size_t i = 0; i < s->len; i++) {
            put(out, i, dtype,
                kc_model_add(get(accumulator, i, dtype), get(values, i, dtype), dtype, strict));
        }
        kc_equal(t, KC_MODEL, "out", out, got.out, s->len, cell);
    }
}

static void fp32_body(kc_test *t)
{
    add_body(t, GW_FP32);
}

static void bf16_body(kc_test *t)
{
    add_body(t, GW_BF16);
}

static void fp16_body(kc_test *t)
{
    add_body(t, GW_FP16);
}

static void test_add_fp32(kc_test *t)
{
    kc_walk(t, 8, KC_VALUE_PATTERNS, fp32_body);
}

static void test_add_bf16(kc_test *t)
{
    kc_walk(t, 8, KC_VALUE_PATTERNS, bf16_body);
}

static void test_add_fp16(kc_test *t)
{
    kc_walk(t, 8, KC_VALUE_PATTERNS, fp16_body);
}

static void bench_add(kc_test *t, uint32_t dtype)
{
    kc_rng rng = {1};
    kc_values(&rng, kc_plain(0), dtype, t->kernel->bench_len, 9);
    kc_values(&rng, kc_plain(1), dtype, t->kernel->bench_len, 9);
    add_call call = {(gw_add_fn *)t->fn, kc_plain(2), kc_plain(0), kc_plain(1), t->kernel->bench_len, 0, 0};
    kc_bench(t, call_add, &call);
}

static void bench_add_fp32(kc_test *t)
{
    bench_add(t, GW_FP32);
}

static void bench_add_bf16(kc_test *t)
{
    bench_add(t, GW_BF16);
}

static void bench_add_fp16(kc_test *t)
{
    bench_add(t, GW_FP16);
}

/* ---- scale --------------------------------------------------------------------------------------------- */

typedef struct scale_call {
    gw_scale_fn *fn;
    void *values;
    size_t len;
    float scale;
    uint32_t strict;
    int flush_mode;
} scale_call;

static void call_scale(void *context)
{
    const scale_call *c = (const scale_call *)context;
    if (c->flush_mode) {
        kc_flush_mode(1);
    }
    c->fn(c->values, c->len, c->scale, c->strict);
    if (c->flush_mode) {
        kc_flush_mode(0);
    }
}

static uint32_t model_scale(uint32_t bits, float scale, uint32_t strict)
{
    const layout l = layout_of(GW_FP32);
    const double smallest = ldexp(1.0, -126);
    double x = widen(bits, l);
    if (!strict && fabs(x) < smallest) {
        return 0;
    }
    x *= (double)scale;
    if (isnan(x)) {
        return 0x7fc00000u;
    }
    const uint32_t product = narrow(x, l);
    return !strict && (product & 0x7fffffff) <= 0x00800000u ? 0 : product;
}

/* Of 1 to 2^64 ranks, or any, of either sign; some make products next to 2^-126 of values with a set
 * exponent. */
static float draw_scale(kc_rng *rng)
{
    static const uint32_t some[] = {0x3e800000u, 0x3eaaaaabu, 0x3f800001u,
                                    0x00800000u, 0x7f7fffffu, 0x1f800000u};
    if (kc_below(rng, 2) == 0) {
        return gw_float_from_bits(some[kc_below(rng, sizeof some / sizeof some[0])]);
    }
    return gw_float_from_bits(kc_below(rng, 2) << 31 | (1 + kc_below(rng, 254)) << 23 |
                              kc_below(rng, 1u << 23));
}

static void scale_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t strict = s->config & 1;
    const int flush_mode = s->config >= 2 && !strict;
    const size_t size = 4 * s->len;
    uint8_t *values = kc_plain(0);
    kc_values(&t->rng, values, GW_FP32, s->len, s->pattern);
    const float scale = draw_scale(&t->rng);
    if (kc_below(&t->rng, 3) == 0) { /* products next to the smallest normal number */
        for (size_t i = 0; i < s->len; i++) {
            const uint32_t exact = gw_bits_from_float(0x1p-126f / scale);
            gw_store32(values + 4 * i, (exact & 0x7fffffff) + kc_below(&t->rng, 5) - 2);
        }
    }
    kc_describe(t, "strict %u, flush mode %s, %s * %a", strict, flush_mode ? "on" : "off",
                kc_value_pattern_name(s->pattern), (double)scale);
    uint8_t *in_place = kc_plain(1);
    memcpy(in_place, values, size);
    scale_call expected = {(gw_scale_fn *)t->reference, in_place, s->len, scale, strict, 0};
    scale_call got = expected;
    got.fn = (gw_scale_fn *)t->fn;
    got.flush_mode = flush_mode;
    got.values = kc_inout(t, "values", values, size, 0, s->dst, 1);
    if (!kc_guarded(t, call_scale, &expected) || !kc_guarded(t, call_scale, &got)) {
        kc_flush_mode(0);
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "values", expected.values, got.values, s->len, 4);
    if (t->is_reference) {
        uint8_t *out = kc_plain(2);
        for (size_t i = 0; i < s->len; i++) {
            gw_store32(out + 4 * i, model_scale(gw_load32(values + 4 * i), scale, strict));
        }
        kc_equal(t, KC_MODEL, "values", out, got.values, s->len, 4);
    }
}

static void test_scale_fp32(kc_test *t)
{
    kc_walk(t, 4, KC_VALUE_PATTERNS, scale_body);
}

static void bench_scale_fp32(kc_test *t)
{
    kc_rng rng = {1};
    kc_values(&rng, kc_plain(0), GW_FP32, t->kernel->bench_len, 9);
    /* Almost 1, so that values stay what they are over many calls. */
    scale_call call = {(gw_scale_fn *)t->fn, kc_plain(0), t->kernel->bench_len, 0x1.fffffep-1f, 0, 0};
    kc_bench(t, call_scale, &call);
}

const kc_kernel kc_add_family[] = {
    {"add_fp32", select_add_fp32, test_add_fp32, bench_add_fp32, 16384},
    {"add_bf16", select_add_bf16, test_add_bf16, bench_add_bf16, 16384},
    {"add_fp16", select_add_fp16, test_add_fp16, bench_add_fp16, 16384},
    {"scale_fp32", select_scale_fp32, test_scale_fp32, bench_scale_fp32, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
