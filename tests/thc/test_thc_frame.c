/*
 * Frames: round trips, sums of sums, loss, and every hostile header and content (rows 1 to 9, 31, 40 to 46).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "thc_testing.h"

enum { LEN = 64 * 3 + 10, WORKERS = 4 };

typedef struct fixture {
    gw_thc_config config;
    gw_thc thc;
    float x[WORKERS][LEN];
    job_output job;
    uint8_t *frame[WORKERS];
    size_t frame_size;
} fixture;

static fixture *make_fixture(uint32_t flags, unsigned transform)
{
    fixture *f = take(sizeof *f);
    test_rng rng = {flags + transform + 1};
    static _Alignas(8) uint8_t workspace[GW_THC_WORKSPACE_SIZE_MAX];

    f->config = default_config(4, WORKERS, 0);
    f->config.block_log2 = 6;
    f->config.seed = 0x0123456789abcdefu;
    f->config.job = 77;
    f->config.transform = (uint8_t)transform;
    if (transform == GW_THC_PLAIN) {
        f->config.threshold_bits = 0;
    }
    f->thc = make_thc(&f->config);
    fill_normal(&rng, &f->x[0][0], WORKERS * LEN, 1.0);
    f->job = run_job(&f->thc, &f->x[0][0], NULL, LEN, WORKERS, 9);
    f->frame_size = gw_thc_frame_bound(&f->thc, LEN, flags);
    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_thc_range range = {LEN, 0, 4, 9, r};
        size_t size;
        f->frame[r] = take(f->frame_size);
        assert_int_equal(gw_thc_frame_encode(&f->thc, &range, flags, f->x[r], NULL, f->job.maxima,
                                             f->frame[r], f->frame_size, &size, workspace, sizeof workspace,
                                             NULL),
                         GW_OK);
        assert_int_equal(size, f->frame_size);
    }
    return f;
}

static void free_fixture(fixture *f)
{
    for (uint32_t r = 0; r < WORKERS; r++) {
        free(f->frame[r]);
    }
    free_job(&f->job);
    free(f);
}

static gw_status decode_frame(const uint8_t *frame, size_t size, float *out, size_t capacity, size_t *len,
                              uint64_t *missing, uint64_t *bad)
{
    static _Alignas(8) uint8_t workspace[GW_THC_WORKSPACE_SIZE_MAX];
    gw_thc thc;
    return gw_thc_frame_decode(frame, size, 1000000, GW_THC_MEAN, out, capacity, len, &thc, workspace,
                               sizeof workspace, missing, bad, GW_BACKEND_ALL);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (unsigned transform = 0; transform < 2; transform++) {
        for (uint32_t flags = 0; flags <= 8; flags += 8) {
            fixture *f = make_fixture(flags, transform);
            uint8_t *sum[3];
            size_t sum_size = gw_thc_frame_sum_bound(&f->thc, LEN, flags);
            size_t size, len;
            uint64_t missing;
            float all[LEN], out[LEN];
            for (int s = 0; s < 3; s++) {
                sum[s] = take(sum_size);
                assert_int_equal(gw_thc_frame_sum_init(f->frame[0], f->frame_size, flags, sum[s], sum_size,
                                                       &size, GW_BACKEND_ALL),
                                 GW_OK);
                assert_int_equal(size, sum_size);
            }
            /* An empty sum: all blocks are missing and decode to +0. */
            assert_int_equal(decode_frame(sum[0], size, out, sizeof out, &len, &missing, NULL), GW_OK);
            assert_int_equal(missing, 4);
            for (size_t i = 0; i < LEN; i++) {
                assert_true(out[i] == 0 && !signbit(out[i]));
            }
            /* ((0 + 1) + (2 + 3)) against (3 + 2 + 1 + 0). */
            assert_int_equal(
                gw_thc_frame_sum_add(sum[0], size, f->frame[0], f->frame_size, NULL, GW_BACKEND_ALL), GW_OK);
            assert_int_equal(
                gw_thc_frame_sum_add(sum[0], size, f->frame[1], f->frame_size, NULL, GW_BACKEND_ALL), GW_OK);
            assert_int_equal(
                gw_thc_frame_sum_add(sum[1], size, f->frame[2], f->frame_size, NULL, GW_BACKEND_ALL), GW_OK);
            assert_int_equal(
                gw_thc_frame_sum_add(sum[1], size, f->frame[3], f->frame_size, NULL, GW_BACKEND_ALL), GW_OK);
            assert_int_equal(gw_thc_frame_sum_add(sum[0], size, sum[1], size, NULL, GW_BACKEND_ALL), GW_OK);
            for (int r = WORKERS; r-- > 0;) {
                assert_int_equal(
                    gw_thc_frame_sum_add(sum[2], size, f->frame[r], f->frame_size, NULL, GW_BACKEND_ALL),
                    GW_OK);
            }
            assert_memory_equal(sum[0], sum[2], size);
            gw_thc_frame_info info;
            assert_int_equal(gw_thc_frame_check(sum[0], size, LEN, &info, NULL, GW_BACKEND_ALL), GW_OK);
            assert_int_equal(gw_thc_frame_members(sum[0], &info, 3), WORKERS);
            assert_int_equal(decode_frame(sum[0], size, out, sizeof out, &len, &missing, NULL), GW_OK);
            assert_int_equal(len, LEN);
            gw_thc_agg agg;
            uint8_t *lanes = take(f->job.lanes_size);
            uint8_t set[8] = {0};
            assert_int_equal(gw_thc_agg_init(&agg, &f->config.table, WORKERS, 8, 1), GW_OK);
            for (uint32_t r = 0; r < WORKERS; r++) {
                assert_int_equal(gw_thc_agg_add_indices(&agg, lanes, set, f->job.lanes,
                                                        f->job.indices + r * f->job.indices_size, r),
                                 GW_OK);
            }
            assert_int_equal(decode_all(&f->thc, &f->job, lanes, WORKERS, GW_THC_MEAN, 9, LEN, all), GW_OK);
            assert_memory_equal(out, all, sizeof out);
            /* Refused, and the sum is what it was. */
            uint8_t *copy = take(size);
            memcpy(copy, sum[0], size);
            assert_int_equal(
                gw_thc_frame_sum_add(sum[0], size, f->frame[2], f->frame_size, NULL, GW_BACKEND_ALL),
                GW_ERR_DUP);
            assert_int_equal(gw_thc_frame_sum_add(sum[0], size, sum[1], size, NULL, GW_BACKEND_ALL),
                             GW_ERR_DUP);
            assert_memory_equal(sum[0], copy, size);
            free(copy);
            free(lanes);
            for (int s = 0; s < 3; s++) {
                free(sum[s]);
            }
            free_fixture(f);
        }
    }
}

/* One contributor set per block: block 1 never arrived, block 2 lacks two workers. */
static void test_block_sets(void **state)
{
    (void)state;
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    size_t size = gw_thc_frame_sum_bound(&f->thc, LEN, GW_THC_FLAG_BLOCK_SETS);
    uint8_t *sum = take(size);
    size_t made, len;
    gw_thc_frame_info info;
    uint64_t missing, bad;
    float out[LEN];

    assert_int_equal(gw_thc_frame_sum_init(f->frame[0], f->frame_size, GW_THC_FLAG_BLOCK_SETS, sum, size,
                                           &made, GW_BACKEND_ALL),
                     GW_OK);
    for (int r = 0; r < WORKERS; r++) {
        assert_int_equal(gw_thc_frame_sum_add(sum, size, f->frame[r], f->frame_size, NULL, GW_BACKEND_ALL),
                         GW_OK);
    }
    assert_int_equal(gw_thc_frame_peek(sum, size, &info), GW_OK);
    memset(sum + info.sets_offset + 8, 0, 8);
    memset(sum + info.payload_offset + 64, 0, 64);
    assert_int_equal(decode_frame(sum, size, out, sizeof out, &len, &missing, &bad), GW_OK);
    assert_int_equal(missing, 1);
    for (size_t i = 64; i < 128; i++) {
        assert_true(out[i] == 0 && !signbit(out[i]));
    }
    /* A set that names worker 4 of 4: DUP at that block; others are decoded. */
    sum[info.sets_offset + 16] = 0x10;
    assert_int_equal(decode_frame(sum, size, out, sizeof out, &len, &missing, &bad), GW_ERR_DUP);
    assert_int_equal(bad, 2);
    assert_int_equal(len, 0);
    for (size_t i = 128; i < 192; i++) {
        assert_true(out[i] == 0);
    }
    assert_true(out[0] != 0 && out[200] != 0);
    free(sum);
    free_fixture(f);
}

/* One changed field, one code. */
static void test_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        gw_status status;
    } cases[] = {
        {0, 'G', GW_ERR_MAGIC},
        {4, 1, GW_ERR_VERSION},
        {5, 1, GW_ERR_UNSUPPORTED},
        {5, 3, GW_ERR_UNSUPPORTED},
        {6, 0, GW_ERR_UNSUPPORTED},
        {6, 4, GW_ERR_UNSUPPORTED},
        {7, 5, GW_ERR_HEADER},
        {7, 14, GW_ERR_HEADER},
        {7, 7, GW_ERR_HEADER},
        {8, 0x22, GW_ERR_UNSUPPORTED},
        {11, 0x80, GW_ERR_UNSUPPORTED},
        {8, 0x12, GW_ERR_HEADER},
        {8, 0x03, GW_ERR_HEADER},
        {12, 3, GW_ERR_HEADER},
        {12, 5, GW_ERR_HEADER},
        {15, 0xff, GW_ERR_HEADER},
        {16, 1, GW_ERR_HEADER},
        {23, 0x80, GW_ERR_HEADER},
        {24, 0, GW_ERR_HEADER},
        {31, 1, GW_ERR_HEADER},
        {32, 0, GW_ERR_HEADER},
        {32, 5, GW_ERR_HEADER},
        {32, 3, GW_ERR_TABLE},
        {33, 30, GW_ERR_TABLE},
        {33, 255, GW_ERR_OVERFLOW},
        {34, 0, GW_ERR_HEADER},
        {34, 24, GW_ERR_HEADER},
        {35, 1, GW_ERR_HEADER},
        {36, 0, GW_ERR_HEADER},
        {36, 9, GW_ERR_OVERFLOW},
        {37, 1, GW_ERR_OVERFLOW},
        {38, 4, GW_ERR_DUP},
        {39, 1, GW_ERR_DUP},
        {43, 0x41, GW_ERR_HEADER},
        {43, 0xc0, GW_ERR_HEADER},
        {43, 0, GW_ERR_HEADER},
        {64, 1, GW_ERR_TABLE},
        {70, 5, GW_ERR_TABLE},
        {79, 30, GW_ERR_TABLE},
        {80, 1, GW_ERR_HEADER},
        {95, 1, GW_ERR_HEADER},
    };
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    float out[LEN], clean[LEN];
    size_t len;
    gw_thc_frame_info info;

    memset(out, 0x5a, sizeof out);
    memset(clean, 0x5a, sizeof clean);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t keep = f->frame[0][cases[i].at];
        f->frame[0][cases[i].at] = cases[i].value;
        gw_status status = decode_frame(f->frame[0], f->frame_size, out, sizeof out, &len, NULL, NULL);
        if (status != cases[i].status) {
            print_message("byte %zu = %u: %d\n", cases[i].at, cases[i].value, (int)status);
        }
        assert_int_equal(status, cases[i].status);
        assert_int_equal(len, 0);
        f->frame[0][cases[i].at] = keep;
    }
    for (size_t size = 0; size < f->frame_size; size++) {
        uint8_t *cut = take(size); /* exact size: ASan sees any read beyond */
        memcpy(cut, f->frame[0], size);
        assert_int_equal(decode_frame(cut, size, out, sizeof out, &len, NULL, NULL), GW_ERR_SHORT);
        free(cut);
    }
    uint8_t *longer = take(f->frame_size + 1);
    memcpy(longer, f->frame[0], f->frame_size);
    assert_int_equal(decode_frame(longer, f->frame_size + 1, out, sizeof out, &len, NULL, NULL),
                     GW_ERR_TRAILING);
    free(longer);
    assert_int_equal(decode_frame(NULL, 1, out, sizeof out, &len, NULL, NULL), GW_ERR_ARG);
    assert_int_equal(decode_frame(NULL, 0, out, sizeof out, &len, NULL, NULL), GW_ERR_SHORT);
    assert_int_equal(decode_frame(f->frame[0], f->frame_size, out, sizeof out - 1, &len, NULL, NULL),
                     GW_ERR_DST);
    assert_int_equal(gw_thc_frame_check(f->frame[0], f->frame_size, LEN - 1, &info, NULL, GW_BACKEND_ALL),
                     GW_ERR_LIMIT);
    /* A tensor may have 2^32 blocks, a frame one less. */
    gw_thc_range all_blocks = {(uint64_t)1 << 38, 0, (uint64_t)1 << 32, 0, 0};
    uint32_t pattern = 0;
    size_t made = 1;
    assert_int_equal(gw_thc_frame_encode(&f->thc, &all_blocks, 0, clean, NULL, &pattern, (uint8_t *)out,
                                         sizeof out, &made, NULL, 0, NULL),
                     GW_ERR_LIMIT);
    assert_int_equal(made, 0);
    assert_memory_equal(out, clean, sizeof out);
    free_fixture(f);
}

/* Norms, lanes, checksum. */
static void test_hostile_content(void **state)
{
    (void)state;
    fixture *f = make_fixture(GW_THC_FLAG_CHECKSUM, GW_THC_ROTATED);
    float out[LEN];
    size_t len;
    uint64_t bad;

    for (size_t at = 96; at < f->frame_size; at += 7) {
        f->frame[0][at] ^= 1;
        memset(out, 0x5a, sizeof out);
        assert_int_equal(decode_frame(f->frame[0], f->frame_size, out, sizeof out, &len, NULL, &bad),
                         GW_ERR_CHECKSUM);
        for (size_t i = 0; i < LEN; i++) {
            assert_true(out[i] == 0);
        }
        f->frame[0][at] ^= 1;
    }
    free_fixture(f);

    f = make_fixture(0, GW_THC_ROTATED);
    static const uint32_t impossible[] = {0x7f800000, 0x7fc00000, 0xffc00000, 0x80000000, 0xbf800000, 1};
    for (size_t i = 0; i < 6; i++) { /* row 45; 0x7fc00000 without the flag too */
        uint8_t keep[4];
        memcpy(keep, f->frame[0] + 96 + 8, 4);
        memcpy(f->frame[0] + 96 + 8, &impossible[i], 4);
        assert_int_equal(decode_frame(f->frame[0], f->frame_size, out, sizeof out, &len, NULL, &bad),
                         GW_ERR_CORRUPT);
        assert_int_equal(bad, 2);
        memcpy(f->frame[0] + 96 + 8, keep, 4);
    }
    memset(f->frame[0] + 96, 0, 4); /* norm 0 with indices that are not */
    assert_int_equal(decode_frame(f->frame[0], f->frame_size, out, sizeof out, &len, NULL, &bad),
                     GW_ERR_CORRUPT);
    assert_int_equal(bad, 0);
    free_fixture(f);
}

/* Row 43: anything that differs between a sum and a frame. */
static void test_mismatches(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t change;
        gw_status status;
    } cases[] = {
        {6, 3, GW_ERR_HEADER},   /* dtype */
        {8, 4, GW_ERR_HEADER},   /* non-finite flag */
        {41, 1, GW_ERR_HEADER},  /* threshold */
        {44, 1, GW_ERR_HEADER},  /* first block */
        {48, 1, GW_ERR_ROUND},   /* round */
        {52, 1, GW_ERR_ROUND},   /* job */
        {56, 1, GW_ERR_HEADER},  /* seed */
        {65, 1, GW_ERR_HEADER},  /* table: 4 -> 5 */
        {36, 1, GW_ERR_HEADER},  /* workers: 4 -> 5 */
        {34, 24, GW_ERR_HEADER}, /* lanes: 8 -> 16 */
        {96, 1, GW_ERR_HEADER},  /* a norm */
    };
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    size_t size = gw_thc_frame_sum_bound(&f->thc, LEN, 0);
    uint8_t *sum = take(size);
    uint8_t *copy = take(size);
    size_t made;

    assert_int_equal(gw_thc_frame_sum_init(f->frame[0], f->frame_size, 0, sum, size, &made, GW_BACKEND_ALL),
                     GW_OK);
    assert_int_equal(gw_thc_frame_sum_add(sum, size, f->frame[0], f->frame_size, NULL, GW_BACKEND_ALL),
                     GW_OK);
    memcpy(copy, sum, size);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->frame[1][cases[i].at] ^= cases[i].change;
        gw_status status = gw_thc_frame_sum_add(sum, size, f->frame[1], f->frame_size, NULL, GW_BACKEND_ALL);
        if (status != cases[i].status) {
            print_message("byte %zu: %d\n", cases[i].at, (int)status);
        }
        assert_int_equal(status, cases[i].status);
        f->frame[1][cases[i].at] ^= cases[i].change;
        assert_memory_equal(sum, copy, size);
    }
    assert_int_equal(gw_thc_frame_sum_add(sum, size, f->frame[1], f->frame_size, NULL, GW_BACKEND_ALL),
                     GW_OK);
    assert_int_equal(
        gw_thc_frame_sum_add(f->frame[2], f->frame_size, f->frame[1], f->frame_size, NULL, GW_BACKEND_ALL),
        GW_ERR_STATE);
    free(copy);
    free(sum);
    free_fixture(f);
}

/* Every byte of a sum frame changed to several values: no crash, and success only if the frame checks out. */
static void test_every_byte(void **state)
{
    (void)state;
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    size_t size = gw_thc_frame_sum_bound(&f->thc, LEN, GW_THC_FLAG_BLOCK_SETS);
    uint8_t *sum = take(size);
    float out[LEN * 64];
    size_t made, len;

    assert_int_equal(gw_thc_frame_sum_init(f->frame[0], f->frame_size, GW_THC_FLAG_BLOCK_SETS, sum, size,
                                           &made, GW_BACKEND_ALL),
                     GW_OK);
    for (int r = 0; r < WORKERS; r++) {
        assert_int_equal(gw_thc_frame_sum_add(sum, size, f->frame[r], f->frame_size, NULL, GW_BACKEND_ALL),
                         GW_OK);
    }
    for (size_t at = 0; at < size; at++) {
        for (unsigned change = 1; change < 256; change = change * 2 + 1) {
            gw_thc_frame_info info;
            sum[at] ^= (uint8_t)change;
            gw_status checked = gw_thc_frame_check(sum, size, 1000000, &info, NULL, GW_BACKEND_ALL);
            gw_status decoded = decode_frame(sum, size, out, sizeof out, &len, NULL, NULL);
            assert_int_equal(checked, decoded);
            sum[at] ^= (uint8_t)change;
        }
    }
    free(sum);
    free_fixture(f);
}

static void test_empty(void **state)
{
    (void)state;
    static _Alignas(8) uint8_t workspace[GW_THC_WORKSPACE_SIZE_MAX];
    gw_thc_config config = default_config(4, 2, 0);
    gw_thc thc = make_thc(&config);
    gw_thc_range range = {0, 0, 0, 0, 1};
    uint8_t frame[96], sum[104];
    size_t size, len = 1;
    float out[1];

    assert_int_equal(gw_thc_frame_encode(&thc, &range, 0, NULL, NULL, NULL, frame, sizeof frame, &size,
                                         workspace, sizeof workspace, NULL),
                     GW_OK);
    assert_int_equal(size, 96);
    assert_int_equal(decode_frame(frame, 96, out, 0, &len, NULL, NULL), GW_OK);
    assert_int_equal(len, 0);
    assert_int_equal(gw_thc_frame_sum_init(frame, 96, 0, sum, sizeof sum, &size, GW_BACKEND_ALL), GW_OK);
    assert_int_equal(gw_thc_frame_sum_add(sum, size, frame, 96, NULL, GW_BACKEND_ALL), GW_OK);
    assert_int_equal(gw_thc_frame_sum_add(sum, size, frame, 96, NULL, GW_BACKEND_ALL), GW_ERR_DUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_block_sets),
        cmocka_unit_test(test_hostile_headers), cmocka_unit_test(test_hostile_content),
        cmocka_unit_test(test_mismatches),      cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests_name("thc frame", tests, NULL, NULL);
}
