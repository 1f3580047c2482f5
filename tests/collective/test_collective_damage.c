/*
 * Messages that are damaged, of another piece or map, or notices; arguments that are wrong: the status, who
 * is at fault, and nothing written elsewhere.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective_world.h"

enum { OWNER = 1, RANKS = 4 };

static world_setup setup_of(gw_gcomp_quantum_mode quantum_mode)
{
    world_setup setup = world_setup_of(GW_FP32, quantum_mode, RANKS, RANKS * 30016);
    setup.options.checksum = 1;
    setup.options.preset = GW_GCOMP_SMALL; /* a chunk does not need another one's codebook */
    setup.contribution_bits = 1;
    setup.seed = 3;
    return setup;
}

/* Both forms of the owner's step fail with this failure and leave no trace. */
static void expect_failure(world *w, gw_status status, uint32_t rank, uint32_t difference)
{
    gw_collective_failure failure;
    gw_buffer dst = {w->finished.at, w->bound, 99};
    assert_int_equal(
        gw_collective_reduce(&w->bucket[OWNER], OWNER, w->messages, &dst, &failure, &w->codec.work), status);
    assert_int_equal(dst.size, 0);
    assert_int_equal(failure.status, status);
    assert_int_equal(failure.rank, rank);
    assert_int_equal(failure.piece, OWNER);
    assert_int_equal(failure.difference, difference);
    test_buffer_check(&w->finished);
    const gw_collective_piece piece = world_piece(w, OWNER);
    test_buffer out;
    test_buffer_make(&out, piece.len * w->size, 3, 0x5a);
    gw_gcomp_target target = {.values = out.at, .capacity = piece.len, .len = 99};
    assert_int_equal(
        gw_collective_sum(&w->bucket[OWNER], OWNER, w->messages, &target, &failure, &w->codec.work), status);
    assert_int_equal(target.len, 0);
    assert_int_equal(failure.rank, rank);
    assert_int_equal(failure.difference, difference);
    for (size_t i = 0; failure.bad_chunk == UINT64_MAX && i < out.size; i++) {
        assert_int_equal(out.at[i], 0x5a);
    }
    test_buffer_free(&out);
}

static void expect_success(world *w)
{
    gw_collective_failure failure;
    gw_buffer dst = {w->finished.at, w->bound, 0};
    assert_int_equal(
        gw_collective_reduce(&w->bucket[OWNER], OWNER, w->messages, &dst, &failure, &w->codec.work), GW_OK);
}

static void lengths_and_kinds(void **state)
{
    (void)state;
    world w;
    const world_setup setup = setup_of(GW_GCOMP_EXPLICIT);
    world_make(&w, &setup);
    world_send(&w, OWNER);
    const gw_gcomp_frame good = w.messages[2];
    for (size_t size = 0; size < good.size; size += size < 100 ? 1 : 997) {
        w.messages[2].size = size;
        expect_failure(&w, GW_ERR_SHORT, 2, 0);
    }
    w.messages[2].size = good.size + 1;
    expect_failure(&w, GW_ERR_TRAILING, 2, 0);
    w.messages[2] = good;
    expect_success(&w);
    /* Frames of another length, dtype and chunk length. */
    for (uint32_t kind = 0; kind < 3; kind++) {
        gw_gcomp_options o = setup.options;
        o.dtype = kind == 1 ? GW_BF16 : o.dtype;
        o.step = 0;
        o.cap = UINT32_MAX;
        o.chunk_log2 = kind == 2 ? 13 : o.chunk_log2;
        test_codec other;
        test_codec_make(&other, &o);
        const gw_gcomp_source source = test_source(w.values[0], kind == 0 ? 30015 : 30016, NULL);
        test_buffer frame;
        w.messages[2].size = test_encode(&other, &source, &frame);
        w.messages[2].data = frame.at;
        expect_failure(&w, GW_ERR_MISMATCH, 2, 0);
        test_buffer_free(&frame);
        test_codec_free(&other);
    }
    world_free(&w);
}

static void notices(void **state)
{
    (void)state;
    world w;
    const world_setup setup = setup_of(GW_GCOMP_DERIVED);
    world_make(&w, &setup);
    world_send(&w, OWNER);
    uint8_t bytes[GW_COLLECTIVE_NOTICE_SIZE];
    gw_buffer dst = {bytes, sizeof bytes, 0};
    gw_collective_failure failure = {GW_ERR_MAP, 2, OWNER, GW_COLLECTIVE_SCALE, UINT64_MAX};
    assert_int_equal(gw_collective_notice_write(&failure, &dst), GW_OK);
    w.messages[3] = (gw_gcomp_frame){bytes, sizeof bytes, NULL};
    expect_failure(&w, GW_ERR_MAP, 2, GW_COLLECTIVE_SCALE);
    /* The frame at fault is the message, whomever it names. */
    const gw_collective_piece piece = world_piece(&w, OWNER);
    gw_gcomp_target sum = {.values = w.values[OWNER] + piece.first * w.size, .capacity = piece.len};
    gw_collective_failure named;
    assert_int_equal(gw_collective_sum(&w.bucket[OWNER], OWNER, w.messages, &sum, &named, &w.codec.work),
                     GW_ERR_MAP);
    assert_int_equal(sum.bad_frame, 3);
    bytes[9] ^= 1;
    expect_failure(&w, GW_ERR_CORRUPT, 3, 0);
    failure.rank = RANKS;
    assert_int_equal(gw_collective_notice_write(&failure, &dst), GW_OK);
    expect_failure(&w, GW_ERR_CORRUPT, 3, 0);
    /* In place of the finished frame. */
    failure.rank = 0;
    assert_int_equal(gw_collective_notice_write(&failure, &dst), GW_OK);
    gw_gcomp_target target = {.values = w.values[0], .capacity = setup.shape.len};
    gw_collective_failure read;
    assert_int_equal(gw_collective_decode(&w.bucket[3], OWNER, &w.messages[3], &target, &read, &w.codec.work),
                     GW_ERR_MAP);
    assert_memory_equal(&read, &failure, sizeof read);
    world_free(&w);
}

static void maps(void **state)
{
    (void)state;
    world w;
    const world_setup setup = setup_of(GW_GCOMP_DERIVED);
    world_make(&w, &setup);
    const gw_collective_map map = w.bucket_map;
    const gw_collective_piece piece = world_piece(&w, OWNER);
    world_send(&w, OWNER);
    expect_success(&w);
    w.bucket_map.base = map.base + 4;
    expect_failure(&w, GW_ERR_MAP, 0, GW_COLLECTIVE_BASE);
    w.bucket_map.wire_scale = map.wire_scale * 2;
    expect_failure(&w, GW_ERR_MAP, 0, GW_COLLECTIVE_BASE | GW_COLLECTIVE_SCALE);
    w.bucket_map.base = map.base;
    expect_failure(&w, GW_ERR_MAP, 0, GW_COLLECTIVE_SCALE);
    w.bucket_map = map;
    w.digest[piece.digest_first + 1] ^= 1;
    expect_failure(&w, GW_ERR_MAP, 0, GW_COLLECTIVE_MAP_BYTES);
    w.digest[piece.digest_first + 1] ^= 1;
    w.bucket[OWNER].contribution_bits++;
    expect_failure(&w, GW_ERR_MAP, 0, GW_COLLECTIVE_BASE);
    w.bucket[OWNER].contribution_bits--;
    expect_success(&w);
    /* The frame of another piece of equal length. */
    const gw_gcomp_frame good = w.messages[3];
    gw_buffer dst = {w.sent[OWNER].at, w.bound, 0};
    assert_int_equal(gw_collective_encode(&w.bucket[3], 2, &dst, &w.codec.work), GW_OK);
    w.messages[3] = (gw_gcomp_frame){dst.data, dst.size, NULL};
    expect_failure(&w, GW_ERR_MAP, 3, GW_COLLECTIVE_MAP_BYTES);
    w.messages[3] = good;
    /* The owner falls back; its senders do not know yet. And the other way round. */
    w.bucket[OWNER].map = NULL;
    w.bucket[OWNER].codec = &w.codec.codec;
    expect_failure(&w, GW_ERR_MAP, 0, GW_COLLECTIVE_BASE | GW_COLLECTIVE_SCALE | GW_COLLECTIVE_MAP_BYTES);
    world_free(&w);
}

/* Frames of another quantum mode than the owner's codec are added all the same. */
static void mixed_map_bytes(void **state)
{
    (void)state;
    world w;
    const world_setup setup = setup_of(GW_GCOMP_DERIVED);
    world_make(&w, &setup);
    world_send(&w, OWNER);
    gw_gcomp_options o = setup.options;
    o.quantum_mode = GW_GCOMP_EXPLICIT;
    o.step = 0;
    o.cap = UINT32_MAX;
    test_codec other;
    test_codec_make(&other, &o);
    gw_collective_bucket bucket = w.bucket[2];
    bucket.codec = &other.codec;
    gw_buffer dst = {w.sent[2].at, w.bound, 0};
    assert_int_equal(gw_collective_encode(&bucket, OWNER, &dst, &other.work), GW_OK);
    w.messages[2].size = dst.size;
    const gw_collective_piece piece = world_piece(&w, OWNER);
    uint8_t *sums = malloc(piece.len * w.size), *expected = malloc(piece.len * w.size);
    assert_true(sums != NULL && expected != NULL);
    world_sum(&w, OWNER, expected);
    for (uint32_t owner_explicit = 0; owner_explicit < 2; owner_explicit++) {
        bucket = w.bucket[OWNER];
        bucket.codec = owner_explicit ? &other.codec : &w.codec.codec;
        gw_gcomp_target target = {.values = sums, .capacity = piece.len};
        gw_collective_failure failure;
        assert_int_equal(gw_collective_sum(&bucket, OWNER, w.messages, &target, &failure, &w.codec.work),
                         GW_OK);
        assert_memory_equal(sums, expected, piece.len * w.size);
    }
    free(sums);
    free(expected);
    test_codec_free(&other);
    world_free(&w);
}

/* Changes one byte of a chunk of a message. */
static void damage_chunk(const world *w, uint32_t rank, uint64_t chunk_index)
{
    gw_gcomp_frame_info info;
    gw_gcomp_chunk chunk;
    assert_int_equal(gw_gcomp_frame_peek(w->messages[rank].data, w->messages[rank].size, UINT64_MAX, &info),
                     GW_OK);
    assert_int_equal(gw_gcomp_frame_chunk(&w->messages[rank], &info, chunk_index, &chunk), GW_OK);
    assert_true(chunk.size > 0);
    w->sent[rank].at[chunk.offset + chunk.size / 2] ^= 0x10;
}

/* Bad chunks of a sum keep what the target held; the lowest one and its first rank are at fault. Of the
 * shortest chunks a step has 64, so that the numbers of some agree modulo 32. */
static void bad_chunks(void **state)
{
    (void)state;
    static const size_t damaged[2][3] = {{2, 5, 17}, {8, 40, 70}};
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t in_place = i % 2;
        const size_t *bad = damaged[i / 2];
        world w;
        world_setup setup = setup_of(in_place ? GW_GCOMP_CARRIED : GW_GCOMP_DERIVED);
        setup.options.chunk_log2 = setup.shape.chunk_log2 = i / 2 == 0 ? 12 : 10;
        setup.shape.len *= 3; /* steps of 2^16 values: chunks of a second one are damaged, too */
        setup.shape.piece_len = 1 << 17;
        world_make(&w, &setup);
        world_send(&w, OWNER);
        const gw_collective_piece piece = world_piece(&w, OWNER);
        const size_t chunk_size = w.size << setup.options.chunk_log2;
        uint8_t *before = malloc(piece.len * w.size), *expected = malloc(piece.len * w.size);
        assert_true(before != NULL && expected != NULL);
        world_sum(&w, OWNER, expected);
        test_buffer out;
        test_buffer_make(&out, piece.len * w.size, 3, 0x5a);
        uint8_t *place = in_place ? w.values[OWNER] + piece.first * w.size : out.at;
        memcpy(before, place, piece.len * w.size);
        damage_chunk(&w, 0, bad[1]);
        damage_chunk(&w, 3, bad[0]);
        damage_chunk(&w, 2, bad[0]);
        damage_chunk(&w, 2, bad[2]);
        gw_gcomp_target target = {.values = place, .capacity = piece.len};
        gw_collective_failure failure;
        assert_int_equal(
            gw_collective_sum(&w.bucket[OWNER], OWNER, w.messages, &target, &failure, &w.codec.work),
            GW_ERR_CHECKSUM);
        assert_int_equal(failure.bad_chunk, bad[0]);
        assert_int_equal(failure.rank, 2);
        assert_int_equal(target.bad_chunk, bad[0]);
        assert_int_equal(target.bad_frame, 2);
        for (size_t at = 0, chunk = 0; at < piece.len * w.size; at += chunk_size, chunk++) {
            const size_t size = at + chunk_size < piece.len * w.size ? chunk_size : piece.len * w.size - at;
            const int is_bad = chunk == bad[0] || chunk == bad[1] || chunk == bad[2];
            assert_memory_equal(place + at, (is_bad ? before : expected) + at, size);
        }
        test_buffer_free(&out);
        free(before);
        free(expected);
        expect_failure(&w, GW_ERR_CHECKSUM, 2, 0);
        world_free(&w);
    }
}

/* Random bytes changed anywhere, without checksums: a status or other values, and whole canaries. */
static void random_damage(void **state)
{
    (void)state;
    test_random random = {77};
    for (uint32_t c = 0; c < 3; c++) {
        world w;
        world_setup setup = setup_of((gw_gcomp_quantum_mode)c);
        setup.options.checksum = 0;
        setup.shape.len = RANKS * 9000;
        world_make(&w, &setup);
        world_send(&w, OWNER);
        uint32_t failures = 0;
        for (uint32_t i = 0; i < 400; i++) {
            const uint32_t rank = 2 + i % 2;
            const size_t at = i % 3 == 0 ? test_random_below(&random, 120)
                                         : test_random_below(&random, (uint32_t)w.messages[rank].size);
            const uint8_t mask = (uint8_t)(1 + test_random_below(&random, 255));
            w.sent[rank].at[at] ^= mask;
            gw_buffer dst = {w.finished.at, w.bound, 99};
            gw_collective_failure failure;
            const gw_status status =
                gw_collective_reduce(&w.bucket[OWNER], OWNER, w.messages, &dst, &failure, &w.codec.work);
            failures += status != GW_OK;
            assert_int_equal(failure.status, status);
            assert_int_equal(failure.rank, status == GW_OK ? OWNER : rank);
            assert_int_equal(dst.size == 0, status != GW_OK);
            test_buffer_check(&w.finished);
            test_buffer_check(&w.codec.workspace);
            w.sent[rank].at[at] ^= mask;
        }
        assert_true(failures > 100);
        expect_success(&w);
        world_free(&w);
    }
}

/* Nothing is sent for an empty piece, so no step asks for a message of it. */
static void empty_pieces(void **state)
{
    (void)state;
    world w;
    const world_setup setup = world_setup_of(GW_FP32, GW_GCOMP_EXPLICIT, RANKS, 64);
    world_make(&w, &setup);
    assert_int_equal(world_piece(&w, OWNER).len, 0);
    const gw_collective_bucket *bucket = &w.bucket[OWNER];
    gw_buffer dst = {NULL, 0, 99};
    gw_gcomp_target target = {.len = 99};
    gw_collective_failure failure;
    assert_int_equal(gw_collective_encode(bucket, OWNER, &dst, NULL), GW_OK);
    assert_int_equal(gw_collective_reduce(bucket, OWNER, NULL, &dst, &failure, NULL), GW_OK);
    assert_int_equal(gw_collective_hop(bucket, OWNER, NULL, &dst, &failure, NULL), GW_OK);
    assert_int_equal(dst.size, 0);
    assert_int_equal(gw_collective_sum(bucket, OWNER, NULL, &target, &failure, NULL), GW_OK);
    assert_int_equal(gw_collective_decode(bucket, OWNER, NULL, &target, &failure, NULL), GW_OK);
    assert_int_equal(target.len, 0);
    assert_int_equal(failure.status, GW_OK);
    /* A wrong rank is wrong with an empty piece too. */
    assert_int_equal(gw_collective_reduce(&w.bucket[0], OWNER, NULL, &dst, &failure, NULL), GW_ERR_ARG);
    world_free(&w);
}

/* gradwire.h: what a frame is refused for comes before the capacity of the output. */
static void precedence(void **state)
{
    (void)state;
    world w;
    const world_setup setup = setup_of(GW_GCOMP_EXPLICIT);
    world_make(&w, &setup);
    world_send(&w, OWNER);
    const gw_collective_piece piece = world_piece(&w, OWNER);
    const size_t size = w.messages[2].size;
    for (uint32_t is_short = 0; is_short < 2; is_short++) {
        const gw_status expected = is_short ? GW_ERR_SHORT : GW_ERR_DST;
        w.messages[2].size = size - is_short;
        gw_buffer dst = {w.finished.at, 40, 99};
        gw_gcomp_target target = {.values = w.finished.at, .capacity = piece.len - 1};
        gw_collective_failure failure;
        assert_int_equal(
            gw_collective_reduce(&w.bucket[OWNER], OWNER, w.messages, &dst, &failure, &w.codec.work),
            expected);
        assert_int_equal(failure.rank, is_short ? 2 : OWNER);
        assert_int_equal(
            gw_collective_sum(&w.bucket[OWNER], OWNER, w.messages, &target, &failure, &w.codec.work),
            expected);
        assert_int_equal(failure.rank, is_short ? 2 : OWNER);
        /* rank 3 works on the piece of OWNER in hop 1, after rank 2 */
        assert_int_equal(
            gw_collective_hop(&w.bucket[3], OWNER, &w.messages[2], &dst, &failure, &w.codec.work), expected);
        assert_int_equal(failure.rank, is_short ? 2 : 3);
    }
    world_free(&w);
}

/* docs/collectives.md: a reader of a byte stream takes 32 bytes, then 48, then 80, and never waits for bytes
 * that the message does not have. The values are zeros: no frames are shorter. */
static void first_bytes_of_messages(void **state)
{
    (void)state;
    static const size_t steps[] = {32, 48, 80};
    size_t shortest = SIZE_MAX;
    for (uint32_t c = 0; c < 6; c++) {
        world_setup setup = setup_of((gw_gcomp_quantum_mode)(c % 3));
        setup.options.checksum = c >= 3;
        setup.shape.len = RANKS;
        world w;
        world_make(&w, &setup);
        memset(w.values[0], 0, setup.shape.len * w.size);
        gw_buffer dst = {w.sent[0].at, w.bound, 0};
        assert_int_equal(gw_collective_encode(&w.bucket[0], RANKS - 1, &dst, &w.codec.work), GW_OK);
        shortest = dst.size < shortest ? dst.size : shortest;
        gw_gcomp_frame_info info;
        gw_status status = GW_ERR_SHORT;
        for (size_t i = 0; i < TEST_ARRAY_LEN(steps) && status == GW_ERR_SHORT; i++) {
            assert_true(steps[i] <= dst.size);
            status = gw_gcomp_frame_peek(dst.data, steps[i], UINT64_MAX, &info);
        }
        assert_int_equal(status, GW_OK);
        assert_int_equal(info.frame_size, dst.size);
        world_free(&w);
    }
    assert_int_equal(shortest, 48);
}

static gw_status reduce_with(world *w, const gw_collective_bucket *bucket, uint32_t piece, gw_buffer *dst,
                             const gw_workspace *workspace)
{
    gw_collective_failure failure;
    const gw_status status = gw_collective_reduce(bucket, piece, w->messages, dst, &failure, workspace);
    assert_int_equal(failure.status, status);
    assert_int_equal(dst->size, 0);
    return status;
}

static void arguments(void **state)
{
    (void)state;
    world w;
    const world_setup setup = setup_of(GW_GCOMP_EXPLICIT);
    world_make(&w, &setup);
    world_send(&w, OWNER);
    gw_buffer dst = {w.finished.at, w.bound, 99};
    gw_collective_failure failure;
    const gw_workspace *work = &w.codec.work;
    assert_int_equal(reduce_with(&w, &w.bucket[2], OWNER, &dst, work), GW_ERR_ARG); /* not the owner */
    assert_int_equal(reduce_with(&w, &w.bucket[OWNER], w.layout.piece_count, &dst, work), GW_ERR_ARG);
    assert_int_equal(reduce_with(&w, NULL, OWNER, &dst, work), GW_ERR_ARG);
    assert_int_equal(reduce_with(&w, &w.bucket[OWNER], OWNER, &dst, NULL), GW_ERR_ARG);
    const gw_workspace small = {w.codec.work.data, w.codec.work.size - 1};
    assert_int_equal(reduce_with(&w, &w.bucket[OWNER], OWNER, &dst, &small), GW_ERR_WORKSPACE);
    gw_collective_bucket bucket = w.bucket[OWNER];
    bucket.contribution_bits = 17;
    assert_int_equal(reduce_with(&w, &bucket, OWNER, &dst, work), GW_ERR_ARG);
    bucket = w.bucket[OWNER];
    bucket.values = NULL;
    assert_int_equal(reduce_with(&w, &bucket, OWNER, &dst, work), GW_ERR_ARG);
    const gw_gcomp empty = {{0}};
    bucket = w.bucket[OWNER];
    bucket.codec = &empty;
    assert_int_equal(reduce_with(&w, &bucket, OWNER, &dst, work), GW_ERR_STATE);
    dst.capacity = gw_gcomp_frame_bound(&w.codec.codec, world_piece(&w, OWNER).len) - 1;
    assert_int_equal(reduce_with(&w, &w.bucket[OWNER], OWNER, &dst, work), GW_ERR_DST);
    dst = (gw_buffer){w.sent[2].at, w.bound, 99}; /* over a message */
    assert_int_equal(reduce_with(&w, &w.bucket[OWNER], OWNER, &dst, work), GW_ERR_ARG);
    dst = (gw_buffer){w.finished.at, w.bound, 99};
    assert_int_equal(gw_collective_reduce(&w.bucket[OWNER], OWNER, NULL, &dst, &failure, work), GW_ERR_ARG);
    assert_int_equal(gw_collective_reduce(&w.bucket[OWNER], OWNER, w.messages, &dst, NULL, work), GW_ERR_ARG);
    /* Targets of a sum: one value short, half over the own values, a scale that is not a normal number. */
    const gw_collective_piece piece = world_piece(&w, OWNER);
    uint8_t *own = w.values[OWNER] + piece.first * w.size;
    gw_gcomp_target target = {.values = own, .capacity = piece.len - 1};
    assert_int_equal(gw_collective_sum(&w.bucket[OWNER], OWNER, w.messages, &target, &failure, work),
                     GW_ERR_DST);
    target = (gw_gcomp_target){.values = own + 4, .capacity = piece.len};
    assert_int_equal(gw_collective_sum(&w.bucket[OWNER], OWNER, w.messages, &target, &failure, work),
                     GW_ERR_ARG);
    target = (gw_gcomp_target){.values = own, .capacity = piece.len, .scale = 1e-40f};
    assert_int_equal(gw_collective_sum(&w.bucket[OWNER], OWNER, w.messages, &target, &failure, work),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_decode(&w.bucket[0], OWNER, NULL, &target, &failure, work), GW_ERR_ARG);
    assert_int_equal(gw_collective_hop(&w.bucket[OWNER], OWNER, NULL, &dst, &failure, work), GW_ERR_ARG);
    target = (gw_gcomp_target){.values = own, .capacity = piece.len};
    assert_int_equal(gw_collective_hop_sum(&w.bucket[OWNER], OWNER, NULL, &target, &failure, work),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_hop_sum(&w.bucket[3], OWNER, &w.messages[2], &target, &failure, work),
                     GW_ERR_ARG); /* not the owner's */
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_and_kinds),
        cmocka_unit_test(notices),
        cmocka_unit_test(maps),
        cmocka_unit_test(mixed_map_bytes),
        cmocka_unit_test(bad_chunks),
        cmocka_unit_test(random_damage),
        cmocka_unit_test(empty_pieces),
        cmocka_unit_test(precedence),
        cmocka_unit_test(first_bytes_of_messages),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests_name("collective damage", tests, NULL, NULL);
}
