/*
 * Engine of an operation: THC. Its integers are made, added and decoded a range of blocks at a time, so that
 * codec and transport overlap; mpi_fold.c adds them.
 *
 * A range passes through norms, lanes and values in turn, so it has one task of the runtime at a time.
 *
 * The values are one tensor (all-reduce) or one for each rank's block (reduce-scatter).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>
#include <string.h>

#define GW_MPI_RANGE_BLOCKS 128u /* of 1024 values: 128 KiB of lanes of 8 bits */
#define GW_MPI_LANES_WINDOW 4u

enum { TASK_NORMS, TASK_LANES, TASK_VALUES };

typedef struct gw_mpi_lane_range {
    gw_runtime_task task; /* the first member */
    gw_mpi_operation *operation;
    uint32_t index;
    int kind; /* TASK_* */
    gw_mpi_block
        *lanes; /* of all tensors; then the sum of the one that is decoded here. NULL: not there yet */
} gw_mpi_lane_range;

typedef struct gw_mpi_lanes {
    gw_thc thc;
    uint32_t tensors, rank;
    uint64_t tensor_len, block_count; /* of each */
    uint32_t *patterns;               /* [tensor * block_count + block] */
    gw_mpi_fold *maximum;             /* NULL: not begun */
    int maxima_there;
    uint32_t range_count, norms_next, norms_left, encode_next, issue_next, decodes_left;
    uint32_t summed; /* ranges whose sums are there */
    gw_mpi_lane_range *ranges;
    gw_mpi_fold *sums[GW_MPI_LANES_WINDOW]; /* of range i at i modulo the window */
} gw_mpi_lanes;

/* ------------ making ------------ */

static gw_status gw_mpi_lanes_handle(const gw_mpi_options *wanted, uint32_t ranks, gw_thc *thc)
{
    const gw_thc_goal goal = {.bits = wanted->thc_bits, .worker_max = ranks};
    const gw_workspace workspace = gw_mpi_workspace();
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
    const gw_status status = gw_mpi_lanes_handle(&call->options, ranks, &lanes->thc);
    if (status != GW_OK) {
        /* As in the other engine: all ranks stop here */
        gw_mpi_operation_fail(operation, status);
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
    gw_mpi_fold_free(lanes->maximum);
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

static void gw_mpi_lanes_issue(gw_mpi_operation *operation, uint32_t index)
{
    gw_mpi_lanes *lanes = operation->state;
    const gw_thc_range range = gw_mpi_lanes_range(operation, index, 0);
    const gw_mpi_terms terms = {
        .data = lanes->ranges[index].lanes->data,
        .len = gw_collective_lanes_len(&lanes->thc, &range) * lanes->tensors,
        .bits = gw_thc_options_of(&lanes->thc)->lane_bits,
        .scatter = GW_MPI_MESSAGE_SCATTER,
        .gather = GW_MPI_MESSAGE_GATHER,
        .gathers = operation->call.kind == GW_MPI_ALLREDUCE,
    };
    lanes->sums[index % GW_MPI_LANES_WINDOW] = gw_mpi_fold_start(operation, &terms);
    gw_mpi_statistics_sent(operation, gw_mpi_lanes_len(lanes, &range) * lanes->tensors,
                           lanes->ranges[index].lanes->size);
}

static int gw_mpi_lanes_maxima(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->state;
    if (lanes->maxima_there || lanes->norms_left != 0) {
        return 0;
    }
    if (lanes->maximum == NULL) {
        const gw_mpi_terms terms = {
            .data = lanes->patterns,
            .len = lanes->block_count * lanes->tensors,
            .bits = 32,
            .scatter = GW_MPI_MESSAGE_NORMS,
            .gather = GW_MPI_MESSAGE_MAXIMA,
            .gathers = 1,
            .maximum = 1,
        };
        lanes->maximum = gw_mpi_fold_start(operation, &terms);
    }
    lanes->maxima_there = gw_mpi_fold_test(lanes->maximum, 1);
    return lanes->maxima_there;
}

/* ------------ codec work ------------ */

static gw_status gw_mpi_lanes_norms(const gw_mpi_lane_range *at, const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = at->operation->state;
    gw_status status = GW_OK;
    for (uint32_t t = 0; t < lanes->tensors && status == GW_OK; t++) {
        const gw_thc_range range = gw_mpi_lanes_range(at->operation, at->index, t);
        const gw_thc_source source = {.values = at->operation->call.values + t * lanes->tensor_len +
                                                gw_mpi_lanes_first(lanes, &range)};
        uint32_t *patterns = lanes->patterns + t * lanes->block_count + range.block_first;
        status = gw_thc_norms(&lanes->thc, &range, &source, patterns, NULL, workspace);
        if (status != GW_OK) {
            memset(patterns, 0, range.block_count * sizeof(*patterns));
        }
    }
    return status;
}

static gw_status gw_mpi_lanes_encode(const gw_mpi_lane_range *at, gw_mpi_block *output,
                                     const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = at->operation->state;
    gw_status worst = GW_OK;
    for (uint32_t t = 0; t < lanes->tensors; t++) {
        const gw_thc_range range = gw_mpi_lanes_range(at->operation, at->index, t);
        const size_t size = gw_mpi_lanes_size(lanes, &range);
        const gw_thc_source source = {
            .values = at->operation->call.values + t * lanes->tensor_len + gw_mpi_lanes_first(lanes, &range),
            .patterns = lanes->patterns + t * lanes->block_count + range.block_first,
        };
        gw_buffer dst = {.data = output->data + output->size, .capacity = size};
        const gw_status status =
            gw_collective_lanes_encode(&lanes->thc, &range, &source, &dst, NULL, workspace);
        if (status != GW_OK) {
            /* Still takes part, with lanes of no contributor, so that no rank waits */
            memset(dst.data, 0, size);
            worst = status;
        }
        output->size += size;
    }
    return worst;
}

static gw_status gw_mpi_lanes_values(const gw_mpi_lane_range *at, const gw_workspace *workspace)
{
    const gw_mpi_lanes *lanes = at->operation->state;
    const uint32_t tensor = at->operation->call.kind == GW_MPI_ALLREDUCE ? 0 : lanes->rank;
    const gw_thc_range range = gw_mpi_lanes_range(at->operation, at->index, tensor);
    const size_t size = gw_mpi_lanes_size(lanes, &range);
    const gw_thc_sum sum = {
        .data = at->lanes->data + tensor * size,
        .size = size,
        .patterns = lanes->patterns + tensor * lanes->block_count + range.block_first,
    };
    gw_thc_target target = {.values = at->operation->call.result + gw_mpi_lanes_first(lanes, &range),
                            .capacity = gw_mpi_lanes_len(lanes, &range)};
    const gw_status status = gw_thc_decode_reduced(&lanes->thc, &range, &sum, GW_THC_SUM, &target, workspace);
    /* missing: a rank's counts did not arrive */
    return status == GW_OK && target.missing != 0 ? GW_ERR_CORRUPT : status;
}

static void gw_mpi_lanes_run(gw_runtime_task *task, const gw_workspace *workspace)
{
    const uint64_t start = gw_mpi_codec_ns();
    gw_mpi_lane_range *at = (gw_mpi_lane_range *)task;
    gw_mpi_operation *operation = at->operation;
    gw_mpi_lanes *lanes = operation->state;
    gw_mpi_block *output = NULL;
    gw_status status;
    if (at->kind == TASK_NORMS) {
        status = gw_mpi_lanes_norms(at, workspace);
        GW_MPI_COUNT(encode_ns, gw_mpi_codec_ns() - start);
    } else if (at->kind == TASK_LANES) {
        const gw_thc_range range = gw_mpi_lanes_range(operation, at->index, 0);
        output = gw_mpi_block_take(gw_mpi_lanes_size(lanes, &range) * lanes->tensors);
        status = gw_mpi_lanes_encode(at, output, workspace);
        GW_MPI_COUNT(encode_ns, gw_mpi_codec_ns() - start);
#ifdef GW_MPI_TESTING
        gw_mpi_test_damage(operation, 0, at->index, output);
#endif
    } else {
        status = gw_mpi_lanes_values(at, workspace);
        gw_mpi_block_release(at->lanes);
        GW_MPI_COUNT(decode_ns, gw_mpi_codec_ns() - start);
    }
    (void)pthread_mutex_lock(&operation->lock);
    if (status != GW_OK) {
        gw_mpi_operation_fail(operation, status);
    }
    lanes->norms_left -= at->kind == TASK_NORMS;
    lanes->decodes_left -= at->kind == TASK_VALUES;
    at->lanes = output;
    /* After the last one another thread may end the operation */
    (void)pthread_mutex_unlock(&operation->lock);
}

static void gw_mpi_lanes_submit(gw_mpi_operation *operation, uint32_t index, int kind)
{
    const gw_mpi_lanes *lanes = operation->state;
    gw_mpi_lane_range *at = &lanes->ranges[index];
    at->task.run = gw_mpi_lanes_run;
    at->task.priority = kind == TASK_VALUES ? GW_RUNTIME_PRIORITY_DECODE : GW_RUNTIME_PRIORITY_ENCODE;
    at->operation = operation;
    at->index = index;
    at->kind = kind;
    if (gw_runtime_submit(gw_mpi_runtime(), &at->task) != GW_OK) {
        abort(); /* cannot be: it has a function and a priority */
    }
}

/* ------------ progress ------------ */

static int gw_mpi_lanes_transport(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->state;
    int moved = gw_mpi_lanes_maxima(operation);
    while (lanes->norms_next < lanes->range_count) {
        gw_mpi_lanes_submit(operation, lanes->norms_next++, TASK_NORMS);
    }
    /* Not further ahead than two windows: lanes are as large as the values of bf16 would be */
    while (lanes->maxima_there && lanes->encode_next < lanes->range_count &&
           lanes->encode_next < lanes->summed + 2 * GW_MPI_LANES_WINDOW) {
        gw_mpi_lanes_submit(operation, lanes->encode_next++, TASK_LANES);
    }
    /* Sums of a range go out before those of the next one, as all ranks expect them */
    int first = 1;
    for (uint32_t i = lanes->summed; i < lanes->issue_next; i++) {
        gw_mpi_fold **sum = &lanes->sums[i % GW_MPI_LANES_WINDOW];
        const int complete = gw_mpi_fold_test(*sum, first);
        first = first && gw_mpi_fold_gathers(*sum);
        if (complete && i == lanes->summed) {
            gw_mpi_fold_free(*sum);
            *sum = NULL;
            gw_mpi_lanes_submit(operation, lanes->summed++, TASK_VALUES);
            moved = 1;
        }
    }
    while (lanes->issue_next < lanes->range_count &&
           lanes->issue_next < lanes->summed + GW_MPI_LANES_WINDOW &&
           lanes->ranges[lanes->issue_next].lanes != NULL) {
        gw_mpi_lanes_issue(operation, lanes->issue_next++);
        moved = 1;
    }
    return moved;
}

static int gw_mpi_lanes_complete(const gw_mpi_operation *operation)
{
    const gw_mpi_lanes *lanes = operation->state;
    return lanes->maxima_there && lanes->decodes_left == 0;
}

const gw_mpi_engine gw_mpi_engine_lanes = {
    .create = gw_mpi_lanes_create,
    .transport = gw_mpi_lanes_transport,
    .complete = gw_mpi_lanes_complete,
    .destroy = gw_mpi_lanes_destroy,
};
