/*
 * Structs that no call of the library made: what gw_gcomp_frame_parse(), gw_gcomp_map_rule_init() and
 * gw_gcomp_encode_range() return is plain data, so a caller can hand in anything. It must end in GW_ERR_ARG,
 * not outside the buffers and not in results that depend on the backend.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

enum { LEN = 3 * 4096 + 5 };

typedef struct sample {
    test_codec codec;
    test_map map;
    test_buffer frame;
    float values[LEN];
    gw_gcomp_source source;
    gw_gcomp_frame received;
    gw_gcomp_frame_info info;
} sample;

static void sample_make(sample *s, gw_gcomp_quantum_mode quantum_mode)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.chunk_log2 = 12;
    o.quantum_mode = quantum_mode;
    o.preset = GW_GCOMP_SMALL;
    test_codec_make(&s->codec, &o);
    test_map_make(&s->map, GW_FP32, LEN, 12, 1);
    test_fill_values(s->values, GW_FP32, LEN, PATTERN_GRADIENT, 1);
    s->source = test_source(s->values, LEN, &s->map.map);
    const size_t size = test_encode(&s->codec, &s->source, &s->frame);
    s->received = (gw_gcomp_frame){s->frame.at, size, &s->map.map};
    assert_int_equal(gw_gcomp_frame_parse(&s->codec.codec, &s->received, &s->info), GW_OK);
}

static void sample_free(sample *s)
{
    test_buffer_free(&s->frame);
    test_map_free(&s->map);
    test_codec_free(&s->codec);
}

static void expect_refused(const sample *s, const gw_gcomp_frame_info *info)
{
    test_buffer values;
    gw_gcomp_chunk chunk;
    test_buffer_make(&values, sizeof s->values, 1, 0x5a);
    for (uint64_t first = 0; first < 4; first++) {
        const gw_gcomp_range range = {first, 1};
        gw_gcomp_target target = {.values = values.at, .capacity = LEN, .len = 9, .bad_chunk = 9};
        assert_int_equal(
            gw_gcomp_decode_range(&s->codec.codec, &s->received, info, &range, &target, &s->codec.work),
            GW_ERR_ARG);
        assert_true(target.len == 0 && target.bad_chunk == UINT64_MAX);
        assert_int_equal(
            gw_gcomp_decode_add_range(&s->codec.codec, &s->received, info, &range, &target, &s->codec.work),
            GW_ERR_ARG);
        assert_int_equal(gw_gcomp_frame_chunk(&s->received, info, first, &chunk), GW_ERR_ARG);
    }
    for (size_t i = 0; i < values.size; i++) {
        assert_int_equal(values.at[i], 0x5a);
    }
    test_buffer_free(&values);
}

/* Issue 12: a forged gw_gcomp_frame_info led decode_range outside the buffers. */
static void forged_info_is_refused(void **state)
{
    (void)state;
    static sample s;
    for (int quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_DERIVED; quantum_mode++) {
        sample_make(&s, (gw_gcomp_quantum_mode)quantum_mode);
#define FORGED(field, value)                                                                                 \
    do {                                                                                                     \
        gw_gcomp_frame_info forged = s.info;                                                                 \
        forged.field = (value);                                                                              \
        expect_refused(&s, &forged);                                                                         \
    } while (0)
        FORGED(dtype, (gw_dtype)0);
        FORGED(dtype, (gw_dtype)4);
        FORGED(quantum_mode, (gw_gcomp_quantum_mode)2);
        FORGED(step, 0);
        FORGED(step, 40);
        FORGED(cap, 24);
        FORGED(cap, UINT32_MAX);
        FORGED(drop_offset, INT32_MAX);
        FORGED(drop_offset, INT32_MIN);
        FORGED(strict, 2);
        FORGED(checksum, 1); /* the directory would begin 8 bytes later */
        FORGED(installed, 1);
        FORGED(constant, -1);
        FORGED(chunk_log2, 0);
        FORGED(chunk_log2, 9);
        FORGED(chunk_log2, 13);
        FORGED(chunk_log2, 16);
        FORGED(chunk_log2, 64);
        FORGED(len, s.info.len + 4096);
        FORGED(len, s.info.len - 4096);
        FORGED(len, UINT64_MAX);
        FORGED(chunk_count, s.info.chunk_count + 1);
        FORGED(chunk_count, UINT64_MAX);
        FORGED(frame_size, s.info.payload_offset - 1);
        FORGED(frame_size, s.info.frame_size + 16); /* more than was received */
        FORGED(frame_size, UINT64_MAX);
        FORGED(directory_offset, UINT64_MAX - 8);
        FORGED(directory_offset, s.info.directory_offset + 16);
        FORGED(payload_offset, 0);
        FORGED(payload_offset, s.info.payload_offset + 16);
#undef FORGED
        /* Consistent, but of more values than the frame has: only what was received is read. */
        gw_gcomp_frame_info longer = s.info;
        longer.len += 4096;
        longer.chunk_count++;
        longer.payload_offset += 16;
        test_buffer values;
        test_buffer_make(&values, 4 * (size_t)longer.len, 1, 0);
        const gw_gcomp_range all = {0, longer.chunk_count};
        gw_gcomp_target target = {.values = values.at, .capacity = longer.len, .len = 0};
        assert_int_not_equal(
            gw_gcomp_decode_range(&s.codec.codec, &s.received, &longer, &all, &target, &s.codec.work), GW_OK);
        test_buffer_free(&values);
        sample_free(&s);
    }
}

/* An empty derived frame has a valid info, and no map: decode_range read through the map all the same. */
static void empty_frame_without_a_map(void **state)
{
    (void)state;
    static sample s;
    sample_make(&s, GW_GCOMP_DERIVED);
    gw_gcomp_map map = s.map.map;
    map.len = 0;
    const gw_gcomp_source nothing = test_source(s.values, 0, &map);
    uint8_t bytes[256];
    gw_buffer dst = {bytes, sizeof bytes, 0};
    assert_int_equal(gw_gcomp_encode(&s.codec.codec, &nothing, &dst, &s.codec.work), GW_OK);
    gw_gcomp_frame_info info;
    assert_int_equal(gw_gcomp_frame_peek(bytes, dst.size, 0, &info), GW_OK);
    gw_gcomp_frame received = {bytes, dst.size, NULL};
    const gw_gcomp_range all = {0, 0};
    gw_gcomp_target target = {.values = s.values, .capacity = LEN, .len = 0};
    assert_int_equal(gw_gcomp_decode_range(&s.codec.codec, &received, &info, &all, &target, &s.codec.work),
                     GW_ERR_ARG);
    received.map = &map;
    assert_int_equal(gw_gcomp_decode_range(&s.codec.codec, &received, &info, &all, &target, &s.codec.work),
                     GW_OK);
    sample_free(&s);
}

static void encode_range_refuses_overlap(void **state)
{
    (void)state;
    static sample s;
    sample_make(&s, GW_GCOMP_EXPLICIT);
    gw_gcomp_part part = {.range = {0, s.info.chunk_count}};
    part.capacity = gw_gcomp_range_bound(&s.codec.codec, LEN, &part.range);
    test_buffer memory;
    test_buffer_make(&memory, part.capacity + sizeof s.values, 0, 0);
    memcpy(memory.at + part.capacity - 1, s.values, sizeof s.values);
    s.source.values = memory.at + part.capacity - 1;
    part.area = memory.at;
    assert_int_equal(gw_gcomp_encode_range(&s.codec.codec, &s.source, &part, &s.codec.work), GW_ERR_ARG);
    assert_int_equal(part.size, 0);
    assert_memory_equal(memory.at + part.capacity - 1, s.values, sizeof s.values);
    test_buffer_free(&memory);
    sample_free(&s);
}

/* Issue 12: gw_gcomp_join() did not refuse overlap of dst and areas. */
static void join_refuses_overlap(void **state)
{
    (void)state;
    static sample s;
    sample_make(&s, GW_GCOMP_EXPLICIT);
    const gw_gcomp *codec = &s.codec.codec;
    const size_t bound = gw_gcomp_frame_bound(codec, LEN);
    gw_gcomp_part part = {.range = {0, s.info.chunk_count}};
    part.capacity = gw_gcomp_range_bound(codec, LEN, &part.range);
    test_buffer memory;
    test_buffer_make(&memory, part.capacity + bound, 0, 0x77);
    part.area = memory.at + bound;
    assert_int_equal(gw_gcomp_encode_range(codec, &s.source, &part, &s.codec.work), GW_OK);

    gw_buffer dst = {memory.at, bound, 0};
    assert_int_equal(gw_gcomp_join(codec, &s.source, &part, 1, &dst), GW_OK);
    assert_int_equal(dst.size, s.received.size);
    assert_memory_equal(dst.data, s.frame.at, dst.size);
    const size_t size = dst.size;

    uint8_t *before = malloc(memory.size);
    assert_non_null(before);
    memcpy(before, memory.at, memory.size);
    const size_t at[] = {1, bound / 2, bound, bound + part.size - 1}; /* from the first to the last byte */
    for (size_t i = 0; i < TEST_ARRAY_LEN(at); i++) {
        dst = (gw_buffer){memory.at + at[i], bound, 1};
        assert_int_equal(gw_gcomp_join(codec, &s.source, &part, 1, &dst), GW_ERR_ARG);
        assert_int_equal(dst.size, 0);
        dst.size = 1;
        assert_int_equal(gw_gcomp_join_begin(codec, &s.source, &part, 1, &dst), GW_ERR_ARG);
        assert_int_equal(dst.size, 0);
    }
    dst = (gw_buffer){memory.at + bound + part.size - 1, bound, size};
    assert_int_equal(gw_gcomp_join_part(codec, &s.source, &part, 1, 0, &dst), GW_ERR_ARG);
    assert_memory_equal(memory.at, before, memory.size);
    free(before);
    test_buffer_free(&memory);
    sample_free(&s);
}

/* Issue 12: unknown bits of `uses` left map bytes unwritten with AVX-512 and were ignored elsewhere. */
static void forged_map_rule_is_refused(void **state)
{
    (void)state;
    static const float ones[4] = {1, 1, 1, 1};
    const gw_optimizer adam = {
        .kind = GW_OPTIMIZER_ADAM, .step = 3, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    const gw_optimizer_state arrays = {ones, ones, ones, ones};
    gw_gcomp_map_rule rule;
    uint32_t top;
    uint8_t map_bytes[4];
    assert_int_equal(gw_gcomp_map_rule_init(&adam, 1.0f, NULL, &rule), GW_OK);
    assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 4, GW_BACKEND_ALL, &top), GW_OK);
    assert_int_equal(gw_gcomp_map_build(&rule, &arrays, 4, 1, GW_BACKEND_ALL, map_bytes), GW_OK);
#define FORGED(field, value)                                                                                 \
    do {                                                                                                     \
        gw_gcomp_map_rule forged = rule;                                                                     \
        forged.field = (value);                                                                              \
        memset(map_bytes, 0x5a, sizeof map_bytes);                                                           \
        assert_int_equal(gw_gcomp_map_scan(&forged, &arrays, 4, GW_BACKEND_ALL, &top), GW_ERR_ARG);          \
        assert_int_equal(gw_gcomp_map_build(&forged, &arrays, 4, 1, GW_BACKEND_ALL, map_bytes), GW_ERR_ARG); \
        assert_int_equal(map_bytes[0], 0x5a);                                                                \
    } while (0)
    FORGED(kind, 0);
    FORGED(kind, GW_OPTIMIZER_ADADELTA + 1);
    FORGED(uses, 8);
    FORGED(uses, rule.uses | 1u << 31);
    FORGED(uses, 4); /* a maximum without a second moment */
    FORGED(p_param, 0x1p-127f);
    FORGED(p_m, 0x1p-149f);
    FORGED(q_param, -0x1p-127f);
    FORGED(q_m, 0x1p-130f);
    FORGED(s_scale, 0x1p-127f);
    FORGED(eps, 0x1p-127f);
    FORGED(a_scale, 0x1p-127f);
    FORGED(noise, 0x1p-127f);
    FORGED(limits, 0);
    FORGED(limits, 4); /* no tolerance */
    FORGED(limits, 16);
    FORGED(limits, 2 | 8);
    FORGED(wire_scale, 0.0f);
    FORGED(wire_scale, -1.0f);
    FORGED(wire_scale, test_float_of_bits(0x7fc00000));
    rule.limits = 3;
    assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 4, GW_BACKEND_ALL, &top), GW_OK);
    FORGED(uses, 1); /* a noise limit without a second moment */
    FORGED(kind, GW_OPTIMIZER_SGD);
#undef FORGED
}

/* Issue 12: a derived frame could carry a wire scale of NaN or 0. */
static void wire_scale_must_be_normal(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 0x80000000, 1, 0x007fffff, 0x7f800000, 0x7fc00000, 0xbf800000};
    static sample s;
    for (int quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_DERIVED; quantum_mode++) {
        const gw_status expected = quantum_mode == GW_GCOMP_DERIVED ? GW_ERR_ARG : GW_OK;
        sample_make(&s, (gw_gcomp_quantum_mode)quantum_mode);
        gw_gcomp_histogram histogram;
        gw_buffer dst = {s.frame.at, s.frame.size, 0};
        assert_int_equal(gw_gcomp_histogram_init(&histogram, &s.codec.codec), GW_OK);
        for (size_t i = 0; i < TEST_ARRAY_LEN(bad); i++) {
            s.map.map.wire_scale = test_float_of_bits(bad[i]);
            assert_int_equal(gw_gcomp_encode(&s.codec.codec, &s.source, &dst, &s.codec.work), expected);
            assert_int_equal(gw_gcomp_histogram_add(&histogram, &s.codec.codec, &s.source, &s.codec.work),
                             expected);
        }
        sample_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_info_is_refused),       cmocka_unit_test(empty_frame_without_a_map),
        cmocka_unit_test(encode_range_refuses_overlap), cmocka_unit_test(join_refuses_overlap),
        cmocka_unit_test(forged_map_rule_is_refused),   cmocka_unit_test(wire_scale_must_be_normal),
    };
    return cmocka_run_group_tests_name("gcomp forged", tests, NULL, NULL);
}
