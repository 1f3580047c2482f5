/*
 * A worker's session with a parameter server (adapters/thc), against a server that sends anything. The input
 * is a list of steps: messages and results, right, of another round or time, or damaged, lost connections,
 * and time. A model keeps the first answer to each block that the session took. The session must give exactly
 * these, send what it was given and nothing twice at a time, and end only for a reason. After that a right
 * server must be able to finish the round and two more.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "thc_session.h"

#include <string.h>

enum {
    WORKERS = 3,
    LOG2 = 6,
    LEN_MAX = 700,
    BLOCKS_MAX = 11,
    LANES_MAX = BLOCKS_MAX << LOG2,
    STEPS_MAX = 400
};
enum { STEP_OUTPUT, STEP_TIME, STEP_MESSAGE, STEP_ANSWER, STEP_RAW, STEP_LOST, STEP_LEAVE, STEP_SERVE };

enum { NORMS, SUMS };

/* Answers to the newest phase of a kind, by block. */
typedef struct answers {
    int exists;
    uint32_t round;
    uint64_t len;
    uint32_t blocks, done;
    uint8_t is_done[BLOCKS_MAX], set[BLOCKS_MAX];
    uint8_t bytes[4 * LANES_MAX];
} answers;

typedef struct model {
    gw_thc thc;
    gw_thc_options options;
    gw_thc_session *session;
    double now;
    uint32_t rank, round, rounds_done;
    int has_welcome;
    uint32_t detail;          /* of the first WELCOME: how the phases are cut */
    uint32_t chunk_blocks[2]; /* by kind */
    int current;              /* kind of the phase; -1: none was begun */
    answers answers[2];
    uint32_t maxima[BLOCKS_MAX]; /* of the phase of sums, and who is in them */
    uint8_t norms_set[BLOCKS_MAX];
    uint32_t patterns[BLOCKS_MAX];
    uint8_t indices[LANES_MAX / 2];
    uint8_t is_sent[2][BLOCKS_MAX]; /* to the last server */
} model;

/* Room for a packet of a phase that is not cut. */
typedef struct packet {
    uint8_t bytes[GW_THC_PACKET_HEADER_SIZE + 8 + 4 * LANES_MAX];
    size_t size;
} packet;

static uint32_t mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 2654435761u ^ b * 40503u ^ c * 97u;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}

static unsigned set_count(uint8_t set)
{
    return (set & 1u) + (set >> 1 & 1u) + (set >> 2 & 1u);
}

/* Bytes of the results of `blocks` blocks from the first one. */
static size_t result_offset(const model *m, int kind, uint32_t blocks)
{
    return kind == NORMS ? (size_t)blocks * 4 : gw_thc_lanes_size(&m->thc, m->answers[SUMS].len, 0, blocks);
}

/* ---- what a server sends ---- */

static gw_thc_message message_of(const model *m, unsigned type)
{
    return (gw_thc_message){
        .type = (uint8_t)type,
        .job = m->options.job,
        .rank = (uint16_t)m->rank,
        .worker_max = WORKERS,
        .options_hash = gw_thc_options_hash(&m->thc),
    };
}

static uint64_t norms_hash_of(const model *m, uint32_t first, uint32_t count)
{
    return gw_thc_norms_hash(m->maxima + first, count);
}

/* The result for the packet of blocks that has this one: values follow from round, block, set and salt. */
static void result_make(const model *m, int kind, uint32_t block, uint8_t set, uint8_t salt, packet *p)
{
    const answers *a = &m->answers[kind];
    const uint32_t first = block - block % m->chunk_blocks[kind];
    const uint32_t left = a->blocks - first;
    const uint32_t count = left < m->chunk_blocks[kind] ? left : m->chunk_blocks[kind];
    const size_t size = result_offset(m, kind, first + count) - result_offset(m, kind, first);
    const gw_thc_packet_header header = {
        .type = kind == NORMS ? GW_THC_PACKET_MAXIMA : GW_THC_PACKET_RESULT,
        .bits = m->options.table.bits,
        .granularity = m->options.table.granularity,
        .lane_bits = kind == NORMS ? 32 : (uint8_t)m->options.lane_bits,
        .block_log2 = LOG2,
        .worker_max = WORKERS,
        .job = m->options.job,
        .round = a->round,
        .block_first = first,
        .block_count = (uint16_t)count,
        .len = kind == NORMS ? count : (uint32_t)gw_thc_range_lanes(&m->thc, a->len, first, count),
        .options_hash = gw_thc_options_hash(&m->thc),
        .norms_hash = kind == NORMS ? 0 : norms_hash_of(m, first, count),
    };
    memset(p->bytes, 0, sizeof p->bytes);
    gw_thc_packet_write(p->bytes, &header);
    p->bytes[GW_THC_PACKET_HEADER_SIZE] = set;
    uint8_t *payload = p->bytes + GW_THC_PACKET_HEADER_SIZE + GW_THC_SET_SIZE(WORKERS);
    const unsigned lane_size = m->options.lane_bits / 8;
    for (uint32_t i = 0; i < size / (kind == NORMS ? 4 : lane_size); i++) {
        const uint32_t h = mix(a->round, first, set | (uint32_t)salt << 3) + i * 31u;
        if (kind == NORMS) {
            gw_thc_put32(payload + 4 * (size_t)i, 0x3f800000u + (h & 0xffffu));
        } else {
            payload[i * lane_size] = (uint8_t)(h % (set_count(set) * m->options.table.granularity + 1));
        }
    }
    p->size = GW_THC_PACKET_HEADER_SIZE + GW_THC_SET_SIZE(WORKERS) + size;
}

/* ---- what the session takes ---- */

static void check_same(const model *m)
{
    const int is_done = gw_thc_session_is_done(m->session);
    const answers *a = &m->answers[m->current > 0];
    const int has_all = m->current >= 0 && m->has_welcome && a->done == a->blocks;
    FUZZ_CHECK(is_done == (has_all && gw_thc_session_fault(m->session) == GW_THC_FAULT_NONE));
}

/* Keeps a result that was taken, or says whether one that was not is other than what was taken before. */
static int answer_take(model *m, const uint8_t *bytes, size_t size, int is_taken)
{
    gw_thc_packet p;
    if (gw_thc_packet_parse(bytes, size, &p) != GW_OK) {
        FUZZ_CHECK(!is_taken);
        return 0;
    }
    const int kind = p.header.type == GW_THC_PACKET_RESULT ? SUMS : NORMS;
    answers *a = &m->answers[kind];
    const uint32_t first = p.header.block_first, count = p.header.block_count;
    if (is_taken) {
        FUZZ_CHECK(kind == SUMS || p.header.type == GW_THC_PACKET_MAXIMA);
        FUZZ_CHECK(a->exists && p.header.round == a->round && first < a->blocks &&
                   count <= a->blocks - first);
        FUZZ_CHECK(first % m->chunk_blocks[kind] == 0 && count <= m->chunk_blocks[kind]);
        FUZZ_CHECK((p.set[0] & 7u) != 0);
    } else if (p.set == NULL || !a->exists || first >= a->blocks || !a->is_done[first]) {
        return 0;
    }
    const size_t begin = result_offset(m, kind, first);
    if (!is_taken) {
        return p.payload_size > sizeof a->bytes - begin || a->set[first] != p.set[0] ||
               memcmp(a->bytes + begin, p.payload, p.payload_size) != 0;
    }
    FUZZ_CHECK(p.payload_size == result_offset(m, kind, first + count) - begin);
    memcpy(a->bytes + begin, p.payload, p.payload_size);
    for (uint32_t b = first; b < first + count; b++) {
        FUZZ_CHECK(!a->is_done[b]);
        a->is_done[b] = 1;
        a->set[b] = p.set[0];
        a->done++;
    }
    return 0;
}

static void welcome_take(model *m, const gw_thc_message *message)
{
    if (message->type == GW_THC_MESSAGE_WELCOME && !m->has_welcome) {
        m->has_welcome = 1;
        m->detail = message->detail;
        m->chunk_blocks[NORMS] = message->detail >> 16;
        m->chunk_blocks[SUMS] = message->detail & 0xffffu;
        FUZZ_CHECK(m->chunk_blocks[SUMS] > 0 && m->chunk_blocks[NORMS] % m->chunk_blocks[SUMS] == 0);
    }
}

static gw_status input(model *m, const uint8_t *bytes, size_t size)
{
    gw_thc_message message = {0};
    uint8_t *exact = gw_fuzz_buffer(GW_FUZZ_FRAME, size, 0);
    if (size > 0) {
        memcpy(exact, bytes, size);
    }
    const int is_message = gw_thc_message_is(exact, size);
    const gw_status parsed = is_message ? gw_thc_message_parse(exact, size, &message) : GW_OK;
    const gw_status status = gw_thc_session_input(m->session, exact, size, m->now);
    FUZZ_CHECK(parsed == GW_OK || status == parsed);
    const gw_thc_fault fault = gw_thc_session_fault(m->session);
    int is_other = 0;
    if (!is_message) {
        is_other = answer_take(m, exact, size, status == GW_OK);
    } else if (status == GW_OK) {
        welcome_take(m, &message);
    }
    FUZZ_CHECK(fault != GW_THC_FAULT_MEMORY);
    FUZZ_CHECK(fault != GW_THC_FAULT_DIFFERENT || is_other);
    FUZZ_CHECK(status != GW_ERR_DUP || !is_other); /* what is not the same ends the session */
    FUZZ_CHECK(fault != GW_THC_FAULT_REFUSED || message.type == GW_THC_MESSAGE_REFUSED);
    FUZZ_CHECK(fault != GW_THC_FAULT_PACKETS ||
               (message.type == GW_THC_MESSAGE_WELCOME && m->has_welcome && message.detail != m->detail));
    return status;
}

/* ---- the worker ---- */

static void phase_begin(model *m, int kind, uint64_t len)
{
    answers *a = &m->answers[kind];
    memset(a, 0, sizeof *a);
    a->exists = 1;
    a->round = m->round;
    a->len = len;
    a->blocks = (uint32_t)gw_thc_block_count(&m->thc, len);
    FUZZ_CHECK(a->blocks <= BLOCKS_MAX);
    m->current = kind;
}

static void norms_begin(model *m)
{
    const uint64_t len = 1 + mix(m->round, m->rank, 7) % LEN_MAX;
    m->round++;
    for (uint32_t b = 0; b < BLOCKS_MAX; b++) {
        m->patterns[b] = 0x3f800000u + (mix(m->round, b, m->rank) & 0xffffu);
    }
    if (m->current >= 0) {
        FUZZ_CHECK(gw_thc_session_norms(m->session, m->round - 1, len, m->patterns) == GW_ERR_STATE);
    }
    FUZZ_CHECK(gw_thc_session_norms(m->session, m->round, LEN_MAX + 1, m->patterns) == GW_ERR_LIMIT);
    FUZZ_CHECK(gw_thc_session_norms(m->session, m->round, len, m->patterns) == GW_OK);
    phase_begin(m, NORMS, len);
}

static void norms_end(model *m)
{
    const answers *a = &m->answers[NORMS];
    uint8_t is_left_out[BLOCKS_MAX];
    FUZZ_CHECK(gw_thc_session_maxima(m->session, m->maxima, is_left_out) == GW_OK);
    memcpy(m->norms_set, a->set, sizeof m->norms_set);
    for (uint32_t b = 0; b < a->blocks; b++) {
        FUZZ_CHECK(m->maxima[b] == gw_thc_get32(a->bytes + 4 * (size_t)b));
        FUZZ_CHECK(is_left_out[b] == (~a->set[b] >> m->rank & 1));
    }
    const size_t size = gw_thc_indices_size(&m->thc, a->len, 0, a->blocks);
    for (size_t i = 0; i < size; i++) {
        m->indices[i] = (uint8_t)mix(m->round, m->rank, (uint32_t)i);
    }
    FUZZ_CHECK(gw_thc_session_indices(m->session, m->indices, size - 1) == GW_ERR_SHORT);
    FUZZ_CHECK(gw_thc_session_indices(m->session, m->indices, size) == GW_OK);
    phase_begin(m, SUMS, a->len);
}

static void sums_end(model *m)
{
    const answers *a = &m->answers[SUMS];
    uint32_t members[BLOCKS_MAX];
    uint8_t is_left_out[BLOCKS_MAX];
    const size_t size = result_offset(m, SUMS, a->blocks);
    gw_buffer lanes = {.data = gw_fuzz_buffer(GW_FUZZ_DST, size, 0), .capacity = size - 1};
    FUZZ_CHECK(gw_thc_session_sums(m->session, &lanes, members, is_left_out) == GW_ERR_DST);
    lanes.capacity = size;
    FUZZ_CHECK(gw_thc_session_sums(m->session, &lanes, members, is_left_out) == GW_OK);
    FUZZ_CHECK(lanes.size == size && memcmp(lanes.data, a->bytes, size) == 0);
    for (uint32_t b = 0; b < a->blocks; b++) {
        FUZZ_CHECK(members[b] == set_count(a->set[b]));
        FUZZ_CHECK(is_left_out[b] == (~a->set[b] >> m->rank & 1));
    }
    m->rounds_done++;
}

/* To the next phase, where all of this one is there. */
static void advance(model *m)
{
    check_same(m);
    if (gw_thc_session_is_done(m->session)) {
        if (m->current == NORMS) {
            norms_end(m);
        } else {
            sums_end(m);
            norms_begin(m);
        }
    }
}

/* A packet that the session sends has what the worker gave it. Returns the block that an answer is wanted to,
 * -1 for a JOIN. */
static int output_check(const model *m, const uint8_t *bytes, size_t size, int *kind)
{
    gw_thc_message message;
    gw_thc_packet p;
    FUZZ_CHECK(size <= GW_THC_DATAGRAM_MAX);
    if (gw_thc_message_is(bytes, size)) {
        FUZZ_CHECK(gw_thc_message_parse(bytes, size, &message) == GW_OK);
        FUZZ_CHECK(message.type == GW_THC_MESSAGE_JOIN && message.rank == m->rank &&
                   message.len_max == LEN_MAX && message.job == m->options.job);
        return -1;
    }
    FUZZ_CHECK(size >= GW_THC_PACKET_HEADER_SIZE && m->has_welcome);
    const uint32_t first = gw_thc_get32(bytes + 20), count = gw_thc_get16(bytes + 24);
    *kind = bytes[5] == GW_THC_PACKET_NORMS ? NORMS : SUMS;
    const answers *a = &m->answers[*kind];
    FUZZ_CHECK(a->exists && gw_thc_get32(bytes + 16) == a->round && gw_thc_get16(bytes + 26) == m->rank);
    FUZZ_CHECK(first < a->blocks && count <= a->blocks - first);
    if (bytes[5] == GW_THC_PACKET_ASK) {
        FUZZ_CHECK(size == GW_THC_PACKET_HEADER_SIZE);
    } else {
        FUZZ_CHECK(gw_thc_packet_parse(bytes, size, &p) == GW_OK);
    }
    if (*kind == NORMS) {
        for (uint32_t b = 0; b < count; b++) {
            FUZZ_CHECK(gw_thc_get32(p.payload + 4 * (size_t)b) == m->patterns[first + b]);
        }
        return (int)first;
    }
    FUZZ_CHECK(gw_thc_get64(bytes + 40) == norms_hash_of(m, first, count));
    for (uint32_t b = first; b < first + count; b++) {
        const int may_contribute = m->norms_set[b] >> m->rank & 1;
        FUZZ_CHECK(may_contribute == (bytes[5] == GW_THC_PACKET_INDICES));
    }
    if (bytes[5] == GW_THC_PACKET_INDICES) {
        const size_t offset = gw_thc_indices_size(&m->thc, a->len, 0, first);
        FUZZ_CHECK(memcmp(p.payload, m->indices + offset, p.payload_size) == 0);
    }
    return (int)first;
}

/* All that is to be sent at this time; each packet of the two phases at most once. With `answer`, a server
 * takes them and answers as it did before, or with all workers. Returns how many answers were of use. */
static unsigned outputs(model *m, int answer)
{
    uint32_t blocks[2 * BLOCKS_MAX + 1];
    int kinds[2 * BLOCKS_MAX + 1];
    unsigned count = 0, used = 0;
    const uint8_t *bytes;
    size_t size;
    while ((bytes = gw_thc_session_output(m->session, m->now, &size)) != NULL) {
        FUZZ_CHECK(count < 2 * BLOCKS_MAX + 1);
        int kind = NORMS;
        const int block = output_check(m, bytes, size, &kind);
        if (block >= 0) {
            blocks[count] = (uint32_t)block;
            kinds[count++] = kind;
            m->is_sent[kind][block] = 1;
        }
    }
    FUZZ_CHECK(size == 0);
    for (unsigned i = 0; answer && i < count; i++) {
        const answers *a = &m->answers[kinds[i]];
        static packet p;
        result_make(m, kinds[i], blocks[i], 7, 0, &p);
        if (a->is_done[blocks[i]]) {
            uint8_t *set = p.bytes + GW_THC_PACKET_HEADER_SIZE;
            *set = a->set[blocks[i]];
            memcpy(set + GW_THC_SET_SIZE(WORKERS), a->bytes + result_offset(m, kinds[i], blocks[i]),
                   p.size - GW_THC_PACKET_HEADER_SIZE - GW_THC_SET_SIZE(WORKERS));
        }
        const gw_status status = input(m, p.bytes, p.size);
        FUZZ_CHECK(status == GW_OK || status == GW_ERR_DUP);
        used += status == GW_OK;
    }
    return used;
}

/* ---- steps ---- */

/* Changes a byte, or cuts. */
static void damage(gw_fuzz_reader *reader, packet *p)
{
    const uint8_t at = gw_fuzz_u8(reader), change = gw_fuzz_u8(reader);
    if (at < 128) {
        p->bytes[at % p->size] ^= change;
    } else {
        p->size = (size_t)(at - 128) * 2 % (p->size + 1);
    }
}

static void step_message(model *m, gw_fuzz_reader *reader, int is_damaged)
{
    static const uint32_t details[4] = {1u | 1u << 16, 2u | 4u << 16, 16u | 16u << 16, 2u | 3u << 16};
    const uint8_t what = gw_fuzz_u8(reader), more = gw_fuzz_u8(reader);
    gw_thc_message message = message_of(m, 1 + what % 6);
    static packet p;
    message.epoch = what >> 6;
    message.cookie = message.type == GW_THC_MESSAGE_CHALLENGE ? more : 0;
    if (message.type == GW_THC_MESSAGE_JOIN) {
        message.patterns_per_block = 1;
        message.len_max = 1;
    } else if (message.type == GW_THC_MESSAGE_WELCOME) {
        message.reason = more % (WORKERS + 1);
        message.detail = (more & 0x80) == 0 && m->has_welcome ? m->detail : details[more >> 2 & 3];
    } else if (message.type == GW_THC_MESSAGE_REFUSED) {
        message.reason = (more & 0x80) == 0 ? GW_THC_REFUSAL_RANK : more;
    }
    gw_thc_message_write(p.bytes, &message);
    p.size = gw_thc_message_size(message.type);
    if (is_damaged) {
        damage(reader, &p);
    }
    (void)input(m, p.bytes, p.size);
}

static void step_answer(model *m, gw_fuzz_reader *reader, int is_damaged)
{
    const uint8_t what = gw_fuzz_u8(reader);
    const int kind = what & 1;
    const uint8_t set = (uint8_t)((what >> 1 & 3) == 0 ? what >> 3 & 7 : 7);
    const uint32_t block = gw_fuzz_u8(reader);
    static packet p;
    if (!m->answers[kind].exists || !m->has_welcome) {
        return;
    }
    result_make(m, kind, block % m->answers[kind].blocks, set, what >> 7, &p);
    if (is_damaged) {
        damage(reader, &p);
    }
    (void)input(m, p.bytes, p.size);
}

static void step_raw(model *m, gw_fuzz_reader *reader)
{
    static packet p;
    p.size = gw_fuzz_u8(reader);
    for (size_t i = 0; i < p.size; i++) {
        p.bytes[i] = gw_fuzz_u8(reader);
    }
    (void)input(m, p.bytes, p.size);
}

static void step_leave(model *m)
{
    gw_thc_message message;
    size_t size;
    const uint8_t *bytes = gw_thc_session_leave(m->session, &size);
    if (bytes != NULL) {
        FUZZ_CHECK(gw_thc_message_parse(bytes, size, &message) == GW_OK);
        FUZZ_CHECK(message.type == GW_THC_MESSAGE_LEAVE && message.epoch != 0 && message.rank == m->rank);
    }
}

static void step(model *m, gw_fuzz_reader *reader)
{
    const uint8_t what = gw_fuzz_u8(reader);
    const int is_damaged = what >> 3 & 1;
    switch (what & 7) {
    case STEP_TIME:
        m->now += gw_fuzz_u8(reader) / 32.0;
        break;
    case STEP_MESSAGE:
        step_message(m, reader, is_damaged);
        break;
    case STEP_ANSWER:
        step_answer(m, reader, is_damaged);
        break;
    case STEP_RAW:
        step_raw(m, reader);
        break;
    case STEP_LOST:
        gw_thc_session_lost(m->session, m->now);
        break;
    case STEP_LEAVE:
        step_leave(m);
        break;
    default: /* STEP_OUTPUT, STEP_SERVE */
        (void)outputs(m, (what & 7) == STEP_SERVE);
        break;
    }
    (void)gw_thc_session_wants_socket(m->session);
    FUZZ_CHECK(gw_thc_session_due(m->session) >= 0);
}

/* A right server, which has not seen this worker, finishes the round and two more. */
static void finish(model *m)
{
    gw_thc_message welcome = message_of(m, GW_THC_MESSAGE_WELCOME);
    uint8_t bytes[GW_THC_MESSAGE_SIZE];
    welcome.epoch = 1000;
    welcome.reason = WORKERS;
    welcome.detail = m->has_welcome ? m->detail : (1u | 2u << 16);
    gw_thc_message_write(bytes, &welcome);
    gw_thc_session_lost(m->session, m->now);
    FUZZ_CHECK(input(m, bytes, sizeof bytes) == GW_OK);
    memset(m->is_sent, 0, sizeof m->is_sent);
    for (unsigned turn = 0; turn < BLOCKS_MAX; turn++, m->now += 3) {
        (void)outputs(m, 1);
    }
    for (int kind = NORMS; kind <= SUMS; kind++) { /* other workers may wait for what this one had */
        for (uint32_t b = 0; b < m->answers[kind].blocks; b += m->chunk_blocks[kind]) {
            FUZZ_CHECK(m->is_sent[kind][b]);
        }
    }
    const uint32_t rounds = m->rounds_done + 3;
    for (unsigned turn = 0; m->rounds_done < rounds; turn++) {
        FUZZ_CHECK(turn < 100);
        advance(m);
        (void)outputs(m, 1);
        m->now += 3;
        FUZZ_CHECK(gw_thc_session_fault(m->session) == GW_THC_FAULT_NONE);
    }
}

/* A session that has ended does nothing more. */
static void check_ended(model *m)
{
    size_t size;
    FUZZ_CHECK(gw_thc_session_output(m->session, m->now + 100, &size) == NULL);
    FUZZ_CHECK(!gw_thc_session_is_done(m->session));
    FUZZ_CHECK(gw_thc_session_norms(m->session, m->round + 1, 1, m->patterns) == GW_ERR_STATE);
    step_leave(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    static model m;

    memset(&m, 0, sizeof m);
    FUZZ_CHECK(gw_thc_options_init(&m.options, &(gw_thc_goal){4, WORKERS, 0, 0}, NULL) == GW_OK);
    m.options.job = 5;
    m.options.block_log2 = LOG2;
    FUZZ_CHECK(gw_thc_init(&m.thc, &m.options) == GW_OK);
    FUZZ_CHECK(gw_thc_patterns_per_block(&m.thc) == 1);
    const uint8_t choice = gw_fuzz_u8(&reader);
    m.rank = choice % WORKERS;
    m.round = UINT32_MAX - 1u + (choice >> 4 & 1);
    m.current = -1;
    const gw_thc_session_options options = {&m.thc, m.rank, LEN_MAX, choice >> 3 & 1};
    m.session = gw_thc_session_create(&options);
    FUZZ_CHECK(m.session != NULL);
    norms_begin(&m);

    gw_fuzz_place_at_end(1);
    for (unsigned i = 0; i < STEPS_MAX && reader.size > 0; i++) {
        step(&m, &reader);
        if (gw_thc_session_fault(m.session) != GW_THC_FAULT_NONE) {
            check_ended(&m);
            break;
        }
        advance(&m);
    }
    if (gw_thc_session_fault(m.session) == GW_THC_FAULT_NONE) {
        finish(&m);
    }
    gw_thc_session_free(m.session);
    gw_fuzz_buffers_check();
    return 0;
}
