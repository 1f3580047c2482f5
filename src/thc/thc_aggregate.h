/*
 * Contributor sets: bit r of the set is bit r % 8 of byte r / 8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_AGGREGATE_H
#define GW_THC_AGGREGATE_H

#include "gradwire/thc.h"

static inline int gw_set_has(const uint8_t *set, uint32_t rank)
{
    return (set[rank / 8] >> (rank % 8) & 1) != 0;
}

static inline void gw_set_put(uint8_t *set, uint32_t rank)
{
    set[rank / 8] = (uint8_t)(set[rank / 8] | 1u << (rank % 8));
}

static inline void gw_set_drop(uint8_t *set, uint32_t rank)
{
    set[rank / 8] = (uint8_t)(set[rank / 8] & ~(1u << (rank % 8)));
}

/* 1 if two sets share a member. */
int gw_thc_sets_meet(const uint8_t *a, const uint8_t *b, uint32_t worker_max);

/* set |= other. */
void gw_thc_set_join(uint8_t *set, const uint8_t *other, uint32_t worker_max);

/* Whether a partial sum may join a sum with this set: all checks of gw_thc_agg_add_lanes(), nothing added. */
gw_status gw_thc_agg_check_lanes(const gw_thc_agg *agg, const uint8_t *set, size_t len,
                                 const uint8_t *in_lanes, const uint8_t *in_set);

#endif
