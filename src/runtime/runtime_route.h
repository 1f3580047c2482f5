/*
 * Who sends what to whom: all that A2A+AG and a ring do differently, but for the step itself.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RUNTIME_ROUTE_H
#define GW_RUNTIME_ROUTE_H

#include "runtime_exchange.h"

/* 1: this rank owns the piece. */
int gw_route_is_own(const gw_exchange *exchange, const gw_exchange_piece *piece);

/* Ring: the rank that all messages come from. */
uint32_t gw_route_left(const gw_exchange *exchange);

/* Messages that this rank's step on a piece reads beside its own values. */
typedef struct gw_route_inputs {
    gw_gcomp_frame *at; /* as the step takes them: by rank, or the left neighbour's alone */
    uint32_t count;     /* of that array */
    uint32_t needed;    /* messages that come. 0: the step needs none */
} gw_route_inputs;

gw_route_inputs gw_route_inputs_of(const gw_exchange *exchange, const gw_exchange_piece *piece);

typedef enum gw_route_message {
    GW_ROUTE_NONE,    /* there is no such message */
    GW_ROUTE_INPUT,   /* of this rank's step */
    GW_ROUTE_FINISHED /* the finished piece */
} gw_route_message;

/* What this rank receives of a piece that the rank `from` has made. */
gw_route_message gw_route_message_of(const gw_exchange *exchange, const gw_exchange_piece *piece,
                                     uint32_t from);
/* Where an input is noted. */
gw_gcomp_frame *gw_route_place(const gw_exchange *exchange, const gw_exchange_piece *piece, uint32_t from);

/* The receiver of what this rank makes of a piece, or GW_RUNTIME_ALL. */
uint32_t gw_route_receiver(const gw_exchange *exchange, const gw_exchange_piece *piece);
/* 1: this rank passes the finished piece of another rank on to the next one. */
int gw_route_passes_on(const gw_exchange *exchange, const gw_exchange_piece *piece);

#endif
