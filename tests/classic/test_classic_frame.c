/*
 * Frames: every rule of the header, truncations, flips, longer extensions, checksums.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "classic_testing.h"
#include "core/bytes.h"

enum { LEN = 77 };

static void with_checksum(gw_classic_options *o)
{
    o->checksum = 1;
}

static gw_buffer make_frame(gw_classic_scheme scheme, void (*change)(gw_classic_options *))
{
    const gw_classic classic = ct_make(scheme, change);
    const gw_classic_step step = ct_step(LEN);
    float x[LEN], residual[LEN] = {0}, momentum[LEN] = {0};
    ct_rng rng = {scheme};
    gw_buffer dst;
    ct_fill(&rng, x, LEN, 1);
    const uint32_t arrays = gw_classic_state_arrays(&classic);
    const gw_classic_source source = {x, (arrays & GW_CLASSIC_RESIDUAL) != 0 ? residual : NULL,
                                      (arrays & GW_CLASSIC_MOMENTUM) != 0 ? momentum : NULL, NULL};
    assert_int_equal(ct_encode(&classic, &step, &source, &dst), GW_OK);
    return dst;
}

static void header_says_what_was_encoded(void **state)
{
    (void)state;
    gw_buffer frame = make_frame(GW_CLASSIC_EFSIGNSGD, with_checksum);
    gw_classic_frame_info info;
    assert_int_equal(gw_classic_frame_peek(frame.data, GW_CLASSIC_FRAME_HEADER_SIZE, &info), GW_OK);
    assert_int_equal(info.scheme, GW_CLASSIC_EFSIGNSGD);
    assert_int_equal(info.dtype, GW_FP32);
    assert_int_equal(info.flags, GW_CLASSIC_FLAG_CHECKSUM);
    assert_int_equal(info.round, 5);
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.element_first, 1000);
    assert_int_equal(info.len, LEN);
    assert_int_equal(info.keep_len, 0);
    assert_int_equal(info.payload_offset, 80);
    assert_int_equal(info.payload_size, 4 + 10);
    assert_int_equal(info.frame_size, frame.size);
    assert_int_equal(frame.size, 112);
    assert_int_equal(ct_check(frame.data, frame.size, LEN), GW_OK);
    assert_int_equal(ct_check(frame.data, frame.size, LEN - 1), GW_ERR_LIMIT);
    free(frame.data);
}

/* One changed byte of a header, and its status. */
typedef struct damage {
    size_t at;
    uint8_t value;
    gw_status status;
} damage;

static void every_header_rule(void **state)
{
    (void)state;
    static const damage cases[] = {
        {0, 0, GW_ERR_MAGIC},
        {3, 0x1b, GW_ERR_MAGIC},
        {4, 0x11, GW_ERR_VERSION},
        {4, 0x01, GW_ERR_HEADER},
        {4, 0x10, GW_OK},
        {5, 2, GW_ERR_UNSUPPORTED},
        {6, 0, GW_ERR_UNSUPPORTED},
        {6, 4, GW_ERR_UNSUPPORTED},
        {6, 2, GW_OK},
        {7, 1, GW_ERR_HEADER},
        {8, 1, GW_ERR_HEADER}, /* CHECKSUM: the frame has no room for it */
        {8, 2, GW_ERR_HEADER},
        {8, 4, GW_ERR_HEADER},
        {8, 8, GW_ERR_HEADER},
        {8, 16, GW_ERR_UNSUPPORTED},
        {9, 128, GW_ERR_UNSUPPORTED},
        {10, 255, GW_ERR_HEADER}, /* ignorable flags without the end of their list */
        {11, 5, GW_ERR_HEADER},
        {11, 7, GW_ERR_HEADER},
        {12, 0, GW_ERR_UNSUPPORTED},
        {12, 12, GW_ERR_UNSUPPORTED},
        {12, GW_CLASSIC_SIGNSGD, GW_ERR_HEADER},
        {12, GW_CLASSIC_FP16, GW_ERR_HEADER},
        {13, 1, GW_ERR_HEADER},
        {14, 1, GW_ERR_HEADER},
        {15, 1, GW_ERR_HEADER},
        {16, LEN + 8, GW_ERR_HEADER},
        {20, 2, GW_ERR_HEADER},
        {24, 80, GW_ERR_HEADER},
        {31, 1, GW_ERR_HEADER},
        {32, 99, GW_OK},
        {47, 255, GW_OK},
        {48, 1, GW_ERR_HEADER},
        {55, 1, GW_ERR_HEADER},
        {56, 99, GW_OK},
        {60, 99, GW_OK},
        {64, 64, GW_ERR_HEADER},
        {68, 1, GW_ERR_HEADER},
        {72, 13, GW_ERR_HEADER},
        {79, 1, GW_ERR_HEADER},
        {79, 255, GW_ERR_HEADER},
        {95, 1, GW_ERR_HEADER}, /* padding */
    };
    gw_buffer frame = make_frame(GW_CLASSIC_EFSIGNSGD, NULL);
    uint8_t *bytes = frame.data;
    assert_int_equal(frame.size, 96);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t old = bytes[cases[i].at];
        bytes[cases[i].at] = cases[i].value;
        const gw_status status = ct_check(bytes, frame.size, LEN);
        if (status != cases[i].status) {
            fail_msg("byte %zu = %u: %s instead of %s", cases[i].at, cases[i].value, gw_status_name(status),
                     gw_status_name(cases[i].status));
        }
        bytes[cases[i].at] = old;
    }
    /* element_first + count beyond 2^64 - 1 */
    gw_store64(bytes + 40, UINT64_MAX - LEN);
    assert_int_equal(ct_check(bytes, frame.size, LEN), GW_OK);
    gw_store64(bytes + 40, UINT64_MAX - LEN + 1);
    assert_int_equal(ct_check(bytes, frame.size, LEN), GW_ERR_HEADER);
    /* sizes whose sum wraps around */
    gw_store64(bytes + 40, 0);
    gw_store64(bytes + 24, UINT64_MAX - 15);
    gw_store64(bytes + 72, UINT64_MAX - 100);
    assert_int_equal(ct_check(bytes, frame.size, LEN), GW_ERR_HEADER);
    free(frame.data);
}

static void truncated_frames(void **state)
{
    (void)state;
    gw_buffer frame = make_frame(GW_CLASSIC_ONEBIT, with_checksum);
    for (size_t size = 0; size < frame.size; size++) {
        assert_int_equal(ct_check(frame.data, size, LEN), GW_ERR_SHORT);
    }
    uint8_t *longer = ct_take(frame.size + 1);
    memcpy(longer, frame.data, frame.size);
    assert_int_equal(ct_check(longer, frame.size + 1, LEN), GW_ERR_TRAILING);
    free(longer);
    free(frame.data);
}

static void flips_are_found_or_harmless(void **state)
{
    (void)state;
    static const gw_classic_scheme schemes[] = {GW_CLASSIC_FP16,      GW_CLASSIC_BF16,   GW_CLASSIC_SIGNSGD,
                                                GW_CLASSIC_EFSIGNSGD, GW_CLASSIC_SIGNUM, GW_CLASSIC_ONEBIT};
    for (size_t s = 0; s < sizeof schemes / sizeof schemes[0]; s++) {
        for (int checksum = 0; checksum < 2; checksum++) {
            gw_buffer frame = make_frame(schemes[s], checksum ? with_checksum : NULL);
            uint8_t *bytes = frame.data;
            for (size_t bit = 0; bit < 8 * frame.size; bit++) {
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
                const gw_status status = ct_check(bytes, frame.size, LEN);
                assert_true(!checksum || status != GW_OK);
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
            assert_int_equal(ct_check(bytes, frame.size, LEN), GW_OK);
            free(frame.data);
        }
    }
}

/* The same frame with 6 + 3 units of extension. */
static void longer_extensions_are_skipped(void **state)
{
    (void)state;
    gw_buffer frame = make_frame(GW_CLASSIC_EFSIGNSGD, NULL);
    const uint8_t *bytes = frame.data;
    uint8_t longer[128] = {0};
    memcpy(longer, bytes, 80);
    memset(longer + 80, 0xee, 24);
    memcpy(longer + 104, bytes + 80, 14);
    longer[11] = 9;
    gw_store64(longer + 24, 128);
    assert_int_equal(ct_check(longer, 128, LEN), GW_OK);
    const gw_buffer other = {longer, 128, 128};
    float *a = ct_decode(&frame, GW_BACKEND_ALL, 1.0f, LEN, NULL);
    float *b = ct_decode(&other, GW_BACKEND_ALL, 1.0f, LEN, NULL);
    assert_memory_equal(a, b, LEN * sizeof *a);
    longer[10] = 0x80;
    assert_int_equal(ct_check(longer, 128, LEN), GW_ERR_HEADER);
    longer[80] = 8; /* the part of bit 7, and the end of the list */
    longer[81] = 2;
    longer[96] = 0;
    assert_int_equal(ct_check(longer, 128, LEN), GW_OK);
    longer[80] = 7;
    assert_int_equal(ct_check(longer, 128, LEN), GW_ERR_HEADER);
    free(a);
    free(b);
    free(frame.data);
}

static void payload_rules(void **state)
{
    (void)state;
    gw_buffer frame = make_frame(GW_CLASSIC_EFSIGNSGD, NULL);
    uint8_t *bytes = frame.data;
    static const uint32_t bad[] = {1, 0x007fffff, 0x7f800000, 0x7fc00000, 0x80000000, 0xbf800000};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gw_store32(bytes + 80, bad[i]);
        assert_int_equal(ct_check(bytes, frame.size, LEN), GW_ERR_CORRUPT);
    }
    gw_store32(bytes + 80, 0);
    assert_int_equal(ct_check(bytes, frame.size, LEN), GW_OK);
    for (unsigned bit = LEN % 8; bit < 8; bit++) {
        bytes[93] ^= (uint8_t)(1u << bit);
        assert_int_equal(ct_check(bytes, frame.size, LEN), GW_ERR_CORRUPT);
        bytes[93] ^= (uint8_t)(1u << bit);
    }
    free(frame.data);
}

static void arguments(void **state)
{
    (void)state;
    gw_buffer frame = make_frame(GW_CLASSIC_FP16, NULL);
    gw_classic_frame received = {frame.data, frame.size, LEN, GW_BACKEND_ALL};
    gw_classic_frame_info info;
    float values[LEN];
    gw_workspace workspace = ct_frame_workspace(frame.data, frame.size);
    gw_classic_target target = {values, LEN, 0, 1.0f};
    assert_int_equal(gw_classic_decode(&received, &target, &workspace), GW_OK);
    assert_int_equal(gw_classic_decode(NULL, &target, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_decode(&received, NULL, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_decode(&received, &target, NULL), GW_ERR_ARG);
    assert_int_equal(gw_classic_frame_check(&received, NULL, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_frame_check(NULL, &info, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_frame_peek(NULL, 80, &info), GW_ERR_ARG);
    assert_int_equal(gw_classic_frame_peek(NULL, 0, &info), GW_ERR_SHORT);
    assert_int_equal(gw_classic_frame_peek(frame.data, frame.size, NULL), GW_ERR_ARG);
    static const uint32_t bad_scales[] = {1, 0x807fffff, 0x7f800000, 0xff800000, 0x7fc00000};
    for (size_t i = 0; i < sizeof bad_scales / sizeof bad_scales[0]; i++) {
        target.scale = ct_float(bad_scales[i]);
        assert_int_equal(gw_classic_decode(&received, &target, &workspace), GW_ERR_ARG);
        assert_int_equal(target.len, 0);
    }
    target.scale = -0.0f;
    assert_int_equal(gw_classic_decode(&received, &target, &workspace), GW_OK);
    target.capacity = LEN - 1;
    memset(values, 0x33, sizeof values);
    assert_int_equal(gw_classic_decode(&received, &target, &workspace), GW_ERR_DST);
    assert_int_equal(ct_bits(values[0]), 0x33333333);
    target.capacity = LEN;
    target.values = NULL;
    assert_int_equal(gw_classic_decode(&received, &target, &workspace), GW_ERR_ARG);
    target.values = values;
    workspace.size--;
    assert_int_equal(gw_classic_decode(&received, &target, &workspace), GW_ERR_WORKSPACE);
    assert_int_equal(ct_bits(values[0]), 0x33333333);
    assert_int_equal(gw_classic_decode_workspace_size(NULL), 0);
    ct_free_workspace(&workspace);
    free(frame.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_says_what_was_encoded),
        cmocka_unit_test(every_header_rule),
        cmocka_unit_test(truncated_frames),
        cmocka_unit_test(flips_are_found_or_harmless),
        cmocka_unit_test(longer_extensions_are_skipped),
        cmocka_unit_test(payload_rules),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests_name("classic frames", tests, NULL, NULL);
}
