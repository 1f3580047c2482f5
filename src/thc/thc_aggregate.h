/*
 * The inside of an aggregator, and contributor sets: bit r of the set is bit r % 8 of byte r / 8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_AGGREGATE_H
#define GW_THC_AGGREGATE_H

#include "core/kernels.h"
#include "gradwire/thc.h"

#define GW_THC_AGG_TAG 0x41485447u /* "GTHA" */

typedef struct gw_thc_agg_state {
    uint32_t tag; /* GW_THC_AGG_TAG once initialised */
    uint32_t worker_max;
    uint32_t lane_bits;
    gw_thc_table table;
#if !defined(GW_FIRMWARE)
    gw_thc_kernels kernels;
#endif
} gw_thc_agg_state;

_Static_assert(sizeof(gw_thc_agg_state) <= sizeof(gw_thc_agg), "gw_thc_agg has room for the handle");

/* The inside of a handle, NULL if it was never initialised. */
static inline const gw_thc_agg_state *gw_thc_agg_state_of(const gw_thc_agg *agg)
{
    const gw_thc_agg_state *state = (const gw_thc_agg_state *)(const void *)agg;
    return state != NULL && state->tag == GW_THC_AGG_TAG ? state : NULL;
}

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

/* gw_thc_agg_add_indices() and gw_thc_agg_add_lanes() with arguments that are known to be there. */
gw_status gw_thc_sum_indices(const gw_thc_agg_state *state, const gw_thc_partial *sum, const uint8_t *indices,
                             uint32_t rank);
gw_status gw_thc_sum_lanes(const gw_thc_agg_state *state, const gw_thc_partial *sum, const uint8_t *in_lanes,
                           const uint8_t *in_set);

/* 1 if two sets share a member. */
int gw_thc_sets_meet(const uint8_t *a, const uint8_t *b, uint32_t worker_max);

/* set |= other. */
void gw_thc_set_join(uint8_t *set, const uint8_t *other, uint32_t worker_max);

/* set without the members of other, which are all in it. */
static inline void gw_thc_set_leave(uint8_t *set, const uint8_t *other, uint32_t worker_max)
{
    for (size_t i = 0; i < GW_THC_SET_SIZE(worker_max); i++) {
        set[i] &= (uint8_t)~other[i];
    }
}

#endif
