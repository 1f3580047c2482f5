/* The state of an exchange. Fields are guarded by the pool's lock unless a comment says otherwise. */
#ifndef GRADWIRE_POOL_EXCHANGE_H
#define GRADWIRE_POOL_EXCHANGE_H

#include "pool_queue.h"

struct gw_exchange {
    /* Constant after open. */
    gw_pool *pool;
    gw_exchange_config config;
    gw_collective_layout layout;
    gw_gcomp codec, spare;
    uint64_t slot_size, slot_count;
    size_t value_size;
    gw_task *tasks;  /* kind * piece_count + piece */
    uint8_t *memory; /* the caller's; constant after gw_exchange_memory() */

    size_t task_count; /* queued or running: close waits for 0 */
    size_t event_left; /* reserved and not posted */

    /* Map. Written by map_start and map tasks; steps read it, which start after the event MAP. */
    int map_busy, map_ready;
    gw_collective_map map;
    gw_collective_segments segments;
    gw_gcomp_segment *streams;
    size_t stream_count, stream_capacity;
    size_t map_left; /* pieces of the pass that runs */
    uint32_t map_top;
    gw_collective_blame map_blame;

    /* Operation. run and bucket are constant while it runs. */
    int busy;
    gw_exchange_run run;
    gw_collective_bucket bucket;
    uint32_t *arrived;        /* per own piece: contributions of others */
    gw_gcomp_frame *messages; /* per own piece and rank */
    gw_gcomp_frame *finished; /* per piece */
    uint8_t *seen;            /* per slot: received in this operation */
    size_t left;              /* pieces whose values are not in place */
    uint64_t worst;           /* word */
    gw_exchange_stats stats;
};

/* Queues the step of a piece; needs the lock. */
void gw_exchange_push(gw_exchange *exchange, uint32_t kind, uint32_t piece);
/* Needs the lock. */
void gw_exchange_post(gw_exchange *exchange, gw_pool_event event);
/* Tasks of the map (pool_map.c) and of operations (pool_steps.c): without the lock. */
void gw_exchange_map_task(gw_exchange *exchange, const gw_task *task);
void gw_exchange_step_task(gw_exchange *exchange, const gw_task *task, const gw_workspace *workspace);

/* The piece at an index that is valid. */
gw_collective_piece gw_exchange_piece(const gw_exchange *exchange, uint32_t index);
/* Slots: a piece's own message, sent by this rank; contributions to own pieces; finished pieces. */
uint64_t gw_exchange_out(const gw_exchange *exchange, uint32_t piece);

#endif
