/*
 * Split: codebooks with any set of labels, planes and escapes that are appended to. The model rounds by
 * kc_model_round() and follows docs/format.md section 3 bit by bit.
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
    gw_digits *digits;
    const gw_span *span;
    const gw_round_rule *rule;
    const gw_ranker *ranker;
    uint32_t any;
} split_call;

static void call_split(void *context)
{
    split_call *c = (split_call *)context;
    c->any = c->fn(c->ranks, c->digits, c->span, c->rule, c->ranker);
}

static void call_split_anew(void *context)
{
    split_call *c = (split_call *)context;
    memset(c->digits->plane_len, 0, sizeof c->digits->plane_len);
    c->digits->escape_len = 0;
    call_split(c);
}

/* Label of a rounded value, from its bits: docs/format.md section 3. */
static uint8_t model_label(const gw_round_rule *rule, uint32_t window_start, const kc_rounded *v)
{
    const gw_traits *traits = gw_traits_of(rule->dtype);
    const uint32_t e = v->bits >> traits->mantissa_bits & traits->exponent_mask;
    const uint32_t drop_steps = (traits->mantissa_bits + 1u - v->keep) / traits->explicit_step;
    if (v->bits == 0) {
        return GW_LABEL_ZERO;
    }
    if (e == traits->exponent_mask || (rule->dtype != GW_FP16 && e == 0) ||
        (rule->dtype == GW_FP16 && v->bits == 0x8000)) {
        return GW_LABEL_ESCAPE;
    }
    if (rule->derived) { /* the exponent of the bin may be a relative one */
        return (uint8_t)(v->bin / 4 + (rule->dtype == GW_FP16 ? 2 : 1));
    }
    const int32_t x = rule->dtype == GW_FP16 ? (int32_t)e + 1 : (int32_t)e - (int32_t)window_start;
    return (uint8_t)(x >= 1 && x <= 63 ? 4 * (uint32_t)x + drop_steps : GW_LABEL_ESCAPE);
}

/* Codes for random labels; sometimes for all that occur, and then without an escape. Or ranks that are the
 * labels themselves, as for an exact codebook, which is made afterwards. */
static void random_ranker(kc_rng *rng, gw_ranker *ranker, const gw_span *span, const gw_round_rule *rule)
{
    uint8_t occurs[GW_LABELS] = {0};
    uint32_t rank = 0;
    memset(ranker, 0, sizeof *ranker);
    if (!rule->derived && rule->dtype != GW_FP16) {
        const uint32_t e =
            span->len == 0 ? 100 : kc_model_round(rule, span, kc_below(rng, (uint32_t)span->len)).bin / 4u;
        const uint32_t down = kc_below(rng, 66);
        ranker->window_start =
            kc_below(rng, 8) == 0 ? kc_below(rng, 192) : gw_min_u32(e > down ? e - down : 0, 191);
    }
    if (kc_below(rng, 8) == 0) {
        for (uint32_t label = 0; label < GW_LABELS; label++) {
            ranker->rank[label] = (uint8_t)label;
        }
        ranker->escape_rank = GW_LABEL_ESCAPE;
        return;
    }
    for (size_t i = 0; i < span->len; i++) {
        const kc_rounded v = kc_model_round(rule, span, i);
        occurs[model_label(rule, ranker->window_start, &v)] = 1;
    }
    const int is_full = kc_below(rng, 3) == 0;
    const uint32_t missing = kc_below(rng, 4);
    const uint32_t first = kc_below(rng, 256); /* ranks in any order */
    ranker->escape_rank = GW_NO_RANK;
    for (uint32_t i = 0; i < GW_LABELS; i++) {
        const uint32_t label = (i + first) % GW_LABELS;
        const int has_code = is_full ? occurs[label] : label <= 1 || kc_below(rng, 4) >= missing;
        if (has_code) {
            if (label == GW_LABEL_ESCAPE) {
                ranker->escape_rank = rank;
            }
            ranker->rank[label] = (uint8_t)rank++;
        } else {
            occurs[label] = 2;
        }
    }
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        if (occurs[label] == 2) {
            ranker->rank[label] = (uint8_t)gw_min_u32(ranker->escape_rank, 255);
        }
    }
}

static void append(uint8_t *escape, size_t index, uint32_t dtype, uint32_t bits)
{
    if (dtype == GW_FP32) {
        gw_store32(escape + 4 * index, bits);
    } else {
        gw_store16(escape + 2 * index, (uint16_t)bits);
    }
}

static void check_model(kc_test *t, const split_call *c, const gw_digits *before)
{
    const gw_traits *traits = gw_traits_of(c->rule->dtype);
    const unsigned m = traits->mantissa_bits;
    uint8_t *ranks = kc_plain(11), *escape = kc_plain(19);
    gw_digits own = {{NULL}, {0}, NULL, 0};
    uint32_t any = 0;
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        own.plane[p] = kc_plain(12 + p);
    }
    for (size_t i = 0; i < c->span->len; i++) {
        const kc_rounded v = kc_model_round(c->rule, c->span, i);
        const uint32_t sign = v.bits >> (8 * traits->size - 1);
        const uint32_t field = sign << m | (v.bits & ((1u << m) - 1));
        const uint8_t label = model_label(c->rule, c->ranker->window_start, &v);
        unsigned kept = v.keep, left = m + 1; /* bits of the field to be kept, not yet used */
        any |= v.bits != 0;
        ranks[i] = c->ranker->rank[label];
        if (ranks[i] == c->ranker->escape_rank) {
            append(escape, own.escape_len++, c->rule->dtype, v.bits);
            kept = 0;
        }
        kept = label == GW_LABEL_ZERO ? 0 : kept;
        for (unsigned p = 0; p < 4 && kept >= traits->digit_width[p]; p++) {
            const unsigned w = traits->digit_width[p];
            left -= w;
            kept -= w;
            own.plane[p][own.plane_len[p]++] = (uint8_t)(field >> left & ((1u << w) - 1));
        }
        for (unsigned p = 4, w = 4; c->rule->derived && w > 0; p++, w /= 2) {
            if ((kept & w) != 0) {
                left -= w;
                own.plane[p][own.plane_len[p]++] = (uint8_t)(field >> left & ((1u << w) - 1));
            }
        }
    }
    kc_equal_number(t, KC_MODEL, "result", any, c->any);
    kc_equal(t, KC_MODEL, "ranks", ranks, c->ranks, c->span->len, 1);
    kc_equal_number(t, KC_MODEL, "escape_len", before->escape_len + own.escape_len, c->digits->escape_len);
    kc_equal(t, KC_MODEL, "escape", escape, c->digits->escape + traits->size * before->escape_len,
             own.escape_len, traits->size);
    for (unsigned p = 0; p < GW_PLANES_MAX && !t->case_failed; p++) {
        kc_equal_number(t, KC_MODEL, "plane_len", before->plane_len[p] + own.plane_len[p],
                        c->digits->plane_len[p]);
        kc_equal(t, KC_MODEL, plane_name[p], own.plane[p], c->digits->plane[p] + before->plane_len[p],
                 own.plane_len[p], 1);
    }
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const uint32_t dtype = 1 + s->config % 3, derived = s->config / 3;
    const size_t element_size = gw_traits_of(dtype)->size;
    gw_round_rule rule;
    gw_ranker ranker;
    gw_digits before, wanted, digits;
    const gw_span span = kc_span(&t->rng, &rule, s->len, dtype, derived, s->pattern);
    random_ranker(&t->rng, &ranker, &span, &rule);
    kc_describe(t,
                "dtype %u, rounding %u, derived %u, constant %u, strict %u, cap %u, drop_offset %d, element "
                "%llu, base %u, "
                "escape %u, %s",
                dtype, rule.rounding, derived, rule.constant, rule.strict, rule.cap, rule.drop_offset,
                (unsigned long long)span.element, ranker.window_start, ranker.escape_rank,
                kc_value_pattern_name(s->pattern));

    /* There may be digits already. */
    memset(&before, 0, sizeof before);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        before.plane_len[p] = kc_below(&t->rng, 2) * kc_below(&t->rng, 100);
    }
    before.escape_len = kc_below(&t->rng, 2) * kc_below(&t->rng, 20);
    wanted = digits = before;
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        wanted.plane[p] = kc_plain(4 + p) - before.plane_len[p];
    }
    wanted.escape = kc_plain(3) - element_size * before.escape_len;

    split_call expected = {(gw_split_fn *)t->reference, kc_plain(2), &wanted, &span, &rule, &ranker, 0};
    split_call got = expected;
    const gw_span guarded = kc_span_in(t, &span, &rule, s->src);
    got.fn = (gw_split_fn *)t->fn;
    got.span = &guarded;
    got.ranker = (const gw_ranker *)(const void *)kc_in(t, "ranker", &ranker, sizeof ranker, GW_SLOP,
                                                        (kc_place){KC_AT_END, 0}, 8);
    got.ranks = kc_out(t, "ranks", s->len, GW_SLOP, s->dst, 1);
    got.digits = &digits;
    if (!kc_guarded(t, call_split, &expected)) {
        return;
    }
    uint8_t *part[GW_PLANES_MAX];
    size_t part_len[GW_PLANES_MAX];
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        part_len[p] = wanted.plane_len[p] - before.plane_len[p];
        part[p] = kc_out(t, plane_name[p], s->len, GW_SLOP, kc_place_other(t), 1);
        digits.plane[p] = part[p] - before.plane_len[p];
    }
    const size_t escape_len = wanted.escape_len - before.escape_len;
    uint8_t *escape =
        kc_out(t, "escape", element_size * s->len, GW_SLOP, kc_place_other(t), (unsigned)element_size);
    digits.escape = escape - element_size * before.escape_len;
    if (!kc_guarded(t, call_split, &got)) {
        return;
    }
    kc_equal_number(t, KC_OUTPUT, "result", expected.any, got.any);
    kc_equal(t, KC_OUTPUT, "ranks", expected.ranks, got.ranks, s->len, 1);
    if (kc_equal_number(t, KC_OUTPUT, "escape_len", wanted.escape_len, digits.escape_len)) {
        kc_may_write(t, escape, element_size * escape_len + GW_SLOP);
        kc_equal(t, KC_OUTPUT, "escape", kc_plain(3), escape, escape_len, element_size);
    }
    const int lens_agree = kc_equal(t, KC_OUTPUT, "plane_len", wanted.plane_len, digits.plane_len,
                                    GW_PLANES_MAX, sizeof digits.plane_len[0]);
    for (unsigned p = 0; p < GW_PLANES_MAX && lens_agree; p++) {
        kc_may_write(t, part[p], p >= GW_DIGIT_PLANES && !derived ? 0 : part_len[p] + GW_SLOP);
        kc_equal(t, KC_OUTPUT, plane_name[p], kc_plain(4 + p), part[p], part_len[p], 1);
    }
    kc_check_memory(t);
    if (t->is_reference) {
        check_model(t, &got, &before);
    }
}

static void test_split(kc_test *t)
{
    kc_walk(t, 6, KC_VALUE_PATTERNS, body);
}

static void bench_split(kc_test *t)
{
    gw_round_rule rule;
    gw_ranker ranker;
    const gw_span span = kc_bench_span(&rule, t->kernel->bench_len);
    memset(&ranker, 0, sizeof ranker);
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        ranker.rank[label] = (uint8_t)(label ^ 85);
    }
    ranker.window_start = 60;
    ranker.escape_rank = ranker.rank[GW_LABEL_ESCAPE];
    gw_digits digits = {{NULL}, {0}, kc_plain(3), 0};
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        digits.plane[p] = kc_plain(4 + p);
    }
    split_call call = {(gw_split_fn *)t->fn, kc_plain(2), &digits, &span, &rule, &ranker, 0};
    kc_bench(t, call_split_anew, &call);
}

const kc_kernel kc_split_family[] = {
    {"split", select_split, test_split, bench_split, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
