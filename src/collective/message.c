/*
 * Checks of a message, and what is at fault if it is not the one expected.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/exchange.h"

/* The differences between a derived frame's header and the map; all three if there is no map to compare. */
static uint32_t find_difference(const gw_piece *piece, const gw_gcomp_frame_info *info,
                                const gw_gcomp_map *map)
{
    if (map == NULL) {
        return GW_COLLECTIVE_BASE | GW_COLLECTIVE_SCALE | GW_COLLECTIVE_MAP_BYTES;
    }
    const gw_gcomp_options *o = &piece->codec->options;
    const int has_rule =
        o->quantum_mode == GW_GCOMP_DERIVED; /* else this rank has no step and cap to compare */
    uint32_t difference = 0;
    if (info->drop_offset != gw_drop_offset(piece->codec, GW_GCOMP_DERIVED, map->base) ||
        (has_rule && (info->cap != o->cap || info->step != o->step))) {
        difference |= GW_COLLECTIVE_BASE;
    }
    if (gw_bits_from_float(info->wire_scale) != gw_bits_from_float(map->wire_scale)) {
        difference |= GW_COLLECTIVE_SCALE;
    }
    return difference != 0 ? difference : GW_COLLECTIVE_MAP_BYTES;
}

static int is_of_piece(const gw_piece *piece, const gw_gcomp_frame_info *info)
{
    return info->len == piece->at.len && info->dtype == piece->codec->options.dtype &&
           info->chunk_log2 == piece->codec->options.chunk_log2;
}

/* A notice that is damaged, or names a rank or piece that do not exist: its sender is at fault. */
static gw_status read_notice(const gw_piece *piece, const gw_collective_failure *notice,
                             gw_collective_failure *failure)
{
    const gw_collective_layout *layout = piece->bucket->layout;
    if (notice->rank >= layout->shape.rank_count || notice->piece >= layout->piece_count) {
        failure->status = GW_ERR_CORRUPT;
    } else {
        *failure = *notice;
    }
    return failure->status;
}

gw_status gw_piece_check_message(const gw_piece *piece, uint32_t rank, const gw_gcomp_frame *message,
                                 const gw_gcomp_map *map, gw_gcomp_frame_info *info,
                                 gw_collective_failure *failure)
{
    gw_collective_failure notice;
    failure->rank = rank;
    if (gw_collective_notice_read(message->data, message->size, &notice)) {
        return read_notice(piece, &notice, failure);
    }
    const gw_gcomp_frame frame = {message->data, message->size, map};
    failure->status = gw_gcomp_frame_parse(piece->bucket->codec, &frame, info);
    if (failure->status == GW_OK && !is_of_piece(piece, info)) {
        failure->status = GW_ERR_MISMATCH;
    }
    if (failure->status == GW_ERR_OPTION || failure->status == GW_ERR_MAP ||
        failure->status == GW_ERR_TABLE) {
        /* What the codec cannot decode may be a frame of something else. */
        gw_gcomp_frame_info header;
        const gw_status status =
            gw_gcomp_frame_peek(message->data, message->size, piece->codec->options.len_max, &header);
        if (status == GW_OK && !is_of_piece(piece, &header)) {
            failure->status = GW_ERR_MISMATCH;
        } else if (failure->status == GW_ERR_MAP) {
            failure->difference = find_difference(piece, &header, map);
        }
    }
    return failure->status;
}
