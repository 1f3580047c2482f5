/*
 * Codebooks of exchanges that outlive a frame: counted, pooled over the ranks, installed and used; and ranks
 * that have others.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_group.h"

static const group_setup plain = {.ranks = 3, .threads = 2, .len = 30000, .has_codebooks = 1, .seed = 1};

static gw_exchange_info info_of(const group *g)
{
    gw_exchange_info info;
    gw_exchange_info_get(g->rank[0].exchange, &info);
    return info;
}

/* One operation, whose results must be those of handles without installed codebooks. */
static void run_operation(group *g)
{
    float *expected = group_reference(g);
    group_start(g);
    assert_true(group_pump(g, 0));
    group_check(g, expected);
    free(expected);
}

/* What all ranks have sent in the last operation: to free. */
static uint32_t *count_codebooks(group *g)
{
    const size_t len = (size_t)info_of(g).codebook_word_count;
    uint32_t *words = malloc(g->setup.ranks * len * sizeof *words);
    assert_non_null(words);
    group_count_codebooks(g);
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        assert_int_equal(gw_exchange_codebooks_words(g->rank[r].exchange, words + r * len), GW_OK);
    }
    return words;
}

static void install_codebooks(group *g, uint32_t generation, const uint32_t *words)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        assert_int_equal(gw_exchange_codebooks_install(g->rank[r].exchange, generation, words), GW_OK);
        assert_int_equal(gw_exchange_codebooks_stamp(g->rank[r].exchange) >> 32, generation);
        assert_true(gw_exchange_codebooks_stamp(g->rank[r].exchange) ==
                    gw_exchange_codebooks_stamp(g->rank[0].exchange));
    }
}

static void use_codebooks(group *g, uint32_t generation)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        assert_int_equal(gw_exchange_codebooks_use(g->rank[r].exchange, generation), GW_OK);
    }
}

static void renew(group *g, uint32_t generation)
{
    uint32_t *words = count_codebooks(g);
    install_codebooks(g, generation, words);
    use_codebooks(g, generation);
    free(words);
}

/* ------------ frames ------------ */

/* The frame of a piece that a rank has made in the last operation: it names this generation, 0: none. */
static gw_gcomp_frame sent_frame(const group *g, uint32_t rank, uint32_t piece, uint32_t generation)
{
    const uint64_t size = info_of(g).message_bound;
    gw_gcomp_frame frame = {.data = g->rank[rank].memory + piece * size};
    gw_gcomp_frame_info info;
    assert_int_equal(gw_gcomp_frame_peek(frame.data, (size_t)size, UINT64_MAX, &info), GW_OK);
    assert_int_equal(info.installed, generation != 0);
    assert_int_equal(info.codebook_generation, generation);
    frame.size = (size_t)info.frame_size;
    return frame;
}

/* Bytes of all frames that the ranks have made. */
static uint64_t sent_size(const group *g, uint32_t generation)
{
    uint64_t size = 0;
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        for (uint32_t i = 0; i < g->layout.piece_count; i++) {
            gw_collective_piece piece;
            assert_int_equal(gw_collective_piece_at(&g->layout, i, &piece), GW_OK);
            if (piece.len > 0 && !(piece.owner == r && g->setup.flags & GW_EXCHANGE_SCATTER)) {
                size += sent_frame(g, r, i, generation).size;
            }
        }
    }
    return size;
}

/* The words of a rank about a piece. */
static const uint32_t *words_of(const group *g, uint32_t rank, uint32_t piece, const uint32_t *words)
{
    return words + rank * (size_t)info_of(g).codebook_word_count + (size_t)piece * GW_EXCHANGE_CODEBOOK_WORDS;
}

/* A handle with the codebook of a piece's contributions: the sum of the words of all ranks but its owner, as
 * far as they have the largest window. */
static gw_gcomp handle_of(const group *g, uint32_t piece, uint32_t generation, const uint32_t *words)
{
    const uint32_t owner = piece / g->layout.shard_pieces;
    const gw_exchange_config config = group_config(g, 0);
    gw_gcomp handle;
    assert_int_equal(gw_gcomp_init(&handle, &config.codec), GW_OK);
    gw_gcomp_histogram sum;
    assert_int_equal(gw_gcomp_histogram_init(&sum, &handle), GW_OK);
    sum.window_start = 0;
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        const uint32_t window = words_of(g, r, piece, words)[0];
        sum.window_start = r != owner && window > sum.window_start ? window : sum.window_start;
    }
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        const uint32_t *own = words_of(g, r, piece, words);
        assert_int_equal(own[1], 0); /* without maps exponents are relative to nothing */
        for (uint32_t i = 0; i < 266 && r != owner && own[0] == sum.window_start; i++) {
            *(i < 256 ? &sum.count[i] : &sum.mask_count[i - 256]) += own[2 + i];
        }
    }
    uint8_t bytes[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_buffer codebook = {.data = bytes, .capacity = sizeof bytes};
    assert_int_equal(gw_gcomp_codebook_build(&sum, &codebook), GW_OK);
    assert_int_equal(gw_gcomp_codebook_install(&handle, 0, generation, bytes, codebook.size, 1), GW_OK);
    return handle;
}

/* Contributions are those of a handle with the same codebook, bit for bit. */
static void check_contributions(const group *g, uint32_t generation, const uint32_t *words)
{
    const size_t bound = (size_t)info_of(g).message_bound;
    uint8_t *bytes = malloc(bound);
    assert_non_null(bytes);
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        for (uint32_t i = 0; i < g->layout.piece_count; i++) {
            if (i / g->layout.shard_pieces == r) {
                continue;
            }
            const gw_gcomp handle = handle_of(g, i, generation, words);
            const gw_collective_bucket bucket = {.layout = &g->layout,
                                                 .codec = &handle,
                                                 .values = g->rank[r].values,
                                                 .rank = r,
                                                 .step_index = 5,
                                                 .seed = group_config(g, r).seed};
            const gw_gcomp_frame sent = sent_frame(g, r, i, generation);
            gw_buffer dst = {.data = bytes, .capacity = bound};
            assert_int_equal(gw_collective_encode(&bucket, i, &dst, &g->workspace), GW_OK);
            assert_int_equal(dst.size, sent.size);
            assert_memory_equal(bytes, sent.data, sent.size);
        }
    }
    free(bytes);
}

static void test_same_as_handle(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        group_setup setup = plain;
        setup.ranks = 2 + i;
        setup.is_explicit = i % 2;
        setup.threads = i;
        group g;
        group_make(&g, &setup);
        run_operation(&g);
        const uint64_t fresh = sent_size(&g, 0);
        uint32_t *words = count_codebooks(&g);
        install_codebooks(&g, 7, words);
        use_codebooks(&g, 7);
        run_operation(&g);
        check_contributions(&g, 7, words);
        assert_true(sent_size(&g, 7) * 100 < fresh * 103); /* the same values */
        free(words);
        group_free(&g);
    }
}

/* Results do not depend on codebooks, whatever the operation; generation after generation. */
static void test_renewed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        group_setup setup = plain;
        setup.ranks = 1 + i % 5;
        setup.threads = i % 3;
        setup.has_maps = i % 2;
        setup.is_explicit = i % 4 == 2;
        setup.contribution_bits = i % 3;
        setup.len = i == 7 ? 1000 : 30000; /* pieces without values */
        setup.flags = i % 8 > 4 ? GW_EXCHANGE_SCATTER : i % 8 == 3 ? GW_EXCHANGE_SAMPLE : 0;
        setup.place = i % 7 == 0 ? PLACE_SAME : PLACE_APART;
        setup.algorithm = i % 3 == 1 ? GW_EXCHANGE_RING : GW_EXCHANGE_A2A;
        setup.seed = i;
        group g;
        group_make(&g, &setup);
        if (setup.has_maps) {
            group_build_maps(&g);
        }
        run_operation(&g);
        (void)sent_size(&g, 0);
        for (uint32_t generation = 1; generation < 4; generation++) {
            renew(&g, generation);
            if (setup.has_maps && generation == 2) {
                group_build_maps(&g);
            }
            run_operation(&g);
            (void)sent_size(&g, generation);
        }
        gw_exchange_stats stats;
        gw_exchange_stats_get(g.rank[0].exchange, &stats);
        assert_int_equal(stats.operations, 4);
        assert_true(stats.codebooks_ns > 0);
        assert_int_equal(stats.sample_square > 0, setup.flags == GW_EXCHANGE_SAMPLE && setup.ranks > 1);
        use_codebooks(&g, 0);
        run_operation(&g);
        (void)sent_size(&g, 0);
        use_codebooks(&g, 3); /* still there */
        run_operation(&g);
        (void)sent_size(&g, 3);
        group_free(&g);
    }
}

/* The window of explicit labels holds the largest values, wherever they are: none escapes. */
static void test_window(void **state)
{
    (void)state;
    group_setup setup = plain;
    setup.ranks = 2;
    setup.len = 8192; /* a piece of four chunks for each rank */
    setup.chunk_log2 = 10;
    setup.is_explicit = 1;
    group g;
    group_make(&g, &setup);
    for (uint64_t i = 0; i < setup.len; i++) {
        g.rank[0].values[i] *= i % 4096 < 3072 ? 0x1p-80f : 1;
        g.rank[1].values[i] *= i % 4096 < 3072 ? 0x1p-80f : 1;
    }
    run_operation(&g);
    uint32_t *words = count_codebooks(&g);
    const size_t len = (size_t)info_of(&g).codebook_word_count;
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t *own = words + r * len + (size_t)i * GW_EXCHANGE_CODEBOOK_WORDS;
            uint64_t labels = 0;
            for (uint32_t k = 2; k < 256; k++) {
                labels += own[2 + k];
            }
            assert_true(labels >= 1000); /* those of the last chunk, of the others none */
            assert_true(own[2 + 1] >= 3000 && own[2 + 1] <= 3072);
        }
    }
    free(words);
    group_free(&g);
}

/* Ranks whose labels are of another window are left out, and the codebook stays the one of the others. */
static void test_pool(void **state)
{
    (void)state;
    group_setup setup = plain;
    setup.is_explicit = 1;
    group g;
    group_make(&g, &setup);
    run_operation(&g);
    uint32_t *words = count_codebooks(&g);
    const size_t len = (size_t)info_of(&g).codebook_word_count;
    gw_exchange *exchange = g.rank[0].exchange;
    uint32_t *other = words + len; /* of rank 1, its contribution to the first piece */
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_OK);
    const uint32_t all = (uint32_t)gw_exchange_codebooks_stamp(exchange);
    other[0] -= 1; /* its window is below that of rank 2 */
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_OK);
    const uint32_t without = (uint32_t)gw_exchange_codebooks_stamp(exchange);
    memset(other + 2, 0, (GW_EXCHANGE_CODEBOOK_WORDS - 2) * sizeof *other);
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_OK);
    assert_int_equal((uint32_t)gw_exchange_codebooks_stamp(exchange), without);
    assert_true(all != without);
    free(words);
    group_free(&g);
}

/* ------------ ranks that differ ------------ */

static void check_retry(const group *g)
{
    uint64_t worst = 0;
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        worst = g->rank[r].word > worst ? g->rank[r].word : worst;
    }
    gw_collective_failure failure;
    gw_collective_word_read(worst, &failure);
    assert_int_equal(failure.status, GW_ERR_TABLE);
    assert_int_equal(gw_collective_word_outcome(worst), GW_COLLECTIVE_RETRY);
}

/* A rank with other codebooks of the same generation, an older generation, or none: the operation ends with a
 * status that all can repeat it after, and the repetition is right. */
static void test_differs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        group_setup setup = plain;
        setup.has_maps = i % 2;
        setup.threads = i % 3;
        setup.seed = i;
        group g;
        group_make(&g, &setup);
        if (setup.has_maps) {
            group_build_maps(&g);
        }
        run_operation(&g);
        renew(&g, 1);
        run_operation(&g);
        uint32_t *words = count_codebooks(&g);
        install_codebooks(&g, 2, words);
        gw_exchange *other = g.rank[1].exchange;
        use_codebooks(&g, 2);
        if (i % 3 == 0) {
            words[2 + 40] += 100000; /* of rank 0 */
            assert_int_equal(gw_exchange_codebooks_install(other, 3, words), GW_OK);
            assert_true((uint32_t)gw_exchange_codebooks_stamp(other) !=
                        (uint32_t)gw_exchange_codebooks_stamp(g.rank[0].exchange));
            words[2 + 40] -= 100000;
            assert_int_equal(gw_exchange_codebooks_install(g.rank[0].exchange, 3, words), GW_OK);
            assert_int_equal(gw_exchange_codebooks_install(g.rank[2].exchange, 3, words), GW_OK);
            use_codebooks(&g, 3);
        } else if (i % 3 == 1) {
            assert_int_equal(gw_exchange_codebooks_install(other, 9, words), GW_OK);
            assert_int_equal(gw_exchange_codebooks_use(other, 9), GW_OK);
        } else {
            assert_int_equal(gw_exchange_codebooks_use(other, 0), GW_OK);
        }
        free(words);
        group_start(&g);
        assert_true(group_pump(&g, 0));
        check_retry(&g);
        use_codebooks(&g, 0);
        run_operation(&g);
        group_free(&g);
    }
}

/* A stop while labels are being counted. */
static void test_stop(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        group_setup setup = plain;
        setup.threads = i % 4;
        setup.has_maps = i % 2;
        setup.seed = i;
        group g;
        group_make(&g, &setup);
        if (setup.has_maps) {
            group_build_maps(&g);
        }
        run_operation(&g);
        for (uint32_t r = 0; r < setup.ranks; r++) {
            assert_int_equal(gw_exchange_codebooks_count(g.rank[r].exchange), GW_OK);
            assert_int_equal(gw_exchange_codebooks_use(g.rank[r].exchange, 0), GW_ERR_STATE); /* it is busy */
        }
        (void)group_pump(&g, 1 + i);
        for (uint32_t r = 0; r < setup.ranks; r++) {
            group_stop(&g, r);
            assert_int_equal(gw_exchange_codebooks_count(g.rank[r].exchange), GW_ERR_STATE);
            assert_int_equal(gw_exchange_codebooks_use(g.rank[r].exchange, 0), GW_ERR_STATE);
        }
        group_free(&g);
    }
}

/* ------------ arguments ------------ */

static void run_nothing(void *context, gw_exchange_step *step, const gw_workspace *workspace)
{
    (void)context;
    (void)step;
    (void)workspace;
}

static uint64_t size_of_nothing(void *context, gw_runtime_event_kind kind, uint32_t piece)
{
    (void)context;
    (void)kind;
    (void)piece;
    return 64;
}

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

static void test_without(void **state)
{
    (void)state;
    group_setup setup = plain;
    setup.has_codebooks = 0;
    group g;
    group_make(&g, &setup);
    gw_exchange *exchange = g.rank[0].exchange, *bad;
    uint32_t words[GW_EXCHANGE_CODEBOOK_WORDS] = {0};
    assert_int_equal(info_of(&g).codebook_word_count, 0);
    run_operation(&g);
    assert_int_equal(gw_exchange_codebooks_count(exchange), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_words(exchange, words), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_use(exchange, 0), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_stamp(exchange), 0);
    gw_exchange_config config = group_config(&g, 0);
    config.codebooks = 2;
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config.codebooks = 1; /* messages do not stay where they are */
    config.buffers = (gw_exchange_buffers){.take = take_nothing, .release = release_nothing};
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    config = group_config(&g, 0);
    config.steps =
        (gw_exchange_steps){.run = run_nothing, .message_size = size_of_nothing, .message_bound = 64};
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_OK);
    gw_exchange_close(bad);
    config.codebooks = 1; /* messages of another kind */
    assert_int_equal(gw_exchange_open(g.runtime, &config, &bad), GW_ERR_ARG);
    group_free(&g);
}

static void test_states(void **state)
{
    (void)state;
    group_setup setup = plain;
    setup.has_maps = 1;
    group g;
    group_make(&g, &setup);
    gw_exchange *exchange = g.rank[0].exchange;
    const size_t len = (size_t)info_of(&g).codebook_word_count;
    assert_int_equal(len, (size_t)g.layout.piece_count * GW_EXCHANGE_CODEBOOK_WORDS);
    uint32_t *own = malloc(len * sizeof *own);
    assert_non_null(own);
    assert_int_equal(gw_exchange_codebooks_count(NULL), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_words(exchange, NULL), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_count(exchange), GW_ERR_STATE); /* nothing was sent */
    assert_int_equal(gw_exchange_codebooks_words(exchange, own), GW_ERR_STATE);
    assert_int_equal(own[0] | own[len - 1], 0);
    group_build_maps(&g);
    run_operation(&g);
    group_build_maps(&g);
    assert_int_equal(gw_exchange_codebooks_count(exchange), GW_ERR_STATE); /* frames of another map */
    g.setup.flags = GW_EXCHANGE_FALLBACK;
    run_operation(&g);
    assert_int_equal(gw_exchange_codebooks_count(exchange), GW_ERR_STATE); /* frames of another codec */
    g.setup.flags = 0;
    run_operation(&g);
    assert_int_equal(gw_exchange_codebooks_use(exchange, 0), GW_OK);
    assert_int_equal(gw_exchange_codebooks_count(exchange), GW_ERR_STATE); /* frames of other handles */
    run_operation(&g);
    uint32_t *words = count_codebooks(&g);
    assert_int_equal(gw_exchange_codebooks_install(exchange, 0, words), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_use(exchange, 1), GW_ERR_TABLE);
    words[2 * len] = 300; /* no window */
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_ERR_ARG);
    words[2 * len] = 0;
    words[2 * len + 1] = 2; /* no kind of exponents */
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_ERR_ARG);
    words[2 * len + 1] = words[len + 1];
    assert_int_equal(gw_exchange_codebooks_stamp(exchange), 0);
    install_codebooks(&g, 1, words);
    use_codebooks(&g, 1);
    /* A generation that is in use is refused, and then nothing is installed besides it. */
    assert_int_equal(gw_exchange_codebooks_install(exchange, 2, words), GW_OK);
    assert_int_equal(gw_exchange_codebooks_install(exchange, 1, words), GW_ERR_ARG);
    assert_int_equal(gw_exchange_codebooks_stamp(exchange), 0);
    assert_int_equal(gw_exchange_codebooks_use(exchange, 2), GW_ERR_TABLE);
    use_codebooks(&g, 1);
    /* The fallback codec has no use for them. */
    g.setup.flags = GW_EXCHANGE_FALLBACK;
    run_operation(&g);
    (void)sent_size(&g, 0);
    free(own);
    free(words);
    group_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_handle), cmocka_unit_test(test_renewed), cmocka_unit_test(test_window),
        cmocka_unit_test(test_pool),           cmocka_unit_test(test_differs), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_without),        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests_name("codebooks", tests, NULL, NULL);
}
