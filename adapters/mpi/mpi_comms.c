/*
 * Communicators that the program frees. A communicator goes with its operations complete: all ranks free it,
 * so all make progress.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

GW_MPI_ENTRY(Comm_free, (MPI_Comm * comm))
{
    if (comm != NULL) {
        gw_mpi_context_drain(*comm);
    }
    return PMPI_Comm_free(comm);
}

GW_MPI_ENTRY(Comm_disconnect, (MPI_Comm * comm))
{
    if (comm != NULL) {
        gw_mpi_context_drain(*comm);
    }
    return PMPI_Comm_disconnect(comm);
}
