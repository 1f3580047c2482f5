/*
 * Stochastic rounding (known answers of the generator, independence of the partition, no bias) and rings of 2
 * to 64 ranks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"
#include "ring.h"

#include <math.h>

/* Answers that the authors of Philox publish with Random123 (kat_vectors): the same three for fewer and for
 * more rounds than GCOMP has, for which there are none. */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        int rounds;
        uint64_t key;
        uint32_t counter[4], out[4];
    } answers[] = {
        {7, 0, {0}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {7,
         UINT64_MAX,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {7,
         0x299f31d0a4093822,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
        {10, 0, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {10,
         UINT64_MAX,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {10,
         0x299f31d0a4093822,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        uint32_t out[4];
        test_philox(out, answers[i].key, answers[i].counter, answers[i].rounds);
        assert_memory_equal(out, answers[i].out, sizeof out);
    }
}

/* A tensor cut into frames at any place decodes to the same values; any other key or counter gives others. */
static void partition_changes_nothing(void **state)
{
    (void)state;
    enum { LEN = 30000 };
    uint8_t *values = malloc(LEN * 4);
    uint32_t *want = malloc(LEN * 4), *got = malloc(LEN * 4);
    assert_true(values != NULL && want != NULL && got != NULL);
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.rounding = GW_GCOMP_STOCHASTIC;
    o.quantum = gw_gcomp_quantum_of_drop(18);
    test_codec codec;
    test_codec_make(&codec, &o);
    test_fill_values(values, GW_FP32, LEN, PATTERN_GRADIENT, 8);
    for (int turn = 0; turn < 9; turn++) {
        const size_t first_part[] = {LEN, 1, 2, 3, 4, 5, 4096, 16384, 12345};
        size_t n = first_part[turn];
        for (size_t at = 0; at < LEN; at += n, n = n < 1000 ? 7777 : n) {
            const size_t len = n < LEN - at ? n : LEN - at;
            gw_gcomp_source source = test_source(values + 4 * at, len, NULL);
            source.first_element = 0xfffffff0u + at; /* the element index crosses 2^32 */
            test_buffer frame;
            const size_t size = test_encode(&codec, &source, &frame);
            gw_gcomp_target target = {.values = (turn == 0 ? want : got) + at, .capacity = len};
            assert_int_equal(gw_gcomp_decode(&codec.codec, &(gw_gcomp_frame){.data = frame.at, .size = size},
                                             &target, &codec.work),
                             GW_OK);
            test_buffer_free(&frame);
        }
        if (turn > 0) {
            assert_memory_equal(got, want, LEN * 4);
        }
    }
    for (int field = 0; field < 6; field++) {
        gw_gcomp_source source = test_source(values, LEN, NULL);
        source.first_element = 0xfffffff0u;
        source.seed ^= field == 0 ? 1u : field == 1 ? 1ull << 63 : 0;
        source.step_index ^= field == 2;
        source.rank ^= (uint16_t)(field == 3);
        source.hop ^= (uint16_t)(field == 4);
        source.first_element += field == 5;
        test_buffer frame;
        const size_t size = test_encode(&codec, &source, &frame);
        gw_gcomp_target target = {.values = got, .capacity = LEN};
        assert_int_equal(gw_gcomp_decode(&codec.codec, &(gw_gcomp_frame){.data = frame.at, .size = size},
                                         &target, &codec.work),
                         GW_OK);
        size_t different = 0;
        for (size_t i = 0; i < LEN; i++) {
            different += got[i] != want[i];
        }
        /* Two independent roundings of a random remainder differ with probability 1/3; a sixteenth is
         * zero. */
        assert_true(different > LEN / 4 && different < LEN * 2 / 5);
        test_buffer_free(&frame);
    }
    test_codec_free(&codec);
    free(values);
    free(want);
    free(got);
}

/* One value, many elements: the share rounded up is the remainder, within five standard deviations. */
static void stochastic_is_unbiased(void **state)
{
    (void)state;
    enum { LEN = 1 << 18 };
    uint32_t *values = malloc(LEN * 4), *got = malloc(LEN * 4);
    assert_true(values != NULL && got != NULL);
    for (uint32_t drop = 6; drop <= 18; drop += 6) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, GW_FP32);
        o.rounding = GW_GCOMP_STOCHASTIC;
        o.quantum = gw_gcomp_quantum_of_drop(drop);
        test_codec codec;
        test_codec_make(&codec, &o);
        for (uint32_t choice = 0; choice < 5; choice++) {
            const uint32_t rest[] = {0, 1, (1u << drop) / 3, (1u << drop) / 2, (1u << drop) - 1};
            for (size_t i = 0; i < LEN; i++) {
                values[i] = 0x3c800000u + rest[choice];
            }
            const gw_gcomp_source source = test_source(values, LEN, NULL);
            test_buffer frame;
            const size_t size = test_encode(&codec, &source, &frame);
            gw_gcomp_target target = {.values = got, .capacity = LEN};
            assert_int_equal(gw_gcomp_decode(&codec.codec, &(gw_gcomp_frame){.data = frame.at, .size = size},
                                             &target, &codec.work),
                             GW_OK);
            double up = 0.0;
            for (size_t i = 0; i < LEN; i++) {
                assert_true(got[i] == 0x3c800000u || got[i] == 0x3c800000u + (1u << drop));
                up += got[i] != 0x3c800000u;
            }
            const double p = (double)rest[choice] / (double)(1u << drop);
            assert_true(fabs(up - p * LEN) <= 5.0 * sqrt(p * (1.0 - p) * LEN) + 1e-9);
            test_buffer_free(&frame);
        }
        test_codec_free(&codec);
    }
    free(values);
    free(got);
}

static const uint32_t ring_sizes[] = {2, 4, 8, 16, 32, 64};

/* 18 bits dropped at every hop: truncation shrinks the result more and more, stochastic rounding does not. */
static void rings_with_constant_drop(void **state)
{
    (void)state;
    for (size_t n = 0; n < TEST_ARRAY_LEN(ring_sizes); n++) {
        for (int same_sign = 0; same_sign < 2; same_sign++) {
            ring_result r[3];
            for (int rounding = 0; rounding < 3; rounding++) {
                const ring_setup s = {(gw_gcomp_rounding)rounding,
                                      GW_GCOMP_EXPLICIT,
                                      ring_sizes[n],
                                      50000,
                                      18,
                                      same_sign,
                                      12345};
                assert_true(ring_run(&s, &r[rounding]));
            }
            assert_true(r[GW_GCOMP_TRUNCATE].bias < -0.005);
            assert_true(fabs(r[GW_GCOMP_STOCHASTIC].bias) < 0.001);
            assert_true(fabs(r[GW_GCOMP_STOCHASTIC].bias) < fabs(r[GW_GCOMP_TRUNCATE].bias));
        }
    }
}

/* With a map, the error of n encodes stays below n * 2^-23 of num, and of half of it with nearest, on top of
 * what the n - 1 fp32 additions round, which ring_run() has taken off. */
static void rings_with_map_keep_the_budget(void **state)
{
    (void)state;
    for (size_t n = 0; n < TEST_ARRAY_LEN(ring_sizes); n++) {
        for (int rounding = 0; rounding < 3; rounding++) {
            for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
                const ring_setup s = {(gw_gcomp_rounding)rounding,
                                      (gw_gcomp_quantum_mode)quantum_mode,
                                      ring_sizes[n],
                                      20000,
                                      UINT32_MAX,
                                      0,
                                      777};
                ring_result r;
                assert_true(ring_run(&s, &r));
                const double hops = (double)ring_sizes[n];
                assert_true(r.worst_budget < hops * (rounding == GW_GCOMP_NEAREST ? 0.5 : 1.0));
                assert_true(r.worst_budget > 0.01); /* something was dropped */
                assert_true(rounding == GW_GCOMP_TRUNCATE || fabs(r.bias) < 0.001);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),           cmocka_unit_test(partition_changes_nothing),
        cmocka_unit_test(stochastic_is_unbiased),         cmocka_unit_test(rings_with_constant_drop),
        cmocka_unit_test(rings_with_map_keep_the_budget),
    };
    return cmocka_run_group_tests_name("gcomp rounding", tests, NULL, NULL);
}
