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

/* The same for functions that call those intercepted in C. */
#define GW_MPI_FORTRAN(name, upper, parameters)                                                              \
    GW_MPI_ENTRY_OF("mpi_" #name "_f08_", "mpi_" #name "_f08_", void, gw_mpi_f08_##name, parameters)

#include "mpi_fortran_both.h"

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

static void gw_mpi_conclude_f08(MPI_Fint *ierror)
{
    const int status = gw_mpi_conclude(MPI_SUCCESS);
    if (status != MPI_SUCCESS) {
        gw_mpi_return(ierror, status);
    }
}

/* ------------ start ------------ */

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

/* ------------ waits and tests ------------ */

/* What an argument points to. */
#define GW_MPI_INTS(word) ((const MPI_Fint *)(word)) /* NOLINT(performance-no-int-to-ptr) */

/* `drives` before MPICH's function with the arguments as they came, and the failure that it has found after
 * it. The last one of them is ierror. */
#define GW_MPI_F08_DRIVEN(name, drives, ierror)                                                              \
    extern gw_mpi_any pmpir_##name##_f08_ __attribute__((weak));                                             \
    GW_MPI_ENTRY_OF("mpi_" #name "_f08_", "mpi_" #name "_f08_", long, gw_mpi_f08_##name, (GW_MPI_WORDS))     \
    {                                                                                                        \
        drives;                                                                                              \
        const long result = pmpir_##name##_f08_(GW_MPI_WORDS_PASSED);                                        \
        gw_mpi_conclude_f08((MPI_Fint *)(ierror)); /* NOLINT(performance-no-int-to-ptr) */                   \
        return result;                                                                                       \
    }

GW_MPI_F08_DRIVEN(wait, gw_mpi_drive_all(1, GW_MPI_INTS(a)), c)
GW_MPI_F08_DRIVEN(test, gw_mpi_drive(), d)
GW_MPI_F08_DRIVEN(request_free, gw_mpi_drive(), b)
/* The first of several failures is returned; statuses do not say which request it was. */
GW_MPI_F08_DRIVEN(waitall, gw_mpi_drive_all(*GW_MPI_INTS(a), GW_MPI_INTS(b)), d)
GW_MPI_F08_DRIVEN(testall, gw_mpi_drive(), e)
GW_MPI_F08_DRIVEN(waitany, gw_mpi_drive_any(*GW_MPI_INTS(a), GW_MPI_INTS(b)), e)
GW_MPI_F08_DRIVEN(testany, gw_mpi_drive(), f)
GW_MPI_F08_DRIVEN(waitsome, gw_mpi_drive_any(*GW_MPI_INTS(a), GW_MPI_INTS(b)), f)
GW_MPI_F08_DRIVEN(testsome, gw_mpi_drive(), f)

GW_MPI_F08(request_get_status, (const MPI_Fint *request, MPI_Fint *flag, void *status, MPI_Fint *ierror))
{
    gw_mpi_drive();
    pmpir_request_get_status_f08_(request, flag, status, ierror);
    gw_mpi_failed_clear(); /* reported by the call that frees the request */
}
