/*
 * Frames and bad input: prefixes, single-byte changes, capacity, workspace, alignment, arguments, derived
 * hashes, empty and tiny frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

typedef struct sample {
    test_codec codec;
    test_map map;
    uint8_t *values;
    size_t len;
    gw_gcomp_source source;
    test_buffer frame;
    size_t size;
} sample;

static void sample_make(sample *s, const gw_gcomp_options *o, size_t len, test_pattern pattern, int has_map)
{
    test_codec_make(&s->codec, o);
    test_map_make(&s->map, o->dtype, len, o->chunk_log2, len + 5);
    s->values = malloc(len * 4 + 1);
    assert_non_null(s->values);
    s->len = len;
    test_fill_values(s->values, o->dtype, len, pattern, len);
    s->source = test_source(s->values, len, has_map ? &s->map.map : NULL);
    s->size = test_encode(&s->codec, &s->source, &s->frame);
}

static void sample_free(sample *s)
{
    test_buffer_free(&s->frame);
    test_codec_free(&s->codec);
    test_map_free(&s->map);
    free(s->values);
}

/* Small frames that between them have every kind of chunk, codebooks shared and owned, escapes, seven planes,
 * checksums. */
enum { SAMPLES = 10 };

static void sample_pick(sample *s, int index)
{
    static const struct {
        gw_dtype dtype;
        gw_gcomp_quantum_mode quantum_mode;
        gw_gcomp_preset preset;
        int checksum, strict, has_map;
        size_t len;
        test_pattern pattern;
    } choice[SAMPLES] = {
        {GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 0, 0, 1, 300, PATTERN_GRADIENT},
        {GW_FP32, GW_GCOMP_DERIVED, GW_GCOMP_SMALL, 0, 1, 1, 200, PATTERN_SPECIAL},
        {GW_FP32, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 0, 0, 0, 300, PATTERN_GRADIENT},
        {GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 0, 1, 1, 400, PATTERN_SPECIAL},
        {GW_BF16, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 1, 0, 1, 300, PATTERN_GRADIENT},
        {GW_FP16, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 0, 0, 1, 300, PATTERN_GRADIENT},
        {GW_FP16, GW_GCOMP_DERIVED, GW_GCOMP_SMALL, 0, 1, 1, 300, PATTERN_SPECIAL},
        {GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 0, 0, 0, 40, PATTERN_BITS}, /* RAW */
        /* ZERO and CODED */
        {GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 1, 0, 1, 4096 * 2 + 60, PATTERN_SPARSE},
        {GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 0, 0, 1, 100, PATTERN_ONE},
    };
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, choice[index].dtype);
    o.quantum_mode = choice[index].quantum_mode;
    o.preset = choice[index].preset;
    o.checksum = choice[index].checksum;
    o.strict = choice[index].strict;
    o.chunk_log2 = 12;
    sample_make(s, &o, choice[index].len, choice[index].pattern, choice[index].has_map);
}

/* Peek, check, validate, decode and decode_add agree on any bytes; outputs are as documented. Returns
 * decode's status. */
static gw_status examine(sample *s, const uint8_t *src, size_t size, const gw_gcomp_map *map)
{
    const gw_dtype dtype = s->codec.options.dtype;
    const size_t size_of = gw_dtype_size(dtype);
    const gw_gcomp *codec = &s->codec.codec;
    const gw_workspace *work = &s->codec.work;
    const gw_gcomp_frame frame = {src, size, map};
    gw_gcomp_frame_info info, peeked;
    const gw_gcomp_frame_info zero_info = {0};
    const gw_status peek = gw_gcomp_frame_peek(src, size < 80 ? size : 80, UINT64_MAX, &peeked);
    const gw_status check = gw_gcomp_frame_parse(codec, &frame, &info);
    uint64_t bad = 9;
    const gw_status valid = gw_gcomp_frame_check(codec, &frame, &bad, work);

    const size_t capacity = s->len + 7;
    test_buffer out, sum;
    test_buffer_make(&out, capacity * size_of, 1, 0x6b);
    test_buffer_make(&sum, capacity * size_of, 5, 0x3c);
    gw_gcomp_target values_target = {.values = out.at, .capacity = capacity, .len = 9, .bad_chunk = 9};
    gw_gcomp_target sum_target = {.values = sum.at, .capacity = capacity, .len = 9, .bad_chunk = 9};
    const gw_status decode = gw_gcomp_decode(codec, &frame, &values_target, work);
    const gw_status add = gw_gcomp_decode_add(codec, &frame, &sum_target, work);
    assert_int_equal(add, decode);
    assert_true(values_target.bad_chunk == sum_target.bad_chunk);
    assert_true(values_target.len == sum_target.len);
    assert_true(decode == GW_OK || values_target.len == 0);
    if (decode != GW_ERR_DST) {
        assert_int_equal(valid, decode);
        assert_true(bad == values_target.bad_chunk);
    }
    if (check != GW_OK) {
        assert_int_equal(decode, check);
        assert_memory_equal(&info, &zero_info, sizeof info);
    } else {
        assert_int_equal(peek, GW_OK);
        assert_memory_equal(&info, &peeked, sizeof info);
        assert_true(decode == GW_OK || decode == GW_ERR_DST || decode == GW_ERR_CORRUPT ||
                    decode == GW_ERR_CHECKSUM);
    }
    if (peek != GW_OK) {
        assert_memory_equal(&peeked, &zero_info, sizeof info);
    }
    const int wrote = check == GW_OK && decode != GW_ERR_DST;
    const size_t values = wrote ? (size_t)info.len : 0;
    for (size_t i = values * size_of; i < capacity * size_of; i++) {
        if (out.at[i] != 0x6b || sum.at[i] != 0x3c) {
            fail_msg("byte %zu after the values was written", i);
        }
    }
    if (wrote && decode != GW_OK) { /* chunk by chunk: the bad ones are +0 and leave the accumulator alone */
        assert_true(values_target.bad_chunk < info.chunk_count);
        uint64_t first_bad = UINT64_MAX;
        for (uint64_t c = 0; c < info.chunk_count; c++) {
            const size_t first = (size_t)(c << info.chunk_log2);
            const size_t chunk_len =
                values - first < (size_t)1 << info.chunk_log2 ? values - first : (size_t)1 << info.chunk_log2;
            test_buffer range;
            test_buffer_make(&range, chunk_len * size_of, 3, 0x11);
            gw_gcomp_target target = {.values = range.at, .capacity = chunk_len, .len = 9, .bad_chunk = 9};
            const gw_status one =
                gw_gcomp_decode_range(codec, &frame, &info, &(gw_gcomp_range){c, 1}, &target, work);
            assert_true(target.len == (one == GW_OK ? chunk_len : 0));
            assert_memory_equal(range.at, out.at + first * size_of, chunk_len * size_of);
            if (one != GW_OK) {
                assert_true(target.bad_chunk == c);
                first_bad = first_bad == UINT64_MAX ? c : first_bad;
                for (size_t i = 0; i < chunk_len * size_of; i++) {
                    assert_int_equal(range.at[i], 0);
                    assert_int_equal(sum.at[first * size_of + i], 0x3c);
                }
            }
            test_buffer_free(&range);
        }
        assert_true(first_bad == values_target.bad_chunk);
    }
    test_buffer_free(&out);
    test_buffer_free(&sum);
    test_buffer_check(&s->codec.workspace);
    return decode;
}

static void every_prefix_is_short(void **state)
{
    (void)state;
    for (int index = 0; index < SAMPLES; index++) {
        sample s;
        sample_pick(&s, index);
        assert_int_equal(examine(&s, s.frame.at, s.size, s.source.quantum.map), GW_OK);
        const size_t step = s.size > 5000 ? 37 : 1;
        for (size_t cut = 0; cut < s.size; cut += step) {
            uint8_t *exact = malloc(cut == 0 ? 1 : cut); /* the sanitizer detects a read after it */
            assert_non_null(exact);
            memcpy(exact, s.frame.at, cut);
            uint8_t *out = malloc(s.len * 4);
            assert_non_null(out);
            gw_gcomp_target target = {.values = out, .capacity = s.len};
            assert_int_equal(
                gw_gcomp_decode(&s.codec.codec,
                                &(gw_gcomp_frame){.data = exact, .size = cut, .map = s.source.quantum.map},
                                &target, &s.codec.work),
                GW_ERR_SHORT);
            assert_int_equal(target.len, 0);
            gw_gcomp_frame_info info;
            const gw_status peek = gw_gcomp_frame_peek(exact, cut, UINT64_MAX, &info);
            assert_true(peek == GW_ERR_SHORT || (peek == GW_OK && cut >= 32 && info.frame_size == s.size));
            free(out);
            free(exact);
        }
        /* And a byte more. */
        uint8_t *longer = malloc(s.size + 1);
        assert_non_null(longer);
        memcpy(longer, s.frame.at, s.size);
        longer[s.size] = 0;
        assert_int_equal(examine(&s, longer, s.size + 1, s.source.quantum.map), GW_ERR_TRAILING);
        free(longer);
        sample_free(&s);
    }
}

/* Changes of every byte: all 255 changes in the front, and at a stride after it. A frame without a checksum
 * may become another valid frame (other values), one with a checksum may not. */
static void every_byte_change(void **state)
{
    (void)state;
    for (int index = 0; index < SAMPLES; index++) {
        sample s;
        sample_pick(&s, index);
        uint32_t accepted = 0, refused = 0;
        uint8_t *copy = malloc(s.size);
        assert_non_null(copy);
        for (size_t at = 0; at < s.size; at++) {
            static const uint8_t some[] = {1, 2, 4, 8, 16, 32, 64, 128, 255, 85};
            const uint32_t changes = at < 48 ? 255 : s.size > 5000 && at % 11 != 0 ? 1 : TEST_ARRAY_LEN(some);
            for (uint32_t c = 0; c < changes; c++) {
                memcpy(copy, s.frame.at, s.size);
                copy[at] ^= at < 48 ? (uint8_t)(c + 1) : some[(c + at) % TEST_ARRAY_LEN(some)];
                const gw_status status = examine(&s, copy, s.size, s.source.quantum.map);
                accepted += status == GW_OK;
                refused += status != GW_OK;
                assert_true(status != GW_OK || !s.codec.options.checksum);
            }
        }
        assert_true(refused > 1000);
        /* After all that the codec still works. */
        assert_int_equal(examine(&s, s.frame.at, s.size, s.source.quantum.map), GW_OK);
        print_message("sample %d, %zu bytes: %u changed frames refused, %u accepted\n", index, s.size,
                      refused, accepted);
        free(copy);
        sample_free(&s);
    }
}

/* Several bytes changed at once, and random bytes after a good header. */
static void random_damage(void **state)
{
    (void)state;
    test_random random = {99};
    for (int index = 0; index < SAMPLES; index++) {
        sample s;
        sample_pick(&s, index);
        uint8_t *copy = malloc(s.size);
        assert_non_null(copy);
        for (int turn = 0; turn < 1500; turn++) {
            memcpy(copy, s.frame.at, s.size);
            const uint32_t n = 1 + test_random_below(&random, 12);
            for (uint32_t i = 0; i < n; i++) {
                const size_t from = turn % 2 == 0 || s.size < 64 ? 0 : 48;
                copy[from + test_random_below(&random, (uint32_t)(s.size - from))] =
                    (uint8_t)test_random_u64(&random);
            }
            (void)examine(&s, copy, s.size, s.source.quantum.map);
        }
        free(copy);
        sample_free(&s);
    }
}

static void derived_map_must_match(void **state)
{
    (void)state;
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)dtype);
        o.quantum_mode = GW_GCOMP_DERIVED;
        o.chunk_log2 = 12;
        sample s;
        sample_make(&s, &o, 3 * 4096 + 17, PATTERN_GRADIENT, 1);
        assert_int_equal(examine(&s, s.frame.at, s.size, &s.map.map), GW_OK);
        assert_int_equal(examine(&s, s.frame.at, s.size, NULL), GW_ERR_MAP);
        gw_gcomp_map other = s.map.map;
        other.base++;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        other = s.map.map;
        other.wire_scale = 4.0f;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        other = s.map.map;
        other.bytes = NULL;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        other = s.map.map;
        other.digest = NULL;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        other = s.map.map;
        other.len--;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        other.len += 2;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        /* Digests of longer chunks are fewer than the frame has chunks. */
        other = s.map.map;
        other.chunk_log2 = 14;
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        other = s.map.map;
        other.chunk_log2 = 13; /* digests of other chunks */
        assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
        /* One map byte in any chunk, the last value's too. */
        for (size_t at = 0; at < s.len; at += 4096) {
            const size_t i = at + 4096 < s.len ? at : s.len - 1;
            uint32_t digest[4];
            s.map.bytes[i] ^= 1;
            assert_int_equal(gw_gcomp_map_digest(s.map.bytes, s.len, 12, digest), GW_OK);
            other = s.map.map;
            other.digest = digest;
            assert_int_equal(examine(&s, s.frame.at, s.size, &other), GW_ERR_MAP);
            s.map.bytes[i] ^= 1;
        }
        /* Step, cap, dtype, hash and wire scale as the frame gives them. */
        static const struct {
            size_t at;
            uint8_t change;
        } field[] = {{12, 1 ^ 2}, {13, 2}, {14, 1}, {15, 1}, {32, 1}, {39, 128}, {40, 1}, {43, 1}};
        for (size_t f = 0; f < TEST_ARRAY_LEN(field); f++) {
            if (field[f].at == 12 && dtype == GW_FP16) {
                continue; /* 2 is not a step of fp16 */
            }
            s.frame.at[field[f].at] ^= field[f].change;
            if (field[f].at == 12) {
                s.frame.at[13] = dtype == GW_FP32 ? 22 : 6; /* a multiple of 2 */
            }
            assert_int_equal(examine(&s, s.frame.at, s.size, &s.map.map), GW_ERR_MAP);
            s.frame.at[field[f].at] ^= field[f].change;
            s.frame.at[13] = (uint8_t)s.codec.options.cap;
        }
        assert_int_equal(examine(&s, s.frame.at, s.size, &s.map.map), GW_OK);

        /* A receiver with another parameter precision has another drop_offset. */
        o.tolerance_bits = 10;
        gw_gcomp receiver;
        assert_int_equal(gw_gcomp_init(&receiver, &o), GW_OK);
        gw_gcomp_frame_info info;
        assert_int_equal(
            gw_gcomp_frame_parse(
                &receiver, &(gw_gcomp_frame){.data = s.frame.at, .size = s.size, .map = &s.map.map}, &info),
            GW_ERR_MAP);
        sample_free(&s);
    }
}

static void capacity_and_workspace(void **state)
{
    (void)state;
    for (int index = 0; index < SAMPLES; index++) {
        sample s;
        sample_pick(&s, index);
        const gw_gcomp *codec = &s.codec.codec;
        const size_t size_of = gw_dtype_size(s.codec.options.dtype);
        const size_t bound = gw_gcomp_frame_bound(codec, s.len);
        const gw_workspace *work = &s.codec.work;
        const gw_workspace small_work = {work->data, work->size - 1};
        const gw_gcomp_frame frame = {s.frame.at, s.size, s.source.quantum.map};
        test_buffer room;
        for (size_t less = 1; less <= bound; less = less * 2 + 1) {
            test_buffer_make(&room, bound - less, 1, 0x42);
            gw_buffer dst = {room.at, room.size, 1};
            assert_int_equal(gw_gcomp_encode(codec, &s.source, &dst, work), GW_ERR_DST);
            assert_int_equal(dst.size, 0);
            for (size_t i = 0; i < room.size; i++) {
                assert_int_equal(room.at[i], 0x42);
            }
            test_buffer_free(&room);
        }
        test_buffer_make(&room, bound, 1, 0x42);
        gw_buffer dst = {room.at, bound, 1};
        assert_int_equal(gw_gcomp_encode(codec, &s.source, &dst, &small_work), GW_ERR_WORKSPACE);
        assert_int_equal(dst.size, 0);
        test_buffer values;
        test_buffer_make(&values, s.len * size_of, 1, 0x24);
        gw_gcomp_target target = {.values = values.at, .capacity = s.len - 1, .len = 5, .bad_chunk = 5};
        assert_int_equal(gw_gcomp_decode(codec, &frame, &target, work), GW_ERR_DST);
        assert_true(target.len == 0 && target.bad_chunk == UINT64_MAX);
        target.len = 5;
        assert_int_equal(gw_gcomp_decode_add(codec, &frame, &target, work), GW_ERR_DST);
        assert_true(target.len == 0 && target.bad_chunk == UINT64_MAX);
        target.capacity = s.len;
        assert_int_equal(gw_gcomp_decode(codec, &frame, &target, &small_work), GW_ERR_WORKSPACE);
        uint64_t bad;
        assert_int_equal(gw_gcomp_frame_check(codec, &frame, &bad, &small_work), GW_ERR_WORKSPACE);
        dst.capacity = bound - 1;
        assert_int_equal(gw_gcomp_decode_add_encode(codec, &frame, &s.source, &dst, &bad, work), GW_ERR_DST);
        dst.capacity = bound;
        assert_int_equal(gw_gcomp_decode_add_encode(codec, &frame, &s.source, &dst, &bad, &small_work),
                         GW_ERR_WORKSPACE);
        for (size_t i = 0; i < values.size; i++) {
            assert_int_equal(values.at[i], 0x24);
        }
        for (size_t i = 0; i < room.size; i++) {
            assert_int_equal(room.at[i], 0x42);
        }
        test_buffer_free(&values);
        test_buffer_free(&room);
        sample_free(&s);
    }
}

/* Every alignment of source, frame, output and workspace gives the same bytes. */
static void alignment_changes_nothing(void **state)
{
    (void)state;
    for (int index = 0; index < SAMPLES; index++) {
        sample s;
        sample_pick(&s, index);
        const gw_gcomp *codec = &s.codec.codec;
        const size_t size_of = gw_dtype_size(s.codec.options.dtype);
        uint8_t *want = malloc(s.len * size_of);
        assert_non_null(want);
        gw_gcomp_target target = {.values = want, .capacity = s.len};
        assert_int_equal(
            gw_gcomp_decode(
                codec, &(gw_gcomp_frame){.data = s.frame.at, .size = s.size, .map = s.source.quantum.map},
                &target, &s.codec.work),
            GW_OK);
        for (unsigned misalign = 0; misalign < 64; misalign += index % 2 ? 7 : 5) {
            test_buffer values, frame, out, work, map_bytes;
            test_buffer_make(&values, s.len * size_of, misalign, 0);
            memcpy(values.at, s.values, values.size);
            test_buffer_make(&map_bytes, s.len, 63 - misalign, 0);
            memcpy(map_bytes.at, s.map.bytes, s.len);
            test_buffer_make(&frame, gw_gcomp_frame_bound(codec, s.len), (misalign + 9) % 64, 0x91);
            test_buffer_make(&out, s.len * size_of, (misalign * 3) % 64, 0x92);
            test_buffer_make(&work, s.codec.workspace.size, (misalign * 5) % 64, 0x93);
            gw_gcomp_map map = s.map.map;
            map.bytes = map_bytes.at;
            gw_gcomp_source source = s.source;
            source.values = values.at;
            source.quantum = gw_gcomp_quantum_of_map(s.source.quantum.map == NULL ? NULL : &map);
            const gw_workspace workspace = {work.at, work.size};
            gw_buffer dst = {frame.at, frame.size, 0};
            assert_int_equal(gw_gcomp_encode(codec, &source, &dst, &workspace), GW_OK);
            assert_int_equal(dst.size, s.size);
            assert_memory_equal(frame.at, s.frame.at, dst.size);
            memset(work.at, 0x39, work.size);
            const gw_gcomp_frame in = {frame.at, dst.size, source.quantum.map};
            gw_gcomp_target got = {.values = out.at, .capacity = s.len};
            assert_int_equal(gw_gcomp_decode(codec, &in, &got, &workspace), GW_OK);
            assert_memory_equal(out.at, want, out.size);
            test_buffer_free(&values);
            test_buffer_free(&map_bytes);
            test_buffer_free(&frame);
            test_buffer_free(&out);
            test_buffer_free(&work);
        }
        free(want);
        sample_free(&s);
    }
}

static void empty_and_tiny(void **state)
{
    (void)state;
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (uint32_t choice = 0; choice < 16; choice++) {
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)dtype);
            o.quantum_mode = (gw_gcomp_quantum_mode)(choice & 1);
            o.checksum = (int)(choice >> 1 & 1);
            o.preset = (gw_gcomp_preset)(choice >> 2 & 1);
            for (size_t len = 0; len <= 40; len++) {
                sample s;
                sample_make(&s, &o, len, choice & 8 ? PATTERN_SPECIAL : PATTERN_GRADIENT, 1);
                const size_t extension =
                    (o.quantum_mode == GW_GCOMP_DERIVED ? 16u : 0u) + (o.checksum ? 8u : 0u);
                if (len == 0) {
                    assert_int_equal(s.size, (32 + extension + 15) / 16 * 16);
                    gw_gcomp_source nothing = s.source;
                    nothing.values = NULL;
                    gw_buffer out = {s.frame.at, s.frame.size, 0};
                    assert_int_equal(gw_gcomp_encode(&s.codec.codec, &nothing, &out, &s.codec.work), GW_OK);
                    gw_gcomp_target target = {.values = NULL, .capacity = 0};
                    assert_int_equal(gw_gcomp_decode(&s.codec.codec,
                                                     &(gw_gcomp_frame){.data = s.frame.at,
                                                                       .size = s.size,
                                                                       .map = s.source.quantum.map},
                                                     &target, &s.codec.work),
                                     GW_OK);
                    assert_int_equal(target.len, 0);
                } else {
                    /* Header, extension, one entry, and never more than the values as they are. */
                    const size_t raw = (len * gw_dtype_size(o.dtype) + 15) / 16 * 16;
                    assert_true(s.size <= (32 + extension + 16 + 15) / 16 * 16 + raw);
                }
                assert_int_equal(examine(&s, s.frame.at, s.size, s.source.quantum.map), GW_OK);
                sample_free(&s);
            }
        }
    }
}

static void arguments(void **state)
{
    (void)state;
    sample s;
    sample_pick(&s, 0);
    const gw_gcomp *codec = &s.codec.codec;
    const gw_workspace *work = &s.codec.work;
    const gw_workspace nowhere = {NULL, work->size};
    const size_t bound = gw_gcomp_frame_bound(codec, s.len);
    uint8_t *bytes = malloc(bound), *values = malloc(s.len * 4);
    assert_true(bytes != NULL && values != NULL);
    gw_buffer dst = {bytes, bound, 0};
    gw_gcomp_frame frame = {s.frame.at, s.size, NULL};
    gw_gcomp_target target = {.values = values, .capacity = s.len};
    gw_gcomp_frame_info info;
    gw_gcomp_source source = s.source;

    assert_int_equal(gw_gcomp_encode(NULL, &source, &dst, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_encode(codec, NULL, &dst, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_encode(codec, &source, &(gw_buffer){NULL, bound, 0}, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_encode(codec, &source, NULL, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, &nowhere), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, NULL), GW_ERR_ARG);
    source.values = NULL;
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, work), GW_ERR_ARG);
    source = s.source;
    gw_gcomp_map map = s.map.map;
    source.quantum = gw_gcomp_quantum_of_map(&map);
    map.base = 0;
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, work), GW_ERR_ARG);
    map.base = 1024;
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, work), GW_ERR_ARG);
    map = s.map.map;
    map.len = s.len - 1;
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, work), GW_ERR_ARG);
    map = s.map.map;
    map.bytes = NULL;
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, work), GW_ERR_ARG);

    assert_int_equal(gw_gcomp_decode(NULL, &frame, &target, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_decode(codec, NULL, &target, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_decode(codec, &(gw_gcomp_frame){.size = s.size}, &target, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_decode(codec, &(gw_gcomp_frame){0}, &target, work), GW_ERR_SHORT);
    assert_int_equal(gw_gcomp_decode(codec, &frame, NULL, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_decode(codec, &frame, &target, &nowhere), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_decode(codec, &frame, &target, NULL), GW_ERR_ARG);
    gw_gcomp_target no_values = {.capacity = s.len};
    assert_int_equal(gw_gcomp_decode(codec, &frame, &no_values, work), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_frame_peek(NULL, 0, 1, &info), GW_ERR_SHORT);
    assert_int_equal(gw_gcomp_frame_peek(NULL, 1, 1, &info), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_frame_peek(s.frame.at, s.size, 1, NULL), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_frame_parse(codec, &frame, NULL), GW_ERR_ARG);

    /* Output over input, by the first and by the last byte. */
    gw_gcomp_target over = {.values = s.frame.at, .capacity = s.len};
    assert_int_equal(gw_gcomp_decode(codec, &frame, &over, work), GW_ERR_ARG);
    over.values = s.frame.at + s.size - 1;
    assert_int_equal(gw_gcomp_decode_add(codec, &frame, &over, work), GW_ERR_ARG);
    source = s.source;
    source.values = bytes + bound - 1;
    assert_int_equal(gw_gcomp_encode(codec, &source, &dst, work), GW_ERR_ARG);

    /* Limits. */
    assert_int_equal(gw_gcomp_frame_peek(s.frame.at, s.size, s.len - 1, &info), GW_ERR_LIMIT);
    assert_int_equal(gw_gcomp_frame_peek(s.frame.at, s.size, s.len, &info), GW_OK);
    gw_gcomp_options o = s.codec.options;
    o.len_max = s.len - 1;
    gw_gcomp limited;
    assert_int_equal(gw_gcomp_init(&limited, &o), GW_OK);
    assert_int_equal(gw_gcomp_encode(&limited, &s.source, &dst, work), GW_ERR_LIMIT);
    assert_int_equal(gw_gcomp_decode(&limited, &frame, &target, work), GW_ERR_LIMIT);

    /* A handle for another dtype; one that was never initialised. */
    gw_gcomp_options_init(&o, GW_BF16);
    gw_gcomp other;
    assert_int_equal(gw_gcomp_init(&other, &o), GW_OK);
    assert_int_equal(gw_gcomp_frame_parse(&other, &frame, &info), GW_ERR_OPTION);
    memset(&other, 0, sizeof other);
    assert_int_equal(gw_gcomp_encode(&other, &s.source, &dst, work), GW_ERR_STATE);
    assert_int_equal(gw_gcomp_decode(&other, &frame, &target, work), GW_ERR_STATE);
    assert_int_equal(gw_gcomp_frame_parse(&other, &frame, &info), GW_ERR_STATE);
    assert_int_equal(gw_gcomp_workspace_size(&other), 0);
    assert_int_equal(gw_gcomp_frame_bound(&other, 1), 0);
    assert_int_equal(gw_gcomp_frame_bound(codec, ((uint64_t)1 << 48) + 1), 0);

    /* A handle may be copied and moved. */
    gw_gcomp moved = *codec;
    memset(&s.codec.codec, 0xff, sizeof moved);
    assert_int_equal(gw_gcomp_decode(&moved, &frame, &target, work), GW_OK);
    s.codec.codec = moved;
    free(bytes);
    free(values);
    sample_free(&s);
}

/* What a writer of a later version may add: ignorable flags, a longer extension. The same values, whole and
 * by ranges, and a peek needs no more bytes than for other frames. */
static void later_versions(void **state)
{
    (void)state;
    for (int index = 0; index < SAMPLES; index++) {
        sample s;
        sample_pick(&s, index);
        const size_t size_of = gw_dtype_size(s.codec.options.dtype);
        const gw_gcomp_frame frame = {s.frame.at, s.size, s.source.quantum.map};
        gw_gcomp_frame_info info, longer_info;
        assert_int_equal(gw_gcomp_frame_peek(s.frame.at, s.size, UINT64_MAX, &info), GW_OK);
        const size_t parts = (size_t)info.directory_offset;
        uint8_t *want = malloc(s.len * size_of), *got = malloc(s.len * size_of);
        assert_true(want != NULL && got != NULL);
        gw_gcomp_target target = {.values = want, .capacity = s.len, .len = 0};
        assert_int_equal(gw_gcomp_decode(&s.codec.codec, &frame, &target, &s.codec.work), GW_OK);
        for (size_t more = 16; more <= 2032 && parts - 32 + more <= 2040; more += more == 16 ? 1968 : 16) {
            uint8_t *longer = malloc(s.size + more);
            assert_non_null(longer);
            memcpy(longer, s.frame.at, parts);
            memset(longer + parts, 0xc3, more);
            longer[parts] = 8; /* the part of bit 7, and the end of the list */
            longer[parts + 1] = 1;
            longer[parts + 8] = 0;
            memcpy(longer + parts + more, s.frame.at + parts, s.size - parts);
            const uint64_t size = s.size + more;
            longer[4] = 0x30;
            longer[10] = 0xff;
            longer[11] = (uint8_t)((parts - 32 + more) / 8);
            memcpy(longer + 24, &size, 8);
            for (uint64_t c = 0; c < info.chunk_count; c++) {
                uint64_t place;
                memcpy(&place, longer + parts + more + 16 * c, 8);
                place += more;
                memcpy(longer + parts + more + 16 * c, &place, 8);
            }
            if (info.checksum) {
                memset(longer + parts - 8, 0, 4);
                const uint32_t crc = gw_crc32c(0, longer, (size_t)info.payload_offset + more);
                memcpy(longer + parts - 8, &crc, 4);
            }
            assert_int_equal(gw_gcomp_frame_peek(longer, parts, UINT64_MAX, &longer_info), GW_OK);
            assert_int_equal(longer_info.directory_offset, parts + more);
            assert_int_equal(gw_gcomp_frame_peek(longer, parts - 1, UINT64_MAX, &longer_info), GW_ERR_SHORT);
            assert_int_equal(examine(&s, longer, s.size + more, s.source.quantum.map), GW_OK);
            const gw_gcomp_frame longer_frame = {longer, s.size + more, s.source.quantum.map};
            target.values = got;
            assert_int_equal(gw_gcomp_decode(&s.codec.codec, &longer_frame, &target, &s.codec.work), GW_OK);
            assert_memory_equal(got, want, s.len * size_of);
            free(longer);
        }
        free(want);
        free(got);
        sample_free(&s);
    }
}

/* A header says how much to receive: never more than RAW chunks would need. And 32 bits name every chunk. */
static void announced_sizes(void **state)
{
    (void)state;
    sample s;
    sample_pick(&s, 0);
    gw_gcomp_frame_info info;
    uint8_t head[64];
    assert_int_equal(gw_gcomp_frame_peek(s.frame.at, s.size, UINT64_MAX, &info), GW_OK);
    const uint64_t payload = info.payload_offset, raw = s.len * gw_dtype_size(info.dtype);
    const uint64_t most = payload + ((raw + 15) & ~(uint64_t)15);
    memcpy(head, s.frame.at, sizeof head);
    const struct {
        uint64_t size;
        gw_status status;
    } sizes[] = {{most, GW_OK},
                 {most + 1, GW_ERR_HEADER},
                 {most + 16, GW_ERR_HEADER},
                 {payload - 1, GW_ERR_HEADER},
                 {payload, GW_OK},
                 {(uint64_t)1 << 63, GW_ERR_HEADER},
                 {UINT64_MAX, GW_ERR_HEADER}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memcpy(head + 24, &sizes[i].size, 8);
        assert_int_equal(gw_gcomp_frame_peek(head, sizeof head, UINT64_MAX, &info), sizes[i].status);
        assert_true(info.frame_size == (sizes[i].status == GW_OK ? sizes[i].size : 0));
    }

    /* Sources and frames of more than 2^32 chunks; the memory at the pointers is not read. */
    const uint64_t chunks_max = (uint64_t)1 << 32;
    for (uint32_t log2 = 12; log2 <= 15; log2++) {
        gw_gcomp_options o = s.codec.options;
        o.chunk_log2 = log2;
        gw_gcomp codec;
        assert_int_equal(gw_gcomp_init(&codec, &o), GW_OK);
        const uint64_t len = chunks_max << log2;
        assert_true(gw_gcomp_frame_bound(&codec, len) > len);
        assert_int_equal(gw_gcomp_frame_bound(&codec, len + 1), 0);
        assert_int_equal(gw_gcomp_range_bound(&codec, len + 1, &(gw_gcomp_range){0, 1}), 0);
        gw_gcomp_source source = s.source;
        source.quantum = gw_gcomp_quantum_of_map(NULL);
        source.len = len + 1;
        gw_gcomp_part part;
        gw_buffer out = {head, sizeof head, 0};
        assert_int_equal(gw_gcomp_encode(&codec, &source, &out, &s.codec.work), GW_ERR_LIMIT);
        part = (gw_gcomp_part){.area = head, .capacity = sizeof head, .range = {0, 1}};
        assert_int_equal(gw_gcomp_encode_range(&codec, &source, &part, &s.codec.work), GW_ERR_LIMIT);
        gw_buffer out2 = {head, sizeof head, 0};
        assert_int_equal(gw_gcomp_join(&codec, &source, NULL, 0, &out2), GW_ERR_ARG);
        head[7] = (uint8_t)log2;
        memcpy(head + 16, &source.len, 8);
        assert_int_equal(gw_gcomp_frame_peek(head, sizeof head, UINT64_MAX, &info), GW_ERR_LIMIT);
    }
    sample_free(&s);
}

static void options_out_of_range(void **state)
{
    (void)state;
    gw_gcomp codec;
    gw_gcomp_options o;
    assert_int_equal(gw_gcomp_init(&codec, NULL), GW_ERR_ARG);
    gw_gcomp_options_init(&o, GW_FP32);
    assert_int_equal(gw_gcomp_init(NULL, &o), GW_ERR_ARG);
#define REFUSED(dtype_, field, value)                                                                        \
    do {                                                                                                     \
        gw_gcomp_options_init(&o, dtype_);                                                                   \
        o.field = (value);                                                                                   \
        assert_int_equal(gw_gcomp_init(&codec, &o), GW_ERR_OPTION);                                          \
    } while (0)
    REFUSED(GW_FP32, dtype, (gw_dtype)0);
    REFUSED(GW_FP32, dtype, (gw_dtype)4);
    REFUSED(GW_FP32, quantum_mode, (gw_gcomp_quantum_mode)3);
    REFUSED(GW_FP32, rounding, (gw_gcomp_rounding)3);
    REFUSED(GW_FP32, preset, (gw_gcomp_preset)2);
    REFUSED(GW_FP32, chunk_log2, 9);
    REFUSED(GW_FP32, chunk_log2, 16);
    REFUSED(GW_FP32, strict, 2);
    REFUSED(GW_FP32, checksum, -1);
    REFUSED(GW_FP32, tolerance_bits, 0);
    REFUSED(GW_FP32, tolerance_bits, 24);
    REFUSED(GW_FP32, dead_zone, 1); /* explicit */
    REFUSED(GW_FP32, cap, 19);
    REFUSED(GW_BF16, cap, 7);
    REFUSED(GW_FP16, cap, 10);
#undef REFUSED
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
            for (uint32_t step = 0; step < 40; step++) {
                static const uint32_t allowed[4][2] = {
                    {0, 0}, {1u << 6, 0x4e}, {1u << 2, 0x6}, {1u << 3, 0xa}};
                gw_gcomp_options_init(&o, (gw_dtype)dtype);
                o.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
                o.step = step;
                const int ok = step == 0 || (step < 32 && (allowed[dtype][quantum_mode] >> step & 1) != 0);
                assert_int_equal(gw_gcomp_init(&codec, &o), ok ? GW_OK : GW_ERR_OPTION);
            }
        }
    }
}

/* What chooses quanta: kinds that the levels do not have, and what their place does not permit. */
static void quantum_kinds(void **state)
{
    (void)state;
    static const gw_gcomp_map no_map = {0};
    static uint8_t values[64], blocks[1], frame[4096];
    const gw_gcomp_quantum drop = gw_gcomp_quantum_of_drop(3), nmse = gw_gcomp_quantum_of_nmse(0.5f);
    const gw_gcomp_quantum map = gw_gcomp_quantum_of_map(&no_map), block = gw_gcomp_quantum_of_blocks(blocks);
    const gw_gcomp_quantum unknown = {.kind = (gw_gcomp_quantum_kind)5};
    for (uint32_t quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_CARRIED; quantum_mode++) {
        const int carried = quantum_mode == GW_GCOMP_CARRIED;
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, GW_FP32);
        o.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
        o.quantum = drop;
        assert_int_equal(gw_gcomp_init(&(gw_gcomp){0}, &o), carried ? GW_ERR_OPTION : GW_OK);
        o.quantum = nmse;
        assert_int_equal(gw_gcomp_init(&(gw_gcomp){0}, &o), carried ? GW_OK : GW_ERR_OPTION);
        for (int i = 0; i < 3; i++) {
            o.quantum = i == 0 ? map : i == 1 ? block : unknown;
            assert_int_equal(gw_gcomp_init(&(gw_gcomp){0}, &o), GW_ERR_OPTION);
        }
        gw_gcomp_options_init(&o, GW_FP32);
        o.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
        test_codec codec;
        test_codec_make(&codec, &o);
        const struct {
            gw_gcomp_quantum quantum;
            gw_status status;
        } cases[] = {{{0}, carried ? GW_ERR_ARG : GW_OK},
                     {drop, GW_ERR_ARG},
                     {nmse, GW_ERR_ARG},
                     {{.kind = GW_GCOMP_QUANTUM_MAP}, GW_ERR_ARG},
                     {{.kind = GW_GCOMP_QUANTUM_BLOCKS}, GW_ERR_ARG},
                     {block, carried ? GW_OK : GW_ERR_ARG},
                     {unknown, GW_ERR_ARG}};
        for (size_t i = 0; i < TEST_ARRAY_LEN(cases); i++) {
            const gw_gcomp_source source = {.values = values, .len = 16, .quantum = cases[i].quantum};
            gw_buffer dst = {frame, sizeof frame, 0};
            assert_int_equal(gw_gcomp_encode(&codec.codec, &source, &dst, &codec.work), cases[i].status);
        }
        test_codec_free(&codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_is_short),  cmocka_unit_test(every_byte_change),
        cmocka_unit_test(random_damage),          cmocka_unit_test(derived_map_must_match),
        cmocka_unit_test(capacity_and_workspace), cmocka_unit_test(alignment_changes_nothing),
        cmocka_unit_test(empty_and_tiny),         cmocka_unit_test(arguments),
        cmocka_unit_test(options_out_of_range),   cmocka_unit_test(later_versions),
        cmocka_unit_test(announced_sizes),        cmocka_unit_test(quantum_kinds),
    };
    return cmocka_run_group_tests_name("gcomp frame", tests, NULL, NULL);
}
