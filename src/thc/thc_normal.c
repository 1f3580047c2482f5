/*
 * Normal density, distribution and quantile, by series whose terms all have one sign for x > 0: nothing
 * cancels, so the error is a few roundings.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_normal.h"

#include "core/float_bits.h"

#define GW_LN2_HIGH     0x1.62e42feep-1 /* upper 32 bits of ln 2: k * GW_LN2_HIGH is exact for |k| < 2^20 */
#define GW_LN2_LOW      0x1.a39ef35793c76p-33 /* ln 2 - GW_LN2_HIGH */
#define GW_LOG2_E       0x1.71547652b82fep+0
#define GW_INV_SQRT_2PI 0x1.9884533d43651p-2 /* 1 / sqrt(2 pi) */

/* exp(x), -700 < x <= 0: x = k ln 2 + r, |r| <= ln 2 / 2; Taylor to degree 14 (r^15 / 15! < 2^-61). */
static double exp_negative(double x)
{
    int k = (int)(x * GW_LOG2_E - 0.5);
    double r = (x - (double)k * GW_LN2_HIGH) - (double)k * GW_LN2_LOW;
    double sum = 1.0;

    for (int n = 14; n > 0; n--) {
        sum = 1.0 + r / (double)n * sum;
    }
    return sum * gw_f64_pow2(k);
}

double gw_normal_density(double x)
{
    return GW_INV_SQRT_2PI * exp_negative(-0.5 * x * x);
}

/* phi(x) * (x + x^3 / 3 + x^5 / (3 * 5) + ...), Abramowitz and Stegun 26.2.11. */
double gw_normal_half_cdf(double x)
{
    double square = x * x;
    double term = x;
    double sum = x;

    for (int n = 3; n < 400; n += 2) {
        double next;
        term = term * square / (double)n;
        next = sum + term;
        if (next == sum) {
            break;
        }
        sum = next;
    }
    return sum * gw_normal_density(x);
}

/*
 * Bisection of half_cdf(t) = (1 - p) / 2 over [0, 8]: 60 halvings, which need no starting value and no
 * derivative.
 */
double gw_normal_threshold(double p)
{
    double target = 0.5 * (1.0 - p);
    double low = 0.0;
    double high = 8.0;

    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (gw_normal_half_cdf(middle) < target) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return 0.5 * (low + high);
}
