/*
 * Sums of encoded values: what frames must share, members, and the way to the families.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_frame.h"

static size_t lanes_size(const gw_classic_frame_info *info)
{
    const gw_classic_family *family = gw_classic_family_of(info->scheme);
    return family != NULL && family->sum_size != NULL ? family->sum_size(info) : 0;
}

/* Frames without elements have a sum if those with elements have one. */
static int has_sum(const gw_classic_frame_info *info)
{
    gw_classic_frame_info probe = *info;
    if (probe.len == 0) {
        probe.len = 1;
        probe.keep_len = 1;
    }
    return (info->flags & GW_CLASSIC_FLAG_VOTE) == 0 && lanes_size(&probe) > 0;
}

size_t gw_classic_sum_size(const gw_classic_frame_info *info)
{
    return info != NULL && has_sum(info) ? lanes_size(info) : 0;
}

/* GW_OK if frames like this one have a sum for which these lanes suffice. */
static gw_status check_lanes(const gw_classic_sum *sum, const gw_classic_frame_info *info)
{
    if (!has_sum(info)) {
        return GW_ERR_OPTION;
    }
    const size_t size = lanes_size(info);
    if (size > 0 && (sum->lanes == NULL || (uintptr_t)sum->lanes % sizeof(int32_t) != 0)) {
        return GW_ERR_ARG;
    }
    return sum->size >= size ? GW_OK : GW_ERR_DST;
}

/* Frames of one sum differ in rank and checksum only. */
static int is_alike(const gw_classic_frame_info *a, const gw_classic_frame_info *b)
{
    return a->scheme == b->scheme && a->dtype == b->dtype && a->values == b->values &&
           a->coding == b->coding && a->norm == b->norm &&
           ((a->flags ^ b->flags) & ~GW_CLASSIC_FLAG_CHECKSUM) == 0 && a->level_max == b->level_max &&
           a->block_len == b->block_len && a->round == b->round && a->seed == b->seed &&
           a->element_first == b->element_first && a->len == b->len && a->keep_len == b->keep_len;
}

gw_status gw_classic_sum_add(gw_classic_sum *sum, const gw_classic_frame *first,
                             const gw_classic_frame *frame, const gw_workspace *workspace)
{
    gw_classic_frame_info first_info;
    gw_classic_reading reading;

    if (sum == NULL || first == NULL || frame == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_classic_frame_open(first, &first_info);
    if (status == GW_OK) {
        status = check_lanes(sum, &first_info);
    }
    if (status == GW_OK) {
        status = gw_classic_reading_begin(&reading, frame, workspace);
    }
    if (status != GW_OK) {
        return status;
    }
    if (!is_alike(&first_info, &reading.info)) {
        return GW_ERR_MISMATCH;
    }
    if (sum->members >= GW_CLASSIC_MEMBERS_MAX) {
        return GW_ERR_OVERFLOW;
    }
    status = gw_classic_reading_check(&reading);
    if (status != GW_OK) {
        return status;
    }
    if (reading.info.len > 0) {
        const gw_classic_payload shared = {&first_info, &reading.kernels,
                                           (const uint8_t *)first->data + first_info.payload_offset,
                                           (size_t)first_info.payload_size, NULL};
        if (reading.family->sum_matches != NULL && !reading.family->sum_matches(&shared, &reading.payload)) {
            return GW_ERR_MISMATCH;
        }
        reading.family->sum_add(sum->lanes, &reading.payload);
    }
    sum->members++;
    return GW_OK;
}

/* What votes and decoders of sums share. */
static gw_status open_first(gw_classic_reading *reading, const gw_classic_sum *sum,
                            const gw_classic_frame *first, const gw_workspace *workspace)
{
    if (sum == NULL || first == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_classic_reading_begin(reading, first, workspace);
    if (status == GW_OK) {
        status = check_lanes(sum, &reading->info);
    }
    if (status == GW_OK && sum->members == 0) {
        status = GW_ERR_STATE;
    }
    return status;
}

gw_status gw_classic_sum_vote(const gw_classic_sum *sum, const gw_classic_frame *first, gw_buffer *dst,
                              const gw_workspace *workspace)
{
    gw_classic_reading reading;

    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_status status = open_first(&reading, sum, first, workspace);
    if (status != GW_OK) {
        return status;
    }
    if (reading.family->sum_vote == NULL) {
        return GW_ERR_OPTION;
    }
    if (dst->data == NULL) {
        return GW_ERR_ARG;
    }
    gw_classic_frame_info info = reading.info;
    info.flags |= GW_CLASSIC_FLAG_VOTE;
    gw_classic_frame_place(&info);
    if (dst->capacity < info.frame_size) {
        return GW_ERR_DST;
    }
    status = gw_classic_reading_check(&reading);
    if (status != GW_OK) {
        return status;
    }
    uint8_t *out = (uint8_t *)dst->data;
    if (info.len > 0) {
        reading.family->sum_vote(sum->lanes, &reading.payload, out + info.payload_offset);
    }
    gw_classic_frame_seal(out, &info, &reading.kernels);
    dst->size = (size_t)info.frame_size;
    return GW_OK;
}

gw_status gw_classic_sum_decode(const gw_classic_sum *sum, const gw_classic_frame *first,
                                gw_classic_target *target, const gw_workspace *workspace)
{
    gw_classic_reading reading;
    gw_classic_sink sink;

    if (target == NULL) {
        return GW_ERR_ARG;
    }
    target->len = 0;
    gw_status status = open_first(&reading, sum, first, workspace);
    if (status == GW_OK) {
        status = gw_classic_sink_make(&sink, target, reading.info.len, GW_FP32);
    }
    return status == GW_OK ? gw_classic_reading_decode(&reading, &sink, sum->lanes, target) : status;
}
