/*
 * THC over UDP: n worker processes and one parameter server on the loopback, with packets lost on purpose in
 * both directions. Workers repeat what is not answered; the server adds nothing twice and repeats results.
 *
 *   thc_udp [WORKERS [LOSS_PERCENT [ROUNDS]]]     default 4 workers, 5 percent, 3 rounds
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/thc.h"

enum {
    LEN = 20000,
    BLOCKS = 20,
    WORKERS_MAX = 16,
    PACKET_MAX = 48 + 8 + 4 * 1024,
    WAIT_MS = 5,
    PATIENCE = 2000
};

static int workers = 4, loss_percent = 5, rounds = 3;
static struct sockaddr_in server_address;
static gw_thc_options options;
static gw_thc thc;

static void check(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s\n", what, gw_status_message(status));
        exit(1);
    }
}

/* Sends, or pretends to. */
static void send_lossy(int fd, const void *packet, size_t size, const struct sockaddr_in *to)
{
    if (rand() % 100 >= loss_percent) {
        (void)sendto(fd, packet, size, 0, (const struct sockaddr *)to, sizeof *to);
    }
}

static int open_socket(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof *address) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &size) != 0) {
        perror("socket");
        exit(1);
    }
    return fd;
}

/* ------------ server ------------ */

static gw_thc_server make_server(gw_thc_op op, void **memory)
{
    gw_thc_server_options c = {
        .table = options.table,
        .worker_max = (uint32_t)workers,
        .lane_bits = options.lane_bits,
        .block_log2 = options.block_log2,
        .options_hash = gw_thc_options_hash(&thc),
        .job = options.job,
        .round_window = 1,
        .quorum = (uint32_t)workers,
        .slot_count = BLOCKS,
        .slot_len = op == GW_THC_OP_SUM ? 1024 : 1,
        .blocks_per_packet = 1,
        .backends = GW_BACKEND_ALL,
        .op = op,
    };
    gw_thc_server server;
    size_t size = gw_thc_server_memory_size(&c);
    *memory = malloc(size);
    check(gw_thc_server_init(&server, &c, *memory, size), "server");
    return server;
}

/* Until all children have left. The transport is here, the state machine in the library. */
static int serve(int fd)
{
    void *sums_memory, *norms_memory;
    gw_thc_server sums = make_server(GW_THC_OP_SUM, &sums_memory);
    gw_thc_server norms = make_server(GW_THC_OP_MAX, &norms_memory);
    struct sockaddr_in address[WORKERS_MAX];
    int known[WORKERS_MAX] = {0}, alive = workers, failed = 0;
    unsigned long received = 0, added = 0;

    while (alive > 0) {
        uint8_t packet[PACKET_MAX];
        struct sockaddr_in from;
        socklen_t from_size = sizeof from;
        struct pollfd ready = {fd, POLLIN, 0};
        gw_thc_packet p;
        gw_thc_reply reply;
        int status;

        while (alive > 0 && waitpid(-1, &status, WNOHANG) > 0) {
            alive--;
            failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        }
        if (poll(&ready, 1, WAIT_MS) <= 0) {
            continue;
        }
        ssize_t size = recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &from_size);
        if (size < 0 || gw_thc_packet_parse(packet, (size_t)size, &p) != GW_OK || p.header.rank >= workers) {
            continue;
        }
        address[p.header.rank] = from;
        known[p.header.rank] = 1;
        gw_thc_server *server = p.header.type == GW_THC_PACKET_NORMS ? &norms : &sums;
        added += gw_thc_server_receive(server, packet, (size_t)size, &reply) == GW_OK;
        received++;
        for (uint32_t w = 0; w < (uint32_t)workers; w++) {
            int is_meant = reply.action == GW_THC_ACTION_BROADCAST || w == reply.rank;
            if (reply.action != GW_THC_ACTION_NONE && is_meant && known[w]) {
                send_lossy(fd, reply.packet, reply.packet_size, &address[w]);
            }
        }
    }
    printf("server: %lu packets, %lu of them added, the rest repeats\n", received, added);
    free(sums_memory);
    free(norms_memory);
    return failed || added != (unsigned long)(2 * workers * rounds * BLOCKS);
}

/* ------------ worker ------------ */

/* Sends all packets of a phase again and again until every block is answered; payloads of the answers go to
 * out. */
static void exchange(int fd, gw_thc_packet_header *h, const uint8_t *payload, size_t payload_size,
                     const uint64_t *hashes, int answer, uint8_t *out, size_t out_size)
{
    int done[BLOCKS] = {0}, left = BLOCKS;

    for (int tries = 0; left > 0; tries++) {
        uint8_t packet[PACKET_MAX];
        struct pollfd ready = {fd, POLLIN, 0};
        if (tries == PATIENCE) {
            fprintf(stderr, "worker %u: no answer\n", h->rank);
            exit(1);
        }
        for (uint32_t b = 0; b < BLOCKS; b++) {
            size_t size = b + 1 == BLOCKS && h->type == GW_THC_PACKET_INDICES
                              ? gw_thc_indices_size(&thc, LEN, b, 1)
                              : payload_size;
            if (done[b]) {
                continue;
            }
            h->block_first = b;
            h->len = h->type == GW_THC_PACKET_NORMS ? 1 : (uint32_t)gw_thc_block_lanes(&thc, LEN, b);
            h->norms_hash = hashes != NULL ? hashes[b] : 0;
            gw_thc_packet_write(packet, h);
            memcpy(packet + GW_THC_PACKET_HEADER_SIZE, payload + b * payload_size, size);
            send_lossy(fd, packet, GW_THC_PACKET_HEADER_SIZE + size, &server_address);
        }
        while (left > 0 && poll(&ready, 1, WAIT_MS) > 0) {
            gw_thc_packet p;
            ssize_t size = recv(fd, packet, sizeof packet, 0);
            if (size < 0 || gw_thc_packet_parse(packet, (size_t)size, &p) != GW_OK ||
                p.header.type != answer || p.header.round != h->round ||
                p.header.options_hash != h->options_hash || p.header.block_first >= BLOCKS ||
                done[p.header.block_first] || p.payload_size > out_size) {
                continue;
            }
            if (hashes != NULL && p.header.norms_hash != hashes[p.header.block_first]) {
                continue; /* a sum under other norms: not ours */
            }
            memcpy(out + p.header.block_first * out_size, p.payload, p.payload_size);
            done[p.header.block_first] = 1;
            left--;
        }
    }
}

static float value_of(int w, int round, int i)
{
    return sinf((float)(i + 100 * round)) * expf(2 * cosf((float)i * 0.3f)) + 0.1f * (float)w;
}

static int work(int w)
{
    static float gradient[LEN], mean[LEN];
    static uint8_t indices[BLOCKS * 512], lanes[BLOCKS * 1024], scratch[GW_THC_WORKSPACE_SIZE_MAX];
    const gw_workspace workspace = {scratch, sizeof scratch};
    uint32_t maxima[BLOCKS], members[BLOCKS];
    uint64_t hashes[BLOCKS];
    struct sockaddr_in own;
    int fd = open_socket(&own);
    double worst = 0;

    srand((unsigned)w + 1);
    for (int round = 0; round < rounds; round++) {
        gw_thc_range range = {LEN, 0, BLOCKS, (uint32_t)round, (uint32_t)w};
        gw_thc_packet_header h = {
            .bits = options.table.bits,
            .granularity = options.table.granularity,
            .block_log2 = (uint8_t)options.block_log2,
            .worker_max = (uint16_t)workers,
            .job = options.job,
            .round = (uint32_t)round,
            .block_count = 1,
            .rank = (uint16_t)w,
            .options_hash = gw_thc_options_hash(&thc),
        };
        for (int i = 0; i < LEN; i++) {
            gradient[i] = value_of(w, round, i);
        }
        gw_thc_source source = {.values = gradient, .patterns = maxima};
        gw_buffer dst = {.data = indices, .capacity = sizeof indices};
        check(gw_thc_norms(&thc, &range, &source, maxima, NULL, &workspace), "norms");
        h.type = GW_THC_PACKET_NORMS;
        h.lane_bits = 32; /* (a big-endian machine would swap the patterns here) */
        exchange(fd, &h, (const uint8_t *)maxima, 4, NULL, GW_THC_PACKET_MAXIMA, (uint8_t *)maxima, 4);

        check(gw_thc_encode(&thc, &range, &source, &dst, NULL, &workspace), "encode");
        for (int b = 0; b < BLOCKS; b++) {
            hashes[b] = gw_thc_norms_hash(&maxima[b], 1);
            members[b] = (uint32_t)workers; /* the quorum of this server; else count the set of each answer */
        }
        h.type = GW_THC_PACKET_INDICES;
        h.lane_bits = 0;
        exchange(fd, &h, indices, 512, hashes, GW_THC_PACKET_RESULT, lanes, 1024);
        gw_thc_sum sum = {.data = lanes, .size = sizeof lanes, .members = members, .patterns = maxima};
        gw_thc_target decoded = {.values = mean, .capacity = LEN};
        check(gw_thc_decode(&thc, &range, &sum, GW_THC_MEAN, &decoded, &workspace), "decode");
        double error = 0, size = 0;
        for (int i = 0; i < LEN; i++) {
            double truth = 0;
            for (int v = 0; v < workers; v++) {
                truth += (double)value_of(v, round, i) / workers;
            }
            error += (mean[i] - truth) * (mean[i] - truth);
            size += truth * truth;
        }
        worst = fmax(worst, error / size);
    }
    printf("worker %d: %d rounds, squared error at most %.5f\n", w, rounds, worst);
    return worst < 0.03 ? 0 : 1;
}

int main(int argc, char **argv)
{
    workers = argc > 1 ? atoi(argv[1]) : workers;
    loss_percent = argc > 2 ? atoi(argv[2]) : loss_percent;
    rounds = argc > 3 ? atoi(argv[3]) : rounds;
    if (workers < 1 || workers > 8 || loss_percent < 0 || loss_percent > 90 || rounds < 1) {
        fprintf(stderr, "usage: thc_udp [WORKERS 1-8 [LOSS_PERCENT 0-90 [ROUNDS]]]\n");
        return 2;
    }
    const gw_thc_goal goal = {.bits = 4, .worker_max = (uint32_t)workers, .lane_bits = 8};
    check(gw_thc_options_init(&options, &goal, NULL), "options");
    options.seed = 4711;
    options.job = 1;
    check(gw_thc_init(&thc, &options), "init");
    int fd = open_socket(&server_address);
    for (int w = 0; w < workers; w++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            exit(work(w));
        }
    }
    return serve(fd);
}
