/*
 * Element types to fp32 and back, with the error memory added on the way in; the shift of plain blocks; the
 * residual of error feedback: by thc/thc_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "thc/thc_values.h"

void gw_thc_load_scalar(float *dst, const void *src, unsigned dtype, const float *error, size_t len,
                        size_t padded_len)
{
    gw_thc_load_values(dst, (const uint8_t *)src, dtype, error, 0, len);
    gw_thc_load_padding(dst, len, padded_len);
}

void gw_thc_store_scalar(void *dst, const float *src, unsigned dtype, size_t len)
{
    gw_thc_store_values((uint8_t *)dst, src, dtype, 0, len);
}

void gw_thc_shift_scalar(float *dst, const float *src, size_t len, float minimum, uint32_t exponent)
{
    gw_thc_shift_values(dst, src, 0, len, minimum, exponent);
}

void gw_thc_residual_scalar(float *error, const float *x, const float *y, size_t len)
{
    gw_thc_residual_values(error, x, y, 0, len);
}
