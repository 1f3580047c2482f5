/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/gcomp_codec.h"
#include "gcomp/scale_values.h"
#include "gcomp/sum_values.h"

/* The canonical NaN of fp32 becomes that of bf16: its lower half is zero. */
static inline void scale_bf16(uint8_t *values, size_t len, float scale, uint32_t strict)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t product = gw_scaled_bits((uint32_t)gw_load16(values + 2 * i) << 16, scale, strict);
        gw_store16(values + 2 * i, (uint16_t)gw_narrow_bf16(product));
    }
}

static void scale_fp16(uint8_t *values, size_t len, float scale, uint32_t strict)
{
    for (size_t i = 0; i < len; i++, values += 2) {
        const float value = gw_float_from_bits(gw_widen_fp16(gw_load16(values)));
        const uint32_t product = gw_bits_from_float(value * scale);
        const uint32_t rounded = gw_sum_is_nan(product) ? 0x7e00 : gw_narrow_fp16(product);
        gw_store16(values, (uint16_t)(!strict && rounded == 0x8000 ? 0 : rounded));
    }
}

void gw_scale_values(const gw_codec *codec, void *values, gw_dtype dtype, size_t len, float scale)
{
    const uint32_t strict = (uint32_t)codec->options.strict;
    uint8_t *at = (uint8_t *)values;
    if (dtype == GW_FP32) {
        codec->kernels.gcomp.scale_fp32(at, len, scale, strict);
    } else if (dtype == GW_FP16) {
        scale_fp16(at, len, scale, strict);
    } else if (strict) {
        scale_bf16(at, len, scale, 1);
    } else {
        scale_bf16(at, len, scale, 0);
    }
}
