/*
 * Stage unpack, four lanes at a time; and the residual of error feedback.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2:
 * u8 lanes 1.5 (1.5: the compiler makes the same loop), 0.56 and 0.28; plain THC 6.3 (17.0), 2.4 and 1.2;
 * residual 1.9 (2.5), 0.47 and 0.24.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

GW_TEMPLATE uint32x4_t load_lanes(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    if (lane_bits == 8) {
        return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(gw_load32(lanes + i))))));
    }
    return lane_bits == 16 ? vmovl_u16(vreinterpret_u16_u8(vld1_u8(lanes + 2 * i)))
                           : gw_load_u32x4(lanes + 4 * i);
}

/* (float)(2 * lane - center) * scale. */
static inline float32x4_t centred4(uint32x4_t lanes, uint32x4_t center, float32x4_t scale)
{
    return vmulq_f32(vcvtq_f32_s32(vreinterpretq_s32_u32(vsubq_u32(vaddq_u32(lanes, lanes), center))), scale);
}

GW_TEMPLATE void unpack_all(float *dst, const uint8_t *lanes, size_t len, uint32_t center, float scale,
                            unsigned lane_bits)
{
    const uint32x4_t middle = vdupq_n_u32(center);
    const float32x4_t unit = vdupq_n_f32(scale);
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        uint32x4_t v[4];
        if (lane_bits == 8) {
            const uint8x16_t bytes = vld1q_u8(lanes + i);
            const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
            v[0] = vmovl_u16(vget_low_u16(low));
            v[1] = vmovl_u16(vget_high_u16(low));
            v[2] = vmovl_u16(vget_low_u16(high));
            v[3] = vmovl_u16(vget_high_u16(high));
        } else {
            for (unsigned j = 0; j < 4; j++) {
                v[j] = load_lanes(lanes, i + 4 * j, lane_bits);
            }
        }
        for (unsigned j = 0; j < 4; j++) {
            gw_store_f32x4(dst + i + 4 * j, centred4(v[j], middle, unit));
        }
    }
    gw_thc_unpack_values(dst, lanes, i, len, lane_bits, center, scale);
}

void gw_thc_unpack_neon(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, uint32_t center,
                        float scale)
{
    GW_BY_LANE_BITS(unpack_all, lane_bits, dst, lanes, len, center, scale);
}

/* The conversion rounds to nearest even and to infinity as the contract requires; only small magnitudes
 * are cleared first. */
static inline float32x2_t plain2(uint32x2_t lanes, float64x2_t step, float64x2_t base)
{
    const float64x2_t x = vaddq_f64(vmulq_f64(vcvtq_f64_u64(vmovl_u32(lanes)), step), base);
    const uint64x2_t is_small = vcltq_f64(vabsq_f64(x), vdupq_n_f64(0x1p-126));
    return vcvt_f32_f64(vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(x), is_small)));
}

GW_TEMPLATE void plain_all(float *dst, const uint8_t *lanes, size_t len, double step, double base,
                           unsigned lane_bits)
{
    const float64x2_t steps = vdupq_n_f64(step), bases = vdupq_n_f64(base);
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        const uint32x4_t lane = load_lanes(lanes, i, lane_bits);
        gw_store_f32x4(dst + i, vcombine_f32(plain2(vget_low_u32(lane), steps, bases),
                                             plain2(vget_high_u32(lane), steps, bases)));
    }
    gw_thc_plain_values(dst, lanes, i, len, lane_bits, step, base);
}

void gw_thc_unpack_plain_neon(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits, double step,
                              double base)
{
    GW_BY_LANE_BITS(plain_all, lane_bits, dst, lanes, len, step, base);
}

void gw_thc_residual_neon(float *error, const float *x, const float *y, size_t len)
{
    uint8_t *const out = (uint8_t *)(void *)error; /* any alignment */
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const float32x4_t low = vsubq_f32(gw_load_f32x4(x + i), gw_load_f32x4(y + i));
        const float32x4_t high = vsubq_f32(gw_load_f32x4(x + i + 4), gw_load_f32x4(y + i + 4));
        gw_store_u32x4(out + 4 * i, gw_bits_f32x4(gw_flush_f32x4(low)));
        gw_store_u32x4(out + 4 * i + 16, gw_bits_f32x4(gw_flush_f32x4(high)));
    }
    gw_thc_residual_values(error, x, y, i, len);
}

#else
typedef int gw_thc_unpack_neon_not_built; /* a translation unit must not be empty */
#endif
