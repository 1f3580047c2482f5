/*
 * Precision map rules as the kernels get them: bits of gw_gcomp_map_rule.uses and .limits, and what makes a
 * rule valid.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MAP_RULE_H
#define GW_MAP_RULE_H

#include "core/bytes.h"
#include "gradwire/gcomp.h"

/* Which arrays of the optimizer's state a map reads beside the parameters. */
enum { GW_MAP_USES_M = 1, GW_MAP_USES_V = 2, GW_MAP_USES_A = 4 };

/* gw_gcomp_map_rule.limits: which limits count. The parameters and m are read for the tolerance only, of
 * which the last two are part: RATES if the rate may be any smaller one than that of the factors, UPDATE if
 * the ratio is limited by the momentum's part of the update. */
enum { GW_MAP_TOLERANCE = 1, GW_MAP_NOISE = 2, GW_MAP_RATES = 4, GW_MAP_UPDATE = 8 };

/* The limits that kernels are compiled for; the others are read from the rule. */
#define GW_MAP_SWITCHED (GW_MAP_TOLERANCE | GW_MAP_NOISE)

/* A normal number > 0. */
static inline int gw_is_wire_scale(float x)
{
    const uint32_t bits = gw_bits_from_float(x);
    return bits >= 0x00800000u && bits < 0x7f800000u;
}

/* Arrays that the rules of an optimizer may read. */
static inline uint32_t gw_map_uses_allowed(uint32_t kind)
{
    switch (kind) {
    case GW_OPTIMIZER_SGD:
        return 0;
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV:
        return GW_MAP_USES_M;
    case GW_OPTIMIZER_ADAGRAD:
        return GW_MAP_USES_V;
    case GW_OPTIMIZER_NADAM:
    case GW_OPTIMIZER_RADAM:
    case GW_OPTIMIZER_ADAMAX:
        return GW_MAP_USES_M | GW_MAP_USES_V;
    case GW_OPTIMIZER_ADADELTA:
        return GW_MAP_USES_V | GW_MAP_USES_A;
    default:
        return GW_MAP_USES_M | GW_MAP_USES_V | GW_MAP_USES_A;
    }
}

/* 0 for an unknown kind, arrays that its optimizer does not have, a maximum or a noise limit without a second
 * moment, no limit, a subnormal factor, or a bad wire scale: for such a rule the kernels of two backends may
 * make different maps. */
static inline int gw_map_rule_is_valid(const gw_gcomp_map_rule *rule)
{
    const float factor[] = {rule->p_param, rule->p_m,     rule->q_param, rule->q_m,   rule->s_scale,
                            rule->eps,     rule->a_scale, rule->noise,   rule->update};
    const uint32_t uses = rule->uses, limits = rule->limits;
    const uint32_t needs_v = (limits & GW_MAP_NOISE) | (uses & GW_MAP_USES_A);
    for (unsigned i = 0; i < sizeof factor / sizeof factor[0]; i++) {
        const uint32_t magnitude = gw_bits_from_float(factor[i]) & 0x7fffffffu;
        if (magnitude != 0 && magnitude < 0x00800000u) {
            return 0;
        }
    }
    return rule->kind >= GW_OPTIMIZER_SGD && rule->kind <= GW_OPTIMIZER_ADADELTA &&
           (uses & ~gw_map_uses_allowed(rule->kind)) == 0 &&
           limits <= (GW_MAP_SWITCHED | GW_MAP_RATES | GW_MAP_UPDATE) &&
           ((limits & GW_MAP_TOLERANCE) != 0 || limits == GW_MAP_NOISE) &&
           (needs_v == 0 || (uses & GW_MAP_USES_V) != 0) && gw_is_wire_scale(rule->wire_scale);
}

#endif
