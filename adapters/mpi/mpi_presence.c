/*
 * Is the library on all ranks? That must be known before anything collective of its own, which a rank without
 * it would answer with the program's next call, and without a message that such a rank could receive.
 *
 * Before MPI_Init() each rank binds an abstract Unix socket whose name has the job and the rank. MPI_Init()
 * ends on no rank before it has begun on all, so whoever has the library has bound its socket by then,
 * however late: a name that nobody has is a rank without the library. All ranks look for the same names, and
 * so decide alike, unless a process that is not of the job binds one of them while they look. Abstract names
 * have no owner, so whoever may run programs on the node can do that; the job then waits, with a line.
 *
 * This takes a job on one node, with its name and ranks in the environment, as mpirun of both MPIs has them.
 * In others nothing is proven, and ranks wait for each other: with a line after a while.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define GW_MPI_WAIT_S 10

/* A job on this node. */
typedef struct gw_mpi_job {
    uint64_t name;
    int rank, size;
} gw_mpi_job;

/* In the place of a rank: the name of a job of which a rank has found another one missing */
#define GW_MPI_PRESENCE_DECLINED (-1)

static int gw_mpi_presence_socket = -1, gw_mpi_presence_declined = -1;
static int gw_mpi_presence_known; /* the job's name and ranks are, so that its ranks look for each other */
static gw_mpi_job gw_mpi_presence_job;

/* ------------ the job ------------ */

/* Decimal, as launchers write it: none of the units of GRADWIRE_MPI_THRESHOLD. */
static int gw_mpi_presence_number(const char *variable, int *number)
{
    const char *text = getenv(variable);
    char *end;
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    const long value = strtol(text, &end, 10);
    *number = (int)value;
    return *end == '\0' && value >= 0 && value <= 1 << 24;
}

/* mpirun of Open MPI */
static int gw_mpi_presence_orte(gw_mpi_job *job)
{
    int on_node;
    const char *space = getenv("PMIX_NAMESPACE"), *server = getenv("PMIX_SERVER_URI2");
    if (space == NULL || server == NULL || !gw_mpi_presence_number("OMPI_COMM_WORLD_RANK", &job->rank) ||
        !gw_mpi_presence_number("OMPI_COMM_WORLD_SIZE", &job->size) ||
        !gw_mpi_presence_number("OMPI_COMM_WORLD_LOCAL_SIZE", &on_node) || on_node != job->size ||
        getenv("OMPI_MCA_async_mpi_init") != NULL || getenv("OMPI_MCA_ompi_async_mpi_init") != NULL) {
        return 0;
    }
    job->name = gw_mpi_hash(gw_mpi_hash(GW_MPI_HASH_BEGIN, space), server);
    return 1;
}

/* Hydra, of MPICH: all ranks of a node are connected to one proxy, whose process names the job. */
static int gw_mpi_presence_hydra(gw_mpi_job *job)
{
    int on_node, proxy;
    struct stat space; /* of process numbers: containers have their own, with a network in common */
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);
    if (!gw_mpi_presence_number("PMI_RANK", &job->rank) || !gw_mpi_presence_number("PMI_SIZE", &job->size) ||
        !gw_mpi_presence_number("MPI_LOCALNRANKS", &on_node) || on_node != job->size ||
        !gw_mpi_presence_number("PMI_FD", &proxy) ||
        getsockopt(proxy, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0 ||
        stat("/proc/self/ns/pid", &space) != 0) {
        return 0;
    }
    job->name = (uint64_t)space.st_ino << 32 ^ (uint64_t)peer.pid;
    return 1;
}

/* ------------ names ------------ */

static socklen_t gw_mpi_presence_name(const gw_mpi_job *job, int rank, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int len = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "gradwire-mpi-%" PRIx64 "-%d",
                             job->name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* -1 if the name is taken, or without a socket. */
static int gw_mpi_presence_bind(int rank)
{
    struct sockaddr_un name;
    const socklen_t len = gw_mpi_presence_name(&gw_mpi_presence_job, rank, &name);
    const int bound = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bound >= 0 && bind(bound, (const struct sockaddr *)&name, len) != 0) {
        (void)close(bound);
        return -1;
    }
    return bound;
}

void gw_mpi_presence_announce(void)
{
    gw_mpi_job *job = &gw_mpi_presence_job;
    gw_mpi_presence_known = gw_mpi_presence_orte(job) || gw_mpi_presence_hydra(job);
    if (gw_mpi_presence_known && gw_mpi_presence_socket < 0) {
        /* Without it no other rank sees this one, nor does it itself: all pass through */
        gw_mpi_presence_socket = gw_mpi_presence_bind(job->rank);
    }
}

static void gw_mpi_presence_drop(int *bound)
{
    if (*bound >= 0) {
        (void)close(*bound);
        *bound = -1;
    }
}

void gw_mpi_presence_close(void)
{
    gw_mpi_presence_drop(&gw_mpi_presence_socket);
    gw_mpi_presence_drop(&gw_mpi_presence_declined);
}

static int gw_mpi_presence_is_there(int from, int rank)
{
    struct sockaddr_un name;
    const socklen_t len = gw_mpi_presence_name(&gw_mpi_presence_job, rank, &name);
    return connect(from, (const struct sockaddr *)&name, len) == 0;
}

/* The ranks that are missing, or the first few of them. */
static void gw_mpi_presence_tell(const uint8_t *there, int size, int missing)
{
    char list[200] = "";
    size_t at = 0;
    for (int rank = 0, listed = 0; rank < size && at < sizeof(list) - 20; rank++) {
        if (!there[rank]) {
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%d", listed > 0 ? ", " : "", rank);
            listed++;
            if (listed == 8 && missing > listed) {
                (void)snprintf(list + at, sizeof(list) - at, " and %d more", missing - listed);
                break;
            }
        }
    }
    gw_mpi_log_write(
        "no answer from rank%s %s: the library is not loaded there, so nothing is compressed; load it on "
        "all ranks, or on none",
        missing > 1 ? "s" : "", list);
}

/* For all ranks that have it; the first of them tells. */
static int gw_mpi_presence_look(int from, int rank, int size)
{
    uint8_t *there = gw_mpi_allocate((size_t)size, 1);
    int missing = 0, first = -1;
    for (int r = 0; r < size; r++) {
        there[r] = (uint8_t)(r == rank ? gw_mpi_presence_socket >= 0 : gw_mpi_presence_is_there(from, r));
        missing += !there[r];
        first = there[r] && first < 0 ? r : first;
    }
    if (missing > 0 && (first < 0 || first == rank) && gw_mpi_settings.enabled) {
        gw_mpi_presence_tell(there, size, missing);
    }
    free(there);
    if (missing > 0) {
        gw_mpi_presence_declined = gw_mpi_presence_bind(GW_MPI_PRESENCE_DECLINED);
    }
    return missing == 0 && !gw_mpi_presence_is_there(from, GW_MPI_PRESENCE_DECLINED);
}

int gw_mpi_presence_on_all(void)
{
    const gw_mpi_job *job = &gw_mpi_presence_job;
    int size = 0, rank = 0;
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &size);
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!gw_mpi_presence_known || job->size != size || job->rank != rank || size == 1) {
        return 1;
    }
    const int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int all = gw_mpi_presence_look(from, rank, size);
    if (from >= 0) {
        (void)close(from);
    }
    return all;
}

/* ------------ waiting ------------ */

static gw_mpi_thread gw_mpi_watch_thread = GW_MPI_THREAD;

static void *gw_mpi_watch(void *unused)
{
    gw_mpi_thread *own = &gw_mpi_watch_thread;
    struct timespec until;
    int status = 0;
    (void)unused;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GW_MPI_WAIT_S;
    (void)pthread_mutex_lock(&own->lock);
    while (!own->leaves && status != ETIMEDOUT) {
        status = pthread_cond_timedwait(&own->signal, &own->lock, &until);
    }
    if (!own->leaves) {
        gw_mpi_log_write(
            "no answer from some rank for %d s in MPI_Init: is the library loaded on all of them? "
            "Waiting (docs/mpi.md)",
            GW_MPI_WAIT_S);
    }
    (void)pthread_mutex_unlock(&own->lock);
    return NULL;
}

void gw_mpi_presence_watch(void)
{
    (void)gw_mpi_thread_start(&gw_mpi_watch_thread, gw_mpi_watch);
}

void gw_mpi_presence_unwatch(void)
{
    gw_mpi_thread_stop(&gw_mpi_watch_thread);
}
