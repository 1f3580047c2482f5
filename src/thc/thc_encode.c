/*
 * Phase two: values and maxima to packed indices, and the new error memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/float_bits.h"
#include "thc/thc_plain.h"
#include "thc/thc_worker.h"

#define GW_GRID_UNIT 65536.0 /* positions are in 1/65536 of a grid step */

/* Everything about one block but its values. */
typedef struct block_job {
    uint64_t i;
    const uint32_t *own;    /* this worker's patterns */
    const uint32_t *maxima; /* over all workers */
    uint8_t *packed;
} block_job;

/* GW_OK if the maxima are possible and not below the worker's own patterns. */
static gw_status check_maxima(const gw_thc_worker *worker, const uint32_t *own, const uint32_t *maxima)
{
    if (gw_thc_block_read(worker->thc, maxima) == GW_THC_BLOCK_INVALID) {
        return GW_ERR_CORRUPT;
    }
    for (size_t p = 0; p < worker->pattern_count; p++) {
        if (own[p] > maxima[p]) {
            return GW_ERR_STATE;
        }
    }
    return GW_OK;
}

/*
 * Rotated values were scaled by 2^(128 - exponent of the own norm), so one grid step is 2 t l 2^(128 - e) / g
 * wide in them. A scale that would be subnormal is 0: it belongs to values 2^-126 below the range, whose
 * position is the middle anyway.
 */
static gw_thc_quantizer rotated_quantizer(const gw_thc_state *thc, uint32_t own_norm, uint32_t max_norm)
{
    double t = (double)gw_float_from_bits(thc->options.threshold_bits);
    double half_range = 0.5 * GW_GRID_UNIT * (double)thc->options.table.granularity;
    double norm = (double)gw_float_from_bits(max_norm) * gw_f64_pow2(128 - (int)(own_norm >> 23));
    double scale = half_range / t / norm;
    gw_thc_quantizer q;

    q.scale = scale < 0x1p-126 ? 0.0f : (float)scale;
    q.low = -(float)half_range;
    q.high = (float)half_range;
    q.offset = (int32_t)half_range;
    q.cell = thc->cell;
    q.table = thc->options.table.value;
    q.index_max = (1u << thc->options.table.bits) - 1u;
    return q;
}

static gw_thc_quantizer plain_quantizer(const gw_thc_state *thc, float width)
{
    double range = GW_GRID_UNIT * (double)thc->options.table.granularity;
    int exponent = (int)(gw_bits_from_float(width) >> 23);
    gw_thc_quantizer q;

    q.scale = (float)(range / ((double)width * gw_f64_pow2(128 - exponent)));
    q.low = 0.0f;
    q.high = (float)range;
    q.offset = 0;
    q.cell = thc->cell;
    q.table = thc->options.table.value;
    q.index_max = (1u << thc->options.table.bits) - 1u;
    return q;
}

/* New error of a block that carries nothing: all of x, or +0 where x is not finite. */
static void keep_block(const gw_thc_worker *worker, uint64_t i, int is_finite)
{
    size_t len = gw_thc_span_len(&worker->span, i);

    GW_MEMSET(worker->scratch.y, 0, len * sizeof *worker->scratch.y);
    if (!is_finite) {
        GW_MEMSET(worker->scratch.x, 0, len * sizeof *worker->scratch.x);
    }
    worker->thc->kernels.residual(worker->error + (size_t)i * worker->span.block_len, worker->scratch.x,
                                  worker->scratch.y, len);
}

/* error = x - decode(own indices), x in scratch.x. */
static void update_error(const gw_thc_worker *worker, const block_job *job)
{
    const gw_thc_state *thc = worker->thc;
    size_t lanes = gw_thc_span_lanes(&worker->span, job->i);
    gw_thc_stream stream = gw_thc_worker_stream(worker, job->i);
    gw_thc_block block = {worker->scratch.index, lanes, 8, 1, job->maxima};

    GW_MEMSET(worker->scratch.index, 0, lanes);
    thc->kernels.add_indices(worker->scratch.index, job->packed, lanes, thc->options.table.bits,
                             thc->options.table.value, 8);
    gw_thc_block_decode(thc, &block, GW_THC_SUM, &stream, worker->scratch.y);
    thc->kernels.residual(worker->error + (size_t)job->i * worker->span.block_len, worker->scratch.x,
                          worker->scratch.y, gw_thc_span_len(&worker->span, job->i));
}

/* Quantizes and packs one coded block; `transformed` is its rotated or shifted values. */
static void encode_coded(const gw_thc_worker *worker, const block_job *job, const float *transformed)
{
    const gw_thc_state *thc = worker->thc;
    size_t lanes = gw_thc_span_lanes(&worker->span, job->i);
    gw_thc_stream stream = gw_thc_worker_stream(worker, job->i);
    gw_thc_quantizer q;

    if (thc->options.transform == GW_THC_ROTATED) {
        q = rotated_quantizer(thc, job->own[0] != 0 ? job->own[0] : GW_F32_MIN, job->maxima[0]);
    } else {
        q = plain_quantizer(thc, gw_thc_plain_extent_of(job->maxima).width);
    }
    thc->kernels.quantize(worker->scratch.index, transformed, lanes, &q, &stream);
    thc->kernels.pack(job->packed, worker->scratch.index, lanes, thc->options.table.bits);
}

/* Rotated or shifted values of the block in scratch.x, in scratch.y. */
static const float *transform_block(const gw_thc_worker *worker, const block_job *job)
{
    float *y = worker->scratch.y;

    if (worker->thc->options.transform == GW_THC_ROTATED) {
        gw_thc_worker_rotate(worker, job->i, job->own[0], y);
    } else {
        gw_thc_plain_extent extent = gw_thc_plain_extent_of(job->maxima);
        worker->thc->kernels.shift(y, worker->scratch.x, gw_thc_span_lanes(&worker->span, job->i),
                                   extent.minimum, gw_bits_from_float(extent.width) >> 23);
    }
    gw_thc_worker_prefetch(worker, job->i, 2, 3);
    return y;
}

/* One block with x in scratch.x (read for the transform and for the error memory only). `rotated` is of
 * gw_thc_prepare() or NULL. */
static void encode_block(const gw_thc_worker *worker, const block_job *job, const float *rotated)
{
    const gw_thc_state *thc = worker->thc;
    size_t lanes = gw_thc_span_lanes(&worker->span, job->i);

    if (gw_thc_block_read(thc, job->maxima) != GW_THC_BLOCK_CODED) {
        GW_MEMSET(job->packed, 0, lanes / 8 * thc->options.table.bits);
        if (worker->error != NULL) {
            keep_block(worker, job->i, job->own[0] != GW_THC_NORM_NONFINITE);
        }
        return;
    }
    encode_coded(worker, job, rotated != NULL ? rotated : transform_block(worker, job));
    if (worker->error != NULL) {
        update_error(worker, job);
    }
}

/* Phase one again for block i, into scratch.x and own: the policy for non-finite values, then the maxima. */
static gw_status check_block(const gw_thc_worker *worker, uint64_t i, const uint32_t *maxima, uint32_t own[2])
{
    own[0] = 0;
    own[1] = 0;
    gw_thc_worker_load(worker, i);
    gw_thc_worker_prefetch(worker, i, 0, 1);
    gw_status status =
        gw_thc_worker_measure(worker, i, own) ? check_maxima(worker, own, maxima) : GW_ERR_NONFINITE;
    gw_thc_worker_prefetch(worker, i, 1, 2);
    return status;
}

/* With an error memory everything is checked before anything is written: it must not be half old and half
 * new.
 */
static gw_status check_range(const gw_thc_worker *worker, const uint32_t *patterns, uint64_t *bad_block)
{
    uint32_t own[2];

    for (uint64_t i = 0; i < worker->span.blocks; i++) {
        gw_status status = check_block(worker, i, patterns + (size_t)i * worker->pattern_count, own);
        if (status != GW_OK) {
            gw_thc_worker_fail(bad_block, worker, i);
            return status;
        }
        gw_thc_worker_prefetch(worker, i, 2, 4);
    }
    return GW_OK;
}

/* Without an error memory blocks are checked as they come, and a refused block clears the indices before it:
 * one pass over the input instead of two. */
static gw_status encode_range(const gw_thc_worker *worker, const uint32_t *patterns, uint8_t *indices,
                              uint64_t *bad_block)
{
    uint32_t own[2];

    if (worker->error != NULL) {
        gw_status status = check_range(worker, patterns, bad_block);
        if (status != GW_OK) {
            return status;
        }
    }
    for (uint64_t i = 0; i < worker->span.blocks; i++) {
        const uint32_t *maxima = patterns + (size_t)i * worker->pattern_count;
        size_t offset = gw_thc_span_indices_offset(&worker->span, i);
        gw_status status = check_block(worker, i, maxima, own);
        if (status != GW_OK) {
            GW_MEMSET(indices, 0, offset);
            gw_thc_worker_fail(bad_block, worker, i);
            return status;
        }
        block_job job = {i, own, maxima, indices + offset};
        encode_block(worker, &job, NULL);
        gw_thc_worker_prefetch(worker, i, 3, 4);
    }
    return GW_OK;
}

/* The same from the output of gw_thc_prepare(). */
static gw_status encode_prepared(const gw_thc_worker *worker, const gw_thc_source *source, uint8_t *indices,
                                 uint64_t *bad_block)
{
    const uint32_t *own = source->own_patterns;

    for (uint64_t i = 0; i < worker->span.blocks; i++) {
        gw_status status = gw_thc_block_read(worker->thc, own + i) == GW_THC_BLOCK_INVALID
                               ? GW_ERR_ARG
                               : check_maxima(worker, own + i, source->patterns + i);
        if (status != GW_OK) {
            gw_thc_worker_fail(bad_block, worker, i);
            return status;
        }
    }
    for (uint64_t i = 0; i < worker->span.blocks; i++) {
        block_job job = {i, own + i, source->patterns + i,
                         indices + gw_thc_span_indices_offset(&worker->span, i)};
        if (worker->error != NULL) {
            gw_thc_worker_load(worker, i);
            if (own[i] == 0) {
                GW_MEMSET(worker->scratch.x, 0,
                          gw_thc_span_lanes(&worker->span, i) * sizeof *worker->scratch.x);
            }
        }
        encode_block(worker, &job, source->rotated + (size_t)i * worker->span.block_len);
    }
    return GW_OK;
}

/* What both forms of encode check before they read a block. */
static gw_status check_call(const gw_thc_worker *worker, const gw_thc_source *source,
                            const gw_buffer *indices)
{
    const gw_thc_options *options = &worker->thc->options;
    int is_empty = worker->span.blocks == 0;

    if (source->rotated == NULL || options->error_feedback != 0 || source->error != NULL) {
        gw_status status = gw_thc_worker_check_input(worker);
        if (status != GW_OK) {
            return status;
        }
    }
    if (source->rotated != NULL && options->transform != GW_THC_ROTATED) {
        return GW_ERR_OPTION;
    }
    if (!is_empty && (source->patterns == NULL || indices->data == NULL ||
                      (source->rotated != NULL && source->own_patterns == NULL))) {
        return GW_ERR_ARG;
    }
    return indices->capacity < gw_thc_span_indices_size(&worker->span) ? GW_ERR_DST : GW_OK;
}

gw_status gw_thc_encode(const gw_thc *thc, const gw_thc_range *range, const gw_thc_source *source,
                        gw_buffer *indices, uint64_t *bad_block, const gw_workspace *workspace)
{
    gw_thc_worker worker;

    gw_thc_report_block(bad_block, UINT64_MAX);
    if (indices == NULL) {
        return GW_ERR_ARG;
    }
    indices->size = 0;
    gw_status status = gw_thc_worker_begin(&worker, thc, range, source, workspace);
    if (status == GW_OK) {
        status = check_call(&worker, source, indices);
    }
    if (status == GW_OK) {
        status = source->rotated != NULL ? encode_prepared(&worker, source, indices->data, bad_block)
                                         : encode_range(&worker, source->patterns, indices->data, bad_block);
    }
    if (status == GW_OK) {
        indices->size = gw_thc_span_indices_size(&worker.span);
    }
    return status;
}
