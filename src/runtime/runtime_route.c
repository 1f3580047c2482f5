/*
 * Who sends what to whom.
 *
 * A2A+AG: contributions go to the owner, the owner's sum to all. Ring: every rank sends to its right
 * neighbour only. A sum begins at the rank after the owner and ends at the owner, whose frame travels on from
 * there to the rank before it. collective.h has the schedule.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_route.h"

int gw_route_is_own(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    return piece->at.owner == exchange->config.rank;
}

static uint32_t right_of(const gw_exchange *exchange)
{
    const uint32_t ranks = exchange->layout.shape.rank_count;
    return exchange->config.rank + 1 == ranks ? 0 : exchange->config.rank + 1;
}

uint32_t gw_route_left(const gw_exchange *exchange)
{
    const uint32_t ranks = exchange->layout.shape.rank_count;
    return exchange->config.rank == 0 ? ranks - 1 : exchange->config.rank - 1;
}

gw_route_inputs gw_route_inputs_of(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    const uint32_t ranks = exchange->layout.shape.rank_count;
    const size_t index = (size_t)(piece - exchange->pieces);
    if (exchange->is_ring) {
        const uint32_t needed = piece->at.owner != gw_route_left(exchange); /* the sum does not begin here */
        return (gw_route_inputs){&exchange->messages[index], 1, needed};
    }
    if (gw_route_is_own(exchange, piece)) {
        gw_gcomp_frame *messages = &exchange->messages[index % exchange->layout.shard_pieces * ranks];
        return (gw_route_inputs){messages, ranks, ranks - 1};
    }
    return (gw_route_inputs){NULL, 0, 0};
}

gw_route_message gw_route_message_of(const gw_exchange *exchange, const gw_exchange_piece *piece,
                                     uint32_t from)
{
    if (exchange->is_ring) {
        /* If the left neighbour is the owner, the sum begins here. */
        return from == piece->at.owner && !gw_route_is_own(exchange, piece) ? GW_ROUTE_FINISHED
               : from == gw_route_left(exchange)                            ? GW_ROUTE_INPUT
                                                                            : GW_ROUTE_NONE;
    }
    if (!gw_route_is_own(exchange, piece)) {
        return GW_ROUTE_FINISHED;
    }
    const int is_other = from < exchange->layout.shape.rank_count && from != exchange->config.rank;
    return is_other ? GW_ROUTE_INPUT : GW_ROUTE_NONE;
}

gw_gcomp_frame *gw_route_place(const gw_exchange *exchange, const gw_exchange_piece *piece, uint32_t from)
{
    return gw_route_inputs_of(exchange, piece).at + (exchange->is_ring ? 0 : from);
}

uint32_t gw_route_receiver(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    if (exchange->is_ring) {
        return right_of(exchange);
    }
    return gw_route_is_own(exchange, piece) ? GW_RUNTIME_ALL : piece->at.owner;
}

int gw_route_passes_on(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    return exchange->is_ring && right_of(exchange) != piece->at.owner;
}
