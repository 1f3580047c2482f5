/*
 * Precision map on the device against the CPU: all optimizers, alignments, lengths; digests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <stdlib.h>
#include <string.h>

static gw_optimizer optimizer_of(unsigned kind, int extra)
{
    gw_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = (gw_optimizer_kind)kind;
    o.step = 7;
    o.lr = 0.01;
    o.weight_decay = 1e-4;
    o.momentum = 0.9;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.alpha = 0.99;
    o.eps = 1e-8;
    o.centered = extra;
    o.amsgrad = extra;
    return o;
}

/* One map: scan and build on a stream, twice, the second time with the rule in device memory. */
static void compare(gw_cuda *cuda, unsigned kind, int extra, const gw_gcomp_map_limits *limits, size_t len,
                    size_t offset, uint64_t *random)
{
    const gw_optimizer optimizer = optimizer_of(kind, extra);
    gw_gcomp_map_rule rule;
    gw_optimizer_state state, device;
    float *array[4];
    uint32_t top = 0;
    uint8_t *levels = malloc(len + 1);

    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, 4.0f, limits, &rule), GW_OK);
    for (int i = 0; i < 4; i++) {
        array[i] = malloc(4 * len + 4);
        testing_values(array[i], GW_FP32, len, 10, random);
        for (size_t j = 0; i >= 2 && j < len; j++) {
            array[i][j] = array[i][j] < 0.0f ? -array[i][j] : array[i][j]; /* second moments */
        }
    }
    state = (gw_optimizer_state){array[0], array[1], array[2], array[3]};
    device.param = testing_device(array[0], 4 * len, offset);
    device.m = testing_device(array[1], 4 * len, 0);
    if (limits != NULL && limits->noise_only) {
        device.param = device.m = NULL;
    }
    device.v = testing_device(array[2], 4 * len, 0);
    device.a = testing_device(array[3], 4 * len, 0);
    assert_int_equal(gw_gcomp_map_scan(&rule, &state, len, GW_BACKEND_SCALAR, &top), GW_OK);
    assert_int_equal(
        gw_gcomp_map_build(&rule, &state, len, gw_gcomp_map_base(top), GW_BACKEND_SCALAR, levels), GW_OK);

    const gw_gcomp_map_rule *device_rule = testing_device(&rule, sizeof rule, 0);
    for (int turn = 0; turn < 2; turn++) {
        uint32_t *device_top = testing_device(NULL, 4, 0);
        uint32_t *device_base = testing_device(NULL, 4, 0);
        uint8_t *device_levels = testing_device(NULL, len, turn == 0 ? offset : 1);
        gw_gcomp_map_rule given = rule;
        if (turn == 1) {
            given.p_param = given.noise = 0.0f; /* only kind, uses and limits count */
        }
        assert_int_equal(gw_cuda_gcomp_map_scan(
                             cuda,
                             &(gw_cuda_gcomp_map_input){&given, turn == 1 ? device_rule : NULL, &device, len},
                             device_top, NULL),
                         GW_OK);
        assert_int_equal(gw_cuda_gcomp_map_build(
                             cuda,
                             &(gw_cuda_gcomp_map_input){&given, turn == 1 ? device_rule : NULL, &device, len},
                             device_top, device_levels, device_base, NULL),
                         GW_OK);
        testing_sync();
        assert_int_equal(*device_top, top);
        assert_int_equal(*device_base, gw_gcomp_map_base(top));
        assert_memory_equal(device_levels, levels, len);
    }
    for (int i = 0; i < 4; i++) {
        free(array[i]);
    }
    free(levels);
    testing_free_all();
}

static void equals_the_cpu(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 5, 1000, 4099};
    static const gw_gcomp_map_limits both = {12, 0.25f, 0}, only = {23, 0.25f, 1};
    gw_cuda cuda;
    uint64_t random = 1;

    testing_open(&cuda);
    for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADAMW; kind++) {
        for (int extra = 0; extra < 2; extra++) {
            for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
                compare(&cuda, kind, extra, NULL, lens[i], 4 * (i % 3), &random);
                if (kind >= GW_OPTIMIZER_ADAGRAD) {
                    compare(&cuda, kind, extra, &both, lens[i], 4 * (i % 3), &random);
                    compare(&cuda, kind, extra, &only, lens[i], 4 * (i % 3), &random);
                }
            }
        }
    }
    gw_cuda_close(&cuda);
}

static void digests(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 3, 4, 4095, 4096, 4097, 3 * 4096 + 17, 70001};
    gw_cuda cuda;
    uint64_t random = 2;

    testing_open(&cuda);
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        for (uint32_t log2 = 12; log2 <= 15; log2++) {
            uint8_t *levels = testing_device(NULL, lens[i], i % 5);
            const size_t count = (lens[i] + (((size_t)1 << log2) - 1)) >> log2;
            uint32_t expected[32];
            uint32_t *digest = testing_device(NULL, 4 * count, 0);
            for (size_t j = 0; j < lens[i]; j++) {
                levels[j] = (uint8_t)testing_random(&random);
            }
            assert_int_equal(gw_gcomp_map_digest(levels, lens[i], log2, expected), GW_OK);
            assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, levels, lens[i], log2, digest, NULL), GW_OK);
            testing_sync();
            assert_memory_equal(digest, expected, 4 * count);
            testing_free_all();
        }
    }
    gw_cuda_close(&cuda);
}

static void bad_arguments(void **state)
{
    (void)state;
    const gw_optimizer adam = optimizer_of(GW_OPTIMIZER_ADAM, 0);
    gw_gcomp_map_rule rule;
    gw_cuda cuda;
    float x[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    gw_optimizer_state s = {x, x, x, NULL};
    uint32_t top;
    uint8_t levels[4];

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
                                             levels, NULL, NULL),
                     GW_ERR_ARG);
    s.v = x;
    assert_int_equal(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, 4}, &top,
                                             NULL, NULL, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, levels, 4, 11, &top, NULL), GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, levels, 4, 16, &top, NULL), GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, NULL, 4, 12, &top, NULL), GW_ERR_ARG);
    assert_int_equal(control->calls, 0);
    gw_cuda_close(&cuda);
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
