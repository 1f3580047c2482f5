/*
 * Rate control: predicted sizes and errors beside those of encode. GW_TEST_SAMPLES is the folder
 * data/samples.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include <math.h>

/* Predicted and encoded sizes, and decoded values that are not zero. */
typedef struct outcome {
    uint64_t predicted, encoded;
    uint64_t nonzeros, nonzeros_decoded;
    double error, square;
} outcome;

static gw_gcomp_options options_of(gw_dtype dtype, gw_gcomp_preset preset, gw_gcomp_rounding rounding,
                                   int dead_zone)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, dtype);
    options.quantum_mode = GW_GCOMP_DERIVED;
    options.preset = preset;
    options.rounding = rounding;
    options.dead_zone = dead_zone;
    return options;
}

static void rate_of(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind, const gw_gcomp_options *options,
                    const gw_gcomp_source *source)
{
    test_codec codec;
    test_codec_make(&codec, options);
    assert_int_equal(gw_gcomp_rate_init(rate, kind), GW_OK);
    assert_int_equal(gw_gcomp_rate_add(rate, &codec.codec, source, &codec.work), GW_OK);
    assert_int_equal(rate->len, source->len);
    test_codec_free(&codec);
}

/* Encodes and decodes with these options. */
static void run(outcome *result, const gw_gcomp_options *options, const gw_gcomp_source *source)
{
    test_codec codec;
    test_buffer frame, decoded;
    const size_t size = options->dtype == GW_FP32 ? 4 : 2;
    memset(result, 0, sizeof *result);
    test_codec_make(&codec, options);
    result->encoded = test_encode(&codec, source, &frame);
    test_buffer_make(&decoded, (size_t)source->len * size, 0, 0);
    gw_gcomp_target target = {.values = decoded.at, .capacity = source->len};
    assert_int_equal(
        gw_gcomp_decode(&codec.codec,
                        &(gw_gcomp_frame){frame.at, (size_t)result->encoded, source->quantum.map}, &target,
                        &codec.work),
        GW_OK);
    for (size_t i = 0; i < source->len; i++) {
        const uint32_t bits = test_get(decoded.at, options->dtype, i);
        const double x = test_value(options->dtype, test_get(source->values, options->dtype, i));
        const double y = test_value(options->dtype, bits);
        result->nonzeros_decoded += bits != 0;
        result->error += isfinite(x) ? (x - y) * (x - y) : 0.0;
        result->square += isfinite(x) ? x * x : 0.0;
    }
    test_buffer_free(&frame);
    test_buffer_free(&decoded);
    test_codec_free(&codec);
}

static void run_tolerance(outcome *result, const gw_gcomp_rate *rate, const gw_gcomp_options *options,
                          const gw_gcomp_source *source, uint32_t tolerance_bits)
{
    gw_gcomp_options o = *options;
    o.tolerance_bits = tolerance_bits;
    run(result, &o, source);
    result->predicted = gw_gcomp_rate_size(rate, tolerance_bits - 1);
    result->nonzeros = rate->nonzeros[tolerance_bits - 1];
}

/* With a map that is not the one of the point. */
static void assert_close(const outcome *result, uint32_t point)
{
    const double ratio = (double)result->predicted / (double)result->encoded;
    if (!(ratio > 0.98 && ratio < 1.02)) {
        fail_msg("point %u: %llu bytes predicted, %llu encoded", point, (unsigned long long)result->predicted,
                 (unsigned long long)result->encoded);
    }
}

static void assert_exact(const outcome *result, const gw_gcomp_options *options, uint32_t point)
{
    if (result->predicted != result->encoded || result->nonzeros != result->nonzeros_decoded) {
        fail_msg(
            "dtype %d preset %d rounding %d deep %d strict %d chunks %u point %u: %llu bytes, encoded %llu; "
            "%llu nonzeros, decoded %llu",
            (int)options->dtype, (int)options->preset, (int)options->rounding, options->dead_zone,
            options->strict, options->chunk_log2, point, (unsigned long long)result->predicted,
            (unsigned long long)result->encoded, (unsigned long long)result->nonzeros,
            (unsigned long long)result->nonzeros_decoded);
    }
}

/* ---- data ---------------------------------------------------------------------------------------------- */

/* A gradient with the map of plain SGD. */
typedef struct fixture {
    float *values, *param;
    test_map map;
    gw_gcomp_source source;
} fixture;

enum shape { SHAPE_NORMAL, SHAPE_LAYERS, SHAPE_SPARSE, SHAPE_TAILS, SHAPE_COUNT };

static void shape_fill(fixture *f, enum shape shape, size_t len)
{
    test_random random = {17 + (uint64_t)shape};
    f->values = malloc(len * sizeof(float) + 1);
    f->param = malloc(len * sizeof(float) + 1);
    assert_non_null(f->values);
    assert_non_null(f->param);
    double scale = 1e-3;
    for (size_t i = 0; i < len; i++) {
        if (shape == SHAPE_LAYERS && i % 20000 == 0) {
            scale = pow(2.0, -6.0 - (double)test_random_below(&random, 10));
        }
        double x = scale * test_random_normal(&random);
        if (shape == SHAPE_TAILS) {
            x *= pow(2.0, -(double)test_random_below(&random, 24));
        } else if (shape == SHAPE_SPARSE && test_random_below(&random, 40) != 0) {
            x = i / 4096 % 3 == 0 ? 0.0 : x * 1e-3;
        }
        f->values[i] = (float)x;
        f->param[i] = (float)(0.05 * test_random_normal(&random));
    }
}

static void map_fill(fixture *f, size_t len)
{
    const gw_optimizer optimizer = {.kind = GW_OPTIMIZER_SGD, .step = 1, .lr = 0.05, .weight_decay = 5e-4};
    const gw_optimizer_state state = {f->param, NULL, NULL, NULL};
    gw_gcomp_map_rule rule;
    uint32_t top;
    test_map_make(&f->map, GW_FP32, len, 12, 1); /* room for the digests of short chunks */
    f->map.map.chunk_log2 = 14;
    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, 1.0f, NULL, &rule), GW_OK);
    assert_int_equal(gw_gcomp_map_scan(&rule, &state, len, GW_BACKEND_ALL, &top), GW_OK);
    f->map.map.base = gw_gcomp_map_base(top);
    assert_int_equal(gw_gcomp_map_build(&rule, &state, len, f->map.map.base, GW_BACKEND_ALL, f->map.bytes),
                     GW_OK);
    assert_int_equal(gw_gcomp_map_digest(f->map.bytes, len, 14, f->map.digest), GW_OK);
    f->source = test_source(f->values, len, &f->map.map);
}

static void shape_make(fixture *f, enum shape shape, size_t len)
{
    shape_fill(f, shape, len);
    map_fill(f, len);
}

/* The fp32 values of NAME.npy, which start at byte 128. */
static float *sample_read(const char *name, size_t len)
{
    char path[512];
    snprintf(path, sizeof path, GW_TEST_SAMPLES "/%s.npy", name);
    FILE *file = fopen(path, "rb");
    float *values = malloc(len * sizeof(float));
    assert_non_null(file);
    assert_non_null(values);
    assert_int_equal(fseek(file, 128, SEEK_SET), 0);
    assert_int_equal(fread(values, sizeof(float), len, file), len);
    fclose(file);
    return values;
}

static void fixture_free(fixture *f)
{
    free(f->values);
    free(f->param);
    test_map_free(&f->map);
}

static void check_curve(const fixture *f, const gw_gcomp_options *options)
{
    gw_gcomp_rate rate;
    rate_of(&rate, GW_GCOMP_RATE_TOLERANCE, options, &f->source);
    for (uint32_t t = 2; t <= 23; t += 3) {
        outcome result;
        run_tolerance(&result, &rate, options, &f->source, t);
        assert_exact(&result, options, t);
    }
}

/* ---- tests --------------------------------------------------------------------------------------------- */

/* Every pattern and option. With preset fast five or six chunks have a codebook, made from a sample that
 * misses labels. */
static void test_sizes_are_exact(void **state)
{
    (void)state;
    const size_t len = 16384 + 4099;
    for (uint32_t i = 0; i < 3 * PATTERN_COUNT * 3 * 2 * 2 * 2; i++) {
        const gw_dtype dtype = (gw_dtype)(1 + i % 3);
        const test_pattern pattern = (test_pattern)(i / 3 % PATTERN_COUNT);
        const gw_gcomp_rounding rounding = (gw_gcomp_rounding)(i / 3 / PATTERN_COUNT % 3);
        const gw_gcomp_preset preset = (gw_gcomp_preset)(i / 36 / PATTERN_COUNT);
        gw_gcomp_options options = options_of(dtype, preset, rounding, (int)(i / 9 / PATTERN_COUNT % 2));
        options.strict = (int)(i / 18 / PATTERN_COUNT % 2);
        options.checksum = options.strict;
        options.chunk_log2 = preset == GW_GCOMP_SMALL ? 14 : 12;
        uint8_t *values = malloc(4 * len);
        test_map map;
        assert_non_null(values);
        test_fill_values(values, dtype, len, pattern, i);
        test_map_make(&map, dtype, len, options.chunk_log2, i);
        const gw_gcomp_source source = test_source(values, len, &map.map);
        gw_gcomp_rate rate;
        rate_of(&rate, GW_GCOMP_RATE_TOLERANCE, &options, &source);
        for (uint32_t t = 1 + i % 4; t <= 23; t += 4) {
            outcome result;
            run_tolerance(&result, &rate, &options, &source, t);
            assert_exact(&result, &options, t);
        }
        free(values);
        test_map_free(&map);
    }
}

/* Sparse frames of several chunks and groups, down to few bytes a chunk. */
static void test_sparse_frames_are_exact(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4 * SHAPE_COUNT * 2; i++) {
        static const size_t lens[4] = {20000, 33000, 60000, 131072 + 20000};
        fixture f;
        gw_gcomp_rate rate;
        gw_gcomp_options options = options_of(GW_FP32, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 1);
        options.chunk_log2 = i / 4 / SHAPE_COUNT == 0 ? 14 : 12;
        shape_make(&f, (enum shape)(i / 4 % SHAPE_COUNT), lens[i % 4]);
        f.map.map.chunk_log2 = options.chunk_log2;
        assert_int_equal(gw_gcomp_map_digest(f.map.bytes, lens[i % 4], options.chunk_log2, f.map.digest),
                         GW_OK);
        rate_of(&rate, GW_GCOMP_RATE_TOLERANCE, &options, &f.source);
        for (uint32_t t = 1; t <= 12; t += 1 + t / 4) {
            outcome result;
            run_tolerance(&result, &rate, &options, &f.source, t);
            assert_exact(&result, &options, t);
        }
        fixture_free(&f);
    }
}

static void test_shapes_are_exact(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPE_COUNT * 4; i++) {
        fixture f;
        const gw_gcomp_options options = options_of(GW_FP32, (gw_gcomp_preset)(i / SHAPE_COUNT % 2),
                                                    GW_GCOMP_STOCHASTIC, (int)(i / SHAPE_COUNT / 2));
        shape_make(&f, (enum shape)(i % SHAPE_COUNT), 131072 + 50000);
        check_curve(&f, &options);
        fixture_free(&f);
    }
}

static void test_samples_are_exact(void **state)
{
    static const char *const names[3] = {"resnet50-sgdm-step0400", "resnet50-adamw-step0400",
                                         "bertbase-adamw-step0050"};
    (void)state;
    for (uint32_t i = 0; i < 3 * 4; i++) {
        fixture f;
        char name[128];
        const size_t len = 65536;
        const gw_gcomp_options options =
            options_of(GW_FP32, (gw_gcomp_preset)(i / 3 % 2), GW_GCOMP_STOCHASTIC, (int)(i / 6));
        snprintf(name, sizeof name, "%s-grad", names[i % 3]);
        f.values = sample_read(name, len);
        snprintf(name, sizeof name, "%s-param", names[i % 3]);
        f.param = sample_read(name, len);
        map_fill(&f, len);
        check_curve(&f, &options);
        fixture_free(&f);
    }
}

/* The error that decode shows; stochastic errors are sums of many independent ones. */
static void test_errors_are_close(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        fixture f;
        gw_gcomp_rate rate;
        const gw_gcomp_options options =
            options_of(GW_FP32, GW_GCOMP_SMALL, (gw_gcomp_rounding)(i % 3), (int)(i / 3));
        shape_make(&f, SHAPE_NORMAL, 100000);
        rate_of(&rate, GW_GCOMP_RATE_TOLERANCE, &options, &f.source);
        for (uint32_t t = 8; t <= 23; t++) {
            outcome result;
            run_tolerance(&result, &rate, &options, &f.source, t);
            assert_true(fabs(rate.square / result.square - 1.0) < 1e-9);
            const double ratio = rate.error[t - 1] / result.error;
            if (!(ratio > 0.95 && ratio < 1.05)) {
                fail_msg("rounding %u deep %u t %u: error %g predicted, %g decoded", i % 3, i / 3, t,
                         rate.error[t - 1], result.error);
            }
        }
        fixture_free(&f);
    }
}

static void test_choice_fits(void **state)
{
    (void)state;
    fixture f;
    gw_gcomp_rate rate;
    const gw_gcomp_options options = options_of(GW_FP32, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 1);
    shape_make(&f, SHAPE_LAYERS, 100000);
    rate_of(&rate, GW_GCOMP_RATE_TOLERANCE, &options, &f.source);
    uint32_t largest = 0;
    for (uint64_t budget = 5000; budget < 200000; budget += 7000) {
        uint32_t t = 99;
        outcome result;
        const gw_status status = gw_gcomp_rate_tolerance(&rate, budget, &t);
        if (status != GW_OK) {
            assert_int_equal(status, GW_ERR_LIMIT);
            assert_int_equal(t, 0);
            assert_true(gw_gcomp_rate_size(&rate, 0) > budget);
            continue;
        }
        assert_true(t >= largest);
        largest = t;
        run_tolerance(&result, &rate, &options, &f.source, t);
        assert_true(result.encoded <= budget);
        if (t < 23) {
            run_tolerance(&result, &rate, &options, &f.source, t + 1);
            assert_true(result.encoded > budget);
        }
    }
    assert_true(largest > 12);
    fixture_free(&f);
}

static void test_pooled_halves_equal_the_whole(void **state)
{
    (void)state;
    for (uint32_t preset = 0; preset < 2; preset++) {
        fixture f;
        gw_gcomp_rate whole, half[2];
        const gw_gcomp_options options = options_of(GW_FP32, (gw_gcomp_preset)preset, GW_GCOMP_STOCHASTIC, 1);
        const size_t len = 200000, cut = preset == GW_GCOMP_SMALL ? 3 * 16384 : 131072;
        shape_make(&f, SHAPE_LAYERS, len);
        rate_of(&whole, GW_GCOMP_RATE_TOLERANCE, &options, &f.source);
        for (uint32_t h = 0; h < 2; h++) {
            const size_t first = h ? cut : 0;
            gw_gcomp_source source = f.source;
            gw_gcomp_map map = f.map.map;
            source.values = f.values + first;
            source.first_element += first;
            source.len = map.len = h ? len - cut : cut;
            map.bytes += first;
            map.digest += first >> 14;
            source.quantum = gw_gcomp_quantum_of_map(&map);
            rate_of(&half[h], GW_GCOMP_RATE_TOLERANCE, &options, &source);
        }
        assert_int_equal(whole.len, half[0].len + half[1].len);
        assert_int_equal(2 * whole.front_size, half[0].front_size + half[1].front_size);
        for (uint32_t i = 0; i < GW_GCOMP_RATE_POINTS; i++) {
            assert_int_equal(whole.cost[i], half[0].cost[i] + half[1].cost[i]);
            assert_int_equal(whole.nonzeros[i], half[0].nonzeros[i] + half[1].nonzeros[i]);
        }
        fixture_free(&f);
    }
}

/* Segments end anywhere, within bytes of the zero mask too; some are empty. */
static void test_segments_are_exact(void **state)
{
    (void)state;
    fixture f;
    gw_gcomp_rate rate;
    const size_t len = 60001;
    const gw_gcomp_segment segments[5] = {{1, 7, 3}, {2, 0, 0}, {9, 1, 20002}, {4, 5, 39995}, {3, 0, 1}};
    const gw_gcomp_options options = options_of(GW_FP32, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 1);
    shape_make(&f, SHAPE_LAYERS, len);
    f.source.segments = segments;
    f.source.segment_count = 5;
    rate_of(&rate, GW_GCOMP_RATE_TOLERANCE, &options, &f.source);
    for (uint32_t t = 3; t <= 23; t += 5) {
        outcome result;
        run_tolerance(&result, &rate, &options, &f.source, t);
        assert_int_equal(result.predicted, result.encoded);
        assert_int_equal(result.nonzeros, result.nonzeros_decoded);
    }
    fixture_free(&f);
}

/* A map of second moments with this noise limit, for a codec of tolerance 6. */
static void noise_map(fixture *f, const float *v, size_t len, float noise)
{
    const gw_optimizer optimizer = {
        .kind = GW_OPTIMIZER_ADAM, .step = 100, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    const gw_optimizer_state state = {NULL, NULL, v, NULL};
    const gw_gcomp_map_limits limits = {6, noise, 1, 0};
    gw_gcomp_map_rule rule;
    uint32_t top;
    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, 1.0f, &limits, &rule), GW_OK);
    assert_int_equal(gw_gcomp_map_scan(&rule, &state, len, GW_BACKEND_ALL, &top), GW_OK);
    f->map.map.base = gw_gcomp_map_base(top);
    assert_int_equal(gw_gcomp_map_build(&rule, &state, len, f->map.map.base, GW_BACKEND_ALL, f->map.bytes),
                     GW_OK);
    assert_int_equal(gw_gcomp_map_digest(f->map.bytes, len, 14, f->map.digest), GW_OK);
}

static void test_noise_is_close(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        fixture f;
        gw_gcomp_rate rate;
        const size_t len = 131072 + 20000;
        gw_gcomp_options options =
            options_of(GW_FP32, (gw_gcomp_preset)(i % 2), GW_GCOMP_STOCHASTIC, (int)(i / 2));
        options.tolerance_bits = 6;
        shape_make(&f, SHAPE_LAYERS, len);
        float *const v = malloc(len * sizeof *v);
        assert_non_null(v);
        test_random random = {5};
        for (size_t j = 0; j < len; j++) {
            v[j] = (float)(fabs((double)f.values[j]) * 1e-2 * exp2(2 * test_random_normal(&random)));
        }
        noise_map(&f, v, len, 1.0f);
        rate_of(&rate, GW_GCOMP_RATE_NOISE, &options, &f.source);
        float largest = 2.0f;
        for (uint32_t point = 0; point < 17; point++) {
            outcome result;
            float noise;
            /* The choice for exactly this size is this point. */
            assert_int_equal(gw_gcomp_rate_noise(&rate, gw_gcomp_rate_size(&rate, point), &noise), GW_OK);
            assert_true(fabs((double)noise / exp2(-0.5 * point) - 1.0) < 1e-6);
            assert_true(noise < largest);
            largest = noise;
            noise_map(&f, v, len, noise);
            run(&result, &options, &f.source);
            result.predicted = gw_gcomp_rate_size(&rate, point);
            result.nonzeros = rate.nonzeros[point];
            if (point % 2 == 0) {
                assert_exact(&result, &options, point);
            } else {
                assert_close(&result, point);
            }
        }
        assert_int_equal(gw_gcomp_rate_size(&rate, 17), 0);
        free(v);
        fixture_free(&f);
    }
}

static void test_arguments(void **state)
{
    (void)state;
    fixture f;
    gw_gcomp_rate rate, before;
    test_codec codec;
    uint32_t t;
    float noise;
    gw_gcomp_options options = options_of(GW_FP32, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 1);
    shape_make(&f, SHAPE_NORMAL, 5000);
    assert_int_equal(gw_gcomp_rate_init(NULL, GW_GCOMP_RATE_NOISE), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_init(&rate, (gw_gcomp_rate_kind)2), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_init(&rate, GW_GCOMP_RATE_TOLERANCE), GW_OK);
    assert_int_equal(gw_gcomp_rate_size(NULL, 0), 0);
    assert_int_equal(gw_gcomp_rate_size(&rate, 23), 0);
    assert_int_equal(gw_gcomp_rate_tolerance(&rate, 0, NULL), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_tolerance(NULL, 0, &t), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_noise(&rate, 0, &noise), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_noise(&rate, 0, NULL), GW_ERR_ARG);
    before = rate;
    for (uint32_t i = 0; i < 3; i++) {
        gw_gcomp_options o = options;
        o.dead_zone = 0;
        o.step = i == 0 ? 2 : 0;
        o.cap = i == 1 ? 20 : UINT32_MAX;
        o.quantum_mode = i == 2 ? GW_GCOMP_EXPLICIT : GW_GCOMP_DERIVED;
        test_codec_make(&codec, &o);
        assert_int_equal(gw_gcomp_rate_add(&rate, &codec.codec, &f.source, &codec.work), GW_ERR_OPTION);
        test_codec_free(&codec);
    }
    test_codec_make(&codec, &options);
    gw_gcomp_source no_map = f.source;
    no_map.quantum = gw_gcomp_quantum_of_map(NULL);
    const gw_workspace small = {codec.work.data, codec.work.size - 64};
    assert_int_equal(gw_gcomp_rate_add(NULL, &codec.codec, &f.source, &codec.work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_add(&rate, &codec.codec, &no_map, &codec.work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_rate_add(&rate, &codec.codec, &f.source, &small), GW_ERR_WORKSPACE);
    assert_memory_equal(&rate, &before, sizeof rate);

    gw_gcomp_source empty = f.source;
    gw_gcomp_map empty_map = f.map.map;
    empty.len = empty_map.len = 0;
    empty.quantum = gw_gcomp_quantum_of_map(&empty_map);
    outcome result;
    assert_int_equal(gw_gcomp_rate_add(&rate, &codec.codec, &empty, &codec.work), GW_OK);
    run(&result, &options, &empty);
    assert_int_equal(gw_gcomp_rate_size(&rate, 22), result.encoded);
    test_codec_free(&codec);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_exact),
        cmocka_unit_test(test_sparse_frames_are_exact),
        cmocka_unit_test(test_shapes_are_exact),
        cmocka_unit_test(test_samples_are_exact),
        cmocka_unit_test(test_errors_are_close),
        cmocka_unit_test(test_choice_fits),
        cmocka_unit_test(test_pooled_halves_equal_the_whole),
        cmocka_unit_test(test_segments_are_exact),
        cmocka_unit_test(test_noise_is_close),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
