/*
 * Votes: the maxima of words over the ranks of a communicator, by point-to-point messages.
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
#include <string.h>

#define GW_MPI_VOTE_ROUNDS_MAX 32

struct gw_mpi_vote {
    gw_mpi_operation *operation;
    gw_mpi_message message;
    int rounds, round; /* of all; the one that runs */
    int failed;        /* a message could not be sent or received */
    size_t len;
    MPI_Request sends[GW_MPI_VOTE_ROUNDS_MAX], receives[GW_MPI_VOTE_ROUNDS_MAX];
    uint64_t words[]; /* len so far, then those sent and those heard in each round */
};

static uint64_t *gw_mpi_vote_sent(gw_mpi_vote *vote, int round)
{
    return vote->words + vote->len * (1 + 2 * (size_t)round);
}

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
        .count = (int)vote->len,
        .type = MPI_UINT64_T,
        .peer = (int)((context->rank + distance + context->size) % context->size),
        .message = vote->message,
    };
}

static void gw_mpi_vote_send(gw_mpi_vote *vote)
{
    const int k = vote->round;
    const gw_mpi_parcel parcel = gw_mpi_vote_parcel(vote, gw_mpi_vote_sent(vote, k), INT64_C(1) << k);
    memcpy(parcel.data, vote->words, vote->len * sizeof(uint64_t));
    vote->failed |= gw_mpi_send(vote->operation, &parcel, &vote->sends[k]) != MPI_SUCCESS;
}

gw_mpi_vote *gw_mpi_vote_listen(gw_mpi_operation *operation, gw_mpi_message message, size_t len)
{
    const gw_mpi_context *context = operation->context;
    int rounds = 0;
    while (INT64_C(1) << rounds < context->size) {
        rounds++;
    }
    gw_mpi_vote *vote = gw_mpi_allocate(1, sizeof(*vote) + (2 * (size_t)rounds + 1) * len * sizeof(uint64_t));
    vote->operation = operation;
    vote->message = message;
    vote->rounds = rounds;
    vote->len = len;
    for (int k = 0; k < vote->rounds; k++) {
        const gw_mpi_parcel parcel =
            gw_mpi_vote_parcel(vote, gw_mpi_vote_sent(vote, k) + len, -(INT64_C(1) << k));
        vote->sends[k] = vote->receives[k] = MPI_REQUEST_NULL;
        vote->failed |= gw_mpi_receive(operation, &parcel, &vote->receives[k]) != MPI_SUCCESS;
    }
    return vote;
}

void gw_mpi_vote_say(gw_mpi_vote *vote, const uint64_t *words)
{
    memcpy(vote->words, words, vote->len * sizeof(uint64_t));
    if (vote->rounds > 0) {
        gw_mpi_vote_send(vote);
    }
}

gw_mpi_vote *gw_mpi_vote_start(gw_mpi_operation *operation, gw_mpi_message message, const uint64_t *words,
                               size_t len)
{
    gw_mpi_vote *vote = gw_mpi_vote_listen(operation, message, len);
    gw_mpi_vote_say(vote, words);
    return vote;
}

const uint64_t *gw_mpi_vote_heard(gw_mpi_vote *vote)
{
    int complete = 0;
    if (vote->rounds > 0 && !vote->failed) {
        gw_mpi_vote_error(vote, PMPI_Test(&vote->receives[0], &complete, MPI_STATUS_IGNORE));
    }
    return complete && !vote->failed ? gw_mpi_vote_sent(vote, 0) + vote->len : NULL;
}

const uint64_t *gw_mpi_vote_test(gw_mpi_vote *vote)
{
    int complete = 1;
    while (vote->round < vote->rounds && !vote->failed) {
        const int k = vote->round;
        const uint64_t *heard = gw_mpi_vote_sent(vote, k) + vote->len;
        gw_mpi_vote_error(vote, PMPI_Test(&vote->receives[k], &complete, MPI_STATUS_IGNORE));
        if (!complete || vote->failed) {
            break;
        }
        for (size_t i = 0; i < vote->len; i++) {
            vote->words[i] = heard[i] > vote->words[i] ? heard[i] : vote->words[i];
        }
        if (++vote->round < vote->rounds) {
            gw_mpi_vote_send(vote);
        }
    }
    if (complete && !vote->failed && vote->rounds > 0) {
        /* The last rank to hear may still lack ours */
        gw_mpi_vote_error(vote, PMPI_Testall(vote->rounds, vote->sends, &complete, MPI_STATUSES_IGNORE));
    }
    if (vote->failed) {
        const uint64_t word = vote->operation->word;
        vote->words[0] = word > vote->words[0] ? word : vote->words[0];
        complete = 1;
    }
    return complete ? vote->words : NULL;
}

void gw_mpi_vote_free(gw_mpi_vote *vote)
{
    /* After an error of MPI messages may still arrive */
    if (vote != NULL && !vote->failed) {
        free(vote);
    }
}
