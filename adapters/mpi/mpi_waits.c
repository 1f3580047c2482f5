/*
 * Waits and tests. A request of ours is a generalized request of MPI's own, so MPI's calls complete it like
 * any other; before each such call, and repeatedly during waits, our operations make progress. Without
 * operations the calls go straight to MPI.
 *
 * A wait is a loop over the test of the same kind, which completes the same requests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

#include <stdlib.h>
#include <string.h>

static int gw_mpi_is_idle(void)
{
    return atomic_load_explicit(&gw_mpi_requests, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&gw_mpi_active, memory_order_relaxed) == 0;
}

void gw_mpi_drive(void)
{
    if (!gw_mpi_is_idle()) {
        (void)gw_mpi_progress();
    }
}

/* result: MPI_SUCCESS before. `test` with progress until is_complete, an error, or no operation is left: then
 * `wait`. */
#define GW_MPI_POLL(result, is_complete, test, wait)                                                         \
    while (atomic_load(&gw_mpi_active) > 0 && (result) == MPI_SUCCESS && !(is_complete)) {                   \
        (void)gw_mpi_progress();                                                                             \
        (result) = test;                                                                                     \
    }                                                                                                        \
    if ((result) == MPI_SUCCESS && !(is_complete)) {                                                         \
        (result) = wait;                                                                                     \
    }

/* Requests as they were before a call on many of them. NULL: none of them is ours. */
static MPI_Request *gw_mpi_save(int count, const MPI_Request *requests)
{
    if (count <= 0 || requests == NULL || gw_mpi_is_idle()) {
        return NULL;
    }
    MPI_Request *saved = gw_mpi_allocate((size_t)count, sizeof(*saved));
    memcpy(saved, requests, (size_t)count * sizeof(*saved));
    return saved;
}

/* What a call on many requests returned. Status i belongs to saved request indices[i], or i without indices.
 */
typedef struct gw_mpi_many {
    MPI_Request *saved;
    int count; /* of statuses that were written */
    const int *indices;
    MPI_Status *statuses; /* MPI_STATUSES_IGNORE: none */
} gw_mpi_many;

static int gw_mpi_conclude_many(int status, const gw_mpi_many *many)
{
    const int failures = gw_mpi_failed.count;
    if (failures == 0) {
        free(many->saved);
        return status;
    }
    const MPI_Comm comm = gw_mpi_failed.at[0].comm;
    const int code = gw_mpi_error_code(gw_mpi_failed.at[0].word);
    /* Without saved requests the failure is of an older one, and no status has it */
    const int with_statuses = many->saved != NULL && many->statuses != MPI_STATUSES_IGNORE;
    for (int i = 0; i < many->count && with_statuses; i++) {
        if (status != MPI_ERR_IN_STATUS) {
            many->statuses[i].MPI_ERROR = MPI_SUCCESS;
        }
        for (int k = 0; k < failures; k++) {
            if (many->saved[many->indices != NULL ? many->indices[i] : i] == gw_mpi_failed.at[k].request) {
                many->statuses[i].MPI_ERROR = gw_mpi_error_code(gw_mpi_failed.at[k].word);
            }
        }
    }
    free(many->saved);
    gw_mpi_failed_clear();
    return gw_mpi_error_raise(comm, with_statuses ? MPI_ERR_IN_STATUS : code);
}

int gw_mpi_wait_polling(MPI_Request *request, MPI_Status *status)
{
    int result = MPI_SUCCESS, complete = 0;
    GW_MPI_POLL(result, complete, PMPI_Test(request, &complete, status), PMPI_Wait(request, status))
    return result;
}

/* ------------ one request ------------ */

GW_MPI_ENTRY(Wait, (MPI_Request * request, MPI_Status *status))
{
    return gw_mpi_conclude(gw_mpi_wait_polling(request, status));
}

GW_MPI_ENTRY(Test, (MPI_Request * request, int *flag, MPI_Status *status))
{
    gw_mpi_drive();
    return gw_mpi_conclude(PMPI_Test(request, flag, status));
}

GW_MPI_ENTRY(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status))
{
    gw_mpi_drive();
    const int result = PMPI_Request_get_status(request, flag, status);
    gw_mpi_failed_clear(); /* reported by the call that frees the request */
    return result;
}

/* The operation continues in other calls; its failure goes to the error handler. */
GW_MPI_ENTRY(Request_free, (MPI_Request * request))
{
    gw_mpi_drive();
    return gw_mpi_conclude(PMPI_Request_free(request));
}

/* ------------ any of many ------------ */

GW_MPI_ENTRY(Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status))
{
    int result = MPI_SUCCESS, complete = 0;
    GW_MPI_POLL(result, complete, PMPI_Testany(count, requests, index, &complete, status),
                PMPI_Waitany(count, requests, index, status))
    return gw_mpi_conclude(result);
}

GW_MPI_ENTRY(Testany, (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status))
{
    gw_mpi_drive();
    return gw_mpi_conclude(PMPI_Testany(count, requests, index, flag, status));
}

/* ------------ all of many ------------ */

GW_MPI_ENTRY(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]))
{
    const gw_mpi_many many = {.saved = gw_mpi_save(count, requests), .count = count, .statuses = statuses};
    int result = MPI_SUCCESS, complete = 0;
    GW_MPI_POLL(result, complete, PMPI_Testall(count, requests, &complete, statuses),
                PMPI_Waitall(count, requests, statuses))
    return gw_mpi_conclude_many(result, &many);
}

GW_MPI_ENTRY(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]))
{
    gw_mpi_drive();
    const gw_mpi_many many = {.saved = gw_mpi_save(count, requests), .count = count, .statuses = statuses};
    return gw_mpi_conclude_many(PMPI_Testall(count, requests, flag, statuses), &many);
}

/* ------------ some of many ------------ */

GW_MPI_ENTRY(Testsome,
             (int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[]))
{
    gw_mpi_drive();
    gw_mpi_many many = {.saved = gw_mpi_save(incount, requests), .indices = indices, .statuses = statuses};
    const int result = PMPI_Testsome(incount, requests, outcount, indices, statuses);
    many.count = *outcount != MPI_UNDEFINED ? *outcount : 0;
    return gw_mpi_conclude_many(result, &many);
}

GW_MPI_ENTRY(Waitsome,
             (int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[]))
{
    gw_mpi_many many = {.saved = gw_mpi_save(incount, requests), .indices = indices, .statuses = statuses};
    int result = MPI_SUCCESS;
    *outcount = 0;
    GW_MPI_POLL(result, *outcount != 0, PMPI_Testsome(incount, requests, outcount, indices, statuses),
                PMPI_Waitsome(incount, requests, outcount, indices, statuses))
    many.count = *outcount != MPI_UNDEFINED ? *outcount : 0;
    return gw_mpi_conclude_many(result, &many);
}
