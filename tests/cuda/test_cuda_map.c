/*
 * Precision map on the device against the CPU: all optimizers, alignments, lengths; digests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <stdlib.h>
#include <string.h>

static void compare(unsigned kind, int extra, const gw_gcomp_map_limits *limits, size_t len, size_t offset,
                    uint64_t *random)
{
    gw_optimizer optimizer = make_optimizer((gw_optimizer_kind)kind);
    gw_gcomp_map_rule rule;
    float *array[4];
    uint32_t base;

    optimizer.step = 7;
    optimizer.weight_decay = 1e-4;
    optimizer.centered = optimizer.amsgrad = extra;
    optimizer.peak_lr = extra ? 0.01 : 0.0;
    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, 4.0f, limits, &rule), GW_OK);
    for (int i = 0; i < 4; i++) {
        array[i] = take(4 * len);
        fill_widely(array[i], GW_FP32, len, 10, random);
        for (size_t j = 0; i >= 2 && j < len; j++) {
            array[i][j] = array[i][j] < 0.0f ? -array[i][j] : array[i][j]; /* second moments */
        }
    }
    gw_optimizer_state s = {array[0], array[1], array[2], array[3]};
    if (limits != NULL && limits->noise_only) {
        s.param = s.m = NULL;
    }
    free(compare_map(&rule, &s, len, offset, "test", &base));
    for (int i = 0; i < 4; i++) {
        free(array[i]);
    }
}

static void equals_the_cpu(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 5, 1000, 4099};
    static const gw_gcomp_map_limits both = {12, 0.25f, 0, 0}, only = {23, 0.25f, 1, 0},
                                     update = {12, 0.0f, 0, 11};
    uint64_t random = 1;

    testing_open(&cuda);
    for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        for (int extra = 0; extra < 2; extra++) {
            for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
                compare(kind, extra, NULL, lens[i], 4 * (i % 3), &random);
                compare(kind, extra, &update, lens[i], 4 * (i % 3), &random);
                if (kind >= GW_OPTIMIZER_ADAGRAD) {
                    compare(kind, extra, &both, lens[i], 4 * (i % 3), &random);
                    compare(kind, extra, &only, lens[i], 4 * (i % 3), &random);
                }
            }
        }
    }
    testing_close();
}

static void digests(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 3, 4, 4095, 4096, 4097, 3 * 4096 + 17, 70001};
    uint64_t random = 2;

    testing_open(&cuda);
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        for (uint32_t log2 = 10; log2 <= 15; log2++) {
            uint8_t *map_bytes = on_device_at(NULL, lens[i], i % 5);
            const size_t count = (lens[i] + (((size_t)1 << log2) - 1)) >> log2;
            uint32_t expected[128];
            uint32_t *digest = on_device(NULL, 4 * count);
            for (size_t j = 0; j < lens[i]; j++) {
                map_bytes[j] = (uint8_t)next_random(&random);
            }
            assert_int_equal(gw_gcomp_map_digest(map_bytes, lens[i], log2, expected), GW_OK);
            assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, map_bytes, lens[i], log2, digest, NULL), GW_OK);
            testing_sync();
            assert_memory_equal(digest, expected, 4 * count);
            give_since(0);
        }
    }
    testing_close();
}

static void bad_arguments(void **state)
{
    (void)state;
    gw_optimizer adam = make_optimizer(GW_OPTIMIZER_ADAM);
    gw_gcomp_map_rule rule;
    float x[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    gw_optimizer_state s = {x, x, x, NULL};
    uint32_t top;
    uint8_t map_bytes[4];

    adam.amsgrad = 0; /* which needs an array more */
    assert_int_equal(gw_gcomp_map_rule_init(&adam, 1.0f, NULL, &rule), GW_OK);
    testing_open(&cuda);
    gw_fake_control *control = testing_control();
    assert_int_equal(gw_cuda_gcomp_map_scan(NULL, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, 4}, &top, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){NULL, NULL, &s, 4}, &top, NULL),
                     GW_ERR_ARG);
    assert_int_equal(
        gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, NULL, 4}, &top, NULL),
        GW_ERR_ARG);
    assert_int_equal(
        gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, 4}, NULL, NULL),
        GW_ERR_ARG);
    s.v = NULL;
    assert_int_equal(
        gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, 4}, &top, NULL),
        GW_ERR_ARG);
    s.v = (const float *)(const void *)((const char *)x + 1);
    assert_int_equal(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, 4}, &top,
                                             map_bytes, NULL, NULL),
                     GW_ERR_ARG);
    s.v = x;
    assert_int_equal(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, 4}, &top,
                                             NULL, NULL, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, map_bytes, 4, 9, &top, NULL), GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, map_bytes, 4, 16, &top, NULL), GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, NULL, 4, 12, &top, NULL), GW_ERR_ARG);
    assert_int_equal(control->calls, 0);
    testing_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_cpu),
        cmocka_unit_test(digests),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
