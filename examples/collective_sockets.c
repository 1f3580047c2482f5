/*
 * A compressed all-reduce among forked ranks, one socket between every two of them: the runtime says what to
 * send, and the sockets bring it (runtime.h). Each rank has one thread, which also does the codec's work.
 * collective_fallback.c has the calls below that, maps, and what happens if they differ.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <poll.h>
#include <sys/socket.h>

#include "example.h"
#include "gradwire/runtime.h"

/* One piece a shard, whose messages fit the buffer of a socket: all may send before any receives. */
enum { RANKS = 4, LEN = 40000 };

static int sockets[RANKS][RANKS]; /* [r][s]: that of rank r to rank s */
static float values[LEN];         /* the gradient, then the mean */
static char workspace[1 << 20];

/* Of the rank that the process is. */
static gw_runtime *runtime;
static gw_exchange *exchange;
static gw_exchange_info info;
static char *memory;        /* of messages */
static int received[RANKS]; /* messages of a rank */

/* Waits for messages: the first one of a rank is for the piece of this one, the second one is its own piece.
 */
static void receive(int rank)
{
    struct pollfd ready[RANKS];
    for (int r = 0; r < RANKS; r++) {
        ready[r] = (struct pollfd){.fd = r == rank ? -1 : sockets[rank][r], .events = POLLIN};
    }
    example_must(poll(ready, RANKS, -1) > 0, "poll");
    for (uint32_t r = 0; r < RANKS; r++) {
        if (ready[r].revents != 0) {
            const uint32_t piece = received[r]++ == 0 ? (uint32_t)rank : r;
            char *buffer = memory + gw_exchange_buffer_offset(exchange, piece, r);
            const ssize_t size = recv(ready[r].fd, buffer, info.message_bound, 0);
            example_must(size > 0, "recv");
            example_must(gw_exchange_receive(exchange, piece, r, NULL, (size_t)size) == GW_OK, "message");
        }
    }
}

/* values = mean over the ranks. Returns the status word: 0 if no step failed. Its maximum over the ranks is
 * the outcome for all of them. */
static uint64_t all_reduce(int rank)
{
    const gw_workspace work = {workspace, sizeof workspace};
    const gw_exchange_run run = {.values = values, .result = values, .scale = 1.0f / RANKS};
    gw_runtime_event event = {0};
    example_must(gw_exchange_start(exchange, &run) == GW_OK, "start");
    while (event.kind != GW_RUNTIME_DONE) {
        while (gw_runtime_work(runtime, &work)) {
        }
        if (gw_runtime_wait(runtime, &event, 1, 0) == 0) {
            receive(rank);
            continue;
        }
        for (uint32_t r = 0; r < RANKS; r++) { /* piece r is that of rank r */
            if ((event.kind == GW_RUNTIME_SEND && r == event.piece) ||
                (event.kind == GW_RUNTIME_SHARE && r != event.piece)) {
                const ssize_t size = send(sockets[rank][r], event.data, event.size, 0);
                example_must(size == (ssize_t)event.size, "send");
            }
        }
    }
    return event.word;
}

static int run_rank(int rank)
{
    const gw_runtime_options no_threads = {.thread_count = 0};
    gw_exchange_config config = {.shape = {.len = LEN, .rank_count = RANKS}, .rank = (uint32_t)rank};
    config.codec = config.fallback_codec = example_options(1e-3f);
    example_must(gw_runtime_open(&no_threads, &runtime) == GW_OK, "runtime");
    example_must(gw_exchange_open(runtime, &config, &exchange) == GW_OK, "exchange");
    gw_exchange_info_get(exchange, &info);
    memory = malloc(info.memory_size);
    example_must(memory != NULL, "memory");
    gw_exchange_memory(exchange, memory);
    example_fill(values, LEN, rank);
    const uint64_t word = all_reduce(rank);
    const double nmse = example_nmse(values, LEN, RANKS);
    (void)printf("rank %d: NMSE %.1e, crc %08x\n", rank, nmse, gw_crc32c(0, values, sizeof values));
    gw_exchange_close(exchange);
    gw_runtime_close(runtime);
    free(memory);
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
