/*
 * How many values to keep, and the warm-up of DGC: a real power without libm, from square roots and products
 * of fp64 in a fixed order, so that all machines agree.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "gradwire/classic.h"
#include "core/float_bits.h"

static int is_ratio(double ratio)
{
    return ratio > 0.0 && ratio <= 1.0; /* NaN is not */
}

uint64_t gw_classic_keep_len(uint64_t len, double ratio)
{
    if (len == 0 || !is_ratio(ratio)) {
        return 0;
    }
    const double product = (double)len * ratio;
    if (product >= 0x1p+63) {
        return ratio == 1.0 ? len : gw_min_u64(len, product >= 0x1p+64 ? UINT64_MAX : (uint64_t)product);
    }
    const uint64_t floor = (uint64_t)product;
    const uint64_t keep_len = floor + ((double)floor < product);
    return keep_len == 0 ? 1 : gw_min_u64(keep_len, len);
}

/* Newton's iteration for a in (0, 1], normal; within 2 ulp. The first guess, half the exponent, is within a
 * factor of 1.5; each of six steps squares the error. */
static double square_root(double a)
{
    uint64_t bits;
    GW_MEMCPY(&bits, &a, sizeof bits);
    bits = (bits >> 1) + ((uint64_t)1023 << 51);
    double root;
    GW_MEMCPY(&root, &bits, sizeof root);
    for (unsigned i = 0; i < 6; i++) {
        root = 0.5 * (root + a / root);
    }
    return root;
}

double gw_classic_warmup_ratio(double ratio, uint64_t step, uint64_t warmup_steps)
{
    if (!is_ratio(ratio)) {
        return 0.0;
    }
    if (step >= warmup_steps) {
        return ratio;
    }
    /* The exponent p / q, 0 < p <= q <= 2^63: beyond that both lose a bit, and may become equal. */
    const unsigned drop = warmup_steps >= UINT64_MAX / 2;
    uint64_t p = (step >> drop) + 1;
    const uint64_t q = (warmup_steps >> drop) + 1;
    if (p >= q) {
        return ratio;
    }
    double root = ratio < 0x1p-1022 ? 0x1p-1022 : ratio, power = 1.0;
    for (unsigned bit = 0; bit < 60 && p != 0; bit++) {
        root = square_root(root); /* ratio^(2^-(bit + 1)) */
        p *= 2;
        if (p >= q) {
            p -= q;
            power *= root;
        }
    }
    return power < ratio ? ratio : power;
}
