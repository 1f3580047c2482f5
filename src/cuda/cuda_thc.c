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

typedef struct tile_launch {
    gw_cuda_thc_span span;
    uint32_t grid, block;
} tile_launch;

static tile_launch launch_of(const gw_cuda_state *state, const gw_thc_state *thc, const gw_thc_span *span)
{
    const uint64_t positions = span->blocks << thc->options.block_log2;
    tile_launch launch;

    launch.block = tile_threads(state, positions, thc->options.block_log2);
    const uint64_t tile_len = (uint64_t)launch.block * GW_THC_ROW;
    const uint64_t resident = (uint64_t)state->info.multiprocessor_count * GW_BLOCKS_PER_MULTIPROCESSOR *
                              (GW_THC_THREADS_MAX / launch.block);
    launch.span.first_block = span->first;
    launch.span.block_count = span->blocks;
    launch.span.element_count = span->elements;
    launch.span.lane_count = span->lanes;
    launch.span.tile_count = (positions + tile_len - 1) / tile_len;
    launch.span.block_log2 = thc->options.block_log2;
    launch.grid = (uint32_t)gw_min_u64(launch.span.tile_count, resident);
    launch.grid = launch.grid == 0 ? 1 : launch.grid; /* an empty range has a result too */
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

/* Handle, context, range, result: what all calls have. */
static gw_status begin(gw_cuda_state **state, gw_thc_span *span, gw_cuda *cuda, const gw_thc *thc,
                       const gw_thc_range *range, const gw_cuda_thc_key *key, const gw_cuda_result *result)
{
    if (cuda == NULL || result == NULL || !gw_cuda_is_aligned(result, 8) || !gw_cuda_is_aligned(key, 8)) {
        return GW_ERR_ARG;
    }
    *state = gw_cuda_state_of(cuda);
    if (*state == NULL) {
        return GW_ERR_STATE;
    }
    return gw_thc_span_make(span, thc, range);
}

static gw_status check_input(const gw_thc_state *thc, const gw_thc_range *range, const gw_thc_span *span,
                             const void *src, const float *error)
{
    const int wants_error = thc->options.error_feedback != 0;

    if (range->rank >= thc->options.worker_max) {
        return GW_ERR_ARG;
    }
    if (span->blocks == 0) {
        return GW_OK;
    }
    if (src == NULL || (error != NULL) != wants_error || !gw_cuda_is_aligned(error, 4) ||
        !gw_cuda_is_aligned(src, gw_dtype_size((gw_dtype)thc->options.dtype))) {
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
 * Their launch: `per_warp` blocks of values at a time for a warp, `resident` blocks of 256 threads on a
 * multiprocessor. Blocks of threads are smaller while that leaves multiprocessors idle.
 */
static tile_launch warp_launch_of(const gw_cuda_state *state, const gw_thc_state *thc,
                                  const gw_thc_span *span, uint32_t per_warp, uint32_t resident)
{
    const uint64_t warp_count = (span->blocks + per_warp - 1) / per_warp;
    const uint32_t multiprocessors = state->info.multiprocessor_count;
    tile_launch launch = launch_of(state, thc, span);

    launch.block = GW_THC_THREADS_MAX;
    while (launch.block > 32 && warp_count / (launch.block / 32) < 2 * (uint64_t)multiprocessors) {
        launch.block /= 2;
    }
    const uint64_t group_count = (warp_count + launch.block / 32 - 1) / (launch.block / 32);
    const uint64_t most = (uint64_t)multiprocessors * resident * (GW_THC_THREADS_MAX / launch.block);
    launch.grid = (uint32_t)gw_min_u64(group_count, most);
    launch.grid = launch.grid == 0 ? 1 : launch.grid;
    return launch;
}

static uint32_t is_vector_aligned(const void *src, const float *error)
{
    return gw_cuda_is_aligned(src, GW_VECTOR_SIZE) && gw_cuda_is_aligned(error, GW_VECTOR_SIZE);
}

static uint32_t may_read_vectors(const gw_thc_state *thc, const void *src, const float *error)
{
    return gw_cuda_is_aligned(src, 4 * gw_dtype_size((gw_dtype)thc->options.dtype)) &&
           gw_cuda_is_aligned(error, GW_VECTOR_SIZE);
}

static gw_status run(gw_cuda_state *state, gw_cuda_kernel kernel, uint32_t grid, uint32_t block,
                     uint32_t shared_size, const void *params, size_t params_size, void *stream)
{
    gw_cuda_plan plan = {0};

    plan.launch_count = 1;
    plan.launch[0] = (gw_cuda_launch){kernel, grid, block, shared_size, params, params_size};
    return gw_cuda_submit(state, &plan, NULL, stream);
}

/* A kernel over tiles or groups whose result starts cleared. */
static gw_status run_tiles(gw_cuda_state *state, gw_cuda_kernel kernel, const tile_launch *launch,
                           uint32_t shared_size, const void *params, size_t params_size,
                           gw_cuda_result *result, void *stream)
{
    gw_status status = gw_cuda_clear(state, result, sizeof *result, stream);

    return status == GW_OK
               ? run(state, kernel, launch->grid, launch->block, shared_size, params, params_size, stream)
               : status;
}

/* By dtype, fp32, bf16, fp16. */
static const gw_cuda_kernel norms[] = {GW_CUDA_KERNEL_gw_device_thc_warp_norm_fp32,
                                       GW_CUDA_KERNEL_gw_device_thc_warp_norm_bf16,
                                       GW_CUDA_KERNEL_gw_device_thc_warp_norm_fp16};
static const gw_cuda_kernel error_norms[] = {GW_CUDA_KERNEL_gw_device_thc_warp_norm_error_fp32,
                                             GW_CUDA_KERNEL_gw_device_thc_warp_norm_error_bf16,
                                             GW_CUDA_KERNEL_gw_device_thc_warp_norm_error_fp16};
static const gw_cuda_kernel encodes[] = {GW_CUDA_KERNEL_gw_device_thc_warp_encode_fp32,
                                         GW_CUDA_KERNEL_gw_device_thc_warp_encode_bf16,
                                         GW_CUDA_KERNEL_gw_device_thc_warp_encode_fp16};
static const gw_cuda_kernel error_encodes[] = {GW_CUDA_KERNEL_gw_device_thc_warp_encode_error_fp32,
                                               GW_CUDA_KERNEL_gw_device_thc_warp_encode_error_bf16,
                                               GW_CUDA_KERNEL_gw_device_thc_warp_encode_error_fp16};
/* By width of a lane, 8 or 16, and dtype. */
static const gw_cuda_kernel decodes[2][3] = {
    {GW_CUDA_KERNEL_gw_device_thc_warp_decode8_fp32, GW_CUDA_KERNEL_gw_device_thc_warp_decode8_bf16,
     GW_CUDA_KERNEL_gw_device_thc_warp_decode8_fp16},
    {GW_CUDA_KERNEL_gw_device_thc_warp_decode16_fp32, GW_CUDA_KERNEL_gw_device_thc_warp_decode16_bf16,
     GW_CUDA_KERNEL_gw_device_thc_warp_decode16_fp16}};

static gw_cuda_kernel of_dtype(const gw_cuda_kernel *kernels, const gw_thc_state *thc)
{
    return kernels[thc->options.dtype == GW_FP32 ? 0 : thc->options.dtype == GW_BF16 ? 1 : 2];
}

gw_status gw_cuda_thc_norms(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range, const void *src,
                            const float *error, uint32_t *patterns, gw_cuda_result *result, void *stream)
{
    gw_cuda_state *state;
    gw_thc_span span;
    gw_status status = begin(&state, &span, cuda, handle, range, NULL, result);

    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    status = check_input(thc, range, &span, src, error);
    if (status == GW_OK && span.blocks > 0 && (patterns == NULL || !gw_cuda_is_aligned(patterns, 8))) {
        status = GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return status;
    }
    gw_cuda_thc_norm_params params;
    tile_launch launch = launch_of(state, thc, &span);
    gw_cuda_kernel kernel = GW_CUDA_KERNEL_gw_device_thc_norm;
    uint32_t shared_size = tile_shared_size(launch.block);
    params.is_aligned = may_read_vectors(thc, src, error);
    if (has_warp_kernels(thc)) {
        /* 16 bytes a lane, 64 values of a block side by side: thc_warp_norm.cu. */
        launch = warp_launch_of(state, thc, &span, thc->options.dtype == GW_FP32 || error != NULL ? 2 : 4, 2);
        kernel = of_dtype(error != NULL ? error_norms : norms, thc);
        shared_size = 0;
        params.is_aligned = is_vector_aligned(src, error);
    }
    params.span = launch.span;
    params.context = context_of(thc, range, NULL);
    params.src = src;
    params.error = error;
    params.patterns = patterns;
    params.result = result;
    return run_tiles(state, kernel, &launch, shared_size, &params, sizeof params, result, stream);
}

gw_status gw_cuda_thc_encode(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range,
                             const gw_cuda_thc_key *key, const void *src, float *error,
                             const uint32_t *own_patterns, const uint32_t *patterns, uint8_t *indices,
                             size_t indices_capacity, gw_cuda_result *result, void *stream)
{
    gw_cuda_state *state;
    gw_thc_span span;
    gw_status status = begin(&state, &span, cuda, handle, range, key, result);

    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    status = check_input(thc, range, &span, src, error);
    if (status == GW_OK && span.blocks > 0 &&
        (patterns == NULL || indices == NULL || !gw_cuda_is_aligned(patterns, 8) ||
         !gw_cuda_is_aligned(own_patterns, 8) || !gw_cuda_is_aligned(indices, GW_VECTOR_SIZE))) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && indices_capacity < span.lanes / 8 * thc->options.table.bits) {
        status = GW_ERR_DST;
    }
    if (status != GW_OK) {
        return status;
    }
    gw_cuda_thc_encode_params params;
    tile_launch launch = launch_of(state, thc, &span);
    gw_cuda_kernel kernel = GW_CUDA_KERNEL_gw_device_thc_encode;
    uint32_t shared_size = tile_shared_size(launch.block);
    params.is_aligned = may_read_vectors(thc, src, error);
    if (has_warp_kernels(thc) && thc->options.table.bits == 4 && own_patterns != NULL) {
        launch = warp_launch_of(state, thc, &span, 1, error != NULL ? 2 : 3);
        kernel = of_dtype(error != NULL ? error_encodes : encodes, thc);
        shared_size = launch.block / 32u *
                          (GW_THC_WARP_INPUT_SIZE(thc->options.dtype, error != NULL) + GW_THC_WARP_ROWS_SIZE +
                           GW_THC_WARP_SIGNS_SIZE) +
                      16 * GW_THC_WARP_CELLS(thc->options.table.granularity);
        params.is_aligned = is_vector_aligned(src, error);
    }
    params.span = launch.span;
    params.context = context_of(thc, range, key);
    params.src = src;
    params.error = error;
    params.own_patterns = own_patterns;
    params.patterns = patterns;
    params.indices = (uint32_t *)(void *)indices;
    params.result = result;
    return run_tiles(state, kernel, &launch, shared_size, &params, sizeof params, result, stream);
}

/* The last two arguments that lanes and reduced buffers differ in. */
static gw_status decode(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range,
                        const gw_cuda_thc_key *key, const uint8_t *lanes, size_t lanes_size,
                        const uint32_t *patterns, gw_thc_mode mode, void *dst, size_t dst_capacity,
                        gw_cuda_result *result, void *stream, const uint32_t *members, int is_reduced)
{
    gw_cuda_state *state;
    gw_thc_span span;
    gw_status status = begin(&state, &span, cuda, handle, range, key, result);

    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    const size_t element_size = gw_dtype_size((gw_dtype)thc->options.dtype);
    const size_t lane_size = thc->options.lane_bits / 8u;
    const size_t size = is_reduced ? gw_thc_span_reduced_size(&span) : span.lanes * lane_size;
    if ((mode != GW_THC_SUM && mode != GW_THC_MEAN) ||
        (span.blocks > 0 &&
         (lanes == NULL || dst == NULL || patterns == NULL || (!is_reduced && members == NULL) ||
          !gw_cuda_is_aligned(lanes, GW_VECTOR_SIZE) || !gw_cuda_is_aligned(dst, element_size) ||
          !gw_cuda_is_aligned(patterns, 8) || !gw_cuda_is_aligned(members, 8)))) {
        return GW_ERR_ARG;
    }
    if (dst_capacity / element_size < span.elements) {
        return GW_ERR_DST;
    }
    if (lanes_size < size) {
        return GW_ERR_SHORT;
    }
    gw_cuda_thc_decode_params params;
    tile_launch launch = launch_of(state, thc, &span);
    gw_cuda_kernel kernel = GW_CUDA_KERNEL_gw_device_thc_decode;
    uint32_t shared_size = tile_shared_size(launch.block);
    if (has_warp_kernels(thc) && thc->options.lane_bits <= 16) {
        launch = warp_launch_of(state, thc, &span, 1, GW_BLOCKS_PER_MULTIPROCESSOR);
        kernel = of_dtype(decodes[thc->options.lane_bits / 16], thc);
        shared_size =
            launch.block / 32 *
            (GW_THC_WARP_LANES_SIZE(thc->options.lane_bits) + GW_THC_WARP_ROWS_SIZE + GW_THC_WARP_SIGNS_SIZE);
    }
    params.span = launch.span;
    params.context = context_of(thc, range, key);
    params.lanes = lanes;
    params.members = members;
    params.counts = is_reduced && lanes != NULL ? lanes + span.lanes * lane_size : NULL;
    params.patterns = patterns;
    params.is_mean = mode == GW_THC_MEAN;
    params.is_aligned = gw_cuda_is_aligned(dst, GW_VECTOR_SIZE) ? 1 : 0;
    params.dst = dst;
    params.result = result;
    return run_tiles(state, kernel, &launch, shared_size, &params, sizeof params, result, stream);
}

gw_status gw_cuda_thc_decode(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                             const gw_cuda_thc_key *key, const uint8_t *lanes, size_t lanes_size,
                             const uint32_t *members, const uint32_t *patterns, gw_thc_mode mode, void *dst,
                             size_t dst_capacity, gw_cuda_result *result, void *stream)
{
    return decode(cuda, thc, range, key, lanes, lanes_size, patterns, mode, dst, dst_capacity, result, stream,
                  members, 0);
}

gw_status gw_cuda_thc_decode_reduced(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                     const gw_cuda_thc_key *key, const uint8_t *reduced, size_t reduced_size,
                                     const uint32_t *patterns, gw_thc_mode mode, void *dst,
                                     size_t dst_capacity, gw_cuda_result *result, void *stream)
{
    return decode(cuda, thc, range, key, reduced, reduced_size, patterns, mode, dst, dst_capacity, result,
                  stream, NULL, 1);
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static uint32_t sum_grid(const gw_cuda_state *state, uint64_t threads)
{
    const uint64_t blocks = (threads + GW_SUM_THREADS - 1) / GW_SUM_THREADS;
    const uint64_t resident = (uint64_t)state->info.multiprocessor_count * 8;
    const uint64_t grid = gw_min_u64(blocks, resident);
    return grid == 0 ? 1 : (uint32_t)grid;
}

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

static gw_status check_sum(gw_cuda_state **state, const gw_thc_agg_state **agg, gw_cuda *cuda,
                           const gw_thc_agg *handle, const uint8_t *lanes, const uint8_t *set, size_t len)
{
    if (cuda == NULL || handle == NULL || lanes == NULL || set == NULL || len % 64 != 0 ||
        !gw_cuda_is_aligned(lanes, GW_VECTOR_SIZE)) {
        return GW_ERR_ARG;
    }
    *state = gw_cuda_state_of(cuda);
    *agg = gw_thc_agg_state_of(handle);
    return *state != NULL && *agg != NULL ? GW_OK : GW_ERR_STATE;
}

static void drop_ranks(uint8_t *set, const uint32_t *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gw_set_drop(set, ranks[i]);
    }
}

/* The set takes the ranks, which finds duplicates among them too; all or none. */
static gw_status join_ranks(const gw_thc_agg_state *agg, uint8_t *set, const uint8_t *const *indices,
                            const uint32_t *ranks, size_t source_count)
{
    gw_status status = source_count > 0 && (indices == NULL || ranks == NULL) ? GW_ERR_ARG : GW_OK;
    size_t taken = 0;

    while (status == GW_OK && taken < source_count) {
        if (indices[taken] == NULL || !gw_cuda_is_aligned(indices[taken], GW_VECTOR_SIZE)) {
            status = GW_ERR_ARG;
        } else if (ranks[taken] >= agg->worker_max || gw_set_has(set, ranks[taken])) {
            status = GW_ERR_DUP;
        } else {
            gw_set_put(set, ranks[taken++]);
        }
    }
    if (status == GW_OK && gw_thc_set_members(set, agg->worker_max) > agg->worker_max) {
        status = GW_ERR_OVERFLOW;
    }
    if (status != GW_OK) {
        drop_ranks(set, ranks, taken);
    }
    return status;
}

gw_status gw_cuda_thc_sum_indices(gw_cuda *cuda, const gw_thc_agg *handle, uint8_t *lanes, uint8_t *set,
                                  size_t len, const uint8_t *const *indices, const uint32_t *ranks,
                                  size_t source_count, int accumulate, void *stream)
{
    gw_cuda_state *state;
    const gw_thc_agg_state *agg;
    gw_status status = check_sum(&state, &agg, cuda, handle, lanes, set, len);

    if (status == GW_OK && !accumulate && gw_thc_set_members(set, agg->worker_max) != 0) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK) {
        status = join_ranks(agg, set, indices, ranks, source_count);
    }
    if (status != GW_OK || len == 0) {
        return status;
    }
    gw_cuda_thc_sum_params params;
    begin_sum(&params, &agg->table, agg->lane_bits, lanes, len);
    size_t done = 0;
    do {
        params.source_count = (uint32_t)gw_min_u64(source_count - done, GW_CUDA_THC_SOURCES_MAX);
        params.accumulate = accumulate || done > 0;
        for (uint32_t i = 0; i < params.source_count; i++) {
            params.source[i] = indices[done + i];
        }
        status = run(state, GW_CUDA_KERNEL_gw_device_thc_sum_indices, sum_grid(state, len / GW_SUM_LEN),
                     GW_SUM_THREADS, 0, &params, sizeof params, stream);
        done += params.source_count;
    } while (status == GW_OK && done < source_count);
    if (status != GW_OK) {
        drop_ranks(set, ranks, source_count);
    }
    return status;
}

static void drop_sets(const gw_thc_agg_state *agg, uint8_t *set, const uint8_t *const *in_sets, size_t count)
{
    for (size_t s = 0; s < count; s++) {
        for (size_t i = 0; i < GW_THC_SET_SIZE(agg->worker_max); i++) {
            set[i] &= (uint8_t)~in_sets[s][i]; /* sets were disjoint */
        }
    }
}

/* The same for partial sums; limit[s] gets the largest lane that the contributors of source s can make. */
static gw_status join_sets(const gw_thc_agg_state *agg, uint8_t *set, const uint8_t *const *in_lanes,
                           const uint8_t *const *in_sets, size_t source_count, uint32_t *limit)
{
    gw_status status = source_count > 0 && (in_lanes == NULL || in_sets == NULL) ? GW_ERR_ARG : GW_OK;
    size_t taken = 0;

    while (status == GW_OK && taken < source_count) {
        if (in_lanes[taken] == NULL || in_sets[taken] == NULL ||
            !gw_cuda_is_aligned(in_lanes[taken], GW_VECTOR_SIZE)) {
            status = GW_ERR_ARG;
            break;
        }
        const uint32_t k = gw_thc_set_members(set, agg->worker_max);
        const uint32_t k_in = gw_thc_set_members(in_sets[taken], agg->worker_max);
        if (k_in == UINT32_MAX || gw_thc_sets_meet(set, in_sets[taken], agg->worker_max)) {
            status = GW_ERR_DUP;
        } else if (k > agg->worker_max || k_in > agg->worker_max - k) {
            status = GW_ERR_OVERFLOW;
        } else {
            limit[taken] = k_in * agg->table.granularity;
            gw_thc_set_join(set, in_sets[taken++], agg->worker_max);
        }
    }
    if (status != GW_OK) {
        drop_sets(agg, set, in_sets, taken);
    }
    return status;
}

gw_status gw_cuda_thc_sum_lanes(gw_cuda *cuda, const gw_thc_agg *handle, uint8_t *lanes, uint8_t *set,
                                size_t len, const uint8_t *const *in_lanes, const uint8_t *const *in_sets,
                                size_t source_count, int accumulate, gw_cuda_result *result, void *stream)
{
    gw_cuda_state *state;
    const gw_thc_agg_state *agg;
    gw_cuda_thc_sum_params params;
    gw_status status = check_sum(&state, &agg, cuda, handle, lanes, set, len);

    if (status == GW_OK &&
        (result == NULL || !gw_cuda_is_aligned(result, 8) || source_count > GW_CUDA_THC_SOURCES_MAX ||
         (!accumulate && gw_thc_set_members(set, agg->worker_max) != 0))) {
        status = GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return status;
    }
    begin_sum(&params, &agg->table, agg->lane_bits, lanes, len);
    status = join_sets(agg, set, in_lanes, in_sets, source_count, params.limit);
    if (status != GW_OK) {
        return status;
    }
    params.source_count = (uint32_t)source_count;
    params.accumulate = accumulate != 0;
    params.result = result;
    for (size_t i = 0; i < source_count; i++) {
        params.source[i] = in_lanes[i];
    }
    const uint32_t grid = sum_grid(state, (uint64_t)len * (agg->lane_bits / 8) / GW_VECTOR_SIZE);
    gw_cuda_plan plan = {0};
    plan.launch_count = 2;
    plan.launch[0] = (gw_cuda_launch){
        GW_CUDA_KERNEL_gw_device_thc_check_lanes, grid, GW_SUM_THREADS, 0, &params, sizeof params};
    plan.launch[1] = (gw_cuda_launch){
        GW_CUDA_KERNEL_gw_device_thc_sum_lanes, grid, GW_SUM_THREADS, 0, &params, sizeof params};
    status = gw_cuda_clear(state, result, sizeof *result, stream);
    if (status == GW_OK) {
        status = gw_cuda_submit(state, &plan, NULL, stream);
    }
    if (status != GW_OK) {
        drop_sets(agg, set, in_sets, source_count);
    }
    return status;
}

gw_status gw_cuda_thc_expand(gw_cuda *cuda, const gw_thc *handle, const gw_thc_range *range,
                             const uint8_t *indices, size_t indices_size, uint8_t *dst, size_t dst_capacity,
                             void *stream)
{
    gw_thc_span span;

    if (cuda == NULL) {
        return GW_ERR_ARG;
    }
    gw_cuda_state *state = gw_cuda_state_of(cuda);
    gw_status status = state != NULL ? gw_thc_span_make(&span, handle, range) : GW_ERR_STATE;
    if (status != GW_OK) {
        return status;
    }
    const gw_thc_state *thc = span.thc;
    if (span.blocks > 0 && (indices == NULL || dst == NULL || !gw_cuda_is_aligned(indices, GW_VECTOR_SIZE) ||
                            !gw_cuda_is_aligned(dst, GW_VECTOR_SIZE))) {
        return GW_ERR_ARG;
    }
    if (indices_size < span.lanes / 8 * thc->options.table.bits) {
        return GW_ERR_SHORT;
    }
    if (dst_capacity < gw_thc_span_reduced_size(&span)) {
        return GW_ERR_DST;
    }
    if (span.blocks == 0) {
        return GW_OK;
    }
    gw_cuda_thc_sum_params params;
    begin_sum(&params, &thc->options.table, thc->options.lane_bits, dst, span.lanes);
    params.source_count = 1;
    params.source[0] = indices;
    params.counts = dst + span.lanes * (thc->options.lane_bits / 8u);
    params.count_len = span.blocks;
    return run(state, GW_CUDA_KERNEL_gw_device_thc_sum_indices, sum_grid(state, span.lanes / GW_SUM_LEN),
               GW_SUM_THREADS, 0, &params, sizeof params, stream);
}
