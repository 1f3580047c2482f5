/*
 * Stages load and store: element types to fp32 and back, four or eight values at a time.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2:
 * load of fp32 1.8 (11.0), 0.44 and 0.22; store of fp32 1.8 (8.0), 0.44 and 0.22.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "gradwire/gradwire.h"

/* Four elements as fp32. */
GW_TEMPLATE float32x4_t widen4(const uint8_t *src, size_t i, unsigned dtype)
{
    if (dtype == GW_FP32) {
        return gw_f32x4_bits(gw_load_u32x4(src + 4 * i));
    }
    const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(src + 2 * i));
    return dtype == GW_BF16 ? gw_f32x4_bits(gw_widen_bf16x4(half)) : gw_widen_fp16x4(half);
}

GW_TEMPLATE size_t load_range(float *dst, const uint8_t *src, unsigned dtype, const float *error, size_t len)
{
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        float32x4_t x = gw_flush_f32x4(widen4(src, i, dtype));
        if (error != NULL) {
            const float32x4_t rest =
                gw_f32x4_bits(gw_load_u32x4((const uint8_t *)(const void *)error + 4 * i));
            x = gw_flush_f32x4(vaddq_f32(x, gw_flush_f32x4(rest)));
        }
        gw_store_f32x4(dst + i, x);
    }
    return i;
}

void gw_thc_load_neon(float *dst, const void *src, unsigned dtype, const float *error, size_t len,
                      size_t padded_len)
{
    const uint8_t *from = (const uint8_t *)src;
    const size_t done = dtype == GW_FP32   ? load_range(dst, from, GW_FP32, error, len)
                        : dtype == GW_BF16 ? load_range(dst, from, GW_BF16, error, len)
                                           : load_range(dst, from, GW_FP16, error, len);
    gw_thc_load_values(dst, from, dtype, error, done, len);
    gw_thc_load_padding(dst, len, padded_len);
}

/* Four values in the low halves of the result's type; NaN canonical. */
static inline uint16x4_t narrow_bf16(float32x4_t x)
{
    const uint32x4_t bits = vbslq_u32(vceqq_f32(x, x), gw_bits_f32x4(x), vdupq_n_u32(0x7fc00000u));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vaddhn_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
}

static inline uint16x4_t narrow_fp16(float32x4_t x)
{
    const uint16x4_t half = gw_narrow_fp16x4(x);
    const uint16x4_t is_minus_zero = vceq_u16(half, vdup_n_u16(0x8000));
    return vbsl_u16(vmovn_u32(vceqq_f32(x, x)), vbic_u16(half, is_minus_zero), vdup_n_u16(0x7e00));
}

void gw_thc_store_neon(void *dst, const float *src, unsigned dtype, size_t len)
{
    uint8_t *out = (uint8_t *)dst;
    size_t i = 0;
    if (dtype == GW_FP32) {
        for (; i + 4 <= len; i += 4) {
            const float32x4_t x = gw_load_f32x4(src + i);
            gw_store_u32x4(out + 4 * i,
                           vbslq_u32(vceqq_f32(x, x), gw_bits_f32x4(x), vdupq_n_u32(0x7fc00000u)));
        }
    } else {
        for (; i + 8 <= len; i += 8) {
            const float32x4_t low = gw_load_f32x4(src + i), high = gw_load_f32x4(src + i + 4);
            gw_store_u16x8(out + 2 * i, dtype == GW_BF16 ? vcombine_u16(narrow_bf16(low), narrow_bf16(high))
                                                         : vcombine_u16(narrow_fp16(low), narrow_fp16(high)));
        }
    }
    gw_thc_store_values(out, src, dtype, i, len);
}

#else
typedef int gw_thc_convert_neon_not_built; /* a translation unit must not be empty */
#endif
