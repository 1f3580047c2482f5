/*
 * Layouts: shards tile the bucket, pieces tile the shards, the ring visits every shard once. Sizes and
 * notices.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include "gradwire/collective.h"

static gw_collective_layout make(uint64_t len, uint32_t ranks, uint64_t shard_len, uint64_t piece_len)
{
    const gw_collective_shape shape = {len, ranks, 12, shard_len, piece_len};
    gw_collective_layout layout;
    assert_int_equal(gw_collective_layout_init(&layout, &shape), GW_OK);
    return layout;
}

/* Shards and pieces follow one another and end at len. */
static void check_tiling(const gw_collective_layout *layout)
{
    const gw_collective_shape *s = &layout->shape;
    uint64_t next = 0, longest = 0, shortest = UINT64_MAX;
    uint32_t index = 0;
    assert_int_equal(layout->piece_count, s->rank_count * layout->shard_pieces);
    for (uint32_t r = 0; r < s->rank_count; r++) {
        uint64_t first, len, in_shard = 0;
        assert_int_equal(gw_collective_shard_at(layout, r, &first, &len), GW_OK);
        assert_int_equal(first, next);
        if (s->shard_len == 0) {
            assert_true(len % 64 == 0 || first + len == s->len);
        } else if (len != 0) {
            assert_int_equal(first, r * s->shard_len);
            assert_true(len == s->shard_len || first + len == s->len);
        }
        for (uint32_t p = 0; p < layout->shard_pieces; p++, index++) {
            gw_collective_piece piece;
            assert_int_equal(gw_collective_piece_at(layout, index, &piece), GW_OK);
            assert_int_equal(piece.owner, r);
            assert_int_equal(piece.first, first + in_shard);
            assert_true(piece.len <= s->piece_len);
            assert_true(piece.len == s->piece_len || in_shard + piece.len == len);
            assert_int_equal(piece.digest_first, (uint64_t)index * layout->piece_chunks);
            assert_true((piece.len + 4095) / 4096 <= layout->piece_chunks);
            in_shard += piece.len;
        }
        assert_int_equal(in_shard, len);
        next += len;
        longest = len > longest ? len : longest;
        shortest = len < shortest ? len : shortest;
    }
    assert_int_equal(next, s->len);
    assert_true(s->shard_len != 0 || longest - shortest <= 64);
}

static void tiling(void **state)
{
    (void)state;
    static const uint64_t lens[] = {0, 1, 63, 64, 65, 4096, 4097, 99999, 1000000};
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 8, 16, 1000};
    for (size_t i = 0; i < TEST_ARRAY_LEN(lens); i++) {
        for (size_t n = 0; n < TEST_ARRAY_LEN(ranks); n++) {
            gw_collective_layout layout = make(lens[i], ranks[n], 0, 4097);
            check_tiling(&layout);
            layout = make(lens[i], ranks[n], lens[i] / ranks[n] + 1, 0);
            check_tiling(&layout);
        }
    }
    gw_collective_layout layout = make((uint64_t)1 << 48, GW_COLLECTIVE_RANKS_MAX, 0, (uint64_t)1 << 40);
    check_tiling(&layout);
    layout = make((uint64_t)1 << 48, GW_COLLECTIVE_RANKS_MAX, (uint64_t)1 << 48, (uint64_t)1 << 40 | 1);
    uint64_t first, len;
    assert_int_equal(gw_collective_shard_at(&layout, 65534, &first, &len), GW_OK);
    assert_true(len == 0);
}

static void refused(void **state)
{
    (void)state;
    static const gw_collective_shape bad[] = {
        {((uint64_t)1 << 48) + 1, 1, 0, 0, 0},
        {1, 0, 0, 0, 0},
        {1, 65536, 0, 0, 0},
        {1, 1, 9, 0, 0},
        {1, 1, 16, 0, 0},
        {100, 3, 0, 33, 0},
        {1, 1, 0, 0, 4095},
        {1, 1, 0, UINT64_MAX, 0},
        {1, 1, 0, 0, UINT64_MAX},
    };
    const gw_collective_layout zero = {{0, 0, 0, 0, 0}, 0, 0, 0, 0};
    gw_collective_layout layout;
    for (size_t i = 0; i < TEST_ARRAY_LEN(bad); i++) {
        memset(&layout, 0xff, sizeof layout);
        assert_int_equal(gw_collective_layout_init(&layout, &bad[i]), GW_ERR_OPTION);
        assert_memory_equal(&layout, &zero, sizeof zero);
    }
    const gw_collective_shape many = {(uint64_t)1 << 48, 65535, 0, 0, 4096};
    assert_int_equal(gw_collective_layout_init(&layout, &many), GW_ERR_LIMIT);
    assert_int_equal(gw_collective_layout_init(NULL, &many), GW_ERR_ARG);
    assert_int_equal(gw_collective_layout_init(&layout, NULL), GW_ERR_ARG);
    gw_collective_piece piece;
    uint64_t first, len;
    assert_int_equal(gw_collective_piece_at(&zero, 0, &piece), GW_ERR_ARG);
    layout = make(1000, 4, 0, 0);
    assert_int_equal(gw_collective_piece_at(&layout, layout.piece_count, &piece), GW_ERR_ARG);
    assert_int_equal(gw_collective_shard_at(&layout, 4, &first, &len), GW_ERR_ARG);
    layout.shard_pieces++;
    assert_int_equal(gw_collective_piece_at(&layout, 0, &piece), GW_ERR_ARG);
}

/* What is sent in a step is what the right neighbour works on in the next. */
static void ring(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 17; n++) {
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(gw_collective_ring_shard(n, r, n - 1), r);
            for (uint32_t s = 0; s + 1 < n; s++) {
                const uint32_t right = (r + 1) % n;
                assert_int_equal(gw_collective_ring_shard(n, r, s),
                                 gw_collective_ring_shard(n, right, s + 1));
                const uint32_t sent = gw_collective_ring_gather_shard(n, r, s);
                assert_int_equal(sent,
                                 s == 0 ? r : gw_collective_ring_gather_shard(n, (r + n - 1) % n, s - 1));
            }
            assert_int_equal(gw_collective_ring_gather_shard(n, r, n - 1), UINT32_MAX);
        }
        assert_int_equal(gw_collective_ring_shard(n, n, 0), UINT32_MAX);
        assert_int_equal(gw_collective_ring_shard(n, 0, n), UINT32_MAX);
    }
    assert_int_equal(gw_collective_ring_gather_shard(3, 0, UINT32_MAX), UINT32_MAX);
    assert_int_equal(gw_collective_ring_shard(65535, 65534, 65534), 65534);
}

static void sizes(void **state)
{
    (void)state;
    gw_gcomp_options o;
    gw_gcomp codec;
    gw_gcomp_options_init(&o, GW_FP32);
    o.chunk_log2 = 12;
    assert_int_equal(gw_gcomp_init(&codec, &o), GW_OK);
    const gw_collective_layout layout = make(100000, 3, 0, 4096);
    assert_int_equal(gw_collective_message_bound(&layout, &codec), gw_gcomp_frame_bound(&codec, 4096));
    const gw_collective_layout short_ones = make(100, 2, 0, 4096);
    assert_int_equal(gw_collective_message_bound(&short_ones, &codec), gw_gcomp_frame_bound(&codec, 64));
    o.chunk_log2 = 14;
    assert_int_equal(gw_gcomp_init(&codec, &o), GW_OK);
    assert_int_equal(gw_collective_message_bound(&layout, &codec), 0);
    /* Points of docs/results/gcomp-dial.md, in bits a value: the means of four snapshots. */
    const struct {
        gw_gcomp_quantum_mode quantum_mode;
        int dead_zone;
        uint32_t tolerance_bits, drop;
        float nmse;
        double bits;
    } points[] = {
        {GW_GCOMP_DERIVED, 1, 23, 0, 0, 8.93},    {GW_GCOMP_DERIVED, 1, 12, 0, 0, 1.76},
        {GW_GCOMP_DERIVED, 1, 13, 0, 0, 2.30},    {GW_GCOMP_DERIVED, 1, 3, 0, 0, 0.54},
        {GW_GCOMP_DERIVED, 0, 16, 0, 0, 4.74},    {GW_GCOMP_EXPLICIT, 0, 23, 0, 0, 11.78},
        {GW_GCOMP_EXPLICIT, 0, 8, 0, 0, 7.01},    {GW_GCOMP_CARRIED, 1, 12, 0, 0, 1.76},
        {GW_GCOMP_CARRIED, 0, 23, 0, 7e-5f, 5.4}, {GW_GCOMP_CARRIED, 0, 23, 0, 0.02f, 2.5},
        {GW_GCOMP_EXPLICIT, 0, 23, 18, 0, 8.46},  {GW_GCOMP_CARRIED, 0, 23, 0, 1, 0.5},
    };
    const uint64_t len = 1 << 20;
    for (size_t i = 0; i < TEST_ARRAY_LEN(points); i++) {
        gw_gcomp_options_init(&o, GW_FP32);
        o.quantum_mode = points[i].quantum_mode;
        o.dead_zone = points[i].dead_zone;
        o.tolerance_bits = points[i].tolerance_bits;
        o.quantum = points[i].drop != 0 ? gw_gcomp_quantum_of_drop(points[i].drop)
                                        : gw_gcomp_quantum_of_nmse(points[i].nmse);
        assert_int_equal(gw_gcomp_init(&codec, &o), GW_OK);
        const double bits = 8.0 * (double)gw_collective_message_estimate(&codec, len) / (double)len;
        assert_true(bits > points[i].bits - 0.05 && bits < points[i].bits + 0.4);
    }
    assert_int_equal(gw_collective_message_estimate(&codec, 0), 0);
    assert_true(gw_collective_message_estimate(&codec, 1) <= gw_gcomp_frame_bound(&codec, 1));
    memset(&codec, 0, sizeof codec);
    assert_int_equal(gw_collective_message_estimate(&codec, len), 0);
    assert_int_equal(gw_collective_message_bound(&layout, &codec), 0);
}

static void notices(void **state)
{
    (void)state;
    uint8_t bytes[GW_COLLECTIVE_NOTICE_SIZE + 1];
    const gw_collective_failure failure = {GW_ERR_CHECKSUM, 3, 70000, GW_COLLECTIVE_SCALE, 123456789012ull};
    gw_collective_failure back;
    gw_buffer dst = {bytes, GW_COLLECTIVE_NOTICE_SIZE, 0};
    assert_int_equal(gw_collective_notice_write(&failure, &dst), GW_OK);
    assert_int_equal(dst.size, GW_COLLECTIVE_NOTICE_SIZE);
    assert_int_equal(gw_collective_notice_read(bytes, dst.size, &back), 1);
    assert_memory_equal(&back, &failure, sizeof failure);
    for (uint32_t bit = 0; bit < 8 * GW_COLLECTIVE_NOTICE_SIZE; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const int is_notice = gw_collective_notice_read(bytes, dst.size, &back);
        assert_int_equal(is_notice, bit >= 32);
        assert_int_equal(back.status, is_notice ? GW_ERR_CORRUPT : GW_OK);
        assert_true(!is_notice || (back.rank == UINT32_MAX && back.piece == UINT32_MAX));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t size = 4; size <= sizeof bytes; size++) {
        const gw_status expected = size == GW_COLLECTIVE_NOTICE_SIZE ? GW_ERR_CHECKSUM : GW_ERR_CORRUPT;
        assert_int_equal(gw_collective_notice_read(bytes, size, &back), 1);
        assert_int_equal(back.status, expected);
    }
    assert_int_equal(gw_collective_notice_read(bytes, 3, &back), 0);
    assert_int_equal(gw_collective_notice_read(NULL, 0, &back), 0);
    const gw_collective_failure none = {GW_OK, 0, 0, 0, 0};
    assert_int_equal(gw_collective_notice_write(&none, &dst), GW_ERR_ARG);
    assert_int_equal(dst.size, 0);
    dst.capacity--;
    assert_int_equal(gw_collective_notice_write(&failure, &dst), GW_ERR_DST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiling), cmocka_unit_test(refused), cmocka_unit_test(ring),
        cmocka_unit_test(sizes),  cmocka_unit_test(notices),
    };
    return cmocka_run_group_tests_name("collective layout", tests, NULL, NULL);
}
