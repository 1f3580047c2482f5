/*
 * Communicators. Operations run on a duplicate of their own, so that their messages never meet the program's.
 * It is an attribute of the program's communicator and goes with it; duplicates of that one start without.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

#include <sched.h>
#include <stdlib.h>

static pthread_mutex_t gw_mpi_contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_mpi_context *gw_mpi_contexts;
static int gw_mpi_keyval = MPI_KEYVAL_INVALID;

static void gw_mpi_context_unlink(const gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    for (gw_mpi_context **at = &gw_mpi_contexts; *at != NULL; at = &(*at)->next) {
        if (*at == context) {
            *at = context->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
}

/* Its communicator is freed: MPI_Comm_free() has waited for its operations. */
static int gw_mpi_context_deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    gw_mpi_context *context = value;
    gw_mpi_context_unlink(context);
    while (!gw_mpi_context_ready(context)) {
        (void)sched_yield();
    }
    (void)PMPI_Comm_free(&context->transport);
    (void)pthread_mutex_destroy(&context->lock);
    free(context);
    return MPI_SUCCESS;
}

static gw_mpi_context *gw_mpi_context_find(MPI_Comm comm, int *status)
{
    gw_mpi_context *context = NULL;
    int found = 0;
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    *status = MPI_SUCCESS;
    if (gw_mpi_keyval == MPI_KEYVAL_INVALID) {
        *status =
            PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, gw_mpi_context_deleted, &gw_mpi_keyval, NULL);
    }
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    if (*status == MPI_SUCCESS) {
        *status = PMPI_Comm_get_attr(comm, gw_mpi_keyval, &context, &found);
    }
    return found ? context : NULL;
}

static gw_mpi_context *gw_mpi_context_make(MPI_Comm comm, int size, int *status)
{
    gw_mpi_context *context = gw_mpi_allocate(1, sizeof(*context));
    context->user = comm;
    context->transport = MPI_COMM_NULL;
    context->duplication = MPI_REQUEST_NULL;
    context->size = size;
    (void)pthread_mutex_init(&context->lock, NULL);
    atomic_init(&context->turn, 0);
    atomic_init(&context->live, 0);
    *status = PMPI_Comm_rank(comm, &context->rank);
    if (*status == MPI_SUCCESS) {
        *status = PMPI_Comm_set_attr(comm, gw_mpi_keyval, context);
    }
    if (*status != MPI_SUCCESS) {
        (void)pthread_mutex_destroy(&context->lock);
        free(context);
        return NULL;
    }
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    context->next = gw_mpi_contexts;
    gw_mpi_contexts = context;
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    return context;
}

gw_mpi_context *gw_mpi_context_get(MPI_Comm comm, int blocking, int *status)
{
    int between, size;
    gw_mpi_context *context = gw_mpi_context_find(comm, status);
    if (context == NULL) {
        if (*status != MPI_SUCCESS || (*status = PMPI_Comm_test_inter(comm, &between)) != MPI_SUCCESS ||
            between || (*status = PMPI_Comm_size(comm, &size)) != MPI_SUCCESS || size == 1) {
            return NULL;
        }
        context = gw_mpi_context_make(comm, size, status);
        if (context == NULL) {
            return NULL;
        }
        /* A split takes no attributes along, so the program's copy callbacks are not called. It blocks, which
         * only a blocking call may do */
        if (blocking) {
            *status = PMPI_Comm_split(comm, 0, context->rank, &context->transport);
        } else {
            *status = PMPI_Comm_idup(comm, &context->transport, &context->duplication);
        }
        if (*status == MPI_SUCCESS && blocking) {
            (void)PMPI_Comm_set_errhandler(context->transport, MPI_ERRORS_RETURN);
        }
    }
    return *status == MPI_SUCCESS ? context : NULL;
}

int gw_mpi_context_ready(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    if (context->duplication != MPI_REQUEST_NULL) {
        int complete = 0;
        if (PMPI_Test(&context->duplication, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete) {
            (void)PMPI_Comm_set_errhandler(context->transport, MPI_ERRORS_RETURN);
        }
    }
    const int ready = context->duplication == MPI_REQUEST_NULL;
    (void)pthread_mutex_unlock(&context->lock);
    return ready;
}

void gw_mpi_context_drain(MPI_Comm comm)
{
    int status;
    gw_mpi_context *context = gw_mpi_context_find(comm, &status);
    while (context != NULL && atomic_load(&context->live) > 0) {
        (void)gw_mpi_progress();
    }
}

/* MPI_Finalize: what the program has not freed. */
void gw_mpi_contexts_close(void)
{
    for (;;) {
        (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
        gw_mpi_context *context = gw_mpi_contexts;
        (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
        if (context == NULL) {
            break;
        }
        if (PMPI_Comm_delete_attr(context->user, gw_mpi_keyval) != MPI_SUCCESS) {
            gw_mpi_context_unlink(context);
        }
    }
    if (gw_mpi_keyval != MPI_KEYVAL_INVALID) {
        (void)PMPI_Comm_free_keyval(&gw_mpi_keyval);
    }
}
