/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/gcomp_codec.h"
#include "gcomp/sum_values.h"

static uint32_t product_bits(uint32_t a, float scale)
{
    return gw_bits_from_float(gw_float_from_bits(a) * scale);
}

/* A product of at most 2^-126 is +0 in default mode: with FTZ some processors decide before rounding, others
 * after it, what is subnormal. */
static uint32_t flush_product(uint32_t bits, uint32_t strict)
{
    return !strict && (bits & 0x7fffffff) <= 0x00800000u ? 0 : bits;
}

static void scale_fp32(uint8_t *values, size_t len, float scale, uint32_t strict)
{
    for (size_t i = 0; i < len; i++, values += 4) {
        const uint32_t product = product_bits(gw_sum_flush(gw_load32(values), strict), scale);
        gw_store32(values, gw_sum_is_nan(product) ? 0x7fc00000u : flush_product(product, strict));
    }
}

static void scale_bf16(uint8_t *values, size_t len, float scale, uint32_t strict)
{
    for (size_t i = 0; i < len; i++, values += 2) {
        const uint32_t value = gw_sum_flush((uint32_t)gw_load16(values) << 16, strict);
        const uint32_t product = product_bits(value, scale);
        gw_store16(
            values,
            (uint16_t)(gw_sum_is_nan(product) ? 0x7fc0 : gw_narrow_bf16(flush_product(product, strict))));
    }
}

static void scale_fp16(uint8_t *values, size_t len, float scale, uint32_t strict)
{
    for (size_t i = 0; i < len; i++, values += 2) {
        const uint32_t product = product_bits(gw_widen_fp16(gw_load16(values)), scale);
        const uint32_t rounded = gw_sum_is_nan(product) ? 0x7e00 : gw_narrow_fp16(product);
        gw_store16(values, (uint16_t)(!strict && rounded == 0x8000 ? 0 : rounded));
    }
}

void gw_scale_values(void *values, gw_dtype dtype, size_t len, float scale, uint32_t strict)
{
    uint8_t *at = (uint8_t *)values;
    if (dtype == GW_FP32) {
        scale_fp32(at, len, scale, strict);
    } else if (dtype == GW_BF16) {
        scale_bf16(at, len, scale, strict);
    } else {
        scale_fp16(at, len, scale, strict);
    }
}
