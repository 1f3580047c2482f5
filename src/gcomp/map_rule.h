/*
 * Bits of gw_gcomp_map_rule.uses: which arrays of the optimizer's state a map reads.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MAP_RULE_H
#define GW_MAP_RULE_H

enum { GW_MAP_USES_M = 1, GW_MAP_USES_V = 2, GW_MAP_USES_A = 4 };

#endif
