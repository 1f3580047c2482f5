/*
 * The communicator of all messages, and what belongs to a communicator of the program.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_CONTEXT_H
#define GW_MPI_CONTEXT_H

#include "mpi_config.h"

/* ------------ communicators ------------ */

/* Operations of a communicator that have messages under way; later ones wait. A power of two. */
#define GW_MPI_OPERATIONS_OPEN 32u
#define GW_MPI_NUMBER_NONE     UINT32_MAX

typedef struct gw_mpi_context {
    struct gw_mpi_context *next;
    MPI_Comm user;        /* where errors are raised, also after the program has freed it */
    int references;       /* by the attribute and by operations; guarded by the contexts' lock */
    pthread_mutex_t lock; /* of started, and of the gather until ready */
    int rank, size;
    int inside;        /* all ranks are in MPI_COMM_WORLD; else its operations are MPI's */
    int *world;        /* by rank: the rank there */
    uint32_t *numbers; /* by rank: what tags of messages to it begin with; NULL before the first operation */
    uint32_t number;   /* the own one */
    MPI_Request gather;
    int ready;                                 /* the numbers are there, or never will be */
    gw_status failed;                          /* why they will not: on all ranks */
    uint32_t started;                          /* operations so far: the number of the next one */
    atomic_uint turns[GW_MPI_OPERATIONS_OPEN]; /* by number modulo that: the operation that may begin */
    atomic_uint lost;    /* bit i: place i of turns is used no more, since messages of it may still arrive */
    atomic_int live;     /* operations that are not complete */
    atomic_int encoding; /* those of them that have pieces to encode */
    uint64_t threshold_size; /* automatic; valid if measured */
    int measured;
    char name[MPI_MAX_OBJECT_NAME];
} gw_mpi_context;

/* The context of a communicator, made if need be, without a message. NULL: its operations are left to MPI, on
 * all ranks: an intercommunicator, one rank, ranks outside of MPI_COMM_WORLD, or no transport. */
gw_mpi_context *gw_mpi_context_get(MPI_Comm comm);
/* NULL if it has none yet. */
gw_mpi_context *gw_mpi_context_find(MPI_Comm comm);
/* The number of its next operation. The first one starts the exchange of numbers. */
uint32_t gw_mpi_context_number(gw_mpi_context *context);
/* Progress of that. 1: messages can be sent; 0: not yet; -1: never, on all ranks. */
int gw_mpi_context_ready(gw_mpi_context *context);
/* Takes or drops a reference; dropping the last one frees it. They call no MPI function. */
void gw_mpi_context_hold(gw_mpi_context *context);
void gw_mpi_context_release(gw_mpi_context *context);
void gw_mpi_contexts_close(void);

/* The communicator of all messages. To open it is collective over MPI_COMM_WORLD. */
int gw_mpi_transport_open(void);
void gw_mpi_transport_close(void);
int gw_mpi_transport_ready(void);
/* How many communicators can have messages under way at a time: their numbers fit a tag. */
extern uint32_t gw_mpi_transport_numbers;

#endif
