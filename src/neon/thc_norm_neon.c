/*
 * Stage norm: the 64 accumulators are sixteen registers. And the extent of plain THC.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2:
 * norm 3.2 (15.5), 1.2 and 0.57; extent 2.0 (18.0), 0.63 and 0.31.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "thc/norm_pattern.h"

static uint32_t largest_magnitude(const float *x, size_t len)
{
    uint32x4_t a = vdupq_n_u32(0), b = a;
    uint32_t largest = 0;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        a = vmaxq_u32(a, gw_bits_f32x4(vabsq_f32(gw_load_f32x4(x + i))));
        b = vmaxq_u32(b, gw_bits_f32x4(vabsq_f32(gw_load_f32x4(x + i + 4))));
    }
    for (; i < len; i++) {
        const uint32_t magnitude = gw_bits_from_float(x[i]) & GW_F32_ABS;
        largest = magnitude > largest ? magnitude : largest;
    }
    const uint32_t vector = vmaxvq_u32(vmaxq_u32(a, b));
    return vector > largest ? vector : largest;
}

/* Adds the squares of 64 values. */
static inline void add_group(float32x4_t sum[16], const float *x, uint32x4_t floor_bits, float32x4_t scale)
{
    for (unsigned j = 0; j < 16; j++) {
        const float32x4_t y = gw_window_f32x4(gw_load_f32x4(x + 4 * j), floor_bits, scale);
        sum[j] = vaddq_f32(sum[j], vmulq_f32(y, y));
    }
}

uint32_t gw_thc_norm_neon(const float *x, size_t len)
{
    const uint32_t largest = largest_magnitude(x, len);
    if (largest >= GW_F32_INF) {
        return GW_THC_NORM_NONFINITE;
    }
    if (largest == 0) {
        return 0;
    }
    const uint32_t exponent = largest >> 23;
    const uint32x4_t floor_bits = vdupq_n_u32(gw_thc_window_floor(exponent));
    const float32x4_t scale = vdupq_n_f32(gw_thc_window_scale(exponent));
    float32x4_t sum[16];
    size_t i = 0;
    for (unsigned j = 0; j < 16; j++) {
        sum[j] = vdupq_n_f32(0.0f);
    }
    for (; i + 64 <= len; i += 64) {
        add_group(sum, x + i, floor_bits, scale);
    }
    if (i < len) { /* sums are not negative: adding +0 changes nothing */
        float rest[64] = {0};
        GW_MEMCPY(rest, x + i, (len - i) * sizeof *x);
        add_group(sum, rest, floor_bits, scale);
    }
    for (unsigned half = 8; half > 0; half /= 2) {
        for (unsigned j = 0; j < half; j++) {
            sum[j] = vaddq_f32(sum[j], sum[j + half]);
        }
    }
    float last[4];
    vst1q_f32(last, sum[0]);
    return gw_thc_norm_pattern((last[0] + last[2]) + (last[1] + last[3]), exponent);
}

static inline uint32x4_t order_codes(const float *x)
{
    const int32x4_t bits = vreinterpretq_s32_u32(gw_load_u32x4(x));
    const uint32x4_t flip = vorrq_u32(vreinterpretq_u32_s32(vshrq_n_s32(bits, 31)), vdupq_n_u32(0x80000000u));
    return veorq_u32(vreinterpretq_u32_s32(bits), flip);
}

void gw_thc_extent_neon(uint32_t patterns[2], const float *x, size_t len)
{
    if (len < 4) {
        gw_thc_extent_values(patterns, x, len);
        return;
    }
    uint32x4_t low = order_codes(x + len - 4), high = low; /* the rest, and some twice */
    for (size_t i = 0; i + 4 <= len; i += 4) {
        const uint32x4_t code = order_codes(x + i);
        low = vminq_u32(low, code);
        high = vmaxq_u32(high, code);
    }
    gw_thc_extent_patterns(patterns, vminvq_u32(low), vmaxvq_u32(high));
}

#else
typedef int gw_thc_norm_neon_not_built; /* a translation unit must not be empty */
#endif
