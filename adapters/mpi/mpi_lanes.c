/*
 * THC: an exchange of the norms of blocks, which leaves their maxima on all ranks, then one that adds lanes.
 *
 * The values are one tensor (all-reduce) or one for each rank's block (reduce-scatter). Pieces hold whole
 * blocks of a tensor.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>
#include <string.h>

/* Of a piece: 32 KiB of lanes of 8 bits, for the reasons of GW_MPI_PIECE_LEN; 4 KiB of norms */
#define GW_MPI_LANES_BLOCKS 32u
#define GW_MPI_NORMS_BLOCKS 1024u

struct gw_mpi_lanes {
    gw_mpi_operation *operation;
    gw_thc thc;
    uint32_t block_log2, tensors;
    uint64_t tensor_len, block_count; /* of each */
    uint32_t *patterns;               /* [tensor * block_count + block]: of this rank, then the maxima */
    gw_mpi_fold norms, sums;
    int has_maxima; /* the first exchange is complete */
};

/* ------------ pieces ------------ */

/* What a piece is of its tensor. The rounds of an operation's tensors differ, so that they do not share
 * random words. */
static gw_thc_range gw_mpi_lanes_range(const gw_mpi_lanes *lanes, const gw_collective_piece *piece)
{
    const gw_mpi_operation *operation = lanes->operation;
    const uint32_t tensor = lanes->tensors == 1 ? 0 : piece->owner;
    const uint64_t block_len = UINT64_C(1) << lanes->block_log2;
    return (gw_thc_range){
        .len = lanes->tensor_len,
        .block_first = (piece->first - tensor * lanes->tensor_len) >> lanes->block_log2,
        .block_count = (piece->len + block_len - 1) >> lanes->block_log2,
        .round = operation->number * lanes->tensors + tensor,
        .rank = (uint32_t)operation->context->rank,
    };
}

static uint32_t *gw_mpi_lanes_patterns(const gw_mpi_lanes *lanes, const gw_collective_piece *piece)
{
    const uint64_t tensor = lanes->tensors == 1 ? 0 : piece->owner;
    return lanes->patterns + tensor * lanes->block_count + gw_mpi_lanes_range(lanes, piece).block_first;
}

/* ------------ norms ------------ */

static size_t gw_mpi_norms_size(const gw_mpi_fold *fold, const gw_collective_piece *piece)
{
    return (size_t)gw_mpi_lanes_range(fold->owner, piece).block_count * sizeof(uint32_t);
}

static gw_status gw_mpi_norms_make(const gw_mpi_fold *fold, const gw_collective_piece *piece, void *words,
                                   const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = fold->owner;
    const gw_thc_range range = gw_mpi_lanes_range(lanes, piece);
    const gw_thc_source source = {.values = lanes->operation->call.values + piece->first};
    return gw_thc_norms(&lanes->thc, &range, &source, words, NULL, workspace);
}

static gw_status gw_mpi_norms_take(const gw_mpi_fold *fold, const gw_collective_piece *piece,
                                   const void *words, const gw_workspace *workspace)
{
    (void)workspace;
    memcpy(gw_mpi_lanes_patterns(fold->owner, piece), words, gw_mpi_norms_size(fold, piece));
    return GW_OK;
}

/* ------------ lanes ------------ */

static size_t gw_mpi_lanes_size(const gw_mpi_fold *fold, const gw_collective_piece *piece)
{
    const gw_mpi_lanes *lanes = fold->owner;
    const gw_thc_range range = gw_mpi_lanes_range(lanes, piece);
    return gw_thc_reduced_size(&lanes->thc, range.len, range.block_first, range.block_count);
}

static gw_status gw_mpi_lanes_make(const gw_mpi_fold *fold, const gw_collective_piece *piece, void *words,
                                   const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = fold->owner;
    const gw_thc_range range = gw_mpi_lanes_range(lanes, piece);
    const gw_thc_source source = {.values = lanes->operation->call.values + piece->first,
                                  .patterns = gw_mpi_lanes_patterns(lanes, piece)};
    gw_buffer dst = {.data = words, .capacity = gw_mpi_lanes_size(fold, piece)};
    return gw_collective_lanes_encode(&lanes->thc, &range, &source, &dst, NULL, workspace);
}

static gw_status gw_mpi_lanes_take(const gw_mpi_fold *fold, const gw_collective_piece *piece,
                                   const void *words, const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = fold->owner;
    const gw_thc_range range = gw_mpi_lanes_range(lanes, piece);
    const gw_thc_sum sum = {.data = words,
                            .size = gw_mpi_lanes_size(fold, piece),
                            .patterns = gw_mpi_lanes_patterns(lanes, piece)};
    gw_thc_target target = {.values =
                                lanes->operation->call.result + (range.block_first << lanes->block_log2),
                            .capacity = piece->len};
    const gw_status status = gw_thc_decode_reduced(&lanes->thc, &range, &sum, GW_THC_SUM, &target, workspace);
    /* missing: a rank's counts did not arrive */
    return status == GW_OK && target.missing != 0 ? GW_ERR_CORRUPT : status;
}

/* ------------ the two exchanges ------------ */

static gw_status gw_mpi_lanes_init(gw_mpi_lanes *lanes, uint32_t ranks)
{
    const gw_mpi_options *wanted = &lanes->operation->call.options;
    const gw_thc_goal goal = {.bits = wanted->thc_bits, .worker_max = ranks};
    const gw_workspace workspace = gw_mpi_workspace();
    gw_thc_options options;
    const gw_status status = gw_thc_options_init(&options, &goal, &workspace);
    if (status != GW_OK) {
        return status;
    }
    options.seed = wanted->seed;
    options.nonfinite = GW_THC_NONFINITE_PROPAGATE;
    return gw_thc_init(&lanes->thc, &options);
}

static gw_mpi_exchange *gw_mpi_lanes_open(gw_mpi_lanes *lanes, gw_mpi_fold *fold, gw_mpi_message message,
                                          const gw_exchange_run *run)
{
    const gw_mpi_call *call = &lanes->operation->call;
    const uint32_t ranks = (uint32_t)lanes->operation->context->size;
    const uint64_t shard_blocks = (lanes->block_count + ranks - 1) / ranks;
    const uint64_t blocks = message == GW_MPI_MESSAGE_NORMS ? GW_MPI_NORMS_BLOCKS : GW_MPI_LANES_BLOCKS;
    const gw_collective_shape shape = {
        .len = call->len,
        .rank_count = ranks,
        .shard_len = lanes->tensors > 1 ? call->block_len : shard_blocks << lanes->block_log2,
        .piece_len = blocks << lanes->block_log2,
    };
    return gw_mpi_fold_open(lanes->operation, fold, &shape, message, run);
}

gw_mpi_exchange *gw_mpi_lanes_begin(gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    const uint32_t ranks = (uint32_t)operation->context->size;
    gw_mpi_lanes *lanes = gw_mpi_allocate(1, sizeof(*lanes));
    lanes->operation = operation;
    lanes->tensors = call->kind == GW_MPI_REDUCE_SCATTER ? ranks : 1;
    lanes->tensor_len = call->len / lanes->tensors;
    const gw_status status = gw_mpi_lanes_init(lanes, ranks);
    if (status != GW_OK) {
        gw_mpi_operation_fail(operation, status);
        free(lanes);
        return NULL;
    }
    lanes->block_log2 = gw_thc_options_of(&lanes->thc)->block_log2;
    lanes->block_count = gw_thc_block_count(&lanes->thc, lanes->tensor_len);
    lanes->patterns = gw_mpi_allocate((size_t)lanes->block_count * lanes->tensors, sizeof(uint32_t));
    lanes->norms = (gw_mpi_fold){.owner = lanes,
                                 .maximum = 1,
                                 .size = gw_mpi_norms_size,
                                 .make = gw_mpi_norms_make,
                                 .take = gw_mpi_norms_take};
    lanes->sums = (gw_mpi_fold){
        .owner = lanes, .size = gw_mpi_lanes_size, .make = gw_mpi_lanes_make, .take = gw_mpi_lanes_take};
    operation->lanes = lanes;
    /* Its result are patterns, on all ranks: that the values are one means that none are written */
    const gw_exchange_run run = {.values = call->values, .result = (void *)(uintptr_t)call->values};
    return gw_mpi_lanes_open(lanes, &lanes->norms, GW_MPI_MESSAGE_NORMS, &run);
}

int gw_mpi_lanes_continue(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->lanes;
    if (lanes == NULL || lanes->has_maxima) {
        return 0;
    }
    lanes->has_maxima = 1;
    gw_mpi_exchange_close(operation->exchange);
    const gw_exchange_run run = gw_mpi_exchange_run(operation);
    operation->exchange = gw_mpi_lanes_open(lanes, &lanes->sums, GW_MPI_MESSAGE_SCATTER, &run);
    return 1;
}

void gw_mpi_lanes_free(gw_mpi_lanes *lanes)
{
    if (lanes != NULL) {
        free(lanes->patterns);
        free(lanes);
    }
}
