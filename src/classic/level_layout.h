/*
 * Where the parts of a level payload are: norms, directory, chunks. docs/format-classic.md "Level".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LEVEL_LAYOUT_H
#define GW_LEVEL_LAYOUT_H

#include "classic/classic_handle.h"
#include "classic/level_chunk.h"
#include "classic/level_norm.h"

typedef struct gw_level_layout {
    uint64_t len;
    uint64_t block_len; /* values of a block, len or less */
    uint64_t block_count;
    uint64_t chunk_count;
    /* Bytes, also where size_t cannot hold them: a header is as good on every machine. Below 2^34. */
    uint64_t norms_size;
    uint64_t directory_size; /* 0 for packed levels, whose chunks have sizes that follow from len */
    uint64_t chunks_size_max;
} gw_level_layout;

/* 0 < len <= 2^32. */
gw_level_layout gw_level_layout_of(uint64_t len, uint32_t block_len, uint32_t level_max,
                                   gw_classic_coding coding);

/* Bytes of norms and directory, and of all. */
uint64_t gw_level_front_size(const gw_level_layout *layout);
uint64_t gw_level_size_max(const gw_level_layout *layout);

/* Values of a chunk. */
static inline size_t gw_level_chunk_len(const gw_level_layout *layout, uint64_t chunk)
{
    return (size_t)gw_min_u64(GW_LEVEL_CHUNK_LEN, layout->len - chunk * GW_LEVEL_CHUNK_LEN);
}

/* Values of a block. */
static inline uint64_t gw_level_block_len(const gw_level_layout *layout, uint64_t block)
{
    return gw_min_u64(layout->block_len, layout->len - block * layout->block_len);
}

/* The values from `first` on, before `end`, that have one norm and fit a piece. */
typedef struct gw_level_run {
    uint64_t block;
    uint64_t first;
    size_t len;
} gw_level_run;

static inline gw_level_run gw_level_run_at(const gw_level_layout *layout, uint64_t first, uint64_t end)
{
    gw_level_run run = {first / layout->block_len, first, 0};
    const uint64_t block_end = (run.block + 1) * layout->block_len;
    const uint64_t limit = gw_min_u64(block_end, end) - first;
    run.len = (size_t)gw_min_u64(limit, GW_LEVEL_PIECE_LEN);
    return run;
}

/* Functions of gw_classic_level that level_encode.c has. */
gw_status gw_level_encode(gw_classic_encoding *encoding);
gw_status gw_level_norms(const gw_classic_encoding *encoding, float *norms);

#endif
