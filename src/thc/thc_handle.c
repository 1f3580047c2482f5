/*
 * Options, handle, geometry.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_handle.h"

_Static_assert(sizeof(gw_thc_state) <= sizeof(gw_thc), "gw_thc has room for the handle");

#define GW_SCRATCH_ALIGNMENT 64u /* of a vector and a cache line */

gw_status gw_thc_options_check(const gw_thc_options *options)
{
    if (gw_thc_table_check(&options->table) != GW_OK) {
        return GW_ERR_TABLE;
    }
    if (options->block_log2 < GW_THC_BLOCK_LOG2_MIN || options->block_log2 > GW_THC_BLOCK_LOG2_MAX) {
        return GW_ERR_OPTION;
    }
    if (gw_dtype_size(options->dtype) == 0 || (uint32_t)options->transform > GW_THC_ROTATED) {
        return GW_ERR_OPTION;
    }
    if ((uint32_t)options->nonfinite > GW_THC_NONFINITE_ZERO || (uint32_t)options->error_feedback > 1 ||
        (uint32_t)options->checksum > 1) {
        return GW_ERR_OPTION;
    }
    /* 2^-4 <= t <= 4: p from 6.4e-5 to 0.95, a superset of the 2^-13 to 0.9 of tables. With a smaller t a
     * grid of 255 steps would be finer than the values' own rounding. */
    if (options->transform == GW_THC_ROTATED) {
        if (options->threshold_bits < 0x3d800000u || options->threshold_bits > 0x40800000u) {
            return GW_ERR_OPTION;
        }
    } else if (options->threshold_bits != 0 || options->error_feedback != 0) {
        return GW_ERR_OPTION; /* the error of a plain block is not bounded by its norm: no feedback */
    }
    return gw_thc_check_sum(options->worker_max, options->table.granularity, options->lane_bits);
}

static int feedback_diverges(const gw_thc_options *options)
{
    gw_thc_table_cost cost;

    gw_thc_table_price_at(&cost, &options->table, (double)gw_float_from_bits(options->threshold_bits));
    return cost.total >= 1.0;
}

static uint64_t hash_options(const gw_thc_options *options)
{
    uint64_t hash = GW_FNV_OFFSET;
    uint8_t head[6] = {options->table.bits,         options->table.granularity,
                       (uint8_t)options->transform, (uint8_t)options->block_log2,
                       (uint8_t)options->lane_bits, options->nonfinite == GW_THC_NONFINITE_PROPAGATE};

    hash = gw_fnv(hash, head, sizeof head);
    hash = gw_fnv(hash, options->table.value, sizeof options->table.value);
    hash = gw_fnv_u32(hash, options->threshold_bits);
    hash = gw_fnv_u32(hash, options->worker_max);
    return gw_fnv_u64(hash, options->seed);
}

gw_status gw_thc_state_init(gw_thc_state *state, const gw_thc_options *options)
{
    GW_MEMSET(state, 0, sizeof *state);
    gw_status status = gw_thc_options_check(options);
    if (status != GW_OK) {
        return status;
    }
    if (options->error_feedback != 0 && feedback_diverges(options)) {
        return GW_ERR_OPTION;
    }

    state->options = *options;
    state->hash = hash_options(options);
    gw_kernels kernels;
    gw_kernels_init(&kernels, options->backends);
    state->kernels = kernels.thc;
    unsigned z = 0;
    for (unsigned cell = 0; cell <= options->table.granularity; cell++) {
        if (z < (1u << options->table.bits) - 1u && options->table.value[z + 1] <= cell) {
            z++;
        }
        state->cell[cell] = (uint8_t)z;
    }
    state->tag = GW_THC_TAG;
    return GW_OK;
}

gw_status gw_thc_init(gw_thc *thc, const gw_thc_options *options)
{
    if (thc == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(thc, 0, sizeof *thc);
    if (options == NULL) {
        return GW_ERR_ARG;
    }
    return gw_thc_state_init((gw_thc_state *)(void *)thc, options);
}

const gw_thc_options *gw_thc_options_of(const gw_thc *thc)
{
    const gw_thc_state *state = gw_thc_state_of(thc);
    return state != NULL ? &state->options : NULL;
}

uint64_t gw_thc_options_hash(const gw_thc *thc)
{
    const gw_thc_state *state = gw_thc_state_of(thc);
    return state != NULL ? state->hash : 0;
}

size_t gw_thc_padded_len(size_t len)
{
    size_t padded = (size_t)1 << GW_THC_BLOCK_LOG2_MIN;

    while (padded < len) {
        padded *= 2;
    }
    return padded;
}

size_t gw_thc_block_lanes_of(unsigned block_log2, uint64_t len, uint64_t block)
{
    size_t block_len = (size_t)1 << block_log2;
    uint64_t rest = len - (block << block_log2);
    return rest >= block_len ? block_len : gw_thc_padded_len((size_t)rest);
}

uint64_t gw_thc_lanes_of(unsigned block_log2, uint64_t len, uint64_t block_first, uint64_t block_count)
{
    uint64_t total = gw_unit_count(len, block_log2);

    if (block_first > total || block_count > total - block_first || block_count == 0) {
        return 0;
    }
    return ((block_count - 1) << block_log2) +
           gw_thc_block_lanes_of(block_log2, len, block_first + block_count - 1);
}

uint64_t gw_thc_block_count(const gw_thc *thc, uint64_t len)
{
    const gw_thc_state *state = gw_thc_state_of(thc);
    return state != NULL ? gw_unit_count(len, state->options.block_log2) : 0;
}

size_t gw_thc_block_lanes(const gw_thc *thc, uint64_t len, uint64_t block)
{
    const gw_thc_state *state = gw_thc_state_of(thc);
    return block < gw_thc_block_count(thc, len) ? gw_thc_block_lanes_of(state->options.block_log2, len, block)
                                                : 0;
}

uint64_t gw_thc_range_lanes(const gw_thc *thc, uint64_t len, uint64_t block_first, uint64_t block_count)
{
    const gw_thc_state *state = gw_thc_state_of(thc);
    return state != NULL ? gw_thc_lanes_of(state->options.block_log2, len, block_first, block_count) : 0;
}

/* lanes * bits / 8 for a multiple of 8 lanes, saturating. */
static size_t size_of_lanes(uint64_t lanes, unsigned bits)
{
    uint64_t size = lanes / 8 * bits; /* lanes < 2^46 where blocks are limited to 2^32 */
    return lanes / 8 > UINT64_MAX / 32 || size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

size_t gw_thc_indices_size(const gw_thc *thc, uint64_t len, uint64_t block_first, uint64_t block_count)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    uint64_t lanes = gw_thc_range_lanes(thc, len, block_first, block_count);
    return options != NULL ? size_of_lanes(lanes, options->table.bits) : 0;
}

size_t gw_thc_lanes_size(const gw_thc *thc, uint64_t len, uint64_t block_first, uint64_t block_count)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    uint64_t lanes = gw_thc_range_lanes(thc, len, block_first, block_count);
    return options != NULL ? size_of_lanes(lanes, options->lane_bits) : 0;
}

/* Bytes of lanes and count lanes, rounded up to whole words. */
static size_t reduced_size(uint64_t lanes, uint64_t block_count, unsigned lane_bits)
{
    uint64_t size = ((lanes + block_count) * (lane_bits / 8u) + 3) & ~(uint64_t)3;
    return size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

size_t gw_thc_reduced_size(const gw_thc *thc, uint64_t len, uint64_t block_first, uint64_t block_count)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    uint64_t lanes = gw_thc_range_lanes(thc, len, block_first, block_count);
    return lanes != 0 ? reduced_size(lanes, block_count, options->lane_bits) : 0;
}

size_t gw_thc_span_reduced_size(const gw_thc_span *span)
{
    return reduced_size(span->lanes, span->blocks, span->thc->options.lane_bits);
}

size_t gw_thc_patterns_per_block(const gw_thc *thc)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    return options != NULL ? gw_thc_pattern_count(options) : 0;
}

static size_t workspace_size(const gw_thc_options *options)
{
    return ((size_t)1 << options->block_log2) * (2 * sizeof(float) + 1) + GW_SCRATCH_ALIGNMENT;
}

size_t gw_thc_workspace_size(const gw_thc *thc)
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    return options != NULL ? workspace_size(options) : 0;
}

gw_status gw_thc_scratch_make(gw_thc_scratch *scratch, const gw_thc_state *thc, const gw_workspace *workspace)
{
    size_t block_len = (size_t)1 << thc->options.block_log2;

    if (workspace == NULL || workspace->data == NULL) {
        return GW_ERR_ARG;
    }
    if (workspace->size < workspace_size(&thc->options)) {
        return GW_ERR_WORKSPACE;
    }
    uint8_t *start = workspace->data;
    start += (0 - (uintptr_t)start) % GW_SCRATCH_ALIGNMENT;
    scratch->x = (float *)(void *)start;
    scratch->y = scratch->x + block_len;
    scratch->index = (uint8_t *)(scratch->y + block_len);
    return GW_OK;
}

gw_status gw_thc_span_make(gw_thc_span *span, const gw_thc *thc, const gw_thc_range *range)
{
    if (thc == NULL || range == NULL) {
        return GW_ERR_ARG;
    }
    const gw_thc_state *state = gw_thc_state_of(thc);
    return state != NULL ? gw_thc_span_fill(span, state, range) : GW_ERR_STATE;
}

gw_status gw_thc_span_fill(gw_thc_span *span, const gw_thc_state *thc, const gw_thc_range *range)
{
    unsigned log2 = thc->options.block_log2;
    uint64_t total = gw_unit_count(range->len, log2);

    if (total > (uint64_t)1 << 32) {
        return GW_ERR_LIMIT;
    }
    if (range->block_first > total || range->block_count > total - range->block_first) {
        return GW_ERR_ARG;
    }
    uint64_t lanes = gw_thc_lanes_of(log2, range->len, range->block_first, range->block_count);
    if (lanes > SIZE_MAX / 8) {
        return GW_ERR_LIMIT;
    }

    GW_MEMSET(span, 0, sizeof *span);
    span->thc = thc;
    span->first = range->block_first;
    span->blocks = range->block_count;
    span->block_len = (size_t)1 << log2;
    span->lanes = (size_t)lanes;
    span->round = range->round;
    if (range->block_count == 0) {
        return GW_OK;
    }
    uint64_t end = gw_min_u64((range->block_first + range->block_count) << log2, range->len);
    span->elements = (size_t)(end - (range->block_first << log2));
    span->last_len = span->elements - (size_t)((range->block_count - 1) << log2);
    span->last_lanes = gw_thc_block_lanes_of(log2, range->len, range->block_first + range->block_count - 1);
    return GW_OK;
}
