/*
 * Precision map rules as the kernels get them: bits of gw_gcomp_map_rule.uses, and what makes a rule valid.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MAP_RULE_H
#define GW_MAP_RULE_H

#include "core/bytes.h"
#include "gradwire/gcomp.h"

/* Which arrays of the optimizer's state a map reads. */
enum { GW_MAP_USES_M = 1, GW_MAP_USES_V = 2, GW_MAP_USES_A = 4 };

/* A normal number > 0. */
static inline int gw_is_wire_scale(float x)
{
    const uint32_t bits = gw_bits_from_float(x);
    return bits >= 0x00800000u && bits < 0x7f800000u;
}

/* 1 unless the rule is one that gw_gcomp_map_rule_init() cannot make. For such a rule (unknown bits, a
 * maximum without a second moment, subnormal factors) the kernels of two backends may make different maps. */
static inline int gw_map_rule_is_valid(const gw_gcomp_map_rule *rule)
{
    const float factor[] = {rule->p_param, rule->p_m, rule->q_param, rule->q_m,
                            rule->s_scale, rule->eps, rule->a_scale};
    const uint32_t uses = rule->uses;
    for (unsigned i = 0; i < sizeof factor / sizeof factor[0]; i++) {
        const uint32_t magnitude = gw_bits_from_float(factor[i]) & 0x7fffffffu;
        if (magnitude != 0 && magnitude < 0x00800000u) {
            return 0;
        }
    }
    return rule->kind >= GW_OPTIMIZER_SGD && rule->kind <= GW_OPTIMIZER_ADAMW &&
           uses <= (GW_MAP_USES_M | GW_MAP_USES_V | GW_MAP_USES_A) &&
           ((uses & GW_MAP_USES_A) == 0 || (uses & GW_MAP_USES_V) != 0) && gw_is_wire_scale(rule->wire_scale);
}

#endif
