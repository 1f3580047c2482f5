/*
 * Configuration, context, geometry.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_context.h"

#include "thc/thc_float.h"
#include "thc/thc_table.h"

gw_status gw_thc_config_check(const gw_thc_config *config)
{
    if (gw_thc_table_check(&config->table) != GW_OK) {
        return GW_ERR_TABLE;
    }
    if (config->block_log2 < GW_THC_BLOCK_LOG2_MIN || config->block_log2 > GW_THC_BLOCK_LOG2_MAX) {
        return GW_ERR_OPTION;
    }
    if (config->dtype < GW_FP32 || config->dtype > GW_FP16 || config->transform > GW_THC_ROTATED) {
        return GW_ERR_OPTION;
    }
    if (config->nonfinite > GW_THC_NONFINITE_ZERO || config->error_feedback > 1) {
        return GW_ERR_OPTION;
    }
    /* 2^-4 <= t <= 4: p from 6.4e-5 to 0.95, which holds the 2^-13 to 0.9 of tables. Below, a grid of 255
     * steps would be finer than the values' own rounding. */
    if (config->transform == GW_THC_ROTATED) {
        if (config->threshold_bits < 0x3d800000u || config->threshold_bits > 0x40800000u) {
            return GW_ERR_OPTION;
        }
    } else if (config->threshold_bits != 0 || config->error_feedback != 0) {
        return GW_ERR_OPTION; /* the error of a plain block is not bounded by its norm: no feedback */
    }
    return gw_thc_check_sum(config->worker_max, config->table.granularity, config->lane_bits);
}

static int feedback_diverges(const gw_thc_config *config)
{
    gw_thc_table_cost cost;

    gw_thc_table_price_at(&cost, &config->table, (double)gw_float_from_bits(config->threshold_bits));
    return cost.total >= 1.0;
}

static uint64_t hash_config(const gw_thc_config *config)
{
    uint64_t hash = GW_FNV_OFFSET;
    uint8_t head[6] = {config->table.bits, config->table.granularity,
                       config->transform,  config->block_log2,
                       config->lane_bits,  config->nonfinite == GW_THC_NONFINITE_PROPAGATE};

    hash = gw_fnv(hash, head, sizeof head);
    hash = gw_fnv(hash, config->table.value, sizeof config->table.value);
    hash = gw_fnv_u32(hash, config->threshold_bits);
    hash = gw_fnv_u32(hash, config->worker_max);
    hash = gw_fnv_u32(hash, (uint32_t)config->seed);
    return gw_fnv_u32(hash, (uint32_t)(config->seed >> 32));
}

_Static_assert(sizeof(gw_thc_kernels) <= sizeof((gw_thc *)0)->kernels &&
                   sizeof(gw_thc_agg_kernels) <= sizeof((gw_thc_agg *)0)->kernels,
               "gw_thc and gw_thc_agg have room for the kernels");

gw_status gw_thc_init(gw_thc *thc, const gw_thc_config *config, uint32_t backends)
{
    if (thc == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(thc, 0, sizeof *thc);
    if (config == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_config_check(config);
    if (status != GW_OK) {
        return status;
    }
    if (config->error_feedback != 0 && feedback_diverges(config)) {
        return GW_ERR_OPTION;
    }

    thc->config = *config;
    thc->hash = hash_config(config);
    gw_kernels kernels;
    gw_kernels_init(&kernels, backends);
    GW_MEMCPY(thc->kernels.bytes, &kernels.thc, sizeof kernels.thc);
    unsigned z = 0;
    for (unsigned cell = 0; cell <= config->table.granularity; cell++) {
        if (z < (1u << config->table.bits) - 1u && config->table.value[z + 1] <= cell) {
            z++;
        }
        thc->cell[cell] = (uint8_t)z;
    }
    thc->tag = GW_THC_TAG;
    return GW_OK;
}

uint64_t gw_thc_config_hash(const gw_thc *thc)
{
    return gw_thc_is_ready(thc) ? thc->hash : 0;
}

size_t gw_thc_padded_len(size_t len)
{
    size_t padded = (size_t)1 << GW_THC_BLOCK_LOG2_MIN;

    while (padded < len) {
        padded *= 2;
    }
    return padded;
}

uint64_t gw_thc_block_count(const gw_thc *thc, uint64_t count)
{
    if (!gw_thc_is_ready(thc)) {
        return 0;
    }
    unsigned log2 = thc->config.block_log2;
    return (count >> log2) + ((count & (((uint64_t)1 << log2) - 1)) != 0);
}

size_t gw_thc_block_lanes(const gw_thc *thc, uint64_t count, uint64_t block)
{
    if (block >= gw_thc_block_count(thc, count)) {
        return 0;
    }
    size_t block_len = (size_t)1 << thc->config.block_log2;
    uint64_t rest = count - (block << thc->config.block_log2);
    return rest >= block_len ? block_len : gw_thc_padded_len((size_t)rest);
}

uint64_t gw_thc_range_lanes(const gw_thc *thc, uint64_t count, uint64_t first_block, uint64_t block_count)
{
    uint64_t total = gw_thc_block_count(thc, count);

    if (first_block > total || block_count > total - first_block || block_count == 0) {
        return 0;
    }
    return ((block_count - 1) << thc->config.block_log2) +
           gw_thc_block_lanes(thc, count, first_block + block_count - 1);
}

/* lanes * bits / 8 for a multiple of 8 lanes, saturating. */
static size_t size_of_lanes(uint64_t lanes, unsigned bits)
{
    uint64_t size = lanes / 8 * bits; /* lanes < 2^46 where blocks are limited to 2^32 */
    return lanes / 8 > UINT64_MAX / 32 || size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

size_t gw_thc_indices_size(const gw_thc *thc, uint64_t count, uint64_t first_block, uint64_t block_count)
{
    if (!gw_thc_is_ready(thc)) {
        return 0;
    }
    return size_of_lanes(gw_thc_range_lanes(thc, count, first_block, block_count), thc->config.table.bits);
}

size_t gw_thc_lanes_size(const gw_thc *thc, uint64_t count, uint64_t first_block, uint64_t block_count)
{
    if (!gw_thc_is_ready(thc)) {
        return 0;
    }
    return size_of_lanes(gw_thc_range_lanes(thc, count, first_block, block_count), thc->config.lane_bits);
}

size_t gw_thc_reduced_size(const gw_thc *thc, uint64_t count, uint64_t first_block, uint64_t block_count)
{
    if (!gw_thc_is_ready(thc)) {
        return 0;
    }
    uint64_t lanes = gw_thc_range_lanes(thc, count, first_block, block_count);
    if (lanes == 0) {
        return 0;
    }
    uint64_t size = ((lanes + block_count) * (thc->config.lane_bits / 8u) + 3) & ~(uint64_t)3;
    return size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

size_t gw_thc_patterns_per_block(const gw_thc *thc)
{
    if (!gw_thc_is_ready(thc)) {
        return 0;
    }
    return thc->config.transform == GW_THC_ROTATED ? 1 : 2;
}

size_t gw_thc_workspace_size(const gw_thc *thc)
{
    if (!gw_thc_is_ready(thc)) {
        return 0;
    }
    return ((size_t)1 << thc->config.block_log2) * (2 * sizeof(float) + 1);
}

gw_status gw_thc_scratch_make(gw_thc_scratch *scratch, const gw_thc *thc, void *workspace,
                              size_t workspace_size)
{
    size_t block_len = (size_t)1 << thc->config.block_log2;

    if (workspace == NULL || (uintptr_t)workspace % sizeof(float) != 0) {
        return GW_ERR_ARG;
    }
    if (workspace_size < gw_thc_workspace_size(thc)) {
        return GW_ERR_WORKSPACE;
    }
    scratch->x = workspace;
    scratch->y = scratch->x + block_len;
    scratch->index = (uint8_t *)(scratch->y + block_len);
    return GW_OK;
}

gw_status gw_thc_span_make(gw_thc_span *span, const gw_thc *thc, const gw_thc_range *range)
{
    if (thc == NULL || range == NULL) {
        return GW_ERR_ARG;
    }
    if (thc->tag != GW_THC_TAG) {
        return GW_ERR_STATE;
    }
    uint64_t total = gw_thc_block_count(thc, range->count);
    if (total > (uint64_t)1 << 32) {
        return GW_ERR_LIMIT;
    }
    if (range->first_block > total || range->block_count > total - range->first_block) {
        return GW_ERR_ARG;
    }

    unsigned log2 = thc->config.block_log2;
    uint64_t start = range->first_block << log2;
    uint64_t lanes = gw_thc_range_lanes(thc, range->count, range->first_block, range->block_count);
    if (lanes > SIZE_MAX / 8) {
        return GW_ERR_LIMIT;
    }
    span->first = range->first_block;
    span->blocks = range->block_count;
    span->block_len = (size_t)1 << log2;
    span->lanes = (size_t)lanes;
    if (range->block_count == 0) {
        span->elements = 0;
        span->last_len = 0;
        span->last_lanes = 0;
        return GW_OK;
    }
    uint64_t end = (range->first_block + range->block_count) << log2;
    span->elements = (size_t)((end < range->count ? end : range->count) - start);
    span->last_len = span->elements - (size_t)((range->block_count - 1) << log2);
    span->last_lanes = gw_thc_block_lanes(thc, range->count, range->first_block + range->block_count - 1);
    return GW_OK;
}
