/*
 * Precision map, four parameters at a time. Every operation is that of map_scalar.c in the same order; its
 * comments say why.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: scan 23.5 (111.5), 9.3 and 4.6; build 25.1 (125.3),
 * 9.7 and 4.8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <float.h>

#include "gcomp/map_ratio.h"
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

static inline float32x4_t flush(float32x4_t x)
{
    const uint32x4_t bits = gw_bits_f32x4(x);
    return gw_f32x4_bits(vandq_u32(bits, vtstq_u32(bits, vdupq_n_u32(0x7f800000u))));
}

static inline float32x4_t product(float32x4_t x, float32x4_t y)
{
    const float32x4_t z = vmulq_f32(x, y);
    /* Shifted left, sign and all, 2^-126 and less are at most 2^24. */
    const uint32x4_t bits = gw_bits_f32x4(z);
    return gw_f32x4_bits(vandq_u32(bits, vcgtq_u32(vaddq_u32(bits, bits), vdupq_n_u32(0x01000000u))));
}

static inline float32x4_t quotient(float32x4_t x, float32x4_t y)
{
    const uint32x4_t bits = gw_bits_f32x4(gw_div_f32x4(x, y));
    return gw_f32x4_bits(vandq_u32(bits, vcgtq_u32(vaddq_u32(bits, bits), vdupq_n_u32(0x01000000u))));
}

static inline float32x4_t load(const float *src, size_t i)
{
    return flush(gw_f32x4_bits(gw_load_u32x4((const uint8_t *)src + 4 * i)));
}

/* Square root of a lower bound of the second moment after the update. */
static inline float32x4_t root_of(const gw_gcomp_map_rule *rule, float32x4_t v, float32x4_t a)
{
    const float32x4_t zero = vdupq_n_f32(0.0f), s_scale = vdupq_n_f32(rule->s_scale);
    float32x4_t w;
    if (rule->kind == GW_OPTIMIZER_ADAMAX) {
        w = product(v, s_scale);
        return gw_f32x4_bits(vbicq_u32(gw_bits_f32x4(w), vcleq_f32(w, zero)));
    }
    if (rule->kind == GW_OPTIMIZER_RMSPROP && (rule->uses & GW_MAP_USES_A) != 0) {
        const float32x4_t square = product(a, a);
        const float32x4_t error = product(vaddq_f32(v, square), vdupq_n_f32(0x1p-21f));
        const float32x4_t bound = flush(vsubq_f32(flush(vsubq_f32(v, square)), error));
        w = gw_f32x4_bits(vbicq_u32(gw_bits_f32x4(bound), vceqq_f32(error, zero)));
        const uint32x4_t nothing = vandq_u32(vcleq_f32(w, zero), vcgeq_f32(w, vdupq_n_f32(-FLT_MAX)));
        w = gw_f32x4_bits(vbicq_u32(gw_bits_f32x4(product(w, s_scale)), nothing));
    } else {
        w = product(v, s_scale);
        if ((rule->uses & GW_MAP_USES_A) != 0 && rule->kind != GW_OPTIMIZER_ADADELTA) {
            const float32x4_t largest = product(a, vdupq_n_f32(rule->a_scale));
            /* w stays where it is not less; NaN on either side compares false, and is selected or stays. */
            const uint32x4_t take = vorrq_u32(vcgtq_f32(largest, w), vmvnq_u32(vceqq_f32(largest, largest)));
            w = vbslq_f32(take, largest, w);
        }
    }
    return vsqrtq_f32(w);
}

/* The denominator of the update. */
static inline float32x4_t denominator(const gw_gcomp_map_rule *rule, float32x4_t v, float32x4_t a,
                                      float32x4_t root)
{
    const float32x4_t eps = vdupq_n_f32(rule->eps);
    if (rule->kind == GW_OPTIMIZER_ADADELTA) {
        const float32x4_t above = flush(vaddq_f32(product(v, vdupq_n_f32(rule->s_scale)), eps));
        const float32x4_t below = vmaxq_f32(flush(vaddq_f32(a, eps)), vdupq_n_f32(0.0f)); /* keeps NaN */
        return vsqrtq_f32(quotient(above, below));
    }
    return vaddq_f32(root, eps);
}

/* Which of four ratios count: normal positive numbers. Subtracting makes all others large. */
static inline uint32x4_t is_ratio(uint32x4_t bits)
{
    return vcltq_u32(vsubq_u32(bits, vdupq_n_u32(0x00800000u)), vdupq_n_u32(0x7f000000u));
}

/* Quarter-octaves of four ratios. s: the denominators. */
static inline uint32x4_t tolerance(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                                   float32x4_t s)
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    const int uses_v = (rule->uses & GW_MAP_USES_V) != 0, uses_m = (rule->uses & GW_MAP_USES_M) != 0;
    const float32x4_t theta = load(state->param, i);
    const float32x4_t m = uses_m ? load(state->m, i) : zero;
    const float32x4_t p_theta = product(theta, vdupq_n_f32(rule->p_param));
    const float32x4_t p_m = product(m, vdupq_n_f32(rule->p_m));
    const float32x4_t q_theta = product(theta, vdupq_n_f32(rule->q_param));
    const float32x4_t q_m = product(m, vdupq_n_f32(rule->q_m));
    const float32x4_t p = product(flush(vsubq_f32(p_theta, p_m)), s);
    const float32x4_t q = flush(vaddq_f32(q_theta, q_m));

    const float32x4_t terms = vaddq_f32(product(vaddq_f32(vabsq_f32(p_theta), vabsq_f32(p_m)), s),
                                        vaddq_f32(vabsq_f32(q_theta), vabsq_f32(q_m)));
    const float32x4_t guard = product(terms, vdupq_n_f32(0x1p-20f));
    const float32x4_t difference = vsubq_f32(p, q);
    float32x4_t r = vsubq_f32(vabsq_f32(difference), guard);
    if (uses_m && (rule->limits & GW_MAP_UPDATE) != 0) {
        const float32x4_t momentum = vaddq_f32(product(vabsq_f32(p_m), s), vabsq_f32(q_m));
        const float32x4_t limit = product(momentum, vdupq_n_f32(rule->update));
        r = vbslq_f32(vcltq_f32(limit, r), limit, r);
    }
    const uint32x4_t bits = gw_bits_f32x4(r);
    uint32x4_t passes = is_ratio(bits);
    if ((rule->limits & GW_MAP_RATES) != 0) {
        const uint32x4_t differ = veorq_u32(gw_bits_f32x4(difference), gw_bits_f32x4(p_theta));
        passes = vandq_u32(passes, vcgeq_s32(vreinterpretq_s32_u32(differ), vdupq_n_s32(0)));
        passes = vbicq_u32(passes, vceqq_f32(p_theta, zero));
    }
    if (uses_v) {
        /* Where |p| <= |q|, p and q are opposite if p is not zero and the signs differ. */
        const uint32x4_t p_bits = gw_bits_f32x4(p), q_bits = gw_bits_f32x4(q);
        const uint32x4_t differ = vcltq_s32(vreinterpretq_s32_u32(veorq_u32(p_bits, q_bits)), vdupq_n_s32(0));
        const uint32x4_t opposite = vandq_u32(differ, vtstq_u32(p_bits, p_bits));
        passes = vbicq_u32(passes, vbicq_u32(vcleq_f32(vabsq_f32(p), vabsq_f32(q)), opposite));
    }
    return vandq_u32(vshrq_n_u32(bits, 21), passes);
}

/* Quarter-octaves of four parameters: the smaller one where both limits count. */
GW_TEMPLATE uint32x4_t quarter_octave(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state,
                                      size_t i, uint32_t limits)
{
    float32x4_t s = vdupq_n_f32(1.0f);
    uint32x4_t noise = vdupq_n_u32(0);
    if ((rule->uses & GW_MAP_USES_V) != 0) {
        const int uses_a = (rule->uses & GW_MAP_USES_A) != 0;
        const float32x4_t a = uses_a ? load(state->a, i) : vdupq_n_f32(0.0f);
        const float32x4_t v = load(state->v, i);
        const float32x4_t root = root_of(rule, v, a);
        s = denominator(rule, v, a, root);
        if ((limits & GW_MAP_NOISE) != 0) {
            const uint32x4_t bits = gw_bits_f32x4(product(root, vdupq_n_f32(rule->noise)));
            noise = vandq_u32(vshrq_n_u32(bits, 21), is_ratio(bits));
        }
    }
    if ((limits & GW_MAP_TOLERANCE) == 0) {
        return noise;
    }
    const uint32x4_t ratio = tolerance(rule, state, i, s);
    return (limits & GW_MAP_NOISE) != 0 ? vminq_u32(noise, ratio) : ratio;
}

GW_TEMPLATE uint32_t scan(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                          uint32_t limits)
{
    uint32x4_t top = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        top = vmaxq_u32(top, quarter_octave(rule, state, i, limits));
    }
    uint32_t largest = vmaxvq_u32(top);
    for (; i < len; i++) {
        const uint32_t q = gw_map_quarter_octave_at(rule, state, i);
        largest = q > largest ? q : largest;
    }
    return largest;
}

GW_TEMPLATE void build(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                       uint32_t base, uint8_t *levels, uint32_t limits)
{
    const uint32x4_t below = vdupq_n_u32(base);
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint32x4_t low = vqsubq_u32(quarter_octave(rule, state, i, limits), below);
        const uint32x4_t high = vqsubq_u32(quarter_octave(rule, state, i + 4, limits), below);
        vst1_u8(levels + i, vqmovn_u16(vcombine_u16(vqmovn_u32(low), vqmovn_u32(high))));
    }
    for (; i < len; i++) {
        levels[i] = gw_map_level(gw_map_quarter_octave_at(rule, state, i), base);
    }
}

uint32_t gw_map_scan_neon(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    switch (rule->limits & GW_MAP_SWITCHED) {
    case GW_MAP_TOLERANCE:
        return scan(rule, state, len, GW_MAP_TOLERANCE);
    case GW_MAP_NOISE:
        return scan(rule, state, len, GW_MAP_NOISE);
    default:
        return scan(rule, state, len, GW_MAP_TOLERANCE | GW_MAP_NOISE);
    }
}

void gw_map_build_neon(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                       uint32_t base, uint8_t *levels)
{
    switch (rule->limits & GW_MAP_SWITCHED) {
    case GW_MAP_TOLERANCE:
        build(rule, state, len, base, levels, GW_MAP_TOLERANCE);
        break;
    case GW_MAP_NOISE:
        build(rule, state, len, base, levels, GW_MAP_NOISE);
        break;
    default:
        build(rule, state, len, base, levels, GW_MAP_TOLERANCE | GW_MAP_NOISE);
        break;
    }
}

#else
typedef int gw_map_neon_not_built; /* a translation unit must not be empty */
#endif
