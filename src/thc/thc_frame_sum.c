/*
 * Sums of frames: lanes and contributor sets in a frame of their own, so that sums of sums are sums.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_aggregate.h"
#include "thc/thc_frame.h"

gw_status gw_thc_frame_sum_init(const uint8_t *like, size_t like_size, uint32_t flags, uint8_t *dst,
                                size_t dst_capacity, size_t *dst_size, uint32_t backends)
{
    gw_thc_frame_info info;

    if (dst == NULL || dst_size == NULL) {
        return GW_ERR_ARG;
    }
    *dst_size = 0;
    if ((flags & ~(GW_THC_FLAG_CHECKSUM | GW_THC_FLAG_BLOCK_SETS)) != 0) {
        return GW_ERR_OPTION;
    }
    gw_status status = gw_thc_frame_check(like, like_size, UINT64_MAX, &info, NULL, backends);
    if (status != GW_OK) {
        return status;
    }
    uint64_t norms_size = info.sets_offset - info.norms_offset;
    info.flags = (info.flags & (GW_THC_FLAG_ROTATED | GW_THC_FLAG_NONFINITE)) | GW_THC_FLAG_SUM | flags;
    info.rank = 0;
    gw_thc_frame_place(&info);
    if (info.frame_size > SIZE_MAX) {
        return GW_ERR_LIMIT;
    }
    if (info.frame_size > dst_capacity) {
        return GW_ERR_DST;
    }
    GW_MEMSET(dst, 0, (size_t)info.frame_size);
    gw_thc_frame_write_header(dst, &info);
    GW_MEMCPY(dst + info.norms_offset, like + GW_THC_FRAME_HEADER_SIZE, (size_t)norms_size);
    gw_thc_frame_seal(dst, &info);
    *dst_size = (size_t)info.frame_size;
    return GW_OK;
}

/* Whether two frames are of the same tensor, round and configuration. */
static gw_status check_same(const uint8_t *sum, const gw_thc_frame_info *a, const uint8_t *frame,
                            const gw_thc_frame_info *b)
{
    const gw_thc_config *ca = &a->config;
    const gw_thc_config *cb = &b->config;

    if (ca->job != cb->job || a->round != b->round) {
        return GW_ERR_ROUND;
    }
    if (ca->dtype != cb->dtype || ca->block_log2 != cb->block_log2 || ca->transform != cb->transform ||
        ca->nonfinite != cb->nonfinite || a->count != b->count || a->first_block != b->first_block) {
        return GW_ERR_HEADER;
    }
    if (ca->table.bits != cb->table.bits || ca->table.granularity != cb->table.granularity ||
        ca->lane_bits != cb->lane_bits || ca->worker_max != cb->worker_max ||
        ca->threshold_bits != cb->threshold_bits || ca->seed != cb->seed) {
        return GW_ERR_HEADER;
    }
    for (unsigned z = 0; z < 16; z++) {
        if (ca->table.value[z] != cb->table.value[z]) {
            return GW_ERR_HEADER;
        }
    }
    for (uint64_t i = a->norms_offset; i < a->sets_offset; i += 4) {
        if (gw_load32(sum + i) != gw_load32(frame + i)) {
            return GW_ERR_HEADER;
        }
    }
    return GW_OK;
}

/* Sets of a frame against those of the sum: disjoint, or GW_ERR_DUP. */
static gw_status check_sets(const uint8_t *sum, const gw_thc_frame_info *a, const uint8_t *frame,
                            const gw_thc_frame_info *b, uint64_t *bad_block)
{
    uint64_t sets = (a->flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? a->block_count : 1;

    for (uint64_t i = 0; i < sets; i++) {
        const uint8_t *own = sum + gw_thc_frame_set_offset(a, i);
        int meet = (b->flags & GW_THC_FLAG_SUM) != 0
                       ? gw_thc_sets_meet(own, frame + gw_thc_frame_set_offset(b, i), a->config.worker_max)
                       : gw_set_has(own, b->rank);
        if (meet) {
            if (bad_block != NULL) {
                *bad_block = i;
            }
            return GW_ERR_DUP;
        }
    }
    return GW_OK;
}

gw_status gw_thc_frame_sum_add(uint8_t *sum, size_t sum_size, const uint8_t *frame, size_t frame_size,
                               uint64_t *bad_block, uint32_t backends)
{
    gw_thc_frame_info a;
    gw_thc_frame_info b;

    if (sum == NULL || frame == NULL) {
        return GW_ERR_ARG;
    }
    if (gw_thc_frame_open(sum, sum_size, UINT64_MAX, &a) != GW_OK || (a.flags & GW_THC_FLAG_SUM) == 0) {
        return GW_ERR_STATE;
    }
    gw_status status = gw_thc_frame_check(frame, frame_size, UINT64_MAX, &b, bad_block, backends);
    if (status == GW_OK) {
        status = check_same(sum, &a, frame, &b);
    }
    if (status == GW_OK && (b.flags & GW_THC_FLAG_BLOCK_SETS) != 0 &&
        (a.flags & GW_THC_FLAG_BLOCK_SETS) == 0) {
        status = GW_ERR_OPTION;
    }
    if (status == GW_OK) {
        status = check_sets(sum, &a, frame, &b, bad_block);
    }
    if (status != GW_OK) {
        return status;
    }

    gw_kernels kernels;
    gw_kernels_init(&kernels, backends);
    int is_sum = (b.flags & GW_THC_FLAG_SUM) != 0;
    uint64_t sets = (a.flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? a.block_count : 1;
    for (uint64_t i = 0; i < a.block_count; i++) {
        uint8_t *lanes = sum + gw_thc_frame_block_offset(&a, i);
        const uint8_t *payload = frame + gw_thc_frame_block_offset(&b, i);
        if (is_sum) {
            kernels.thc.add_lanes(lanes, payload, gw_thc_frame_block_lanes(&a, i), a.config.lane_bits);
        } else {
            kernels.thc.add_indices(lanes, payload, gw_thc_frame_block_lanes(&a, i), a.config.table.bits,
                                    a.config.table.value, a.config.lane_bits);
        }
    }
    for (uint64_t i = 0; i < sets; i++) {
        uint8_t *set = sum + gw_thc_frame_set_offset(&a, i);
        if (is_sum) {
            gw_thc_set_join(set, frame + gw_thc_frame_set_offset(&b, i), a.config.worker_max);
        } else {
            gw_set_put(set, b.rank);
        }
    }
    gw_thc_frame_seal(sum, &a);
    return GW_OK;
}
