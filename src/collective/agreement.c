/*
 * Agreement of ranks by integer maxima: status words, and maps as words that travel beside their complements.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/layout.h"
#include "core/bytes.h"
#include "core/fnv.h"

/*
 * A status word, from the lowest bit: difference, piece, rank, status, outcome. A failure that cannot be
 * retried is above all that can. The upper bits are 0, so that the maximum is the same over signed integers.
 */
enum {
    PIECE_SHIFT = 3,
    RANK_SHIFT = 35,
    STATUS_SHIFT = 51,
    OUTCOME_SHIFT = 59,
    DIFFERENCE_MASK = 7,
    RANK_UNKNOWN = 0xffff, /* GW_COLLECTIVE_RANKS_MAX, which no rank has */
    STATUS_MASK = 0xff
};

static gw_collective_outcome outcome_of(uint32_t status)
{
    if (status == GW_OK) {
        return GW_COLLECTIVE_DONE;
    }
    return status == GW_ERR_MAP || status == GW_ERR_TABLE ? GW_COLLECTIVE_RETRY : GW_COLLECTIVE_FAIL;
}

uint64_t gw_collective_word_write(const gw_collective_failure *failure)
{
    static const gw_collective_failure missing = {.status = GW_ERR_ARG, .rank = UINT32_MAX};
    failure = failure != NULL ? failure : &missing;
    uint32_t status = (uint32_t)failure->status;
    if (status == GW_OK) {
        return 0;
    }
    status = status <= STATUS_MASK ? status : (uint32_t)GW_ERR_CORRUPT;
    const uint32_t difference = status == GW_ERR_MAP ? failure->difference & DIFFERENCE_MASK : 0;
    return (uint64_t)outcome_of(status) << OUTCOME_SHIFT | (uint64_t)status << STATUS_SHIFT |
           (uint64_t)gw_min_u32(failure->rank, RANK_UNKNOWN) << RANK_SHIFT |
           (uint64_t)failure->piece << PIECE_SHIFT | difference;
}

void gw_collective_word_read(uint64_t word, gw_collective_failure *failure)
{
    if (failure == NULL) {
        return;
    }
    const uint32_t rank = (uint32_t)(word >> RANK_SHIFT) & RANK_UNKNOWN;
    *failure = (gw_collective_failure){
        .status = (gw_status)(word >> STATUS_SHIFT & STATUS_MASK),
        .rank = rank != RANK_UNKNOWN ? rank : UINT32_MAX,
        .piece = (uint32_t)(word >> PIECE_SHIFT),
        .difference = (uint32_t)word & DIFFERENCE_MASK,
        .bad_chunk = UINT64_MAX,
    };
    /* Not written by any rank: another version, or memory that was overwritten. */
    if (gw_collective_word_write(failure) != word) {
        *failure = (gw_collective_failure){
            .status = GW_ERR_CORRUPT, .rank = UINT32_MAX, .piece = UINT32_MAX, .bad_chunk = UINT64_MAX};
    }
}

gw_collective_outcome gw_collective_word_outcome(uint64_t word)
{
    gw_collective_failure failure;
    gw_collective_word_read(word, &failure);
    return outcome_of((uint32_t)failure.status);
}

/* Digests that a piece uses; those after them, up to layout->piece_chunks, are never read. */
static uint64_t chunks_of(const gw_collective_layout *layout, const gw_collective_piece *piece)
{
    const uint64_t chunk_len = (uint64_t)1 << layout->shape.chunk_log2;
    return (piece->len + chunk_len - 1) / chunk_len;
}

static int is_map_readable(const gw_collective_layout *layout, const gw_collective_map *map)
{
    return map != NULL && gw_layout_is_valid(layout) && (map->digest != NULL || layout->shape.len == 0);
}

/* The shape is hashed too: ranks that cut the bucket differently must not find their maps equal. */
static uint64_t hash_shape(const gw_collective_shape *shape)
{
    uint64_t hash = gw_fnv_u64(GW_FNV_OFFSET, shape->len);
    hash = gw_fnv_u64(hash, shape->shard_len);
    hash = gw_fnv_u64(hash, shape->piece_len);
    hash = gw_fnv_u32(hash, shape->rank_count);
    return gw_fnv_u32(hash, shape->chunk_log2);
}

gw_status gw_collective_map_words(const gw_collective_layout *layout, const gw_collective_map *map,
                                  uint64_t words[GW_COLLECTIVE_MAP_WORDS])
{
    if (words == NULL || !is_map_readable(layout, map)) {
        return GW_ERR_ARG;
    }
    uint64_t hash = hash_shape(&layout->shape);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        gw_collective_piece piece;
        gw_status status = gw_collective_piece_at(layout, i, &piece);
        if (status != GW_OK) {
            return status;
        }
        const uint64_t chunk_count = chunks_of(layout, &piece);
        for (uint64_t j = 0; j < chunk_count; j++) {
            hash = gw_fnv_u32(hash, map->digest[piece.digest_first + j]);
        }
    }
    words[0] = map->base;
    words[2] = gw_bits_from_float(map->wire_scale);
    words[4] = hash;
    for (unsigned i = 0; i < GW_COLLECTIVE_MAP_WORDS; i += 2) {
        words[i + 1] = ~words[i];
    }
    return GW_OK;
}

uint32_t gw_collective_map_differs(const uint64_t words[GW_COLLECTIVE_MAP_WORDS])
{
    /* Nothing to compare: nothing is known to be equal. */
    if (words == NULL) {
        return GW_COLLECTIVE_BASE | GW_COLLECTIVE_SCALE | GW_COLLECTIVE_MAP_BYTES;
    }
    return (words[0] != ~words[1] ? (uint32_t)GW_COLLECTIVE_BASE : 0) |
           (words[2] != ~words[3] ? (uint32_t)GW_COLLECTIVE_SCALE : 0) |
           (words[4] != ~words[5] ? (uint32_t)GW_COLLECTIVE_MAP_BYTES : 0);
}

gw_status gw_collective_map_pairs(const gw_collective_layout *layout, const gw_collective_map *map,
                                  uint32_t *pairs)
{
    if (!is_map_readable(layout, map) || (pairs == NULL && gw_collective_digest_len(layout) != 0)) {
        return GW_ERR_ARG;
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        gw_collective_piece piece;
        gw_status status = gw_collective_piece_at(layout, i, &piece);
        if (status != GW_OK) {
            return status;
        }
        const uint64_t chunk_count = chunks_of(layout, &piece);
        for (uint64_t j = 0; j < layout->piece_chunks; j++) {
            const uint64_t at = piece.digest_first + j;
            const uint32_t digest = j < chunk_count ? map->digest[at] : 0;
            pairs[2 * at] = digest;
            pairs[2 * at + 1] = ~digest;
        }
    }
    return GW_OK;
}

uint64_t gw_collective_map_chunk(const gw_collective_layout *layout, const uint32_t *pairs, uint64_t start)
{
    const uint64_t chunk_count = pairs != NULL ? gw_collective_digest_len(layout) : 0;
    for (uint64_t i = start; i < chunk_count; i++) {
        if (pairs[2 * i] != ~pairs[2 * i + 1]) {
            return i;
        }
    }
    return UINT64_MAX;
}
