/*
 * Precision map: one byte per parameter from the ratio of gcomp/map_ratio.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/gcomp_kernels.h"
#include "gcomp/map_ratio.h"

static inline float load(const float *src, size_t i)
{
    return gw_map_flush(gw_float_from_bits(gw_load32((const uint8_t *)src + 4 * i)));
}

static inline uint32_t quarter_octave(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state,
                                      size_t i)
{
    float m = (rule->uses & GW_MAP_USES_M) != 0 ? load(state->m, i) : 0.0f;
    float v = (rule->uses & GW_MAP_USES_V) != 0 ? load(state->v, i) : 0.0f;
    float a = (rule->uses & GW_MAP_USES_A) != 0 ? load(state->a, i) : 0.0f;
    return gw_map_quarter_octave(rule, load(state->param, i), m, v, a);
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

void gw_map_build_scalar(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                         uint32_t base, uint8_t *levels)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t q = quarter_octave(rule, state, i);
        uint32_t k = q <= base ? 0 : q - base; /* K + base - 1 is a whole quarter-octave below */
        levels[i] = (uint8_t)gw_min_u32(k, 255);
    }
}
