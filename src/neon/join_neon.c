/*
 * Join: labels, digits and escapes to values, 16 at a time.
 *
 * Everything happens in bytes: a label gives the exponent byte and the number of kept bits, four comparisons
 * of these show which values have a digit in which plane, a byte shuffle moves the digits of a plane to their
 * values, and shifts with insertion build each byte of the results. Only the store interleaves the bytes of a
 * value.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: explicit fp32 7.0 (32.0), 1.8 and 0.88.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/codebook.h"
#include "gcomp/join_sum.h"
#include "neon/bitmap_neon.h"
#include "neon/byte_orders_neon.h"
#include "neon/drops_neon.h"
#include "neon/kernels_neon.h"

#if defined(GW_NEON)

/* Groups of 16 whose owners are found before their values are assembled: the dependency chain from a label
 * over masks and bits to a shuffle is longer than what out-of-order execution overlaps. */
enum { GROUPS = 16 };

/* Position of the next digit of each plane. */
typedef struct places {
    const uint8_t *plane[GW_PLANE_R1];
    const uint8_t *r1;
    size_t r1_bit;
} places;

/* Constants of a call. */
typedef struct settings {
    uint8x16_t window_start; /* explicit: added to a label's upper six bits */
    gw_dropper dropper;      /* derived */
    int is_constant;
} settings;

/* Which of 16 values have a digit in a plane, for four planes: bits and counts of values 0..7 and 8..15. */
typedef struct owners {
    uint8_t bits[8];
    uint8_t count[8];
} owners;

/* Results of the first pass for 16 values. */
typedef struct group {
    owners nested; /* planes 1..4 */
    owners rest;   /* derived: R4, R2, R1 */
    uint8_t kept[16];
    uint8_t left[16];     /* derived: kept bits after the nested digits */
    uint8_t exponent[16]; /* relative: the exponent fields of ordinary labels */
} group;

static inline void store_owners(owners *to, uint8x16_t m0, uint8x16_t m1, uint8x16_t m2, uint8x16_t m3)
{
    const uint8x8_t bits = gw_bits_of_4(m0, m1, m2, m3);
    vst1_u8(to->bits, bits);
    vst1_u8(to->count, vcnt_u8(bits));
}

/* The digits that the owners of a plane have. */
static inline uint8x16_t take_digits(const uint8_t **plane, const owners *who, unsigned p)
{
    const uint8_t *const low = *plane, *const high = low + who->count[2 * p];
    const uint8x8_t first = vqtbl1_u8(vld1q_u8(low), vld1_u8(gw_orders_spread_neon[who->bits[2 * p]]));
    const uint8x8_t second = vqtbl1_u8(vld1q_u8(high), vld1_u8(gw_orders_spread_neon[who->bits[2 * p + 1]]));
    *plane = high + who->count[2 * p + 1];
    return vcombine_u8(first, second);
}

/* The same from R1, which is still a bit string: 1 or 0. */
static inline uint8x16_t take_bits(places *at, const owners *who, unsigned p)
{
    const uint32_t word = gw_load32(at->r1 + at->r1_bit / 8) >> at->r1_bit % 8;
    const uint8x16_t bits = vandq_u8(gw_bytes_of_16(word), vdupq_n_u8(1));
    const uint8x8_t low = vld1_u8(gw_orders_spread_neon[who->bits[2 * p]]);
    const uint8x8_t high =
        vadd_u8(vld1_u8(gw_orders_spread_neon[who->bits[2 * p + 1]]), vdup_n_u8(who->count[2 * p]));
    at->r1_bit += (size_t)who->count[2 * p] + who->count[2 * p + 1];
    return vqtbl1q_u8(bits, vcombine_u8(low, high));
}

/* All ones where a value has digits, and the exponent fields there. */
GW_TEMPLATE uint8x16_t ordinary_of(uint8x16_t labels, uint32_t derived)
{
    return vcgtq_u8(labels, vdupq_n_u8(derived ? 1 : 3));
}

GW_TEMPLATE uint8x16_t exponents_of(uint8x16_t labels, const settings *s, uint32_t dtype, uint32_t derived)
{
    if (derived) {
        return vsubq_u8(labels, vdupq_n_u8(dtype == GW_FP16 ? 2 : 1));
    }
    return dtype == GW_FP16 ? vsubq_u8(vshrq_n_u8(labels, 2), vdupq_n_u8(1))
                            : vaddq_u8(vshrq_n_u8(labels, 2), s->window_start);
}

/* All ones where `kept` bits are enough for the digit of a nested plane. */
typedef struct nested_masks {
    uint8x16_t m1, m2, m3, m4;
} nested_masks;

GW_TEMPLATE nested_masks nested_of(uint8x16_t kept, const gw_traits *t)
{
    const uint8_t *w = t->digit_width;
    nested_masks n;
    n.m1 = vcgeq_u8(kept, vdupq_n_u8(w[0]));
    n.m2 = vcgeq_u8(kept, vdupq_n_u8((uint8_t)(w[0] + w[1])));
    n.m3 = vcgeq_u8(kept, vdupq_n_u8((uint8_t)(w[0] + w[1] + w[2])));
    n.m4 = vcgeq_u8(kept, vdupq_n_u8((uint8_t)(w[0] + w[1] + w[2] + w[3])));
    return n;
}

/* First pass: from labels and map bytes to owners. */
GW_TEMPLATE void find_owners(group *g, uint8x16_t labels, uint8x16_t map_bytes, const settings *s,
                             uint32_t dtype, uint32_t derived, uint32_t relative)
{
    const gw_traits *t = gw_traits_of(dtype);
    const uint8x16_t ordinary = ordinary_of(labels, derived);
    const uint8x16_t whole = vdupq_n_u8((uint8_t)(t->mantissa_bits + 1));
    uint8x16_t kept;
    if (derived) {
        uint8x16_t exponent = exponents_of(labels, s, dtype, 1);
        if (relative) {
            exponent = gw_turned_back(exponent, gw_turns_of(map_bytes, &s->dropper, dtype), dtype);
            vst1q_u8(g->exponent, exponent);
        }
        kept = vsubq_u8(whole, s->is_constant ? s->dropper.cap
                                              : gw_drops_of(exponent, map_bytes, &s->dropper, dtype));
    } else {
        kept = vmlsq_u8(whole, vandq_u8(labels, vdupq_n_u8(3)), vdupq_n_u8(t->explicit_step));
    }
    kept = vandq_u8(kept, ordinary);
    const nested_masks n = nested_of(kept, t);
    store_owners(&g->nested, n.m1, n.m2, n.m3, n.m4);
    if (derived) {
        /* Masks are minus one, so adding widths where set subtracts; planes 2..4 are equally wide. */
        uint8x16_t left = vmlaq_u8(kept, n.m1, vdupq_n_u8(t->digit_width[0]));
        left = vmlaq_u8(left, vaddq_u8(vaddq_u8(n.m2, n.m3), n.m4), vdupq_n_u8(t->digit_width[1]));
        const uint8x16_t has1 = vtstq_u8(left, vdupq_n_u8(1));
        store_owners(&g->rest, vtstq_u8(left, vdupq_n_u8(4)), vtstq_u8(left, vdupq_n_u8(2)), has1, has1);
        vst1q_u8(g->kept, kept);
        vst1q_u8(g->left, left);
    }
}

/* The four digits of 16 values, each in a register. */
typedef struct four_digits {
    uint8x16_t d1, d2, d3, d4;
} four_digits;

GW_TEMPLATE four_digits digits_of(places *at, const group *g, uint32_t dtype, uint32_t derived)
{
    four_digits d;
    d.d1 = take_digits(&at->plane[0], &g->nested, 0);
    d.d2 = take_digits(&at->plane[1], &g->nested, 1);
    d.d3 = take_digits(&at->plane[2], &g->nested, 2);
    d.d4 = take_digits(&at->plane[3], &g->nested, 3);
    if (derived) {
        const uint8x16_t left = vld1q_u8(g->left);
        const nested_masks n = nested_of(vld1q_u8(g->kept), gw_traits_of(dtype));
        uint8x16_t more = take_bits(at, &g->rest, 2);
        uint8x16_t more_first; /* in the first digit, which fp16 has narrower than the others */
        if (dtype == GW_FP32) {
            /* 6 bits: R4 at the top, R2 and R1 each below what is present. */
            const uint8x16_t r4 = take_digits(&at->plane[4], &g->rest, 0);
            const uint8x16_t r2 = take_digits(&at->plane[5], &g->rest, 1);
            const uint8x16_t r2_up = vsubq_u8(vdupq_n_u8(4), vandq_u8(left, vdupq_n_u8(4)));
            const uint8x16_t r1_up = vsubq_u8(vdupq_n_u8(5), vandq_u8(left, vdupq_n_u8(6)));
            more = vshlq_u8(more, vreinterpretq_s8_u8(r1_up));
            more = vorrq_u8(more, vshlq_u8(r2, vreinterpretq_s8_u8(r2_up)));
            more = vorrq_u8(more, vshlq_n_u8(r4, 2));
            more_first = more;
        } else if (dtype == GW_BF16) {
            more = vshlq_n_u8(more, 1);
            more_first = more;
        } else {
            const uint8x16_t r2 = take_digits(&at->plane[5], &g->rest, 1);
            const uint8x16_t r1_up = vsubq_u8(vdupq_n_u8(2), vandq_u8(left, vdupq_n_u8(2)));
            more_first = vshlq_n_u8(more, 1);
            more = vorrq_u8(vshlq_u8(more, vreinterpretq_s8_u8(r1_up)), vshlq_n_u8(r2, 1));
        }
        d.d1 = vorrq_u8(d.d1, vbicq_u8(more_first, n.m1));
        d.d2 = vorrq_u8(d.d2, vandq_u8(more, vbicq_u8(n.m1, n.m2)));
        d.d3 = vorrq_u8(d.d3, vandq_u8(more, vbicq_u8(n.m2, n.m3)));
        d.d4 = vorrq_u8(d.d4, vandq_u8(more, vbicq_u8(n.m3, n.m4)));
    }
    return d;
}

static inline void store_pairs(uint8_t *dst, uint8x16_t low, uint8x16_t high)
{
    vst1q_u8(dst, vzip1q_u8(low, high));
    vst1q_u8(dst + 16, vzip2q_u8(low, high));
}

static inline void store_fours(uint8_t *dst, uint8x16_t b0, uint8x16_t b1, uint8x16_t b2, uint8x16_t b3)
{
    const uint16x8_t low0 = vreinterpretq_u16_u8(vzip1q_u8(b0, b1)),
                     low1 = vreinterpretq_u16_u8(vzip2q_u8(b0, b1));
    const uint16x8_t high0 = vreinterpretq_u16_u8(vzip1q_u8(b2, b3)),
                     high1 = vreinterpretq_u16_u8(vzip2q_u8(b2, b3));
    gw_store_u16x8(dst, vzip1q_u16(low0, high0));
    gw_store_u16x8(dst + 16, vzip2q_u16(low0, high0));
    gw_store_u16x8(dst + 32, vzip1q_u16(low1, high1));
    gw_store_u16x8(dst + 48, vzip2q_u16(low1, high1));
}

/* Second pass: 16 values to dst; escapes become +0. `zero` collects ordinary labels with exponent and
 * mantissa zero, which fp16 must not have. */
GW_TEMPLATE void join16(uint8_t *dst, uint8x16_t labels, const group *g, places *at, const settings *s,
                        uint8x16_t *zero, uint32_t dtype, uint32_t derived, uint32_t relative)
{
    const uint8x16_t ordinary = ordinary_of(labels, derived);
    const uint8x16_t field = relative ? vld1q_u8(g->exponent) : exponents_of(labels, s, dtype, derived);
    const uint8x16_t exponent = vandq_u8(field, ordinary);
    const four_digits d = digits_of(at, g, dtype, derived);
    const uint8x16_t sign_bit = vdupq_n_u8(0x80);
    if (dtype == GW_FP32) {
        /* Digits are 6 bits, the first is the sign and five bits of mantissa: three of them fill what two
         * bytes and a bit hold. */
        const uint8x16_t b0 = vsliq_n_u8(d.d4, d.d3, 6);
        const uint8x16_t b1 = vsliq_n_u8(vshrq_n_u8(d.d3, 2), d.d2, 4);
        const uint8x16_t b2 = vsliq_n_u8(vsliq_n_u8(vshrq_n_u8(d.d2, 4), d.d1, 2), exponent, 7);
        const uint8x16_t b3 = vbslq_u8(sign_bit, vshlq_n_u8(d.d1, 2), vshrq_n_u8(exponent, 1));
        store_fours(dst, b0, b1, b2, b3);
    } else if (dtype == GW_BF16) {
        const uint8x16_t low = vsliq_n_u8(vsliq_n_u8(vsliq_n_u8(d.d4, d.d3, 2), d.d2, 4), d.d1, 6);
        store_pairs(dst, vsliq_n_u8(low, exponent, 7), vbslq_u8(sign_bit, low, vshrq_n_u8(exponent, 1)));
    } else {
        const uint8x16_t b0 = vsliq_n_u8(vsliq_n_u8(d.d4, d.d3, 3), d.d2, 6);
        const uint8x16_t top = vsliq_n_u8(vsliq_n_u8(vshrq_n_u8(d.d2, 2), d.d1, 1), exponent, 2);
        const uint8x16_t b1 = vbslq_u8(sign_bit, vshlq_n_u8(d.d1, 6), top);
        const uint8x16_t is_not_zero = vtstq_u8(vorrq_u8(b0, vbicq_u8(b1, sign_bit)), vdupq_n_u8(0xff));
        *zero = vorrq_u8(*zero, vbicq_u8(ordinary, is_not_zero));
        store_pairs(dst, b0, b1);
    }
}

typedef struct escape_source {
    const uint8_t *values;
    size_t len, taken;
    uint16_t *place;
} escape_source;

/* Stores the escapes among `count` values, the first of which is value `at` of the chunk. Escapes are rare: a
 * loop. */
static void place_escapes(uint8_t *dst, const uint8_t *labels, size_t at, size_t count, size_t size,
                          escape_source *from)
{
    for (size_t j = 0; j < count; j++) {
        if (labels[j] == GW_LABEL_ESCAPE) {
            if (from->taken < from->len) {
                GW_MEMCPY(dst + size * j, from->values + size * from->taken, size);
            }
            from->place[from->taken] = (uint16_t)(at + j);
            from->taken++;
        }
    }
}

static inline int has_escape(uint8x16_t labels)
{
    const uint16x8_t is_escape = vreinterpretq_u16_u8(vceqq_u8(labels, vdupq_n_u8(GW_LABEL_ESCAPE)));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(is_escape, 4)), 0) != 0;
}

GW_TEMPLATE void join_range(uint8_t *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                            const gw_joiner *joiner, uint32_t dtype, uint32_t derived, uint32_t relative)
{
    const size_t size = gw_traits_of(dtype)->size, len = input->len;
    const int reads_map_bytes = derived && joiner->constant == 0;
    const uint8_t *const labels = input->labels, *const map_bytes = input->map_bytes;
    escape_source escapes = {input->escape, input->escape_len, 0, place};
    settings s;
    places at;
    uint8x16_t zero = vdupq_n_u8(0), k = vdupq_n_u8(0);
    size_t i = 0;
    s.window_start = vdupq_n_u8((uint8_t)joiner->window_start);
    s.dropper = gw_dropper_of(joiner->drop_offset, joiner->cap, joiner->floor);
    s.is_constant = joiner->constant != 0;
    for (unsigned p = 0; p < GW_PLANE_R1; p++) {
        at.plane[p] = input->plane[p];
    }
    at.r1 = input->plane[GW_PLANE_R1];
    at.r1_bit = 0;

    while (i + 16 <= len) {
        group groups[GROUPS];
        const size_t count = (len - i) / 16 < GROUPS ? (len - i) / 16 : GROUPS;
        for (size_t g = 0; g < count; g++) {
            if (reads_map_bytes) {
                k = vld1q_u8(map_bytes + i + 16 * g);
            }
            find_owners(&groups[g], vld1q_u8(labels + i + 16 * g), k, &s, dtype, derived, relative);
        }
        for (size_t g = 0; g < count; g++, i += 16) {
            const uint8x16_t label = vld1q_u8(labels + i);
            join16(dst + size * i, label, &groups[g], &at, &s, &zero, dtype, derived, relative);
            if (has_escape(label)) {
                place_escapes(dst + size * i, labels + i, i, 16, size, &escapes);
            }
        }
    }
    if (i < len) {
        /* The last values, padded with zeros. */
        const size_t count = len - i;
        uint8_t last_labels[16] = {0}, last_map_bytes[16] = {0}, last[64];
        GW_MEMCPY(last_labels, labels + i, count);
        if (reads_map_bytes) {
            GW_MEMCPY(last_map_bytes, map_bytes + i, count);
        }
        group g;
        find_owners(&g, vld1q_u8(last_labels), vld1q_u8(last_map_bytes), &s, dtype, derived, relative);
        join16(last, vld1q_u8(last_labels), &g, &at, &s, &zero, dtype, derived, relative);
        place_escapes(last, last_labels, i, count, size, &escapes);
        GW_MEMCPY(dst + size * i, last, size * count);
    }

    for (unsigned p = 0; p < GW_PLANE_R1; p++) {
        joined->plane_len[p] = derived || p < GW_DIGIT_PLANES ? (size_t)(at.plane[p] - input->plane[p]) : 0;
    }
    joined->plane_len[GW_PLANE_R1] = at.r1_bit;
    joined->escape_len = escapes.taken;
    joined->bad_zero = vmaxvq_u8(zero) != 0;
}

#define JOIN_CASE(dtype, derived, relative)                                                                  \
    case ((dtype)*2 + (derived)) * 2 + (relative):                                                           \
        join_range((uint8_t *)dst, joined, place, input, joiner, (dtype), (derived), (relative));            \
        break

static gw_add_fn *const adds[3] = {gw_add_fp32_neon, gw_add_bf16_neon, gw_add_fp16_neon};

void gw_join_neon(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                  const gw_joiner *joiner)
{
    switch ((joiner->dtype * 2 + joiner->derived) * 2 + (joiner->derived != 0 && joiner->relative != 0)) {
        JOIN_CASE(GW_FP32, 0, 0);
        JOIN_CASE(GW_FP32, 1, 0);
        JOIN_CASE(GW_FP32, 1, 1);
        JOIN_CASE(GW_BF16, 0, 0);
        JOIN_CASE(GW_BF16, 1, 0);
        JOIN_CASE(GW_BF16, 1, 1);
        JOIN_CASE(GW_FP16, 0, 0);
        JOIN_CASE(GW_FP16, 1, 0);
        JOIN_CASE(GW_FP16, 1, 1);
    default:
        return;
    }
    gw_join_sum(dst, 0, input->len, joiner, adds);
}

#else
typedef int gw_join_neon_not_built; /* a translation unit must not be empty */
#endif
