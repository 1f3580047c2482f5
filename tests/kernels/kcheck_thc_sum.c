/*
 * Sums of indices and of lanes, the largest lane, and lanes back to numbers, in all widths.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

KC_SELECT_THC(add_indices);
KC_SELECT_THC(add_lanes);
KC_SELECT_THC(lane_max);
KC_SELECT_THC(unpack);
KC_SELECT_THC(unpack_plain);

/* 8, 16, 32 */
static unsigned lane_bits_of(unsigned config)
{
    return 8u << config % 3;
}

static uint32_t largest_lane(unsigned lane_bits)
{
    return lane_bits == 32 ? 0xffffffffu : (1u << lane_bits) - 1;
}

/* Lanes up to `most`, and some at `most`. */
static void random_lanes(kc_rng *rng, uint8_t *lanes, size_t len, unsigned lane_bits, uint32_t most,
                         unsigned pattern)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t any = (uint32_t)((kc_random(rng) >> 32) * ((uint64_t)most + 1) >> 32);
        kct_put_lane(lanes, i, lane_bits,
                     pattern == 0   ? any
                     : pattern == 1 ? most
                     : pattern == 2 ? 0
                                    : (kc_below(rng, 16) == 0 ? most : any / 256));
    }
}

/* ---- add indices --------------------------------------------------------------------------------------- */

typedef struct indices_call {
    gw_thc_add_indices_fn *fn;
    uint8_t *lanes;
    const uint8_t *indices;
    size_t len;
    unsigned bits;
    const uint8_t *table;
    unsigned lane_bits;
} indices_call;

static void call_indices(void *context)
{
    const indices_call *c = (const indices_call *)context;
    c->fn(c->lanes, c->indices, c->len, c->bits, c->table, c->lane_bits);
}

static void indices_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned lane_bits = lane_bits_of(s->config), bits = 1 + s->config / 3;
    const size_t len = kct_lanes(t, KC_LEN_MAX), size = len * (lane_bits / 8);
    static uint8_t table[16];
    uint8_t *lanes = kc_plain(0), *indices = kc_plain(1);
    const uint32_t g = kct_table(&t->rng, table, bits);
    random_lanes(&t->rng, lanes, len, lane_bits, largest_lane(lane_bits) - g, s->pattern);
    kc_random_bytes(&t->rng, indices, len / 8 * bits);
    if (kc_below(&t->rng, 4) == 0) {
        memset(indices, 255, len / 8 * bits);
    }
    kc_describe(t, "%zu lanes of %u bits, %u-bit indices, granularity %u, pattern %u", len, lane_bits, bits,
                g, s->pattern);

    indices_call expected = {
        (gw_thc_add_indices_fn *)t->reference, kc_plain(2), indices, len, bits, table, lane_bits};
    indices_call got = expected;
    got.fn = (gw_thc_add_indices_fn *)t->fn;
    got.indices = kc_in(t, "indices", indices, len / 8 * bits, 0, s->src, 1);
    got.lanes = kc_inout(t, "lanes", lanes, size, 0, s->dst, 1);
    got.table = kc_in(t, "table", table, 16, 0, kc_place_other(t), 1);
    memcpy(expected.lanes, lanes, size);
    if (!kc_guarded(t, call_indices, &expected) || !kc_guarded(t, call_indices, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "lanes", expected.lanes, got.lanes, len, lane_bits / 8);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            unsigned index = 0;
            for (unsigned bit = 0; bit < bits; bit++) {
                const size_t at = i / 64 * 64 * bits + kct_bit_place((unsigned)(i % 64), bit, bits);
                index |= ((uint32_t)indices[at / 8] >> at % 8 & 1) << bit;
            }
            kct_put_lane(kc_plain(3), i, lane_bits, kct_lane(lanes, i, lane_bits) + table[index]);
        }
        kc_equal(t, KC_MODEL, "lanes", kc_plain(3), got.lanes, len, lane_bits / 8);
    }
}

static void test_indices(kc_test *t)
{
    kc_walk(t, 12, 4, indices_body);
}

static void bench_indices(kc_test *t)
{
    static const uint8_t table[16] = {0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31};
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(1), t->kernel->bench_len / 2);
    indices_call call = {
        (gw_thc_add_indices_fn *)t->fn, kc_plain(2), kc_plain(1), t->kernel->bench_len, 4, table, 8};
    kc_bench(t, call_indices, &call);
}

/* ---- add lanes ----------------------------------------------------------------------------------------- */

typedef struct lanes_call {
    gw_thc_add_lanes_fn *fn;
    uint8_t *lanes;
    const uint8_t *src;
    size_t len;
    unsigned lane_bits;
} lanes_call;

static void call_lanes(void *context)
{
    const lanes_call *c = (const lanes_call *)context;
    c->fn(c->lanes, c->src, c->len, c->lane_bits);
}

static void lanes_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned lane_bits = lane_bits_of(s->config);
    const size_t len = kct_lanes(t, KC_LEN_MAX), size = len * (lane_bits / 8);
    uint8_t *lanes = kc_plain(0), *src = kc_plain(1);
    random_lanes(&t->rng, lanes, len, lane_bits, largest_lane(lane_bits), s->pattern);
    random_lanes(&t->rng, src, len, lane_bits, largest_lane(lane_bits), kc_below(&t->rng, 4));
    for (size_t i = 0; i < len; i++) { /* no overflow */
        const uint32_t room = largest_lane(lane_bits) - kct_lane(lanes, i, lane_bits);
        if (kct_lane(src, i, lane_bits) > room) {
            kct_put_lane(src, i, lane_bits, room);
        }
    }
    kc_describe(t, "%zu lanes of %u bits, pattern %u", len, lane_bits, s->pattern);

    lanes_call expected = {(gw_thc_add_lanes_fn *)t->reference, kc_plain(2), src, len, lane_bits};
    lanes_call got = expected;
    got.fn = (gw_thc_add_lanes_fn *)t->fn;
    got.src = kc_in(t, "src", src, size, 0, s->src, 1);
    got.lanes = kc_inout(t, "lanes", lanes, size, 0, s->dst, 1);
    memcpy(expected.lanes, lanes, size);
    if (!kc_guarded(t, call_lanes, &expected) || !kc_guarded(t, call_lanes, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "lanes", expected.lanes, got.lanes, len, lane_bits / 8);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            kct_put_lane(kc_plain(3), i, lane_bits,
                         kct_lane(lanes, i, lane_bits) + kct_lane(src, i, lane_bits));
        }
        kc_equal(t, KC_MODEL, "lanes", kc_plain(3), got.lanes, len, lane_bits / 8);
    }
}

static void test_lanes(kc_test *t)
{
    kc_walk(t, 3, 4, lanes_body);
}

static void bench_lanes(kc_test *t)
{
    memset(kc_plain(1), 0, t->kernel->bench_len);
    lanes_call call = {(gw_thc_add_lanes_fn *)t->fn, kc_plain(2), kc_plain(1), t->kernel->bench_len, 8};
    kc_bench(t, call_lanes, &call);
}

/* ---- lane max ------------------------------------------------------------------------------------------ */

typedef struct max_call {
    gw_thc_lane_max_fn *fn;
    const uint8_t *lanes;
    size_t len;
    unsigned lane_bits;
    uint32_t largest;
} max_call;

static void call_max(void *context)
{
    max_call *c = (max_call *)context;
    c->largest = c->fn(c->lanes, c->len, c->lane_bits);
}

static void max_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned lane_bits = lane_bits_of(s->config);
    const size_t len = kct_lanes(t, KC_LEN_MAX), size = len * (lane_bits / 8);
    uint8_t *lanes = kc_plain(0);
    random_lanes(&t->rng, lanes, len, lane_bits, largest_lane(lane_bits) >> kc_below(&t->rng, 8), s->pattern);
    uint32_t model = 0;
    if (len > 0 && kc_below(&t->rng, 2) == 0) { /* one alone is the largest, anywhere */
        kct_put_lane(lanes, kc_below(&t->rng, (uint32_t)len), lane_bits, largest_lane(lane_bits));
    }
    for (size_t i = 0; i < len; i++) {
        const uint32_t lane = kct_lane(lanes, i, lane_bits);
        model = lane > model ? lane : model;
    }
    kc_describe(t, "%zu lanes of %u bits, pattern %u", len, lane_bits, s->pattern);

    max_call got = {(gw_thc_lane_max_fn *)t->fn, NULL, len, lane_bits, 0};
    got.lanes = kc_in(t, "lanes", lanes, size, 0, s->src, 1);
    if (!kc_guarded(t, call_max, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal_number(t, t->is_reference ? KC_MODEL : KC_OUTPUT, "result", model, got.largest);
}

static void test_max(kc_test *t)
{
    kc_walk(t, 3, 4, max_body);
}

static void bench_max(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len);
    max_call call = {(gw_thc_lane_max_fn *)t->fn, kc_plain(0), t->kernel->bench_len, 8, 0};
    kc_bench(t, call_max, &call);
}

/* ---- unpack -------------------------------------------------------------------------------------------- */

typedef struct unpack_call {
    gw_thc_unpack_fn *fn;
    float *dst;
    const uint8_t *lanes;
    size_t len;
    unsigned lane_bits;
    uint32_t center;
    float scale;
} unpack_call;

static void call_unpack(void *context)
{
    const unpack_call *c = (const unpack_call *)context;
    c->fn(c->dst, c->lanes, c->len, c->lane_bits, c->center, c->scale);
}

static void unpack_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned lane_bits = lane_bits_of(s->config);
    const int flush_mode = s->config / 3 != 0;
    const size_t len = kct_lanes(t, KCT_LANES_MAX), size = len * (lane_bits / 8);
    uint32_t center = largest_lane(lane_bits > 16 ? 23 : lane_bits); /* k g <= 2^23 - 1 */
    center >>= kc_below(&t->rng, 8);
    uint8_t *lanes = kc_plain(0);
    random_lanes(&t->rng, lanes, len, lane_bits, center, s->pattern);
    const double scale =
        ldexp(1.0 + kc_below(&t->rng, 1u << 23) * 0x1p-23, (int)kc_below(&t->rng, 140) - 126);
    kc_describe(t, "%zu lanes of %u bits, center %u, scale %g, flush mode %d, pattern %u", len, lane_bits,
                center, scale, flush_mode, s->pattern);

    unpack_call expected = {
        (gw_thc_unpack_fn *)t->reference, kct_f32(kc_plain(2)), lanes, len, lane_bits, center, (float)scale};
    unpack_call got = expected;
    got.fn = (gw_thc_unpack_fn *)t->fn;
    got.lanes = kc_in(t, "lanes", lanes, size, 0, s->src, 1);
    got.dst = kct_f32(kc_out(t, "dst", 4 * len, 0, s->dst, 4));
    if (!kct_both(t, call_unpack, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, 4);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const double count = 2.0 * kct_lane(lanes, i, lane_bits) - center;
            kct_store_bits(kc_plain(3) + 4 * i, count == 0.0 ? 0 : kct_fp32(count * scale, 0));
        }
        kc_equal(t, KC_MODEL, "dst", kc_plain(3), got.dst, len, 4);
    }
}

static void test_unpack(kc_test *t)
{
    kc_walk(t, 6, 4, unpack_body);
}

static void bench_unpack(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len);
    unpack_call call = {
        (gw_thc_unpack_fn *)t->fn, kct_f32(kc_plain(2)), kc_plain(0), t->kernel->bench_len, 8, 255, 0.01f};
    kc_bench(t, call_unpack, &call);
}

/* ---- unpack plain -------------------------------------------------------------------------------------- */

typedef struct plain_call {
    gw_thc_unpack_plain_fn *fn;
    float *dst;
    const uint8_t *lanes;
    size_t len;
    unsigned lane_bits;
    double step, base;
} plain_call;

static void call_plain(void *context)
{
    const plain_call *c = (const plain_call *)context;
    c->fn(c->dst, c->lanes, c->len, c->lane_bits, c->step, c->base);
}

static void plain_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned lane_bits = lane_bits_of(s->config);
    const int flush_mode = s->config / 3 != 0;
    const size_t len = kct_lanes(t, KCT_LANES_MAX), size = len * (lane_bits / 8);
    uint8_t *lanes = kc_plain(0);
    random_lanes(&t->rng, lanes, len, lane_bits, largest_lane(lane_bits), s->pattern);
    /* Anything from sums below 2^-126 to sums above the largest fp32. */
    const int exponent = (int)kc_below(&t->rng, 300) - 160;
    const double step = ldexp(1.0 + kc_below(&t->rng, 1u << 30) * 0x1p-30, exponent);
    const double base = kc_below(&t->rng, 4) == 0 ? -step * kct_lane(lanes, 0, len > 0 ? lane_bits : 8)
                                                  : ldexp(kc_below(&t->rng, 1u << 30) * 0x1p-29 - 1.0,
                                                          exponent + (int)kc_below(&t->rng, 12));
    kc_describe(t, "%zu lanes of %u bits, step %g, base %g, flush mode %d, pattern %u", len, lane_bits, step,
                base, flush_mode, s->pattern);

    plain_call expected = {
        (gw_thc_unpack_plain_fn *)t->reference, kct_f32(kc_plain(2)), lanes, len, lane_bits, step, base};
    plain_call got = expected;
    got.fn = (gw_thc_unpack_plain_fn *)t->fn;
    got.lanes = kc_in(t, "lanes", lanes, size, 0, s->src, 1);
    got.dst = kct_f32(kc_out(t, "dst", 4 * len, 0, s->dst, 4));
    if (!kct_both(t, call_plain, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, 4);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            /* volatile: the product is rounded before the sum */
            const volatile double product = (double)kct_lane(lanes, i, lane_bits) * step;
            const double x = product + base;
            kct_store_bits(kc_plain(3) + 4 * i, fabs(x) < 0x1p-126 ? 0 : kct_fp32(x, 0));
        }
        kc_equal(t, KC_MODEL, "dst", kc_plain(3), got.dst, len, 4);
    }
}

static void test_plain(kc_test *t)
{
    kc_walk(t, 6, 4, plain_body);
}

static void bench_plain(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len);
    plain_call call = {(gw_thc_unpack_plain_fn *)t->fn,
                       kct_f32(kc_plain(2)),
                       kc_plain(0),
                       t->kernel->bench_len,
                       8,
                       0.01,
                       -1.0};
    kc_bench(t, call_plain, &call);
}

const kc_kernel kc_thc_sum_family[] = {
    {"thc_indices", select_add_indices, test_indices, bench_indices, 16384},
    {"thc_lanes", select_add_lanes, test_lanes, bench_lanes, 16384},
    {"thc_max", select_lane_max, test_max, bench_max, 16384},
    {"thc_unpack", select_unpack, test_unpack, bench_unpack, 1024},
    {"thc_plain", select_unpack_plain, test_plain, bench_plain, 1024},
    {NULL, NULL, NULL, NULL, 0},
};
