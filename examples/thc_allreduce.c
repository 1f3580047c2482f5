/*
 * THC inside an unmodified all-reduce: forked ranks in a ring of sockets, which know nothing but integers to
 * add up or to take the maximum of. The lanes are 8 bits wide: a quarter of fp32, in every hop.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/collective.h"

enum { RANKS = 6, LEN = 20000, BLOCKS = 20, LANES_MAX = 1 << 15 };

static int left, right; /* sockets */
static size_t sent;

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void send_all(const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(right, (const char *)data + done, size - done);
        must(n > 0, "write");
        done += (size_t)n;
    }
    sent += size;
}

static void receive_all(void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = read(left, (char *)data + done, size - done);
        must(n > 0, "read");
        done += (size_t)n;
    }
}

/* The plainest all-reduce: once around the ring for the result, once more to spread it. No carry leaves a
 * lane of a sum that THC made, so lanes of any width are added as words. */
static void all_reduce(int rank, uint32_t *words, size_t count, int is_sum)
{
    static uint32_t others[LANES_MAX];
    if (rank > 0) {
        receive_all(others, count * sizeof *others);
        for (size_t i = 0; i < count; i++) {
            words[i] = is_sum ? words[i] + others[i] : words[i] > others[i] ? words[i] : others[i];
        }
    }
    send_all(words, count * sizeof *words); /* the last rank has the result, and sends it to rank 0 */
    if (rank < RANKS - 1) {
        receive_all(words, count * sizeof *words);
        if (rank < RANKS - 2) {
            send_all(words, count * sizeof *words);
        }
    }
}

static float gradient_of(int rank, int i)
{
    return sinf((float)i * 0.1f) + 0.2f * cosf((float)(i * (rank + 1)) * 0.37f);
}

static int run_rank(int rank)
{
    static float gradient[LEN], mean[LEN];
    static uint32_t patterns[BLOCKS], lanes[LANES_MAX];
    const gw_thc_goal goal = {.bits = 4, .worker_max = RANKS};
    gw_thc_options options; /* lane_bits 0: the narrowest that hold the sum */
    gw_thc thc;
    must(gw_thc_options_init(&options, &goal, NULL) == GW_OK && gw_thc_init(&thc, &options) == GW_OK, "init");
    const gw_workspace work = {malloc(gw_collective_lanes_workspace_size(&thc)),
                               gw_collective_lanes_workspace_size(&thc)};
    must(work.data != NULL && gw_thc_block_count(&thc, LEN) == BLOCKS, "workspace");
    for (int i = 0; i < LEN; i++) {
        gradient[i] = gradient_of(rank, i);
    }
    const gw_thc_range range = {.len = LEN, .block_count = BLOCKS, .round = 1, .rank = (uint32_t)rank};
    const gw_thc_source source = {.values = gradient, .patterns = patterns};
    must(gw_thc_norms(&thc, &range, &source, patterns, NULL, &work) == GW_OK, "norms");
    all_reduce(rank, patterns, BLOCKS, 0); /* MAX of uint32 */

    gw_buffer dst = {lanes, sizeof lanes, 0};
    must(gw_collective_lanes_encode(&thc, &range, &source, &dst, NULL, &work) == GW_OK, "encode");
    all_reduce(rank, lanes, dst.size / sizeof *lanes, 1); /* SUM */

    const gw_thc_sum sum = {.data = lanes, .size = dst.size, .patterns = patterns};
    gw_thc_target target = {.values = mean, .capacity = LEN};
    must(gw_thc_decode_reduced(&thc, &range, &sum, GW_THC_MEAN, &target, &work) == GW_OK, "decode");

    double error = 0.0, square = 0.0;
    for (int i = 0; i < LEN; i++) {
        double exact = 0.0;
        for (int r = 0; r < RANKS; r++) {
            exact += (double)gradient_of(r, i) / RANKS;
        }
        error += (mean[i] - exact) * (mean[i] - exact);
        square += exact * exact;
    }
    if (rank == 0) {
        printf(
            "%d ranks, lanes of %u bits: a rank sent %.1f %% of the bytes of fp32, squared error %.4f of the "
            "mean's\n",
            RANKS, options.lane_bits, 100.0 * (double)sent / (2.0 * LEN * sizeof(float)), error / square);
    }
    free(work.data);
    return error / square < 0.02 ? 0 : 1;
}

int main(void)
{
    int ring[RANKS][2], failed = 0, status;
    for (int r = 0; r < RANKS; r++) { /* from rank r to the next one */
        must(socketpair(AF_UNIX, SOCK_STREAM, 0, ring[r]) == 0, "socketpair");
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            right = ring[rank][0];
            left = ring[(rank + RANKS - 1) % RANKS][1];
            for (int r = 0; r < RANKS; r++) { /* so that a rank that dies ends its neighbours */
                for (int end = 0; end < 2; end++) {
                    if (ring[r][end] != left && ring[r][end] != right) {
                        close(ring[r][end]);
                    }
                }
            }
            exit(run_rank(rank));
        }
    }
    for (int r = 0; r < RANKS; r++) {
        close(ring[r][0]);
        close(ring[r][1]);
    }
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    return failed;
}
