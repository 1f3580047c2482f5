/*
 * THC inside an all-reduce that adds integers: from values to lanes and counts in one call.
 *
 * The indices of all blocks are first packed into the end of dst, then expanded from front to back. Lanes are
 * at least twice as wide as indices, so the lanes of the values before v end where the indices from v on
 * begin, or earlier; those of the group that is being expanded are copied aside. Thus gw_thc_encode() sees
 * the whole range at once, as its error memory needs, and no other buffer holds the indices.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/collective.h"
#include "thc/thc_handle.h"

enum {
    GROUP_LANES = 4096,                            /* a multiple of 64 */
    GROUP_SIZE = GROUP_LANES / 8 * GW_THC_BITS_MAX /* bytes of indices */
};

size_t gw_collective_lanes_workspace_size(const gw_thc *thc)
{
    const size_t size = gw_thc_workspace_size(thc);
    return size != 0 ? size + GROUP_SIZE : 0;
}

uint64_t gw_collective_lanes_len(const gw_thc *thc, const gw_thc_range *range)
{
    gw_thc_span span;
    if (gw_thc_span_make(&span, thc, range) != GW_OK) {
        return 0;
    }
    return gw_thc_span_reduced_size(&span) / (span.thc->options.lane_bits / 8);
}

/* Turns the indices at the end of lanes[0..size) into lanes and counts. */
static void expand_in_place(const gw_thc_span *span, uint8_t *lanes, size_t size, uint8_t *group)
{
    const gw_thc_state *thc = span->thc;
    const gw_thc_table *table = &thc->options.table;
    const size_t lane_size = thc->options.lane_bits / 8;
    const uint8_t *indices = lanes + size - gw_thc_span_indices_size(span);
    for (size_t at = 0; at < span->lanes; at += GROUP_LANES) {
        const size_t len = span->lanes - at < GROUP_LANES ? span->lanes - at : GROUP_LANES;
        GW_MEMCPY(group, indices + at / 8 * table->bits, len / 8 * table->bits);
        GW_MEMSET(lanes + at * lane_size, 0, len * lane_size);
        thc->kernels.add_indices(lanes + at * lane_size, group, len, table->bits, table->value,
                                 thc->options.lane_bits);
    }
    uint8_t *counts = lanes + gw_thc_span_lanes_size(span);
    GW_MEMSET(counts, 0, (size_t)(lanes + size - counts));
    for (uint64_t i = 0; i < span->blocks; i++) {
        counts[(size_t)i * lane_size] = 1; /* little-endian lane of value 1 */
    }
}

/* 1 if the output shares bytes with what is read while it is written. */
static int is_lanes_overlap(const gw_thc *thc, const gw_thc_span *span, const gw_thc_source *source,
                            const void *dst, size_t size)
{
    const size_t patterns_size = (size_t)span->blocks * gw_thc_patterns_per_block(thc) * sizeof(uint32_t);
    const struct {
        const void *data;
        size_t size;
    } inputs[] = {
        {source->values, span->elements * gw_dtype_size(span->thc->options.dtype)},
        {source->error, span->elements * sizeof(float)},
        {source->rotated, span->lanes * sizeof(float)},
        {source->patterns, patterns_size},
        {source->own_patterns, source->rotated != NULL ? patterns_size : 0},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        if (inputs[i].data != NULL && gw_is_overlapping(dst, size, inputs[i].data, inputs[i].size)) {
            return 1;
        }
    }
    return 0;
}

gw_status gw_collective_lanes_encode(const gw_thc *thc, const gw_thc_range *range,
                                     const gw_thc_source *source, gw_buffer *dst, uint64_t *bad_block,
                                     const gw_workspace *workspace)
{
    gw_thc_span span;
    gw_thc_report_block(bad_block, UINT64_MAX);
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_status status = workspace != NULL ? gw_thc_span_make(&span, thc, range) : GW_ERR_ARG;
    if (status != GW_OK) {
        return status;
    }
    const size_t size = span.blocks != 0 ? gw_thc_span_reduced_size(&span) : 0;
    const size_t indices_size = gw_thc_span_indices_size(&span);
    gw_buffer indices = {dst->data, 0, 0};
    if (dst->data != NULL && dst->capacity >= size) {
        if (gw_is_overlapping(dst->data, size, workspace->data, workspace->size) ||
            (source != NULL && is_lanes_overlap(thc, &span, source, dst->data, size))) {
            return GW_ERR_ARG;
        }
        indices.data = (uint8_t *)dst->data + (size - indices_size);
        indices.capacity = indices_size;
    }
    /* What is too small here is too small for gw_thc_encode(), which reports errors in their order. */
    const int has_group = workspace->size >= GROUP_SIZE;
    const gw_workspace rest = {workspace->data, has_group ? workspace->size - GROUP_SIZE : 0};
    status = gw_thc_encode(thc, range, source, &indices, bad_block, &rest);
    if (status == GW_OK && size != 0) {
        expand_in_place(&span, dst->data, size, (uint8_t *)workspace->data + rest.size);
    }
    dst->size = status == GW_OK ? size : 0;
    return status;
}
