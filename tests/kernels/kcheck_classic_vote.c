/*
 * Signs back to values, and votes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <string.h>

KC_SELECT_CLASSIC(sign_unpack);
KC_SELECT_CLASSIC(sign_add);
KC_SELECT_CLASSIC(sign_votes);
KC_SELECT_CLASSIC(sign_majority);

static uint32_t bit_at(const uint8_t *bits, size_t i)
{
    return (uint32_t)bits[i / 8] >> i % 8 & 1;
}

/* ---- unpack ---------------------------------------------------------------------------------------------
 */

typedef struct unpack_call {
    gw_sign_unpack_fn *fn;
    void *dst;
    unsigned size;
    const uint8_t *bits;
    unsigned first;
    size_t len;
    uint32_t positive, negative;
} unpack_call;

static void call_unpack(void *context)
{
    const unpack_call *c = (const unpack_call *)context;
    c->fn(c->dst, c->size, c->bits, c->first, c->len, c->positive, c->negative);
}

static void unpack_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned size = s->config % 2 == 0 ? 4 : 2, first = s->config / 2;
    const size_t len = s->len, bits_size = (first + len + 7) / 8;
    uint8_t *bits = kc_plain(0), *model = kc_plain(2);
    kc_random_bytes(&t->rng, bits, bits_size);
    unpack_call expected = {
        (gw_sign_unpack_fn *)t->reference, kc_plain(1), size, bits, first, len, (uint32_t)kc_random(&t->rng),
        (uint32_t)kc_random(&t->rng)};
    kc_describe(t, "elements of %u bytes from bit %u on", size, first);
    unpack_call got = expected;
    got.fn = (gw_sign_unpack_fn *)t->fn;
    got.bits = kc_in(t, "bits", bits, len == 0 ? 0 : bits_size, 0, s->src, 1);
    got.dst = kc_out(t, "dst", size * len, 0, s->dst, 1);
    if (!kct_both(t, call_unpack, &expected, &got, 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, len, size);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const uint32_t x = bit_at(bits, first + i) != 0 ? expected.negative : expected.positive;
            for (unsigned j = 0; j < size; j++) {
                model[size * i + j] = (uint8_t)(x >> 8 * j);
            }
        }
        kc_equal(t, KC_MODEL, "dst", model, got.dst, len, size);
    }
}

static void test_unpack(kc_test *t)
{
    kc_walk(t, 16, 1, unpack_body);
}

static void bench_unpack(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len / 8);
    unpack_call call = {(gw_sign_unpack_fn *)t->fn, kc_plain(1), 4, kc_plain(0), 0,
                        t->kernel->bench_len,       1,           2};
    kc_bench(t, call_unpack, &call);
}

/* ---- add ------------------------------------------------------------------------------------------------
 */

typedef struct add_call {
    gw_sign_add_fn *fn;
    float *sum;
    const uint8_t *bits;
    unsigned first;
    size_t len;
    float positive, negative;
} add_call;

static void call_add(void *context)
{
    const add_call *c = (const add_call *)context;
    c->fn(c->sum, c->bits, c->first, c->len, c->positive, c->negative);
}

static uint32_t model_add(uint32_t sum, float x)
{
    return kct_fp32(kct_double(kct_fp32(kct_double(sum), 1)) + (double)x, 1);
}

static void add_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned first = s->config % 8, flush_mode = s->config / 8;
    const size_t len = s->len, bits_size = (first + len + 7) / 8;
    uint8_t *bits = kc_plain(0), *sum = kc_plain(1), *expected_sum = kc_plain(2), *model = kc_plain(3);
    uint32_t values[2];
    kc_random_bytes(&t->rng, bits, bits_size);
    kct_floats(&t->rng, sum, len, s->pattern);
    for (unsigned i = 0; i < 2; i++) { /* a value that cancels, or one that overflows, or any */
        values[i] = len == 0 ? 0 : kct_load_bits(sum + 4 * kc_below(&t->rng, (uint32_t)len)) ^ 0x80000000u;
        values[i] = kc_below(&t->rng, 2) == 0 ? values[i] : (uint32_t)kc_random(&t->rng);
        values[i] = (values[i] >> 23 & 255) == 0     ? 0
                    : (values[i] >> 23 & 255) == 255 ? 0x7f800000u | (values[i] & 0x80000000u)
                                                     : values[i];
    }
    kc_describe(t, "from bit %u on, flush mode %u, %s", first, flush_mode, kc_value_pattern_name(s->pattern));
    memcpy(expected_sum, sum, 4 * len);
    add_call expected = {(gw_sign_add_fn *)t->reference, kct_f32(expected_sum), bits, first, len, 0.0f, 0.0f};
    expected.positive = gw_float_from_bits(values[0]);
    expected.negative = gw_float_from_bits(values[1]);
    add_call got = expected;
    got.fn = (gw_sign_add_fn *)t->fn;
    got.bits = kc_in(t, "bits", bits, len == 0 ? 0 : bits_size, 0, s->src, 1);
    uint8_t *out = kc_inout(t, "sum", sum, 4 * len, 0, s->dst, 1);
    got.sum = (float *)(void *)out;
    if (!kct_both(t, call_add, &expected, &got, (int)flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "sum", expected_sum, out, len, 4); /* NaN is canonical */
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            const float x = bit_at(bits, first + i) != 0 ? expected.negative : expected.positive;
            kct_store_bits(model + 4 * i, model_add(kct_load_bits(sum + 4 * i), x));
        }
        kc_equal(t, KC_MODEL, "sum", model, out, len, 4);
    }
}

static void test_add(kc_test *t)
{
    kc_walk(t, 16, KC_VALUE_PATTERNS, add_body);
}

static void bench_add(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len / 8);
    memset(kc_plain(1), 0, 4 * t->kernel->bench_len);
    add_call call = {
        (gw_sign_add_fn *)t->fn, kct_f32(kc_plain(1)), kc_plain(0), 0, t->kernel->bench_len, 1.0f, -1.0f};
    kc_bench(t, call_add, &call);
}

/* ---- votes ----------------------------------------------------------------------------------------------
 */

typedef struct votes_call {
    gw_sign_votes_fn *fn;
    int32_t *lanes;
    const uint8_t *bits;
    size_t len;
} votes_call;

static void call_votes(void *context)
{
    const votes_call *c = (const votes_call *)context;
    c->fn(c->lanes, c->bits, c->len);
}

/* Lanes around 0, or any, in the machine's byte order. */
static void lanes_of(kc_test *t, uint8_t *lanes)
{
    const int is_any = kc_below(&t->rng, 3) == 0;
    for (size_t i = 0; i < t->shape.len; i++) {
        kct_store_bits(lanes + 4 * i, is_any ? (uint32_t)kc_random(&t->rng) : kc_below(&t->rng, 5) - 2);
    }
}

static void votes_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const size_t len = s->len;
    uint8_t *bits = kc_plain(0), *lanes = kc_plain(1), *expected_lanes = kc_plain(2), *model = kc_plain(3);
    kc_random_bytes(&t->rng, bits, (len + 7) / 8);
    lanes_of(t, lanes);
    memcpy(expected_lanes, lanes, 4 * len);
    votes_call expected = {(gw_sign_votes_fn *)t->reference, (int32_t *)(void *)expected_lanes, bits, len};
    votes_call got = expected;
    got.fn = (gw_sign_votes_fn *)t->fn;
    got.bits = kc_in(t, "bits", bits, (len + 7) / 8, 0, s->src, 1);
    uint8_t *out = kc_inout(t, "lanes", lanes, 4 * len, 0, s->dst, 4);
    got.lanes = (int32_t *)(void *)out;
    if (!kct_both(t, call_votes, &expected, &got, 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "lanes", expected_lanes, out, len, 4);
    if (t->is_reference) {
        for (size_t i = 0; i < len; i++) {
            kct_store_bits(model + 4 * i,
                           kct_load_bits(lanes + 4 * i) + (bit_at(bits, i) != 0 ? 0xffffffffu : 1u));
        }
        kc_equal(t, KC_MODEL, "lanes", model, out, len, 4);
    }
}

static void test_votes(kc_test *t)
{
    kc_walk(t, 1, 1, votes_body);
}

static void bench_votes(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len / 8);
    memset(kc_plain(1), 0, 4 * t->kernel->bench_len);
    votes_call call = {(gw_sign_votes_fn *)t->fn, (int32_t *)(void *)kc_plain(1), kc_plain(0),
                       t->kernel->bench_len};
    kc_bench(t, call_votes, &call);
}

/* ---- majority -------------------------------------------------------------------------------------------
 */

typedef struct majority_call {
    gw_sign_majority_fn *fn;
    uint8_t *bits;
    const int32_t *lanes;
    const uint8_t *ties;
    size_t len;
} majority_call;

static void call_majority(void *context)
{
    const majority_call *c = (const majority_call *)context;
    c->fn(c->bits, c->lanes, c->ties, c->len);
}

static void majority_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const size_t len = s->len, size = (len + 7) / 8;
    uint8_t *ties = kc_plain(0), *lanes = kc_plain(1), *model = kc_plain(3);
    kc_random_bytes(&t->rng, ties, size);
    lanes_of(t, lanes);
    majority_call expected = {(gw_sign_majority_fn *)t->reference, kc_plain(2), (int32_t *)(void *)lanes,
                              ties, len};
    majority_call got = expected;
    got.fn = (gw_sign_majority_fn *)t->fn;
    got.ties = kc_in(t, "ties", ties, size, 0, kc_place_other(t), 1);
    got.lanes = (const int32_t *)(void *)kc_in(t, "lanes", lanes, 4 * len, 0, s->src, 4);
    got.bits = kc_out(t, "bits", size, 0, s->dst, 1);
    if (!kct_both(t, call_majority, &expected, &got, 0)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "bits", expected.bits, got.bits, size, 1);
    if (t->is_reference) {
        memset(model, 0, size);
        for (size_t i = 0; i < len; i++) {
            const uint32_t lane = kct_load_bits(lanes + 4 * i);
            const uint32_t bit = lane == 0 ? bit_at(ties, i) : lane >> 31;
            model[i / 8] = (uint8_t)(model[i / 8] | bit << i % 8);
        }
        kc_equal(t, KC_MODEL, "bits", model, got.bits, size, 1);
    }
}

static void test_majority(kc_test *t)
{
    kc_walk(t, 1, 1, majority_body);
}

static void bench_majority(kc_test *t)
{
    memset(kc_plain(0), 0, t->kernel->bench_len / 8);
    memset(kc_plain(1), 0, 4 * t->kernel->bench_len);
    majority_call call = {(gw_sign_majority_fn *)t->fn, kc_plain(2), (int32_t *)(void *)kc_plain(1),
                          kc_plain(0), t->kernel->bench_len};
    kc_bench(t, call_majority, &call);
}

const kc_kernel kc_classic_vote_family[] = {
    {"sign_unpack", select_sign_unpack, test_unpack, bench_unpack, 4096},
    {"sign_add", select_sign_add, test_add, bench_add, 4096},
    {"sign_votes", select_sign_votes, test_votes, bench_votes, 4096},
    {"sign_majority", select_sign_majority, test_majority, bench_majority, 4096},
    {NULL, NULL, NULL, NULL, 0},
};
