/*
 * Operations: start, progress, vote, outcome. Exchanges move the values.
 *
 * An operation ends with a vote: the maximum of all ranks' status words, so that all ranks return the same.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_progress.h"

#include <sched.h>
#include <stdlib.h>

atomic_int gw_mpi_active, gw_mpi_outstanding, gw_mpi_requests;
atomic_uint gw_mpi_rounds;

#define GW_MPI_ROUND_MAX 64 /* operations that are looked at under one lock of the list */

static pthread_mutex_t gw_mpi_list_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_mpi_operation *gw_mpi_list;
static uint64_t gw_mpi_serial; /* of the last one that was started */

/* ------------ life ------------ */

/* The last user, the owner of the request or a thread that makes progress, frees the operation. */
static void gw_mpi_operation_release(gw_mpi_operation *operation, int pins, int released)
{
    (void)pthread_mutex_lock(&gw_mpi_list_lock);
    operation->pins -= pins;
    operation->released |= released;
    const int last = operation->pins == 0 && operation->released;
    (void)pthread_mutex_unlock(&gw_mpi_list_lock);
    if (last) {
        (void)pthread_mutex_destroy(&operation->lock);
        gw_mpi_context_release(operation->context);
        free(operation);
    }
}

/* Called inside the call that completes the request, by its thread. Returns success even after a failure: MPI
 * would call the error handler of MPI_COMM_WORLD. The intercepted call finds the failure in gw_mpi_failed. */
static int gw_mpi_request_query(void *extra, MPI_Status *status)
{
    gw_mpi_operation *operation = extra;
    atomic_store(&operation->reported, 1);
    gw_mpi_outcome_tell(operation);
    (void)PMPI_Status_set_elements(status, MPI_BYTE, 0);
    (void)PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* The failure of a request that the program has freed is reported once its operation has ended too, whichever
 * is later: MPICH calls gw_mpi_request_free() at once, Open MPI at the end. */
static void gw_mpi_operation_part(gw_mpi_operation *operation, int freed, int ended)
{
    (void)pthread_mutex_lock(&gw_mpi_list_lock);
    operation->freed |= freed;
    operation->ended |= ended;
    const int last = operation->freed && operation->ended;
    (void)pthread_mutex_unlock(&gw_mpi_list_lock);
    if (last && !atomic_load(&operation->reported)) {
        gw_mpi_outcome_tell(operation);
    }
}

/* Open MPI may call this in the thread that made progress, after another one has completed the request. */
static int gw_mpi_request_free(void *extra)
{
    gw_mpi_operation *operation = extra;
    gw_mpi_operation_part(operation, 1, 0);
    (void)atomic_fetch_sub(&gw_mpi_requests, 1);
    gw_mpi_operation_release(operation, 0, 1);
    return MPI_SUCCESS;
}

static int gw_mpi_request_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS; /* collectives cannot be cancelled */
}

static int gw_mpi_operation_step(gw_mpi_operation *operation);

/* 1 once it is known, on all ranks alike, how the values travel. */
static int gw_mpi_operation_decided(gw_mpi_operation *operation)
{
    gw_mpi_options *options = &operation->call.options;
    int is_exact = 0;
    if (operation->decided) {
        return 1;
    }
    if (operation->exact != NULL && !gw_mpi_exact_test(operation->exact, &is_exact)) {
        return 0;
    }
    if (is_exact) {
        options->mode = GW_MPI_CONSTANT;
        options->constant_drop = 0;
    }
    operation->decided = 1;
    operation->exchange =
        options->mode == GW_MPI_THC ? gw_mpi_lanes_begin(operation) : gw_mpi_exchange_frames(operation);
    return 1;
}

gw_mpi_operation *gw_mpi_operation_start(gw_mpi_context *context, const gw_mpi_call *call,
                                         MPI_Request *request)
{
    gw_mpi_operation *operation = gw_mpi_allocate(1, sizeof(*operation));
    operation->context = context;
    operation->call = *call;
    operation->mpi_error = MPI_SUCCESS;
    (void)pthread_mutex_init(&operation->lock, NULL);
    atomic_init(&operation->done, 0);
    atomic_init(&operation->reported, 0);
    if (request != NULL) {
        operation->generalized = 1;
        (void)atomic_fetch_add(&gw_mpi_requests, 1);
        const int status = PMPI_Grequest_start(gw_mpi_request_query, gw_mpi_request_free,
                                               gw_mpi_request_cancel, operation, &operation->request);
        gw_mpi_operation_mpi_error(operation, status);
        *request = operation->request;
    }
    operation->start_ns = gw_mpi_now_ns();
    operation->number = gw_mpi_context_number(context);
    operation->sample = gw_mpi_sample_start(operation);
    (void)atomic_fetch_add(&context->live, 1);
    gw_mpi_context_hold(context);
    if (call->may_be_exact) {
        operation->exact = gw_mpi_exact_create(operation);
    }

    (void)pthread_mutex_lock(&gw_mpi_list_lock);
    gw_mpi_operation **end = &gw_mpi_list;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = operation;
    operation->pins = 2; /* the list's and this call's */
    operation->serial = ++gw_mpi_serial;
    (void)atomic_fetch_add(&gw_mpi_active, 1);
    (void)atomic_fetch_add(&gw_mpi_outstanding, operation->generalized);
    (void)pthread_mutex_unlock(&gw_mpi_list_lock);
    (void)gw_mpi_operation_step(operation); /* posts receives; codec work waits for calls that may block */
    gw_mpi_operation_release(operation, 1, 0);
    return operation;
}

/* A status word of an error of MPI. No other status of messages is above it, so the worst one of all ranks is
 * that if any is. */
static int gw_mpi_word_is_lost(uint64_t word)
{
    gw_collective_failure failure;
    gw_collective_word_read(word, &failure);
    return failure.status == GW_ERR_DEVICE;
}

/* Takes it from the list, and ends the list's use of it. */
static void gw_mpi_operation_end(gw_mpi_operation *operation)
{
    (void)pthread_mutex_lock(&gw_mpi_list_lock);
    for (gw_mpi_operation **at = &gw_mpi_list; *at != NULL; at = &(*at)->next) {
        if (*at == operation) {
            *at = operation->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&gw_mpi_list_lock);
    const uint32_t turn = operation->number % GW_MPI_OPERATIONS_OPEN;
    const int broken = operation->mpi_error != MPI_SUCCESS;
    if (!broken) {
        gw_mpi_exchange_close(operation->exchange);
    }
    gw_mpi_lanes_free(operation->lanes);
    gw_mpi_exact_free(operation->exact);
    gw_mpi_vote_free(operation->vote);
    gw_mpi_sample_free(operation->sample);
    if (gw_mpi_word_is_lost(operation->worst)) { /* on all ranks alike */
        (void)atomic_fetch_or(&operation->context->lost, 1u << turn);
    }
    atomic_store(&operation->context->turns[turn], operation->number + GW_MPI_OPERATIONS_OPEN);
    (void)atomic_fetch_sub(&operation->context->live, 1);
    if (operation->generalized) {
        (void)PMPI_Grequest_complete(operation->request);
        gw_mpi_operation_part(operation, 0, 1);
    }
    /* After the request is complete: a thread that sees 0 leaves the waiting to MPI */
    (void)atomic_fetch_sub(&gw_mpi_outstanding, operation->generalized);
    (void)atomic_fetch_sub(&gw_mpi_active, 1);
    if (!broken) { /* else its exchange stays, and uses it */
        gw_mpi_operation_release(operation, 1, 0);
    }
}

/* ------------ progress ------------ */

/* 1 when all ranks' words have arrived. */
static int gw_mpi_operation_vote(gw_mpi_operation *operation)
{
    if (!operation->voted) {
        operation->voted = 1;
        gw_mpi_vote_say(operation->vote, &operation->word);
    }
    const uint64_t *worst = gw_mpi_vote_test(operation->vote);
    operation->worst = worst != NULL ? *worst : 0;
    return worst != NULL;
}

/* 1 if the operation may send and work. *ended: it never may, on all ranks. */
static int gw_mpi_operation_open(gw_mpi_operation *operation, int *ended)
{
    gw_mpi_context *context = operation->context;
    if (operation->open) {
        return 1;
    }
    const uint32_t turn = operation->number % GW_MPI_OPERATIONS_OPEN;
    const int ready = gw_mpi_context_ready(context);
    const int begins = ready > 0 && atomic_load(&context->turns[turn]) == operation->number;
    const int lost = begins && (atomic_load(&context->lost) >> turn & 1);
    if (ready < 0 || lost) {
        gw_mpi_operation_fail(operation, lost ? GW_ERR_DEVICE : context->failed);
        operation->worst = operation->word;
        *ended = gw_mpi_sample_test(operation->sample);
    }
    operation->open = begins && !lost;
    return operation->open;
}

/* The rank before this one has voted an error of MPI: messages of it may be missing. */
static int gw_mpi_operation_hears(gw_mpi_operation *operation)
{
    const uint64_t *heard = gw_mpi_vote_heard(operation->vote);
    return heard != NULL && gw_mpi_word_is_lost(*heard);
}

/* Progress of an open operation: 1 when only the vote is left. After an error of MPI that is at once, so that
 * all ranks learn of it: one that waits hears it from the rank before it, and votes at once too. */
static int gw_mpi_operation_move(gw_mpi_operation *operation, int *moved)
{
    if (operation->vote == NULL) {
        operation->vote = gw_mpi_vote_listen(operation, GW_MPI_MESSAGE_CLOSING, 1);
    }
    if (operation->mpi_error == MPI_SUCCESS && gw_mpi_operation_decided(operation)) {
        *moved = gw_mpi_exchange_transport(operation->exchange);
        if (gw_mpi_exchange_complete(operation->exchange) && !gw_mpi_lanes_continue(operation)) {
            return 1;
        }
    }
    if (operation->mpi_error == MPI_SUCCESS && !*moved && gw_mpi_operation_hears(operation)) {
        gw_mpi_operation_mpi_error(operation, MPI_ERR_OTHER);
    }
    if (operation->mpi_error == MPI_SUCCESS) {
        return 0;
    }
    gw_mpi_exchange_abandon(operation->exchange);
    return 1;
}

/* One thread at a time handles an operation's messages. */
static int gw_mpi_operation_step(gw_mpi_operation *operation)
{
    int moved = 0, ended = 0;
    if (pthread_mutex_trylock(&operation->lock) != 0) {
        return 0;
    }
    const int open = !atomic_load(&operation->done) && gw_mpi_operation_open(operation, &ended);
    if (open && gw_mpi_operation_move(operation, &moved)) {
        ended = gw_mpi_operation_vote(operation) && gw_mpi_sample_test(operation->sample);
    }
    if (ended) {
        gw_mpi_statistics_end(operation); /* before the program may write over the result */
        atomic_store(&operation->done, 1);
    }
    (void)pthread_mutex_unlock(&operation->lock);
    if (ended) {
        gw_mpi_operation_end(operation);
    }
    return moved || ended;
}

/* Up to GW_MPI_ROUND_MAX active operations after place *serial, which moves on. The caller must release
 * them. */
static int gw_mpi_operations_pin(gw_mpi_operation **operations, uint64_t *serial)
{
    int count = 0;
    (void)pthread_mutex_lock(&gw_mpi_list_lock);
    for (gw_mpi_operation *at = gw_mpi_list; at != NULL && count < GW_MPI_ROUND_MAX; at = at->next) {
        if (at->serial > *serial) {
            at->pins++;
            operations[count++] = at;
        }
    }
    if (count > 0) {
        *serial = operations[count - 1]->serial;
    }
    (void)pthread_mutex_unlock(&gw_mpi_list_lock);
    return count;
}

int gw_mpi_progress(void)
{
    (void)atomic_fetch_add_explicit(&gw_mpi_rounds, 1, memory_order_relaxed);
    return gw_mpi_progress_round();
}

int gw_mpi_progress_round(void)
{
    gw_mpi_operation *operations[GW_MPI_ROUND_MAX];
    uint64_t serial = 0;
    int moved = gw_mpi_exchange_events(), count;
    /* All of them: ranks may have started those of several communicators in different orders. As many tasks
     * as operations, so that the walk does not cost more than the work */
    do {
        count = gw_mpi_operations_pin(operations, &serial);
        for (int i = 0; i < count; i++) {
            moved |= gw_mpi_operation_step(operations[i]);
            gw_mpi_operation_release(operations[i], 1, 0);
            moved |= gw_mpi_runtime_work();
        }
    } while (count == GW_MPI_ROUND_MAX);
    if (!moved) {
        (void)sched_yield();
    }
    return moved;
}

void gw_mpi_drain(MPI_Comm comm)
{
    if (atomic_load_explicit(&gw_mpi_active, memory_order_relaxed) == 0 || comm == MPI_COMM_NULL) {
        return;
    }
    gw_mpi_context *context = gw_mpi_context_find(comm);
    while (context != NULL && atomic_load(&context->live) > 0) {
        (void)gw_mpi_progress();
    }
}

int gw_mpi_operation_wait(gw_mpi_operation *operation)
{
    while (!atomic_load(&operation->done)) {
        (void)gw_mpi_progress();
    }
    const int code = gw_mpi_error_code(operation->worst);
    const MPI_Comm comm = operation->context->user;
    gw_mpi_operation_release(operation, 0, 1);
    return gw_mpi_error_raise(comm, code);
}
