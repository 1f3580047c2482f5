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
    gw_thc_options options;
    gw_thc thc;
    float x[WORKERS][LEN];
    job_output job;
    uint8_t *frame[WORKERS];
    size_t frame_size;
} fixture;

static fixture *make_fixture(uint32_t flags, gw_thc_transform transform)
{
    fixture *f = take(sizeof *f);
    test_rng rng = {flags + transform + 1};
    const gw_workspace workspace = any_workspace();

    f->options = default_options(4, WORKERS, 0);
    f->options.block_log2 = 6;
    f->options.seed = 0x0123456789abcdefu;
    f->options.job = 77;
    f->options.transform = transform;
    f->options.checksum = (flags & GW_THC_FLAG_CHECKSUM) != 0;
    if (transform == GW_THC_PLAIN) {
        f->options.threshold_bits = 0;
    }
    f->thc = make_thc(&f->options);
    fill_normal(&rng, &f->x[0][0], WORKERS * LEN, 1.0);
    f->job = run_job(&f->thc, &f->x[0][0], NULL, LEN, WORKERS, 9);
    f->frame_size = gw_thc_frame_bound(&f->thc, LEN);
    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_thc_range range = {LEN, 0, 4, 9, r};
        gw_thc_source source = {.values = f->x[r], .patterns = f->job.maxima};
        gw_buffer dst = {take(f->frame_size), f->frame_size, 0};
        f->frame[r] = dst.data;
        assert_int_equal(gw_thc_frame_encode(&f->thc, &range, &source, &dst, NULL, &workspace), GW_OK);
        assert_int_equal(dst.size, f->frame_size);
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

static gw_status decode_frame(const uint8_t *frame, size_t size, gw_thc_target *target)
{
    const gw_workspace workspace = any_workspace();
    gw_thc_frame received = {frame, size, 1000000, GW_BACKEND_ALL};
    return gw_thc_frame_decode(&received, GW_THC_MEAN, target, &workspace);
}

/* An empty sum of frames like `like` in memory of exactly its size. */
static gw_buffer make_sum(const fixture *f, const uint8_t *like, uint32_t flags)
{
    gw_thc_frame frame = {like, f->frame_size, LEN, GW_BACKEND_ALL};
    gw_buffer sum = {NULL, gw_thc_frame_sum_bound(&f->thc, LEN, flags), 0};

    sum.data = take(sum.capacity);
    assert_int_equal(gw_thc_frame_sum_init(&frame, flags, &sum), GW_OK);
    assert_int_equal(sum.size, sum.capacity);
    return sum;
}

static gw_status add(const gw_buffer *sum, const void *frame, size_t size)
{
    gw_thc_frame received = {frame, size, UINT64_MAX, GW_BACKEND_ALL};
    return gw_thc_frame_sum_add(sum, &received, NULL);
}

/* ((0 + 1) + (2 + 3)) against (3 + 2 + 1 + 0), and what is refused afterwards. */
static void check_sums(fixture *f, uint32_t flags)
{
    gw_buffer left = make_sum(f, f->frame[0], flags);
    gw_buffer right = make_sum(f, f->frame[0], flags);
    gw_buffer straight = make_sum(f, f->frame[0], flags);
    float all[LEN], out[LEN];
    gw_thc_target target = {.values = out, .capacity = LEN};

    /* An empty sum: all blocks are missing and decode to +0. */
    assert_int_equal(decode_frame(left.data, left.size, &target), GW_OK);
    assert_int_equal(target.missing, 4);
    for (size_t i = 0; i < LEN; i++) {
        assert_true(out[i] == 0 && !signbit(out[i]));
    }
    assert_int_equal(add(&left, f->frame[0], f->frame_size), GW_OK);
    assert_int_equal(add(&left, f->frame[1], f->frame_size), GW_OK);
    assert_int_equal(add(&right, f->frame[2], f->frame_size), GW_OK);
    assert_int_equal(add(&right, f->frame[3], f->frame_size), GW_OK);
    assert_int_equal(add(&left, right.data, right.size), GW_OK);
    for (int r = WORKERS; r-- > 0;) {
        assert_int_equal(add(&straight, f->frame[r], f->frame_size), GW_OK);
    }
    assert_memory_equal(left.data, straight.data, left.size);
    gw_thc_frame_info info;
    gw_thc_frame received = {left.data, left.size, LEN, GW_BACKEND_ALL};
    assert_int_equal(gw_thc_frame_check(&received, &info, NULL), GW_OK);
    assert_int_equal(gw_thc_frame_members(left.data, &info, 3), WORKERS);
    assert_int_equal(decode_frame(left.data, left.size, &target), GW_OK);
    assert_int_equal(target.len, LEN);

    gw_thc_agg agg;
    gw_thc_agg_options agg_options = {f->options.table, WORKERS, 8, GW_BACKEND_SCALAR};
    uint8_t set[8] = {0};
    gw_thc_partial sum = {take(f->job.lanes_size), set, f->job.lanes};
    assert_int_equal(gw_thc_agg_init(&agg, &agg_options), GW_OK);
    for (uint32_t r = 0; r < WORKERS; r++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, &sum, f->job.indices + r * f->job.indices_size, r),
                         GW_OK);
    }
    assert_int_equal(decode_all(&f->thc, &f->job, sum.lanes, WORKERS, GW_THC_MEAN, 9, LEN, all), GW_OK);
    assert_memory_equal(out, all, sizeof out);
    /* Refused, and the sum is what it was. */
    assert_int_equal(add(&left, f->frame[2], f->frame_size), GW_ERR_DUP);
    assert_int_equal(add(&left, right.data, right.size), GW_ERR_DUP);
    assert_memory_equal(left.data, straight.data, left.size);
    free(sum.lanes);
    free(left.data);
    free(right.data);
    free(straight.data);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (unsigned transform = 0; transform < 2; transform++) {
        for (uint32_t flags = 0; flags <= GW_THC_FLAG_CHECKSUM; flags += GW_THC_FLAG_CHECKSUM) {
            fixture *f = make_fixture(flags, (gw_thc_transform)transform);
            check_sums(f, flags);
            free_fixture(f);
        }
    }
}

/* One contributor set per block: block 1 never arrived, block 2 lacks two workers. */
static void test_block_sets(void **state)
{
    (void)state;
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    gw_buffer sum = make_sum(f, f->frame[0], GW_THC_FLAG_BLOCK_SETS);
    uint8_t *bytes = sum.data;
    gw_thc_frame_info info;
    float out[LEN];
    gw_thc_target target = {.values = out, .capacity = LEN};

    for (int r = 0; r < WORKERS; r++) {
        assert_int_equal(add(&sum, f->frame[r], f->frame_size), GW_OK);
    }
    assert_int_equal(gw_thc_frame_peek(bytes, sum.size, &info), GW_OK);
    memset(bytes + info.sets_offset + 8, 0, 8);
    memset(bytes + info.payload_offset + 64, 0, 64);
    assert_int_equal(decode_frame(bytes, sum.size, &target), GW_OK);
    assert_int_equal(target.missing, 1);
    for (size_t i = 64; i < 128; i++) {
        assert_true(out[i] == 0 && !signbit(out[i]));
    }
    /* A set that names worker 4 of 4: DUP at that block; others are decoded. */
    bytes[info.sets_offset + 16] = 0x10;
    assert_int_equal(decode_frame(bytes, sum.size, &target), GW_ERR_DUP);
    assert_int_equal(target.bad_block, 2);
    assert_int_equal(target.len, 0);
    for (size_t i = 128; i < 192; i++) {
        assert_true(out[i] == 0);
    }
    assert_true(out[0] != 0 && out[200] != 0);
    free(sum.data);
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
        {0, 'G', GW_ERR_MAGIC},        {4, 0x11, GW_ERR_VERSION},
        {4, 1, GW_ERR_HEADER}, /* a reader's version above the writer's */
        {5, 1, GW_ERR_UNSUPPORTED},    {5, 3, GW_ERR_UNSUPPORTED},
        {6, 0, GW_ERR_UNSUPPORTED},    {6, 4, GW_ERR_UNSUPPORTED},
        {7, 5, GW_ERR_HEADER},         {7, 14, GW_ERR_HEADER},
        {7, 7, GW_ERR_HEADER},         {8, 0x22, GW_ERR_UNSUPPORTED},
        {9, 0x80, GW_ERR_UNSUPPORTED}, {11, 0, GW_ERR_HEADER},
        {11, 7, GW_ERR_HEADER},        {11, 9, GW_ERR_HEADER},
        {8, 0x12, GW_ERR_HEADER},      {8, 0x03, GW_ERR_HEADER},
        {12, 3, GW_ERR_HEADER},        {12, 5, GW_ERR_HEADER},
        {15, 0xff, GW_ERR_HEADER},     {16, 1, GW_ERR_HEADER},
        {23, 0x80, GW_ERR_HEADER},     {24, 0, GW_ERR_HEADER},
        {31, 1, GW_ERR_HEADER},        {32, 0, GW_ERR_HEADER},
        {32, 5, GW_ERR_HEADER},        {32, 3, GW_ERR_TABLE},
        {33, 30, GW_ERR_TABLE},        {33, 255, GW_ERR_OVERFLOW},
        {34, 0, GW_ERR_HEADER},        {34, 24, GW_ERR_HEADER},
        {35, 1, GW_ERR_HEADER},        {36, 0, GW_ERR_HEADER},
        {36, 9, GW_ERR_OVERFLOW},      {37, 1, GW_ERR_OVERFLOW},
        {38, 4, GW_ERR_DUP},           {39, 1, GW_ERR_DUP},
        {43, 0x41, GW_ERR_HEADER},     {43, 0xc0, GW_ERR_HEADER},
        {43, 0, GW_ERR_HEADER},        {64, 1, GW_ERR_TABLE},
        {70, 5, GW_ERR_TABLE},         {79, 30, GW_ERR_TABLE},
        {80, 1, GW_ERR_HEADER},        {95, 1, GW_ERR_HEADER},
    };
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    float out[LEN], clean[LEN];
    gw_thc_target target = {.values = out, .capacity = LEN};
    gw_thc_frame_info info;

    memset(out, 0x5a, sizeof out);
    memset(clean, 0x5a, sizeof clean);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t keep = f->frame[0][cases[i].at];
        f->frame[0][cases[i].at] = cases[i].value;
        gw_status status = decode_frame(f->frame[0], f->frame_size, &target);
        if (status != cases[i].status) {
            print_message("byte %zu = %u: %d\n", cases[i].at, cases[i].value, (int)status);
        }
        assert_int_equal(status, cases[i].status);
        assert_int_equal(target.len, 0);
        f->frame[0][cases[i].at] = keep;
    }
    for (size_t size = 0; size < f->frame_size; size++) {
        uint8_t *cut = take(size); /* exact size: ASan sees any read beyond */
        memcpy(cut, f->frame[0], size);
        assert_int_equal(decode_frame(cut, size, &target), GW_ERR_SHORT);
        free(cut);
    }
    uint8_t *longer = take(f->frame_size + 1);
    memcpy(longer, f->frame[0], f->frame_size);
    assert_int_equal(decode_frame(longer, f->frame_size + 1, &target), GW_ERR_TRAILING);
    free(longer);
    assert_int_equal(decode_frame(NULL, 1, &target), GW_ERR_ARG);
    assert_int_equal(decode_frame(NULL, 0, &target), GW_ERR_SHORT);
    target.capacity--;
    assert_int_equal(decode_frame(f->frame[0], f->frame_size, &target), GW_ERR_DST);
    assert_int_equal(
        gw_thc_frame_check(&(gw_thc_frame){f->frame[0], f->frame_size, LEN - 1, GW_BACKEND_ALL}, &info, NULL),
        GW_ERR_LIMIT);
    /* A tensor may have 2^32 blocks, a frame one less. */
    gw_thc_range all_blocks = {(uint64_t)1 << 38, 0, (uint64_t)1 << 32, 0, 0};
    uint32_t pattern = 0;
    gw_thc_source source = {.values = clean, .patterns = &pattern};
    gw_buffer dst = {out, sizeof out, 1};
    assert_int_equal(gw_thc_frame_encode(&f->thc, &all_blocks, &source, &dst, NULL, NULL), GW_ERR_LIMIT);
    assert_int_equal(dst.size, 0);
    assert_memory_equal(out, clean, sizeof out);
    free_fixture(f);
}

/* Norms, lanes, checksum. */
static void test_hostile_content(void **state)
{
    (void)state;
    fixture *f = make_fixture(GW_THC_FLAG_CHECKSUM, GW_THC_ROTATED);
    float out[LEN];
    gw_thc_target target = {.values = out, .capacity = LEN};

    gw_thc_frame_info info;
    assert_int_equal(gw_thc_frame_peek(f->frame[0], f->frame_size, &info), GW_OK);
    const size_t end = (size_t)(info.payload_offset + info.payload_size);
    for (size_t at = 96; at < f->frame_size; at += 7) {
        at += at >= end && at < f->frame_size - 4 ? f->frame_size - 4 - at : 0; /* not the padding */
        f->frame[0][at] ^= 1;
        memset(out, 0x5a, sizeof out);
        assert_int_equal(decode_frame(f->frame[0], f->frame_size, &target), GW_ERR_CHECKSUM);
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
        assert_int_equal(decode_frame(f->frame[0], f->frame_size, &target), GW_ERR_CORRUPT);
        assert_int_equal(target.bad_block, 2);
        memcpy(f->frame[0] + 96 + 8, keep, 4);
    }
    memset(f->frame[0] + 96, 0, 4); /* norm 0 with indices that are not */
    assert_int_equal(decode_frame(f->frame[0], f->frame_size, &target), GW_ERR_CORRUPT);
    assert_int_equal(target.bad_block, 0);
    free_fixture(f);
}

/* Row 43: anything that differs between a sum and a frame is refused and named. */
static void test_mismatches(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t change;
        gw_thc_field field;
    } cases[] = {
        {52, 1, GW_THC_FIELD_JOB},         {48, 1, GW_THC_FIELD_ROUND},
        {6, 3, GW_THC_FIELD_DTYPE},        {8, 4, GW_THC_FIELD_NONFINITE},
        {44, 1, GW_THC_FIELD_BLOCK_FIRST}, {34, 24, GW_THC_FIELD_LANE_BITS}, /* 8 -> 16 */
        {36, 1, GW_THC_FIELD_WORKER_MAX},                                    /* 4 -> 5 */
        {41, 1, GW_THC_FIELD_THRESHOLD},   {56, 1, GW_THC_FIELD_SEED},
        {65, 1, GW_THC_FIELD_TABLE}, /* 4 -> 5 */
        {96, 1, GW_THC_FIELD_NORMS},
    };
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    gw_buffer sum = make_sum(f, f->frame[0], 0);
    uint8_t *copy = take(sum.size);

    assert_int_equal(add(&sum, f->frame[0], f->frame_size), GW_OK);
    memcpy(copy, sum.data, sum.size);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->frame[1][cases[i].at] ^= cases[i].change;
        gw_thc_frame frame = {f->frame[1], f->frame_size, LEN, GW_BACKEND_ALL};
        gw_thc_field field = gw_thc_frame_mismatch(&sum, &frame);
        if (field != cases[i].field) {
            print_message("byte %zu: %s\n", cases[i].at, gw_thc_field_name(field));
        }
        assert_int_equal(field, cases[i].field);
        assert_int_equal(add(&sum, f->frame[1], f->frame_size),
                         field <= GW_THC_FIELD_ROUND ? GW_ERR_ROUND : GW_ERR_MISMATCH);
        f->frame[1][cases[i].at] ^= cases[i].change;
        assert_memory_equal(sum.data, copy, sum.size);
    }
    assert_int_equal(add(&sum, f->frame[1], f->frame_size), GW_OK);
    gw_buffer no_sum = {f->frame[2], f->frame_size, f->frame_size};
    assert_int_equal(add(&no_sum, f->frame[1], f->frame_size), GW_ERR_STATE);
    gw_thc_frame same = {f->frame[1], f->frame_size, LEN, GW_BACKEND_ALL};
    assert_int_equal(gw_thc_frame_mismatch(&sum, &same), GW_THC_FIELD_NONE);
    assert_int_equal(gw_thc_frame_mismatch(&no_sum, &same), GW_THC_FIELD_NONE);
    for (int field = 0; field <= GW_THC_FIELD_NORMS; field++) {
        assert_string_not_equal(gw_thc_field_name((gw_thc_field)field), "unknown");
    }
    assert_string_equal(gw_thc_field_name((gw_thc_field)(GW_THC_FIELD_NORMS + 1)), "unknown");
    free(copy);
    free(sum.data);
    free_fixture(f);
}

/* What a writer of a later version may add. `longer` has room for 16 bytes more than the frame. */
static void make_later(uint8_t *longer, const uint8_t *frame, size_t size)
{
    const uint64_t longer_size = size + 16;

    memcpy(longer, frame, 96);
    memset(longer + 96, 0xb7, 16);
    longer[96] = 3; /* the part of bit 2, and the end of the list */
    longer[97] = 1;
    longer[104] = 0;
    memcpy(longer + 112, frame + 96, size - 96);
    longer[4] = 0x20;
    longer[10] = 0xff;
    longer[11] = 10;
    memcpy(longer + 24, &longer_size, 8);
}

/* A longer extension is skipped: the same values; such frames, and sums, are added to sums with a shorter one
 * and make sums without what is unknown. */
static void test_longer_extension(void **state)
{
    (void)state;
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    const size_t longer_size = f->frame_size + 16;
    uint8_t *longer = take(longer_size);
    float out[LEN], clean[LEN];
    gw_thc_target target = {.values = clean, .capacity = LEN};

    make_later(longer, f->frame[0], f->frame_size);
    assert_int_equal(decode_frame(f->frame[0], f->frame_size, &target), GW_OK);
    target.values = out;
    assert_int_equal(decode_frame(longer, longer_size, &target), GW_OK);
    assert_memory_equal(out, clean, sizeof out);

    gw_buffer sum = make_sum(f, f->frame[0], 0), same = make_sum(f, f->frame[0], 0);
    gw_thc_frame like = {longer, longer_size, LEN, GW_BACKEND_ALL};
    gw_buffer made = {take(sum.size), sum.size, 0};
    assert_int_equal(gw_thc_frame_sum_init(&like, 0, &made), GW_OK);
    assert_int_equal(made.size, sum.size);
    assert_memory_equal(made.data, sum.data, sum.size);
    assert_int_equal(add(&sum, f->frame[0], f->frame_size), GW_OK);
    assert_int_equal(add(&same, longer, longer_size), GW_OK);
    assert_memory_equal(same.data, sum.data, sum.size);

    uint8_t *longer_sum = take(sum.size + 16);
    make_later(longer_sum, sum.data, sum.size);
    const gw_buffer sum_later = {longer_sum, sum.size + 16, sum.size + 16};
    assert_int_equal(add(&sum_later, f->frame[1], f->frame_size), GW_OK);
    assert_int_equal(add(&sum, f->frame[1], f->frame_size), GW_OK);
    assert_memory_equal(longer_sum + 112, (const uint8_t *)sum.data + 96, sum.size - 96);
    assert_int_equal(longer_sum[10], 0xff);
    free(longer_sum);
    free(made.data);
    free(same.data);
    free(sum.data);
    free(longer);
    free_fixture(f);
}

/* Every byte of a sum frame changed to several values: no crash, and success only if the frame checks out. */
static void test_every_byte(void **state)
{
    (void)state;
    fixture *f = make_fixture(0, GW_THC_ROTATED);
    gw_buffer sum = make_sum(f, f->frame[0], GW_THC_FLAG_BLOCK_SETS);
    uint8_t *bytes = sum.data;
    float out[LEN * 64];
    gw_thc_target target = {.values = out, .capacity = LEN * 64};

    for (int r = 0; r < WORKERS; r++) {
        assert_int_equal(add(&sum, f->frame[r], f->frame_size), GW_OK);
    }
    for (size_t at = 0; at < sum.size; at++) {
        for (unsigned change = 1; change < 256; change = change * 2 + 1) {
            gw_thc_frame_info info;
            gw_thc_frame received = {bytes, sum.size, 1000000, GW_BACKEND_ALL};
            bytes[at] ^= (uint8_t)change;
            gw_status checked = gw_thc_frame_check(&received, &info, NULL);
            gw_status decoded = decode_frame(bytes, sum.size, &target);
            assert_int_equal(checked, decoded);
            assert_true(checked == GW_OK || (info.frame_size == 0 && info.options.worker_max == 0));
            bytes[at] ^= (uint8_t)change;
        }
    }
    free(sum.data);
    free_fixture(f);
}

static void test_empty(void **state)
{
    (void)state;
    const gw_workspace workspace = any_workspace();
    gw_thc_options options = default_options(4, 2, 0);
    gw_thc thc = make_thc(&options);
    gw_thc_range range = {0, 0, 0, 0, 1};
    gw_thc_source source = {0};
    uint8_t frame[96], sum[112], checked[112];
    gw_buffer dst = {frame, sizeof frame, 0};
    gw_buffer dst_sum = {sum, sizeof sum, 0};
    gw_thc_target target = {.values = NULL};
    gw_thc_frame received = {frame, sizeof frame, 0, GW_BACKEND_ALL};

    assert_int_equal(gw_thc_frame_encode(&thc, &range, &source, &dst, NULL, &workspace), GW_OK);
    assert_int_equal(dst.size, 96);
    assert_int_equal(decode_frame(frame, 96, &target), GW_OK);
    assert_int_equal(target.len, 0);
    assert_int_equal(gw_thc_frame_sum_init(&received, 0, &dst_sum), GW_OK);
    assert_int_equal(add(&dst_sum, frame, 96), GW_OK);
    assert_int_equal(add(&dst_sum, frame, 96), GW_ERR_DUP);
    assert_int_equal(dst_sum.size, sizeof sum);
    /* No block checks the set of an empty sum: worker 2 of 2. */
    for (unsigned bit = 2; bit < 64; bit += 61) {
        gw_thc_frame_info info;
        uint64_t bad_block = 0;
        memcpy(checked, sum, sizeof sum);
        checked[96 + bit / 8] |= (uint8_t)(1u << bit % 8);
        received = (gw_thc_frame){checked, sizeof checked, 0, GW_BACKEND_ALL};
        assert_int_equal(gw_thc_frame_check(&received, &info, &bad_block), GW_ERR_DUP);
        assert_true(bad_block == UINT64_MAX);
        assert_int_equal(decode_frame(checked, sizeof checked, &target), GW_ERR_DUP);
        assert_true(target.bad_block == UINT64_MAX && target.len == 0);
        assert_int_equal(add(&dst_sum, checked, sizeof checked), GW_ERR_DUP);
    }
}

/* Frames end on a multiple of 16 bytes, after zeros and the checksum. */
static void test_padding(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= GW_THC_FLAG_CHECKSUM; flags += GW_THC_FLAG_CHECKSUM) {
        fixture *f = make_fixture(flags, GW_THC_ROTATED);
        gw_buffer sum = make_sum(f, f->frame[0], flags);
        float out[LEN];
        gw_thc_target target = {.values = out, .capacity = LEN};

        assert_int_equal(add(&sum, f->frame[0], f->frame_size), GW_OK);
        for (unsigned is_sum = 0; is_sum < 2; is_sum++) {
            uint8_t *frame = is_sum ? sum.data : f->frame[1];
            const size_t size = is_sum ? sum.size : f->frame_size;
            gw_thc_frame_info info;
            unsigned padding = 0;

            assert_int_equal(gw_thc_frame_peek(frame, size, &info), GW_OK);
            assert_int_equal(info.frame_size, size);
            assert_int_equal(size % 16, 0);
            size_t at = (size_t)(info.payload_offset + info.payload_size);
            for (; at < size - (flags != 0 ? 4 : 0); at++, padding++) {
                assert_int_equal(frame[at], 0);
                frame[at] = 0x80;
                memset(out, 0x5a, sizeof out);
                assert_int_equal(decode_frame(frame, size, &target), GW_ERR_HEADER);
                gw_thc_frame received = {frame, size, LEN, GW_BACKEND_ALL};
                assert_int_equal(gw_thc_frame_check(&received, &info, NULL), GW_ERR_HEADER);
                assert_int_equal(((uint8_t *)out)[0], 0x5a); /* nothing was written */
                frame[at] = 0;
            }
            assert_int_equal(padding, is_sum ? (flags != 0 ? 4 : 8) : (flags != 0 ? 12 : 0));
            assert_int_equal(decode_frame(frame, size, &target), GW_OK);
        }
        free(sum.data);
        free_fixture(f);
    }
}

/* A plain block whose maximum lies below its minimum, be it by one subnormal. */
static void test_crossed_extent(void **state)
{
    (void)state;
    fixture *f = make_fixture(0, GW_THC_PLAIN);
    gw_buffer sum = make_sum(f, f->frame[0], 0);
    uint8_t *bytes = sum.data;
    float out[LEN];
    gw_thc_target target = {.values = out, .capacity = LEN};
    static const uint32_t least = 0x00800000u; /* 2^-126 */
    const struct {
        uint32_t maximum, minimum; /* bits */
        gw_status status;
    } cases[] = {
        {least, least, GW_OK},
        {least + 1, least, GW_OK},
        {least, least + 1, GW_ERR_CORRUPT},
        {least | 0x80000000u, least | 0x80000000u, GW_OK},
        {(least + 1) | 0x80000000u, least | 0x80000000u, GW_ERR_CORRUPT},
        {0, least, GW_ERR_CORRUPT},
        {least | 0x80000000u, 0, GW_ERR_CORRUPT},
        {0, 0, GW_OK},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t bits[2] = {cases[i].maximum,
                                  cases[i].minimum == 0 ? 0 : cases[i].minimum ^ 0x80000000u};
        for (size_t w = 0; w < 2; w++) { /* an empty sum: no lanes, so only the patterns matter */
            const uint32_t code = bits[w] >> 31 != 0 ? ~bits[w] : bits[w] | 0x80000000u;
            for (size_t b = 0; b < 4; b++) {
                bytes[96 + 4 * w + b] = (uint8_t)(code >> 8 * b);
            }
        }
        assert_int_equal(decode_frame(bytes, sum.size, &target), cases[i].status);
        assert_true(target.bad_block == (cases[i].status == GW_OK ? UINT64_MAX : 0));
    }
    free(sum.data);
    free_fixture(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_block_sets),
        cmocka_unit_test(test_hostile_headers), cmocka_unit_test(test_hostile_content),
        cmocka_unit_test(test_mismatches),      cmocka_unit_test(test_longer_extension),
        cmocka_unit_test(test_every_byte),      cmocka_unit_test(test_empty),
        cmocka_unit_test(test_padding),         cmocka_unit_test(test_crossed_extent),
    };
    return cmocka_run_group_tests_name("thc frame", tests, NULL, NULL);
}
