/*
 * GCOMP with each backend on each side: every backend makes scalar's frames, decodes every backend's frames
 * to scalar's values, adds and hops to scalar's sums, and refuses damaged frames with scalar's status and
 * chunk.
 *
 * Backends are taken one at a time, and all together. Everything is exact, so equal frames make the square of
 * encoders and decoders equal too; it is tested all the same where frames are short.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "../gcomp/gcomp_support.h"

enum { MASKS_MAX = 6, LONG_LEN = 2 * 32768 + 777 };

static uint32_t masks[MASKS_MAX];
static unsigned mask_count;

static void list_masks(void)
{
    masks[mask_count++] = GW_BACKEND_SCALAR;
    for (unsigned bit = 1; bit < 8; bit++) {
        const uint32_t mask = (uint32_t)1 << bit;
        if ((gw_backends_available() & mask) != 0) {
            masks[mask_count++] = mask;
        }
    }
    masks[mask_count++] = GW_BACKEND_ALL;
}

/* One combination of options on one input. */
typedef struct trial {
    gw_gcomp_options options;
    gw_gcomp_source source;
    size_t value_size;
    uint64_t seed;
} trial;

typedef struct outputs {
    test_buffer frame, values, sums, hop;
    size_t frame_size, hop_size;
    gw_status bad_status;
    uint64_t bad_chunk;
} outputs;

static void decode_with(const test_codec *codec, const trial *t, const test_buffer *frame, size_t frame_size,
                        outputs *o)
{
    const gw_gcomp_source *s = &t->source;
    const size_t size = (size_t)s->len * t->value_size;
    test_buffer_make(&o->values, size, (unsigned)(t->seed % 64), 0x5a);
    test_buffer_make(&o->sums, size, (unsigned)(t->seed % 61), 0);
    gw_gcomp_target target = {.values = o->values.at, .capacity = s->len};
    assert_int_equal(
        gw_gcomp_decode(&codec->codec,
                        &(gw_gcomp_frame){.data = frame->at, .size = frame_size, .map = s->quantum.map},
                        &target, &codec->work),
        GW_OK);
    assert_int_equal(target.len, s->len);
    memcpy(o->sums.at, s->values, size);
    gw_gcomp_target target2 = {.values = o->sums.at, .capacity = s->len};
    assert_int_equal(
        gw_gcomp_decode_add(&codec->codec,
                            &(gw_gcomp_frame){.data = frame->at, .size = frame_size, .map = s->quantum.map},
                            &target2, &codec->work),
        GW_OK);
    assert_int_equal(target2.len, s->len);
    assert_int_equal(
        gw_gcomp_frame_check(&codec->codec,
                             &(gw_gcomp_frame){.data = frame->at, .size = frame_size, .map = s->quantum.map},
                             NULL, &codec->work),
        GW_OK);
}

/* A frame with one byte changed after the header: the backend's outcome. */
static void decode_damaged(const test_codec *codec, const trial *t, outputs *o)
{
    test_random random = {t->seed};
    uint8_t *const at = o->frame.at + test_random_below(&random, (uint32_t)o->frame_size);
    const uint8_t was = *at;
    *at = (uint8_t)(was ^ 1u << test_random_below(&random, 8));
    o->bad_chunk = 0;
    o->bad_status = gw_gcomp_frame_check(
        &codec->codec,
        &(gw_gcomp_frame){.data = o->frame.at, .size = o->frame_size, .map = t->source.quantum.map},
        &o->bad_chunk, &codec->work);
    *at = was;
}

static void run(const test_codec *codec, const trial *t, outputs *o)
{
    o->frame_size = test_encode(codec, &t->source, &o->frame);
    decode_with(codec, t, &o->frame, o->frame_size, o);
    test_buffer_make(&o->hop, gw_gcomp_frame_bound(&codec->codec, t->source.len), 3, 0);
    gw_buffer out = {o->hop.at, o->hop.size, 0};
    assert_int_equal(
        gw_gcomp_decode_add_encode(
            &codec->codec,
            &(gw_gcomp_frame){.data = o->frame.at, .size = o->frame_size, .map = t->source.quantum.map},
            &t->source, &out, NULL, &codec->work),
        GW_OK);
    o->hop_size = out.size;
    decode_damaged(codec, t, o);
}

static void free_values(outputs *o)
{
    test_buffer_free(&o->values);
    test_buffer_free(&o->sums);
}

static void free_outputs(outputs *o)
{
    test_buffer_free(&o->frame);
    test_buffer_free(&o->hop);
    free_values(o);
}

static void compare_values(const outputs *a, const outputs *b)
{
    assert_memory_equal(a->values.at, b->values.at, a->values.size);
    assert_memory_equal(a->sums.at, b->sums.at, a->sums.size);
}

static void try_all(const trial *t)
{
    test_codec codecs[MASKS_MAX];
    outputs results[MASKS_MAX];
    for (unsigned i = 0; i < mask_count; i++) {
        trial own = *t;
        own.options.backends = masks[i];
        test_codec_make(&codecs[i], &own.options);
        run(&codecs[i], &own, &results[i]);
        assert_int_equal(results[i].frame_size, results[0].frame_size);
        assert_memory_equal(results[i].frame.at, results[0].frame.at, results[0].frame_size);
        assert_int_equal(results[i].hop_size, results[0].hop_size);
        assert_memory_equal(results[i].hop.at, results[0].hop.at, results[0].hop_size);
        assert_int_equal(results[i].bad_status, results[0].bad_status);
        assert_int_equal(results[i].bad_chunk, results[0].bad_chunk);
        compare_values(&results[i], &results[0]);
    }
    for (unsigned from = 0; t->source.len < 300 && from < mask_count; from++) {
        for (unsigned to = 0; to < mask_count; to++) {
            outputs crossed;
            decode_with(&codecs[to], t, &results[from].frame, results[from].frame_size, &crossed);
            compare_values(&crossed, &results[0]);
            free_values(&crossed);
        }
    }
    for (unsigned i = 0; i < mask_count; i++) {
        free_outputs(&results[i]);
        test_codec_free(&codecs[i]);
    }
}

/* Steps that derived frames may have, ended by 0. */
static const uint32_t derived_steps[4][5] = {{0}, {1, 2, 3, 6, 0}, {1, 2, 0}, {1, 3, 0}};

/* All of a dtype's modes, with a length, a pattern and the other options drawn for each. */
static void all_modes(gw_dtype dtype, test_random *random, size_t len, test_pattern pattern)
{
    const size_t size = gw_dtype_size(dtype);
    test_buffer values;
    test_buffer_make(&values, len * size, test_random_below(random, 64), 0);
    test_fill_values(values.at, dtype, len, pattern, test_random_u64(random));
    const uint32_t chunk_log2 = 10 + test_random_below(random, 6);
    test_map map;
    test_map_make(&map, dtype, len, chunk_log2, test_random_u64(random));
    for (unsigned step = 0; step == 0 || derived_steps[dtype][step - 1] != 0; step++) {
        for (int rounding = GW_GCOMP_TRUNCATE; rounding <= GW_GCOMP_STOCHASTIC; rounding++) {
            trial t;
            t.seed = test_random_u64(random);
            t.value_size = size;
            gw_gcomp_options_init(&t.options, dtype);
            t.options.quantum_mode = step == 0 ? GW_GCOMP_EXPLICIT : GW_GCOMP_DERIVED;
            t.options.step = step == 0 ? 0 : derived_steps[dtype][step - 1];
            t.options.rounding = (gw_gcomp_rounding)rounding;
            t.options.preset = test_random_below(random, 2) != 0 ? GW_GCOMP_SMALL : GW_GCOMP_FAST;
            t.options.chunk_log2 = chunk_log2;
            t.options.strict = (int)test_random_below(random, 2);
            t.options.checksum = (int)test_random_below(random, 2);
            t.options.quantum = gw_gcomp_quantum_of_drop(test_random_below(random, 8));
            t.source = test_source(values.at, len, test_random_below(random, 4) != 0 ? &map.map : NULL);
            try_all(&t);
        }
    }
    test_map_free(&map);
    test_buffer_free(&values);
}

static void short_lengths(void **state)
{
    (void)state;
    static const uint16_t lens[] = {0,  1,  2,  3,  7,  8,   15,  16,  17,  31,  32, 33,
                                    47, 63, 64, 65, 96, 127, 128, 129, 191, 255, 257};
    for (size_t i = 0; i < TEST_ARRAY_LEN(lens); i++) {
        for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            test_random random = {1000 + 10 * i + (unsigned)dtype};
            all_modes((gw_dtype)dtype, &random, lens[i],
                      (test_pattern)((i + (unsigned)dtype) % PATTERN_COUNT));
        }
    }
}

static void ragged_lengths(void **state)
{
    (void)state;
    static const uint16_t lens[] = {1000, 4095, 4096, 4097, 8191, 12345, 16383, 16385, 32768 - 1, 40961};
    for (size_t i = 0; i < TEST_ARRAY_LEN(lens); i++) {
        for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            test_random random = {2000 + 10 * i + (unsigned)dtype};
            all_modes((gw_dtype)dtype, &random, lens[i],
                      (test_pattern)((i * 5 + (unsigned)dtype) % PATTERN_COUNT));
        }
    }
}

static void several_chunks(void **state)
{
    (void)state;
    for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
        test_random random = {3000 + (unsigned)pattern};
        all_modes((gw_dtype)(GW_FP32 + pattern % 3), &random, LONG_LEN, (test_pattern)pattern);
    }
}

/* The map's two passes and its digests. */
static void maps(void **state)
{
    (void)state;
    enum { LEN = 5001 };
    static float state_of[4][LEN];
    static uint8_t map_bytes[LEN], expected[LEN];
    test_random random = {77};
    for (unsigned a = 0; a < 4; a++) {
        test_fill_values(state_of[a], GW_FP32, LEN, a % 2 != 0 ? PATTERN_SPECIAL : PATTERN_GRADIENT, 500 + a);
    }
    for (size_t i = 0; i < LEN; i++) {
        state_of[2][i] = state_of[2][i] < 0 ? -state_of[2][i] : state_of[2][i]; /* second moments */
    }
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        for (unsigned variant = 0; variant < 4; variant++) {
            gw_optimizer optimizer;
            memset(&optimizer, 0, sizeof optimizer);
            optimizer.kind = (gw_optimizer_kind)kind;
            optimizer.step = 1 + variant * 100;
            optimizer.lr = 0.01;
            optimizer.weight_decay = variant % 2 != 0 ? 1e-4 : 0;
            optimizer.momentum = kind == GW_OPTIMIZER_SGD ? 0 : 0.9;
            optimizer.beta1 = 0.9;
            optimizer.beta2 = 0.999;
            optimizer.alpha = 0.99;
            optimizer.eps = 1e-8;
            optimizer.mu_product = 1.0;
            optimizer.centered = kind == GW_OPTIMIZER_RMSPROP && variant >= 2;
            optimizer.amsgrad = kind >= GW_OPTIMIZER_ADAM && variant >= 2;
            gw_gcomp_map_rule rule;
            assert_int_equal(gw_gcomp_map_rule_init(&optimizer, 4.0f, NULL, &rule), GW_OK);
            const size_t skip = test_random_below(&random, 70),
                         len = LEN - skip - test_random_below(&random, 70);
            const gw_optimizer_state arrays = {state_of[0] + skip, state_of[1] + skip, state_of[2] + skip,
                                               state_of[3] + skip};
            uint32_t top_expected = 0;
            for (unsigned i = 0; i < mask_count; i++) {
                uint32_t top = 0;
                assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, len, masks[i], &top), GW_OK);
                top_expected = i == 0 ? top : top_expected;
                assert_int_equal(top, top_expected);
                memset(map_bytes, 0xee, sizeof map_bytes);
                assert_int_equal(
                    gw_gcomp_map_build(&rule, &arrays, len, gw_gcomp_map_base(top), masks[i], map_bytes),
                    GW_OK);
                if (i == 0) {
                    memcpy(expected, map_bytes, sizeof expected);
                }
                assert_memory_equal(map_bytes, expected, sizeof map_bytes);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_lengths),
        cmocka_unit_test(ragged_lengths),
        cmocka_unit_test(several_chunks),
        cmocka_unit_test(maps),
    };
    list_masks();
    printf("backends:");
    for (unsigned i = 0; i + 1 < mask_count; i++) {
        printf(" %s", gw_backend_name(masks[i]));
    }
    putchar('\n');
    return cmocka_run_group_tests_name("gcomp, backends crossed", tests, NULL, NULL);
}
