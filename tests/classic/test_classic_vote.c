/*
 * Sums of signs: votes, ties, numbers; every status, and sums that a failure leaves alone.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "classic_testing.h"
#include "core/philox.h"

enum { LEN = 5003, WORKERS = 6, FIRST = 100037 };

typedef struct votes {
    gw_buffer frame[WORKERS];
    int negative[WORKERS][LEN];
    int32_t lanes[LEN];
    gw_classic_sum sum;
} votes;

static uint32_t backends;
static gw_dtype dtype;
static uint64_t seed;

static void with_globals(gw_classic_options *o)
{
    o->backends = backends;
    o->dtype = dtype;
    o->seed = seed;
}

static gw_classic_step step_of(uint32_t rank)
{
    const gw_classic_step step = {LEN, FIRST, 0, 9, rank};
    return step;
}

static gw_classic_frame received(const gw_buffer *frame)
{
    const gw_classic_frame result = {frame->data, frame->size, LEN, backends};
    return result;
}

static void start(votes *v, gw_classic_scheme scheme)
{
    static float x[LEN], momentum[LEN];
    memset(v, 0, sizeof *v);
    v->sum.lanes = v->lanes;
    v->sum.size = sizeof v->lanes;
    backends = backends == 0 ? GW_BACKEND_ALL : backends;
    dtype = dtype == 0 ? GW_FP32 : dtype;
    for (uint32_t w = 0; w < WORKERS; w++) {
        const gw_classic classic = ct_make(scheme, with_globals);
        const gw_classic_step step = step_of(w);
        const gw_classic_source source = {x, NULL, scheme == GW_CLASSIC_SIGNUM ? momentum : NULL, NULL};
        ct_rng rng = {w};
        ct_fill(&rng, x, LEN, 0);
        memset(momentum, 0, sizeof momentum);
        for (size_t i = 0; i < LEN; i++) {
            v->negative[w][i] = x[i] < 0;
        }
        assert_int_equal(ct_encode(&classic, &step, &source, &v->frame[w]), GW_OK);
    }
}

static void finish(votes *v)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        free(v->frame[w].data);
    }
}

static gw_status add(votes *v, uint32_t w)
{
    const gw_classic_frame first = received(&v->frame[0]), frame = received(&v->frame[w]);
    gw_workspace workspace = ct_frame_workspace(frame.data, frame.size);
    const gw_status status = gw_classic_sum_add(&v->sum, &first, &frame, &workspace);
    ct_free_workspace(&workspace);
    return status;
}

static gw_buffer vote(const votes *v)
{
    const gw_classic_frame first = received(&v->frame[1]); /* any frame of the sum */
    gw_workspace workspace = ct_frame_workspace(first.data, first.size);
    gw_buffer dst = {ct_take(first.size), first.size, 0};
    assert_int_equal(gw_classic_sum_vote(&v->sum, &first, &dst, &workspace), GW_OK);
    assert_int_equal(dst.size, first.size);
    ct_free_workspace(&workspace);
    return dst;
}

static uint32_t tie_bit(uint64_t element)
{
    uint32_t out[4];
    gw_philox4x32(out, seed, (uint32_t)(element / 128), (uint32_t)(element / 128 >> 32) | 0x40000000u, 9, 0);
    return out[element % 128 / 32] >> element % 32 & 1;
}

static void check_votes(const votes *v, uint32_t count)
{
    gw_buffer outcome = vote(v);
    gw_classic_frame_info info;
    size_t ties = 0, ones = 0;
    assert_int_equal(ct_check(outcome.data, outcome.size, LEN), GW_OK);
    assert_int_equal(gw_classic_frame_peek(outcome.data, outcome.size, &info), GW_OK);
    assert_int_equal(info.flags, GW_CLASSIC_FLAG_VOTE);
    assert_int_equal(info.round, 9);
    assert_int_equal(gw_classic_sum_size(&info), 0);
    const uint8_t *bits = (const uint8_t *)outcome.data + 80;
    for (size_t i = 0; i < LEN; i++) {
        int sum = 0;
        for (uint32_t w = 0; w < count; w++) {
            sum += v->negative[w][i] ? -1 : 1;
        }
        assert_int_equal(v->lanes[i], sum);
        const uint32_t expected = sum == 0 ? tie_bit(FIRST + i) : sum < 0;
        assert_int_equal(bits[i / 8] >> i % 8 & 1, expected);
        ties += sum == 0;
        ones += sum == 0 && expected != 0;
    }
    assert_true(count % 2 != 0 ? ties == 0 : ties > LEN / 5);
    assert_true(ties == 0 || (ones > ties * 2 / 5 && ones < ties * 3 / 5));
    free(outcome.data);
}

static void check_numbers(const votes *v, uint32_t count)
{
    const gw_classic_frame first = received(&v->frame[0]);
    gw_workspace workspace = ct_frame_workspace(first.data, first.size);
    float *mean = ct_take(4 * LEN);
    gw_classic_target target = {mean, LEN, 0, 1.0f / (float)count};
    assert_int_equal(gw_classic_sum_decode(&v->sum, &first, &target, &workspace), GW_OK);
    assert_int_equal(target.len, LEN);
    for (size_t i = 0; i < LEN; i++) {
        assert_true(mean[i] == (count == 1 ? (float)v->lanes[i] : (float)v->lanes[i] * target.scale));
    }
    ct_free_workspace(&workspace);
    free(mean);
}

static void majorities(void **state)
{
    (void)state;
    static votes v;
    static const gw_classic_scheme schemes[] = {GW_CLASSIC_SIGNSGD, GW_CLASSIC_SIGNUM};
    for (size_t s = 0; s < 2; s++) {
        for (const uint32_t *b = ct_backends; *b != 0; b++) {
            backends = *b;
            seed = 0x0123456789abcdefu + s;
            start(&v, schemes[s]);
            for (uint32_t w = 0; w < WORKERS; w++) {
                assert_int_equal(add(&v, w), GW_OK);
                assert_int_equal(v.sum.members, w + 1);
                check_votes(&v, w + 1);
                check_numbers(&v, w + 1);
            }
            finish(&v);
        }
    }
}

/* A frame that differs in one field is refused, and the sum stays as it was. */
static void mismatches(void **state)
{
    (void)state;
    static votes v;
    static const size_t fields[] = {6, 12, 32, 40, 56};
    static const uint8_t values[] = {GW_FP16, GW_CLASSIC_SIGNUM, 1, 1, 8};
    static int32_t before[LEN];
    backends = GW_BACKEND_ALL;
    seed = 0;
    start(&v, GW_CLASSIC_SIGNSGD);
    assert_int_equal(add(&v, 0), GW_OK);
    memcpy(before, v.lanes, sizeof before);
    uint8_t *bytes = v.frame[1].data;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const uint8_t old = bytes[fields[i]];
        bytes[fields[i]] = values[i];
        assert_int_equal(add(&v, 1), GW_ERR_MISMATCH);
        bytes[fields[i]] = old;
    }
    bytes[8] = GW_CLASSIC_FLAG_VOTE;
    assert_int_equal(add(&v, 1), GW_ERR_MISMATCH);
    bytes[8] = 0;
    bytes[80 + (LEN - 1) / 8] |= 0x80; /* a bit after the last value */
    assert_int_equal(add(&v, 1), GW_ERR_CORRUPT);
    bytes[80 + (LEN - 1) / 8] &= 0x7f;
    v.sum.members = GW_CLASSIC_MEMBERS_MAX;
    assert_int_equal(add(&v, 1), GW_ERR_OVERFLOW);
    v.sum.members = 1;
    v.sum.size--;
    assert_int_equal(add(&v, 1), GW_ERR_DST);
    v.sum.size++;
    v.sum.lanes = (uint8_t *)v.lanes + 1;
    assert_int_equal(add(&v, 1), GW_ERR_ARG);
    v.sum.lanes = NULL;
    assert_int_equal(add(&v, 1), GW_ERR_ARG);
    v.sum.lanes = v.lanes;
    assert_memory_equal(before, v.lanes, sizeof before);
    assert_int_equal(v.sum.members, 1);
    assert_int_equal(add(&v, 1), GW_OK);
    bytes = v.frame[0].data;
    bytes[8] = GW_CLASSIC_FLAG_VOTE; /* outcomes of votes have no sum */
    assert_int_equal(add(&v, 1), GW_ERR_OPTION);
    finish(&v);
}

static void statuses(void **state)
{
    (void)state;
    static votes v;
    uint8_t bytes[LEN];
    gw_buffer dst = {bytes, sizeof bytes, 5};
    gw_classic_target target = {v.lanes, LEN, 0, 1.0f};
    start(&v, GW_CLASSIC_SIGNSGD);
    gw_classic_frame first = received(&v.frame[0]);
    gw_workspace workspace = ct_frame_workspace(first.data, first.size);
    assert_int_equal(gw_classic_sum_vote(&v.sum, &first, &dst, &workspace), GW_ERR_STATE);
    assert_int_equal(dst.size, 0);
    assert_int_equal(gw_classic_sum_decode(&v.sum, &first, &target, &workspace), GW_ERR_STATE);
    assert_int_equal(add(&v, 0), GW_OK);
    dst.capacity = first.size - 1;
    assert_int_equal(gw_classic_sum_vote(&v.sum, &first, &dst, &workspace), GW_ERR_DST);
    assert_int_equal(gw_classic_sum_vote(NULL, &first, &dst, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_sum_vote(&v.sum, NULL, &dst, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_sum_vote(&v.sum, &first, NULL, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_sum_decode(&v.sum, &first, NULL, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_sum_add(&v.sum, NULL, &first, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_sum_add(&v.sum, &first, NULL, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_classic_sum_add(NULL, &first, &first, &workspace), GW_ERR_ARG);
    target.capacity = LEN - 1;
    assert_int_equal(gw_classic_sum_decode(&v.sum, &first, &target, &workspace), GW_ERR_DST);
    assert_int_equal(gw_classic_sum_size(NULL), 0);
    ct_free_workspace(&workspace);
    finish(&v);

    const gw_classic classic = ct_make(GW_CLASSIC_FP16, with_globals); /* casts have no sum */
    const gw_classic_step step = step_of(0);
    static float x[LEN];
    const gw_classic_source source = {.values = x};
    gw_buffer frame;
    assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
    first = received(&frame);
    workspace = ct_frame_workspace(first.data, first.size);
    assert_int_equal(gw_classic_sum_add(&v.sum, &first, &first, &workspace), GW_ERR_OPTION);
    ct_free_workspace(&workspace);
    free(frame.data);
}

/* A sum of frames without elements; EFSIGNSGD has none, whatever the length. */
static void empty_votes(void **state)
{
    (void)state;
    static const gw_classic_scheme schemes[] = {GW_CLASSIC_SIGNSGD, GW_CLASSIC_EFSIGNSGD, GW_CLASSIC_ONEBIT};
    for (size_t i = 0; i < 3; i++) {
        const gw_classic classic = ct_make(schemes[i], NULL);
        const gw_classic_step step = {0, 0, 0, 0, 0};
        const gw_classic_source source = {0};
        gw_classic_sum sum = {NULL, 0, 0};
        gw_buffer frame;
        uint8_t bytes[80];
        gw_buffer dst = {bytes, sizeof bytes, 0};
        assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
        const gw_classic_frame first = {frame.data, frame.size, 0, GW_BACKEND_ALL};
        const gw_status expected = schemes[i] == GW_CLASSIC_SIGNSGD ? GW_OK : GW_ERR_OPTION;
        assert_int_equal(gw_classic_sum_add(&sum, &first, &first, NULL), expected);
        assert_int_equal(gw_classic_sum_vote(&sum, &first, &dst, NULL), expected);
        if (expected == GW_OK) {
            assert_int_equal(ct_check(bytes, dst.size, 0), GW_OK);
        }
        free(frame.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(majorities),
        cmocka_unit_test(mismatches),
        cmocka_unit_test(statuses),
        cmocka_unit_test(empty_votes),
    };
    return cmocka_run_group_tests_name("classic votes", tests, NULL, NULL);
}
