/*
 * THC: an exchange of the norms of blocks, which leaves their maxima on all ranks, then one that adds lanes.
 *
 * The values are one tensor (all-reduce) or one for each rank's block (reduce-scatter). Pieces hold whole
 * blocks of a tensor. A message is the words of a piece, norms or lanes, and one byte more, so that none is
 * as long as a notice.
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
    uint32_t ranks, tensors, block_log2;
    uint64_t tensor_len, block_count; /* of each */
    uint32_t *patterns;               /* [tensor * block_count + block]: the maxima */
    int has_maxima;                   /* the exchange that runs is the one of lanes */
    gw_collective_layout layout;      /* of that */
};

/* ------------ pieces ------------ */

typedef struct gw_mpi_lane_piece {
    gw_thc_range range;
    const float *values;
    float *result;
    uint64_t len;
    uint32_t *patterns;
    size_t size; /* bytes of its words */
} gw_mpi_lane_piece;

/* The rounds of an operation's tensors differ, so that they do not share random words. */
static gw_mpi_lane_piece gw_mpi_lanes_piece(const gw_mpi_lanes *lanes, uint32_t index)
{
    const gw_mpi_operation *operation = lanes->operation;
    gw_collective_piece piece;
    if (gw_collective_piece_at(&lanes->layout, index, &piece) != GW_OK) {
        abort(); /* cannot be: the layout is the exchange's */
    }
    const uint32_t tensor = lanes->tensors == 1 ? 0 : piece.owner;
    const uint64_t first = piece.first - tensor * lanes->tensor_len;
    gw_mpi_lane_piece at = {
        .range = {.len = lanes->tensor_len,
                  .block_first = first >> lanes->block_log2,
                  .block_count = gw_thc_block_count(&lanes->thc, piece.len),
                  .round = operation->number * lanes->tensors + tensor,
                  .rank = (uint32_t)operation->context->rank},
        .values = operation->call.values + piece.first,
        .result = operation->call.result + first,
        .len = piece.len,
    };
    at.patterns = lanes->patterns + tensor * lanes->block_count + at.range.block_first;
    at.size = lanes->has_maxima
                  ? gw_thc_reduced_size(&lanes->thc, at.range.len, at.range.block_first, at.range.block_count)
                  : (size_t)at.range.block_count * sizeof(uint32_t);
    return at;
}

/* ------------ steps ------------ */

/* This rank's words. */
static gw_status gw_mpi_lanes_make(const gw_mpi_lanes *lanes, const gw_mpi_lane_piece *at, void *words,
                                   const gw_workspace *workspace)
{
    gw_thc_source source = {.values = at->values};
    gw_buffer dst = {.data = words, .capacity = at->size};
    if (!lanes->has_maxima) {
        return gw_thc_norms(&lanes->thc, &at->range, &source, words, NULL, workspace);
    }
    source.patterns = at->patterns;
    return gw_collective_lanes_encode(&lanes->thc, &at->range, &source, &dst, NULL, workspace);
}

/* Those of all ranks together. */
static gw_status gw_mpi_lanes_take(const gw_mpi_lanes *lanes, const gw_mpi_lane_piece *at, const void *words,
                                   const gw_workspace *workspace)
{
    const gw_thc_sum sum = {.data = words, .size = at->size, .patterns = at->patterns};
    gw_thc_target target = {.values = at->result, .capacity = at->len};
    if (!lanes->has_maxima) {
        memcpy(at->patterns, words, at->size);
        return GW_OK;
    }
    const gw_status status =
        gw_thc_decode_reduced(&lanes->thc, &at->range, &sum, GW_THC_SUM, &target, workspace);
    /* missing: a rank's counts did not arrive */
    return status == GW_OK && target.missing != 0 ? GW_ERR_CORRUPT : status;
}

/* Checked by its size: words may begin as a notice does. */
static gw_status gw_mpi_lanes_check(const gw_mpi_lane_piece *at, const gw_gcomp_frame *message,
                                    gw_collective_failure *failure)
{
    failure->status = message->size == at->size + 1 ? GW_OK : GW_ERR_CORRUPT;
    if (message->size == GW_COLLECTIVE_NOTICE_SIZE) {
        (void)gw_collective_notice_read(message->data, message->size, failure);
    }
    return failure->status;
}

/* No carry leaves a lane, so that any lanes are added as words. */
static void gw_mpi_lanes_add(const gw_mpi_lanes *lanes, void *sums, const void *words, size_t size)
{
    uint32_t *to = sums;
    const uint32_t *from = words;
    const size_t len = size / sizeof(uint32_t);
    if (!lanes->has_maxima) {
        gw_thc_norms_max(to, from, len);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        to[i] += from[i];
    }
}

static void gw_mpi_lanes_step(void *context, gw_exchange_step *step, const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = context;
    const gw_mpi_lane_piece at = gw_mpi_lanes_piece(lanes, step->piece);
    gw_collective_failure *failure = &step->failure;
    if (step->kind == GW_EXCHANGE_DECODE) {
        if (gw_mpi_lanes_check(&at, step->messages, failure) == GW_OK) {
            failure->status = gw_mpi_lanes_take(lanes, &at, step->messages->data, workspace);
        }
        return;
    }
    gw_mpi_block *block = step->kind == GW_EXCHANGE_SUM ? gw_mpi_block_take(at.size + 1) : NULL;
    uint8_t *words = block != NULL ? block->data : step->dst.data;
    step->dst.size = at.size + 1;
    words[at.size] = 0;
    failure->status = gw_mpi_lanes_make(lanes, &at, words, workspace);
    for (uint32_t r = 0; r < lanes->ranks && step->messages != NULL && failure->status == GW_OK; r++) {
        const gw_gcomp_frame *message = &step->messages[r];
        if (message->data != NULL && gw_mpi_lanes_check(&at, message, failure) == GW_OK) {
            gw_mpi_lanes_add(lanes, words, message->data, at.size);
        }
    }
    if (block != NULL && failure->status == GW_OK) {
        failure->status = gw_mpi_lanes_take(lanes, &at, words, workspace);
    }
    gw_mpi_block_release(block);
}

/* ------------ the two exchanges ------------ */

static gw_status gw_mpi_lanes_init(gw_mpi_lanes *lanes, const gw_mpi_options *wanted)
{
    const gw_thc_goal goal = {.bits = wanted->thc_bits, .worker_max = lanes->ranks};
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

static gw_mpi_exchange *gw_mpi_lanes_open(gw_mpi_lanes *lanes)
{
    const gw_mpi_call *call = &lanes->operation->call;
    const uint64_t blocks = lanes->has_maxima ? GW_MPI_LANES_BLOCKS : GW_MPI_NORMS_BLOCKS;
    gw_exchange_run run = gw_mpi_exchange_run(lanes->operation);
    gw_exchange_config config = {
        .shape = {.len = call->len,
                  .rank_count = lanes->ranks,
                  .shard_len = call->block_len,
                  .piece_len = blocks << lanes->block_log2},
        .codec.dtype = GW_FP32,
        .steps = {.run = gw_mpi_lanes_step, .context = lanes, .message_bound = GW_COLLECTIVE_NOTICE_SIZE},
    };
    if (lanes->tensors == 1) { /* whole blocks */
        config.shape.shard_len = (lanes->block_count + lanes->ranks - 1) / lanes->ranks << lanes->block_log2;
    }
    if (!lanes->has_maxima) { /* all ranks need all of them, and no value is written */
        run.flags = 0;
        run.result = (void *)(uintptr_t)run.values;
    }
    const gw_status status = gw_collective_layout_init(&lanes->layout, &config.shape);
    if (status == GW_OK) { /* the first piece is the longest */
        config.steps.message_bound += gw_mpi_lanes_piece(lanes, 0).size + 1;
    }
    const gw_mpi_message message = lanes->has_maxima ? GW_MPI_MESSAGE_SCATTER : GW_MPI_MESSAGE_NORMS;
    return gw_mpi_exchange_open(lanes->operation, &config, message, &run);
}

gw_mpi_exchange *gw_mpi_lanes_begin(gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    gw_mpi_lanes *lanes = gw_mpi_allocate(1, sizeof(*lanes));
    operation->lanes = lanes;
    lanes->operation = operation;
    lanes->ranks = (uint32_t)operation->context->size;
    lanes->tensors = call->kind == GW_MPI_REDUCE_SCATTER ? lanes->ranks : 1;
    lanes->tensor_len = call->len / lanes->tensors;
    const gw_status status = gw_mpi_lanes_init(lanes, &call->options);
    if (status != GW_OK) {
        gw_mpi_operation_fail(operation, status);
        lanes->has_maxima = 1;
        return NULL;
    }
    lanes->block_log2 = gw_thc_options_of(&lanes->thc)->block_log2;
    lanes->block_count = gw_thc_block_count(&lanes->thc, lanes->tensor_len);
    lanes->patterns = gw_mpi_allocate((size_t)lanes->block_count * lanes->tensors, sizeof(uint32_t));
    return gw_mpi_lanes_open(lanes);
}

int gw_mpi_lanes_continue(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->lanes;
    if (lanes == NULL || lanes->has_maxima) {
        return 0;
    }
    lanes->has_maxima = 1;
    gw_mpi_exchange_close(operation->exchange);
    operation->exchange = gw_mpi_lanes_open(lanes);
    return 1;
}

void gw_mpi_lanes_free(gw_mpi_lanes *lanes)
{
    if (lanes != NULL) {
        free(lanes->patterns);
        free(lanes);
    }
}
