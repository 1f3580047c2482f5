/*
 * decode_add and decode_add_encode against decode, a model of the sum, and encode; flush modes of the
 * process; overlap.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include <math.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { LEN = 40000, FTZ = 0x8000, DAZ = 0x0040 };

typedef struct arrays {
    uint8_t *remote, *local, *sum, *decoded;
} arrays;

static void arrays_make(arrays *a)
{
    memset(a, 0, sizeof *a);
    a->remote = malloc(LEN * 4);
    a->local = malloc(LEN * 4);
    a->sum = malloc(LEN * 4);
    a->decoded = malloc(LEN * 4);
    assert_true(a->remote != NULL && a->local != NULL && a->sum != NULL && a->decoded != NULL);
}

static void arrays_free(arrays *a)
{
    free(a->remote);
    free(a->local);
    free(a->sum);
    free(a->decoded);
}

/* decode_add == decode, then the model's sum, for one codec and pair of patterns. */
static void check_decode_add(const test_codec *codec, const gw_gcomp_map *map, test_pattern remote,
                             test_pattern local, uint64_t seed)
{
    const gw_dtype dtype = codec->options.dtype;
    arrays a;
    arrays_make(&a);
    test_fill_values(a.remote, dtype, LEN, remote, seed);
    test_fill_values(a.local, dtype, LEN, local, seed + 1);
    const gw_gcomp_source source = test_source(a.remote, LEN, map);
    test_buffer frame;
    const size_t size = test_encode(codec, &source, &frame);
    gw_gcomp_target target = {.values = a.decoded, .capacity = LEN};
    assert_int_equal(gw_gcomp_decode(&codec->codec,
                                     &(gw_gcomp_frame){.data = frame.at, .size = size, .map = map}, &target,
                                     &codec->work),
                     GW_OK);
    memcpy(a.sum, a.local, LEN * 4);
    gw_gcomp_target target2 = {.values = a.sum, .capacity = LEN};
    assert_int_equal(gw_gcomp_decode_add(&codec->codec,
                                         &(gw_gcomp_frame){.data = frame.at, .size = size, .map = map},
                                         &target2, &codec->work),
                     GW_OK);
    for (size_t i = 0; i < LEN; i++) {
        const uint32_t x = test_get(a.local, dtype, i), y = test_get(a.decoded, dtype, i);
        const uint32_t want = test_model_add(dtype, x, y, codec->options.strict);
        if (test_get(a.sum, dtype, i) != want) {
            fail_msg("dtype %d strict %d: %08x + %08x = %08x, not %08x", (int)dtype, codec->options.strict, x,
                     y, want, test_get(a.sum, dtype, i));
        }
    }
    test_buffer_free(&frame);
    arrays_free(&a);
}

static void decode_add_is_decode_and_add(void **state)
{
    (void)state;
    for (uint32_t choice = 0; choice < 3 * 2 * 2; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice / 3 % 2);
        o.strict = (int)(choice / 6);
        o.chunk_log2 = 10 + choice % 6;
        test_codec codec;
        test_codec_make(&codec, &o);
        test_map map;
        test_map_make(&map, o.dtype, LEN, o.chunk_log2, choice);
        for (int remote = 0; remote < PATTERN_COUNT; remote++) {
            check_decode_add(&codec, &map.map, (test_pattern)remote, PATTERN_BITS, choice);
            check_decode_add(&codec, &map.map, (test_pattern)remote, PATTERN_SPECIAL, choice);
            check_decode_add(&codec, NULL, (test_pattern)remote, PATTERN_GRADIENT, choice);
        }
        test_codec_free(&codec);
        test_map_free(&map);
    }
}

/* Every pair of 16-bit values of a dense cut, every special against every special. */
static void sums_of_16_bit_pairs(void **state)
{
    (void)state;
    for (int dtype = GW_BF16; dtype <= GW_FP16; dtype++) {
        for (int strict = 0; strict < 2; strict++) {
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)dtype);
            o.strict = strict;
            test_codec codec;
            test_codec_make(&codec, &o);
            uint8_t *values = malloc(65536 * 2), *sum = malloc(65536 * 2);
            assert_true(values != NULL && sum != NULL);
            for (uint32_t i = 0; i < 65536; i++) {
                test_put(values, o.dtype, i, i);
            }
            const gw_gcomp_source source = test_source(values, 65536, NULL);
            test_buffer frame;
            const size_t size = test_encode(&codec, &source, &frame);
            for (uint32_t turn = 0; turn < 40; turn++) {
                static const uint32_t others[] = {0,      0x8000, 1,      0x8001, 0x7f,   0x80,
                                                  0x3ff,  0x400,  0x7bff, 0x7c00, 0xfc00, 0x7c01,
                                                  0x7f80, 0xff80, 0x7fc1, 0x7f7f};
                for (uint32_t i = 0; i < 65536; i++) {
                    test_put(sum, o.dtype, i,
                             turn < 16 ? others[turn] : (i * 40503u + turn * 2654435u) >> 3 & 0xffff);
                }
                gw_gcomp_target target = {.values = sum, .capacity = 65536};
                assert_int_equal(gw_gcomp_decode_add(&codec.codec,
                                                     &(gw_gcomp_frame){.data = frame.at, .size = size},
                                                     &target, &codec.work),
                                 GW_OK);
                for (uint32_t i = 0; i < 65536; i++) {
                    const uint32_t other =
                        turn < 16 ? others[turn] : (i * 40503u + turn * 2654435u) >> 3 & 0xffff;
                    const uint32_t mine = test_model_round(&codec.options, &source, i, NULL);
                    const uint32_t want = test_model_add(o.dtype, other, mine, strict);
                    if (test_get(sum, o.dtype, i) != want) {
                        fail_msg("dtype %d strict %d: %04x + %04x = %04x, not %04x", dtype, strict, other,
                                 mine, want, test_get(sum, o.dtype, i));
                    }
                }
            }
            test_buffer_free(&frame);
            free(values);
            free(sum);
            test_codec_free(&codec);
        }
    }
}

/* One hop against the three calls, over presets and chunk sizes of both frames and ragged lengths. */
static void hop_is_decode_add_encode(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 100, 4096, 4097, 33000, 131072, 131073, 262144 + 5};
    uint8_t *remote = malloc(270000 * 4), *local = malloc(270000 * 4), *sum = malloc(270000 * 4);
    assert_true(remote != NULL && local != NULL && sum != NULL);
    uint32_t turn = 0;
    for (uint32_t in_log2 = 12; in_log2 <= 15; in_log2++) {
        for (uint32_t out_log2 = 12; out_log2 <= 15; out_log2++) {
            for (uint32_t choice = 0; choice < 8; choice++, turn++) {
                const size_t len = lens[turn % TEST_ARRAY_LEN(lens)];
                gw_gcomp_options in, out;
                gw_gcomp_options_init(&in, (gw_dtype)(1 + turn % 3));
                in.quantum_mode = (gw_gcomp_quantum_mode)(choice & 1);
                in.preset = (gw_gcomp_preset)(choice >> 1 & 1);
                in.checksum = (int)(choice >> 2);
                in.chunk_log2 = in_log2;
                in.rounding = (gw_gcomp_rounding)(turn % 3);
                out = in;
                out.quantum_mode =
                    turn / 3 % 2 ? in.quantum_mode : (gw_gcomp_quantum_mode)(1 - in.quantum_mode);
                out.preset = (gw_gcomp_preset)(turn / 5 % 2);
                out.chunk_log2 = out_log2;
                out.rounding = (gw_gcomp_rounding)(turn / 2 % 3);
                out.strict = (int)(turn / 7 % 2);
                test_codec first, second;
                test_codec_make(&first, &in);
                test_codec_make(&second, &out);
                test_map in_map, out_map;
                test_map_make(&in_map, in.dtype, len, in_log2, turn);
                test_map_make(&out_map, in.dtype, len, out_log2, turn);
                test_fill_values(remote, in.dtype, len, turn % 4 ? PATTERN_SPECIAL : PATTERN_SPARSE, turn);
                test_fill_values(local, in.dtype, len, turn % 5 ? PATTERN_GRADIENT : PATTERN_SPARSE,
                                 turn + 9);

                gw_gcomp_source source = test_source(remote, len, turn % 6 == 0 ? NULL : &in_map.map);
                const gw_gcomp_map *src_map = source.quantum.map;
                test_buffer frame, want, got;
                const size_t size = test_encode(&first, &source, &frame);
                const gw_gcomp_frame received = {frame.at, size, src_map};
                memcpy(sum, local, len * gw_dtype_size(in.dtype));
                gw_gcomp_target target = {.values = sum, .capacity = len};
                assert_int_equal(gw_gcomp_decode_add(&second.codec, &received, &target, &second.work), GW_OK);
                source = test_source(sum, len, &out_map.map);
                source.rank = 9;
                const size_t want_size = test_encode(&second, &source, &want);
                source.values = local;
                test_buffer_make(&got, gw_gcomp_frame_bound(&second.codec, len), 1, 0x77);
                memset(second.workspace.at, 0xd3, second.workspace.size);
                gw_buffer dst = {got.at, got.size, 0};
                uint64_t bad;
                assert_int_equal(
                    gw_gcomp_decode_add_encode(&second.codec, &received, &source, &dst, &bad, &second.work),
                    GW_OK);
                assert_int_equal(dst.size, want_size);
                assert_memory_equal(got.at, want.at, want_size);
                assert_true(bad == UINT64_MAX);

                /* Another length is refused, and so is a damaged frame, by its chunk. */
                source.len = len + 1;
                source.quantum = gw_gcomp_quantum_of_map(NULL);
                assert_int_not_equal(
                    gw_gcomp_decode_add_encode(&second.codec, &received, &source, &dst, &bad, &second.work),
                    GW_OK);
                assert_int_equal(dst.size, 0);
                source.len = len;
                if (in.checksum && len > 0) {
                    gw_gcomp_frame_info info;
                    assert_int_equal(gw_gcomp_frame_peek(frame.at, size, UINT64_MAX, &info), GW_OK);
                    gw_gcomp_chunk chunk;
                    assert_int_equal(gw_gcomp_frame_chunk(&received, &info, info.chunk_count - 1, &chunk),
                                     GW_OK);
                    if (chunk.size != 0) {
                        frame.at[chunk.offset + chunk.size - 1] ^= 4;
                        dst.size = 1;
                        assert_int_equal(gw_gcomp_decode_add_encode(&second.codec, &received, &source, &dst,
                                                                    &bad, &second.work),
                                         GW_ERR_CHECKSUM);
                        assert_true(bad == info.chunk_count - 1);
                        assert_int_equal(dst.size, 0);
                    }
                }
                test_buffer_free(&frame);
                test_buffer_free(&want);
                test_buffer_free(&got);
                test_map_free(&in_map);
                test_map_free(&out_map);
                test_codec_free(&first);
                test_codec_free(&second);
            }
        }
    }
    free(remote);
    free(local);
    free(sum);
}

/* Neither frames nor sums of default mode depend on whether the process flushes subnormals. */
static void flush_modes_change_nothing(void **state)
{
    (void)state;
#if defined(__SSE2__)
    static const uint32_t modes[] = {FTZ, DAZ, FTZ | DAZ};
    const unsigned before = _mm_getcsr();
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)dtype);
            o.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
            test_codec codec;
            test_codec_make(&codec, &o);
            test_map map;
            test_map_make(&map, o.dtype, LEN, o.chunk_log2, 1);
            arrays a;
            arrays_make(&a);
            test_fill_values(a.remote, o.dtype, LEN, PATTERN_BITS, 3);
            test_fill_values(a.local, o.dtype, LEN, PATTERN_SPECIAL, 4);
            for (size_t i = 0; i < LEN; i++) { /* tiny values, whose sums are subnormal as often as not */
                if (o.dtype != GW_FP16 && i % 2 == 0) {
                    const uint32_t mask = o.dtype == GW_FP32 ? 0x81ffffffu : 0x81ffu;
                    test_put(a.remote, o.dtype, i, test_get(a.remote, o.dtype, i) & mask);
                    /* Of the other sign, a little larger. */
                    const uint32_t sign = o.dtype == GW_FP32 ? 0x80000000u : 0x8000u;
                    test_put(a.local, o.dtype, i,
                             (test_get(a.remote, o.dtype, i) + (uint32_t)(i % 64)) ^ sign);
                }
            }
            const gw_gcomp_source source = test_source(a.remote, LEN, &map.map);
            gw_gcomp_source hop = test_source(a.local, LEN, &map.map);
            test_buffer frame, again, fused, fused_again;
            const size_t size = test_encode(&codec, &source, &frame);
            test_buffer_make(&again, frame.size, 0, 0);
            test_buffer_make(&fused, frame.size, 0, 0);
            test_buffer_make(&fused_again, frame.size, 0, 0);
            memcpy(a.sum, a.local, LEN * 4);
            const gw_gcomp_frame received = {frame.at, size, source.quantum.map};
            gw_gcomp_target sum = {.values = a.sum, .capacity = LEN};
            gw_gcomp_target sum_again = {.values = a.decoded, .capacity = LEN};
            gw_buffer dst = {again.at, again.size, 0}, hop_dst = {fused.at, fused.size, 0},
                      hop_again = {fused_again.at, fused_again.size, 0};
            assert_int_equal(gw_gcomp_decode_add(&codec.codec, &received, &sum, &codec.work), GW_OK);
            assert_int_equal(
                gw_gcomp_decode_add_encode(&codec.codec, &received, &hop, &hop_dst, NULL, &codec.work),
                GW_OK);
            for (size_t m = 0; m < TEST_ARRAY_LEN(modes); m++) {
                memcpy(a.decoded, a.local, LEN * 4);
                _mm_setcsr((before & ~(unsigned)(FTZ | DAZ)) | modes[m]);
                const gw_status one = gw_gcomp_encode(&codec.codec, &source, &dst, &codec.work);
                const gw_status two = gw_gcomp_decode_add(&codec.codec, &received, &sum_again, &codec.work);
                const gw_status three =
                    gw_gcomp_decode_add_encode(&codec.codec, &received, &hop, &hop_again, NULL, &codec.work);
                _mm_setcsr(before);
                assert_int_equal(one, GW_OK);
                assert_int_equal(two, GW_OK);
                assert_int_equal(three, GW_OK);
                assert_int_equal(dst.size, size);
                assert_memory_equal(again.at, frame.at, size);
                assert_memory_equal(a.decoded, a.sum, LEN * gw_dtype_size(o.dtype));
                assert_int_equal(hop_again.size, hop_dst.size);
                assert_memory_equal(fused_again.at, fused.at, hop_dst.size);
            }
            test_buffer_free(&frame);
            test_buffer_free(&again);
            test_buffer_free(&fused);
            test_buffer_free(&fused_again);
            arrays_free(&a);
            test_map_free(&map);
            test_codec_free(&codec);
        }
    }
#else
    skip();
#endif
}

/* Several frames at once are one decode_add after the other; a scale is one multiplication before the sum. A
 * chunk that is bad in one frame is added from none. */
static void several_frames(void **state)
{
    (void)state;
    enum { COUNT = 40000, FRAMES = 3 };
    float *values = malloc(COUNT * 4), *want = malloc(COUNT * 4), *got = malloc(COUNT * 4);
    assert_true(values != NULL && want != NULL && got != NULL);
    for (uint32_t choice = 0; choice < 12; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice / 3 % 3);
        o.rounding = GW_GCOMP_STOCHASTIC;
        o.quantum = gw_gcomp_quantum_of_nmse(o.quantum_mode == GW_GCOMP_CARRIED ? 1e-3f : 0);
        o.checksum = 1;
        const float scale = choice % 2 ? 0.25f : 0;
        test_codec codec;
        test_codec_make(&codec, &o);
        test_map map;
        test_map_make(&map, o.dtype, COUNT, o.chunk_log2, choice);
        test_buffer frame[FRAMES];
        gw_gcomp_frame frames[FRAMES];
        test_fill_values((uint8_t *)want, o.dtype, COUNT, PATTERN_GRADIENT, 77);
        memcpy(got, want, COUNT * 4);
        gw_gcomp_target target = {.values = want, .capacity = COUNT, .scale = scale};
        for (uint32_t f = 0; f < FRAMES; f++) {
            test_fill_values((uint8_t *)values, o.dtype, COUNT, (test_pattern)(f % PATTERN_COUNT), f);
            gw_gcomp_source source =
                test_source(values, COUNT, o.quantum_mode == GW_GCOMP_CARRIED ? NULL : &map.map);
            source.rank = (uint16_t)f;
            const size_t size = test_encode(&codec, &source, &frame[f]);
            frames[f] = (gw_gcomp_frame){frame[f].at, size, &map.map};
            assert_int_equal(gw_gcomp_decode_add(&codec.codec, &frames[f], &target, &codec.work), GW_OK);
        }
        target.values = got;
        assert_int_equal(gw_gcomp_decode_add_frames(&codec.codec, frames, FRAMES, NULL, &target, &codec.work),
                         GW_OK);
        assert_int_equal(target.len, COUNT);
        assert_memory_equal(got, want, COUNT * gw_dtype_size(o.dtype));

        gw_gcomp_frame_info info;
        gw_gcomp_chunk chunk;
        assert_int_equal(gw_gcomp_frame_peek(frames[1].data, frames[1].size, UINT64_MAX, &info), GW_OK);
        assert_int_equal(gw_gcomp_frame_chunk(&frames[1], &info, 1, &chunk), GW_OK);
        frame[1].at[chunk.offset + chunk.size - 1] ^= 1;
        const size_t first = (size_t)1 << o.chunk_log2, size = gw_dtype_size(o.dtype);
        memcpy(want, got, COUNT * 4);
        assert_int_equal(gw_gcomp_decode_add_frames(&codec.codec, frames, FRAMES, NULL, &target, &codec.work),
                         GW_ERR_CHECKSUM);
        assert_int_equal(target.bad_chunk, 1);
        assert_int_equal(target.bad_frame, 1);
        assert_memory_equal((uint8_t *)got + first * size, (uint8_t *)want + first * size, first * size);
        assert_memory_not_equal(got, want, first * size);

        target.scale = INFINITY;
        assert_int_equal(gw_gcomp_decode_add(&codec.codec, &frames[0], &target, &codec.work), GW_ERR_ARG);
        target.scale = 0;
        assert_int_equal(gw_gcomp_decode_add_frames(&codec.codec, frames, 0, NULL, &target, &codec.work),
                         GW_ERR_ARG);
        for (uint32_t f = 0; f < FRAMES; f++) {
            test_buffer_free(&frame[f]);
        }
        test_map_free(&map);
        test_codec_free(&codec);
    }
    free(values);
    free(want);
    free(got);
}

/* A scale of 1 / 3: one fp32 multiplication of each decoded value. */
static void scaled_decode(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    float *values = malloc(COUNT * 4), *plain = malloc(COUNT * 4), *scaled = malloc(COUNT * 4);
    assert_true(values != NULL && plain != NULL && scaled != NULL);
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    test_codec codec;
    test_codec_make(&codec, &o);
    test_fill_values((uint8_t *)values, GW_FP32, COUNT, PATTERN_GRADIENT, 3);
    values[7] = INFINITY;
    values[8] = 1.2e-38f; /* a third is subnormal */
    gw_gcomp_source source = test_source(values, COUNT, NULL);
    test_buffer frame;
    const gw_gcomp_frame received = {NULL, test_encode(&codec, &source, &frame), NULL};
    gw_gcomp_frame sent = received;
    sent.data = frame.at;
    gw_gcomp_target target = {.values = plain, .capacity = COUNT};
    assert_int_equal(gw_gcomp_decode(&codec.codec, &sent, &target, &codec.work), GW_OK);
    target.values = scaled;
    target.scale = 1.0f / 3;
    assert_int_equal(gw_gcomp_decode(&codec.codec, &sent, &target, &codec.work), GW_OK);
    for (size_t i = 0; i < COUNT; i++) {
        const float want = plain[i] * (1.0f / 3);
        assert_true(scaled[i] == (fabsf(want) <= 0x1p-126f ? 0 : want));
    }
    test_buffer_free(&frame);
    test_codec_free(&codec);
    free(values);
    free(plain);
    free(scaled);
}

/* Cuts segments into ones of at most 999 values, which have the same random streams. Returns their number. */
static size_t cut_segments(gw_gcomp_segment *cut, const gw_gcomp_segment *segments, size_t count,
                           test_random *random)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t at = 0, len = 0; at < segments[i].len; at += len) {
            const uint64_t left = segments[i].len - at, most = test_random_below(random, 1000);
            len = most < left ? most : left;
            cut[used].seed = segments[i].seed;
            cut[used].first_element = segments[i].first_element + at;
            cut[used++].len = len;
        }
    }
    return used;
}

/* Into how many segments its streams are cut does not change a byte of a frame: groups of one segment, of a
 * few and of many are encoded in other ways. One stream with derived or carried quanta is that of a source
 * without segments. */
static void segment_ends(void **state)
{
    (void)state;
    enum { COUNT = 300000, STREAMS = 7, CUT_MAX = 4000 };
    /* Ends within runs of a sample, which are at multiples of 1024 in large groups; three streams in one run.
     */
    static const uint64_t ends[STREAMS] = {
        60 * 1024 + 30, 60 * 1024 + 40, 60 * 1024 + 1060, 110 * 1024 + 63, 129 * 1024, 130 * 1024 + 1, COUNT};
    uint8_t *values = malloc(COUNT * 4);
    gw_gcomp_segment *cut = malloc(CUT_MAX * sizeof *cut);
    assert_true(values != NULL && cut != NULL);
    for (uint32_t choice = 0; choice < 3 * 3 * 2 * PATTERN_COUNT; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice / 3 % 3);
        o.dead_zone = choice / 9 % 2 && o.quantum_mode != GW_GCOMP_EXPLICIT;
        o.rounding = GW_GCOMP_STOCHASTIC;
        o.preset = choice % 5 == 4 ? GW_GCOMP_SMALL : GW_GCOMP_FAST;
        o.chunk_log2 = choice % 4 == 3 ? 12 : o.chunk_log2;
        o.strict = choice % 7 == 6;
        test_codec codec;
        test_codec_make(&codec, &o);
        test_map map;
        test_map_make(&map, o.dtype, COUNT, codec.options.chunk_log2, choice);
        test_fill_values(values, o.dtype, COUNT, choice / 18, choice);
        test_random random = {choice};
        gw_gcomp_segment streams[STREAMS];
        for (uint64_t i = 0, at = 0; i < STREAMS; at = ends[i++]) {
            streams[i] = (gw_gcomp_segment){test_random_u64(&random), 3 * choice + i, ends[i] - at};
        }
        /* The counter carries into its second word. */
        streams[0].first_element = ((uint64_t)1 << 35) - 40001;
        const gw_gcomp_segment all = {77, choice % 8 == 5 ? ((uint64_t)1 << 35) - 70000 : 3 * choice, COUNT};
        for (uint32_t count = 1; count <= STREAMS; count += STREAMS - 1) {
            gw_gcomp_source source = test_source(values, COUNT, &map.map);
            source.segments = count == 1 ? &all : streams;
            source.segment_count = count;
            test_buffer few, many;
            const size_t size = test_encode(&codec, &source, &few);
            source.segment_count = cut_segments(cut, source.segments, count, &random);
            source.segments = cut;
            assert_in_range(source.segment_count, 300, CUT_MAX);
            assert_int_equal(test_encode(&codec, &source, &many), size);
            assert_memory_equal(many.at, few.at, size);
            test_buffer_free(&many);
            if (count == 1 && o.quantum_mode != GW_GCOMP_EXPLICIT) {
                source = test_source(values, COUNT, &map.map);
                source.seed = all.seed;
                source.first_element = all.first_element;
                assert_int_equal(test_encode(&codec, &source, &many), size);
                assert_memory_equal(many.at, few.at, size);
                test_buffer_free(&many);
            }
            test_buffer_free(&few);
        }
        test_map_free(&map);
        test_codec_free(&codec);
    }
    free(cut);
    free(values);
}

/* Segments: every value is rounded with the stream of its own, wherever chunks and groups begin. */
static void segments(void **state)
{
    (void)state;
    enum { COUNT = 150000, SEGMENTS = 40 };
    uint8_t *values = malloc(COUNT * 4), *out = malloc(COUNT * 4);
    assert_true(values != NULL && out != NULL);
    for (uint32_t choice = 0; choice < 24; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = choice / 3 % 2 ? GW_GCOMP_DERIVED : GW_GCOMP_EXPLICIT;
        o.preset = (gw_gcomp_preset)(choice / 6 % 2);
        o.dead_zone = o.quantum_mode == GW_GCOMP_DERIVED;
        o.rounding = GW_GCOMP_STOCHASTIC;
        o.chunk_log2 = 12;
        test_codec codec;
        test_codec_make(&codec, &o);
        test_map map;
        test_map_make(&map, o.dtype, COUNT, o.chunk_log2, choice);
        test_fill_values(values, o.dtype, COUNT, PATTERN_GRADIENT, choice);
        gw_gcomp_segment segment[SEGMENTS];
        test_random random = {choice};
        uint64_t left = COUNT;
        for (uint32_t i = 0; i < SEGMENTS; i++) {
            const uint32_t large = choice < 12 ? 20000 : 60000, small = choice < 12 ? 900 : 9;
            const uint64_t len = i % 9 == 4 ? 0 : test_random_below(&random, i % 5 == 0 ? large : small);
            segment[i].len = i + 1 == SEGMENTS || len > left ? left : len;
            segment[i].seed = test_random_u64(&random);
            segment[i].first_element = test_random_below(&random, 1000);
            left -= segment[i].len;
        }
        gw_gcomp_source source = test_source(values, COUNT, &map.map);
        source.segments = segment;
        source.segment_count = SEGMENTS;
        test_buffer frame;
        const size_t size = test_encode(&codec, &source, &frame);
        const gw_gcomp_frame received = {frame.at, size, &map.map};
        gw_gcomp_target target = {.values = out, .capacity = COUNT};
        assert_int_equal(gw_gcomp_decode(&codec.codec, &received, &target, &codec.work), GW_OK);
        gw_gcomp_source one = source;
        size_t at = 0;
        for (uint32_t s = 0; s < SEGMENTS; s++) {
            one.seed = segment[s].seed;
            one.first_element = segment[s].first_element - at;
            for (uint64_t i = 0; i < segment[s].len; i++, at++) {
                assert_int_equal(test_get(out, o.dtype, at),
                                 test_model_round(&codec.options, &one, at, NULL));
            }
        }
        test_buffer_free(&frame);
        /* A derived source of one segment is the source without any. */
        test_buffer plain;
        const gw_gcomp_segment all = {source.seed, source.first_element, COUNT};
        source.segments = &all;
        source.segment_count = 1;
        const size_t one_size = test_encode(&codec, &source, &frame);
        source.segment_count = 0;
        const size_t plain_size = test_encode(&codec, &source, &plain);
        if (o.quantum_mode == GW_GCOMP_DERIVED) {
            assert_int_equal(plain_size, one_size);
            assert_memory_equal(frame.at, plain.at, one_size);
        }
        source.segment_count = 1;
        segment[0] = all;
        segment[0].len--;
        source.segments = segment;
        gw_buffer dst = {plain.at, plain.size, 0};
        assert_int_equal(gw_gcomp_encode(&codec.codec, &source, &dst, &codec.work), GW_ERR_ARG);
        test_buffer_free(&frame);
        test_buffer_free(&plain);
        test_map_free(&map);
        test_codec_free(&codec);
    }
    free(values);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_add_is_decode_and_add),
        cmocka_unit_test(sums_of_16_bit_pairs),
        cmocka_unit_test(hop_is_decode_add_encode),
        cmocka_unit_test(flush_modes_change_nothing),
        cmocka_unit_test(several_frames),
        cmocka_unit_test(scaled_decode),
        cmocka_unit_test(segment_ends),
        cmocka_unit_test(segments),
    };
    return cmocka_run_group_tests_name("gcomp sum", tests, NULL, NULL);
}
