/*
 * Sums: accumulator + decoded values, four fp32 or eight 16-bit ones at a time (docs/numerics.md section 5).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* Bits of +0 where the exponent field is 0, unless strict (all ones or zero). */
static inline uint32x4_t flush(uint32x4_t bits, uint32x4_t strict)
{
    const uint32x4_t is_normal = vtstq_u32(bits, vdupq_n_u32(0x7f800000u));
    return vandq_u32(bits, vorrq_u32(is_normal, strict));
}

/* The bits of a sum that is not NaN, else `nan`. Bits are compared: NaN compares, too, would do, but a signalling one raises
 * a flag. */
static inline uint32x4_t sum_or(uint32x4_t a, uint32x4_t b, uint32_t nan)
{
    const float32x4_t sum = vaddq_f32(gw_f32x4_bits(a), gw_f32x4_bits(b));
    return vbslq_u32(vceqq_f32(sum, sum), gw_bits_f32x4(sum), vdupq_n_u32(nan));
}

void gw_add_fp32_neon(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    const uint32x4_t keep = vdupq_n_u32(strict != 0 ? 0xffffffffu : 0);
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        const uint32x4_t x = flush(gw_load_u32x4(a + 4 * i), keep), y = flush(gw_load_u32x4(b + 4 * i), keep);
        gw_store_u32x4(o + 4 * i, flush(sum_or(x, y, 0x7fc00000u), keep));
    }
    gw_add_fp32_scalar(o + 4 * i, a + 4 * i, b + 4 * i, len - i, strict);
}

/* Sum of four bf16 values in the high halves of words; the result in the low halves. */
static inline uint32x4_t sum_bf16(uint32x4_t a, uint32x4_t b, uint32x4_t strict)
{
    const uint32x4_t sum = flush(sum_or(flush(a, strict), flush(b, strict), 0x7fc00000u), strict);
    /* Nearest even, as gw_narrow_bf16(); the canonical NaN rounds to that of bf16. */
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(sum, 16), vdupq_n_u32(1));
    return vaddq_u32(vaddq_u32(sum, vdupq_n_u32(0x7fff)), odd);
}

void gw_add_bf16_neon(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    const uint32x4_t keep = vdupq_n_u32(strict != 0 ? 0xffffffffu : 0);
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint16x8_t x = gw_load_u16x8(a + 2 * i), y = gw_load_u16x8(b + 2 * i);
        const uint16x8_t zero = vdupq_n_u16(0);
        const uint32x4_t low = sum_bf16(vreinterpretq_u32_u16(vzip1q_u16(zero, x)),
                                        vreinterpretq_u32_u16(vzip1q_u16(zero, y)), keep);
        const uint32x4_t high = sum_bf16(vreinterpretq_u32_u16(vzip2q_u16(zero, x)),
                                         vreinterpretq_u32_u16(vzip2q_u16(zero, y)), keep);
        gw_store_u16x8(o + 2 * i, vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high)));
    }
    gw_add_bf16_scalar(o + 2 * i, a + 2 * i, b + 2 * i, len - i, strict);
}

static inline uint16x4_t sum_fp16(uint16x4_t a, uint16x4_t b)
{
    const float32x4_t sum = vaddq_f32(gw_widen_fp16x4(a), gw_widen_fp16x4(b));
    const uint16x4_t is_number = vmovn_u32(vceqq_f32(sum, sum));
    return vbsl_u16(is_number, gw_narrow_fp16x4(sum), vdup_n_u16(0x7e00));
}

void gw_add_fp16_neon(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    /* In default mode -0 becomes +0: this matches nothing in strict mode, because a canonical result is never 0xffff. */
    const uint16x8_t minus_zero = vdupq_n_u16(strict != 0 ? 0xffff : 0x8000);
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint16x8_t x = gw_load_u16x8(a + 2 * i), y = gw_load_u16x8(b + 2 * i);
        const uint16x8_t sum = vcombine_u16(sum_fp16(vget_low_u16(x), vget_low_u16(y)),
                                            sum_fp16(vget_high_u16(x), vget_high_u16(y)));
        gw_store_u16x8(o + 2 * i, vbicq_u16(sum, vceqq_u16(sum, minus_zero)));
    }
    gw_add_fp16_scalar(o + 2 * i, a + 2 * i, b + 2 * i, len - i, strict);
}

#else
typedef int gw_add_neon_not_built; /* a translation unit must not be empty */
#endif
