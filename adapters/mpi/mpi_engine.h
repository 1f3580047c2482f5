/*
 * What operations are made of: votes, sums of integers, the look at exact data, engines.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_ENGINE_H
#define GW_MPI_ENGINE_H

#include "mpi_operation.h"

/* ------------ votes ------------ */

/* Starts a vote of all ranks of an open operation's communicator: the maximum of their words. Once an
 * operation for each of GW_MPI_MESSAGE_OPENING and _CLOSING, in any order among operations. The caller holds
 * the operation's lock, here and below. Never NULL. */
gw_mpi_vote *gw_mpi_vote_start(gw_mpi_operation *operation, gw_mpi_message message, uint64_t word);
/* Progress of it. 1: complete, *worst is the maximum, equal on all ranks. An MPI error completes it too, and
 * is the operation's: *worst then holds its word. */
int gw_mpi_vote_test(gw_mpi_vote *vote, uint64_t *worst);
/* After its completion. */
void gw_mpi_vote_free(gw_mpi_vote *vote);

/* ------------ sums of integers ------------ */

/* What to add, or to take the maximum of: len unsigned integers of 8, 16 or 32 bits on each rank. */
typedef struct gw_mpi_terms {
    void *data; /* the own ones; then the result */
    uint64_t len;
    uint32_t bits;
    gw_mpi_message scatter, gather;
    int gathers; /* 0: a rank gets its part of the result only: of parts of equal length, if there are any */
    int maximum;
} gw_mpi_terms;

typedef struct gw_mpi_fold gw_mpi_fold;

/* Of an open operation, under its lock, as votes. Those of one operation with one kind of message start in
 * the same order on all ranks. */
gw_mpi_fold *gw_mpi_fold_start(gw_mpi_operation *operation, const gw_mpi_terms *terms);
/* may_gather: those that started before it have sent their results, gw_mpi_fold_gathers(). 1: complete. */
int gw_mpi_fold_test(gw_mpi_fold *fold, int may_gather);
int gw_mpi_fold_gathers(const gw_mpi_fold *fold);
void gw_mpi_fold_free(gw_mpi_fold *fold);

/* ------------ exact data ------------ */

/* Looks at the values of an operation that is not open yet. */
gw_mpi_exact *gw_mpi_exact_create(gw_mpi_operation *operation);
/* Once it is open: progress of the decision. 1: made, *is_exact is equal on all ranks. */
int gw_mpi_exact_test(gw_mpi_exact *exact, int *is_exact);
void gw_mpi_exact_free(gw_mpi_exact *exact);

/* ------------ engines ------------ */

/* Codec work on one piece. */
typedef struct gw_mpi_task {
    int kind; /* the engine's own */
    uint32_t piece;
    gw_mpi_block *output;
    gw_collective_blame blame; /* out */
} gw_mpi_task;

/* One way to do an operation. All calls but run hold the operation's lock. */
struct gw_mpi_engine {
    void *(*create)(gw_mpi_operation *operation);  /* sends nothing */
    int (*transport)(gw_mpi_operation *operation); /* progress of messages; 1 if something happened */
    int (*take)(gw_mpi_operation *operation, gw_mpi_task *task); /* 1: a task to run */
    void (*run)(gw_mpi_operation *operation, gw_mpi_task *task); /* by any thread */
    void (*finish)(gw_mpi_operation *operation, gw_mpi_task *task);
    int (*complete)(const gw_mpi_operation *operation); /* 1: all but the vote is done */
    void (*destroy)(gw_mpi_operation *operation);
};

extern const gw_mpi_engine gw_mpi_engine_exchange, gw_mpi_engine_lanes;

#endif
