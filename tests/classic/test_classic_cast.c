/*
 * FP16 and BF16: every dtype, odd lengths, misaligned values, all backends; scale and sum. The model computes
 * in double.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "classic_testing.h"
#include "core/bytes.h"

static const size_t lengths[] = {0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 1000, 4095, 4096, 4097, 8200};

enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static double number(const uint8_t *src, gw_dtype dtype, size_t i)
{
    if (dtype == GW_FP32) {
        return (double)ct_float(gw_load32(src + 4 * i));
    }
    const uint32_t half = gw_load16(src + 2 * i);
    if (dtype == GW_BF16) {
        return (double)ct_float(half << 16);
    }
    const uint32_t e = half >> 10 & 31, f = half & 1023;
    const double sign = half >> 15 != 0 ? -1.0 : 1.0;
    if (e == 31) {
        return f != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (e == 0 ? ldexp((double)f, -24) : ldexp((double)(f + 1024), (int)e - 25));
}

/* Nearest of m + 1 bits with the least exponent, ties to even, infinite from 2^(top + 1) on. */
static double nearest(double x, int m, int least, int top)
{
    int exponent = least;
    if (isnan(x) || isinf(x) || x == 0.0) {
        return x;
    }
    frexp(x, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    const double y = ldexp(nearbyint(ldexp(x, m - exponent)), exponent - m);
    return fabs(y) >= ldexp(1.0, top + 1) ? copysign((double)INFINITY, x) : y;
}

static double nearest_in(double x, gw_dtype dtype)
{
    return dtype == GW_FP32   ? nearest(x, 23, -126, 127)
           : dtype == GW_BF16 ? nearest(x, 7, -126, 127)
                              : nearest(x, 10, -14, 15);
}

static int is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void random_values(ct_rng *rng, uint8_t *dst, gw_dtype dtype, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t bits = ct_u32(rng);
        if (dtype != GW_FP32) {
            gw_store16(dst + 2 * i, (uint16_t)bits);
        } else { /* mostly within fp16, some at halves */
            bits = ct_below(rng, 4) == 0 ? bits : (bits & 0x807fffffu) | (100 + ct_below(rng, 45)) << 23;
            bits = ct_below(rng, 4) != 0 ? bits : (bits & 0xffffe000u) | 0x1000u << ct_below(rng, 4);
            gw_store32(dst + 4 * i, bits);
        }
    }
}

static gw_dtype dtype_of_test;

static void with_dtype(gw_classic_options *o)
{
    o->dtype = dtype_of_test;
}

static void round_trip(gw_classic_scheme scheme, gw_dtype dtype, size_t len)
{
    const gw_dtype wire = scheme == GW_CLASSIC_FP16 ? GW_FP16 : GW_BF16;
    const size_t size = gw_dtype_size(dtype);
    ct_rng rng = {len + dtype * 77u + scheme};
    uint8_t *memory = ct_take(size * len + 1), *values = memory + 1;
    gw_buffer frame;
    dtype_of_test = dtype;
    const gw_classic classic = ct_make(scheme, with_dtype);
    const gw_classic_step step = ct_step(len);
    const gw_classic_source source = {.values = values};
    random_values(&rng, values, dtype, len);
    assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
    assert_int_equal(ct_check(frame.data, frame.size, len), GW_OK);
    const uint8_t *payload = (const uint8_t *)frame.data + 80;
    for (size_t i = 0; i < len; i++) {
        assert_true(is_same(number(payload, wire, i), nearest_in(number(values, dtype, i), wire)));
        assert_true(!isnan(number(payload, wire, i)) ||
                    gw_load16(payload + 2 * i) == (wire == GW_FP16 ? 0x7e00 : 0x7fc0));
    }
    for (const uint32_t *backends = ct_backends; *backends != 0; backends++) {
        uint8_t *decoded = ct_decode(&frame, *backends, 0.0f, len, NULL);
        for (size_t i = 0; i < len; i++) {
            assert_true(is_same(number(decoded, dtype, i), nearest_in(number(payload, wire, i), dtype)));
        }
        free(decoded);
    }
    free(frame.data);
    free(memory);
}

static void values_round_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTHS; i++) {
        for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            round_trip(GW_CLASSIC_FP16, (gw_dtype)dtype, lengths[i]);
            round_trip(GW_CLASSIC_BF16, (gw_dtype)dtype, lengths[i]);
        }
    }
}

static uint32_t backends_of_test;

static void with_backends(gw_classic_options *o)
{
    o->backends = backends_of_test;
    o->dtype = dtype_of_test;
}

static void backends_agree(void **state)
{
    (void)state;
    enum { LEN = 4097 };
    static uint8_t values[4 * LEN];
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gw_buffer first = {0};
        ct_rng rng = {dtype};
        random_values(&rng, values, (gw_dtype)dtype, LEN);
        for (const uint32_t *backends = ct_backends; *backends != 0; backends++) {
            gw_buffer frame;
            backends_of_test = *backends;
            dtype_of_test = (gw_dtype)dtype;
            const gw_classic classic = ct_make(GW_CLASSIC_FP16, with_backends);
            const gw_classic_step step = ct_step(LEN);
            const gw_classic_source source = {.values = values};
            assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
            if (first.data == NULL) {
                first = frame;
                continue;
            }
            assert_int_equal(frame.size, first.size);
            assert_memory_equal(frame.data, first.data, first.size);
            free(frame.data);
        }
        free(first.data);
    }
}

/* Scale and sum flush subnormals and -0. */
static double flushed(double x)
{
    return fabs(x) < 0x1p-126 ? 0.0 : x;
}

static void scale_and_sum(void **state)
{
    (void)state;
    enum { LEN = 5000 };
    static float values[LEN];
    static const float scales[] = {0.0f, 1.0f, 0.25f, -3.0f, 0x1p-120f, 0x1p120f};
    ct_rng rng = {9};
    gw_buffer frame;
    const gw_classic classic = ct_make(GW_CLASSIC_BF16, NULL);
    const gw_classic_step step = ct_step(LEN);
    const gw_classic_source source = {.values = values};
    random_values(&rng, (uint8_t *)values, GW_FP32, LEN);
    assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
    const uint8_t *payload = (const uint8_t *)frame.data + 80;
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        const float scale = scales[s] != 0.0f ? scales[s] : 1.0f;
        float *sum = ct_take(4 * LEN), *scaled = ct_decode(&frame, GW_BACKEND_ALL, scales[s], LEN, NULL);
        static float before[LEN];
        ct_fill(&rng, before, LEN, 1);
        memcpy(sum, before, sizeof before);
        gw_workspace workspace = ct_frame_workspace(frame.data, frame.size);
        const gw_classic_frame received = {frame.data, frame.size, LEN, GW_BACKEND_ALL};
        gw_classic_target target = {sum, LEN, 0, scales[s]};
        assert_int_equal(gw_classic_decode_add(&received, &target, &workspace), GW_OK);
        for (size_t i = 0; i < LEN; i++) {
            const double x = number(payload, GW_BF16, i);
            const double y = scale == 1.0f ? x : nearest_in(flushed(flushed(x) * (double)scale), GW_FP32);
            assert_true(is_same((double)scaled[i], y));
            const double expected = nearest_in(flushed((double)before[i]) + flushed(y), GW_FP32);
            assert_true(is_same((double)sum[i], flushed(expected)));
        }
        ct_free_workspace(&workspace);
        free(sum);
        free(scaled);
    }
    free(frame.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_round_once),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(scale_and_sum),
    };
    return cmocka_run_group_tests_name("classic casts", tests, NULL, NULL);
}
