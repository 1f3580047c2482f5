/*
 * Votes: the maximum of one word over the ranks of a communicator, by point-to-point messages.
 *
 * In round k a rank sends what it knows to the rank 2^k after it and hears from the rank 2^k before it. After
 * the last round it has heard of all, some twice, which a maximum does not mind. Messages of one vote to a
 * rank come from different ranks, so that one tag suffices for all rounds, and votes of different operations
 * need no order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>

#define GW_MPI_VOTE_ROUNDS_MAX 32

struct gw_mpi_vote {
    gw_mpi_operation *operation;
    gw_mpi_message message;
    int rounds, round; /* of all; the one that runs */
    int failed;        /* a message could not be sent or received */
    uint64_t word;
    uint64_t sent[GW_MPI_VOTE_ROUNDS_MAX], heard[GW_MPI_VOTE_ROUNDS_MAX];
    MPI_Request sends[GW_MPI_VOTE_ROUNDS_MAX], receives[GW_MPI_VOTE_ROUNDS_MAX];
};

static void gw_mpi_vote_error(gw_mpi_vote *vote, int status)
{
    vote->failed |= status != MPI_SUCCESS;
    gw_mpi_operation_mpi_error(vote->operation, status);
}

/* The rank so many places after this one. */
static gw_mpi_parcel gw_mpi_vote_parcel(const gw_mpi_vote *vote, uint64_t *data, int64_t distance)
{
    const gw_mpi_context *context = vote->operation->context;
    return (gw_mpi_parcel){
        .data = data,
        .count = 1,
        .type = MPI_UINT64_T,
        .peer = (int)((context->rank + distance + context->size) % context->size),
        .message = vote->message,
    };
}

static void gw_mpi_vote_send(gw_mpi_vote *vote)
{
    const int k = vote->round;
    const gw_mpi_parcel parcel = gw_mpi_vote_parcel(vote, &vote->sent[k], INT64_C(1) << k);
    vote->sent[k] = vote->word;
    vote->failed |= gw_mpi_send(vote->operation, &parcel, &vote->sends[k]) != MPI_SUCCESS;
}

gw_mpi_vote *gw_mpi_vote_start(gw_mpi_operation *operation, gw_mpi_message message, uint64_t word)
{
    const gw_mpi_context *context = operation->context;
    gw_mpi_vote *vote = gw_mpi_allocate(1, sizeof(*vote));
    vote->operation = operation;
    vote->message = message;
    vote->word = word;
    while (INT64_C(1) << vote->rounds < context->size) {
        vote->rounds++;
    }
    for (int k = 0; k < vote->rounds; k++) {
        const gw_mpi_parcel parcel = gw_mpi_vote_parcel(vote, &vote->heard[k], -(INT64_C(1) << k));
        vote->sends[k] = vote->receives[k] = MPI_REQUEST_NULL;
        vote->failed |= gw_mpi_receive(operation, &parcel, &vote->receives[k]) != MPI_SUCCESS;
    }
    if (vote->rounds > 0) {
        gw_mpi_vote_send(vote);
    }
    return vote;
}

int gw_mpi_vote_test(gw_mpi_vote *vote, uint64_t *worst)
{
    int complete = 1;
    while (vote->round < vote->rounds && !vote->failed) {
        const int k = vote->round;
        gw_mpi_vote_error(vote, PMPI_Test(&vote->receives[k], &complete, MPI_STATUS_IGNORE));
        if (!complete || vote->failed) {
            break;
        }
        vote->word = vote->heard[k] > vote->word ? vote->heard[k] : vote->word;
        if (++vote->round < vote->rounds) {
            gw_mpi_vote_send(vote);
        }
    }
    if (complete && !vote->failed && vote->rounds > 0) {
        /* The last rank to hear may still lack ours */
        gw_mpi_vote_error(vote, PMPI_Testall(vote->rounds, vote->sends, &complete, MPI_STATUSES_IGNORE));
    }
    if (vote->failed) {
        vote->word = vote->operation->word > vote->word ? vote->operation->word : vote->word;
        complete = 1;
    }
    *worst = vote->word;
    return complete;
}

void gw_mpi_vote_free(gw_mpi_vote *vote)
{
    /* After an error of MPI messages may still arrive */
    if (vote != NULL && !vote->failed) {
        free(vote);
    }
}
