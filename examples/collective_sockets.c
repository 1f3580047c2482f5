/*
 * A compressed all-reduce among forked ranks, one socket between every two of them: contributions to the
 * owners, sums to all (A2A+AG, collective.h). collective_fallback.c adds maps and what happens if they
 * differ.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <sys/socket.h>

#include "example.h"
#include "gradwire/collective.h"

/* One piece a shard, whose messages fit the buffer of a socket: all may send before any receives. */
enum { RANKS = 4, LEN = 40000, MESSAGE_MAX = 1 << 16 };

static int sockets[RANKS][RANKS]; /* [r][s]: that of rank r to rank s */
static char inbox[RANKS][MESSAGE_MAX], outbox[MESSAGE_MAX];
static float values[LEN]; /* the gradient, then the mean */

static void receive(int rank, gw_gcomp_frame messages[RANKS])
{
    for (int r = 0; r < RANKS; r++) {
        const ssize_t size = r == rank ? 0 : recv(sockets[rank][r], inbox[r], MESSAGE_MAX, 0);
        example_must(size >= 0, "recv");
        messages[r] = (gw_gcomp_frame){.data = inbox[r], .size = (size_t)size};
    }
}

/* Sends a message, or a notice of what failed, to a rank. */
static void send_to(int rank, int to, gw_buffer *message, const gw_collective_blame *blame)
{
    example_must(blame->status == GW_OK || gw_collective_notice_write(blame, message) == GW_OK, "notice");
    example_must(send(sockets[rank][to], message->data, message->size, 0) == (ssize_t)message->size, "send");
}

/* values = mean over the ranks. Returns the status word: 0 if no step failed. */
static uint64_t all_reduce(const gw_collective_bucket *bucket, const gw_workspace *work)
{
    const int rank = (int)bucket->rank;
    gw_collective_blame blame = {.rank = bucket->rank, .bad_chunk = UINT64_MAX};
    gw_gcomp_frame messages[RANKS];
    gw_buffer message = {outbox, MESSAGE_MAX, 0};
    for (int r = 0; r < RANKS; r++) { /* piece r is that of rank r */
        if (r != rank) {
            blame.piece = (uint32_t)r;
            blame.status = gw_collective_encode(bucket, (uint32_t)r, &message, work);
            send_to(rank, r, &message, &blame);
        }
    }
    receive(rank, messages);
    blame.status = gw_collective_reduce(bucket, bucket->rank, messages, &message, &blame, work);
    uint64_t word = gw_collective_word(&blame);
    for (int r = 0; r < RANKS; r++) {
        if (r != rank) {
            send_to(rank, r, &message, &blame);
        }
    }
    receive(rank, messages);
    messages[rank] = (gw_gcomp_frame){.data = outbox, .size = message.size};
    for (uint32_t r = 0; r < RANKS; r++) {
        gw_collective_piece piece;
        example_must(gw_collective_piece_at(bucket->layout, r, &piece) == GW_OK, "piece");
        gw_gcomp_target mean = {.values = values + piece.first, .capacity = piece.len, .scale = 1.0f / RANKS};
        if (gw_collective_decode(bucket, r, &messages[r], &mean, &blame, work) != GW_OK) {
            word = gw_collective_word(&blame) > word ? gw_collective_word(&blame) : word;
        }
    }
    return word; /* its maximum over the ranks is the outcome for all of them */
}

static int run_rank(int rank)
{
    const gw_gcomp codec = example_codec(1e-3f);
    const gw_collective_shape shape = {.len = LEN, .rank_count = RANKS};
    gw_collective_layout layout;
    example_must(gw_collective_layout_init(&layout, &shape) == GW_OK, "layout");
    example_must(gw_collective_message_bound(&layout, &codec) <= MESSAGE_MAX, "room for a message");
    const gw_workspace work = {malloc(gw_gcomp_workspace_size(&codec)), gw_gcomp_workspace_size(&codec)};
    example_must(work.data != NULL, "memory");
    example_fill(values, LEN, rank);
    const gw_collective_bucket bucket = {&layout, &codec, .values = values, .rank = (uint32_t)rank};
    const uint64_t word = all_reduce(&bucket, &work);
    const double nmse = example_nmse(values, LEN, RANKS);
    (void)printf("rank %d: NMSE %.1e, crc %08x\n", rank, nmse, gw_crc32c(0, values, sizeof values));
    free(work.data);
    return word != 0 || nmse > 2e-3;
}

int main(void)
{
    for (int r = 0; r < RANKS; r++) {
        for (int s = 0; s < r; s++) {
            int pair[2];
            example_must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
            sockets[r][s] = pair[0];
            sockets[s][r] = pair[1];
        }
    }
    return example_fork(RANKS, run_rank);
}
