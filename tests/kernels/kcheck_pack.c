/*
 * Pack of all widths, with bases that wrap around; unpack with and without a table, and padding that a
 * hostile frame sets. The model moves single bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(pack);
KC_SELECT(unpack);

enum { NUMBER_PATTERNS = 4, WIDTHS = 7 };

static void random_numbers(kc_rng *rng, uint8_t *number, size_t len, unsigned width, unsigned pattern)
{
    const unsigned count = 1u << width;
    for (size_t i = 0; i < len; i++) {
        switch (pattern) {
        case 0:
            number[i] = (uint8_t)kc_below(rng, count);
            break;
        case 1:
            number[i] = 0;
            break;
        case 2:
            number[i] = (uint8_t)(count - 1);
            break;
        default:
            number[i] = (uint8_t)(i % count);
            break;
        }
    }
}

static void model_pack(uint8_t *dst, const uint8_t *number, size_t len, unsigned width)
{
    memset(dst, 0, gw_run_size(len, width));
    for (size_t bit = 0; bit < len * width; bit++) {
        if ((number[bit / width] >> bit % width & 1) != 0) {
            dst[bit / 8] = (uint8_t)(dst[bit / 8] | 1u << bit % 8);
        }
    }
}

/* ---- pack ---------------------------------------------------------------------------------------------- */

typedef struct pack_call {
    gw_pack_fn *fn;
    uint8_t *dst;
    const uint8_t *digits;
    size_t len;
    unsigned width;
    uint8_t bias;
} pack_call;

static void call_pack(void *context)
{
    const pack_call *c = (const pack_call *)context;
    c->fn(c->dst, c->digits, c->len, c->width, c->bias);
}

static void pack_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned width = 1 + s->config % WIDTHS;
    const uint8_t bias = (uint8_t)(s->config < WIDTHS ? 0 : kc_random(&t->rng) & 255);
    const size_t size = gw_run_size(s->len, width);
    uint8_t *number = kc_plain(0), *digits = kc_plain(1);
    random_numbers(&t->rng, number, s->len, width, s->pattern);
    for (size_t i = 0; i < s->len; i++) {
        digits[i] = (uint8_t)(number[i] + bias);
    }
    kc_describe(t, "width %u, base %u, pattern %u", width, bias, s->pattern);

    pack_call expected = {(gw_pack_fn *)t->reference, kc_plain(2), digits, s->len, width, bias};
    pack_call got = expected;
    got.fn = (gw_pack_fn *)t->fn;
    got.digits = kc_in(t, "digits", digits, s->len, GW_SLOP, s->src, 1);
    got.dst = kc_out(t, "dst", size, 0, s->dst, 1);
    if (!kc_guarded(t, call_pack, &expected) || !kc_guarded(t, call_pack, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, size, 1);
    if (t->is_reference) {
        model_pack(kc_plain(3), number, s->len, width);
        kc_equal(t, KC_MODEL, "dst", kc_plain(3), got.dst, size, 1);
    }
}

static void test_pack(kc_test *t)
{
    kc_walk(t, 2 * WIDTHS, NUMBER_PATTERNS, pack_body);
}

static void bench_pack(kc_test *t)
{
    kc_rng rng = {1};
    random_numbers(&rng, kc_plain(0), t->kernel->bench_len, 6, 0);
    pack_call call = {(gw_pack_fn *)t->fn, kc_plain(1), kc_plain(0), t->kernel->bench_len, 6, 0};
    kc_bench(t, call_pack, &call);
}

/* ---- unpack -------------------------------------------------------------------------------------------- */

typedef struct unpack_call {
    gw_unpack_fn *fn;
    uint8_t *out;
    const uint8_t *src;
    size_t len;
    unsigned width;
    const uint8_t *table;
    int ok;
} unpack_call;

static void call_unpack(void *context)
{
    unpack_call *c = (unpack_call *)context;
    c->ok = c->fn(c->out, c->src, c->len, c->width, c->table);
}

static void unpack_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned width = 1 + s->config % WIDTHS;
    const int has_table = s->config / WIDTHS % 2 == 1;
    const int hostile = s->config / (2 * WIDTHS) == 1;
    const size_t size = gw_run_size(s->len, width), padding = 8 * size - s->len * width;
    uint8_t *number = kc_plain(0), *src = kc_plain(1), *table = kc_plain(4);
    random_numbers(&t->rng, number, s->len, width, s->pattern);
    kc_random_bytes(&t->rng, table, (size_t)1 << width);
    model_pack(src, number, s->len, width);
    if (hostile && padding > 0) { /* one bit, anywhere in the padding, or all of them */
        const size_t bit = s->len * width + kc_below(&t->rng, (uint32_t)padding);
        const size_t last = kc_below(&t->rng, 3) == 0 ? 8 * size - 1 : bit;
        for (size_t b = bit; b <= last; b++) {
            src[b / 8] = (uint8_t)(src[b / 8] | 1u << b % 8);
        }
    }
    const int ok = !(hostile && padding > 0);
    kc_describe(t, "width %u, %s table, pattern %u%s", width, has_table ? "a" : "no", s->pattern,
                ok ? "" : ", bad padding");

    unpack_call expected = {
        (gw_unpack_fn *)t->reference, kc_plain(2), src, s->len, width, has_table ? table : NULL, 0};
    unpack_call got = expected;
    got.fn = (gw_unpack_fn *)t->fn;
    got.src = kc_in(t, "src", src, size, 0, s->src, 1);
    got.out = kc_out(t, "out", s->len, GW_SLOP, s->dst, 1);
    if (has_table) {
        got.table = kc_in(t, "table", table, (size_t)1 << width, GW_SLOP, kc_place_other(t), 1);
    }
    if (!kc_guarded(t, call_unpack, &expected) || !kc_guarded(t, call_unpack, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "out", expected.out, got.out, s->len, 1);
    kc_equal_number(t, KC_OUTPUT, "result", (uint64_t)expected.ok, (uint64_t)got.ok);
    if (t->is_reference) {
        for (size_t i = 0; has_table && i < s->len; i++) {
            number[i] = table[number[i]];
        }
        kc_equal(t, KC_MODEL, "out", number, got.out, s->len, 1);
        kc_equal_number(t, KC_MODEL, "result", (uint64_t)ok, (uint64_t)got.ok);
    }
}

static void test_unpack(kc_test *t)
{
    kc_walk(t, 4 * WIDTHS, NUMBER_PATTERNS, unpack_body);
}

static void bench_unpack(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), gw_run_size(t->kernel->bench_len, 6));
    unpack_call call = {(gw_unpack_fn *)t->fn, kc_plain(1), kc_plain(0), t->kernel->bench_len, 6, NULL, 0};
    kc_bench(t, call_unpack, &call);
}

const kc_kernel kc_pack_family[] = {
    {"pack", select_pack, test_pack, bench_pack, 16384},
    {"unpack", select_unpack, test_unpack, bench_unpack, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
