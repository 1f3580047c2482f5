/*
 * The state of an exchange, and what its steps (runtime_steps.c) and its map (runtime_map.c) share. Fields
 * are guarded by the lock of the runtime unless a comment says otherwise.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RUNTIME_EXCHANGE_H
#define GW_RUNTIME_EXCHANGE_H

#include "runtime_queue.h"

typedef enum gw_exchange_stage {
    GW_STAGE_NONE,   /* nothing is left to do for the piece */
    GW_STAGE_ENCODE, /* another's: until its contribution is made, which needs no message */
    GW_STAGE_AWAIT,  /* another's: until its finished message has arrived */
    GW_STAGE_GATHER, /* own, and in a ring another's too: messages of the step arrive */
    GW_STAGE_REDUCE, /* the same: all have arrived */
    GW_STAGE_DECODE  /* finished, until it is in place */
} gw_exchange_stage;

/* A piece of the bucket. */
typedef struct gw_exchange_piece {
    gw_runtime_task task;   /* its step that is queued or runs: never more than one */
    gw_collective_piece at; /* constant */
    gw_exchange_stage stage;
    uint32_t arrived;        /* messages of the step */
    gw_gcomp_frame finished; /* from DECODE on */
    uint8_t notice[GW_COLLECTIVE_NOTICE_SIZE];
    gw_runtime_posted posted;                         /* SEND or SHARE of what this rank has made */
    gw_runtime_posted passed;                         /* ring: SHARE of another's finished piece */
    uint8_t passed_notice[GW_COLLECTIVE_NOTICE_SIZE]; /* in place of one that cannot be passed on */
    int refused; /* ring: such a one, of whose buffer the exchange has both uses */
} gw_exchange_piece;

/* A serialised codebook. */
typedef struct gw_exchange_codebook {
    uint8_t data[GW_GCOMP_CODEBOOK_SIZE_MAX];
    uint32_t size;
} gw_exchange_codebook;

/* Codebooks that outlive a frame (runtime_codebooks.c). */
typedef struct gw_exchange_codebooks {
    /* By piece. NULL without config.codebooks. */
    gw_gcomp *codecs;           /* config.codec with the codebooks of the generation in them */
    gw_gcomp_histogram *counts; /* of what this rank has sent */
    /* The codebooks that were installed last: of contributions, then of the sum. */
    gw_exchange_codebook *next;
    uint32_t generation, next_generation; /* 0: none */
    uint64_t stamp;
    int in_use;         /* operations encode with the codecs; constant while one runs */
    int has_frames;     /* those of the last operation are in memory, and so is their map */
    int busy, is_ready; /* counting, counted */
    size_t left;        /* pieces that are not counted */
    gw_collective_failure failure;
} gw_exchange_codebooks;

struct gw_exchange {
    /* Constant after open. */
    gw_runtime *runtime;
    gw_exchange_config config;
    gw_collective_layout layout;
    gw_gcomp codec, fallback_codec; /* unless there are config.steps */
    uint64_t buffer_size, memory_size;
    size_t value_size;
    int is_ring;     /* 0 for a single rank */
    uint8_t *memory; /* the caller's; constant after gw_exchange_memory() */
    gw_exchange_piece *pieces;

    size_t task_count; /* queued or running: stop waits for 0 */
    size_t events_waiting;
    gw_runtime_posted posted; /* MAP or DONE */
    int stopped;

    /* Map. Written by map_start and map tasks; steps read it, which start after the event MAP. */
    int map_busy, map_ready;
    gw_collective_map map;
    gw_collective_segments segments;
    gw_gcomp_segment *streams; /* 2 * segment_max + 1 */
    size_t stream_count;
    size_t map_left; /* pieces of the pass that runs */
    uint32_t map_top;
    gw_collective_failure map_failure;

    /* Operation. run and bucket are constant while it runs. */
    int busy;
    int reduce_waits; /* until encodes_left is 0: results overlap what is encoded */
    gw_exchange_run run;
    gw_collective_bucket bucket;
    gw_gcomp_frame *messages; /* per own piece and rank, in a ring per piece; data NULL: not there yet */
    size_t encodes_left;
    size_t left;    /* pieces whose values are not in place */
    uint64_t worst; /* word */
    gw_exchange_stats stats;

    gw_exchange_codebooks codebooks;
};

/* Index of a piece. */
uint32_t gw_exchange_index(const gw_exchange *exchange, const gw_exchange_piece *piece);
/* A failure of this rank's own. */
gw_collective_failure gw_exchange_failure(const gw_exchange *exchange, uint32_t piece, gw_status status);
/* One user of a message's buffer has ended; without the lock. Nothing happens for notices, and without
 * gw_exchange_buffers. */
void gw_exchange_release(const gw_exchange *exchange, const gw_exchange_piece *piece, const void *data);
/* The same for all that the piece's stage has received, or is still to decode. */
void gw_exchange_release_inputs(const gw_exchange *exchange, const gw_exchange_piece *piece);

/* runtime_map.c: the map that a message about a piece is made with, a contribution or the finished one. */
gw_gcomp_map gw_exchange_map_of(const gw_exchange *exchange, const gw_collective_piece *at,
                                int is_contribution);

/* runtime_codebooks.c: the codec of a piece while an operation runs. */
const gw_gcomp *gw_exchange_codebooks_codec(const gw_exchange *exchange, uint32_t piece);

/* The following need the lock. */

/* 1 if something can be started. */
int gw_exchange_is_idle(const gw_exchange *exchange);
/* Queues a step of a piece. */
void gw_exchange_push(gw_exchange *exchange, gw_exchange_piece *piece, gw_runtime_priority priority,
                      void (*run)(gw_runtime_task *, const gw_workspace *));
void gw_exchange_post(gw_exchange *exchange, gw_runtime_posted *posted, gw_runtime_event event);
/* The last thing that a task does: gives up the lock too. */
void gw_exchange_leave(gw_exchange *exchange);

#endif
