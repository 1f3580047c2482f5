/*
 * A compressed all-reduce of simulated ranks: every frame and value is that of the codec's own calls, and all
 * ranks hold the same bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective_world.h"

static const uint32_t rank_counts[] = {1, 2, 3, 4, 5, 8, 16};
static const gw_gcomp_quantum_mode all_modes[] = {GW_GCOMP_EXPLICIT, GW_GCOMP_DERIVED, GW_GCOMP_CARRIED};

/* The piece's finished frame in w->finished, checked against the definition. */
static gw_gcomp_frame reduce_piece(world *w, uint32_t index)
{
    const gw_collective_piece piece = world_piece(w, index);
    gw_buffer dst = {w->finished.at, w->bound, 99};
    gw_collective_failure failure;
    const gw_gcomp_frame *messages = w->setup.shape.rank_count == 1 ? NULL : w->messages;
    assert_int_equal(
        gw_collective_reduce(&w->bucket[piece.owner], index, messages, &dst, &failure, &w->codec.work),
        GW_OK);
    assert_int_equal(failure.status, GW_OK);
    assert_int_equal(failure.rank, piece.owner);
    assert_int_equal(failure.piece, index);
    assert_true(failure.bad_chunk == UINT64_MAX && failure.difference == 0);
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
        gw_collective_failure failure;
        assert_int_equal(gw_collective_decode(&w->bucket[r], index, frame, &target, &failure, &w->codec.work),
                         GW_OK);
        assert_int_equal(target.len, piece.len);
        assert_int_equal(failure.status, GW_OK);
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
    static const uint64_t lens[] = {0, 1, 64, 63 * 5 + 1, 4097, 12003};
    for (size_t n = 0; n < TEST_ARRAY_LEN(rank_counts); n++) {
        for (size_t i = 0; i < TEST_ARRAY_LEN(lens); i++) {
            world_setup setup = world_setup_of(GW_FP32, all_modes[(n + i) % 3], rank_counts[n], lens[i]);
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
        world_setup setup = world_setup_of((gw_dtype)(1 + c % 3), all_modes[c / 3 % 3], 3 + c % 3, 9000 + c);
        setup.options.rounding = (gw_gcomp_rounding)(c / 9 % 3);
        setup.options.preset = (gw_gcomp_preset)(c / 27 % 2);
        setup.has_map = (int)(c / 54 % 2);
        setup.options.quantum = setup.options.quantum_mode == GW_GCOMP_CARRIED
                                    ? gw_gcomp_quantum_of_nmse(1e-3f)
                                    : gw_gcomp_quantum_of_drop(5);
        setup.options.strict = c % 5 == 1;
        setup.options.checksum = c % 4 == 1;
        setup.options.dead_zone = setup.options.quantum_mode != GW_GCOMP_EXPLICIT && c % 2 == 1;
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
    for (uint32_t ranks = 1; ranks <= 4; ranks += 3) {
        world_setup setup = world_setup_of(GW_FP32, GW_GCOMP_DERIVED, ranks, (uint64_t)ranks * 140001);
        setup.options.chunk_log2 = setup.shape.chunk_log2 = ranks == 4 ? 15 : 14;
        setup.seed = ranks;
        all_reduce(&setup);
    }
}

/* values * scale by way of a lossless frame and the codec's scale on decode. */
static void scale_values(const world *w, void *values, size_t len, float scale)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, w->setup.options.dtype);
    o.strict = 1;
    test_codec lossless;
    test_codec_make(&lossless, &o);
    const gw_gcomp_source source = test_source(values, len, NULL);
    test_buffer frame;
    const size_t size = test_encode(&lossless, &source, &frame);
    const gw_gcomp_frame received = {frame.at, size, NULL};
    gw_gcomp_target target = {.values = values, .capacity = len, .scale = scale};
    assert_int_equal(gw_gcomp_decode(&w->codec.codec, &received, &target, &w->codec.work), GW_OK);
    test_buffer_free(&frame);
    test_codec_free(&lossless);
}

static void sums(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 21 * 3; c++) {
        const uint32_t ranks = rank_counts[c % TEST_ARRAY_LEN(rank_counts)];
        world_setup setup = world_setup_of((gw_dtype)(1 + c % 3), all_modes[c / 3 % 3], ranks,
                                           ranks * (c == 2 ? 70000 : 1003));
        setup.pattern = (test_pattern)(c % PATTERN_COUNT);
        setup.options.strict = c % 5 == 2;
        setup.shape.shard_len = setup.shape.len / ranks;
        setup.seed = c;
        const float scale = c % 4 == 0 ? 0 : c % 4 == 1 ? 1 : c % 4 == 2 ? 1.0f / (float)ranks : -3;
        world w;
        world_make(&w, &setup);
        for (uint32_t i = 0; i < w.layout.piece_count; i++) {
            const gw_collective_piece piece = world_piece(&w, i);
            world_send(&w, i);
            uint8_t *expected = malloc(piece.len * w.size + 1);
            assert_non_null(expected);
            world_sum(&w, i, expected);
            if (scale != 0 && scale != 1) {
                scale_values(&w, expected, piece.len, scale);
            }
            test_buffer out;
            test_buffer_make(&out, piece.len * w.size, i, 0x5a);
            uint8_t *own = w.values[piece.owner] + piece.first * w.size;
            gw_collective_failure failure;
            const gw_gcomp_frame *messages = ranks == 1 ? NULL : w.messages;
            for (uint32_t in_place = 0; in_place < 2; in_place++) {
                gw_gcomp_target target = {
                    .values = in_place ? own : out.at, .capacity = piece.len, .scale = scale};
                assert_int_equal(
                    gw_collective_sum(&w.bucket[piece.owner], i, messages, &target, &failure, &w.codec.work),
                    GW_OK);
                assert_int_equal(target.len, piece.len);
                assert_memory_equal(target.values, expected, piece.len * w.size);
            }
            test_buffer_free(&out);
            free(expected);
        }
        world_free(&w);
    }
}

/* Every hop is decode, add and encode, and all ranks decode the same frame. The last one may store the sum.
 */
static void ring_piece(world *w, uint32_t index)
{
    const uint32_t ranks = w->setup.shape.rank_count;
    const gw_collective_piece piece = world_piece(w, index);
    const uint32_t bits = w->setup.options.quantum_mode == GW_GCOMP_EXPLICIT ? 0 : w->setup.contribution_bits;
    gw_gcomp_frame message = {NULL, 0, NULL};
    uint8_t *sums = malloc(2 * piece.len * w->size + 1);
    assert_non_null(sums);
    uint8_t *last = sums + piece.len * w->size;
    for (uint32_t hop = 0; hop < ranks; hop++) {
        const uint32_t rank = (piece.owner + 1 + hop) % ranks;
        assert_int_equal(gw_collective_ring_shard(ranks, rank, hop), piece.owner);
        gw_collective_failure failure;
        gw_buffer dst = {w->sent[rank].at, w->bound, 99};
        assert_int_equal(gw_collective_hop(&w->bucket[rank], index, hop == 0 ? NULL : &message, &dst,
                                           &failure, &w->codec.work),
                         GW_OK);
        test_buffer_check(&w->sent[rank]);
        const uint8_t *own = w->values[rank] + piece.first * w->size;
        if (hop != 0) {
            world_decode(w, index, &message, bits, sums);
        }
        for (uint64_t i = 0; i < piece.len; i++) {
            const gw_dtype dtype = w->setup.options.dtype;
            const uint32_t value = test_get(own, dtype, i);
            test_put(sums, dtype, i,
                     hop == 0 ? value : test_model_add(dtype, test_get(sums, dtype, i), value, 0));
        }
        gw_gcomp_target target = {.values = last, .capacity = piece.len};
        const gw_status stored = gw_collective_hop_sum(&w->bucket[rank], index, hop == 0 ? NULL : &message,
                                                       &target, &failure, &w->codec.work);
        assert_int_equal(stored, hop + 1 == ranks ? GW_OK : GW_ERR_ARG);
        assert_true(hop + 1 < ranks || memcmp(last, sums, piece.len * w->size) == 0);
        test_buffer expected;
        assert_int_equal(world_encode(w, index, rank, hop, hop + 1 == ranks ? 0 : bits, sums, &expected),
                         dst.size);
        assert_memory_equal(expected.at, dst.data, dst.size);
        test_buffer_free(&expected);
        message = (gw_gcomp_frame){dst.data, dst.size, NULL};
    }
    decode_piece(w, index, &message, w->values);
    free(sums);
}

static void ring(void **state)
{
    (void)state;
    for (size_t n = 0; n < TEST_ARRAY_LEN(rank_counts); n++) {
        for (uint32_t c = 0; c < 3; c++) {
            world_setup setup = world_setup_of((gw_dtype)(1 + (n + c) % 3), all_modes[c], rank_counts[n],
                                               rank_counts[n] * 4999 + 1);
            setup.options.rounding = GW_GCOMP_STOCHASTIC;
            setup.contribution_bits = c;
            setup.seed = n;
            world w;
            world_make(&w, &setup);
            for (uint32_t i = 0; i < w.layout.piece_count; i++) {
                ring_piece(&w, i);
            }
            for (uint32_t r = 1; r < rank_counts[n]; r++) {
                assert_memory_equal(w.values[r], w.values[0], setup.shape.len * w.size);
            }
            world_free(&w);
        }
    }
}

/* What rank 0 sends of the last `len` values of a bucket with these streams, decoded. */
static void send_tail(const world_setup *setup, const gw_gcomp_segment *streams, size_t count,
                      const void *values, uint64_t len, uint8_t *out)
{
    world w;
    world_make(&w, setup);
    const uint64_t before = setup->shape.len - len;
    memcpy(w.values[0] + before * w.size, values, len * w.size);
    w.bucket[0].streams = streams;
    w.bucket[0].stream_count = count;
    uint8_t *all = malloc(setup->shape.len * w.size);
    assert_non_null(all);
    for (uint32_t i = 0; i < w.layout.piece_count; i++) {
        const gw_collective_piece piece = world_piece(&w, i);
        gw_buffer dst = {w.sent[0].at, w.bound, 0};
        assert_int_equal(gw_collective_encode(&w.bucket[0], i, &dst, &w.codec.work), GW_OK);
        const gw_gcomp_frame frame = {dst.data, dst.size, NULL};
        world_decode(&w, i, &frame, 0, all + piece.first * w.size);
    }
    memcpy(out, all + before * w.size, len * w.size);
    free(all);
    world_free(&w);
}

/* A value's bits depend on its parameter's stream, not on the bucket that it travels in. */
static void streams(void **state)
{
    (void)state;
    enum { LEN = 20011 };
    uint8_t *values = malloc(LEN * 4), *out[3] = {malloc(LEN * 4), malloc(LEN * 4), malloc(LEN * 4)};
    assert_true(values != NULL && out[0] != NULL && out[1] != NULL && out[2] != NULL);
    const gw_gcomp_segment parts[] = {{1, 0, 4099}, {0, 0, 13}, {2, 500, 15000}, {99, 7, LEN}};
    const gw_gcomp_segment halves[] = {{5, 3, 1}, {99, 7, 10000}, {99, 10007, LEN - 10000}};
    for (uint32_t c = 0; c < 6; c++) {
        const gw_dtype dtype = (gw_dtype)(1 + c % 3);
        test_fill_values(values, dtype, LEN, PATTERN_GRADIENT, c);
        world_setup setup =
            world_setup_of(dtype, c < 3 ? GW_GCOMP_EXPLICIT : GW_GCOMP_DERIVED, 3, 4099 + 13 + 15000 + LEN);
        setup.has_map = 0;
        setup.options.quantum = gw_gcomp_quantum_of_drop(6);
        setup.options.rounding = GW_GCOMP_STOCHASTIC;
        setup.shape.piece_len = 4096 + 64 * c;
        send_tail(&setup, parts, 4, values, LEN, out[0]);
        setup.shape.rank_count = 4;
        setup.shape.piece_len = 0;
        setup.shape.len = LEN;
        send_tail(&setup, &parts[3], 1, values, LEN, out[1]);
        setup.shape.len = LEN + 1;
        send_tail(&setup, halves, 3, values, LEN, out[2]);
        assert_memory_equal(out[0], out[1], LEN * gw_dtype_size(dtype));
        assert_memory_equal(out[0], out[2], LEN * gw_dtype_size(dtype));
        assert_memory_not_equal(out[0], values, LEN * gw_dtype_size(dtype)); /* it is rounded at all */
    }
    /* Streams that end before the bucket does. */
    world_setup setup = world_setup_of(GW_FP32, GW_GCOMP_EXPLICIT, 2, LEN + 1);
    world w;
    world_make(&w, &setup);
    w.bucket[0].streams = &parts[3];
    w.bucket[0].stream_count = 1;
    gw_buffer dst = {w.sent[0].at, w.bound, 0};
    assert_int_equal(gw_collective_encode(&w.bucket[0], 0, &dst, &w.codec.work), GW_OK);
    assert_int_equal(gw_collective_encode(&w.bucket[0], 1, &dst, &w.codec.work), GW_ERR_ARG);
    world_free(&w);
    free(values);
    for (uint32_t i = 0; i < 3; i++) {
        free(out[i]);
    }
}

/* Every backend makes the bytes and sums of scalar. */
static void backends(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 9; c++) {
        world_setup setup = world_setup_of((gw_dtype)(1 + c % 3), all_modes[c / 3], 5, 5 * 17011);
        setup.pattern = PATTERN_SPECIAL;
        setup.options.backends = GW_BACKEND_SCALAR;
        world w;
        world_make(&w, &setup);
        world_send(&w, 2);
        const gw_collective_piece piece = world_piece(&w, 2);
        const gw_gcomp_frame scalar = reduce_piece(&w, 2);
        uint8_t *expected = malloc(piece.len * w.size), *sum = malloc(piece.len * w.size);
        assert_true(expected != NULL && sum != NULL);
        world_sum(&w, 2, expected);
        test_buffer finished;
        test_buffer_make(&finished, w.bound, 1, 0);
        for (uint32_t bit = 1; bit != 0; bit <<= 1) {
            if ((gw_backends_available() & bit) == 0) {
                continue;
            }
            gw_gcomp_options o = setup.options;
            o.backends = bit | GW_BACKEND_SCALAR;
            test_codec codec;
            test_codec_make(&codec, &o);
            gw_collective_bucket bucket = w.bucket[2];
            bucket.codec = &codec.codec;
            gw_buffer dst = {finished.at, w.bound, 0};
            gw_collective_failure failure;
            assert_int_equal(gw_collective_reduce(&bucket, 2, w.messages, &dst, &failure, &codec.work),
                             GW_OK);
            assert_int_equal(dst.size, scalar.size);
            assert_memory_equal(dst.data, scalar.data, scalar.size);
            gw_gcomp_target target = {.values = sum, .capacity = piece.len};
            assert_int_equal(gw_collective_sum(&bucket, 2, w.messages, &target, &failure, &codec.work),
                             GW_OK);
            assert_memory_equal(sum, expected, piece.len * w.size);
            test_codec_free(&codec);
        }
        test_buffer_free(&finished);
        free(expected);
        free(sum);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_count),
        cmocka_unit_test(every_option),
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(sums),
        cmocka_unit_test(ring),
        cmocka_unit_test(streams),
        cmocka_unit_test(backends),
    };
    return cmocka_run_group_tests_name("collective exchange", tests, NULL, NULL);
}
