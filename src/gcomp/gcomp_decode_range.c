/*
 * Decode: ranges of chunks, whole frames, and several frames at once.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"
#include "gcomp/target.h"

/* ---- ranges -------------------------------------------------------------------------------------------- */

/* A frame whose values take at least this many bytes is decoded with non-temporal stores. Most values would
 * leave the last-level cache before they are read, and these stores do not fetch the old contents of memory.
 * Measured with 32 MiB of cache: equal at 8 MiB, 1.2 times as fast from 16 MiB on. */
#define STREAM_SIZE ((uint64_t)16 << 20)

typedef enum decode_mode { DECODE_VALUES, DECODE_ADD, DECODE_VALIDATE } decode_mode;

static gw_status decode_chunks(gw_decoding *d, const gw_gcomp_range *range, uint8_t *dst, decode_mode mode,
                               uint64_t *bad_chunk)
{
    const size_t size = gw_traits_of((uint32_t)d->info.dtype)->size;
    uint8_t *const local = d->scratch.sums;
    gw_status first_error = GW_OK;
    for (uint64_t i = 0; i < range->chunk_count; i++) {
        const uint64_t index = range->chunk_first + i;
        const size_t len = gw_frame_chunk_len(&d->info, index);
        uint8_t *place = mode == DECODE_VALIDATE ? NULL : dst + (size_t)(i << d->info.chunk_log2) * size;
        if (mode == DECODE_ADD) {
            d->beside = place;
            d->beside_size = len * size;
        }
        gw_status status = gw_decode_chunk(d, index, mode == DECODE_VALUES ? place : local);
        if (status == GW_OK && mode == DECODE_ADD) {
            gw_add_values(d->codec, &d->info, place, place, local, len);
        }
        if (status != GW_OK && first_error == GW_OK) {
            first_error = status;
            *bad_chunk = index;
        }
    }
    return first_error;
}

/* Values of a range; UINT64_MAX if the range is not within the frame, or if no frame has this info. */
static uint64_t range_len(const gw_gcomp_frame_info *info, const gw_gcomp_range *range)
{
    if (!gw_frame_is_info_valid(info) || range->chunk_first > info->chunk_count ||
        range->chunk_count > info->chunk_count - range->chunk_first) {
        return UINT64_MAX;
    }
    const uint64_t first_value = range->chunk_first << info->chunk_log2;
    return gw_min_u64(info->len - gw_min_u64(first_value, info->len), range->chunk_count << info->chunk_log2);
}

static gw_status check_target(const gw_gcomp_target *target, const gw_gcomp_frame *frame,
                              const gw_gcomp_frame_info *info, uint64_t len)
{
    if (len > target->capacity) {
        return GW_ERR_DST;
    }
    const size_t values_size = (size_t)len * gw_traits_of((uint32_t)info->dtype)->size;
    if ((len != 0 && target->values == NULL) ||
        gw_is_overlapping(target->values, values_size, frame->data, (size_t)info->frame_size)) {
        return GW_ERR_ARG;
    }
    return GW_OK;
}

/* 0 if there is no target to reset. */
static int reset_target(gw_gcomp_target *target)
{
    if (target != NULL) {
        gw_target_reset(target);
    }
    return target != NULL;
}

/* The target was reset. */
static gw_status decode_range(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                              const gw_gcomp_frame_info *info, const gw_gcomp_range *range,
                              gw_gcomp_target *target, const gw_workspace *workspace, decode_mode mode)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (codec == NULL || frame == NULL || frame->data == NULL || info == NULL || range == NULL ||
        !gw_target_is_scale_valid(target)) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    const gw_gcomp_map *map = frame->map;
    const uint64_t len = range_len(info, range);
    if (len == UINT64_MAX || frame->size < info->frame_size || info->dtype != inside->options.dtype ||
        !gw_info_fits_map(info, map)) {
        return GW_ERR_ARG;
    }
    gw_status status = mode == DECODE_VALIDATE ? GW_OK : check_target(target, frame, info, len);
    if (status != GW_OK) {
        return status;
    }
    gw_decoding d;
    status = gw_decoding_begin(&d, inside, frame, info, workspace);
    if (status != GW_OK) {
        return status;
    }
    d.scale = gw_target_scale(target);
    d.scratch.joiner->stream = mode == DECODE_VALUES && d.scale == 1 &&
                               info->len * gw_traits_of((uint32_t)info->dtype)->size >= STREAM_SIZE;
    status = decode_chunks(&d, range, (uint8_t *)target->values, mode, &target->bad_chunk);
    inside->kernels.gcomp.fence();
    target->len = status == GW_OK ? len : 0;
    return status;
}

static gw_status decode_frame(const gw_gcomp *codec, const gw_gcomp_frame *frame, gw_gcomp_target *target,
                              const gw_workspace *workspace, decode_mode mode)
{
    if (!reset_target(target)) {
        return GW_ERR_ARG;
    }
    gw_gcomp_frame_info info;
    const gw_status status = gw_gcomp_frame_parse(codec, frame, &info);
    const gw_gcomp_range all = {0, info.chunk_count};
    return status != GW_OK ? status : decode_range(codec, frame, &info, &all, target, workspace, mode);
}

gw_status gw_gcomp_frame_check(const gw_gcomp *codec, const gw_gcomp_frame *frame, uint64_t *bad_chunk,
                               const gw_workspace *workspace)
{
    gw_gcomp_target nowhere = {NULL, 0, 0, 0, 0, 0};
    const gw_status status = decode_frame(codec, frame, &nowhere, workspace, DECODE_VALIDATE);
    if (bad_chunk != NULL) {
        *bad_chunk = nowhere.bad_chunk;
    }
    return status;
}

gw_status gw_gcomp_decode(const gw_gcomp *codec, const gw_gcomp_frame *frame, gw_gcomp_target *target,
                          const gw_workspace *workspace)
{
    return decode_frame(codec, frame, target, workspace, DECODE_VALUES);
}

gw_status gw_gcomp_decode_add(const gw_gcomp *codec, const gw_gcomp_frame *frame, gw_gcomp_target *target,
                              const gw_workspace *workspace)
{
    return decode_frame(codec, frame, target, workspace, DECODE_ADD);
}

gw_status gw_gcomp_decode_range(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                const gw_gcomp_frame_info *info, const gw_gcomp_range *range,
                                gw_gcomp_target *target, const gw_workspace *workspace)
{
    if (!reset_target(target)) {
        return GW_ERR_ARG;
    }
    return decode_range(codec, frame, info, range, target, workspace, DECODE_VALUES);
}

gw_status gw_gcomp_decode_add_range(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                    const gw_gcomp_frame_info *info, const gw_gcomp_range *range,
                                    gw_gcomp_target *target, const gw_workspace *workspace)
{
    if (!reset_target(target)) {
        return GW_ERR_ARG;
    }
    return decode_range(codec, frame, info, range, target, workspace, DECODE_ADD);
}

/* ---- several frames ------------------------------------------------------------------------------------ */

/* Adds chunk `index` of a frame to `from`, with the sums in `to`; both have room for a chunk. */
static gw_status add_chunk_of(gw_decoding *d, uint64_t index, const uint8_t *from, uint8_t *to)
{
    d->addend = d->scale == 1 ? from : NULL;
    const gw_status status = gw_decode_chunk(d, index, to);
    if (status == GW_OK && d->addend == NULL) {
        gw_add_values(d->codec, &d->info, to, from, to, gw_frame_chunk_len(&d->info, index));
    }
    return status;
}

/* Frames that are added together; *common is the header of the first. */
typedef struct frame_list {
    const gw_codec *codec;
    const gw_gcomp_frame *frames;
    size_t frame_count;
    gw_gcomp_frame_info common;
} frame_list;

/* Adds one chunk of all frames to the values at `place`. Each frame is opened anew: its header is checked
 * again, so that bytes that change meanwhile cannot lead outside the buffers. */
static gw_status add_chunk_of_frames(const frame_list *list, uint64_t index, gw_gcomp_target *target,
                                     const gw_workspace *workspace, uint8_t *place)
{
    const gw_gcomp_frame_info *common = &list->common;
    const gw_gcomp_frame *frames = list->frames;
    const size_t size = gw_traits_of((uint32_t)common->dtype)->size;
    const size_t len = gw_frame_chunk_len(common, index);
    const uint8_t *from = place;
    for (size_t f = 0; f < list->frame_count; f++) {
        gw_decoding d;
        gw_status status = gw_decoding_reopen(&d, list->codec, &frames[f], common, workspace);
        if (status == GW_OK) {
            /* Two buffers in turn: a hop's sums have room for several chunks. */
            uint8_t *to = d.scratch.sums + (f % 2) * (size << GW_CHUNK_LOG2_MAX);
            d.scale = gw_target_scale(target);
            status = add_chunk_of(&d, index, from, to);
            from = to;
        }
        if (status != GW_OK) {
            target->bad_frame = f;
            return status;
        }
    }
    GW_MEMCPY(place, from, len * size);
    return GW_OK;
}

/* Rules 1 to 16 of all frames; *common is the first one's header. */
static gw_status check_frames(const gw_gcomp *codec, frame_list *list, gw_gcomp_target *target)
{
    gw_gcomp_frame_info *common = &list->common;
    for (size_t f = 0; f < list->frame_count; f++) {
        gw_gcomp_frame_info info;
        gw_status status = gw_gcomp_frame_parse(codec, &list->frames[f], &info);
        if (f == 0) {
            *common = info;
        }
        if (status == GW_OK && (info.len != common->len || info.chunk_log2 != common->chunk_log2)) {
            status = GW_ERR_MISMATCH;
        }
        if (status != GW_OK) {
            target->bad_frame = f;
            return status;
        }
    }
    return GW_OK;
}

gw_status gw_gcomp_decode_add_frames(const gw_gcomp *codec, const gw_gcomp_frame *frames, size_t frame_count,
                                     const gw_gcomp_range *range, gw_gcomp_target *target,
                                     const gw_workspace *workspace)
{
    if (!reset_target(target) || frames == NULL || frame_count == 0 || !gw_target_is_scale_valid(target)) {
        return GW_ERR_ARG;
    }
    frame_list list = {gw_codec_of(codec), frames, frame_count, {0}};
    gw_status status = check_frames(codec, &list, target);
    if (status != GW_OK) {
        return status;
    }
    const gw_gcomp_frame_info common = list.common;
    const gw_gcomp_range all = {0, common.chunk_count};
    range = range == NULL ? &all : range;
    const uint64_t len = range_len(&common, range);
    if (len == UINT64_MAX) {
        return GW_ERR_ARG;
    }
    for (size_t f = 0; f < frame_count && status == GW_OK; f++) {
        gw_gcomp_frame_info info = common;
        info.frame_size = frames[f].size;
        status = check_target(target, &frames[f], &info, len);
        target->bad_frame = status == GW_OK ? 0 : f;
    }
    if (status == GW_OK && (workspace == NULL || workspace->data == NULL)) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && workspace->size < gw_scratch_size(list.codec)) {
        status = GW_ERR_WORKSPACE;
    }
    if (status != GW_OK) {
        return status;
    }
    const size_t size = gw_traits_of((uint32_t)common.dtype)->size;
    size_t bad_frame = 0;
    for (uint64_t i = 0; i < range->chunk_count; i++) {
        const gw_status chunk_status =
            add_chunk_of_frames(&list, range->chunk_first + i, target, workspace,
                                (uint8_t *)target->values + (size_t)(i << common.chunk_log2) * size);
        if (chunk_status != GW_OK && status == GW_OK) {
            status = chunk_status;
            target->bad_chunk = range->chunk_first + i;
            bad_frame = target->bad_frame;
        }
    }
    target->bad_frame = bad_frame;
    target->len = status == GW_OK ? len : 0;
    return status;
}
