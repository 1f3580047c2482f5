/*
 * The set bits of a zero mask: gather picks their bytes, spread puts values in their places. Masks from all
 * clear to all set; padding bits that a hostile frame sets; sums, some of them (not strict) in the
 * processor's flush modes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(gather);
KC_SELECT(spread);

enum { MASK_PATTERNS = 6 };

static const char *mask_name(unsigned pattern)
{
    static const char *const name[MASK_PATTERNS] = {"random", "all clear", "all set",
                                                    "runs",   "few set",   "few clear"};
    return name[pattern];
}

/* Returns the number of set bits. */
static size_t random_mask(kc_rng *rng, uint8_t *bitmap, size_t len, unsigned pattern)
{
    static const uint32_t of_50[MASK_PATTERNS] = {25, 0, 50, 0, 1, 49};
    size_t ones = 0;
    unsigned bit = 0;
    memset(bitmap, 0, gw_run_size(len, 1));
    for (size_t i = 0; i < len; i++) {
        bit = pattern == 3 ? bit ^ (kc_below(rng, 40) == 0) : kc_below(rng, 50) < of_50[pattern];
        bitmap[i / 8] = (uint8_t)(bitmap[i / 8] | bit << i % 8);
        ones += bit;
    }
    return ones;
}

/* ---- gather -------------------------------------------------------------------------------------------- */

typedef struct gather_call {
    gw_gather_fn *fn;
    uint8_t *out;
    const uint8_t *bytes, *bitmap;
    size_t len, count;
} gather_call;

static void call_gather(void *context)
{
    gather_call *c = (gather_call *)context;
    c->count = c->fn(c->out, c->bytes, c->bitmap, c->len);
}

enum { FITS, BAD_PADDING, COUNTS_ONLY, GATHER_KINDS };

static void gather_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned kind = s->config;
    const size_t size = gw_run_size(s->len, 1), padding = 8 * size - s->len;
    uint8_t *bitmap = kc_plain(0), *bytes = kc_plain(1);
    size_t count = random_mask(&t->rng, bitmap, s->len, s->pattern);
    const size_t ones = count;
    if (kind == BAD_PADDING && padding > 0) {
        const size_t bit = s->len + kc_below(&t->rng, (uint32_t)padding);
        bitmap[bit / 8] = (uint8_t)(bitmap[bit / 8] | 1u << bit % 8);
        count = SIZE_MAX;
    }
    kc_random_bytes(&t->rng, bytes, s->len);
    kc_describe(t, "%zu of %zu, %s%s", ones, s->len, mask_name(s->pattern),
                count == SIZE_MAX     ? ", bad padding"
                : kind == COUNTS_ONLY ? ", counted only"
                                      : "");

    gather_call expected = {
        (gw_gather_fn *)t->reference, kc_plain(2), kind == COUNTS_ONLY ? NULL : bytes, bitmap, s->len, 0};
    gather_call got = expected;
    got.fn = (gw_gather_fn *)t->fn;
    got.bitmap = kc_in(t, "bitmap", bitmap, size, GW_SLOP, s->src, 4);
    got.bytes = kind == COUNTS_ONLY ? NULL : kc_in(t, "bytes", bytes, s->len, 0, kc_place_other(t), 1);
    got.out = kc_out(t, "out", count == SIZE_MAX ? s->len : ones, GW_SLOP, s->dst, 1);
    if (!kc_guarded(t, call_gather, &expected) || !kc_guarded(t, call_gather, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal_number(t, KC_OUTPUT, "count", expected.count, got.count);
    kc_equal_number(t, KC_MODEL, "count", count, got.count);
    if (count == SIZE_MAX || kind == COUNTS_ONLY) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "out", expected.out, got.out, ones, 1);
    if (t->is_reference) {
        uint8_t *model = kc_plain(3);
        for (size_t i = 0, n = 0; i < s->len; i++) {
            if ((bitmap[i / 8] >> i % 8 & 1) != 0) {
                model[n++] = bytes[i];
            }
        }
        kc_equal(t, KC_MODEL, "out", model, got.out, ones, 1);
    }
}

static void test_gather(kc_test *t)
{
    kc_walk(t, GATHER_KINDS, MASK_PATTERNS, gather_body);
}

static void bench_gather(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    random_mask(&rng, kc_plain(0), len, 0);
    gather_call call = {(gw_gather_fn *)t->fn, kc_plain(2), kc_plain(1), kc_plain(0), len, 0};
    kc_bench(t, call_gather, &call);
}

/* ---- spread -------------------------------------------------------------------------------------------- */

typedef struct spread_call {
    gw_spread_fn *fn;
    uint8_t *dst;
    const uint8_t *values, *bitmap;
    size_t len;
    const gw_joiner *joiner;
    int flush_mode;
} spread_call;

static void call_spread(void *context)
{
    const spread_call *c = (const spread_call *)context;
    if (c->flush_mode) {
        kc_flush_mode(1);
    }
    c->fn(c->dst, c->values, c->bitmap, c->len, c->joiner);
    if (c->flush_mode) {
        kc_flush_mode(0);
    }
}

static uint32_t element(const uint8_t *values, size_t i, size_t cell)
{
    return cell == 4 ? gw_load32(values + 4 * i) : gw_load16(values + 2 * i);
}

static void check_spread_model(kc_test *t, const spread_call *c, size_t cell)
{
    uint8_t *model = kc_plain(4);
    for (size_t i = 0, n = 0; i < c->len; i++) {
        uint32_t value = (c->bitmap[i / 8] >> i % 8 & 1) != 0 ? element(c->values, n++, cell) : 0;
        if (c->joiner->addend != NULL) {
            value =
                kc_model_add(element(c->joiner->addend, i, cell), value, c->joiner->dtype, c->joiner->strict);
        }
        if (cell == 4) {
            gw_store32(model + 4 * i, value);
        } else {
            gw_store16(model + 2 * i, (uint16_t)value);
        }
    }
    kc_equal(t, KC_MODEL, "dst", model, c->dst, c->len, cell);
}

enum { PLAIN, SUMS, STRICT_SUMS, SPREAD_KINDS };

static void spread_body(kc_test *t)
{
    static const char *const name[SPREAD_KINDS] = {"values", "sums", "strict sums"};
    const kc_shape *s = &t->shape;
    const uint32_t dtype = 1 + s->config % 3;
    const unsigned kind = s->config / 3;
    const size_t cell = gw_traits_of(dtype)->size;
    uint8_t *bitmap = kc_plain(0), *values = kc_plain(1), *addend = kc_plain(2);
    gw_joiner joiner;
    memset(&joiner, 0, sizeof joiner);
    joiner.dtype = dtype;
    joiner.stream = kc_below(&t->rng, 2);
    joiner.strict = kind == STRICT_SUMS;
    joiner.next = (const uint8_t *)(uintptr_t)kc_random(&t->rng); /* hints: any address */
    joiner.next_size = kc_below(&t->rng, 1 << 17);
    joiner.beside = joiner.next + 77;
    joiner.beside_size = kc_below(&t->rng, 1 << 17);
    const size_t ones = random_mask(&t->rng, bitmap, s->len, s->pattern);
    kc_values(&t->rng, values, dtype, ones, kc_below(&t->rng, KC_VALUE_PATTERNS));
    kc_values(&t->rng, addend, dtype, s->len, kc_below(&t->rng, KC_VALUE_PATTERNS));
    const int flush_mode = kind == SUMS && kc_below(&t->rng, 2) == 0;
    kc_describe(t, "dtype %u, %zu of %zu, %s, %s%s", dtype, ones, s->len, mask_name(s->pattern), name[kind],
                flush_mode ? ", flush mode" : "");

    joiner.addend = kind == PLAIN ? NULL : addend;
    gw_joiner guarded = joiner;
    spread_call expected = {(gw_spread_fn *)t->reference, kc_plain(3), values, bitmap, s->len, &joiner, 0};
    spread_call got = expected;
    got.fn = (gw_spread_fn *)t->fn;
    got.flush_mode = flush_mode;
    got.values = kc_in(t, "values", values, ones * cell, GW_SLOP, kc_place_other(t), 1);
    got.bitmap = kc_in(t, "bitmap", bitmap, gw_run_size(s->len, 1), GW_SLOP, s->src, 4);
    if (kind != PLAIN) {
        guarded.addend = kc_in(t, "addend", addend, s->len * cell, 0, kc_place_other(t), 1);
    }
    got.joiner = &guarded;
    got.dst = kc_out(t, "dst", s->len * cell, 0, s->dst, 1);
    if (!kc_guarded(t, call_spread, &expected) || !kc_guarded(t, call_spread, &got)) {
        kc_flush_mode(0);
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, s->len, cell);
    if (t->is_reference) {
        check_spread_model(t, &got, cell);
    }
}

static void test_spread(kc_test *t)
{
    kc_walk(t, 3 * SPREAD_KINDS, MASK_PATTERNS, spread_body);
}

static void bench_spread(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    static gw_joiner joiner;
    joiner.dtype = GW_FP32;
    random_mask(&rng, kc_plain(0), len, 0);
    spread_call call = {(gw_spread_fn *)t->fn, kc_plain(3), kc_plain(1), kc_plain(0), len, &joiner, 0};
    kc_bench(t, call_spread, &call);
}

const kc_kernel kc_spread_family[] = {
    {"gather", select_gather, test_gather, bench_gather, 16384},
    {"spread", select_spread, test_spread, bench_spread, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
