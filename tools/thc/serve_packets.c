/*
 * The packets of a job: to its servers of norms and sums, and what these say to its workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_serve.h"

#include <string.h>

#define PACKET_MAGIC 0x1a705767u /* "gWp", 0x1a (docs/format-thc.md section 4) */

enum { ROUNDS_APART = 2 }; /* a worker can be so far ahead of another, never further */

static gw_thc_packet_header header_read(const uint8_t *src)
{
    return (gw_thc_packet_header){
        .magic = gw_thc_get32(src),
        .version = src[4],
        .type = src[5],
        .bits = src[6],
        .granularity = src[7],
        .lane_bits = src[8],
        .block_log2 = src[9],
        .worker_max = gw_thc_get16(src + 10),
        .job = gw_thc_get32(src + 12),
        .round = gw_thc_get32(src + 16),
        .block_first = gw_thc_get32(src + 20),
        .block_count = gw_thc_get16(src + 24),
        .rank = gw_thc_get16(src + 26),
        .len = gw_thc_get32(src + 28),
        .options_hash = gw_thc_get64(src + 32),
        .norms_hash = gw_thc_get64(src + 40),
    };
}

/* Reads a packet and checks what does not depend on a job. */
static gw_status packet_check(const uint8_t *bytes, size_t size, gw_thc_packet_header *header)
{
    gw_thc_packet packet;
    if (size == GW_THC_PACKET_HEADER_SIZE && gw_thc_get32(bytes) == PACKET_MAGIC && bytes[4] == 0 &&
        bytes[5] == GW_THC_PACKET_ASK) {
        *header = header_read(bytes); /* its other fields are checked with those of the server's own */
        return header->rank < header->worker_max ? GW_OK : GW_ERR_DUP;
    }
    const gw_status status = gw_thc_packet_parse(bytes, size, &packet);
    if (status != GW_OK) {
        return status;
    }
    *header = packet.header;
    return header->type == GW_THC_PACKET_NORMS || header->type == GW_THC_PACKET_INDICES ? GW_OK
                                                                                        : GW_ERR_UNSUPPORTED;
}

/* ---- answers ---- */

/* reason: of REFUSED, else 0 */
static void answer(thc_serve *serve, const thc_job *job, const thc_peer *to, const gw_thc_packet_header *h,
                   unsigned type, unsigned reason)
{
    const gw_thc_message m = {
        .type = (uint8_t)type,
        .reason = (uint16_t)reason,
        .job = h->job,
        .rank = h->rank,
        .worker_max = h->worker_max,
        .options_hash = h->options_hash,
    };
    thc_serve_answer(serve, job, to, &m);
}

/* A version was closed: everyone gets it, and the sums learn how many may be in them. */
static void broadcast(thc_serve *serve, thc_job *job, int op, uint32_t slot, const gw_thc_reply *reply)
{
    const uint32_t members =
        gw_thc_set_members(reply->packet + GW_THC_PACKET_HEADER_SIZE, job->options.worker_max);
    thc_slot *s = &job->slots[op][slot];
    s->opened = -1;
    s->round = gw_thc_get32(reply->packet + 16);
    s->members = members;
    serve->counts.results++;
    serve->counts.partial += members < job->options.worker_max;
    job->results++;
    job->partial += members < job->options.worker_max;
    for (uint32_t w = 0; w < job->options.worker_max; w++) {
        if (!job->workers[w].has_left) {
            thc_serve_send(serve, &job->workers[w].peer, reply->packet, reply->packet_size);
        }
    }
}

/* ---- closing ---- */

/* How many workers can still be part of the version: of sums, those in the maxima of its blocks. */
static uint32_t contributors_max(const thc_job *job, int op, uint32_t slot, uint32_t round)
{
    const thc_slot *norms = &job->slots[THC_NORMS][slot / (job->blocks[THC_NORMS] / job->blocks[THC_SUMS])];
    return op == THC_SUMS && norms->members > 0 && norms->round == round ? norms->members
                                                                         : job->options.worker_max;
}

/* Closes a slot's current version if enough workers have contributed, or enough time has passed. */
static void close_slot(thc_serve *serve, thc_job *job, int op, uint32_t slot, double now)
{
    const uint32_t n = job->options.worker_max;
    uint32_t round, members;
    gw_thc_reply reply;
    if (!gw_thc_server_slot_open(&job->servers[op], slot, &round, &members) || members == 0) {
        return;
    }
    if (job->is_back && (int32_t)(round - job->full_until) <= 0) {
        return; /* job_start() */
    }
    const uint32_t possible = contributors_max(job, op, slot, round);
    uint32_t needed = serve->limits.quorum != 0 && serve->limits.quorum < n ? serve->limits.quorum : n;
    needed = needed < possible ? needed : possible;
    const double opened = job->slots[op][slot].opened;
    const int is_late = serve->limits.wait_s > 0 && opened >= 0 && now - opened >= serve->limits.wait_s;
    if ((members >= needed || is_late) && gw_thc_server_seal(&job->servers[op], slot, &reply) == GW_OK) {
        broadcast(serve, job, op, slot, &reply);
    }
}

static void job_sweep(thc_serve *serve, thc_job *job, double now)
{
    for (int op = 0; op < 2; op++) {
        for (uint32_t slot = 0; slot < job->server_options[op].slot_count; slot++) {
            if (job->slots[op][slot].opened >= 0) {
                close_slot(serve, job, op, slot, now);
            }
        }
    }
}

void thc_serve_tick(thc_serve *serve, double now)
{
    thc_serve_forget(serve, now);
    if (serve->limits.wait_s <= 0 || now - serve->sweep_time < serve->limits.wait_s / 4) {
        return;
    }
    serve->sweep_time = now;
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        if (serve->jobs[i] != NULL && serve->jobs[i]->has_started) {
            job_sweep(serve, serve->jobs[i], now);
        }
    }
}

/* ---- receiving ---- */

/* The round of the worker that is furthest behind. */
static uint32_t lowest_round(const thc_job *job)
{
    uint32_t lowest = job->workers[0].round;
    for (uint32_t w = 1; w < job->options.worker_max; w++) {
        if ((int32_t)(job->workers[w].round - lowest) < 0) {
            lowest = job->workers[w].round;
        }
    }
    return lowest;
}

/*
 * Makes room in a slot that refuses a packet because it is busy; 1 if there is some now. A packet of a worker
 * says that it has all results of earlier rounds:
 *   - once all workers are at the round of the current version, nobody needs the version before, even if the
 * server has not seen each of them there, as it has not where a worker got a result by broadcast and had
 * nothing to add;
 *   - once all are beyond the round of the current version, nobody needs that either. It can be open where
 * some of them sent their packets of it again to a server that was started anew. It is closed, but its sum is
 * sent to nobody: the workers have another one.
 */
static int make_room(thc_serve *serve, thc_job *job, int op, uint32_t slot)
{
    gw_thc_server *server = &job->servers[op];
    thc_slot *s = &job->slots[op][slot];
    uint32_t round;
    gw_thc_reply reply;
    const int is_open = gw_thc_server_slot_open(server, slot, &round, NULL);
    const int32_t beyond = (int32_t)(lowest_round(job) - round);
    if (beyond < 0 || (is_open && beyond == 0)) {
        return 0;
    }
    if (is_open && gw_thc_server_seal(server, slot, &reply) == GW_OK) {
        s->opened = -1;
        s->has_abandoned = 1;
        s->abandoned = round;
    }
    serve->counts.dropped++;
    return gw_thc_server_drop(server, slot) == GW_OK;
}

static gw_status server_receive(thc_serve *serve, thc_job *job, int op, uint32_t slot, const uint8_t *packet,
                                size_t size, gw_thc_reply *reply)
{
    const thc_slot *s = &job->slots[op][slot];
    gw_status status = gw_thc_server_receive(&job->servers[op], packet, size, reply);
    if (status == GW_ERR_STATE && make_room(serve, job, op, slot)) {
        status = gw_thc_server_receive(&job->servers[op], packet, size, reply);
    }
    if (reply->action == GW_THC_ACTION_REPLY && s->has_abandoned &&
        s->abandoned == gw_thc_get32(reply->packet + 16) && reply->packet[5] != GW_THC_PACKET_NOTICE) {
        reply->action = GW_THC_ACTION_NONE;
    }
    return status;
}

/* A worker that has nothing to add wants a result: as if an aggregator of no workers asked. */
static gw_status ask(thc_serve *serve, thc_job *job, uint32_t slot, const gw_thc_packet_header *h,
                     gw_thc_reply *reply)
{
    gw_thc_packet_header lanes = *h;
    uint32_t round;
    lanes.type = GW_THC_PACKET_LANES;
    lanes.lane_bits = job->options.lane_bits;
    lanes.rank = 0;
    const size_t size =
        gw_thc_packet_size(lanes.type, lanes.bits, lanes.lane_bits, lanes.worker_max, lanes.len);
    memset(reply, 0, sizeof *reply);
    serve->counts.asked++;
    if (h->lane_bits != 0) {
        return GW_ERR_MISMATCH;
    }
    if (h->len > job->server_options[THC_SUMS].slot_len || size > sizeof serve->empty) {
        return GW_ERR_LIMIT;
    }
    (void)gw_thc_server_slot_open(&job->servers[THC_SUMS], slot, &round, NULL);
    if ((int32_t)(h->round - round) > 0) {
        return GW_ERR_STATE; /* nobody has contributed yet */
    }
    memset(serve->empty, 0, size);
    gw_thc_packet_write(serve->empty, &lanes);
    return gw_thc_server_receive(&job->servers[THC_SUMS], serve->empty, size, reply);
}

static void count_status(thc_serve *serve, gw_status status, int is_ask, const gw_thc_reply *reply)
{
    const int is_result = reply->action == GW_THC_ACTION_REPLY && reply->packet[5] != GW_THC_PACKET_NOTICE;
    serve->counts.repeated += is_result ? 1u : 0u;
    if (status == GW_OK) {
        serve->counts.added += is_ask ? 0u : 1u;
    } else if (!is_result) {
        thc_serve_refuse(serve, status);
    }
}

/* A packet of a worker of a job that has started. */
static void worker_packet(thc_serve *serve, thc_job *job, const thc_peer *from, const gw_thc_packet_header *h,
                          const uint8_t *packet, size_t size, double now)
{
    const int op = h->type == GW_THC_PACKET_NORMS ? THC_NORMS : THC_SUMS;
    const int is_ask = h->type == GW_THC_PACKET_ASK;
    const uint32_t slot = h->block_first / job->blocks[op];
    thc_worker *worker = &job->workers[h->rank];
    const int32_t ahead = (int32_t)(h->round - lowest_round(job));
    gw_thc_reply reply;

    if (slot >= job->server_options[op].slot_count) {
        thc_serve_refuse(serve, GW_ERR_LIMIT); /* beyond the job's largest tensor, whenever it comes */
        answer(serve, job, from, h, GW_THC_MESSAGE_REFUSED, GW_THC_REFUSAL_OPTIONS);
        return;
    }
    if (ahead > ROUNDS_APART || ahead < -ROUNDS_APART) {
        thc_serve_refuse(serve, GW_ERR_ROUND); /* late, or others are: a sign of life */
        answer(serve, job, from, h, GW_THC_MESSAGE_WELCOME, 0);
        return;
    }
    if ((int32_t)(h->round - worker->round) > 0) {
        worker->round = h->round;
    }
    const gw_status status = is_ask ? ask(serve, job, slot, h, &reply)
                                    : server_receive(serve, job, op, slot, packet, size, &reply);
    count_status(serve, status, is_ask, &reply);
    if (reply.action == GW_THC_ACTION_BROADCAST) {
        broadcast(serve, job, op, slot, &reply);
    } else if (reply.action == GW_THC_ACTION_REPLY) {
        thc_serve_send(serve, from, reply.packet, reply.packet_size);
    } else if (status == GW_OK && !is_ask) {
        if (job->slots[op][slot].opened < 0) {
            job->slots[op][slot].opened = now;
        }
        close_slot(serve, job, op, slot, now);
    } else if (is_ask || status != GW_OK) {
        answer(serve, job, from, h, GW_THC_MESSAGE_WELCOME, 0); /* a sign of life: others are late */
    }
}

static void on_packet(thc_serve *serve, const thc_peer *from, const uint8_t *bytes, size_t size, double now)
{
    gw_thc_packet_header h;
    const gw_status status = packet_check(bytes, size, &h);
    if (status != GW_OK) {
        thc_serve_refuse(serve, status);
        return;
    }
    thc_job *job = thc_serve_job(serve, h.job);
    if (!thc_job_has(job, h.rank, from)) {
        serve->counts.unknown++;
        if (thc_serve_may_reply(serve, from, from->connection != 0, now)) {
            answer(serve, job, from, &h, GW_THC_MESSAGE_AGAIN, 0);
        }
        return;
    }
    if (h.worker_max != job->options.worker_max || h.options_hash != job->options.options_hash) {
        thc_serve_refuse(serve, GW_ERR_MISMATCH);
        answer(serve, job, from, &h, GW_THC_MESSAGE_REFUSED, GW_THC_REFUSAL_DIFFERENT);
        return;
    }
    job->last_packet = now;
    job->received++;
    if (job->failure != 0) {
        answer(serve, job, from, &h, GW_THC_MESSAGE_REFUSED, job->failure);
    } else if (!job->has_started) {
        serve->counts.early++;
        answer(serve, job, from, &h, GW_THC_MESSAGE_WELCOME, 0);
    } else {
        worker_packet(serve, job, from, &h, bytes, size, now);
    }
}

void thc_serve_receive(thc_serve *serve, const thc_peer *from, const uint8_t *packet, size_t packet_size,
                       double now)
{
    gw_thc_message message;
    serve->counts.received++;
    serve->counts.received_size += packet_size;
    if (!gw_thc_message_is(packet, packet_size)) {
        on_packet(serve, from, packet, packet_size, now);
        return;
    }
    const gw_status status = gw_thc_message_parse(packet, packet_size, &message);
    if (status != GW_OK) {
        thc_serve_refuse(serve, status);
    } else {
        thc_serve_on_message(serve, from, &message, now);
    }
}
