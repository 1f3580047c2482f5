/*
 * One piece of a bucket: its values, maps and random streams.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/exchange.h"

enum { CONTRIBUTION_BITS_MAX = 16 };

void gw_failure_begin(gw_collective_failure *failure, const gw_collective_bucket *bucket, uint32_t piece)
{
    GW_MEMSET(failure, 0, sizeof *failure);
    failure->rank = bucket == NULL ? 0 : bucket->rank;
    failure->piece = piece;
    failure->bad_chunk = UINT64_MAX;
}

/* A quantum is halved by four quarter-octaves of the base. The smallest base leaves quanta larger than asked
 * for, but no larger than those of the sum. */
static uint32_t lower_base(uint32_t base, uint32_t bits)
{
    return base > 4 * bits ? base - 4 * bits : gw_min_u32(base, 1);
}

static void find_maps(gw_piece *piece, const gw_collective_map *map, uint32_t contribution_bits)
{
    if (map == NULL) {
        piece->sum_map = NULL;
        piece->contribution_map = NULL;
        return;
    }
    piece->sum.bytes = map->bytes == NULL ? NULL : map->bytes + (size_t)piece->at.first;
    piece->sum.digest = map->digest == NULL ? NULL : map->digest + (size_t)piece->at.digest_first;
    piece->sum.base = map->base;
    piece->sum.wire_scale = map->wire_scale;
    piece->sum.len = piece->at.len;
    piece->sum.chunk_log2 = piece->bucket->layout->shape.chunk_log2;
    piece->contribution = piece->sum;
    piece->contribution.base = lower_base(map->base, contribution_bits);
    piece->sum_map = &piece->sum;
    piece->contribution_map = &piece->contribution;
}

gw_status gw_piece_begin(gw_piece *piece, const gw_collective_bucket *bucket, uint32_t index, int is_source)
{
    GW_MEMSET(piece, 0, sizeof *piece);
    if (bucket == NULL || bucket->codec == NULL || bucket->contribution_bits > CONTRIBUTION_BITS_MAX ||
        (bucket->streams == NULL && bucket->stream_count != 0) ||
        gw_collective_piece_at(bucket->layout, index, &piece->at) != GW_OK ||
        bucket->rank >= bucket->layout->shape.rank_count) {
        return GW_ERR_ARG;
    }
    piece->bucket = bucket;
    piece->index = index;
    piece->codec = gw_codec_of(bucket->codec);
    if (piece->codec == NULL) {
        return GW_ERR_STATE;
    }
    const uint64_t size = gw_dtype_size(piece->codec->options.dtype);
    if (piece->codec->options.chunk_log2 != bucket->layout->shape.chunk_log2 ||
        bucket->layout->shape.len > SIZE_MAX / size ||
        (is_source && piece->at.len != 0 && bucket->values == NULL)) {
        return GW_ERR_ARG;
    }
    if (bucket->values != NULL) {
        piece->values = (const uint8_t *)bucket->values + (size_t)(piece->at.first * size);
    }
    find_maps(piece, bucket->map, bucket->contribution_bits);
    return GW_OK;
}

void gw_piece_source(const gw_piece *piece, const gw_gcomp_map *map, uint32_t hop, gw_gcomp_source *source)
{
    const gw_collective_bucket *bucket = piece->bucket;
    GW_MEMSET(source, 0, sizeof *source);
    source->values = piece->values;
    source->len = piece->at.len;
    source->quantum.kind = map == NULL ? GW_GCOMP_QUANTUM_DEFAULT : GW_GCOMP_QUANTUM_MAP;
    source->quantum.map = map;
    source->seed = bucket->seed;
    source->first_element = bucket->first_element + piece->at.first;
    source->step_index = bucket->step_index;
    source->rank = (uint16_t)bucket->rank;
    source->hop = (uint16_t)hop;
    source->segments = bucket->streams;
    source->segment_count = bucket->stream_count;
    source->segment_offset = piece->at.first;
    /* Streams that end before the piece need not be walked for each of its groups. */
    while (source->segment_count > 1 && source->segments->len <= source->segment_offset) {
        source->segment_offset -= source->segments->len;
        source->segments++;
        source->segment_count--;
    }
}
