/*
 * Sums: accumulator + decoded values, eight at a time (docs/numerics.md section 5).
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2:
 * fp32 3.4 (21.0), 1.1 and 0.56; bf16 3.8 (26.0), 1.5 and 0.75; fp16 3.1 (54.3), 1.2 and 0.59.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/sum_values.h"
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* Bits, or those of +0 where the exponent field is 0. */
static inline uint32x4_t flush(uint32x4_t bits)
{
    return vandq_u32(bits, vtstq_u32(bits, vdupq_n_u32(0x7f800000u)));
}

static inline uint16x8_t flush_bf16(uint16x8_t bits)
{
    return vandq_u16(bits, vtstq_u16(bits, vdupq_n_u16(0x7f80)));
}

/* The bits of a sum, or the canonical NaN. */
static inline uint32x4_t sum_bits(uint32x4_t a, uint32x4_t b)
{
    const float32x4_t sum = vaddq_f32(gw_f32x4_bits(a), gw_f32x4_bits(b));
    return vbslq_u32(vceqq_f32(sum, sum), gw_bits_f32x4(sum), vdupq_n_u32(0x7fc00000u));
}

GW_TEMPLATE uint32x4_t sum_fp32(uint32x4_t a, uint32x4_t b, int is_strict)
{
    return is_strict ? sum_bits(a, b) : flush(sum_bits(flush(a), flush(b)));
}

GW_TEMPLATE size_t add_fp32(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t len, int is_strict)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        /* All loads before the stores: out may be a. */
        const uint32x4_t a0 = gw_load_u32x4(a + 4 * i), a1 = gw_load_u32x4(a + 4 * i + 16);
        const uint32x4_t b0 = gw_load_u32x4(b + 4 * i), b1 = gw_load_u32x4(b + 4 * i + 16);
        gw_store_u32x4(out + 4 * i, sum_fp32(a0, b0, is_strict));
        gw_store_u32x4(out + 4 * i + 16, sum_fp32(a1, b1, is_strict));
    }
    return i;
}

void gw_add_fp32_neon(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    const uint8_t *a = (const uint8_t *)accumulator, *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    const size_t done = strict != 0 ? add_fp32(o, a, b, len, 1) : add_fp32(o, a, b, len, 0);
    gw_sum_fp32(o, a, b, done, len, strict);
}

/* Sum of four bf16 values, rounded as gw_narrow_bf16() does; the canonical NaN becomes that of bf16. */
static inline uint16x4_t sum_bf16(uint16x4_t a, uint16x4_t b)
{
    const uint32x4_t sum = sum_bits(gw_widen_bf16x4(a), gw_widen_bf16x4(b));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(sum, 16), vdupq_n_u32(1));
    return vaddhn_u32(vaddq_u32(sum, vdupq_n_u32(0x7fff)), odd);
}

/* Flushing works on 16 bits: a sum of normal bf16 values that is subnormal is a multiple of 2^-133, so that
 * rounding it does nothing. */
GW_TEMPLATE size_t add_bf16(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t len, int is_strict)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        uint16x8_t x = gw_load_u16x8(a + 2 * i), y = gw_load_u16x8(b + 2 * i);
        x = is_strict ? x : flush_bf16(x);
        y = is_strict ? y : flush_bf16(y);
        const uint16x8_t sum = vcombine_u16(sum_bf16(vget_low_u16(x), vget_low_u16(y)),
                                            sum_bf16(vget_high_u16(x), vget_high_u16(y)));
        gw_store_u16x8(out + 2 * i, is_strict ? sum : flush_bf16(sum));
    }
    return i;
}

void gw_add_bf16_neon(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    const uint8_t *a = (const uint8_t *)accumulator, *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    const size_t done = strict != 0 ? add_bf16(o, a, b, len, 1) : add_bf16(o, a, b, len, 0);
    gw_sum_bf16(o, a, b, done, len, strict);
}

/* No flushing of operands: subnormals of fp16 are normal in fp32. The conversions between the two ignore
 * flush modes. */
static inline uint16x4_t sum_fp16(uint16x4_t a, uint16x4_t b)
{
    const float32x4_t sum = vaddq_f32(gw_widen_fp16x4(a), gw_widen_fp16x4(b));
    const uint16x4_t is_number = vmovn_u32(vceqq_f32(sum, sum));
    return vbsl_u16(is_number, gw_narrow_fp16x4(sum), vdup_n_u16(0x7e00));
}

void gw_add_fp16_neon(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict)
{
    /* In default mode -0 becomes +0. No result is 0xffff: in strict mode nothing matches. */
    const uint16x8_t minus_zero = vdupq_n_u16(strict != 0 ? 0xffff : 0x8000);
    const uint8_t *a = (const uint8_t *)accumulator, *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint16x8_t x = gw_load_u16x8(a + 2 * i), y = gw_load_u16x8(b + 2 * i);
        const uint16x8_t sum = vcombine_u16(sum_fp16(vget_low_u16(x), vget_low_u16(y)),
                                            sum_fp16(vget_high_u16(x), vget_high_u16(y)));
        gw_store_u16x8(o + 2 * i, vbicq_u16(sum, vceqq_u16(sum, minus_zero)));
    }
    gw_sum_fp16(o, a, b, i, len, strict);
}

#else
typedef int gw_add_neon_not_built; /* a translation unit must not be empty */
#endif
