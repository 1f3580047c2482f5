/*
 * Names of dtypes; fp32, bf16 and fp16 values as double, and fp32 rounded to 16 bits. Written for
 * comparisons, not for speed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DTYPE_CONVERT_H
#define GW_DTYPE_CONVERT_H

#include "gradwire/gradwire.h"

/* "fp32", "bf16", "fp16". */
const char *gw_dtype_name(gw_dtype dtype);

/* Bit pattern of element `index`, in the low bits. Any alignment. */
uint32_t gw_dtype_bits(gw_dtype dtype, const void *values, uint64_t index);

/* The value of a bit pattern. */
double gw_dtype_value(gw_dtype dtype, uint32_t bits);

/* The value of element `index`. */
static inline double gw_dtype_number(gw_dtype dtype, const void *values, uint64_t index)
{
    return gw_dtype_value(dtype, gw_dtype_bits(dtype, values, index));
}

/* Rounds len fp32 values to bf16 or fp16, nearest even. Overflow gives infinity, NaN the canonical quiet
   NaN. */
void gw_dtype_from_fp32(gw_dtype dtype, const float *src, uint64_t len, uint16_t *dst);

#endif
