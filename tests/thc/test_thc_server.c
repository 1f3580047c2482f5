/*
 * Packets and the parameter server: a lossy, duplicating, reordering network against a model in plain
 * integers, and the refusals of rows 39 to 43.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "thc_testing.h"

enum { WORKERS = 5, CHUNKS = 3, SLOT_LEN = 128, PACKET_MAX = 48 + 8 + SLOT_LEN * 4 };

typedef struct fixture {
    gw_thc_server server;
    gw_thc_server_options config;
    gw_thc thc;
    void *memory;
} fixture;

static fixture make_server(uint32_t first_round, uint32_t quorum, uint32_t slots, gw_thc_op op)
{
    fixture f;
    gw_thc_options config = default_options(4, WORKERS, 0);

    config.block_log2 = 6;
    memset(&f, 0, sizeof f);
    f.thc = make_thc(&config);
    f.config.table = config.table;
    f.config.worker_max = WORKERS;
    f.config.lane_bits = 8;
    f.config.block_log2 = 6;
    f.config.options_hash = gw_thc_options_hash(&f.thc);
    f.config.job = 1234;
    f.config.round_first = first_round;
    f.config.round_window = 1;
    f.config.quorum = quorum;
    f.config.slot_count = slots;
    f.config.slot_len = SLOT_LEN;
    f.config.blocks_per_packet = 2;
    f.config.op = op;
    f.config.backends = GW_BACKEND_SCALAR;
    size_t size = gw_thc_server_memory_size(&f.config);
    assert_true(size > 0);
    f.memory = take(size);
    assert_int_equal(gw_thc_server_init(&f.server, &f.config, f.memory, size - 1), GW_ERR_WORKSPACE);
    assert_int_equal(gw_thc_server_init(&f.server, &f.config, f.memory, size), GW_OK);
    return f;
}

/* Index of lane i of worker `rank` in `round`, chunk `chunk`: what the model adds. */
static unsigned index_of(uint32_t round, uint32_t chunk, uint32_t rank, size_t i)
{
    uint32_t h = round * 2654435761u ^ chunk * 40503u ^ rank * 97u ^ (uint32_t)i * 31u;
    h ^= h >> 15;
    h *= 2246822519u;
    return (h ^ h >> 13) & 15u;
}

static size_t make_packet(const fixture *f, uint32_t round, uint32_t chunk, uint32_t rank, uint8_t *dst)
{
    gw_thc_packet_header h;

    memset(&h, 0, sizeof h);
    h.type = GW_THC_PACKET_INDICES;
    h.bits = 4;
    h.granularity = f->config.table.granularity;
    h.block_log2 = 6;
    h.worker_max = WORKERS;
    h.job = f->config.job;
    h.round = round;
    h.block_first = chunk * 2;
    h.block_count = 2;
    h.rank = (uint16_t)rank;
    h.len = SLOT_LEN;
    h.options_hash = f->config.options_hash;
    h.norms_hash = 0xfeed0000u + round;
    gw_thc_packet_write(dst, &h);
    memset(dst + 48, 0, SLOT_LEN / 2);
    for (size_t i = 0; i < SLOT_LEN; i++) {
        dst[48 + i / 64 * 32 + i % 32] =
            (uint8_t)(dst[48 + i / 64 * 32 + i % 32] | index_of(round, chunk, rank, i) << (i % 64 / 32 * 4));
    }
    assert_int_equal(gw_thc_packet_size(h.type, 4, 0, WORKERS, SLOT_LEN), 48 + SLOT_LEN / 2);
    return 48 + SLOT_LEN / 2;
}

/* Checks a RESULT against the integers of the workers in its set. Returns the set. */
static unsigned check_result(const fixture *f, const uint8_t *packet, size_t size, uint32_t round,
                             uint32_t chunk)
{
    gw_thc_packet p;

    assert_int_equal(gw_thc_packet_parse(packet, size, &p), GW_OK);
    assert_int_equal(p.header.type, GW_THC_PACKET_RESULT);
    assert_int_equal(p.header.round, round);
    assert_int_equal(p.header.block_first, chunk * 2);
    assert_int_equal(p.header.job, f->config.job);
    assert_true(p.header.norms_hash == 0xfeed0000u + round);
    for (size_t i = 0; i < SLOT_LEN; i++) {
        unsigned sum = 0;
        for (uint32_t r = 0; r < WORKERS; r++) {
            if (p.set[0] >> r & 1) {
                sum += f->config.table.value[index_of(round, chunk, r, i)];
            }
        }
        assert_int_equal(p.payload[i], sum);
    }
    return p.set[0];
}

/*
 * Workers send their packet for (round, chunk) until they have the result, then go on; every packet either
 * way is lost with 30 %, sent twice with 20 %, delayed with 20 %. All end with the same results. Rounds wrap
 * around 2^32.
 */
static void run_network(uint32_t seed, uint32_t slots, uint32_t quorum)
{
    enum { ROUNDS = 12, DELAYED = 64 };
    test_rng rng = {seed};
    uint32_t first = UINT32_MAX - 4;
    fixture f = make_server(first, quorum, slots, GW_THC_OP_SUM);
    uint32_t at[WORKERS] = {0}; /* steps done: round * CHUNKS + chunk */
    static uint8_t delayed[DELAYED][PACKET_MAX];
    size_t delayed_size[DELAYED] = {0};
    unsigned result_set[ROUNDS * CHUNKS];
    uint32_t done = 0;
    uint64_t steps = 0;

    memset(result_set, 0, sizeof result_set);
    while (done < WORKERS) {
        uint8_t packet[PACKET_MAX];
        gw_thc_reply reply;
        uint32_t rank = rng_below(&rng, WORKERS);
        size_t size = 0;

        assert_true(++steps < 200000);
        uint32_t held = rng_below(&rng, DELAYED);
        if (delayed_size[held] != 0 && rng_below(&rng, 3) == 0) {
            size = delayed_size[held];
            memcpy(packet, delayed[held], size);
            delayed_size[held] = 0;
        } else if (at[rank] < ROUNDS * CHUNKS) {
            size = make_packet(&f, first + at[rank] / CHUNKS, at[rank] % CHUNKS, rank, packet);
            if (rng_below(&rng, 100) < 20 && delayed_size[held] == 0) {
                memcpy(delayed[held], packet, size);
                delayed_size[held] = size;
                if (rng_below(&rng, 2) == 0) {
                    continue; /* delayed; else also sent now */
                }
            }
            if (rng_below(&rng, 100) < 30) {
                continue; /* lost */
            }
        } else {
            /* Finished workers only matter for the count. With a quorum the clock must drop what no worker
             * requests. */
            if (quorum < WORKERS || slots < CHUNKS) {
                assert_int_equal(gw_thc_server_drop(&f.server, rng_below(&rng, slots)), GW_OK);
            }
            continue;
        }
        gw_status status = gw_thc_server_receive(&f.server, packet, size, &reply);
        assert_true(status == GW_OK || status == GW_ERR_DUP || status == GW_ERR_ROUND ||
                    status == GW_ERR_STATE);
        if (status == GW_ERR_STATE && quorum < WORKERS && rng_below(&rng, 10) == 0) {
            gw_thc_packet p;
            assert_int_equal(gw_thc_packet_parse(packet, size, &p), GW_OK);
            assert_int_equal(gw_thc_server_drop(&f.server, p.header.block_first / 2 % slots), GW_OK);
        }
        if (reply.action == GW_THC_ACTION_NONE) {
            continue;
        }
        for (uint32_t r = 0; r < WORKERS; r++) {
            gw_thc_packet p;
            if (reply.action == GW_THC_ACTION_REPLY && r != reply.rank) {
                continue;
            }
            if (rng_below(&rng, 100) < 30) {
                continue; /* lost on the way down */
            }
            assert_int_equal(gw_thc_packet_parse(reply.packet, reply.packet_size, &p), GW_OK);
            if (at[r] >= ROUNDS * CHUNKS) {
                continue;
            }
            if (p.header.type == GW_THC_PACKET_NOTICE) {
                /* The round is over and its result gone: go on where the slot is. */
                assert_true(quorum < WORKERS || (int32_t)(p.header.round - (first + at[r] / CHUNKS)) <= 0 ||
                            status == GW_ERR_ROUND);
                if (quorum < WORKERS && (int32_t)(p.header.round - (first + at[r] / CHUNKS)) > 0) {
                    done += ++at[r] == ROUNDS * CHUNKS;
                }
                continue;
            }
            if (p.header.round != first + at[r] / CHUNKS || p.header.block_first / 2 != at[r] % CHUNKS) {
                continue; /* an old result again */
            }
            unsigned set = check_result(&f, reply.packet, reply.packet_size, p.header.round, at[r] % CHUNKS);
            assert_true(result_set[at[r]] == 0 || result_set[at[r]] == set); /* all get the same */
            result_set[at[r]] = set;
            if (quorum == WORKERS) {
                assert_int_equal(set, (1 << WORKERS) - 1);
            }
            done += ++at[r] == ROUNDS * CHUNKS;
        }
    }
    free(f.memory);
}

static void test_network(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        run_network(seed, CHUNKS, WORKERS);
        run_network(seed, 1, WORKERS); /* all chunks share one slot */
        run_network(seed, CHUNKS, 3);
    }
}

static void test_rounds(void **state)
{
    (void)state;
    fixture f = make_server(UINT32_MAX, WORKERS, CHUNKS, GW_THC_OP_SUM);
    uint8_t packet[PACKET_MAX];
    gw_thc_reply reply;
    gw_thc_packet p;
    size_t size;
    uint32_t round, members;

#define SEND(round, chunk, rank)                                                                             \
    (size = make_packet(&f, round, chunk, rank, packet),                                                     \
     gw_thc_server_receive(&f.server, packet, size, &reply))
    /* Before the first round and beyond the window: a notice of where the slot is. */
    assert_int_equal(SEND(UINT32_MAX - 1, 0, 2), GW_ERR_ROUND);
    assert_int_equal(reply.action, GW_THC_ACTION_REPLY);
    assert_int_equal(reply.rank, 2);
    assert_int_equal(gw_thc_packet_parse(reply.packet, reply.packet_size, &p), GW_OK);
    assert_int_equal(p.header.type, GW_THC_PACKET_NOTICE);
    assert_true(p.header.round == UINT32_MAX && p.header.rank == 2);
    assert_int_equal(SEND(1, 0, 2), GW_ERR_ROUND);
    assert_int_equal(gw_thc_server_slot_open(&f.server, 0, NULL, NULL), 0);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(SEND(UINT32_MAX, 0, r), GW_OK);
    }
    assert_int_equal(SEND(UINT32_MAX, 0, 3), GW_ERR_DUP);
    assert_int_equal(reply.action, GW_THC_ACTION_NONE);
    assert_int_equal(gw_thc_server_slot_open(&f.server, 0, &round, &members), 1);
    assert_true(round == UINT32_MAX && members == 4);
    /* Round 0 follows UINT32_MAX; not while that is open. */
    assert_int_equal(SEND(0, 0, 0), GW_ERR_STATE);
    /* The clock seals it; the straggler hears the result without being in it. */
    assert_int_equal(gw_thc_server_seal(&f.server, 0, &reply), GW_OK);
    assert_int_equal(reply.action, GW_THC_ACTION_BROADCAST);
    assert_int_equal(check_result(&f, reply.packet, reply.packet_size, UINT32_MAX, 0), 0x0f);
    assert_int_equal(gw_thc_server_seal(&f.server, 0, &reply), GW_ERR_STATE);
    assert_int_equal(SEND(0, 0, 0), GW_OK); /* the version before is empty */
    assert_int_equal(SEND(UINT32_MAX, 0, 4), GW_ERR_ROUND);
    assert_int_equal(reply.action, GW_THC_ACTION_REPLY);
    assert_int_equal(check_result(&f, reply.packet, reply.packet_size, UINT32_MAX, 0), 0x0f);
    for (uint32_t r = 1; r < 4; r++) {
        assert_int_equal(SEND(0, 0, r), GW_OK);
    }
    assert_int_equal(gw_thc_server_seal(&f.server, 0, &reply), GW_OK);
    /* Worker 4 was not seen in round 0: round 1 may not overwrite the result of UINT32_MAX, until the clock
     * drops it. */
    assert_int_equal(SEND(1, 0, 0), GW_ERR_STATE);
    assert_int_equal(SEND(UINT32_MAX, 0, 1), GW_ERR_DUP);
    assert_int_equal(check_result(&f, reply.packet, reply.packet_size, UINT32_MAX, 0), 0x0f);
    assert_int_equal(gw_thc_server_drop(&f.server, 0), GW_OK);
    assert_int_equal(SEND(1, 0, 0), GW_OK);
    assert_int_equal(SEND(UINT32_MAX, 0, 1), GW_ERR_ROUND); /* now it is gone */
    assert_int_equal(gw_thc_packet_parse(reply.packet, reply.packet_size, &p), GW_OK);
    assert_int_equal(p.header.type, GW_THC_PACKET_NOTICE);
    assert_true(p.header.round == 1);
    assert_int_equal(SEND(0, 0, 4), GW_ERR_ROUND); /* late, but its result is kept */
    assert_int_equal(check_result(&f, reply.packet, reply.packet_size, 0, 0), 0x0f);
#undef SEND
    free(f.memory);
}

/* A refused packet changes no byte of the server's memory but the set of workers seen. */
static void test_refusals(void **state)
{
    (void)state;
    fixture f = make_server(0, WORKERS, CHUNKS, GW_THC_OP_SUM);
    size_t memory_size = gw_thc_server_memory_size(&f.config);
    uint8_t *copy = take(memory_size);
    uint8_t packet[PACKET_MAX + 1];
    gw_thc_reply reply;
    static const struct {
        size_t at;
        uint8_t value;
        gw_status status;
    } cases[] = {
        {0, 0, GW_ERR_MAGIC},        {4, 1, GW_ERR_VERSION},      {5, 0, GW_ERR_UNSUPPORTED},
        {5, 7, GW_ERR_UNSUPPORTED},  {5, 3, GW_ERR_UNSUPPORTED},  {5, 5, GW_ERR_UNSUPPORTED},
        {6, 3, GW_ERR_MISMATCH},     {7, 30, GW_ERR_MISMATCH},    {8, 8, GW_ERR_MISMATCH},
        {9, 7, GW_ERR_MISMATCH},     {10, 6, GW_ERR_MISMATCH},    {12, 0, GW_ERR_ROUND},
        {16, 9, GW_ERR_ROUND},       {20, 1, GW_ERR_MISMATCH},    {24, 0, GW_ERR_HEADER},
        {24, 1, GW_ERR_HEADER},      {24, 3, GW_ERR_MISMATCH},    {26, 5, GW_ERR_DUP},
        {26, 0, GW_ERR_DUP},         {27, 1, GW_ERR_DUP},         {28, 64, GW_ERR_HEADER},
        {28, 129, GW_ERR_HEADER},    {29, 1, GW_ERR_HEADER},      {31, 0xff, GW_ERR_HEADER},
        {32, 0xee, GW_ERR_MISMATCH}, {40, 0xee, GW_ERR_MISMATCH},
    };

    size_t size = make_packet(&f, 0, 0, 0, packet);
    assert_int_equal(gw_thc_server_receive(&f.server, packet, size, &reply), GW_OK);
    memcpy(copy, f.memory, memory_size);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)make_packet(&f, 0, 0, 1, packet);
        packet[cases[i].at] = cases[i].value;
        gw_status status = gw_thc_server_receive(&f.server, packet, size, &reply);
        if (status != cases[i].status) {
            print_message("byte %zu = %u: %d\n", cases[i].at, cases[i].value, (int)status);
        }
        assert_int_equal(status, cases[i].status);
        assert_memory_equal(copy, f.memory, memory_size);
    }
    (void)make_packet(&f, 0, 0, 1, packet);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *piece = take(cut);
        memcpy(piece, packet, cut);
        assert_int_equal(gw_thc_server_receive(&f.server, piece, cut, &reply), GW_ERR_SHORT);
        free(piece);
    }
    assert_int_equal(gw_thc_server_receive(&f.server, packet, size + 1, &reply), GW_ERR_TRAILING);

    /* Partial sums from another aggregator. */
    gw_thc_packet_header h;
    uint8_t lanes[48 + 8 + SLOT_LEN];
    memset(&h, 0, sizeof h);
    h.type = GW_THC_PACKET_LANES;
    h.bits = 4;
    h.granularity = f.config.table.granularity;
    h.lane_bits = 8;
    h.block_log2 = 6;
    h.worker_max = WORKERS;
    h.job = f.config.job;
    h.block_count = 2;
    h.len = SLOT_LEN;
    h.options_hash = f.config.options_hash;
    h.norms_hash = 0xfeed0000u;
    memset(lanes, 0, sizeof lanes);
    gw_thc_packet_write(lanes, &h);
    lanes[48] = 0x06; /* workers 1 and 2 */
    lanes[48 + 8 + 77] = 2 * 31 + 1;
    assert_int_equal(gw_thc_server_receive(&f.server, lanes, sizeof lanes, &reply), GW_ERR_CORRUPT);
    lanes[48 + 8 + 77] = 2 * 31;
    lanes[48] = 0x07; /* worker 0 is in */
    assert_int_equal(gw_thc_server_receive(&f.server, lanes, sizeof lanes, &reply), GW_ERR_DUP);
    lanes[48] = 0x26; /* worker 5 of 5 */
    assert_int_equal(gw_thc_server_receive(&f.server, lanes, sizeof lanes, &reply), GW_ERR_DUP);
    lanes[48] = 0; /* an empty set with a non-zero lane */
    assert_int_equal(gw_thc_server_receive(&f.server, lanes, sizeof lanes, &reply), GW_ERR_CORRUPT);
    assert_memory_equal(copy, f.memory, memory_size);
    /* A packet that cannot be added opens no version: chunk 1 is still closed. */
    lanes[48] = 0x06;
    lanes[20] = 2;
    lanes[48 + 8 + 77] = 2 * 31 + 1;
    assert_int_equal(gw_thc_server_receive(&f.server, lanes, sizeof lanes, &reply), GW_ERR_CORRUPT);
    assert_int_equal(gw_thc_server_slot_open(&f.server, 1, NULL, NULL), 0);
    lanes[20] = 0;
    lanes[48 + 8 + 77] = 2 * 31;
    assert_int_equal(gw_thc_server_receive(&f.server, lanes, sizeof lanes, &reply), GW_OK);
    uint32_t members;
    assert_int_equal(gw_thc_server_slot_open(&f.server, 0, NULL, &members), 1);
    assert_int_equal(members, 3);

    gw_thc_server zero;
    memset(&zero, 0, sizeof zero);
    assert_int_equal(gw_thc_server_receive(&zero, packet, size, &reply), GW_ERR_STATE);
    assert_int_equal(gw_thc_server_seal(&f.server, CHUNKS, &reply), GW_ERR_ARG);
    free(copy);
    free(f.memory);
}

/* Phase one through a server of its own. */
static void test_norms(void **state)
{
    (void)state;
    fixture f = make_server(3, WORKERS, CHUNKS, GW_THC_OP_MAX);
    test_rng rng = {11};
    uint32_t maxima[2] = {0, 0};
    gw_thc_reply reply;
    gw_thc_packet p;
    size_t memory_size = gw_thc_server_memory_size(&f.config);
    uint8_t *copy = take(memory_size);

    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_thc_packet_header h;
        uint8_t packet[48 + 8];
        memset(&h, 0, sizeof h);
        h.type = GW_THC_PACKET_NORMS;
        h.bits = 4;
        h.granularity = f.config.table.granularity;
        h.lane_bits = 32;
        h.block_log2 = 6;
        h.worker_max = WORKERS;
        h.job = f.config.job;
        h.round = 3;
        h.block_first = 4;
        h.block_count = 2;
        h.rank = (uint16_t)r;
        h.len = 2;
        h.options_hash = f.config.options_hash;
        gw_thc_packet_write(packet, &h);
        for (unsigned i = 0; i < 2; i++) {
            uint32_t pattern = 0x00800000u + (rng_u32(&rng) >> 2);
            for (unsigned b = 0; b < 4; b++) {
                packet[48 + 4 * i + b] = (uint8_t)(pattern >> (8 * b));
            }
            maxima[i] = pattern > maxima[i] ? pattern : maxima[i];
        }
        /* Row 45: a norm that cannot be, after one that can. */
        static const uint32_t impossible[] = {0x7f800000, 0x7fc00001, 0xffffffff, 0x80000000, 0xbf800000, 1};
        for (size_t i = 0; r > 0 && i < sizeof impossible / sizeof impossible[0]; i++) {
            uint8_t hostile[sizeof packet];
            memcpy(hostile, packet, sizeof packet);
            memcpy(hostile + 52, &impossible[i], 4);
            memcpy(copy, f.memory, memory_size);
            assert_int_equal(gw_thc_server_receive(&f.server, hostile, sizeof hostile, &reply),
                             GW_ERR_CORRUPT);
            assert_memory_equal(copy, f.memory, memory_size);
            assert_int_equal(gw_thc_packet_parse(hostile, sizeof hostile, &p), GW_ERR_CORRUPT);
        }
        assert_int_equal(gw_thc_packet_parse(packet, sizeof packet, &p), GW_OK);
        assert_int_equal(gw_thc_server_receive(&f.server, packet, sizeof packet, &reply), GW_OK);
        assert_int_equal(gw_thc_server_receive(&f.server, packet, sizeof packet, &reply), GW_ERR_DUP);
    }
    assert_int_equal(reply.action, GW_THC_ACTION_REPLY); /* the last one was closed by then */
    assert_int_equal(gw_thc_packet_parse(reply.packet, reply.packet_size, &p), GW_OK);
    assert_int_equal(p.header.type, GW_THC_PACKET_MAXIMA);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t got = 0;
        for (unsigned b = 0; b < 4; b++) {
            got |= (uint32_t)p.payload[4 * i + b] << (8 * b);
        }
        assert_true(got == maxima[i]);
    }

    /* Two patterns a block: codes of plain blocks, checked by gw_thc_packet_parse(). */
    static const struct {
        uint32_t patterns[2];
        gw_status status;
    } plain[] = {
        {{0xbf800000, 0x80000000}, GW_OK},          /* 0 to 1 */
        {{0xffffffff, 0xffffffff}, GW_OK},          /* marked */
        {{0xffffffff, 0x80000000}, GW_ERR_CORRUPT}, /* half of a mark */
        {{0x80000001, 0x80000000}, GW_ERR_CORRUPT}, /* subnormal */
        {{0x7fffffff, 0x80000000}, GW_ERR_CORRUPT}, /* -0 */
        {{0xff800000, 0x80000000}, GW_ERR_CORRUPT}, /* infinity */
        {{0x80000000, 0x407fffff}, GW_ERR_CORRUPT}, /* maximum 0, minimum 1 */
    };
    gw_thc_packet_header h = p.header; /* MAXIMA of round 3 */
    h.type = GW_THC_PACKET_NORMS;
    h.block_count = 1;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        uint8_t packet[48 + 8];
        gw_thc_packet_write(packet, &h);
        memcpy(packet + 48, plain[i].patterns, 8);
        assert_int_equal(gw_thc_packet_parse(packet, sizeof packet, &p), plain[i].status);
    }
    free(copy);
    free(f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_norms),
    };
    return cmocka_run_group_tests_name("thc server", tests, NULL, NULL);
}
