/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "sparse_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t sparse_random(sparse_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

uint32_t sparse_below(sparse_rng *rng, uint32_t limit)
{
    return (uint32_t)(((uint64_t)sparse_random(rng) * limit) >> 32);
}

double sparse_normal(sparse_rng *rng)
{
    const double u = ((double)sparse_random(rng) + 0.5) / 4294967296.0;
    const double v = ((double)sparse_random(rng) + 0.5) / 4294967296.0;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

void *sparse_take(size_t size)
{
    void *p = malloc(size > 0 ? size : 1);
    assert_non_null(p);
    memset(p, 0xa5, size);
    return p;
}

float sparse_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t sparse_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float sparse_flush(float x)
{
    return (sparse_bits(x) & 0x7fffffffu) < 0x00800000u ? 0.0f : x;
}

float sparse_narrow(double x)
{
    return fabs(x) < 0x1p-126 ? 0.0f : sparse_flush((float)x);
}

static double from_half(uint32_t h)
{
    const uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
    const double magnitude = exponent == 0    ? ldexp((double)mantissa, -24)
                             : exponent == 31 ? (mantissa != 0 ? NAN : INFINITY)
                                              : ldexp((double)(mantissa + 1024), (int)exponent - 25);
    return (h & 0x8000u) != 0 ? -magnitude : magnitude;
}

float sparse_element(const void *values, gw_dtype dtype, size_t i)
{
    const uint8_t *p = (const uint8_t *)values + i * gw_dtype_size(dtype);
    uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    if (dtype == GW_FP16) {
        return sparse_flush((float)from_half(bits));
    }
    bits = dtype == GW_BF16 ? bits << 16 : bits | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return sparse_flush(sparse_float(bits));
}

/* The number of a 16-bit type nearest to a finite x, by search among all of them. */
uint32_t sparse_to_dtype(float x, gw_dtype dtype)
{
    if (dtype == GW_FP32) {
        return sparse_bits(x);
    }
    if (dtype == GW_BF16) {
        const uint32_t bits = sparse_bits(x), low = bits & 0xffffu, high = bits >> 16;
        return high + (low > 0x8000u || (low == 0x8000u && (high & 1) != 0));
    }
    const double magnitude = fabs((double)x);
    uint32_t below = 0, above = 0x7c00;
    while (above - below > 1) {
        const uint32_t middle = (below + above) / 2;
        if (from_half(middle) <= magnitude) {
            below = middle;
        } else {
            above = middle;
        }
    }
    const double low = from_half(below), high = above == 0x7c00 ? 65536.0 : from_half(above);
    const int is_up =
        magnitude - low > high - magnitude || (magnitude - low == high - magnitude && (below & 1) != 0);
    const uint32_t half = is_up ? above : below;
    return half == 0 ? 0 : half | (x < 0 ? 0x8000u : 0);
}

static float pattern_value(sparse_rng *rng, size_t i, size_t len, unsigned pattern)
{
    switch (pattern) {
    case 0:
        return (float)sparse_normal(rng);
    case 1:
        return -0.75f; /* all equal */
    case 2:
        return i % 3 == 0 ? 0.0f : sparse_float(0x80000000u | sparse_below(rng, 3)); /* zeros of all kinds */
    case 3:
        return sparse_below(rng, 400) == 0 ? (float)sparse_normal(rng) : 0.0f; /* mostly zeros */
    case 4:
        return (float)sparse_below(rng, 7) - 3.0f; /* many ties */
    case 5:
        return (float)(i + 1) / (float)len; /* the largest last */
    case 6:
        return (float)(ldexp(sparse_normal(rng), (int)sparse_below(rng, 20) - 10));
    case 7: /* clusters */
        return i / 64 % 50 == 7 ? (float)sparse_normal(rng) : (float)(1e-3 * sparse_normal(rng));
    case 8:
        return sparse_float((sparse_random(rng) & 0x80ffffffu)); /* around the smallest normal number */
    default:
        return i % 97 == 5 ? 30000.0f + (float)(i % 11) : (float)(1e-4 * sparse_normal(rng));
    }
}

void sparse_fill(sparse_rng *rng, void *values, gw_dtype dtype, size_t len, unsigned pattern)
{
    uint8_t *p = (uint8_t *)values;
    for (size_t i = 0; i < len; i++) {
        const float x = pattern_value(rng, i, len, pattern);
        const uint32_t bits = sparse_to_dtype(x, dtype);
        for (size_t b = 0; b < gw_dtype_size(dtype); b++) {
            *p++ = (uint8_t)(bits >> 8 * b);
        }
    }
}

unsigned sparse_backends(uint32_t backends[8])
{
    unsigned count = 0;
    backends[count++] = GW_BACKEND_SCALAR;
    for (uint32_t bit = 1; bit < 256 && count < 8; bit <<= 1) {
        if (bit != GW_BACKEND_SCALAR && (gw_backends_available() & bit) != 0) {
            backends[count++] = bit;
        }
    }
    return count;
}

gw_classic sparse_handle(const gw_classic_options *options)
{
    gw_classic classic;
    assert_int_equal(gw_classic_init(&classic, options), GW_OK);
    return classic;
}

gw_status sparse_encode(const gw_classic_options *options, const gw_classic_step *step,
                        const gw_classic_source *source, size_t capacity, gw_buffer *frame)
{
    const gw_classic classic = sparse_handle(options);
    const size_t size = gw_classic_workspace_size(&classic, step);
    const size_t most = gw_classic_frame_bound(&classic, step);
    uint8_t *const memory = sparse_take(size + 1);
    const gw_workspace workspace = {memory + 1, size};
    frame->capacity = capacity != 0 ? capacity : most;
    frame->data = sparse_take(frame->capacity);
    frame->size = 1;
    const gw_status status = gw_classic_encode(&classic, step, source, frame, &workspace);
    assert_true(status == GW_OK ? frame->size <= most && frame->size % 16 == 0 : frame->size == 0);
    free(memory);
    return status;
}

gw_status sparse_decode(const gw_buffer *frame, uint32_t backends, void *values, uint64_t len, int is_sum,
                        float scale)
{
    uint8_t *const copy = sparse_take(frame->size);
    memcpy(copy, frame->data, frame->size);
    const gw_classic_frame received = {copy, frame->size, len, backends};
    gw_classic_frame_info info;
    const gw_status peeked = gw_classic_frame_peek(copy, frame->size, &info);
    const size_t size = peeked == GW_OK ? gw_classic_decode_workspace_size(&info) : 0;
    const int is_huge = size > (size_t)1 << 28;
    uint8_t *const memory = sparse_take(is_huge ? 1 : size + 1);
    const gw_workspace workspace = {memory + 1, is_huge ? 0 : size};
    gw_classic_frame_info checked;
    const gw_status check = gw_classic_frame_check(&received, &checked, &workspace);
    gw_classic_target target = {values, len, 77, scale};
    const gw_status status = is_sum ? gw_classic_decode_add(&received, &target, &workspace)
                                    : gw_classic_decode(&received, &target, &workspace);
    assert_int_equal(check, status);
    assert_int_equal(target.len, status == GW_OK ? checked.len : 0);
    free(memory);
    free(copy);
    return status;
}

/* Magnitude above, position below: the keys of different values differ. */
static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

void sparse_model_topk(uint8_t *chosen, const float *x, size_t len, size_t keep_len)
{
    uint64_t *const keys = sparse_take(len * sizeof *keys);
    for (size_t i = 0; i < len; i++) {
        keys[i] = (uint64_t)(sparse_bits(x[i]) & 0x7fffffffu) << 32 | (0xffffffffu - (uint32_t)i);
    }
    qsort(keys, len, sizeof *keys, compare_keys);
    memset(chosen, 0, len);
    for (size_t j = 0; j < keep_len; j++) {
        chosen[0xffffffffu - (uint32_t)keys[j]] = 1;
    }
    free(keys);
}
