/*
 * Casts, and what becomes of decoded values. The models compute in double.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

KC_SELECT_CLASSIC(multiply);
KC_SELECT_CLASSIC(accumulate);
KC_SELECT_CLASSIC(cast);

/* ---- multiply -------------------------------------------------------------------------------------------
 */

typedef struct multiply_call {
    gw_multiply_fn *fn;
    float *x;
    size_t len;
    float scale;
} multiply_call;

static void call_multiply(void *context)
{
    const multiply_call *c = (const multiply_call *)context;
    c->fn(c->x, c->len, c->scale);
}

static void multiply_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config != 0;
    const size_t len = s->len;
    uint8_t *x = kc_plain(0), *expected_x = kc_plain(1), *model = kc_plain(2);
    const uint32_t exponent = 1 + kc_below(&t->rng, 254);
    const uint32_t is_full = kc_below(&t->rng, 2) * 0x7fffffu; /* times 2^n just below 2^-126 */
    const uint32_t bits = ((uint32_t)kc_random(&t->rng) & 0x807fffffu) | is_full;
    multiply_call expected = {(gw_multiply_fn *)t->reference, kct_f32(expected_x), len, 0.0f};
    expected.scale = gw_float_from_bits(bits | exponent << 23);
    kct_floats(&t->rng, x, len, s->pattern);
    for (size_t i = 0; i < len && kc_below(&t->rng, 4) != 0; i++) { /* products around 2^-126 and 2^128 */
        const int32_t near = (kc_below(&t->rng, 2) == 0 ? 127 : 381) - (int32_t)exponent;
        const int32_t e = near + (int32_t)kc_below(&t->rng, 4) - 2;
        if (e >= 0 && e < 255) {
            const uint32_t kept = kc_below(&t->rng, 2) == 0 ? 0x80000000u : 0x807fffffu;
            kct_store_bits(x + 4 * i, (kct_load_bits(x + 4 * i) & kept) | (uint32_t)e << 23);
        }
    }
    kc_describe(t, "scale %a, flush mode %d, %s", (double)expected.scale, flush_mode,
                kc_value_pattern_name(s->pattern));
    memcpy(expected_x, x, 4 * len);
    multiply_call got = expected;
    got.fn = (gw_multiply_fn *)t->fn;
    uint8_t *out = kc_inout(t, "x", x, 4 * len, 0, s->dst, 4);
    got.x = kct_f32(out);
    if (!kct_both(t, call_multiply, &expected, &got, flush_mode)) {
        return;
    }
    kct_equal_floats(t, KC_OUTPUT, "x", expected_x, out, len);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const uint32_t flushed = kct_fp32(kct_double(kct_load_bits(x + 4 * i)), 1);
            const double y = kct_double(flushed) * (double)expected.scale;
            kct_store_bits(model + 4 * i, fabs(y) < 0x1p-126 ? 0 : kct_fp32(y, 0));
        }
        kct_equal_floats(t, KC_MODEL, "x", model, out, len);
    }
}

static void test_multiply(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, multiply_body);
}

static void bench_multiply(kc_test *t)
{
    kc_rng rng = {1};
    kct_floats(&rng, kc_plain(0), t->kernel->bench_len, 9);
    multiply_call call = {(gw_multiply_fn *)t->fn, kct_f32(kc_plain(0)), t->kernel->bench_len, -1.0f};
    kc_bench(t, call_multiply, &call);
}

/* ---- accumulate -----------------------------------------------------------------------------------------
 */

typedef struct accumulate_call {
    gw_accumulate_fn *fn;
    float *sum;
    const float *x;
    size_t len;
} accumulate_call;

static void call_accumulate(void *context)
{
    const accumulate_call *c = (const accumulate_call *)context;
    c->fn(c->sum, c->x, c->len);
}

static uint32_t model_add(uint32_t a, uint32_t b)
{
    const double x = kct_double(kct_fp32(kct_double(a), 1)), y = kct_double(kct_fp32(kct_double(b), 1));
    return kct_fp32(x + y, 1);
}

static void accumulate_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config != 0;
    const size_t len = s->len;
    uint8_t *x = kc_plain(0), *sum = kc_plain(1), *expected_sum = kc_plain(2), *model = kc_plain(3);
    kct_floats(&t->rng, x, len, s->pattern);
    kct_floats(&t->rng, sum, len, kc_below(&t->rng, KC_VALUE_PATTERNS));
    for (size_t i = 0; i < len && kc_below(&t->rng, 8) != 0; i++) { /* some cancel, or nearly */
        if (kc_below(&t->rng, 2) == 0) {
            const uint32_t bits = kct_load_bits(x + 4 * i) ^ 0x80000000u;
            kct_store_bits(sum + 4 * i, bits + kc_below(&t->rng, 3) - 1);
        }
    }
    kc_describe(t, "flush mode %d, %s", flush_mode, kc_value_pattern_name(s->pattern));
    memcpy(expected_sum, sum, 4 * len);
    accumulate_call expected = {(gw_accumulate_fn *)t->reference, kct_f32(expected_sum), kct_f32(x), len};
    accumulate_call got = expected;
    got.fn = (gw_accumulate_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    uint8_t *out = kc_inout(t, "sum", sum, 4 * len, 0, s->dst, 1);
    got.sum = (float *)(void *)out;
    if (!kct_both(t, call_accumulate, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "sum", expected_sum, out, len, 4); /* NaN is canonical */
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            kct_store_bits(model + 4 * i, model_add(kct_load_bits(sum + 4 * i), kct_load_bits(x + 4 * i)));
        }
        kc_equal(t, KC_MODEL, "sum", model, out, len, 4);
    }
}

static void test_accumulate(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, accumulate_body);
}

static void bench_accumulate(kc_test *t)
{
    kc_rng rng = {1};
    kct_floats(&rng, kc_plain(0), t->kernel->bench_len, 9);
    memset(kc_plain(1), 0, 4 * t->kernel->bench_len);
    accumulate_call call = {(gw_accumulate_fn *)t->fn, kct_f32(kc_plain(1)), kct_f32(kc_plain(0)),
                            t->kernel->bench_len};
    kc_bench(t, call_accumulate, &call);
}

/* ---- cast -----------------------------------------------------------------------------------------------
 */

typedef struct cast_call {
    gw_cast_fn *fn;
    void *dst;
    unsigned dst_dtype;
    const void *src;
    unsigned src_dtype;
    size_t len;
} cast_call;

static void call_cast(void *context)
{
    const cast_call *c = (const cast_call *)context;
    c->fn(c->dst, c->dst_dtype, c->src, c->src_dtype, c->len);
}

static size_t size_of(unsigned dtype)
{
    return dtype == GW_FP32 ? 4 : 2;
}

static double number(const uint8_t *src, unsigned dtype, size_t i)
{
    if (dtype == GW_FP32) {
        return kct_double(gw_load32(src + 4 * i));
    }
    const uint32_t half = gw_load16(src + 2 * i);
    return dtype == GW_BF16 ? kct_double(half << 16) : kct_widen_fp16(half);
}

static void model_cast(uint8_t *dst, const cast_call *c, const uint8_t *src)
{
    for (size_t i = 0; i < c->len; i++) {
        const double x = number(src, c->src_dtype, i);
        if (c->dst_dtype == GW_FP32) {
            gw_store32(dst + 4 * i, kct_fp32(x, 0));
        } else {
            const uint32_t half =
                c->dst_dtype == GW_BF16 ? kct_narrow(x, 7, -126, 255) : kct_narrow(x, 10, -14, 31);
            gw_store16(dst + 2 * i, (uint16_t)half);
        }
    }
}

static void cast_body(kc_test *t)
{
    static const unsigned dtypes[3] = {GW_FP32, GW_BF16, GW_FP16};
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config / 9 != 0;
    const size_t len = s->len;
    uint8_t *src = kc_plain(0);
    cast_call expected = {(gw_cast_fn *)t->reference, kc_plain(1), dtypes[s->config % 3], src,
                          dtypes[s->config / 3 % 3],  len};
    kc_values(&t->rng, src, expected.src_dtype, len, s->pattern);
    for (size_t i = 0; i < len && expected.src_dtype == GW_FP32; i++) { /* within fp16, and around halves */
        const uint32_t bits = gw_load32(src + 4 * i), e = 100 + kc_below(&t->rng, 45);
        if (kc_below(&t->rng, 3) == 0) {
            const uint32_t tie = kc_below(&t->rng, 2) == 0 ? 0x1000u << kc_below(&t->rng, 11) : bits & 0x1fff;
            gw_store32(src + 4 * i, (bits & 0x807fe000u) | e << 23 | tie);
        }
    }
    kc_describe(t, "dtype %u to %u, flush mode %d, %s", expected.src_dtype, expected.dst_dtype, flush_mode,
                kc_value_pattern_name(s->pattern));
    cast_call got = expected;
    got.fn = (gw_cast_fn *)t->fn;
    got.src = kc_in(t, "src", src, size_of(got.src_dtype) * len, 0, s->src, 1);
    got.dst = kc_out(t, "dst", size_of(got.dst_dtype) * len, 0, s->dst, 1);
    if (!kct_both(t, call_cast, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, size_of(got.dst_dtype));
    if (t->is_reference) {
        model_cast(kc_plain(2), &expected, src);
        kc_equal(t, KC_MODEL, "dst", kc_plain(2), got.dst, len, size_of(got.dst_dtype));
    }
}

static void test_cast(kc_test *t)
{
    kc_walk(t, 18, KC_VALUE_PATTERNS, cast_body);
}

static void bench_cast(kc_test *t)
{
    kc_rng rng = {1};
    kc_values(&rng, kc_plain(0), GW_FP32, t->kernel->bench_len, 9);
    cast_call call = {(gw_cast_fn *)t->fn, kc_plain(1), GW_FP16, kc_plain(0), GW_FP32, t->kernel->bench_len};
    kc_bench(t, call_cast, &call);
}

const kc_kernel kc_classic_cast_family[] = {
    {"multiply", select_multiply, test_multiply, bench_multiply, 4096},
    {"accumulate", select_accumulate, test_accumulate, bench_accumulate, 4096},
    {"cast", select_cast, test_cast, bench_cast, 4096},
    {NULL, NULL, NULL, NULL, 0},
};
