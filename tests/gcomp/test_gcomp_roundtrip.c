/*
 * Round trips: every combination of options over every kind of data, each decoded value compared bit for bit
 * with the model of gcomp_support.c; every pattern of the 16-bit types and a cut of fp32's at drop 0.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

static const uint32_t steps_of[4][2][5] = {
    {{0}, {0}},
    {{6, 0}, {1, 2, 3, 6, 0}},
    {{2, 0}, {1, 2, 0}},
    {{3, 0}, {1, 3, 0}},
};

/* Encodes, peeks, checks, validates, decodes and compares. Returns the size of the frame. */
static size_t round_trip(const test_codec *codec, const gw_gcomp_source *source)
{
    const gw_gcomp_options *o = &codec->options;
    const size_t size_of = gw_dtype_size(o->dtype);
    test_buffer frame, out;
    const size_t size = test_encode(codec, source, &frame);
    const size_t len = (size_t)source->len;

    /* What the encode left in the workspace must not help the decode. */
    for (size_t i = 0; i < codec->workspace.size; i++) {
        codec->workspace.at[i] = (uint8_t)(0xff - 37 * i);
    }
    gw_gcomp_frame_info peeked, info;
    assert_int_equal(gw_gcomp_frame_peek(frame.at, size < 80 ? size : 80, UINT64_MAX, &peeked), GW_OK);
    assert_int_equal(
        gw_gcomp_frame_parse(&codec->codec,
                             &(gw_gcomp_frame){.data = frame.at, .size = size, .map = source->quantum.map},
                             &info),
        GW_OK);
    assert_memory_equal(&peeked, &info, sizeof info);
    assert_int_equal(info.frame_size, size);
    assert_int_equal(info.len, len);
    assert_int_equal(info.chunk_count, gw_gcomp_chunk_count(&codec->codec, len));
    assert_int_equal(info.strict, o->strict);
    assert_int_equal(info.checksum, o->checksum);
    uint64_t bad = 0;
    assert_int_equal(
        gw_gcomp_frame_check(&codec->codec,
                             &(gw_gcomp_frame){.data = frame.at, .size = size, .map = source->quantum.map},
                             &bad, &codec->work),
        GW_OK);
    assert_true(bad == UINT64_MAX);

    test_buffer_make(&out, len * size_of, 1, 0x33);
    gw_gcomp_target target = {.values = out.at, .capacity = len};
    assert_int_equal(
        gw_gcomp_decode(&codec->codec,
                        &(gw_gcomp_frame){.data = frame.at, .size = size, .map = source->quantum.map},
                        &target, &codec->work),
        GW_OK);
    assert_int_equal(target.len, len);
    assert_true(target.bad_chunk == UINT64_MAX);
    for (size_t i = 0; i < len; i++) {
        const uint32_t want = test_model_round(o, source, i, NULL);
        const uint32_t got = test_get(out.at, o->dtype, i);
        if (want != got) {
            fail_msg("dtype %d mode %d step %u cap %u rounding %d strict %d preset %d log2 %u: value %zu "
                     "of %zu, "
                     "%08x, should become %08x and is %08x",
                     (int)o->dtype, (int)o->quantum_mode, o->step, o->cap, (int)o->rounding, o->strict,
                     (int)o->preset, o->chunk_log2, i, len, test_get(source->values, o->dtype, i), want, got);
        }
    }
    test_buffer_free(&out);
    test_buffer_free(&frame);
    return size;
}

/* Over dtype x quantum mode x step x cap x rounding x preset x strict x checksum: drops from a map and a
 * constant. The length, chunk size and pattern turn with the combination, so that all meet without a product
 * of everything. */
static void every_option(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 9000, 16385};
    const size_t len_max = 16385;
    uint32_t turn = 0;
    uint8_t *values = malloc(len_max * 4);
    assert_non_null(values);
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
            for (const uint32_t *step = steps_of[dtype][quantum_mode]; *step != 0; step++) {
                for (uint32_t choice = 0; choice < 3 * 2 * 2 * 2; choice++) {
                    gw_gcomp_options o;
                    gw_gcomp_options_init(&o, (gw_dtype)dtype);
                    o.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
                    o.step = *step;
                    o.rounding = (gw_gcomp_rounding)(choice % 3);
                    o.preset = (gw_gcomp_preset)(choice / 3 % 2);
                    o.strict = (int)(choice / 6 % 2);
                    o.checksum = (int)(choice / 12 % 2);
                    for (uint32_t cap = 0; cap < 3; cap++) {
                        o.cap = cap == 0 ? UINT32_MAX : cap == 1 ? *step : 0;
                        for (int constant = 0; constant < 2; constant++) {
                            const size_t len = lens[turn % TEST_ARRAY_LEN(lens)];
                            o.chunk_log2 = 10 + turn % 6;
                            o.tolerance_bits = dtype != GW_FP32 && turn % 5 == 0 ? (turn % 2 ? 7 : 10) : 23;
                            o.quantum = gw_gcomp_quantum_of_drop(constant ? turn % 25 : 0);
                            o.dead_zone = quantum_mode == 1 && *step == 1 && cap == 0 && turn % 2 == 0;
                            test_codec codec;
                            test_codec_make(&codec, &o);
                            test_map map;
                            test_map_make(&map, o.dtype, len, o.chunk_log2, turn);
                            test_fill_values(values, o.dtype, len, (test_pattern)(turn % PATTERN_COUNT),
                                             turn);
                            gw_gcomp_source source = test_source(values, len, constant ? NULL : &map.map);
                            round_trip(&codec, &source);
                            test_map_free(&map);
                            test_codec_free(&codec);
                            turn++;
                        }
                    }
                }
            }
        }
    }
    free(values);
    assert_true(turn > 1000); /* it did run */
}

/* Every length that the issue of chunks and groups turns on, with both presets and every chunk size. */
static void every_length(void **state)
{
    (void)state;
    static const size_t lens[] = {0,    1,    2,     63,    64,    65,     4095,   4096,   4097,
                                  8191, 8192, 16384, 32767, 32769, 131071, 131072, 131073, 262145};
    uint8_t *values = malloc(262145 * 4);
    assert_non_null(values);
    for (size_t l = 0; l < TEST_ARRAY_LEN(lens); l++) {
        for (uint32_t choice = 0; choice < 16; choice++) {
            if (lens[l] > 40000 && choice % 3 != l % 3) {
                continue;
            }
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)(1 + (choice + l) % 3));
            o.quantum_mode = (gw_gcomp_quantum_mode)(choice & 1);
            o.preset = (gw_gcomp_preset)(choice >> 1 & 1);
            o.chunk_log2 = 10 + (choice / 4 + (uint32_t)l) % 6;
            test_codec codec;
            test_codec_make(&codec, &o);
            test_map map;
            test_map_make(&map, o.dtype, lens[l], o.chunk_log2, l);
            test_fill_values(values, o.dtype, lens[l], choice % 2 ? PATTERN_SPECIAL : PATTERN_SPARSE, l);
            gw_gcomp_source source = test_source(values, lens[l], &map.map);
            round_trip(&codec, &source);
            test_map_free(&map);
            test_codec_free(&codec);
        }
    }
    free(values);
}

/* Drops nothing in four ways: constant 0, map bytes 0, map out of reach of the values, cap 0. In strict mode
 * every pattern must then come back; in default mode every pattern but the flushed ones. */
static void exact_patterns(gw_dtype dtype, const uint32_t *pattern, size_t len)
{
    const size_t size_of = gw_dtype_size(dtype);
    uint8_t *values = malloc(len * size_of);
    uint8_t *out = malloc(len * size_of);
    uint8_t *map_bytes = malloc(len);
    uint32_t *digest = malloc(((len >> 10) + 1) * 4);
    assert_true(values != NULL && out != NULL && map_bytes != NULL && digest != NULL);
    for (size_t i = 0; i < len; i++) {
        test_put(values, dtype, i, pattern[i]);
    }
    for (uint32_t choice = 0; choice < 2 * 2 * 4 * 2; choice++) {
        const uint32_t way = choice / 4 % 4;
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, dtype);
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice % 2);
        o.strict = (int)(choice / 2 % 2);
        o.preset = (gw_gcomp_preset)(choice / 16);
        o.rounding = (gw_gcomp_rounding)(choice % 3);
        o.chunk_log2 = 10 + choice % 6;
        o.cap = way == 3 ? 0 : UINT32_MAX;
        memset(map_bytes, way == 1 ? 0 : way == 2 ? 1 : 200, len);
        assert_int_equal(gw_gcomp_map_digest(map_bytes, len, o.chunk_log2, digest), GW_OK);
        gw_gcomp_map map = {map_bytes, digest, way == 2 ? 1 : 700, 1.0f, len, o.chunk_log2};
        test_codec codec;
        test_codec_make(&codec, &o);
        gw_gcomp_source source = test_source(values, len, way == 0 ? NULL : &map);
        test_buffer frame;
        const size_t size = test_encode(&codec, &source, &frame);
        memset(out, 0x99, len * size_of);
        gw_gcomp_target target = {.values = out, .capacity = len};
        assert_int_equal(
            gw_gcomp_decode(&codec.codec,
                            &(gw_gcomp_frame){.data = frame.at, .size = size, .map = source.quantum.map},
                            &target, &codec.work),
            GW_OK);
        const uint32_t sign = dtype == GW_FP32 ? 0x80000000u : 0x8000u;
        const uint32_t smallest = dtype == GW_FP32 ? 0x00800000u : dtype == GW_BF16 ? 0x0080u : 1u;
        for (size_t i = 0; i < len; i++) {
            const uint32_t want = !o.strict && (pattern[i] & ~sign) < smallest ? 0 : pattern[i];
            if (test_get(out, dtype, i) != want) {
                fail_msg("dtype %d, way %u, strict %d, mode %d: %08x came back as %08x", (int)dtype, way,
                         o.strict, (int)o.quantum_mode, pattern[i], test_get(out, dtype, i));
            }
        }
        test_buffer_free(&frame);
        test_codec_free(&codec);
    }
    free(values);
    free(out);
    free(map_bytes);
    free(digest);
}

static void exact_16_bit_patterns(void **state)
{
    (void)state;
    uint32_t *pattern = malloc(65536 * 4);
    assert_non_null(pattern);
    for (int dtype = GW_BF16; dtype <= GW_FP16; dtype++) {
        for (uint32_t i = 0; i < 65536; i++) {
            pattern[i] = i;
        }
        exact_patterns((gw_dtype)dtype, pattern, 65536);
        /* Again with 8 exponents a chunk, so that chunks are CODED, and with all in each. */
        for (uint32_t i = 0; i < 65536; i++) {
            pattern[i] = (i & 7) << 10 | (i >> 3 & 0x3ff) | (i & 0xe000);
        }
        exact_patterns((gw_dtype)dtype, pattern, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            pattern[i] = i * 40503u & 0xffff;
        }
        exact_patterns((gw_dtype)dtype, pattern, 65536);
    }
    free(pattern);
}

/* Every exponent and sign with mantissas of every single bit, all ones below and above a bit, and random
 * ones; results_fp32_patterns does all 2^32. */
static void exact_fp32_cut(void **state)
{
    (void)state;
    const size_t per_exponent = 23 * 3 + 59;
    const size_t len = 512 * per_exponent;
    uint32_t *pattern = malloc(len * 4);
    assert_non_null(pattern);
    test_random random = {42};
    size_t n = 0;
    for (uint32_t top = 0; top < 512; top++) {
        for (uint32_t bit = 0; bit < 23; bit++) {
            pattern[n++] = top << 23 | 1u << bit;
            pattern[n++] = top << 23 | ((1u << bit) - 1);
            pattern[n++] = top << 23 | (0x7fffff & ~((1u << bit) - 1));
        }
        for (uint32_t i = 0; i < 59; i++) {
            pattern[n++] = top << 23 | (uint32_t)(test_random_u64(&random) & 0x7fffff);
        }
    }
    assert_int_equal(n, len);
    exact_patterns(GW_FP32, pattern, len);
    for (size_t i = len - 1; i > 0; i--) { /* and shuffled */
        const size_t j = test_random_below(&random, (uint32_t)i + 1);
        const uint32_t swap = pattern[i];
        pattern[i] = pattern[j];
        pattern[j] = swap;
    }
    exact_patterns(GW_FP32, pattern, len);
    free(pattern);
}

/* Every K byte against every exponent, for every dtype, quantum mode and step: both saturations and the
 * reserved 0. */
static void every_map_byte_and_exponent(void **state)
{
    (void)state;
    const size_t len = 256 * 256 * 2;
    uint8_t *values = malloc(len * 4);
    uint8_t *map_bytes = malloc(len);
    uint32_t digest[32];
    assert_true(values != NULL && map_bytes != NULL);
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int derived = 0; derived < 2; derived++) {
            for (const uint32_t *step = steps_of[dtype][derived]; *step != 0; step++) {
                for (uint32_t base = 1; base <= 1023; base += 146) {
                    test_random random = {base};
                    gw_gcomp_options o;
                    gw_gcomp_options_init(&o, (gw_dtype)dtype);
                    o.quantum_mode = (gw_gcomp_quantum_mode)derived;
                    o.step = *step;
                    o.rounding = (gw_gcomp_rounding)(base % 3);
                    o.dead_zone = derived && *step == 1 && base % 4 == 1;
                    for (size_t i = 0; i < len; i++) {
                        const uint32_t mantissa_bits = dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
                        const uint32_t exponents = dtype == GW_FP16 ? 32 : 256;
                        const uint32_t exponent = (uint32_t)(i / 512) % exponents;
                        const uint32_t mantissa =
                            (uint32_t)test_random_u64(&random) & ((1u << mantissa_bits) - 1);
                        const uint32_t sign = (uint32_t)(i & 1) << (dtype == GW_FP32 ? 31 : 15);
                        test_put(values, o.dtype, i, sign | exponent << mantissa_bits | mantissa);
                        map_bytes[i] = (uint8_t)(i / 2);
                    }
                    assert_int_equal(gw_gcomp_map_digest(map_bytes, len, o.chunk_log2, digest), GW_OK);
                    gw_gcomp_map map = {map_bytes, digest, base, 1.0f, len, o.chunk_log2};
                    test_codec codec;
                    test_codec_make(&codec, &o);
                    gw_gcomp_source source = test_source(values, len, &map);
                    round_trip(&codec, &source);
                    test_codec_free(&codec);
                }
            }
        }
    }
    free(values);
    free(map_bytes);
}

/* From dense to sparse: every tolerance, so that plain and masked codebooks, relative exponents and others
 * all occur, with quanta from a map and carried ones from the caller. */
static void every_tolerance(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 63, 1000, 4097, 16384, 33000, 131072 + 4096 + 77};
    uint32_t masked = 0, relative = 0, turn = 0;
    uint8_t *values = malloc(140000 * 4), *quanta = malloc(140000 / 64 + 1);
    assert_true(values != NULL && quanta != NULL);
    for (uint32_t choice = 0; choice < 3 * 3 * 2 * 2; choice++) {
        for (uint32_t tolerance = 1; tolerance <= 23; tolerance += 2, turn++) {
            const size_t len = lens[turn % TEST_ARRAY_LEN(lens)];
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
            o.rounding = (gw_gcomp_rounding)(choice / 3 % 3);
            o.preset = (gw_gcomp_preset)(choice / 9 % 2);
            o.quantum_mode = choice / 18 ? GW_GCOMP_CARRIED : GW_GCOMP_DERIVED;
            o.tolerance_bits = tolerance;
            o.dead_zone = turn % 5 != 0;
            o.strict = turn % 3 == 0;
            o.checksum = turn % 4 == 0;
            o.chunk_log2 = 10 + turn % 6;
            o.block_log2 = 6 + turn % (o.chunk_log2 < 14 ? o.chunk_log2 - 5 : 9);
            test_codec codec;
            test_codec_make(&codec, &o);
            test_map map;
            test_map_make(&map, o.dtype, len, o.chunk_log2, turn);
            test_fill_values(values, o.dtype, len, (test_pattern)(turn % PATTERN_COUNT), turn);
            for (size_t i = 0; i <= len >> o.block_log2; i++) {
                quanta[i] = (uint8_t)(i % 7 == 3 ? 0 : 128 - tolerance + (i + turn) % 4);
            }
            gw_gcomp_source source = test_source(values, len, &map.map);
            if (o.quantum_mode == GW_GCOMP_CARRIED) {
                source.quantum = gw_gcomp_quantum_of_blocks(quanta);
            }
            round_trip(&codec, &source);
            test_buffer frame;
            test_encode(&codec, &source, &frame);
            const gw_gcomp_frame received = {frame.at, frame.size, source.quantum.map};
            gw_gcomp_frame_info info;
            gw_gcomp_chunk chunk;
            assert_int_equal(gw_gcomp_frame_peek(frame.at, frame.size, UINT64_MAX, &info), GW_OK);
            for (uint64_t i = 0; i < info.chunk_count; i++) {
                assert_int_equal(gw_gcomp_frame_chunk(&received, &info, i, &chunk), GW_OK);
                if (chunk.kind == GW_GCOMP_CHUNK_CODED && chunk.codebook == i) {
                    masked += (frame.at[chunk.offset + 3] & 15) == 15;
                    relative += frame.at[chunk.offset] == 1;
                }
            }
            test_buffer_free(&frame);
            test_map_free(&map);
            test_codec_free(&codec);
        }
    }
    free(values);
    free(quanta);
    assert_true(masked > 100 && relative > 50); /* both occurred */
}

/* NMSE of a carried frame of these values with a target, divided by the target. */
static double share_of_target(const float *values, size_t len, gw_gcomp_rounding rounding, float target)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.quantum_mode = GW_GCOMP_CARRIED;
    o.rounding = rounding;
    o.quantum = gw_gcomp_quantum_of_nmse(target);
    o.dead_zone = 1;
    test_codec codec;
    test_codec_make(&codec, &o);
    gw_gcomp_source source = test_source(values, len, NULL);
    test_buffer frame;
    const size_t size = test_encode(&codec, &source, &frame);
    const gw_gcomp_frame received = {frame.at, size, NULL};
    float *out = malloc(len * sizeof *out);
    assert_non_null(out);
    gw_gcomp_target decoded = {.values = out, .capacity = len};
    assert_int_equal(gw_gcomp_decode(&codec.codec, &received, &decoded, &codec.work), GW_OK);
    double error = 0, square = 0;
    for (size_t i = 0; i < len; i++) {
        error += ((double)out[i] - values[i]) * ((double)out[i] - values[i]);
        square += (double)values[i] * values[i];
    }
    free(out);
    test_buffer_free(&frame);
    test_codec_free(&codec);
    return error / ((double)target * square);
}

/* Quanta that the encoder chooses: the error stays near the target. */
static void carried_quanta(void **state)
{
    (void)state;
    enum { LEN = 40000 };
    float *values = malloc(LEN * sizeof *values);
    assert_non_null(values);
    test_fill_values(values, GW_FP32, LEN, PATTERN_GRADIENT, 5);
    for (int rounding = 0; rounding < 3; rounding++) {
        for (float target = 1e-6f; target < 0.1f; target *= 10) {
            const double share = share_of_target(values, LEN, (gw_gcomp_rounding)rounding, target);
            assert_true(share <= 1.1 && share >= 0.45);
        }
    }
    free(values);
}

/* Values that are spread evenly, in blocks whose sizes differ by up to 2^8: the target is met, not only kept.
 * In a chunk of one block there is one choice, between errors that differ by a factor of 4. */
static void target_is_met(void **state)
{
    (void)state;
    enum { LEN = 1 << 19, BLOCK = 512 };
    static const float targets[] = {1e-4f, 1e-3f, 3e-3f};
    float *values = malloc(LEN * sizeof *values);
    assert_non_null(values);
    test_random random = {11};
    double scale = 1;
    for (size_t i = 0; i < LEN; i++) {
        if (i % BLOCK == 0) {
            scale = (1 + test_random_unit(&random)) / (double)(1u << test_random_below(&random, 8));
        }
        values[i] = (float)(scale * (2 * test_random_unit(&random) - 1));
    }
    for (int rounding = 0; rounding < 3; rounding++) {
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
            const double share = share_of_target(values, LEN, (gw_gcomp_rounding)rounding, targets[i]);
            assert_true(share > 0.94 && share < 1.03);
            for (size_t at = 0; at < 64 * (size_t)BLOCK; at += BLOCK) {
                const double one =
                    share_of_target(values + at, BLOCK, (gw_gcomp_rounding)rounding, targets[i]);
                assert_true(one > 0.3 && one < 2.0); /* 0.4 to 1.6 of what is expected */
            }
        }
    }
    free(values);
}

/* Blocks in which a value in 8 is large and most others are far below the quantum, where they err less than
 * values that are spread evenly; every eighth value, or every ninth, may be 0. The target is met all the
 * same.
 */
static void sparse_target_is_met(void **state)
{
    (void)state;
    enum { LEN = 1 << 18 };
    static const float targets[] = {1e-3f, 1e-2f};
    float *values = malloc(LEN * sizeof *values);
    assert_non_null(values);
    for (size_t period = 7; period <= 9; period++) {
        test_random random = {period};
        for (size_t i = 0; i < LEN; i++) {
            const double scale = test_random_below(&random, 8) == 0 ? 1 : 1 / 512.0;
            values[i] =
                period > 7 && i % period == 0 ? 0 : (float)(scale * (2 * test_random_unit(&random) - 1));
        }
        for (int rounding = 0; rounding < 3; rounding++) {
            for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
                const double share = share_of_target(values, LEN, (gw_gcomp_rounding)rounding, targets[i]);
                assert_true(share > 0.95 && share < 1.06);
            }
        }
    }
    free(values);
}

/* Large values in some columns of a matrix, in one of eight neighbours, shifted in the next eight: a sample
 * of the same columns in every row would see all of them or none. */
static void target_is_met_by_columns(void **state)
{
    (void)state;
    enum { LEN = 1 << 18 };
    float *values = malloc(LEN * sizeof *values);
    assert_non_null(values);
    test_random random = {3};
    for (size_t turn = 0; turn < 8; turn++) {
        for (size_t i = 0; i < LEN; i++) {
            const double scale = i % 8 == (turn + 5 * (i / 8)) % 8 ? 1 : 1 / 512.0;
            values[i] = (float)(scale * (2 * test_random_unit(&random) - 1));
        }
        for (int rounding = 0; rounding < 3; rounding++) {
            const double share = share_of_target(values, LEN, (gw_gcomp_rounding)rounding, 1e-3f);
            assert_true(share > 0.95 && share < 1.07);
        }
    }
    free(values);
}

/* Zeros cost nothing but the directory; no frame exceeds the bound or its RAW form. */
static void zero_and_worst_case(void **state)
{
    (void)state;
    const size_t len = 100000;
    uint8_t *values = calloc(len, 4);
    assert_non_null(values);
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (uint32_t log2 = 12; log2 <= 15; log2++) {
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)dtype);
            o.chunk_log2 = log2;
            test_codec codec;
            test_codec_make(&codec, &o);
            memset(values, 0, len * 4);
            gw_gcomp_source source = test_source(values, len, NULL);
            const size_t chunks = (len + ((size_t)1 << log2) - 1) >> log2;
            assert_int_equal(round_trip(&codec, &source), 32 + 16 * chunks);
            test_fill_values(values, o.dtype, len, PATTERN_BITS, log2);
            const size_t size = round_trip(&codec, &source);
            assert_true(size <= 32 + 16 * chunks + (len * gw_dtype_size(o.dtype) + 15) / 16 * 16);
            test_codec_free(&codec);
        }
    }
    free(values);
}

/* A long chunk without zeros in a group whose codebook is masked: decoders have no room to join it apart. */
static void dense_chunk_among_sparse(void **state)
{
    (void)state;
    enum { CHUNK = 1 << 15, LEN = 4 * CHUNK };
    float *values = calloc(LEN, sizeof *values), *dense = malloc(CHUNK * sizeof *dense);
    assert_true(values != NULL && dense != NULL);
    test_fill_values(dense, GW_FP32, CHUNK, PATTERN_GRADIENT, 5);
    for (size_t i = 0; i < CHUNK; i++) {
        const float value = dense[i] == 0 ? 1.0f : dense[i];
        values[CHUNK + i] = value;
        for (size_t c = 0; c < 4 && i % 50 == 0; c++) {
            values[c * CHUNK + i] = value;
        }
    }
    for (int strict = 0; strict < 2; strict++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, GW_FP32);
        o.chunk_log2 = 15;
        o.strict = strict;
        test_codec codec;
        test_codec_make(&codec, &o);
        gw_gcomp_source source = test_source(values, LEN, NULL);
        round_trip(&codec, &source);
        test_buffer frame;
        const size_t size = test_encode(&codec, &source, &frame);
        const gw_gcomp_frame received = {frame.at, size, NULL};
        gw_gcomp_frame_info info;
        gw_gcomp_chunk chunk;
        assert_int_equal(gw_gcomp_frame_peek(frame.at, size, UINT64_MAX, &info), GW_OK);
        assert_int_equal(gw_gcomp_frame_chunk(&received, &info, 1, &chunk), GW_OK);
        assert_true(chunk.kind == GW_GCOMP_CHUNK_CODED && chunk.codebook == 0);
        assert_int_equal(gw_gcomp_frame_chunk(&received, &info, 0, &chunk), GW_OK);
        assert_int_equal(frame.at[chunk.offset + 3] & 15, 15); /* masked */
        test_buffer_free(&frame);
        test_codec_free(&codec);
    }
    free(values);
    free(dense);
}

/* gcomp.h promises a workspace below 1 MiB for all options. */
static void workspace_is_below_a_mebibyte(void **state)
{
    (void)state;
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (uint32_t log2 = 12; log2 <= 15; log2++) {
            for (int kind = 0; kind < 4; kind++) {
                gw_gcomp_options o;
                gw_gcomp codec;
                gw_gcomp_options_init(&o, (gw_dtype)dtype);
                o.chunk_log2 = log2;
                o.quantum_mode = kind & 1 ? GW_GCOMP_DERIVED : GW_GCOMP_EXPLICIT;
                o.preset = kind & 2 ? GW_GCOMP_SMALL : GW_GCOMP_FAST;
                assert_int_equal(gw_gcomp_init(&codec, &o), GW_OK);
                assert_in_range(gw_gcomp_workspace_size(&codec), 1, (1 << 20) - 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option),
        cmocka_unit_test(every_length),
        cmocka_unit_test(exact_16_bit_patterns),
        cmocka_unit_test(exact_fp32_cut),
        cmocka_unit_test(every_map_byte_and_exponent),
        cmocka_unit_test(every_tolerance),
        cmocka_unit_test(carried_quanta),
        cmocka_unit_test(target_is_met),
        cmocka_unit_test(sparse_target_is_met),
        cmocka_unit_test(target_is_met_by_columns),
        cmocka_unit_test(zero_and_worst_case),
        cmocka_unit_test(dense_chunk_among_sparse),
        cmocka_unit_test(workspace_is_below_a_mebibyte),
    };
    return cmocka_run_group_tests_name("gcomp roundtrip", tests, NULL, NULL);
}
