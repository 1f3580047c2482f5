/*
 * Maps of buckets against maps of each parameter alone: gaps, pieces that cut parameters, state that does not
 * exist yet, base, digests, streams, bad segments.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>

#include "gcomp_support.h"
#include "gradwire/collective.h"

enum { PARAMETERS = 9, LEN_MAX = 60000, FILL = 0xa5, WORD_FILL = 0x5a5a5a5a };

/* Parameters with state, which buckets are made of. */
typedef struct parameters {
    gw_gcomp_map_rule rules[3];
    gw_collective_segment segments[PARAMETERS]; /* offset 0 */
    float *memory;
} parameters;

static gw_gcomp_map_rule make_rule(gw_optimizer_kind kind, uint64_t step, float wire_scale)
{
    const gw_optimizer optimizer = {.kind = kind,
                                    .step = step,
                                    .lr = 1e-3,
                                    .weight_decay = 0.01,
                                    .momentum = 0.9,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .eps = 1e-8,
                                    .amsgrad = kind == GW_OPTIMIZER_ADAMW};
    gw_gcomp_map_rule rule;
    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, wire_scale, NULL, &rule), GW_OK);
    return rule;
}

/* Lengths from empty to several pieces; parameter 3 has no rule, parameter 5 no state yet, parameter 6 no v
 * but m. */
static void model_make(parameters *model, uint64_t seed)
{
    static const size_t lens[PARAMETERS] = {9000, 0, 1, 777, 4096, 12345, 2100, 64, 5000};
    test_random random = {seed};
    memset(model, 0, sizeof *model);
    model->rules[0] = make_rule(GW_OPTIMIZER_ADAM, 7, 4.0f);
    model->rules[1] = make_rule(GW_OPTIMIZER_MOMENTUM, 7, 4.0f);
    model->rules[2] = make_rule(GW_OPTIMIZER_ADAMW, 1, 4.0f); /* with max_exp_avg_sq */
    model->memory = malloc((size_t)4 * LEN_MAX * sizeof(float));
    assert_non_null(model->memory);
    float *at = model->memory;
    for (size_t i = 0; i < PARAMETERS; i++) {
        gw_collective_segment *segment = &model->segments[i];
        segment->len = lens[i];
        segment->seed = 1000 + i;
        segment->first_element = i % 2 * 100000;
        segment->rule = i == 3 ? NULL : &model->rules[i % 3];
        for (size_t j = 0; j < 4 * lens[i]; j++) {
            const double x = test_random_normal(&random) * ldexp(1.0, -(int)test_random_below(&random, 12));
            at[j] = (float)(j < 2 * lens[i] ? x : x * x);
        }
        segment->state = (gw_optimizer_state){at, at + lens[i], at + 2 * lens[i], at + 3 * lens[i]};
        at += 4 * lens[i];
    }
    model->segments[5].state.m = model->segments[5].state.v = model->segments[5].state.a = NULL;
    model->segments[6].state.v = NULL;
}

static void model_free(parameters *model)
{
    free(model->memory);
}

/* The parameters in a bucket: in order or backwards, with gaps of 0 to gap_max values. Returns its length. */
static uint64_t place(const parameters *model, gw_collective_segment *segments, int is_reversed,
                      uint32_t gap_max, uint64_t seed)
{
    test_random random = {seed};
    uint64_t end = test_random_below(&random, gap_max + 1);
    for (size_t i = 0; i < PARAMETERS; i++) {
        segments[i] = model->segments[is_reversed ? PARAMETERS - 1 - i : i];
        segments[i].offset = end;
        end += segments[i].len + test_random_below(&random, gap_max + 1);
    }
    assert_true(end <= LEN_MAX);
    return end;
}

static gw_collective_layout make_layout(uint64_t len, uint32_t rank_count, uint64_t piece_len)
{
    const gw_collective_shape shape = {
        .len = len, .rank_count = rank_count, .chunk_log2 = 12, .piece_len = piece_len};
    gw_collective_layout layout;
    assert_int_equal(gw_collective_layout_init(&layout, &shape), GW_OK);
    return layout;
}

/* The quarter-octave of one element, by the map of a single parameter with arrays of zeros where there is no
 * state. */
static uint32_t quarter_octave(const gw_collective_segment *segment, size_t i)
{
    static const float zero = 0.0f;
    const gw_optimizer_state *state = &segment->state;
    const gw_optimizer_state one = {state->param + i, state->m != NULL ? state->m + i : &zero,
                                    state->v != NULL ? state->v + i : &zero,
                                    state->a != NULL ? state->a + i : &zero};
    uint32_t top = 0;
    if (segment->rule != NULL) {
        assert_int_equal(gw_gcomp_map_scan(segment->rule, &one, 1, GW_BACKEND_SCALAR, &top), GW_OK);
    }
    return top;
}

/* Quarter-octaves of a bucket; 0 in gaps. Returns the largest. */
static uint32_t expect(const gw_collective_segment *segments, uint64_t len, uint32_t *expected)
{
    uint32_t top = 0;
    memset(expected, 0, (size_t)len * sizeof *expected);
    for (size_t i = 0; i < PARAMETERS; i++) {
        for (size_t j = 0; j < segments[i].len; j++) {
            const uint32_t q = quarter_octave(&segments[i], j);
            expected[segments[i].offset + j] = q;
            top = q > top ? q : top;
        }
    }
    return top;
}

/* A map of exact size, filled with rubbish. */
typedef struct bucket_map {
    gw_collective_map map;
    test_buffer bytes, digest;
} bucket_map;

static void map_make(bucket_map *map, const gw_collective_layout *layout, uint32_t base)
{
    test_buffer_make(&map->bytes, (size_t)layout->shape.len, 1, FILL);
    test_buffer_make(&map->digest, (size_t)gw_collective_digest_len(layout) * 4, 4, 0x5a);
    map->map = (gw_collective_map){map->bytes.at, (uint32_t *)(void *)map->digest.at, base, 4.0f};
}

static void map_free(bucket_map *map)
{
    test_buffer_free(&map->bytes);
    test_buffer_free(&map->digest);
}

/* All pieces, last first. Returns the largest map byte. */
static uint32_t build_all(const gw_collective_layout *layout, const gw_collective_segments *segments,
                          uint32_t backends, gw_collective_map *map)
{
    uint32_t largest = 0;
    for (uint32_t i = layout->piece_count; i-- > 0;) {
        uint32_t map_byte_max = 999;
        assert_int_equal(gw_collective_map_build(layout, i, segments, backends, map, &map_byte_max), GW_OK);
        largest = map_byte_max > largest ? map_byte_max : largest;
    }
    return largest;
}

static uint32_t scan_all(const gw_collective_layout *layout, const gw_collective_segments *segments,
                         uint32_t backends)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        uint32_t top = 99999;
        assert_int_equal(gw_collective_map_scan(layout, i, segments, backends, &top), GW_OK);
        largest = top > largest ? top : largest;
    }
    return largest;
}

/* Digests of every piece are those of its map bytes; words that a piece does not use are untouched. */
static void check_digests(const gw_collective_layout *layout, const gw_collective_map *map)
{
    uint32_t digest[64];
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        gw_collective_piece piece;
        assert_int_equal(gw_collective_piece_at(layout, i, &piece), GW_OK);
        assert_true(layout->piece_chunks <= 64);
        for (size_t j = 0; j < 64; j++) {
            digest[j] = WORD_FILL;
        }
        assert_int_equal(gw_gcomp_map_digest(map->bytes + piece.first, (size_t)piece.len,
                                             layout->shape.chunk_log2, digest),
                         GW_OK);
        assert_memory_equal(map->digest + piece.digest_first, digest, 4 * (size_t)layout->piece_chunks);
    }
}

static void check_bucket(const gw_collective_segment *at, uint64_t len, uint32_t rank_count,
                         uint64_t piece_len)
{
    const gw_collective_segments segments = {at, PARAMETERS};
    const gw_collective_layout layout = make_layout(len, rank_count, piece_len);
    uint32_t *expected = malloc((size_t)len * sizeof *expected);
    assert_non_null(expected);
    const uint32_t top = expect(at, len, expected);
    for (uint32_t backend = 1; backend <= GW_BACKEND_NEON; backend <<= 1) {
        if ((gw_backends_available() & backend) == 0) {
            continue;
        }
        assert_int_equal(scan_all(&layout, &segments, backend), top);
        /* the base of the map, and bases as a step before may have left them */
        const uint32_t base = gw_gcomp_map_base(top);
        const uint32_t bases[] = {base, base > 40 ? base - 40 : 1, base + 40};
        for (size_t b = 0; b < TEST_ARRAY_LEN(bases); b++) {
            bucket_map map;
            uint32_t largest = 0;
            map_make(&map, &layout, bases[b]);
            const uint32_t map_byte_max = build_all(&layout, &segments, backend, &map.map);
            for (size_t i = 0; i < len; i++) {
                const uint32_t above = expected[i] > bases[b] ? expected[i] - bases[b] : 0;
                const uint32_t map_byte = above < 255 ? above : 255;
                assert_int_equal(map.bytes.at[i], map_byte);
                largest = map_byte > largest ? map_byte : largest;
            }
            assert_int_equal(map_byte_max, largest);
            /* what gw_collective_map_scan() says of reuse */
            assert_true(b != 0 || map_byte_max == 255 || bases[b] == 1);
            assert_true(b != 1 || map_byte_max == 255);
            assert_true(b != 2 || map_byte_max == 255 - 40);
            check_digests(&layout, &map.map);
            map_free(&map);
        }
    }
    free(expected);
}

static void test_maps_of_parameters(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 2, 3, 8, 40};
    parameters model;
    model_make(&model, 1);
    for (size_t i = 0; i < TEST_ARRAY_LEN(ranks); i++) {
        gw_collective_segment segments[PARAMETERS];
        const uint64_t len = place(&model, segments, (int)i % 2, i == 0 ? 0 : 700, 10 + i);
        check_bucket(segments, len, ranks[i], i % 2 == 0 ? 4096 : 8192);
    }
    model_free(&model);
}

static void test_no_state_is_zeros(void **state)
{
    (void)state;
    /* The first step of AdamW with amsgrad. (Adam with weight decay drops nothing then: |num| has no lower
     * bound while v is unknown.) */
    enum { LEN = 10000 };
    const gw_gcomp_map_rule rule = make_rule(GW_OPTIMIZER_ADAMW, 1, 1.0f);
    const gw_collective_layout layout = make_layout(LEN, 2, 4096);
    float *memory = calloc(2 * LEN, sizeof *memory);
    uint8_t *map_bytes = malloc(2 * LEN);
    uint32_t *digest = malloc((size_t)gw_collective_digest_len(&layout) * 2 * sizeof *digest);
    test_random random = {3};
    assert_true(memory != NULL && map_bytes != NULL && digest != NULL);
    for (size_t i = 0; i < LEN; i++) {
        memory[i] = (float)test_random_normal(&random);
    }
    const float *zero = memory + LEN;
    const gw_optimizer_state states[2] = {{.param = memory},
                                          {.param = memory, .m = zero, .v = zero, .a = zero}};
    for (size_t i = 0; i < 2; i++) {
        const gw_collective_segment segment = {.len = LEN, .rule = &rule, .state = states[i]};
        const gw_collective_segments segments = {&segment, 1};
        gw_collective_map map = {map_bytes + i * LEN, digest + i * gw_collective_digest_len(&layout), 1,
                                 1.0f};
        map.base = gw_gcomp_map_base(scan_all(&layout, &segments, GW_BACKEND_ALL));
        assert_int_equal(build_all(&layout, &segments, GW_BACKEND_ALL, &map), 255);
    }
    assert_memory_equal(map_bytes, map_bytes + LEN, LEN);
    assert_memory_not_equal(map_bytes, memory + LEN, LEN); /* not all zeros */
    free(memory);
    free(map_bytes);
    free(digest);
}

/* Rank 0 encodes every piece with stochastic rounding, and decodes it again. */
static void round_trip(const gw_collective_layout *layout, const gw_collective_segments *segments,
                       const gw_collective_map *map, const float *values, float *decoded)
{
    gw_gcomp_segment streams[2 * PARAMETERS + 1];
    gw_gcomp_options options;
    test_codec codec;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = GW_GCOMP_DERIVED;
    options.rounding = GW_GCOMP_STOCHASTIC;
    options.tolerance_bits = 12;
    options.dead_zone = 1;
    options.chunk_log2 = layout->shape.chunk_log2;
    test_codec_make(&codec, &options);
    gw_collective_bucket bucket = {
        .layout = layout, .codec = &codec.codec, .map = map, .values = values, .streams = streams};
    assert_int_equal(
        gw_collective_streams(layout, segments, streams, TEST_ARRAY_LEN(streams), &bucket.stream_count),
        GW_OK);
    const size_t bound = gw_collective_message_bound(layout, &codec.codec);
    test_buffer message;
    test_buffer_make(&message, bound, 0, 0);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        gw_collective_piece piece;
        gw_collective_failure failure;
        gw_buffer dst = {message.at, bound, 0};
        assert_int_equal(gw_collective_piece_at(layout, i, &piece), GW_OK);
        assert_int_equal(gw_collective_encode(&bucket, i, &dst, &codec.work), GW_OK);
        const gw_gcomp_frame frame = {.data = message.at, .size = dst.size};
        gw_gcomp_target target = {.values = decoded + piece.first, .capacity = piece.len};
        assert_int_equal(gw_collective_decode(&bucket, i, &frame, &target, &failure, &codec.work), GW_OK);
    }
    test_buffer_free(&message);
    test_codec_free(&codec);
}

/* The same parameters in another order, with other gaps, ranks and pieces: map bytes, and values rounded at
 * random, stay what they were. */
static void test_new_bucketing(void **state)
{
    (void)state;
    parameters model;
    uint8_t *map_bytes[2];
    float *decoded[2];
    gw_collective_segment segments[2][PARAMETERS];
    model_make(&model, 2);
    for (int k = 0; k < 2; k++) {
        const uint64_t len = place(&model, segments[k], k, k == 0 ? 0 : 500, 5);
        const gw_collective_segments list = {segments[k], PARAMETERS};
        const gw_collective_layout layout = make_layout(len, k == 0 ? 3 : 5, 4096);
        uint32_t *digest = malloc((size_t)gw_collective_digest_len(&layout) * sizeof *digest);
        float *values = calloc((size_t)len, sizeof *values);
        map_bytes[k] = malloc((size_t)len);
        decoded[k] = malloc((size_t)len * sizeof(float));
        assert_true(map_bytes[k] != NULL && decoded[k] != NULL && digest != NULL && values != NULL);
        for (size_t i = 0; i < PARAMETERS; i++) {
            test_random random = {segments[k][i].seed};
            for (size_t j = 0; j < segments[k][i].len; j++) {
                values[segments[k][i].offset + j] = (float)test_random_normal(&random);
            }
        }
        gw_collective_map map = {map_bytes[k], digest, 1, 4.0f};
        map.base = gw_gcomp_map_base(scan_all(&layout, &list, GW_BACKEND_ALL));
        (void)build_all(&layout, &list, GW_BACKEND_ALL, &map);
        round_trip(&layout, &list, &map, values, decoded[k]);
        size_t changed = 0;
        for (size_t i = 0; i < len; i++) {
            changed += decoded[k][i] != values[i];
        }
        assert_true(changed > len / 4); /* random words did matter */
        free(values);
        free(digest);
    }
    for (size_t i = 0; i < PARAMETERS; i++) {
        const gw_collective_segment *a = &segments[0][i], *b = &segments[1][PARAMETERS - 1 - i];
        const size_t len = (size_t)a->len;
        assert_int_equal(len, b->len);
        assert_memory_equal(map_bytes[0] + a->offset, map_bytes[1] + b->offset, len);
        assert_memory_equal(decoded[0] + a->offset, decoded[1] + b->offset, len * sizeof(float));
    }
    for (int k = 0; k < 2; k++) {
        free(map_bytes[k]);
        free(decoded[k]);
    }
    model_free(&model);
}

static void test_streams(void **state)
{
    (void)state;
    parameters model;
    gw_collective_segment segments[PARAMETERS];
    gw_gcomp_segment streams[2 * PARAMETERS + 1];
    size_t count = 0, needed;
    model_make(&model, 4);
    const uint64_t len = place(&model, segments, 0, 300, 6);
    const gw_collective_segments list = {segments, PARAMETERS};
    const gw_collective_layout layout = make_layout(len, 4, 4096);
    assert_int_equal(gw_collective_streams(&layout, &list, streams, TEST_ARRAY_LEN(streams), &needed), GW_OK);
    assert_true(needed >= PARAMETERS - 1 && needed <= TEST_ARRAY_LEN(streams));

    /* Every value of every parameter has its seed and element; lengths add up. */
    uint64_t at = 0;
    for (size_t i = 0, segment = 0; i < needed; i++) {
        assert_true(streams[i].len != 0);
        while (segment < PARAMETERS && segments[segment].len == 0) {
            segment++;
        }
        if (segment < PARAMETERS && at == segments[segment].offset) {
            assert_int_equal(streams[i].seed, segments[segment].seed);
            assert_int_equal(streams[i].first_element, segments[segment].first_element);
            assert_int_equal(streams[i].len, segments[segment].len);
            segment++;
            count++;
        }
        at += streams[i].len;
    }
    assert_int_equal(at, len);
    assert_int_equal(count, PARAMETERS - 1); /* all but the empty one */

    gw_gcomp_segment untouched[2 * PARAMETERS + 1];
    memcpy(untouched, streams, sizeof streams);
    assert_int_equal(gw_collective_streams(&layout, &list, streams, needed - 1, &count), GW_ERR_DST);
    assert_int_equal(count, 0);
    assert_memory_equal(untouched, streams, sizeof streams);
    assert_int_equal(gw_collective_streams(&layout, &list, NULL, needed, &count), GW_ERR_ARG);
    assert_int_equal(gw_collective_streams(NULL, &list, streams, needed, &count), GW_ERR_ARG);
    assert_int_equal(gw_collective_streams(&layout, NULL, streams, needed, &count), GW_ERR_ARG);
    assert_int_equal(gw_collective_streams(&layout, &list, streams, needed, NULL), GW_ERR_ARG);
    segments[4].offset--;
    segments[3].len += segments[4].offset - segments[3].offset - segments[3].len + 1;
    assert_int_equal(gw_collective_streams(&layout, &list, streams, needed, &count), GW_ERR_ARG);

    /* no segments: all is padding */
    const gw_collective_segments none = {NULL, 0};
    assert_int_equal(gw_collective_streams(&layout, &none, streams, 1, &count), GW_OK);
    assert_int_equal(count, 1);
    assert_int_equal(streams[0].len, len);
    model_free(&model);
}

/* With room above the largest map byte one scan serves many steps, and quanta are the same. */
static void test_one_scan_serves_many_steps(void **state)
{
    (void)state;
    parameters model;
    gw_collective_segment at[PARAMETERS];
    model_make(&model, 4);
    const uint64_t len = place(&model, at, 0, 0, 5);
    const gw_collective_segments segments = {at, PARAMETERS};
    const gw_collective_layout layout = make_layout(len, 3, 4096);
    const uint32_t top = scan_all(&layout, &segments, GW_BACKEND_ALL);
    assert_true(top > 255);
    bucket_map tight, roomy;
    map_make(&tight, &layout, gw_gcomp_map_base(top));
    map_make(&roomy, &layout, gw_gcomp_map_base(top + 16));
    assert_int_equal(build_all(&layout, &segments, GW_BACKEND_ALL, &tight.map), 255);
    const uint32_t largest = build_all(&layout, &segments, GW_BACKEND_ALL, &roomy.map);
    assert_int_equal(largest, 239);
    assert_in_range(largest, GW_COLLECTIVE_MAP_BYTE_LOW, 254);
    for (size_t i = 0; i < len; i++) {
        const uint32_t map_byte = roomy.map.bytes[i];
        assert_true(map_byte == 0 || map_byte + roomy.map.base == tight.map.bytes[i] + tight.map.base);
    }
    map_free(&tight);
    map_free(&roomy);
    model_free(&model);
}

/* scan and build both refuse and write nothing. */
static void expect_refused(const gw_collective_layout *layout, uint32_t piece,
                           const gw_collective_segments *segments, bucket_map *map)
{
    uint32_t top = 12345, map_byte_max = 12345;
    assert_int_equal(gw_collective_map_scan(layout, piece, segments, GW_BACKEND_ALL, &top), GW_ERR_ARG);
    assert_int_equal(
        gw_collective_map_build(layout, piece, segments, GW_BACKEND_ALL, &map->map, &map_byte_max),
        GW_ERR_ARG);
    assert_int_equal(top, 12345);
    assert_int_equal(map_byte_max, 12345);
    for (size_t i = 0; i < map->bytes.size; i++) {
        assert_int_equal(map->bytes.at[i], FILL);
    }
    for (size_t i = 0; i < map->digest.size; i++) {
        assert_int_equal(map->digest.at[i], 0x5a);
    }
}

static void test_bad_segments(void **state)
{
    (void)state;
    parameters model;
    gw_collective_segment good[PARAMETERS], bad[PARAMETERS];
    bucket_map map;
    model_make(&model, 7);
    const uint64_t len = place(&model, good, 0, 200, 8);
    const gw_collective_layout layout = make_layout(len, 3, 4096);
    const gw_collective_segments list = {bad, PARAMETERS};
    const gw_gcomp_map_rule other_scale = make_rule(GW_OPTIMIZER_ADAM, 7, 8.0f);
    gw_gcomp_map_rule broken = model.rules[0];
    broken.kind = 99;
    map_make(&map, &layout, 300);
    for (unsigned fault = 0; fault < 10; fault++) {
        gw_collective_segment *segment = &bad[PARAMETERS - 1];
        memcpy(bad, good, sizeof good);
        switch (fault) {
        case 0: /* overlap by one value */
            bad[4].offset = bad[3].offset + bad[3].len - 1;
            break;
        case 1: /* order */
            bad[7] = good[8];
            bad[8] = good[7];
            break;
        case 2: /* beyond the bucket */
            segment->offset = len - segment->len + 1;
            break;
        case 3: /* offset + len wraps around */
            segment->len = UINT64_MAX - segment->offset + 1;
            break;
        case 4:
            segment->offset = UINT64_MAX;
            segment->len = 0;
            break;
        case 5:
            segment->rule = &other_scale;
            break;
        case 6:
            segment->rule = &broken;
            break;
        case 7:
            segment->state.param = NULL;
            break;
        case 8: /* an empty one between others that does not lie between them */
            bad[1].offset = bad[0].offset;
            break;
        default: /* a length beyond the bucket alone */
            segment->len = len + 1;
            break;
        }
        for (uint32_t piece = 0; piece < layout.piece_count; piece++) {
            expect_refused(&layout, piece, &list, &map);
        }
    }
    memcpy(bad, good, sizeof good);
    expect_refused(&layout, layout.piece_count, &list, &map);
    expect_refused(NULL, 0, &list, &map);
    expect_refused(&layout, 0, NULL, &map);
    expect_refused(&layout, 0, &(gw_collective_segments){NULL, 1}, &map);

    /* What only the second pass reads */
    uint32_t map_byte_max;
    static const uint32_t bases[] = {0, 1024, UINT32_MAX};
    for (size_t i = 0; i < TEST_ARRAY_LEN(bases); i++) {
        map.map.base = bases[i];
        assert_int_equal(gw_collective_map_build(&layout, 0, &list, GW_BACKEND_ALL, &map.map, &map_byte_max),
                         GW_ERR_ARG);
    }
    map.map.base = 300;
    map.map.wire_scale = 2.0f;
    assert_int_equal(gw_collective_map_build(&layout, 0, &list, GW_BACKEND_ALL, &map.map, &map_byte_max),
                     GW_ERR_ARG);
    map.map.wire_scale = 4.0f;
    assert_int_equal(gw_collective_map_build(&layout, 0, &list, GW_BACKEND_ALL, &map.map, NULL), GW_ERR_ARG);
    assert_int_equal(gw_collective_map_build(&layout, 0, &list, GW_BACKEND_ALL, NULL, &map_byte_max),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_map_scan(&layout, 0, &list, GW_BACKEND_ALL, NULL), GW_ERR_ARG);
    map_free(&map);
    model_free(&model);
}

static void test_nothing_is_dropped_without_rules(void **state)
{
    (void)state;
    bucket_map map;
    const gw_collective_layout layout = make_layout(10000, 3, 4096);
    const gw_collective_segments none = {NULL, 0};
    uint32_t map_byte_max;
    map_make(&map, &layout, 300);
    /* without rules the scale is 1 */
    assert_int_equal(gw_collective_map_build(&layout, 0, &none, GW_BACKEND_ALL, &map.map, &map_byte_max),
                     GW_ERR_ARG);
    map.map.wire_scale = 1.0f;
    assert_int_equal(scan_all(&layout, &none, GW_BACKEND_ALL), 0);
    assert_int_equal(build_all(&layout, &none, GW_BACKEND_ALL, &map.map), 0);
    for (size_t i = 0; i < map.bytes.size; i++) {
        assert_int_equal(map.bytes.at[i], 0);
    }
    check_digests(&layout, &map.map);
    map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_of_parameters),
        cmocka_unit_test(test_no_state_is_zeros),
        cmocka_unit_test(test_one_scan_serves_many_steps),
        cmocka_unit_test(test_new_bucketing),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_bad_segments),
        cmocka_unit_test(test_nothing_is_dropped_without_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
