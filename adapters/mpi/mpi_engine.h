/*
 * What operations are made of: codec work, votes, sums of integers, the look at exact data, engines.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_ENGINE_H
#define GW_MPI_ENGINE_H

#include "gradwire/runtime.h"
#include "mpi_operations.h"

/* ------------ codec work ------------ */

/* Of all operations; opened by the first one. */
gw_runtime *gw_mpi_runtime(void);
/* Runs one task in the calling thread; 0 if there is none. */
int gw_mpi_runtime_work(void);
void gw_mpi_runtime_close(void);

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

/* One way to do an operation. All calls hold its lock. */
struct gw_mpi_engine {
    void *(*create)(gw_mpi_operation *operation);       /* sends nothing */
    int (*transport)(gw_mpi_operation *operation);      /* progress of messages; 1 if something happened */
    int (*complete)(const gw_mpi_operation *operation); /* 1: all but the vote is done */
    void (*destroy)(gw_mpi_operation *operation);       /* without the lock */
};

extern const gw_mpi_engine gw_mpi_engine_exchange, gw_mpi_engine_lanes;

/* Hands what the runtime has done to exchanges of operations: without their locks. 1 if there was anything.
 */
int gw_mpi_exchange_events(void);

#endif
