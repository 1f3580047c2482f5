/*
 * Communicators. Operations run on a duplicate of their own, so that their messages never meet the program's.
 * It is an attribute of the program's communicator and goes with it; duplicates of that one start without.
 *
 * It is made where the program makes its own: there all ranks of it are, and block. At any other moment the
 * making of a communicator, which MPI libraries do one after the other, could wait for one that the program
 * makes in another order on another rank.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

#include <stdlib.h>

static pthread_mutex_t gw_mpi_contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_mpi_context *gw_mpi_contexts;
static int gw_mpi_keyval = MPI_KEYVAL_INVALID;
static atomic_int gw_mpi_context_count;

#define GW_MPI_CONTEXTS_MAX 256

static void gw_mpi_context_link(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    context->next = gw_mpi_contexts;
    gw_mpi_contexts = context;
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    (void)atomic_fetch_add(&gw_mpi_context_count, 1);
}

static void gw_mpi_context_unlink(const gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    for (gw_mpi_context **at = &gw_mpi_contexts; *at != NULL; at = &(*at)->next) {
        if (*at == context) {
            *at = context->next;
            (void)atomic_fetch_sub(&gw_mpi_context_count, 1);
            break;
        }
    }
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
}

void gw_mpi_context_release(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    const int last = --context->references == 0;
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    if (last) {
        (void)pthread_mutex_destroy(&context->lock);
        free(context);
    }
}

void gw_mpi_context_hold(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    context->references++;
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
}

/* Communicator to raise errors of requests on that outlive theirs: none if that returned errors. */
static MPI_Comm gw_mpi_context_heir(MPI_Comm comm)
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (PMPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS || handler == MPI_ERRORS_ARE_FATAL) {
        return MPI_COMM_SELF;
    }
    if (handler == MPI_ERRORS_RETURN) {
        return MPI_COMM_NULL;
    }
    (void)PMPI_Errhandler_free(&handler);
    return MPI_COMM_SELF;
}

/* Its communicator is freed: MPI_Comm_free() has waited for its operations, but not for their requests. */
static int gw_mpi_context_deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval;
    (void)extra;
    gw_mpi_context *context = value;
    context->user = gw_mpi_context_heir(comm);
    gw_mpi_context_unlink(context);
    (void)PMPI_Comm_free(&context->transport);
    gw_mpi_context_release(context);
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

/* The transport of a new context. A split takes no attributes along, so the program's copy callbacks are not
 * called. Communicators are scarce in some MPI libraries (2048 in MPICH), so contexts are limited; ranks may
 * have different numbers of them, and agree. */
static int gw_mpi_context_connect(gw_mpi_context *context)
{
    MPI_Errhandler handler;
    int status = PMPI_Comm_get_errhandler(context->user, &handler);
    if (status != MPI_SUCCESS) {
        return status;
    }
    /* A failure here is not the program's: it only goes on without compression */
    (void)PMPI_Comm_set_errhandler(context->user, MPI_ERRORS_RETURN);
    int room = atomic_load(&gw_mpi_context_count) < GW_MPI_CONTEXTS_MAX;
    status = PMPI_Allreduce(MPI_IN_PLACE, &room, 1, MPI_INT, MPI_MIN, context->user);
    if (status == MPI_SUCCESS && room) {
        status = PMPI_Comm_split(context->user, 0, context->rank, &context->transport);
    }
    (void)PMPI_Comm_set_errhandler(context->user, handler);
    if (handler != MPI_ERRORS_ARE_FATAL && handler != MPI_ERRORS_RETURN) {
        (void)PMPI_Errhandler_free(&handler);
    }
    if (context->transport != MPI_COMM_NULL) {
        (void)PMPI_Comm_set_errhandler(context->transport, MPI_ERRORS_RETURN);
    }
    return status;
}

int gw_mpi_context_make(MPI_Comm comm)
{
    int between, size, status;
    if (comm == MPI_COMM_NULL || (status = PMPI_Comm_test_inter(comm, &between)) != MPI_SUCCESS || between ||
        (status = PMPI_Comm_size(comm, &size)) != MPI_SUCCESS || size == 1 ||
        gw_mpi_context_find(comm, &status) != NULL || status != MPI_SUCCESS) {
        return comm == MPI_COMM_NULL ? MPI_SUCCESS : status;
    }
    gw_mpi_context *context = gw_mpi_allocate(1, sizeof(*context));
    context->user = comm;
    context->references = 1;
    context->transport = MPI_COMM_NULL;
    context->size = size;
    (void)pthread_mutex_init(&context->lock, NULL);
    atomic_init(&context->turn, 0);
    atomic_init(&context->live, 0);
    status = PMPI_Comm_rank(comm, &context->rank);
    if (status == MPI_SUCCESS) {
        status = gw_mpi_context_connect(context);
    }
    if (status == MPI_SUCCESS && context->transport != MPI_COMM_NULL) {
        status = PMPI_Comm_set_attr(comm, gw_mpi_keyval, context);
        if (status == MPI_SUCCESS) {
            gw_mpi_context_link(context);
            return MPI_SUCCESS;
        }
        (void)PMPI_Comm_free(&context->transport);
    }
    gw_mpi_context_release(context);
    return status;
}

gw_mpi_context *gw_mpi_context_get(MPI_Comm comm)
{
    int status;
    return gw_mpi_context_find(comm, &status);
}

void gw_mpi_context_adopt(MPI_Comm parent, MPI_Comm made)
{
    if (made != MPI_COMM_NULL && atomic_load_explicit(&gw_mpi_enabled, memory_order_relaxed) &&
        gw_mpi_context_get(parent) != NULL) {
        (void)gw_mpi_context_make(made);
    }
}

void gw_mpi_context_drain(MPI_Comm comm)
{
    int status;
    if (atomic_load_explicit(&gw_mpi_active, memory_order_relaxed) == 0 || comm == MPI_COMM_NULL) {
        return;
    }
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
