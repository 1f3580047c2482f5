/*
 * Element types to fp32 and back, with the error memory added on the way in.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/thc_kernels.h"
#include "core/half.h"
#include "thc/thc_float.h"
#include "gradwire/gradwire.h"

static float load_element(const uint8_t *src, unsigned dtype, size_t i)
{
    if (dtype == GW_FP32) {
        return gw_float_from_bits(gw_load32(src + 4 * i));
    }
    uint32_t half = gw_load16(src + 2 * i);
    return gw_float_from_bits(dtype == GW_BF16 ? half << 16 : gw_widen_fp16(half));
}

void gw_thc_load_scalar(float *dst, const void *src, unsigned dtype, const float *error, size_t len,
                        size_t padded_len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = gw_f32_flush(load_element(src, dtype, i));
    }
    for (size_t i = 0; error != NULL && i < len; i++) {
        float rest;
        GW_MEMCPY(&rest, (const uint8_t *)(const void *)error + i * sizeof rest,
                  sizeof rest); /* any alignment */
        dst[i] = gw_f32_flush(dst[i] + gw_f32_flush(rest));
    }
    for (size_t i = len; i < padded_len; i++) {
        dst[i] = 0.0f;
    }
}

static uint32_t narrow_bits(uint32_t bits, unsigned dtype)
{
    int is_nan = (bits & GW_F32_ABS) > GW_F32_INF;

    if (dtype == GW_FP32) {
        return is_nan ? 0x7fc00000u : bits;
    }
    if (dtype == GW_BF16) {
        return is_nan ? 0x7fc0u : gw_narrow_bf16(bits);
    }
    return is_nan ? 0x7e00u : gw_narrow_fp16(bits);
}

void gw_thc_store_scalar(void *dst, const float *src, unsigned dtype, size_t len)
{
    uint8_t *out = dst;

    for (size_t i = 0; i < len; i++) {
        uint32_t bits = narrow_bits(gw_bits_from_float(src[i]), dtype);
        if (dtype == GW_FP32) {
            gw_store32(out + 4 * i, bits);
        } else {
            gw_store16(out + 2 * i, (uint16_t)bits);
        }
    }
}
