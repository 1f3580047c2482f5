/*
 * The automatic threshold: the smallest size at which a compressed all-reduce was clearly faster than MPI's
 * own, by running both in turn. That measures link and codec together, with all that they share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

#include <stdlib.h>

#define GW_MPI_AUTO_MIN    (1u << 16) /* bytes */
#define GW_MPI_AUTO_MAX    (1u << 24)
#define GW_MPI_AUTO_ROUNDS 3
/* Compressed must take at most 9/10 of plain's time: noise must not choose the slower one */
#define GW_MPI_AUTO_SHARE 0.9

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

static int gw_mpi_auto_order(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Medians of both, in seconds, the maximum over the ranks: equal on all of them. */
static int gw_mpi_auto_time(gw_mpi_context *context, const gw_mpi_call *call, double median[2])
{
    double seconds[2][GW_MPI_AUTO_ROUNDS];
    int status = MPI_SUCCESS;
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
            seconds[i][round] = (double)(start[i + 1] - start[i]) * 1e-9;
        }
    }
    for (int i = 0; i < 2; i++) {
        qsort(seconds[i], GW_MPI_AUTO_ROUNDS, sizeof(double), gw_mpi_auto_order);
        median[i] = seconds[i][GW_MPI_AUTO_ROUNDS / 2];
    }
    (void)PMPI_Allreduce(MPI_IN_PLACE, median, 2, MPI_DOUBLE, MPI_MAX, context->user);
    return status;
}

int gw_mpi_auto_measure(gw_mpi_context *context)
{
    float *values = gw_mpi_allocate(GW_MPI_AUTO_MAX, 2);
    int status = MPI_SUCCESS;
    gw_mpi_auto_fill(values, GW_MPI_AUTO_MAX / sizeof(float), (uint32_t)context->rank + 1);
    context->threshold_size = UINT64_MAX;
    /* Earlier operations would be measured too */
    while (atomic_load(&context->live) > 0) {
        (void)gw_mpi_progress();
    }
    for (uint32_t size = GW_MPI_AUTO_MIN; size <= GW_MPI_AUTO_MAX && status == MPI_SUCCESS; size *= 4) {
        const gw_mpi_call call = {
            .values = values,
            .result = values + GW_MPI_AUTO_MAX / sizeof(float),
            .len = size / sizeof(float),
            .options = gw_mpi_settings.options,
            .may_be_exact = gw_mpi_settings.exact && gw_mpi_options_lossy(&gw_mpi_settings.options),
        };
        double median[2];
        status = gw_mpi_auto_time(context, &call, median);
        if (median[1] <= GW_MPI_AUTO_SHARE * median[0]) {
            context->threshold_size = size;
            break;
        }
    }
    context->measured = 1;
    free(values);
    return status;
}
