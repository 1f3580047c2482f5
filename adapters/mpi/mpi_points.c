/*
 * Blocking point-to-point calls. A program may wait for a message that another rank sends only after an
 * MPI_Iallreduce of both, so these calls make progress with it: where operations of ours are under way they
 * become their nonblocking form and a wait. MPI matches both alike. (For collectives it does not:
 * docs/mpi.md.)
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

static int gw_mpi_is_idle(void)
{
    return atomic_load_explicit(&gw_mpi_active, memory_order_relaxed) == 0;
}

/* A send, and its nonblocking form. */
#define GW_MPI_SEND(name, begins)                                                                            \
    GW_MPI_ENTRY(name,                                                                                       \
                 (const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm))      \
    {                                                                                                        \
        MPI_Request request;                                                                                 \
        if (gw_mpi_is_idle()) {                                                                              \
            return PMPI_##name(buf, count, datatype, dest, tag, comm);                                       \
        }                                                                                                    \
        const int status = begins(buf, count, datatype, dest, tag, comm, &request);                          \
        return status != MPI_SUCCESS ? status : gw_mpi_wait_polling(&request, MPI_STATUS_IGNORE);            \
    }

GW_MPI_SEND(Send, PMPI_Isend)
GW_MPI_SEND(Ssend, PMPI_Issend)

GW_MPI_ENTRY(Recv, (void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                    MPI_Status *status))
{
    if (gw_mpi_is_idle()) {
        return PMPI_Recv(buf, count, datatype, source, tag, comm, status);
    }
    MPI_Request request;
    const int result = PMPI_Irecv(buf, count, datatype, source, tag, comm, &request);
    return result != MPI_SUCCESS ? result : gw_mpi_wait_polling(&request, status);
}

GW_MPI_ENTRY(Sendrecv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                        void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                        MPI_Comm comm, MPI_Status *status))
{
    if (gw_mpi_is_idle()) {
        return PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
                             source, recvtag, comm, status);
    }
    MPI_Request receive, send;
    int result = PMPI_Irecv(recvbuf, recvcount, recvtype, source, recvtag, comm, &receive);
    if (result != MPI_SUCCESS) {
        return result;
    }
    result = PMPI_Isend(sendbuf, sendcount, sendtype, dest, sendtag, comm, &send);
    if (result == MPI_SUCCESS) {
        result = gw_mpi_wait_polling(&send, MPI_STATUS_IGNORE);
    }
    if (result == MPI_SUCCESS) {
        return gw_mpi_wait_polling(&receive, status);
    }
    (void)PMPI_Cancel(&receive); /* it must not write to the buffer later */
    (void)PMPI_Wait(&receive, MPI_STATUS_IGNORE);
    return result;
}

/* A probe in `parameters`, its nonblocking form with `tests`, where it sets found. */
#define GW_MPI_PROBE(name, parameters, arguments, tests)                                                     \
    GW_MPI_ENTRY(name, parameters)                                                                           \
    {                                                                                                        \
        while (!gw_mpi_is_idle()) {                                                                          \
            int found = 0;                                                                                   \
            (void)gw_mpi_progress();                                                                         \
            const int result = tests;                                                                        \
            if (result != MPI_SUCCESS || found) {                                                            \
                return result;                                                                               \
            }                                                                                                \
        }                                                                                                    \
        return PMPI_##name arguments;                                                                        \
    }

GW_MPI_PROBE(Probe, (int source, int tag, MPI_Comm comm, MPI_Status *status), (source, tag, comm, status),
             PMPI_Iprobe(source, tag, comm, &found, status))
GW_MPI_PROBE(Mprobe, (int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status),
             (source, tag, comm, message, status), PMPI_Improbe(source, tag, comm, &found, message, status))

GW_MPI_ENTRY(Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status))
{
    gw_mpi_drive();
    return PMPI_Iprobe(source, tag, comm, flag, status);
}
