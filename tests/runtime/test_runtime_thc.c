/*
 * THC in two exchanges of the runtime, all ranks in one process, against the calls of thc.h one after the
 * other: results and error memories to the bit, those of an unmodified all-reduce of lanes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "../gcomp/gcomp_support.h"

#include <math.h>

#include "gradwire/runtime_thc.h"

enum { RANKS_MAX = 64, PIECE_BLOCKS = 4, NORMS_BLOCKS = 8 };

/* What becomes of a message. OLD: it is that of the operation before; OTHER: one of another piece that has
 * the same size; NOTICE: a notice of a rank, or (FAR) of a piece, that does not exist. */
enum { BAD_BIT, BAD_LOST, BAD_OLD, BAD_OTHER, BAD_NOTICE, BAD_FAR_NOTICE, BAD_WAYS };

/* Set to zeros, then fill in. */
typedef struct thc_setup {
    uint32_t ranks, threads, bits, sums;
    uint64_t len; /* of a tensor */
    int is_scatter, is_mean, has_feedback, has_sum_feedback;
    int is_plain, is_bf16, in_place;
    uint32_t infinite_rank_1; /* rank + 1 with an infinity in its values, or 0 */
    /* The message that is changed or lost (bad_way) on its way: rank + 1 of the sender, or 0 */
    uint32_t bad_rank_1, bad_phase, bad_kind, bad_way;
} thc_setup;

typedef struct thc_rank {
    gw_thc_steps *steps;
    gw_exchange *exchange[2];
    uint8_t *memory[2];
    uint8_t *values, *result;
    float *error, *sum_error;
    uint32_t *maxima;
    uint64_t word;
    int done;
} thc_rank;

typedef struct thc_message {
    uint32_t from, to, piece, kind;
    uint64_t offset, size;
} thc_message;

typedef struct thc_group {
    thc_setup setup;
    gw_thc_options options;
    gw_thc thc;
    gw_runtime *runtime;
    gw_workspace workspace;
    test_random random;
    thc_rank rank[RANKS_MAX];
    uint64_t values_len; /* of a rank */
    size_t value_size;
    uint32_t shard_pieces;
    thc_message *messages;
    size_t message_count, message_room;
    uint32_t phase, round; /* that run */
    thc_message saved;     /* the first that could be bad, OLD or OTHER; size 0: there was none */
    uint8_t *saved_data;
    int was_bad;
} thc_group;

/* ------------ making ------------ */

static void *allocate(uint64_t count, size_t size)
{
    void *data = calloc((size_t)count + 1, size);
    assert_non_null(data);
    return data;
}

static gw_thc_options options_of(const thc_setup *setup)
{
    const gw_thc_goal goal = {
        .bits = setup->bits, .worker_max = setup->ranks, .error_feedback = setup->has_feedback};
    gw_thc_options options;
    assert_int_equal(gw_thc_options_init(&options, &goal, NULL), GW_OK);
    options.seed = 77;
    options.nonfinite = GW_THC_NONFINITE_PROPAGATE;
    options.dtype = setup->is_bf16 ? GW_BF16 : GW_FP32;
    if (setup->is_plain) {
        options.transform = GW_THC_PLAIN;
        options.threshold_bits = 0;
    }
    return options;
}

static void make_values(thc_group *g, uint32_t r)
{
    test_random random = {1000 + r};
    thc_rank *rank = &g->rank[r];
    for (size_t i = 0; i < g->values_len; i++) {
        const double size = 1e-3 * (double)(1 + i / 5000 % 7);
        test_put(rank->values, g->options.dtype, i,
                 test_bits_of_float((float)(size * test_random_normal(&random))) >>
                     (g->setup.is_bf16 ? 16 : 0));
    }
    if (g->setup.infinite_rank_1 == r + 1) {
        test_put(rank->values, g->options.dtype, (size_t)g->values_len / 2,
                 g->setup.is_bf16 ? 0x7f80u : 0x7f800000u);
    }
}

static void make_rank(thc_group *g, uint32_t r)
{
    const thc_setup *setup = &g->setup;
    thc_rank *rank = &g->rank[r];
    const gw_thc_steps_config config = {.options = g->options,
                                        .rank = r,
                                        .rank_count = setup->ranks,
                                        .len = setup->len,
                                        .is_scatter = setup->is_scatter,
                                        .is_mean = setup->is_mean,
                                        .sums = setup->sums,
                                        .sum_feedback = setup->has_sum_feedback,
                                        .piece_blocks = PIECE_BLOCKS,
                                        .norms_blocks = NORMS_BLOCKS};
    assert_int_equal(gw_thc_steps_open(&config, &rank->steps), GW_OK);
    assert_true(gw_thc_steps_workspace_size(rank->steps) < (size_t)512 << 10);
    for (uint32_t phase = 0; phase < 2; phase++) {
        gw_exchange_config own = {.user = r};
        gw_exchange_info info;
        assert_int_equal(gw_thc_steps_exchange(rank->steps, (gw_thc_phase)phase, &own), GW_OK);
        assert_int_equal(gw_exchange_open(g->runtime, &own, &rank->exchange[phase]), GW_OK);
        gw_exchange_info_get(rank->exchange[phase], &info);
        rank->memory[phase] = allocate(info.memory_size + 1, 1);
        gw_exchange_memory(rank->exchange[phase], rank->memory[phase] + 1); /* any alignment will do */
    }
    uint64_t first = 0, len = 0;
    assert_int_equal(gw_thc_steps_shard(rank->steps, &first, &len), GW_OK);
    assert_true(first + len <= setup->len);
    rank->values = allocate(g->values_len, g->value_size);
    rank->result = setup->in_place ? rank->values : allocate(setup->len, g->value_size);
    rank->error = setup->has_feedback ? allocate(g->values_len, sizeof(float)) : NULL;
    rank->sum_error = setup->has_sum_feedback ? allocate(len, sizeof(float)) : NULL;
    rank->maxima = allocate(gw_thc_steps_maxima_len(rank->steps), sizeof(uint32_t));
    make_values(g, r);
}

static void group_make(thc_group *g, const thc_setup *setup)
{
    const gw_runtime_options threads = {.thread_count = setup->threads};
    memset(g, 0, sizeof *g);
    g->setup = *setup;
    g->random.state = setup->ranks;
    g->options = options_of(setup);
    g->value_size = gw_dtype_size(g->options.dtype);
    g->values_len = setup->len * (setup->is_scatter ? setup->ranks : 1);
    g->workspace = (gw_workspace){allocate(1 << 20, 1), 1 << 20};
    assert_int_equal(gw_thc_init(&g->thc, &g->options), GW_OK);
    assert_int_equal(gw_runtime_open(&threads, &g->runtime), GW_OK);
    for (uint32_t r = 0; r < setup->ranks; r++) {
        make_rank(g, r);
    }
}

static void group_free(thc_group *g)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        thc_rank *rank = &g->rank[r];
        for (int phase = 0; phase < 2; phase++) {
            gw_exchange_close(rank->exchange[phase]);
            free(rank->memory[phase]);
        }
        gw_thc_steps_close(rank->steps);
        free(g->setup.in_place ? NULL : rank->result);
        free(rank->values);
        free(rank->error);
        free(rank->sum_error);
        free(rank->maxima);
    }
    gw_runtime_close(g->runtime);
    free(g->messages);
    free(g->saved_data);
    free(g->workspace.data);
}

/* ------------ messages that are not as sent ------------ */

static int may_be_bad(const thc_group *g, const thc_message *m)
{
    const thc_setup *setup = &g->setup;
    return setup->bad_rank_1 == m->from + 1 && setup->bad_phase == g->phase && setup->bad_kind == m->kind;
}

static void save(thc_group *g, const thc_message *m)
{
    /* Two whole pieces of a shard that is not the last: one comes later and has the same size */
    const int is_whole = m->piece % g->shard_pieces < 2 && m->piece / g->shard_pieces + 1 < g->setup.ranks;
    if (g->saved.size == 0 && is_whole && may_be_bad(g, m)) {
        g->saved = *m;
        g->saved_data = allocate(m->size, 1);
        memcpy(g->saved_data, g->rank[m->from].memory[g->phase] + 1 + m->offset, (size_t)m->size);
    }
}

static int is_bad(const thc_group *g, const thc_message *m)
{
    if (g->was_bad || !may_be_bad(g, m)) {
        return 0;
    }
    const int is_saved_piece = m->to == g->saved.to && m->piece == g->saved.piece;
    return g->setup.bad_way == BAD_OLD ? g->round == 2 && is_saved_piece
           : g->setup.bad_way == BAD_OTHER
               ? m->to == g->saved.to && !is_saved_piece && m->size == g->saved.size
               : 1;
}

/* Bytes of the message now. */
static uint64_t make_bad(const thc_group *g, const thc_message *m, uint8_t *data)
{
    gw_collective_failure failure = {.status = GW_ERR_LIMIT, .rank = g->setup.ranks};
    gw_buffer notice = {data, GW_COLLECTIVE_NOTICE_SIZE, 0};
    if (g->setup.bad_way == BAD_BIT) {
        data[m->size / 2] ^= 0x10;
    } else if (g->setup.bad_way == BAD_OLD || g->setup.bad_way == BAD_OTHER) {
        memcpy(data, g->saved_data, (size_t)m->size);
    } else {
        if (g->setup.bad_way == BAD_FAR_NOTICE) {
            failure.rank = 0;
            failure.piece = 1000;
        }
        assert_int_equal(gw_collective_notice_write(&failure, &notice), GW_OK);
        return notice.size;
    }
    return m->size;
}

/* ------------ transport: any order ------------ */

static void send(thc_group *g, const gw_runtime_event *event, uint32_t to)
{
    if (g->message_count == g->message_room) {
        g->message_room = 2 * g->message_room + 64;
        g->messages = realloc(g->messages, g->message_room * sizeof *g->messages);
        assert_non_null(g->messages);
    }
    g->messages[g->message_count++] = (thc_message){.from = (uint32_t)event->user,
                                                    .to = to,
                                                    .piece = event->piece,
                                                    .kind = event->kind,
                                                    .offset = event->offset,
                                                    .size = event->size};
    save(g, &g->messages[g->message_count - 1]);
}

static void handle(thc_group *g, const gw_runtime_event *event)
{
    const uint32_t from = (uint32_t)event->user;
    if (event->kind == GW_RUNTIME_DONE) {
        thc_rank *rank = &g->rank[from];
        rank->word = event->word > rank->word ? event->word : rank->word;
        rank->done = 1;
    } else if (event->kind == GW_RUNTIME_SEND) {
        send(g, event, event->piece / g->shard_pieces);
    } else {
        for (uint32_t to = 0; to < g->setup.ranks; to++) {
            if (to != from) {
                send(g, event, to);
            }
        }
    }
}

static void deliver(thc_group *g, uint32_t phase, size_t index)
{
    const thc_message m = g->messages[index];
    gw_exchange *exchange = g->rank[m.to].exchange[phase];
    const uint64_t offset = gw_exchange_buffer_offset(exchange, m.piece, m.from);
    uint8_t *data = g->rank[m.to].memory[phase] + 1 + offset;
    const int bad = is_bad(g, &m);
    uint64_t size = m.size;
    g->messages[index] = g->messages[--g->message_count];
    g->was_bad |= bad;
    if (bad && g->setup.bad_way == BAD_LOST) {
        return;
    }
    memcpy(data, g->rank[m.from].memory[phase] + 1 + m.offset, (size_t)m.size);
    if (bad) {
        size = make_bad(g, &m, data);
    }
    const size_t told = test_random_below(&g->random, 2) ? (size_t)size : 0;
    assert_int_equal(gw_exchange_receive(exchange, m.piece, m.from, NULL, told), GW_OK);
}

/* 0: nothing moves any more. */
static int pump(thc_group *g, uint32_t phase)
{
    for (;;) {
        gw_runtime_event events[16];
        uint32_t done = 0;
        for (uint32_t r = 0; r < g->setup.ranks; r++) {
            done += (uint32_t)g->rank[r].done;
        }
        if (done == g->setup.ranks && g->message_count == 0) {
            return 1;
        }
        const int timeout_ms = g->message_count > 0 || g->setup.threads == 0 ? 0
                               : g->setup.bad_way == BAD_LOST                ? 200
                                                                             : 60000;
        const size_t count = gw_runtime_wait(g->runtime, events, 16, timeout_ms);
        for (size_t i = 0; i < count; i++) {
            handle(g, &events[i]);
        }
        int moved = count > 0 || g->message_count > 0;
        if (g->message_count > 0) {
            deliver(g, phase, test_random_below(&g->random, (uint32_t)g->message_count));
        }
        if (g->setup.threads == 0) {
            moved |= gw_runtime_work(g->runtime, &g->workspace);
        }
        if (!moved) {
            return 0;
        }
    }
}

static int run_phase(thc_group *g, uint32_t phase, uint32_t round)
{
    gw_exchange_info info;
    gw_exchange_info_get(g->rank[0].exchange[phase], &info);
    g->shard_pieces = info.layout.shard_pieces;
    g->phase = phase;
    g->round = round;
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        thc_rank *rank = &g->rank[r];
        const gw_thc_steps_run run = {.values = rank->values,
                                      .result = rank->result,
                                      .error = rank->error,
                                      .sum_error = rank->sum_error,
                                      .maxima = rank->maxima,
                                      .norms_word = phase == GW_THC_PHASE_SUMS ? rank->word : 0,
                                      .round = round};
        gw_exchange_run own;
        rank->done = 0;
        assert_int_equal(gw_thc_steps_begin(rank->steps, (gw_thc_phase)phase, &run, &own), GW_OK);
        assert_int_equal(gw_exchange_start(rank->exchange[phase], &own), GW_OK);
    }
    return pump(g, phase);
}

/* ------------ reference ------------ */

typedef struct thc_reference {
    float *error[RANKS_MAX], *sum_error;
    uint8_t *result; /* of all tensors */
} thc_reference;

static void reference_make(const thc_group *g, thc_reference *ref)
{
    memset(ref, 0, sizeof *ref);
    for (uint32_t r = 0; g->setup.has_feedback && r < g->setup.ranks; r++) {
        ref->error[r] = allocate(g->values_len, sizeof(float));
    }
    ref->sum_error = allocate(g->setup.len, sizeof(float));
    ref->result = allocate(g->values_len, g->value_size);
}

static void reference_free(const thc_group *g, thc_reference *ref)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        free(ref->error[r]);
    }
    free(ref->sum_error);
    free(ref->result);
}

/* The sum of a tensor as it was decoded, encoded again as by a single worker. */
static void reference_requantize(const thc_group *g, thc_reference *ref, gw_thc_range range)
{
    const gw_thc_goal goal = {
        .bits = g->setup.bits, .worker_max = 1, .error_feedback = g->setup.has_sum_feedback};
    gw_thc_options options;
    gw_thc thc;
    assert_int_equal(gw_thc_options_init(&options, &goal, NULL), GW_OK);
    options.seed = g->options.seed ^ GW_THC_SUM_SEED;
    options.nonfinite = GW_THC_NONFINITE_PROPAGATE;
    assert_int_equal(gw_thc_init(&thc, &options), GW_OK);
    range.rank = 0;
    uint32_t *patterns = allocate(range.block_count, sizeof *patterns);
    const size_t size = gw_thc_indices_size(&thc, range.len, 0, range.block_count);
    gw_buffer packed = {allocate(size, 1), size, 0};
    const gw_thc_source source = {.values = ref->result,
                                  .patterns = patterns,
                                  .error = g->setup.has_sum_feedback ? ref->sum_error : NULL};
    assert_int_equal(gw_thc_norms(&thc, &range, &source, patterns, NULL, &g->workspace), GW_OK);
    assert_int_equal(gw_thc_encode(&thc, &range, &source, &packed, NULL, &g->workspace), GW_OK);
    const gw_thc_indices indices = {packed.data, packed.size, patterns};
    gw_thc_target target = {.values = ref->result, .capacity = range.len};
    assert_int_equal(gw_thc_decode_indices(&thc, &range, &indices, &target, &g->workspace), GW_OK);
    free(patterns);
    free(packed.data);
}

/* The all-reduce of docs/collectives.md: MAX of patterns, SUM of lanes and counts, decode. */
static void reference_tensor(const thc_group *g, thc_reference *ref, uint32_t tensor, uint32_t round)
{
    const uint64_t len = g->setup.len, first = tensor * len, blocks = gw_thc_block_count(&g->thc, len);
    const uint32_t tensors = g->setup.is_scatter ? g->setup.ranks : 1;
    const size_t patterns_len = (size_t)blocks * gw_thc_patterns_per_block(&g->thc);
    const size_t size = gw_thc_reduced_size(&g->thc, len, 0, blocks);
    uint32_t *maxima = allocate(patterns_len, sizeof *maxima), *own = allocate(patterns_len, sizeof *own);
    uint32_t *sums = allocate(size / 4, 4), *words = allocate(size / 4, 4);
    gw_thc_range range = {.len = len, .block_count = blocks, .round = round * tensors + tensor};
    for (uint32_t hop = 0; hop < 2; hop++) {
        for (uint32_t r = 0; r < g->setup.ranks; r++) {
            const gw_thc_source source = {.values = g->rank[r].values + first * g->value_size,
                                          .error = ref->error[r] ? ref->error[r] + first : NULL,
                                          .patterns = maxima};
            gw_buffer dst = {words, size, 0};
            range.rank = r;
            if (hop == 0) {
                assert_int_equal(gw_thc_norms(&g->thc, &range, &source, own, NULL, &g->workspace), GW_OK);
                gw_thc_norms_max(maxima, own, patterns_len);
                continue;
            }
            assert_int_equal(gw_collective_lanes_encode(&g->thc, &range, &source, &dst, NULL, &g->workspace),
                             GW_OK);
            for (size_t i = 0; i < size / 4; i++) {
                sums[i] += words[i];
            }
        }
    }
    const gw_thc_sum sum = {.data = sums, .size = size, .patterns = maxima};
    gw_thc_target target = {.values = ref->result + first * g->value_size, .capacity = len};
    assert_int_equal(gw_thc_decode_reduced(&g->thc, &range, &sum, g->setup.is_mean ? GW_THC_MEAN : GW_THC_SUM,
                                           &target, &g->workspace),
                     GW_OK);
    if (g->setup.sums == GW_THC_SUMS_REQUANTIZED && !g->setup.is_scatter) {
        reference_requantize(g, ref, range);
    }
    free(maxima);
    free(own);
    free(sums);
    free(words);
}

/* ------------ results ------------ */

static void check(const thc_group *g, const thc_reference *ref)
{
    const size_t size = (size_t)g->setup.len * g->value_size;
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        const thc_rank *rank = &g->rank[r];
        uint64_t first = 0, len = 0;
        assert_int_equal(rank->word, 0);
        assert_memory_equal(rank->result, ref->result + (g->setup.is_scatter ? r * size : 0), size);
        if (g->setup.has_feedback) {
            assert_memory_equal(rank->error, ref->error[r], (size_t)g->values_len * sizeof(float));
        }
        if (g->setup.has_sum_feedback) {
            assert_int_equal(gw_thc_steps_shard(rank->steps, &first, &len), GW_OK);
            assert_memory_equal(rank->sum_error, ref->sum_error + first, (size_t)len * sizeof(float));
        }
    }
}

static void run_case(const thc_setup *setup)
{
    thc_group g;
    thc_reference ref;
    group_make(&g, setup);
    reference_make(&g, &ref);
    for (uint32_t round = 3; round < (setup->in_place ? 4 : 5); round++) {
        for (uint32_t tensor = 0; tensor < (setup->is_scatter ? setup->ranks : 1); tensor++) {
            reference_tensor(&g, &ref, tensor, round);
        }
        assert_int_equal(run_phase(&g, GW_THC_PHASE_NORMS, round), 1);
        assert_int_equal(run_phase(&g, GW_THC_PHASE_SUMS, round), 1);
        check(&g, &ref);
    }
    reference_free(&g, &ref);
    group_free(&g);
}

static void test_all_reduce(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 8, 17, 18, 20};
    static const uint64_t lens[] = {1, 100, 30000, 70001};
    for (uint32_t i = 0; i < 9; i++) {
        for (uint32_t k = 0; k < 8; k++) {
            thc_setup setup = {.ranks = ranks[i], .len = lens[(i + k) % 4], .bits = k % 4 == 3 ? 2 : 4};
            setup.threads = (i + k) % 3;
            setup.has_feedback = (int)(k / 2 % 2);
            setup.is_mean = (int)((k + i) % 2);
            setup.sums = k / 4;
            setup.has_sum_feedback = k >= 6;
            setup.in_place = i % 2 == 0 && k % 2 == 0;
            run_case(&setup);
        }
    }
}

static void test_kinds(void **state)
{
    (void)state;
    const thc_setup usual = {.ranks = 3, .len = 21000, .bits = 4, .threads = 2};
    thc_setup setup = usual;
    setup.is_bf16 = 1;
    run_case(&setup);
    setup = usual;
    setup.is_plain = 1;
    run_case(&setup);
    for (uint32_t rank = 1; rank <= 3; rank++) { /* its block is NaN on all */
        setup = usual;
        setup.infinite_rank_1 = rank;
        setup.has_feedback = 1;
        setup.sums = rank % 2;
        run_case(&setup);
    }
}

static void test_reduce_scatter(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks < 7; ranks++) {
        thc_setup setup = {.ranks = ranks, .len = 9000 + ranks, .bits = 4, .is_scatter = 1};
        setup.threads = ranks % 3;
        setup.sums = ranks % 2; /* changes nothing */
        setup.has_feedback = ranks > 3;
        run_case(&setup);
    }
}

/* ------------ bytes ------------ */

/* Bits that travel for each value from a worker to an owner and back, norms and heads included. */
static double bits_of(uint32_t ranks, uint32_t sums)
{
    const thc_setup setup = {.ranks = ranks, .threads = 2, .bits = 4, .sums = sums, .len = ranks * 4096};
    uint64_t sent = 0, received = 0;
    thc_group g;
    group_make(&g, &setup);
    for (uint32_t phase = 0; phase < 2; phase++) {
        assert_int_equal(run_phase(&g, phase, 1), 1);
        for (uint32_t r = 0; r < ranks; r++) {
            gw_exchange_stats stats;
            gw_exchange_stats_get(g.rank[r].exchange[phase], &stats);
            sent += stats.sent_size;
            received += stats.received_size;
        }
    }
    group_free(&g);
    assert_int_equal(sent, received);
    return 8.0 * (double)sent / (double)(ranks - 1) / (double)setup.len;
}

static void test_sizes(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {2, 4, 8, 17, 64};
    for (uint32_t i = 0; i < 5; i++) {
        const double lanes = bits_of(ranks[i], GW_THC_SUMS_LANES);
        const double requantized = bits_of(ranks[i], GW_THC_SUMS_REQUANTIZED);
        const double expected = ranks[i] > 17 ? 20 : 12;
        print_message("%u ranks: %.3f bits a value with lanes, %.3f requantized\n", ranks[i], lanes,
                      requantized);
        assert_true(lanes > expected && lanes < expected + 0.15);
        assert_true(requantized > 8 && requantized < 8.2);
    }
}

/* ------------ failures ------------ */

/* The ranks know of a bad message, and name the rank that should have made it. */
static void check_failures(const thc_group *g)
{
    const thc_setup *setup = &g->setup;
    uint32_t known = 0;
    gw_collective_failure failure;
    for (uint32_t r = 0; r < setup->ranks; r++) {
        gw_collective_word_read(g->rank[r].word, &failure);
        if (g->rank[r].word != 0) {
            known++;
            assert_int_equal(failure.status, GW_ERR_CORRUPT);
            assert_int_equal(failure.rank + 1, setup->bad_rank_1);
        }
    }
    /* Only a sum that is damaged on its way to all is known to its receivers alone */
    assert_true(setup->bad_kind == GW_RUNTIME_SEND || setup->bad_phase == GW_THC_PHASE_NORMS
                    ? known == setup->ranks
                    : known > 0);
}

/* A message that is damaged, or another one, in either phase: its receiver sends notices. Both phases end. */
static void test_damage(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8 * BAD_WAYS; i++) {
        thc_setup setup = {.ranks = 4, .threads = i % 3, .len = 70000, .bits = 4, .bad_rank_1 = 2};
        setup.bad_phase = i % 2;
        setup.bad_kind = i / 2 % 2 ? GW_RUNTIME_SHARE : GW_RUNTIME_SEND;
        setup.sums = i / 4 % 2;
        setup.bad_way = i / 8;
        if (setup.bad_way == BAD_LOST) {
            continue; /* test_lost() */
        }
        thc_group g;
        group_make(&g, &setup);
        for (uint32_t round = setup.bad_way == BAD_OLD ? 1 : 2; round <= 2; round++) {
            assert_int_equal(g.was_bad, 0);
            assert_int_equal(run_phase(&g, GW_THC_PHASE_NORMS, round), 1);
            assert_int_equal(run_phase(&g, GW_THC_PHASE_SUMS, round), 1);
        }
        assert_int_equal(g.was_bad, 1);
        check_failures(&g);
        group_free(&g);
    }
}

/* Policy ERROR: one rank has an infinity, and all ranks learn its name. */
static void test_nonfinite_error(void **state)
{
    (void)state;
    const thc_setup setup = {.ranks = 5, .threads = 2, .len = 30000, .bits = 4, .infinite_rank_1 = 3};
    thc_group g;
    group_make(&g, &setup);
    for (uint32_t r = 0; r < setup.ranks; r++) {
        gw_thc_steps_config config = {
            .options = g.options, .rank = r, .rank_count = setup.ranks, .len = setup.len};
        gw_exchange_config own = {.user = r};
        config.options.nonfinite = GW_THC_NONFINITE_ERROR;
        gw_exchange_close(g.rank[r].exchange[0]);
        gw_thc_steps_close(g.rank[r].steps);
        free(g.rank[r].memory[0]);
        assert_int_equal(gw_thc_steps_open(&config, &g.rank[r].steps), GW_OK);
        assert_int_equal(gw_thc_steps_exchange(g.rank[r].steps, GW_THC_PHASE_NORMS, &own), GW_OK);
        assert_int_equal(gw_exchange_open(g.runtime, &own, &g.rank[r].exchange[0]), GW_OK);
        gw_exchange_info info;
        gw_exchange_info_get(g.rank[r].exchange[0], &info);
        g.rank[r].memory[0] = allocate(info.memory_size + 1, 1);
        gw_exchange_memory(g.rank[r].exchange[0], g.rank[r].memory[0] + 1);
    }
    assert_int_equal(run_phase(&g, GW_THC_PHASE_NORMS, 1), 1);
    for (uint32_t r = 0; r < setup.ranks; r++) {
        gw_collective_failure failure;
        gw_collective_word_read(g.rank[r].word, &failure);
        assert_int_equal(failure.status, GW_ERR_NONFINITE);
        assert_int_equal(failure.rank, 2);
        gw_exchange_close(g.rank[r].exchange[1]); /* of the steps that are closed */
        g.rank[r].exchange[1] = NULL;
    }
    group_free(&g);
}

/* A message that never comes: the ranks wait until they are stopped, and then touch nothing. */
static void test_lost(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        thc_setup setup = {.ranks = 4, .threads = i % 3, .len = 50000, .bits = 4, .bad_rank_1 = 1 + i % 4};
        setup.bad_way = BAD_LOST;
        setup.bad_phase = i % 2;
        setup.bad_kind = i / 2 % 2 ? GW_RUNTIME_SHARE : GW_RUNTIME_SEND;
        thc_group g;
        group_make(&g, &setup);
        assert_int_equal(run_phase(&g, GW_THC_PHASE_NORMS, 1), setup.bad_phase == 1);
        if (setup.bad_phase == 1) {
            assert_int_equal(run_phase(&g, GW_THC_PHASE_SUMS, 1), 0);
        }
        for (uint32_t r = 0; r < setup.ranks; r++) {
            gw_exchange_stop(g.rank[r].exchange[setup.bad_phase]);
        }
        group_free(&g);
    }
}

/* ------------ arguments ------------ */

static void refuse(gw_thc_steps_config config, gw_status status)
{
    gw_thc_steps *steps = NULL;
    assert_int_equal(gw_thc_steps_open(&config, &steps), status);
    assert_null(steps);
}

static void test_open(void **state)
{
    (void)state;
    const thc_setup setup = {.ranks = 4, .bits = 4, .has_feedback = 1};
    const gw_thc_steps_config good = {.options = options_of(&setup), .rank_count = 4, .len = 5000};
    gw_thc_steps_config bad = good;
    gw_thc_steps *steps = NULL;
    assert_int_equal(gw_thc_steps_open(NULL, &steps), GW_ERR_ARG);
    assert_int_equal(gw_thc_steps_open(&good, NULL), GW_ERR_ARG);
    bad.rank = 4;
    refuse(bad, GW_ERR_ARG);
    bad = good;
    bad.len = 0;
    refuse(bad, GW_ERR_ARG);
    bad.len = UINT64_MAX;
    refuse(bad, GW_ERR_LIMIT);
    bad = good;
    bad.rank_count = 5; /* more than worker_max */
    refuse(bad, GW_ERR_OPTION);
    bad = good;
    bad.sums = 2;
    refuse(bad, GW_ERR_OPTION);
    bad = good;
    bad.sum_feedback = 1; /* of lanes */
    refuse(bad, GW_ERR_OPTION);
    bad.sums = GW_THC_SUMS_REQUANTIZED;
    bad.options.dtype = GW_BF16;
    refuse(bad, GW_ERR_OPTION);
    bad = good;
    bad.options.table.bits = 9;
    refuse(bad, GW_ERR_TABLE);
    bad = good;
    bad.piece_blocks = 1; /* collective.h: at least 2^12 values */
    refuse(bad, GW_ERR_OPTION);
    gw_thc_steps_close(NULL);
    assert_int_equal(gw_thc_steps_open(&good, &steps), GW_OK);
    float values[1] = {0};
    uint32_t maxima[8] = {0};
    gw_thc_steps_run run = {.values = values, .result = values, .maxima = maxima};
    gw_exchange_run own;
    gw_exchange_config config = {0};
    assert_int_equal(gw_thc_steps_begin(steps, GW_THC_PHASE_SUMS, &run, &own),
                     GW_ERR_ARG); /* no error memory */
    run.error = values;
    assert_int_equal(gw_thc_steps_begin(steps, GW_THC_PHASE_SUMS, &run, &own), GW_OK);
    run.sum_error = values;
    assert_int_equal(gw_thc_steps_begin(steps, GW_THC_PHASE_SUMS, &run, &own), GW_ERR_ARG);
    assert_int_equal(gw_thc_steps_begin(steps, (gw_thc_phase)2, &run, &own), GW_ERR_ARG);
    assert_int_equal(gw_thc_steps_exchange(steps, (gw_thc_phase)2, &config), GW_ERR_ARG);
    assert_int_equal(gw_thc_steps_maxima_len(steps), 5);
    gw_thc_steps_close(steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),     cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_nonfinite_error),
        cmocka_unit_test(test_lost),           cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests_name("thc", tests, NULL, NULL);
}
