/*
 * Phase one: the norm patterns of a worker's blocks, with or without the rotation, and their reduction.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_worker.h"

gw_status gw_thc_worker_begin(gw_thc_worker *worker, const gw_thc *thc, const gw_thc_range *range,
                              const gw_thc_source *source, const gw_workspace *workspace)
{
    gw_status status = gw_thc_span_make(&worker->span, thc, range);

    if (status != GW_OK) {
        return status;
    }
    worker->thc = worker->span.thc;
    if (source == NULL || range->rank >= worker->thc->options.worker_max) {
        return GW_ERR_ARG;
    }
    worker->rank = range->rank;
    worker->element_size = gw_dtype_size(worker->thc->options.dtype);
    worker->pattern_count = gw_thc_pattern_count(&worker->thc->options);
    worker->values = source->values;
    worker->error = source->error;
    return gw_thc_scratch_make(&worker->scratch, worker->thc, workspace);
}

gw_status gw_thc_worker_check_input(const gw_thc_worker *worker)
{
    int has_feedback = worker->thc->options.error_feedback != 0;

    if (worker->span.blocks > 0 && (worker->values == NULL || (worker->error != NULL) != has_feedback)) {
        return GW_ERR_ARG;
    }
    return GW_OK;
}

void gw_thc_worker_load(const gw_thc_worker *worker, uint64_t i)
{
    size_t at = (size_t)i * worker->span.block_len;

    worker->thc->kernels.load(worker->scratch.x, worker->values + at * worker->element_size,
                              worker->thc->options.dtype, worker->error != NULL ? worker->error + at : NULL,
                              gw_thc_span_len(&worker->span, i), gw_thc_span_lanes(&worker->span, i));
}

int gw_thc_worker_measure(const gw_thc_worker *worker, uint64_t i, uint32_t patterns[2])
{
    const gw_thc_state *thc = worker->thc;
    size_t len = gw_thc_span_len(&worker->span, i);
    int is_rotated = thc->options.transform == GW_THC_ROTATED;

    if (is_rotated) {
        patterns[0] = thc->kernels.norm(worker->scratch.x, len);
    } else {
        thc->kernels.extent(patterns, worker->scratch.x, len);
    }
    if (patterns[0] != (is_rotated ? GW_THC_NORM_NONFINITE : GW_THC_NONFINITE_CODE) ||
        thc->options.nonfinite == GW_THC_NONFINITE_PROPAGATE) {
        return 1;
    }
    if (thc->options.nonfinite == GW_THC_NONFINITE_ERROR) {
        return 0;
    }
    GW_MEMSET(worker->scratch.x, 0, gw_thc_span_lanes(&worker->span, i) * sizeof *worker->scratch.x);
    if (is_rotated) {
        patterns[0] = 0;
    } else {
        thc->kernels.extent(patterns, worker->scratch.x, len);
    }
    return 1;
}

void gw_thc_worker_rotate(const gw_thc_worker *worker, uint64_t i, uint32_t own_norm, float *dst)
{
    size_t lanes = gw_thc_span_lanes(&worker->span, i);
    gw_thc_stream stream = gw_thc_worker_stream(worker, i);

    if (own_norm == 0 || own_norm == GW_THC_NORM_NONFINITE) {
        GW_MEMSET(dst, 0, lanes * sizeof *dst);
    } else {
        worker->thc->kernels.rotate(dst, worker->scratch.x, lanes, own_norm >> 23, &stream);
    }
}

/* Patterns, and where `rotated` is not NULL the rotated values of the range. */
static gw_status norms_of_range(const gw_thc_worker *worker, uint32_t *patterns, float *rotated,
                                uint64_t *bad_block)
{
    for (uint64_t i = 0; i < worker->span.blocks; i++) {
        uint32_t own[2] = {0, 0};

        gw_thc_worker_load(worker, i);
        gw_thc_worker_prefetch(worker, i, 0, 2);
        if (!gw_thc_worker_measure(worker, i, own)) {
            gw_thc_worker_fail(bad_block, worker, i);
            return GW_ERR_NONFINITE;
        }
        gw_thc_worker_prefetch(worker, i, 2, 4);
        GW_MEMCPY(patterns + (size_t)i * worker->pattern_count, own, worker->pattern_count * sizeof *own);
        if (rotated != NULL) {
            gw_thc_worker_rotate(worker, i, own[0], rotated + (size_t)i * worker->span.block_len);
        }
    }
    return GW_OK;
}

gw_status gw_thc_norms(const gw_thc *thc, const gw_thc_range *range, const gw_thc_source *source,
                       uint32_t *patterns, uint64_t *bad_block, const gw_workspace *workspace)
{
    gw_thc_worker worker;

    gw_thc_report_block(bad_block, UINT64_MAX);
    gw_status status = gw_thc_worker_begin(&worker, thc, range, source, workspace);
    if (status == GW_OK) {
        status = gw_thc_worker_check_input(&worker);
    }
    if (status == GW_OK && patterns == NULL && worker.span.blocks > 0) {
        status = GW_ERR_ARG;
    }
    return status == GW_OK ? norms_of_range(&worker, patterns, NULL, bad_block) : status;
}

gw_status gw_thc_prepare(const gw_thc *thc, const gw_thc_range *range, const gw_thc_source *source,
                         gw_thc_prepared *prepared, const gw_workspace *workspace)
{
    gw_thc_worker worker;

    if (prepared == NULL) {
        return GW_ERR_ARG;
    }
    prepared->bad_block = UINT64_MAX;
    gw_status status = gw_thc_worker_begin(&worker, thc, range, source, workspace);
    if (status == GW_OK) {
        status = gw_thc_worker_check_input(&worker);
    }
    if (status == GW_OK && worker.span.blocks > 0 &&
        (prepared->own_patterns == NULL || prepared->rotated == NULL)) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && worker.thc->options.transform != GW_THC_ROTATED) {
        status = GW_ERR_OPTION;
    }
    return status == GW_OK
               ? norms_of_range(&worker, prepared->own_patterns, prepared->rotated, &prepared->bad_block)
               : status;
}

void gw_thc_norms_max(uint32_t *dst, const uint32_t *src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = src[i] > dst[i] ? src[i] : dst[i];
    }
}

uint64_t gw_thc_norms_hash(const uint32_t *patterns, size_t len)
{
    uint64_t hash = GW_FNV_OFFSET;

    for (size_t i = 0; i < len; i++) {
        hash = gw_fnv_u32(hash, patterns[i]);
    }
    return hash;
}

gw_status gw_thc_norms_check(const gw_thc *thc, const uint32_t *patterns, uint64_t block_count,
                             uint64_t *bad_block)
{
    gw_thc_report_block(bad_block, UINT64_MAX);
    if (thc == NULL || (patterns == NULL && block_count > 0)) {
        return GW_ERR_ARG;
    }
    const gw_thc_state *state = gw_thc_state_of(thc);
    if (state == NULL) {
        return GW_ERR_STATE;
    }
    size_t per_block = gw_thc_pattern_count(&state->options);
    for (uint64_t i = 0; i < block_count; i++) {
        if (gw_thc_block_read(state, patterns + (size_t)i * per_block) == GW_THC_BLOCK_INVALID) {
            gw_thc_report_block(bad_block, i);
            return GW_ERR_CORRUPT;
        }
    }
    return GW_OK;
}
