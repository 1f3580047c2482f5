/*
 * Communicators of operations. What an operation needs to know of its communicator is an attribute of it,
 * made by its first operation and gone with it; duplicates start without. All messages travel on one
 * communicator (mpi_transport.c), so none is made here.
 *
 * Messages of different communicators have different numbers in their tags. Each rank chooses the number of
 * what it receives, the smallest that is free, so that no two of its communicators have the same, whatever
 * communicators the other ranks have and in whatever order they make them. The first operation tells the
 * others, by an all-gather of one word on the program's communicator: the program calls a collective on it
 * just there, so all ranks do, in the same order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_context.h"

#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t gw_mpi_contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_mpi_context *gw_mpi_contexts;
static int gw_mpi_keyval = MPI_KEYVAL_INVALID;
static uint8_t *gw_mpi_numbers; /* 1: taken */

/* ------------ numbers ------------ */

/* GW_MPI_NUMBER_NONE if tags have no room for another one. */
static uint32_t gw_mpi_number_take(void)
{
    const uint32_t max = gw_mpi_transport_numbers;
    uint32_t number = 0;
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    if (gw_mpi_numbers == NULL) {
        /* Megabytes, of which only the first page is touched */
        gw_mpi_numbers = gw_mpi_allocate(max, 1);
    }
    while (number < max && gw_mpi_numbers[number]) {
        number++;
    }
    if (number < max) {
        gw_mpi_numbers[number] = 1;
    }
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    return number < max ? number : GW_MPI_NUMBER_NONE;
}

/* ------------ life ------------ */

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

/* The number is free again once all operations are complete: then all messages with it have been received. */
void gw_mpi_context_release(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    const int last = --context->references == 0;
    if (last && gw_mpi_numbers != NULL && context->number != GW_MPI_NUMBER_NONE &&
        context->failed != GW_ERR_DEVICE && atomic_load(&context->lost) == 0) {
        gw_mpi_numbers[context->number] = 0;
    }
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    if (last) {
        (void)pthread_mutex_destroy(&context->lock);
        free(context->world);
        free(context->numbers);
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
static MPI_Comm gw_mpi_context_successor(MPI_Comm comm)
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
    context->user = gw_mpi_context_successor(comm);
    gw_mpi_context_unlink(context);
    gw_mpi_context_release(context);
    return MPI_SUCCESS;
}

gw_mpi_context *gw_mpi_context_find(MPI_Comm comm)
{
    gw_mpi_context *context = NULL;
    int found = 0, status = MPI_SUCCESS;
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    if (gw_mpi_keyval == MPI_KEYVAL_INVALID) {
        status = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, gw_mpi_context_deleted, &gw_mpi_keyval, NULL);
    }
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    if (status == MPI_SUCCESS) {
        status = PMPI_Comm_get_attr(comm, gw_mpi_keyval, &context, &found);
    }
    return status == MPI_SUCCESS && found ? context : NULL;
}

/* Ranks in MPI_COMM_WORLD. 0 if one is not in it: then one is not in any rank's, and all of them see it. */
static int gw_mpi_context_translate(gw_mpi_context *context)
{
    MPI_Group own = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    int *ranks = gw_mpi_allocate((size_t)context->size, sizeof(int));
    int inside = 0;
    context->world = gw_mpi_allocate((size_t)context->size, sizeof(int));
    for (int r = 0; r < context->size; r++) {
        ranks[r] = r;
    }
    if (PMPI_Comm_group(context->user, &own) == MPI_SUCCESS &&
        PMPI_Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
        inside = PMPI_Group_translate_ranks(own, context->size, ranks, world, context->world) == MPI_SUCCESS;
    }
    for (int r = 0; r < context->size && inside; r++) {
        inside = context->world[r] != MPI_UNDEFINED;
    }
    if (own != MPI_GROUP_NULL) {
        (void)PMPI_Group_free(&own);
    }
    if (world != MPI_GROUP_NULL) {
        (void)PMPI_Group_free(&world);
    }
    free(ranks);
    return inside;
}

static gw_mpi_context *gw_mpi_context_make(MPI_Comm comm)
{
    int between, size;
    if (PMPI_Comm_test_inter(comm, &between) != MPI_SUCCESS || between ||
        PMPI_Comm_size(comm, &size) != MPI_SUCCESS || size == 1) {
        return NULL;
    }
    gw_mpi_context *context = gw_mpi_allocate(1, sizeof(*context));
    context->user = comm;
    context->references = 1;
    context->size = size;
    context->number = GW_MPI_NUMBER_NONE;
    context->gather = MPI_REQUEST_NULL;
    (void)pthread_mutex_init(&context->lock, NULL);
    atomic_init(&context->lost, 0);
    atomic_init(&context->live, 0);
    atomic_init(&context->encoding, 0);
    for (uint32_t i = 0; i < GW_MPI_OPERATIONS_OPEN; i++) {
        atomic_init(&context->turns[i], i);
    }
    context->inside =
        PMPI_Comm_rank(comm, &context->rank) == MPI_SUCCESS && gw_mpi_context_translate(context);
    int len = 0;
    (void)PMPI_Comm_get_name(comm, context->name, &len);
    if (len == 0) {
        (void)snprintf(context->name, sizeof(context->name), "(no name)");
    }
    if (PMPI_Comm_set_attr(comm, gw_mpi_keyval, context) != MPI_SUCCESS) {
        gw_mpi_context_release(context);
        return NULL;
    }
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    context->next = gw_mpi_contexts;
    gw_mpi_contexts = context;
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
    return context;
}

gw_mpi_context *gw_mpi_context_get(MPI_Comm comm)
{
    if (comm == MPI_COMM_NULL || !gw_mpi_transport_ready()) {
        return NULL;
    }
    gw_mpi_context *context = gw_mpi_context_find(comm);
    if (context == NULL) {
        context = gw_mpi_context_make(comm);
    }
    return context != NULL && context->inside ? context : NULL;
}

/* ------------ operations ------------ */

uint32_t gw_mpi_context_number(gw_mpi_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    const uint32_t number = context->started++;
    if (context->numbers == NULL) {
        context->numbers = gw_mpi_allocate((size_t)context->size, sizeof(uint32_t));
        context->number = gw_mpi_number_take();
        const int status = PMPI_Iallgather(&context->number, 1, MPI_UINT32_T, context->numbers, 1,
                                           MPI_UINT32_T, context->user, &context->gather);
        context->failed = status != MPI_SUCCESS ? GW_ERR_DEVICE : GW_OK;
    }
    (void)pthread_mutex_unlock(&context->lock);
    return number;
}

int gw_mpi_context_ready(gw_mpi_context *context)
{
    int complete = 0;
    (void)pthread_mutex_lock(&context->lock);
    if (!context->ready && context->failed == GW_OK &&
        PMPI_Test(&context->gather, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        context->failed = GW_ERR_DEVICE;
    }
    for (int r = 0; r < context->size && complete && context->failed == GW_OK; r++) {
        if (context->numbers[r] == GW_MPI_NUMBER_NONE) {
            gw_mpi_log_write(
                "rank %d of a communicator has sums on %u others, which is as many as MPI's tags can tell "
                "apart: its sums fail; GRADWIRE_MPI=off leaves all to MPI",
                r, (unsigned)gw_mpi_transport_numbers);
            context->failed = GW_ERR_LIMIT;
        }
    }
    context->ready |= complete || context->failed != GW_OK;
    const int ready = context->failed != GW_OK ? -1 : context->ready;
    (void)pthread_mutex_unlock(&context->lock);
    return ready;
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
    (void)pthread_mutex_lock(&gw_mpi_contexts_lock);
    free(gw_mpi_numbers);
    gw_mpi_numbers = NULL;
    (void)pthread_mutex_unlock(&gw_mpi_contexts_lock);
}
