/*
 * Receiver: lanes to values, by the number of contributors of every block.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_decode.h"

#include "core/bytes.h"
#include "thc/thc_float.h"

gw_status gw_thc_receiver_begin(gw_thc_receiver *r, const gw_thc *thc, const gw_thc_range *range,
                                const void *src, gw_thc_mode mode, void *dst, size_t dst_capacity,
                                void *workspace, size_t workspace_size)
{
    gw_status status = gw_thc_span_make(&r->span, thc, range);

    if (status != GW_OK) {
        return status;
    }
    if (mode != GW_THC_SUM && mode != GW_THC_MEAN) {
        return GW_ERR_ARG;
    }
    if (r->span.blocks > 0 && (dst == NULL || src == NULL)) {
        return GW_ERR_ARG;
    }
    r->thc = thc;
    r->round = range->round;
    r->mode = mode;
    r->element_size = gw_dtype_size((gw_dtype)thc->config.dtype);
    r->dst = dst;
    r->missing = 0;
    r->status = GW_OK;
    r->bad_block = 0;
    status = gw_thc_scratch_make(&r->scratch, thc, workspace, workspace_size);
    if (status != GW_OK) {
        return status;
    }
    return dst_capacity / r->element_size < r->span.elements ? GW_ERR_DST : GW_OK;
}

void gw_thc_receiver_fail(gw_thc_receiver *r, uint64_t i, gw_status status)
{
    GW_MEMSET(r->dst + (size_t)i * r->span.block_len * r->element_size, 0,
              gw_thc_span_len(&r->span, i) * r->element_size);
    if (r->status == GW_OK) {
        r->status = status;
        r->bad_block = r->span.first + i;
    }
}

void gw_thc_receiver_put(gw_thc_receiver *r, uint64_t i, const uint8_t *lanes, unsigned lane_bits,
                         uint32_t members, const uint32_t *patterns)
{
    const gw_thc_kernels *kernels = gw_thc_kernels_of(r->thc);
    size_t lane_count = gw_thc_span_lanes(&r->span, i);
    size_t len = gw_thc_span_len(&r->span, i);
    gw_thc_stream stream = {r->thc->config.seed, (uint32_t)(r->span.first + i), r->round, 0};
    uint8_t *out = r->dst + (size_t)i * r->span.block_len * r->element_size;

    /* A whole block of fp32 is decoded where it belongs: such values are finite or infinite, never NaN, and
     * need no conversion where floats are little-endian as dst is. */
    if (GW_IS_LITTLE_ENDIAN && members > 0 && r->thc->config.dtype == GW_FP32 && len == lane_count &&
        (uintptr_t)out % sizeof(float) == 0 &&
        gw_thc_block_read(r->thc, patterns) != GW_THC_BLOCK_NONFINITE) {
        gw_thc_block_decode(r->thc, (float *)(void *)out, lanes, lane_count, lane_bits, members, patterns,
                            r->mode, &stream);
        return;
    }
    if (members == 0) {
        GW_MEMSET(r->scratch.y, 0, lane_count * sizeof *r->scratch.y);
        r->missing++;
    } else if (gw_thc_block_read(r->thc, patterns) == GW_THC_BLOCK_NONFINITE) {
        for (size_t j = 0; j < len; j++) {
            r->scratch.y[j] = gw_float_from_bits(GW_THC_NORM_NONFINITE);
        }
    } else {
        gw_thc_block_decode(r->thc, r->scratch.y, lanes, lane_count, lane_bits, members, patterns, r->mode,
                            &stream);
    }
    kernels->store(out, r->scratch.y, r->thc->config.dtype, len);
}

gw_status gw_thc_receiver_end(const gw_thc_receiver *r, uint64_t *missing, uint64_t *bad_block)
{
    if (missing != NULL) {
        *missing = r->missing;
    }
    if (r->status != GW_OK && bad_block != NULL) {
        *bad_block = r->bad_block;
    }
    return r->status;
}

/* Lanes at `lanes`, members from `members` or, where that is NULL, from the count lanes at `counts`. */
static gw_status decode_lanes(gw_thc_receiver *r, const uint8_t *lanes, const uint32_t *members,
                              const uint8_t *counts, const uint32_t *patterns, uint64_t *missing,
                              uint64_t *bad_block)
{
    unsigned lane_bits = r->thc->config.lane_bits;
    size_t lane_size = lane_bits / 8;
    size_t per_block = gw_thc_patterns_per_block(r->thc);

    for (uint64_t i = 0; i < r->span.blocks; i++) {
        const uint8_t *block_lanes = lanes + (size_t)i * r->span.block_len * lane_size;
        const uint32_t *block_patterns = patterns + (size_t)i * per_block;
        uint32_t k =
            members != NULL ? members[i] : gw_thc_lane_load(counts + (size_t)i * lane_size, lane_bits);
        gw_status status =
            gw_thc_block_check(r->thc, block_lanes, gw_thc_span_lanes(&r->span, i), k, block_patterns);

        if (status != GW_OK) {
            gw_thc_receiver_fail(r, i, status);
        } else {
            gw_thc_receiver_put(r, i, block_lanes, lane_bits, k, block_patterns);
        }
    }
    return gw_thc_receiver_end(r, missing, bad_block);
}

gw_status gw_thc_decode(const gw_thc *thc, const gw_thc_range *range, const uint8_t *lanes, size_t lanes_size,
                        const uint32_t *members, const uint32_t *patterns, gw_thc_mode mode, void *dst,
                        size_t dst_capacity, void *workspace, size_t workspace_size, uint64_t *missing,
                        uint64_t *bad_block)
{
    gw_thc_receiver r;
    gw_status status =
        gw_thc_receiver_begin(&r, thc, range, lanes, mode, dst, dst_capacity, workspace, workspace_size);

    if (status == GW_OK && r.span.blocks > 0 && (members == NULL || patterns == NULL)) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && lanes_size < r.span.lanes * (thc->config.lane_bits / 8u)) {
        status = GW_ERR_SHORT;
    }
    return status == GW_OK ? decode_lanes(&r, lanes, members, NULL, patterns, missing, bad_block) : status;
}

gw_status gw_thc_decode_reduced(const gw_thc *thc, const gw_thc_range *range, const uint8_t *reduced,
                                size_t reduced_size, const uint32_t *patterns, gw_thc_mode mode, void *dst,
                                size_t dst_capacity, void *workspace, size_t workspace_size,
                                uint64_t *missing, uint64_t *bad_block)
{
    gw_thc_receiver r;
    gw_status status =
        gw_thc_receiver_begin(&r, thc, range, reduced, mode, dst, dst_capacity, workspace, workspace_size);

    if (status == GW_OK && r.span.blocks > 0 && patterns == NULL) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK &&
        reduced_size < gw_thc_reduced_size(thc, range->count, range->first_block, range->block_count)) {
        status = GW_ERR_SHORT;
    }
    if (status != GW_OK) {
        return status;
    }
    const uint8_t *counts = reduced + r.span.lanes * (thc->config.lane_bits / 8u);
    return decode_lanes(&r, reduced, NULL, counts, patterns, missing, bad_block);
}

uint32_t gw_thc_reduced_members(const gw_thc *thc, const gw_thc_range *range, const uint8_t *reduced,
                                size_t reduced_size, uint64_t i)
{
    gw_thc_span span;

    if (reduced == NULL || gw_thc_span_make(&span, thc, range) != GW_OK || i >= span.blocks ||
        reduced_size < gw_thc_reduced_size(thc, range->count, range->first_block, range->block_count)) {
        return UINT32_MAX;
    }
    unsigned lane_bits = thc->config.lane_bits;
    return gw_thc_lane_load(reduced + (span.lanes + (size_t)i) * (lane_bits / 8), lane_bits);
}

gw_status gw_thc_receiver_put_indices(gw_thc_receiver *r, uint64_t i, const uint8_t *indices,
                                      const uint32_t *patterns)
{
    const gw_thc_config *config = &r->thc->config;
    size_t lane_count = gw_thc_span_lanes(&r->span, i);
    gw_thc_block_kind kind = gw_thc_block_read(r->thc, patterns);

    if (kind == GW_THC_BLOCK_INVALID) {
        return GW_ERR_CORRUPT;
    }
    if (kind != GW_THC_BLOCK_CODED && !gw_is_zero(indices, lane_count / 8 * config->table.bits)) {
        return GW_ERR_CORRUPT;
    }
    GW_MEMSET(r->scratch.index, 0, lane_count);
    gw_thc_kernels_of(r->thc)->add_indices(r->scratch.index, indices, lane_count, config->table.bits,
                                           config->table.value, 8);
    gw_thc_receiver_put(r, i, r->scratch.index, 8, 1, patterns);
    return GW_OK;
}

gw_status gw_thc_decode_indices(const gw_thc *thc, const gw_thc_range *range, const uint8_t *indices,
                                size_t indices_size, const uint32_t *patterns, void *dst, size_t dst_capacity,
                                void *workspace, size_t workspace_size, uint64_t *bad_block)
{
    gw_thc_receiver r;
    gw_status status = gw_thc_receiver_begin(&r, thc, range, indices, GW_THC_SUM, dst, dst_capacity,
                                             workspace, workspace_size);

    if (status == GW_OK && r.span.blocks > 0 && patterns == NULL) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && indices_size < r.span.lanes / 8 * thc->config.table.bits) {
        status = GW_ERR_SHORT;
    }
    if (status != GW_OK) {
        return status;
    }
    for (uint64_t i = 0; i < r.span.blocks; i++) {
        const uint8_t *block = indices + (size_t)i * (r.span.block_len / 8) * thc->config.table.bits;
        status =
            gw_thc_receiver_put_indices(&r, i, block, patterns + (size_t)i * gw_thc_patterns_per_block(thc));
        if (status != GW_OK) {
            gw_thc_receiver_fail(&r, i, status);
        }
    }
    return gw_thc_receiver_end(&r, NULL, bad_block);
}

gw_status gw_thc_expand(const gw_thc *thc, const gw_thc_range *range, const uint8_t *indices,
                        size_t indices_size, uint8_t *dst, size_t dst_capacity)
{
    gw_thc_span span;
    gw_status status = gw_thc_span_make(&span, thc, range);

    if (status != GW_OK) {
        return status;
    }
    if (span.blocks > 0 && (indices == NULL || dst == NULL)) {
        return GW_ERR_ARG;
    }
    unsigned lane_bits = thc->config.lane_bits;
    size_t size = gw_thc_reduced_size(thc, range->count, range->first_block, range->block_count);
    if (indices_size < span.lanes / 8 * thc->config.table.bits) {
        return GW_ERR_SHORT;
    }
    if (dst_capacity < size) {
        return GW_ERR_DST;
    }
    GW_MEMSET(dst, 0, size);
    gw_thc_kernels_of(thc)->add_indices(dst, indices, span.lanes, thc->config.table.bits,
                                        thc->config.table.value, lane_bits);
    uint8_t *counts = dst + span.lanes * (lane_bits / 8);
    for (uint64_t i = 0; i < span.blocks; i++) {
        counts[(size_t)i * (lane_bits / 8)] = 1; /* little-endian lane of value 1 */
    }
    return GW_OK;
}
