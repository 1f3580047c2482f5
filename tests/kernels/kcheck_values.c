/*
 * Inputs: values that break float kernels, map bytes, rules.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck.h"

#include <string.h>

enum {
    ZEROS,
    MINUS_ZEROS,
    SUBNORMALS,
    ONE_OUTLIER,
    RAMP,
    NANS,
    INFINITIES,
    LARGEST,
    RANDOM_BITS,
    GRADIENT,
    SPARSE_GRADIENT,
    ALL_EQUAL,
    BOUNDARIES,
    MIXTURE
};

const char *kc_value_pattern_name(unsigned pattern)
{
    static const char *const name[KC_VALUE_PATTERNS] = {
        "zeros", "-0",          "subnormals", "one outlier",     "ramp",      "NaN",        "Inf",
        "max",   "random bits", "gradient",   "sparse gradient", "all equal", "boundaries", "mixture",
    };
    return pattern < KC_VALUE_PATTERNS ? name[pattern] : "?";
}

typedef struct layout {
    unsigned m;   /* mantissa bits */
    uint32_t top; /* exponent field of infinity */
    uint32_t sign;
    uint32_t one; /* exponent field of 1.0 */
} layout;

static layout layout_of(uint32_t dtype)
{
    const layout fp32 = {23, 255, 0x80000000u, 127}, bf16 = {7, 255, 0x8000, 127},
                 fp16 = {10, 31, 0x8000, 15};
    return dtype == GW_FP32 ? fp32 : dtype == GW_BF16 ? bf16 : fp16;
}

static uint32_t random_sign(kc_rng *rng, const layout *l)
{
    return (kc_random(rng) >> 40 & 1) != 0 ? l->sign : 0;
}

static uint32_t random_mantissa(kc_rng *rng, const layout *l)
{
    return (uint32_t)(kc_random(rng) >> 32) & ((1u << l->m) - 1);
}

/* Quiet and signalling, payload empty, lowest bit, all bits, random; both signs. */
static uint32_t random_nan(kc_rng *rng, const layout *l)
{
    const uint32_t quiet = 1u << (l->m - 1), all = (1u << l->m) - 1;
    uint32_t payload;
    switch (kc_below(rng, 7)) {
    case 0:
        payload = quiet;
        break;
    case 1:
        payload = quiet | 1;
        break;
    case 2:
        payload = 1;
        break;
    case 3:
        payload = quiet - 1;
        break;
    case 4:
        payload = all;
        break;
    case 5:
        payload = quiet >> 1;
        break;
    default:
        payload = random_mantissa(rng, l) | 1;
        break;
    }
    return random_sign(rng, l) | l->top << l->m | payload;
}

/* Magnitudes as in a gradient: around 2^-13 (2^-8 for fp16, whose range is short), many octaves below, few
 * above. */
static uint32_t random_gradient(kc_rng *rng, const layout *l)
{
    uint64_t x = kc_random(rng);
    uint32_t octaves = 0;
    for (; (x & 1) != 0 && octaves < 40; octaves++) {
        x >>= 1;
    }
    const uint32_t peak = l->top == 31 ? l->one - 6 : l->one - 11;
    const uint32_t below = (uint32_t)kc_below(rng, 5) + octaves;
    return random_sign(rng, l) | (peak > below ? peak - below : 0) << l->m | random_mantissa(rng, l);
}

/* Neighbours of powers of two, of the smallest normal value, of the largest: where carries and comparisons
 * go wrong. */
static uint32_t random_boundary(kc_rng *rng, const layout *l)
{
    static const uint8_t special[4] = {0, 1, 2, 3};
    uint32_t e = kc_below(rng, 8);
    e = e < 4 ? special[e] : e < 6 ? l->top - 1 - (e - 4) : kc_below(rng, l->top + 1);
    const uint32_t base = e << l->m;
    uint32_t magnitude = base + kc_below(rng, 5) - 2;
    if (kc_below(rng, 4) == 0) { /* a run of ones that carries when rounded */
        const uint32_t cut = kc_below(rng, l->m + 1);
        magnitude =
            base | (((1u << l->m) - 1) & ~((1u << cut) - 1)) | kc_below(rng, 2) << (cut > 0 ? cut - 1 : 0);
    }
    return random_sign(rng, l) | (magnitude & (l->sign - 1));
}

static uint32_t random_value(kc_rng *rng, const layout *l, unsigned pattern)
{
    switch (pattern) {
    case ZEROS:
        return 0;
    case MINUS_ZEROS:
        return l->sign;
    case SUBNORMALS:
        return random_sign(rng, l) | random_mantissa(rng, l) >> kc_below(rng, l->m);
    case NANS:
        return kc_below(rng, 4) == 0 ? random_gradient(rng, l) : random_nan(rng, l);
    case INFINITIES:
        return kc_below(rng, 2) == 0 ? random_gradient(rng, l) : random_sign(rng, l) | l->top << l->m;
    case LARGEST:
        return random_sign(rng, l) |
               ((l->top << l->m) - 1 - (kc_below(rng, 2) == 0 ? 0 : random_mantissa(rng, l)));
    case RANDOM_BITS:
        return (uint32_t)(kc_random(rng) >> 32) & (l->sign | (l->sign - 1));
    case SPARSE_GRADIENT:
        return kc_below(rng, 4) != 0 ? 0 : random_gradient(rng, l);
    case BOUNDARIES:
        return random_boundary(rng, l);
    case MIXTURE:
        return random_value(rng, l, kc_below(rng, MIXTURE));
    default:
        return random_gradient(rng, l);
    }
}

static void store(void *dst, uint32_t dtype, size_t i, uint32_t bits)
{
    if (dtype == GW_FP32) {
        gw_store32((uint8_t *)dst + 4 * i, bits);
    } else {
        gw_store16((uint8_t *)dst + 2 * i, (uint16_t)bits);
    }
}

void kc_values(kc_rng *rng, void *dst, uint32_t dtype, size_t len, unsigned pattern)
{
    const layout l = layout_of(dtype);
    const uint32_t equal = random_gradient(rng, &l);
    const uint32_t first = random_gradient(rng, &l);
    const uint32_t stride = 1u << kc_below(rng, l.m + 1);
    for (size_t i = 0; i < len; i++) {
        uint32_t bits = pattern == ALL_EQUAL ? equal
                        : pattern == RAMP    ? (first + (uint32_t)i * stride) & (l.sign | (l.sign - 1))
                                             : random_value(rng, &l, pattern);
        store(dst, dtype, i, bits);
    }
    if (pattern == ONE_OUTLIER && len > 0) {
        store(dst, dtype, kc_below(rng, (uint32_t)len), random_sign(rng, &l) | (l.top - 1) << l.m);
    }
}

void kc_map_bytes(kc_rng *rng, uint8_t *dst, size_t len, unsigned pattern)
{
    const uint32_t center = kc_below(rng, 256);
    for (size_t i = 0; i < len; i++) {
        switch (pattern % KC_LEVEL_PATTERNS) {
        case 0:
            dst[i] = (uint8_t)kc_below(rng, 256);
            break;
        case 1:
            dst[i] = 0;
            break;
        case 2:
            dst[i] = 255;
            break;
        case 3:
            dst[i] = (uint8_t)(kc_below(rng, 8) == 0 ? 0 : 255 - kc_below(rng, 64));
            break;
        default:
            dst[i] = (uint8_t)(center + kc_below(rng, 16));
            break;
        }
    }
}

void kc_round_rule(kc_rng *rng, gw_round_rule *rule, uint32_t dtype, uint32_t rounding, uint32_t derived,
                   uint32_t constant, uint32_t strict, uint32_t near)
{
    const gw_traits *t = gw_traits_of(dtype);
    const layout l = layout_of(dtype);
    /* Dead zones have loops of their own, which need more cases than chance gives them. */
    const int can_be_dead_zone = derived && !constant && kc_below(rng, 2) == 0;
    uint32_t step = t->explicit_step, cap_max = t->explicit_cap;
    if (derived) {
        cap_max = t->derived_cap;
        do {
            step = 1 + kc_below(rng, 6);
        } while ((t->derived_steps >> step & 1) == 0);
        step = constant || can_be_dead_zone ? 1 : step;
    }
    memset(rule, 0, sizeof *rule);
    rule->dtype = dtype;
    rule->rounding = rounding;
    rule->derived = derived;
    rule->strict = strict;
    rule->constant = constant;
    rule->cap =
        (!can_be_dead_zone && kc_below(rng, 3) == 0 ? kc_below(rng, cap_max + 1) : cap_max) / step * step;
    if (derived && !constant) {
        rule->relative = kc_below(rng, 2);
        rule->dead_zone = step == 1 && rule->cap == cap_max && kc_below(rng, 4) != 0;
    }
    for (uint32_t n = 0; n < 32; n++) {
        rule->floor[n] = (uint8_t)(n - n % step);
    }
    /* Map bytes reach over 64 octaves; let them straddle the drops of this value. */
    const uint32_t exponent = ((near & (l.sign - 1)) >> l.m) + t->exponent_bias;
    rule->drop_offset = (int32_t)(4 * exponent) - (int32_t)kc_below(rng, 256) + 20;
    if (kc_below(rng, 8) == 0) {
        rule->drop_offset = (int32_t)kc_below(rng, 65536) - 32768;
    }
    rule->seed = kc_random(rng);
    rule->step_index = (uint32_t)kc_random(rng);
    rule->rank_hop = (uint32_t)kc_random(rng);
}

int kc_label_of_bin(uint32_t bin, uint32_t dtype, uint32_t derived, uint32_t *exponent, uint8_t *keep)
{
    const gw_traits *traits = gw_traits_of(dtype);
    const uint32_t e = bin / 4, drop_steps = bin % 4;
    *exponent = 0;
    *keep = 0;
    if (bin == (dtype == GW_FP16 ? (uint32_t)GW_BIN_FP16_ZERO : 0)) {
        return 1;
    }
    if (e >= traits->exponent_mask || (dtype != GW_FP16 && e == 0)) {
        return 0;
    }
    *exponent = e << traits->mantissa_bits;
    *keep = (uint8_t)(traits->mantissa_bits + 1 - (derived ? 0 : drop_steps * traits->explicit_step));
    return 1;
}

gw_span kc_span(kc_rng *rng, gw_round_rule *rule, size_t len, uint32_t dtype, uint32_t derived,
                unsigned pattern)
{
    uint8_t *values = kc_plain(0), *map_bytes = kc_plain(1);
    kc_values(rng, values, dtype, len, pattern);
    kc_map_bytes(rng, map_bytes, len, kc_below(rng, KC_LEVEL_PATTERNS));
    const uint32_t near = len == 0 ? 0 : dtype == GW_FP32 ? gw_load32(values) : gw_load16(values);
    const uint32_t constant = kc_below(rng, 4) == 0, strict = kc_below(rng, 2);
    kc_round_rule(rng, rule, dtype, kc_below(rng, 3), derived, constant, strict, near);
    /* Element numbers around 2^35, where the Philox counter carries into its second word, around 2^64, where
     * they start again at 0, and others. */
    uint64_t element = kc_random(rng) >> kc_below(rng, 60);
    const uint32_t special = kc_below(rng, 6);
    if (special == 0) {
        element = ((uint64_t)1 << 35) - kc_below(rng, 80);
    } else if (special == 1) {
        element = UINT64_MAX - kc_below(rng, 80);
    }
    const gw_span span = {values, constant ? NULL : map_bytes, len, element, 0};
    return span;
}

gw_span kc_span_in(kc_test *t, const gw_span *span, const gw_round_rule *rule, kc_place place)
{
    gw_span copy = *span;
    copy.values = kc_in(t, "values", span->values, span->len * gw_traits_of(rule->dtype)->size, 0, place, 1);
    if (span->map_bytes != NULL) {
        copy.map_bytes = kc_in(t, "map_bytes", span->map_bytes, span->len, 0, kc_place_other(t), 1);
    }
    return copy;
}

gw_span kc_bench_span(gw_round_rule *rule, size_t len)
{
    kc_rng rng = {1};
    kc_values(&rng, kc_plain(0), GW_FP32, len, GRADIENT);
    kc_map_bytes(&rng, kc_plain(1), len, 4);
    kc_round_rule(&rng, rule, GW_FP32, GW_GCOMP_NEAREST, 0, 0, 0, gw_load32(kc_plain(0)));
    rule->cap = 18;
    rule->drop_offset = 4 * 116 - 100;
    const gw_span span = {kc_plain(0), kc_plain(1), len, 0, 0};
    return span;
}
