/*
 * One parameter of a precision map as a quarter-octave (docs/numerics.md section 2): the ratio |num / (lr *
 * c)|, or less where the noise limit allows less.
 *
 * The update is theta' = num - lr * c * g, where c is the optimizer's factor of the gradient and num is
 * everything else. With s = sqrt(second moment) + eps,
 *
 *     num / (lr * c) = (p_param * theta - p_m * m) * s - (q_param * theta + q_m * m).
 *
 * Only a lower bound of the second moment after the update is known. |P * s - Q| grows with s from there on
 * unless P and Q have the same sign and |P| * s does not exceed |Q|; in that case nothing may be dropped. A
 * smaller rate than that of the factors moves it by more of theta, so away from zero if it has theta's sign.
 *
 * Every operation rounds once, in the order written. `guard` is more than the sum of all rounding errors, so
 * that the ratio is never above the exact one. The noise limit is root(second moment) * noise with the same
 * lower bound of the second moment; its guard is in the factor.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MAP_RATIO_H
#define GW_MAP_RATIO_H

#include <float.h>

#include "core/bytes.h"
#include "gcomp/map_rule.h"
#include "core/sqrt.h"
#include "gradwire/gcomp.h"

/* Subnormal operands and products count as zero, whatever the FTZ and DAZ state of the process. */
GW_INLINE float gw_map_flush(float x)
{
    return (gw_bits_from_float(x) & 0x7f800000u) == 0 ? 0.0f : x;
}

/* A product that counts as zero if it is subnormal, or 2^-126 exactly: x86 decides what is too small for FTZ
 * after rounding to 24 bits, so a product just below 2^-126 that rounds up to it is zero with FTZ and 2^-126
 * without. */
GW_INLINE float gw_map_product(float x, float y)
{
    float z = x * y;
    return (gw_bits_from_float(z) & 0x7fffffffu) <= 0x00800000u ? 0.0f : z;
}

/* The same for a quotient. 0 / 0 is NaN. */
GW_INLINE float gw_map_quotient(float x, float y)
{
    float z = x / y;
    return (gw_bits_from_float(z) & 0x7fffffffu) <= 0x00800000u ? 0.0f : z;
}

GW_INLINE float gw_map_magnitude(float x)
{
    return gw_float_from_bits(gw_bits_from_float(x) & 0x7fffffffu);
}

/* sqrt of a lower bound of the second moment after the update. Adamax has the root itself: a largest
 * magnitude, which is above 0 after every update. */
GW_INLINE float gw_map_root(const gw_gcomp_map_rule *rule, float v, float a)
{
    float w;
    if (rule->kind == GW_OPTIMIZER_ADAMAX) {
        w = gw_map_product(v, rule->s_scale);
        return w <= 0.0f ? 0.0f : w; /* NaN remains */
    }
    if (rule->kind == GW_OPTIMIZER_RMSPROP && (rule->uses & GW_MAP_USES_A) != 0) {
        /* Centered: v - a^2 before the update, less a bound of the rounding error of this difference. Where
         * that bound is not a normal number, the difference counts as unknown. */
        float square = gw_map_product(a, a);
        float error = gw_map_product(v + square, 0x1p-21f);
        w = error == 0.0f ? 0.0f : gw_map_flush(gw_map_flush(v - square) - error);
        /* -Inf and NaN remain and give a root that is NaN. */
        w = w <= 0.0f && w >= -FLT_MAX ? 0.0f : gw_map_product(w, rule->s_scale);
    } else {
        w = gw_map_product(v, rule->s_scale);
        if ((rule->uses & GW_MAP_USES_A) != 0 && rule->kind != GW_OPTIMIZER_ADADELTA) {
            float largest = gw_map_product(a, rule->a_scale);
            w = largest > w || largest != largest ? largest : w; /* NaN if either is NaN */
        }
    }
    return gw_sqrt(w);
}

/* The denominator s of the update. Adadelta divides the root of the second moment by that of acc_delta, which
 * is known before the update. */
GW_INLINE float gw_map_denominator(const gw_gcomp_map_rule *rule, float v, float a, float root)
{
    if (rule->kind == GW_OPTIMIZER_ADADELTA) {
        float above = gw_map_flush(gw_map_product(v, rule->s_scale) + rule->eps);
        float below = gw_map_flush(a + rule->eps);
        return gw_sqrt(gw_map_quotient(above, below < 0.0f ? 0.0f : below)); /* x / 0 drops nothing */
    }
    return root + rule->eps;
}

/* Negative, subnormal, infinite and NaN ratios drop nothing. */
GW_INLINE uint32_t gw_map_quarter_octave_of(float ratio)
{
    uint32_t bits = gw_bits_from_float(ratio);
    return bits >= 0x00800000u && bits < 0x7f800000u ? bits >> 21 : 0;
}

/* Quarter-octave of the ratio; 0 where nothing may be dropped. s: the denominator of the update, or 1. */
GW_INLINE uint32_t gw_map_tolerance(const gw_gcomp_map_rule *rule, float theta, float m, float s)
{
    float p_theta = gw_map_product(theta, rule->p_param);
    float p_m = gw_map_product(m, rule->p_m);
    float q_theta = gw_map_product(theta, rule->q_param);
    float q_m = gw_map_product(m, rule->q_m);
    float p = gw_map_product(gw_map_flush(p_theta - p_m), s);
    float q = gw_map_flush(q_theta + q_m);

    /* p = 0 has no sign: not opposite */
    int is_opposite = (p > 0.0f && q < 0.0f) || (p < 0.0f && q > 0.0f);
    if ((rule->uses & GW_MAP_USES_V) != 0 && !is_opposite && gw_map_magnitude(p) <= gw_map_magnitude(q)) {
        return 0;
    }
    float difference = p - q;
    int is_away =
        ((gw_bits_from_float(difference) ^ gw_bits_from_float(p_theta)) >> 31) == 0 && p_theta != 0.0f;
    if ((rule->limits & GW_MAP_RATES) != 0 && !is_away) {
        return 0;
    }
    float terms = gw_map_product(gw_map_magnitude(p_theta) + gw_map_magnitude(p_m), s) +
                  (gw_map_magnitude(q_theta) + gw_map_magnitude(q_m));
    float ratio = gw_map_magnitude(difference) - gw_map_product(terms, 0x1p-20f);
    if ((rule->limits & GW_MAP_UPDATE) != 0 && (rule->uses & GW_MAP_USES_M) != 0) {
        float momentum = gw_map_product(gw_map_magnitude(p_m), s) + gw_map_magnitude(q_m);
        float limit = gw_map_product(momentum, rule->update);
        ratio = limit < ratio ? limit : ratio; /* NaN in m is in the ratio, too */
    }
    return gw_map_quarter_octave_of(ratio);
}

/* Quarter-octave of a parameter and its state, all flushed (gw_map_flush()), 0 where the rule does not use
 * them; 0 where nothing may be dropped: the smaller of the limits that count. */
GW_INLINE uint32_t gw_map_quarter_octave(const gw_gcomp_map_rule *rule, float theta, float m, float v,
                                         float a)
{
    int uses_v = (rule->uses & GW_MAP_USES_V) != 0;
    float root = uses_v ? gw_map_root(rule, v, a) : 0.0f;
    uint32_t noise = (rule->limits & GW_MAP_NOISE) != 0
                         ? gw_map_quarter_octave_of(gw_map_product(root, rule->noise))
                         : UINT32_MAX;
    if ((rule->limits & GW_MAP_TOLERANCE) == 0) {
        return noise;
    }
    float s = uses_v ? gw_map_denominator(rule, v, a, root) : 1.0f;
    return gw_min_u32(noise, gw_map_tolerance(rule, theta, m, s));
}

/* Element i of an array at any alignment. */
GW_INLINE float gw_map_load(const float *src, size_t i)
{
    return gw_map_flush(gw_float_from_bits(gw_load32((const uint8_t *)src + 4 * i)));
}

GW_INLINE uint32_t gw_map_quarter_octave_at(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state,
                                            size_t i)
{
    int has_tolerance = (rule->limits & GW_MAP_TOLERANCE) != 0;
    float theta = has_tolerance ? gw_map_load(state->param, i) : 0.0f;
    float m = has_tolerance && (rule->uses & GW_MAP_USES_M) != 0 ? gw_map_load(state->m, i) : 0.0f;
    float v = (rule->uses & GW_MAP_USES_V) != 0 ? gw_map_load(state->v, i) : 0.0f;
    float a = (rule->uses & GW_MAP_USES_A) != 0 ? gw_map_load(state->a, i) : 0.0f;
    return gw_map_quarter_octave(rule, theta, m, v, a);
}

/* The map byte K of a quarter-octave: K + base - 1 is a whole quarter-octave below the ratio. */
GW_INLINE uint8_t gw_map_byte(uint32_t quarter_octave, uint32_t base)
{
    return (uint8_t)gw_min_u32(quarter_octave <= base ? 0 : quarter_octave - base, 255);
}

#endif
