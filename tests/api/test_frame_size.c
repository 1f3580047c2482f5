/*
 * gw_frame_size(): frames of all codecs and of versions that the library does not know, in a row.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gradwire/classic.h"
#include "gradwire/gcomp.h"

enum { LEN = 300, ROW_SIZE = 16384 };

static float values[LEN];

/* Encodes with one codec each; returns the size of the frame. */

static size_t add_gcomp(uint8_t *dst, size_t capacity)
{
    gw_gcomp_options options;
    gw_gcomp codec;
    gw_buffer out = {dst, capacity, 0};

    gw_gcomp_options_init(&options, GW_FP32);
    assert_int_equal(gw_gcomp_init(&codec, &options), GW_OK);
    const gw_workspace workspace = {malloc(gw_gcomp_workspace_size(&codec)), gw_gcomp_workspace_size(&codec)};
    const gw_gcomp_source source = {.values = values, .len = LEN};
    assert_int_equal(gw_gcomp_encode(&codec, &source, &out, &workspace), GW_OK);
    free(workspace.data);
    return out.size;
}

static size_t add_classic(uint8_t *dst, size_t capacity)
{
    gw_classic_options options;
    gw_classic codec;
    gw_buffer out = {dst, capacity, 0};

    assert_int_equal(gw_classic_options_init(&options, GW_CLASSIC_SIGNSGD), GW_OK);
    assert_int_equal(gw_classic_init(&codec, &options), GW_OK);
    const gw_classic_step step = {.len = LEN};
    const size_t size = gw_classic_workspace_size(&codec, &step);
    const gw_workspace workspace = {malloc(size + 1), size};
    const gw_classic_source source = {.values = values};
    assert_int_equal(gw_classic_encode(&codec, &step, &source, &out, &workspace), GW_OK);
    free(workspace.data);
    return out.size;
}

/* The first 32 bytes of a frame of a codec and version that no library has yet. */
static size_t add_unknown(uint8_t *dst)
{
    static const uint8_t head[32] = {0x67, 0x57, 0x66, 0x1a, 0xff, 200, 99, 0, 0xff, 0xff, 0,
                                     0xff, 0,    0,    0,    0,    0,   0,  0, 0,    0,    0,
                                     0,    0,    48,   0,    0,    0,   0,  0, 0,    0};
    memcpy(dst, head, 32);
    memset(dst + 32, 0xee, 16);
    return 48;
}

static void frames_in_a_row(void **state)
{
    (void)state;
    uint8_t *row = malloc(ROW_SIZE);
    uint64_t ends[3], size;
    size_t end = 0;

    assert_non_null(row);
    for (int i = 0; i < LEN; i++) {
        values[i] = (float)(i % 7) - 3.0f;
    }
    end += add_gcomp(row, ROW_SIZE);
    ends[0] = end;
    end += add_unknown(row + end);
    ends[1] = end;
    end += add_classic(row + end, ROW_SIZE - end);
    ends[2] = end;
    uint64_t at = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gw_frame_size(row + at, end - at, &size), GW_OK);
        at += size;
        assert_int_equal(at, ends[i]);
    }
    assert_int_equal(gw_frame_size(row + at, end - at, &size), GW_ERR_SHORT);
    free(row);
}

static void refused(void **state)
{
    (void)state;
    uint8_t head[48];
    uint64_t size;

    (void)add_unknown(head);
    for (size_t n = 0; n < 32; n++) {
        size = 77;
        assert_int_equal(gw_frame_size(head, n, &size), GW_ERR_SHORT);
        assert_int_equal(size, 0);
    }
    for (size_t n = 32; n <= 48; n++) {
        assert_int_equal(gw_frame_size(head, n, &size), GW_OK);
        assert_int_equal(size, 48);
    }
    for (int i = 0; i < 4; i++) {
        head[i] ^= 1;
        size = 77;
        assert_int_equal(gw_frame_size(head, 32, &size), GW_ERR_MAGIC);
        assert_int_equal(size, 0);
        head[i] ^= 1;
    }
    for (uint8_t small = 0; small < 32; small++) {
        head[24] = small;
        size = 77;
        assert_int_equal(gw_frame_size(head, 32, &size), GW_ERR_HEADER);
        assert_int_equal(size, 0);
    }
    head[24] = 32;
    assert_int_equal(gw_frame_size(head, 32, &size), GW_OK);
    assert_int_equal(size, 32);
    memset(head + 24, 0xff, 8);
    assert_int_equal(gw_frame_size(head, 32, &size), GW_OK);
    assert_true(size == UINT64_MAX);
    size = 77;
    assert_int_equal(gw_frame_size(NULL, 1, &size), GW_ERR_ARG);
    assert_int_equal(size, 0);
    assert_int_equal(gw_frame_size(NULL, 0, &size), GW_ERR_SHORT);
    assert_int_equal(gw_frame_size(head, 32, NULL), GW_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_in_a_row),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
