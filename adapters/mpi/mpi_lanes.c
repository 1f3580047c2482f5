/*
 * Engine of an operation: THC. MPI's own collectives add the lanes; this file makes them, a range of blocks
 * at a time, so that codec and transport overlap.
 *
 * The values are one tensor (all-reduce) or one for each rank's block (reduce-scatter). Collectives on the
 * transport communicator go out in one order on all ranks: those of an operation only when all operations
 * before it have issued theirs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

#include <stdlib.h>
#include <string.h>

#define GW_MPI_RANGE_BLOCKS 128u /* of 1024 values: 128 KiB of lanes of 8 bits */
#define GW_MPI_LANES_WINDOW 4u

enum { TASK_NORMS, TASK_LANES, TASK_VALUES };

typedef struct gw_mpi_lane_range {
    gw_mpi_block *lanes;   /* of all tensors; all-reduce: then their sum */
    gw_mpi_block *reduced; /* reduce-scatter: the sum of the own tensor */
} gw_mpi_lane_range;

typedef struct gw_mpi_lanes {
    gw_thc thc;
    uint32_t tensors, rank;
    uint64_t tensor_len, block_count; /* of each */
    uint32_t *patterns;               /* [tensor * block_count + block] */
    MPI_Request maximum;
    int maxima_asked, maxima_there;
    uint32_t range_count, norms_next, norms_left, encode_next, issue_next, decode_next, decodes_left;
    uint32_t summed; /* ranges whose sums are there */
    gw_mpi_lane_range *ranges;
    MPI_Request sums[GW_MPI_LANES_WINDOW]; /* of range i at i modulo the window */
} gw_mpi_lanes;

/* ------------ making ------------ */

static gw_status gw_mpi_lanes_handle(const gw_mpi_options *wanted, uint32_t ranks, gw_thc *thc)
{
    const gw_thc_goal goal = {.bits = wanted->thc_bits, .worker_max = ranks};
    const gw_workspace workspace = gw_mpi_workspace(GW_THC_TABLE_WORKSPACE_SIZE);
    gw_thc_options options;
    const gw_status status = gw_thc_options_init(&options, &goal, &workspace);
    if (status != GW_OK) {
        return status;
    }
    options.seed = wanted->seed;
    options.nonfinite = GW_THC_NONFINITE_PROPAGATE;
    return gw_thc_init(thc, &options);
}

static void *gw_mpi_lanes_create(gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    gw_mpi_lanes *lanes = gw_mpi_allocate(1, sizeof(*lanes));
    const uint32_t ranks = (uint32_t)operation->context->size;
    lanes->rank = (uint32_t)operation->context->rank;
    lanes->tensors = call->kind == GW_MPI_REDUCE_SCATTER ? ranks : 1;
    lanes->tensor_len = call->len / lanes->tensors;
    lanes->maximum = MPI_REQUEST_NULL;
    for (uint32_t i = 0; i < GW_MPI_LANES_WINDOW; i++) {
        lanes->sums[i] = MPI_REQUEST_NULL;
    }
    const gw_status status = gw_mpi_lanes_handle(&call->options, ranks, &lanes->thc);
    if (status != GW_OK) {
        /* As in the other engine: all ranks stop here */
        const gw_collective_blame blame = {.status = status, .rank = lanes->rank};
        gw_mpi_operation_blame(operation, &blame);
        lanes->maxima_there = 1;
        return lanes;
    }
    lanes->block_count = gw_thc_block_count(&lanes->thc, lanes->tensor_len);
    lanes->range_count = (uint32_t)((lanes->block_count + GW_MPI_RANGE_BLOCKS - 1) / GW_MPI_RANGE_BLOCKS);
    lanes->norms_left = lanes->decodes_left = lanes->range_count;
    lanes->patterns = gw_mpi_allocate((size_t)lanes->block_count * lanes->tensors, sizeof(uint32_t));
    lanes->ranges = gw_mpi_allocate(lanes->range_count, sizeof(*lanes->ranges));
    return lanes;
}

static void gw_mpi_lanes_destroy(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->state;
    free(lanes->patterns);
    free(lanes->ranges);
    free(lanes);
}

/* Range `index` of a tensor. The rounds of an operation's tensors differ, so that they do not share random
 * words. */
static gw_thc_range gw_mpi_lanes_range(const gw_mpi_operation *operation, uint32_t index, uint32_t tensor)
{
    const gw_mpi_lanes *lanes = operation->state;
    const uint64_t first = (uint64_t)index * GW_MPI_RANGE_BLOCKS, left = lanes->block_count - first;
    return (gw_thc_range){
        .len = lanes->tensor_len,
        .block_first = first,
        .block_count = left < GW_MPI_RANGE_BLOCKS ? left : GW_MPI_RANGE_BLOCKS,
        .round = operation->number * lanes->tensors + tensor,
        .rank = lanes->rank,
    };
}

static size_t gw_mpi_lanes_size(const gw_mpi_lanes *lanes, const gw_thc_range *range)
{
    return gw_thc_reduced_size(&lanes->thc, range->len, range->block_first, range->block_count);
}

/* Index in its tensor of the first value of a range, and its values. */
static uint64_t gw_mpi_lanes_first(const gw_mpi_lanes *lanes, const gw_thc_range *range)
{
    return range->block_first << gw_thc_options_of(&lanes->thc)->block_log2;
}

static uint64_t gw_mpi_lanes_len(const gw_mpi_lanes *lanes, const gw_thc_range *range)
{
    const uint64_t first = gw_mpi_lanes_first(lanes, range), left = range->len - first;
    const uint64_t all = range->block_count << gw_thc_options_of(&lanes->thc)->block_log2;
    return left < all ? left : all;
}

/* ------------ messages ------------ */

static MPI_Datatype gw_mpi_lanes_type(const gw_mpi_lanes *lanes)
{
    const uint32_t bits = gw_thc_options_of(&lanes->thc)->lane_bits;
    return bits == 8 ? MPI_UINT8_T : bits == 16 ? MPI_UINT16_T : MPI_UINT32_T;
}

static void gw_mpi_lanes_issue(gw_mpi_operation *operation, uint32_t index)
{
    gw_mpi_lanes *lanes = operation->state;
    gw_mpi_lane_range *at = &lanes->ranges[index];
    const gw_thc_range range = gw_mpi_lanes_range(operation, index, 0);
    const int count = (int)gw_collective_lanes_len(&lanes->thc, &range);
    const MPI_Comm comm = operation->context->transport;
    MPI_Request *request = &lanes->sums[index % GW_MPI_LANES_WINDOW];
    int status;
    if (operation->call.kind == GW_MPI_ALLREDUCE) {
        status = PMPI_Iallreduce(MPI_IN_PLACE, at->lanes->data, count, gw_mpi_lanes_type(lanes), MPI_SUM,
                                 comm, request);
    } else {
        at->reduced = gw_mpi_block_take(gw_mpi_lanes_size(lanes, &range));
        status = PMPI_Ireduce_scatter_block(at->lanes->data, at->reduced->data, count,
                                            gw_mpi_lanes_type(lanes), MPI_SUM, comm, request);
    }
    GW_MPI_COUNT(wire_size, at->lanes->size);
    GW_MPI_COUNT(wire_values, gw_mpi_lanes_len(lanes, &range) * lanes->tensors);
    gw_mpi_operation_mpi_error(operation, status);
}

static int gw_mpi_lanes_maxima(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->state;
    int complete = 0;
    if (lanes->maxima_there || lanes->norms_left != 0) {
        return 0;
    }
    if (!lanes->maxima_asked) {
        if (atomic_load(&operation->context->turn) != operation->number) {
            return 0;
        }
        const int status =
            PMPI_Iallreduce(MPI_IN_PLACE, lanes->patterns, (int)(lanes->block_count * lanes->tensors),
                            MPI_UINT32_T, MPI_MAX, operation->context->transport, &lanes->maximum);
        gw_mpi_operation_mpi_error(operation, status);
        lanes->maxima_asked = 1;
    }
    gw_mpi_operation_mpi_error(operation, PMPI_Test(&lanes->maximum, &complete, MPI_STATUS_IGNORE));
    lanes->maxima_there = complete;
    return complete;
}

static int gw_mpi_lanes_transport(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->state;
    int moved = gw_mpi_lanes_maxima(operation);
    while (lanes->summed < lanes->issue_next) {
        int complete = 0;
        const int status =
            PMPI_Test(&lanes->sums[lanes->summed % GW_MPI_LANES_WINDOW], &complete, MPI_STATUS_IGNORE);
        gw_mpi_operation_mpi_error(operation, status);
        if (!complete) {
            break;
        }
        lanes->summed++;
        moved = 1;
    }
    while (lanes->issue_next < lanes->range_count &&
           lanes->issue_next < lanes->summed + GW_MPI_LANES_WINDOW &&
           lanes->ranges[lanes->issue_next].lanes != NULL) {
        gw_mpi_lanes_issue(operation, lanes->issue_next++);
        moved = 1;
    }
    return moved;
}

/* ------------ codec work ------------ */

static int gw_mpi_lanes_take(gw_mpi_operation *operation, gw_mpi_task *task)
{
    gw_mpi_lanes *lanes = operation->state;
    if (lanes->norms_next < lanes->range_count) {
        task->kind = TASK_NORMS;
        task->piece = lanes->norms_next++;
        return 1;
    }
    /* Not further ahead than two windows: lanes are as large as the values of bf16 would be */
    if (lanes->maxima_there && lanes->encode_next < lanes->range_count &&
        lanes->encode_next < lanes->summed + 2 * GW_MPI_LANES_WINDOW) {
        const gw_thc_range range = gw_mpi_lanes_range(operation, lanes->encode_next, 0);
        task->kind = TASK_LANES;
        task->piece = lanes->encode_next++;
        task->output = gw_mpi_block_take(gw_mpi_lanes_size(lanes, &range) * lanes->tensors);
        return 1;
    }
    if (lanes->decode_next < lanes->summed) {
        task->kind = TASK_VALUES;
        task->piece = lanes->decode_next++;
        return 1;
    }
    return 0;
}

static void gw_mpi_lanes_norms(gw_mpi_operation *operation, gw_mpi_task *task)
{
    const gw_mpi_lanes *lanes = operation->state;
    const gw_workspace workspace = gw_mpi_workspace(gw_thc_workspace_size(&lanes->thc));
    for (uint32_t t = 0; t < lanes->tensors && task->blame.status == GW_OK; t++) {
        const gw_thc_range range = gw_mpi_lanes_range(operation, task->piece, t);
        const gw_thc_source source = {.values = operation->call.values + t * lanes->tensor_len +
                                                gw_mpi_lanes_first(lanes, &range)};
        uint32_t *patterns = lanes->patterns + t * lanes->block_count + range.block_first;
        task->blame.status = gw_thc_norms(&lanes->thc, &range, &source, patterns, NULL, &workspace);
        if (task->blame.status != GW_OK) {
            memset(patterns, 0, range.block_count * sizeof(*patterns));
        }
    }
}

static void gw_mpi_lanes_encode(gw_mpi_operation *operation, gw_mpi_task *task)
{
    const gw_mpi_lanes *lanes = operation->state;
    const gw_workspace workspace = gw_mpi_workspace(gw_collective_lanes_workspace_size(&lanes->thc));
    task->output->size = 0;
    for (uint32_t t = 0; t < lanes->tensors; t++) {
        const gw_thc_range range = gw_mpi_lanes_range(operation, task->piece, t);
        const size_t size = gw_mpi_lanes_size(lanes, &range);
        const gw_thc_source source = {
            .values = operation->call.values + t * lanes->tensor_len + gw_mpi_lanes_first(lanes, &range),
            .patterns = lanes->patterns + t * lanes->block_count + range.block_first,
        };
        gw_buffer dst = {.data = task->output->data + task->output->size, .capacity = size};
        const gw_status status =
            gw_collective_lanes_encode(&lanes->thc, &range, &source, &dst, NULL, &workspace);
        if (status != GW_OK) {
            /* Still takes part, with lanes of no contributor, so that no rank waits */
            memset(dst.data, 0, size);
            task->blame.status = status;
        }
        task->output->size += size;
    }
}

static void gw_mpi_lanes_values(gw_mpi_operation *operation, gw_mpi_task *task)
{
    const gw_mpi_lanes *lanes = operation->state;
    const gw_workspace workspace = gw_mpi_workspace(gw_thc_workspace_size(&lanes->thc));
    const uint32_t tensor = operation->call.kind == GW_MPI_ALLREDUCE ? 0 : lanes->rank;
    const gw_thc_range range = gw_mpi_lanes_range(operation, task->piece, tensor);
    const gw_mpi_lane_range *at = &lanes->ranges[task->piece];
    const gw_thc_sum sum = {
        .data = at->reduced != NULL ? at->reduced->data : at->lanes->data,
        .size = gw_mpi_lanes_size(lanes, &range),
        .patterns = lanes->patterns + tensor * lanes->block_count + range.block_first,
    };
    gw_thc_target target = {.values = operation->call.result + gw_mpi_lanes_first(lanes, &range),
                            .capacity = gw_mpi_lanes_len(lanes, &range)};
    task->blame.status = gw_thc_decode_reduced(&lanes->thc, &range, &sum, GW_THC_SUM, &target, &workspace);
    if (task->blame.status == GW_OK && target.missing != 0) {
        task->blame.status = GW_ERR_CORRUPT; /* a rank's counts did not arrive */
    }
}

static void gw_mpi_lanes_run(gw_mpi_operation *operation, gw_mpi_task *task)
{
    const uint64_t start = gw_mpi_codec_ns();
    const gw_mpi_lanes *lanes = operation->state;
    task->blame = (gw_collective_blame){.rank = lanes->rank, .piece = task->piece, .bad_chunk = UINT64_MAX};
    switch (task->kind) {
    case TASK_NORMS:
        gw_mpi_lanes_norms(operation, task);
        GW_MPI_COUNT(encode_ns, gw_mpi_codec_ns() - start);
        break;
    case TASK_LANES:
        gw_mpi_lanes_encode(operation, task);
        GW_MPI_COUNT(encode_ns, gw_mpi_codec_ns() - start);
#ifdef GW_MPI_TESTING
        gw_mpi_test_damage(operation, 0, task->piece, task->output);
#endif
        break;
    default:
        gw_mpi_lanes_values(operation, task);
        GW_MPI_COUNT(decode_ns, gw_mpi_codec_ns() - start);
        break;
    }
}

static void gw_mpi_lanes_finish(gw_mpi_operation *operation, gw_mpi_task *task)
{
    gw_mpi_lanes *lanes = operation->state;
    gw_mpi_lane_range *at = &lanes->ranges[task->piece];
    switch (task->kind) {
    case TASK_NORMS:
        lanes->norms_left--;
        break;
    case TASK_LANES:
        at->lanes = task->output;
        break;
    default:
        gw_mpi_block_release(at->lanes);
        gw_mpi_block_release(at->reduced);
        lanes->decodes_left--;
        break;
    }
}

static int gw_mpi_lanes_complete(const gw_mpi_operation *operation)
{
    const gw_mpi_lanes *lanes = operation->state;
    return lanes->maxima_there && lanes->decodes_left == 0;
}

const gw_mpi_engine gw_mpi_engine_lanes = {
    .create = gw_mpi_lanes_create,
    .transport = gw_mpi_lanes_transport,
    .take = gw_mpi_lanes_take,
    .run = gw_mpi_lanes_run,
    .finish = gw_mpi_lanes_finish,
    .complete = gw_mpi_lanes_complete,
    .destroy = gw_mpi_lanes_destroy,
};
