/*
 * Receiver: lanes to values, by the number of contributors of every block.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_decode.h"

gw_status gw_thc_target_clear(gw_thc_target *target)
{
    if (target == NULL) {
        return GW_ERR_ARG;
    }
    target->len = 0;
    target->missing = 0;
    target->bad_block = UINT64_MAX;
    return GW_OK;
}

gw_status gw_thc_receiver_begin(gw_thc_receiver *r, const void *src, gw_thc_mode mode,
                                const gw_thc_target *target, const gw_workspace *workspace)
{
    const gw_thc_state *thc = r->span.thc;

    if ((mode != GW_THC_SUM && mode != GW_THC_MEAN) ||
        (r->span.blocks > 0 && (target->values == NULL || src == NULL))) {
        return GW_ERR_ARG;
    }
    r->mode = mode;
    r->element_size = gw_dtype_size(thc->options.dtype);
    r->values = target->values;
    r->status = GW_OK;
    gw_status status = gw_thc_scratch_make(&r->scratch, thc, workspace);
    if (status != GW_OK) {
        return status;
    }
    return target->capacity < r->span.elements ? GW_ERR_DST : GW_OK;
}

static uint8_t *values_of(const gw_thc_receiver *r, uint64_t i)
{
    return r->values + (size_t)i * r->span.block_len * r->element_size;
}

void gw_thc_receiver_fail(gw_thc_receiver *r, gw_thc_target *target, uint64_t i, gw_status status)
{
    GW_MEMSET(values_of(r, i), 0, gw_thc_span_len(&r->span, i) * r->element_size);
    if (r->status == GW_OK) {
        r->status = status;
        target->bad_block = r->span.first + i;
    }
}

void gw_thc_receiver_put(gw_thc_receiver *r, gw_thc_target *target, uint64_t i, const gw_thc_block *block)
{
    const gw_thc_state *thc = r->span.thc;
    size_t len = gw_thc_span_len(&r->span, i);
    gw_thc_stream stream = gw_thc_span_stream(&r->span, i, 0);
    uint8_t *out = values_of(r, i);
    float *y = r->scratch.y;

    if (block->members == 0) {
        GW_MEMSET(y, 0, len * sizeof *y);
        target->missing++;
    } else if (gw_thc_block_read(thc, block->patterns) == GW_THC_BLOCK_NONFINITE) {
        for (size_t j = 0; j < len; j++) {
            y[j] = gw_float_from_bits(GW_THC_NORM_NONFINITE);
        }
    } else if (GW_IS_LITTLE_ENDIAN && thc->options.dtype == GW_FP32 && len == block->lane_count &&
               (uintptr_t)out % sizeof(float) == 0) {
        /* A whole block of fp32 is decoded in place: its values are finite or infinite, never NaN, and need
         * no conversion. */
        gw_thc_block_decode(thc, block, r->mode, &stream, (float *)(void *)out);
        return;
    } else {
        gw_thc_block_decode(thc, block, r->mode, &stream, y);
    }
    thc->kernels.store(out, y, thc->options.dtype, len);
}

gw_status gw_thc_receiver_put_indices(gw_thc_receiver *r, gw_thc_target *target, uint64_t i,
                                      const uint8_t *indices, const uint32_t *patterns)
{
    const gw_thc_state *thc = r->span.thc;
    const gw_thc_table *table = &thc->options.table;
    gw_thc_block block = {r->scratch.index, gw_thc_span_lanes(&r->span, i), 8, 1, patterns};
    gw_thc_block_kind kind = gw_thc_block_read(thc, patterns);

    if (kind == GW_THC_BLOCK_INVALID ||
        (kind != GW_THC_BLOCK_CODED && !gw_is_zero(indices, block.lane_count / 8 * table->bits))) {
        return GW_ERR_CORRUPT;
    }
    GW_MEMSET(r->scratch.index, 0, block.lane_count);
    thc->kernels.add_indices(r->scratch.index, indices, block.lane_count, table->bits, table->value, 8);
    gw_thc_receiver_put(r, target, i, &block);
    return GW_OK;
}

gw_status gw_thc_receiver_end(const gw_thc_receiver *r, gw_thc_target *target)
{
    if (r->status == GW_OK) {
        target->len = r->span.elements;
    }
    return r->status;
}

static uint32_t lane_load(const uint8_t *lane, unsigned lane_bits)
{
    return lane_bits == 8 ? lane[0] : lane_bits == 16 ? gw_load16(lane) : gw_load32(lane);
}

/* Members from sum->members or, for the output of a raw all-reduce, from the count lanes after the lanes. */
static gw_status decode_blocks(gw_thc_receiver *r, const gw_thc_sum *sum, int is_reduced,
                               gw_thc_target *target)
{
    const gw_thc_state *thc = r->span.thc;
    const uint8_t *lanes = sum->data;
    unsigned lane_bits = thc->options.lane_bits;
    size_t lane_size = lane_bits / 8;
    size_t per_block = gw_thc_pattern_count(&thc->options);

    for (uint64_t i = 0; i < r->span.blocks; i++) {
        gw_thc_block block = {
            .lanes = lanes + (size_t)i * r->span.block_len * lane_size,
            .lane_count = gw_thc_span_lanes(&r->span, i),
            .lane_bits = lane_bits,
            .members = is_reduced ? lane_load(lanes + (r->span.lanes + (size_t)i) * lane_size, lane_bits)
                                  : sum->members[i],
            .patterns = sum->patterns + (size_t)i * per_block,
        };
        gw_status status = gw_thc_block_check(thc, &block);
        if (status != GW_OK) {
            gw_thc_receiver_fail(r, target, i, status);
        } else {
            gw_thc_receiver_put(r, target, i, &block);
        }
    }
    return gw_thc_receiver_end(r, target);
}

/* Both forms of lanes. */
static gw_status decode_sum(const gw_thc *thc, const gw_thc_range *range, const gw_thc_sum *sum,
                            gw_thc_mode mode, gw_thc_target *target, const gw_workspace *workspace,
                            int is_reduced)
{
    gw_thc_receiver r;
    gw_status status = gw_thc_target_clear(target);

    if (status == GW_OK) {
        status = sum != NULL ? gw_thc_span_make(&r.span, thc, range) : GW_ERR_ARG;
    }
    if (status == GW_OK) {
        status = gw_thc_receiver_begin(&r, sum->data, mode, target, workspace);
    }
    if (status != GW_OK) {
        return status;
    }
    if (r.span.blocks > 0 && (sum->patterns == NULL || (!is_reduced && sum->members == NULL))) {
        return GW_ERR_ARG;
    }
    size_t size = is_reduced ? gw_thc_span_reduced_size(&r.span) : gw_thc_span_lanes_size(&r.span);
    return sum->size < size ? GW_ERR_SHORT : decode_blocks(&r, sum, is_reduced, target);
}

gw_status gw_thc_decode(const gw_thc *thc, const gw_thc_range *range, const gw_thc_sum *sum, gw_thc_mode mode,
                        gw_thc_target *target, const gw_workspace *workspace)
{
    return decode_sum(thc, range, sum, mode, target, workspace, 0);
}

gw_status gw_thc_decode_reduced(const gw_thc *thc, const gw_thc_range *range, const gw_thc_sum *sum,
                                gw_thc_mode mode, gw_thc_target *target, const gw_workspace *workspace)
{
    return decode_sum(thc, range, sum, mode, target, workspace, 1);
}

uint32_t gw_thc_reduced_members(const gw_thc *thc, const gw_thc_range *range, const void *reduced,
                                size_t reduced_size, uint64_t i)
{
    gw_thc_span span;

    if (reduced == NULL || gw_thc_span_make(&span, thc, range) != GW_OK || i >= span.blocks ||
        reduced_size < gw_thc_span_reduced_size(&span)) {
        return UINT32_MAX;
    }
    unsigned lane_bits = span.thc->options.lane_bits;
    return lane_load((const uint8_t *)reduced + (span.lanes + (size_t)i) * (lane_bits / 8), lane_bits);
}

gw_status gw_thc_decode_indices(const gw_thc *thc, const gw_thc_range *range, const gw_thc_indices *indices,
                                gw_thc_target *target, const gw_workspace *workspace)
{
    gw_thc_receiver r;
    gw_status status = gw_thc_target_clear(target);

    if (status == GW_OK) {
        status = indices != NULL ? gw_thc_span_make(&r.span, thc, range) : GW_ERR_ARG;
    }
    if (status == GW_OK) {
        status = gw_thc_receiver_begin(&r, indices->data, GW_THC_SUM, target, workspace);
    }
    if (status == GW_OK && r.span.blocks > 0 && indices->patterns == NULL) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && indices->size < gw_thc_span_indices_size(&r.span)) {
        status = GW_ERR_SHORT;
    }
    if (status != GW_OK) {
        return status;
    }
    const uint8_t *packed = indices->data;
    size_t per_block = gw_thc_pattern_count(&r.span.thc->options);
    for (uint64_t i = 0; i < r.span.blocks; i++) {
        status = gw_thc_receiver_put_indices(&r, target, i, packed + gw_thc_span_indices_offset(&r.span, i),
                                             indices->patterns + (size_t)i * per_block);
        if (status != GW_OK) {
            gw_thc_receiver_fail(&r, target, i, status);
        }
    }
    return gw_thc_receiver_end(&r, target);
}

gw_status gw_thc_expand(const gw_thc *thc, const gw_thc_range *range, const gw_thc_indices *indices,
                        gw_buffer *dst)
{
    gw_thc_span span;

    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_status status = indices != NULL ? gw_thc_span_make(&span, thc, range) : GW_ERR_ARG;
    if (status != GW_OK) {
        return status;
    }
    if (span.blocks > 0 && (indices->data == NULL || dst->data == NULL)) {
        return GW_ERR_ARG;
    }
    size_t size = gw_thc_span_reduced_size(&span);
    if (indices->size < gw_thc_span_indices_size(&span)) {
        return GW_ERR_SHORT;
    }
    if (dst->capacity < size) {
        return GW_ERR_DST;
    }
    dst->size = size;
    if (span.blocks == 0) {
        return GW_OK;
    }
    const gw_thc_options *options = &span.thc->options;
    uint8_t *lanes = dst->data;
    GW_MEMSET(lanes, 0, size);
    span.thc->kernels.add_indices(lanes, indices->data, span.lanes, options->table.bits, options->table.value,
                                  options->lane_bits);
    uint8_t *counts = lanes + gw_thc_span_lanes_size(&span);
    for (uint64_t i = 0; i < span.blocks; i++) {
        counts[(size_t)i * (options->lane_bits / 8)] = 1; /* little-endian lane of value 1 */
    }
    return GW_OK;
}
