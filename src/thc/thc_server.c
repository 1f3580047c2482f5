/*
 * The parameter server: slots with two versions each. A version is kept as the RESULT packet that will carry
 * it, so results are not built or copied: closing a version makes its bytes the answer. Part of the firmware
 * profile.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_server.h"

#include "thc/thc_handle.h"
#include "thc/thc_packet.h"

static gw_thc_slot *slot_at(const gw_thc_server_state *server, uint32_t slot)
{
    return (gw_thc_slot *)(void *)(server->memory + (size_t)slot * server->slot_size);
}

/* The arrays of a version follow the slot's fixed part: contributors and lanes in its packet, then workers
 * seen. */
static uint8_t *packet_of(const gw_thc_server_state *server, gw_thc_slot *slot, unsigned v)
{
    return (uint8_t *)(slot + 1) + v * server->version_size;
}

static uint8_t *set_of(const gw_thc_server_state *server, gw_thc_slot *slot, unsigned v)
{
    return packet_of(server, slot, v) + GW_THC_PACKET_HEADER_SIZE;
}

static uint8_t *seen_of(const gw_thc_server_state *server, gw_thc_slot *slot, unsigned v)
{
    return packet_of(server, slot, v) + server->version_size - server->set_size;
}

static void reply_with(gw_thc_reply *reply, gw_thc_action action, const uint8_t *packet, size_t packet_size)
{
    reply->action = action;
    reply->packet = packet;
    reply->packet_size = packet_size;
}

/* Replies with a version's packet. */
static void reply_version(const gw_thc_server_state *server, gw_thc_slot *slot, unsigned v,
                          gw_thc_action action, gw_thc_reply *reply)
{
    size_t lanes_size = slot->version[v].len * (size_t)(server->agg.lane_bits / 8);
    reply_with(reply, action, packet_of(server, slot, v),
               GW_THC_PACKET_HEADER_SIZE + server->set_size + lanes_size);
}

/* Tells a late worker the current round of the slot: a NOTICE with the first block of its packet. Overwrites
 * *h. */
static gw_status reply_notice(gw_thc_packet_header *h, uint32_t round, gw_thc_reply *reply)
{
    h->type = GW_THC_PACKET_NOTICE;
    h->lane_bits = 0;
    h->round = round;
    h->block_count = 0;
    h->len = 0;
    h->norms_hash = 0;
    gw_thc_header_store(reply->notice, h);
    reply_with(reply, GW_THC_ACTION_REPLY, reply->notice, GW_THC_PACKET_HEADER_SIZE);
    return GW_ERR_ROUND;
}

/* Checks of a packet for this server that do not depend on the round. The server's options are valid, so
 * equality suffices for the one-byte fields. */
static gw_status check_packet(const gw_thc_server_state *server, const gw_thc_packet_header *h)
{
    const gw_thc_server_options *c = &server->options;
    uint32_t lane_bits = 0;

    if (c->op == GW_THC_OP_MAX ? h->type != GW_THC_PACKET_NORMS : h->type > GW_THC_PACKET_LANES) {
        return GW_ERR_UNSUPPORTED;
    }
    if (h->type != GW_THC_PACKET_INDICES) {
        lane_bits = server->agg.lane_bits;
    }
    if (h->bits != c->table.bits || h->granularity != c->table.granularity || h->lane_bits != lane_bits ||
        h->block_log2 != c->block_log2 || h->worker_max != c->worker_max ||
        h->options_hash != c->options_hash || h->block_first % c->blocks_per_packet != 0 ||
        h->block_count > c->blocks_per_packet) {
        return GW_ERR_MISMATCH;
    }
    return h->job == c->job ? GW_OK : GW_ERR_ROUND;
}

/*
 * dst = max(dst, src), word by word. An impossible norm is refused before any word changes, because one NaN
 * would spoil the maximum of all workers. Codes of plain blocks are checked by their receivers only: checking
 * them here would exceed the firmware's code budget.
 */
static gw_status max_patterns(uint8_t *dst, const uint8_t *src, uint32_t len, int are_norms)
{
    for (uint32_t i = 0; i < 4 * len; i += 4) {
        if (are_norms && !gw_thc_norm_is_good(gw_load32(src + i))) {
            return GW_ERR_CORRUPT;
        }
    }
    for (uint32_t i = 0; i < 4 * len; i += 4) {
        if (gw_load32(src + i) > gw_load32(dst + i)) {
            GW_MEMCPY(dst + i, src + i, 4);
        }
    }
    return GW_OK;
}

/* Adds a packet to a version's lanes and set. Everything is checked before anything changes. */
static gw_status add_packet(const gw_thc_server_state *server, uint8_t *set, const gw_thc_packet *p)
{
    gw_thc_partial sum = {set + server->set_size, set, p->header.len};
    uint32_t rank = p->header.rank;

    if (p->set != NULL) {
        return gw_thc_sum_lanes(&server->agg, &sum, p->payload, p->set);
    }
    if (p->header.type == GW_THC_PACKET_INDICES) {
        return gw_thc_sum_indices(&server->agg, &sum, p->payload, rank);
    }
    if (gw_set_has(set, rank)) {
        return GW_ERR_DUP;
    }
    if (max_patterns(sum.lanes, p->payload, p->header.len, p->header.len == p->header.block_count) != GW_OK) {
        return GW_ERR_CORRUPT;
    }
    gw_set_put(set, rank);
    return GW_OK;
}

static void mark_seen(const gw_thc_server_state *server, uint8_t *seen, const gw_thc_packet *p)
{
    if (p->set != NULL) {
        gw_thc_set_join(seen, p->set, server->options.worker_max);
    } else {
        gw_set_put(seen, p->header.rank);
    }
}

/*
 * A packet for version v. Open: it is added. Closed: the result was lost on its way, or the sender is late;
 * the reply is the result either way.
 */
static gw_status receive_at(const gw_thc_server_state *server, gw_thc_slot *slot, unsigned v,
                            const gw_thc_packet *p, gw_thc_reply *reply)
{
    gw_thc_version *version = &slot->version[v];
    uint8_t *set = set_of(server, slot, v);
    gw_thc_action action = GW_THC_ACTION_BROADCAST;
    gw_status status;

    if (p->header.block_count != version->block_count || p->header.len != version->len ||
        p->header.norms_hash != version->norms_hash) {
        return GW_ERR_MISMATCH;
    }
    if (version->state == GW_THC_VERSION_OPEN) {
        status = add_packet(server, set, p);
        if (status != GW_OK) {
            return status;
        }
        if (gw_thc_set_members(set, server->options.worker_max) >= server->options.quorum) {
            version->state = GW_THC_VERSION_CLOSED;
        }
    } else {
        int is_in = p->set != NULL ? gw_thc_sets_meet(set, p->set, server->options.worker_max)
                                   : gw_set_has(set, p->header.rank);
        action = GW_THC_ACTION_REPLY;
        status = is_in ? GW_ERR_DUP : GW_ERR_ROUND;
    }
    mark_seen(server, seen_of(server, slot, v), p);
    if (version->state == GW_THC_VERSION_CLOSED) {
        reply_version(server, slot, v, action, reply);
    }
    return status;
}

/* Opens version v, which is free, for this packet's round and blocks, adds the packet, and makes v the
 * current version. If the packet is refused the version stays free. */
static gw_status open_version(const gw_thc_server_state *server, gw_thc_slot *slot, unsigned v,
                              const gw_thc_packet *p, gw_thc_reply *reply)
{
    gw_thc_version *version = &slot->version[v];
    uint8_t *packet = packet_of(server, slot, v);

    version->round = p->header.round;
    version->block_first = p->header.block_first;
    version->len = p->header.len;
    version->block_count = p->header.block_count;
    version->norms_hash = p->header.norms_hash;
    version->state = GW_THC_VERSION_OPEN;
    GW_MEMSET(packet, 0, server->version_size);
    gw_thc_header_store(packet, &p->header);
    packet[offsetof(gw_thc_packet_header, type)] = server->result_type;
    packet[offsetof(gw_thc_packet_header, lane_bits)] = (uint8_t)server->agg.lane_bits;
    GW_MEMSET(packet + offsetof(gw_thc_packet_header, rank), 0, 2);
    gw_status status = receive_at(server, slot, v, p, reply);
    if (status == GW_OK) {
        slot->current = v;
    } else {
        version->state = GW_THC_VERSION_EMPTY;
    }
    return status;
}

/* Finds the version of a packet by the order of rounds (modulo 2^32) and, within a round, of blocks. */
static gw_status receive_ordered(const gw_thc_server_state *server, gw_thc_packet *p, gw_thc_reply *reply)
{
    gw_thc_packet_header *h = &p->header;
    gw_thc_slot *slot =
        slot_at(server, h->block_first / server->options.blocks_per_packet % server->options.slot_count);
    const gw_thc_version *current = &slot->version[slot->current];
    unsigned other = slot->current ^ 1u;

    for (unsigned v = 0; v < 2; v++) {
        const gw_thc_version *version = &slot->version[v];
        if (version->state != GW_THC_VERSION_EMPTY && version->round == h->round &&
            version->block_first == h->block_first) {
            return receive_at(server, slot, v, p, reply);
        }
    }
    /* Neither version: it must be newer. The difference to an older round is 2^31 or more. */
    uint32_t ahead = h->round - current->round;
    if (ahead > server->options.round_window || (ahead == 0 && h->block_first < current->block_first)) {
        return reply_notice(h, current->round, reply);
    }
    if (current->state == GW_THC_VERSION_OPEN) {
        return GW_ERR_STATE;
    }
    if (slot->version[other].state != GW_THC_VERSION_EMPTY &&
        gw_thc_set_members(seen_of(server, slot, slot->current), server->options.worker_max) !=
            server->options.worker_max) {
        return GW_ERR_STATE;
    }
    return open_version(server, slot, other, p, reply);
}

static void clear_reply(gw_thc_reply *reply)
{
    reply->rank = 0;
    reply_with(reply, GW_THC_ACTION_NONE, NULL, 0);
}

gw_status gw_thc_server_receive(gw_thc_server *handle, const uint8_t *packet, size_t packet_size,
                                gw_thc_reply *reply)
{
    const gw_thc_server_state *server = gw_thc_server_state_of(handle);
    gw_thc_packet p;

    if (reply != NULL) {
        clear_reply(reply);
    }
    if (handle == NULL || reply == NULL || packet == NULL) {
        return GW_ERR_ARG;
    }
    if (server == NULL) {
        return GW_ERR_STATE;
    }
    gw_status status = gw_thc_packet_open(&p, packet, packet_size);
    if (status == GW_OK) {
        status = check_packet(server, &p.header);
    }
    if (status == GW_OK) {
        status = gw_thc_packet_measure(&p, packet, packet_size);
    }
    if (status == GW_OK && p.header.len > server->options.slot_len) {
        status = GW_ERR_LIMIT;
    }
    if (status == GW_OK && p.set != NULL &&
        gw_thc_set_members(p.set, server->options.worker_max) == UINT32_MAX) {
        status = GW_ERR_DUP;
    }
    if (status != GW_OK) {
        return status;
    }
    reply->rank = p.header.rank;
    return receive_ordered(server, &p, reply);
}

/* GW_ERR_ARG, GW_ERR_STATE. */
static gw_status check_slot(const gw_thc_server *handle, uint32_t slot)
{
    const gw_thc_server_state *server = gw_thc_server_state_of(handle);

    if (server == NULL) {
        return handle == NULL ? GW_ERR_ARG : GW_ERR_STATE;
    }
    return slot < server->options.slot_count ? GW_OK : GW_ERR_ARG;
}

gw_status gw_thc_server_seal(gw_thc_server *handle, uint32_t slot, gw_thc_reply *reply)
{
    if (reply == NULL) {
        return GW_ERR_ARG;
    }
    clear_reply(reply);
    gw_status status = check_slot(handle, slot);
    if (status != GW_OK) {
        return status;
    }
    const gw_thc_server_state *server = gw_thc_server_inside(handle);
    gw_thc_slot *s = slot_at(server, slot);
    gw_thc_version *current = &s->version[s->current];
    if (current->state != GW_THC_VERSION_OPEN) {
        return GW_ERR_STATE;
    }
    current->state = GW_THC_VERSION_CLOSED;
    reply_version(server, s, s->current, GW_THC_ACTION_BROADCAST, reply);
    return GW_OK;
}

gw_status gw_thc_server_drop(gw_thc_server *handle, uint32_t slot)
{
    gw_status status = check_slot(handle, slot);

    if (status == GW_OK) {
        gw_thc_slot *s = slot_at(gw_thc_server_inside(handle), slot);
        s->version[s->current ^ 1u].state = GW_THC_VERSION_EMPTY;
    }
    return status;
}

int gw_thc_server_slot_open(const gw_thc_server *handle, uint32_t slot, uint32_t *round, uint32_t *members)
{
    uint32_t found_round = 0, found_members = 0;
    int is_open = 0;

    if (check_slot(handle, slot) == GW_OK) {
        const gw_thc_server_state *server = gw_thc_server_inside(handle);
        gw_thc_slot *s = slot_at(server, slot);
        const gw_thc_version *current = &s->version[s->current];
        found_round = current->round;
        found_members = gw_thc_set_members(set_of(server, s, s->current), server->options.worker_max);
        is_open = current->state == GW_THC_VERSION_OPEN;
    }
    if (round != NULL) {
        *round = found_round;
    }
    if (members != NULL) {
        *members = found_members;
    }
    return is_open;
}
