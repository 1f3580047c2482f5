/*
 * The memory of a parameter server.
 *
 *   slot      gw_thc_slot, then the arrays of version 0, then those of version 1
 *   version   the packet as it will go down (48 bytes of header, contributor set, lanes), then the set of
 *             workers seen
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_SERVER_H
#define GW_THC_SERVER_H

#include "thc/thc_aggregate.h"

#define GW_THC_SERVER_TAG 0x53485447u /* "GTHS" */

enum { GW_THC_VERSION_EMPTY = 0, GW_THC_VERSION_OPEN = 1, GW_THC_VERSION_CLOSED = 2 };

/* What the packets of a version must have in common. */
typedef struct gw_thc_version {
    uint64_t norms_hash;
    uint32_t round;
    uint32_t block_first;
    uint32_t len;
    uint16_t block_count;
    uint16_t state;
} gw_thc_version;

typedef struct gw_thc_slot {
    gw_thc_version version[2];
    uint32_t current; /* 0 or 1 */
    uint32_t unused;
} gw_thc_slot;

typedef struct gw_thc_server_state {
    uint32_t tag; /* GW_THC_SERVER_TAG once initialised */
    uint32_t set_size;
    uint8_t result_type;
    size_t version_size;
    size_t slot_size;
    uint8_t *memory;
    gw_thc_server_options options;
    gw_thc_agg_state agg;
} gw_thc_server_state;

_Static_assert(sizeof(gw_thc_server_state) <= sizeof(gw_thc_server), "gw_thc_server has room for the handle");

static inline const gw_thc_server_state *gw_thc_server_inside(const gw_thc_server *server)
{
    return (const gw_thc_server_state *)(const void *)server;
}

/* The inside of a handle, NULL if it was never initialised. */
static inline const gw_thc_server_state *gw_thc_server_state_of(const gw_thc_server *server)
{
    const gw_thc_server_state *state = gw_thc_server_inside(server);
    return state != NULL && state->tag == GW_THC_SERVER_TAG ? state : NULL;
}

#endif
