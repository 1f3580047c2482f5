/*
 * Conversions by value, with correctly rounded functions of the C library.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "dtype_convert.h"

#include <math.h>
#include <string.h>

const char *gw_dtype_name(gw_dtype dtype)
{
    switch (dtype) {
    case GW_FP32:
        return "fp32";
    case GW_BF16:
        return "bf16";
    case GW_FP16:
        return "fp16";
    }
    return "unknown";
}

uint32_t gw_dtype_bits(gw_dtype dtype, const void *values, uint64_t index)
{
    if (dtype == GW_FP32) {
        uint32_t bits;
        memcpy(&bits, (const uint8_t *)values + 4 * index, sizeof bits);
        return bits;
    }
    uint16_t bits;
    memcpy(&bits, (const uint8_t *)values + 2 * index, sizeof bits);
    return bits;
}

double gw_dtype_value(gw_dtype dtype, uint32_t bits)
{
    if (dtype == GW_FP16) {
        const uint32_t exponent = bits >> 10 & 31;
        const double mantissa = (double)(bits & 0x3ff);
        double magnitude;
        if (exponent == 31) {
            magnitude = mantissa != 0 ? (double)NAN : (double)INFINITY;
        } else if (exponent == 0) {
            magnitude = mantissa * 0x1p-24;
        } else {
            magnitude = ldexp(1024.0 + mantissa, (int)exponent - 25);
        }
        return (bits & 0x8000) != 0 ? -magnitude : magnitude;
    }
    const uint32_t wide = dtype == GW_BF16 ? bits << 16 : bits;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

/* Adds half a unit in the last kept place, minus one if that place is even. A carry into the exponent is
 * correct, up to infinity. */
static uint16_t bf16_from_bits(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return 0x7fc0;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t fp16_from_bits(uint32_t bits)
{
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude_bits = bits & 0x7fffffff;
    float magnitude;
    memcpy(&magnitude, &magnitude_bits, sizeof magnitude);
    if (magnitude_bits > 0x7f800000) {
        return 0x7e00;
    }
    if (magnitude >= 65520.0f) { /* halfway between 65504 and 65536 */
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude_bits == 0) {
        return sign;
    }
    int exponent = 0;
    (void)frexpf(magnitude, &exponent); /* magnitude = f * 2^exponent, 0.5 <= f < 1 */
    /* The last place is 2^(exponent - 11), but no finer than that of the subnormals. */
    const int place = exponent - 11 < -24 ? -24 : exponent - 11;
    const uint32_t units = (uint32_t)nearbyint(ldexp((double)magnitude, -place));
    /* In last places: units <= 1024 for subnormals, else 1024..2048; the sum below carries into the
     * exponent. */
    const uint32_t biased = place == -24 && units < 1024 ? 0 : (uint32_t)(place + 25);
    return (uint16_t)(sign | (biased == 0 ? units : ((biased - 1) << 10) + units));
}

void gw_dtype_from_fp32(gw_dtype dtype, const float *src, uint64_t len, uint16_t *dst)
{
    for (uint64_t i = 0; i < len; i++) {
        const uint32_t bits = gw_dtype_bits(GW_FP32, src, i);
        dst[i] = dtype == GW_BF16 ? bf16_from_bits(bits) : fp16_from_bits(bits);
    }
}
