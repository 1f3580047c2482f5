/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/level_norm.h"
#include "core/sqrt.h"

#define EXPONENT_BIAS_FP64 1023
#define INFINITE           0x7f800000u

/* Bits of the square root of x as fp32: x = m * 4^k with m in [1, 4), which is exact; m to fp32, its root,
 * both to nearest; times 2^k. Infinite above fp32; 0 for results below 2^-126, and for x <= 0. */
static uint32_t root_bits(double x)
{
    uint64_t bits;
    GW_MEMCPY(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52) - EXPONENT_BIAS_FP64;
    if (!(x > 0) || exponent == -EXPONENT_BIAS_FP64) {
        return 0;
    }
    const int odd = exponent & 1, k = (exponent - odd) / 2;
    const uint64_t m_bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)(EXPONENT_BIAS_FP64 + odd) << 52;
    double m;
    GW_MEMCPY(&m, &m_bits, sizeof m);
    const uint32_t root = gw_bits_from_float(gw_sqrt((float)m)); /* in [1, 2] */
    const int field = (int)(root >> 23) + k;
    if (field >= 255) {
        return INFINITE;
    }
    return field <= 0 ? 0 : (uint32_t)field << 23 | (root & 0x7fffff);
}

/* Values that are the same to 16 bits have no deviation to clip at; neither has what rounding leaves of it.
 */
#define LEAST_SHARE 0x1p-32

/* Bits of the largest magnitude that clipping leaves. */
static uint32_t clipped_bits(float clip, const gw_level_moments *moments, uint64_t len)
{
    const double n = (double)len;
    const double all = moments->squares / n;
    const double variance = (moments->squares - moments->sum * moments->sum / n) / n;
    if (!(variance > all * LEAST_SHARE)) {
        return moments->largest;
    }
    const uint32_t deviation = root_bits(variance);
    if (deviation == 0 || deviation >= INFINITE) {
        return moments->largest;
    }
    const uint32_t limit = gw_bits_from_float(clip * gw_float_from_bits(deviation));
    return limit < moments->largest ? limit : moments->largest;
}

int gw_level_norm(uint32_t *norm_bits, const gw_classic_options *options, const gw_level_moments *moments,
                  uint64_t len)
{
    uint32_t bits = moments->largest;
    if (bits >= INFINITE) {
        return 0;
    }
    if (gw_level_needs_moments(options)) {
        bits = options->scheme == GW_CLASSIC_TERNGRAD ? clipped_bits(options->clip, moments, len)
                                                      : root_bits(moments->squares);
    }
    *norm_bits = bits < GW_LEVEL_NORM_MIN ? 0 : bits;
    return bits < gw_level_norm_end(options->dtype);
}
