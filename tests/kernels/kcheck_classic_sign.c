/*
 * Signs: packing, sums, residual, momentum.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

KC_SELECT_CLASSIC(sign_pack);
KC_SELECT_CLASSIC(sign_sums);
KC_SELECT_CLASSIC(sign_residual);
KC_SELECT_CLASSIC(sign_momentum);

/* ---- pack -----------------------------------------------------------------------------------------------
 */

typedef struct pack_call {
    gw_sign_pack_fn *fn;
    uint8_t *bits;
    const void *src;
    unsigned dtype;
    size_t len;
    uint32_t result;
} pack_call;

static void call_pack(void *context)
{
    pack_call *c = (pack_call *)context;
    c->result = c->fn(c->bits, c->src, c->dtype, c->len);
}

static double number(const uint8_t *src, unsigned dtype, size_t i)
{
    if (dtype == GW_FP32) {
        return kct_double(gw_load32(src + 4 * i));
    }
    const uint32_t half = gw_load16(src + 2 * i);
    return dtype == GW_BF16 ? kct_double(half << 16) : kct_widen_fp16(half);
}

/* The sign bit of NaN counts. */
static int is_negative(const uint8_t *src, unsigned dtype, size_t i)
{
    const double x = number(src, dtype, i);
    if (isnan(x)) {
        return src[(i + 1) * (dtype == GW_FP32 ? 4 : 2) - 1] >> 7 != 0;
    }
    return x <= -0x1p-126;
}

static void pack_body(kc_test *t)
{
    static const unsigned dtypes[3] = {GW_FP32, GW_BF16, GW_FP16};
    const kc_shape *s = &t->shape;
    const unsigned dtype = dtypes[s->config % 3], flush_mode = s->config / 3;
    const size_t len = s->len, size = (len + 7) / 8, cell = dtype == GW_FP32 ? 4 : 2;
    uint8_t *src = kc_plain(0), *model = kc_plain(2);
    kc_values(&t->rng, src, dtype, len, s->pattern);
    if (len > 0 && kc_below(&t->rng, 3) == 0) { /* one that is not finite, anywhere; or the largest */
        const uint32_t infinity = dtype == GW_FP16 ? 0x7c00 : 0x7f80;
        const uint32_t high = infinity - (uint32_t)kc_below(&t->rng, 2) + (kc_below(&t->rng, 2) << 15);
        gw_store16(src + cell * kc_below(&t->rng, (uint32_t)len) + cell - 2, (uint16_t)high);
    }
    kc_describe(t, "dtype %u, flush mode %u, %s", dtype, flush_mode, kc_value_pattern_name(s->pattern));
    pack_call expected = {(gw_sign_pack_fn *)t->reference, kc_plain(1), src, dtype, len, 9};
    pack_call got = expected;
    got.fn = (gw_sign_pack_fn *)t->fn;
    got.src = kc_in(t, "src", src, cell * len, 0, s->src, 1);
    got.bits = kc_out(t, "bits", size, 0, s->dst, 1);
    if (!kct_both(t, call_pack, &expected, &got, (int)flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "bits", expected.bits, got.bits, size, 1);
    kc_equal_number(t, KC_OUTPUT, "result", expected.result, got.result);
    if (t->is_reference) {
        uint32_t is_bad = 0;
        memset(model, 0, size);
        for (size_t i = 0; i < len; i++) {
            model[i / 8] = (uint8_t)(model[i / 8] | is_negative(src, dtype, i) << i % 8);
            is_bad |= isfinite(number(src, dtype, i)) ? 0u : 1u;
        }
        kc_equal(t, KC_MODEL, "bits", model, got.bits, size, 1);
        kc_equal_number(t, KC_MODEL, "result", is_bad, got.result);
    }
}

static void test_pack(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, pack_body);
}

static void bench_pack(kc_test *t)
{
    kc_rng rng = {1};
    kc_values(&rng, kc_plain(0), GW_FP32, t->kernel->bench_len, 9);
    pack_call call = {(gw_sign_pack_fn *)t->fn, kc_plain(1), kc_plain(0), GW_FP32, t->kernel->bench_len, 0};
    kc_bench(t, call_pack, &call);
}

/* ---- sums -----------------------------------------------------------------------------------------------
 */

typedef struct sums_call {
    gw_sign_sums_fn *fn;
    gw_sign_sums *sums;
    const float *x;
    size_t len;
} sums_call;

static void call_sums(void *context)
{
    const sums_call *c = (const sums_call *)context;
    c->fn(c->sums, c->x, c->len);
}

/* Sum of the values of one sign: each accumulator by itself, then the tree. */
static double model_sum(const uint8_t *x, size_t len, int negative)
{
    double lanes[16];
    for (size_t j = 0; j < 16; j++) {
        lanes[j] = 0.0;
        for (size_t i = j; i < len; i += 16) {
            const double value = kct_double(kct_load_bits(x + 4 * i));
            lanes[j] += (value < 0) == negative ? value : 0.0;
        }
    }
    for (size_t h = 8; h > 0; h /= 2) {
        for (size_t j = 0; j < h; j++) {
            lanes[j] += lanes[j + h];
        }
    }
    return lanes[0];
}

static void compare_sums(kc_test *t, kc_failure kind, const gw_sign_sums *expected, const gw_sign_sums *got)
{
    kc_equal(t, kind, "negative", &expected->negative, &got->negative, 1, sizeof(double));
    kc_equal(t, kind, "positive", &expected->positive, &got->positive, 1, sizeof(double));
    kc_equal_number(t, kind, "negative_count", expected->negative_count, got->negative_count);
}

static void sums_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config != 0;
    const size_t len = s->len < 4096 ? s->len : 4096;
    uint8_t *x = kc_plain(0);
    gw_sign_sums one, other, model = {0.0, 0.0, 0};
    kct_loaded(&t->rng, x, len, s->pattern, 1);
    kc_describe(t, "flush mode %d, %s", flush_mode, kc_value_pattern_name(s->pattern));
    memset(&one, 7, sizeof one);
    memset(&other, 9, sizeof other);
    sums_call expected = {(gw_sign_sums_fn *)t->reference, &one, kct_f32(x), len};
    sums_call got = {(gw_sign_sums_fn *)t->fn, &other, kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4)), len};
    if (!kct_both(t, call_sums, &expected, &got, flush_mode)) {
        return;
    }
    compare_sums(t, KC_OUTPUT, &one, &other);
    if (t->is_reference) {
        model.negative = model_sum(x, len, 1);
        model.positive = model_sum(x, len, 0);
        for (size_t i = 0; i < len; i++) {
            model.negative_count += kct_load_bits(x + 4 * i) >> 31;
        }
        compare_sums(t, KC_MODEL, &model, &other);
    }
}

static void test_sums(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, sums_body);
}

static void bench_sums(kc_test *t)
{
    kc_rng rng = {1};
    gw_sign_sums sums;
    kct_loaded(&rng, kc_plain(0), t->kernel->bench_len, 9, 1);
    sums_call call = {(gw_sign_sums_fn *)t->fn, &sums, kct_f32(kc_plain(0)), t->kernel->bench_len};
    kc_bench(t, call_sums, &call);
}

/* ---- residual -------------------------------------------------------------------------------------------
 */

typedef struct residual_call {
    gw_sign_residual_fn *fn;
    float *residual;
    const float *x;
    size_t len;
    float positive, negative;
} residual_call;

static void call_residual(void *context)
{
    const residual_call *c = (const residual_call *)context;
    c->fn(c->residual, c->x, c->len, c->positive, c->negative);
}

static void residual_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int flush_mode = s->config != 0;
    const size_t len = s->len;
    uint8_t *x = kc_plain(0), *model = kc_plain(2);
    kct_loaded(&t->rng, x, len, s->pattern, 1);
    residual_call expected = {
        (gw_sign_residual_fn *)t->reference, kct_f32(kc_plain(1)), kct_f32(x), len, 1.0f, -1.0f};
    if (len > 0 && kc_below(&t->rng, 3) != 0) { /* near some values, so that differences are small */
        const uint32_t one = kct_load_bits(x + 4 * kc_below(&t->rng, (uint32_t)len));
        const uint32_t other = kct_load_bits(x + 4 * kc_below(&t->rng, (uint32_t)len));
        expected.positive = gw_float_from_bits(one & 0x7ffffffeu);
        expected.negative = gw_float_from_bits(other | 0x80000000u);
    }
    kc_describe(t, "%a and %a, flush mode %d, %s", (double)expected.positive, (double)expected.negative,
                flush_mode, kc_value_pattern_name(s->pattern));
    residual_call got = expected;
    got.fn = (gw_sign_residual_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    uint8_t *out = kc_out(t, "residual", 4 * len, 0, s->dst, 1);
    got.residual = (float *)(void *)out;
    if (!kct_both(t, call_residual, &expected, &got, flush_mode)) {
        return;
    }
    kct_equal_floats(t, KC_OUTPUT, "residual", kc_plain(1), out, len);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const double value = kct_double(kct_load_bits(x + 4 * i));
            const float sent = value < 0 ? expected.negative : expected.positive;
            kct_store_bits(model + 4 * i, kct_fp32(value - (double)sent, 1));
        }
        kct_equal_floats(t, KC_MODEL, "residual", model, out, len);
    }
}

static void test_residual(kc_test *t)
{
    kc_walk(t, 2, KC_VALUE_PATTERNS, residual_body);
}

static void bench_residual(kc_test *t)
{
    kc_rng rng = {1};
    kct_loaded(&rng, kc_plain(0), t->kernel->bench_len, 9, 1);
    residual_call call = {(gw_sign_residual_fn *)t->fn,
                          kct_f32(kc_plain(1)),
                          kct_f32(kc_plain(0)),
                          t->kernel->bench_len,
                          0x1p-10f,
                          -0x1p-10f};
    kc_bench(t, call_residual, &call);
}

/* ---- momentum -------------------------------------------------------------------------------------------
 */

typedef struct momentum_call {
    gw_sign_momentum_fn *fn;
    float *dst;
    const float *momentum;
    const float *x;
    size_t len;
    float beta, rest;
} momentum_call;

static void call_momentum(void *context)
{
    const momentum_call *c = (const momentum_call *)context;
    c->fn(c->dst, c->momentum, c->x, c->len, c->beta, c->rest);
}

static void model_momentum(uint8_t *dst, const momentum_call *c, const uint8_t *momentum, const uint8_t *x)
{
    for (size_t i = 0; i < c->len; i++) {
        const double old = kct_double(kct_fp32(kct_double(kct_load_bits(momentum + 4 * i)), 1));
        const double kept = (double)c->beta * old;
        const double y = kept + (double)c->rest * kct_double(kct_load_bits(x + 4 * i));
        kct_store_bits(dst + 4 * i, fabs(y) < 0x1p-126 ? 0 : kct_fp32(y, 0));
    }
}

/* Config: result apart from the inputs, in the place of the momentum, or of x; flush mode. */
static void momentum_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned place = s->config % 3, flush_mode = s->config / 3;
    const size_t len = s->len;
    const float beta = kc_below(&t->rng, 4) == 0 ? 0.0f : (float)kc_below(&t->rng, 1000) / 1000.0f;
    uint8_t *x = kc_plain(0), *momentum = kc_plain(1), *out;
    kct_loaded(&t->rng, x, len, s->pattern, 0);
    kct_floats(&t->rng, momentum, len, kc_below(&t->rng, KC_VALUE_PATTERNS));
    for (size_t i = 0; i < len && kc_below(&t->rng, 8) != 0; i++) { /* some cancel, some end near 2^-126 */
        const uint32_t bits = kct_load_bits(x + 4 * i) ^ 0x80000000u;
        if (kc_below(&t->rng, 2) == 0) {
            kct_store_bits(momentum + 4 * i, bits + kc_below(&t->rng, 3) - 1);
        } else if (kc_below(&t->rng, 2) == 0) {
            kct_store_bits(momentum + 4 * i, (bits & 0x807fffffu) | kc_below(&t->rng, 4) << 23);
            kct_store_bits(x + 4 * i, 0);
        }
    }
    kc_describe(t, "beta %a, place %u, flush mode %u, %s", (double)beta, place, flush_mode,
                kc_value_pattern_name(s->pattern));
    momentum_call expected = {(gw_sign_momentum_fn *)t->reference,
                              kct_f32(kc_plain(2)),
                              kct_f32(momentum),
                              kct_f32(x),
                              len,
                              beta,
                              1.0f - beta};
    momentum_call got = expected;
    got.fn = (gw_sign_momentum_fn *)t->fn;
    uint8_t *own_x =
        place == 2 ? kc_inout(t, "x", x, 4 * len, 0, s->src, 4) : kc_in(t, "x", x, 4 * len, 0, s->src, 4);
    uint8_t *own = place == 1 ? kc_inout(t, "momentum", momentum, 4 * len, 0, s->dst, 1)
                              : kc_in(t, "momentum", momentum, 4 * len, 0, kc_place_other(t), 1);
    out = place == 0 ? kc_out(t, "dst", 4 * len, 0, s->dst, 1) : place == 1 ? own : own_x;
    got.x = kct_f32(own_x);
    got.momentum = (const float *)(void *)own;
    got.dst = (float *)(void *)out;
    if (!kct_both(t, call_momentum, &expected, &got, (int)flush_mode)) {
        return;
    }
    kct_equal_floats(t, KC_OUTPUT, "dst", kc_plain(2), out, len);
    if (t->is_reference) {
        model_momentum(kc_plain(3), &expected, momentum, x);
        kct_equal_floats(t, KC_MODEL, "dst", kc_plain(3), out, len);
    }
}

static void test_momentum(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, momentum_body);
}

static void bench_momentum(kc_test *t)
{
    kc_rng rng = {1};
    kct_loaded(&rng, kc_plain(0), t->kernel->bench_len, 9, 1);
    kct_loaded(&rng, kc_plain(1), t->kernel->bench_len, 9, 1);
    momentum_call call = {(gw_sign_momentum_fn *)t->fn,
                          kct_f32(kc_plain(1)),
                          kct_f32(kc_plain(1)),
                          kct_f32(kc_plain(0)),
                          t->kernel->bench_len,
                          0.9f,
                          0.1f};
    kc_bench(t, call_momentum, &call);
}

const kc_kernel kc_classic_sign_family[] = {
    {"sign_pack", select_sign_pack, test_pack, bench_pack, 4096},
    {"sign_sums", select_sign_sums, test_sums, bench_sums, 4096},
    {"sign_residual", select_sign_residual, test_residual, bench_residual, 4096},
    {"sign_momentum", select_sign_momentum, test_momentum, bench_momentum, 4096},
    {NULL, NULL, NULL, NULL, 0},
};
