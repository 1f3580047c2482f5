/*
 * Steps of an exchange that adds words of 32 bits, or takes their maximum. A message is the words of a piece
 * as they are, and one byte more: no message is as long as a notice then.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>

static void gw_mpi_fold_add(const gw_mpi_fold *fold, void *sums, const void *terms, size_t size)
{
    uint32_t *own = sums;
    const uint32_t *others = terms;
    for (size_t i = 0; i < size / sizeof(uint32_t); i++) {
        own[i] = !fold->maximum ? own[i] + others[i] : others[i] > own[i] ? others[i] : own[i];
    }
}

static gw_collective_piece gw_mpi_fold_piece(const gw_mpi_fold *fold, uint32_t index)
{
    gw_collective_piece piece;
    if (gw_collective_piece_at(&fold->layout, index, &piece) != GW_OK) {
        abort(); /* cannot be: the layout is the exchange's */
    }
    return piece;
}

/* By its size: words may begin as a notice does. */
static gw_status gw_mpi_fold_check(const gw_gcomp_frame *message, size_t size, gw_collective_failure *failure)
{
    failure->status = message->size == size + 1 ? GW_OK : GW_ERR_CORRUPT;
    if (message->size == GW_COLLECTIVE_NOTICE_SIZE) {
        (void)gw_collective_notice_read(message->data, message->size, failure);
    }
    return failure->status;
}

static gw_status gw_mpi_fold_encode(void *context, uint32_t index, gw_buffer *dst,
                                    const gw_workspace *workspace)
{
    const gw_mpi_fold *fold = context;
    const gw_collective_piece piece = gw_mpi_fold_piece(fold, index);
    dst->size = fold->size(fold, &piece) + 1;
    ((uint8_t *)dst->data)[dst->size - 1] = 0;
    return fold->make(fold, &piece, dst->data, workspace);
}

static gw_status gw_mpi_fold_reduce(void *context, uint32_t index, const gw_gcomp_frame *messages,
                                    gw_buffer *dst, gw_collective_failure *failure,
                                    const gw_workspace *workspace)
{
    const gw_mpi_fold *fold = context;
    failure->status = gw_mpi_fold_encode(context, index, dst, workspace);
    for (uint32_t r = 0; r < fold->layout.shape.rank_count && failure->status == GW_OK; r++) {
        if (messages[r].data != NULL && gw_mpi_fold_check(&messages[r], dst->size - 1, failure) == GW_OK) {
            gw_mpi_fold_add(fold, dst->data, messages[r].data, dst->size - 1);
        }
    }
    return failure->status;
}

static gw_status gw_mpi_fold_decode(void *context, uint32_t index, const gw_gcomp_frame *message,
                                    gw_collective_failure *failure, const gw_workspace *workspace)
{
    const gw_mpi_fold *fold = context;
    const gw_collective_piece piece = gw_mpi_fold_piece(fold, index);
    if (gw_mpi_fold_check(message, fold->size(fold, &piece), failure) == GW_OK) {
        failure->status = fold->take(fold, &piece, message->data, workspace);
    }
    return failure->status;
}

static gw_status gw_mpi_fold_sum(void *context, uint32_t index, const gw_gcomp_frame *messages,
                                 gw_collective_failure *failure, const gw_workspace *workspace)
{
    const gw_mpi_fold *fold = context;
    const gw_collective_piece piece = gw_mpi_fold_piece(fold, index);
    gw_mpi_block *block = gw_mpi_block_take(fold->size(fold, &piece) + 1);
    gw_buffer sums = {.data = block->data, .capacity = block->capacity};
    if (gw_mpi_fold_reduce(context, index, messages, &sums, failure, workspace) == GW_OK) {
        failure->status = fold->take(fold, &piece, sums.data, workspace);
    }
    gw_mpi_block_release(block);
    return failure->status;
}

gw_mpi_exchange *gw_mpi_fold_open(gw_mpi_operation *operation, gw_mpi_fold *fold,
                                  const gw_collective_shape *shape, gw_mpi_message message,
                                  const gw_exchange_run *run)
{
    gw_exchange_config config = {.shape = *shape,
                                 .codec.dtype = GW_FP32,
                                 .steps = {.encode = gw_mpi_fold_encode,
                                           .reduce = gw_mpi_fold_reduce,
                                           .sum = gw_mpi_fold_sum,
                                           .decode = gw_mpi_fold_decode,
                                           .context = fold,
                                           .message_bound = GW_COLLECTIVE_NOTICE_SIZE}};
    const gw_status status = gw_collective_layout_init(&fold->layout, shape);
    for (uint32_t i = 0; status == GW_OK && i < fold->layout.piece_count; i++) {
        const gw_collective_piece piece = gw_mpi_fold_piece(fold, i);
        const size_t size = piece.len != 0 ? fold->size(fold, &piece) + 1 : 0;
        config.steps.message_bound = size > config.steps.message_bound ? size : config.steps.message_bound;
    }
    return gw_mpi_exchange_open(operation, &config, message, run);
}
