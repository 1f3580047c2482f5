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
static atomic_int gw_mpi_duplications; /* that are not complete */

/* How long a blocking call waits for them: they need other ranks, most of which are about to make theirs */
#define GW_MPI_PATIENCE_NS 100000000u

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

/* Where errors of requests are raised that outlive their communicator: nowhere if it returned them, else as
 * those that belong to no communicator. */
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
    while (!gw_mpi_context_ready(context)) {
        (void)sched_yield();
    }
    if (context->transport != MPI_COMM_NULL) {
        (void)PMPI_Comm_free(&context->transport);
    }
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

static gw_mpi_context *gw_mpi_context_make(MPI_Comm comm, int size, int *status)
{
    gw_mpi_context *context = gw_mpi_allocate(1, sizeof(*context));
    context->user = comm;
    context->references = 1;
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

/* 1 if a duplication of this process is not complete, after some time for it. MPICH's do not block others. */
static int gw_mpi_contexts_pending(void)
{
#ifdef OPEN_MPI
    const uint64_t end = gw_mpi_now_ns() + GW_MPI_PATIENCE_NS;
    while (atomic_load(&gw_mpi_duplications) > 0 && gw_mpi_now_ns() < end) {
        (void)gw_mpi_progress();
    }
    return atomic_load(&gw_mpi_duplications) > 0;
#else
    return 0;
#endif
}

/* A split takes no attributes along, so the program's copy callbacks are not called. It blocks, which only a
 * blocking call may do, and it makes no progress with operations of other communicators, on which ranks may
 * depend that are not here yet: it comes after all have met in a reduction that does. In Open MPI it would
 * also wait for the duplications of older communicators. If a rank has one, all do without a transport for
 * this call. */
static int gw_mpi_context_connect(gw_mpi_context *context, int blocking)
{
    MPI_Request meeting;
    if (!blocking) {
        (void)atomic_fetch_add(&gw_mpi_duplications, 1);
        return PMPI_Comm_idup(context->user, &context->transport, &context->duplication);
    }
    int pending = gw_mpi_contexts_pending();
    int status = PMPI_Iallreduce(MPI_IN_PLACE, &pending, 1, MPI_INT, MPI_MAX, context->user, &meeting);
    if (status == MPI_SUCCESS) {
        status = gw_mpi_wait_polling(&meeting, MPI_STATUS_IGNORE);
    }
    if (status == MPI_SUCCESS && !pending) {
        status = PMPI_Comm_split(context->user, 0, context->rank, &context->transport);
        if (status == MPI_SUCCESS) {
            (void)PMPI_Comm_set_errhandler(context->transport, MPI_ERRORS_RETURN);
        }
    }
    return status;
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
    }
    if (context->transport == MPI_COMM_NULL && context->duplication == MPI_REQUEST_NULL) {
        *status = gw_mpi_context_connect(context, blocking);
    }
    const int has_transport = context->transport != MPI_COMM_NULL || context->duplication != MPI_REQUEST_NULL;
    return *status == MPI_SUCCESS && has_transport ? context : NULL;
}

int gw_mpi_context_ready(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    if (context->duplication != MPI_REQUEST_NULL) {
        int complete = 0;
        if (PMPI_Test(&context->duplication, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete) {
            (void)atomic_fetch_sub(&gw_mpi_duplications, 1);
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
