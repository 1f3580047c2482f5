/*
 * The aggregator: sets, checks, then integer adds. Part of the firmware profile (GW_FIRMWARE: no float, no
 * function pointer, no kernel table; GW_THC_SLOT() names the scalar kernels).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_aggregate.h"

#include "core/bytes.h"
#include "thc/thc_handle.h"

gw_status gw_thc_agg_init(gw_thc_agg *agg, const gw_thc_agg_options *options)
{
    if (agg == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(agg, 0, sizeof *agg);
    if (options == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_table_check(&options->table);
    if (status == GW_OK) {
        status = gw_thc_check_sum(options->worker_max, options->table.granularity, options->lane_bits);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_thc_agg_state *state = (gw_thc_agg_state *)(void *)agg;
    state->tag = GW_THC_AGG_TAG;
    state->worker_max = options->worker_max;
    state->lane_bits = options->lane_bits;
    state->table = options->table;
#if !defined(GW_FIRMWARE)
    gw_kernels kernels;
    gw_kernels_init(&kernels, options->backends);
    state->kernels = kernels.thc;
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

gw_status gw_thc_sum_indices(const gw_thc_agg_state *state, const gw_thc_partial *sum, const uint8_t *indices,
                             uint32_t rank)
{
    if (rank >= state->worker_max || gw_set_has(sum->set, rank)) {
        return GW_ERR_DUP;
    }
    if (gw_thc_set_members(sum->set, state->worker_max) >= state->worker_max) {
        return GW_ERR_OVERFLOW;
    }
    GW_THC_SLOT(&state->kernels, add_indices)
    (sum->lanes, indices, sum->len, state->table.bits, state->table.value, state->lane_bits);
    gw_set_put(sum->set, rank);
    return GW_OK;
}

/* Whether lanes of k_in contributors may join k others: GW_ERR_OVERFLOW, GW_ERR_CORRUPT. */
static gw_status check_lanes(const gw_thc_agg_state *state, const uint8_t *in_lanes, size_t len,
                             uint32_t k_in, uint32_t k)
{
    if (k > state->worker_max || k_in > state->worker_max - k) {
        return GW_ERR_OVERFLOW;
    }
    if (GW_THC_SLOT(&state->kernels, lane_max)(in_lanes, len, state->lane_bits) >
        k_in * state->table.granularity) {
        return GW_ERR_CORRUPT;
    }
    return GW_OK;
}

/* All checks of one partial sum; nothing is added. */
static gw_status check_partial(const gw_thc_agg_state *state, const gw_thc_partial *sum,
                               const uint8_t *in_lanes, const uint8_t *in_set)
{
    uint32_t k_in = gw_thc_set_members(in_set, state->worker_max);

    if (k_in == UINT32_MAX || gw_thc_sets_meet(sum->set, in_set, state->worker_max)) {
        return GW_ERR_DUP;
    }
    return check_lanes(state, in_lanes, sum->len, k_in, gw_thc_set_members(sum->set, state->worker_max));
}

gw_status gw_thc_sum_lanes(const gw_thc_agg_state *state, const gw_thc_partial *sum, const uint8_t *in_lanes,
                           const uint8_t *in_set)
{
    gw_status status = check_partial(state, sum, in_lanes, in_set);

    if (status != GW_OK) {
        return status;
    }
    GW_THC_SLOT(&state->kernels, add_lanes)(sum->lanes, in_lanes, sum->len, state->lane_bits);
    gw_thc_set_join(sum->set, in_set, state->worker_max);
    return GW_OK;
}

/* The inside of a handle that may add to *sum. */
static gw_status begin(const gw_thc_agg_state **state, const gw_thc_agg *agg, const gw_thc_partial *sum)
{
    if (agg == NULL || sum == NULL || sum->lanes == NULL || sum->set == NULL || sum->len % 64 != 0) {
        return GW_ERR_ARG;
    }
    *state = gw_thc_agg_state_of(agg);
    return *state != NULL ? GW_OK : GW_ERR_STATE;
}

gw_status gw_thc_agg_add_indices(const gw_thc_agg *agg, const gw_thc_partial *sum, const uint8_t *indices,
                                 uint32_t rank)
{
    const gw_thc_agg_state *state;
    gw_status status = begin(&state, agg, sum);

    if (status != GW_OK) {
        return status;
    }
    return indices != NULL ? gw_thc_sum_indices(state, sum, indices, rank) : GW_ERR_ARG;
}

gw_status gw_thc_agg_add_lanes(const gw_thc_agg *agg, const gw_thc_partial *sum, const uint8_t *in_lanes,
                               const uint8_t *in_set)
{
    const gw_thc_agg_state *state;
    gw_status status = begin(&state, agg, sum);

    if (status != GW_OK) {
        return status;
    }
    return in_lanes != NULL && in_set != NULL ? gw_thc_sum_lanes(state, sum, in_lanes, in_set) : GW_ERR_ARG;
}

#if !defined(GW_FIRMWARE) /* conveniences; firmware adds one packet at a time */

/* Many sources are added piece by piece: at most 16 KiB of lanes, which stay in the L1 cache. */
#define GW_PIECE_LANES ((size_t)4096)

gw_status gw_thc_agg_add_counted(const gw_thc_agg *agg, uint8_t *lanes, size_t len, uint32_t *members,
                                 const uint8_t *in_lanes, uint32_t in_members)
{
    if (agg == NULL || lanes == NULL || members == NULL || in_lanes == NULL || len % 64 != 0) {
        return GW_ERR_ARG;
    }
    const gw_thc_agg_state *state = gw_thc_agg_state_of(agg);
    if (state == NULL) {
        return GW_ERR_STATE;
    }
    gw_status status = check_lanes(state, in_lanes, len, in_members, *members);
    if (status != GW_OK) {
        return status;
    }
    state->kernels.add_lanes(lanes, in_lanes, len, state->lane_bits);
    *members += in_members;
    return GW_OK;
}

/* Adds the ranks to the set, all or none; so duplicates among them are found too. */
static gw_status join_ranks(const gw_thc_agg_state *state, uint8_t *set, const uint8_t *const *indices,
                            const uint32_t *ranks, size_t source_count)
{
    gw_status status = source_count > 0 && (indices == NULL || ranks == NULL) ? GW_ERR_ARG : GW_OK;
    size_t taken = 0;

    while (status == GW_OK && taken < source_count) {
        if (indices[taken] == NULL) {
            status = GW_ERR_ARG;
        } else if (ranks[taken] >= state->worker_max || gw_set_has(set, ranks[taken])) {
            status = GW_ERR_DUP;
        } else {
            gw_set_put(set, ranks[taken++]);
        }
    }
    if (status == GW_OK && gw_thc_set_members(set, state->worker_max) > state->worker_max) {
        status = GW_ERR_OVERFLOW;
    }
    while (status != GW_OK && taken > 0) {
        gw_set_drop(set, ranks[--taken]);
    }
    return status;
}

/* The same for partial sums, each of which is checked completely. */
static gw_status join_sets(const gw_thc_agg_state *state, const gw_thc_partial *sum,
                           const uint8_t *const *in_lanes, const uint8_t *const *in_sets, size_t source_count)
{
    gw_status status = source_count > 0 && (in_lanes == NULL || in_sets == NULL) ? GW_ERR_ARG : GW_OK;
    size_t taken = 0;

    while (status == GW_OK && taken < source_count) {
        if (in_lanes[taken] == NULL || in_sets[taken] == NULL) {
            status = GW_ERR_ARG;
        } else {
            status = check_partial(state, sum, in_lanes[taken], in_sets[taken]);
        }
        if (status == GW_OK) {
            gw_thc_set_join(sum->set, in_sets[taken++], state->worker_max);
        }
    }
    while (status != GW_OK && taken > 0) {
        gw_thc_set_leave(sum->set, in_sets[--taken], state->worker_max);
    }
    return status;
}

gw_status gw_thc_agg_add_indices_many(const gw_thc_agg *agg, const gw_thc_partial *sum,
                                      const uint8_t *const *indices, const uint32_t *ranks,
                                      size_t source_count)
{
    const gw_thc_agg_state *state;
    gw_status status = begin(&state, agg, sum);

    if (status == GW_OK) {
        status = join_ranks(state, sum->set, indices, ranks, source_count);
    }
    if (status != GW_OK) {
        return status;
    }
    for (size_t at = 0; at < sum->len; at += GW_PIECE_LANES) {
        size_t piece = sum->len - at < GW_PIECE_LANES ? sum->len - at : GW_PIECE_LANES;
        for (size_t s = 0; s < source_count; s++) {
            state->kernels.add_indices(sum->lanes + at * (state->lane_bits / 8),
                                       indices[s] + at / 8 * state->table.bits, piece, state->table.bits,
                                       state->table.value, state->lane_bits);
        }
    }
    return GW_OK;
}

gw_status gw_thc_agg_add_lanes_many(const gw_thc_agg *agg, const gw_thc_partial *sum,
                                    const uint8_t *const *in_lanes, const uint8_t *const *in_sets,
                                    size_t source_count)
{
    const gw_thc_agg_state *state;
    gw_status status = begin(&state, agg, sum);

    if (status == GW_OK) {
        status = join_sets(state, sum, in_lanes, in_sets, source_count);
    }
    if (status != GW_OK) {
        return status;
    }
    size_t lane_size = state->lane_bits / 8;
    for (size_t at = 0; at < sum->len; at += GW_PIECE_LANES) {
        size_t piece = sum->len - at < GW_PIECE_LANES ? sum->len - at : GW_PIECE_LANES;
        for (size_t s = 0; s < source_count; s++) {
            state->kernels.add_lanes(sum->lanes + at * lane_size, in_lanes[s] + at * lane_size, piece,
                                     state->lane_bits);
        }
    }
    return GW_OK;
}

#endif
