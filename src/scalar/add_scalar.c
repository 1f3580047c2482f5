/*
 * Sums: accumulator + decoded values, by gcomp/sum_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/sum_values.h"
#include "scalar/kernels_scalar.h"

void gw_add_fp32_scalar(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    gw_sum_fp32(out, accumulator, values, 0, len, strict);
}

void gw_add_bf16_scalar(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    gw_sum_bf16(out, accumulator, values, 0, len, strict);
}

void gw_add_fp16_scalar(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    gw_sum_fp16(out, accumulator, values, 0, len, strict);
}
