/*
 * Agreement: status words and map words of many ranks, reduced by integer maxima.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"
#include "gradwire/collective.h"

enum { RANKS = 5, WORDS = GW_COLLECTIVE_MAP_WORDS };

static const gw_status all_statuses[] = {
    GW_ERR_ARG,   GW_ERR_OPTION,   GW_ERR_DST,      GW_ERR_WORKSPACE,   GW_ERR_STATE,      GW_ERR_SHORT,
    GW_ERR_MAGIC, GW_ERR_VERSION,  GW_ERR_LIMIT,    GW_ERR_UNSUPPORTED, GW_ERR_HEADER,     GW_ERR_TABLE,
    GW_ERR_MAP,   GW_ERR_TRAILING, GW_ERR_CORRUPT,  GW_ERR_CHECKSUM,    GW_ERR_NONFINITE,  GW_ERR_MISMATCH,
    GW_ERR_ROUND, GW_ERR_DUP,      GW_ERR_OVERFLOW, GW_ERR_DEVICE,      GW_ERR_INFEASIBLE,
};

static void test_word_keeps_what_it_is_given(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {0, 1, 1000, GW_COLLECTIVE_RANKS_MAX - 1, UINT32_MAX};
    static const uint32_t pieces[] = {0, 77, 0x7fffffff, UINT32_MAX};
    for (size_t i = 0; i < TEST_ARRAY_LEN(all_statuses) * 5 * 4 * 8; i++) {
        const gw_collective_failure in = {.status = all_statuses[i / 160],
                                          .rank = ranks[i / 32 % 5],
                                          .piece = pieces[i / 8 % 4],
                                          .difference = (uint32_t)i % 8,
                                          .bad_chunk = 5};
        gw_collective_failure out;
        const uint64_t word = gw_collective_word_write(&in);
        assert_true(word != 0 && word >> 63 == 0); /* the same maximum over signed integers */
        memset(&out, 0xff, sizeof out);
        gw_collective_word_read(word, &out);
        assert_int_equal(out.status, in.status);
        assert_int_equal(out.rank, in.rank);
        assert_int_equal(out.piece, in.piece);
        assert_int_equal(out.difference, in.status == GW_ERR_MAP ? in.difference : 0);
        assert_true(out.bad_chunk == UINT64_MAX);
        const int can_retry = in.status == GW_ERR_MAP || in.status == GW_ERR_TABLE;
        assert_int_equal(gw_collective_word_outcome(word),
                         can_retry ? GW_COLLECTIVE_RETRY : GW_COLLECTIVE_FAIL);
    }
}

static void test_success_is_zero(void **state)
{
    (void)state;
    const gw_collective_failure in = {
        .status = GW_OK, .rank = 3, .piece = 4, .difference = 7, .bad_chunk = UINT64_MAX};
    gw_collective_failure out;
    assert_true(gw_collective_word_write(&in) == 0);
    memset(&out, 0xff, sizeof out);
    gw_collective_word_read(0, &out);
    assert_int_equal(out.status, GW_OK);
    assert_int_equal(out.rank, 0);
    assert_int_equal(out.piece, 0);
    assert_int_equal(out.difference, 0);
    assert_true(out.bad_chunk == UINT64_MAX);
    assert_int_equal(gw_collective_word_outcome(0), GW_COLLECTIVE_DONE);
}

/* Ranks and statuses of a damaged notice must not change the outcome of a word. */
static void test_failure_out_of_range(void **state)
{
    (void)state;
    gw_collective_failure out, in = {.status = (gw_status)0x7fffff17, .rank = 70000, .piece = 1};
    uint64_t word = gw_collective_word_write(&in);
    assert_int_equal(gw_collective_word_outcome(word), GW_COLLECTIVE_FAIL);
    gw_collective_word_read(word, &out);
    assert_int_equal(out.status, GW_ERR_CORRUPT);
    assert_int_equal(out.rank, UINT32_MAX);
    in = (gw_collective_failure){.status = GW_ERR_MAP, .rank = 65535, .difference = UINT32_MAX};
    word = gw_collective_word_write(&in);
    assert_int_equal(gw_collective_word_outcome(word), GW_COLLECTIVE_RETRY);
    gw_collective_word_read(word, &out);
    assert_int_equal(out.rank, UINT32_MAX);
    assert_int_equal(out.difference, 7);
    assert_int_equal(gw_collective_word_outcome(gw_collective_word_write(NULL)), GW_COLLECTIVE_FAIL);
    gw_collective_word_read(1, NULL);
}

/* No rank retries while another one has failed for good. */
static void test_fail_is_above_retry(void **state)
{
    (void)state;
    const gw_collective_failure retry = {
        .status = GW_ERR_MAP, .rank = UINT32_MAX, .piece = UINT32_MAX, .difference = 7};
    for (size_t i = 0; i < TEST_ARRAY_LEN(all_statuses); i++) {
        const gw_collective_failure other = {.status = all_statuses[i]};
        if (other.status != GW_ERR_MAP && other.status != GW_ERR_TABLE) {
            assert_true(gw_collective_word_write(&other) > gw_collective_word_write(&retry));
        }
    }
}

static void test_hostile_words(void **state)
{
    (void)state;
    test_random random = {1};
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        /* Random words, and words that are right but for one bit. */
        uint64_t word = test_random_u64(&random);
        if (i % 2 == 0) {
            const gw_collective_failure failure = {
                .status = GW_ERR_MAP, .rank = 3, .piece = 4, .difference = 1};
            word = gw_collective_word_write(&failure) ^ (uint64_t)1 << (word % 64);
        }
        gw_collective_failure out;
        gw_collective_word_read(word, &out);
        const gw_collective_outcome outcome = gw_collective_word_outcome(word);
        assert_int_not_equal(out.status, GW_OK); /* none of these is 0 */
        assert_int_not_equal(outcome, GW_COLLECTIVE_DONE);
        if (gw_collective_word_write(&out) == word) {
            accepted++;
            assert_int_equal(outcome == GW_COLLECTIVE_RETRY,
                             out.status == GW_ERR_MAP || out.status == GW_ERR_TABLE);
        } else {
            assert_int_equal(out.status, GW_ERR_CORRUPT);
            assert_int_equal(outcome, GW_COLLECTIVE_FAIL);
        }
    }
    assert_true(accepted > 1000 && accepted < 100000); /* both kinds were seen */
}

/* One map per rank; the layout has pieces that use fewer digests than there is room for, and empty ones. */
typedef struct cluster {
    gw_collective_layout layout;
    gw_collective_map maps[RANKS];
    uint64_t digest_len;
} cluster;

static void digest_rank(cluster *ranks, size_t r)
{
    for (uint32_t i = 0; i < ranks->layout.piece_count; i++) {
        gw_collective_piece piece;
        assert_int_equal(gw_collective_piece_at(&ranks->layout, i, &piece), GW_OK);
        assert_int_equal(gw_gcomp_map_digest(ranks->maps[r].bytes + piece.first, (size_t)piece.len, 12,
                                             ranks->maps[r].digest + piece.digest_first),
                         GW_OK);
    }
}

static void ranks_make(cluster *ranks)
{
    const gw_collective_shape shape = {
        .len = 50001, .rank_count = 3, .chunk_log2 = 12, .shard_len = 24000, .piece_len = 10000};
    assert_int_equal(gw_collective_layout_init(&ranks->layout, &shape), GW_OK);
    ranks->digest_len = gw_collective_digest_len(&ranks->layout);
    assert_int_equal(ranks->digest_len, 27);
    for (size_t r = 0; r < RANKS; r++) {
        test_random random = {9};
        uint8_t *map_bytes = malloc((size_t)shape.len);
        uint32_t *digest = malloc((size_t)ranks->digest_len * sizeof *digest);
        assert_true(map_bytes != NULL && digest != NULL);
        for (size_t i = 0; i < shape.len; i++) {
            map_bytes[i] = (uint8_t)test_random_below(&random, 256);
        }
        for (size_t i = 0; i < ranks->digest_len; i++) {
            digest[i] = (uint32_t)(1000 * r + i); /* what is not used differs */
        }
        ranks->maps[r] = (gw_collective_map){map_bytes, digest, 300, 4.0f};
        digest_rank(ranks, r);
    }
}

static void ranks_free(cluster *ranks)
{
    for (size_t r = 0; r < RANKS; r++) {
        free(ranks->maps[r].bytes);
        free(ranks->maps[r].digest);
    }
}

/* The all-reduce: the mask that every rank sees. Signed and unsigned maxima agree. */
static uint32_t differs(const cluster *ranks, const gw_collective_layout *other_layout)
{
    uint64_t sum[WORDS] = {0}, words[WORDS];
    int64_t signed_sum[WORDS];
    uint64_t as_unsigned[WORDS];
    for (size_t r = 0; r < RANKS; r++) {
        const gw_collective_layout *layout = r == 2 && other_layout != NULL ? other_layout : &ranks->layout;
        assert_int_equal(gw_collective_map_words(layout, &ranks->maps[r], words), GW_OK);
        for (size_t i = 0; i < WORDS; i++) {
            int64_t word;
            memcpy(&word, &words[i], sizeof word);
            sum[i] = words[i] > sum[i] ? words[i] : sum[i];
            signed_sum[i] = r == 0 || word > signed_sum[i] ? word : signed_sum[i];
        }
    }
    memcpy(as_unsigned, signed_sum, sizeof as_unsigned);
    assert_int_equal(gw_collective_map_differs(as_unsigned), gw_collective_map_differs(sum));
    return gw_collective_map_differs(sum);
}

/* The first chunk from `start` on that the reduced pairs show. */
static uint64_t different_chunk(const cluster *ranks, uint64_t start)
{
    const size_t count = 2 * (size_t)ranks->digest_len;
    test_buffer pairs, sum;
    test_buffer_make(&pairs, count * 4, 4, 0xcc);
    test_buffer_make(&sum, count * 4, 4, 0);
    for (size_t r = 0; r < RANKS; r++) {
        uint32_t *from = (uint32_t *)(void *)pairs.at, *to = (uint32_t *)(void *)sum.at;
        assert_int_equal(gw_collective_map_pairs(&ranks->layout, &ranks->maps[r], from), GW_OK);
        for (size_t i = 0; i < count; i++) {
            to[i] = from[i] > to[i] ? from[i] : to[i];
        }
    }
    const uint64_t chunk =
        gw_collective_map_chunk(&ranks->layout, (const uint32_t *)(const void *)sum.at, start);
    test_buffer_free(&pairs);
    test_buffer_free(&sum);
    return chunk;
}

static void test_maps_agree(void **state)
{
    (void)state;
    cluster ranks;
    ranks_make(&ranks);
    assert_int_equal(differs(&ranks, NULL), 0);
    assert_true(different_chunk(&ranks, 0) == UINT64_MAX);
    ranks_free(&ranks);
}

static void test_base_and_scale_differ(void **state)
{
    (void)state;
    cluster ranks;
    ranks_make(&ranks);
    for (size_t r = 0; r < RANKS; r++) {
        ranks.maps[r].base = 301;
        assert_int_equal(differs(&ranks, NULL), GW_COLLECTIVE_BASE);
        ranks.maps[r].wire_scale = 8.0f;
        assert_int_equal(differs(&ranks, NULL), GW_COLLECTIVE_BASE | GW_COLLECTIVE_SCALE);
        ranks.maps[r].base = 300;
        assert_int_equal(differs(&ranks, NULL), GW_COLLECTIVE_SCALE);
        ranks.maps[r].wire_scale = 4.0f;
        assert_int_equal(differs(&ranks, NULL), 0);
    }
    ranks_free(&ranks);
}

static void test_one_byte_differs(void **state)
{
    (void)state;
    /* value -> chunk: three pieces of 3 digests a shard, shards at 0, 24000, 48000 */
    static const struct {
        size_t value;
        uint64_t chunk;
    } cases[] = {{0, 0},     {4095, 0},   {4096, 1},   {9999, 2},   {10000, 3},  {23999, 6},
                 {24000, 9}, {43999, 14}, {44000, 15}, {47999, 15}, {48000, 18}, {50000, 18}};
    cluster ranks;
    ranks_make(&ranks);
    for (size_t i = 0; i < TEST_ARRAY_LEN(cases); i++) {
        const size_t r = i % RANKS;
        ranks.maps[r].bytes[cases[i].value] ^= (uint8_t)(1u << i % 8);
        digest_rank(&ranks, r);
        assert_int_equal(differs(&ranks, NULL), GW_COLLECTIVE_MAP_BYTES);
        assert_int_equal(different_chunk(&ranks, 0), cases[i].chunk);
        assert_int_equal(different_chunk(&ranks, cases[i].chunk), cases[i].chunk);
        assert_true(different_chunk(&ranks, cases[i].chunk + 1) == UINT64_MAX);
        ranks.maps[r].bytes[cases[i].value] ^= (uint8_t)(1u << i % 8);
        digest_rank(&ranks, r);
    }
    assert_int_equal(differs(&ranks, NULL), 0);
    ranks_free(&ranks);
}

static void test_layouts_differ(void **state)
{
    (void)state;
    cluster ranks;
    gw_collective_layout other;
    ranks_make(&ranks);
    gw_collective_shape shape = ranks.layout.shape;
    shape.piece_len = 12000;
    assert_int_equal(gw_collective_layout_init(&other, &shape), GW_OK);
    assert_int_equal(differs(&ranks, &other), GW_COLLECTIVE_MAP_BYTES);
    ranks_free(&ranks);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    cluster ranks;
    uint64_t words[WORDS] = {1, 2, 3, 4, 5, 6};
    uint32_t pairs[54];
    ranks_make(&ranks);
    const gw_collective_layout *layout = &ranks.layout;
    gw_collective_map no_digest = ranks.maps[0];
    no_digest.digest = NULL;
    assert_int_equal(gw_collective_map_words(NULL, &ranks.maps[0], words), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_words(layout, NULL, words), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_words(layout, &no_digest, words), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_words(layout, &ranks.maps[0], NULL), GW_ERR_ARG);
    assert_int_equal(words[0], 1);
    assert_int_equal(gw_collective_map_pairs(NULL, &ranks.maps[0], pairs), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_pairs(layout, NULL, pairs), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_pairs(layout, &no_digest, pairs), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_pairs(layout, &ranks.maps[0], NULL), GW_ERR_ARG);
    assert_true(gw_collective_map_chunk(NULL, pairs, 0) == UINT64_MAX);
    assert_true(gw_collective_map_chunk(layout, NULL, 0) == UINT64_MAX);
    assert_true(gw_collective_map_chunk(layout, pairs, 27) == UINT64_MAX);
    assert_true(gw_collective_map_chunk(layout, pairs, UINT64_MAX) == UINT64_MAX);
    assert_int_equal(gw_collective_map_differs(NULL), 7);
    ranks_free(&ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_word_keeps_what_it_is_given),
        cmocka_unit_test(test_success_is_zero),
        cmocka_unit_test(test_failure_out_of_range),
        cmocka_unit_test(test_fail_is_above_retry),
        cmocka_unit_test(test_hostile_words),
        cmocka_unit_test(test_maps_agree),
        cmocka_unit_test(test_base_and_scale_differ),
        cmocka_unit_test(test_one_byte_differs),
        cmocka_unit_test(test_layouts_differ),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
