/*
 * Encode: precision -> split -> entropy -> pack -> frame, group by group and chunk by chunk. This file has
 * the control flow, gcomp_encode_group.c what a group reads, gcomp_encode_codebook.c its codebook,
 * gcomp_encode_chunk.c the bytes of a chunk.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_encoding.h"
#include "gcomp/map_rule.h"

/* ---- begin --------------------------------------------------------------------------------------------- */

static void fill_rule(gw_round_rule *rule, const gw_codec *codec, const gw_gcomp_source *source)
{
    const gw_gcomp_options *o = &codec->options;
    GW_MEMSET(rule, 0, sizeof *rule);
    rule->dtype = (uint32_t)o->dtype;
    rule->rounding = (uint32_t)o->rounding;
    rule->derived = o->quantum_mode != GW_GCOMP_EXPLICIT;
    rule->strict = (uint32_t)o->strict;
    const gw_gcomp_map *map = gw_source_map(source);
    rule->constant = o->quantum_mode != GW_GCOMP_CARRIED && map == NULL;
    rule->dead_zone = !rule->constant && o->dead_zone;
    rule->cap = rule->constant ? o->quantum.drop : o->cap;
    rule->drop_offset = map == NULL ? 0 : gw_drop_offset(codec, o->quantum_mode, map->base);
    gw_floor_table(rule->floor, o->step);
    rule->seed = source->seed;
    rule->step_index = source->step_index;
    rule->rank_hop = (uint32_t)source->rank << 16 | source->hop;
}

void gw_encoding_fill_info(gw_gcomp_frame_info *info, const gw_codec *codec, const gw_gcomp_source *source)
{
    const gw_gcomp_options *o = &codec->options;
    const gw_gcomp_map *map = gw_source_map(source);
    const int derived = o->quantum_mode == GW_GCOMP_DERIVED;
    GW_MEMSET(info, 0, sizeof *info);
    info->dtype = o->dtype;
    info->quantum_mode = o->quantum_mode;
    info->strict = o->strict;
    info->checksum = o->checksum;
    info->chunk_log2 = o->chunk_log2;
    info->len = source->len;
    info->step = o->step;
    info->cap = o->cap;
    info->block_log2 = o->quantum_mode == GW_GCOMP_CARRIED ? o->block_log2 : 0;
    if (codec->encode_with >= 0) {
        const gw_installed_codebook *codebook = &codec->installed[codec->encode_with];
        info->installed = 1;
        info->codebook_id = codebook->id;
        info->codebook_generation = codebook->generation;
        info->codebook_crc = codebook->crc;
    }
    if (derived && map == NULL) {
        info->constant = 1;
        info->step = 1;
        info->cap = o->quantum.drop;
    }
    gw_frame_place(info, gw_frame_parts_size(info));
    if (derived && map != NULL) {
        info->drop_offset = gw_drop_offset(codec, o->quantum_mode, map->base);
        info->wire_scale = map->wire_scale;
        info->map_hash = gw_map_hash(info, map->digest, &codec->kernels);
    }
}

int gw_encoding_is_source_valid(const gw_codec *codec, const gw_gcomp_source *source)
{
    const int derived = codec->options.quantum_mode == GW_GCOMP_DERIVED;
    if (source->len > SIZE_MAX / gw_traits_of((uint32_t)codec->options.dtype)->size ||
        !gw_frame_is_len_possible(source->len, codec->options.chunk_log2)) {
        return 0;
    }
    if (source->len != 0 && source->values == NULL) {
        return 0;
    }
    if (source->segment_count != 0 && !gw_segments_cover(source)) {
        return 0;
    }
    if (!gw_source_has_quantum(source, &codec->options)) {
        return 0;
    }
    const gw_gcomp_map *map = gw_source_map(source);
    if (map == NULL) {
        const int is_constant = codec->options.quantum_mode != GW_GCOMP_CARRIED;
        return !is_constant || codec->encode_with < 0 ||
               !codec->installed[codec->encode_with].codebook.is_relative;
    }
    if (map->base < 1 || map->base > 1023 || map->len != source->len ||
        (derived && !gw_is_wire_scale(map->wire_scale))) {
        return 0;
    }
    return source->len == 0 ||
           (map->bytes != NULL &&
            (!derived || (map->digest != NULL && map->chunk_log2 == codec->options.chunk_log2)));
}

/* The first guess of a window: fp32 and bf16 values from 2^-56 to 2^7 are in it. */
enum { WINDOW_GUESS = 70 };

gw_status gw_encoding_begin(gw_encoding *encoding, const gw_gcomp *codec, const gw_gcomp_source *source,
                            const gw_workspace *workspace)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (codec == NULL || source == NULL || workspace == NULL || workspace->data == NULL) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (source->len > inside->options.len_max ||
        !gw_frame_is_len_possible(source->len, inside->options.chunk_log2)) {
        return GW_ERR_LIMIT;
    }
    if (!gw_encoding_is_source_valid(inside, source)) {
        return GW_ERR_ARG;
    }
    if (workspace->size < gw_scratch_size(inside)) {
        return GW_ERR_WORKSPACE;
    }
    GW_MEMSET(encoding, 0, sizeof *encoding);
    encoding->codec = inside;
    encoding->source = source;
    encoding->segments.segments = source->segment_count == 0 ? NULL : source->segments;
    encoding->segments.before = source->segment_offset;
    gw_encoding_fill_info(&encoding->info, inside, source);
    fill_rule(&encoding->rule, inside, source);
    encoding->window = WINDOW_GUESS;
    gw_scratch_carve(&encoding->scratch, inside, workspace->data);
    return GW_OK;
}

/* ---- group --------------------------------------------------------------------------------------------- */

void gw_encode_group(gw_encoding *e, uint64_t first, const uint8_t *values)
{
    const uint32_t log2 = e->info.chunk_log2;
    const size_t chunk_len = (size_t)1 << log2;
    const size_t len =
        (size_t)gw_min_u64(e->info.len - (first << log2), (uint64_t)gw_group_chunks(e->codec) << log2);
    gw_group group = {.first = first, .values = values, .len = len, .owner = UINT64_MAX};
    gw_split_chunk split;
    int is_split = 0;
    gw_group_begin(e, &group, 0);
    if (e->info.installed) {
        *e->scratch.codebook = e->codec->installed[e->codec->encode_with].codebook;
        gw_encoding_use_codebook(e);
    } else {
        const size_t blocks = gw_group_sample_blocks(e->codec, len);
        is_split = blocks == 1 && len <= chunk_len;
        if (!(is_split ? gw_group_split(e, &group, &split) : gw_group_survey(e, &group, blocks))) {
            for (size_t at = 0; at < len; at += chunk_len) {
                gw_encode_zero_chunk(e, first++);
            }
            return;
        }
        if (!is_split) {
            gw_encoding_use_codebook(e);
        }
        group.codebook_size = gw_codebook_size(e->scratch.codebook);
        gw_codebook_write(group.codebook, e->scratch.codebook);
        group.codebook_crc =
            e->info.checksum ? e->codec->kernels.crc32c(0, group.codebook, group.codebook_size) : 0;
    }
    for (size_t at = 0; at < len; at += chunk_len) {
        gw_encode_chunk(e, &group, first++, at, gw_min_size(len - at, chunk_len), is_split ? &split : NULL);
    }
}

/* ---- frame --------------------------------------------------------------------------------------------- */

void gw_encoding_aim(gw_encoding *e, const gw_buffer *dst)
{
    e->entries = (uint8_t *)dst->data + e->info.directory_offset;
    e->payload = (uint8_t *)dst->data + e->info.payload_offset;
    e->offset = e->info.payload_offset;
}

void gw_encoding_finish(gw_encoding *e, gw_buffer *dst)
{
    uint8_t *const bytes = (uint8_t *)dst->data;
    const size_t entries_end = (size_t)(e->info.directory_offset + GW_FRAME_ENTRY_SIZE * e->info.chunk_count);
    GW_MEMSET(bytes + entries_end, 0, (size_t)e->info.payload_offset - entries_end);
    gw_frame_write_header(bytes, &e->info);
    if (e->info.checksum) {
        e->info.meta_crc = gw_frame_meta_crc(bytes, &e->info, &e->codec->kernels);
        gw_frame_write_header(bytes, &e->info);
    }
    dst->size = (size_t)e->info.frame_size;
}

/* Encodes a range that is aligned and within the frame. */
static void encode_groups(gw_encoding *e, const gw_gcomp_range *range)
{
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    const uint64_t end = range->chunk_first + range->chunk_count;
    for (uint64_t chunk = range->chunk_first; chunk < end; chunk += gw_group_chunks(e->codec)) {
        gw_encode_group(e, chunk,
                        (const uint8_t *)e->source->values + (size_t)(chunk << e->info.chunk_log2) * size);
    }
}

/* 1 if the size bytes at dst share one with the values of the source. */
static int is_over_values(const gw_encoding *e, const void *dst, size_t size)
{
    const size_t values_size = (size_t)e->source->len * gw_traits_of(e->rule.dtype)->size;
    return gw_is_overlapping(dst, size, e->source->values, values_size);
}

gw_status gw_gcomp_encode(const gw_gcomp *codec, const gw_gcomp_source *source, gw_buffer *dst,
                          const gw_workspace *workspace)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    if (dst->data == NULL) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);
    if (bound == 0 || dst->capacity < bound) {
        return GW_ERR_DST;
    }
    if (is_over_values(&e, dst->data, bound)) {
        return GW_ERR_ARG;
    }
    gw_encoding_aim(&e, dst);
    encode_groups(&e, &(gw_gcomp_range){0, e.info.chunk_count});
    e.info.frame_size = e.offset;
    gw_encoding_finish(&e, dst);
    return GW_OK;
}

gw_status gw_gcomp_encode_range(const gw_gcomp *codec, const gw_gcomp_source *source, gw_gcomp_part *part,
                                const gw_workspace *workspace)
{
    if (part == NULL) {
        return GW_ERR_ARG;
    }
    part->size = 0;
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    const gw_gcomp_range range = part->range;
    const uint64_t chunks = e.info.chunk_count;
    const uint32_t align = gw_group_chunks(e.codec);
    if (part->area == NULL || range.chunk_first % align != 0 || range.chunk_first > chunks ||
        range.chunk_count > chunks - range.chunk_first ||
        (range.chunk_count % align != 0 && range.chunk_first + range.chunk_count != chunks)) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_range_bound(codec, source->len, &range);
    if ((bound == 0 && range.chunk_count != 0) || part->capacity < bound) {
        return GW_ERR_DST;
    }
    if (is_over_values(&e, part->area, bound)) {
        return GW_ERR_ARG;
    }
    /* An area holds the directory entries of its chunks, with offsets from the range's first chunk, then the
     * chunks. */
    const size_t entries_size = (size_t)(GW_FRAME_ENTRY_SIZE * range.chunk_count);
    e.entries = (uint8_t *)part->area;
    e.entries_first = range.chunk_first;
    e.payload = (uint8_t *)part->area + entries_size;
    e.offset = 0;
    e.segments.before += range.chunk_first << e.info.chunk_log2;
    encode_groups(&e, &range);
    part->size = entries_size + (size_t)e.offset;
    return GW_OK;
}
