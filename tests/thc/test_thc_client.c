/*
 * Workers with sockets (thc_client.h) and a server with sockets, in one thread: each gets a few milliseconds
 * in turn. Real encoding and decoding, UDP and TCP in one job, a server that is started anew, and none at
 * all.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "thc_testing.h"

#include "serve_network.h"
#include "thc_client.h"

enum { WORKERS = 3, LEN = 20000, BLOCKS = 20, ADDRESS_SIZE = SERVE_ADDRESS_MAX };

/* In place of the system's: the name "several" has the address of a port that drops all, and then 127.0.0.1
 * at the port that was asked for. */
static char silent_port[8];

typedef int find(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    find *system_find;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    assert_non_null(symbol);
    memcpy(&system_find, &symbol, sizeof system_find);
    if (host == NULL || strcmp(host, "several") != 0) {
        return system_find(host, port, hints, found);
    }
    assert_int_equal(system_find("127.0.0.1", silent_port, hints, found), 0);
    return system_find("127.0.0.1", port, hints, &(*found)->ai_next);
}

typedef struct server {
    serve_network network;
    char address[ADDRESS_SIZE];
} server;

static void server_start(server *s, const char *address)
{
    const uint64_t secret[2] = {(uint64_t)rand(), 3};
    const thc_serve_limits limits = {4, 16, 64 << 20, 4000, 0, 0, 3600, 1000};
    memset(&s->network, 0, sizeof s->network);
    s->network.connections_max = 8;
    s->network.out_max = 1 << 20;
    s->network.idle_s = 3600;
    assert_null(serve_network_open(&s->network, address, 1, 1));
    (void)snprintf(s->address, sizeof s->address, "%s", s->network.address);
    s->network.serve = thc_serve_create(&limits, secret, serve_network_send, &s->network);
    assert_non_null(s->network.serve);
}

static void server_stop(server *s)
{
    serve_network_close(&s->network);
    thc_serve_free(s->network.serve);
}

typedef struct job {
    gw_thc_options options;
    gw_thc thc;
    gw_thc_client *client[WORKERS];
    float values[WORKERS][LEN], error[WORKERS][LEN], mean[WORKERS][LEN];
    uint32_t patterns[WORKERS][BLOCKS];
    uint8_t indices[WORKERS][LEN];
} job;

static gw_thc_client *client_open(const job *j, const char *scheme, const char *address, uint32_t rank)
{
    char text[ADDRESS_SIZE + 8], error[300];
    (void)snprintf(text, sizeof text, "%s%s", scheme, address);
    const gw_thc_client_options options = {text, &j->thc, LEN, rank, 20000, 20000};
    gw_thc_client *client = gw_thc_client_open(&options, error, sizeof error);
    if (client == NULL) {
        print_message("%s\n", error);
    }
    assert_non_null(client);
    return client;
}

static job *job_new(const char *address, uint64_t seed)
{
    static const char *const schemes[WORKERS] = {"udp://", "tcp://", ""};
    job *j = calloc(1, sizeof *j);
    test_rng rng = {seed};
    assert_non_null(j);
    j->options = default_options(4, WORKERS, 1);
    j->options.job = 42;
    j->thc = make_thc(&j->options);
    for (uint32_t w = 0; w < WORKERS; w++) {
        fill_normal(&rng, j->values[w], LEN, 1.0 + w);
        j->client[w] = client_open(j, schemes[w], address, w);
    }
    return j;
}

static void job_free(job *j)
{
    for (int w = 0; w < WORKERS; w++) {
        gw_thc_client_close(j->client[w]);
    }
    free(j);
}

/* Until all workers' phases are done. */
static void run_phase(job *j, server *s)
{
    sigset_t none;
    int done = 0;
    (void)sigemptyset(&none);
    for (int turn = 0; turn < 20000 && done < WORKERS; turn++) {
        done = 0;
        for (int w = 0; w < WORKERS; w++) {
            const gw_thc_client_status status = gw_thc_client_run(j->client[w], 1);
            if (status == GW_THC_CLIENT_FAILED) {
                print_message("%s\n", gw_thc_client_error(j->client[w]));
            }
            assert_int_not_equal(status, GW_THC_CLIENT_FAILED);
            done += status == GW_THC_CLIENT_DONE;
        }
        serve_network_run(&s->network, 0.001, &none);
    }
    assert_int_equal(done, WORKERS);
}

static gw_thc_range range_of(uint32_t round, int w)
{
    return (gw_thc_range){LEN, 0, BLOCKS, round, (uint32_t)w};
}

static void norms_begin(job *j, uint32_t round)
{
    const gw_workspace workspace = any_workspace();
    for (int w = 0; w < WORKERS; w++) {
        const gw_thc_range range = range_of(round, w);
        const gw_thc_source source = {.values = j->values[w], .error = j->error[w]};
        assert_int_equal(gw_thc_norms(&j->thc, &range, &source, j->patterns[w], NULL, &workspace), GW_OK);
        assert_int_equal(gw_thc_client_norms(j->client[w], round, LEN, j->patterns[w]), GW_THC_CLIENT_DONE);
    }
}

static void indices_begin(job *j, uint32_t round)
{
    const gw_workspace workspace = any_workspace();
    for (int w = 0; w < WORKERS; w++) {
        const gw_thc_range range = range_of(round, w);
        uint8_t is_left_out[BLOCKS];
        gw_buffer dst = {.data = j->indices[w], .capacity = sizeof j->indices[w]};
        assert_int_equal(gw_thc_client_maxima(j->client[w], j->patterns[w], is_left_out), GW_THC_CLIENT_DONE);
        const gw_thc_source source = {
            .values = j->values[w], .error = j->error[w], .patterns = j->patterns[w]};
        assert_int_equal(gw_thc_encode(&j->thc, &range, &source, &dst, NULL, &workspace), GW_OK);
        assert_int_equal(gw_thc_client_indices(j->client[w], j->indices[w], dst.size), GW_THC_CLIENT_DONE);
    }
}

/* Decodes; all workers have the same values, which are near the mean. */
static void round_end(job *j, uint32_t round)
{
    const gw_workspace workspace = any_workspace();
    static uint8_t lanes[LEN + 2048];
    double error = 0, size = 0;
    for (int w = 0; w < WORKERS; w++) {
        const gw_thc_range range = range_of(round, w);
        uint32_t members[BLOCKS];
        uint8_t is_left_out[BLOCKS];
        gw_buffer room = {.data = lanes, .capacity = sizeof lanes};
        assert_int_equal(gw_thc_client_sums(j->client[w], &room, members, is_left_out), GW_THC_CLIENT_DONE);
        for (int b = 0; b < BLOCKS; b++) {
            assert_int_equal(members[b], WORKERS);
            assert_int_equal(is_left_out[b], 0);
        }
        const gw_thc_sum sum = {
            .data = lanes, .size = room.size, .members = members, .patterns = j->patterns[w]};
        gw_thc_target target = {.values = j->mean[w], .capacity = LEN};
        assert_int_equal(gw_thc_decode(&j->thc, &range, &sum, GW_THC_MEAN, &target, &workspace), GW_OK);
        assert_memory_equal(j->mean[w], j->mean[0], sizeof j->mean[0]);
    }
    for (int i = 0; i < LEN; i++) {
        const double mean = ((double)j->values[0][i] + j->values[1][i] + j->values[2][i]) / WORKERS;
        error += (j->mean[0][i] - mean) * (j->mean[0][i] - mean);
        size += mean * mean;
    }
    assert_true(round > 0 || error < 0.05 * size);
}

static void test_rounds_by_udp_and_tcp(void **state)
{
    static server s;
    (void)state;
    server_start(&s, "127.0.0.1:0");
    job *j = job_new(s.address, 1);
    for (uint32_t round = 0; round < 3; round++) {
        norms_begin(j, round);
        run_phase(j, &s);
        indices_begin(j, round);
        run_phase(j, &s);
        round_end(j, round);
    }
    assert_int_equal(s.network.accepted, 1);
    assert_int_equal(s.network.serve->counts.partial, 0);
    job_free(j);
    server_stop(&s);
}

/* At the same port, between the phases and within one: the same values as without. */
static void test_a_server_is_started_anew(void **state)
{
    static server s;
    static float wanted[LEN];
    (void)state;
    for (int restarts = 0; restarts < 2; restarts++) {
        server_start(&s, restarts ? s.address : "127.0.0.1:0");
        job *j = job_new(s.address, 2);
        for (uint32_t round = 0; round < 3; round++) {
            norms_begin(j, round);
            if (restarts && round == 1) {
                (void)gw_thc_client_run(j->client[0], 5); /* some packets are on their way */
                server_stop(&s);
                (void)gw_thc_client_run(j->client[0], 5);
                server_start(&s, s.address);
            }
            run_phase(j, &s);
            indices_begin(j, round);
            if (restarts && round == 2) {
                server_stop(&s);
                server_start(&s, s.address);
            }
            run_phase(j, &s);
            round_end(j, round);
        }
        if (restarts) {
            gw_thc_client_counts counts;
            gw_thc_client_count(j->client[1], &counts);
            assert_int_equal(counts.restarts, 2);
            assert_memory_equal(wanted, j->mean[0], sizeof wanted);
        }
        memcpy(wanted, j->mean[0], sizeof wanted);
        job_free(j);
        server_stop(&s);
    }
}

static void test_no_server(void **state)
{
    static const char *const schemes[] = {"udp://", "tcp://"};
    static server s;
    static uint32_t patterns[BLOCKS];
    const gw_thc_options options = default_options(4, WORKERS, 0);
    const gw_thc thc = make_thc(&options);
    (void)state;
    server_start(&s, "127.0.0.1:0"); /* for a port that nobody has */
    server_stop(&s);
    for (int i = 0; i < 2; i++) {
        char address[ADDRESS_SIZE + 8], error[300];
        gw_thc_client_status status = GW_THC_CLIENT_PENDING;
        (void)snprintf(address, sizeof address, "%s%s", schemes[i], s.address);
        const gw_thc_client_options given = {address, &thc, LEN, 0, 300, 300};
        gw_thc_client *client = gw_thc_client_open(&given, error, sizeof error);
        assert_non_null(client);
        assert_int_equal(gw_thc_client_norms(client, 0, LEN, patterns), GW_THC_CLIENT_DONE);
        for (int turn = 0; turn < 1000 && status == GW_THC_CLIENT_PENDING; turn++) {
            status = gw_thc_client_run(client, 20);
        }
        assert_int_equal(status, GW_THC_CLIENT_FAILED);
        assert_non_null(strstr(gw_thc_client_error(client), address));
        assert_non_null(strstr(gw_thc_client_error(client), "no answer for"));
        assert_int_equal(gw_thc_client_norms(client, 1, LEN, patterns), GW_THC_CLIENT_FAILED);
        gw_thc_client_close(client);
    }
}

enum { QUEUED = 4 };

/* A socket that takes packets and reads none, or one that answers no connection: its queue is full, by
 * others. */
static int silent_open(int is_stream, int queued[QUEUED])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, is_stream ? SOCK_STREAM : SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(is_stream ? listen(fd, 0) : 0, 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    for (int i = 0; i < QUEUED; i++) {
        queued[i] = is_stream ? socket(AF_INET, SOCK_STREAM, 0) : -1;
        if (is_stream) {
            assert_int_equal(fcntl(queued[i], F_SETFL, O_NONBLOCK), 0);
            (void)connect(queued[i], (struct sockaddr *)&address, sizeof address);
        }
    }
    (void)snprintf(silent_port, sizeof silent_port, "%u", (unsigned)ntohs(address.sin_port));
    return fd;
}

/* The first address of a name drops everything: the second is tried. A worker that ends says so more than
 * once by datagrams. */
static void test_a_silent_address_is_skipped(void **state)
{
    static const char *const schemes[] = {"udp://", "tcp://"};
    static server s;
    static uint32_t patterns[BLOCKS];
    const gw_thc_options options = default_options(4, 1, 0);
    const gw_thc thc = make_thc(&options);
    sigset_t none;
    (void)state;
    (void)sigemptyset(&none);
    for (int i = 0; i < 2; i++) {
        char address[ADDRESS_SIZE + 16], error[300];
        gw_thc_client_status status = GW_THC_CLIENT_PENDING;
        int queued[QUEUED];
        const int silent = silent_open(i, queued);
        server_start(&s, "127.0.0.1:0");
        (void)snprintf(address, sizeof address, "%sseveral%s", schemes[i], strrchr(s.address, ':'));
        const gw_thc_client_options given = {address, &thc, LEN, 0, 20000, 20000};
        gw_thc_client *client = gw_thc_client_open(&given, error, sizeof error);
        assert_non_null(client);
        assert_int_equal(gw_thc_client_norms(client, 0, LEN, patterns), GW_THC_CLIENT_DONE);
        while (status == GW_THC_CLIENT_PENDING) {
            status = gw_thc_client_run(client, 5);
            serve_network_run(&s.network, 0.001, &none);
        }
        assert_int_equal(status, GW_THC_CLIENT_DONE);
        const uint64_t received = s.network.serve->counts.received;
        gw_thc_client_close(client);
        for (int turn = 0; turn < 1000 && s.network.serve->counts.received < received + (i == 0 ? 3 : 1);
             turn++) {
            serve_network_run(&s.network, 0.01, &none);
        }
        assert_int_equal(s.network.serve->counts.received - received, i == 0 ? 3 : 1);
        assert_null(thc_serve_job(s.network.serve, options.job));
        server_stop(&s);
        (void)close(silent);
        for (int k = 0; k < QUEUED && i == 1; k++) {
            (void)close(queued[k]);
        }
    }
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {
        "",       "host",       ":80",        "[::1:80",       "::1:80",
        "host:",  "host:0",     "host:65536", "host:99999999", "host:8 0",
        "udp://", "tcp://host", "[]:80",      "host:-1",       "http://host:80"};
    const gw_thc_options options = default_options(4, WORKERS, 0);
    const gw_thc thc = make_thc(&options);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char error[300] = "";
        const gw_thc_client_options given = {bad[i], &thc, LEN, 0, 300, 300};
        assert_null(gw_thc_client_open(&given, error, sizeof error));
        assert_non_null(strstr(error, "the parameter server at"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_by_udp_and_tcp),
        cmocka_unit_test(test_a_server_is_started_anew),
        cmocka_unit_test(test_no_server),
        cmocka_unit_test(test_a_silent_address_is_skipped),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
