/*
 * The inside of a THC handle, and what its parts share: geometry, checks of ranges and patterns, decoding of
 * one block.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_HANDLE_H
#define GW_THC_HANDLE_H

#include "core/bytes.h"
#include "core/fnv.h"
#include "core/kernels.h"
#include "gradwire/thc.h"

#define GW_THC_TAG 0x43485447u /* "GTHC": a handle that gw_thc_init() made, of this layout */

#define GW_THC_NONFINITE_CODE 0xffffffffu /* both words of a plain block that is marked */

typedef struct gw_thc_state {
    uint32_t tag; /* GW_THC_TAG once initialised */
    gw_thc_options options;
    uint64_t hash;
    gw_thc_kernels kernels;
    uint8_t cell[256]; /* grid cell -> index z with value[z] <= cell < value[z + 1] */
} gw_thc_state;

/* The inside of a handle, NULL if it was never initialised. */
static inline const gw_thc_state *gw_thc_state_of(const gw_thc *thc)
{
    const gw_thc_state *state = (const gw_thc_state *)(const void *)thc;
    return state != NULL && state->tag == GW_THC_TAG ? state : NULL;
}

/* gw_thc_init() on the inside; *state is zeroed on failure. */
gw_status gw_thc_state_init(gw_thc_state *state, const gw_thc_options *options);

/* n * g against the lanes and 2^23; the same test for options, aggregators, frames and packets. */
static inline gw_status gw_thc_check_sum(uint32_t worker_max, uint32_t granularity, uint32_t lane_bits)
{
    if (worker_max < 1 || worker_max > GW_THC_WORKERS_MAX) {
        return GW_ERR_OPTION;
    }
    if (lane_bits != 8 && lane_bits != 16 && lane_bits != 32) {
        return GW_ERR_OPTION;
    }
    uint32_t sum_max = worker_max * granularity; /* < 2^24 */
    if (sum_max > GW_THC_SUM_MAX || (lane_bits < 32 && sum_max >> lane_bits != 0)) {
        return GW_ERR_OVERFLOW;
    }
    return GW_OK;
}

/* Everything that gw_thc_init() checks except the divergence of error feedback. */
gw_status gw_thc_options_check(const gw_thc_options *options);

/* All costs of a valid table at threshold t. */
void gw_thc_table_price_at(gw_thc_table_cost *cost, const gw_thc_table *table, double t);

/* uint32 patterns of a block. */
static inline size_t gw_thc_pattern_count(const gw_thc_options *options)
{
    return options->transform == GW_THC_ROTATED ? 1 : 2;
}

/* What one block's patterns mean. */
typedef enum gw_thc_block_kind {
    GW_THC_BLOCK_CODED,
    GW_THC_BLOCK_CONSTANT,  /* norm 0, or maximum = minimum: lanes are zero */
    GW_THC_BLOCK_NONFINITE, /* marked: lanes are zero, values NaN */
    GW_THC_BLOCK_INVALID    /* not a pattern that phase one can make */
} gw_thc_block_kind;

gw_thc_block_kind gw_thc_block_read(const gw_thc_state *thc, const uint32_t *patterns);

/* Which block is bad, UINT64_MAX for none, where the caller wants to know. */
static inline void gw_thc_report_block(uint64_t *bad_block, uint64_t i)
{
    if (bad_block != NULL) {
        *bad_block = i;
    }
}

/* Lanes of a block of len elements: max(64, next power of two >= len), len <= 2^13. */
size_t gw_thc_padded_len(size_t len);

/* Lanes of a block of a tensor of len elements, and of a range of blocks: 0 if that is empty or not within
 * the tensor. */
size_t gw_thc_block_lanes_of(unsigned block_log2, uint64_t len, uint64_t block);
uint64_t gw_thc_lanes_of(unsigned block_log2, uint64_t len, uint64_t block_first, uint64_t block_count);

/* The pieces of one block range, checked. */
typedef struct gw_thc_span {
    const gw_thc_state *thc;
    uint64_t first; /* first block */
    uint64_t blocks;
    size_t block_len;  /* elements of all but the last block */
    size_t last_len;   /* elements of the range's last block */
    size_t elements;   /* of the range */
    size_t lanes;      /* of the range */
    size_t last_lanes; /* of the last block */
    uint32_t round;
} gw_thc_span;

/* GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT. rank is not read. */
gw_status gw_thc_span_make(gw_thc_span *span, const gw_thc *thc, const gw_thc_range *range);

/* The same for the inside of a handle. */
gw_status gw_thc_span_fill(gw_thc_span *span, const gw_thc_state *thc, const gw_thc_range *range);

static inline size_t gw_thc_span_len(const gw_thc_span *span, uint64_t i)
{
    return i + 1 == span->blocks ? span->last_len : span->block_len;
}

static inline size_t gw_thc_span_lanes(const gw_thc_span *span, uint64_t i)
{
    return i + 1 == span->blocks ? span->last_lanes : span->block_len;
}

/* Bytes of the range's packed indices, and where those of block i start. */
static inline size_t gw_thc_span_indices_size(const gw_thc_span *span)
{
    return span->lanes / 8 * span->thc->options.table.bits;
}

static inline size_t gw_thc_span_indices_offset(const gw_thc_span *span, uint64_t i)
{
    return (size_t)i * (span->block_len / 8) * span->thc->options.table.bits;
}

/* Bytes of the range's lanes without and with the count lanes of gw_thc_expand(). */
static inline size_t gw_thc_span_lanes_size(const gw_thc_span *span)
{
    return span->lanes * (span->thc->options.lane_bits / 8);
}

size_t gw_thc_span_reduced_size(const gw_thc_span *span);

/* The random bits of block i for a worker; signs do not depend on the rank. */
static inline gw_thc_stream gw_thc_span_stream(const gw_thc_span *span, uint64_t i, uint32_t rank)
{
    gw_thc_stream stream = {span->thc->options.seed, (uint32_t)(span->first + i), span->round, rank};
    return stream;
}

/* Workspace areas for blocks of block_len lanes. */
typedef struct gw_thc_scratch {
    float *x;
    float *y;
    uint8_t *index;
} gw_thc_scratch;

/* GW_ERR_ARG (NULL) or GW_ERR_WORKSPACE. */
gw_status gw_thc_scratch_make(gw_thc_scratch *scratch, const gw_thc_state *thc,
                              const gw_workspace *workspace);

/* The lanes of one block. */
typedef struct gw_thc_block {
    const uint8_t *lanes;
    size_t lane_count;
    unsigned lane_bits;
    uint32_t members;
    const uint32_t *patterns;
} gw_thc_block;

/* Decodes a valid coded or constant block with members >= 1 into y[0..lane_count). */
void gw_thc_block_decode(const gw_thc_state *thc, const gw_thc_block *block, gw_thc_mode mode,
                         const gw_thc_stream *stream, float *y);

/* GW_OK, or why the lanes of a block are impossible: GW_ERR_OVERFLOW (members), GW_ERR_CORRUPT (patterns,
 * lanes). */
gw_status gw_thc_block_check(const gw_thc_state *thc, const gw_thc_block *block);

#endif
