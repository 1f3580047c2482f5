/*
 * THC: checks of the arguments, geometry of the launches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "thc/thc_aggregate.h"
#include "thc/thc_handle.h"
#include "cuda/cuda_handle.h"
#include "cuda/thc_params.h"

#define GW_VECTOR_SIZE               16u
#define GW_BLOCKS_PER_MULTIPROCESSOR 3u   /* of 256 threads: the kernels' launch bounds */
#define GW_SUM_THREADS               256u /* thc_sum.cu */
#define GW_SUM_LEN                   16u  /* lanes of a thread, at least */

/* GW_THC_SHARED_WORDS of thc_tile.cuh: rows of 33 words and a word of signs, five arrays of a word a block
 * (of at least two rows), 272 entries of the quantizer. */
static uint32_t tile_shared_size(uint32_t threads)
{
    return 4u * (threads * 34u + threads / 2u * 5u + 272u);
}

/*
 * Threads of a block, and so the size of a tile: 256, fewer while that leaves multiprocessors idle, but whole
 * blocks of the tensor.
 */
static uint32_t tile_threads(const gw_cuda_state *state, uint64_t positions, uint32_t block_log2)
{
    const uint32_t least = block_log2 > 10 ? (1u << block_log2) / GW_THC_ROW : 32u;
    uint32_t threads = GW_THC_THREADS_MAX;

    while (threads > least &&
           positions / (threads * GW_THC_ROW) < 2 * (uint64_t)state->info.multiprocessor_count) {
        threads /= 2;
    }
    return threads;
}

/* Blocks of threads: one a share of the work, but no more than the device has room for. An empty range has a
 * result too. */
static uint32_t grid_of(const gw_cuda_state *state, uint64_t shares, uint32_t per_multiprocessor)
{
    const uint64_t grid = gw_min_u64(shares, (uint64_t)state->info.multiprocessor_count * per_multiprocessor);

    return grid == 0 ? 1 : (uint32_t)grid;
}

/* The launch of a kernel over a span, of which *params is. */
static gw_cuda_launch launch_of(gw_cuda_thc_span *params, const gw_cuda_state *state, const gw_thc_span *span,
                                gw_cuda_kernel kernel)
{
    const uint32_t block_log2 = span->thc->options.block_log2;
    const uint64_t positions = span->blocks << block_log2;
    gw_cuda_launch launch = {0};

    launch.kernel = kernel;
    launch.block = tile_threads(state, positions, block_log2);
    launch.shared_size = tile_shared_size(launch.block);
    const uint64_t tile_len = (uint64_t)launch.block * GW_THC_ROW;
    params->first_block = span->first;
    params->block_count = span->blocks;
    params->element_count = span->elements;
    params->lane_count = span->lanes;
    params->tile_count = (positions + tile_len - 1) / tile_len;
    params->block_log2 = block_log2;
    launch.grid = grid_of(state, params->tile_count,
                          GW_BLOCKS_PER_MULTIPROCESSOR * (GW_THC_THREADS_MAX / launch.block));
    return launch;
}

static gw_cuda_thc_context context_of(const gw_thc_state *thc, const gw_thc_range *range,
                                      const gw_cuda_thc_key *key)
{
    gw_cuda_thc_context context;

    context.key.seed = thc->options.seed;
    context.key.round = range->round;
    context.key.rank = range->rank;
    context.device_key = key;
    /* The first divisions of rotated_quantizer() and gw_thc_block_decode(), which are the same for all
     * blocks. A plain context has no threshold. */
    const double threshold = (double)gw_float_from_bits(thc->options.threshold_bits);
    const double granularity = (double)thc->options.table.granularity;
    context.range_scale = 0.5 * 65536.0 * granularity / (threshold > 0 ? threshold : 1.0);
    context.step = threshold / granularity;
    context.worker_max = thc->options.worker_max;
    context.bits = thc->options.table.bits;
    context.granularity = thc->options.table.granularity;
    context.dtype = thc->options.dtype;
    context.transform = thc->options.transform;
    context.nonfinite = thc->options.nonfinite;
    context.lane_bits = thc->options.lane_bits;
    GW_MEMCPY(context.table, thc->options.table.value, sizeof context.table);
    return context;
}

static int is_request(const gw_cuda_thc_request *request)
{
    return request != NULL && request->result != NULL && gw_cuda_is_aligned(request->result, 8);
}

/* Handles, range, result: what all calls with a result check. */
static gw_status begin(gw_cuda_state **state, gw_thc_span *span, gw_cuda *cuda, const gw_thc *thc,
                       const gw_thc_range *range, const gw_cuda_thc_request *request)
{
    if (cuda == NULL || !is_request(request) || !gw_cuda_is_aligned(request->key, 8)) {
        return GW_ERR_ARG;
    }
    *state = gw_cuda_state_of(cuda);
    if (*state == NULL) {
        return GW_ERR_STATE;
    }
    return gw_thc_span_make(span, thc, range);
}

/* The same, and the source, for phases one and two. */
static gw_status begin_source(gw_cuda_state **state, gw_thc_span *span, gw_cuda *cuda, const gw_thc *thc,
                              const gw_thc_range *range, const gw_thc_source *source,
                              const gw_cuda_thc_request *request)
{
    const gw_status status = begin(state, span, cuda, thc, range, request);

    if (status != GW_OK) {
        return status;
    }
    const gw_thc_options *options = &span->thc->options;
    if (range->rank >= options->worker_max) {
        return GW_ERR_ARG;
    }
    if (span->blocks == 0) {
        return GW_OK;
    }
    if (source->values == NULL || (source->error != NULL) != (options->error_feedback != 0) ||
        !gw_cuda_is_aligned(source->error, 4) ||
        !gw_cuda_is_aligned(source->values, gw_dtype_size((gw_dtype)options->dtype))) {
        return GW_ERR_ARG;
    }
    return GW_OK;
}

/* ---- the usual shape ----------------------------------------------------------------------------------- */

/* Rotated blocks of 1024 values have kernels of their own, thc_warp_*. */
static int has_warp_kernels(const gw_thc_state *thc)
{
    return thc->options.transform == GW_THC_ROTATED && thc->options.block_log2 == 10;
}

/*
 * Makes a launch one of theirs: `kernels`, the first of three by dtype; `per_warp` blocks of values at a time
 * for a warp, with warp_size bytes of shared memory; `resident` blocks of 256 threads on a multiprocessor.
 * Blocks of threads are smaller while that leaves multiprocessors idle.
 */
static void use_warp_kernel(gw_cuda_launch *launch, const gw_cuda_state *state, const gw_thc_span *span,
                            uint32_t kernels, uint32_t per_warp, uint32_t warp_size, uint32_t resident)
{
    const uint64_t warp_count = (span->blocks + per_warp - 1) / per_warp;

    launch->kernel = (gw_cuda_kernel)(kernels + (uint32_t)(span->thc->options.dtype - GW_FP32));
    launch->block = GW_THC_THREADS_MAX;
    while (launch->block > 32 &&
           warp_count / (launch->block / 32) < 2 * (uint64_t)state->info.multiprocessor_count) {
        launch->block /= 2;
    }
    const uint32_t warps = launch->block / 32;
    launch->shared_size = warps * warp_size;
    launch->grid =
        grid_of(state, (warp_count + warps - 1) / warps, resident * (GW_THC_THREADS_MAX / launch->block));
}

static uint32_t is_vector_aligned(const gw_thc_source *source)
{
    return gw_cuda_is_aligned(source->values, GW_VECTOR_SIZE) &&
           gw_cuda_is_aligned(source->error, GW_VECTOR_SIZE);
}

static uint32_t may_read_vectors(const gw_thc_state *thc, const gw_thc_source *source)
{
    return gw_cuda_is_aligned(source->values, 4 * gw_dtype_size((gw_dtype)thc->options.dtype)) &&
           gw_cuda_is_aligned(source->error, GW_VECTOR_SIZE);
}

/* A kernel whose result starts cleared. */
static gw_status run_with_result(gw_cuda_state *state, gw_cuda_launch *launch, const void *params,
                                 size_t params_size, const gw_cuda_thc_request *request)
{
    const gw_status status = gw_cuda_clear(state, request->result, sizeof *request->result, request->stream);

    launch->params = params;
    launch->params_size = params_size;
    return status == GW_OK ? gw_cuda_run(state, launch, request->stream) : status;
}

gw_status gw_cuda_thc_norms(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range,
                            const gw_thc_source *source, uint32_t *patterns,
                            const gw_cuda_thc_request *request)
{
    gw_cuda_state *state;
    gw_thc_span span;
    gw_status status =
        source == NULL ? GW_ERR_ARG : begin_source(&state, &span, cuda, handle, range, source, request);

    if (status == GW_OK && span.blocks > 0 && (patterns == NULL || !gw_cuda_is_aligned(patterns, 8))) {
        status = GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    const int has_error = source->error != NULL;
    gw_cuda_thc_norm_params params;
    gw_cuda_launch launch = launch_of(&params.span, state, &span, GW_CUDA_KERNEL_gw_device_thc_norm);
    params.is_aligned = may_read_vectors(thc, source);
    if (has_warp_kernels(thc)) {
        /* 16 bytes a lane, 64 values of a block side by side: thc_warp_norm.cu. */
        use_warp_kernel(&launch, state, &span,
                        has_error ? GW_CUDA_KERNEL_gw_device_thc_warp_norm_error_fp32
                                  : GW_CUDA_KERNEL_gw_device_thc_warp_norm_fp32,
                        thc->options.dtype == GW_FP32 || has_error ? 2 : 4, 0, 2);
        params.is_aligned = is_vector_aligned(source);
    }
    params.context = context_of(thc, range, NULL);
    params.src = source->values;
    params.error = source->error;
    params.patterns = patterns;
    params.result = request->result;
    return run_with_result(state, &launch, &params, sizeof params, request);
}

gw_status gw_cuda_thc_encode(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range,
                             const gw_thc_source *source, const gw_cuda_buffer *indices,
                             const gw_cuda_thc_request *request)
{
    gw_cuda_state *state;
    gw_thc_span span;
    gw_status status = source == NULL || indices == NULL || source->rotated != NULL
                           ? GW_ERR_ARG
                           : begin_source(&state, &span, cuda, handle, range, source, request);

    if (status == GW_OK && span.blocks > 0 &&
        (source->patterns == NULL || indices->data == NULL || !gw_cuda_is_aligned(source->patterns, 8) ||
         !gw_cuda_is_aligned(source->own_patterns, 8) ||
         !gw_cuda_is_aligned(indices->data, GW_VECTOR_SIZE))) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && indices->capacity < span.lanes / 8 * span.thc->options.table.bits) {
        status = GW_ERR_DST;
    }
    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    const int has_error = source->error != NULL;
    gw_cuda_thc_encode_params params;
    gw_cuda_launch launch = launch_of(&params.span, state, &span, GW_CUDA_KERNEL_gw_device_thc_encode);
    params.is_aligned = may_read_vectors(thc, source);
    if (has_warp_kernels(thc) && thc->options.table.bits == 4 && source->own_patterns != NULL) {
        use_warp_kernel(&launch, state, &span,
                        has_error ? GW_CUDA_KERNEL_gw_device_thc_warp_encode_error_fp32
                                  : GW_CUDA_KERNEL_gw_device_thc_warp_encode_fp32,
                        1,
                        GW_THC_WARP_INPUT_SIZE(thc->options.dtype, has_error) + GW_THC_WARP_ROWS_SIZE +
                            GW_THC_WARP_SIGNS_SIZE,
                        has_error ? 2 : 3);
        launch.shared_size += 16 * GW_THC_WARP_CELLS(thc->options.table.granularity);
        params.is_aligned = is_vector_aligned(source);
    }
    params.context = context_of(thc, range, request->key);
    params.src = source->values;
    params.error = source->error;
    params.own_patterns = source->own_patterns;
    params.patterns = source->patterns;
    params.indices = indices->data;
    params.result = request->result;
    return run_with_result(state, &launch, &params, sizeof params, request);
}

static gw_status check_decode(const gw_thc_span *span, const gw_thc_sum *sum, const gw_cuda_target *target,
                              gw_thc_mode mode, int is_reduced)
{
    const gw_thc_options *options = &span->thc->options;
    const size_t size = is_reduced ? gw_thc_span_reduced_size(span) : span->lanes * (options->lane_bits / 8u);

    if ((mode != GW_THC_SUM && mode != GW_THC_MEAN) ||
        (span->blocks > 0 &&
         (sum->data == NULL || target->values == NULL || sum->patterns == NULL ||
          (!is_reduced && sum->members == NULL) || !gw_cuda_is_aligned(sum->data, GW_VECTOR_SIZE) ||
          !gw_cuda_is_aligned(target->values, gw_dtype_size((gw_dtype)options->dtype)) ||
          !gw_cuda_is_aligned(sum->patterns, 8) || (!is_reduced && !gw_cuda_is_aligned(sum->members, 8))))) {
        return GW_ERR_ARG;
    }
    if (target->capacity < span->elements) {
        return GW_ERR_DST;
    }
    return sum->size < size ? GW_ERR_SHORT : GW_OK;
}

static gw_status decode(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range, const gw_thc_sum *sum,
                        const gw_cuda_target *target, const gw_cuda_thc_request *request, int is_reduced)
{
    gw_cuda_state *state;
    gw_thc_span span;
    gw_status status =
        sum == NULL || target == NULL ? GW_ERR_ARG : begin(&state, &span, cuda, handle, range, request);

    if (status == GW_OK) {
        status = check_decode(&span, sum, target, request->mode, is_reduced);
    }
    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    const uint32_t lane_bits = thc->options.lane_bits;
    const uint8_t *lanes = sum->data;
    gw_cuda_thc_decode_params params;
    gw_cuda_launch launch = launch_of(&params.span, state, &span, GW_CUDA_KERNEL_gw_device_thc_decode);
    if (has_warp_kernels(thc) && lane_bits <= 16) {
        use_warp_kernel(&launch, state, &span,
                        lane_bits == 8 ? GW_CUDA_KERNEL_gw_device_thc_warp_decode8_fp32
                                       : GW_CUDA_KERNEL_gw_device_thc_warp_decode16_fp32,
                        1, GW_THC_WARP_LANES_SIZE(lane_bits) + GW_THC_WARP_ROWS_SIZE + GW_THC_WARP_SIGNS_SIZE,
                        GW_BLOCKS_PER_MULTIPROCESSOR);
    }
    params.context = context_of(thc, range, request->key);
    params.lanes = lanes;
    params.members = is_reduced ? NULL : sum->members;
    params.counts = is_reduced && lanes != NULL ? lanes + span.lanes * (lane_bits / 8u) : NULL;
    params.patterns = sum->patterns;
    params.is_mean = request->mode == GW_THC_MEAN;
    params.is_aligned = gw_cuda_is_aligned(target->values, GW_VECTOR_SIZE) ? 1 : 0;
    params.dst = target->values;
    params.result = request->result;
    return run_with_result(state, &launch, &params, sizeof params, request);
}

gw_status gw_cuda_thc_decode(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                             const gw_thc_sum *sum, const gw_cuda_target *target,
                             const gw_cuda_thc_request *request)
{
    return decode(cuda, thc, range, sum, target, request, 0);
}

gw_status gw_cuda_thc_decode_reduced(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                     const gw_thc_sum *sum, const gw_cuda_target *target,
                                     const gw_cuda_thc_request *request)
{
    return decode(cuda, thc, range, sum, target, request, 1);
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Everything of the parameters but sources. */
static void begin_sum(gw_cuda_thc_sum_params *params, const gw_thc_table *table, uint32_t lane_bits,
                      uint8_t *lanes, uint64_t len)
{
    GW_MEMSET(params, 0, sizeof *params);
    params->lanes = lanes;
    params->len = len;
    params->bits = table->bits;
    params->lane_bits = lane_bits;
    for (unsigned i = 0; i < 4; i++) {
        params->table[i] = gw_load32(table->value + 4 * i);
    }
    params->byte_sources =
        table->bits == 4 && table->granularity < 128 && lane_bits <= 16 ? 255u / table->granularity : 0;
}

static gw_cuda_launch sum_launch(const gw_cuda_state *state, gw_cuda_kernel kernel, uint64_t threads,
                                 const gw_cuda_thc_sum_params *params)
{
    const uint32_t grid = grid_of(state, (threads + GW_SUM_THREADS - 1) / GW_SUM_THREADS, 8);
    const gw_cuda_launch launch = {kernel, grid, GW_SUM_THREADS, 0, params, sizeof *params};

    return launch;
}

static gw_status check_sum(gw_cuda_state **state, const gw_thc_agg_state **agg, gw_cuda *cuda,
                           const gw_thc_agg *handle, const gw_thc_partial *sum,
                           const gw_cuda_thc_inputs *inputs)
{
    if (cuda == NULL || handle == NULL || sum == NULL || inputs == NULL || sum->lanes == NULL ||
        sum->set == NULL || sum->len % 64 != 0 || !gw_cuda_is_aligned(sum->lanes, GW_VECTOR_SIZE)) {
        return GW_ERR_ARG;
    }
    *state = gw_cuda_state_of(cuda);
    *agg = gw_thc_agg_state_of(handle);
    if (*state == NULL || *agg == NULL) {
        return GW_ERR_STATE;
    }
    return !inputs->accumulate && gw_thc_set_members(sum->set, (*agg)->worker_max) != 0 ? GW_ERR_ARG : GW_OK;
}

static void drop_ranks(uint8_t *set, const uint32_t *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gw_set_drop(set, ranks[i]);
    }
}

/* The ranks join the set, which also detects duplicates among them; all or none. */
static gw_status join_ranks(const gw_thc_agg_state *agg, uint8_t *set, const gw_cuda_thc_inputs *inputs)
{
    gw_status status =
        inputs->count > 0 && (inputs->data == NULL || inputs->ranks == NULL) ? GW_ERR_ARG : GW_OK;
    size_t taken = 0;

    while (status == GW_OK && taken < inputs->count) {
        const uint32_t rank = inputs->ranks[taken];
        if (inputs->data[taken] == NULL || !gw_cuda_is_aligned(inputs->data[taken], GW_VECTOR_SIZE)) {
            status = GW_ERR_ARG;
        } else if (rank >= agg->worker_max || gw_set_has(set, rank)) {
            status = GW_ERR_DUP;
        } else {
            gw_set_put(set, rank);
            taken++;
        }
    }
    if (status == GW_OK && gw_thc_set_members(set, agg->worker_max) > agg->worker_max) {
        status = GW_ERR_OVERFLOW;
    }
    if (status != GW_OK) {
        drop_ranks(set, inputs->ranks, taken);
    }
    return status;
}

gw_status gw_cuda_thc_sum_indices(gw_cuda *cuda, const gw_thc_agg *handle, const gw_thc_partial *sum,
                                  const gw_cuda_thc_inputs *inputs, void *stream)
{
    gw_cuda_state *state;
    const gw_thc_agg_state *agg;
    gw_status status = check_sum(&state, &agg, cuda, handle, sum, inputs);

    if (status == GW_OK) {
        status = join_ranks(agg, sum->set, inputs);
    }
    if (status != GW_OK || sum->len == 0) {
        return status;
    }
    gw_cuda_thc_sum_params params;
    const gw_cuda_launch launch =
        sum_launch(state, GW_CUDA_KERNEL_gw_device_thc_sum_indices, sum->len / GW_SUM_LEN, &params);
    begin_sum(&params, &agg->table, agg->lane_bits, sum->lanes, sum->len);
    size_t done = 0;
    do {
        params.source_count = (uint32_t)gw_min_u64(inputs->count - done, GW_CUDA_THC_SOURCES_MAX);
        params.accumulate = inputs->accumulate || done > 0;
        for (uint32_t i = 0; i < params.source_count; i++) {
            params.source[i] = inputs->data[done + i];
        }
        status = gw_cuda_run(state, &launch, stream);
        done += params.source_count;
    } while (status == GW_OK && done < inputs->count);
    if (status != GW_OK) {
        drop_ranks(sum->set, inputs->ranks, inputs->count);
    }
    return status;
}

static void drop_sets(const gw_thc_agg_state *agg, uint8_t *set, const uint8_t *const *in_sets, size_t count)
{
    for (size_t s = 0; s < count; s++) {
        gw_thc_set_leave(set, in_sets[s], agg->worker_max); /* sets were disjoint */
    }
}

/* The same for partial sums; limit[s]: the largest possible lane of input s, from the number of its
 * contributors. */
static gw_status join_sets(const gw_thc_agg_state *agg, uint8_t *set, const gw_cuda_thc_inputs *inputs,
                           uint32_t *limit)
{
    gw_status status =
        inputs->count > 0 && (inputs->data == NULL || inputs->sets == NULL) ? GW_ERR_ARG : GW_OK;
    size_t taken = 0;

    while (status == GW_OK && taken < inputs->count) {
        const uint8_t *in_set = inputs->sets[taken];
        if (inputs->data[taken] == NULL || in_set == NULL ||
            !gw_cuda_is_aligned(inputs->data[taken], GW_VECTOR_SIZE)) {
            status = GW_ERR_ARG;
            break;
        }
        const uint32_t k = gw_thc_set_members(set, agg->worker_max);
        const uint32_t k_in = gw_thc_set_members(in_set, agg->worker_max);
        if (k_in == UINT32_MAX || gw_thc_sets_meet(set, in_set, agg->worker_max)) {
            status = GW_ERR_DUP;
        } else if (k > agg->worker_max || k_in > agg->worker_max - k) {
            status = GW_ERR_OVERFLOW;
        } else {
            limit[taken++] = k_in * agg->table.granularity;
            gw_thc_set_join(set, in_set, agg->worker_max);
        }
    }
    if (status != GW_OK) {
        drop_sets(agg, set, inputs->sets, taken);
    }
    return status;
}

gw_status gw_cuda_thc_sum_lanes(gw_cuda *cuda, const gw_thc_agg *handle, const gw_thc_partial *sum,
                                const gw_cuda_thc_inputs *inputs, const gw_cuda_thc_request *request)
{
    gw_cuda_state *state;
    const gw_thc_agg_state *agg;
    gw_cuda_thc_sum_params params;
    gw_status status = check_sum(&state, &agg, cuda, handle, sum, inputs);

    if (status == GW_OK && (!is_request(request) || inputs->count > GW_CUDA_THC_SOURCES_MAX)) {
        status = GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return status;
    }
    begin_sum(&params, &agg->table, agg->lane_bits, sum->lanes, sum->len);
    status = join_sets(agg, sum->set, inputs, params.limit);
    if (status != GW_OK) {
        return status;
    }
    params.source_count = (uint32_t)inputs->count;
    params.accumulate = inputs->accumulate != 0;
    params.result = request->result;
    for (size_t i = 0; i < inputs->count; i++) {
        params.source[i] = inputs->data[i];
    }
    const uint64_t vectors = (uint64_t)sum->len * (agg->lane_bits / 8) / GW_VECTOR_SIZE;
    gw_cuda_launch launch = sum_launch(state, GW_CUDA_KERNEL_gw_device_thc_check_lanes, vectors, &params);
    status = run_with_result(state, &launch, &params, sizeof params, request);
    if (status == GW_OK) {
        launch.kernel = GW_CUDA_KERNEL_gw_device_thc_sum_lanes;
        status = gw_cuda_run(state, &launch, request->stream);
    }
    if (status != GW_OK) {
        drop_sets(agg, sum->set, inputs->sets, inputs->count);
    }
    return status;
}

gw_status gw_cuda_thc_expand(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range,
                             const gw_thc_indices *indices, const gw_cuda_buffer *dst, void *stream)
{
    gw_thc_span span;

    if (cuda == NULL || indices == NULL || dst == NULL) {
        return GW_ERR_ARG;
    }
    gw_cuda_state *state = gw_cuda_state_of(cuda);
    gw_status status = state != NULL ? gw_thc_span_make(&span, handle, range) : GW_ERR_STATE;
    if (status != GW_OK) {
        return status;
    }
    const gw_thc_options *options = &span.thc->options;
    uint8_t *lanes = dst->data;
    if (span.blocks > 0 &&
        (indices->data == NULL || lanes == NULL || !gw_cuda_is_aligned(indices->data, GW_VECTOR_SIZE) ||
         !gw_cuda_is_aligned(lanes, GW_VECTOR_SIZE))) {
        return GW_ERR_ARG;
    }
    if (indices->size < span.lanes / 8 * options->table.bits) {
        return GW_ERR_SHORT;
    }
    if (dst->capacity < gw_thc_span_reduced_size(&span)) {
        return GW_ERR_DST;
    }
    if (span.blocks == 0) {
        return GW_OK;
    }
    gw_cuda_thc_sum_params params;
    begin_sum(&params, &options->table, options->lane_bits, lanes, span.lanes);
    params.source_count = 1;
    params.source[0] = indices->data;
    params.counts = lanes + span.lanes * (options->lane_bits / 8u);
    params.count_len = span.blocks;
    const gw_cuda_launch launch =
        sum_launch(state, GW_CUDA_KERNEL_gw_device_thc_sum_indices, span.lanes / GW_SUM_LEN, &params);
    return gw_cuda_run(state, &launch, stream);
}
