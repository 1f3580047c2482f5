/*
 * Split: from values to ranks, digits and escapes, 16 at a time. The reverse of join, in bytes: exponents and
 * drops of rounded values form labels, ranks come from a table in registers, and byte shuffles select each
 * plane's digits of the values that have one.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: fp32, explicit quanta, nearest, 18.1 (54.3), 4.8 and
 * 2.4.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/bitmap_neon.h"
#include "neon/byte_orders_neon.h"
#include "neon/kernels_neon.h"
#include "neon/round_neon.h"

#if defined(GW_NEON)

/* Ranks by label, as far as labels have codes of their own: 32 labels a part from `first` on. */
typedef struct rank_table {
    uint8x16x2_t part[8];
    unsigned part_count;
    uint8x16_t first;
    uint8x16_t escape_rank, zero_rank;
    uint8x16_t has_escape; /* all ones or zero */
} rank_table;

static void fill_ranks(rank_table *table, const gw_ranker *ranker)
{
    unsigned first = 2, end = GW_LABELS;
    while (first < end && ranker->rank[first] == ranker->escape_rank) {
        first++;
    }
    while (end > first && ranker->rank[end - 1] == ranker->escape_rank) {
        end--;
    }
    uint8_t ranks[GW_LABELS]; /* by label - first, modulo 256 */
    GW_MEMCPY(ranks, ranker->rank + first, GW_LABELS - first);
    GW_MEMCPY(ranks + GW_LABELS - first, ranker->rank, first);
    table->part_count = (end - first + 31) / 32;
    for (unsigned p = 0; p < table->part_count; p++) {
        table->part[p].val[0] = vld1q_u8(ranks + 32 * p);
        table->part[p].val[1] = vld1q_u8(ranks + 32 * p + 16);
    }
    table->first = vdupq_n_u8((uint8_t)first);
    table->escape_rank = vdupq_n_u8((uint8_t)ranker->escape_rank);
    table->zero_rank = vdupq_n_u8(ranker->rank[GW_LABEL_ZERO]);
    table->has_escape = vdupq_n_u8(ranker->escape_rank == GW_NO_RANK ? 0 : 255);
}

static inline uint8x16_t ranks_of(uint8x16_t label, const rank_table *table)
{
    const uint8x16_t part_len = vdupq_n_u8(32);
    uint8x16_t rank = table->escape_rank;
    uint8x16_t at = vsubq_u8(label, table->first);
    for (unsigned p = 0; p < table->part_count; p++) {
        rank = vqtbx2q_u8(rank, table->part[p], at);
        at = vsubq_u8(at, part_len);
    }
    return vbslq_u8(vceqq_u8(label, vdupq_n_u8(GW_LABEL_ZERO)), table->zero_rank, rank);
}

/* Labels of rounded values (docs/format.md section 3). */
GW_TEMPLATE uint8x16_t labels_of(const gw_rounded16 *v, uint8x16_t window_start, uint32_t dtype,
                                 uint32_t derived, uint32_t by_quantum)
{
    const uint8x16_t turned = by_quantum ? v->turned : v->exponent;
    const uint8_t special = gw_traits_of(dtype)->exponent_mask;
    uint8x16_t label, has_label;
    if (dtype == GW_FP16) {
        const uint8x16_t magnitude = vorrq_u8(v->byte[0], vandq_u8(v->byte[1], vdupq_n_u8(0x7f)));
        has_label = vandq_u8(vtstq_u8(magnitude, magnitude), vcltq_u8(v->exponent, vdupq_n_u8(special)));
        label = derived ? vaddq_u8(turned, vdupq_n_u8(2))
                        : vsliq_n_u8(v->drop_steps, vaddq_u8(v->exponent, vdupq_n_u8(1)), 2);
    } else if (derived) {
        has_label = vcltq_u8(vsubq_u8(v->exponent, vdupq_n_u8(1)), vdupq_n_u8((uint8_t)(special - 1)));
        label = vaddq_u8(turned, vdupq_n_u8(1));
    } else {
        /* base <= 191: neither exponent 0 nor 255 maps to 1..63. */
        const uint8x16_t x = vsubq_u8(v->exponent, window_start);
        has_label = vcltq_u8(vsubq_u8(x, vdupq_n_u8(1)), vdupq_n_u8(63));
        label = vsliq_n_u8(v->drop_steps, x, 2);
    }
    label = vbslq_u8(has_label, label, vdupq_n_u8(GW_LABEL_ESCAPE));
    return vbicq_u8(label, v->is_zero);
}

/* Appends the digits of those of 16 values that bits 0..15 of `owners` name; `counts` says how many in
 * each half. Eight bytes are stored for each half; the excess is overwritten later or is in the slop. */
static inline uint8_t *put_digits(uint8_t *to, uint8x16_t digits, uint64_t owners, uint64_t counts)
{
    const uint8x8_t low = vld1_u8(gw_orders_part_neon[owners & 255] + 8);
    const uint8x8_t high = vld1_u8(gw_orders_part_neon[owners >> 8 & 255] + 8);
    vst1_u8(to, vqtbl1_u8(digits, low));
    to += counts & 255;
    vst1_u8(to, vqtbl1_u8(vextq_u8(digits, digits, 8), high));
    return to + (counts >> 8 & 255);
}

/* The digits of 16 values, each in a register, and which values have them. */
typedef struct digits16 {
    uint8x16_t d1, d2, d3, d4;
    uint8x16_t m1, m2, m3, m4; /* all ones where a value has the digit */
} digits16;

static inline void put_nested(uint8_t *to[GW_PLANES_MAX], const digits16 *d)
{
    const uint8x8_t owners_bytes = gw_bits_of_4(d->m1, d->m2, d->m3, d->m4);
    const uint64_t owners = vget_lane_u64(vreinterpret_u64_u8(owners_bytes), 0);
    const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(owners_bytes)), 0);
    to[0] = put_digits(to[0], d->d1, owners, counts);
    to[1] = put_digits(to[1], d->d2, owners >> 16, counts >> 16);
    to[2] = put_digits(to[2], d->d3, owners >> 32, counts >> 32);
    to[3] = put_digits(to[3], d->d4, owners >> 48, counts >> 48);
}

/* Cuts 16 rounded values into digits, of which each keeps the first `kept` bits. */
GW_TEMPLATE digits16 cut_digits(const gw_rounded16 *v, uint8x16_t kept, uint32_t dtype)
{
    const uint8_t *w = gw_traits_of(dtype)->digit_width;
    const uint8x16_t b0 = v->byte[0], b1 = v->byte[1];
    digits16 d;
    if (dtype == GW_FP32) {
        const uint8x16_t b2 = v->byte[2], b3 = v->byte[3], six = vdupq_n_u8(63);
        d.d4 = vandq_u8(b0, six);
        d.d3 = vandq_u8(vsliq_n_u8(vshrq_n_u8(b0, 6), b1, 2), six);
        d.d2 = vandq_u8(vsliq_n_u8(vshrq_n_u8(b1, 4), b2, 4), six);
        /* The sign above five bits of mantissa. */
        d.d1 = vsliq_n_u8(vandq_u8(vshrq_n_u8(b2, 2), vdupq_n_u8(31)), vshrq_n_u8(b3, 7), 5);
    } else if (dtype == GW_BF16) {
        const uint8x16_t two = vdupq_n_u8(3);
        d.d4 = vandq_u8(b0, two);
        d.d3 = vandq_u8(vshrq_n_u8(b0, 2), two);
        d.d2 = vandq_u8(vshrq_n_u8(b0, 4), two);
        d.d1 = vsliq_n_u8(vandq_u8(vshrq_n_u8(b0, 6), vdupq_n_u8(1)), vshrq_n_u8(b1, 7), 1);
    } else {
        const uint8x16_t three = vdupq_n_u8(7);
        d.d4 = vandq_u8(b0, three);
        d.d3 = vandq_u8(vshrq_n_u8(b0, 3), three);
        d.d2 = vandq_u8(vsliq_n_u8(vshrq_n_u8(b0, 6), b1, 2), three);
        d.d1 = vsliq_n_u8(vandq_u8(vshrq_n_u8(b1, 1), vdupq_n_u8(1)), vshrq_n_u8(b1, 7), 1);
    }
    d.m1 = vcgeq_u8(kept, vdupq_n_u8(w[0]));
    d.m2 = vcgeq_u8(kept, vdupq_n_u8((uint8_t)(w[0] + w[1])));
    d.m3 = vcgeq_u8(kept, vdupq_n_u8((uint8_t)(w[0] + w[1] + w[2])));
    d.m4 = vcgeq_u8(kept, vdupq_n_u8((uint8_t)(w[0] + w[1] + w[2] + w[3])));
    return d;
}

/* Derived: the bits left after the nested digits. */
GW_TEMPLATE void put_rest(uint8_t *to[GW_PLANES_MAX], const digits16 *d, uint8x16_t kept, uint32_t dtype)
{
    const uint8_t *w = gw_traits_of(dtype)->digit_width;
    /* Masks are minus one, so adding widths where they are set subtracts; planes 2..4 are equally wide. */
    uint8x16_t rest = vmlaq_u8(kept, d->m1, vdupq_n_u8(w[0]));
    rest = vmlaq_u8(rest, vaddq_u8(vaddq_u8(d->m2, d->m3), d->m4), vdupq_n_u8(w[1]));
    /* The digit that they are the top of; fp16's first is brought to the width of the others. */
    const uint8x16_t first = dtype == GW_FP16 ? vshlq_n_u8(d->d1, 1) : d->d1;
    const uint8x16_t next = vbslq_u8(d->m3, d->d4, vbslq_u8(d->m2, d->d3, vbslq_u8(d->m1, d->d2, first)));
    const uint8x16_t has4 = vtstq_u8(rest, vdupq_n_u8(4)), has2 = vtstq_u8(rest, vdupq_n_u8(2));
    const uint8x16_t has1 = vtstq_u8(rest, vdupq_n_u8(1));
    const uint8x8_t owners_bytes = gw_bits_of_4(has4, has2, has1, has1);
    const uint64_t owners = vget_lane_u64(vreinterpret_u64_u8(owners_bytes), 0);
    const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(owners_bytes)), 0);
    /* R2 starts below R4, R1 below both: how far down that is in a digit. */
    const int8x16_t r2_down =
        vsubq_s8(vreinterpretq_s8_u8(vandq_u8(rest, vdupq_n_u8(4))), vdupq_n_s8((int8_t)(w[1] - 2)));
    const int8x16_t r1_down =
        vsubq_s8(vreinterpretq_s8_u8(vandq_u8(rest, vdupq_n_u8(6))), vdupq_n_s8((int8_t)(w[1] - 1)));
    if (dtype == GW_FP32) {
        to[4] = put_digits(to[4], vshrq_n_u8(next, 2), owners, counts);
    }
    if (dtype != GW_BF16) {
        const uint8x16_t r2 = vandq_u8(vshlq_u8(next, r2_down), vdupq_n_u8(3));
        to[5] = put_digits(to[5], r2, owners >> 16, counts >> 16);
    }
    const uint8x16_t r1 = vandq_u8(vshlq_u8(next, r1_down), vdupq_n_u8(1));
    to[6] = put_digits(to[6], r1, owners >> 32, counts >> 32);
}

/* ---- the usual case: fp32, explicit quanta from a map, nearest, not strict ----------------------------- */

/* Everything in bytes, rounding too: whole digits are dropped, so that half an ulp and the carries are
 * additions to digits. Constants of a call. */
enum { USUAL_DROP_OFFSET_MAX = 4 * 256 + 3 }; /* `above` is a byte */

typedef struct digit_rounder {
    uint8x16_t fraction;     /* drop_offset modulo 4, plus 4 */
    uint8x16_t above, below; /* drop_offset / 4 - 1 if that is positive, or minus that */
    uint8x16_t less_than[3]; /* drop_steps n + 1 needs more octaves of room than this */
} digit_rounder;

static digit_rounder digit_rounder_of(const gw_round_rule *rule)
{
    const int32_t octaves =
        rule->drop_offset >= 0 ? rule->drop_offset / 4 : -((3 - rule->drop_offset) / 4); /* floor */
    const int32_t offset = octaves - 1;
    digit_rounder r;
    r.fraction = vdupq_n_u8((uint8_t)(rule->drop_offset - 4 * octaves + 4));
    r.above = vdupq_n_u8((uint8_t)(offset < 0 ? 0 : offset));
    r.below = vdupq_n_u8((uint8_t)(offset >= 0 ? 0 : offset < -255 ? 255 : -offset));
    for (uint32_t n = 0; n < 3; n++) {
        r.less_than[n] = vdupq_n_u8((uint8_t)(rule->cap >= 6 * (n + 1) ? 6 * (n + 1) - 1 : 255));
    }
    return r;
}

/* Rounds 16 values and cuts them. v gets the exponents, the drop steps and which values are zero; its bytes
 * are not set. The masks of d are set as if all values had digits. */
static inline void round_digits(gw_rounded16 *v, digits16 *d, const uint8_t *values, uint8x16_t map_bytes,
                                const digit_rounder *r)
{
    const uint8x16_t six = vdupq_n_u8(63), one = vdupq_n_u8(1);
    const uint16x8_t w0 = gw_load_u16x8(values), w1 = gw_load_u16x8(values + 16);
    const uint16x8_t w2 = gw_load_u16x8(values + 32), w3 = gw_load_u16x8(values + 48);
    const uint8x16_t even0 = vreinterpretq_u8_u16(vuzp1q_u16(w0, w1)),
                     even1 = vreinterpretq_u8_u16(vuzp1q_u16(w2, w3));
    const uint8x16_t upper0 = vreinterpretq_u8_u16(vuzp2q_u16(w0, w1)),
                     upper1 = vreinterpretq_u8_u16(vuzp2q_u16(w2, w3));
    const uint8x16_t b0 = vuzp1q_u8(even0, even1), b1 = vuzp2q_u8(even0, even1);
    const uint8x16_t b2 = vuzp1q_u8(upper0, upper1), b3 = vuzp2q_u8(upper0, upper1);
    const uint8x16_t exponent = vorrq_u8(vaddq_u8(b3, b3), vshrq_n_u8(b2, 7)), sign = vshrq_n_u8(b3, 7);
    const uint8x16_t d4 = vandq_u8(b0, six), d3 = vandq_u8(vsliq_n_u8(vshrq_n_u8(b0, 6), b1, 2), six);
    const uint8x16_t d2 = vandq_u8(vsliq_n_u8(vshrq_n_u8(b1, 4), b2, 4), six);
    const uint8x16_t d1 = vandq_u8(vshrq_n_u8(b2, 2), vdupq_n_u8(31)); /* without the sign */

    /* Room in octaves: floor((K + drop_offset - q) / 4) - e, q the upper two bits of the mantissa. The
     * halving addition keeps its carry. Differences saturate at 0, which is no room, and at 255, which is
     * enough. */
    const uint8x16_t q = vshrq_n_u8(d1, 3);
    const uint8x16_t octaves = vshrq_n_u8(vhaddq_u8(map_bytes, vsubq_u8(r->fraction, q)), 1);
    const uint8x16_t over = vqsubq_u8(octaves, vqaddq_u8(vqsubq_u8(exponent, r->above), r->below));
    uint8x16_t room = vqaddq_u8(over, vqsubq_u8(r->above, exponent));
    /* No map byte, infinity, NaN: nothing. */
    const uint8x16_t none = vorrq_u8(vceqq_u8(map_bytes, vdupq_n_u8(0)), vceqq_u8(exponent, vdupq_n_u8(255)));
    room = vbicq_u8(room, none);
    const uint8x16_t g1 = vcgtq_u8(room, r->less_than[0]), g2 = vcgtq_u8(room, r->less_than[1]);
    const uint8x16_t g3 = vcgtq_u8(room, r->less_than[2]);

    /* Half an ulp less one is 31 in the highest dropped digit and 63 below; the last kept bit is added at
     * the lowest position. */
    const uint8x16_t last = vbslq_u8(g2, vbslq_u8(g3, d1, d2), d3);
    const uint8x16_t half = vdupq_n_u8(31), more = vdupq_n_u8(32);
    const uint8x16_t add4 = vorrq_u8(vandq_u8(g1, half), vandq_u8(g2, more));
    const uint8x16_t add3 = vorrq_u8(vandq_u8(g2, half), vandq_u8(g3, more));
    const uint8x16_t s4 = vaddq_u8(vaddq_u8(d4, add4), vandq_u8(vandq_u8(last, one), g1));
    const uint8x16_t s3 = vsraq_n_u8(vaddq_u8(d3, add3), s4, 6);
    const uint8x16_t s2 = vsraq_n_u8(vaddq_u8(d2, vandq_u8(g3, half)), s3, 6);
    const uint8x16_t s1 = vsraq_n_u8(d1, s2, 6);
    const uint8x16_t carried = vsraq_n_u8(exponent, s1, 5);
    /* A carry out of the largest finite exponent truncates instead; infinity and NaN are unchanged. */
    const uint8x16_t stays = vceqq_u8(carried, vdupq_n_u8(255));

    v->exponent = vbslq_u8(stays, exponent, carried);
    v->is_zero = vceqq_u8(exponent, vdupq_n_u8(0));
    v->drop_steps = vsubq_u8(vdupq_n_u8(0), vaddq_u8(vaddq_u8(g1, g2), g3));
    d->d4 = d4; /* kept only where nothing was added */
    d->d3 = vandq_u8(vbslq_u8(stays, d3, s3), six);
    d->d2 = vandq_u8(vbslq_u8(stays, d2, s2), six);
    d->d1 = vsliq_n_u8(vbslq_u8(stays, d1, s1), sign, 5);
    d->m2 = vmvnq_u8(g3);
    d->m3 = vmvnq_u8(g2);
    d->m4 = vmvnq_u8(g1);
}

/* Appends the escapes among 16 values; they are rare. */
GW_TEMPLATE void put_escapes(gw_digits *digits, const gw_rounded16 *v, uint8x16_t is_escape, uint32_t dtype)
{
    const size_t size = gw_traits_of(dtype)->size;
    uint8_t values[64], which[16];
    gw_store_rounded16(values, v, dtype);
    vst1q_u8(which, is_escape);
    for (unsigned j = 0; j < 16; j++) {
        if (which[j] != 0) {
            GW_MEMCPY(digits->escape + size * digits->escape_len, values + size * j, size);
            digits->escape_len++;
        }
    }
}

static inline int is_any(uint8x16_t mask)
{
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(mask), 4)), 0) != 0;
}

/* `is_usual`: the case above. `by_quantum` as in round_neon.h. */
GW_TEMPLATE uint32_t split_span(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                const gw_round_rule *rule, const gw_ranker *ranker, uint32_t dtype,
                                uint32_t derived, uint32_t by_quantum, int is_usual)
{
    static const uint8_t place[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const gw_traits *t = gw_traits_of(dtype);
    gw_random_words random;
    const gw_rounder r = gw_rounder_of(rule, &random);
    const digit_rounder usual = digit_rounder_of(rule);
    const uint8x16_t window_start = vdupq_n_u8((uint8_t)ranker->window_start);
    const uint8x16_t whole = vdupq_n_u8((uint8_t)(t->mantissa_bits + 1)), step = vdupq_n_u8(t->explicit_step);
    uint8x16_t zero = vdupq_n_u8(255);
    uint8_t *to[GW_PLANES_MAX];
    rank_table table;
    fill_ranks(&table, ranker);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        to[p] = derived || p < GW_DIGIT_PLANES ? digits->plane[p] + digits->plane_len[p] : NULL;
    }
    for (size_t i = 0; i < span->len; i += 16) {
        const size_t count = span->len - i < 16 ? span->len - i : 16;
        const int digits_first = is_usual && count == 16;
        const uint8x16_t is_there = vcltq_u8(vld1q_u8(place), vdupq_n_u8((uint8_t)count));
        gw_rounded16 v;
        digits16 d;
        if (digits_first) {
            round_digits(&v, &d, (const uint8_t *)span->values + 4 * i, vld1q_u8(span->map_bytes + i),
                         &usual);
        } else {
            gw_round16_of_span(&v, span, i, count, &r, dtype, by_quantum);
        }
        const uint8x16_t label = labels_of(&v, window_start, dtype, derived, by_quantum);
        const uint8x16_t rank = ranks_of(label, &table);
        const uint8x16_t is_escape =
            vandq_u8(vandq_u8(vceqq_u8(rank, table.escape_rank), table.has_escape), is_there);
        const uint8x16_t has_digits =
            vbicq_u8(vandq_u8(vcgtq_u8(label, vdupq_n_u8(GW_LABEL_ESCAPE)), is_there), is_escape);
        vst1q_u8(ranks + i, rank);
        if (digits_first) {
            d.m1 = has_digits;
            d.m2 = vandq_u8(d.m2, has_digits);
            d.m3 = vandq_u8(d.m3, has_digits);
            d.m4 = vandq_u8(d.m4, has_digits);
            put_nested(to, &d);
        } else {
            const uint8x16_t kept =
                vandq_u8(derived ? vsubq_u8(whole, v.drop) : vmlsq_u8(whole, v.drop_steps, step), has_digits);
            d = cut_digits(&v, kept, dtype);
            put_nested(to, &d);
            if (derived) {
                put_rest(to, &d, kept, dtype);
            }
        }
        zero = vandq_u8(zero, v.is_zero);
        if (is_any(is_escape)) {
            if (digits_first) {
                gw_round16_of_span(&v, span, i, count, &r, dtype, by_quantum); /* for the bytes */
            }
            put_escapes(digits, &v, is_escape, dtype);
        }
    }
    for (unsigned p = 0; p < (derived ? (unsigned)GW_PLANES_MAX : (unsigned)GW_DIGIT_PLANES); p++) {
        digits->plane_len[p] = (size_t)(to[p] - digits->plane[p]);
    }
    return vminvq_u8(zero) == 0;
}

#define SPLIT_CASE(dtype, derived)                                                                           \
    case (dtype)*2 + (derived):                                                                              \
        return split_span(ranks, digits, span, rule, ranker, (dtype), (derived), 0, 0)

#define SPLIT_CASE_BY_QUANTUM(dtype)                                                                         \
    case (dtype):                                                                                            \
        return split_span(ranks, digits, span, rule, ranker, (dtype), 1, 1, 0)

static GW_NOINLINE uint32_t split_by_quantum(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                             const gw_round_rule *rule, const gw_ranker *ranker)
{
    switch (rule->dtype) {
        SPLIT_CASE_BY_QUANTUM(GW_FP32);
        SPLIT_CASE_BY_QUANTUM(GW_BF16);
        SPLIT_CASE_BY_QUANTUM(GW_FP16);
    default:
        return 0;
    }
}

uint32_t gw_split_neon(uint8_t *ranks, gw_digits *digits, const gw_span *span, const gw_round_rule *rule,
                       const gw_ranker *ranker)
{
    if (rule->dtype == GW_FP32 && rule->rounding == GW_GCOMP_NEAREST &&
        rule->drop_offset <= USUAL_DROP_OFFSET_MAX && (rule->derived | rule->constant | rule->strict) == 0) {
        return split_span(ranks, digits, span, rule, ranker, GW_FP32, 0, 0, 1);
    }
    if (gw_is_by_quantum(rule)) {
        return split_by_quantum(ranks, digits, span, rule, ranker);
    }
    switch (rule->dtype * 2 + rule->derived) {
        SPLIT_CASE(GW_FP32, 0);
        SPLIT_CASE(GW_FP32, 1);
        SPLIT_CASE(GW_BF16, 0);
        SPLIT_CASE(GW_BF16, 1);
        SPLIT_CASE(GW_FP16, 0);
        SPLIT_CASE(GW_FP16, 1);
    default:
        return 0;
    }
}

#else
typedef int gw_split_neon_not_built; /* a translation unit must not be empty */
#endif
