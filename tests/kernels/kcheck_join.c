/*
 * Join: frames as the encoder makes them (whose values must come back), frames that lack escapes, and labels
 * that ask for more digits than the planes have. Half of the joins form sums, some of them (not strict) in
 * the processor's flush modes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"
#include "scalar/kernels_scalar.h"

#include <string.h>

KC_SELECT(join);

/* Planes of what the labels ask for; of random digits; of random bytes, as an earlier chunk may have left
 * them. */
enum { PLANES_MATCH, PLANES_OF_DIGITS, PLANES_OF_BYTES, PLANE_KINDS };
enum { EXPLICIT, DERIVED, CONSTANT, QUANTUM_MODES };

typedef struct join_call {
    gw_join_fn *fn;
    void *dst;
    gw_joined *joined;
    uint16_t *place;
    uint8_t *plane[GW_PLANES_MAX];
    gw_join_input input; /* but its planes */
    const gw_joiner *joiner;
    int flush_mode;
} join_call;

static void call_join(void *context)
{
    const join_call *c = (const join_call *)context;
    gw_join_input input = c->input;
    input.plane = c->plane;
    if (c->flush_mode) {
        kc_flush_mode(1);
    }
    c->fn(c->dst, c->joined, c->place, &input, c->joiner);
    if (c->flush_mode) {
        kc_flush_mode(0);
    }
}

static unsigned plane_width(const gw_traits *traits, unsigned plane)
{
    return plane < GW_DIGIT_PLANES ? traits->digit_width[plane] : 4u >> (plane - GW_DIGIT_PLANES);
}

/* Label of a bin by docs/format.md section 3, 1 if it has none. */
static uint8_t label_of(uint32_t bin, uint32_t dtype, uint32_t derived, uint32_t window_start)
{
    uint32_t exponent;
    uint8_t keep;
    const uint32_t e = bin / 4, drop_steps = bin % 4;
    if (!kc_label_of_bin(bin, dtype, derived, &exponent, &keep)) {
        return 1;
    }
    if (keep == 0) {
        return 0;
    }
    if (derived) {
        return (uint8_t)(dtype == GW_FP16 ? e + 2 : e + 1);
    }
    if (dtype == GW_FP16) {
        return (uint8_t)(4 * (e + 1) + drop_steps);
    }
    return (uint8_t)(e > window_start && e - window_start < 64 ? 4 * (e - window_start) + drop_steps : 1);
}

static void fill_joiner(gw_joiner *joiner, const gw_round_rule *rule, uint32_t window_start)
{
    memset(joiner, 0, sizeof *joiner);
    joiner->dtype = rule->dtype;
    joiner->derived = rule->derived;
    joiner->window_start = rule->derived || rule->dtype == GW_FP16 ? 0 : window_start;
    joiner->constant = rule->constant & rule->derived;
    joiner->relative = rule->relative;
    joiner->cap = rule->cap;
    joiner->drop_offset = rule->drop_offset;
    memcpy(joiner->floor, rule->floor, sizeof joiner->floor);
    /* Hints: what is read next may be any address. */
    joiner->stream = rule->step_index & 1;
    joiner->next = (const uint8_t *)(uintptr_t)(rule->seed >> 20);
    joiner->next_size = rule->rank_hop & 0x1ffff;
    joiner->beside = joiner->next + 77;
    joiner->beside_size = rule->rank_hop >> 15;
}

/* Rounded values; returns their largest exponent. */
static uint32_t round_all(uint32_t *bits, const gw_span *span, const gw_round_rule *rule)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < span->len; i++) {
        const kc_rounded v = kc_model_round(rule, span, i);
        bits[i] = v.bits;
        largest = v.bin < 4u * 255 && v.bin / 4u > largest ? v.bin / 4u : largest;
    }
    return largest;
}

/* Codes for random labels, the escape for all others: a ranker whose ranks are labels. */
static void make_tables(kc_rng *rng, gw_ranker *ranker, gw_joiner *joiner, uint32_t largest,
                        const gw_round_rule *rule)
{
    const uint32_t window_start = kc_below(rng, 4) == 0 ? kc_below(rng, 192)
                                  : largest < 59        ? 0
                                                        : largest - 59;
    fill_joiner(joiner, rule, window_start > 191 ? 191 : window_start);
    memset(ranker, 0, sizeof *ranker);
    memset(ranker->rank, 1, sizeof ranker->rank);
    const uint32_t coded_of_ten = kc_below(rng, 4) == 0 ? kc_below(rng, 10) : 9;
    for (uint32_t bin = 0; bin < GW_BINS; bin++) {
        const uint8_t label = label_of(bin, rule->dtype, rule->derived, joiner->window_start);
        if (label != 1 && kc_below(rng, 10) <= coded_of_ten) {
            ranker->rank[label] = label;
        }
    }
    ranker->window_start = joiner->window_start;
    ranker->escape_rank = 1;
}

/* Any label that a codebook of this kind may have. */
static uint8_t random_label(kc_rng *rng, const gw_joiner *joiner)
{
    const uint32_t count = joiner->dtype != GW_FP16 ? 256 : joiner->derived ? 33 : 128;
    uint32_t label = kc_below(rng, count);
    if (!joiner->derived && (label == 2 || label == 3)) {
        label -= 2;
    }
    return (uint8_t)label;
}

static size_t gather_escapes(uint8_t *escape, const uint8_t *labels, const uint32_t *bits, size_t len,
                             const gw_joiner *joiner)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) {
        if (labels[i] == 1) {
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

/* Split writes R1 as bytes, join reads it as bits. */
static void pack_r1(uint8_t *const plane[GW_PLANES_MAX], const size_t plane_len[GW_PLANES_MAX])
{
    uint8_t *r1 = plane[GW_PLANE_R1];
    for (size_t i = 0; i < plane_len[GW_PLANE_R1]; i++) {
        const uint8_t bit = r1[i];
        r1[i / 8] = (uint8_t)((i % 8 == 0 ? 0 : r1[i / 8]) | bit << i % 8);
    }
}

static void compare(kc_test *t, const join_call *expected, const join_call *got, unsigned planes, size_t cell)
{
    kc_equal(t, KC_OUTPUT, "plane_len", expected->joined->plane_len, got->joined->plane_len, GW_PLANES_MAX,
             sizeof(size_t));
    if (kc_equal_number(t, KC_OUTPUT, "escape_len", expected->joined->escape_len, got->joined->escape_len)) {
        kc_equal(t, KC_OUTPUT, "place", expected->place, got->place, expected->joined->escape_len, 2);
    }
    if (planes != PLANES_OF_BYTES) {
        kc_equal(t, KC_OUTPUT, "dst", expected->dst, got->dst, expected->input.len, cell);
        kc_equal_number(t, KC_OUTPUT, "bad_zero", expected->joined->bad_zero, got->joined->bad_zero);
    }
}

/* Joined values are the values that were split, or their sums; missing escapes are +0. */
static void check_inverse(kc_test *t, const join_call *c, const uint32_t *bits, const uint8_t *labels)
{
    uint8_t *values = kc_plain(5);
    size_t escapes = 0;
    for (size_t i = 0; i < c->input.len; i++) {
        uint32_t value = bits[i];
        if (labels[i] == 1 && escapes++ >= c->input.escape_len) {
            value = 0;
        }
        const uint8_t *addend = c->joiner->addend;
        if (c->joiner->dtype == GW_FP32) {
            value = addend == NULL
                        ? value
                        : kc_model_add(gw_load32(addend + 4 * i), value, GW_FP32, c->joiner->strict);
            gw_store32(values + 4 * i, value);
        } else {
            value = addend == NULL
                        ? value
                        : kc_model_add(gw_load16(addend + 2 * i), value, c->joiner->dtype, c->joiner->strict);
            gw_store16(values + 2 * i, (uint16_t)value);
        }
    }
    kc_equal(t, KC_MODEL, "dst", values, c->dst, c->input.len, gw_traits_of(c->joiner->dtype)->size);
    kc_equal_number(t, KC_MODEL, "bad_zero", 0, c->joined->bad_zero);
}

/* Random digits, or random bytes. */
static void fill_planes(kc_test *t, uint8_t *plane[GW_PLANES_MAX], const gw_traits *traits, unsigned planes)
{
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane[p] = kc_plain(7 + p);
        kc_random_bytes(&t->rng, plane[p], t->shape.len);
        for (size_t i = 0; p != GW_PLANE_R1 && i < t->shape.len && planes != PLANES_OF_BYTES; i++) {
            plane[p][i] = (uint8_t)(plane[p][i] & ((1u << plane_width(traits, p)) - 1));
        }
    }
}

/* One label often; the escape, too. */
static void random_labels(kc_rng *rng, uint8_t *labels, size_t len, const gw_joiner *joiner)
{
    const uint8_t often = kc_below(rng, 4) == 0 ? 1 : random_label(rng, joiner);
    const uint32_t how_often = kc_below(rng, 4);
    for (size_t i = 0; i < len; i++) {
        labels[i] = kc_below(rng, 4) < how_often ? often : random_label(rng, joiner);
    }
}

/* The same call, with its arrays in guarded memory. */
static void place_call(kc_test *t, join_call *got, const join_call *expected, gw_joiner *guarded, size_t cell)
{
    static const char *const name[GW_PLANES_MAX] = {"P1", "P2", "P3", "P4", "R4", "R2", "R1"};
    const gw_join_input *in = &expected->input;
    const size_t len = in->len;
    *got = *expected;
    *guarded = *expected->joiner;
    if (guarded->addend != NULL) {
        guarded->addend = kc_in(t, "addend", guarded->addend, len * cell, 0, kc_place_other(t), 1);
    }
    got->fn = (gw_join_fn *)t->fn;
    got->input.labels = kc_in(t, "labels", in->labels, len, GW_SLOP, t->shape.src, 1);
    got->input.escape = kc_in(t, "escape", in->escape, in->escape_len * cell, 0, kc_place_other(t), 1);
    if (in->map_bytes != NULL) {
        got->input.map_bytes = kc_in(t, "map_bytes", in->map_bytes, len, 0, kc_place_other(t), 1);
    }
    got->joiner = (const gw_joiner *)(const void *)kc_in(t, "joiner", guarded, sizeof *guarded, GW_SLOP,
                                                         (kc_place){KC_AT_END, 0}, 8);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        got->plane[p] = kc_in(t, name[p], expected->plane[p], len, GW_SLOP, kc_place_other(t), 1);
    }
    got->joined = (gw_joined *)(void *)kc_out(t, "joined", sizeof(gw_joined), 0, (kc_place){KC_AT_END, 0}, 8);
    got->place = kc_u16(kc_out(t, "place", 2 * len, GW_SLOP, kc_place_other(t), 2));
    kc_may_write(t, (const uint8_t *)got->place, 2 * len);
    got->dst = kc_out(t, "dst", len * cell, 0, t->shape.dst, 1);
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    kc_rng *rng = &t->rng;
    const uint32_t dtype = 1 + s->config % 3;
    const unsigned kind = s->config / 3 % QUANTUM_MODES, planes = s->config / 9;
    const gw_traits *traits = gw_traits_of(dtype);
    const size_t cell = traits->size;
    uint8_t *values = kc_plain(0), *map_bytes = kc_plain(1), *labels = kc_plain(3);
    uint8_t *escape = kc_plain(4);
    uint32_t *bits = kc_u32(kc_plain(6));
    uint8_t *plane[GW_PLANES_MAX];
    gw_digits digits = {{NULL}, {0}, kc_plain(4), 0};
    gw_round_rule rule;
    gw_ranker ranker;
    gw_joiner joiner;
    gw_joined joined;

    fill_planes(t, plane, traits, planes);
    kc_values(rng, values, dtype, s->len, s->pattern);
    kc_map_bytes(rng, map_bytes, s->len, kc_below(rng, KC_LEVEL_PATTERNS));
    const uint32_t near = s->len == 0 ? 0 : dtype == GW_FP32 ? gw_load32(values) : gw_load16(values);
    kc_round_rule(rng, &rule, dtype, kc_below(rng, 3), kind != EXPLICIT, kind == CONSTANT, kc_below(rng, 2),
                  near);
    const gw_span span = {values, map_bytes, s->len, 0, 0};
    const uint32_t largest = round_all(bits, &span, &rule);
    if (planes == PLANES_MATCH) {
        make_tables(rng, &ranker, &joiner, largest, &rule);
        memcpy(digits.plane, plane, sizeof plane);
        gw_split_scalar(labels, &digits, &span, &rule, &ranker);
        pack_r1(plane, digits.plane_len);
    } else {
        fill_joiner(&joiner, &rule, kc_below(rng, 192));
        random_labels(rng, labels, s->len, &joiner);
    }
    const size_t needed = gather_escapes(escape, labels, bits, s->len, &joiner);
    const size_t escape_len = kc_below(rng, 2) == 0 ? needed : kc_below(rng, (uint32_t)needed + 1);
    const uint32_t sums = kc_below(rng, 4); /* 0 and 1: none */
    const int flush_mode = sums == 2 && kc_below(rng, 2) == 0;
    if (sums >= 2) {
        kc_values(rng, kc_plain(16), dtype, s->len, kc_below(rng, KC_VALUE_PATTERNS));
        joiner.addend = kc_plain(16);
        joiner.strict = sums == 3;
    }
    static const char *const sums_name[] = {"values", "values", "sums", "strict sums"};
    kc_describe(t, "dtype %u, %s, planes %s, escapes %zu of %zu, cap %u, drop_offset %d, %s%s, %s", dtype,
                kind == EXPLICIT  ? "explicit"
                : kind == DERIVED ? "derived"
                                  : "constant",
                planes == PLANES_MATCH       ? "match"
                : planes == PLANES_OF_DIGITS ? "random digits"
                                             : "random bytes",
                escape_len, needed, joiner.cap, joiner.drop_offset, sums_name[sums],
                flush_mode ? ", flush mode" : "", kc_value_pattern_name(s->pattern));

    join_call expected = {(gw_join_fn *)t->reference,
                          kc_plain(14),
                          &joined,
                          kc_u16(kc_plain(15)),
                          {NULL},
                          {labels, NULL, kind == DERIVED ? map_bytes : NULL, escape, escape_len, s->len},
                          &joiner,
                          0};
    memcpy(expected.plane, plane, sizeof plane);
    gw_joiner guarded;
    join_call got;
    place_call(t, &got, &expected, &guarded, cell);
    got.flush_mode = flush_mode;
    if (!kc_guarded(t, call_join, &expected) || !kc_guarded(t, call_join, &got)) {
        kc_flush_mode(0);
        return;
    }
    kc_check_memory(t);
    compare(t, &expected, &got, planes, cell);
    if (t->is_reference && planes == PLANES_MATCH) {
        check_inverse(t, &got, bits, labels);
        kc_equal(t, KC_MODEL, "plane_len", digits.plane_len, got.joined->plane_len, GW_PLANES_MAX,
                 sizeof(size_t));
    }
}

static void test_join(kc_test *t)
{
    kc_walk(t, 3 * QUANTUM_MODES * PLANE_KINDS, KC_VALUE_PATTERNS, body);
}

static void bench_join(kc_test *t)
{
    kc_rng rng = {1};
    const size_t len = t->kernel->bench_len;
    uint32_t *bits = kc_u32(kc_plain(6));
    uint8_t *plane[GW_PLANES_MAX];
    gw_digits digits = {{NULL}, {0}, kc_plain(4), 0};
    gw_round_rule rule;
    gw_ranker ranker;
    gw_joiner joiner;
    gw_joined joined;
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane[p] = kc_plain(7 + p);
    }
    kc_values(&rng, kc_plain(0), GW_FP32, len, 9);
    kc_map_bytes(&rng, kc_plain(1), len, 4);
    kc_round_rule(&rng, &rule, GW_FP32, GW_GCOMP_NEAREST, 0, 0, 0, gw_load32(kc_plain(0)));
    rule.drop_offset = 4 * 116 - 100;
    const gw_span span = {kc_plain(0), kc_plain(1), len, 0, 0};
    make_tables(&rng, &ranker, &joiner, round_all(bits, &span, &rule), &rule);
    memcpy(digits.plane, plane, sizeof plane);
    gw_split_scalar(kc_plain(3), &digits, &span, &rule, &ranker);
    pack_r1(plane, digits.plane_len);
    join_call call = {(gw_join_fn *)t->fn,
                      kc_plain(14),
                      &joined,
                      kc_u16(kc_plain(15)),
                      {NULL},
                      {kc_plain(3), NULL, NULL, kc_plain(4),
                       gather_escapes(kc_plain(4), kc_plain(3), bits, len, &joiner), len},
                      &joiner,
                      0};
    memcpy(call.plane, plane, sizeof plane);
    kc_bench(t, call_join, &call);
}

const kc_kernel kc_join_family[] = {
    {"join", select_join, test_join, bench_join, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
