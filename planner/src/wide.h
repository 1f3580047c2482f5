/*
 * Products and quotients of costs and sizes in 128 bits: exact, or saturated at INT64_MAX. C11 has no wider
 * type.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_WIDE_H
#define GW_PLAN_WIDE_H

#include <stdint.h>

typedef struct gw_wide {
    uint64_t high, low;
    int overflow; /* the value does not fit 128 bits */
} gw_wide;

static inline gw_wide gw_wide_from(int64_t value)
{
    return (gw_wide){0, (uint64_t)value, 0};
}

/* a * b for b >= 0. */
static inline gw_wide gw_wide_mul(gw_wide a, int64_t b)
{
    const uint64_t mask = UINT32_MAX;
    const uint64_t b0 = (uint64_t)b & mask;
    const uint64_t b1 = (uint64_t)b >> 32;
    const uint64_t limbs[4] = {a.low & mask, a.low >> 32, a.high & mask, a.high >> 32};
    uint64_t out[6] = {0, 0, 0, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        /* each sum is below 2^64: (2^32 - 1)^2 + 2 (2^32 - 1) */
        uint64_t t = limbs[i] * b0 + out[i];
        out[i] = t & mask;
        t = limbs[i] * b1 + out[i + 1] + (t >> 32);
        out[i + 1] = t & mask;
        out[i + 2] = t >> 32;
    }
    return (gw_wide){out[3] << 32 | out[2], out[1] << 32 | out[0], a.overflow || out[4] != 0 || out[5] != 0};
}

static inline int gw_wide_less(gw_wide a, gw_wide b)
{
    return a.high != b.high ? a.high < b.high : a.low < b.low;
}

/* a - b for b <= a. */
static inline gw_wide gw_wide_sub(gw_wide a, gw_wide b)
{
    return (gw_wide){a.high - b.high - (a.low < b.low), a.low - b.low, a.overflow};
}

/* num / den and the remainder, for num.high < den: two digits of 32 bits (Knuth, algorithm D). */
static inline uint64_t gw_wide_divide(gw_wide num, uint64_t den, uint64_t *rest)
{
    const uint64_t mask = UINT32_MAX;
    unsigned shift = 0;
    for (unsigned step = 32; step > 0; step /= 2) {
        if (den >> (64 - step) == 0) {
            den <<= step;
            shift += step;
        }
    }
    const uint64_t digits[2] = {num.low << shift >> 32, num.low << shift & mask};
    uint64_t high = shift > 0 ? num.high << shift | num.low >> (64 - shift) : num.high;
    uint64_t quotient = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t digit = high / (den >> 32);
        uint64_t left = high % (den >> 32);
        while (left <= mask && (digit > mask || digit * (den & mask) > (left << 32 | digits[i]))) {
            digit--;
            left += den >> 32;
        }
        high = (high << 32 | digits[i]) - digit * den;
        quotient = quotient << 32 | digit;
    }
    *rest = high >> shift;
    return quotient;
}

/* What to do with the remainder. */
enum { GW_WIDE_DOWN, GW_WIDE_UP, GW_WIDE_NEAREST };

/* num / den for 0 < den < 2^127; INT64_MAX if num overflowed or the quotient is not below it. */
static inline int64_t gw_wide_div(gw_wide num, gw_wide den, int rounding)
{
    uint64_t quotient = 0;
    gw_wide rest = {0, 0, 0};
    const int is_short = den.high == 0 && num.high < den.low;
    if (is_short) {
        quotient = gw_wide_divide(num, den.low, &rest.low);
    }
    for (int bit = is_short ? -1 : 127; bit >= 0; bit--) {
        const uint64_t next = (bit >= 64 ? num.high >> (bit - 64) : num.low >> bit) & 1u;
        rest = (gw_wide){rest.high << 1 | rest.low >> 63, rest.low << 1 | next, 0};
        if (quotient > (uint64_t)INT64_MAX / 2) {
            return INT64_MAX;
        }
        quotient *= 2;
        if (!gw_wide_less(rest, den)) {
            rest = gw_wide_sub(rest, den);
            quotient++;
        }
    }
    if (num.overflow || quotient >= (uint64_t)INT64_MAX) {
        return INT64_MAX;
    }
    const int up = rounding == GW_WIDE_UP        ? (rest.high | rest.low) != 0
                   : rounding == GW_WIDE_NEAREST ? !gw_wide_less(rest, gw_wide_sub(den, rest))
                                                 : 0;
    return (int64_t)quotient + up;
}

/* a * b / c for c > 0, rounded down or up. Option trees price thousands of these: short where 64 bits do. */
static inline int64_t gw_mul_div(int64_t a, int64_t b, int64_t c, int rounding)
{
    if (b == 0 || a <= INT64_MAX / b) {
        return a * b / c + (rounding == GW_WIDE_UP && a * b % c != 0);
    }
    return gw_wide_div(gw_wide_mul(gw_wide_from(a), b), gw_wide_from(c), rounding);
}

/* a * b / 2^shift for 0 < shift < 64, rounded down; INT64_MAX if it is more. */
static inline int64_t gw_mul_shift(int64_t a, int64_t b, unsigned shift)
{
    const gw_wide product = gw_wide_mul(gw_wide_from(a), b);
    return product.high >> (shift - 1) != 0 ? INT64_MAX
                                            : (int64_t)(product.high << (64 - shift) | product.low >> shift);
}

static inline int64_t gw_add_saturated(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static inline int64_t gw_mul_saturated(int64_t a, int64_t b)
{
    return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

#endif
