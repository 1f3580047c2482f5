/*
 * A worker's side of a parameter server, told anything by what claims to be one: answers to its packets, of
 * any contributors and contents, messages, all of that damaged, and garbage. What it sends is well-formed,
 * what it refuses changes nothing, and with a real server it then comes to an end.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "thc_serve.h"
#include "thc_session.h"

#include <string.h>

enum { LEN = 700, LOG2 = 6, BLOCKS = 11, SENT = 32, PACKET_MAX = 2048, TURNS_MAX = 4000 };

typedef struct world {
    gw_thc_session *session;
    gw_thc thc;
    double now;
    uint32_t round;
    int is_forged;                                 /* an answer of this round was not a server's */
    uint8_t sent[SENT][GW_THC_PACKET_HEADER_SIZE]; /* of the last packets */
    uint32_t sent_count;
    uint8_t indices[LEN];
    thc_serve *serve;
} world;

/* ---- the worker ---- */

static void norms_begin(world *w)
{
    uint32_t patterns[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++) {
        patterns[b] = 0x3f800000u + b * 4096u;
    }
    w->is_forged = 0;
    FUZZ_CHECK(gw_thc_session_norms(w->session, ++w->round, LEN, patterns) == GW_OK);
}

static unsigned index_at(const uint8_t *indices, size_t lane)
{
    return indices[lane / 64 * 32 + lane % 32] >> (lane % 64 / 32 * 4) & 15u;
}

/* What the worker has got; without forged answers these are its own indices, since it is alone. */
static void sums_check(world *w)
{
    static uint8_t lanes[BLOCKS << LOG2];
    uint32_t members[BLOCKS];
    uint8_t is_left_out[BLOCKS];
    gw_buffer sums = {.data = lanes, .capacity = sizeof lanes};
    FUZZ_CHECK(gw_thc_session_sums(w->session, &sums, members, is_left_out) == GW_OK);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        FUZZ_CHECK(members[b] >= 1 && members[b] <= gw_thc_options_of(&w->thc)->worker_max);
    }
    for (size_t lane = 0; lane < sums.size && !w->is_forged; lane++) {
        FUZZ_CHECK(lanes[lane] == gw_thc_options_of(&w->thc)->table.value[index_at(w->indices, lane)]);
    }
}

/* Goes on once all answers are there. */
static void phase_next(world *w)
{
    gw_thc_session_state state;
    uint32_t maxima[BLOCKS];
    uint8_t is_left_out[BLOCKS];
    if (gw_thc_session_fault(w->session) != GW_THC_FAULT_NONE || !gw_thc_session_is_done(w->session)) {
        return;
    }
    gw_thc_session_look(w->session, &state);
    if (state.is_sum) {
        sums_check(w);
        norms_begin(w);
        return;
    }
    FUZZ_CHECK(gw_thc_session_maxima(w->session, maxima, is_left_out) == GW_OK);
    const size_t size = gw_thc_indices_size(&w->thc, LEN, 0, BLOCKS);
    FUZZ_CHECK(size <= sizeof w->indices);
    for (size_t i = 0; i < size; i++) {
        w->indices[i] = (uint8_t)(i * 37 + w->round);
    }
    FUZZ_CHECK(gw_thc_session_indices(w->session, w->indices, size) == GW_OK);
}

/* A packet that the worker sends. */
static void output_check(world *w, const uint8_t *bytes, size_t size)
{
    gw_thc_message m;
    gw_thc_packet packet;
    if (gw_thc_message_is(bytes, size)) {
        FUZZ_CHECK(gw_thc_message_parse(bytes, size, &m) == GW_OK && m.type == GW_THC_MESSAGE_JOIN);
        return;
    }
    FUZZ_CHECK(size >= GW_THC_PACKET_HEADER_SIZE && size <= GW_THC_DATAGRAM_MAX);
    if (bytes[5] == GW_THC_PACKET_ASK) {
        FUZZ_CHECK(size == GW_THC_PACKET_HEADER_SIZE);
    } else {
        FUZZ_CHECK(gw_thc_packet_parse(bytes, size, &packet) == GW_OK);
        FUZZ_CHECK(packet.header.type == GW_THC_PACKET_NORMS || packet.header.type == GW_THC_PACKET_INDICES);
    }
    memcpy(w->sent[w->sent_count++ % SENT], bytes, GW_THC_PACKET_HEADER_SIZE);
}

static void input_give(world *w, const uint8_t *bytes, size_t size)
{
    gw_thc_session_state before, after;
    gw_thc_session_look(w->session, &before);
    const gw_thc_fault fault = gw_thc_session_fault(w->session);
    const gw_status status = gw_thc_session_input(w->session, bytes, size, w->now);
    gw_thc_session_look(w->session, &after);
    FUZZ_CHECK(after.answered >= before.answered && after.answered <= after.packets);
    FUZZ_CHECK(after.received == before.received + 1);
    FUZZ_CHECK(after.ignored == before.ignored + (status != GW_OK));
    if (status != GW_OK) {
        FUZZ_CHECK(after.answered == before.answered && after.joined == before.joined);
        FUZZ_CHECK(gw_thc_session_fault(w->session) == fault || status == GW_ERR_MISMATCH ||
                   status == GW_ERR_LIMIT);
    }
}

/* ---- what is not a server ---- */

static size_t message_make(const world *w, gw_fuzz_reader *reader, unsigned type, uint8_t *dst)
{
    static const uint32_t details[4] = {5 | 85u << 16, 1 | 1u << 16, 0, 600 | 600u << 16};
    const unsigned what = gw_fuzz_u8(reader), which = gw_fuzz_u8(reader);
    const gw_thc_message m = {
        .type = (uint8_t)type,
        .reason = (uint16_t)(type == GW_THC_MESSAGE_WELCOME   ? what & 3
                             : type == GW_THC_MESSAGE_REFUSED ? what & 15
                                                              : 0),
        .job = gw_thc_options_of(&w->thc)->job,
        .worker_max = (uint16_t)gw_thc_options_of(&w->thc)->worker_max,
        .options_hash = gw_thc_options_hash(&w->thc),
        .cookie = type == GW_THC_MESSAGE_CHALLENGE ? what : 0,
        .epoch = which & 3,
        .detail = details[which >> 2 & 3],
    };
    gw_thc_message_write(dst, &m);
    return GW_THC_MESSAGE_SIZE;
}

/* An answer to one of the last packets. */
static size_t answer_make(world *w, gw_fuzz_reader *reader, uint8_t *dst)
{
    const gw_thc_options *o = gw_thc_options_of(&w->thc);
    const unsigned which = gw_fuzz_u8(reader), what = gw_fuzz_u8(reader);
    const uint8_t *sent = w->sent[which % SENT];
    memcpy(dst, sent, GW_THC_PACKET_HEADER_SIZE);
    const int is_norms = sent[5] == GW_THC_PACKET_NORMS;
    dst[5] = is_norms ? GW_THC_PACKET_MAXIMA : GW_THC_PACKET_RESULT;
    dst[8] = is_norms ? 32 : (uint8_t)o->lane_bits;
    gw_thc_put16(dst + 26, 0);
    const size_t size =
        gw_thc_packet_size(dst[5], o->table.bits, dst[8], o->worker_max, gw_thc_get32(dst + 28));
    if (size > PACKET_MAX) {
        return 0;
    }
    memset(dst + GW_THC_PACKET_HEADER_SIZE, 0, size - GW_THC_PACKET_HEADER_SIZE);
    dst[GW_THC_PACKET_HEADER_SIZE] = what & 3;
    for (size_t at = GW_THC_PACKET_HEADER_SIZE + GW_THC_SET_SIZE(o->worker_max); at + 4 <= size; at += 4) {
        gw_thc_put32(dst + at, is_norms ? 0x3f800000u + (what >> 2) : 0x01010101u * (what >> 2 & 15));
    }
    return size;
}

static void outputs_take(world *w)
{
    const uint8_t *packet = NULL;
    size_t size;
    (void)gw_thc_session_wants_socket(w->session);
    for (int i = 0; i < SENT && (i == 0 || packet != NULL); i++) {
        packet = gw_thc_session_output(w->session, w->now, &size);
        if (packet != NULL) {
            output_check(w, packet, size);
        }
    }
    /* Whoever waits for the next packet does not wait in vain. */
    FUZZ_CHECK(packet != NULL || gw_thc_session_fault(w->session) != GW_THC_FAULT_NONE ||
               gw_thc_session_due(w->session) > w->now);
}

static void step(world *w, gw_fuzz_reader *reader, unsigned op)
{
    static const uint8_t types[] = {GW_THC_MESSAGE_CHALLENGE, GW_THC_MESSAGE_WELCOME, GW_THC_MESSAGE_REFUSED,
                                    GW_THC_MESSAGE_AGAIN};
    static uint8_t bytes[PACKET_MAX];
    size_t size;
    if ((op & 7) == 7) {
        w->now += 0.02 * gw_fuzz_u8(reader);
        phase_next(w);
        outputs_take(w);
        return;
    }
    if ((op & 7) == 6) {
        size = gw_fuzz_u8(reader) & 127;
        for (size_t i = 0; i < size; i++) {
            bytes[i] = gw_fuzz_u8(reader);
        }
    } else if ((op & 7) < 4) {
        size = message_make(w, reader, types[op & 3], bytes);
    } else {
        size = answer_make(w, reader, bytes);
        w->is_forged = 1;
    }
    if ((op & 8) != 0) { /* damage a byte, or cut */
        const size_t at = gw_fuzz_u8(reader);
        const uint8_t change = gw_fuzz_u8(reader);
        size = at >= 128 ? size * (at - 128) / 128 : size;
        bytes[at < 128 && at < size ? at : sizeof bytes - 1] ^= change;
        w->is_forged = 1;
    }
    w->is_forged |= (op & 7) == 6;
    uint8_t *exact = gw_fuzz_buffer(GW_FUZZ_FRAME, size, 0);
    memcpy(exact, bytes, size);
    input_give(w, exact, size);
}

/* ---- a server ---- */

static void on_send(void *context, const thc_peer *to, const uint8_t *bytes, size_t size)
{
    world *w = context;
    (void)to;
    input_give(w, bytes, size);
}

/* A worker that is alone gets its results, or fails, such as for a result that it has already. */
static void serve_run(world *w)
{
    const thc_serve_limits limits = {1, 1, 1 << 20, 400, 0, 0, 3600, 1000};
    const uint64_t secret[2] = {1, 2};
    thc_peer peer;
    memset(&peer, 0, sizeof peer);
    peer.size = 16;
    w->serve = thc_serve_create(&limits, secret, on_send, w);
    FUZZ_CHECK(w->serve != NULL);
    const uint32_t last = w->round + 3;
    for (int turn = 0; w->round != last && gw_thc_session_fault(w->session) == GW_THC_FAULT_NONE; turn++) {
        static uint8_t copy[GW_THC_DATAGRAM_MAX];
        const uint8_t *packet;
        size_t size;
        FUZZ_CHECK(turn < TURNS_MAX);
        phase_next(w);
        while ((packet = gw_thc_session_output(w->session, w->now, &size)) != NULL) {
            output_check(w, packet, size);
            memcpy(copy, packet, size);
            thc_serve_receive(w->serve, &peer, copy, size, w->now);
        }
        w->now += 0.05;
    }
    thc_serve_free(w->serve);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    gw_fuzz_reader reader = {data, size};
    gw_thc_options options;
    memset(&w, 0, sizeof w);
    const unsigned how = gw_fuzz_u8(&reader);
    FUZZ_CHECK(gw_thc_options_init(&options, &(gw_thc_goal){4, 1 + (how & 1), 0, 0}, NULL) == GW_OK);
    options.block_log2 = LOG2;
    options.job = 7;
    FUZZ_CHECK(gw_thc_init(&w.thc, &options) == GW_OK);
    const gw_thc_session_options given = {&w.thc, 0, LEN, how >> 1 & 1};
    w.session = gw_thc_session_create(&given);
    FUZZ_CHECK(w.session != NULL);
    w.now = 1000;
    w.round = 0xfffffffeu;
    norms_begin(&w);
    while (reader.size > 0) {
        const unsigned op = gw_fuzz_u8(&reader);
        step(&w, &reader, op);
    }
    if ((how & 1) == 0) {
        serve_run(&w);
    }
    gw_thc_session_free(w.session);
    gw_fuzz_buffers_check();
    return 0;
}
