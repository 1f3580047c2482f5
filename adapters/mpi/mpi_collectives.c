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

/* Defines one function: its parameters, and the arguments for MPI's own. */
#define GW_MPI_DRAIN(name, parameters, arguments)                                                            \
    GW_MPI_ENTRY(name, parameters)                                                                           \
    {                                                                                                        \
        gw_mpi_drain(comm);                                                                                  \
        return PMPI_##name arguments;                                                                        \
    }

GW_MPI_DRAIN(Barrier, (MPI_Comm comm), (comm))
GW_MPI_DRAIN(Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
             (buffer, count, type, root, comm))
GW_MPI_DRAIN(Reduce,
             (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, int root,
              MPI_Comm comm),
             (sendbuf, recvbuf, count, type, op, root, comm))
GW_MPI_DRAIN(Reduce_scatter,
             (const void *sendbuf, void *recvbuf, const int counts[], MPI_Datatype type, MPI_Op op,
              MPI_Comm comm),
             (sendbuf, recvbuf, counts, type, op, comm))
GW_MPI_DRAIN(Scan,
             (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
             (sendbuf, recvbuf, count, type, op, comm))
GW_MPI_DRAIN(Exscan,
             (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
             (sendbuf, recvbuf, count, type, op, comm))
GW_MPI_DRAIN(Gather,
             (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
              MPI_Datatype recvtype, int root, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm))
GW_MPI_DRAIN(Gatherv,
             (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
              const int recvcounts[], const int places[], MPI_Datatype recvtype, int root, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, places, recvtype, root, comm))
GW_MPI_DRAIN(Scatter,
             (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
              MPI_Datatype recvtype, int root, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm))
GW_MPI_DRAIN(Scatterv,
             (const void *sendbuf, const int sendcounts[], const int places[], MPI_Datatype sendtype,
              void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
             (sendbuf, sendcounts, places, sendtype, recvbuf, recvcount, recvtype, root, comm))
GW_MPI_DRAIN(Allgather,
             (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
GW_MPI_DRAIN(Allgatherv,
             (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
              const int recvcounts[], const int places[], MPI_Datatype recvtype, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, places, recvtype, comm))
GW_MPI_DRAIN(Alltoall,
             (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
GW_MPI_DRAIN(Alltoallv,
             (const void *sendbuf, const int sendcounts[], const int sendplaces[], MPI_Datatype sendtype,
              void *recvbuf, const int recvcounts[], const int recvplaces[], MPI_Datatype recvtype,
              MPI_Comm comm),
             (sendbuf, sendcounts, sendplaces, sendtype, recvbuf, recvcounts, recvplaces, recvtype, comm))

/* NULL: MPI reports it. */
static void gw_mpi_drain_at(const MPI_Comm *comm)
{
    if (comm != NULL) {
        gw_mpi_drain(*comm);
    }
}

GW_MPI_ENTRY(Comm_free, (MPI_Comm * comm))
{
    gw_mpi_drain_at(comm);
    return PMPI_Comm_free(comm);
}

GW_MPI_ENTRY(Comm_disconnect, (MPI_Comm * comm))
{
    gw_mpi_drain_at(comm);
    return PMPI_Comm_disconnect(comm);
}
