/*
 * Initialisation of a parameter server, which the host of a NIC does; the packet path is in thc_server.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "thc/thc_handle.h"
#include "thc/thc_server.h"

static unsigned payload_lane_bits(const gw_thc_server_options *options)
{
    return options->op == GW_THC_OP_MAX ? 32u : options->lane_bits;
}

/* Bytes of a version, 0 if they are too many for size_t. */
static size_t version_size_of(const gw_thc_server_options *options)
{
    uint64_t size = 2u * (uint64_t)GW_THC_SET_SIZE(options->worker_max) + GW_THC_PACKET_HEADER_SIZE +
                    (uint64_t)options->slot_len * (payload_lane_bits(options) / 8);
    return size > SIZE_MAX / 4 ? 0 : (size_t)(size + 7) & ~(size_t)7;
}

static gw_status check_options(const gw_thc_server_options *c)
{
    gw_status status = gw_thc_table_check(&c->table);

    if (status != GW_OK) {
        return status;
    }
    if ((uint32_t)c->op > GW_THC_OP_MAX || c->block_log2 < GW_THC_BLOCK_LOG2_MIN ||
        c->block_log2 > GW_THC_BLOCK_LOG2_MAX) {
        return GW_ERR_OPTION;
    }
    if (c->round_window < 1 || c->round_window > 0x3fffffffu || c->slot_count < 1 || c->slot_len < 1) {
        return GW_ERR_OPTION;
    }
    if (c->blocks_per_packet < 1 || c->blocks_per_packet > 65535u) {
        return GW_ERR_OPTION;
    }
    if (c->op == GW_THC_OP_SUM && c->slot_len % 64 != 0) {
        return GW_ERR_OPTION;
    }
    status = gw_thc_check_sum(c->worker_max, c->table.granularity, payload_lane_bits(c));
    if (status != GW_OK) {
        return status;
    }
    return c->quorum >= 1 && c->quorum <= c->worker_max ? GW_OK : GW_ERR_OPTION;
}

size_t gw_thc_server_memory_size(const gw_thc_server_options *options)
{
    if (options == NULL || check_options(options) != GW_OK) {
        return 0;
    }
    size_t version_size = version_size_of(options);
    size_t slot_size = sizeof(gw_thc_slot) + 2 * version_size;
    if (version_size == 0 || slot_size > SIZE_MAX / options->slot_count) {
        return 0;
    }
    return slot_size * options->slot_count;
}

gw_status gw_thc_server_init(gw_thc_server *handle, const gw_thc_server_options *options, void *memory,
                             size_t memory_size)
{
    if (handle == NULL) {
        return GW_ERR_ARG;
    }
    gw_thc_server_state *server = (gw_thc_server_state *)(void *)handle;
    gw_thc_agg agg;
    GW_MEMSET(handle, 0, sizeof *handle);
    if (options == NULL || memory == NULL || (uintptr_t)memory % _Alignof(gw_thc_slot) != 0) {
        return GW_ERR_ARG;
    }
    gw_status status = check_options(options);
    if (status != GW_OK) {
        return status;
    }
    size_t needed = gw_thc_server_memory_size(options);
    if (needed == 0 || memory_size < needed) {
        return GW_ERR_WORKSPACE;
    }
    gw_thc_agg_options sum = {options->table, options->worker_max, payload_lane_bits(options),
                              options->backends};
    status = gw_thc_agg_init(&agg, &sum);
    if (status != GW_OK) {
        return status;
    }
    server->agg = *gw_thc_agg_state_of(&agg);
    server->options = *options;
    server->result_type = options->op == GW_THC_OP_MAX ? GW_THC_PACKET_MAXIMA : GW_THC_PACKET_RESULT;
    server->set_size = (uint32_t)GW_THC_SET_SIZE(options->worker_max);
    server->version_size = version_size_of(options);
    server->slot_size = sizeof(gw_thc_slot) + 2 * server->version_size;
    server->memory = memory;
    GW_MEMSET(memory, 0, needed);
    for (uint32_t slot = 0; slot < options->slot_count; slot++) {
        gw_thc_slot *s = (gw_thc_slot *)(void *)(server->memory + slot * server->slot_size);
        s->version[0].round = options->round_first;
    }
    server->tag = GW_THC_SERVER_TAG;
    return GW_OK;
}
