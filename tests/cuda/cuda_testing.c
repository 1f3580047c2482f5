/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L /* posix_memalign() */

#include "cuda_testing.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library(void)
{
    static void *opened;
    if (opened == NULL) {
        opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (opened == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            abort();
        }
    }
    return opened;
}

void *testing_driver_function(const char *name)
{
    void *function = dlsym(library(), name);
    assert_non_null(function);
    return function;
}

gw_fake_control *testing_control(void)
{
    gw_fake_control_fn *get;
    void *symbol = testing_driver_function("gw_fake_control_of");
    memcpy(&get, &symbol, sizeof get);
    gw_fake_control *control = get();
    control->init_result = 0;
    control->version = 13000;
    control->device_count = 1;
    control->has_context = 1;
    control->multiprocessors = 4;
    control->arch = 80;
    control->shared_size_max = 166912;
    control->skips_work = 0;
    control->on_launch = NULL;
    control->load_result = 0;
    control->fail_at = 0;
    control->fail_code = 999;
    control->calls = 0;
    control->launches = 0;
    control->syncs = 0;
    return control;
}

void testing_open(gw_cuda *cuda)
{
    testing_control();
    assert_int_equal(gw_cuda_init(cuda), GW_OK);
}

typedef struct memory {
    struct memory *next;
    void *start;
} memory;

static memory *all;

void *testing_device(const void *src, size_t size, size_t offset)
{
    memory *m = malloc(sizeof *m);
    void *start = NULL;
    assert_non_null(m);
    /* From the allocator, not the driver: the end of the block is then the end of the buffer, which
     * sanitizers watch. */
    assert_int_equal(posix_memalign(&start, 256, size + offset + (size + offset == 0)), 0);
    m->start = start;
    m->next = all;
    all = m;
    memset(start, 0xa5, size + offset);
    if (src != NULL) {
        memcpy((uint8_t *)start + offset, src, size);
    }
    return (uint8_t *)start + offset;
}

void testing_free_all(void)
{
    while (all != NULL) {
        memory *m = all;
        all = m->next;
        free(m->start);
        free(m);
    }
}

void testing_sync(void)
{
    int (*synchronize)(void);
    void *symbol = testing_driver_function("cuCtxSynchronize");
    memcpy(&synchronize, &symbol, sizeof synchronize);
    assert_int_equal(synchronize(), 0);
}

gw_cuda_result testing_result(const gw_cuda_result *result)
{
    gw_cuda_result copy;
    testing_sync();
    memcpy(&copy, result, sizeof copy);
    return copy;
}

uint64_t testing_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint32_t value_bits(gw_dtype dtype, uint64_t r, unsigned nonfinite_log2)
{
    const uint32_t sign = (uint32_t)(r >> 63);
    const uint32_t kind = (uint32_t)(r >> 40) & 255;
    const unsigned mantissa = dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
    const uint32_t top = dtype == GW_FP16 ? 31 : 255;
    const uint32_t middle = dtype == GW_FP16 ? 12 : 118;
    uint32_t exponent = middle - (uint32_t)__builtin_ctzll(r | (uint64_t)1 << 9);
    uint32_t field = (uint32_t)(r >> 8) & ((1u << mantissa) - 1);

    if (kind == 0) {
        exponent = 0; /* subnormal */
    } else if (kind < 4) {
        exponent = 0;
        field = 0;
    } else if (kind == 4) {
        exponent = (uint32_t)(r >> 32) % top; /* any */
    }
    if (nonfinite_log2 != 0 && (r >> 20 & ((1u << nonfinite_log2) - 1)) == 0) {
        exponent = top;
        field = (r >> 50 & 1) != 0 ? 0 : field;
    }
    return sign << (dtype == GW_FP32 ? 31 : 15) | exponent << mantissa | field;
}

void testing_values(void *dst, gw_dtype dtype, size_t len, unsigned nonfinite_log2, uint64_t *random)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = value_bits(dtype, testing_random(random), nonfinite_log2);
        if (dtype == GW_FP32) {
            memcpy((uint8_t *)dst + 4 * i, &bits, 4);
        } else {
            const uint16_t half = (uint16_t)bits;
            memcpy((uint8_t *)dst + 2 * i, &half, 2);
        }
    }
}
