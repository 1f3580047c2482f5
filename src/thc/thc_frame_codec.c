/*
 * Frames made from values, and values from frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_decode.h"
#include "thc/thc_frame.h"

static uint32_t config_flags(const gw_thc_config *config)
{
    uint32_t flags = 0;

    if (config->transform == GW_THC_ROTATED) {
        flags |= GW_THC_FLAG_ROTATED;
    }
    if (config->nonfinite == GW_THC_NONFINITE_PROPAGATE) {
        flags |= GW_THC_FLAG_NONFINITE;
    }
    return flags;
}

static size_t bound_of(const gw_thc *thc, uint64_t count, uint32_t flags)
{
    gw_thc_frame_info info;

    if (!gw_thc_is_ready(thc) || gw_thc_block_count(thc, count) > (uint64_t)1 << 32) {
        return thc != NULL && thc->tag == GW_THC_TAG ? SIZE_MAX : 0;
    }
    GW_MEMSET(&info, 0, sizeof info);
    info.config = thc->config;
    info.flags = flags;
    info.count = count;
    info.block_count = gw_thc_block_count(thc, count);
    gw_thc_frame_place(&info);
    return info.frame_size > SIZE_MAX ? SIZE_MAX : (size_t)info.frame_size;
}

size_t gw_thc_frame_bound(const gw_thc *thc, uint64_t count, uint32_t flags)
{
    return bound_of(thc, count, flags & GW_THC_FLAG_CHECKSUM);
}

size_t gw_thc_frame_sum_bound(const gw_thc *thc, uint64_t count, uint32_t flags)
{
    return bound_of(thc, count, GW_THC_FLAG_SUM | (flags & (GW_THC_FLAG_CHECKSUM | GW_THC_FLAG_BLOCK_SETS)));
}

gw_status gw_thc_frame_encode(const gw_thc *thc, const gw_thc_range *range, uint32_t flags, const void *src,
                              float *error, const uint32_t *patterns, uint8_t *dst, size_t dst_capacity,
                              size_t *dst_size, void *workspace, size_t workspace_size, uint64_t *bad_block)
{
    gw_thc_span span;
    gw_thc_frame_info info;

    if (dst_size == NULL) {
        return GW_ERR_ARG;
    }
    *dst_size = 0;
    gw_status status = gw_thc_span_make(&span, thc, range);
    if (status != GW_OK) {
        return status;
    }
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    if ((flags & ~GW_THC_FLAG_CHECKSUM) != 0) {
        return GW_ERR_OPTION;
    }
    if (span.blocks > UINT32_MAX) { /* the header's block_count has 32 bits */
        return GW_ERR_LIMIT;
    }
    GW_MEMSET(&info, 0, sizeof info);
    info.config = thc->config;
    info.flags = flags | config_flags(&thc->config);
    info.round = range->round;
    info.rank = range->rank;
    info.first_block = span.first;
    info.block_count = span.blocks;
    info.count = span.elements;
    gw_thc_frame_place(&info);
    if (info.frame_size > dst_capacity) {
        return GW_ERR_DST;
    }
    status = gw_thc_encode(thc, range, src, error, patterns, dst + info.payload_offset,
                           (size_t)info.payload_size, workspace, workspace_size, bad_block);
    if (status != GW_OK) {
        return status;
    }
    gw_thc_frame_write_header(dst, &info);
    for (size_t i = 0; i < (size_t)span.blocks * gw_thc_patterns_per_block(thc); i++) {
        gw_store32(dst + info.norms_offset + 4 * i, patterns[i]);
    }
    gw_thc_frame_seal(dst, &info);
    *dst_size = (size_t)info.frame_size;
    return GW_OK;
}

gw_status gw_thc_frame_decode(const uint8_t *src, size_t src_size, uint64_t count_max, gw_thc_mode mode,
                              void *dst, size_t dst_capacity, size_t *dst_len, gw_thc *thc_memory,
                              void *workspace, size_t workspace_size, uint64_t *missing, uint64_t *bad_block,
                              uint32_t backends)
{
    gw_thc_frame_info info;
    gw_thc_receiver r;

    if (dst_len == NULL || thc_memory == NULL) {
        return GW_ERR_ARG;
    }
    *dst_len = 0;
    gw_status status = gw_thc_frame_open(src, src_size, count_max, &info);
    if (status == GW_OK) {
        status = gw_thc_init(thc_memory, &info.config, backends);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_thc_range range = gw_thc_frame_range(&info);
    status = gw_thc_receiver_begin(&r, thc_memory, &range, src, mode, dst, dst_capacity, workspace,
                                   workspace_size);
    if (status != GW_OK) {
        return status;
    }
    if (!gw_thc_frame_checksum_good(src, &info)) {
        if (r.span.elements > 0) {
            GW_MEMSET(dst, 0, r.span.elements * r.element_size);
        }
        return GW_ERR_CHECKSUM;
    }
    for (uint64_t i = 0; i < info.block_count; i++) {
        uint32_t patterns[2];
        const uint8_t *payload = src + gw_thc_frame_block_offset(&info, i);

        gw_thc_frame_patterns(patterns, src, &info, i);
        status = gw_thc_frame_check_block(thc_memory, src, &info, i);
        if (status != GW_OK) {
            gw_thc_receiver_fail(&r, i, status);
        } else if ((info.flags & GW_THC_FLAG_SUM) == 0) {
            (void)gw_thc_receiver_put_indices(&r, i, payload, patterns); /* its checks were just made */
        } else {
            gw_thc_receiver_put(&r, i, payload, info.config.lane_bits, gw_thc_frame_members(src, &info, i),
                                patterns);
        }
    }
    r.bad_block -= r.status != GW_OK ? info.first_block : 0; /* relative to the frame */
    status = gw_thc_receiver_end(&r, missing, bad_block);
    if (status == GW_OK) {
        *dst_len = r.span.elements;
    }
    return status;
}
