/*
 * A compressed all-reduce of simulated ranks: every frame and value is that of the codec's own calls, and all
 * ranks hold the same bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective_world.h"

static const uint32_t rank_counts[] = {1, 2, 3, 4, 5, 8, 16};
static const gw_gcomp_levels all_levels[] = {GW_GCOMP_EXPLICIT, GW_GCOMP_DERIVED, GW_GCOMP_CARRIED};

/* The piece's finished frame in w->finished, checked against the definition. */
static gw_gcomp_frame reduce_piece(world *w, uint32_t index)
{
    const gw_collective_piece piece = world_piece(w, index);
    gw_buffer dst = {w->finished.at, w->bound, 99};
    gw_collective_blame blame;
    assert_int_equal(
        gw_collective_reduce(&w->bucket[piece.owner], index, w->messages, &dst, &blame, &w->codec.work),
        GW_OK);
    assert_int_equal(blame.status, GW_OK);
    assert_int_equal(blame.rank, piece.owner);
    assert_int_equal(blame.piece, index);
    assert_true(blame.bad_chunk == UINT64_MAX && blame.difference == 0);
    test_buffer_check(&w->finished);
    if (piece.len == 0) {
        assert_int_equal(dst.size, 0);
        return (gw_gcomp_frame){NULL, 0, NULL};
    }
    uint8_t *sums = malloc(piece.len * w->size);
    assert_non_null(sums);
    world_sum(w, index, sums);
    test_buffer expected;
    assert_int_equal(world_encode(w, index, piece.owner, 1, 0, sums, &expected), dst.size);
    assert_memory_equal(expected.at, dst.data, dst.size);
    test_buffer_free(&expected);
    free(sums);
    return (gw_gcomp_frame){dst.data, dst.size, NULL};
}

/* Decodes a finished piece at every rank, over its values. */
static void decode_piece(world *w, uint32_t index, const gw_gcomp_frame *frame, uint8_t *const *out)
{
    const gw_collective_piece piece = world_piece(w, index);
    for (uint32_t r = 0; r < w->setup.shape.rank_count; r++) {
        gw_gcomp_target target = {.values = out[r] + piece.first * w->size, .capacity = piece.len};
        gw_collective_blame blame;
        assert_int_equal(
            gw_collective_decode(&w->bucket[r], index, piece.owner, frame, &target, &blame, &w->codec.work),
            GW_OK);
        assert_int_equal(target.len, piece.len);
        assert_int_equal(blame.status, GW_OK);
    }
}

/* An all-reduce in place; all ranks have equal bits, those of the codec. */
static void all_reduce(const world_setup *setup)
{
    world w;
    world_make(&w, setup);
    uint8_t *expected = malloc(setup->shape.len * w.size + 1);
    assert_non_null(expected);
    for (uint32_t i = 0; i < w.layout.piece_count; i++) {
        const gw_collective_piece piece = world_piece(&w, i);
        world_send(&w, i);
        const gw_gcomp_frame frame = reduce_piece(&w, i);
        if (piece.len != 0) {
            world_decode(&w, i, &frame, 0, expected + piece.first * w.size);
        }
        decode_piece(&w, i, &frame, w.values);
    }
    for (uint32_t r = 0; r < setup->shape.rank_count; r++) {
        assert_memory_equal(w.values[r], expected, setup->shape.len * w.size);
    }
    free(expected);
    world_free(&w);
}

static void every_rank_count(void **state)
{
    (void)state;
    static const uint64_t lens[] = {0, 1, 64, 63 * 5 + 1, 4097, 33003};
    for (size_t n = 0; n < TEST_ARRAY_LEN(rank_counts); n++) {
        for (size_t i = 0; i < TEST_ARRAY_LEN(lens); i++) {
            world_setup setup = world_setup_of(GW_FP32, all_levels[(n + i) % 3], rank_counts[n], lens[i]);
            setup.options.rounding = GW_GCOMP_STOCHASTIC;
            setup.seed = n * 10 + i;
            setup.contribution_bits = (uint32_t)(i % 3);
            setup.shape.piece_len = i % 2 == 0 ? 0 : 4096 + 100;
            all_reduce(&setup);
            setup.shape.piece_len = 0;
            setup.shape.shard_len = (lens[i] + rank_counts[n] - 1) / rank_counts[n] + 3 * (i % 2);
            all_reduce(&setup);
        }
    }
}

static void every_option(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 3 * 3 * 3 * 2 * 2; c++) {
        world_setup setup =
            world_setup_of((gw_dtype)(1 + c % 3), all_levels[c / 3 % 3], 3 + c % 3, 20000 + c);
        setup.options.rounding = (gw_gcomp_rounding)(c / 9 % 3);
        setup.options.preset = (gw_gcomp_preset)(c / 27 % 2);
        setup.has_map = (int)(c / 54 % 2);
        setup.options.constant_drop = 5;
        setup.options.target_nmse = 1e-3f;
        setup.options.strict = c % 5 == 1;
        setup.options.checksum = c % 4 == 1;
        setup.options.deep_cut = setup.options.levels != GW_GCOMP_EXPLICIT && c % 2 == 1;
        setup.options.tolerance_bits = 8 + c % 16;
        setup.pattern = (test_pattern)(c % PATTERN_COUNT);
        setup.contribution_bits = c % 4;
        setup.seed = c;
        all_reduce(&setup);
    }
}

/* Pieces of several groups: the sums of several frames alternate between two buffers. */
static void long_pieces(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        world_setup setup = world_setup_of(GW_FP32, GW_GCOMP_DERIVED, ranks, (uint64_t)ranks * 140001);
        setup.options.chunk_log2 = setup.shape.chunk_log2 = ranks == 3 ? 15 : 14;
        setup.seed = ranks;
        all_reduce(&setup);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_count),
        cmocka_unit_test(every_option),
        cmocka_unit_test(long_pieces),
    };
    return cmocka_run_group_tests_name("collective exchange", tests, NULL, NULL);
}
