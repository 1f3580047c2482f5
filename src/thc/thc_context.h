/*
 * What the parts of THC share behind a context: geometry, checks of ranges and patterns, one block's way
 * back.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_CONTEXT_H
#define GW_THC_CONTEXT_H

#include "core/kernels.h"
#include "gradwire/thc.h"

#define GW_THC_TAG     0x43485447u /* "GTHC": a context that gw_thc_init() made, of this layout */
#define GW_THC_AGG_TAG 0x41485447u /* "GTHA" */

#define GW_THC_NONFINITE_CODE 0xffffffffu /* both words of a plain block that is marked */
#define GW_FNV_OFFSET         0xcbf29ce484222325u
#define GW_FNV_PRIME          0x100000001b3u

/* FNV-1a over bytes, continuing from hash. */
static inline uint64_t gw_fnv(uint64_t hash, const uint8_t *src, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ src[i]) * GW_FNV_PRIME;
    }
    return hash;
}

/* FNV-1a over the four little-endian bytes of value. */
static inline uint64_t gw_fnv_u32(uint64_t hash, uint32_t value)
{
    for (unsigned i = 0; i < 32; i += 8) {
        hash = (hash ^ (value >> i & 0xffu)) * GW_FNV_PRIME;
    }
    return hash;
}

/* The kernels of an aggregator. */
typedef struct gw_thc_agg_kernels {
    gw_thc_add_indices_fn *add_indices;
    gw_thc_add_lanes_fn *add_lanes;
    gw_thc_lane_max_fn *lane_max;
} gw_thc_agg_kernels;

static inline const gw_thc_kernels *gw_thc_kernels_of(const gw_thc *thc)
{
    return (const gw_thc_kernels *)(const void *)thc->kernels.bytes;
}

static inline int gw_thc_is_ready(const gw_thc *thc)
{
    return thc != NULL && thc->tag == GW_THC_TAG;
}

/* n * g against the lanes and 2^23; the same test for contexts, aggregators, frames and packets. */
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
gw_status gw_thc_config_check(const gw_thc_config *config);

/* The reading of one block's patterns. */
typedef enum gw_thc_block_kind {
    GW_THC_BLOCK_CODED,
    GW_THC_BLOCK_CONSTANT,  /* norm 0, or maximum = minimum: lanes are zero */
    GW_THC_BLOCK_NONFINITE, /* marked: lanes are zero, values NaN */
    GW_THC_BLOCK_INVALID    /* not a pattern that phase one can make */
} gw_thc_block_kind;

gw_thc_block_kind gw_thc_block_read(const gw_thc *thc, const uint32_t *patterns);

/* Lanes of a block of len elements: max(64, next power of two >= len), len <= 2^13. */
size_t gw_thc_padded_len(size_t len);

/* The pieces of one block range, checked. */
typedef struct gw_thc_span {
    uint64_t first; /* first block */
    uint64_t blocks;
    size_t block_len;  /* elements of all but the last block */
    size_t last_len;   /* elements of the range's last block */
    size_t elements;   /* of the range */
    size_t lanes;      /* of the range */
    size_t last_lanes; /* of the last block */
} gw_thc_span;

/* GW_ERR_STATE, GW_ERR_ARG, GW_ERR_LIMIT. rank is not looked at. */
gw_status gw_thc_span_make(gw_thc_span *span, const gw_thc *thc, const gw_thc_range *range);

static inline size_t gw_thc_span_len(const gw_thc_span *span, uint64_t i)
{
    return i + 1 == span->blocks ? span->last_len : span->block_len;
}

static inline size_t gw_thc_span_lanes(const gw_thc_span *span, uint64_t i)
{
    return i + 1 == span->blocks ? span->last_lanes : span->block_len;
}

/* Workspace areas for blocks of block_len lanes. */
typedef struct gw_thc_scratch {
    float *x;
    float *y;
    uint8_t *index;
} gw_thc_scratch;

/* GW_ERR_ARG (NULL or not aligned for float) or GW_ERR_WORKSPACE. */
gw_status gw_thc_scratch_make(gw_thc_scratch *scratch, const gw_thc *thc, void *workspace,
                              size_t workspace_size);

/* Decodes the lanes of a valid coded or constant block with members >= 1 into y[0..lane_count). */
void gw_thc_block_decode(const gw_thc *thc, float *y, const uint8_t *lanes, size_t lane_count,
                         unsigned lane_bits, uint32_t members, const uint32_t *patterns, gw_thc_mode mode,
                         const gw_thc_stream *stream);

/* GW_OK, or why the lanes of a block cannot be: GW_ERR_OVERFLOW (members), GW_ERR_CORRUPT (patterns, lanes).
 */
gw_status gw_thc_block_check(const gw_thc *thc, const uint8_t *lanes, size_t lane_count, uint32_t members,
                             const uint32_t *patterns);

#endif
