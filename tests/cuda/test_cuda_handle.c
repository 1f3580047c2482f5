/*
 * gw_cuda_init() and gw_cuda_close(): every status, every call of the driver failing, nothing left open.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <string.h>

static void assert_closed(const gw_cuda *handle)
{
    gw_cuda_info info;
    assert_int_equal(gw_cuda_device_info(handle, &info), GW_ERR_STATE);
    assert_int_equal(info.multiprocessor_count, 0);
    assert_int_equal(testing_control()->modules, 0);
}

static void opens_and_closes(void **state)
{
    (void)state;
    gw_cuda_info info;
    memset(&cuda, 0xa5, sizeof cuda); /* contents do not matter */
    testing_open(&cuda);
    assert_int_equal(gw_cuda_device_info(&cuda, &info), GW_OK);
    assert_int_equal(info.arch_major, 8);
    assert_int_equal(info.arch_minor, 0);
    assert_int_equal(info.multiprocessor_count, 4);
    assert_int_equal(info.driver_version, 13000);
    assert_int_equal(info.shared_size_max, 166912);
    assert_int_equal(gw_cuda_driver_error(&cuda), 0);
    assert_true(testing_control()->modules > 0);
    gw_cuda_close(&cuda);
    assert_closed(&cuda);
    gw_cuda_close(&cuda);
    gw_cuda_close(NULL);
}

static void says_what_is_missing(void **state)
{
    (void)state;
    gw_fake_control *control = testing_control();

    control->init_result = 100; /* CUDA_ERROR_NO_DEVICE */
    assert_int_equal(gw_cuda_init(&cuda), GW_ERR_NO_DEVICE);
    assert_int_equal(gw_cuda_driver_error(&cuda), 100);
    assert_closed(&cuda);

    testing_control()->device_count = 0;
    assert_int_equal(gw_cuda_init(&cuda), GW_ERR_NO_DEVICE);
    assert_closed(&cuda);

    testing_control()->version = 11080;
    assert_int_equal(gw_cuda_init(&cuda), GW_ERR_NO_DRIVER);
    assert_closed(&cuda);

    testing_control()->has_context = 0;
    assert_int_equal(gw_cuda_init(&cuda), GW_ERR_STATE);
    assert_closed(&cuda);

    static const int no_image[] = {200, 209, 218, 221, 222, 223};
    for (size_t i = 0; i < sizeof no_image / sizeof no_image[0]; i++) {
        testing_control()->load_result = no_image[i];
        assert_int_equal(gw_cuda_init(&cuda), GW_ERR_NO_IMAGE);
        assert_int_equal(gw_cuda_driver_error(&cuda), no_image[i]);
        assert_closed(&cuda);
    }
    testing_control()->load_result = 2;
    assert_int_equal(gw_cuda_init(&cuda), GW_ERR_DEVICE);
    assert_int_equal(gw_cuda_driver_error(&cuda), 2);
    assert_closed(&cuda);

    assert_int_equal(gw_cuda_init(NULL), GW_ERR_ARG);
    assert_int_equal(gw_cuda_device_info(NULL, NULL), GW_ERR_ARG);
    assert_int_equal(gw_cuda_driver_error(NULL), 0);
}

/* Each call of the driver fails once. Unloading may fail too: then a module of the stand-in stays, as with a
 * context that was destroyed. */
static void survives_every_failure(void **state)
{
    (void)state;
    gw_fake_control *control = testing_control();
    long total;

    assert_int_equal(gw_cuda_init(&cuda), GW_OK);
    total = control->calls;
    assert_true(total > 10);
    gw_cuda_close(&cuda);
    for (long at = 1; at <= total; at++) {
        control = testing_control();
        control->fail_at = at;
        assert_int_equal(gw_cuda_init(&cuda), GW_ERR_DEVICE);
        assert_int_equal(gw_cuda_driver_error(&cuda), 999);
        assert_closed(&cuda);
    }
    testing_open(&cuda);
    gw_cuda_close(&cuda);
}

/* The calls need an open handle, and leave it open when the driver refuses. */
static void work_needs_a_handle(void **state)
{
    (void)state;
    const uint8_t map_byte[64] = {1};
    uint32_t *digest = on_device(NULL, 4);

    memset(&cuda, 0, sizeof cuda);
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, map_byte, 64, 12, digest, NULL), GW_ERR_STATE);
    testing_open(&cuda);
    gw_fake_control *control = testing_control();
    control->fail_at = 1;
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, map_byte, 64, 12, digest, NULL), GW_ERR_DEVICE);
    assert_int_equal(gw_cuda_driver_error(&cuda), 999);
    assert_int_equal(control->launches, 0);
    testing_control();
    assert_int_equal(gw_cuda_gcomp_map_digest(&cuda, map_byte, 64, 12, digest, NULL), GW_OK);
    testing_sync();
    assert_int_equal(*digest, gw_crc32c(0, map_byte, 64));
    gw_cuda_close(&cuda);
    give_since(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_and_closes),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(survives_every_failure),
        cmocka_unit_test(work_needs_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
