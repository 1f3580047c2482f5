/*
 * Fortran with Open MPI, whose bindings call PMPI names and so bypass the functions intercepted in C.
 * `include 'mpif.h'` and `use mpi` call mpi_NAME_, `use mpi_f08` calls ompi_NAME_f, with the same arguments:
 * a handle or status of mpi_f08 is laid out as that of mpif.h. (MPICH: mpi_fortran_f08.c.)
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

#include <stdlib.h>

/* Defines the Fortran names of one function: GW_MPI_FORTRAN(name, NAME, (parameters)) { body } */
#define GW_MPI_FORTRAN(name, upper, parameters)                                                              \
    GW_MPI_ALIAS(mpi_##name, name);                                                                          \
    GW_MPI_ALIAS(mpi_##name##_, name);                                                                       \
    GW_MPI_ALIAS(mpi_##name##__, name);                                                                      \
    GW_MPI_ALIAS(MPI_##upper, name);                                                                         \
    GW_MPI_ENTRY_OF("ompi_" #name "_f", "mpi_" #name "_", void, gw_mpi_fortran_##name, parameters)
#define GW_MPI_ALIAS(symbol, name)                                                                           \
    __attribute__((visibility("default"))) gw_mpi_any symbol __attribute__((alias("ompi_" #name "_f")))

#include "mpi_fortran_both.h"

/* Open MPI's Fortran constants are addresses of these. */
extern int mpi_fortran_in_place_ __attribute__((weak));
extern int mpi_fortran_bottom_ __attribute__((weak));

static void *gw_mpi_buffer(void *buffer)
{
    if (buffer == &mpi_fortran_in_place_) {
        return MPI_IN_PLACE;
    }
    return buffer == &mpi_fortran_bottom_ ? MPI_BOTTOM : buffer;
}

static MPI_Status *gw_mpi_status_in(const MPI_Fint *fortran, MPI_Status *status)
{
    return fortran == MPI_F_STATUS_IGNORE ? MPI_STATUS_IGNORE : status;
}

/* Ends a call with one status, which was written if is_complete. */
static void gw_mpi_return_status(MPI_Fint *ierror, int status, int is_complete, const MPI_Status *own,
                                 MPI_Fint *fortran)
{
    if (status == MPI_SUCCESS && is_complete && fortran != MPI_F_STATUS_IGNORE) {
        (void)PMPI_Status_c2f(own, fortran);
    }
    gw_mpi_return(ierror, status);
}

/* ------------ start ------------ */

GW_MPI_FORTRAN(init, INIT, (MPI_Fint * ierror))
{
    gw_mpi_return(ierror, MPI_Init(NULL, NULL));
}

GW_MPI_FORTRAN(init_thread, INIT_THREAD, (const MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror))
{
    int level = 0;
    const int status = MPI_Init_thread(NULL, NULL, (int)*required, &level);
    *provided = (MPI_Fint)level;
    gw_mpi_return(ierror, status);
}

/* ------------ collectives ------------ */

#define GW_MPI_FORTRAN_SUMS(name, upper, c_name)                                                             \
    GW_MPI_FORTRAN(name, upper,                                                                              \
                   (void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *datatype,           \
                    const MPI_Fint *op, const MPI_Fint *comm, MPI_Fint *ierror))                             \
    {                                                                                                        \
        gw_mpi_return(ierror, c_name(gw_mpi_buffer(sendbuf), gw_mpi_buffer(recvbuf), (int)*count,            \
                                     PMPI_Type_f2c(*datatype), PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));     \
    }

GW_MPI_FORTRAN_SUMS(allreduce, ALLREDUCE, MPI_Allreduce)
GW_MPI_FORTRAN_SUMS(reduce_scatter_block, REDUCE_SCATTER_BLOCK, MPI_Reduce_scatter_block)

GW_MPI_FORTRAN(iallreduce, IALLREDUCE,
               (void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *datatype,
                const MPI_Fint *op, const MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror))
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int status =
        MPI_Iallreduce(gw_mpi_buffer(sendbuf), gw_mpi_buffer(recvbuf), (int)*count, PMPI_Type_f2c(*datatype),
                       PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm), &handle);
    *request = PMPI_Request_c2f(handle);
    gw_mpi_return(ierror, status);
}

/* ------------ one request ------------ */

GW_MPI_FORTRAN(wait, WAIT, (MPI_Fint * request, MPI_Fint *fortran_status, MPI_Fint *ierror))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    MPI_Status own;
    const int status = MPI_Wait(&handle, gw_mpi_status_in(fortran_status, &own));
    *request = PMPI_Request_c2f(handle);
    gw_mpi_return_status(ierror, status, 1, &own, fortran_status);
}

GW_MPI_FORTRAN(test, TEST, (MPI_Fint * request, MPI_Fint *flag, MPI_Fint *fortran_status, MPI_Fint *ierror))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    MPI_Status own;
    int complete = 0;
    const int status = MPI_Test(&handle, &complete, gw_mpi_status_in(fortran_status, &own));
    *flag = complete;
    *request = PMPI_Request_c2f(handle);
    gw_mpi_return_status(ierror, status, complete, &own, fortran_status);
}

GW_MPI_FORTRAN(request_get_status, REQUEST_GET_STATUS,
               (const MPI_Fint *request, MPI_Fint *flag, MPI_Fint *fortran_status, MPI_Fint *ierror))
{
    MPI_Status own;
    int complete = 0;
    const int status =
        MPI_Request_get_status(PMPI_Request_f2c(*request), &complete, gw_mpi_status_in(fortran_status, &own));
    *flag = complete;
    gw_mpi_return_status(ierror, status, complete, &own, fortran_status);
}

GW_MPI_FORTRAN(request_free, REQUEST_FREE, (MPI_Fint * request, MPI_Fint *ierror))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    const int status = MPI_Request_free(&handle);
    *request = PMPI_Request_c2f(handle);
    gw_mpi_return(ierror, status);
}

/* ------------ many requests ------------ */

/* Handles and statuses in C's form. */
typedef struct gw_mpi_list {
    int count;
    MPI_Request *requests;
    MPI_Status *own, *statuses; /* statuses: own, or MPI_STATUSES_IGNORE */
} gw_mpi_list;

static gw_mpi_list gw_mpi_list_open(MPI_Fint count, const MPI_Fint *requests,
                                    const MPI_Fint *fortran_statuses)
{
    gw_mpi_list list = {.count = count > 0 ? (int)count : 0};
    list.requests = gw_mpi_allocate((size_t)list.count, sizeof(*list.requests));
    list.own = gw_mpi_allocate((size_t)list.count, sizeof(*list.own));
    list.statuses = fortran_statuses == MPI_F_STATUSES_IGNORE ? MPI_STATUSES_IGNORE : list.own;
    for (int i = 0; i < list.count; i++) {
        list.requests[i] = PMPI_Request_f2c(requests[i]);
    }
    return list;
}

/* `filled`: statuses that were written. */
static void gw_mpi_list_close(gw_mpi_list *list, MPI_Fint *requests, MPI_Fint *fortran_statuses, int filled)
{
    const size_t fields = sizeof(MPI_Status) / sizeof(MPI_Fint);
    for (int i = 0; i < list->count; i++) {
        requests[i] = PMPI_Request_c2f(list->requests[i]);
    }
    for (int i = 0; i < filled && list->statuses != MPI_STATUSES_IGNORE; i++) {
        (void)PMPI_Status_c2f(&list->own[i], fortran_statuses + (size_t)i * fields);
    }
    free(list->requests);
    free(list->own);
}

GW_MPI_FORTRAN(waitall, WAITALL,
               (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *fortran_statuses, MPI_Fint *ierror))
{
    gw_mpi_list list = gw_mpi_list_open(*count, requests, fortran_statuses);
    const int status = MPI_Waitall((int)*count, list.requests, list.statuses);
    const int filled = status == MPI_SUCCESS || status == MPI_ERR_IN_STATUS ? list.count : 0;
    gw_mpi_list_close(&list, requests, fortran_statuses, filled);
    gw_mpi_return(ierror, status);
}

GW_MPI_FORTRAN(testall, TESTALL,
               (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Fint *fortran_statuses,
                MPI_Fint *ierror))
{
    gw_mpi_list list = gw_mpi_list_open(*count, requests, fortran_statuses);
    int complete = 0;
    const int status = MPI_Testall((int)*count, list.requests, &complete, list.statuses);
    const int is_filled = (status == MPI_SUCCESS && complete) || status == MPI_ERR_IN_STATUS;
    gw_mpi_list_close(&list, requests, fortran_statuses, is_filled ? list.count : 0);
    *flag = complete;
    gw_mpi_return(ierror, status);
}

/* Fortran counts from 1. */
static MPI_Fint gw_mpi_index_out(int index)
{
    return index == MPI_UNDEFINED ? (MPI_Fint)index : (MPI_Fint)(index + 1);
}

GW_MPI_FORTRAN(waitany, WAITANY,
               (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *fortran_status,
                MPI_Fint *ierror))
{
    gw_mpi_list list = gw_mpi_list_open(*count, requests, MPI_F_STATUSES_IGNORE);
    MPI_Status own;
    int at = MPI_UNDEFINED;
    const int status = MPI_Waitany((int)*count, list.requests, &at, gw_mpi_status_in(fortran_status, &own));
    gw_mpi_list_close(&list, requests, NULL, 0);
    *index = gw_mpi_index_out(at);
    gw_mpi_return_status(ierror, status, 1, &own, fortran_status);
}

GW_MPI_FORTRAN(testany, TESTANY,
               (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
                MPI_Fint *fortran_status, MPI_Fint *ierror))
{
    gw_mpi_list list = gw_mpi_list_open(*count, requests, MPI_F_STATUSES_IGNORE);
    MPI_Status own;
    int at = MPI_UNDEFINED, complete = 0;
    const int status =
        MPI_Testany((int)*count, list.requests, &at, &complete, gw_mpi_status_in(fortran_status, &own));
    gw_mpi_list_close(&list, requests, NULL, 0);
    *index = gw_mpi_index_out(at);
    *flag = complete;
    gw_mpi_return_status(ierror, status, complete, &own, fortran_status);
}

#define GW_MPI_FORTRAN_SOME(name, upper, c_name)                                                             \
    GW_MPI_FORTRAN(name, upper,                                                                              \
                   (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,        \
                    MPI_Fint *fortran_statuses, MPI_Fint *ierror))                                           \
    {                                                                                                        \
        gw_mpi_list list = gw_mpi_list_open(*count, requests, fortran_statuses);                             \
        int *at = gw_mpi_allocate((size_t)list.count, sizeof(int)), found = 0;                               \
        const int status = c_name((int)*count, list.requests, &found, at, list.statuses);                    \
        const int filled = found == MPI_UNDEFINED ? 0 : found;                                               \
        for (int i = 0; i < filled; i++) {                                                                   \
            indices[i] = gw_mpi_index_out(at[i]);                                                            \
        }                                                                                                    \
        gw_mpi_list_close(&list, requests, fortran_statuses, filled);                                        \
        free(at);                                                                                            \
        *outcount = (MPI_Fint)found;                                                                         \
        gw_mpi_return(ierror, status);                                                                       \
    }

GW_MPI_FORTRAN_SOME(waitsome, WAITSOME, MPI_Waitsome)
GW_MPI_FORTRAN_SOME(testsome, TESTSOME, MPI_Testsome)

/* ------------ point to point ------------ */

#define GW_MPI_FORTRAN_SENDS(name, upper, c_name)                                                            \
    GW_MPI_FORTRAN(name, upper,                                                                              \
                   (void *buf, const MPI_Fint *count, const MPI_Fint *datatype, const MPI_Fint *dest,        \
                    const MPI_Fint *tag, const MPI_Fint *comm, MPI_Fint *ierror))                            \
    {                                                                                                        \
        gw_mpi_return(ierror, c_name(gw_mpi_buffer(buf), (int)*count, PMPI_Type_f2c(*datatype), (int)*dest,  \
                                     (int)*tag, PMPI_Comm_f2c(*comm)));                                      \
    }

GW_MPI_FORTRAN_SENDS(send, SEND, MPI_Send)
GW_MPI_FORTRAN_SENDS(ssend, SSEND, MPI_Ssend)

GW_MPI_FORTRAN(recv, RECV,
               (void *buf, const MPI_Fint *count, const MPI_Fint *datatype, const MPI_Fint *source,
                const MPI_Fint *tag, const MPI_Fint *comm, MPI_Fint *fortran_status, MPI_Fint *ierror))
{
    MPI_Status own;
    const int status = MPI_Recv(gw_mpi_buffer(buf), (int)*count, PMPI_Type_f2c(*datatype), (int)*source,
                                (int)*tag, PMPI_Comm_f2c(*comm), gw_mpi_status_in(fortran_status, &own));
    gw_mpi_return_status(ierror, status, 1, &own, fortran_status);
}

GW_MPI_FORTRAN(probe, PROBE,
               (const MPI_Fint *source, const MPI_Fint *tag, const MPI_Fint *comm, MPI_Fint *fortran_status,
                MPI_Fint *ierror))
{
    MPI_Status own;
    const int status =
        MPI_Probe((int)*source, (int)*tag, PMPI_Comm_f2c(*comm), gw_mpi_status_in(fortran_status, &own));
    gw_mpi_return_status(ierror, status, 1, &own, fortran_status);
}
