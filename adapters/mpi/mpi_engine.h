/*
 * What operations are made of: codec work, votes, exchanges, the look at exact data.
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

/* Starts a vote of all ranks of an open operation's communicator: the maxima of len words, which it copies.
 * Once an operation for each of GW_MPI_MESSAGE_OPENING, _OVERLAPS and _CLOSING, in any order among
 * operations. The caller holds the operation's lock, here and below. Never NULL. */
gw_mpi_vote *gw_mpi_vote_start(gw_mpi_operation *operation, gw_mpi_message message, const uint64_t *words,
                               size_t len);
/* The same in two steps: posts its receives, then says this rank's words. */
gw_mpi_vote *gw_mpi_vote_listen(gw_mpi_operation *operation, gw_mpi_message message, size_t len);
void gw_mpi_vote_say(gw_mpi_vote *vote, const uint64_t *words);
/* Before this rank has said anything: the words of the rank before it, NULL if they are not there. */
const uint64_t *gw_mpi_vote_heard(gw_mpi_vote *vote);
/* Progress of it. NULL: not complete. Else the maxima, equal on all ranks. An MPI error completes it too, and
 * is the operation's: the first one is then at least its word. */
const uint64_t *gw_mpi_vote_test(gw_mpi_vote *vote);
/* After its completion. */
void gw_mpi_vote_free(gw_mpi_vote *vote);

/* ------------ exchanges ------------ */

/* Starts an exchange of an operation; calls hold the operation's lock. The caller sets shape, codec or steps
 * of the configuration. message: kind of contributions, whose next one is that of sums; once an operation.
 * NULL: it cannot be made, on all ranks alike, and the operation fails. */
gw_mpi_exchange *gw_mpi_exchange_open(gw_mpi_operation *operation, gw_exchange_config *config,
                                      gw_mpi_message message, const gw_exchange_run *run);
/* The exchange of an operation's values as frames of GCOMP. */
gw_mpi_exchange *gw_mpi_exchange_frames(gw_mpi_operation *operation);
/* The run of the operation's values. */
gw_exchange_run gw_mpi_exchange_run(const gw_mpi_operation *operation);
/* Once the operation is open: progress of messages; 1 if something happened. */
int gw_mpi_exchange_transport(gw_mpi_exchange *exchange);
/* 1: all messages and steps are done. */
int gw_mpi_exchange_complete(const gw_mpi_exchange *exchange);
void gw_mpi_exchange_close(gw_mpi_exchange *exchange);
/* After an error of MPI, in place of the close: stops codec work, and posts nothing any more. Its memory
 * stays: messages may still arrive, and other threads may have events of it, so the operation must stay
 * too. Again: nothing happens. */
void gw_mpi_exchange_abandon(gw_mpi_exchange *exchange);

/* Hands what the runtime has done to exchanges of operations: without their locks. 1 if there was anything.
 */
int gw_mpi_exchange_events(void);

/* THC: the first exchange of an operation's values, or NULL as above. */
gw_mpi_exchange *gw_mpi_lanes_begin(gw_mpi_operation *operation);
/* The operation's exchange is complete: 1 if another one has taken its place. */
int gw_mpi_lanes_continue(gw_mpi_operation *operation);
void gw_mpi_lanes_free(gw_mpi_lanes *lanes);

/* ------------ exact data ------------ */

/* Looks at the values of an operation that is not open yet. */
gw_mpi_exact *gw_mpi_exact_create(gw_mpi_operation *operation);
/* Once it is open: progress of the decision. 1: made, *is_exact is equal on all ranks. */
int gw_mpi_exact_test(gw_mpi_exact *exact, int *is_exact);
void gw_mpi_exact_free(gw_mpi_exact *exact);

#endif
