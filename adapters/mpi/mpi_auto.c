/*
 * The automatic threshold: the smallest size at which a compressed all-reduce was clearly faster than MPI's
 * own, by running both in turn. That measures link and codec together, with all that they share. It is
 * measured once for the ranks of a communicator, whatever other communicators they have.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_progress.h"

#include <stdlib.h>
#include <string.h>

#define GW_MPI_AUTO_MIN    (1u << 16) /* bytes */
#define GW_MPI_AUTO_MAX    (1u << 24)
#define GW_MPI_AUTO_ROUNDS 5
/* Compressed must take at most 9/10 of plain's time: noise must not choose the slower one */
#define GW_MPI_AUTO_SHARE 0.9
/* From GW_MPI_AUTO_STEADY bytes on both take time by the byte: what is this many times slower there stays so
 */
#define GW_MPI_AUTO_STEADY (1u << 20)
#define GW_MPI_AUTO_LOST   3.0

/* ------------ nodes ------------ */

static uint64_t *gw_mpi_nodes; /* by rank in MPI_COMM_WORLD; NULL: not known */

void gw_mpi_auto_begin(void)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int len, size;
    (void)PMPI_Get_processor_name(name, &len);
    const uint64_t hash = gw_mpi_hash(GW_MPI_HASH_BEGIN, name);
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &size);
    gw_mpi_nodes = gw_mpi_allocate((size_t)size, sizeof(*gw_mpi_nodes));
    (void)PMPI_Allgather(&hash, 1, MPI_UINT64_T, gw_mpi_nodes, 1, MPI_UINT64_T, MPI_COMM_WORLD);
}

int gw_mpi_auto_on_node(const gw_mpi_context *context)
{
    const int *world = context->world;
    for (int r = 1; r < context->size && gw_mpi_nodes != NULL; r++) {
        if (gw_mpi_nodes[world[r]] != gw_mpi_nodes[world[0]]) {
            return 0;
        }
    }
    return gw_mpi_nodes != NULL;
}

/* ------------ what was measured ------------ */

typedef struct gw_mpi_measured {
    struct gw_mpi_measured *next;
    uint64_t threshold_size;
    int size;
    int world[];
} gw_mpi_measured;

static pthread_mutex_t gw_mpi_measured_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_mpi_measured *gw_mpi_measured_list;

static void gw_mpi_measured_keep(const gw_mpi_context *context)
{
    const size_t size = (size_t)context->size * sizeof(int);
    gw_mpi_measured *one = gw_mpi_allocate(1, sizeof(*one) + size);
    one->threshold_size = context->threshold_size;
    one->size = context->size;
    memcpy(one->world, context->world, size);
    (void)pthread_mutex_lock(&gw_mpi_measured_lock);
    one->next = gw_mpi_measured_list;
    gw_mpi_measured_list = one;
    (void)pthread_mutex_unlock(&gw_mpi_measured_lock);
}

/* 1 if all ranks have measured; else none takes what it has. Another thread of some may just be doing so. */
static int gw_mpi_measured_take(gw_mpi_context *context, int *status)
{
    uint64_t words[2] = {1, 0}; /* 1: not there; the complement of the threshold. The maximum of both */
    (void)pthread_mutex_lock(&gw_mpi_measured_lock);
    for (const gw_mpi_measured *at = gw_mpi_measured_list; at != NULL; at = at->next) {
        if (at->size == context->size &&
            memcmp(at->world, context->world, (size_t)at->size * sizeof(int)) == 0) {
            words[0] = 0;
            words[1] = ~at->threshold_size;
            break;
        }
    }
    (void)pthread_mutex_unlock(&gw_mpi_measured_lock);
    *status = PMPI_Allreduce(MPI_IN_PLACE, words, 2, MPI_UINT64_T, MPI_MAX, context->user);
    context->threshold_size = ~words[1];
    return *status == MPI_SUCCESS && words[0] == 0;
}

void gw_mpi_auto_end(void)
{
    while (gw_mpi_measured_list != NULL) {
        gw_mpi_measured *next = gw_mpi_measured_list->next;
        free(gw_mpi_measured_list);
        gw_mpi_measured_list = next;
    }
    free(gw_mpi_nodes);
    gw_mpi_nodes = NULL;
}

/* ------------ measuring ------------ */

/* Values whose magnitudes spread over octaves as gradients' do: sums of four uniform numbers, scaled by
 * layer. */
static void gw_mpi_auto_fill(float *values, size_t len, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < len; i++) {
        int32_t sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (int32_t)(state >> 16) - 32768;
        }
        values[i] = (float)sum * (1.0f / 65536.0f) / (float)(1u << (i >> 12 & 7u));
    }
}

/* The shortest time of both, in seconds, on the slowest rank: equal on all of them. What else the cores do
 * makes single calls slower, by more than the two differ. */
static int gw_mpi_auto_time(gw_mpi_context *context, const gw_mpi_call *call, double best[2])
{
    int status = MPI_SUCCESS;
    best[0] = best[1] = 1e9;
    for (int round = -1; round < GW_MPI_AUTO_ROUNDS; round++) { /* the first one warms up */
        uint64_t start[3];
        (void)PMPI_Barrier(context->user);
        start[0] = gw_mpi_now_ns();
        (void)PMPI_Allreduce(call->values, call->result, (int)call->len, MPI_FLOAT, MPI_SUM, context->user);
        start[1] = gw_mpi_now_ns();
        const int one = gw_mpi_operation_wait(gw_mpi_operation_start(context, call, NULL));
        start[2] = gw_mpi_now_ns();
        status = one != MPI_SUCCESS ? one : status;
        for (int i = 0; i < 2 && round >= 0; i++) {
            const double seconds = (double)(start[i + 1] - start[i]) * 1e-9;
            best[i] = seconds < best[i] ? seconds : best[i];
        }
    }
    (void)PMPI_Allreduce(MPI_IN_PLACE, best, 2, MPI_DOUBLE, MPI_MAX, context->user);
    return status;
}

/* The smaller of two sizes in a row at which compressed is faster; UINT64_MAX: there are none. */
static int gw_mpi_auto_search(gw_mpi_context *context)
{
    float *values = gw_mpi_allocate(GW_MPI_AUTO_MAX, 2);
    int status = MPI_SUCCESS, faster = 0;
    context->threshold_size = UINT64_MAX;
    for (uint32_t size = GW_MPI_AUTO_MIN; size <= GW_MPI_AUTO_MAX && status == MPI_SUCCESS && faster < 2;
         size *= 4) {
        const gw_mpi_call call = {
            .values = values,
            .result = values + GW_MPI_AUTO_MAX / sizeof(float),
            .len = size / sizeof(float),
            .options = gw_mpi_settings.options,
            .measures = 1,
            .may_be_exact = gw_mpi_settings.exact && gw_mpi_options_lossy(&gw_mpi_settings.options),
        };
        double best[2];
        gw_mpi_auto_fill(values, call.len, (uint32_t)context->rank + 1);
        status = gw_mpi_auto_time(context, &call, best);
        faster = best[1] <= GW_MPI_AUTO_SHARE * best[0] ? faster + 1 : 0;
        if (faster < 2) {
            context->threshold_size = faster ? size : UINT64_MAX;
        }
        if (size >= GW_MPI_AUTO_STEADY && best[1] > GW_MPI_AUTO_LOST * best[0]) {
            break;
        }
    }
    free(values);
    return status;
}

int gw_mpi_auto_measure(gw_mpi_context *context)
{
    int status;
    /* Earlier operations would be measured too */
    gw_mpi_drain(context->user);
    if (!gw_mpi_measured_take(context, &status) && status == MPI_SUCCESS) {
        status = gw_mpi_auto_search(context);
        gw_mpi_measured_keep(context);
    }
    context->measured = 1;
    return status;
}
