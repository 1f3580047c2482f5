/*
 * Blocking collectives that pass through. While one blocks, only the progress thread drives our operations,
 * on which another rank may wait before it comes here. Those of the same communicator are completed first,
 * without its pauses: all ranks have started them before this call, and all complete them here at the latest.
 * Those of other communicators cannot, since a rank may start them only after this call. A communicator goes
 * with its operations complete, too: all ranks free it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

/* The communicator that an argument is. */
#define GW_MPI_COMM(word) ((MPI_Comm)(word)) /* NOLINT(performance-no-int-to-ptr) */

/* Drains a communicator, then calls MPI's own function with the arguments as they came. */
#define GW_MPI_DRAIN(name, comm)                                                                             \
    extern gw_mpi_any gw_mpi_next_##name __asm__("PMPI_" #name);                                             \
    GW_MPI_ENTRY_OF("MPI_" #name, "MPI_" #name, long, gw_mpi_own_##name, (GW_MPI_WORDS))                     \
    {                                                                                                        \
        gw_mpi_drain(comm);                                                                                  \
        return gw_mpi_next_##name(GW_MPI_WORDS_PASSED);                                                      \
    }

GW_MPI_DRAIN(Barrier, GW_MPI_COMM(a))
GW_MPI_DRAIN(Bcast, GW_MPI_COMM(e))
GW_MPI_DRAIN(Reduce, GW_MPI_COMM(g))
GW_MPI_DRAIN(Reduce_scatter, GW_MPI_COMM(f))
GW_MPI_DRAIN(Scan, GW_MPI_COMM(f))
GW_MPI_DRAIN(Exscan, GW_MPI_COMM(f))
GW_MPI_DRAIN(Gather, GW_MPI_COMM(h))
GW_MPI_DRAIN(Gatherv, GW_MPI_COMM(i))
GW_MPI_DRAIN(Scatter, GW_MPI_COMM(h))
GW_MPI_DRAIN(Scatterv, GW_MPI_COMM(i))
GW_MPI_DRAIN(Allgather, GW_MPI_COMM(g))
GW_MPI_DRAIN(Allgatherv, GW_MPI_COMM(h))
GW_MPI_DRAIN(Alltoall, GW_MPI_COMM(g))
GW_MPI_DRAIN(Alltoallv, GW_MPI_COMM(i))

/* A pointer to one. NULL: MPI reports it. */
#define GW_MPI_COMM_AT(word) ((word) != 0 ? *(const MPI_Comm *)(word) : MPI_COMM_NULL) /* NOLINT */

GW_MPI_DRAIN(Comm_free, GW_MPI_COMM_AT(a))
GW_MPI_DRAIN(Comm_disconnect, GW_MPI_COMM_AT(a))
