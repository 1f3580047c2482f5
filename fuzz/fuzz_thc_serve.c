/*
 * `gradwire thc-serve` behind its sockets. First senders who may do anything: join jobs and leave them, send
 * packets of workers in any order and at any time, damaged ones, and plain garbage. Then a job of two workers
 * of thc_session.h, between more of the same. Checked: what the server keeps is within its limits, nobody
 * gets more than he may, and the sums of the job are right.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "thc_serve.h"
#include "thc_session.h"

#include <string.h>

enum {
    SENDERS = 8, /* half of them by datagrams */
    COOKIES = 256,
    WORKERS = 2,
    ROUNDS = 2,
    LEN = 300,
    LOG2 = 6,
    BLOCKS = 5,
    JOBS = 4,
    ANSWERS = 64,
    ANSWER_MAX = 512,
    TURNS_MAX = 4000 /* of the job, each 10 ms long */
};

static const uint64_t sender_hash = 0x1122334455667788u; /* of the options of the senders' jobs */

typedef struct sender {
    thc_peer peer;
    int has_proved; /* that it is where it says */
    uint64_t cookies[COOKIES];
    uint32_t cookie_count;
    uint64_t epoch;
    uint32_t sums_blocks, norms_blocks; /* of a packet, as the last WELCOME says */
} sender;

typedef struct answer {
    uint32_t to;
    size_t size;
    uint8_t bytes[ANSWER_MAX];
} answer;

typedef struct member {
    thc_peer peer;
    gw_thc_session *session;
    uint8_t indices[LEN];
    uint8_t is_left_out[BLOCKS];
} member;

typedef struct world {
    thc_serve *serve;
    thc_serve_limits limits;
    double begin, now;
    sender senders[SENDERS];
    const thc_peer *from; /* whose packet the server has now; NULL: none */
    uint64_t replies_to_from, replies_size;
    int is_refusal;        /* the last of them */
    uint64_t strangers[2]; /* replies to senders that take part in nothing; [1]: by streams, or to a cookie */
    member members[WORKERS];
    gw_thc thc;
    uint32_t job; /* of the members; 0: not yet */
    answer answers[ANSWERS];
    uint32_t answer_first, answer_count;
} world;

/* ---- what the server sends ---- */

static sender *sender_of(world *w, const thc_peer *peer)
{
    for (int i = 0; i < SENDERS; i++) {
        if (thc_peer_equal(&w->senders[i].peer, peer)) {
            return &w->senders[i];
        }
    }
    return NULL;
}

static void sender_told(world *w, sender *s, const uint8_t *bytes, size_t size)
{
    gw_thc_message m;
    if (gw_thc_message_parse(bytes, size, &m) != GW_OK) {
        return;
    }
    FUZZ_CHECK(m.epoch == 0 || m.job != w->job || w->job == 0); /* whoever knows it could take a rank */
    if (m.type == GW_THC_MESSAGE_CHALLENGE) {
        s->cookies[s->cookie_count++ % COOKIES] = m.cookie;
    } else if (m.epoch != 0) {
        s->epoch = m.epoch;
    }
    if (m.type == GW_THC_MESSAGE_WELCOME) {
        s->sums_blocks = m.detail & 0xffffu;
        s->norms_blocks = m.detail >> 16;
    }
}

static void on_send(void *context, const thc_peer *to, const uint8_t *bytes, size_t size)
{
    world *w = context;
    gw_thc_message m;
    gw_thc_packet packet;
    FUZZ_CHECK(to->size != 0 && size <= GW_THC_DATAGRAM_MAX);
    FUZZ_CHECK(gw_thc_message_is(bytes, size) ? gw_thc_message_parse(bytes, size, &m) == GW_OK
                                              : gw_thc_packet_parse(bytes, size, &packet) == GW_OK);
    const int is_from = w->from != NULL && thc_peer_equal(w->from, to);
    w->replies_to_from += is_from ? 1u : 0u;
    w->replies_size += is_from ? size : 0u;
    w->is_refusal = bytes[5] == GW_THC_MESSAGE_REFUSED && gw_thc_message_is(bytes, size);
    sender *s = sender_of(w, to);
    if (s != NULL) {
        FUZZ_CHECK(s->has_proved || is_from); /* nobody else can cause a packet to it */
        sender_told(w, s, bytes, size);
        return;
    }
    for (uint32_t i = 0; i < WORKERS && w->job != 0; i++) {
        if (thc_peer_equal(&w->members[i].peer, to) && w->answer_count < ANSWERS) { /* others are lost */
            FUZZ_CHECK(size <= ANSWER_MAX);
            answer *a = &w->answers[(w->answer_first + w->answer_count++) % ANSWERS];
            a->to = i;
            a->size = size;
            memcpy(a->bytes, bytes, size);
        }
    }
}

/* ---- what it keeps ---- */

static void job_check(const thc_job *job, const thc_serve_limits *limits)
{
    uint32_t joined = 0, left = 0;
    FUZZ_CHECK(job->options.worker_max <= limits->workers_max);
    for (uint32_t i = 0; i < job->options.worker_max; i++) {
        joined += job->workers[i].has_joined;
        left += job->workers[i].has_left;
    }
    FUZZ_CHECK(job->joined == joined && job->left == left && joined > left);
    FUZZ_CHECK(!job->has_started || joined == job->options.worker_max);
}

static void serve_check(const world *w)
{
    const thc_serve *serve = w->serve;
    uint64_t memory_size = 0;
    for (uint32_t i = 0; i < w->limits.jobs_max; i++) {
        const thc_job *job = serve->jobs[i];
        if (job != NULL) {
            memory_size += job->memory_size;
            job_check(job, &w->limits);
            FUZZ_CHECK(thc_serve_job(w->serve, job->options.job) == job); /* no two of a number */
        }
    }
    FUZZ_CHECK(serve->memory_size == memory_size && memory_size <= w->limits.memory_max);
}

/* Gives the server a packet of somebody, and looks at what it did. */
static void give(world *w, const thc_peer *from, const uint8_t *bytes, size_t size)
{
    gw_thc_message m;
    sender *s = sender_of(w, from);
    const int took_part = thc_serve_takes_part(w->serve, from);
    if (s != NULL && gw_thc_message_parse(bytes, size, &m) == GW_OK && m.type == GW_THC_MESSAGE_JOIN) {
        for (uint32_t i = 0; i < COOKIES; i++) {
            s->has_proved |= m.cookie != 0 && s->cookies[i] == m.cookie;
        }
    }
    w->from = from;
    w->replies_to_from = w->replies_size = 0;
    thc_serve_receive(w->serve, from, bytes, size, w->now);
    w->from = NULL;
    if (!took_part && !thc_serve_takes_part(w->serve, from)) {
        FUZZ_CHECK(w->replies_to_from <= 1);
        w->strangers[from->connection != 0 || w->is_refusal] += w->replies_to_from;
    }
    FUZZ_CHECK(s == NULL || s->has_proved || w->replies_size <= size); /* nothing to amplify */
    /* A second's replies at once, and then so many a second. */
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK((double)w->strangers[i] <= w->limits.replies_max * (1 + w->now - w->begin) + 1e-6);
    }
    serve_check(w);
}

/* ---- senders ---- */

static size_t join_make(world *w, const sender *s, gw_fuzz_reader *reader, unsigned type, uint8_t *dst)
{
    static const uint64_t lens[4] = {100, LEN, 4000, (uint64_t)1 << 33};
    static const uint8_t lanes[4] = {8, 16, 32, 12}, logs[4] = {LOG2, 7, 13, 14};
    const unsigned who = gw_fuzz_u8(reader), what = gw_fuzz_u8(reader), how = gw_fuzz_u8(reader);
    gw_thc_message m = {
        .type = (uint8_t)type,
        .job = (who & 3) == 3 && w->job != 0 ? w->job : (who & 3) + 1,
        .rank = who >> 2 & 3,
        .worker_max = (uint16_t)(1 + (who >> 4 & 7)),
        .options_hash = sender_hash,
        .cookie = (what & 1) != 0 && s->cookie_count != 0 ? s->cookies[(s->cookie_count - 1) % COOKIES] : 0,
        .epoch = (what & 2) != 0 ? s->epoch : 0,
        .round = 0xfffffffeu + (what >> 2 & 3),
        .lane_bits = lanes[how & 3],
        .block_log2 = logs[how >> 2 & 3],
        .patterns_per_block = (uint8_t)(1 + (how >> 4 & 1)),
        .has_partial = what >> 6 & 1,
        .table = gw_thc_options_of(&w->thc)->table,
        .len_max = lens[how >> 5 & 3],
        .partial_round = 0xfffffffeu + (what >> 4 & 3),
    };
    m.table.value[3] = (uint8_t)(m.table.value[3] + (how >> 7));
    if ((what & 0x80) != 0) {
        m.options_hash = gw_thc_options_hash(&w->thc);
    }
    gw_thc_message_write(dst, &m);
    return gw_thc_message_size(type);
}

static size_t packet_make(const world *w, const sender *s, gw_fuzz_reader *reader, unsigned type,
                          uint8_t *dst)
{
    const gw_thc_table *table = &gw_thc_options_of(&w->thc)->table;
    const unsigned who = gw_fuzz_u8(reader), what = gw_fuzz_u8(reader), how = gw_fuzz_u8(reader);
    const int is_norms = type == GW_THC_PACKET_NORMS;
    uint32_t blocks = is_norms ? s->norms_blocks : s->sums_blocks;
    const uint32_t first = (how & 7) * blocks;
    blocks = blocks + 1 > (how >> 3 & 3) ? blocks + 1 - (how >> 3 & 3) : 1;
    blocks = blocks < 16 ? blocks : 16;
    const gw_thc_packet_header h = {
        .type = (uint8_t)type,
        .bits = table->bits,
        .granularity = table->granularity,
        .lane_bits = is_norms ? 32 : 0,
        .block_log2 = LOG2,
        .worker_max = (uint16_t)(1 + (who >> 4 & 7)),
        .job = (who & 3) == 3 && w->job != 0 ? w->job : (who & 3) + 1,
        .round = 0xfffffffeu + (what & 7),
        .block_first = first,
        .block_count = (uint16_t)blocks,
        .rank = who >> 2 & 3,
        .len = is_norms ? blocks : blocks << LOG2,
        .options_hash = (what & 0x80) != 0 ? gw_thc_options_hash(&w->thc) : sender_hash,
        .norms_hash = is_norms ? 0 : 1 + (what >> 3 & 1),
    };
    const size_t size = type == GW_THC_PACKET_ASK
                            ? GW_THC_PACKET_HEADER_SIZE
                            : gw_thc_packet_size(type, h.bits, h.lane_bits, h.worker_max, h.len);
    gw_thc_packet_write(dst, &h);
    for (size_t at = GW_THC_PACKET_HEADER_SIZE; at < size; at += 4) {
        gw_thc_put32(dst + at, 0x3f800000u + who * 257u); /* a good norm; as indices all are */
    }
    return size;
}

static size_t raw_make(gw_fuzz_reader *reader, uint8_t *dst)
{
    const size_t size = gw_fuzz_u8(reader) & 127;
    for (size_t i = 0; i < size; i++) {
        dst[i] = gw_fuzz_u8(reader);
    }
    return size;
}

/* Somebody does something, or time passes. */
static void step(world *w, gw_fuzz_reader *reader, unsigned op, double second)
{
    static const uint8_t types[] = {GW_THC_PACKET_NORMS, GW_THC_PACKET_INDICES, GW_THC_PACKET_ASK};
    static uint8_t bytes[2048];
    const unsigned what = op >> 3 & 7;
    sender *s = &w->senders[op & 7];
    size_t size = 0;
    if (what == 6) {
        w->now += second * gw_fuzz_u8(reader);
        thc_serve_tick(w->serve, w->now);
        serve_check(w);
        return;
    }
    if (what == 7) {
        if (s->peer.connection != 0) {
            thc_serve_ended(w->serve, &s->peer);
            s->peer.connection += SENDERS; /* a new one */
        }
        serve_check(w);
        return;
    }
    if (what == 5) {
        size = raw_make(reader, bytes);
    } else if (what < 2) {
        size = join_make(w, s, reader, what == 0 ? GW_THC_MESSAGE_JOIN : GW_THC_MESSAGE_LEAVE, bytes);
    } else {
        size = packet_make(w, s, reader, types[what - 2], bytes);
    }
    if ((op & 0x40) != 0) { /* damage a byte of what the server looks at, or cut */
        const size_t at = gw_fuzz_u8(reader);
        const uint8_t change = gw_fuzz_u8(reader);
        size = at >= 128 ? size * (at - 128) / 128 : size;
        bytes[at < 128 && at < size ? at : sizeof bytes - 1] ^= change;
    }
    uint8_t *exact = gw_fuzz_buffer(GW_FUZZ_FRAME, size, 0);
    memcpy(exact, bytes, size);
    give(w, &s->peer, exact, size);
}

/* ---- the job ---- */

/* Packets of the members, and their answers. */
static void members_turn(world *w)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        const uint8_t *packet;
        size_t size;
        FUZZ_CHECK(!gw_thc_session_wants_socket(w->members[i].session)); /* the server knows them */
        while ((packet = gw_thc_session_output(w->members[i].session, w->now, &size)) != NULL) {
            give(w, &w->members[i].peer, packet, size);
        }
    }
    while (w->answer_count > 0) {
        const answer *a = &w->answers[w->answer_first];
        (void)gw_thc_session_input(w->members[a->to].session, a->bytes, a->size, w->now);
        w->answer_first = (w->answer_first + 1) % ANSWERS;
        w->answer_count--;
    }
    w->now += 0.01;
    thc_serve_tick(w->serve, w->now);
}

/* Until all members have all answers. The senders go on: their time is short, so that the job is not idle. */
static void phase_run(world *w, gw_fuzz_reader *reader)
{
    int is_done = 0;
    for (int turn = 0; !is_done; turn++) {
        FUZZ_CHECK(turn < TURNS_MAX);
        members_turn(w);
        is_done = 1;
        for (uint32_t i = 0; i < WORKERS; i++) {
            FUZZ_CHECK(gw_thc_session_fault(w->members[i].session) == GW_THC_FAULT_NONE);
            is_done &= gw_thc_session_is_done(w->members[i].session);
        }
        for (int i = 0; i < 4 && reader->size > 0; i++) {
            step(w, reader, gw_fuzz_u8(reader), 0.001);
        }
    }
}

static unsigned index_at(const uint8_t *indices, size_t lane)
{
    return indices[lane / 64 * 32 + lane % 32] >> (lane % 64 / 32 * 4) & 15u;
}

static void sums_check(world *w)
{
    const uint8_t *values = gw_thc_options_of(&w->thc)->table.value;
    uint8_t lanes[WORKERS][BLOCKS << LOG2];
    uint32_t members[BLOCKS];
    gw_buffer sums = {.capacity = sizeof lanes[0]};
    for (uint32_t i = 0; i < WORKERS; i++) {
        sums.data = lanes[i];
        FUZZ_CHECK(gw_thc_session_sums(w->members[i].session, &sums, members, w->members[i].is_left_out) ==
                   GW_OK);
        FUZZ_CHECK(memcmp(lanes[i], lanes[0], sums.size) == 0);
    }
    for (size_t lane = 0; lane < sums.size; lane++) {
        unsigned sum = 0, count = 0;
        for (uint32_t i = 0; i < WORKERS; i++) {
            const int is_in = !w->members[i].is_left_out[lane >> LOG2];
            sum += is_in ? values[index_at(w->members[i].indices, lane)] : 0u;
            count += is_in ? 1u : 0u;
        }
        FUZZ_CHECK(lanes[0][lane] == sum && members[lane >> LOG2] == count);
        FUZZ_CHECK(count == WORKERS || w->limits.quorum != 0 || w->limits.wait_s > 0);
    }
}

static void round_run(world *w, gw_fuzz_reader *reader, uint32_t round)
{
    uint32_t patterns[BLOCKS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        for (uint32_t b = 0; b < BLOCKS; b++) {
            patterns[b] = 0x3f800000u + (i * 7 + b) % 5 * 4096u;
        }
        FUZZ_CHECK(gw_thc_session_norms(w->members[i].session, round, LEN, patterns) == GW_OK);
    }
    phase_run(w, reader);
    const size_t size = gw_thc_indices_size(&w->thc, LEN, 0, BLOCKS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        member *m = &w->members[i];
        FUZZ_CHECK(size <= sizeof m->indices);
        FUZZ_CHECK(gw_thc_session_maxima(m->session, patterns, m->is_left_out) == GW_OK);
        for (size_t k = 0; k < size; k++) {
            m->indices[k] = (uint8_t)(k * 37 + i * 101 + round);
        }
        FUZZ_CHECK(gw_thc_session_indices(m->session, m->indices, size) == GW_OK);
    }
    phase_run(w, reader);
    sums_check(w);
}

/* Nobody was heard of for longer than a job may be when its place is needed: there must be one for this. */
static void job_run(world *w, gw_fuzz_reader *reader)
{
    w->now += 61;
    w->job = 99;
    while (thc_serve_job(w->serve, w->job) != NULL) {
        w->job++;
    }
    gw_thc_options options = *gw_thc_options_of(&w->thc);
    options.job = w->job;
    FUZZ_CHECK(gw_thc_init(&w->thc, &options) == GW_OK);
    for (uint32_t i = 0; i < WORKERS; i++) {
        const gw_thc_session_options given = {&w->thc, i, LEN, (int)i};
        w->members[i].session = gw_thc_session_create(&given);
        FUZZ_CHECK(w->members[i].session != NULL);
    }
    /* Ranks are taken before the senders go on. */
    gw_fuzz_reader nothing = {NULL, 0};
    round_run(w, &nothing, 0xffffffffu);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        round_run(w, reader, round);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        size_t size;
        const uint8_t *leave = gw_thc_session_leave(w->members[i].session, &size);
        FUZZ_CHECK(leave != NULL);
        give(w, &w->members[i].peer, leave, size);
        gw_thc_session_free(w->members[i].session);
    }
    FUZZ_CHECK(thc_serve_job(w->serve, w->job) == NULL);
}

/* ---- the input ---- */

static thc_peer peer_make(unsigned number, int is_stream)
{
    thc_peer peer;
    memset(&peer, 0, sizeof peer);
    peer.connection = is_stream ? number : 0;
    peer.size = is_stream ? 1 : 16;
    peer.address[4] = (uint8_t)(is_stream ? 0 : number);
    peer.host = number / 2;
    return peer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    gw_fuzz_reader reader = {data, size};
    gw_thc_options options;
    uint64_t state = 1, secret[2];
    /* Nobody can guess it: an input that holds a cookie that it was not told must not be found. */
    for (size_t i = 0; i < size; i++) {
        state = (state ^ data[i]) * 0x100000001b3u;
    }
    secret[0] = gw_fuzz_random(&state);
    secret[1] = gw_fuzz_random(&state);

    memset(&w, 0, sizeof w);
    FUZZ_CHECK(gw_thc_options_init(&options, &(gw_thc_goal){4, WORKERS, 0, 0}, NULL) == GW_OK);
    options.block_log2 = LOG2;
    FUZZ_CHECK(gw_thc_init(&w.thc, &options) == GW_OK);
    const unsigned few = gw_fuzz_u8(&reader), how = gw_fuzz_u8(&reader);
    w.limits = (thc_serve_limits){
        .jobs_max = 1 + (few & 3),
        .workers_max = 4,
        .memory_max = (uint64_t)(1 + (few >> 2 & 7)) << 14,
        .packet_max = 200 + 100 * (few >> 5 & 1),
        .quorum = how & 3,
        .wait_s = (how & 4) != 0 ? 0.25 : 0,
        .idle_s = (how & 8) != 0 ? 3600 : 100,
        .replies_max = 10 + (how >> 4),
    };
    w.begin = w.now = 1000;
    w.serve = thc_serve_create(&w.limits, secret, on_send, &w);
    FUZZ_CHECK(w.serve != NULL);
    for (unsigned i = 0; i < SENDERS; i++) {
        w.senders[i].peer = peer_make(1 + i, i >= SENDERS / 2);
        w.senders[i].has_proved = i >= SENDERS / 2;
        w.senders[i].sums_blocks = w.senders[i].norms_blocks = 1;
    }
    w.members[0].peer = peer_make(100, 0);
    w.members[1].peer = peer_make(101000, 1);
    while (reader.size > 0) {
        const unsigned op = gw_fuzz_u8(&reader);
        if (op >= 0xc0) {
            break; /* what follows comes while the job runs */
        }
        step(&w, &reader, op & 0x7f, 0.5);
    }
    job_run(&w, &reader);
    w.now += 3601;
    thc_serve_tick(w.serve, w.now);
    FUZZ_CHECK(w.serve->memory_size == 0);
    thc_serve_free(w.serve);
    gw_fuzz_buffers_check();
    return 0;
}
