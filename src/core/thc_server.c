/*
 * The parameter server: slots with two versions each. A version is kept as the packet that will be sent down, so a result is
 * never built or copied: closing it makes its bytes the answer. Part of the firmware profile.
 *
 *   slot     1 byte: which version is current; then two versions
 *   version  1 byte: state; the set of workers seen; the packet: 48 bytes header, contributor set, lanes
 */
#include "core/bytes.h"
#include "core/thc_aggregate.h"
#include "core/thc_context.h"
#include "core/thc_packet.h"

#define GW_THC_SERVER_TAG 0x53485447u /* "GTHS" */

enum {
    VERSION_EMPTY = 0,
    VERSION_OPEN = 1,
    VERSION_CLOSED = 2
};

/* Where the parts of a version are. */
typedef struct slot_version {
    uint8_t *state;
    uint8_t *seen;
    uint8_t *packet;
    uint8_t *set;
    uint8_t *lanes;
} slot_version;

static unsigned payload_lane_bits(const gw_thc_server_config *config)
{
    return config->op == GW_THC_OP_MAX ? 32u : config->lane_bits;
}

/* Bytes of a version, 0 if they do not fit size_t. */
static size_t version_size(const gw_thc_server_config *config)
{
    uint64_t size = 1u + 2u * (uint64_t)GW_THC_SET_SIZE(config->worker_max) + GW_THC_PACKET_HEADER_SIZE +
                    (uint64_t)config->slot_len * (payload_lane_bits(config) / 8);
    return size > SIZE_MAX / 4 ? 0 : (size_t)size;
}

static gw_status check_config(const gw_thc_server_config *c)
{
    gw_status status = gw_thc_table_check(&c->table);

    if (status != GW_OK)
        return status;
    if (c->op > GW_THC_OP_MAX || c->block_log2 < GW_THC_BLOCK_LOG2_MIN || c->block_log2 > GW_THC_BLOCK_LOG2_MAX)
        return GW_ERR_OPTION;
    if (c->round_window < 1 || c->round_window > 0x3fffffffu || c->slot_count < 1 || c->slot_len < 1)
        return GW_ERR_OPTION;
    if (c->blocks_per_packet < 1 || c->blocks_per_packet > 65535u)
        return GW_ERR_OPTION;
    if (c->op == GW_THC_OP_SUM && c->slot_len % 64 != 0)
        return GW_ERR_OPTION;
    status = gw_thc_check_sum(c->worker_max, c->table.granularity, payload_lane_bits(c));
    if (status != GW_OK)
        return status;
    return c->quorum >= 1 && c->quorum <= c->worker_max ? GW_OK : GW_ERR_OPTION;
}

size_t gw_thc_server_memory_size(const gw_thc_server_config *config)
{
    if (config == NULL || check_config(config) != GW_OK)
        return 0;
    size_t slot_size = 1 + 2 * version_size(config);
    if (slot_size == 1 || slot_size > SIZE_MAX / config->slot_count)
        return 0;
    return slot_size * config->slot_count;
}

gw_status gw_thc_server_init(gw_thc_server *server, const gw_thc_server_config *config, void *memory, size_t memory_size,
                             uint32_t backends)
{
    if (server == NULL)
        return GW_ERR_ARG;
    GW_MEMSET(server, 0, sizeof *server);
    if (config == NULL || memory == NULL)
        return GW_ERR_ARG;
    gw_status status = check_config(config);
    if (status != GW_OK)
        return status;
    size_t needed = gw_thc_server_memory_size(config);
    if (needed == 0 || memory_size < needed)
        return GW_ERR_WORKSPACE;
    status = gw_thc_agg_init(&server->agg, &config->table, config->worker_max, payload_lane_bits(config), backends);
    if (status != GW_OK)
        return status;
    server->config = *config;
    server->set_size = (uint32_t)GW_THC_SET_SIZE(config->worker_max);
    server->version_size = version_size(config);
    server->memory = memory;
    GW_MEMSET(memory, 0, needed);
    server->tag = GW_THC_SERVER_TAG;
    return GW_OK;
}

static uint8_t *slot_at(const gw_thc_server *server, uint32_t slot)
{
    return server->memory + (size_t)slot * (1 + 2 * server->version_size);
}

/* The slot's current version (back = 0) or the one before (back = 1). */
static slot_version version_at(const gw_thc_server *server, uint32_t slot, unsigned back)
{
    uint8_t *base = slot_at(server, slot);
    slot_version v;

    v.state = base + 1 + ((base[0] ^ back) & 1u) * server->version_size;
    v.seen = v.state + 1;
    v.packet = v.seen + server->set_size;
    v.set = v.packet + GW_THC_PACKET_HEADER_SIZE;
    v.lanes = v.set + server->set_size;
    return v;
}

static int seen_all(const gw_thc_server *server, const slot_version *v)
{
    return gw_thc_set_members(v->seen, server->config.worker_max) == server->config.worker_max;
}

/*
 * Order of a packet and a version on one slot: rounds modulo 2^32 first, then blocks. < 0: the packet is older.
 */
static int32_t packet_order(const gw_thc_packet *p, const slot_version *v)
{
    int32_t rounds = (int32_t)(p->round - gw_load32(v->packet + GW_PACKET_AT_ROUND));
    uint32_t block = gw_load32(v->packet + GW_PACKET_AT_FIRST_BLOCK);

    if (rounds != 0)
        return rounds;
    return p->first_block < block ? -1 : p->first_block > block;
}

static size_t result_size(const gw_thc_server *server, const slot_version *v)
{
    size_t lane_size = payload_lane_bits(&server->config) / 8;
    return GW_THC_PACKET_HEADER_SIZE + server->set_size + gw_load32(v->packet + GW_PACKET_AT_LEN) * lane_size;
}

static void reply_result(const gw_thc_server *server, const slot_version *v, gw_thc_action action, gw_thc_reply *reply)
{
    reply->action = action;
    reply->packet = v->packet;
    reply->packet_size = result_size(server, v);
}

/* Tells a straggler where the slot is now. */
static void reply_notice(const gw_thc_server *server, const slot_version *v, const gw_thc_packet *p,
                         gw_thc_reply *reply)
{
    uint8_t *n = reply->notice;

    /* The current version's header where there is one, so that the straggler can read round and block from it. */
    GW_MEMCPY(n, v->packet, GW_THC_PACKET_HEADER_SIZE);
    if (*v->state == VERSION_EMPTY) {
        gw_thc_packet_write_header(n, p);
        gw_store32(n + GW_PACKET_AT_ROUND, server->config.first_round);
    }
    n[GW_PACKET_AT_TYPE] = GW_THC_PACKET_NOTICE;
    n[GW_PACKET_AT_LANE_BITS] = 0;
    gw_store32(n + GW_PACKET_AT_JOB, server->config.job);
    gw_store16(n + GW_PACKET_AT_BLOCK_COUNT, 0);
    gw_store16(n + GW_PACKET_AT_RANK, (uint16_t)p->rank);
    gw_store32(n + GW_PACKET_AT_LEN, 0);
    gw_store64(n + GW_PACKET_AT_NORMS_HASH, 0);
    reply->action = GW_THC_ACTION_REPLY;
    reply->packet = n;
    reply->packet_size = GW_THC_PACKET_HEADER_SIZE;
}

/* What must hold of any packet for this server, whatever its round. */
static gw_status check_packet(const gw_thc_server *server, const gw_thc_packet *p)
{
    const gw_thc_server_config *c = &server->config;
    int is_sum = c->op == GW_THC_OP_SUM;

    if (is_sum ? p->type != GW_THC_PACKET_INDICES && p->type != GW_THC_PACKET_LANES : p->type != GW_THC_PACKET_NORMS)
        return GW_ERR_UNSUPPORTED;
    if (p->bits != c->table.bits || p->granularity != c->table.granularity || p->block_log2 != c->block_log2)
        return GW_ERR_HEADER;
    if (p->worker_max != c->worker_max || p->config_hash != c->config_hash)
        return GW_ERR_HEADER;
    if (p->type == GW_THC_PACKET_LANES && p->lane_bits != c->lane_bits)
        return GW_ERR_HEADER;
    if (p->first_block % c->blocks_per_packet != 0 || p->block_count > c->blocks_per_packet)
        return GW_ERR_HEADER;
    return p->len > c->slot_len ? GW_ERR_LIMIT : GW_OK;
}

/* Adds a packet to lanes and set. Everything is checked before anything changes. */
static gw_status add_packet(const gw_thc_server *server, const slot_version *v, const gw_thc_packet *p)
{
    if (p->type == GW_THC_PACKET_LANES)
        return gw_thc_agg_add_lanes(&server->agg, v->lanes, v->set, p->len, p->payload, p->set);
    if (p->type == GW_THC_PACKET_INDICES)
        return gw_thc_agg_add_indices(&server->agg, v->lanes, v->set, p->len, p->payload, p->rank);
    if (gw_set_has(v->set, p->rank))
        return GW_ERR_DUP;
    for (uint32_t i = 0; i < p->len; i++) {
        uint32_t pattern = gw_load32(p->payload + 4 * (size_t)i);
        if (pattern > gw_load32(v->lanes + 4 * (size_t)i))
            gw_store32(v->lanes + 4 * (size_t)i, pattern);
    }
    gw_set_put(v->set, p->rank);
    return GW_OK;
}

static void mark_seen(const gw_thc_server *server, const slot_version *v, const gw_thc_packet *p)
{
    if (p->type == GW_THC_PACKET_LANES)
        gw_thc_set_join(v->seen, p->set, server->config.worker_max);
    else
        gw_set_put(v->seen, p->rank);
}

/* Makes the slot's older version the current one, empty, for this packet's round and blocks. */
static void start_version(gw_thc_server *server, uint32_t slot, const gw_thc_packet *p)
{
    slot_version v;
    gw_thc_packet header = *p;

    slot_at(server, slot)[0] ^= 1u;
    v = version_at(server, slot, 0);
    GW_MEMSET(v.state, 0, server->version_size);
    header.type = server->config.op == GW_THC_OP_MAX ? GW_THC_PACKET_MAXIMA : GW_THC_PACKET_RESULT;
    header.lane_bits = (uint8_t)payload_lane_bits(&server->config);
    header.rank = 0;
    gw_thc_packet_write_header(v.packet, &header);
    *v.state = VERSION_OPEN;
}

/* A packet for an open version. */
static gw_status receive_open(gw_thc_server *server, const slot_version *v, const gw_thc_packet *p, gw_thc_reply *reply)
{
    if (p->block_count != gw_load16(v->packet + GW_PACKET_AT_BLOCK_COUNT) ||
        p->len != gw_load32(v->packet + GW_PACKET_AT_LEN) ||
        p->norms_hash != gw_load64(v->packet + GW_PACKET_AT_NORMS_HASH))
        return GW_ERR_HEADER;
    gw_status status = add_packet(server, v, p);
    if (status != GW_OK)
        return status;
    mark_seen(server, v, p);
    if (gw_thc_set_members(v->set, server->config.worker_max) >= server->config.quorum) {
        *v->state = VERSION_CLOSED;
        reply_result(server, v, GW_THC_ACTION_BROADCAST, reply);
    }
    return GW_OK;
}

/* A packet for a closed version: lost downlink, or a straggler. Either way the sender wants the result. */
static gw_status receive_closed(const gw_thc_server *server, const slot_version *v, const gw_thc_packet *p,
                                gw_thc_reply *reply)
{
    int is_late = p->type != GW_THC_PACKET_LANES && !gw_set_has(v->set, p->rank);

    if (p->type == GW_THC_PACKET_LANES) {
        if (gw_thc_set_members(p->set, server->config.worker_max) == UINT32_MAX)
            return GW_ERR_DUP;
        is_late = !gw_thc_sets_meet(v->set, p->set, server->config.worker_max);
    }
    mark_seen(server, v, p);
    reply_result(server, v, GW_THC_ACTION_REPLY, reply);
    return is_late ? GW_ERR_ROUND : GW_ERR_DUP;
}

/* A packet newer than the current version: opens the next one if it may. */
static gw_status receive_newer(gw_thc_server *server, uint32_t slot, const gw_thc_packet *p, gw_thc_reply *reply)
{
    slot_version current = version_at(server, slot, 0);
    slot_version before = version_at(server, slot, 1);
    int is_fresh = *current.state == VERSION_EMPTY;
    uint32_t base = is_fresh ? server->config.first_round : gw_load32(current.packet + GW_PACKET_AT_ROUND);
    uint32_t ahead = p->round - base; /* modulo 2^32 */

    if (ahead > server->config.round_window) {
        reply_notice(server, &current, p, reply);
        return GW_ERR_ROUND;
    }
    if (!is_fresh && (*current.state == VERSION_OPEN || (*before.state != VERSION_EMPTY && !seen_all(server, &current))))
        return GW_ERR_STATE;

    /* Only a packet that can be added may open a version. An empty sum accepts any valid one. */
    if (p->type == GW_THC_PACKET_LANES) {
        uint32_t members = gw_thc_set_members(p->set, server->config.worker_max);
        if (members == UINT32_MAX)
            return GW_ERR_DUP;
        GW_MEMSET(before.set, 0, server->set_size);
        gw_status status = gw_thc_agg_check_lanes(&server->agg, before.set, p->len, p->payload, p->set);
        if (status != GW_OK)
            return status;
    }
    start_version(server, slot, p);
    current = version_at(server, slot, 0);
    return receive_open(server, &current, p, reply);
}

gw_status gw_thc_server_receive(gw_thc_server *server, const uint8_t *packet, size_t packet_size, gw_thc_reply *reply)
{
    gw_thc_packet p;

    if (server == NULL || reply == NULL || (packet == NULL && packet_size > 0))
        return GW_ERR_ARG;
    reply->action = GW_THC_ACTION_NONE;
    reply->packet = NULL;
    reply->packet_size = 0;
    reply->rank = 0;
    if (server->tag != GW_THC_SERVER_TAG)
        return GW_ERR_STATE;
    gw_status status = gw_thc_packet_read(packet, packet_size, &p);
    if (status != GW_OK)
        return status;
    if (p.job != server->config.job)
        return GW_ERR_ROUND;
    status = check_packet(server, &p);
    if (status != GW_OK)
        return status;
    reply->rank = p.rank;

    uint32_t slot = p.first_block / server->config.blocks_per_packet % server->config.slot_count;
    slot_version current = version_at(server, slot, 0);
    slot_version before = version_at(server, slot, 1);
    if (*current.state == VERSION_EMPTY)
        return receive_newer(server, slot, &p, reply);
    int32_t order = packet_order(&p, &current);
    if (order > 0)
        return receive_newer(server, slot, &p, reply);
    if (order == 0)
        return *current.state == VERSION_OPEN ? receive_open(server, &current, &p, reply)
                                              : receive_closed(server, &current, &p, reply);
    if (*before.state == VERSION_CLOSED && packet_order(&p, &before) == 0)
        return receive_closed(server, &before, &p, reply);
    reply_notice(server, &current, &p, reply);
    return GW_ERR_ROUND;
}

static int is_usable(const gw_thc_server *server, uint32_t slot)
{
    return server != NULL && server->tag == GW_THC_SERVER_TAG && slot < server->config.slot_count;
}

gw_status gw_thc_server_seal(gw_thc_server *server, uint32_t slot, gw_thc_reply *reply)
{
    if (reply == NULL || !is_usable(server, slot))
        return GW_ERR_ARG;
    reply->action = GW_THC_ACTION_NONE;
    reply->rank = 0;
    reply->packet = NULL;
    reply->packet_size = 0;
    slot_version current = version_at(server, slot, 0);
    if (*current.state != VERSION_OPEN)
        return GW_ERR_STATE;
    *current.state = VERSION_CLOSED;
    reply_result(server, &current, GW_THC_ACTION_BROADCAST, reply);
    return GW_OK;
}

gw_status gw_thc_server_drop(gw_thc_server *server, uint32_t slot)
{
    if (!is_usable(server, slot))
        return GW_ERR_ARG;
    *version_at(server, slot, 1).state = VERSION_EMPTY;
    return GW_OK;
}

int gw_thc_server_slot_open(const gw_thc_server *server, uint32_t slot, uint32_t *round, uint32_t *members)
{
    if (!is_usable(server, slot))
        return 0;
    slot_version current = version_at(server, slot, 0);
    if (round != NULL)
        *round = gw_load32(current.packet + GW_PACKET_AT_ROUND);
    if (members != NULL)
        *members = gw_thc_set_members(current.set, server->config.worker_max);
    return *current.state == VERSION_OPEN;
}
