/*
 * Shared by the files of the classic codecs' NEON kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_NEON_H
#define GW_CLASSIC_NEON_H

#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "classic/sign_values.h"

/* gw_narrow_double() of two values. NaN is not below the limit. */
static inline float32x2_t gw_narrow2(float64x2_t x)
{
    const uint64x2_t is_small = vcltq_f64(vabsq_f64(x), vdupq_n_f64(0x1p-126));
    return vcvt_f32_f64(vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(x), is_small)));
}

static inline float64x2_t gw_low_f64x2(float32x4_t x)
{
    return vcvt_f64_f32(vget_low_f32(x));
}

static inline float64x2_t gw_high_f64x2(float32x4_t x)
{
    return vcvt_f64_f32(vget_high_f32(x));
}

/* gw_accumulate_value() of four values; x is flushed. */
static inline uint32x4_t gw_accumulate4(uint32x4_t sum, float32x4_t x)
{
    const float32x4_t result = vaddq_f32(gw_flush_f32x4(gw_f32x4_bits(sum)), x);
    return vbslq_u32(vceqq_f32(result, result), gw_bits_f32x4(gw_flush_f32x4(result)),
                     vdupq_n_u32(GW_CANONICAL_NAN));
}

/* Masks of four lanes: all ones where the bit of `byte` is set; bits 0..3 or, with 4, bits 4..7. */
static inline uint32x4_t gw_mask4(uint32_t byte, unsigned from)
{
    static const uint32_t place[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vtstq_u32(vdupq_n_u32(byte), vld1q_u32(place + from));
}

#endif

#endif
