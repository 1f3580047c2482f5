/*
 * Layout: shards and pieces of a bucket, and the schedule of the ring.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/layout.h"

#include "core/bytes.h"
#include "gcomp/gcomp_frame.h"

enum { SHARD_UNIT = 64, PIECE_LEN_MIN = 1 << 12, PIECE_LEN_DEFAULT = 1 << 18, CHUNK_LOG2_DEFAULT = 14 };

#define PIECES_MAX ((uint64_t)1 << 31)

static uint64_t divide_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

static int is_shape_allowed(const gw_collective_shape *s)
{
    if (s->len > GW_FRAME_LEN_MAX || s->rank_count < 1 || s->rank_count > GW_COLLECTIVE_RANKS_MAX ||
        s->chunk_log2 < GW_CHUNK_LOG2_MIN || s->chunk_log2 > GW_CHUNK_LOG2_MAX ||
        s->piece_len < PIECE_LEN_MIN || s->piece_len > GW_FRAME_LEN_MAX || s->shard_len > GW_FRAME_LEN_MAX) {
        return 0;
    }
    /* Below 2^16 * 2^48. */
    return s->shard_len == 0 || s->shard_len * s->rank_count >= s->len;
}

/* Units of SHARD_UNIT values that every shard has, and the ranks, the last ones, that have one more: so the
 * unit that may not be full is in the longest kind of shard. */
static uint64_t units_of(const gw_collective_shape *s, uint64_t *longer)
{
    const uint64_t units = divide_up(s->len, SHARD_UNIT);
    *longer = units % s->rank_count;
    return units / s->rank_count;
}

static uint64_t longest_shard(const gw_collective_shape *s)
{
    uint64_t longer;
    const uint64_t units = units_of(s, &longer);
    return gw_min_u64(s->len, s->shard_len != 0 ? s->shard_len : SHARD_UNIT * (units + (longer != 0)));
}

/* Fills in what follows from a shape with its defaults. */
static gw_status derive(gw_collective_layout *layout, const gw_collective_shape *shape)
{
    GW_MEMSET(layout, 0, sizeof *layout);
    if (!is_shape_allowed(shape)) {
        return GW_ERR_OPTION;
    }
    const uint64_t shard = longest_shard(shape);
    const uint64_t pieces = shard == 0 ? 1 : divide_up(shard, shape->piece_len);
    const uint64_t piece = gw_min_u64(shard, shape->piece_len);
    const uint64_t chunks = piece == 0 ? 1 : divide_up(piece, (uint64_t)1 << shape->chunk_log2);
    if (pieces > PIECES_MAX / shape->rank_count || chunks > UINT32_MAX) {
        return GW_ERR_LIMIT;
    }
    layout->shape = *shape;
    layout->shard_pieces = (uint32_t)pieces;
    layout->piece_count = (uint32_t)(pieces * shape->rank_count);
    layout->piece_chunks = (uint32_t)chunks;
    return GW_OK;
}

gw_status gw_collective_layout_init(gw_collective_layout *layout, const gw_collective_shape *shape)
{
    if (layout == NULL) {
        return GW_ERR_ARG;
    }
    if (shape == NULL) {
        GW_MEMSET(layout, 0, sizeof *layout);
        return GW_ERR_ARG;
    }
    gw_collective_shape filled = *shape;
    filled.chunk_log2 = shape->chunk_log2 == 0 ? CHUNK_LOG2_DEFAULT : shape->chunk_log2;
    filled.piece_len = shape->piece_len == 0 ? PIECE_LEN_DEFAULT : shape->piece_len;
    return derive(layout, &filled);
}

int gw_layout_is_valid(const gw_collective_layout *layout)
{
    gw_collective_layout again;
    return layout != NULL && derive(&again, &layout->shape) == GW_OK &&
           again.shard_pieces == layout->shard_pieces && again.piece_count == layout->piece_count &&
           again.piece_chunks == layout->piece_chunks;
}

uint64_t gw_layout_piece_max(const gw_collective_layout *layout)
{
    return gw_min_u64(longest_shard(&layout->shape), layout->shape.piece_len);
}

static void find_shard(const gw_collective_shape *s, uint32_t rank, uint64_t *first, uint64_t *len)
{
    uint64_t longer, from = s->shard_len * rank, end = from + s->shard_len;
    if (s->shard_len == 0) {
        const uint64_t units = units_of(s, &longer), shorter = s->rank_count - longer;
        from = SHARD_UNIT * (units * rank + (rank > shorter ? rank - shorter : 0));
        end = from + SHARD_UNIT * (units + (rank >= shorter));
    }
    *first = gw_min_u64(from, s->len);
    *len = gw_min_u64(end, s->len) - *first;
}

gw_status gw_collective_shard_at(const gw_collective_layout *layout, uint32_t rank, uint64_t *first,
                                 uint64_t *len)
{
    if (first != NULL) {
        *first = 0;
    }
    if (len != NULL) {
        *len = 0;
    }
    if (first == NULL || len == NULL || !gw_layout_is_valid(layout) || rank >= layout->shape.rank_count) {
        return GW_ERR_ARG;
    }
    find_shard(&layout->shape, rank, first, len);
    return GW_OK;
}

gw_status gw_collective_piece_at(const gw_collective_layout *layout, uint32_t index,
                                 gw_collective_piece *piece)
{
    if (piece == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(piece, 0, sizeof *piece);
    if (!gw_layout_is_valid(layout) || index >= layout->piece_count) {
        return GW_ERR_ARG;
    }
    uint64_t first, len;
    piece->owner = index / layout->shard_pieces;
    find_shard(&layout->shape, piece->owner, &first, &len);
    const uint64_t before = gw_min_u64(layout->shape.piece_len * (index % layout->shard_pieces), len);
    piece->first = first + before;
    piece->len = gw_min_u64(len - before, layout->shape.piece_len);
    piece->digest_first = (uint64_t)index * layout->piece_chunks;
    return GW_OK;
}

/* ---- ring ---------------------------------------------------------------------------------------------- */

uint32_t gw_collective_ring_shard(uint32_t rank_count, uint32_t rank, uint32_t step)
{
    if (rank_count > GW_COLLECTIVE_RANKS_MAX || rank >= rank_count || step >= rank_count) {
        return UINT32_MAX;
    }
    return (rank + rank_count - 1 - step) % rank_count;
}

uint32_t gw_collective_ring_gather_shard(uint32_t rank_count, uint32_t rank, uint32_t step)
{
    if (rank_count > GW_COLLECTIVE_RANKS_MAX || rank >= rank_count || step >= rank_count - 1) {
        return UINT32_MAX;
    }
    return (rank + rank_count - step) % rank_count;
}
