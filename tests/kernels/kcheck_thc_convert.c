/*
 * Element types in and out, the residual of error feedback, the shift of plain blocks. The models compute in
 * double.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

KC_SELECT_THC(load);
KC_SELECT_THC(store);
KC_SELECT_THC(residual);
KC_SELECT_THC(shift);

static uint32_t dtype_of(unsigned config)
{
    static const uint32_t dtype[3] = {GW_FP32, GW_BF16, GW_FP16};
    return dtype[config % 3];
}

static size_t size_of(uint32_t dtype)
{
    return dtype == GW_FP32 ? 4 : 2;
}

/* ---- load ---------------------------------------------------------------------------------------------- */

typedef struct load_call {
    gw_thc_load_fn *fn;
    float *dst;
    const void *src;
    unsigned dtype;
    const float *error;
    size_t len, padded_len;
} load_call;

static void call_load(void *context)
{
    const load_call *c = (const load_call *)context;
    c->fn(c->dst, c->src, c->dtype, c->error, c->len, c->padded_len);
}

static uint32_t model_load(const uint8_t *src, uint32_t dtype, const uint8_t *error, size_t i)
{
    const double x = dtype == GW_FP32   ? kct_double(gw_load32(src + 4 * i))
                     : dtype == GW_BF16 ? kct_double((uint32_t)gw_load16(src + 2 * i) << 16)
                                        : kct_widen_fp16(gw_load16(src + 2 * i));
    uint32_t bits = kct_fp32(x, 1);
    if (error != NULL) {
        const uint32_t rest = kct_fp32(kct_double(kct_load_bits(error + 4 * i)), 1);
        bits = kct_fp32(kct_double(bits) + kct_double(rest), 1);
    }
    return bits << 1 == 0 ? 0 : bits;
}

static void load_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t dtype = dtype_of(s->config);
    const int has_error = s->config / 3 % 2 != 0, flush_mode = s->config / 6 != 0;
    const size_t len = kct_len(t);
    const size_t padded =
        len == KCT_LANES_MAX || kc_below(&t->rng, 3) == 0 ? len : len + kc_below(&t->rng, 200);
    uint8_t *src = kc_plain(0), *error = kc_plain(1);
    kc_values(&t->rng, src, dtype, len, s->pattern);
    kct_floats(&t->rng, error, len, kc_below(&t->rng, KC_VALUE_PATTERNS));
    for (size_t i = 0; i < len && kc_below(&t->rng, 2) == 0; i++) { /* some cancel, or nearly */
        if (dtype == GW_FP32 && kc_below(&t->rng, 2) == 0) {
            kct_store_bits(error + 4 * i, (gw_load32(src + 4 * i) ^ 0x80000000u) + kc_below(&t->rng, 3) - 1);
        }
    }
    kc_describe(t, "dtype %u, %s error, padded to %zu, flush mode %d, %s", dtype, has_error ? "with" : "no",
                padded, flush_mode, kc_value_pattern_name(s->pattern));

    load_call expected = {
        (gw_thc_load_fn *)t->reference, kct_f32(kc_plain(2)), src, dtype, NULL, len, padded};
    expected.error = has_error ? kct_f32(error) : NULL;
    load_call got = expected;
    got.fn = (gw_thc_load_fn *)t->fn;
    got.src = kc_in(t, "src", src, len * size_of(dtype), 0, s->src, 1);
    if (has_error) {
        got.error = (const float *)(const void *)kc_in(t, "error", error, 4 * len, 0, kc_place_other(t), 1);
    }
    uint8_t *out = kc_out(t, "dst", 4 * padded, 0, s->dst, 4);
    got.dst = kct_f32(out);
    if (!kct_both(t, call_load, &expected, &got, flush_mode)) {
        return;
    }
    kct_equal_floats(t, KC_OUTPUT, "dst", kc_plain(2), out, padded);
    if (t->is_reference) {
        memset(kc_plain(3), 0, 4 * padded);
        for (size_t i = 0; i < len; i++) {
            kct_store_bits(kc_plain(3) + 4 * i, model_load(src, dtype, has_error ? error : NULL, i));
        }
        kct_equal_floats(t, KC_MODEL, "dst", kc_plain(3), out, padded);
    }
}

static void test_load(kc_test *t)
{
    kc_walk(t, 12, KC_VALUE_PATTERNS, load_body);
}

static void bench_load(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    kc_values(&rng, kc_plain(0), GW_FP32, len, 9);
    load_call call = {(gw_thc_load_fn *)t->fn, kct_f32(kc_plain(2)), kc_plain(0), GW_FP32, NULL, len, len};
    kc_bench(t, call_load, &call);
}

/* ---- store --------------------------------------------------------------------------------------------- */

typedef struct store_call {
    gw_thc_store_fn *fn;
    void *dst;
    const float *src;
    unsigned dtype;
    size_t len;
} store_call;

static void call_store(void *context)
{
    const store_call *c = (const store_call *)context;
    c->fn(c->dst, c->src, c->dtype, c->len);
}

static void store_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t dtype = dtype_of(s->config);
    const int flush_mode = s->config / 3 != 0;
    const size_t len = kct_len(t), cell = size_of(dtype);
    uint8_t *src = kc_plain(0);
    kct_floats(&t->rng, src, len, s->pattern);
    for (size_t i = 0; i < len && dtype == GW_FP16 && kc_below(&t->rng, 8) != 0; i++) {
        /* within the reach of fp16 and around its halves */
        const uint32_t bits = kct_load_bits(src + 4 * i), e = 100 + kc_below(&t->rng, 45);
        const uint32_t tie = kc_below(&t->rng, 2) == 0 ? 0x1000u << kc_below(&t->rng, 11) : bits & 0x1fff;
        kct_store_bits(src + 4 * i, (bits & 0x807fe000u) | e << 23 | tie);
    }
    kc_describe(t, "dtype %u, flush mode %d, %s", dtype, flush_mode, kc_value_pattern_name(s->pattern));

    store_call expected = {(gw_thc_store_fn *)t->reference, kc_plain(2), kct_f32(src), dtype, len};
    store_call got = expected;
    got.fn = (gw_thc_store_fn *)t->fn;
    got.src = kct_f32(kc_in(t, "src", src, 4 * len, 0, s->src, 4));
    got.dst = kc_out(t, "dst", cell * len, 0, s->dst, 1);
    if (!kct_both(t, call_store, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, cell);
    if (t->is_reference) {
        uint8_t *out = kc_plain(3);
        for (size_t i = 0; i < len; i++) {
            const double x = kct_double(kct_load_bits(src + 4 * i));
            if (dtype == GW_FP32) {
                gw_store32(out + 4 * i, isnan(x) ? 0x7fc00000u : kct_load_bits(src + 4 * i));
            } else {
                const uint32_t half =
                    dtype == GW_BF16 ? kct_narrow(x, 7, -126, 255) : kct_narrow(x, 10, -14, 31);
                gw_store16(out + 2 * i, (uint16_t)(dtype == GW_FP16 && half == 0x8000 ? 0 : half));
            }
        }
        kc_equal(t, KC_MODEL, "dst", out, got.dst, len, cell);
    }
}

static void test_store(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, store_body);
}

static void bench_store(kc_test *t)
{
    kc_rng rng = {1};
    kct_floats(&rng, kc_plain(0), t->kernel->bench_len, 9);
    store_call call = {(gw_thc_store_fn *)t->fn, kc_plain(2), kct_f32(kc_plain(0)), GW_FP32,
                       t->kernel->bench_len};
    kc_bench(t, call_store, &call);
}

/* ---- residual ------------------------------------------------------------------------------------------ */

typedef struct residual_call {
    gw_thc_residual_fn *fn;
    float *error;
    const float *x, *y;
    size_t len;
} residual_call;

static void call_residual(void *context)
{
    const residual_call *c = (const residual_call *)context;
    c->fn(c->error, c->x, c->y, c->len);
}

static void residual_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config != 0;
    const size_t len = kct_len(t);
    uint8_t *x = kc_plain(0), *y = kc_plain(1);
    kct_loaded(&t->rng, x, len, s->pattern, 0);
    kct_loaded(&t->rng, y, len, kc_below(&t->rng, KC_VALUE_PATTERNS), 1);
    const uint32_t near = kc_below(&t->rng, 3); /* differences that cancel: exactly, or but for last bits */
    for (size_t i = 0; i < len && near != 0; i++) {
        const uint32_t bits = kct_load_bits(x + 4 * i);
        if (kc_below(&t->rng, 2) == 0 && bits << 1 != 0 && (bits >> 23 & 255) != 255) {
            kct_store_bits(y + 4 * i, bits & ~(near - 1));
        }
    }
    kc_describe(t, "flush mode %d, %s", flush_mode, kc_value_pattern_name(s->pattern));

    residual_call expected = {(gw_thc_residual_fn *)t->reference, kct_f32(kc_plain(2)), kct_f32(x),
                              kct_f32(y), len};
    residual_call got = expected;
    got.fn = (gw_thc_residual_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    got.y = kct_f32(kc_in(t, "y", y, 4 * len, 0, kc_place_other(t), 4));
    uint8_t *out = kc_out(t, "error", 4 * len, 0, s->dst, 1);
    got.error = (float *)(void *)out;
    if (!kct_both(t, call_residual, &expected, &got, flush_mode)) {
        return;
    }
    kct_equal_floats(t, KC_OUTPUT, "error", kc_plain(2), out, len);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const double rest = kct_double(kct_load_bits(x + 4 * i)) - kct_double(kct_load_bits(y + 4 * i));
            kct_store_bits(kc_plain(3) + 4 * i, kct_fp32(rest, 1));
        }
        kct_equal_floats(t, KC_MODEL, "error", kc_plain(3), out, len);
    }
}

static void test_residual(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, residual_body);
}

static void bench_residual(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    kct_loaded(&rng, kc_plain(0), len, 9, 1);
    kct_loaded(&rng, kc_plain(1), len, 9, 1);
    residual_call call = {(gw_thc_residual_fn *)t->fn, kct_f32(kc_plain(2)), kct_f32(kc_plain(0)),
                          kct_f32(kc_plain(1)), len};
    kc_bench(t, call_residual, &call);
}

/* ---- shift --------------------------------------------------------------------------------------------- */

typedef struct shift_call {
    gw_thc_shift_fn *fn;
    float *dst;
    const float *src;
    size_t len;
    float minimum;
    uint32_t exponent;
} shift_call;

static void call_shift(void *context)
{
    const shift_call *c = (const shift_call *)context;
    c->fn(c->dst, c->src, c->len, c->minimum, c->exponent);
}

static void shift_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int in_place = s->config % 2 != 0, flush_mode = s->config / 2 != 0;
    const size_t len = kct_len(t);
    uint8_t *src = kc_plain(0);
    kct_loaded(&t->rng, src, len, s->pattern, 1);
    double low = 0.0, high = 0.0;
    for (size_t i = 0; i < len; i++) {
        uint32_t bits = kct_load_bits(src + 4 * i);
        if ((bits & 0x7fffffff) >= 0x7f000000u) { /* plain blocks hold no such values */
            bits -= 0x00800000u * (1 + kc_below(&t->rng, 200));
            kct_store_bits(src + 4 * i, bits);
        }
        const double x = kct_double(bits);
        low = i == 0 || x < low ? x : low;
        high = i == 0 || x > high ? x : high;
    }
    /* The extent is that of all workers: sometimes wider than that of this block. */
    if (kc_below(&t->rng, 2) == 0 && fabs(low) < 1e37) {
        low = kct_double(kct_fp32(low - fabs(low) * kc_below(&t->rng, 4), 1));
    }
    const uint32_t width = kct_fp32(high - low, 1);
    const uint32_t exponent = width >> 23 == 0 ? 1 : width >> 23;
    kc_describe(t, "exponent %u, %s, flush mode %d, %s", exponent, in_place ? "in place" : "separate",
                flush_mode, kc_value_pattern_name(s->pattern));

    shift_call expected = {
        (gw_thc_shift_fn *)t->reference, kct_f32(kc_plain(2)), kct_f32(src), len, (float)low, exponent};
    shift_call got = expected;
    got.fn = (gw_thc_shift_fn *)t->fn;
    got.dst = kct_place(t, src, len, in_place, &got.src);
    if (!kct_both(t, call_shift, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, 4);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const uint32_t shifted = kct_fp32(kct_double(kct_load_bits(src + 4 * i)) - low, 1);
            const uint32_t e = shifted >> 23 & 255;
            const int counts = e != 0 && e + 60 >= exponent;
            kct_store_bits(kc_plain(3) + 4 * i,
                           counts ? kct_fp32(ldexp(kct_double(shifted), 128 - (int)exponent), 0) : 0);
        }
        kc_equal(t, KC_MODEL, "dst", kc_plain(3), got.dst, len, 4);
    }
}

static void test_shift(kc_test *t)
{
    kc_walk(t, 4, KC_VALUE_PATTERNS, shift_body);
}

static void bench_shift(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    kct_loaded(&rng, kc_plain(0), len, 9, 1);
    shift_call call = {(gw_thc_shift_fn *)t->fn, kct_f32(kc_plain(2)), kct_f32(kc_plain(0)), len, -1.0f, 128};
    kc_bench(t, call_shift, &call);
}

const kc_kernel kc_thc_convert_family[] = {
    {"thc_load", select_load, test_load, bench_load, 1024},
    {"thc_store", select_store, test_store, bench_store, 1024},
    {"thc_residual", select_residual, test_residual, bench_residual, 1024},
    {"thc_shift", select_shift, test_shift, bench_shift, 1024},
    {NULL, NULL, NULL, NULL, 0},
};
