/*
 * Outcomes: the worst failure of an operation on this rank, MPI's error code for the one that all ranks have
 * agreed on, and what a thread has yet to report of operations with requests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_operations.h"

#include <stdio.h>
#include <stdlib.h>

_Thread_local gw_mpi_failures gw_mpi_failed;

static pthread_mutex_t gw_mpi_codes_lock = PTHREAD_MUTEX_INITIALIZER;
static int gw_mpi_class;
static int gw_mpi_codes[256]; /* by status; 0: not made yet */

int gw_mpi_error_code(uint64_t word)
{
    gw_collective_failure failure;
    gw_collective_word_read(word, &failure);
    if (failure.status == GW_OK) {
        return MPI_SUCCESS;
    }
    const unsigned status = (unsigned)failure.status & 255u;
    (void)pthread_mutex_lock(&gw_mpi_codes_lock);
    if (gw_mpi_class == 0) {
        (void)PMPI_Add_error_class(&gw_mpi_class);
        (void)PMPI_Add_error_string(gw_mpi_class, "gradwire: a compressed collective failed");
    }
    if (gw_mpi_codes[status] == 0) {
        char text[MPI_MAX_ERROR_STRING];
        (void)snprintf(text, sizeof(text), "gradwire: a compressed collective failed on all ranks: %s",
                       gw_status_message(failure.status));
        (void)PMPI_Add_error_code(gw_mpi_class, &gw_mpi_codes[status]);
        (void)PMPI_Add_error_string(gw_mpi_codes[status], text);
    }
    const int code = gw_mpi_codes[status];
    (void)pthread_mutex_unlock(&gw_mpi_codes_lock);
    return code;
}

int gw_mpi_error_raise(MPI_Comm comm, int code)
{
    if (code != MPI_SUCCESS && comm != MPI_COMM_NULL) {
        (void)PMPI_Comm_call_errhandler(comm, code);
    }
    return code;
}

void gw_mpi_operation_word(gw_mpi_operation *operation, uint64_t word)
{
    operation->word = word > operation->word ? word : operation->word;
}

void gw_mpi_operation_fail(gw_mpi_operation *operation, gw_status status)
{
    const gw_collective_failure failure = {.status = status, .rank = (uint32_t)operation->context->rank};
    gw_mpi_operation_word(operation, gw_collective_word_write(&failure));
}

void gw_mpi_operation_mpi_error(gw_mpi_operation *operation, int error)
{
    if (error == MPI_SUCCESS) {
        return;
    }
    if (operation->mpi_error == MPI_SUCCESS) {
        operation->mpi_error = error;
    }
    gw_mpi_operation_fail(operation, GW_ERR_DEVICE);
}

void gw_mpi_outcome_tell(const gw_mpi_operation *operation)
{
    if (operation->worst == 0) {
        return;
    }
    for (int i = 0; i < gw_mpi_failed.count; i++) {
        if (gw_mpi_failed.at[i].request == operation->request) {
            return;
        }
    }
    if (gw_mpi_failed.count == gw_mpi_failed.capacity) {
        gw_mpi_failed.capacity = 2 * gw_mpi_failed.capacity + 8;
        gw_mpi_failed.at =
            realloc(gw_mpi_failed.at, (size_t)gw_mpi_failed.capacity * sizeof(*gw_mpi_failed.at));
        if (gw_mpi_failed.at == NULL) {
            gw_mpi_out_of_memory();
        }
    }
    gw_mpi_failed.at[gw_mpi_failed.count++] = (struct gw_mpi_failure){
        .request = operation->request, .comm = operation->context->user, .word = operation->worst};
}

void gw_mpi_failed_clear(void)
{
    free(gw_mpi_failed.at);
    gw_mpi_failed = (gw_mpi_failures){.count = 0};
}

/* The result of a call that has freed at most one request of ours. */
int gw_mpi_conclude(int status)
{
    if (gw_mpi_failed.count == 0) {
        return status;
    }
    const MPI_Comm comm = gw_mpi_failed.at[0].comm;
    const int code = gw_mpi_error_code(gw_mpi_failed.at[0].word);
    gw_mpi_failed_clear(); /* before an error handler calls MPI */
    return gw_mpi_error_raise(comm, code);
}
