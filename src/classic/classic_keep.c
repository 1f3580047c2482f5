/*
 * How many values sparse schemes send.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_handle.h"

static int is_ratio(double ratio)
{
    return ratio > 0.0 && ratio <= 1.0; /* NaN is not */
}

uint64_t gw_classic_keep_len(uint64_t len, double ratio)
{
    if (len == 0 || !is_ratio(ratio)) {
        return 0;
    }
    if (ratio == 1.0 || len > (uint64_t)1 << 52) {
        return len;
    }
    const double product = (double)len * ratio; /* below 2^52 */
    uint64_t keep_len = (uint64_t)product;
    keep_len += (double)keep_len < product;
    return keep_len < 1 ? 1 : gw_min_u64(keep_len, len);
}

/* 2^(-x), 0 <= x <= 1100, or so close that the result is 0: products of the factors 2^(-2^-k) for the bits of
 * x, from the largest down. Squares of a root: the same operations on every machine, no libm. */
static double power_of_half(double x)
{
    double result = 1.0;
    while (x >= 1.0) {
        result *= 0.5;
        x -= 1.0;
    }
    /* e^(-y) by its series; 0 <= y < ln 2. */
    const double y = x * 0x1.62e42fefa39efp-1;
    double sum = 1.0;
    for (int k = 22; k > 0; k--) {
        sum = 1.0 - y * sum / (double)k;
    }
    return result * sum;
}

/* -log2 of a ratio in (0, 1]. */
static double minus_log2(double ratio)
{
    double result = 0.0;
    while (ratio < 0.5) {
        ratio *= 2.0;
        result += 1.0;
    }
    /* ln r = 2 artanh((r - 1) / (r + 1)), |z| <= 1/3. */
    const double z = (1.0 - ratio) / (1.0 + ratio);
    const double square = z * z;
    double sum = 0.0;
    for (int k = 41; k >= 1; k -= 2) {
        sum = sum * square + 1.0 / (double)k;
    }
    return result + 2.0 * z * sum * 0x1.71547652b82fep+0;
}

double gw_classic_warmup_ratio(double ratio, uint64_t step, uint64_t warmup_steps)
{
    if (!is_ratio(ratio)) {
        return 0.0;
    }
    if (step >= warmup_steps) {
        return ratio;
    }
    /* warmup_steps + 1 cannot overflow in fp64. */
    const double part = ((double)step + 1.0) / ((double)warmup_steps + 1.0);
    const double result = power_of_half(minus_log2(ratio) * part);
    return result < ratio ? ratio : result;
}
