/*
 * Join: frames as the encoder makes them (whose values must come back), frames that lack escapes, and ranks
 * that ask for more digits than the planes have.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT(join);

/* Planes of what the ranks ask for; of random digits; of random bytes, as an earlier chunk may have left
 * them. */
enum { PLANES_MATCH, PLANES_OF_DIGITS, PLANES_OF_BYTES, PLANE_KINDS };
enum { EXPLICIT, DERIVED, CONSTANT, LEVEL_KINDS };

typedef struct join_call {
    gw_join_fn *fn;
    void *dst;
    gw_joined *joined;
    uint16_t *place;
    const uint8_t *ranks;
    uint8_t *plane[GW_PLANES_MAX];
    const uint8_t *escape;
    size_t escape_len;
    const uint8_t *levels;
    size_t len;
    const gw_joiner *joiner;
} join_call;

static void call_join(void *context)
{
    const join_call *c = (const join_call *)context;
    c->fn(c->dst, c->joined, c->place, c->ranks, c->plane, c->escape, c->escape_len, c->levels, c->len,
          c->joiner);
}

static unsigned plane_width(const gw_traits *traits, unsigned plane)
{
    return plane < GW_DIGIT_PLANES ? traits->digit_width[plane] : 4u >> (plane - GW_DIGIT_PLANES);
}

/* A codebook for random bins that occur in the values: ranks below escape_rank; escape_rank for all
 * others. */
static void make_tables(kc_rng *rng, gw_ranker *ranker, gw_joiner *joiner, const uint16_t *bins, size_t len,
                        const gw_round_rule *rule)
{
    uint32_t occurs[GW_BINS] = {0};
    const uint32_t coded_max = kc_below(rng, 4) == 0 ? kc_below(rng, 255) : 254;
    uint32_t coded = 0;
    gw_survey_scalar(occurs, bins, len);
    memset(ranker, 0, sizeof *ranker);
    memset(joiner, 0, sizeof *joiner);
    memset(ranker->rank, 255, sizeof ranker->rank);
    for (uint32_t bin = 0; bin < GW_BINS && coded < coded_max; bin++) {
        if (occurs[bin] != 0 && kc_below(rng, 10) != 0 &&
            kc_label_of_bin(bin, rule->dtype, rule->derived, &joiner->exponent[coded],
                            &joiner->keep[coded])) {
            ranker->keep[coded] = rule->derived && joiner->keep[coded] != 0 ? 255 : joiner->keep[coded];
            ranker->rank[bin] = (uint8_t)coded++;
        }
    }
    ranker->dtype = joiner->dtype = rule->dtype;
    ranker->derived = joiner->derived = rule->derived;
    ranker->escape_rank = joiner->escape_rank = 255;
    joiner->constant = rule->constant & rule->derived;
    joiner->cap = rule->cap;
    joiner->drop_base = rule->drop_base;
    memcpy(joiner->floor, rule->floor, sizeof joiner->floor);
}

/* A joiner that any codebook may give, hostile ones included. */
static void random_joiner(kc_rng *rng, gw_joiner *joiner, const gw_round_rule *rule)
{
    const gw_traits *traits = gw_traits_of(rule->dtype);
    memset(joiner, 0, sizeof *joiner);
    for (unsigned r = 0; r < 256; r++) {
        uint32_t bin = kc_below(rng, GW_BINS);
        if (rule->dtype == GW_FP16) {
            bin = kc_below(rng, 8) == 0 ? GW_BIN_FP16_ZERO : bin % (4u * traits->exponent_mask);
        }
        (void)kc_label_of_bin(bin, rule->dtype, rule->derived, &joiner->exponent[r], &joiner->keep[r]);
    }
    joiner->escape_rank = kc_below(rng, 4) == 0 ? 256 : kc_below(rng, 256);
    if (joiner->escape_rank < 256) {
        joiner->exponent[joiner->escape_rank] = 0;
        joiner->keep[joiner->escape_rank] = 0;
    }
    joiner->dtype = rule->dtype;
    joiner->derived = rule->derived;
    joiner->constant = rule->constant & rule->derived;
    joiner->cap = rule->cap;
    joiner->drop_base = rule->drop_base;
    memcpy(joiner->floor, rule->floor, sizeof joiner->floor);
}

static size_t gather_escapes(uint8_t *escape, const uint8_t *ranks, const uint32_t *bits, size_t len,
                             const gw_joiner *joiner)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) {
        if (ranks[i] == joiner->escape_rank) {
            if (joiner->dtype == GW_FP32) {
                gw_store32(escape + 4 * count, bits[i]);
            } else {
                gw_store16(escape + 2 * count, (uint16_t)bits[i]);
            }
            count++;
        }
    }
    return count;
}

static void compare(kc_test *t, const join_call *expected, const join_call *got, unsigned planes, size_t cell)
{
    kc_equal(t, KC_OUTPUT, "plane_len", expected->joined->plane_len, got->joined->plane_len, GW_PLANES_MAX,
             sizeof(size_t));
    if (kc_equal_number(t, KC_OUTPUT, "escape_len", expected->joined->escape_len, got->joined->escape_len)) {
        kc_equal(t, KC_OUTPUT, "place", expected->place, got->place, expected->joined->escape_len, 2);
    }
    if (planes != PLANES_OF_BYTES) {
        kc_equal(t, KC_OUTPUT, "dst", expected->dst, got->dst, expected->len, cell);
        kc_equal_number(t, KC_OUTPUT, "bad_zero", expected->joined->bad_zero, got->joined->bad_zero);
    }
}

/* Joined values are the values that were split; missing escapes are +0. */
static void check_inverse(kc_test *t, const join_call *c, const uint32_t *bits, const uint8_t *ranks)
{
    uint8_t *values = kc_plain(5);
    size_t escapes = 0;
    for (size_t i = 0; i < c->len; i++) {
        uint32_t value = bits[i];
        if (ranks[i] == c->joiner->escape_rank && escapes++ >= c->escape_len) {
            value = 0;
        }
        if (c->joiner->dtype == GW_FP32) {
            gw_store32(values + 4 * i, value);
        } else {
            gw_store16(values + 2 * i, (uint16_t)value);
        }
    }
    kc_equal(t, KC_MODEL, "dst", values, c->dst, c->len, gw_traits_of(c->joiner->dtype)->size);
    kc_equal_number(t, KC_MODEL, "bad_zero", 0, c->joined->bad_zero);
}

static void body(kc_test *t)
{
    static const char *const name[GW_PLANES_MAX] = {"P1", "P2", "P3", "P4", "R4", "R2", "R1"};
    const kc_shape *s = &t->shape;
    kc_rng *rng = &t->rng;
    const uint32_t dtype = 1 + s->config % 3;
    const unsigned kind = s->config / 3 % LEVEL_KINDS, planes = s->config / 9;
    const gw_traits *traits = gw_traits_of(dtype);
    const size_t cell = traits->size;
    uint8_t *values = kc_plain(0), *levels = kc_plain(1), *keep = kc_plain(2), *ranks = kc_plain(3);
    uint8_t *escape = kc_plain(4);
    uint32_t *bits = kc_u32(kc_plain(6));
    uint16_t *bins = kc_u16(kc_plain(16));
    uint8_t *plane[GW_PLANES_MAX];
    size_t plane_len[GW_PLANES_MAX];
    uint32_t count[256];
    gw_round_rule rule;
    gw_ranker ranker;
    gw_joiner joiner;
    gw_joined joined;

    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane[p] = kc_plain(7 + p);
        kc_random_bytes(rng, plane[p], s->len);
        for (size_t i = 0; i < s->len && planes != PLANES_OF_BYTES; i++) {
            plane[p][i] = (uint8_t)(plane[p][i] & ((1u << plane_width(traits, p)) - 1));
        }
    }
    kc_values(rng, values, dtype, s->len, s->pattern);
    kc_levels(rng, levels, s->len, kc_below(rng, KC_LEVEL_PATTERNS));
    const uint32_t near = s->len == 0 ? 0 : dtype == GW_FP32 ? gw_load32(values) : gw_load16(values);
    kc_round_rule(rng, &rule, dtype, kc_below(rng, 3), kind != EXPLICIT, kind == CONSTANT, kc_below(rng, 2),
                  near);
    gw_round_scalar(bits, bins, keep, values, levels, s->len, 0, &rule);
    if (planes == PLANES_MATCH) {
        make_tables(rng, &ranker, &joiner, bins, s->len, &rule);
        gw_split_scalar(ranks, count, plane, plane_len, bits, bins, keep, s->len, &ranker);
    } else {
        random_joiner(rng, &joiner, &rule);
        kc_random_bytes(rng, ranks, s->len);
        const uint8_t often = (uint8_t)(kc_random(rng) & 255); /* one rank often; the escape, too */
        for (size_t i = 0; i < s->len && kc_below(rng, 2) == 0; i++) {
            ranks[i] = often;
        }
    }
    const size_t wanted = gather_escapes(escape, ranks, bits, s->len, &joiner);
    const size_t escape_len = kc_below(rng, 2) == 0 ? wanted : kc_below(rng, (uint32_t)wanted + 1);
    kc_describe(t, "dtype %u, %s, planes %s, escapes %zu of %zu, cap %u, drop_base %d, %s", dtype,
                kind == EXPLICIT  ? "explicit"
                : kind == DERIVED ? "derived"
                                  : "constant",
                planes == PLANES_MATCH       ? "match"
                : planes == PLANES_OF_DIGITS ? "random digits"
                                             : "random bytes",
                escape_len, wanted, joiner.cap, joiner.drop_base, kc_value_pattern_name(s->pattern));

    join_call expected = {(gw_join_fn *)t->reference,
                          kc_plain(14),
                          &joined,
                          kc_u16(kc_plain(15)),
                          ranks,
                          {NULL},
                          escape,
                          escape_len,
                          kind == DERIVED ? levels : NULL,
                          s->len,
                          &joiner};
    join_call got = expected;
    got.fn = (gw_join_fn *)t->fn;
    got.ranks = kc_in(t, "ranks", ranks, s->len, GW_SLOP, s->src, 1);
    got.escape = kc_in(t, "escape", escape, escape_len * cell, 0, kc_place_other(t), 1);
    got.levels = kind == DERIVED ? kc_in(t, "levels", levels, s->len, 0, kc_place_other(t), 1) : NULL;
    got.joiner = (const gw_joiner *)(const void *)kc_in(t, "joiner", &joiner, sizeof joiner, GW_SLOP,
                                                        (kc_place){KC_AT_END, 0}, 8);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        expected.plane[p] = plane[p];
        got.plane[p] = kc_in(t, name[p], plane[p], s->len, GW_SLOP, kc_place_other(t), 1);
    }
    got.joined = (gw_joined *)(void *)kc_out(t, "joined", sizeof joined, 0, (kc_place){KC_AT_END, 0}, 8);
    got.place = kc_u16(kc_out(t, "place", 2 * s->len, GW_SLOP, kc_place_other(t), 2));
    kc_may_write(t, (const uint8_t *)got.place, 2 * s->len);
    got.dst = kc_out(t, "dst", s->len * cell, 0, s->dst, 1);
    if (!kc_guarded(t, call_join, &expected) || !kc_guarded(t, call_join, &got)) {
        return;
    }
    kc_check_memory(t);
    compare(t, &expected, &got, planes, cell);
    if (t->is_reference && planes == PLANES_MATCH) {
        check_inverse(t, &got, bits, ranks);
        kc_equal(t, KC_MODEL, "plane_len", plane_len, got.joined->plane_len, GW_PLANES_MAX,
                 sizeof plane_len[0]);
    }
}

static void test_join(kc_test *t)
{
    kc_walk(t, 3 * LEVEL_KINDS * PLANE_KINDS, KC_VALUE_PATTERNS, body);
}

static void bench_join(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    uint32_t *bits = kc_u32(kc_plain(6));
    uint16_t *bins = kc_u16(kc_plain(16));
    uint8_t *plane[GW_PLANES_MAX];
    size_t plane_len[GW_PLANES_MAX];
    uint32_t count[256];
    gw_round_rule rule;
    gw_ranker ranker;
    gw_joiner joiner;
    gw_joined joined;
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane[p] = kc_plain(7 + p);
    }
    kc_values(&rng, kc_plain(0), GW_FP32, len, 9);
    kc_levels(&rng, kc_plain(1), len, 4);
    kc_round_rule(&rng, &rule, GW_FP32, GW_GCOMP_NEAREST, 0, 0, 0, gw_load32(kc_plain(0)));
    rule.drop_base = 4 * 116 - 100;
    gw_round_scalar(bits, bins, kc_plain(2), kc_plain(0), kc_plain(1), len, 0, &rule);
    make_tables(&rng, &ranker, &joiner, bins, len, &rule);
    gw_split_scalar(kc_plain(3), count, plane, plane_len, bits, bins, kc_plain(2), len, &ranker);
    join_call call = {(gw_join_fn *)t->fn,
                      kc_plain(14),
                      &joined,
                      kc_u16(kc_plain(15)),
                      kc_plain(3),
                      {NULL},
                      kc_plain(4),
                      gather_escapes(kc_plain(4), kc_plain(3), bits, len, &joiner),
                      NULL,
                      len,
                      &joiner};
    memcpy(call.plane, plane, sizeof plane);
    kc_bench(t, call_join, &call);
}

const kc_kernel kc_join_family[] = {
    {"join", select_join, test_join, bench_join, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
