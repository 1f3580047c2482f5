/*
 * `use mpi_f08` with MPICH. Its other Fortran bindings, and those of mpi_f08 with a buffer, call the C
 * functions, which are intercepted. Those of mpi_f08 without a buffer call PMPI functions: here they are
 * replaced by progress of our operations and MPICH's own function under its other name.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

/* Declares MPICH's function, which exists in Fortran programs only, and defines ours. */
#define GW_MPI_F08(name, parameters)                                                                         \
    extern void pmpir_##name##_f08_ parameters __attribute__((weak));                                        \
    GW_MPI_ENTRY_OF("mpi_" #name "_f08_", "mpi_" #name "_f08_", void, gw_mpi_f08_##name, parameters)

static int gw_mpi_is_complete(MPI_Fint request)
{
    int flag = 0;
    const int status = PMPI_Request_get_status(PMPI_Request_f2c(request), &flag, MPI_STATUS_IGNORE);
    gw_mpi_failed_clear(); /* reported by the call that frees the request */
    return flag || status != MPI_SUCCESS;
}

static void gw_mpi_drive_all(MPI_Fint count, const MPI_Fint *requests)
{
    for (MPI_Fint i = 0; i < count; i++) {
        while (atomic_load(&gw_mpi_active) > 0 && !gw_mpi_is_complete(requests[i])) {
            (void)gw_mpi_progress();
        }
    }
}

/* Until one is complete or none is left. */
static void gw_mpi_drive_any(MPI_Fint count, const MPI_Fint *requests)
{
    while (atomic_load(&gw_mpi_active) > 0) {
        int present = 0;
        for (MPI_Fint i = 0; i < count; i++) {
            if (PMPI_Request_f2c(requests[i]) != MPI_REQUEST_NULL) {
                present = 1;
                if (gw_mpi_is_complete(requests[i])) {
                    return;
                }
            }
        }
        if (!present) {
            return;
        }
        (void)gw_mpi_progress();
    }
}

static void gw_mpi_drive_once(void)
{
    if (atomic_load(&gw_mpi_active) > 0) {
        (void)gw_mpi_progress();
    }
}

static void gw_mpi_conclude_f08(MPI_Fint *ierror)
{
    const int status = gw_mpi_conclude(MPI_SUCCESS);
    if (status != MPI_SUCCESS && ierror != NULL) {
        *ierror = (MPI_Fint)status;
    }
}

/* ------------ start, end, communicators ------------ */

GW_MPI_F08(init_thread, (const MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror))
{
    const MPI_Fint level = (MPI_Fint)gw_mpi_begin_level((int)*required);
    pmpir_init_thread_f08_(&level, provided, ierror);
    gw_mpi_begin((int)*provided);
}

GW_MPI_F08(init, (MPI_Fint * ierror))
{
    const MPI_Fint required = MPI_THREAD_SINGLE;
    MPI_Fint provided = required;
    (void)pmpir_init_f08_;
    gw_mpi_f08_init_thread(&required, &provided, ierror);
}

GW_MPI_F08(finalize, (MPI_Fint * ierror))
{
    gw_mpi_end();
    pmpir_finalize_f08_(ierror);
}

GW_MPI_F08(comm_free, (MPI_Fint * comm, MPI_Fint *ierror))
{
    gw_mpi_drain(PMPI_Comm_f2c(*comm));
    pmpir_comm_free_f08_(comm, ierror);
}

GW_MPI_F08(comm_disconnect, (MPI_Fint * comm, MPI_Fint *ierror))
{
    gw_mpi_drain(PMPI_Comm_f2c(*comm));
    pmpir_comm_disconnect_f08_(comm, ierror);
}

static void gw_mpi_return_f08(MPI_Fint *ierror, int status)
{
    if (ierror != NULL) {
        *ierror = (MPI_Fint)status;
    }
}

GW_MPI_F08(comm_set_info, (const MPI_Fint *comm, const MPI_Fint *info, MPI_Fint *ierror))
{
    gw_mpi_return_f08(ierror, MPI_Comm_set_info(PMPI_Comm_f2c(*comm), PMPI_Info_f2c(*info)));
}

GW_MPI_F08(comm_dup_with_info,
           (const MPI_Fint *comm, const MPI_Fint *info, MPI_Fint *newcomm, MPI_Fint *ierror))
{
    MPI_Comm handle = MPI_COMM_NULL;
    const int status = MPI_Comm_dup_with_info(PMPI_Comm_f2c(*comm), PMPI_Info_f2c(*info), &handle);
    *newcomm = PMPI_Comm_c2f(handle);
    gw_mpi_return_f08(ierror, status);
}

GW_MPI_F08(comm_split_type, (const MPI_Fint *comm, const MPI_Fint *type, const MPI_Fint *key,
                             const MPI_Fint *info, MPI_Fint *newcomm, MPI_Fint *ierror))
{
    MPI_Comm handle = MPI_COMM_NULL;
    const int status =
        MPI_Comm_split_type(PMPI_Comm_f2c(*comm), (int)*type, (int)*key, PMPI_Info_f2c(*info), &handle);
    *newcomm = PMPI_Comm_c2f(handle);
    gw_mpi_return_f08(ierror, status);
}

GW_MPI_F08(pcontrol, (const MPI_Fint *level))
{
    (void)MPI_Pcontrol((int)*level);
}

/* ------------ waits and tests ------------ */

GW_MPI_F08(wait, (MPI_Fint * request, void *status, MPI_Fint *ierror))
{
    gw_mpi_drive_all(1, request);
    pmpir_wait_f08_(request, status, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(test, (MPI_Fint * request, MPI_Fint *flag, void *status, MPI_Fint *ierror))
{
    gw_mpi_drive_once();
    pmpir_test_f08_(request, flag, status, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(request_get_status, (const MPI_Fint *request, MPI_Fint *flag, void *status, MPI_Fint *ierror))
{
    gw_mpi_drive_once();
    pmpir_request_get_status_f08_(request, flag, status, ierror);
    gw_mpi_failed_clear();
}

GW_MPI_F08(request_free, (MPI_Fint * request, MPI_Fint *ierror))
{
    gw_mpi_drive_once();
    pmpir_request_free_f08_(request, ierror);
    gw_mpi_conclude_f08(ierror);
}

/* The first of several failures is returned; statuses do not say which request it was. */
GW_MPI_F08(waitall, (const MPI_Fint *count, MPI_Fint *requests, void *statuses, MPI_Fint *ierror))
{
    gw_mpi_drive_all(*count, requests);
    pmpir_waitall_f08_(count, requests, statuses, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(testall,
           (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, void *statuses, MPI_Fint *ierror))
{
    gw_mpi_drive_once();
    pmpir_testall_f08_(count, requests, flag, statuses, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(waitany,
           (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, void *status, MPI_Fint *ierror))
{
    gw_mpi_drive_any(*count, requests);
    pmpir_waitany_f08_(count, requests, index, status, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(testany, (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag, void *status,
                     MPI_Fint *ierror))
{
    gw_mpi_drive_once();
    pmpir_testany_f08_(count, requests, index, flag, status, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(waitsome, (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                      void *statuses, MPI_Fint *ierror))
{
    gw_mpi_drive_any(*count, requests);
    pmpir_waitsome_f08_(count, requests, outcount, indices, statuses, ierror);
    gw_mpi_conclude_f08(ierror);
}

GW_MPI_F08(testsome, (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                      void *statuses, MPI_Fint *ierror))
{
    gw_mpi_drive_once();
    pmpir_testsome_f08_(count, requests, outcount, indices, statuses, ierror);
    gw_mpi_conclude_f08(ierror);
}
