/*
 * The aggregator: sets, checks, then integer adds. Part of the firmware profile (GW_FIRMWARE: no float, no
 * function pointer, no kernel table; GW_THC_SLOT() names the scalar kernels).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_aggregate.h"

#include "core/bytes.h"
#include "thc/thc_context.h"

#define GW_KERNEL(agg, name) GW_THC_SLOT((const gw_thc_agg_kernels *)(const void *)(agg)->kernels.bytes, name)

gw_status gw_thc_agg_init(gw_thc_agg *agg, const gw_thc_table *table, uint32_t worker_max, unsigned lane_bits,
                          uint32_t backends)
{
    if (agg == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(agg, 0, sizeof *agg);
    gw_status status = gw_thc_table_check(table);
    if (status == GW_OK) {
        status = gw_thc_check_sum(worker_max, table->granularity, lane_bits);
    }
    if (status != GW_OK) {
        return status;
    }
    agg->tag = GW_THC_AGG_TAG;
    agg->worker_max = worker_max;
    agg->lane_bits = lane_bits;
    agg->table = *table;
#if defined(GW_FIRMWARE)
    (void)backends;
#else
    gw_kernels kernels;
    gw_kernels_init(&kernels, backends);
    const gw_thc_agg_kernels own = {kernels.thc.add_indices, kernels.thc.add_lanes, kernels.thc.lane_max};
    GW_MEMCPY(agg->kernels.bytes, &own, sizeof own);
#endif
    return GW_OK;
}

uint32_t gw_thc_set_members(const uint8_t *set, uint32_t worker_max)
{
    uint32_t members = 0;
    uint32_t bits = (uint32_t)GW_THC_SET_SIZE(worker_max) * 8;

    for (uint32_t rank = 0; rank < bits; rank++) {
        if (!gw_set_has(set, rank)) {
            continue;
        }
        if (rank >= worker_max) {
            return UINT32_MAX;
        }
        members++;
    }
    return members;
}

int gw_thc_sets_meet(const uint8_t *a, const uint8_t *b, uint32_t worker_max)
{
    unsigned both = 0;

    for (size_t i = 0; i < GW_THC_SET_SIZE(worker_max); i++) {
        both |= a[i] & b[i];
    }
    return both != 0;
}

void gw_thc_set_join(uint8_t *set, const uint8_t *other, uint32_t worker_max)
{
    for (size_t i = 0; i < GW_THC_SET_SIZE(worker_max); i++) {
        set[i] |= other[i];
    }
}

static gw_status check_call(const gw_thc_agg *agg, const void *lanes, const void *set, size_t len)
{
    if (agg == NULL || lanes == NULL || set == NULL || len % 64 != 0) {
        return GW_ERR_ARG;
    }
    return agg->tag == GW_THC_AGG_TAG ? GW_OK : GW_ERR_STATE;
}

gw_status gw_thc_agg_add_indices(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set, size_t len,
                                 const uint8_t *indices, uint32_t rank)
{
    gw_status status = check_call(agg, lanes, set, len);

    if (status != GW_OK) {
        return status;
    }
    if (indices == NULL) {
        return GW_ERR_ARG;
    }
    if (rank >= agg->worker_max || gw_set_has(set, rank)) {
        return GW_ERR_DUP;
    }
    if (gw_thc_set_members(set, agg->worker_max) >= agg->worker_max) {
        return GW_ERR_OVERFLOW;
    }
    GW_KERNEL(agg, add_indices)(lanes, indices, len, agg->table.bits, agg->table.value, agg->lane_bits);
    gw_set_put(set, rank);
    return GW_OK;
}

/* What keeps lanes of k_in contributors from joining k others. */
static gw_status check_lanes(const gw_thc_agg *agg, const uint8_t *in_lanes, size_t len, uint32_t k_in,
                             uint32_t k)
{
    if (k > agg->worker_max || k_in > agg->worker_max - k) {
        return GW_ERR_OVERFLOW;
    }
    if (GW_KERNEL(agg, lane_max)(in_lanes, len, agg->lane_bits) > k_in * agg->table.granularity) {
        return GW_ERR_CORRUPT;
    }
    return GW_OK;
}

/* The checks of one partial sum; k_in gets its members. */
gw_status gw_thc_agg_check_lanes(const gw_thc_agg *agg, const uint8_t *set, size_t len,
                                 const uint8_t *in_lanes, const uint8_t *in_set)
{
    uint32_t k_in = gw_thc_set_members(in_set, agg->worker_max);

    if (k_in == UINT32_MAX || gw_thc_sets_meet(set, in_set, agg->worker_max)) {
        return GW_ERR_DUP;
    }
    return check_lanes(agg, in_lanes, len, k_in, gw_thc_set_members(set, agg->worker_max));
}

gw_status gw_thc_agg_add_lanes(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set, size_t len,
                               const uint8_t *in_lanes, const uint8_t *in_set)
{
    gw_status status = check_call(agg, lanes, set, len);

    if (status != GW_OK) {
        return status;
    }
    if (in_lanes == NULL || in_set == NULL) {
        return GW_ERR_ARG;
    }
    status = gw_thc_agg_check_lanes(agg, set, len, in_lanes, in_set);
    if (status != GW_OK) {
        return status;
    }
    GW_KERNEL(agg, add_lanes)(lanes, in_lanes, len, agg->lane_bits);
    gw_thc_set_join(set, in_set, agg->worker_max);
    return GW_OK;
}

#if !defined(GW_FIRMWARE) /* conveniences; firmware adds one packet at a time */

/* Many sources meet piece by piece: 16 KiB of lanes at most, which stay in the nearest cache. */
#define GW_PIECE_LANES ((size_t)4096)

static const gw_thc_agg_kernels *agg_kernels(const gw_thc_agg *agg)
{
    return (const gw_thc_agg_kernels *)(const void *)agg->kernels.bytes;
}

gw_status gw_thc_agg_add_counted(const gw_thc_agg *agg, uint8_t *lanes, uint32_t *k, size_t len,
                                 const uint8_t *in_lanes, uint32_t k_in)
{
    gw_status status = check_call(agg, lanes, k, len);

    if (status != GW_OK) {
        return status;
    }
    if (in_lanes == NULL) {
        return GW_ERR_ARG;
    }
    status = check_lanes(agg, in_lanes, len, k_in, *k);
    if (status != GW_OK) {
        return status;
    }
    GW_KERNEL(agg, add_lanes)(lanes, in_lanes, len, agg->lane_bits);
    *k += k_in;
    return GW_OK;
}

/*
 * Many sources, all or nothing: the set takes every source's members while they are checked, which finds
 * duplicates among the sources too, and gives them back if one is refused. Lanes change only after the last
 * check.
 */
gw_status gw_thc_agg_add_indices_many(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set, size_t len,
                                      const uint8_t *const *indices, const uint32_t *ranks,
                                      size_t source_count)
{
    gw_status status = check_call(agg, lanes, set, len);
    size_t taken = 0;

    if (status == GW_OK && source_count > 0 && (indices == NULL || ranks == NULL)) {
        status = GW_ERR_ARG;
    }
    while (status == GW_OK && taken < source_count) {
        if (indices[taken] == NULL) {
            status = GW_ERR_ARG;
        } else if (ranks[taken] >= agg->worker_max || gw_set_has(set, ranks[taken])) {
            status = GW_ERR_DUP;
        } else {
            gw_set_put(set, ranks[taken++]);
        }
    }
    if (status == GW_OK && gw_thc_set_members(set, agg->worker_max) > agg->worker_max) {
        status = GW_ERR_OVERFLOW;
    }
    if (status != GW_OK) {
        while (taken > 0) {
            gw_set_drop(set, ranks[--taken]);
        }
        return status;
    }
    for (size_t at = 0; at < len; at += GW_PIECE_LANES) {
        size_t piece = len - at < GW_PIECE_LANES ? len - at : GW_PIECE_LANES;
        for (size_t s = 0; s < source_count; s++) {
            agg_kernels(agg)->add_indices(lanes + at * (agg->lane_bits / 8),
                                          indices[s] + at / 8 * agg->table.bits, piece, agg->table.bits,
                                          agg->table.value, agg->lane_bits);
        }
    }
    return GW_OK;
}

gw_status gw_thc_agg_add_lanes_many(const gw_thc_agg *agg, uint8_t *lanes, uint8_t *set, size_t len,
                                    const uint8_t *const *in_lanes, const uint8_t *const *in_sets,
                                    size_t source_count)
{
    gw_status status = check_call(agg, lanes, set, len);
    size_t taken = 0;

    if (status == GW_OK && source_count > 0 && (in_lanes == NULL || in_sets == NULL)) {
        status = GW_ERR_ARG;
    }
    while (status == GW_OK && taken < source_count) {
        if (in_lanes[taken] == NULL || in_sets[taken] == NULL) {
            status = GW_ERR_ARG;
        } else {
            status = gw_thc_agg_check_lanes(agg, set, len, in_lanes[taken], in_sets[taken]);
        }
        if (status == GW_OK) {
            gw_thc_set_join(set, in_sets[taken++], agg->worker_max);
        }
    }
    if (status != GW_OK) {
        while (taken > 0) {
            taken--;
            for (size_t i = 0; i < GW_THC_SET_SIZE(agg->worker_max); i++) {
                set[i] &= (uint8_t)~in_sets[taken][i]; /* sets were disjoint */
            }
        }
        return status;
    }
    size_t lane_size = agg->lane_bits / 8;
    for (size_t at = 0; at < len; at += GW_PIECE_LANES) {
        size_t piece = len - at < GW_PIECE_LANES ? len - at : GW_PIECE_LANES;
        for (size_t s = 0; s < source_count; s++) {
            agg_kernels(agg)->add_lanes(lanes + at * lane_size, in_lanes[s] + at * lane_size, piece,
                                        agg->lane_bits);
        }
    }
    return GW_OK;
}

#endif
