/* SPDX-License-Identifier: BSD-2-Clause */
#include "small_floats.h"

#include <math.h>

const small_float small_floats[SMALL_FLOAT_COUNT] = {
    [SMALL_FLOAT_E2M1] = {"e2m1", 4, 1, 0, 2, 6.0},
    [SMALL_FLOAT_E2M3] = {"e2m3", 6, 3, 0, 2, 7.5},
    [SMALL_FLOAT_E3M2] = {"e3m2", 6, 2, -2, 4, 28.0},
    [SMALL_FLOAT_E4M3] = {"e4m3", 8, 3, -6, 8, 448.0},
    [SMALL_FLOAT_E5M2] = {"e5m2", 8, 2, -14, 15, 57344.0},
    [SMALL_FLOAT_BF16] = {"bf16", 16, 7, -126, 127, 0x1.fep127},
};

/* Exponent of a finite magnitude above 0. */
static int exponent_of(double x)
{
    int exponent;
    (void)frexp(x, &exponent);
    return exponent - 1;
}

double small_float_round(const small_float *format, double x)
{
    const double size = fabs(x);
    if (size == 0) {
        return x;
    }
    const int own = exponent_of(size);
    const int exponent = own > format->exponent_min ? own : format->exponent_min;
    const double unit = ldexp(1.0, exponent - format->mantissa_bits);
    /* At most 2^(mantissa_bits + 1) units: exact. The default rounding of rint() is nearest, ties to even. */
    const double rounded = rint(size / unit) * unit;
    return copysign(rounded < format->largest ? rounded : format->largest, x);
}

void mx_block_round(const small_float *format, const float *values, size_t len, float *decoded)
{
    double largest = 0.0;
    for (size_t i = 0; i < len; i++) {
        largest = fmax(largest, fabs((double)values[i]));
    }
    int exponent = largest > 0 ? exponent_of(largest) - format->exponent_max : -127;
    exponent = exponent < -127 ? -127 : exponent > 127 ? 127 : exponent;
    for (size_t i = 0; i < len; i++) {
        const double scaled = ldexp((double)values[i], -exponent);
        decoded[i] = (float)ldexp(small_float_round(format, scaled), exponent);
    }
}
