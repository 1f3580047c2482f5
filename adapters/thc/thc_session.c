/*
 * A worker's side of a parameter server: joining, and the packets of a phase until each has its answer.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_session.h"

#include <stdlib.h>
#include <string.h>

#define TIMER_MIN                                                                                            \
    0.05 /* seconds until a packet is sent again the first time; then twice as long each time                \
          */
#define TIMER_FIRST 0.2
#define TIMER_MAX   2.0
#define JOIN_TIMER  0.1
#define TAKEN_S     15.0 /* in which a server finds out that a connection that had this rank is gone */

enum {
    WINDOW_MIN = 4, /* packets on their way */
    WINDOW_FIRST = 8,
    WINDOW_LOW = 64, /* at most so many, or as many as WINDOW_SIZE holds, but no more than WINDOW_HIGH */
    WINDOW_HIGH = 256,
    WINDOW_SIZE = 1 << 18, /* bytes of answers */
    OVERTAKEN = 8          /* answers to packets sent later that make a packet count as lost */
};

typedef struct chunk {
    uint64_t norms_hash;
    uint64_t set_hash; /* of the contributors of the answer */
    uint64_t number;   /* of the last sending */
    double sent_at, due;
    uint32_t sends; /* to this server */
    uint32_t members;
    uint8_t is_done;     /* its answer is there */
    uint8_t is_settled;  /* by this server: nothing is sent any more */
    uint8_t is_asking;   /* this worker contributes nothing */
    uint8_t is_left_out; /* by the answer */
} chunk;

/* A phase with all that is needed to send its packets again. */
typedef struct phase {
    uint8_t *payload, *result;
    chunk *chunks;
    size_t payload_capacity, result_capacity, chunk_capacity;
    uint64_t len, blocks;
    uint32_t round;
    uint32_t chunk_blocks, chunk_count;
    uint32_t first_open, first_unsent; /* chunks: all before are settled, or have been sent */
    uint32_t done, on_way;
    int is_sum, exists;
} phase;

struct gw_thc_session {
    gw_thc thc;
    gw_thc_options options;
    uint64_t options_hash, len_max;
    uint32_t rank, patterns_per_block;
    int is_stream;

    int has_welcome, is_ready, wants_socket;
    uint64_t cookie, epoch;
    uint32_t joined, sums_blocks, norms_blocks;
    double join_due, join_timer;
    double taken; /* since when the server says that the rank is taken; below 0: it does not */
    int has_partial;
    uint32_t partial_round;

    phase phases[2]; /* the current one, and that before */
    unsigned current;
    uint64_t number, recover; /* sendings so far; the one at which the window last became smaller */
    double window, window_max, threshold, round_trip;

    gw_thc_fault fault;
    gw_thc_session_state counts;
    uint8_t packet[GW_THC_DATAGRAM_MAX];
};

gw_thc_session *gw_thc_session_create(const gw_thc_session_options *options)
{
    const gw_thc_options *o =
        options != NULL && options->thc != NULL ? gw_thc_options_of(options->thc) : NULL;
    if (o == NULL || options->rank >= o->worker_max || options->len_max == 0) {
        return NULL;
    }
    gw_thc_session *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->thc = *options->thc;
    s->options = *o;
    s->options_hash = gw_thc_options_hash(&s->thc);
    s->patterns_per_block = (uint32_t)gw_thc_patterns_per_block(&s->thc);
    s->rank = options->rank;
    s->len_max = options->len_max;
    s->is_stream = options->is_stream;
    s->window = WINDOW_FIRST;
    s->threshold = s->window_max = WINDOW_LOW;
    s->round_trip = TIMER_FIRST / 2;
    s->join_timer = JOIN_TIMER;
    s->taken = -1;
    return s;
}

void gw_thc_session_free(gw_thc_session *s)
{
    if (s != NULL) {
        for (unsigned i = 0; i < 2; i++) {
            free(s->phases[i].payload);
            free(s->phases[i].result);
            free(s->phases[i].chunks);
        }
        free(s);
    }
}

/* ---- geometry ---- */

static uint32_t chunk_blocks_of(const phase *p, uint32_t i)
{
    const uint64_t left = p->blocks - (uint64_t)i * p->chunk_blocks;
    return left < p->chunk_blocks ? (uint32_t)left : p->chunk_blocks;
}

/* Lanes or patterns of a chunk. */
static uint32_t chunk_len(const gw_thc_session *s, const phase *p, uint32_t i)
{
    const uint32_t blocks = chunk_blocks_of(p, i);
    const uint64_t first = (uint64_t)i * p->chunk_blocks;
    return p->is_sum ? (uint32_t)gw_thc_range_lanes(&s->thc, p->len, first, blocks)
                     : blocks * s->patterns_per_block;
}

/* Where `blocks` blocks end in the payload or the result. */
static size_t payload_offset(const gw_thc_session *s, const phase *p, uint64_t blocks)
{
    return p->is_sum ? gw_thc_indices_size(&s->thc, p->len, 0, blocks)
                     : (size_t)blocks * s->patterns_per_block * 4;
}

static size_t result_offset(const gw_thc_session *s, const phase *p, uint64_t blocks)
{
    return p->is_sum ? gw_thc_lanes_size(&s->thc, p->len, 0, blocks)
                     : (size_t)blocks * s->patterns_per_block * 4;
}

static uint64_t blocks_before(const phase *p, uint32_t i)
{
    const uint64_t blocks = (uint64_t)i * p->chunk_blocks;
    return blocks < p->blocks ? blocks : p->blocks;
}

/* ---- phases ---- */

static int grow(uint8_t **memory, size_t *capacity, size_t size)
{
    if (size > *capacity) {
        uint8_t *more = realloc(*memory, size);
        if (more == NULL) {
            return -1;
        }
        *memory = more;
        *capacity = size;
    }
    return 0;
}

/* Cuts the phase as the server wants it; once it is known. */
static int phase_cut(gw_thc_session *s, phase *p)
{
    p->chunk_blocks = p->is_sum ? s->sums_blocks : s->norms_blocks;
    p->chunk_count = (uint32_t)((p->blocks + p->chunk_blocks - 1) / p->chunk_blocks);
    if (p->chunk_count > p->chunk_capacity) {
        chunk *more = realloc(p->chunks, p->chunk_count * sizeof *more);
        if (more == NULL) {
            s->fault = GW_THC_FAULT_MEMORY;
            return -1;
        }
        p->chunks = more;
        p->chunk_capacity = p->chunk_count;
    }
    memset(p->chunks, 0, p->chunk_count * sizeof *p->chunks);
    p->first_open = p->first_unsent = p->done = p->on_way = 0;
    return 0;
}

/* Makes the phase before the current one the place of a new one. */
static phase *phase_begin(gw_thc_session *s, int is_sum, uint32_t round, uint64_t len)
{
    phase *p = &s->phases[s->current ^ 1u];
    p->is_sum = is_sum;
    p->round = round;
    p->len = len;
    p->blocks = gw_thc_block_count(&s->thc, len);
    p->chunk_count = p->chunk_blocks = p->done = 0;
    if (grow(&p->payload, &p->payload_capacity, payload_offset(s, p, p->blocks)) != 0 ||
        grow(&p->result, &p->result_capacity, result_offset(s, p, p->blocks)) != 0) {
        p->exists = 0;
        s->fault = GW_THC_FAULT_MEMORY;
        return NULL;
    }
    if (s->has_welcome && phase_cut(s, p) != 0) {
        p->exists = 0;
        return NULL;
    }
    p->exists = 1;
    s->current ^= 1u;
    return p;
}

static int phase_is_done(const phase *p)
{
    return p->exists && p->chunk_count > 0 && p->done == p->chunk_count;
}

int gw_thc_session_is_done(const gw_thc_session *s)
{
    return s->fault == GW_THC_FAULT_NONE && phase_is_done(&s->phases[s->current]);
}

gw_status gw_thc_session_norms(gw_thc_session *s, uint32_t round, uint64_t len, const uint32_t *patterns)
{
    const phase *before = &s->phases[s->current];
    if (s->fault != GW_THC_FAULT_NONE || (before->exists && !(before->is_sum && phase_is_done(before)))) {
        return GW_ERR_STATE;
    }
    if (len == 0 || len > s->len_max) {
        return GW_ERR_LIMIT;
    }
    if (before->exists && (int32_t)(round - before->round) <= 0) {
        return GW_ERR_STATE; /* the server would answer with the result that it has */
    }
    phase *p = phase_begin(s, 0, round, len);
    if (p == NULL) {
        return GW_ERR_STATE;
    }
    for (size_t i = 0; i < (size_t)p->blocks * s->patterns_per_block; i++) {
        gw_thc_put32(p->payload + 4 * i, patterns[i]);
    }
    return GW_OK;
}

/* The chunks of a phase of sums: hashes of their maxima, and whether this worker may contribute. A packet of
 * norms has as many blocks as one or more packets of sums. */
static void sums_prepare(gw_thc_session *s, phase *p, const phase *norms)
{
    for (uint32_t i = 0; i < p->chunk_count; i++) {
        const uint64_t first = blocks_before(p, i);
        uint64_t hash = 0xcbf29ce484222325u; /* as gw_thc_norms_hash() */
        const uint8_t *maxima = norms->result + (size_t)first * s->patterns_per_block * 4;
        for (size_t j = 0; j < (size_t)chunk_blocks_of(p, i) * s->patterns_per_block * 4; j++) {
            hash = (hash ^ maxima[j]) * 0x100000001b3u;
        }
        p->chunks[i].norms_hash = hash;
        p->chunks[i].is_asking = norms->chunks[first / norms->chunk_blocks].is_left_out;
    }
}

gw_status gw_thc_session_indices(gw_thc_session *s, const uint8_t *indices, size_t indices_size)
{
    const phase *norms = &s->phases[s->current];
    if (!gw_thc_session_is_done(s) || norms->is_sum) {
        return GW_ERR_STATE;
    }
    if (indices_size < gw_thc_indices_size(&s->thc, norms->len, 0, norms->blocks)) {
        return GW_ERR_SHORT;
    }
    phase *p = phase_begin(s, 1, norms->round, norms->len);
    if (p == NULL) {
        return GW_ERR_STATE;
    }
    memcpy(p->payload, indices, payload_offset(s, p, p->blocks));
    sums_prepare(s, p, norms);
    return GW_OK;
}

gw_status gw_thc_session_maxima(const gw_thc_session *s, uint32_t *maxima, uint8_t *is_left_out)
{
    const phase *p = &s->phases[s->current];
    if (!gw_thc_session_is_done(s) || p->is_sum) {
        return GW_ERR_STATE;
    }
    for (size_t i = 0; i < (size_t)p->blocks * s->patterns_per_block; i++) {
        maxima[i] = gw_thc_get32(p->result + 4 * i);
    }
    for (uint64_t b = 0; b < p->blocks; b++) {
        is_left_out[b] = p->chunks[b / p->chunk_blocks].is_left_out;
    }
    return GW_OK;
}

gw_status gw_thc_session_sums(const gw_thc_session *s, gw_buffer *lanes, uint32_t *members,
                              uint8_t *is_left_out)
{
    const phase *p = &s->phases[s->current];
    if (!gw_thc_session_is_done(s) || !p->is_sum) {
        return GW_ERR_STATE;
    }
    const size_t size = result_offset(s, p, p->blocks);
    if (lanes->capacity < size) {
        return GW_ERR_DST;
    }
    memcpy(lanes->data, p->result, size);
    lanes->size = size;
    for (uint64_t b = 0; b < p->blocks; b++) {
        members[b] = p->chunks[b / p->chunk_blocks].members;
        is_left_out[b] = p->chunks[b / p->chunk_blocks].is_left_out;
    }
    return GW_OK;
}

/* ---- sending ---- */

static size_t join_write(gw_thc_session *s)
{
    const gw_thc_message message = {
        .type = GW_THC_MESSAGE_JOIN,
        .job = s->options.job,
        .rank = (uint16_t)s->rank,
        .worker_max = (uint16_t)s->options.worker_max,
        .options_hash = s->options_hash,
        .cookie = s->cookie,
        .epoch = s->epoch,
        .round = s->phases[s->current].round,
        .lane_bits = (uint8_t)s->options.lane_bits,
        .block_log2 = (uint8_t)s->options.block_log2,
        .patterns_per_block = (uint8_t)s->patterns_per_block,
        .has_partial = (uint8_t)s->has_partial,
        .table = s->options.table,
        .len_max = s->len_max,
        .partial_round = s->partial_round,
    };
    gw_thc_message_write(s->packet, &message);
    return GW_THC_JOIN_SIZE;
}

static size_t chunk_write(gw_thc_session *s, const phase *p, uint32_t i)
{
    const chunk *c = &p->chunks[i];
    const unsigned type = !p->is_sum     ? GW_THC_PACKET_NORMS
                          : c->is_asking ? GW_THC_PACKET_ASK
                                         : GW_THC_PACKET_INDICES;
    const gw_thc_packet_header header = {
        .type = (uint8_t)type,
        .bits = s->options.table.bits,
        .granularity = s->options.table.granularity,
        .lane_bits = p->is_sum ? 0 : 32,
        .block_log2 = (uint8_t)s->options.block_log2,
        .worker_max = (uint16_t)s->options.worker_max,
        .job = s->options.job,
        .round = p->round,
        .block_first = (uint32_t)blocks_before(p, i),
        .block_count = (uint16_t)chunk_blocks_of(p, i),
        .rank = (uint16_t)s->rank,
        .len = chunk_len(s, p, i),
        .options_hash = s->options_hash,
        .norms_hash = c->norms_hash,
    };
    const size_t offset = payload_offset(s, p, blocks_before(p, i));
    const size_t size =
        type == GW_THC_PACKET_ASK ? 0 : payload_offset(s, p, blocks_before(p, i + 1)) - offset;
    gw_thc_packet_write(s->packet, &header);
    memcpy(s->packet + GW_THC_PACKET_HEADER_SIZE, p->payload + offset, size);
    return GW_THC_PACKET_HEADER_SIZE + size;
}

/* A packet counts as lost: fewer are on their way at a time, once for all that were sent before. */
static void on_loss(gw_thc_session *s, const chunk *c)
{
    if (c->number > s->recover) {
        s->recover = s->number;
        s->threshold = s->window / 2 > WINDOW_MIN ? s->window / 2 : WINDOW_MIN;
        s->window = s->threshold;
    }
}

static size_t chunk_send(gw_thc_session *s, phase *p, uint32_t i, double now)
{
    chunk *c = &p->chunks[i];
    double timer = 2 * s->round_trip;
    timer = s->is_stream && timer < 1.0 ? 1.0 : timer < TIMER_MIN ? TIMER_MIN : timer;
    for (uint32_t n = 0; n < c->sends && timer < TIMER_MAX; n++) {
        timer *= 2;
    }
    if (c->sends > 0) {
        on_loss(s, c);
        s->counts.sent_again++;
    } else {
        p->on_way++;
    }
    c->sends++;
    c->number = ++s->number;
    c->sent_at = now;
    /* Workers that wait for the same sum would else send again all at once, and a full queue would drop the
     * packets of the same worker each time. */
    const uint32_t spread = (s->rank + 1) * 2654435761u ^ (uint32_t)c->number * 40503u;
    c->due = now + (timer < TIMER_MAX ? timer : TIMER_MAX) * (1 + (spread >> 8 & 255u) / 512.0);
    return chunk_write(s, p, i);
}

/* The next packet of a phase that is due; 0 if none is. */
static size_t phase_output(gw_thc_session *s, phase *p, double now)
{
    while (p->first_open < p->first_unsent && p->chunks[p->first_open].is_settled) {
        p->first_open++;
    }
    for (uint32_t i = p->first_open; i < p->first_unsent; i++) {
        const chunk *c = &p->chunks[i];
        if (!c->is_settled && c->due <= now) {
            return chunk_send(s, p, i, now);
        }
    }
    while (p->first_unsent < p->chunk_count && p->chunks[p->first_unsent].is_settled) {
        p->first_unsent++; /* answered by another's broadcast */
    }
    /* Each phase has its window: packets of the one before may stay without an answer, which nobody needs. */
    if (p->first_unsent < p->chunk_count && p->on_way < s->window) {
        return chunk_send(s, p, p->first_unsent++, now);
    }
    return 0;
}

const uint8_t *gw_thc_session_output(gw_thc_session *s, double now, size_t *packet_size)
{
    size_t size = 0;
    if (s->fault == GW_THC_FAULT_NONE && !s->is_ready && now >= s->join_due) {
        size = join_write(s);
        s->join_due = now + s->join_timer;
        s->join_timer = s->join_timer < 1.0 ? 2 * s->join_timer : 1.0;
    } else if (s->fault == GW_THC_FAULT_NONE && s->is_ready) {
        for (unsigned i = 0; i < 2 && size == 0; i++) {
            phase *p = &s->phases[s->current ^ i];
            size = p->exists ? phase_output(s, p, now) : 0;
        }
    }
    *packet_size = size;
    s->counts.sent += size > 0;
    s->counts.sent_size += size;
    return size > 0 ? s->packet : NULL;
}

double gw_thc_session_due(const gw_thc_session *s)
{
    double due = s->is_ready ? 1e300 : s->join_due;
    for (unsigned k = 0; k < 2 && s->is_ready; k++) {
        const phase *p = &s->phases[k];
        for (uint32_t i = p->first_open; p->exists && i < p->first_unsent; i++) {
            if (!p->chunks[i].is_settled && p->chunks[i].due < due) {
                due = p->chunks[i].due;
            }
        }
    }
    return due;
}

/* ---- receiving ---- */

/* A server that knows nothing of earlier ones: everything is sent to it. */
static gw_status set_epoch(gw_thc_session *s, const gw_thc_message *m)
{
    const uint32_t sums = m->detail & 0xffffu, norms = m->detail >> 16;
    if (sums == 0 || norms == 0 || norms % sums != 0) {
        return GW_ERR_HEADER;
    }
    const uint64_t sums_size = ((uint64_t)sums << s->options.block_log2) * s->options.table.bits / 8;
    const uint64_t norms_size = (uint64_t)norms * s->patterns_per_block * 4;
    if ((sums_size > norms_size ? sums_size : norms_size) > GW_THC_DATAGRAM_MAX - GW_THC_PACKET_HEADER_SIZE) {
        return GW_ERR_LIMIT; /* more than `packet` has room for */
    }
    if (s->has_welcome && (sums != s->sums_blocks || norms != s->norms_blocks)) {
        s->fault = GW_THC_FAULT_PACKETS;
        return GW_ERR_MISMATCH;
    }
    s->counts.restarts += s->has_welcome != 0;
    s->sums_blocks = sums;
    s->norms_blocks = norms;
    s->window_max =
        (double)WINDOW_SIZE / (double)(((uint64_t)sums << s->options.block_log2) * s->options.lane_bits / 8);
    s->window_max = s->window_max < WINDOW_LOW    ? WINDOW_LOW
                    : s->window_max < WINDOW_HIGH ? s->window_max
                                                  : WINDOW_HIGH;
    s->threshold = s->window_max;
    s->epoch = m->epoch;
    for (unsigned k = 0; k < 2; k++) {
        phase *p = &s->phases[k];
        if (!s->has_welcome && p->exists && phase_cut(s, p) != 0) {
            return GW_ERR_LIMIT;
        }
        for (uint32_t i = 0; i < p->chunk_count; i++) {
            p->chunks[i].sends = 0;
            p->chunks[i].is_settled = 0;
        }
        p->first_open = p->first_unsent = p->on_way = 0;
    }
    s->has_welcome = 1;
    return GW_OK;
}

static gw_status on_message(gw_thc_session *s, const uint8_t *packet, size_t packet_size, double now)
{
    gw_thc_message m;
    gw_status status = gw_thc_message_parse(packet, packet_size, &m);
    if (status != GW_OK) {
        return status;
    }
    if (m.job != s->options.job || m.rank != s->rank || m.worker_max != s->options.worker_max ||
        m.options_hash != s->options_hash) {
        return GW_ERR_MISMATCH;
    }
    switch (m.type) {
    case GW_THC_MESSAGE_CHALLENGE:
        if (s->is_ready || m.cookie == s->cookie) {
            return GW_ERR_STATE;
        }
        s->cookie = m.cookie;
        s->join_due = now;
        return GW_OK;
    case GW_THC_MESSAGE_WELCOME:
        if (!s->has_welcome || m.epoch != s->epoch) {
            status = s->is_ready ? GW_ERR_STATE : set_epoch(s, &m);
        }
        if (status == GW_OK) {
            s->joined = m.reason;
            s->taken = -1;
            s->is_ready |= m.reason == m.worker_max;
        }
        return status;
    case GW_THC_MESSAGE_REFUSED:
        if (m.reason == GW_THC_REFUSAL_RANK && (s->taken < 0 || now - s->taken < TAKEN_S)) {
            s->taken = s->taken < 0 ? now : s->taken;
            return GW_OK; /* perhaps by this worker's own connection, which has broken; joins again */
        }
        s->epoch = m.epoch != 0 ? m.epoch : s->epoch;
        s->fault = GW_THC_FAULT_REFUSED;
        s->counts.refusal = m.reason;
        s->counts.refusal_detail = m.detail;
        return GW_OK;
    case GW_THC_MESSAGE_AGAIN:
        if (!s->is_ready) {
            return GW_ERR_STATE;
        }
        gw_thc_session_lost(s, now);
        s->wants_socket = 1;
        return GW_OK;
    default:
        return GW_ERR_UNSUPPORTED;
    }
}

static uint64_t set_hash(const uint8_t *set, size_t set_size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < set_size; i++) {
        hash = (hash ^ set[i]) * 0x100000001b3u;
    }
    return hash;
}

/* What was sent before a packet that is answered, but is not answered itself, is due at once. */
static void on_overtaken(phase *p, uint64_t number, double now)
{
    for (uint32_t i = p->first_open; i < p->first_unsent; i++) {
        chunk *c = &p->chunks[i];
        if (!c->is_settled && c->sends == 1 && c->number + OVERTAKEN < number) {
            c->due = now;
        }
    }
}

static void on_settled(gw_thc_session *s, phase *p, chunk *c, double now)
{
    c->is_settled = 1;
    if (c->sends == 0) {
        return;
    }
    p->on_way--;
    if (c->sends == 1) {
        s->round_trip += ((now - c->sent_at) - s->round_trip) / 8;
    }
    s->window += s->window < s->threshold ? 1.0 : 1.0 / s->window;
    s->window = s->window < s->window_max ? s->window : s->window_max;
    if (!s->is_stream) {
        on_overtaken(p, c->number, now);
    }
}

/* The answer to a chunk: kept, or compared with the one that is there. */
static gw_status on_answer(gw_thc_session *s, phase *p, uint32_t i, const gw_thc_packet *packet, double now)
{
    chunk *c = &p->chunks[i];
    const uint32_t members = gw_thc_set_members(packet->set, s->options.worker_max);
    const uint64_t hash = set_hash(packet->set, GW_THC_SET_SIZE(s->options.worker_max));
    uint8_t *result = p->result + result_offset(s, p, blocks_before(p, i));

    if (members == 0) {
        return GW_ERR_CORRUPT;
    }
    if (c->is_done && (hash != c->set_hash || memcmp(result, packet->payload, packet->payload_size) != 0)) {
        s->fault = GW_THC_FAULT_DIFFERENT;
        return GW_ERR_MISMATCH;
    }
    if (!c->is_settled) {
        on_settled(s, p, c, now);
    }
    if (c->is_done) {
        return GW_ERR_DUP;
    }
    memcpy(result, packet->payload, packet->payload_size);
    c->set_hash = hash;
    c->members = members;
    c->is_left_out = (uint8_t)(~packet->set[s->rank / 8] >> s->rank % 8 & 1);
    c->is_done = 1;
    p->done++;
    if (members < s->options.worker_max) {
        s->has_partial = 1;
        s->partial_round = p->round;
    }
    return GW_OK;
}

static gw_status on_packet(gw_thc_session *s, const uint8_t *bytes, size_t size, double now)
{
    gw_thc_packet packet;
    const gw_thc_packet_header *h = &packet.header;
    gw_status status = gw_thc_packet_parse(bytes, size, &packet);
    if (status != GW_OK) {
        return status;
    }
    if (h->job != s->options.job || h->options_hash != s->options_hash ||
        h->worker_max != s->options.worker_max) {
        return GW_ERR_MISMATCH;
    }
    if (h->type == GW_THC_PACKET_NOTICE) {
        return GW_ERR_ROUND; /* to a packet that was delayed, or sent again for others who do not need it */
    }
    if (h->type != GW_THC_PACKET_RESULT && h->type != GW_THC_PACKET_MAXIMA) {
        return GW_ERR_UNSUPPORTED;
    }
    for (unsigned k = 0; k < 2; k++) {
        phase *p = &s->phases[s->current ^ k];
        if (!p->exists || p->chunk_count == 0 || p->round != h->round ||
            p->is_sum != (h->type == GW_THC_PACKET_RESULT)) {
            continue;
        }
        const uint32_t i = h->block_first / p->chunk_blocks;
        if (i >= p->chunk_count || h->block_first != blocks_before(p, i) ||
            h->block_count != chunk_blocks_of(p, i) || h->len != chunk_len(s, p, i) ||
            h->norms_hash != p->chunks[i].norms_hash ||
            packet.payload_size !=
                result_offset(s, p, blocks_before(p, i + 1)) - result_offset(s, p, blocks_before(p, i))) {
            return GW_ERR_MISMATCH;
        }
        return on_answer(s, p, i, &packet, now);
    }
    return GW_ERR_ROUND;
}

gw_status gw_thc_session_input(gw_thc_session *s, const uint8_t *packet, size_t packet_size, double now)
{
    s->counts.received++;
    s->counts.received_size += packet_size;
    const gw_status status = gw_thc_message_is(packet, packet_size) ? on_message(s, packet, packet_size, now)
                                                                    : on_packet(s, packet, packet_size, now);
    s->counts.ignored += status != GW_OK;
    return status;
}

int gw_thc_session_wants_socket(gw_thc_session *s)
{
    const int wants = s->wants_socket;
    s->wants_socket = 0;
    return wants;
}

void gw_thc_session_lost(gw_thc_session *s, double now)
{
    s->is_ready = 0;
    s->cookie = 0;
    s->join_due = now;
    s->join_timer = JOIN_TIMER;
    for (unsigned k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < s->phases[k].first_unsent; i++) {
            s->phases[k].chunks[i].due = now;
        }
    }
}

const uint8_t *gw_thc_session_leave(gw_thc_session *s, size_t *packet_size)
{
    const gw_thc_message message = {
        .type = GW_THC_MESSAGE_LEAVE,
        .job = s->options.job,
        .rank = (uint16_t)s->rank,
        .worker_max = (uint16_t)s->options.worker_max,
        .options_hash = s->options_hash,
        .epoch = s->epoch,
    };
    *packet_size = GW_THC_MESSAGE_SIZE;
    gw_thc_message_write(s->packet, &message);
    return s->epoch != 0 ? s->packet : NULL; /* also of a job that has failed before it began */
}

gw_thc_fault gw_thc_session_fault(const gw_thc_session *s)
{
    return s->fault;
}

void gw_thc_session_look(const gw_thc_session *s, gw_thc_session_state *state)
{
    const phase *p = &s->phases[s->current];
    *state = s->counts;
    state->has_joined = s->has_welcome;
    state->joined = s->joined;
    state->worker_max = s->options.worker_max;
    state->is_sum = p->is_sum;
    state->round = p->round;
    state->packets = p->chunk_count;
    state->answered = p->done;
}
