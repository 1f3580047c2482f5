/*
 * Precision map: the arithmetic of gcomp/map_ratio.h, operation by operation, on a register of parameters at
 * a time (docs/numerics.md section 2). Conditions of the scalar code are masks here. A backend defines,
 * before it includes this:
 *
 *   floats, words, flags   a register of fp32, of uint32_t, and of one condition for each of them
 *   LANES, REGISTERS       parameters of a register, and registers of a group
 *   FLOATS(x)              the number x in all lanes
 *   LOAD(bytes)            a register of fp32 at any alignment
 *   ADD SUB MUL DIV SQRT ABS
 *   ABOVE_ZERO(x)          the larger of x and 0, NaN where x is
 *   LESSER(x, y)           x where it is less than y, else y: also where either is NaN
 *   IS_EQUAL IS_LESS IS_LESS_EQUAL   false where either is NaN
 *   IS_NAN(x)
 *   DIFFER(x, y)           where the signs differ
 *   IS_NOT_0(x)            of x that is never -0 or subnormal; true for NaN
 *   BOTH(a, b) EITHER(a, b) BUT(a, b)   of flags; BUT: a and not b
 *   CLEAR(flags, x)        0 where they are set, else x
 *   PICK(flags, x, y)      x where they are set, else y
 *   WORDS_MIN WORDS_MAX NO_WORDS
 *   flush(x), normal(x)    static functions: +0 for subnormals; +0 for magnitudes of at most 2^-126
 *   is_ratio(x)            where x is a normal number above 0
 *   octaves(flags, x)      bits of x >> 21 where the flags are set, else 0
 *   store_map_bytes(bytes, octaves, base)   map bytes of a group
 *   largest_of(words)      the largest lane
 *
 * One loop for each set of state arrays, so that what a rule does not use costs nothing.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MAP_LANES_H
#define GW_MAP_LANES_H

#include <float.h>

#include "core/bytes.h"
#include "gcomp/map_rule.h"

enum { GROUP_LEN = LANES * REGISTERS };

/* Which formula the second moment has; all but the last two are chosen when compiled. */
enum { PLAIN = 0, CENTERED = 1, NORM = 2, DELTA = 3 }; /* NORM: Adamax, DELTA: Adadelta */

static inline floats product(floats x, floats y)
{
    return normal(MUL(x, y));
}

/* Numbers of an array that the rule uses. */
GW_TEMPLATE floats load_state(const float *src, size_t i, int is_used)
{
    return is_used ? flush(LOAD((const uint8_t *)(const void *)src + 4 * i)) : FLOATS(0.0f);
}

/* Square root of a lower bound of the second moment after the update. */
GW_TEMPLATE floats root_of(const gw_gcomp_map_rule *rule, floats v, floats a, uint32_t uses, int form)
{
    const floats zero = FLOATS(0.0f), s_scale = FLOATS(rule->s_scale);
    floats w;
    if (form == NORM) {
        w = product(v, s_scale);
        return CLEAR(IS_LESS_EQUAL(w, zero), w);
    }
    if (form == CENTERED) {
        const floats square = product(a, a);
        const floats error = product(ADD(v, square), FLOATS(0x1p-21f));
        w = CLEAR(IS_EQUAL(error, zero), flush(SUB(flush(SUB(v, square)), error)));
        const flags is_none = BOTH(IS_LESS_EQUAL(w, zero), IS_LESS_EQUAL(FLOATS(-FLT_MAX), w));
        w = CLEAR(is_none, product(w, s_scale));
    } else {
        w = product(v, s_scale);
        if ((uses & GW_MAP_USES_A) != 0 && form != DELTA) {
            /* Greater or NaN: "not less or equal" would also take the largest where only w is NaN. */
            const floats largest = product(a, FLOATS(rule->a_scale));
            w = PICK(EITHER(IS_LESS(w, largest), IS_NAN(largest)), largest, w);
        }
    }
    return SQRT(w);
}

/* The denominators of the update. */
GW_TEMPLATE floats denominator_of(const gw_gcomp_map_rule *rule, floats v, floats a, floats root, int form)
{
    const floats eps = FLOATS(rule->eps);
    if (form == DELTA) {
        const floats above = flush(ADD(product(v, FLOATS(rule->s_scale)), eps));
        return SQRT(normal(DIV(above, ABOVE_ZERO(flush(ADD(a, eps))))));
    }
    return ADD(root, eps);
}

/* Quarter-octaves of a register of ratios, 0 where nothing may be dropped. s: the denominators. */
GW_TEMPLATE words tolerances(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                             uint32_t uses, floats s)
{
    const floats theta = load_state(state->param, i, 1);
    const floats m = load_state(state->m, i, (uses & GW_MAP_USES_M) != 0);
    const floats p_theta = product(theta, FLOATS(rule->p_param));
    const floats p_m = product(m, FLOATS(rule->p_m));
    const floats q_theta = product(theta, FLOATS(rule->q_param));
    const floats q_m = product(m, FLOATS(rule->q_m));
    const floats p = product(flush(SUB(p_theta, p_m)), s);
    const floats q = flush(ADD(q_theta, q_m));
    const floats terms = ADD(product(ADD(ABS(p_theta), ABS(p_m)), s), ADD(ABS(q_theta), ABS(q_m)));
    const floats guard = product(terms, FLOATS(0x1p-20f));
    const floats difference = SUB(p, q);
    floats ratio = SUB(ABS(difference), guard);
    if ((uses & GW_MAP_USES_M) != 0 && (rule->limits & GW_MAP_UPDATE) != 0) {
        const floats momentum = ADD(product(ABS(p_m), s), ABS(q_m));
        ratio = LESSER(product(momentum, FLOATS(rule->update)), ratio);
    }
    flags counts = is_ratio(ratio);
    if ((rule->limits & GW_MAP_RATES) != 0) {
        counts = BUT(counts, EITHER(DIFFER(difference, p_theta), IS_EQUAL(p_theta, FLOATS(0.0f))));
    }
    if ((uses & GW_MAP_USES_V) != 0) {
        /* Where |p| <= |q|, p and q are opposite if p is not zero and the signs differ. */
        const flags is_opposite = BOTH(DIFFER(p, q), IS_NOT_0(p));
        counts = BUT(counts, BUT(IS_LESS_EQUAL(ABS(p), ABS(q)), is_opposite));
    }
    return octaves(counts, ratio);
}

/* Quarter-octaves of a register of parameters: the smaller one where both limits count. */
GW_TEMPLATE words quarter_octaves(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                                  uint32_t uses, int form, uint32_t limits)
{
    floats s = FLOATS(1.0f);
    words noise = NO_WORDS;
    if ((uses & GW_MAP_USES_V) != 0) {
        const floats v = load_state(state->v, i, 1);
        const floats a = load_state(state->a, i, (uses & GW_MAP_USES_A) != 0);
        const floats root = root_of(rule, v, a, uses, form);
        s = denominator_of(rule, v, a, root, form);
        if ((limits & GW_MAP_NOISE) != 0) {
            const floats ratio = product(root, FLOATS(rule->noise));
            noise = octaves(is_ratio(ratio), ratio);
        }
    }
    if ((limits & GW_MAP_TOLERANCE) == 0) {
        return noise;
    }
    const words tolerance = tolerances(rule, state, i, uses, s);
    return (limits & GW_MAP_NOISE) != 0 ? WORDS_MIN(noise, tolerance) : tolerance;
}

/* Both passes: the largest quarter-octaves, and map bytes if map_bytes is not NULL. len: of whole groups. */
GW_TEMPLATE words map_groups(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                             uint32_t base, uint8_t *map_bytes, uint32_t uses, int form, uint32_t limits)
{
    words top = NO_WORDS;
    for (size_t i = 0; i < len; i += GROUP_LEN) {
        words q[REGISTERS];
        for (unsigned j = 0; j < REGISTERS; j++) {
            q[j] = quarter_octaves(rule, state, i + LANES * j, uses, form, limits);
        }
        if (map_bytes != NULL) {
            store_map_bytes(map_bytes + i, q, base);
            continue;
        }
        for (unsigned j = 0; j < REGISTERS; j++) {
            top = WORDS_MAX(top, q[j]);
        }
    }
    return top;
}

static words map_tolerance(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                           uint32_t base, uint8_t *map_bytes)
{
    const int is_centered = rule->kind == GW_OPTIMIZER_RMSPROP && (rule->uses & GW_MAP_USES_A) != 0;
    const uint32_t m = GW_MAP_USES_M, v = GW_MAP_USES_V, a = GW_MAP_USES_A, limits = GW_MAP_TOLERANCE;
    switch (rule->uses & (m | v | a)) {
    case 0:
    case GW_MAP_USES_A:
        return map_groups(rule, state, len, base, map_bytes, 0, PLAIN, limits);
    case GW_MAP_USES_M:
    case GW_MAP_USES_M | GW_MAP_USES_A:
        return map_groups(rule, state, len, base, map_bytes, m, PLAIN, limits);
    case GW_MAP_USES_V:
        return map_groups(rule, state, len, base, map_bytes, v, PLAIN, limits);
    case GW_MAP_USES_M | GW_MAP_USES_V:
        return map_groups(rule, state, len, base, map_bytes, m | v, PLAIN, limits);
    case GW_MAP_USES_V | GW_MAP_USES_A:
        return is_centered ? map_groups(rule, state, len, base, map_bytes, v | a, CENTERED, limits)
                           : map_groups(rule, state, len, base, map_bytes, v | a, PLAIN, limits);
    default:
        return is_centered ? map_groups(rule, state, len, base, map_bytes, m | v | a, CENTERED, limits)
                           : map_groups(rule, state, len, base, map_bytes, m | v | a, PLAIN, limits);
    }
}

/* Rules with a noise limit: all use v. */
GW_TEMPLATE words map_noise(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                            uint32_t base, uint8_t *map_bytes, uint32_t limits)
{
    const int is_centered = rule->kind == GW_OPTIMIZER_RMSPROP;
    const uint32_t m = (limits & GW_MAP_TOLERANCE) != 0 ? GW_MAP_USES_M : 0;
    const uint32_t v = GW_MAP_USES_V, a = GW_MAP_USES_A;
    switch (rule->uses & (m | a)) {
    case 0:
        return map_groups(rule, state, len, base, map_bytes, v, PLAIN, limits);
    case GW_MAP_USES_M:
        return map_groups(rule, state, len, base, map_bytes, m | v, PLAIN, limits);
    case GW_MAP_USES_A:
        return is_centered ? map_groups(rule, state, len, base, map_bytes, v | a, CENTERED, limits)
                           : map_groups(rule, state, len, base, map_bytes, v | a, PLAIN, limits);
    default:
        return is_centered ? map_groups(rule, state, len, base, map_bytes, m | v | a, CENTERED, limits)
                           : map_groups(rule, state, len, base, map_bytes, m | v | a, PLAIN, limits);
    }
}

static words map_whole_groups(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                              uint32_t base, uint8_t *map_bytes)
{
    if (rule->kind == GW_OPTIMIZER_ADAMAX) {
        return map_groups(rule, state, len, base, map_bytes, rule->uses, NORM, rule->limits);
    }
    if (rule->kind == GW_OPTIMIZER_ADADELTA) {
        return map_groups(rule, state, len, base, map_bytes, rule->uses, DELTA, rule->limits);
    }
    switch (rule->limits & GW_MAP_SWITCHED) {
    case GW_MAP_TOLERANCE:
        return map_tolerance(rule, state, len, base, map_bytes);
    case GW_MAP_NOISE:
        return map_noise(rule, state, len, base, map_bytes, GW_MAP_NOISE);
    default:
        return map_noise(rule, state, len, base, map_bytes, GW_MAP_TOLERANCE | GW_MAP_NOISE);
    }
}

/* The last parameters, padded with zeros, which drop nothing. */
typedef struct last_group {
    float array[4][GROUP_LEN];
    gw_optimizer_state state;
} last_group;

static void fill_last(last_group *last, const gw_gcomp_map_rule *rule, const gw_optimizer_state *state,
                      size_t at, size_t len)
{
    const float *from[4] = {state->param, state->m, state->v, state->a};
    const int has_tolerance = (rule->limits & GW_MAP_TOLERANCE) != 0;
    const int is_used[4] = {has_tolerance, has_tolerance && (rule->uses & GW_MAP_USES_M) != 0,
                            (rule->uses & GW_MAP_USES_V) != 0, (rule->uses & GW_MAP_USES_A) != 0};
    GW_MEMSET(last, 0, sizeof *last);
    for (unsigned j = 0; j < 4; j++) {
        if (is_used[j]) {
            GW_MEMCPY(last->array[j], (const uint8_t *)(const void *)from[j] + 4 * at, 4 * len);
        }
    }
    last->state = *state;
    last->state.param = last->array[0];
    last->state.m = last->array[1];
    last->state.v = last->array[2];
    last->state.a = last->array[3];
}

/* The kernels. */
static uint32_t map_scan(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    const size_t whole = len - len % GROUP_LEN;
    words top = map_whole_groups(rule, state, whole, 0, NULL);
    if (whole != len) {
        last_group last;
        fill_last(&last, rule, state, whole, len - whole);
        top = WORDS_MAX(top, map_whole_groups(rule, &last.state, GROUP_LEN, 0, NULL));
    }
    return largest_of(top);
}

static void map_build(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                      uint32_t base, uint8_t *map_bytes)
{
    const size_t whole = len - len % GROUP_LEN;
    map_whole_groups(rule, state, whole, base, map_bytes);
    if (whole != len) {
        uint8_t last_map_bytes[GROUP_LEN];
        last_group last;
        fill_last(&last, rule, state, whole, len - whole);
        map_whole_groups(rule, &last.state, GROUP_LEN, base, last_map_bytes);
        GW_MEMCPY(map_bytes + whole, last_map_bytes, len - whole);
    }
}

#endif
