/*
 * What the MPI adapter intercepts, on top of all other layers. A file includes headers of its layer and of
 * those above it in this list, and calls functions of files above itself.
 *
 *   mpi_system.h      mpi_system      a line on stderr, clocks, memory, threads
 *                     mpi_memory      message buffers and workspaces
 *   mpi_config.h      mpi_config      the environment, agreed on by all ranks
 *                     mpi_presence    whether all ranks have the library
 *                     mpi_imports     whether the program has nonblocking calls
 *   mpi_operations.h  mpi_outcome     the outcome of an operation: failures, MPI's error codes
 *   mpi_context.h     mpi_transport   the communicator on which all messages travel
 *                     mpi_context     what belongs to a communicator: numbers, counters
 *   mpi_operations.h  mpi_statistics  what was compressed, with which error, or why nothing was
 *   mpi_engine.h      mpi_runtime     threads that do codec work; they never call MPI
 *                     mpi_vote        a word that all ranks agree on
 *                     mpi_exact       whether values must not be rounded
 *                     mpi_exchange    exchanges of the runtime: messages; those with frames (collective.h)
 *                     mpi_lanes       those of THC: norms, then sums
 *   mpi_progress.h    mpi_operation   one collective: its life, its progress
 *                     mpi_progress    the thread that makes progress
 *                     mpi_auto        the automatic threshold
 *   mpi_entries.h     mpi_entries     what stands under MPI's names
 *                     mpi_waits, mpi_points, mpi_collectives, mpi_scope, mpi_calls, mpi_fortran
 *
 * Locks, in the order in which they may be taken: the list of operations, an operation, a context, the list
 * of contexts, the statistics, the buffer pool.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_ENTRIES_H
#define GW_MPI_ENTRIES_H

#include "mpi_progress.h"

/* ------------ scopes ------------ */

/* What the program has said of a communicator, or of the one that it is a duplicate of. */
int gw_mpi_scope_is_off(MPI_Comm comm);
void gw_mpi_scope_close(void);

/* ------------ interception ------------ */

/* What MPI_Init and MPI_Finalize do in addition to MPI's work. */
void gw_mpi_begin(int provided);
/* The thread level to ask for. */
int gw_mpi_begin_level(int required);
void gw_mpi_end(void);

/* Before MPI_Init: a line if the launcher is the other MPI's. */
void gw_mpi_entries_warn(void);

/* Arguments of any function of MPI: each takes a register or a place of 8 bytes on the stack, and none is a
 * floating-point number. MPI_Sendrecv has 12. More are read than a caller passes, but none of them is used.
 */
#define GW_MPI_WORDS                                                                                         \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l
#define GW_MPI_WORDS_PASSED a, b, c, d, e, f, g, h, i, j, k, l
typedef long gw_mpi_any(GW_MPI_WORDS);

/* What a symbol of MPI calls: our function, or with the other MPI (mpi_entries.c) the next one of that name.
 */
typedef struct gw_mpi_entry {
    const char *name;
    gw_mpi_any *function;
} gw_mpi_entry;

/* Replaces `symbol` of MPI, whose name is `name`, by a function that follows with its body. */
#define GW_MPI_ENTRY_OF(symbol, name, type, own, parameters)                                                 \
    static type own parameters;                                                                              \
    static gw_mpi_entry own##_entry __attribute__((section("gw_mpi_entries"), used, aligned(16))) = {        \
        name, (gw_mpi_any *)(void (*)(void))own};                                                            \
    __attribute__((visibility("default"))) gw_mpi_any own##_symbol __asm__(symbol);                          \
    long own##_symbol(GW_MPI_WORDS)                                                                          \
    {                                                                                                        \
        return own##_entry.function(GW_MPI_WORDS_PASSED);                                                    \
    }                                                                                                        \
    static type own parameters

#define GW_MPI_ENTRY(name, parameters)                                                                       \
    GW_MPI_ENTRY_OF("MPI_" #name, "MPI_" #name, int, gw_mpi_own_##name, parameters)

/* Progress, if there are operations or requests of ours. */
void gw_mpi_drive(void);
/* Waits for one request of MPI's with progress of ours. */
int gw_mpi_wait_polling(MPI_Request *request, MPI_Status *status);

#endif
