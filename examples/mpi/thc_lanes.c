/*
 * THC over plain MPI: norms by MPI_MAX, lanes by MPI_SUM of bytes. The MPI library, or a switch below it,
 * adds small integers and knows nothing of gradients.
 *
 *   mpirun -n 4 example_thc_lanes_openmpi
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "gradwire/collective.h"

enum { LEN = 1000000 };

/* values -> the mean over all ranks. Returns the worst status of this rank. */
static gw_status thc_mean(const gw_thc *thc, const gw_thc_range *range, float *values)
{
    gw_status status, worst = GW_OK;
    const size_t reduced_size = gw_thc_reduced_size(thc, range->len, 0, range->block_count);
    gw_workspace workspace = {.size = gw_collective_lanes_workspace_size(thc)};
    if (workspace.size < gw_thc_workspace_size(thc)) {
        workspace.size = gw_thc_workspace_size(thc);
    }
    workspace.data = malloc(workspace.size);
    uint32_t *patterns = calloc(range->block_count, sizeof(uint32_t));
    gw_buffer lanes = {.data = calloc(reduced_size, 1), .capacity = reduced_size};

    const gw_thc_source source = {.values = values, .patterns = patterns};
    status = gw_thc_norms(thc, range, &source, patterns, NULL, &workspace);
    worst = status != GW_OK ? status : worst;
    (void)MPI_Allreduce(MPI_IN_PLACE, patterns, (int)range->block_count, MPI_UINT32_T, MPI_MAX,
                        MPI_COMM_WORLD);

    /* Counts are lanes too, so blocks know how many ranks took part. After a failure this rank adds zeros */
    status = gw_collective_lanes_encode(thc, range, &source, &lanes, NULL, &workspace);
    worst = status != GW_OK ? status : worst;
    (void)MPI_Allreduce(MPI_IN_PLACE, lanes.data, (int)gw_collective_lanes_len(thc, range), MPI_UINT8_T,
                        MPI_SUM, MPI_COMM_WORLD);

    const gw_thc_sum sum = {.data = lanes.data, .size = reduced_size, .patterns = patterns};
    gw_thc_target target = {.values = values, .capacity = range->len};
    status = gw_thc_decode_reduced(thc, range, &sum, GW_THC_MEAN, &target, &workspace);
    worst = status != GW_OK ? status : worst;
    free(workspace.data);
    free(patterns);
    free(lanes.data);
    return worst;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    float *values = malloc(LEN * sizeof(float)), *exact = malloc(LEN * sizeof(float));
    for (int i = 0; i < LEN; i++) {
        values[i] = (float)((i % 4001 * 7919 + rank * 1009) % 2001 - 1000) * 1e-4f;
    }
    (void)MPI_Allreduce(values, exact, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

    /* 4-bit indices; the narrowest lanes that hold the sum of all ranks: bytes up to 17 of them */
    const gw_thc_goal goal = {.bits = 4, .worker_max = (uint32_t)ranks};
    gw_thc_options options;
    gw_thc thc;
    if (gw_thc_options_init(&options, &goal, NULL) != GW_OK || gw_thc_init(&thc, &options) != GW_OK ||
        options.lane_bits != 8) {
        (void)fprintf(stderr, "%d ranks do not fit lanes of 8 bits\n", ranks);
        return 1;
    }
    const gw_thc_range range = {
        .len = LEN, .block_count = gw_thc_block_count(&thc, LEN), .round = 1, .rank = (uint32_t)rank};
    int failed = thc_mean(&thc, &range, values) != GW_OK;
    (void)MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);

    double error = 0, square = 0;
    for (int i = 0; i < LEN; i++) {
        const double mean = (double)exact[i] / ranks;
        error += ((double)values[i] - mean) * ((double)values[i] - mean);
        square += mean * mean;
    }
    if (rank == 0) {
        (void)printf("NMSE of the mean over %d ranks: %.4f\n", ranks, error / square);
    }
    free(values);
    free(exact);
    (void)MPI_Finalize();
    return failed || error > 0.1 * square;
}
