/*
 * Operations under way: their start, their progress, their end.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_PROGRESS_H
#define GW_MPI_PROGRESS_H

#include "mpi_engine.h"

/* Operations that are not complete. Where it is 0, waits and tests go straight to MPI. */
extern atomic_int gw_mpi_active;
/* Those of them that have a request. */
extern atomic_int gw_mpi_outstanding;
/* Requests of ours that the program has not completed or freed. */
extern atomic_int gw_mpi_requests;

/* Starts an operation. With a request, *request completes in MPI's own calls once progress was made. Without,
 * the caller passes the operation to gw_mpi_operation_wait(). */
gw_mpi_operation *gw_mpi_operation_start(gw_mpi_context *context, const gw_mpi_call *call,
                                         MPI_Request *request);
/* Drives it to its end, frees it, and returns the MPI error code of its outcome, the error handler called. */
int gw_mpi_operation_wait(gw_mpi_operation *operation);

/* One round over all active operations; 1 if anything moved. Yields the processor if not. */
int gw_mpi_progress(void);
/* The same for the progress thread, which does not count as the program's. */
int gw_mpi_progress_round(void);
/* Rounds of the program's threads. */
extern atomic_uint gw_mpi_rounds;

/* Progress until no operation of the communicator is left. */
void gw_mpi_drain(MPI_Comm comm);

/* The progress thread; 1 if it runs. */
int gw_mpi_progress_start(void);
void gw_mpi_progress_wake(void);
void gw_mpi_progress_stop(void);

/* ------------ threshold ------------ */

/* In MPI_Init, collective: which ranks share a node. */
void gw_mpi_auto_begin(void);
void gw_mpi_auto_end(void);
/* 1 if all ranks of a communicator do. */
int gw_mpi_auto_on_node(const gw_mpi_context *context);
/* Takes the threshold of another communicator of the same ranks, or measures it. Collective and blocking. */
int gw_mpi_auto_measure(gw_mpi_context *context);

#endif
