/*
 * Casts, and what becomes of decoded values: four or eight at a time, the rest by classic/sign_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/classic_neon.h"

#if defined(GW_NEON)

#include "gradwire/gradwire.h"

void gw_multiply_neon(float *x, size_t len, float scale)
{
    const float64x2_t factor = vdupq_n_f64((double)scale);
    size_t i = 0;

    for (; i + 4 <= len; i += 4) {
        const float32x4_t y = gw_flush_f32x4(gw_load_f32x4(x + i));
        gw_store_f32x4(x + i, vcombine_f32(gw_narrow2(vmulq_f64(gw_low_f64x2(y), factor)),
                                           gw_narrow2(vmulq_f64(gw_high_f64x2(y), factor))));
    }
    gw_multiply_values(x, i, len, scale);
}

void gw_accumulate_neon(float *sum, const float *x, size_t len)
{
    uint8_t *out = (uint8_t *)(void *)sum;
    size_t i = 0;

    for (; i + 4 <= len; i += 4) {
        const float32x4_t y = gw_flush_f32x4(gw_load_f32x4(x + i));
        gw_store_u32x4(out + 4 * i, gw_accumulate4(gw_load_u32x4(out + 4 * i), y));
    }
    gw_accumulate_values(sum, x, i, len);
}

/* Four elements as fp32 with canonical NaN. */
GW_TEMPLATE uint32x4_t load4(const uint8_t *src, unsigned dtype, size_t i)
{
    uint32x4_t x;
    if (dtype == GW_FP32) {
        x = gw_load_u32x4(src + 4 * i);
    } else {
        const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(src + 2 * i));
        x = dtype == GW_BF16 ? gw_widen_bf16x4(half) : gw_bits_f32x4(gw_widen_fp16x4(half));
    }
    const uint32x4_t magnitude = vandq_u32(x, vdupq_n_u32(GW_F32_ABS));
    return vbslq_u32(vcgtq_u32(magnitude, vdupq_n_u32(GW_F32_INF)), vdupq_n_u32(GW_CANONICAL_NAN), x);
}

/* Four values in a 16-bit type. To fp16, subnormals of fp32 become 0 of their sign with and without flush
 * modes. */
GW_TEMPLATE uint16x4_t narrow4(uint32x4_t x, unsigned dtype)
{
    if (dtype == GW_BF16) {
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(x, 16), vdupq_n_u32(1));
        return vaddhn_u32(vaddq_u32(x, vdupq_n_u32(0x7fff)), odd);
    }
    return gw_narrow_fp16x4(gw_f32x4_bits(x));
}

GW_TEMPLATE void cast_as(uint8_t *dst, unsigned to, const uint8_t *src, unsigned from, size_t len)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint32x4_t low = load4(src, from, i), high = load4(src, from, i + 4);
        if (to == GW_FP32) {
            gw_store_u32x4(dst + 4 * i, low);
            gw_store_u32x4(dst + 4 * i + 16, high);
        } else {
            gw_store_u16x8(dst + 2 * i, vcombine_u16(narrow4(low, to), narrow4(high, to)));
        }
    }
    gw_cast_values(dst, to, src, from, i, len);
}

GW_TEMPLATE void cast_from(uint8_t *dst, unsigned to, const uint8_t *src, unsigned from, size_t len)
{
    if (to == GW_FP32) {
        cast_as(dst, GW_FP32, src, from, len);
    } else if (to == GW_BF16) {
        cast_as(dst, GW_BF16, src, from, len);
    } else {
        cast_as(dst, GW_FP16, src, from, len);
    }
}

void gw_cast_neon(void *dst, unsigned dst_dtype, const void *src, unsigned src_dtype, size_t len)
{
    const uint8_t *in = (const uint8_t *)src;
    uint8_t *out = (uint8_t *)dst;

    if (src_dtype == GW_FP32) {
        cast_from(out, dst_dtype, in, GW_FP32, len);
    } else if (src_dtype == GW_BF16) {
        cast_from(out, dst_dtype, in, GW_BF16, len);
    } else {
        cast_from(out, dst_dtype, in, GW_FP16, len);
    }
}

#else
typedef int gw_classic_cast_neon_not_built; /* a translation unit must not be empty */
#endif
