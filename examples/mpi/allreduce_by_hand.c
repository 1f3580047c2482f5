/*
 * A compressed all-reduce over MPI, by hand: encode, all-to-all, reduce, all-gather, decode. One piece after
 * the other, to show the data flow; adapters/mpi overlaps them.
 *
 *   mpirun -n 4 example_allreduce_by_hand_openmpi
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <mpi.h>

#include "../example.h"
#include "gradwire/collective.h"

enum { LEN = 1000000, RANKS_MAX = 64 };

/* Receives at most `bound` bytes; frames delimit themselves, so no size travels ahead. */
static gw_gcomp_frame receive(void *data, size_t bound, uint32_t from)
{
    MPI_Status status;
    int size = 0;
    (void)MPI_Recv(data, (int)bound, MPI_BYTE, (int)from, 0, MPI_COMM_WORLD, &status);
    (void)MPI_Get_count(&status, MPI_BYTE, &size);
    return (gw_gcomp_frame){.data = data, .size = (size_t)size};
}

/* One piece: contributions to the owner, the sum back to all. memory: ranks + 1 buffers of `bound` bytes. */
static void reduce_piece(const gw_collective_bucket *bucket, uint32_t index, float *result, char *memory,
                         const gw_workspace *workspace, gw_collective_failure *failure)
{
    const uint32_t ranks = bucket->layout->shape.rank_count, rank = bucket->rank;
    const size_t bound = gw_collective_message_bound(bucket->layout, bucket->codec);
    gw_collective_piece piece;
    gw_gcomp_frame frames[RANKS_MAX];
    gw_buffer out = {.data = memory, .capacity = bound};
    *failure = (gw_collective_failure){.rank = rank, .piece = index, .bad_chunk = UINT64_MAX};
    failure->status = gw_collective_piece_at(bucket->layout, index, &piece);
    if (failure->status != GW_OK || piece.len == 0) {
        return; /* on all ranks alike */
    }
    const int is_owner = rank == piece.owner;
    if (is_owner) {
        for (uint32_t r = 0; r < ranks; r++) {
            frames[r] = (gw_gcomp_frame){.size = 0};
            if (r != rank) {
                frames[r] = receive(memory + bound * (r + 1), bound, r);
            }
        }
        failure->status = gw_collective_reduce(bucket, index, frames, &out, failure, workspace);
    } else {
        failure->status = gw_collective_encode(bucket, index, &out, workspace);
    }
    if (failure->status != GW_OK) { /* a failed step sends a notice, so that no rank waits */
        example_must(gw_collective_notice_write(failure, &out) == GW_OK, "room for a notice");
    }
    for (uint32_t r = 0; r < ranks; r++) {
        if (r != rank && (is_owner || r == piece.owner)) {
            (void)MPI_Send(out.data, (int)out.size, MPI_BYTE, (int)r, 0, MPI_COMM_WORLD);
        }
    }
    /* The owner decodes its own frame too: all ranks hold equal bits. The scale makes it a mean */
    gw_gcomp_frame sum = {.data = out.data, .size = out.size};
    if (!is_owner) {
        sum = receive(memory, bound, piece.owner);
    }
    gw_gcomp_target target = {result + piece.first, piece.len, .scale = 1.0f / (float)ranks};
    failure->status = gw_collective_decode(bucket, index, &sum, &target, failure, workspace);
}

int main(int argc, char **argv)
{
    static float values[LEN], mean[LEN];
    int rank, ranks;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    example_must(ranks <= RANKS_MAX, "number of ranks");
    example_fill(values, LEN, rank);
    const gw_gcomp codec = example_codec(0.005f);
    gw_collective_layout layout;
    const gw_collective_shape shape = {.len = LEN, .rank_count = (uint32_t)ranks};
    example_must(gw_collective_layout_init(&layout, &shape) == GW_OK, "layout");
    const gw_collective_bucket bucket = {&layout, &codec, .values = values, .rank = (uint32_t)rank,
                                         .seed = 1};
    const gw_workspace workspace = {malloc(gw_gcomp_workspace_size(&codec)), gw_gcomp_workspace_size(&codec)};
    char *memory = malloc(gw_collective_message_bound(&layout, &codec) * (size_t)(ranks + 1));
    example_must(workspace.data != NULL && memory != NULL, "memory");
    uint64_t word = 0; /* the worst of all pieces, then of all ranks: the same everywhere */
    for (uint32_t index = 0; index < layout.piece_count; index++) {
        gw_collective_failure failure;
        reduce_piece(&bucket, index, mean, memory, &workspace, &failure);
        word = gw_collective_word_write(&failure) > word ? gw_collective_word_write(&failure) : word;
    }
    (void)MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    const double nmse = example_nmse(mean, LEN, ranks);
    (void)printf("rank %d of %d: NMSE of the mean %.4f\n", rank, ranks, nmse);
    free(workspace.data);
    free(memory);
    (void)MPI_Finalize();
    return gw_collective_word_outcome(word) != GW_COLLECTIVE_DONE || nmse > 0.02;
}
