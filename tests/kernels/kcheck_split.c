/*
 * Split: tables that say anything for any bin, every number of kept bits. The model follows docs/format.md
 * section 3 bit by bit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(split);

static const char *const plane_name[GW_PLANES_MAX] = {"P1", "P2", "P3", "P4", "R4", "R2", "R1"};

typedef struct split_call {
    gw_split_fn *fn;
    uint8_t *ranks;
    uint32_t *count;
    uint8_t *plane[GW_PLANES_MAX];
    size_t *plane_len;
    const uint32_t *bits;
    const uint16_t *bins;
    const uint8_t *keep;
    size_t len;
    const gw_ranker *ranker;
} split_call;

static void call_split(void *context)
{
    const split_call *c = (const split_call *)context;
    c->fn(c->ranks, c->count, c->plane, c->plane_len, c->bits, c->bins, c->keep, c->len, c->ranker);
}

/* Table of a codebook with up to 256 ranks, whose bins mean something else than those of the values: all
 * the same here. */
static void random_ranker(kc_rng *rng, gw_ranker *ranker, uint32_t dtype, uint32_t derived)
{
    const uint32_t labels = 1 + kc_below(rng, 256);
    const uint32_t pruned = kc_below(rng, 4); /* how many ranks are zero or escape */
    memset(ranker, 0, sizeof *ranker);
    for (unsigned bin = 0; bin < GW_BINS; bin++) {
        ranker->rank[bin] = (uint8_t)kc_below(rng, labels);
    }
    for (unsigned r = 0; r < 256; r++) {
        uint32_t exponent;
        const uint32_t e = dtype == GW_FP16 ? 3 : 100;
        (void)kc_label_of_bin(4 * e + kc_below(rng, 4), dtype, derived, &exponent, &ranker->keep[r]);
        ranker->keep[r] = derived ? 255 : ranker->keep[r];
        if (pruned != 0 && kc_below(rng, 1 + 3 * pruned) == 0) {
            ranker->keep[r] = 0;
        }
    }
    ranker->dtype = dtype;
    ranker->derived = derived;
    ranker->escape_rank = kc_below(rng, 4) == 0 ? 256 : kc_below(rng, labels);
    if (ranker->escape_rank < 256) {
        ranker->keep[ranker->escape_rank] = 0;
    }
}

static void check_model(kc_test *t, const split_call *c)
{
    const gw_ranker *ranker = c->ranker;
    const gw_traits *traits = gw_traits_of(ranker->dtype);
    const unsigned m = traits->mantissa_bits;
    uint8_t *ranks = kc_plain(11), *plane[GW_PLANES_MAX];
    uint32_t count[256] = {0};
    size_t plane_len[GW_PLANES_MAX] = {0};
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane[p] = kc_plain(12 + p);
    }
    for (size_t i = 0; i < c->len; i++) {
        const uint32_t sign = ranker->dtype == GW_FP32 ? c->bits[i] >> 31 : c->bits[i] >> 15;
        const uint32_t field = sign << m | (c->bits[i] & ((1u << m) - 1));
        const uint8_t rank = ranker->rank[c->bins[i]];
        unsigned kept = ranker->keep[rank];
        unsigned left = m + 1; /* bits of the field not yet used */
        kept = ranker->derived && kept != 0 ? c->keep[i] : kept;
        ranks[i] = rank;
        count[rank]++;
        for (unsigned p = 0; p < 4 && kept >= traits->digit_width[p]; p++) {
            const unsigned w = traits->digit_width[p];
            left -= w;
            kept -= w;
            plane[p][plane_len[p]++] = (uint8_t)(field >> left & ((1u << w) - 1));
        }
        for (unsigned p = 4, w = 4; ranker->derived && w > 0; p++, w /= 2) {
            if ((kept & w) != 0) {
                left -= w;
                plane[p][plane_len[p]++] = (uint8_t)(field >> left & ((1u << w) - 1));
            }
        }
    }
    kc_equal(t, KC_MODEL, "ranks", ranks, c->ranks, c->len, 1);
    kc_equal(t, KC_MODEL, "count", count, c->count, 256, 4);
    kc_equal(t, KC_MODEL, "plane_len", plane_len, c->plane_len, GW_PLANES_MAX, sizeof plane_len[0]);
    for (unsigned p = 0; p < GW_PLANES_MAX && !t->case_failed; p++) {
        kc_equal(t, KC_MODEL, plane_name[p], plane[p], c->plane[p], plane_len[p], 1);
    }
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t dtype = 1 + s->config % 3, derived = s->config / 3;
    uint32_t *bits = kc_u32(kc_plain(0)), count[256];
    uint16_t *bins = kc_u16(kc_plain(1));
    uint8_t *keep = kc_plain(2);
    size_t plane_len[GW_PLANES_MAX];
    gw_ranker ranker;

    kc_rounded(&t->rng, bits, bins, keep, s->len, dtype, derived, s->pattern);
    if (!derived) {
        kc_random_bytes(&t->rng, keep, s->len); /* nobody's business */
    }
    random_ranker(&t->rng, &ranker, dtype, derived);
    kc_describe(t, "dtype %u, derived %u, escape %u, %s", dtype, derived, ranker.escape_rank,
                kc_value_pattern_name(s->pattern));

    split_call expected = {(gw_split_fn *)t->reference,
                           kc_plain(3),
                           count,
                           {NULL},
                           plane_len,
                           bits,
                           bins,
                           keep,
                           s->len,
                           &ranker};
    split_call got = expected;
    got.fn = (gw_split_fn *)t->fn;
    got.bits = kc_u32(kc_in(t, "bits", bits, 4 * s->len, GW_SLOP, s->src, 4));
    got.bins = kc_u16(kc_in(t, "bins", bins, 2 * s->len, GW_SLOP, kc_place_other(t), 2));
    got.keep = kc_in(t, "keep", keep, s->len, GW_SLOP, kc_place_other(t), 1);
    got.ranker = (const gw_ranker *)(const void *)kc_in(t, "ranker", &ranker, sizeof ranker, GW_SLOP,
                                                        (kc_place){KC_AT_END, 0}, 8);
    got.ranks = kc_out(t, "ranks", s->len, GW_SLOP, s->dst, 1);
    got.count = kc_u32(kc_out(t, "count", sizeof count, 0, kc_place_other(t), 4));
    got.plane_len =
        (size_t *)(void *)kc_out(t, "plane_len", sizeof plane_len, 0, (kc_place){KC_AT_END, 0}, 8);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        expected.plane[p] = kc_plain(4 + p);
        got.plane[p] = kc_out(t, plane_name[p], s->len, GW_SLOP, kc_place_other(t), 1);
    }
    if (!kc_guarded(t, call_split, &expected) || !kc_guarded(t, call_split, &got)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "ranks", expected.ranks, got.ranks, s->len, 1);
    kc_equal(t, KC_OUTPUT, "count", expected.count, got.count, 256, 4);
    const int lens_agree =
        kc_equal(t, KC_OUTPUT, "plane_len", plane_len, got.plane_len, GW_PLANES_MAX, sizeof plane_len[0]);
    for (unsigned p = 0; p < GW_PLANES_MAX && lens_agree; p++) {
        kc_may_write(t, got.plane[p], p >= GW_DIGIT_PLANES && !derived ? 0 : plane_len[p] + GW_SLOP);
        kc_equal(t, KC_OUTPUT, plane_name[p], expected.plane[p], got.plane[p], plane_len[p], 1);
    }
    kc_check_memory(t);
    if (t->is_reference) {
        check_model(t, &got);
    }
}

static void test_split(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, body);
}

static void bench_split(kc_test *t)
{
    kc_rng rng = {1};
    gw_ranker ranker;
    uint32_t count[256];
    size_t plane_len[GW_PLANES_MAX];
    kc_rounded(&rng, kc_u32(kc_plain(0)), kc_u16(kc_plain(1)), kc_plain(2), t->kernel->bench_len, GW_FP32, 0,
               9);
    random_ranker(&rng, &ranker, GW_FP32, 0);
    split_call call = {(gw_split_fn *)t->fn,
                       kc_plain(3),
                       count,
                       {NULL},
                       plane_len,
                       kc_u32(kc_plain(0)),
                       kc_u16(kc_plain(1)),
                       kc_plain(2),
                       t->kernel->bench_len,
                       &ranker};
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        call.plane[p] = kc_plain(4 + p);
    }
    kc_bench(t, call_split, &call);
}

const kc_kernel kc_split_family[] = {
    {"split", select_split, test_split, bench_split, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
