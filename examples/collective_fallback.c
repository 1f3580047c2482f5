/*
 * A compressed all-reduce among forked ranks: A2A+AG over one socket between every two of them. The bucket
 * has two parameters and padding. Before each step the ranks compare their maps and choose the quantum mode;
 * in the second step one rank has another parameter, and all of them fall back to explicit quanta. After it
 * they agree on the outcome by one word.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/collective.h"

/* One piece a shard, whose messages fit the buffer of a socket: all may send before any receives. */
enum { RANKS = 4, LEN = 40000, FIRST_LEN = 25000, SECOND_AT = 25600, MESSAGE_MAX = 1 << 16 };

static int sockets[RANKS][RANKS]; /* [r][s]: that of rank r to rank s */
static char inbox[RANKS][MESSAGE_MAX], outbox[MESSAGE_MAX];
static float param[LEN], gradient[LEN], mean[LEN];
static uint8_t map_bytes[LEN];
static uint32_t digest[64];

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

/* To all others, and from all others to their inboxes. Returns the bytes sent. */
static size_t exchange(int rank, const void *message, size_t size, gw_gcomp_frame received[RANKS])
{
    for (int r = 0; r < RANKS; r++) {
        must(r == rank || send(sockets[rank][r], message, size, 0) == (ssize_t)size, "send");
    }
    for (int r = 0; r < RANKS; r++) {
        const ssize_t got = r == rank ? 0 : recv(sockets[rank][r], inbox[r], MESSAGE_MAX, 0);
        must(got >= 0, "recv");
        received[r] = (gw_gcomp_frame){.data = inbox[r], .size = (size_t)got};
    }
    return size * (RANKS - 1);
}

/* An all-reduce by MAX. */
static void all_max(int rank, uint64_t *words, size_t count)
{
    gw_gcomp_frame received[RANKS];
    exchange(rank, words, count * sizeof *words, received);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; r != rank && i < count; i++) {
            uint64_t other;
            memcpy(&other, inbox[r] + i * sizeof other, sizeof other);
            words[i] = other > words[i] ? other : words[i];
        }
    }
}

/* The map of the bucket, with the base of all of it. */
static gw_status make_map(const gw_collective_layout *layout, gw_collective_map *map)
{
    const gw_optimizer sgd = {.kind = GW_OPTIMIZER_SGD, .step = 1, .lr = 0.1};
    gw_gcomp_map_rule rule;
    uint32_t top, map_byte_max, largest = 0;
    gw_status status = gw_gcomp_map_rule_init(&sgd, (float)RANKS, NULL, &rule);
    const gw_collective_segment parameters[2] = {
        {.offset = 0, .len = FIRST_LEN, .rule = &rule, .state = {.param = param}},
        {.offset = SECOND_AT, .len = LEN - SECOND_AT, .rule = &rule, .state = {.param = param + SECOND_AT}}};
    const gw_collective_segments segments = {parameters, 2};
    for (uint32_t i = 0; status == GW_OK && i < layout->piece_count; i++) {
        status = gw_collective_map_scan(layout, i, &segments, GW_BACKEND_ALL, &top);
        largest = status == GW_OK && top > largest ? top : largest;
    }
    *map = (gw_collective_map){map_bytes, digest, gw_gcomp_map_base(largest), (float)RANKS};
    for (uint32_t i = 0; status == GW_OK && i < layout->piece_count; i++) {
        status = gw_collective_map_build(layout, i, &segments, GW_BACKEND_ALL, map, &map_byte_max);
    }
    return status;
}

/* A message that carries a failure in place of a frame. */
static void notify(const gw_collective_failure *failure, gw_buffer *message)
{
    must(gw_collective_notice_write(failure, message) == GW_OK, "notice");
}

/* The step of this rank; the mean of the gradients is left in `mean`. Adds to *sent; returns the worst that
 * happened to it. */
static gw_collective_failure all_reduce(const gw_collective_bucket *bucket, const gw_workspace *work,
                                        size_t *sent)
{
    const uint32_t rank = bucket->rank;
    gw_collective_failure failure, worst = {.rank = rank, .bad_chunk = UINT64_MAX};
    gw_gcomp_frame messages[RANKS];
    gw_buffer message = {outbox, MESSAGE_MAX, 0};
    for (uint32_t r = 0; r < RANKS; r++) { /* contributions to the owners; piece r is that of rank r */
        worst.status = r == rank ? GW_OK : gw_collective_encode(bucket, r, &message, work);
        if (worst.status != GW_OK) {
            notify(&worst, &message);
        }
        must(r == rank || send(sockets[rank][r], outbox, message.size, 0) >= 0, "send");
        *sent += r == rank ? 0 : message.size;
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        const ssize_t got = r == rank ? 0 : recv(sockets[rank][r], inbox[r], MESSAGE_MAX, 0);
        must(got >= 0, "recv");
        messages[r] = (gw_gcomp_frame){.data = inbox[r], .size = (size_t)got};
    }
    if (gw_collective_reduce(bucket, rank, messages, &message, &worst, work) != GW_OK) {
        notify(&worst, &message);
    }
    *sent += exchange((int)rank, outbox, message.size, messages); /* the sum to all */
    messages[rank] = (gw_gcomp_frame){.data = outbox, .size = message.size};
    for (uint32_t r = 0; r < RANKS; r++) {
        gw_collective_piece piece;
        must(gw_collective_piece_at(bucket->layout, r, &piece) == GW_OK, "piece");
        gw_gcomp_target target = {
            .values = mean + piece.first, .capacity = piece.len, .scale = 1.0f / (float)RANKS};
        if (gw_collective_decode(bucket, r, &messages[r], &target, &failure, work) != GW_OK) {
            worst = gw_collective_word_write(&failure) > gw_collective_word_write(&worst) ? failure : worst;
        }
    }
    return worst;
}

static double squared_error(void)
{
    double error = 0.0, square = 0.0;
    for (int i = 0; i < LEN; i++) {
        const double exact =
            i >= FIRST_LEN && i < SECOND_AT ? 0.0 : 1e-2 * sin(i * 0.37) * (1.0 + (RANKS - 1) / 2.0);
        error += (mean[i] - exact) * (mean[i] - exact);
        square += exact * exact;
    }
    return error / square;
}

static int run_rank(int rank)
{
    const gw_collective_shape shape = {.len = LEN, .rank_count = RANKS};
    gw_collective_layout layout;
    must(gw_collective_layout_init(&layout, &shape) == GW_OK && layout.shard_pieces == 1 &&
             gw_collective_digest_len(&layout) <= sizeof digest / sizeof *digest,
         "layout");
    int ok = 1;
    for (uint32_t step = 0; step < 2; step++) {
        for (int i = 0; i < LEN; i++) {
            const int is_padding = i >= FIRST_LEN && i < SECOND_AT;
            param[i] = is_padding ? 0.0f : 0.1f * (float)(i % 101 + 1);
            gradient[i] = is_padding ? 0.0f : (float)(1e-2 * sin(i * 0.37) * (1.0 + rank));
        }
        param[30000] += (float)(step == 1 && rank == 2); /* what must not happen */
        gw_collective_map map;
        must(make_map(&layout, &map) == GW_OK, "map");
        uint64_t words[GW_COLLECTIVE_MAP_WORDS];
        must(gw_collective_map_words(&layout, &map, words) == GW_OK, "map words");
        all_max(rank, words, GW_COLLECTIVE_MAP_WORDS);
        const uint32_t difference = gw_collective_map_differs(words);

        gw_gcomp_options options;
        gw_gcomp_options_init(&options, GW_FP32);
        options.quantum_mode = difference == 0 ? GW_GCOMP_DERIVED : GW_GCOMP_EXPLICIT;
        options.rounding = GW_GCOMP_STOCHASTIC;
        options.tolerance_bits = 20;
        gw_gcomp codec;
        must(gw_gcomp_init(&codec, &options) == GW_OK, "codec");
        must(gw_collective_message_bound(&layout, &codec) <= MESSAGE_MAX, "size of messages");
        const gw_workspace work = {malloc(gw_gcomp_workspace_size(&codec)), gw_gcomp_workspace_size(&codec)};
        must(work.data != NULL, "workspace");
        const gw_collective_bucket bucket = {.layout = &layout,
                                             .codec = &codec,
                                             .map = &map,
                                             .values = gradient,
                                             .rank = (uint32_t)rank,
                                             .step_index = step};
        size_t sent = 0;
        const gw_collective_failure worst = all_reduce(&bucket, &work, &sent);
        uint64_t word = gw_collective_word_write(&worst);
        all_max(rank, &word, 1);
        const uint64_t crc = gw_crc32c(0, mean, sizeof mean);
        uint64_t replicas[2] = {crc, ~crc};
        all_max(rank, replicas, 2);
        const int equal = replicas[0] == ~replicas[1];
        ok = ok && gw_collective_word_outcome(word) == GW_COLLECTIVE_DONE && equal &&
             squared_error() < 1e-4 && difference == (step == 0 ? 0u : (uint32_t)GW_COLLECTIVE_MAP_BYTES);
        if (rank == 0) {
            printf("step %u: %s quanta, %.1f %% of the bytes of fp32, squared error %.1e of the mean's, "
                   "replicas "
                   "%s\n",
                   step, difference == 0 ? "derived" : "maps differ: explicit",
                   100.0 * (double)sent / (2.0 * (RANKS - 1) * LEN / RANKS * 4), squared_error(),
                   equal ? "equal" : "DIFFER");
        }
        free(work.data);
    }
    return ok ? 0 : 1;
}

int main(void)
{
    for (int r = 0; r < RANKS; r++) {
        for (int s = 0; s < r; s++) {
            int pair[2];
            must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
            sockets[r][s] = pair[0];
            sockets[s][r] = pair[1];
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            /* Only its own ends: a rank that dies closes them, and no other waits for it. */
            for (int r = 0; r < RANKS * RANKS; r++) {
                if (r / RANKS != rank && r / RANKS != r % RANKS) {
                    close(sockets[r / RANKS][r % RANKS]);
                }
            }
            exit(run_rank(rank));
        }
    }
    int failed = 0, status;
    for (int r = 0; r < RANKS * RANKS; r++) {
        if (r / RANKS != r % RANKS) {
            close(sockets[r / RANKS][r % RANKS]);
        }
    }
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    return failed;
}
