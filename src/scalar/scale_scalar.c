/*
 * Decoded values times a scale, by gcomp/scale_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/scale_values.h"
#include "scalar/kernels_scalar.h"

void gw_scale_fp32_scalar(void *values, size_t len, float scale, uint32_t strict)
{
    if (strict) {
        gw_scale_fp32(values, 0, len, scale, 1);
    } else {
        gw_scale_fp32(values, 0, len, scale, 0);
    }
}
