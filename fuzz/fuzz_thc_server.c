/*
 * The parameter server, with state, against a model in plain integers. The input is a list of steps: packets
 * of valid workers in any order, the same ones damaged, seals and drops. The model keeps what was added to
 * each version by its own table of sets; every result packet must hold its sums, and memory outside the
 * server must stay as it was.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/thc.h"

#include <string.h>

enum { WORKERS = 6, SLOTS = 2, CHUNKS = 3, SLOT_LEN = 128, ROUNDS = 8 };

/* Per round and chunk: who is in the sum as the server said by GW_OK. */
typedef struct model {
    uint8_t set[ROUNDS][CHUNKS];
} model;

static const uint32_t round_first = UINT32_MAX - 2;

static unsigned index_of(uint32_t round, uint32_t chunk, uint32_t rank, unsigned lane)
{
    uint32_t h = round * 2654435761u ^ chunk * 40503u ^ rank * 97u ^ lane * 31u;
    h = (h ^ h >> 15) * 2246822519u;
    return (h ^ h >> 13) & 15u;
}

static size_t make_packet(const gw_thc_server_options *options, uint32_t round, uint32_t chunk, uint32_t rank,
                          uint8_t *dst)
{
    gw_thc_packet_header h;

    memset(&h, 0, sizeof h);
    h.type = GW_THC_PACKET_INDICES;
    h.bits = 4;
    h.granularity = options->table.granularity;
    h.block_log2 = 7;
    h.worker_max = WORKERS;
    h.job = options->job;
    h.round = round;
    h.block_first = chunk;
    h.block_count = 1;
    h.rank = (uint16_t)rank;
    h.len = SLOT_LEN;
    h.options_hash = options->options_hash;
    h.norms_hash = round;
    gw_thc_packet_write(dst, &h);
    memset(dst + GW_THC_PACKET_HEADER_SIZE, 0, SLOT_LEN / 2);
    for (unsigned i = 0; i < SLOT_LEN; i++) {
        uint8_t *byte = dst + GW_THC_PACKET_HEADER_SIZE + i / 64 * 32 + i % 32;
        *byte = (uint8_t)(*byte | index_of(round, chunk, rank, i) << (i % 64 / 32 * 4));
    }
    return GW_THC_PACKET_HEADER_SIZE + SLOT_LEN / 2;
}

/* A result must hold exactly the sums of the workers in its set, and its set must be the model's. */
static void check_reply(const gw_thc_server_options *options, const gw_thc_reply *reply, const model *m)
{
    gw_thc_packet p;

    if (reply->action == GW_THC_ACTION_NONE) {
        return;
    }
    FUZZ_CHECK(gw_thc_packet_parse(reply->packet, reply->packet_size, &p) == GW_OK);
    if (p.header.type == GW_THC_PACKET_NOTICE) {
        return;
    }
    FUZZ_CHECK(p.header.type == GW_THC_PACKET_RESULT && p.header.len == SLOT_LEN &&
               p.header.block_first < CHUNKS);
    uint32_t round = p.header.round - round_first;
    FUZZ_CHECK(round < ROUNDS);
    FUZZ_CHECK(p.set[0] == m->set[round][p.header.block_first]);
    for (unsigned i = 0; i < SLOT_LEN; i++) {
        unsigned sum = 0;
        for (uint32_t r = 0; r < WORKERS; r++) {
            if ((p.set[0] >> r & 1) != 0) {
                sum += options->table.value[index_of(p.header.round, p.header.block_first, r, i)];
            }
        }
        FUZZ_CHECK(p.payload[i] == sum);
    }
}

static void send(gw_thc_server *server, const gw_thc_server_options *options, gw_fuzz_reader *reader,
                 model *m)
{
    uint8_t packet[GW_THC_PACKET_HEADER_SIZE + SLOT_LEN / 2];
    gw_thc_reply reply;
    uint8_t who = gw_fuzz_u8(reader);
    uint32_t rank = who % WORKERS;
    uint32_t chunk = who / WORKERS % CHUNKS;
    uint8_t when = gw_fuzz_u8(reader);
    uint32_t round = when % ROUNDS;
    size_t size = make_packet(options, round_first + round, chunk, rank, packet);

    if ((when & 0x80) != 0) { /* damage one header byte, or cut */
        uint8_t at = gw_fuzz_u8(reader);
        uint8_t change = gw_fuzz_u8(reader);
        if (at < GW_THC_PACKET_HEADER_SIZE) {
            packet[at] ^= change;
        } else {
            size = (size_t)at % (size + 1);
        }
    }
    uint8_t *exact = gw_fuzz_buffer(GW_FUZZ_FRAME, size, 0);
    if (size > 0) {
        memcpy(exact, packet, size);
    }
    gw_status status = gw_thc_server_receive(server, exact, size, &reply);
    if (status == GW_OK) {
        /* Damage may have made another valid packet: round, block and rank are those of its header. */
        gw_thc_packet p;
        FUZZ_CHECK(gw_thc_packet_parse(exact, size, &p) == GW_OK);
        uint32_t got_round = p.header.round - round_first;
        FUZZ_CHECK(got_round < ROUNDS || (when & 0x80) != 0);
        FUZZ_CHECK(p.header.rank < WORKERS);
        if (memcmp(packet + GW_THC_PACKET_HEADER_SIZE, exact + GW_THC_PACKET_HEADER_SIZE, SLOT_LEN / 2) !=
            0) {
            FUZZ_CHECK(0);
        }
        if (got_round >= ROUNDS || p.header.block_first >= CHUNKS || got_round != round ||
            p.header.rank != rank || p.header.block_first != chunk || p.header.norms_hash != p.header.round) {
            return; /* not a packet that the model can predict: end of this input, see below */
        }
        FUZZ_CHECK((m->set[round][chunk] >> rank & 1) == 0);
        m->set[round][chunk] = (uint8_t)(m->set[round][chunk] | 1u << rank);
    }
    check_reply(options, &reply, m);
}

/* Whether damage could be accepted as something else: then the model stops, the sanitizers do not. */
static int is_predictable(const uint8_t *step)
{
    if ((step[1] & 0x80) == 0) {
        return 1;
    }
    uint8_t at = step[2];
    int is_identity = (at >= 16 && at < 24) || (at >= 26 && at < 28) ||
                      (at >= 40 && at < 48); /* round, block, rank, hash */
    return !is_identity;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    gw_thc_server server;
    gw_thc_server_options options;
    gw_thc_options worker;
    model m;

    memset(&options, 0, sizeof options);
    memset(&m, 0, sizeof m);
    FUZZ_CHECK(gw_thc_options_init(&worker, &(gw_thc_goal){4, WORKERS, 0, 0}, NULL) == GW_OK);
    options.table = worker.table;
    options.worker_max = WORKERS;
    options.lane_bits = 8;
    options.block_log2 = 7;
    options.options_hash = 0x1122334455667788u;
    options.job = 5;
    options.round_first = round_first;
    options.round_window = 2;
    options.quorum = gw_fuzz_u8(&reader) % WORKERS + 1;
    options.slot_count = SLOTS;
    options.slot_len = SLOT_LEN;
    options.blocks_per_packet = 1;
    options.backends = GW_BACKEND_ALL;
    size_t memory_size = gw_thc_server_memory_size(&options);
    gw_fuzz_place_at_end(1);
    uint8_t *memory = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, memory_size, 0);
    FUZZ_CHECK(gw_thc_server_init(&server, &options, memory, memory_size) == GW_OK);

    while (reader.size > 0) {
        uint8_t step = gw_fuzz_u8(&reader);
        gw_thc_reply reply;
        if (step < 0xe0) {
            uint8_t ahead[3] = {0, 0, 0};
            for (size_t i = 0; i < 3 && i < reader.size; i++) {
                ahead[i] = reader.data[i];
            }
            int predictable = is_predictable(ahead);
            send(&server, &options, &reader, &m);
            if (!predictable) {
                break;
            }
        } else if (step < 0xf0) {
            if (gw_thc_server_seal(&server, step % SLOTS, &reply) == GW_OK) {
                check_reply(&options, &reply, &m);
            }
        } else {
            FUZZ_CHECK(gw_thc_server_drop(&server, step % SLOTS) == GW_OK);
        }
    }
    gw_fuzz_buffers_check();
    return 0;
}
