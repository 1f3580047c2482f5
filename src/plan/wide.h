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

/* What to do with the remainder. */
enum { GW_WIDE_DOWN, GW_WIDE_UP, GW_WIDE_NEAREST };

/* num / den for 0 < den < 2^127; INT64_MAX if num overflowed or the quotient is not below it. */
static inline int64_t gw_wide_div(gw_wide num, gw_wide den, int rounding)
{
    uint64_t quotient = 0;
    gw_wide rest = {0, 0, 0};
    for (int bit = 127; bit >= 0; bit--) {
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

static inline int64_t gw_add_saturated(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static inline int64_t gw_mul_saturated(int64_t a, int64_t b)
{
    return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

#endif
