/*
 * `gradwire thc-serve` and its workers in simulated time, over a network that loses, repeats and delays
 * packets: late workers, quorums, servers that are started anew, and everything malformed. Sums are compared
 * with a model in plain integers, whose contributors are those workers that were told to be in the sum.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "thc_testing.h"

#include "thc_serve.h"
#include "thc_session.h"

enum { WORKERS_MAX = 24, ROUNDS_MAX = 8, FLIGHTS_MAX = 20000, LEN_MAX = 3000, LOG2 = 6, BLOCKS_MAX = 47 };

/* A packet on its way. */
typedef struct flight {
    double at;
    uint64_t order;
    int worker;    /* whose */
    int is_down;   /* to the worker */
    unsigned port; /* of the worker when it was sent, or is addressed */
    size_t size;
    uint8_t *bytes;
} flight;

typedef struct outcome {
    uint8_t lanes[LEN_MAX * 4 + 256];
    uint32_t members[BLOCKS_MAX];
    uint8_t is_left_out[BLOCKS_MAX];
    uint32_t maxima[BLOCKS_MAX];
    uint8_t indices[LEN_MAX];
    int is_done;
} outcome;

typedef struct worker {
    gw_thc_session *session;
    unsigned port;
    int round, is_running;
    double begin; /* when it comes to its next round */
} worker;

typedef struct simulation {
    test_rng rng;
    double now;
    uint64_t order;
    int workers, rounds, loss, twice; /* percent */
    double delay;                     /* of packets, at most */
    double queue_size;    /* bytes that wait at the server's link in each direction; 0: no queue */
    double queue_free[2]; /* when it has sent all */
    double lateness;      /* of workers, at most */
    int late_worker;      /* -1: any */
    gw_thc_options options;
    gw_thc thc;
    thc_serve_limits limits;
    thc_serve *serve;
    worker worker[WORKERS_MAX];
    flight flights[FLIGHTS_MAX];
    int flight_count;
    uint64_t len[ROUNDS_MAX];
    outcome (*outcomes)[WORKERS_MAX];
    uint64_t partial, left_out, restarts; /* results so far of servers that are gone too */
    int keeps_going;                      /* a fault is not a failure of the test */
} simulation;

static double uniform(simulation *s)
{
    return rng_uniform(&s->rng);
}

/* When a packet leaves the queue of the link; below 0 if that is full. */
static double queue_pass(simulation *s, int is_down, size_t size)
{
    static const double rate = 2e6; /* bytes a second */
    if (s->queue_size <= 0) {
        return s->now;
    }
    double *is_free = &s->queue_free[is_down];
    *is_free = *is_free > s->now ? *is_free : s->now;
    if ((*is_free - s->now) * rate > s->queue_size) {
        return -1;
    }
    *is_free += (double)size / rate;
    return *is_free;
}

static void fly(simulation *s, int w, int is_down, unsigned port, const uint8_t *packet, size_t size)
{
    const int copies = (int)rng_below(&s->rng, 100) < s->twice ? 2 : 1;
    for (int i = 0; i < copies; i++) {
        if ((int)rng_below(&s->rng, 100) < s->loss) {
            continue;
        }
        const double sent_at = queue_pass(s, is_down, size);
        if (sent_at < 0) {
            continue;
        }
        assert_true(s->flight_count < FLIGHTS_MAX);
        flight *f = &s->flights[s->flight_count++];
        *f = (flight){sent_at + 1e-4 + s->delay * uniform(s), s->order++, w, is_down, port, size, take(size)};
        memcpy(f->bytes, packet, size);
    }
}

static thc_peer peer_of(int w, unsigned port)
{
    thc_peer peer;
    memset(&peer, 0, sizeof peer);
    peer.size = 16;
    peer.host = (uint64_t)w + 1;
    peer.address[0] = (uint8_t)(w + 1);
    memcpy(peer.address + 4, &port, sizeof port);
    return peer;
}

static void from_server(void *context, const thc_peer *to, const uint8_t *packet, size_t size)
{
    unsigned port;
    memcpy(&port, to->address + 4, sizeof port);
    fly(context, to->address[0] - 1, 1, port, packet, size);
}

static void serve_start(simulation *s)
{
    const uint64_t secret[2] = {rng_u32(&s->rng), rng_u32(&s->rng)};
    s->serve = thc_serve_create(&s->limits, secret, from_server, s);
    assert_non_null(s->serve);
}

static void serve_stop(simulation *s)
{
    if (s->serve != NULL) {
        s->partial += s->serve->counts.partial;
    }
    thc_serve_free(s->serve);
    s->serve = NULL;
}

static simulation *simulation_new(uint32_t seed, int workers, int rounds)
{
    simulation *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->rng.state = seed;
    s->workers = workers;
    s->rounds = rounds;
    s->late_worker = -1;
    s->delay = 0.003;
    s->options = default_options(4, (uint32_t)workers, 0);
    s->options.block_log2 = LOG2;
    s->options.job = 77;
    s->thc = make_thc(&s->options);
    s->limits = (thc_serve_limits){4, WORKERS_MAX, 64 << 20, 400, 0, 0, 3600, 1000};
    s->outcomes = calloc((size_t)rounds, sizeof *s->outcomes);
    assert_non_null(s->outcomes);
    for (int r = 0; r < rounds; r++) {
        s->len[r] = r == 0 ? LEN_MAX : 1 + rng_below(&s->rng, LEN_MAX);
    }
    for (int w = 0; w < workers; w++) {
        const gw_thc_session_options options = {&s->thc, (uint32_t)w, LEN_MAX, 0};
        s->worker[w].session = gw_thc_session_create(&options);
        assert_non_null(s->worker[w].session);
        s->worker[w].port = 1000;
    }
    return s;
}

static void simulation_free(simulation *s)
{
    serve_stop(s);
    for (int w = 0; w < s->workers; w++) {
        gw_thc_session_free(s->worker[w].session);
    }
    for (int i = 0; i < s->flight_count; i++) {
        free(s->flights[i].bytes);
    }
    free(s->outcomes);
    free(s);
}

static uint32_t round_number(int r)
{
    return UINT32_MAX - 2u + (uint32_t)r; /* rounds wrap around 2^32 */
}

/* A normal number, other for each worker, round and block. */
static uint32_t pattern_of(int w, int r, uint32_t b)
{
    return 0x3f800000u + (((uint32_t)w * 2654435761u ^ (uint32_t)r * 40503u ^ b * 97u) >> 8 & 0xffffu);
}

/* ---- workers ---- */

static void begin_norms(simulation *s, int w)
{
    worker *me = &s->worker[w];
    uint32_t patterns[BLOCKS_MAX];
    const uint32_t blocks = (uint32_t)gw_thc_block_count(&s->thc, s->len[me->round]);
    for (uint32_t b = 0; b < blocks; b++) {
        patterns[b] = pattern_of(w, me->round, b);
    }
    assert_int_equal(gw_thc_session_norms(me->session, round_number(me->round), s->len[me->round], patterns),
                     GW_OK);
    me->is_running = 1;
}

static void begin_indices(simulation *s, int w)
{
    worker *me = &s->worker[w];
    outcome *o = &s->outcomes[me->round][w];
    const uint64_t len = s->len[me->round];
    const size_t size = gw_thc_indices_size(&s->thc, len, 0, gw_thc_block_count(&s->thc, len));
    assert_int_equal(gw_thc_session_maxima(me->session, o->maxima, o->is_left_out), GW_OK);
    assert_true(size <= sizeof o->indices);
    for (size_t i = 0; i < size; i++) {
        o->indices[i] = (uint8_t)rng_u32(&s->rng);
    }
    assert_int_equal(gw_thc_session_indices(me->session, o->indices, size - 1), GW_ERR_SHORT);
    assert_int_equal(gw_thc_session_indices(me->session, o->indices, size), GW_OK);
}

static void end_round(simulation *s, int w)
{
    worker *me = &s->worker[w];
    outcome *o = &s->outcomes[me->round][w];
    gw_buffer lanes = {.data = o->lanes, .capacity = sizeof o->lanes};
    assert_int_equal(gw_thc_session_sums(me->session, &lanes, o->members, o->is_left_out), GW_OK);
    o->is_done = 1;
    me->round++;
    me->is_running = 0;
    const int is_late = s->late_worker < 0 || s->late_worker == w;
    me->begin = s->now + (is_late ? s->lateness * uniform(s) : 0);
}

/* Whatever the worker can do at this time. */
static void worker_step(simulation *s, int w)
{
    worker *me = &s->worker[w];
    gw_thc_session_state state;
    size_t size;
    if (!me->is_running && me->round < s->rounds && s->now >= me->begin) {
        begin_norms(s, w);
    }
    if (me->is_running && gw_thc_session_is_done(me->session)) {
        gw_thc_session_look(me->session, &state);
        if (state.is_sum) {
            end_round(s, w);
            return;
        }
        begin_indices(s, w);
    }
    if (gw_thc_session_wants_socket(me->session)) {
        me->port++;
    }
    while (me->is_running || me->round == s->rounds) { /* at the end too, for others that still wait */
        const uint8_t *packet = gw_thc_session_output(me->session, s->now, &size);
        if (packet == NULL) {
            break;
        }
        fly(s, w, 0, me->port, packet, size);
    }
}

/* ---- the network ---- */

static void deliver(simulation *s, const flight *f)
{
    worker *to = &s->worker[f->worker];
    if (!f->is_down && s->serve != NULL) {
        const thc_peer from = peer_of(f->worker, f->port);
        thc_serve_receive(s->serve, &from, f->bytes, f->size, s->now);
    } else if (f->is_down && f->port == to->port && (to->is_running || to->round == s->rounds)) {
        (void)gw_thc_session_input(to->session, f->bytes, f->size, s->now);
    }
}

static void deliver_due(simulation *s)
{
    for (;;) {
        int first = -1;
        for (int i = 0; i < s->flight_count; i++) {
            const flight *f = &s->flights[i];
            if (f->at <= s->now && (first < 0 || f->at < s->flights[first].at ||
                                    (f->at <= s->flights[first].at && f->order < s->flights[first].order))) {
                first = i;
            }
        }
        if (first < 0) {
            return;
        }
        const flight f = s->flights[first];
        s->flights[first] = s->flights[--s->flight_count];
        deliver(s, &f);
        free(f.bytes);
    }
}

static int all_done(const simulation *s)
{
    int done = 1;
    for (int w = 0; w < s->workers; w++) {
        done &= s->worker[w].round == s->rounds;
    }
    return done;
}

static int any_done(const simulation *s)
{
    int done = 0;
    for (int w = 0; w < s->workers; w++) {
        done |= s->worker[w].round == s->rounds;
    }
    return done;
}

static int faults(const simulation *s)
{
    int count = 0;
    for (int w = 0; w < s->workers; w++) {
        count += gw_thc_session_fault(s->worker[w].session) != GW_THC_FAULT_NONE;
    }
    return count;
}

/* Until all workers are done or have a fault; the server is started anew at some times. */
static void simulate(simulation *s, int restarts, double down)
{
    double next_restart = restarts > 0 ? 0.05 * uniform(s) : 1e300, up = 1e300;
    serve_start(s);
    while (!all_done(s) && faults(s) < s->workers) {
        assert_true(s->now < 300); /* of simulated time */
        for (int w = 0; w < s->workers; w++) {
            worker_step(s, w);
        }
        /* Who has ended does not come back to another server. */
        if (s->now >= next_restart && faults(s) == 0 && !any_done(s)) {
            serve_stop(s);
            s->restarts++;
            up = s->now + down * uniform(s);
            next_restart = s->restarts < (uint64_t)restarts ? up + 0.3 * uniform(s) : 1e300;
        }
        if (s->serve == NULL && s->now >= up) {
            serve_start(s);
        }
        s->now += 0.001;
        deliver_due(s);
        if (s->serve != NULL) {
            thc_serve_tick(s->serve, s->now);
        }
        assert_true(s->keeps_going || faults(s) == 0);
    }
}

/* ---- the model ---- */

static unsigned index_at(const outcome *o, size_t lane)
{
    const uint8_t byte = o->indices[lane / 64 * 32 + lane % 32];
    return lane % 64 < 32 ? byte & 15u : (unsigned)byte >> 4;
}

/* Sums of one block, of those that were told to be in it. */
static void check_block(simulation *s, int r, uint32_t b)
{
    const outcome *all = s->outcomes[r], *first = &all[0];
    const size_t lane_size = s->options.lane_bits / 8;
    uint32_t members = 0;
    for (int w = 0; w < s->workers; w++) {
        members += !all[w].is_left_out[b];
        s->left_out += all[w].is_left_out[b] != 0;
        assert_int_equal(all[w].members[b], first->members[b]);
        assert_int_equal(all[w].maxima[b], first->maxima[b]);
        assert_true(all[w].is_left_out[b] || all[w].maxima[b] >= pattern_of(w, r, b));
    }
    assert_int_equal(members, first->members[b]);
    const size_t lanes = gw_thc_block_lanes(&s->thc, s->len[r], b);
    for (size_t lane = (size_t)b << LOG2; lane < ((size_t)b << LOG2) + lanes; lane++) {
        unsigned sum = 0, found = first->lanes[lane * lane_size];
        for (int w = 0; w < s->workers; w++) {
            sum += all[w].is_left_out[b] ? 0u : s->options.table.value[index_at(&all[w], lane)];
        }
        if (lane_size > 1) {
            found |= (unsigned)first->lanes[lane * lane_size + 1] << 8;
        }
        assert_int_equal(found, sum);
    }
}

/* All workers have the same results, and these are the sums. */
static void check_results(simulation *s)
{
    for (int r = 0; r < s->rounds; r++) {
        const uint32_t blocks = (uint32_t)gw_thc_block_count(&s->thc, s->len[r]);
        const size_t size = gw_thc_lanes_size(&s->thc, s->len[r], 0, blocks);
        for (int w = 0; w < s->workers; w++) {
            assert_true(s->outcomes[r][w].is_done);
            assert_memory_equal(s->outcomes[r][w].lanes, s->outcomes[r][0].lanes, size);
        }
        for (uint32_t b = 0; b < blocks; b++) {
            check_block(s, r, b);
        }
    }
}

/* ---- tests ---- */

static void test_a_network_that_loses_repeats_and_delays(void **state)
{
    static const int losses[] = {0, 1, 10, 30};
    (void)state;
    for (uint32_t seed = 1; seed <= 8; seed++) {
        simulation *s = simulation_new(seed, seed % 3 == 0 ? 20 : 4, 5);
        assert_int_equal(s->options.lane_bits, s->workers > 17 ? 16 : 8);
        s->loss = losses[seed % 4];
        s->twice = s->loss;
        s->lateness = 0.05;
        simulate(s, 0, 0);
        check_results(s);
        assert_int_equal(s->left_out, 0);
        assert_int_equal(s->serve->counts.partial, 0);
        assert_int_equal(s->serve->counts.refused[GW_ERR_MISMATCH], 0);
        simulation_free(s);
    }
}

/* Nobody's packets are dropped each time. */
static void test_a_narrow_queue(void **state)
{
    static const double sizes[] = {1500, 3000, 6000, 12000};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        simulation *s = simulation_new(1, 4, 8);
        for (int r = 0; r < 8; r++) {
            s->len[r] = LEN_MAX;
        }
        s->limits.packet_max = 150;
        s->delay = 0;
        s->queue_size = sizes[i];
        simulate(s, 0, 0);
        assert_true(s->now < 20);
        check_results(s);
        simulation_free(s);
    }
}

static void test_a_server_that_is_started_anew(void **state)
{
    uint64_t restarts = 0;
    (void)state;
    for (uint32_t seed = 1; seed <= 30; seed++) {
        simulation *s = simulation_new(100 + seed, 4, 6);
        s->loss = seed % 2 == 0 ? 10 : 0;
        s->twice = s->loss;
        s->lateness = seed % 3 == 0 ? 0.2 : 0.01;
        simulate(s, 4, 0.05);
        check_results(s);
        assert_int_equal(s->left_out, 0);
        restarts += s->restarts;
        simulation_free(s);
    }
    assert_true(restarts > 60);
}

static void test_a_quorum_does_not_wait_for_a_late_worker(void **state)
{
    uint64_t left_out = 0;
    (void)state;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        simulation *s = simulation_new(200 + seed, 4, 8);
        s->loss = seed % 2 == 0 ? 10 : 0;
        s->twice = s->loss;
        s->lateness = 0.5;
        s->late_worker = 2;
        s->limits.quorum = 3;
        simulate(s, 0, 0);
        check_results(s);
        left_out += s->left_out;
        assert_true(s->left_out == 0 || s->serve->counts.partial > 0);
        simulation_free(s);
    }
    assert_true(left_out > 100);
}

static void test_a_sum_is_closed_after_a_time(void **state)
{
    uint64_t left_out = 0;
    (void)state;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        simulation *s = simulation_new(300 + seed, 4, 8);
        s->loss = seed % 2 == 0 ? 5 : 0;
        s->lateness = 1.0;
        s->late_worker = 1;
        s->limits.wait_s = 0.2;
        simulate(s, 0, 0);
        check_results(s);
        left_out += s->left_out;
        simulation_free(s);
    }
    assert_true(left_out > 100);
}

/* Either all results are equal, or all workers are refused: never two results of one round. */
static void test_a_new_server_after_partial_results(void **state)
{
    int refused = 0, finished = 0;
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        simulation *s = simulation_new(400 + seed, 4, 6);
        s->loss = seed % 2 == 0 ? 20 : 0;
        s->lateness = seed % 4 == 0 ? 0.02 : 0.3;
        s->late_worker = 3;
        s->limits.quorum = 3;
        s->keeps_going = 1;
        simulate(s, 3, 0.05);
        if (faults(s) == 0) {
            check_results(s);
            finished++;
        } else {
            refused++;
            for (int w = 0; w < s->workers; w++) {
                gw_thc_session_state look;
                gw_thc_session_look(s->worker[w].session, &look);
                assert_true(s->worker[w].round == s->rounds || look.refusal == GW_THC_REFUSAL_RESTARTED);
            }
            for (int r = 0; r < s->rounds; r++) { /* what was decoded before is equal all the same */
                const outcome *first = NULL;
                const size_t size =
                    gw_thc_lanes_size(&s->thc, s->len[r], 0, gw_thc_block_count(&s->thc, s->len[r]));
                for (int w = 0; w < s->workers; w++) {
                    const outcome *o = &s->outcomes[r][w];
                    first = first == NULL && o->is_done ? o : first;
                    assert_true(!o->is_done || memcmp(o->lanes, first->lanes, size) == 0);
                }
            }
        }
        simulation_free(s);
    }
    assert_true(refused > 3 && finished > 3);
}

/* ---- one server by hand ---- */

typedef struct sent {
    uint8_t bytes[GW_THC_DATAGRAM_MAX];
    size_t size;
    int count;
    thc_peer to;
} sent;

static void keep(void *context, const thc_peer *to, const uint8_t *packet, size_t size)
{
    sent *last = context;
    memcpy(last->bytes, packet, size);
    last->size = size;
    last->to = *to;
    last->count++;
}

static gw_thc_message join_of(const gw_thc *thc, uint32_t job, uint32_t rank)
{
    const gw_thc_options *o = gw_thc_options_of(thc);
    return (gw_thc_message){
        .type = GW_THC_MESSAGE_JOIN,
        .job = job,
        .rank = (uint16_t)rank,
        .worker_max = (uint16_t)o->worker_max,
        .options_hash = gw_thc_options_hash(thc),
        .lane_bits = (uint8_t)o->lane_bits,
        .block_log2 = (uint8_t)o->block_log2,
        .patterns_per_block = 1,
        .table = o->table,
        .len_max = LEN_MAX,
    };
}

/* The answer to a message. */
static gw_thc_message tell(thc_serve *serve, sent *last, const thc_peer *from, const gw_thc_message *m)
{
    uint8_t bytes[GW_THC_JOIN_SIZE];
    gw_thc_message answer;
    const int before = last->count;
    memset(&answer, 0, sizeof answer);
    gw_thc_message_write(bytes, m);
    thc_serve_receive(serve, from, bytes, gw_thc_message_size(m->type), 1.0);
    if (last->count > before) {
        assert_true(last->size <= gw_thc_message_size(m->type)); /* nothing to amplify */
        assert_int_equal(gw_thc_message_parse(last->bytes, last->size, &answer), GW_OK);
    }
    return answer;
}

/* Joins with the cookie that the server asks for. */
static gw_thc_message join(thc_serve *serve, sent *last, const thc_peer *from, gw_thc_message m)
{
    gw_thc_message answer = tell(serve, last, from, &m);
    assert_int_equal(answer.type, GW_THC_MESSAGE_CHALLENGE);
    m.cookie = answer.cookie;
    return tell(serve, last, from, &m);
}

static void test_who_may_join(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 3 << 20, 1472, 0, 0, 3600, 1000};
    gw_thc_options options = default_options(4, 2, 0);
    const thc_peer a = peer_of(0, 1), b = peer_of(1, 1), c = peer_of(2, 1);
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    const gw_thc thc = make_thc(&options);
    gw_thc_message m = join_of(&thc, 5, 0), answer;

    answer = join(serve, &last, &a, m);
    assert_int_equal(answer.type, GW_THC_MESSAGE_WELCOME);
    assert_int_equal(answer.reason, 1);
    const uint64_t epoch = answer.epoch;
    m.cookie = tell(serve, &last, &b, &m).cookie; /* another address needs another cookie */
    answer = tell(serve, &last, &a, &m);
    assert_int_equal(answer.type, GW_THC_MESSAGE_CHALLENGE);
    answer = tell(serve, &last, &b, &m);
    assert_int_equal(answer.reason, GW_THC_REFUSAL_RANK);
    m.epoch = epoch; /* the worker itself, by a new socket */
    answer = tell(serve, &last, &b, &m);
    assert_int_equal(answer.type, GW_THC_MESSAGE_WELCOME);

    m = join_of(&thc, 5, 1);
    m.len_max++;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_DIFFERENT);
    m = join_of(&thc, 5, 1);
    m.table.value[3]++;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_DIFFERENT);
    m = join_of(&thc, 6, 1);
    m.len_max = 1 << 30;
    answer = join(serve, &last, &c, m);
    assert_int_equal(answer.reason, GW_THC_REFUSAL_MEMORY);
    assert_int_equal(answer.detail, 3);
    m.len_max = UINT64_MAX;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_MEMORY);
    m = join_of(&thc, 6, 1);
    m.worker_max = 9;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_WORKERS);
    m = join_of(&thc, 6, 1);
    m.table.value[0] = 1;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_OPTIONS);
    m = join_of(&thc, 6, 1);
    m.lane_bits = 12;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_OPTIONS);
    m = join_of(&thc, 6, 1);
    m.block_log2 = 14;
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_OPTIONS);
    m = join_of(&thc, 6, 1);
    assert_int_equal(join(serve, &last, &c, m).type, GW_THC_MESSAGE_WELCOME);
    m = join_of(&thc, 7, 1);
    assert_int_equal(join(serve, &last, &c, m).reason, GW_THC_REFUSAL_JOBS);

    m = join_of(&thc, 5, 1); /* the last of job 5: both are told */
    const int before = last.count;
    answer = join(serve, &last, &a, m);
    assert_int_equal(answer.type, GW_THC_MESSAGE_WELCOME);
    assert_int_equal(answer.reason, 2);
    assert_int_equal(last.count - before, 3);
    thc_serve_free(serve);
}

static void test_replies_to_strangers_are_limited(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 1 << 20, 1472, 0, 0, 3600, 10};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const gw_thc_message m = join_of(&thc, 5, 0);
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    for (int i = 0; i < 100; i++) {
        const thc_peer from = peer_of(i % 100, (unsigned)i);
        (void)tell(serve, &last, &from, &m);
    }
    assert_int_equal(last.count, 10);
    assert_int_equal(serve->counts.limited, 90);
    for (int i = 0; i < 100; i++) { /* refusals count, too, for themselves */
        const thc_peer from = {.connection = (uint64_t)i + 1, .size = 1, .host = (uint64_t)i + 1};
        gw_thc_message wrong = m;
        wrong.worker_max = 9;
        (void)tell(serve, &last, &from, &wrong);
    }
    assert_int_equal(last.count, 20);
    thc_serve_free(serve);
}

/* JOINs of one host by so many ports. */
static void flood(thc_serve *serve, const gw_thc_message *join, int host, unsigned count, double now)
{
    uint8_t bytes[GW_THC_JOIN_SIZE];
    gw_thc_message_write(bytes, join);
    for (unsigned i = 0; i < count; i++) {
        const thc_peer from = peer_of(host, i);
        thc_serve_receive(serve, &from, bytes, sizeof bytes, now);
    }
}

static void test_one_host_does_not_take_all_replies(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 1 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const gw_thc_message m = join_of(&thc, 5, 0);
    uint8_t bytes[GW_THC_JOIN_SIZE];
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    gw_thc_message_write(bytes, &m);
    for (int second = 1; second < 20; second++) {
        for (int part = 0; part < 8; part++) {
            const double now = second + part / 8.0;
            flood(serve, &m, 0, 2000, now);
            for (int k = 0; k < 8; k++) { /* each second eight workers of another host */
                const thc_peer from = peer_of(1 + part, 7u + (unsigned)k);
                const int before = last.count;
                thc_serve_receive(serve, &from, bytes, sizeof bytes, now);
                assert_int_equal(last.count, before + 1);
            }
        }
    }
    assert_true(last.count <= 20 * 1000 && serve->counts.limited > 250000);
    thc_serve_free(serve);
}

/* Those that prove nothing, from many hosts, leave no cookies to others. Who has one already is told why it
 * may not take part. */
static void test_a_refusal_does_not_wait_for_strangers(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 1 << 20, 1472, 0, 0, 3600, 100};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = peer_of(0, 1), b = peer_of(1, 1);
    gw_thc_message m = join_of(&thc, 5, 0);
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    assert_int_equal(join(serve, &last, &a, m).type, GW_THC_MESSAGE_WELCOME);
    m.cookie = tell(serve, &last, &b, &m).cookie;
    for (int host = 2; host < 200; host++) {
        flood(serve, &m, host, 20, 1.0);
    }
    const int before = last.count;
    flood(serve, &m, 201, 1, 1.0);
    assert_int_equal(last.count, before);
    assert_int_equal(tell(serve, &last, &b, &m).reason, GW_THC_REFUSAL_RANK);
    thc_serve_free(serve);
}

/* Changes each byte of each kind of packet in several ways. What is accepted must be within what a worker may
 * do. */
static void test_malformed_packets(void **state)
{
    static sent last;
    static const uint8_t flips[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 1 << 20, 400, 0, 0, 3600, 1e9};
    gw_thc_options options = default_options(4, 2, 0);
    options.block_log2 = LOG2;
    options.job = 5;
    const gw_thc thc = make_thc(&options);
    const thc_peer a = peer_of(0, 1), b = peer_of(1, 1);
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    assert_int_equal(join(serve, &last, &a, join_of(&thc, 5, 0)).type, GW_THC_MESSAGE_WELCOME);
    assert_int_equal(join(serve, &last, &b, join_of(&thc, 5, 1)).type, GW_THC_MESSAGE_WELCOME);
    for (unsigned type = 0; type < 9; type++) {
        const int is_norms = type == GW_THC_PACKET_NORMS || type == GW_THC_PACKET_MAXIMA;
        const int is_lanes = type == GW_THC_PACKET_LANES || type == GW_THC_PACKET_RESULT;
        const gw_thc_packet_header h = {
            .type = (uint8_t)type,
            .bits = 4,
            .granularity = options.table.granularity,
            .lane_bits = (uint8_t)(is_norms   ? 32
                                   : is_lanes ? 8
                                              : 0),
            .block_log2 = LOG2,
            .worker_max = 2,
            .job = 5,
            .round = 0,
            .block_count = 1,
            .len = is_norms ? 1 : 64,
            .options_hash = gw_thc_options_hash(&thc),
            .norms_hash = is_norms ? 0 : 1,
        };
        uint8_t packet[512];
        memset(packet, 0, sizeof packet);
        gw_thc_packet_write(packet, &h);
        const size_t size = type == GW_THC_PACKET_ASK ? GW_THC_PACKET_HEADER_SIZE
                                                      : gw_thc_packet_size(type, 4, h.lane_bits, 2, h.len);
        for (size_t cut = 0; cut < size; cut++) {
            const uint64_t added = serve->counts.added, asked = serve->counts.asked;
            uint8_t *exact = take(cut + 1); /* so that a sanitizer sees what is read behind it */
            memcpy(exact, packet, cut);
            thc_serve_receive(serve, &a, exact, cut, 2.0);
            assert_true(serve->counts.added == added && serve->counts.asked == asked);
            free(exact);
        }
        for (size_t at = 0; at < size; at++) {
            for (size_t f = 0; f < sizeof flips; f++) {
                const uint64_t added = serve->counts.added;
                const int before = last.count;
                packet[at] ^= flips[f];
                thc_serve_receive(serve, &a, packet, size, 2.0);
                packet[at] ^= flips[f];
                const int may_be_good = (at >= 16 && at < 24) || at >= 40 || at == 5;
                assert_true(may_be_good || serve->counts.added == added);
                assert_true(last.count <= before + 2);
                assert_true(last.count == before || last.size <= size ||
                            last.bytes[5] == GW_THC_PACKET_RESULT || last.bytes[5] == GW_THC_PACKET_MAXIMA);
            }
        }
    }
    assert_true(serve->counts.refused[GW_ERR_SHORT] > 0 && serve->counts.refused[GW_ERR_MAGIC] > 0 &&
                serve->counts.refused[GW_ERR_VERSION] > 0 && serve->counts.refused[GW_ERR_UNSUPPORTED] > 0 &&
                serve->counts.refused[GW_ERR_HEADER] > 0 && serve->counts.refused[GW_ERR_MISMATCH] > 0 &&
                serve->counts.refused[GW_ERR_ROUND] > 0 && serve->counts.refused[GW_ERR_LIMIT] > 0 &&
                serve->counts.unknown > 0);
    thc_serve_free(serve);
}

/* The same for messages: parsing alone decides, and a damaged one reads as nothing. */
static void test_malformed_messages(void **state)
{
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    (void)state;
    for (unsigned type = 0; type < 9; type++) {
        gw_thc_message m = join_of(&thc, 5, 1), back;
        uint8_t bytes[GW_THC_JOIN_SIZE + 1] = {0};
        m.type = (uint8_t)type;
        const size_t size = gw_thc_message_size(type);
        assert_int_equal(size == 0, type < GW_THC_MESSAGE_JOIN || type > GW_THC_MESSAGE_LEAVE);
        if (size == 0) {
            continue;
        }
        gw_thc_message_write(bytes, &m);
        assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_OK);
        assert_int_equal(back.rank, 1);
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(gw_thc_message_parse(bytes, cut, &back), GW_ERR_SHORT);
        }
        assert_int_equal(gw_thc_message_parse(bytes, size + 1, &back), GW_ERR_TRAILING);
        bytes[0] ^= 1;
        assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_ERR_MAGIC);
        bytes[0] ^= 1;
        bytes[4] = 1;
        assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_ERR_VERSION);
        bytes[4] = 0;
        bytes[5] = 99;
        assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_ERR_UNSUPPORTED);
        bytes[5] = (uint8_t)type;
        bytes[12] = 2;
        assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_ERR_DUP);
        bytes[12] = 1;
        bytes[14] = 0;
        assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_ERR_HEADER);
        bytes[14] = 2;
        for (size_t at = 52; at < size; at++) {
            if (at < 56 || at >= 84) {
                bytes[at] ^= 0x80;
                assert_int_equal(gw_thc_message_parse(bytes, size, &back), GW_ERR_HEADER);
                bytes[at] ^= 0x80;
            }
        }
    }
}

static void test_idle_jobs_are_forgotten(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {1, 8, 1 << 20, 1472, 0, 0, 10, 1000};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = peer_of(0, 1);
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    const gw_thc_message welcome = join(serve, &last, &a, join_of(&thc, 5, 0));
    thc_serve_tick(serve, 10.5);
    assert_non_null(thc_serve_job(serve, 5));
    thc_serve_tick(serve, 11.5);
    assert_null(thc_serve_job(serve, 5));
    assert_int_equal(serve->memory_size, 0);
    assert_int_equal(serve->counts.forgotten, 1);
    assert_true(join(serve, &last, &a, join_of(&thc, 5, 0)).epoch != welcome.epoch);
    gw_thc_message leave = join_of(&thc, 5, 0);
    leave.type = GW_THC_MESSAGE_LEAVE;
    (void)tell(serve, &last, &a, &leave); /* of another epoch */
    assert_non_null(thc_serve_job(serve, 5));
    leave.epoch = thc_serve_job(serve, 5)->epoch;
    (void)tell(serve, &last, &a, &leave);
    assert_null(thc_serve_job(serve, 5));
    thc_serve_free(serve);
}

static gw_thc_message leave_of(const gw_thc *thc, uint32_t job, uint32_t rank, uint64_t epoch)
{
    gw_thc_message m = join_of(thc, job, rank);
    m.type = GW_THC_MESSAGE_LEAVE;
    m.epoch = epoch;
    return m;
}

static thc_peer stream_of(uint64_t connection)
{
    thc_peer peer;
    memset(&peer, 0, sizeof peer);
    peer.connection = connection;
    peer.size = 1;
    return peer;
}

/* Who goes before the job begins gives its rank back; a connection that has ended does not, once it has. */
static void test_who_may_have_a_rank_again(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 3 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = stream_of(1), b = stream_of(2), c = stream_of(3), d = stream_of(4);
    gw_thc_message m = join_of(&thc, 5, 0), other = join_of(&thc, 5, 1), leave;
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    assert_int_equal(tell(serve, &last, &a, &m).type, GW_THC_MESSAGE_WELCOME);
    thc_serve_ended(serve, &a);
    assert_null(thc_serve_job(serve, 5));                   /* a job of nobody takes no place */
    assert_int_equal(tell(serve, &last, &b, &m).reason, 1); /* workers that have joined */
    const uint64_t epoch = thc_serve_job(serve, 5)->epoch;
    assert_int_equal(tell(serve, &last, &c, &other).reason, 2);
    thc_serve_ended(serve, &c);
    assert_int_equal(tell(serve, &last, &d, &other).reason, GW_THC_REFUSAL_RANK); /* without the epoch */
    other.epoch = epoch;
    assert_int_equal(tell(serve, &last, &d, &other).type, GW_THC_MESSAGE_WELCOME);
    assert_true(thc_serve_takes_part(serve, &d) && !thc_serve_takes_part(serve, &c));

    leave = leave_of(&thc, 5, 1, epoch); /* and comes back: the job is still its */
    (void)tell(serve, &last, &d, &leave);
    assert_int_equal(tell(serve, &last, &d, &other).type, GW_THC_MESSAGE_WELCOME);
    leave = leave_of(&thc, 5, 0, epoch);
    (void)tell(serve, &last, &b, &leave);
    assert_non_null(thc_serve_job(serve, 5));
    leave = leave_of(&thc, 5, 1, epoch);
    (void)tell(serve, &last, &d, &leave);
    assert_null(thc_serve_job(serve, 5));

    m = join_of(&thc, 6, 0); /* a job of one that leaves before it begins is gone at once */
    const uint64_t second = tell(serve, &last, &a, &m).epoch;
    leave = leave_of(&thc, 6, 0, second);
    (void)tell(serve, &last, &a, &leave);
    assert_null(thc_serve_job(serve, 6));
    thc_serve_free(serve);
}

/* A job that has failed as it began is gone once all have left it, also those who never were welcome. */
static void test_a_failed_job_is_left(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 3 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const gw_thc_session_options given = {&thc, 1, LEN_MAX, 1};
    const uint32_t patterns[BLOCKS_MAX] = {0};
    const thc_peer a = stream_of(1), b = stream_of(2);
    gw_thc_message m = join_of(&thc, 0, 0);
    size_t size;
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    m.round = 100;
    const uint64_t epoch = tell(serve, &last, &a, &m).epoch;
    gw_thc_session *session = gw_thc_session_create(&given);
    assert_int_equal(gw_thc_session_norms(session, 3, 100, patterns), GW_OK);
    assert_null(gw_thc_session_leave(session, &size));
    const uint8_t *packet = gw_thc_session_output(session, 1.0, &size);
    thc_serve_receive(serve, &b, packet, size, 1.0);
    assert_int_equal(gw_thc_session_input(session, last.bytes, last.size, 1.0), GW_OK);
    assert_int_equal(gw_thc_session_fault(session), GW_THC_FAULT_REFUSED);
    packet = gw_thc_session_leave(session, &size);
    assert_non_null(packet);
    thc_serve_receive(serve, &b, packet, size, 1.0);
    assert_non_null(thc_serve_job(serve, 0));
    m = leave_of(&thc, 0, 0, epoch);
    (void)tell(serve, &last, &a, &m);
    assert_null(thc_serve_job(serve, 0));
    gw_thc_session_free(session);
    thc_serve_free(serve);
}

/* A rank that is taken may be by a connection of this worker that the server does not know to be broken. */
static void test_a_rank_that_is_taken_may_become_free(void **state)
{
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const gw_thc_session_options given = {&thc, 1, LEN_MAX, 1};
    const uint32_t patterns[BLOCKS_MAX] = {0};
    gw_thc_message m = join_of(&thc, 0, 1);
    uint8_t bytes[GW_THC_MESSAGE_SIZE];
    size_t size;
    (void)state;
    m.type = GW_THC_MESSAGE_REFUSED;
    m.reason = GW_THC_REFUSAL_RANK;
    gw_thc_message_write(bytes, &m);
    gw_thc_session *session = gw_thc_session_create(&given);
    assert_int_equal(gw_thc_session_norms(session, 0, 100, patterns), GW_OK);
    for (int second = 10; second < 25; second += 2) {
        assert_non_null(gw_thc_session_output(session, second, &size));
        assert_int_equal(size, GW_THC_JOIN_SIZE);
        assert_int_equal(gw_thc_session_input(session, bytes, sizeof bytes, second), GW_OK);
        assert_int_equal(gw_thc_session_fault(session), GW_THC_FAULT_NONE);
    }
    assert_int_equal(gw_thc_session_input(session, bytes, sizeof bytes, 25), GW_OK);
    assert_int_equal(gw_thc_session_fault(session), GW_THC_FAULT_REFUSED);
    gw_thc_session_free(session);
}

/* At most all of the memory every 8 s: a stranger that makes jobs and leaves them does not stop the others.
 */
static void test_jobs_are_not_made_too_fast(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {2, 8, 1 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = stream_of(1);
    gw_thc_message m = join_of(&thc, 5, 0);
    (void)state;
    last.count = 0;
    m.len_max = 300000; /* more than half of the memory */
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    gw_thc_message leave = leave_of(&thc, 5, 0, tell(serve, &last, &a, &m).epoch);
    assert_true(serve->memory_size > 1 << 19);
    (void)tell(serve, &last, &a, &leave);
    assert_int_equal(serve->memory_size, 0);
    const int before = last.count;
    (void)tell(serve, &last, &a, &m);
    assert_true(last.count == before && serve->counts.jobs == 1 && serve->counts.limited == 1);
    uint8_t bytes[GW_THC_JOIN_SIZE];
    gw_thc_message_write(bytes, &m);
    thc_serve_receive(serve, &a, bytes, sizeof bytes, 9.0);
    assert_int_equal(serve->counts.jobs, 2);
    assert_int_equal(last.bytes[5], GW_THC_MESSAGE_WELCOME);
    thc_serve_free(serve);
}

/* A cookie of long ago is none, and jobs that nobody waits for make room. */
static void test_what_is_old(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {1, 8, 3 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = peer_of(0, 1), b = stream_of(1), c = stream_of(2);
    gw_thc_message m = join_of(&thc, 5, 0);
    uint8_t bytes[GW_THC_JOIN_SIZE];
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    m.cookie = tell(serve, &last, &a, &m).cookie;
    gw_thc_message_write(bytes, &m);
    thc_serve_receive(serve, &a, bytes, sizeof bytes, 119.0);
    assert_int_equal(last.bytes[5], GW_THC_MESSAGE_WELCOME);
    thc_serve_receive(serve, &a, bytes, sizeof bytes, 121.0);
    assert_int_equal(last.bytes[5], GW_THC_MESSAGE_CHALLENGE);
    thc_serve_tick(serve, 178.0);
    assert_int_equal(serve->counts.forgotten, 0);
    thc_serve_tick(serve, 180.0); /* it never began */
    assert_int_equal(serve->counts.forgotten, 1);

    for (uint32_t rank = 0; rank < 2; rank++) {
        m = join_of(&thc, 6, rank);
        gw_thc_message_write(bytes, &m);
        thc_serve_receive(serve, rank == 0 ? &b : &c, bytes, sizeof bytes, 200.0);
    }
    m = join_of(&thc, 7, 0);
    gw_thc_message_write(bytes, &m);
    const thc_peer d = stream_of(3);
    thc_serve_receive(serve, &d, bytes, sizeof bytes, 250.0);
    assert_int_equal(last.bytes[5], GW_THC_MESSAGE_REFUSED); /* the limit of jobs */
    thc_serve_tick(serve, 300.0);
    assert_non_null(thc_serve_job(serve, 6)); /* both are connected, and may be busy otherwise */
    thc_serve_receive(serve, &d, bytes, sizeof bytes, 300.0);
    assert_int_equal(last.bytes[5], GW_THC_MESSAGE_WELCOME); /* but somebody else needs the place */
    assert_null(thc_serve_job(serve, 6));
    assert_non_null(thc_serve_job(serve, 7));
    thc_serve_free(serve);
}

/* A LEAVE is a datagram that may be lost. A job that somebody has left ends no round that lacks its values:
 * if all are silent for longer than a worker waits to ask again, nobody needs it. */
static void test_a_leave_that_is_lost(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = peer_of(0, 1), b = peer_of(1, 1), d = stream_of(3);
    uint8_t bytes[GW_THC_JOIN_SIZE];
    (void)state;
    for (uint32_t quorum = 0; quorum < 2; quorum++) {
        const thc_serve_limits limits = {1, 8, 3 << 20, 1472, quorum, 0, 3600, 1000};
        last.count = 0;
        thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
        const uint64_t epoch = join(serve, &last, &a, join_of(&thc, 5, 0)).epoch;
        (void)join(serve, &last, &b, join_of(&thc, 5, 1));
        gw_thc_message m = leave_of(&thc, 5, 0, epoch);
        (void)tell(serve, &last, &a, &m); /* at 1 s */
        m = join_of(&thc, 6, 0);
        gw_thc_message_write(bytes, &m);
        thc_serve_receive(serve, &d, bytes, sizeof bytes, 10.5); /* b may still ask for its last results */
        assert_int_equal(last.bytes[5], GW_THC_MESSAGE_REFUSED);
        thc_serve_tick(serve, 30.0);
        assert_non_null(thc_serve_job(serve, 5)); /* nobody needs its place */
        thc_serve_receive(serve, &d, bytes, sizeof bytes, 30.0);
        /* With a quorum the others go on without who has left, and may be busy. */
        assert_int_equal(last.bytes[5], quorum ? GW_THC_MESSAGE_REFUSED : GW_THC_MESSAGE_WELCOME);
        thc_serve_receive(serve, &d, bytes, sizeof bytes, 61.5);
        assert_int_equal(last.bytes[5], GW_THC_MESSAGE_WELCOME);
        assert_true(thc_serve_job(serve, 5) == NULL && thc_serve_job(serve, 6) != NULL);
        thc_serve_free(serve);
    }
}

/* A job makes room for one that can be made only. */
static void test_a_job_that_cannot_be_takes_no_place(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {1, 8, 3 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 1, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = stream_of(1), b = stream_of(2);
    uint8_t bytes[GW_THC_JOIN_SIZE];
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    gw_thc_message m = join_of(&thc, 5, 0);
    (void)tell(serve, &last, &a, &m);
    m.job = 6;
    m.len_max = 1 << 30;
    gw_thc_message_write(bytes, &m);
    thc_serve_receive(serve, &b, bytes, sizeof bytes, 100.0);
    assert_int_equal(gw_thc_get16(last.bytes + 6), GW_THC_REFUSAL_MEMORY);
    assert_non_null(thc_serve_job(serve, 5));
    thc_serve_free(serve);
}

/* One that fits the server, but not beside a job that is not idle. */
static void test_a_job_that_has_no_room_ends_none(void **state)
{
    static sent last;
    const uint64_t secret[2] = {1, 2};
    const thc_serve_limits limits = {4, 8, 3 << 20, 1472, 0, 0, 3600, 1000};
    const gw_thc_options options = default_options(4, 1, 0);
    const gw_thc thc = make_thc(&options);
    const thc_peer a = stream_of(1), b = stream_of(2), c = stream_of(3);
    uint8_t bytes[GW_THC_JOIN_SIZE];
    (void)state;
    last.count = 0;
    thc_serve *serve = thc_serve_create(&limits, secret, keep, &last);
    gw_thc_message m = join_of(&thc, 5, 0);
    (void)tell(serve, &last, &a, &m); /* idle from then on */
    m.job = 6;
    m.len_max = 1 << 20; /* 2 MB and more: one of two has room */
    gw_thc_message_write(bytes, &m);
    thc_serve_receive(serve, &b, bytes, sizeof bytes, 100.0); /* not idle */
    assert_non_null(thc_serve_job(serve, 6));
    m.job = 7;
    gw_thc_message_write(bytes, &m);
    thc_serve_receive(serve, &c, bytes, sizeof bytes, 100.0);
    assert_int_equal(gw_thc_get16(last.bytes + 6), GW_THC_REFUSAL_MEMORY);
    assert_non_null(thc_serve_job(serve, 5));
    assert_non_null(thc_serve_job(serve, 6));
    thc_serve_free(serve);
}

static void test_a_session_refuses_what_is_out_of_order(void **state)
{
    gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    gw_thc_session_options given = {&thc, 2, 100, 0};
    const uint32_t patterns[1] = {0};
    uint32_t maxima[1], members[1];
    uint8_t out[1];
    gw_buffer lanes = {.data = NULL, .capacity = 0};
    (void)state;
    assert_null(gw_thc_session_create(&given));
    given.rank = 1;
    given.len_max = 0;
    assert_null(gw_thc_session_create(&given));
    given.len_max = 100;
    gw_thc_session *session = gw_thc_session_create(&given);
    assert_non_null(session);
    assert_int_equal(gw_thc_session_indices(session, out, 1), GW_ERR_STATE);
    assert_int_equal(gw_thc_session_norms(session, 0, 101, patterns), GW_ERR_LIMIT);
    assert_int_equal(gw_thc_session_norms(session, 0, 0, patterns), GW_ERR_LIMIT);
    assert_int_equal(gw_thc_session_norms(session, 0, 100, patterns), GW_OK);
    assert_int_equal(gw_thc_session_norms(session, 1, 100, patterns), GW_ERR_STATE);
    assert_int_equal(gw_thc_session_maxima(session, maxima, out), GW_ERR_STATE);
    assert_int_equal(gw_thc_session_sums(session, &lanes, members, out), GW_ERR_STATE);
    assert_false(gw_thc_session_is_done(session));
    gw_thc_session_free(session);
}

/* The server has a result of a round that was: it would be taken for the one of other norms. */
static void test_a_session_does_not_go_back(void **state)
{
    const uint32_t patterns[BLOCKS_MAX] = {0};
    (void)state;
    simulation *s = simulation_new(501, 2, 3);
    simulate(s, 0, 0);
    for (int w = 0; w < 2; w++) {
        gw_thc_session *session = s->worker[w].session;
        assert_int_equal(gw_thc_session_norms(session, round_number(2), 64, patterns), GW_ERR_STATE);
        assert_int_equal(gw_thc_session_norms(session, round_number(1), 64, patterns), GW_ERR_STATE);
        assert_int_equal(gw_thc_session_norms(session, round_number(2) + 0x80000000u, 64, patterns),
                         GW_ERR_STATE);
        assert_int_equal(gw_thc_session_fault(session), GW_THC_FAULT_NONE);
        assert_int_equal(gw_thc_session_norms(session, round_number(3), 64, patterns), GW_OK);
    }
    simulation_free(s);
}

/* What a server says about packets is not trusted: none may be larger than a worker's memory for one. */
static void test_a_server_that_wants_impossible_packets(void **state)
{
    static const struct {
        uint32_t sums, norms;
        gw_status status;
    } cases[] = {
        {0, 0, GW_ERR_HEADER},    {0, 4, GW_ERR_HEADER},    {4, 0, GW_ERR_HEADER}, {4, 6, GW_ERR_HEADER},
        {128, 128, GW_ERR_LIMIT}, {1, 65535, GW_ERR_LIMIT}, {127, 127, GW_OK},     {1, 16000, GW_OK},
    };
    gw_thc_options options = default_options(4, 2, 0);
    const gw_thc thc = make_thc(&options);
    const gw_thc_session_options given = {&thc, 0, 1 << 20, 0};
    static uint32_t patterns[1024];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_thc_session *session = gw_thc_session_create(&given);
        uint8_t bytes[GW_THC_MESSAGE_SIZE];
        gw_thc_message m = join_of(&thc, 0, 0);
        size_t size;
        m.type = GW_THC_MESSAGE_WELCOME;
        m.reason = 2;
        m.epoch = 7;
        m.detail = cases[i].sums | cases[i].norms << 16;
        gw_thc_message_write(bytes, &m);
        assert_int_equal(gw_thc_session_norms(session, 0, 1 << 20, patterns), GW_OK);
        assert_int_equal(gw_thc_session_input(session, bytes, sizeof bytes, 0), cases[i].status);
        const uint8_t *packet = gw_thc_session_output(session, 0, &size);
        assert_non_null(packet);
        assert_int_equal(packet[5] == GW_THC_PACKET_NORMS && packet[2] == 'p', cases[i].status == GW_OK);
        gw_thc_session_free(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_network_that_loses_repeats_and_delays),
        cmocka_unit_test(test_a_narrow_queue),
        cmocka_unit_test(test_a_server_that_is_started_anew),
        cmocka_unit_test(test_a_quorum_does_not_wait_for_a_late_worker),
        cmocka_unit_test(test_a_sum_is_closed_after_a_time),
        cmocka_unit_test(test_a_new_server_after_partial_results),
        cmocka_unit_test(test_who_may_join),
        cmocka_unit_test(test_replies_to_strangers_are_limited),
        cmocka_unit_test(test_malformed_packets),
        cmocka_unit_test(test_malformed_messages),
        cmocka_unit_test(test_idle_jobs_are_forgotten),
        cmocka_unit_test(test_a_session_refuses_what_is_out_of_order),
        cmocka_unit_test(test_a_session_does_not_go_back),
        cmocka_unit_test(test_who_may_have_a_rank_again),
        cmocka_unit_test(test_a_failed_job_is_left),
        cmocka_unit_test(test_a_rank_that_is_taken_may_become_free),
        cmocka_unit_test(test_jobs_are_not_made_too_fast),
        cmocka_unit_test(test_what_is_old),
        cmocka_unit_test(test_one_host_does_not_take_all_replies),
        cmocka_unit_test(test_a_refusal_does_not_wait_for_strangers),
        cmocka_unit_test(test_a_leave_that_is_lost),
        cmocka_unit_test(test_a_job_that_cannot_be_takes_no_place),
        cmocka_unit_test(test_a_job_that_has_no_room_ends_none),
        cmocka_unit_test(test_a_server_that_wants_impossible_packets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
