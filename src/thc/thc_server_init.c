/*
 * Making a parameter server. A NIC's host does this; the packet path is in thc_server.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "thc/thc_context.h"
#include "thc/thc_server.h"

static unsigned payload_lane_bits(const gw_thc_server_config *config)
{
    return config->op == GW_THC_OP_MAX ? 32u : config->lane_bits;
}

/* Bytes of a version, 0 if they are too many for size_t. */
static size_t version_size_of(const gw_thc_server_config *config)
{
    uint64_t size = 2u * (uint64_t)GW_THC_SET_SIZE(config->worker_max) + GW_THC_PACKET_HEADER_SIZE +
                    (uint64_t)config->slot_len * (payload_lane_bits(config) / 8);
    return size > SIZE_MAX / 4 ? 0 : (size_t)(size + 7) & ~(size_t)7;
}

static gw_status check_config(const gw_thc_server_config *c)
{
    gw_status status = gw_thc_table_check(&c->table);

    if (status != GW_OK) {
        return status;
    }
    if (c->op > GW_THC_OP_MAX || c->block_log2 < GW_THC_BLOCK_LOG2_MIN ||
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

size_t gw_thc_server_memory_size(const gw_thc_server_config *config)
{
    if (config == NULL || check_config(config) != GW_OK) {
        return 0;
    }
    size_t version_size = version_size_of(config);
    size_t slot_size = sizeof(gw_thc_slot) + 2 * version_size;
    if (version_size == 0 || slot_size > SIZE_MAX / config->slot_count) {
        return 0;
    }
    return slot_size * config->slot_count;
}

gw_status gw_thc_server_init(gw_thc_server *server, const gw_thc_server_config *config, void *memory,
                             size_t memory_size, uint32_t backends)
{
    if (server == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(server, 0, sizeof *server);
    if (config == NULL || memory == NULL || (uintptr_t)memory % _Alignof(gw_thc_slot) != 0) {
        return GW_ERR_ARG;
    }
    gw_status status = check_config(config);
    if (status != GW_OK) {
        return status;
    }
    size_t needed = gw_thc_server_memory_size(config);
    if (needed == 0 || memory_size < needed) {
        return GW_ERR_WORKSPACE;
    }
    status = gw_thc_agg_init(&server->agg, &config->table, config->worker_max, payload_lane_bits(config),
                             backends);
    if (status != GW_OK) {
        return status;
    }
    server->config = *config;
    server->result_type = config->op == GW_THC_OP_MAX ? GW_THC_PACKET_MAXIMA : GW_THC_PACKET_RESULT;
    server->set_size = (uint32_t)GW_THC_SET_SIZE(config->worker_max);
    server->version_size = version_size_of(config);
    server->slot_size = sizeof(gw_thc_slot) + 2 * server->version_size;
    server->memory = memory;
    GW_MEMSET(memory, 0, needed);
    for (uint32_t slot = 0; slot < config->slot_count; slot++) {
        gw_thc_slot *s = (gw_thc_slot *)(void *)(server->memory + slot * server->slot_size);
        s->version[0].round = config->first_round;
    }
    server->tag = GW_THC_SERVER_TAG;
    return GW_OK;
}
