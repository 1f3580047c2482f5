/*
 * One frame by several threads: every split into ranges joins to the frame of one call, although an encoder
 * keeps state from chunk to chunk; ranges decode and add like the whole. Run it under ThreadSanitizer as well
 * (-DGW_SANITIZE=thread).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include <pthread.h>

enum { THREADS = 3, LEN = 131072 * 3 + 4097 };

typedef struct encode_job {
    const test_codec *codec;
    const gw_gcomp_source *source;
    test_buffer area, work;
    gw_gcomp_part part;
    gw_status status;
} encode_job;

static void *encode_thread(void *argument)
{
    encode_job *j = (encode_job *)argument;
    j->status = gw_gcomp_encode_range(&j->codec->codec, j->source, &j->part,
                                      &(gw_workspace){j->work.at, j->work.size});
    return NULL;
}

typedef struct move_job {
    const test_codec *codec;
    const gw_gcomp_source *source;
    const gw_gcomp_part *parts;
    size_t part_count, part_index;
    const gw_buffer *dst;
    gw_status status;
} move_job;

static void *move_thread(void *argument)
{
    move_job *j = (move_job *)argument;
    j->status =
        gw_gcomp_join_part(&j->codec->codec, j->source, j->parts, j->part_count, j->part_index, j->dst);
    return NULL;
}

/* Header and directory first, then the parts, each by a thread of its own. */
static void join_in_steps(const test_codec *codec, const gw_gcomp_source *source, const gw_gcomp_part *parts,
                          size_t part_count, test_buffer *joined, const test_buffer *frame, size_t size)
{
    move_job job[THREADS];
    pthread_t thread[THREADS];
    assert_true(part_count <= THREADS);
    memset(joined->at, 0xd7, joined->size);
    gw_buffer out = {joined->at, joined->size, 0};
    assert_int_equal(gw_gcomp_join_begin(&codec->codec, source, parts, part_count, &out), GW_OK);
    assert_int_equal(out.size, size);

    /* What is refused is not written. */
    uint8_t *before = malloc(joined->size);
    assert_non_null(before);
    memcpy(before, joined->at, joined->size);
    const gw_gcomp *c = &codec->codec;
    const gw_buffer shorter = {joined->at, joined->size, size - 1}, empty = {joined->at, joined->size, 0},
                    nowhere = {NULL, joined->size, size};
    assert_int_equal(gw_gcomp_join_part(c, source, parts, part_count, part_count, &out), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_join_part(c, source, parts, part_count, part_count - 1, &shorter), GW_ERR_DST);
    assert_int_equal(gw_gcomp_join_part(c, source, parts, part_count, 0, &empty), GW_ERR_DST);
    assert_int_equal(gw_gcomp_join_part(c, source, NULL, part_count, 0, &out), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_join_part(c, source, parts, part_count, 0, &nowhere), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_join_part(c, source, parts, part_count, 0, NULL), GW_ERR_ARG);
    gw_gcomp_part wrong[THREADS];
    for (unsigned kind = 0; kind < 3; kind++) {
        memcpy(wrong, parts, part_count * sizeof *parts);
        wrong[0].range.chunk_first += kind == 0;
        wrong[0].range.chunk_count += (uint64_t)(kind == 1) << 60; /* 16 times that is 0 */
        wrong[0].size = kind == 2 ? SIZE_MAX : wrong[0].size;
        assert_int_equal(gw_gcomp_join_part(c, source, wrong, part_count, part_count - 1, &out), GW_ERR_ARG);
    }
    static const gw_gcomp never_initialised;
    assert_int_equal(gw_gcomp_join_part(&never_initialised, source, parts, part_count, 0, &out),
                     GW_ERR_STATE);
    assert_memory_equal(joined->at, before, joined->size);
    free(before);

    for (size_t i = 0; i < part_count; i++) {
        const move_job j = {codec, source, parts, part_count, part_count - 1 - i, &out, GW_ERR_ARG};
        job[i] = j;
        assert_int_equal(pthread_create(&thread[i], NULL, move_thread, &job[i]), 0);
    }
    for (size_t i = 0; i < part_count; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(job[i].status, GW_OK);
    }
    assert_memory_equal(joined->at, frame->at, size);
    for (size_t i = size; i < joined->size; i++) {
        assert_int_equal(joined->at[i], 0xd7);
    }
}

/* Encodes [0, chunks) cut at `cut[0..cuts)`, one thread a range, and compares with `frame`. */
static void join_equals(const test_codec *codec, const gw_gcomp_source *source, const uint64_t *cut,
                        size_t cuts, const test_buffer *frame, size_t size)
{
    encode_job job[THREADS];
    pthread_t thread[THREADS];
    gw_gcomp_part parts[THREADS];
    assert_true(cuts < THREADS);
    const uint64_t chunks = gw_gcomp_chunk_count(&codec->codec, source->len);
    for (size_t i = 0; i <= cuts; i++) {
        encode_job *j = &job[i];
        j->codec = codec;
        j->source = source;
        j->part.range.chunk_first = i == 0 ? 0 : cut[i - 1];
        j->part.range.chunk_count = (i == cuts ? chunks : cut[i]) - j->part.range.chunk_first;
        j->part.capacity = gw_gcomp_range_bound(&codec->codec, source->len, &j->part.range);
        test_buffer_make(&j->area, j->part.capacity, 1, 0x12);
        j->part.area = j->area.at;
        test_buffer_make(&j->work, codec->workspace.size, 1, 0x34);
        assert_int_equal(pthread_create(&thread[i], NULL, encode_thread, j), 0);
    }
    for (size_t i = 0; i <= cuts; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(job[i].status, GW_OK);
        assert_true(job[i].part.size <= job[i].area.size);
        parts[i] = job[i].part;
    }
    test_buffer joined;
    test_buffer_make(&joined, gw_gcomp_frame_bound(&codec->codec, source->len), 5, 0x56);
    gw_buffer out = {joined.at, joined.size, 0};
    assert_int_equal(gw_gcomp_join(&codec->codec, source, parts, cuts + 1, &out), GW_OK);
    assert_int_equal(out.size, size);
    assert_memory_equal(joined.at, frame->at, size);
    join_in_steps(codec, source, parts, cuts + 1, &joined, frame, size);
    if (cuts == 1 && parts[0].size != 0 && parts[1].size != 0) { /* parts that do not tile the frame */
        assert_int_equal(gw_gcomp_join(&codec->codec, source, parts, 1, &out), GW_ERR_ARG);
        assert_int_equal(out.size, 0);
        assert_int_equal(gw_gcomp_join(&codec->codec, source, parts + 1, 1, &out), GW_ERR_ARG);
        /* Sizes that only together, modulo 2^64, are what they should be. */
        gw_gcomp_part wrapped[2] = {parts[0], parts[1]};
        wrapped[0].size += (size_t)1 << (8 * sizeof(size_t) - 1);
        wrapped[1].size += (size_t)1 << (8 * sizeof(size_t) - 1);
        assert_int_equal(gw_gcomp_join(&codec->codec, source, wrapped, 2, &out), GW_ERR_ARG);
        gw_gcomp_part nowhere[3] = {{.size = 1}, parts[0], parts[1]}; /* a byte, but no area */
        assert_int_equal(gw_gcomp_join(&codec->codec, source, nowhere, 3, &out), GW_ERR_ARG);
        gw_gcomp_part swapped[2] = {parts[1], parts[0]};
        assert_int_equal(gw_gcomp_join(&codec->codec, source, swapped, 2, &out), GW_ERR_ARG);
        out.capacity--;
        assert_int_equal(gw_gcomp_join(&codec->codec, source, parts, 2, &out), GW_ERR_DST);
    }
    test_buffer_free(&joined);
    for (size_t i = 0; i <= cuts; i++) {
        test_buffer_free(&job[i].area);
        test_buffer_free(&job[i].work);
    }
}

static void every_split_joins(void **state)
{
    (void)state;
    uint8_t *values = malloc((size_t)LEN * 4);
    assert_non_null(values);
    for (uint32_t choice = 0; choice < 12; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice / 3 % 2);
        o.preset = (gw_gcomp_preset)(choice / 6);
        o.checksum = (int)(choice % 2);
        o.chunk_log2 = o.preset == GW_GCOMP_SMALL ? 15 : 13 + choice % 2;
        o.rounding = (gw_gcomp_rounding)(choice % 3);
        const size_t len = LEN - choice * 1111;
        test_codec codec;
        test_codec_make(&codec, &o);
        test_map map;
        test_map_make(&map, o.dtype, len, o.chunk_log2, choice);
        test_fill_values(values, o.dtype, len, choice % 2 ? PATTERN_SPARSE : PATTERN_SPECIAL, choice);
        const gw_gcomp_source source = test_source(values, len, &map.map);
        test_buffer frame;
        const size_t size = test_encode(&codec, &source, &frame);
        const uint64_t chunks = gw_gcomp_chunk_count(&codec.codec, len);
        const uint64_t align = gw_gcomp_range_align(&codec.codec);
        join_equals(&codec, &source, NULL, 0, &frame, size);
        for (uint64_t cut = 0; cut < chunks; cut += align) {
            join_equals(&codec, &source, &cut, 1, &frame, size);
        }
        join_equals(&codec, &source, (const uint64_t[]){align, 2 * align}, 2, &frame, size);
        join_equals(&codec, &source, (const uint64_t[]){align, align}, 2, &frame, size); /* an empty range */

        gw_gcomp_part part = {.range = {0, chunks}};
        test_buffer area;
        test_buffer_make(&area, gw_gcomp_range_bound(&codec.codec, len, &part.range), 0, 0x99);
        part.area = area.at;
        part.capacity = area.size;
        if (align > 1) {
            part.range = (gw_gcomp_range){1, align};
            assert_int_equal(gw_gcomp_encode_range(&codec.codec, &source, &part, &codec.work), GW_ERR_ARG);
            part.range = (gw_gcomp_range){0, align + 1};
            assert_int_equal(gw_gcomp_encode_range(&codec.codec, &source, &part, &codec.work), GW_ERR_ARG);
        }
        part.range = (gw_gcomp_range){0, chunks + 1};
        assert_int_equal(gw_gcomp_encode_range(&codec.codec, &source, &part, &codec.work), GW_ERR_ARG);
        part.range = (gw_gcomp_range){0, chunks};
        part.capacity--;
        part.size = 1;
        assert_int_equal(gw_gcomp_encode_range(&codec.codec, &source, &part, &codec.work), GW_ERR_DST);
        assert_int_equal(part.size, 0);
        for (size_t i = 0; i < area.size; i++) {
            assert_int_equal(area.at[i], 0x99);
        }
        test_buffer_free(&area);
        test_buffer_free(&frame);
        test_map_free(&map);
        test_codec_free(&codec);
    }
    free(values);
}

/* The window of an exact codebook (docs/encoder-profile.md) depends on its own chunk only; the encoder's
 * guess from the chunk before has no effect on it. */
static void windows_are_those_of_their_chunks(void **state)
{
    (void)state;
    enum { CHUNK_LOG2 = 12, CHUNK_LEN = 1 << CHUNK_LOG2 };
    /* Largest and smallest exponent field: in the first guess, above it, on both sides of either end, so far
     * apart that no window has both, moved by a few and by many from one chunk to the next. */
    static const uint8_t range[][2] = {{120, 110}, {140, 100}, {140, 100}, {133, 71},  {134, 72},
                                       {133, 70},  {60, 5},    {254, 1},   {100, 90},  {190, 60},
                                       {62, 1},    {1, 1},     {254, 250}, {194, 140}, {195, 133},
                                       {200, 199}, {119, 110}, {128, 110}, {3, 2},     {140, 120}};
    enum { CHUNKS = sizeof range / sizeof range[0] };
    static uint8_t values[4 * CHUNKS * CHUNK_LEN];
    for (int dtype = GW_FP32; dtype <= GW_BF16; dtype++) {
        for (uint32_t special_period = 0; special_period <= 500; special_period += 500) {
            gw_gcomp_options o;
            test_codec codec;
            test_buffer frame;
            gw_gcomp_frame_info info;
            test_random random = {special_period + (uint32_t)dtype};
            const unsigned mantissa = dtype == GW_FP32 ? 23 : 7;
            gw_gcomp_options_init(&o, (gw_dtype)dtype);
            o.preset = GW_GCOMP_SMALL;
            o.chunk_log2 = CHUNK_LOG2;
            test_codec_make(&codec, &o);
            for (uint32_t i = 0; i < CHUNKS * CHUNK_LEN; i++) {
                const uint8_t *ends = range[i >> CHUNK_LOG2];
                uint32_t exponent = ends[test_random_below(&random, 20) == 0];
                exponent = special_period != 0 && i % special_period == 7 ? 255 : exponent;
                const uint32_t sign = test_random_below(&random, 2);
                test_put(values, o.dtype, i, (sign << 8 | exponent) << mantissa);
            }
            const gw_gcomp_source source = test_source(values, CHUNKS * CHUNK_LEN, NULL);
            const size_t size = test_encode(&codec, &source, &frame);
            const gw_gcomp_frame in = {frame.at, size, NULL};
            assert_int_equal(gw_gcomp_frame_parse(&codec.codec, &in, &info), GW_OK);
            for (uint64_t i = 0; i < CHUNKS; i++) {
                gw_gcomp_chunk chunk;
                const int base = range[i][0] + 4 - 63;
                assert_int_equal(gw_gcomp_frame_chunk(&in, &info, i, &chunk), GW_OK);
                assert_int_equal(chunk.kind, GW_GCOMP_CHUNK_CODED);
                assert_int_equal(chunk.codebook, i);
                assert_int_equal(frame.at[chunk.offset], base < 0 ? 0 : base > 191 ? 191 : base);
                join_equals(&codec, &source, &i, 1, &frame, size);
            }
            test_buffer_free(&frame);
            test_codec_free(&codec);
        }
    }
}

typedef struct decode_job {
    const test_codec *codec;
    const gw_gcomp_frame *frame;
    const gw_gcomp_frame_info *info;
    gw_gcomp_range range;
    gw_gcomp_target target;
    int add;
    test_buffer work;
    gw_status status;
} decode_job;

static void *decode_thread(void *argument)
{
    decode_job *j = (decode_job *)argument;
    j->status = (j->add ? gw_gcomp_decode_add_range
                        : gw_gcomp_decode_range)(&j->codec->codec, j->frame, j->info, &j->range, &j->target,
                                                 &(gw_workspace){j->work.at, j->work.size});
    return NULL;
}

static void ranges_decode_like_the_whole(void **state)
{
    (void)state;
    uint8_t *values = malloc((size_t)LEN * 4), *want = malloc((size_t)LEN * 4),
            *got = malloc((size_t)LEN * 4);
    assert_true(values != NULL && want != NULL && got != NULL);
    for (uint32_t choice = 0; choice < 12; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice / 3 % 2);
        o.preset = (gw_gcomp_preset)(choice / 6);
        o.checksum = (int)(choice % 2);
        test_codec codec;
        test_codec_make(&codec, &o);
        test_map map;
        test_map_make(&map, o.dtype, LEN, o.chunk_log2, choice);
        test_fill_values(values, o.dtype, LEN, PATTERN_SPECIAL, choice);
        const gw_gcomp_source source = test_source(values, LEN, &map.map);
        const size_t size_of = gw_dtype_size(o.dtype);
        test_buffer frame;
        const size_t size = test_encode(&codec, &source, &frame);
        const gw_gcomp_frame in = {frame.at, size, source.quantum.map};
        gw_gcomp_frame_info info;
        assert_int_equal(gw_gcomp_frame_parse(&codec.codec, &in, &info), GW_OK);
        for (int add = 0; add < 2; add++) {
            memset(want, 0x31, (size_t)LEN * 4);
            memset(got, 0x31, (size_t)LEN * 4);
            gw_gcomp_target whole = {.values = want, .capacity = LEN};
            assert_int_equal(
                (add ? gw_gcomp_decode_add : gw_gcomp_decode)(&codec.codec, &in, &whole, &codec.work), GW_OK);
            decode_job job[THREADS];
            pthread_t thread[THREADS];
            const uint64_t cuts[THREADS + 1] = {0, 3 + choice % 5, 14, info.chunk_count};
            for (int i = 0; i < THREADS; i++) {
                decode_job *j = &job[i];
                j->codec = &codec;
                j->frame = &in;
                j->info = &info;
                j->range = (gw_gcomp_range){cuts[i], cuts[i + 1] - cuts[i]};
                j->target = (gw_gcomp_target){
                    .values = got + (size_t)(cuts[i] << o.chunk_log2) * size_of,
                    .capacity = i == THREADS - 1 ? LEN - (cuts[i] << o.chunk_log2)
                                                 : j->range.chunk_count << o.chunk_log2,
                };
                j->add = add;
                test_buffer_make(&j->work, codec.workspace.size, 3, 0x77);
                assert_int_equal(pthread_create(&thread[i], NULL, decode_thread, j), 0);
            }
            for (int i = 0; i < THREADS; i++) {
                assert_int_equal(pthread_join(thread[i], NULL), 0);
                assert_int_equal(job[i].status, GW_OK);
                assert_true(job[i].target.len == job[i].target.capacity);
                test_buffer_free(&job[i].work);
            }
            assert_memory_equal(got, want, LEN * size_of);
        }
        gw_gcomp_target target = {.values = got, .capacity = LEN};
        gw_gcomp_range range = {info.chunk_count, 1};
        assert_int_equal(gw_gcomp_decode_range(&codec.codec, &in, &info, &range, &target, &codec.work),
                         GW_ERR_ARG);
        range = (gw_gcomp_range){0, 2};
        target.capacity = ((uint64_t)2 << o.chunk_log2) - 1;
        assert_int_equal(gw_gcomp_decode_range(&codec.codec, &in, &info, &range, &target, &codec.work),
                         GW_ERR_DST);
        test_buffer_free(&frame);
        test_map_free(&map);
        test_codec_free(&codec);
    }
    free(values);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_joins),
        cmocka_unit_test(windows_are_those_of_their_chunks),
        cmocka_unit_test(ranges_decode_like_the_whole),
    };
    return cmocka_run_group_tests_name("gcomp threads", tests, NULL, NULL);
}
