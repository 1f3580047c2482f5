/*
 * Join: the parts of a frame that several threads encoded become one frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"

/* Bytes of a part after its directory entries; UINT64_MAX if it is shorter than these. */
static uint64_t part_payload(const gw_gcomp_part *part)
{
    const uint64_t entries_size = GW_FRAME_ENTRY_SIZE * part->range.chunk_count;
    return part->size < entries_size ? UINT64_MAX : part->size - entries_size;
}

static void move_part(uint8_t *dst, uint64_t offset, const gw_gcomp_part *part)
{
    const size_t size = (size_t)part_payload(part);
    if (size != 0) {
        GW_MEMCPY(dst + offset, (const uint8_t *)part->area + (part->size - size), size);
    }
}

/* Returns where the first `count` parts end in the frame, or 0 if they do not follow one another from chunk 0
 * on or hold more than a frame can. */
static uint64_t parts_end(const gw_gcomp_frame_info *info, const gw_gcomp_part *parts, size_t count)
{
    uint64_t next_chunk = 0;
    uint64_t offset = info->payload_offset;
    const uint64_t end = offset + gw_frame_payload_max((uint32_t)info->dtype, info->len, info->chunk_log2);
    for (size_t p = 0; p < count; p++) {
        if (parts[p].range.chunk_first != next_chunk ||
            parts[p].range.chunk_count > info->chunk_count - next_chunk ||
            part_payload(&parts[p]) > end - offset || (parts[p].area == NULL && parts[p].size != 0)) {
            return 0;
        }
        next_chunk += parts[p].range.chunk_count;
        offset += part_payload(&parts[p]);
    }
    return offset;
}

/* The checks that all calls of join share. Fills in the codec, the source and the info of the frame. */
static gw_status begin_join(gw_encoding *e, const gw_gcomp *codec, const gw_gcomp_source *source,
                            const gw_gcomp_part *parts, size_t part_count, const gw_buffer *dst)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (codec == NULL || source == NULL || dst->data == NULL || (parts == NULL && part_count != 0)) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (!gw_encoding_is_source_valid(inside, source) || source->len > inside->options.len_max) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(e, 0, sizeof *e);
    e->codec = inside;
    e->source = source;
    gw_encoding_fill_info(&e->info, inside, source);
    return GW_OK;
}

gw_status gw_gcomp_join_begin(const gw_gcomp *codec, const gw_gcomp_source *source,
                              const gw_gcomp_part *parts, size_t part_count, gw_buffer *dst)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_encoding e;
    gw_status status = begin_join(&e, codec, source, parts, part_count, dst);
    if (status != GW_OK) {
        return status;
    }
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);
    if (bound == 0 || dst->capacity < bound) {
        return GW_ERR_DST;
    }

    e.info.frame_size = parts_end(&e.info, parts, part_count);
    const gw_gcomp_range *last = part_count == 0 ? NULL : &parts[part_count - 1].range;
    const uint64_t chunks = last == NULL ? 0 : last->chunk_first + last->chunk_count;
    if (e.info.frame_size == 0 || chunks != e.info.chunk_count) {
        return GW_ERR_ARG;
    }

    for (size_t p = 0; p < part_count; p++) {
        if (gw_is_overlapping(dst->data, bound, parts[p].area, parts[p].size)) {
            return GW_ERR_ARG;
        }
    }

    gw_encoding_aim(&e, dst);
    for (size_t p = 0; p < part_count; p++) {
        const uint8_t *area = (const uint8_t *)parts[p].area;
        const size_t entries_size = (size_t)(GW_FRAME_ENTRY_SIZE * parts[p].range.chunk_count);
        for (size_t at = 0; at < entries_size; at += GW_FRAME_ENTRY_SIZE) {
            gw_store64(e.entries + at, gw_load64(area + at) + e.offset);
            GW_MEMCPY(e.entries + at + 8, area + at + 8, GW_FRAME_ENTRY_SIZE - 8);
        }
        e.entries += entries_size;
        e.offset += part_payload(&parts[p]);
    }
    gw_encoding_finish(&e, dst);
    return GW_OK;
}

gw_status gw_gcomp_join_part(const gw_gcomp *codec, const gw_gcomp_source *source, const gw_gcomp_part *parts,
                             size_t part_count, size_t part_index, const gw_buffer *dst)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    gw_encoding e;
    const gw_status status = begin_join(&e, codec, source, parts, part_count, dst);
    if (status != GW_OK) {
        return status;
    }
    const uint64_t end = part_index < part_count ? parts_end(&e.info, parts, part_index + 1) : 0;
    if (end == 0) {
        return GW_ERR_ARG;
    }
    if (end > dst->size) {
        return GW_ERR_DST;
    }
    if (gw_is_overlapping(dst->data, dst->size, parts[part_index].area, parts[part_index].size)) {
        return GW_ERR_ARG;
    }
    move_part((uint8_t *)dst->data, end - part_payload(&parts[part_index]), &parts[part_index]);
    return GW_OK;
}

gw_status gw_gcomp_join(const gw_gcomp *codec, const gw_gcomp_source *source, const gw_gcomp_part *parts,
                        size_t part_count, gw_buffer *dst)
{
    const gw_status status = gw_gcomp_join_begin(codec, source, parts, part_count, dst);
    uint64_t end = status == GW_OK ? dst->size : 0;
    for (size_t p = part_count; status == GW_OK && p-- > 0;) {
        end -= part_payload(&parts[p]);
        move_part((uint8_t *)dst->data, end, &parts[p]);
    }
    return status;
}
