/*
 * The standard normal distribution in fp64 with +, -, *, / and no library call, so that tables and thresholds
 * come out in the same bits everywhere (given IEEE arithmetic without contraction). Used when options
 * and handles are made, never per value.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_NORMAL_H
#define GW_THC_NORMAL_H

/* Density exp(-x^2 / 2) / sqrt(2 pi). Relative error below 8e-15 for |x| <= 8. */
double gw_normal_density(double x);

/* P(0 < X < x) = erf(x / sqrt(2)) / 2, odd in x. Absolute error below 2e-15 for |x| <= 8. */
double gw_normal_half_cdf(double x);

/* t > 0 with P(|X| > t) = p, for 2^-13 <= p <= 0.9. Absolute error below 1e-11 (the root of the functions
 * above). */
double gw_normal_threshold(double p);

#endif
