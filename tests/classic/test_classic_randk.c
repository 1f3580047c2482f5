/*
 * RANDK: exactly keep_len positions, every subset equally likely, from seed and round alone; unbiased values;
 * sums of frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "classic/classic_randk.h"
#include "sparse_testing.h"

static unsigned ones_of(uint64_t x)
{
    unsigned count = 0;
    for (; x != 0; x &= x - 1) {
        count++;
    }
    return count;
}

static void test_counts(void **state)
{
    (void)state;
    static const uint64_t lens[] = {1, 2, 3, 63, 64, 65, 1000, 4096, 100000};
    for (unsigned l = 0; l < 9; l++) {
        const uint64_t words = gw_randk_words(lens[l]);
        uint64_t *const bitmap = sparse_take((size_t)words * sizeof *bitmap);
        for (uint64_t keep_len = 1; keep_len <= lens[l]; keep_len += 1 + lens[l] / 17) {
            const gw_randk_stream stream = {keep_len, lens[l], 7};
            uint64_t count = 0;
            gw_randk_draw(bitmap, lens[l], keep_len, &stream);
            for (uint64_t i = 0; i < words; i++) {
                count += ones_of(bitmap[i]);
            }
            assert_int_equal(count, keep_len);
            assert_true(lens[l] % 64 == 0 || bitmap[words - 1] >> lens[l] % 64 == 0);
        }
        free(bitmap);
    }
}

/* |sum of (count - expected)^2 / expected - degrees| <= 5 standard deviations. */
static void expect_even(const double *count, unsigned cells, double expected, double degrees)
{
    double chi = 0;
    for (unsigned i = 0; i < cells; i++) {
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    assert_true(fabs(chi - degrees) <= 5 * sqrt(2 * degrees));
}

/* All subsets of 7, by size: those below, at, and above half are drawn in different ways. */
static void test_subsets(void **state)
{
    (void)state;
    enum { LEN = 7, ROUNDS = 200000 };
    for (unsigned keep_len = 1; keep_len < LEN; keep_len++) {
        double count[1 << LEN] = {0}, packed[1 << LEN];
        unsigned subsets = 0;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const gw_randk_stream stream = {99, 1000000 * keep_len, round};
            uint64_t bitmap;
            gw_randk_draw(&bitmap, LEN, keep_len, &stream);
            count[bitmap] += 1;
        }
        for (unsigned i = 0; i < 1u << LEN; i++) {
            if (ones_of(i) == keep_len) {
                packed[subsets++] = count[i];
            } else {
                assert_true(count[i] == 0);
            }
        }
        expect_even(packed, subsets, (double)ROUNDS / subsets, subsets - 1);
    }
}

/* Positions of a longer tensor. Counts of one round exclude each other: the sum of squares is smaller than
 * that of independent draws by 1 - keep_len / len. */
static void test_positions_even(void **state)
{
    (void)state;
    enum { LEN = 1000, KEEP = 100, ROUNDS = 20000 };
    double count[LEN] = {0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const gw_randk_stream stream = {5, 0, round};
        uint64_t bitmap[(LEN + 63) / 64];
        gw_randk_draw(bitmap, LEN, KEEP, &stream);
        for (unsigned i = 0; i < LEN; i++) {
            count[i] += (double)(bitmap[i / 64] >> i % 64 & 1);
        }
    }
    double chi = 0;
    const double expected = (double)ROUNDS * KEEP / LEN;
    for (unsigned i = 0; i < LEN; i++) {
        chi += (count[i] - expected) * (count[i] - expected) / (expected * (1.0 - (double)KEEP / LEN));
    }
    assert_true(fabs(chi - (LEN - 1)) <= 5 * sqrt(2.0 * (LEN - 1)));
}

static gw_classic_options options_of(int unbiased)
{
    gw_classic_options options;
    assert_int_equal(gw_classic_options_init(&options, GW_CLASSIC_RANDK), GW_OK);
    options.unbiased = unbiased;
    options.seed = 12345;
    return options;
}

static void encode_round(const gw_classic_options *options, const float *x, size_t len, size_t keep_len,
                         uint32_t round, uint32_t rank, gw_buffer *frame)
{
    const gw_classic_step step = {len, 40, keep_len, round, rank};
    const gw_classic_source source = {x, NULL, NULL, NULL};
    assert_int_equal(sparse_encode(options, &step, &source, 0, frame), GW_OK);
}

/* Of n values x with inclusion probability p, the mean over R rounds of the decoded x / p has the variance
 * x^2 * (1 / p - 1) / R. */
static void test_unbiased(void **state)
{
    (void)state;
    enum { LEN = 200, KEEP = 30, ROUNDS = 10000 };
    const gw_classic_options options = options_of(1);
    float x[LEN], out[LEN];
    double sum[LEN] = {0};
    sparse_rng rng = {8};
    sparse_fill(&rng, x, GW_FP32, LEN, 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        gw_buffer frame;
        encode_round(&options, x, LEN, KEEP, round, 0, &frame);
        assert_int_equal(sparse_decode(&frame, GW_BACKEND_ALL, out, LEN, 0, 1.0f), GW_OK);
        free(frame.data);
        for (unsigned i = 0; i < LEN; i++) {
            sum[i] += (double)out[i];
        }
    }
    const double factor = (double)LEN / KEEP;
    for (unsigned i = 0; i < LEN; i++) {
        const double deviation = fabs((double)x[i]) * sqrt((factor - 1.0) / ROUNDS);
        assert_true(fabs(sum[i] / ROUNDS - (double)x[i]) <= 5 * deviation + 1e-12);
    }
}

/* Backends agree, rank does not matter, values are x or x times the factor. */
static void test_values(void **state)
{
    (void)state;
    enum { LEN = 10007, KEEP = 333 };
    float *const x = sparse_take(LEN * sizeof *x), *const out = sparse_take(LEN * sizeof *x);
    uint32_t backends[8];
    const unsigned count = sparse_backends(backends);
    sparse_rng rng = {9};
    sparse_fill(&rng, x, GW_FP32, LEN, 0);
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        for (unsigned b = 0; b < count; b++) {
            gw_classic_options options = options_of(unbiased);
            gw_buffer frame, other;
            options.backends = backends[b];
            encode_round(&options, x, LEN, KEEP, 3, 0, &frame);
            assert_int_equal(frame.size, (80 + 4 * KEEP + 15) / 16 * 16);
            options.backends = GW_BACKEND_SCALAR;
            encode_round(&options, x, LEN, KEEP, 3, 1, &other);
            assert_memory_equal((uint8_t *)frame.data + 80, (uint8_t *)other.data + 80, frame.size - 80);
            assert_int_equal(sparse_decode(&frame, backends[b], out, LEN, 0, 1.0f), GW_OK);
            const float factor = unbiased ? (float)((double)LEN / KEEP) : 1.0f;
            unsigned sent = 0;
            for (unsigned i = 0; i < LEN; i++) {
                sent += out[i] != 0.0f;
                assert_true(out[i] == 0.0f || out[i] == sparse_narrow((double)x[i] * (double)factor));
            }
            assert_int_equal(sent, KEEP);
            free(frame.data);
            free(other.data);
        }
    }
    free(x);
    free(out);
}

static void test_sum(void **state)
{
    (void)state;
    enum { LEN = 5000, KEEP = 2600, RANKS = 5 };
    float *const x = sparse_take(LEN * sizeof *x), *const sum = sparse_take(LEN * sizeof *sum);
    float *const out = sparse_take(LEN * sizeof *out), *const lanes = sparse_take(KEEP * sizeof *lanes);
    sparse_rng rng = {10};
    for (unsigned format = 0; format < 3; format++) {
        gw_classic_options options = options_of(format != 1);
        gw_buffer frames[RANKS + 1];
        gw_classic_sum total = {lanes, KEEP * sizeof *lanes, 0};
        uint8_t workspace[4096];
        const gw_workspace small = {workspace, sizeof workspace};
        options.values = (gw_classic_values)format;
        memset(lanes, 0, KEEP * sizeof *lanes);
        memset(sum, 0, LEN * sizeof *sum);
        gw_classic_frame_info info;
        gw_workspace space = small;
        void *memory = NULL;
        for (uint32_t rank = 0; rank <= RANKS; rank++) {
            sparse_fill(&rng, x, GW_FP32, LEN, 0);
            encode_round(&options, x, LEN, KEEP, rank == RANKS ? 8 : 7, rank, &frames[rank]);
            const gw_classic_frame first = {frames[0].data, frames[0].size, LEN, GW_BACKEND_ALL};
            const gw_classic_frame frame = {frames[rank].data, frames[rank].size, LEN, GW_BACKEND_ALL};
            if (rank == 0) {
                assert_int_equal(gw_classic_frame_peek(first.data, first.size, &info), GW_OK);
                assert_int_equal(gw_classic_sum_size(&info), KEEP * sizeof *lanes);
                space.size = gw_classic_decode_workspace_size(&info);
                space.data = memory = sparse_take(space.size);
            }
            if (rank == RANKS) { /* another round: other positions */
                assert_int_equal(gw_classic_sum_add(&total, &first, &frame, &space), GW_ERR_MISMATCH);
                continue;
            }
            assert_int_equal(gw_classic_sum_add(&total, &first, &frame, &space), GW_OK);
            assert_int_equal(sparse_decode(&frames[rank], GW_BACKEND_ALL, sum, LEN, 1, 1.0f), GW_OK);
        }
        assert_int_equal(total.members, RANKS);
        gw_classic_target target = {out, LEN, 0, 0.25f};
        const gw_classic_frame first = {frames[0].data, frames[0].size, LEN, GW_BACKEND_ALL};
        assert_int_equal(gw_classic_sum_decode(&total, &first, &target, &space), GW_OK);
        for (unsigned i = 0; i < LEN; i++) {
            assert_int_equal(sparse_bits(out[i]), sparse_bits(sum[i] * 0.25f));
        }
        for (unsigned i = 0; i <= RANKS; i++) {
            free(frames[i].data);
        }
        free(memory);
    }
    free(x);
    free(sum);
    free(out);
    free(lanes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),         cmocka_unit_test(test_subsets),
        cmocka_unit_test(test_positions_even), cmocka_unit_test(test_unbiased),
        cmocka_unit_test(test_values),         cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests_name("classic randk", tests, NULL, NULL);
}
