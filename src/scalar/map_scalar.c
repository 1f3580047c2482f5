/*
 * Precision map: the ratio |num / (lr * c)| of every parameter, as a quarter-octave (docs/numerics.md section 2).
 *
 * The update is theta' = num - lr * c * g: c is what the optimizer multiplies the gradient with, num is everything else.
 * With s = sqrt(second moment) + eps,
 *
 *     num / (lr * c) = (p_param * theta - p_m * m) * s - (q_param * theta + q_m * m).
 *
 * The second moment after the update is not known yet, only a lower bound. |P * s - Q| grows with s from there on unless P
 * and Q have the same sign and |P| * s does not exceed |Q|: then nothing may be dropped.
 *
 * Every operation rounds once, in the order written. `guard` is more than all rounding errors together, so that the ratio
 * is never above the exact one.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <float.h>

#include "core/kernels.h"
#include "core/map_rule.h"
#include "core/sqrt.h"

/* Subnormal operands and products count as zero, whatever the FTZ and DAZ state of the process. */
static inline float flush(float x)
{
    return (gw_bits_from_float(x) & 0x7f800000u) == 0 ? 0.0f : x;
}

/* A product that counts as zero if it is subnormal, or 2^-126 exactly: x86 decides what is too small for FTZ after rounding
 * to 24 bits, so a product just below 2^-126 that rounds up to it is zero with FTZ and 2^-126 without. */
static inline float product(float x, float y)
{
    float z = x * y;
    return (gw_bits_from_float(z) & 0x7fffffffu) <= 0x00800000u ? 0.0f : z;
}

static inline float magnitude(float x)
{
    return gw_float_from_bits(gw_bits_from_float(x) & 0x7fffffffu);
}

static inline float load(const float *src, size_t i)
{
    return flush(gw_float_from_bits(gw_load32((const uint8_t *)src + 4 * i)));
}

/* sqrt of a lower bound of the second moment after the update, plus eps. */
static inline float denominator(const gw_gcomp_map_rule *rule, float v, float a)
{
    float w;
    if (rule->kind == GW_OPTIMIZER_RMSPROP && (rule->uses & GW_MAP_USES_A) != 0) {
        /* Centered: v - a^2 before the update, less a bound of the rounding error of this difference. Where that bound is
         * too small to be a normal number, nothing is known of the difference. */
        float square = product(a, a);
        float error = product(v + square, 0x1p-21f);
        w = error == 0.0f ? 0.0f : flush(flush(v - square) - error);
        w = w <= 0.0f && w >= -FLT_MAX ? 0.0f : product(w, rule->s_scale); /* -Inf and NaN go on, to a root that is NaN */
    } else {
        w = product(v, rule->s_scale);
        if ((rule->uses & GW_MAP_USES_A) != 0) {
            float largest = product(a, rule->a_scale);
            w = largest > w || largest != largest ? largest : w; /* NaN if either is NaN */
        }
    }
    return gw_sqrt(w) + rule->eps;
}

/* Quarter-octave (bits >> 21) of parameter i's ratio, 0 where nothing may be dropped. */
static inline uint32_t quarter_octave(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i)
{
    float theta = load(state->param, i);
    float m = (rule->uses & GW_MAP_USES_M) != 0 ? load(state->m, i) : 0.0f;
    float v = (rule->uses & GW_MAP_USES_V) != 0 ? load(state->v, i) : 0.0f;
    float a = (rule->uses & GW_MAP_USES_A) != 0 ? load(state->a, i) : 0.0f;

    float p_theta = product(theta, rule->p_param);
    float p_m = product(m, rule->p_m);
    float q_theta = product(theta, rule->q_param);
    float q_m = product(m, rule->q_m);
    float s = (rule->uses & GW_MAP_USES_V) != 0 ? denominator(rule, v, a) : 1.0f;
    float p = product(flush(p_theta - p_m), s);
    float q = flush(q_theta + q_m);

    int is_opposite = (p > 0.0f && q < 0.0f) || (p < 0.0f && q > 0.0f); /* p = 0 has lost its sign: not opposite */
    if ((rule->uses & GW_MAP_USES_V) != 0 && !is_opposite && magnitude(p) <= magnitude(q)) {
        return 0;
    }
    float terms = product(magnitude(p_theta) + magnitude(p_m), s) + (magnitude(q_theta) + magnitude(q_m));
    float guard = product(terms, 0x1p-20f);
    float ratio = magnitude(p - q) - guard;
    uint32_t bits = gw_bits_from_float(ratio);
    /* Negative, subnormal, infinite and NaN ratios drop nothing. */
    return bits >= 0x00800000u && bits < 0x7f800000u ? bits >> 21 : 0;
}

uint32_t gw_map_scan_scalar(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    uint32_t top = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t q = quarter_octave(rule, state, i);
        top = q > top ? q : top;
    }
    return top;
}

void gw_map_build_scalar(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len, uint32_t base,
                         uint8_t *levels)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t q = quarter_octave(rule, state, i);
        uint32_t k = q <= base ? 0 : q - base; /* so K + base - 1 is a quarter-octave below: the whole of it fits */
        levels[i] = (uint8_t)gw_min_u32(k, 255);
    }
}
