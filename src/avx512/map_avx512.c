/*
 * Precision map: the arithmetic of the scalar kernel, operation by operation, on 16 parameters at a time
 * (docs/numerics.md section 2). Conditions of the scalar code are masks here.
 *
 * One loop for each set of state arrays, so that what a rule does not use costs nothing.
 *
 * Bound on Zen 4: with all four arrays some 75 operations on 16 parameters at 2 a cycle, and a square root of
 * 10 cycles beside them: 2.5 cycles/parameter; the 16 bytes of state that a parameter then has take 2 to 3
 * from memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <float.h>
#include <immintrin.h>

#include "gcomp/map_rule.h"

enum { LANES = 16 };

/* Which formula the second moment has; all but the last two are chosen when compiled. */
enum { PLAIN = 0, CENTERED = 1, NORM = 2, DELTA = 3 }; /* NORM: Adamax, DELTA: Adadelta */

static inline __m512 flush(__m512 x)
{
    return _mm512_maskz_mov_ps(_mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000)),
                               x);
}

static inline __m512 magnitude(__m512 x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

static inline __m512 product(__m512 x, __m512 y)
{
    const __m512 z = _mm512_mul_ps(x, y);
    return _mm512_maskz_mov_ps(
        _mm512_cmpgt_epi32_mask(_mm512_castps_si512(magnitude(z)), _mm512_set1_epi32(0x00800000)), z);
}

static inline __m512 quotient(__m512 x, __m512 y)
{
    const __m512 z = _mm512_div_ps(x, y);
    return _mm512_maskz_mov_ps(
        _mm512_cmpgt_epi32_mask(_mm512_castps_si512(magnitude(z)), _mm512_set1_epi32(0x00800000)), z);
}

/* 16 numbers of an array that the rule uses, those of `valid`; the others are 0. */
GW_TEMPLATE __m512 load_state(const float *src, size_t i, __mmask16 valid, int is_used)
{
    if (!is_used) {
        return _mm512_setzero_ps();
    }
    return flush(
        _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(valid, (const uint8_t *)(const void *)src + 4 * i)));
}

/* Square root of a lower bound of the second moment after the update. */
GW_TEMPLATE __m512 root_of(const gw_gcomp_map_rule *rule, __m512 v, __m512 a, uint32_t uses, int form)
{
    const __m512 zero = _mm512_setzero_ps();
    __m512 w;
    if (form == NORM) {
        w = product(v, _mm512_set1_ps(rule->s_scale));
        return _mm512_mask_mov_ps(w, _mm512_cmp_ps_mask(w, zero, _CMP_LE_OQ), zero);
    }
    if (form == CENTERED) {
        const __m512 square = product(a, a);
        const __m512 error = product(_mm512_add_ps(v, square), _mm512_set1_ps(0x1p-21f));
        w = flush(_mm512_sub_ps(flush(_mm512_sub_ps(v, square)), error));
        w = _mm512_mask_mov_ps(w, _mm512_cmp_ps_mask(error, zero, _CMP_EQ_OQ), zero);
        const __mmask16 is_none = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(w, zero, _CMP_LE_OQ), w,
                                                          _mm512_set1_ps(-FLT_MAX), _CMP_GE_OQ);
        w = _mm512_mask_mov_ps(product(w, _mm512_set1_ps(rule->s_scale)), is_none, zero);
    } else {
        w = product(v, _mm512_set1_ps(rule->s_scale));
        if ((uses & GW_MAP_USES_A) != 0 && form != DELTA) {
            /* Greater or NaN: "not less or equal" would also take the largest where only w is NaN. */
            const __m512 largest = product(a, _mm512_set1_ps(rule->a_scale));
            w = _mm512_mask_mov_ps(w, _mm512_cmp_ps_mask(largest, w, _CMP_GT_OQ), largest);
            w = _mm512_mask_mov_ps(w, _mm512_cmp_ps_mask(largest, largest, _CMP_UNORD_Q), largest);
        }
    }
    return _mm512_sqrt_ps(w);
}

/* The denominators of the update. */
GW_TEMPLATE __m512 denominator_of(const gw_gcomp_map_rule *rule, __m512 v, __m512 a, __m512 root, int form)
{
    const __m512 eps = _mm512_set1_ps(rule->eps);
    if (form == DELTA) {
        const __m512 above = flush(_mm512_add_ps(product(v, _mm512_set1_ps(rule->s_scale)), eps));
        const __m512 below = _mm512_max_ps(_mm512_setzero_ps(), flush(_mm512_add_ps(a, eps))); /* keeps NaN */
        return _mm512_sqrt_ps(quotient(above, below));
    }
    return _mm512_add_ps(root, eps);
}

/* Which of 16 ratios count: normal numbers above 0. */
static inline __mmask16 is_ratio(__mmask16 valid, __m512i ratio)
{
    return _mm512_mask_cmplt_epu32_mask(valid, _mm512_sub_epi32(ratio, _mm512_set1_epi32(0x00800000)),
                                        _mm512_set1_epi32(0x7f800000 - 0x00800000));
}

/* Quarter-octaves of 16 ratios, 0 where nothing may be dropped or `valid` is not set. s: the denominators. */
GW_TEMPLATE __m512i tolerances(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                               __mmask16 valid, uint32_t uses, __m512 s)
{
    const __m512 zero = _mm512_setzero_ps();
    const __m512 theta = load_state(state->param, i, valid, 1);
    const __m512 m = load_state(state->m, i, valid, (uses & GW_MAP_USES_M) != 0);
    const __m512 p_theta = product(theta, _mm512_set1_ps(rule->p_param));
    const __m512 p_m = product(m, _mm512_set1_ps(rule->p_m));
    const __m512 q_theta = product(theta, _mm512_set1_ps(rule->q_param));
    const __m512 q_m = product(m, _mm512_set1_ps(rule->q_m));
    const __m512 p = product(flush(_mm512_sub_ps(p_theta, p_m)), s);
    const __m512 q = flush(_mm512_add_ps(q_theta, q_m));
    const __m512 terms = _mm512_add_ps(product(_mm512_add_ps(magnitude(p_theta), magnitude(p_m)), s),
                                       _mm512_add_ps(magnitude(q_theta), magnitude(q_m)));
    const __m512 guard = product(terms, _mm512_set1_ps(0x1p-20f));
    const __m512 difference = _mm512_sub_ps(p, q);
    __m512 r = _mm512_sub_ps(magnitude(difference), guard);
    if ((uses & GW_MAP_USES_M) != 0 && (rule->limits & GW_MAP_UPDATE) != 0) {
        const __m512 momentum = _mm512_add_ps(product(magnitude(p_m), s), magnitude(q_m));
        r = _mm512_min_ps(product(momentum, _mm512_set1_ps(rule->update)), r); /* r if either is NaN */
    }
    const __m512i ratio = _mm512_castps_si512(r);
    __mmask16 counts = is_ratio(valid, ratio);
    if ((rule->limits & GW_MAP_RATES) != 0) {
        const __m512i differ =
            _mm512_xor_si512(_mm512_castps_si512(difference), _mm512_castps_si512(p_theta));
        counts = _mm512_mask_cmp_ps_mask(counts, p_theta, zero, _CMP_NEQ_OQ);
        counts = _mm512_mask_cmpge_epi32_mask(counts, differ, _mm512_setzero_si512());
    }
    if ((uses & GW_MAP_USES_V) != 0) {
        const __mmask16 is_opposite =
            (__mmask16)(_mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(p, zero, _CMP_GT_OQ), q, zero,
                                                _CMP_LT_OQ) |
                        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(p, zero, _CMP_LT_OQ), q, zero,
                                                _CMP_GT_OQ));
        const __mmask16 is_less = _mm512_cmp_ps_mask(magnitude(p), magnitude(q), _CMP_LE_OQ);
        counts = (__mmask16)(counts & (is_opposite | (__mmask16)~is_less));
    }
    return _mm512_maskz_srli_epi32(counts, ratio, 21);
}

/* Quarter-octaves of 16 parameters: the smaller one where both limits count. */
GW_TEMPLATE __m512i quarter_octaves(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                                    __mmask16 valid, uint32_t uses, int form, uint32_t limits)
{
    __m512 s = _mm512_set1_ps(1.0f);
    __m512i noise = _mm512_setzero_si512();
    if ((uses & GW_MAP_USES_V) != 0) {
        const __m512 v = load_state(state->v, i, valid, 1);
        const __m512 a = load_state(state->a, i, valid, (uses & GW_MAP_USES_A) != 0);
        const __m512 root = root_of(rule, v, a, uses, form);
        s = denominator_of(rule, v, a, root, form);
        if ((limits & GW_MAP_NOISE) != 0) {
            const __m512i ratio = _mm512_castps_si512(product(root, _mm512_set1_ps(rule->noise)));
            noise = _mm512_maskz_srli_epi32(is_ratio(valid, ratio), ratio, 21);
        }
    }
    if ((limits & GW_MAP_TOLERANCE) == 0) {
        return noise;
    }
    const __m512i tolerance = tolerances(rule, state, i, valid, uses, s);
    return (limits & GW_MAP_NOISE) != 0 ? _mm512_min_epu32(noise, tolerance) : tolerance;
}

/* Both passes: the largest quarter-octave, and map bytes if levels is not NULL. */
GW_TEMPLATE uint32_t map_all(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                             uint32_t base, uint8_t *levels, uint32_t uses, int form, uint32_t limits)
{
    const __m512i least = _mm512_set1_epi32((int)base);
    __m512i top = _mm512_setzero_si512();
    for (size_t i = 0; i < len; i += LANES) {
        const __mmask16 valid = (__mmask16)(len - i >= LANES ? 0xffff : (1u << (len - i)) - 1);
        const __m512i q = quarter_octaves(rule, state, i, valid, uses, form, limits);
        if (levels == NULL) {
            top = _mm512_max_epu32(top, q);
        } else {
            const __m512i k = _mm512_sub_epi32(_mm512_max_epu32(q, least), least);
            _mm_mask_storeu_epi8(levels + i, valid, _mm512_cvtusepi32_epi8(k));
        }
    }
    return levels == NULL ? _mm512_reduce_max_epu32(top) : 0;
}

#define MAP_CASE(uses)                                                                                       \
    case (uses):                                                                                             \
        return map_all(rule, state, len, base, levels, (uses), 0, GW_MAP_TOLERANCE)

static uint32_t map_tolerance(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                              uint32_t base, uint8_t *levels)
{
    const int is_centered = rule->kind == GW_OPTIMIZER_RMSPROP && (rule->uses & GW_MAP_USES_A) != 0;
    const uint32_t m = GW_MAP_USES_M, v = GW_MAP_USES_V, a = GW_MAP_USES_A;
    if (is_centered) {
        /* Without a second moment it is not used. */
        switch (rule->uses) {
        case GW_MAP_USES_V | GW_MAP_USES_A:
            return map_all(rule, state, len, base, levels, v | a, 1, GW_MAP_TOLERANCE);
        case GW_MAP_USES_M | GW_MAP_USES_V | GW_MAP_USES_A:
            return map_all(rule, state, len, base, levels, m | v | a, 1, GW_MAP_TOLERANCE);
        default:
            break;
        }
    }
    switch (rule->uses) {
        MAP_CASE(0);
        MAP_CASE(GW_MAP_USES_M);
        MAP_CASE(GW_MAP_USES_V);
        MAP_CASE(GW_MAP_USES_M | GW_MAP_USES_V);
        MAP_CASE(GW_MAP_USES_A);
        MAP_CASE(GW_MAP_USES_M | GW_MAP_USES_A);
        MAP_CASE(GW_MAP_USES_V | GW_MAP_USES_A);
        MAP_CASE(GW_MAP_USES_M | GW_MAP_USES_V | GW_MAP_USES_A);
    default:
        return 0;
    }
}

/* Rules with a noise limit: all use v. */
GW_TEMPLATE uint32_t map_noise(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                               uint32_t base, uint8_t *levels, uint32_t limits)
{
    const int is_centered = rule->kind == GW_OPTIMIZER_RMSPROP;
    const uint32_t m = (limits & GW_MAP_TOLERANCE) != 0 ? GW_MAP_USES_M : 0;
    const uint32_t v = GW_MAP_USES_V, a = GW_MAP_USES_A;
    switch (rule->uses & (m | a)) {
    case 0:
        return map_all(rule, state, len, base, levels, v, 0, limits);
    case GW_MAP_USES_M:
        return map_all(rule, state, len, base, levels, m | v, 0, limits);
    case GW_MAP_USES_A:
        return is_centered ? map_all(rule, state, len, base, levels, v | a, 1, limits)
                           : map_all(rule, state, len, base, levels, v | a, 0, limits);
    default:
        return is_centered ? map_all(rule, state, len, base, levels, m | v | a, 1, limits)
                           : map_all(rule, state, len, base, levels, m | v | a, 0, limits);
    }
}

static uint32_t map_rule(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                         uint32_t base, uint8_t *levels)
{
    if (rule->kind == GW_OPTIMIZER_ADAMAX) {
        return map_all(rule, state, len, base, levels, rule->uses, NORM, rule->limits);
    }
    if (rule->kind == GW_OPTIMIZER_ADADELTA) {
        return map_all(rule, state, len, base, levels, rule->uses, DELTA, rule->limits);
    }
    switch (rule->limits & GW_MAP_SWITCHED) {
    case GW_MAP_TOLERANCE:
        return map_tolerance(rule, state, len, base, levels);
    case GW_MAP_NOISE:
        return map_noise(rule, state, len, base, levels, GW_MAP_NOISE);
    default:
        return map_noise(rule, state, len, base, levels, GW_MAP_TOLERANCE | GW_MAP_NOISE);
    }
}

uint32_t gw_map_scan_avx512(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    return map_rule(rule, state, len, 0, NULL);
}

void gw_map_build_avx512(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                         uint32_t base, uint8_t *levels)
{
    if (len != 0) {
        (void)map_rule(rule, state, len, base, levels);
    }
}

#else
typedef int gw_map_avx512_not_built; /* a translation unit must not be empty */
#endif
