/*
 * A compressed all-reduce over MPI, by hand: encode, all-to-all, reduce, all-gather, decode. One piece after
 * the other, to show the data flow; adapters/mpi overlaps them.
 *
 *   mpirun -n 4 example_allreduce_by_hand_openmpi
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "gradwire/collective.h"

enum { LEN = 1000000, RANKS_MAX = 64 };

/* Posts a receive of at most `bound` bytes from `from`; frames delimit themselves, so no size travels ahead.
 */
static gw_gcomp_frame receive(void *data, size_t bound, int from)
{
    MPI_Status status;
    int size = 0;
    (void)MPI_Recv(data, (int)bound, MPI_BYTE, from, 0, MPI_COMM_WORLD, &status);
    (void)MPI_Get_count(&status, MPI_BYTE, &size);
    return (gw_gcomp_frame){.data = data, .size = (size_t)size};
}

/* One piece: contributions to the owner, the sum back to all. */
static void reduce_piece(const gw_collective_bucket *bucket, uint32_t index, float *result, size_t bound,
                         gw_collective_blame *worst)
{
    const gw_collective_layout *layout = bucket->layout;
    const int ranks = (int)layout->shape.rank_count, rank = (int)bucket->rank;
    gw_collective_piece piece;
    gw_gcomp_frame frames[RANKS_MAX], sum;
    gw_workspace workspace = {.size = gw_gcomp_workspace_size(bucket->codec)};
    char *memory = malloc(workspace.size + bound * (size_t)(ranks + 1));
    workspace.data = memory + bound * (size_t)(ranks + 1);
    gw_buffer out = {.data = memory, .capacity = bound};
    gw_collective_blame blame = {.rank = bucket->rank, .piece = index, .bad_chunk = UINT64_MAX};

    if (gw_collective_piece_at(layout, index, &piece) == GW_OK && piece.len != 0) {
        const int owner = (int)piece.owner;
        if (rank != owner) {
            blame.status = gw_collective_encode(bucket, index, &out, &workspace);
        } else {
            for (int r = 0; r < ranks; r++) {
                if (r != rank) {
                    frames[r] = receive(memory + bound * (size_t)(r + 1), bound, r);
                }
            }
            blame.status = gw_collective_reduce(bucket, index, frames, &out, &blame, &workspace);
        }
        if (blame.status != GW_OK && gw_collective_notice_write(&blame, &out) != GW_OK) {
            out.size = 0; /* never: 32 bytes fit the bound */
        }
        if (rank != owner) {
            (void)MPI_Send(out.data, (int)out.size, MPI_BYTE, owner, 0, MPI_COMM_WORLD);
            sum = receive(memory, bound, owner);
        } else {
            for (int r = 0; r < ranks; r++) {
                if (r != rank) {
                    (void)MPI_Send(out.data, (int)out.size, MPI_BYTE, r, 0, MPI_COMM_WORLD);
                }
            }
            sum = (gw_gcomp_frame){.data = out.data, .size = out.size};
        }
        /* The owner decodes its own frame too: all ranks hold equal bits. The scale makes it a mean */
        gw_gcomp_target target = {
            .values = result + piece.first, .capacity = piece.len, .scale = 1.0f / (float)ranks};
        const gw_status status =
            gw_collective_decode(bucket, index, piece.owner, &sum, &target, &blame, &workspace);
        if (status != GW_OK && gw_collective_word(&blame) > gw_collective_word(worst)) {
            *worst = blame;
        }
    }
    free(memory);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    float *values = malloc(LEN * sizeof(float)), *mean = malloc(LEN * sizeof(float));
    for (int i = 0; i < LEN; i++) {
        values[i] = (float)((i % 4001 * 7919 + rank * 1009) % 2001 - 1000) * 1e-4f;
    }

    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.levels = GW_GCOMP_CARRIED;
    options.rounding = GW_GCOMP_STOCHASTIC;
    options.deep_cut = 1;
    options.target_nmse = 0.005f;
    options.checksum = 1;
    gw_gcomp codec;
    gw_collective_layout layout;
    const gw_collective_shape shape = {.len = LEN, .rank_count = (uint32_t)ranks};
    if (ranks > RANKS_MAX || gw_gcomp_init(&codec, &options) != GW_OK ||
        gw_collective_layout_init(&layout, &shape) != GW_OK) {
        return 1;
    }
    const gw_collective_bucket bucket = {
        .layout = &layout, .codec = &codec, .values = values, .rank = (uint32_t)rank, .seed = 1};
    const size_t bound = gw_collective_message_bound(&layout, &codec);
    gw_collective_blame worst = {.status = GW_OK};
    for (uint32_t index = 0; index < layout.piece_count; index++) {
        reduce_piece(&bucket, index, mean, bound, &worst);
    }

    /* One word, the same on all ranks: either all have the mean or all know that they do not */
    uint64_t word = gw_collective_word(&worst);
    (void)MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    double error = 0, square = 0;
    (void)MPI_Allreduce(MPI_IN_PLACE, values, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < LEN; i++) {
        const double exact = (double)values[i] / ranks;
        error += ((double)mean[i] - exact) * ((double)mean[i] - exact);
        square += exact * exact;
    }
    if (rank == 0) {
        (void)printf("NMSE of the mean over %d ranks: %.4f\n", ranks, error / square);
    }
    free(values);
    free(mean);
    (void)MPI_Finalize();
    return gw_collective_judge(word) != GW_COLLECTIVE_DONE || error > 0.02 * square;
}
