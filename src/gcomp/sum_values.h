/*
 * Sums: accumulator + decoded values (docs/numerics.md section 5), one at a time. The scalar kernels do all
 * values so, vector kernels those after their last whole register: values [first, len) of the arrays.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SUM_VALUES_H
#define GW_SUM_VALUES_H

#include "core/bytes.h"
#include "core/half.h"

/* Default mode treats subnormal inputs and sums, and -0, as +0, so that the result does not depend on whether
 * the process runs with FTZ or DAZ. */
static inline uint32_t gw_sum_flush(uint32_t bits, uint32_t strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

static inline int gw_sum_is_nan(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000u;
}

static inline uint32_t gw_sum_bits(uint32_t a, uint32_t b)
{
    return gw_bits_from_float(gw_float_from_bits(a) + gw_float_from_bits(b));
}

static inline void gw_sum_fp32(void *out, const void *accumulator, const void *values, size_t first,
                               size_t len, uint32_t strict)
{
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    for (size_t i = first; i < len; i++) {
        uint32_t sum = gw_sum_bits(gw_sum_flush(gw_load32(a + 4 * i), strict),
                                   gw_sum_flush(gw_load32(b + 4 * i), strict));
        gw_store32(o + 4 * i, gw_sum_is_nan(sum) ? 0x7fc00000u : gw_sum_flush(sum, strict));
    }
}

static inline void gw_sum_bf16(void *out, const void *accumulator, const void *values, size_t first,
                               size_t len, uint32_t strict)
{
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    for (size_t i = first; i < len; i++) {
        uint32_t x = gw_sum_flush((uint32_t)gw_load16(a + 2 * i) << 16, strict);
        uint32_t y = gw_sum_flush((uint32_t)gw_load16(b + 2 * i) << 16, strict);
        uint32_t sum = gw_sum_bits(x, y);
        /* A flushed sum cannot have been about to round up to a normal value: sums of normal bf16 values are
         * multiples of 2^-133, which bf16 represents below 2^-126. */
        sum = gw_sum_is_nan(sum) ? 0x7fc0 : gw_narrow_bf16(gw_sum_flush(sum, strict));
        gw_store16(o + 2 * i, (uint16_t)sum);
    }
}

static inline void gw_sum_fp16(void *out, const void *accumulator, const void *values, size_t first,
                               size_t len, uint32_t strict)
{
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    for (size_t i = first; i < len; i++) {
        /* Subnormals of fp16 are normal in fp32. Rounding the fp32 sum again is harmless: 24 >= 2 * 11 + 2
         * bits. */
        uint32_t sum = gw_sum_bits(gw_widen_fp16(gw_load16(a + 2 * i)), gw_widen_fp16(gw_load16(b + 2 * i)));
        sum = gw_sum_is_nan(sum) ? 0x7e00 : gw_narrow_fp16(sum);
        if (!strict && sum == 0x8000) {
            sum = 0;
        }
        gw_store16(o + 2 * i, (uint16_t)sum);
    }
}

#endif
