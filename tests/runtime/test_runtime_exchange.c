/*
 * Exchanges of the runtime, all ranks in one process, against the calls of collective.h one after the other:
 * results to the bit, whatever the transport does, and failures that all ranks learn.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_group.h"

#include <math.h>

static const group_setup plain = {.ranks = 3, .threads = 2, .len = 30000, .has_maps = 1, .seed = 1};

static void run_case(const group_setup *setup, int rounds)
{
    group g;
    group_make(&g, setup);
    if (setup->has_maps) {
        group_build_maps(&g);
    }
    for (int i = 0; i < rounds; i++) {
        float *expected = group_reference(&g);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        group_check(&g, expected);
        free(expected);
        for (uint32_t r = 0; r < setup->ranks; r++) {
            assert_int_equal(atomic_load(&g.rank[r].blocks), 0);
            gw_exchange_stats stats;
            gw_exchange_stats_get(g.rank[r].exchange, &stats);
            assert_int_equal(stats.sent_size, g.rank[r].sent_size);
            assert_int_equal(stats.received_size, g.rank[r].received_size);
        }
    }
    group_free(&g);
}

/* Every number of ranks and threads, with all else by chance. */
static void check_results(uint32_t algorithm)
{
    static const uint32_t ranks[] = {1, 2, 3, 5, 8, 17}, threads[] = {0, 1, 4};
    test_random random = {3};
    for (size_t i = 0; i < 6; i++) {
        for (size_t k = 0; k < 12; k++) {
            group_setup setup = {
                .ranks = ranks[i], .threads = threads[k % 3], .algorithm = algorithm, .seed = 100 * i + k};
            setup.len = k < 9 ? 30000 : 1000; /* the shards of some ranks are empty */
            setup.has_buffers = (int)(k / 3 % 2);
            setup.has_helpers = test_random_below(&random, 3) == 0;
            setup.has_maps = (int)test_random_below(&random, 2);
            setup.contribution_bits = test_random_below(&random, 2);
            setup.flags = test_random_below(&random, 2) ? GW_EXCHANGE_FALLBACK : 0;
            setup.place = test_random_below(&random, 2) ? PLACE_APART : PLACE_SAME;
            if (test_random_below(&random, 2)) {
                setup.flags |= GW_EXCHANGE_SCATTER;
                setup.shard_len = test_random_below(&random, 2) ? (setup.len + ranks[i] - 1) / ranks[i] : 0;
                setup.place = setup.shard_len && k % 2 ? PLACE_FRONT : setup.place;
            }
            setup.is_explicit = algorithm == GW_EXCHANGE_RING && test_random_below(&random, 4) == 0;
            run_case(&setup, 2);
        }
    }
}

static void test_results(void **state)
{
    (void)state;
    check_results(GW_EXCHANGE_A2A);
}

static void test_ring(void **state)
{
    (void)state;
    check_results(GW_EXCHANGE_RING);
}

/* Sums of an MPI-like reduce-scatter in place wait until nothing reads the values any more. */
static void test_scatter_in_front(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        group_setup setup = {.ranks = 4,
                             .threads = i / 2,
                             .algorithm = i % 2,
                             .len = 40000,
                             .shard_len = 10000,
                             .flags = GW_EXCHANGE_SCATTER,
                             .place = PLACE_FRONT,
                             .has_buffers = 1,
                             .seed = i};
        run_case(&setup, 1);
    }
}

/* ------------ samples ------------ */

/* Squares of the values that a rank contributes to other ranks' pieces; in a ring to the left one's. */
static double others_square(const group *g, uint32_t rank)
{
    const uint32_t left = (rank + g->setup.ranks - 1) % g->setup.ranks;
    double square = 0;
    for (uint32_t i = 0; i < g->layout.piece_count; i++) {
        gw_collective_piece piece;
        assert_int_equal(gw_collective_piece_at(&g->layout, i, &piece), GW_OK);
        int counts = g->setup.algorithm == GW_EXCHANGE_RING ? piece.owner == left : piece.owner != rank;
        for (uint64_t k = 0; counts && k < piece.len; k++) {
            double value = (double)g->rank[rank].values[piece.first + k];
            square += value * value;
        }
    }
    return square;
}

static void test_samples(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t bits = i / 2;
        group_setup setup = plain;
        setup.algorithm = i % 2;
        setup.has_maps = bits < 2;
        setup.contribution_bits = bits;
        setup.flags = GW_EXCHANGE_SAMPLE;
        group g;
        group_make(&g, &setup);
        if (setup.has_maps) {
            group_build_maps(&g);
        }
        group_start(&g);
        assert_true(group_pump(&g, 0));
        for (uint32_t r = 0; r < setup.ranks; r++) {
            gw_exchange_stats stats;
            gw_exchange_stats_get(g.rank[r].exchange, &stats);
            double square = others_square(&g, r);
            assert_int_equal(stats.operations, 1);
            assert_true(stats.sent_size > 0 && stats.received_size > 0);
            assert_true(fabs(stats.sample_square - square) <= 1e-12 * square);
            assert_true(stats.sample_error > 0 && stats.sample_error < stats.sample_square);
        }
        group_free(&g);
    }
}

/* ------------ steps of the caller's ------------ */

static void test_steps(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 24; i++) {
        group_setup setup = {
            .ranks = (uint32_t)(1 + i % 6), .threads = i % 2 ? 3 : 0, .len = 30000, .seed = i};
        setup.has_buffers = setup.has_steps = 1;
        setup.flags = i / 6 % 2 ? GW_EXCHANGE_SCATTER : GW_EXCHANGE_SAMPLE;
        setup.shard_len = i / 12 ? (setup.len + setup.ranks - 1) / setup.ranks : 0;
        setup.place = setup.flags == GW_EXCHANGE_SCATTER && i / 12 ? PLACE_FRONT : PLACE_APART;
        run_case(&setup, 2);
    }
}

/* A step that fails says why: on all ranks, unless it is the last one. */
static void test_steps_fail(void **state)
{
    (void)state;
    for (uint32_t kind = GW_EXCHANGE_ENCODE; kind <= GW_EXCHANGE_DECODE; kind++) {
        group_setup setup = {.ranks = 3, .threads = 2, .len = 30000, .has_buffers = 1, .has_steps = 1};
        setup.flags = kind == GW_EXCHANGE_SUM ? GW_EXCHANGE_SCATTER : 0;
        setup.failing_rank_1 = 2;
        setup.failing_kind = kind;
        setup.failing_piece = kind == GW_EXCHANGE_ENCODE ? 0 : 3; /* the first of rank 0, of rank 1 */
        group g;
        group_make(&g, &setup);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        for (uint32_t r = 0; r < setup.ranks; r++) {
            int knows = kind == GW_EXCHANGE_ENCODE || kind == GW_EXCHANGE_REDUCE || r == 1;
            gw_collective_failure failure;
            gw_collective_word_read(g.rank[r].word, &failure);
            assert_int_equal(failure.status, knows ? GW_ERR_NONFINITE : GW_OK);
            assert_true(!knows || (failure.rank == 1 && failure.piece == setup.failing_piece));
        }
        group_free(&g);
    }
}

/* ------------ failures ------------ */

/* A damaged contribution: the owner notifies all. A damaged result: its receivers detect it. */
static void test_damage(void **state)
{
    (void)state;
    for (uint32_t kind = GW_RUNTIME_SEND; kind <= GW_RUNTIME_SHARE; kind++) {
        group_setup setup = plain;
        setup.has_buffers = kind == GW_RUNTIME_SEND;
        setup.damage_kind = kind;
        setup.damage_piece = 3; /* the first of rank 1 */
        group g;
        group_make(&g, &setup);
        group_build_maps(&g);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        for (uint32_t r = 0; r < setup.ranks; r++) {
            int knows = kind == GW_RUNTIME_SEND || r != 1;
            gw_collective_failure failure;
            gw_collective_word_read(g.rank[r].word, &failure);
            assert_int_equal(failure.status != GW_OK, knows);
            assert_true(!knows || failure.piece == 3);
        }
        group_free(&g);
    }
}

/* A rank with another map: the sums that it should add to fail on all ranks, and the fallback needs no map.
 */
static void check_other_map(uint32_t algorithm)
{
    group_setup setup = plain;
    setup.algorithm = algorithm;
    group g;
    group_make(&g, &setup);
    group_build_maps(&g);
    group_build_other_map(&g, 1);
    group_start(&g);
    assert_true(group_pump(&g, 0));
    for (uint32_t r = 0; r < setup.ranks; r++) {
        gw_collective_failure failure;
        gw_collective_word_read(g.rank[r].word, &failure);
        assert_int_equal(failure.status, GW_ERR_MAP);
        assert_int_equal(gw_collective_word_outcome(g.rank[r].word), GW_COLLECTIVE_RETRY);
    }
    group_build_maps(&g);
    for (uint32_t i = 0; i < 2; i++) {
        g.setup.flags = i == 0 ? GW_EXCHANGE_FALLBACK : 0;
        float *expected = group_reference(&g);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        group_check(&g, expected);
        free(expected);
    }
    group_free(&g);
}

static void test_other_map(void **state)
{
    (void)state;
    check_other_map(GW_EXCHANGE_A2A);
    check_other_map(GW_EXCHANGE_RING);
}

/* Damage in a ring, at each hop. What is made of a damaged sum is a notice, which reaches all ranks; a
 * damaged result travels on from where it was damaged. */
static void test_ring_damage(void **state)
{
    (void)state;
    enum { RANKS = 4, OWNER = 1 };
    for (uint32_t i = 0; i < 2 * (RANKS - 1); i++) {
        const uint32_t is_sum = i % 2 == 0;
        const uint32_t hop = i / 2; /* from the rank after the owner, or the owner, on */
        group_setup setup = {
            .ranks = RANKS, .threads = i % 3, .len = 40000, .has_maps = 1, .algorithm = GW_EXCHANGE_RING};
        setup.has_buffers = i >= RANKS;
        setup.damage_kind = is_sum ? GW_RUNTIME_SEND : GW_RUNTIME_SHARE;
        setup.damage_piece = OWNER * 3;
        setup.damage_from_1 = (OWNER + hop + is_sum) % RANKS + 1;
        group g;
        group_make(&g, &setup);
        assert_int_equal(g.layout.shard_pieces, 3);
        group_build_maps(&g);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        for (uint32_t r = 0; r < RANKS; r++) {
            const int knows = is_sum || (r + RANKS - OWNER) % RANKS > hop;
            gw_collective_failure failure;
            gw_collective_word_read(g.rank[r].word, &failure);
            assert_int_equal(failure.status != GW_OK, knows);
            assert_true(!knows || failure.piece == setup.damage_piece);
            assert_true(!knows || failure.rank == (is_sum ? setup.damage_from_1 - 1 : OWNER));
        }
        group_free(&g);
    }
}

/* A finished piece of no bytes, or of too many, on its way in a ring. All ranks from there on learn it, by a
 * notice of the size that notices have (group's send()), and all buffers are released. */
static void test_ring_sizes(void **state)
{
    (void)state;
    enum { RANKS = 4, OWNER = 1 };
    for (uint32_t i = 0; i < 2 * (RANKS - 1); i++) {
        const uint32_t hop = i / 2; /* from the owner on */
        group_setup setup = {.ranks = RANKS,
                             .threads = i % 3,
                             .len = 40000,
                             .algorithm = GW_EXCHANGE_RING,
                             .has_buffers = 1,
                             .damage = i % 2 == 0 ? DAMAGE_EMPTY : DAMAGE_LONG,
                             .damage_kind = GW_RUNTIME_SHARE,
                             .damage_piece = OWNER * 3,
                             .damage_from_1 = (OWNER + hop) % RANKS + 1,
                             .seed = i};
        group g;
        group_make(&g, &setup);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        for (uint32_t r = 0; r < RANKS; r++) {
            const uint32_t way = (r + RANKS - OWNER) % RANKS; /* from the owner */
            gw_collective_failure failure;
            gw_collective_word_read(g.rank[r].word, &failure);
            assert_int_equal(failure.status != GW_OK, way > hop);
            assert_true(way <= hop + 1 || failure.status == GW_ERR_CORRUPT);
            assert_true(way <= hop || failure.piece == setup.damage_piece);
            /* Who has got it cannot read what the owner has made; the others are told who sent it. */
            assert_true(way <= hop || failure.rank == (way == hop + 1 ? OWNER : setup.damage_from_1 - 1));
            assert_int_equal(atomic_load(&g.rank[r].blocks), 0);
        }
        group_free(&g);
    }
}

/* A rank without memory for one of its messages: all ranks learn its name, and nothing is left behind. */
static void check_no_memory(uint32_t algorithm)
{
    for (uint32_t number = 1; number <= 11; number++) {
        group_setup setup = {.ranks = 4,
                             .threads = number % 3,
                             .len = 40000,
                             .has_buffers = 1,
                             .poor_rank = 2,
                             .poor_take = number, /* of 9 contributions and 3 sums */
                             .flags = number == 11 ? GW_EXCHANGE_SCATTER : 0,
                             .algorithm = algorithm,
                             .seed = number};
        setup.poor_take = number == 11 ? 1 : number;
        group g;
        group_make(&g, &setup);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        uint64_t worst = 0;
        for (uint32_t r = 0; r < setup.ranks; r++) {
            assert_true(g.rank[r].word != 0 || (setup.flags & GW_EXCHANGE_SCATTER));
            worst = g.rank[r].word > worst ? g.rank[r].word : worst;
        }
        gw_collective_failure failure;
        gw_collective_word_read(worst, &failure);
        assert_int_equal(failure.status, GW_ERR_LIMIT);
        assert_int_equal(failure.rank, 2);
        group_free(&g);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    check_no_memory(GW_EXCHANGE_A2A);
    check_no_memory(GW_EXCHANGE_RING);
}

/* The memory of everything that a stopped exchange could still touch goes away. */
static void check_stopped(group *g)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        group_stop(g, r);
    }
    assert_int_equal(g->parcel_count, 0);
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        group_rank *rank = &g->rank[r];
        gw_runtime_event event;
        gw_exchange_run run = {.values = rank->apart, .result = rank->apart};
        assert_int_equal(atomic_load(&rank->blocks), 0);
        free(rank->memory);
        free(rank->values);
        rank->memory = NULL;
        rank->values = NULL;
        assert_int_equal(gw_runtime_wait(g->runtime, &event, 1, 0), 0);
        assert_int_equal(gw_runtime_work(g->runtime, &g->workspace), 0);
        assert_int_equal(gw_exchange_start(rank->exchange, &run), GW_ERR_STATE);
        gw_exchange_stop(rank->exchange);
    }
    group_free(g);
}

/* One rank is cut off: the others wait until they are stopped. */
static void test_lost_rank(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        group_setup setup = plain;
        setup.algorithm = i / 6;
        setup.threads = i % 3;
        setup.has_buffers = i / 3 % 2 == 1;
        setup.lost_rank_1 = 1 + i % 3;
        setup.seed = i;
        group g;
        group_make(&g, &setup);
        group_build_maps(&g);
        group_start(&g);
        assert_int_equal(group_pump(&g, 0), 0);
        check_stopped(&g);
    }
}

/* A stop after any number of rounds, in operations and maps, while threads work. */
static void test_stop(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 120; i++) {
        group_setup setup = {.ranks = 5,
                             .algorithm = i / 60,
                             .threads = i % 5,
                             .has_helpers = i % 7 == 0,
                             .len = 50000,
                             .has_maps = 1,
                             .has_buffers = i % 2 == 0,
                             .flags = i % 3 == 0 ? GW_EXCHANGE_SCATTER : 0,
                             .seed = i};
        group g;
        group_make(&g, &setup);
        if (i % 6 == 5) {
            for (uint32_t r = 0; r < setup.ranks; r++) {
                assert_int_equal(gw_exchange_map_start(g.rank[r].exchange, &g.segments, 5.0f), GW_OK);
            }
        } else {
            group_build_maps(&g);
            group_start(&g);
            (void)group_pump(&g, 1 + 3 * (i % 60));
            group_stop(&g, i % 5);
            (void)group_pump(&g, i % 60);
        }
        check_stopped(&g);
    }
}

/* The same while a notice is on its way in place of a piece that a ring refused: after each round, as the
 * event of the notice waits for one round only. */
static void test_stop_refused(void **state)
{
    (void)state;
    int has_ended = 0;
    for (uint32_t rounds = 1; !has_ended; rounds++) {
        group_setup setup = {.ranks = 4,
                             .len = 8000,
                             .algorithm = GW_EXCHANGE_RING,
                             .has_buffers = 1,
                             .damage = DAMAGE_EMPTY,
                             .damage_kind = GW_RUNTIME_SHARE,
                             .damage_piece = 1,
                             .damage_from_1 = 2};
        group g;
        group_make(&g, &setup);
        assert_int_equal(g.layout.shard_pieces, 1);
        group_start(&g);
        has_ended = group_pump(&g, rounds);
        assert_true(rounds < 1000);
        check_stopped(&g);
    }
}

/* ------------ arguments ------------ */

static void release_nothing(void *context, void *data)
{
    (void)context;
    (void)data;
}

static void *take_nothing(void *context, gw_runtime_event_kind kind, size_t size)
{
    (void)context;
    (void)kind;
    (void)size;
    return NULL;
}

static void run_nothing(void *context, gw_exchange_step *step, const gw_workspace *workspace)
{
    (void)context;
    (void)step;
    (void)workspace;
}

static void test_open(void **state)
{
    (void)state;
    gw_exchange_close(NULL);
    gw_exchange_stop(NULL);
    group g;
    group_make(&g, &plain);
    gw_exchange *bad = NULL;
    gw_exchange_config config = group_config(&g, 3);
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config = group_config(&g, 0);
    assert_int_equal(gw_exchange_open(NULL, &config, &bad), GW_ERR_ARG);
    config.buffers.release = release_nothing; /* and no take */
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config = group_config(&g, 0);
    config.steps = (gw_exchange_steps){.run = run_nothing, .message_bound = 64}; /* and no buffers */
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config.buffers = (gw_exchange_buffers){.take = take_nothing, .release = release_nothing};
    config.steps.message_bound = GW_COLLECTIVE_NOTICE_SIZE - 1;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config.steps.message_bound = UINT64_MAX;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config.steps.message_bound = 64;
    config.algorithm = GW_EXCHANGE_RING; /* with steps of the caller's */
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config.algorithm = GW_EXCHANGE_A2A;
    config.codec.dtype = (gw_dtype)99;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config = group_config(&g, 0);
    config.algorithm = GW_EXCHANGE_RING + 1;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config = group_config(&g, 0);
    config.codec.tolerance_bits = 99;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_OPTION);
    config = group_config(&g, 0);
    config.segment_max = UINT64_MAX;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_LIMIT);
    assert_null(bad);
    group_free(&g);
}

static void test_start(void **state)
{
    (void)state;
    group g;
    group_make(&g, &plain);
    gw_exchange *exchange = g.rank[0].exchange;
    float *values = g.rank[0].values;
    gw_exchange_run run = {.values = values, .result = values, .scale = 1};
    uint64_t words[GW_COLLECTIVE_MAP_WORDS];
    assert_int_equal(gw_exchange_map_words(exchange, words), GW_ERR_STATE);
    assert_int_equal(gw_exchange_receive(exchange, 0, 1, NULL, 0), GW_ERR_STATE);
    g.segments.count++;
    assert_int_equal(gw_exchange_map_start(exchange, &g.segments, 3.0f), GW_ERR_ARG);
    g.segments.count--;
    group_build_maps(&g);
    uint64_t first[GW_COLLECTIVE_MAP_WORDS];
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(gw_exchange_map_words(g.rank[r].exchange, r ? words : first), GW_OK);
        assert_true(r == 0 || memcmp(words, first, sizeof words) == 0);
    }
    /* Results over values that are still read. */
    run.result = values + 1;
    assert_int_equal(gw_exchange_start(exchange, &run), GW_ERR_ARG);
    run.flags = GW_EXCHANGE_SCATTER;
    assert_int_equal(gw_exchange_start(exchange, &run), GW_ERR_ARG);
    /* A message that never comes leaves the exchange busy; close does not wait for it. */
    run = (gw_exchange_run){.values = values, .result = values, .scale = 1};
    assert_int_equal(gw_exchange_start(exchange, &run), GW_OK);
    assert_int_equal(gw_exchange_start(exchange, &run), GW_ERR_STATE);
    assert_int_equal(gw_exchange_map_start(exchange, &g.segments, 3.0f), GW_ERR_STATE);
    group_free(&g);
}

/* Room for events is that of one operation: the next one waits until they are taken. */
static void test_events_not_taken(void **state)
{
    (void)state;
    group_setup setup = {.ranks = 1, .len = 9000, .seed = 1};
    group g;
    group_make(&g, &setup);
    gw_exchange_run run = {.values = g.rank[0].values, .result = g.rank[0].apart};
    for (int i = 0; i < 3; i++) {
        gw_runtime_event events[8];
        assert_int_equal(gw_exchange_start(g.rank[0].exchange, &run), GW_OK);
        while (gw_runtime_work(g.runtime, &g.workspace)) {
        }
        assert_int_equal(gw_exchange_start(g.rank[0].exchange, &run), GW_ERR_STATE);
        assert_int_equal(gw_runtime_wait(g.runtime, events, 8, 0), 4); /* 3 SHARE, DONE */
        assert_int_equal(events[3].kind, GW_RUNTIME_DONE);
    }
    group_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_scatter_in_front),
        cmocka_unit_test(test_ring_damage),
        cmocka_unit_test(test_ring_sizes),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_other_map),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_steps_fail),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_lost_rank),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_refused),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_events_not_taken),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
