/*
 * Frames made from values, and values from frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_decode.h"
#include "thc/thc_frame.h"

static uint32_t flags_of(const gw_thc_options *options)
{
    return (options->transform == GW_THC_ROTATED ? GW_THC_FLAG_ROTATED : 0u) |
           (options->nonfinite == GW_THC_NONFINITE_PROPAGATE ? GW_THC_FLAG_NONFINITE : 0u) |
           (options->checksum != 0 ? GW_THC_FLAG_CHECKSUM : 0u);
}

static size_t bound_of(const gw_thc *thc, uint64_t len, uint32_t flags)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    gw_thc_frame_info info;

    if (options == NULL) {
        return 0;
    }
    GW_MEMSET(&info, 0, sizeof info);
    info.options = *options;
    info.flags = flags;
    info.len = len;
    info.block_count = gw_thc_block_count(thc, len);
    if (info.block_count > (uint64_t)1 << 32) {
        return SIZE_MAX;
    }
    gw_thc_frame_place(&info);
    return info.frame_size > SIZE_MAX ? SIZE_MAX : (size_t)info.frame_size;
}

size_t gw_thc_frame_bound(const gw_thc *thc, uint64_t len)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    return options != NULL ? bound_of(thc, len, flags_of(options)) : 0;
}

size_t gw_thc_frame_sum_bound(const gw_thc *thc, uint64_t len, uint32_t flags)
{
    return bound_of(thc, len, GW_THC_FLAG_SUM | (flags & GW_THC_SUM_FLAGS));
}

/* The header of a frame of this range. */
static gw_status describe(gw_thc_frame_info *info, const gw_thc *thc, const gw_thc_range *range)
{
    gw_thc_span span;
    gw_status status = gw_thc_span_make(&span, thc, range);

    if (status != GW_OK) {
        return status;
    }
    if (span.blocks > UINT32_MAX) { /* the header's block_count has 32 bits */
        return GW_ERR_LIMIT;
    }
    GW_MEMSET(info, 0, sizeof *info);
    info->options = span.thc->options;
    info->flags = flags_of(&info->options);
    info->round = range->round;
    info->rank = range->rank;
    info->block_first = span.first;
    info->block_count = span.blocks;
    info->len = span.elements;
    gw_thc_frame_place(info);
    return GW_OK;
}

gw_status gw_thc_frame_encode(const gw_thc *thc, const gw_thc_range *range, const gw_thc_source *source,
                              gw_buffer *dst, uint64_t *bad_block, const gw_workspace *workspace)
{
    gw_thc_frame_info info;

    gw_thc_report_block(bad_block, UINT64_MAX);
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_status status = describe(&info, thc, range);
    if (status != GW_OK) {
        return status;
    }
    if (dst->data == NULL) {
        return GW_ERR_ARG;
    }
    if (info.frame_size > dst->capacity) {
        return GW_ERR_DST;
    }
    uint8_t *out = dst->data;
    gw_buffer indices = {out + info.payload_offset, (size_t)info.payload_size, 0};
    status = gw_thc_encode(thc, range, source, &indices, bad_block, workspace);
    if (status != GW_OK) {
        return status;
    }
    gw_thc_frame_write_header(out, &info);
    for (size_t i = 0; i < (size_t)info.block_count * gw_thc_pattern_count(&info.options); i++) {
        gw_store32(out + info.norms_offset + 4 * i, source->patterns[i]);
    }
    gw_thc_frame_seal(out, &info);
    dst->size = (size_t)info.frame_size;
    return GW_OK;
}

/* One block: checked, then decoded or zero-filled. */
static void decode_block(gw_thc_receiver *r, gw_thc_target *target, const uint8_t *src,
                         const gw_thc_frame_info *info, uint64_t i)
{
    uint32_t patterns[2];
    gw_thc_block block = {.lanes = src + gw_thc_frame_block_offset(info, i),
                          .lane_count = gw_thc_frame_block_lanes(info, i),
                          .lane_bits = info->options.lane_bits,
                          .patterns = patterns};
    gw_status status = gw_thc_frame_check_block(r->span.thc, src, info, i);

    gw_thc_frame_patterns(patterns, src, info, i);
    if (status != GW_OK) {
        gw_thc_receiver_fail(r, target, i, status);
    } else if ((info->flags & GW_THC_FLAG_SUM) == 0) {
        (void)gw_thc_receiver_put_indices(r, target, i, block.lanes, patterns); /* just checked */
    } else {
        block.members = gw_thc_frame_members(src, info, i);
        gw_thc_receiver_put(r, target, i, &block);
    }
}

gw_status gw_thc_frame_decode(const gw_thc_frame *frame, gw_thc_mode mode, gw_thc_target *target,
                              const gw_workspace *workspace)
{
    gw_thc_frame_info info;
    gw_thc_state thc;
    gw_thc_receiver r;
    gw_status status = gw_thc_target_clear(target);

    if (status == GW_OK) {
        status = gw_thc_frame_open(frame, &info);
    }
    if (status == GW_OK) {
        status = gw_thc_state_init(&thc, &info.options);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_thc_range range = gw_thc_frame_range(&info);
    status = gw_thc_span_fill(&r.span, &thc, &range);
    if (status == GW_OK) {
        status = gw_thc_receiver_begin(&r, frame->data, mode, target, workspace);
    }
    if (status != GW_OK) {
        return status;
    }
    if (!gw_thc_frame_checksum_good(frame->data, &info)) {
        if (r.span.elements > 0) {
            GW_MEMSET(target->values, 0, r.span.elements * r.element_size);
        }
        return GW_ERR_CHECKSUM;
    }
    status = gw_thc_frame_check_empty(frame->data, &info);
    if (status != GW_OK) {
        return status;
    }
    for (uint64_t i = 0; i < info.block_count; i++) {
        decode_block(&r, target, frame->data, &info, i);
    }
    if (r.status != GW_OK) {
        target->bad_block -= info.block_first; /* relative to the frame */
    }
    return gw_thc_receiver_end(&r, target);
}
