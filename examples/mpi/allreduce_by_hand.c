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

static void send(const gw_buffer *message, int to)
{
    (void)MPI_Send(message->data, (int)message->size, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

/* One piece: contributions to the owner, the sum back to all. memory: ranks + 1 buffers of `bound` bytes. */
static void reduce_piece(const gw_collective_bucket *bucket, uint32_t index, float *result, char *memory,
                         const gw_workspace *workspace, gw_collective_blame *blame)
{
    const uint32_t ranks = bucket->layout->shape.rank_count, rank = bucket->rank;
    const size_t bound = gw_collective_message_bound(bucket->layout, bucket->codec);
    gw_collective_piece piece;
    gw_gcomp_frame frames[RANKS_MAX], sum;
    gw_buffer out = {.data = memory, .capacity = bound};
    blame->status = gw_collective_piece_at(bucket->layout, index, &piece);
    if (blame->status != GW_OK || piece.len == 0) {
        return; /* on all ranks alike */
    }
    *blame = (gw_collective_blame){.rank = rank, .piece = index, .bad_chunk = UINT64_MAX};
    if (rank != piece.owner) {
        blame->status = gw_collective_encode(bucket, index, &out, workspace);
    } else {
        for (uint32_t r = 0; r < ranks; r++) {
            if (r != rank) {
                frames[r] = receive(memory + bound * (r + 1), bound, (int)r);
            }
        }
        blame->status = gw_collective_reduce(bucket, index, frames, &out, blame, workspace);
    }
    if (blame->status != GW_OK && gw_collective_notice_write(blame, &out) != GW_OK) {
        out.size = 0; /* never: 32 bytes fit the bound */
    }
    for (uint32_t r = 0; r < ranks; r++) {
        if (r != rank && (rank == piece.owner || r == piece.owner)) {
            send(&out, (int)r);
        }
    }
    sum = rank == piece.owner ? (gw_gcomp_frame){.data = out.data, .size = out.size}
                              : receive(memory, bound, (int)piece.owner);
    /* The owner decodes its own frame too: all ranks hold equal bits. The scale makes it a mean */
    gw_gcomp_target target = {
        .values = result + piece.first, .capacity = piece.len, .scale = 1.0f / (float)ranks};
    blame->status = gw_collective_decode(bucket, index, piece.owner, &sum, &target, blame, workspace);
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
    const gw_workspace workspace = {.data = malloc(gw_gcomp_workspace_size(&codec)),
                                    .size = gw_gcomp_workspace_size(&codec)};
    char *memory = malloc(gw_collective_message_bound(&layout, &codec) * (size_t)(ranks + 1));
    uint64_t word = 0; /* the worst of all pieces, then of all ranks: the same everywhere */
    for (uint32_t index = 0; index < layout.piece_count; index++) {
        gw_collective_blame blame = {.status = GW_OK};
        reduce_piece(&bucket, index, mean, memory, &workspace, &blame);
        const uint64_t one = gw_collective_word(&blame);
        word = one > word ? one : word;
    }
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
    free(workspace.data);
    free(memory);
    free(values);
    free(mean);
    (void)MPI_Finalize();
    return gw_collective_judge(word) != GW_COLLECTIVE_DONE || error > 0.02 * square;
}
