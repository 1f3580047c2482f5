/*
 * The nodes of the code tree: partition and merge, with and without the labels of single-label children.
 * Splits from all-left to all-right, runs, and random ones; padding bits of bitmaps that a hostile
 * frame sets.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(partition);
KC_SELECT(merge);

enum { SPLIT_PATTERNS = 7 };

static const char *split_name(unsigned pattern)
{
    static const char *const name[SPLIT_PATTERNS] = {"random", "all left",  "all right", "alternating",
                                                     "runs",   "few right", "few left"};
    return name[pattern];
}

/* The side of value i. */
static unsigned split_bit(kc_rng *rng, unsigned pattern, size_t i, unsigned before)
{
    switch (pattern) {
    case 1:
        return 0;
    case 2:
        return 1;
    case 3:
        return i & 1;
    case 4:
        return kc_below(rng, 40) == 0 ? !before : before;
    case 5:
        return kc_below(rng, 50) == 0;
    case 6:
        return kc_below(rng, 50) != 0;
    default:
        return kc_below(rng, 2);
    }
}

/* ---- partition ----------------------------------------------------------------------------------------- */

typedef struct partition_call {
    gw_partition_fn *fn;
    uint8_t *left, *right, *bitmap;
    const uint8_t *ranks;
    size_t len;
    uint8_t pivot;
    size_t right_len;
} partition_call;

static void call_partition(void *context)
{
    partition_call *c = (partition_call *)context;
    c->right_len = c->fn(c->left, c->right, c->bitmap, c->ranks, c->len, c->pivot);
}

static void check_partition_model(kc_test *t, const partition_call *c, const uint8_t *ranks)
{
    uint8_t *left = kc_plain(6), *right = kc_plain(7), *bitmap = kc_plain(8);
    size_t left_len = 0, right_len = 0; /* of all ranks, wanted or not */
    memset(bitmap, 0, gw_run_size(c->len, 1));
    for (size_t i = 0; i < c->len; i++) {
        if (ranks[i] >= c->pivot) {
            right[right_len++] = ranks[i];
            bitmap[i / 8] = (uint8_t)(bitmap[i / 8] | 1u << i % 8);
        } else {
            left[left_len++] = ranks[i];
        }
    }
    kc_equal_number(t, KC_MODEL, "right_len", right_len, c->right_len);
    if (c->left != NULL) {
        kc_equal(t, KC_MODEL, "left", left, c->left, left_len, 1);
    }
    if (c->right != NULL) {
        kc_equal(t, KC_MODEL, "right", right, c->right, right_len, 1);
    }
    kc_equal(t, KC_MODEL, "bitmap", bitmap, c->bitmap, gw_run_size(c->len, 1), 1);
}

static void partition_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const int has_left = (s->config & 1) == 0, has_right = (s->config & 2) == 0;
    const int in_place = has_left && (s->config & 4) != 0;
    const size_t bitmap_size = gw_run_size(s->len, 1);
    uint8_t *ranks = kc_plain(0);
    static const uint8_t pivots[4] = {1, 128, 255, 2};
    const uint8_t pivot =
        (uint8_t)(kc_below(&t->rng, 2) == 0 ? kc_below(&t->rng, 256) : pivots[kc_below(&t->rng, 4)]);
    unsigned bit = 0;
    size_t left_len = 0;
    for (size_t i = 0; i < s->len; i++) {
        bit = split_bit(&t->rng, s->pattern, i, bit);
        /* Not only random ranks: those right at the pivot, too. */
        const uint32_t distance = kc_below(&t->rng, kc_below(&t->rng, 4) == 0 ? 1 : 255);
        ranks[i] = (uint8_t)(bit != 0 || pivot == 0 ? pivot + distance % (256u - pivot)
                                                    : pivot - 1u - distance % pivot);
        left_len += ranks[i] < pivot;
    }
    kc_describe(t, "pivot %u, %s left%s, %s right, %s", pivot, has_left ? "a" : "no",
                in_place ? " in place" : "", has_right ? "a" : "no", split_name(s->pattern));

    partition_call expected = {(gw_partition_fn *)t->reference,
                               has_left ? kc_plain(1) : NULL,
                               has_right ? kc_plain(2) : NULL,
                               kc_plain(3),
                               ranks,
                               s->len,
                               pivot,
                               0};
    partition_call got = expected;
    got.fn = (gw_partition_fn *)t->fn;
    if (in_place) {
        got.left = kc_inout(t, "ranks", ranks, s->len, GW_SLOP, s->src, 1);
        got.ranks = got.left;
    } else {
        got.ranks = kc_in(t, "ranks", ranks, s->len, GW_SLOP, s->src, 1);
        got.left = has_left ? kc_out(t, "left", left_len, GW_SLOP, kc_place_other(t), 1) : NULL;
    }
    got.right = has_right ? kc_out(t, "right", s->len - left_len, GW_SLOP, kc_place_other(t), 1) : NULL;
    got.bitmap = kc_out(t, "bitmap", bitmap_size, 0, s->dst, 1);
    if (!kc_guarded(t, call_partition, &expected) || !kc_guarded(t, call_partition, &got)) {
        return;
    }
    if (kc_equal_number(t, KC_OUTPUT, "right_len", expected.right_len, got.right_len)) {
        kc_equal(t, KC_OUTPUT, "left", expected.left, got.left, has_left ? left_len : 0, 1);
        kc_equal(t, KC_OUTPUT, "right", expected.right, got.right, has_right ? s->len - left_len : 0, 1);
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "bitmap", expected.bitmap, got.bitmap, bitmap_size, 1);
    if (t->is_reference) {
        check_partition_model(t, &got, ranks);
    }
}

static void test_partition(kc_test *t)
{
    kc_walk(t, 8, SPLIT_PATTERNS, partition_body);
}

static void bench_partition(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len);
    partition_call call = {(gw_partition_fn *)t->fn,
                           kc_plain(1),
                           kc_plain(2),
                           kc_plain(3),
                           kc_plain(0),
                           t->kernel->bench_len,
                           128,
                           0};
    kc_bench(t, call_partition, &call);
}

/* ---- merge --------------------------------------------------------------------------------------------- */

typedef struct merge_call {
    gw_merge_fn *fn;
    uint8_t *out;
    gw_child left, right;
    const uint8_t *bitmap;
    size_t len;
    size_t ones;
} merge_call;

static void call_merge(void *context)
{
    merge_call *c = (merge_call *)context;
    c->ones = c->fn(c->out, c->left, c->right, c->bitmap, c->len);
}

static size_t random_bitmap(kc_rng *rng, uint8_t *bitmap, size_t len, unsigned pattern)
{
    size_t ones = 0;
    unsigned bit = 0;
    memset(bitmap, 0, gw_run_size(len, 1));
    for (size_t i = 0; i < len; i++) {
        bit = split_bit(rng, pattern, i, bit);
        bitmap[i / 8] = (uint8_t)(bitmap[i / 8] | bit << i % 8);
        ones += bit;
    }
    return ones;
}

/* A bitmap that does not fit its sides: a count other than right's length, or a padding bit. The merged
 * values are then meaningless, but the count must be correct, and reads stay within `len` values and slop
 * of both sides. */
enum { FITS, OTHER_SIDES, BAD_PADDING, MERGE_KINDS };

static void merge_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint8_t *bitmap = kc_plain(0), *left = kc_plain(1), *right = kc_plain(2);
    const size_t size = gw_run_size(s->len, 1), padding = 8 * size - s->len;
    const unsigned kind = s->config / 4;
    const size_t ones = random_bitmap(&t->rng, bitmap, s->len, s->pattern);
    size_t count = ones;
    if (kind == BAD_PADDING && padding > 0) {
        const size_t bit = s->len + kc_below(&t->rng, (uint32_t)padding);
        bitmap[bit / 8] = (uint8_t)(bitmap[bit / 8] | 1u << bit % 8);
        count = SIZE_MAX;
    }
    const size_t left_len = kind == FITS ? s->len - ones : s->len, right_len = kind == FITS ? ones : s->len;
    kc_random_bytes(&t->rng, left, left_len);
    kc_random_bytes(&t->rng, right, right_len);
    const int has_left = (s->config & 1) == 0, has_right = (s->config & 2) == 0;
    const gw_child left_child = {has_left ? left : NULL, (uint8_t)kc_below(&t->rng, 256)};
    const gw_child right_child = {has_right ? right : NULL, (uint8_t)kc_below(&t->rng, 256)};
    kc_describe(t, "%zu of %zu right, %s left, %s right, %s%s", ones, s->len, has_left ? "a" : "no",
                has_right ? "a" : "no", split_name(s->pattern),
                count == SIZE_MAX     ? ", bad padding"
                : kind == OTHER_SIDES ? ", other sides"
                                      : "");

    merge_call expected = {
        (gw_merge_fn *)t->reference, kc_plain(3), left_child, right_child, bitmap, s->len, 0};
    merge_call got = expected;
    got.fn = (gw_merge_fn *)t->fn;
    got.bitmap = kc_in(t, "bitmap", bitmap, size, 0, s->src, 1);
    if (has_left) {
        got.left.labels = kc_in(t, "left", left, left_len, GW_SLOP, kc_place_other(t), 1);
    }
    if (has_right) {
        got.right.labels = kc_in(t, "right", right, right_len, GW_SLOP, kc_place_other(t), 1);
    }
    got.out = kc_out(t, "out", s->len, GW_SLOP, s->dst, 1);
    if (!kc_guarded(t, call_merge, &expected) || !kc_guarded(t, call_merge, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal_number(t, KC_OUTPUT, "count", expected.ones, got.ones);
    kc_equal_number(t, KC_MODEL, "count", count, got.ones);
    if (count == SIZE_MAX) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "out", expected.out, got.out, s->len, 1);
    if (t->is_reference) {
        uint8_t *out = kc_plain(6);
        for (size_t i = 0, l = 0, r = 0; i < s->len; i++) {
            if ((bitmap[i / 8] >> i % 8 & 1) != 0) {
                out[i] = has_right ? right[r] : right_child.label;
                r++;
            } else {
                out[i] = has_left ? left[l] : left_child.label;
                l++;
            }
        }
        kc_equal(t, KC_MODEL, "out", out, got.out, s->len, 1);
    }
}

static void test_merge(kc_test *t)
{
    kc_walk(t, 4 * MERGE_KINDS, SPLIT_PATTERNS, merge_body);
}

static void bench_merge(kc_test *t)
{
    kc_rng rng = {1};
    random_bitmap(&rng, kc_plain(0), t->kernel->bench_len, 0);
    merge_call call = {(gw_merge_fn *)t->fn,
                       kc_plain(3),
                       {kc_plain(1), 0},
                       {kc_plain(2), 0},
                       kc_plain(0),
                       t->kernel->bench_len,
                       0};
    kc_bench(t, call_merge, &call);
}

const kc_kernel kc_tree_family[] = {
    {"partition", select_partition, test_partition, bench_partition, 16384},
    {"merge", select_merge, test_merge, bench_merge, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
