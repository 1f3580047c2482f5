/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic_testing.h"

#include <stdlib.h>
#include <string.h>

const uint32_t ct_backends[] = {
#define GW_CPU_BACKEND(bit, name, NAME, title) GW_BACKEND_##NAME,
#include "core/backends.def"
    GW_BACKEND_ALL, 0};

uint32_t ct_u32(ct_rng *rng)
{
    rng->state = rng->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng->state >> 33) ^ (uint32_t)(rng->state >> 13);
}

uint32_t ct_below(ct_rng *rng, uint32_t limit)
{
    return (uint32_t)((uint64_t)ct_u32(rng) * limit >> 32);
}

uint32_t ct_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float ct_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void ct_fill(ct_rng *rng, float *x, size_t len, int mixed)
{
    static const uint32_t special[] = {0,           0x80000000u, 1,           0x807fffffu,
                                       0x00800000u, 0x80800000u, 0x7e000000u, 0xfe000000u};
    for (size_t i = 0; i < len; i++) {
        double sum = 0.0;
        for (int j = 0; j < 12; j++) {
            sum += (double)ct_u32(rng) / 4294967296.0;
        }
        x[i] = (float)(sum - 6.0);
        if (mixed && ct_below(rng, 8) == 0) {
            x[i] = ct_float(special[ct_below(rng, 8)]);
        }
    }
}

void *ct_take(size_t size)
{
    void *p = malloc(size > 0 ? size : 1);
    assert_non_null(p);
    memset(p, 0xa5, size > 0 ? size : 1);
    return p;
}

gw_classic ct_make(gw_classic_scheme scheme, void (*change)(gw_classic_options *options))
{
    gw_classic_options options;
    gw_classic classic;
    assert_int_equal(gw_classic_options_init(&options, scheme), GW_OK);
    if (change != NULL) {
        change(&options);
    }
    assert_int_equal(gw_classic_init(&classic, &options), GW_OK);
    return classic;
}

static gw_workspace exact(size_t size)
{
    gw_workspace workspace = {NULL, size};
    workspace.data = (uint8_t *)ct_take(size + 1) + 1;
    return workspace;
}

gw_workspace ct_workspace(const gw_classic *classic, const gw_classic_step *step)
{
    return exact(gw_classic_workspace_size(classic, step));
}

gw_workspace ct_frame_workspace(const void *frame, size_t size)
{
    gw_classic_frame_info info;
    const gw_status status = gw_classic_frame_peek(frame, size, &info);
    return exact(status == GW_OK ? gw_classic_decode_workspace_size(&info) : 0);
}

void ct_free_workspace(gw_workspace *workspace)
{
    free((uint8_t *)workspace->data - 1);
}

gw_status ct_encode(const gw_classic *classic, const gw_classic_step *step, const gw_classic_source *source,
                    gw_buffer *dst)
{
    gw_workspace workspace = ct_workspace(classic, step);
    dst->capacity = gw_classic_frame_bound(classic, step);
    dst->data = ct_take(dst->capacity);
    dst->size = 99;
    const gw_status status = gw_classic_encode(classic, step, source, dst, &workspace);
    assert_true(status == GW_OK ? dst->size <= dst->capacity && dst->size % 16 == 0 : dst->size == 0);
    ct_free_workspace(&workspace);
    return status;
}

void *ct_decode(const gw_buffer *frame, uint32_t backends, float scale, uint64_t len, gw_status *status)
{
    gw_classic_frame_info info;
    gw_workspace workspace = ct_frame_workspace(frame->data, frame->size);
    const gw_classic_frame received = {frame->data, frame->size, len, backends};
    assert_int_equal(gw_classic_frame_peek(frame->data, frame->size, &info), GW_OK);
    gw_classic_target target = {ct_take((size_t)len * gw_dtype_size(info.dtype)), len, 77, scale};
    const gw_status result = gw_classic_decode(&received, &target, &workspace);
    assert_int_equal(target.len, result == GW_OK ? info.len : 0);
    ct_free_workspace(&workspace);
    if (status == NULL) {
        assert_int_equal(result, GW_OK);
    } else {
        *status = result;
    }
    return target.values;
}

gw_status ct_check(const uint8_t *bytes, size_t size, uint64_t len_max)
{
    gw_classic_frame_info info;
    uint8_t *copy = ct_take(size); /* exactly as long as the bytes */
    memcpy(copy, bytes, size);
    gw_workspace workspace = ct_frame_workspace(copy, size);
    const gw_classic_frame frame = {copy, size, len_max, GW_BACKEND_ALL};
    const gw_status status = gw_classic_frame_check(&frame, &info, &workspace);
    const size_t room = (size_t)len_max * 4;
    uint8_t *values = ct_take(room);
    float *sum = ct_take(room);
    gw_classic_target target = {values, len_max, 77, 0.0f};
    assert_int_equal(gw_classic_decode(&frame, &target, &workspace), status);
    assert_int_equal(target.len, status == GW_OK ? info.len : 0);
    if (status != GW_OK) {
        assert_int_equal(info.frame_size, 0);
        const int is_filled = status == GW_ERR_CORRUPT || status == GW_ERR_CHECKSUM;
        const size_t filled = is_filled && gw_classic_frame_peek(copy, size, &info) == GW_OK
                                  ? (size_t)info.len * gw_dtype_size(info.dtype)
                                  : 0;
        for (size_t i = 0; i < room; i++) {
            assert_int_equal(values[i], i < filled ? 0 : 0xa5);
        }
        target.values = sum;
        assert_int_equal(gw_classic_decode_add(&frame, &target, &workspace), status);
        for (size_t i = 0; i < room; i++) {
            assert_int_equal(((uint8_t *)sum)[i], 0xa5);
        }
    }
    free(values);
    free(sum);
    ct_free_workspace(&workspace);
    free(copy);
    return status;
}

gw_classic_step ct_step(uint64_t len)
{
    const gw_classic_step step = {len, 1000, len / 2 + len % 2, 5, 3};
    return step;
}
