/*
 * Stage unpack: summed lanes to centred, scaled fp32, by thc/thc_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "thc/thc_values.h"

void gw_thc_unpack_scalar(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, uint32_t center,
                          float scale)
{
    gw_thc_unpack_values(dst, lanes, 0, len, lane_bits, center, scale);
}

void gw_thc_unpack_plain_scalar(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step,
                                double base)
{
    gw_thc_plain_values(dst, lanes, 0, len, lane_bits, step, base);
}
