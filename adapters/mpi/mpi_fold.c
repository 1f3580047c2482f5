/*
 * Sums and maxima of unsigned integers over the ranks of an operation. Rank r owns part r of the array: all
 * send it theirs of that part, it adds them, and sends the result to all. The order of additions does not
 * matter to integers, so that they happen as messages are there.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>

enum { FOLD_SCATTERS, FOLD_FOLDED, FOLD_GATHERS, FOLD_COMPLETE };

struct gw_mpi_fold {
    gw_mpi_operation *operation;
    gw_mpi_terms terms;
    int stage, failed;
    uint64_t own_len;
    gw_mpi_block *received; /* the own part of all other ranks, in their order */
    MPI_Request *requests;  /* [2 * rank]: to send, [2 * rank + 1]: to receive */
};

/* ------------ parts ------------ */

static uint64_t gw_mpi_fold_first(const gw_mpi_fold *fold, int rank)
{
    const uint64_t ranks = (uint64_t)fold->operation->context->size, len = fold->terms.len;
    const uint64_t r = (uint64_t)rank, more = len % ranks;
    return len / ranks * r + (r < more ? r : more);
}

static uint64_t gw_mpi_fold_len(const gw_mpi_fold *fold, int rank)
{
    return gw_mpi_fold_first(fold, rank + 1) - gw_mpi_fold_first(fold, rank);
}

static void *gw_mpi_fold_at(const gw_mpi_fold *fold, int rank)
{
    return (uint8_t *)fold->terms.data + gw_mpi_fold_first(fold, rank) * (fold->terms.bits / 8);
}

/* What rank's part has from this one on: index of it among the others. */
static void *gw_mpi_fold_received(const gw_mpi_fold *fold, int rank)
{
    const uint64_t index = (uint64_t)(rank - (rank > fold->operation->context->rank));
    return fold->received->data + index * fold->own_len * (fold->terms.bits / 8);
}

static MPI_Datatype gw_mpi_fold_type(const gw_mpi_fold *fold)
{
    return fold->terms.bits == 8 ? MPI_UINT8_T : fold->terms.bits == 16 ? MPI_UINT16_T : MPI_UINT32_T;
}

/* ------------ messages ------------ */

static void gw_mpi_fold_post(gw_mpi_fold *fold, int rank, int gathers)
{
    const int own = fold->operation->context->rank;
    gw_mpi_parcel parcel = {
        .type = gw_mpi_fold_type(fold),
        .peer = rank,
        .message = gathers ? fold->terms.gather : fold->terms.scatter,
    };
    const int sender = gathers ? own : rank, receiver = gathers ? rank : own;
    parcel.data = gathers ? gw_mpi_fold_at(fold, rank) : gw_mpi_fold_received(fold, rank);
    parcel.count = (int)gw_mpi_fold_len(fold, receiver);
    if (parcel.count > 0) {
        fold->failed |=
            gw_mpi_receive(fold->operation, &parcel, &fold->requests[2 * rank + 1]) != MPI_SUCCESS;
    }
    parcel.data = gw_mpi_fold_at(fold, sender);
    parcel.count = (int)gw_mpi_fold_len(fold, sender);
    if (parcel.count > 0) {
        fold->failed |= gw_mpi_send(fold->operation, &parcel, &fold->requests[2 * rank]) != MPI_SUCCESS;
    }
}

static void gw_mpi_fold_post_all(gw_mpi_fold *fold, int gathers)
{
    const gw_mpi_context *context = fold->operation->context;
    for (int k = 1; k < context->size; k++) {
        gw_mpi_fold_post(fold, (context->rank + k) % context->size, gathers);
    }
}

/* 1: all of the stage are there. */
static int gw_mpi_fold_arrived(gw_mpi_fold *fold)
{
    int complete = 0;
    const int status =
        PMPI_Testall(2 * fold->operation->context->size, fold->requests, &complete, MPI_STATUSES_IGNORE);
    fold->failed |= status != MPI_SUCCESS;
    gw_mpi_operation_mpi_error(fold->operation, status);
    return complete || fold->failed;
}

/* ------------ life ------------ */

gw_mpi_fold *gw_mpi_fold_start(gw_mpi_operation *operation, const gw_mpi_terms *terms)
{
    const gw_mpi_context *context = operation->context;
    gw_mpi_fold *fold = gw_mpi_allocate(1, sizeof(*fold));
    fold->operation = operation;
    fold->terms = *terms;
    fold->own_len = gw_mpi_fold_len(fold, context->rank);
    fold->received = gw_mpi_block_take(fold->own_len * (terms->bits / 8) * (uint64_t)(context->size - 1));
    fold->requests = gw_mpi_allocate((size_t)context->size * 2, sizeof(MPI_Request));
    for (int i = 0; i < 2 * context->size; i++) {
        fold->requests[i] = MPI_REQUEST_NULL;
    }
    gw_mpi_fold_post_all(fold, 0);
    return fold;
}

int gw_mpi_fold_test(gw_mpi_fold *fold, int may_gather)
{
    const gw_mpi_context *context = fold->operation->context;
    if (fold->stage == FOLD_SCATTERS && gw_mpi_fold_arrived(fold)) {
        for (int rank = 0; rank < context->size && !fold->failed; rank++) {
            if (rank != context->rank) {
                const int status = PMPI_Reduce_local(
                    gw_mpi_fold_received(fold, rank), gw_mpi_fold_at(fold, context->rank), (int)fold->own_len,
                    gw_mpi_fold_type(fold), fold->terms.maximum ? MPI_MAX : MPI_SUM);
                gw_mpi_operation_mpi_error(fold->operation, status);
            }
        }
        fold->stage = fold->terms.gathers ? FOLD_FOLDED : FOLD_COMPLETE;
    }
    if (fold->stage == FOLD_FOLDED && may_gather) {
        gw_mpi_fold_post_all(fold, 1);
        fold->stage = FOLD_GATHERS;
    }
    if (fold->stage == FOLD_GATHERS && gw_mpi_fold_arrived(fold)) {
        fold->stage = FOLD_COMPLETE;
    }
    return fold->stage == FOLD_COMPLETE;
}

int gw_mpi_fold_gathers(const gw_mpi_fold *fold)
{
    return fold->stage >= FOLD_GATHERS;
}

void gw_mpi_fold_free(gw_mpi_fold *fold)
{
    /* After an error of MPI messages may still arrive */
    if (fold == NULL || fold->failed) {
        return;
    }
    gw_mpi_block_release(fold->received);
    free(fold->requests);
    free(fold);
}
