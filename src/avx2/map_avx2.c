/*
 * Precision map: the arithmetic of gcomp/map_ratio.h, operation by operation, on eight parameters at a time
 * (docs/numerics.md section 2).
 *
 * 60 to 110 operations on eight parameters, the square root being one of nine cycles: 2 to 4.5 cycles a
 * parameter (4.3 measured on Zen 4 with all four arrays). The state of an optimizer is 8 to 16 bytes a
 * parameter and does not fit caches: memory, at about 4 bytes a cycle, is as slow.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include <float.h>
#include <immintrin.h>

#include "gcomp/map_rule.h"

enum { LANES = 8, GROUP_LEN = 32 };

/* Which formula the second moment has; all but the last two are chosen when compiled. */
enum { PLAIN = 0, CENTERED = 1, NORM = 2, DELTA = 3 }; /* NORM: Adamax, DELTA: Adadelta */

static inline __m256 flush(__m256 x)
{
    const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7f800000));
    const __m256i is_tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_andnot_si256(is_tiny, _mm256_castps_si256(x)));
}

static inline __m256 magnitude(__m256 x)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

static inline __m256 product(__m256 x, __m256 y)
{
    const __m256 z = _mm256_mul_ps(x, y);
    const __m256i is_kept =
        _mm256_cmpgt_epi32(_mm256_castps_si256(magnitude(z)), _mm256_set1_epi32(0x00800000));
    return _mm256_and_ps(z, _mm256_castsi256_ps(is_kept));
}

static inline __m256 quotient(__m256 x, __m256 y)
{
    const __m256 z = _mm256_div_ps(x, y);
    const __m256i is_kept =
        _mm256_cmpgt_epi32(_mm256_castps_si256(magnitude(z)), _mm256_set1_epi32(0x00800000));
    return _mm256_and_ps(z, _mm256_castsi256_ps(is_kept));
}

/* 8 numbers of an array that the rule uses. */
GW_TEMPLATE __m256 load_state(const float *src, size_t i, int is_used)
{
    if (!is_used) {
        return _mm256_setzero_ps();
    }
    const uint8_t *from = (const uint8_t *)(const void *)src + 4 * i;
    return flush(_mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)from)));
}

/* Square root of a lower bound of the second moment after the update. */
GW_TEMPLATE __m256 root_of(const gw_gcomp_map_rule *rule, __m256 v, __m256 a, uint32_t uses, int form)
{
    const __m256 zero = _mm256_setzero_ps();
    __m256 w;
    if (form == NORM) {
        w = product(v, _mm256_set1_ps(rule->s_scale));
        return _mm256_andnot_ps(_mm256_cmp_ps(w, zero, _CMP_LE_OQ), w);
    }
    if (form == CENTERED) {
        const __m256 square = product(a, a);
        const __m256 error = product(_mm256_add_ps(v, square), _mm256_set1_ps(0x1p-21f));
        w = flush(_mm256_sub_ps(flush(_mm256_sub_ps(v, square)), error));
        w = _mm256_andnot_ps(_mm256_cmp_ps(error, zero, _CMP_EQ_OQ), w);
        const __m256 is_none = _mm256_and_ps(_mm256_cmp_ps(w, zero, _CMP_LE_OQ),
                                             _mm256_cmp_ps(w, _mm256_set1_ps(-FLT_MAX), _CMP_GE_OQ));
        w = _mm256_andnot_ps(is_none, product(w, _mm256_set1_ps(rule->s_scale)));
    } else {
        w = product(v, _mm256_set1_ps(rule->s_scale));
        if ((uses & GW_MAP_USES_A) != 0 && form != DELTA) {
            const __m256 largest = product(a, _mm256_set1_ps(rule->a_scale));
            const __m256 is_largest = _mm256_or_ps(_mm256_cmp_ps(largest, w, _CMP_GT_OQ),
                                                   _mm256_cmp_ps(largest, largest, _CMP_UNORD_Q));
            w = _mm256_blendv_ps(w, largest, is_largest);
        }
    }
    return _mm256_sqrt_ps(w);
}

/* The denominators of the update. */
GW_TEMPLATE __m256 denominator_of(const gw_gcomp_map_rule *rule, __m256 v, __m256 a, __m256 root, int form)
{
    const __m256 eps = _mm256_set1_ps(rule->eps);
    if (form == DELTA) {
        const __m256 above = flush(_mm256_add_ps(product(v, _mm256_set1_ps(rule->s_scale)), eps));
        const __m256 below = _mm256_max_ps(_mm256_setzero_ps(), flush(_mm256_add_ps(a, eps))); /* keeps NaN */
        return _mm256_sqrt_ps(quotient(above, below));
    }
    return _mm256_add_ps(root, eps);
}

/* Which of eight ratios count: normal numbers above 0. */
static inline __m256i is_ratio(__m256i ratio)
{
    return _mm256_and_si256(_mm256_cmpgt_epi32(ratio, _mm256_set1_epi32(0x007fffff)),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), ratio));
}

/* Quarter-octaves of eight ratios, 0 where nothing may be dropped. s: the denominators. */
GW_TEMPLATE __m256i tolerances(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                               uint32_t uses, __m256 s)
{
    const __m256 zero = _mm256_setzero_ps();
    const __m256 theta = load_state(state->param, i, 1);
    const __m256 m = load_state(state->m, i, (uses & GW_MAP_USES_M) != 0);
    const __m256 p_theta = product(theta, _mm256_set1_ps(rule->p_param));
    const __m256 p_m = product(m, _mm256_set1_ps(rule->p_m));
    const __m256 q_theta = product(theta, _mm256_set1_ps(rule->q_param));
    const __m256 q_m = product(m, _mm256_set1_ps(rule->q_m));
    const __m256 p = product(flush(_mm256_sub_ps(p_theta, p_m)), s);
    const __m256 q = flush(_mm256_add_ps(q_theta, q_m));
    const __m256 terms = _mm256_add_ps(product(_mm256_add_ps(magnitude(p_theta), magnitude(p_m)), s),
                                       _mm256_add_ps(magnitude(q_theta), magnitude(q_m)));
    const __m256 guard = product(terms, _mm256_set1_ps(0x1p-20f));
    const __m256 difference = _mm256_sub_ps(p, q);
    __m256 r = _mm256_sub_ps(magnitude(difference), guard);
    if ((uses & GW_MAP_USES_M) != 0 && (rule->limits & GW_MAP_UPDATE) != 0) {
        const __m256 momentum = _mm256_add_ps(product(magnitude(p_m), s), magnitude(q_m));
        r = _mm256_min_ps(product(momentum, _mm256_set1_ps(rule->update)), r); /* r if either is NaN */
    }
    const __m256i ratio = _mm256_castps_si256(r);
    __m256i counts = is_ratio(ratio);
    if ((rule->limits & GW_MAP_RATES) != 0) {
        const __m256i differ = _mm256_castps_si256(_mm256_xor_ps(difference, p_theta));
        counts = _mm256_andnot_si256(_mm256_srai_epi32(differ, 31), counts);
        counts = _mm256_and_si256(counts, _mm256_castps_si256(_mm256_cmp_ps(p_theta, zero, _CMP_NEQ_OQ)));
    }
    if ((uses & GW_MAP_USES_V) != 0) {
        const __m256 is_opposite = _mm256_or_ps(
            _mm256_and_ps(_mm256_cmp_ps(p, zero, _CMP_GT_OQ), _mm256_cmp_ps(q, zero, _CMP_LT_OQ)),
            _mm256_and_ps(_mm256_cmp_ps(p, zero, _CMP_LT_OQ), _mm256_cmp_ps(q, zero, _CMP_GT_OQ)));
        const __m256 is_less = _mm256_cmp_ps(magnitude(p), magnitude(q), _CMP_LE_OQ);
        counts = _mm256_andnot_si256(_mm256_castps_si256(_mm256_andnot_ps(is_opposite, is_less)), counts);
    }
    return _mm256_and_si256(_mm256_srli_epi32(ratio, 21), counts);
}

/* Quarter-octaves of eight parameters: the smaller one where both limits count. */
GW_TEMPLATE __m256i quarter_octaves(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t i,
                                    uint32_t uses, int form, uint32_t limits)
{
    __m256 s = _mm256_set1_ps(1.0f);
    __m256i noise = _mm256_setzero_si256();
    if ((uses & GW_MAP_USES_V) != 0) {
        const __m256 v = load_state(state->v, i, 1);
        const __m256 a = load_state(state->a, i, (uses & GW_MAP_USES_A) != 0);
        const __m256 root = root_of(rule, v, a, uses, form);
        s = denominator_of(rule, v, a, root, form);
        if ((limits & GW_MAP_NOISE) != 0) {
            const __m256i ratio = _mm256_castps_si256(product(root, _mm256_set1_ps(rule->noise)));
            noise = _mm256_and_si256(_mm256_srli_epi32(ratio, 21), is_ratio(ratio));
        }
    }
    if ((limits & GW_MAP_TOLERANCE) == 0) {
        return noise;
    }
    const __m256i tolerance = tolerances(rule, state, i, uses, s);
    return (limits & GW_MAP_NOISE) != 0 ? _mm256_min_epi32(noise, tolerance) : tolerance;
}

/* Both passes: the largest quarter-octave so far, and map bytes if levels is not NULL. len is a multiple of
 * 32. */
GW_TEMPLATE __m256i map_groups(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                               uint32_t base, uint8_t *levels, uint32_t uses, int form, uint32_t limits)
{
    const __m256i minus = _mm256_set1_epi16((short)(base < 1024 ? base : 1024));
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < len; i += GROUP_LEN) {
        __m256i q[4];
        for (unsigned j = 0; j < 4; j++) {
            q[j] = quarter_octaves(rule, state, i + LANES * j, uses, form, limits);
        }
        if (levels == NULL) {
            top = _mm256_max_epi32(
                top, _mm256_max_epi32(_mm256_max_epi32(q[0], q[1]), _mm256_max_epi32(q[2], q[3])));
        } else {
            const __m256i low = _mm256_subs_epu16(_mm256_packus_epi32(q[0], q[1]), minus);
            const __m256i high = _mm256_subs_epu16(_mm256_packus_epi32(q[2], q[3]), minus);
            /* Packing works within halves: groups of four bytes have to be reordered. */
            const __m256i k = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                                          _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            _mm256_storeu_si256((__m256i *)(void *)(levels + i), k);
        }
    }
    return top;
}

static __m256i map_tolerance(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                             uint32_t base, uint8_t *levels)
{
    const int is_centered = rule->kind == GW_OPTIMIZER_RMSPROP && (rule->uses & GW_MAP_USES_A) != 0;
    const uint32_t m = GW_MAP_USES_M, v = GW_MAP_USES_V, a = GW_MAP_USES_A, limits = GW_MAP_TOLERANCE;
    switch (rule->uses & (m | v | a)) {
    case 0:
    case GW_MAP_USES_A:
        return map_groups(rule, state, len, base, levels, 0, 0, limits);
    case GW_MAP_USES_M:
    case GW_MAP_USES_M | GW_MAP_USES_A:
        return map_groups(rule, state, len, base, levels, m, 0, limits);
    case GW_MAP_USES_V:
        return map_groups(rule, state, len, base, levels, v, 0, limits);
    case GW_MAP_USES_M | GW_MAP_USES_V:
        return map_groups(rule, state, len, base, levels, m | v, 0, limits);
    case GW_MAP_USES_V | GW_MAP_USES_A:
        return is_centered ? map_groups(rule, state, len, base, levels, v | a, 1, limits)
                           : map_groups(rule, state, len, base, levels, v | a, 0, limits);
    default:
        return is_centered ? map_groups(rule, state, len, base, levels, m | v | a, 1, limits)
                           : map_groups(rule, state, len, base, levels, m | v | a, 0, limits);
    }
}

/* Rules with a noise limit: all use v. */
GW_TEMPLATE __m256i map_noise(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                              uint32_t base, uint8_t *levels, uint32_t limits)
{
    const int is_centered = rule->kind == GW_OPTIMIZER_RMSPROP;
    const uint32_t m = (limits & GW_MAP_TOLERANCE) != 0 ? GW_MAP_USES_M : 0;
    const uint32_t v = GW_MAP_USES_V, a = GW_MAP_USES_A;
    switch (rule->uses & (m | a)) {
    case 0:
        return map_groups(rule, state, len, base, levels, v, 0, limits);
    case GW_MAP_USES_M:
        return map_groups(rule, state, len, base, levels, m | v, 0, limits);
    case GW_MAP_USES_A:
        return is_centered ? map_groups(rule, state, len, base, levels, v | a, 1, limits)
                           : map_groups(rule, state, len, base, levels, v | a, 0, limits);
    default:
        return is_centered ? map_groups(rule, state, len, base, levels, m | v | a, 1, limits)
                           : map_groups(rule, state, len, base, levels, m | v | a, 0, limits);
    }
}

static __m256i map_whole_groups(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                                uint32_t base, uint8_t *levels)
{
    if (rule->kind == GW_OPTIMIZER_ADAMAX) {
        return map_groups(rule, state, len, base, levels, rule->uses, NORM, rule->limits);
    }
    if (rule->kind == GW_OPTIMIZER_ADADELTA) {
        return map_groups(rule, state, len, base, levels, rule->uses, DELTA, rule->limits);
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

uint32_t gw_map_scan_avx2(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    const size_t whole = len - len % GROUP_LEN;
    __m256i top = map_whole_groups(rule, state, whole, 0, NULL);
    if (whole != len) {
        last_group last;
        fill_last(&last, rule, state, whole, len - whole);
        top = _mm256_max_epi32(top, map_whole_groups(rule, &last.state, GROUP_LEN, 0, NULL));
    }
    uint32_t lane[LANES], largest = 0;
    _mm256_storeu_si256((__m256i *)(void *)lane, top);
    for (unsigned j = 0; j < LANES; j++) {
        largest = lane[j] > largest ? lane[j] : largest;
    }
    return largest;
}

void gw_map_build_avx2(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                       uint32_t base, uint8_t *levels)
{
    const size_t whole = len - len % GROUP_LEN;
    map_whole_groups(rule, state, whole, base, levels);
    if (whole != len) {
        uint8_t last_levels[GROUP_LEN];
        last_group last;
        fill_last(&last, rule, state, whole, len - whole);
        map_whole_groups(rule, &last.state, GROUP_LEN, base, last_levels);
        GW_MEMCPY(levels + whole, last_levels, len - whole);
    }
}

#else
typedef int gw_map_avx2_not_built; /* a translation unit must not be empty */
#endif
