/*
 * Precision map: one byte per parameter from the ratio of gcomp/map_ratio.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "gcomp/map_ratio.h"

uint32_t gw_map_scan_scalar(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    uint32_t top = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t q = gw_map_quarter_octave_at(rule, state, i);
        top = q > top ? q : top;
    }
    return top;
}

void gw_map_build_scalar(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                         uint32_t base, uint8_t *map_bytes)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t q = gw_map_quarter_octave_at(rule, state, i);
        map_bytes[i] = gw_map_byte(q, base);
    }
}
