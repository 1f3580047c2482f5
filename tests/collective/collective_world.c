/* SPDX-License-Identifier: BSD-2-Clause */
#include "collective_world.h"

world_setup world_setup_of(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, uint32_t ranks, uint64_t len)
{
    world_setup setup;
    memset(&setup, 0, sizeof setup);
    gw_gcomp_options_init(&setup.options, dtype);
    setup.options.quantum_mode = quantum_mode;
    setup.options.chunk_log2 = 12;
    setup.shape.len = len;
    setup.shape.rank_count = ranks;
    setup.shape.chunk_log2 = 12;
    setup.has_map = 1;
    setup.pattern = PATTERN_GRADIENT;
    return setup;
}

/* One word for every chunk of every piece. */
static void make_digests(world *w)
{
    const gw_collective_layout *layout = &w->layout;
    w->digest = calloc((size_t)layout->piece_count * layout->piece_chunks, sizeof *w->digest);
    assert_non_null(w->digest);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const gw_collective_piece piece = world_piece(w, i);
        if (piece.len != 0) {
            assert_int_equal(gw_gcomp_map_digest(w->map.bytes + piece.first, piece.len,
                                                 layout->shape.chunk_log2, w->digest + piece.digest_first),
                             GW_OK);
        }
    }
    w->bucket_map = (gw_collective_map){w->map.bytes, w->digest, w->map.map.base, w->map.map.wire_scale};
}

void world_make(world *w, const world_setup *setup)
{
    memset(w, 0, sizeof *w);
    w->setup = *setup;
    test_codec_make(&w->codec, &setup->options);
    w->size = gw_dtype_size(setup->options.dtype);
    assert_int_equal(gw_collective_layout_init(&w->layout, &setup->shape), GW_OK);
    test_map_make(&w->map, setup->options.dtype, setup->shape.len, setup->shape.chunk_log2, setup->seed);
    make_digests(w);
    w->bound = gw_collective_message_bound(&w->layout, &w->codec.codec);
    assert_true(w->bound >= GW_COLLECTIVE_NOTICE_SIZE);
    test_buffer_make(&w->finished, w->bound, 5, 0xa5);
    for (uint32_t r = 0; r < setup->shape.rank_count; r++) {
        w->values[r] = malloc(setup->shape.len * w->size + 1);
        assert_non_null(w->values[r]);
        test_fill_values(w->values[r], setup->options.dtype, setup->shape.len, setup->pattern,
                         setup->seed + r);
        test_buffer_make(&w->sent[r], w->bound, r, 0xa5);
        gw_collective_bucket *bucket = &w->bucket[r];
        bucket->layout = &w->layout;
        bucket->codec = &w->codec.codec;
        bucket->map = setup->has_map ? &w->bucket_map : NULL;
        bucket->values = w->values[r];
        bucket->rank = r;
        bucket->step_index = 7;
        bucket->seed = 0x123456789abcdefull;
        bucket->first_element = 1000;
        bucket->contribution_bits = setup->contribution_bits;
    }
}

void world_free(world *w)
{
    for (uint32_t r = 0; r < w->setup.shape.rank_count; r++) {
        free(w->values[r]);
        test_buffer_free(&w->sent[r]);
    }
    test_buffer_free(&w->finished);
    free(w->digest);
    test_map_free(&w->map);
    test_codec_free(&w->codec);
}

gw_collective_piece world_piece(const world *w, uint32_t index)
{
    gw_collective_piece piece;
    assert_int_equal(gw_collective_piece_at(&w->layout, index, &piece), GW_OK);
    return piece;
}

gw_gcomp_map world_map(const world *w, const gw_collective_piece *piece, uint32_t bits)
{
    const uint32_t base = w->bucket_map.base;
    const gw_gcomp_map map = {w->map.bytes + piece->first,
                              w->digest + piece->digest_first,
                              base > 4 * bits ? base - 4 * bits : 1,
                              w->bucket_map.wire_scale,
                              piece->len,
                              w->layout.shape.chunk_log2};
    return map;
}

size_t world_encode(const world *w, uint32_t index, uint32_t rank, uint32_t hop, uint32_t bits,
                    const void *values, test_buffer *frame)
{
    const gw_collective_piece piece = world_piece(w, index);
    const gw_gcomp_map map = world_map(w, &piece, bits);
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = values;
    source.len = piece.len;
    source.quantum = gw_gcomp_quantum_of_map(w->setup.has_map ? &map : NULL);
    source.seed = w->bucket[rank].seed;
    source.first_element = w->bucket[rank].first_element + piece.first;
    source.step_index = w->bucket[rank].step_index;
    source.rank = (uint16_t)rank;
    source.hop = (uint16_t)hop;
    source.segments = w->bucket[rank].streams;
    source.segment_count = w->bucket[rank].stream_count;
    source.segment_offset = piece.first;
    return test_encode(&w->codec, &source, frame);
}

void world_decode(const world *w, uint32_t index, const gw_gcomp_frame *frame, uint32_t bits, void *values)
{
    const gw_collective_piece piece = world_piece(w, index);
    const gw_gcomp_map map = world_map(w, &piece, bits);
    const gw_gcomp_frame received = {frame->data, frame->size, w->setup.has_map ? &map : NULL};
    gw_gcomp_target target = {.values = values, .capacity = piece.len};
    assert_int_equal(gw_gcomp_decode(&w->codec.codec, &received, &target, &w->codec.work), GW_OK);
    assert_int_equal(target.len, piece.len);
}

void world_send(world *w, uint32_t index)
{
    const gw_collective_piece piece = world_piece(w, index);
    const uint32_t bits = w->setup.options.quantum_mode == GW_GCOMP_EXPLICIT ? 0 : w->setup.contribution_bits;
    for (uint32_t r = 0; r < w->setup.shape.rank_count; r++) {
        w->messages[r] = (gw_gcomp_frame){NULL, 0, NULL};
        if (r == piece.owner) {
            continue;
        }
        gw_buffer dst = {w->sent[r].at, w->bound, 99};
        assert_int_equal(gw_collective_encode(&w->bucket[r], index, &dst, &w->codec.work), GW_OK);
        if (piece.len == 0) {
            assert_int_equal(dst.size, 0);
            continue;
        }
        w->messages[r].data = w->sent[r].at;
        w->messages[r].size = dst.size;
        test_buffer expected;
        assert_int_equal(world_encode(w, index, r, 0, bits, w->values[r] + piece.first * w->size, &expected),
                         dst.size);
        assert_memory_equal(expected.at, dst.data, dst.size);
        test_buffer_free(&expected);
        test_buffer_check(&w->sent[r]);
    }
}

void world_sum(const world *w, uint32_t index, uint8_t *sums)
{
    const gw_dtype dtype = w->setup.options.dtype;
    const gw_collective_piece piece = world_piece(w, index);
    uint8_t *decoded = malloc(piece.len * w->size + 1);
    assert_non_null(decoded);
    for (uint32_t r = 0; r < w->setup.shape.rank_count; r++) {
        if (r == piece.owner) {
            memcpy(decoded, w->values[r] + piece.first * w->size, piece.len * w->size);
        } else {
            const uint32_t bits =
                w->setup.options.quantum_mode == GW_GCOMP_EXPLICIT ? 0 : w->setup.contribution_bits;
            world_decode(w, index, &w->messages[r], bits, decoded);
        }
        for (uint64_t i = 0; i < piece.len; i++) {
            const uint32_t value = test_get(decoded, dtype, i);
            test_put(sums, dtype, i,
                     r == 0
                         ? value
                         : test_model_add(dtype, test_get(sums, dtype, i), value, w->setup.options.strict));
        }
    }
    free(decoded);
}
