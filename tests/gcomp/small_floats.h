/*
 * Floats of 4 to 16 bits, and the MX blocks of the OCP Microscaling Formats specification (v1.0) that share a
 * scale. Models for docs/results/gcomp-dial.md; the library has none of them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SMALL_FLOATS_H
#define GW_SMALL_FLOATS_H

#include <stddef.h>
#include <stdint.h>

enum { MX_BLOCK = 32, MX_SCALE_BITS = 8 };

/* Sign, exponent field, mantissa field. The lowest exponent field has the subnormals. */
typedef struct small_float {
    const char *name;
    int bits, mantissa_bits;
    int exponent_min, exponent_max; /* of normal values: 2^exponent_min .. largest < 2^(exponent_max + 1) */
    double largest;
} small_float;

/* E2M1, E2M3, E3M2, E4M3, E5M2 of the OCP specifications, and bf16. */
typedef enum small_float_kind {
    SMALL_FLOAT_E2M1,
    SMALL_FLOAT_E2M3,
    SMALL_FLOAT_E3M2,
    SMALL_FLOAT_E4M3,
    SMALL_FLOAT_E5M2,
    SMALL_FLOAT_BF16,
    SMALL_FLOAT_COUNT
} small_float_kind;

extern const small_float small_floats[SMALL_FLOAT_COUNT];

/* Nearest value of the format, ties to the even mantissa; what is larger than the largest becomes it. x is
 * finite. */
double small_float_round(const small_float *format, double x);

/* One MX block of at most 32 values as its receiver has it: the scale is the largest power of two at most the
 * largest magnitude, over the largest power of two of the format (specification, section 6.3), within E8M0's
 * 2^-127 to 2^127. */
void mx_block_round(const small_float *format, const float *values, size_t len, float *decoded);

#endif
