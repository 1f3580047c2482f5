/*
 * Values of the wire's types as double, and fp32 rounded to 16 bits. For comparisons and test data, not for
 * speed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DTYPE_CONVERT_H
#define GW_DTYPE_CONVERT_H

#include "gradwire/gradwire.h"

/* Bit pattern of element `index`, in the low bits. Any alignment. */
uint32_t gw_dtype_bits(gw_dtype dtype, const void *values, uint64_t index);

/* The number that a bit pattern stands for. */
double gw_dtype_value(gw_dtype dtype, uint32_t bits);

/* Rounds len fp32 values to bf16 or fp16, nearest even; too large becomes infinite, NaN the canonical quiet
   NaN. */
void gw_dtype_from_fp32(gw_dtype dtype, const float *src, uint64_t len, uint16_t *dst);

#endif
