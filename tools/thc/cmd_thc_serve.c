/*
 * gradwire thc-serve: a parameter server in a process of its own.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "cmd.h"
#include "serve_network.h"
#include "thc_options.h"

#define ADDRESS_DEFAULT "127.0.0.1:5610"
#define TICK_S          0.2

enum {
    PACKET_LOOPBACK = 16384,
    PACKET_ETHERNET = 1472, /* an MTU of 1500 without the headers of IPv4 and UDP */
    PACKET_MIN = 512,
    FILES_OTHER = 16,     /* that are open besides connections */
    WAITING_MAX = 8 << 20 /* bytes for a connection that does not read */
};

typedef struct serve_request {
    gw_request common;
    const char *address;
    uint32_t jobs, workers, quorum, connections, replies, packet;
    uint64_t memory;
    double wait_s, idle_s;
    int no_udp, no_tcp;
} serve_request;

#define SERVE_NUMBER(member, lowest, highest)                                                                \
    GW_INTEGER(serve_request, member, lowest, highest), .noun = "a number"

static const gw_option serve_options[] = {
    {"listen", "HOST:PORT", "Address to bind to (default " ADDRESS_DEFAULT "; port 0: any)",
     GW_TEXT(serve_request, address)},
    {"no-udp", NULL, "TCP only", GW_FLAG(serve_request, no_udp)},
    {"no-tcp", NULL, "UDP only", GW_FLAG(serve_request, no_tcp)},
    {"quorum", "Q", "Close a sum when Q workers are in it (default: all of the job)",
     SERVE_NUMBER(quorum, 1, GW_THC_WORKERS_MAX)},
    {"wait", "SECONDS", "Close a sum that long after its first worker (default 0: never)",
     GW_REAL(serve_request, wait_s, 0.0, 86400.0)},
    {"jobs", "N", "At most N jobs at a time (default 16)", SERVE_NUMBER(jobs, 1, 65536)},
    {"workers", "N", "At most N workers in a job (default 256)",
     SERVE_NUMBER(workers, 1, GW_THC_WORKERS_MAX)},
    {"memory", "SIZE", "At most so many bytes for all jobs, such as 512M (default 1G)",
     GW_SIZE(serve_request, memory)},
    {"packet", "BYTES", "Size of packets (default 16384 on the loopback interface, else 1472)",
     SERVE_NUMBER(packet, PACKET_MIN, GW_THC_DATAGRAM_MAX)},
    {"connections", "N", "At most N TCP connections (default 256)", SERVE_NUMBER(connections, 1, 65536)},
    {"replies", "N", "At most N replies a second to senders that take part in no job (default 1000)",
     SERVE_NUMBER(replies, 1, 1000000)},
    {"idle", "SECONDS", "Forget a job or connection without packets (default 3600)",
     GW_REAL(serve_request, idle_s, 0.01, 1e9)},
    GW_JSON_ROW("Statistics as JSON"),
    {0},
};

static volatile sig_atomic_t wants_end, wants_statistics;

static void on_signal(int number)
{
    if (number == SIGUSR1) {
        wants_statistics = 1;
    } else {
        wants_end = 1;
    }
}

/* Signals arrive only while the server waits for packets, and in signals_take(). *during gets the mask for
 * that time. */
static void signals_prepare(sigset_t *during)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
    struct sigaction action;
    sigset_t blocked;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    (void)sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)sigaddset(&blocked, numbers[i]);
        (void)sigaction(numbers[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN; /* whoever reads the statistics may be gone */
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)sigprocmask(SIG_BLOCK, &blocked, during);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)sigdelset(during, numbers[i]);
    }
}

/* Lets in what is pending: ppoll() does not while something is ready. */
static void signals_take(const sigset_t *during)
{
    sigset_t blocked;
    (void)sigprocmask(SIG_SETMASK, during, &blocked);
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/* Each connection is an open file; ppoll() refuses more than the limit, and the soft one is often low. */
static void files_allow(uint32_t connections)
{
    const rlim_t wanted = (rlim_t)connections + FILES_OTHER;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    const rlim_t most = limit.rlim_max;
    limit.rlim_cur = wanted;
    if (most < wanted || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL,
                    "--connections %u needs %llu open files, and the limit is %llu (ulimit -n)", connections,
                    (unsigned long long)wanted, (unsigned long long)most);
    }
}

/* ---- statistics ---- */

typedef struct counter {
    const char *name;
    uint64_t value;
} counter;

static void jobs_print(const thc_serve *serve, json_t *list)
{
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        const thc_job *job = serve->jobs[i];
        if (job == NULL) {
            continue;
        }
        if (list == NULL) {
            printf(
                "  job %u: %u of %u workers, %llu packets, %llu results, %llu of them partial, %llu bytes\n",
                job->options.job, job->joined, job->options.worker_max, (unsigned long long)job->received,
                (unsigned long long)job->results, (unsigned long long)job->partial,
                (unsigned long long)job->memory_size);
            continue;
        }
        json_t *object = json_object();
        gw_cli_json_count(object, "job", job->options.job);
        gw_cli_json_count(object, "workers", job->options.worker_max);
        gw_cli_json_count(object, "joined", job->joined);
        gw_cli_json_count(object, "received", job->received);
        gw_cli_json_count(object, "results", job->results);
        gw_cli_json_count(object, "partial", job->partial);
        gw_cli_json_count(object, "bytes", job->memory_size);
        json_array_append_new(list, object);
    }
}

static void refusals_print(const thc_serve *serve, json_t *object)
{
    for (unsigned status = 0; status < THC_STATUS_MAX; status++) {
        const uint64_t count = serve->counts.refused[status];
        if (count != 0 && object != NULL) {
            gw_cli_json_count(object, gw_status_name((gw_status)status), count);
        } else if (count != 0) {
            printf("  %llu refused: %s\n", (unsigned long long)count, gw_status_message((gw_status)status));
        }
    }
}

static void statistics_print(const serve_network *network, int is_json)
{
    const thc_serve *serve = network->serve;
    const thc_serve_counts *c = &serve->counts;
    const counter counters[] = {
        {"received", c->received},
        {"received_bytes", c->received_size},
        {"sent", c->sent},
        {"sent_bytes", c->sent_size},
        {"unsent", network->unsent},
        {"added", c->added},
        {"asked", c->asked},
        {"results", c->results},
        {"partial", c->partial},
        {"repeated", c->repeated},
        {"dropped", c->dropped},
        {"jobs", c->jobs},
        {"forgotten", c->forgotten},
        {"challenged", c->challenged},
        {"welcomed", c->welcomed},
        {"refused_joins", c->refused_joins},
        {"unknown", c->unknown},
        {"early", c->early},
        {"limited", c->limited},
        {"connections", network->accepted},
        {"refused_connections", network->refused},
    };
    if (!is_json) {
        printf("statistics\n ");
        for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
            printf(" %s %llu", counters[i].name, (unsigned long long)counters[i].value);
        }
        printf("\n");
        refusals_print(serve, NULL);
        jobs_print(serve, NULL);
        (void)fflush(stdout);
        return;
    }
    json_t *object = json_object(), *refused = json_object(), *jobs = json_array();
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        gw_cli_json_count(object, counters[i].name, counters[i].value);
    }
    refusals_print(serve, refused);
    jobs_print(serve, jobs);
    json_object_set_new(object, "refused", refused);
    json_object_set_new(object, "now", jobs);
    (void)gw_cli_json_print(object);
    (void)fflush(stdout);
}

/* ---- the command ---- */

static serve_request request_read(int argc, char **argv)
{
    static const gw_command_line line = {
        "",
        "A parameter server for THC: it adds what workers send, and never decodes it. It ends with SIGTERM "
        "or "
        "SIGINT; SIGUSR1 prints statistics.",
        GW_NO_INPUT,
        {.options = serve_options},
        {{0}},
    };
    serve_request request = {
        .address = ADDRESS_DEFAULT,
        .jobs = 16,
        .workers = 256,
        .memory = (uint64_t)1 << 30,
        .connections = 256,
        .replies = 1000,
        .idle_s = 3600,
    };
    gw_command_line_parse(&line, argc, argv, &request);
    if (request.no_udp && request.no_tcp) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--no-udp and --no-tcp leave nothing");
    }
    return request;
}

int gw_cmd_thc_serve(int argc, char **argv)
{
    static serve_network network;
    const serve_request request = request_read(argc, argv);
    uint64_t secret[2];
    sigset_t signals;
    network.connections_max = request.no_tcp ? 0 : request.connections;
    network.out_max = WAITING_MAX;
    network.idle_s = request.idle_s;
    files_allow(network.connections_max);
    const char *failed = serve_network_open(&network, request.address, !request.no_udp, !request.no_tcp);
    if (failed != NULL) {
        gw_cli_fail(GW_CLI_IO, request.address, "%s%s%s", failed, errno != 0 ? ": " : "",
                    errno != 0 ? strerror(errno) : "");
    }
    const thc_serve_limits limits = {
        .jobs_max = request.jobs,
        .workers_max = request.workers,
        .memory_max = request.memory,
        .packet_max = request.packet != 0   ? request.packet
                      : network.is_loopback ? PACKET_LOOPBACK
                                            : PACKET_ETHERNET,
        .quorum = request.quorum,
        .wait_s = request.wait_s,
        .idle_s = request.idle_s,
        .replies_max = request.replies,
    };
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        gw_cli_fail(GW_CLI_IO, NULL, "the system has no random numbers");
    }
    network.serve = thc_serve_create(&limits, secret, serve_network_send, &network);
    if (network.serve == NULL) {
        gw_cli_fail(GW_CLI_IO, NULL, "no memory");
    }
    signals_prepare(&signals);
    if (!network.is_loopback) {
        gw_cli_note("whoever can reach %s can take part; packets are not authenticated", network.address);
    }
    printf("listening on %s\n", network.address);
    (void)fflush(stdout);
    const double tick = request.wait_s > 0 && request.wait_s / 4 < TICK_S ? request.wait_s / 4 : TICK_S;
    while (!wants_end) {
        if (serve_network_run(&network, tick, &signals) != 0) {
            gw_cli_fail(GW_CLI_IO, network.address, "cannot wait for packets: %s", strerror(errno));
        }
        signals_take(&signals);
        thc_serve_tick(network.serve, gw_cli_seconds());
        if (wants_statistics) {
            wants_statistics = 0;
            statistics_print(&network, request.common.json);
        }
    }
    statistics_print(&network, request.common.json);
    serve_network_close(&network);
    thc_serve_free(network.serve);
    return GW_CLI_OK;
}
