/*
 * Exchanges of the runtime: all ranks in one process, messages moved by memcpy, against the calls of
 * collective.h one after the other.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "../gcomp/gcomp_support.h"
#include "gradwire/runtime.h"

#include <math.h>

enum { RANKS = 3, LEN = 30000, PIECE_LEN = 1 << 12, PARAMS = 3 };

/* State of one optimizer, equal on all ranks, and gradients of each rank. */
typedef struct group {
    gw_runtime *runtime;
    uint32_t ranks;
    float *param, *m, *v;
    gw_gcomp_map_rule rule;
    gw_collective_segment segment[PARAMS];
    gw_collective_segments segments;
    gw_exchange *exchange[RANKS];
    uint8_t *memory[RANKS];
    float *values[RANKS];
    uint32_t done, maps;
    uint64_t word[RANKS], map_word[RANKS];
    /* Damage: the message of this kind and piece, at its sender, or none. */
    uint32_t damage_kind, damage_piece;
} group;

static gw_runtime *open_runtime(uint32_t threads)
{
    gw_runtime *runtime = NULL;
    gw_runtime_options options = {.thread_count = threads};
    assert_int_equal(gw_runtime_open(&options, &runtime), GW_OK);
    assert_int_equal(gw_runtime_thread_count(runtime), threads);
    return runtime;
}

static float *random_floats(uint64_t seed, double scale, int positive)
{
    float *x = malloc(LEN * sizeof *x);
    assert_non_null(x);
    test_random random = {seed};
    for (size_t i = 0; i < LEN; i++) {
        double value = scale * test_random_normal(&random);
        x[i] = (float)(positive ? value * value : value);
    }
    return x;
}

static void make_state(group *g)
{
    g->param = random_floats(1, 0.1, 0);
    g->m = random_floats(2, 1e-3, 0);
    g->v = random_floats(3, 1e-3, 1);
    gw_optimizer optimizer = {.kind = GW_OPTIMIZER_ADAMW,
                              .step = 5,
                              .lr = 1e-3,
                              .weight_decay = 0.01,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8};
    gw_gcomp_map_limits limits = {.tolerance_bits = 12};
    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, (float)g->ranks, &limits, &g->rule), GW_OK);
    /* Three parameters with padding between them. */
    static const uint64_t first[PARAMS] = {0, 10000, 10500}, len[PARAMS] = {9999, 400, LEN - 10500};
    for (size_t i = 0; i < PARAMS; i++) {
        g->segment[i] = (gw_collective_segment){
            .offset = first[i],
            .len = len[i],
            .rule = &g->rule,
            .state = {.param = g->param + first[i], .m = g->m + first[i], .v = g->v + first[i]},
            .seed = 100 + i};
    }
    g->segments = (gw_collective_segments){g->segment, PARAMS};
}

static gw_exchange_config config_of(const group *g, uint32_t rank)
{
    gw_exchange_config config = {
        .shape = {.len = LEN, .rank_count = g->ranks, .chunk_log2 = 12, .piece_len = PIECE_LEN},
        .rank = rank,
        .user = rank + 1,
        .segment_max = PARAMS};
    gw_gcomp_options_init(&config.codec, GW_FP32);
    config.codec.levels = GW_GCOMP_DERIVED;
    config.codec.rounding = GW_GCOMP_STOCHASTIC;
    config.codec.tolerance_bits = 12;
    config.codec.chunk_log2 = 12;
    config.codec.checksum = 1;
    config.fallback_codec = config.codec;
    config.fallback_codec.levels = GW_GCOMP_CARRIED;
    config.fallback_codec.deep_cut = 1;
    return config;
}

static void group_make(group *g, uint32_t ranks, uint32_t threads)
{
    memset(g, 0, sizeof *g);
    g->ranks = ranks;
    g->damage_piece = UINT32_MAX;
    g->runtime = open_runtime(threads);
    make_state(g);
    for (uint32_t r = 0; r < ranks; r++) {
        gw_exchange_config config = config_of(g, r);
        assert_int_equal(gw_exchange_open(g->runtime, &config, &g->exchange[r]), GW_OK);
        gw_exchange_info info;
        gw_exchange_info_get(g->exchange[r], &info);
        g->memory[r] = malloc(info.memory_size);
        assert_non_null(g->memory[r]);
        gw_exchange_memory(g->exchange[r], g->memory[r]);
        g->values[r] = random_floats(50 + r, 1e-3, 0);
    }
}

static void group_free(group *g)
{
    for (uint32_t r = 0; r < g->ranks; r++) {
        gw_exchange_close(g->exchange[r]);
        free(g->memory[r]);
        free(g->values[r]);
    }
    gw_runtime_close(g->runtime);
    free(g->param);
    free(g->m);
    free(g->v);
}

/* ------------ transport ------------ */

static void move(group *g, const gw_runtime_event *event, uint32_t from, uint32_t to)
{
    uint64_t slot = gw_exchange_slot(g->exchange[to], event->piece, from);
    assert_true(slot != UINT64_MAX);
    memcpy(g->memory[to] + slot, g->memory[from] + event->offset, event->size);
    if (event->kind == g->damage_kind && event->piece == g->damage_piece) {
        g->memory[to][slot + event->size / 2] ^= 0x10;
    }
    assert_int_equal(gw_exchange_receive(g->exchange[to], event->piece, from, NULL, 0), GW_OK);
    assert_int_equal(gw_exchange_receive(g->exchange[to], event->piece, from, NULL, 0), GW_ERR_STATE);
}

static void handle(group *g, const gw_runtime_event *event)
{
    uint32_t from = (uint32_t)event->user - 1;
    gw_exchange_info info;
    gw_exchange_info_get(g->exchange[from], &info);
    if (event->kind == GW_RUNTIME_SEND) {
        move(g, event, from, event->piece / info.layout.shard_pieces);
    } else if (event->kind == GW_RUNTIME_SHARE) {
        for (uint32_t to = 0; to < g->ranks; to++) {
            if (to != from) {
                move(g, event, from, to);
            }
        }
    } else if (event->kind == GW_RUNTIME_MAP) {
        g->map_word[from] = event->word;
        g->maps++;
    } else {
        assert_int_equal(event->kind, GW_RUNTIME_DONE);
        g->word[from] = event->word;
        g->done++;
    }
}

/* Until all ranks have ended what was started: maps, or an operation. */
static void pump(group *g, const uint32_t *count)
{
    while (*count < g->ranks) {
        gw_runtime_event events[4];
        size_t taken = gw_runtime_wait(g->runtime, events, 4, 60000);
        assert_true(taken > 0);
        for (size_t i = 0; i < taken; i++) {
            handle(g, &events[i]);
        }
    }
}

static void build_maps(group *g)
{
    g->maps = 0;
    for (uint32_t r = 0; r < g->ranks; r++) {
        assert_int_equal(gw_exchange_map_start(g->exchange[r], &g->segments, (float)g->ranks), GW_OK);
    }
    pump(g, &g->maps);
    for (uint32_t r = 0; r < g->ranks; r++) {
        assert_int_equal(g->map_word[r], 0);
    }
}

static void operate(group *g, float *const *result, uint32_t flags)
{
    g->done = 0;
    for (uint32_t r = 0; r < g->ranks; r++) {
        gw_exchange_run run = {.values = g->values[r],
                               .result = result[r],
                               .scale = 1.0f / (float)g->ranks,
                               .step_index = 5,
                               .flags = flags};
        assert_int_equal(gw_exchange_start(g->exchange[r], &run), GW_OK);
    }
    pump(g, &g->done);
}

/* ------------ reference ------------ */

/* What the steps of collective.h give, one after the other. */
typedef struct reference {
    gw_collective_layout layout;
    gw_gcomp codec;
    gw_collective_map map;
    gw_gcomp_segment streams[2 * PARAMS + 1];
    size_t stream_count;
    gw_workspace workspace;
    uint8_t *messages;
    size_t bound;
    float *result;
} reference;

static void reference_map(const group *g, reference *ref)
{
    uint32_t top = 0, level = 0;
    for (uint32_t i = 0; i < ref->layout.piece_count; i++) {
        uint32_t piece_top = 0;
        assert_int_equal(gw_collective_map_scan(&ref->layout, i, &g->segments, GW_BACKEND_ALL, &piece_top),
                         GW_OK);
        top = piece_top > top ? piece_top : top;
    }
    ref->map.base = gw_gcomp_map_base(top);
    ref->map.wire_scale = (float)g->ranks;
    ref->map.levels = calloc(LEN, 1);
    ref->map.digest = calloc(gw_collective_digest_len(&ref->layout), sizeof *ref->map.digest);
    for (uint32_t i = 0; i < ref->layout.piece_count; i++) {
        assert_int_equal(
            gw_collective_map_build(&ref->layout, i, &g->segments, GW_BACKEND_ALL, &ref->map, &level), GW_OK);
    }
}

static gw_collective_bucket reference_bucket(const group *g, const reference *ref, uint32_t rank)
{
    return (gw_collective_bucket){.layout = &ref->layout,
                                  .codec = &ref->codec,
                                  .map = &ref->map,
                                  .values = g->values[rank],
                                  .rank = rank,
                                  .step_index = 5,
                                  .streams = ref->streams,
                                  .stream_count = ref->stream_count};
}

static void reference_piece(const group *g, reference *ref, uint32_t index)
{
    gw_collective_piece piece;
    assert_int_equal(gw_collective_piece_at(&ref->layout, index, &piece), GW_OK);
    if (piece.len == 0) {
        return;
    }
    gw_gcomp_frame frames[RANKS + 1] = {{0}};
    for (uint32_t r = 0; r < g->ranks; r++) {
        gw_collective_bucket bucket = reference_bucket(g, ref, r);
        gw_buffer dst = {ref->messages + r * ref->bound, ref->bound, 0};
        if (r != piece.owner) {
            assert_int_equal(gw_collective_encode(&bucket, index, &dst, &ref->workspace), GW_OK);
            frames[r] = (gw_gcomp_frame){.data = dst.data, .size = dst.size};
        }
    }
    gw_collective_bucket bucket = reference_bucket(g, ref, piece.owner);
    gw_buffer dst = {ref->messages + g->ranks * ref->bound, ref->bound, 0};
    gw_collective_blame blame;
    assert_int_equal(gw_collective_reduce(&bucket, index, frames, &dst, &blame, &ref->workspace), GW_OK);
    gw_gcomp_frame finished = {.data = dst.data, .size = dst.size};
    gw_gcomp_target target = {
        .values = ref->result + piece.first, .capacity = piece.len, .scale = 1.0f / (float)g->ranks};
    assert_int_equal(gw_collective_decode(&bucket, index, &finished, &target, &blame, &ref->workspace),
                     GW_OK);
}

static float *reference_result(const group *g)
{
    reference ref = {.result = calloc(LEN, sizeof(float))};
    gw_exchange_config config = config_of(g, 0);
    assert_int_equal(gw_collective_layout_init(&ref.layout, &config.shape), GW_OK);
    assert_int_equal(gw_gcomp_init(&ref.codec, &config.codec), GW_OK);
    ref.bound = gw_collective_message_bound(&ref.layout, &ref.codec);
    ref.messages = malloc((g->ranks + 1) * ref.bound);
    ref.workspace.size = gw_gcomp_workspace_size(&ref.codec);
    ref.workspace.data = malloc(ref.workspace.size);
    assert_int_equal(
        gw_collective_streams(&ref.layout, &g->segments, ref.streams, 2 * PARAMS + 1, &ref.stream_count),
        GW_OK);
    reference_map(g, &ref);
    for (uint32_t i = 0; i < ref.layout.piece_count; i++) {
        reference_piece(g, &ref, i);
    }
    free(ref.messages);
    free(ref.workspace.data);
    free(ref.map.levels);
    free(ref.map.digest);
    return ref.result;
}

/* ------------ tests ------------ */

/* Of the values that a rank contributes to other ranks' pieces. */
static double others_square(const group *g, uint32_t rank)
{
    gw_exchange_config config = config_of(g, rank);
    gw_collective_layout layout;
    assert_int_equal(gw_collective_layout_init(&layout, &config.shape), GW_OK);
    double square = 0;
    for (uint32_t i = 0; i < layout.piece_count; i++) {
        gw_collective_piece piece;
        assert_int_equal(gw_collective_piece_at(&layout, i, &piece), GW_OK);
        for (uint64_t k = 0; piece.owner != rank && k < piece.len; k++) {
            square += (double)g->values[rank][piece.first + k] * (double)g->values[rank][piece.first + k];
        }
    }
    return square;
}

static void all_reduce_case(uint32_t ranks, uint32_t threads)
{
    group g;
    group_make(&g, ranks, threads);
    build_maps(&g);
    double square[RANKS];
    for (uint32_t r = 0; r < ranks; r++) {
        square[r] = others_square(&g, r);
    }
    uint64_t words[RANKS][GW_COLLECTIVE_MAP_WORDS];
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(gw_exchange_map_words(g.exchange[r], words[r]), GW_OK);
        assert_memory_equal(words[r], words[0], sizeof words[0]);
    }
    float *expected = reference_result(&g);
    operate(&g, g.values, GW_EXCHANGE_SAMPLE);
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(g.word[r], 0);
        assert_memory_equal(g.values[r], expected, LEN * sizeof *expected);
        gw_exchange_stats stats;
        gw_exchange_stats_get(g.exchange[r], &stats);
        assert_int_equal(stats.operations, 1);
        assert_true(fabs(stats.sample_square - square[r]) <= 1e-12 * square[r]);
        assert_true(ranks == 1 || stats.sample_error > 0);
        assert_true(ranks == 1 || stats.sample_error < stats.sample_square);
    }
    free(expected);
    group_free(&g);
}

static void test_all_reduce(void **state)
{
    (void)state;
    all_reduce_case(3, 1);
    all_reduce_case(3, 3);
    all_reduce_case(2, 2);
    all_reduce_case(1, 1);
}

/* Maps differ, so all use the fallback codec: every rank decodes the same, and twice in a row works. */
static void test_fallback(void **state)
{
    (void)state;
    group g;
    group_make(&g, 3, 2);
    build_maps(&g);
    for (int round = 0; round < 2; round++) {
        operate(&g, g.values, GW_EXCHANGE_FALLBACK);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(g.word[r], 0);
            assert_memory_equal(g.values[r], g.values[0], LEN * sizeof(float));
        }
    }
    group_free(&g);
}

/* The shards of a reduce-scatter are near the exact mean, and nothing else is written. */
static void test_scatter(void **state)
{
    (void)state;
    group g;
    group_make(&g, 3, 2);
    build_maps(&g);
    float *shards[RANKS];
    for (uint32_t r = 0; r < 3; r++) {
        shards[r] = calloc(LEN, sizeof(float));
    }
    operate(&g, shards, GW_EXCHANGE_SCATTER);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(g.word[r], 0);
        gw_exchange_info info;
        gw_exchange_info_get(g.exchange[r], &info);
        uint64_t first = 0, len = 0;
        assert_int_equal(gw_collective_shard_at(&info.layout, r, &first, &len), GW_OK);
        double error = 0, square = 0;
        for (uint64_t i = 0; i < len; i++) {
            double mean = 0;
            for (uint32_t k = 0; k < 3; k++) {
                mean += (double)g.values[k][first + i] / 3;
            }
            error += ((double)shards[r][i] - mean) * ((double)shards[r][i] - mean);
            square += mean * mean;
        }
        assert_true(square > 0 && error < 0.05 * square);
        assert_true(len == LEN || shards[r][len] == 0.0f);
        free(shards[r]);
    }
    group_free(&g);
}

/* A damaged contribution: the owner notifies all. A damaged result: its receivers detect it. No rank waits
 * forever.
 */
static void test_damage(void **state)
{
    (void)state;
    for (uint32_t kind = GW_RUNTIME_SEND; kind <= GW_RUNTIME_SHARE; kind++) {
        group g;
        group_make(&g, 3, 2);
        build_maps(&g);
        gw_exchange_info info;
        gw_exchange_info_get(g.exchange[0], &info);
        g.damage_kind = kind;
        g.damage_piece = info.layout.shard_pieces; /* the first of rank 1 */
        operate(&g, g.values, 0);
        for (uint32_t r = 0; r < 3; r++) {
            int knows = kind == GW_RUNTIME_SEND || r != 1;
            gw_collective_blame blame;
            gw_collective_word_read(g.word[r], &blame);
            assert_int_equal(blame.status != GW_OK, knows);
            assert_true(!knows || blame.piece == g.damage_piece);
        }
        group_free(&g);
    }
}

static void test_arguments(void **state)
{
    (void)state;
    gw_runtime *none = NULL;
    gw_runtime_options options = {.thread_count = GW_RUNTIME_THREADS_MAX + 1};
    assert_int_equal(gw_runtime_open(NULL, &none), GW_ERR_ARG);
    assert_int_equal(gw_runtime_open(&options, &none), GW_ERR_ARG);
    assert_null(none);
    gw_runtime_close(NULL);
    gw_exchange_close(NULL);
    group g;
    group_make(&g, 2, 1);
    gw_exchange *bad = NULL;
    gw_exchange_config config = config_of(&g, 2);
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config = config_of(&g, 0);
    config.codec.tolerance_bits = 99;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_OPTION);
    assert_null(bad);
    uint64_t words[GW_COLLECTIVE_MAP_WORDS];
    assert_int_equal(gw_exchange_map_words(g.exchange[0], words), GW_ERR_STATE);
    assert_int_equal(gw_exchange_receive(g.exchange[0], 0, 1, NULL, 0), GW_ERR_STATE);
    assert_int_equal(gw_exchange_receive(g.exchange[0], 0, 0, NULL, 0), GW_ERR_ARG);
    assert_int_equal(gw_exchange_receive(g.exchange[0], 1u << 30, 1, NULL, 0), GW_ERR_ARG);
    /* A message that never comes leaves the exchange busy; close does not wait for it. */
    build_maps(&g);
    gw_exchange_run run = {.values = g.values[0], .result = g.values[0], .scale = 1};
    assert_int_equal(gw_exchange_start(g.exchange[0], &run), GW_OK);
    assert_int_equal(gw_exchange_start(g.exchange[0], &run), GW_ERR_STATE);
    assert_int_equal(gw_exchange_map_start(g.exchange[0], &g.segments, 2.0f), GW_ERR_STATE);
    group_free(&g);
}

static void test_wake(void **state)
{
    (void)state;
    gw_runtime *runtime = open_runtime(2);
    gw_runtime_event event;
    assert_int_equal(gw_runtime_wait(runtime, &event, 1, 0), 0);
    gw_runtime_wake(runtime);
    gw_runtime_wake(runtime);
    assert_int_equal(gw_runtime_wait(runtime, &event, 1, -1), 1);
    assert_int_equal(event.kind, GW_RUNTIME_WAKE);
    assert_int_equal(gw_runtime_wait(runtime, &event, 1, 1), 0);
    gw_runtime_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_fallback),  cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_arguments), cmocka_unit_test(test_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
