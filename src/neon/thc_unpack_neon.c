/*
 * Stage unpack of plain THC, four lanes at a time. That of rotated THC is left to the scalar kernel, of which compilers make
 * the same loop.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_kernels_neon.h"

#if defined(GW_NEON)

GW_TEMPLATE uint32x4_t load_lanes(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    if (lane_bits == 8) {
        return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(gw_load32(lanes + i))))));
    }
    return lane_bits == 16 ? vmovl_u16(vreinterpret_u16_u8(vld1_u8(lanes + 2 * i))) : gw_load_u32x4(lanes + 4 * i);
}

/* The conversion rounds to nearest even and to infinity as the contract asks; only small magnitudes are cleared first. */
static inline float32x2_t plain2(uint32x2_t lanes, float64x2_t step, float64x2_t base)
{
    const float64x2_t x = vaddq_f64(vmulq_f64(vcvtq_f64_u64(vmovl_u32(lanes)), step), base);
    const uint64x2_t is_small = vcltq_f64(vabsq_f64(x), vdupq_n_f64(0x1p-126));
    return vcvt_f32_f64(vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(x), is_small)));
}

GW_TEMPLATE void plain_all(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step, double base)
{
    const float64x2_t steps = vdupq_n_f64(step), bases = vdupq_n_f64(base);
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        const uint32x4_t lane = load_lanes(lanes, i, lane_bits);
        gw_store_f32x4(dst + i, vcombine_f32(plain2(vget_low_u32(lane), steps, bases),
                                             plain2(vget_high_u32(lane), steps, bases)));
    }
    gw_thc_unpack_plain_scalar(dst + i, lanes + i * (lane_bits / 8), len - i, lane_bits, step, base);
}

void gw_thc_unpack_plain_neon(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step, double base)
{
    if (lane_bits == 8) {
        plain_all(dst, lanes, len, 8, step, base);
    } else if (lane_bits == 16) {
        plain_all(dst, lanes, len, 16, step, base);
    } else {
        plain_all(dst, lanes, len, 32, step, base);
    }
}

#else
typedef int gw_thc_unpack_neon_not_built; /* a translation unit must not be empty */
#endif
