/*
 * A step of DGC and the sum of squares that it clips by, 4 values at a time. Not timed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "classic/sparse_value.h"

static inline float32x4_t load4(const uint8_t *src, size_t i)
{
    return gw_f32x4_bits(gw_load_u32x4(src + 4 * i));
}

void gw_sparse_momentum_neon(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                             size_t len, const gw_sparse_step *step)
{
    uint8_t *const u_out = (uint8_t *)u_next, *const v_out = (uint8_t *)v_next;
    const uint8_t *const u_in = (const uint8_t *)u, *const v_in = (const uint8_t *)v;
    const float32x4_t m = vdupq_n_f32(step->momentum), factor = vdupq_n_f32(step->factor);
    const uint32x4_t m_floor = vdupq_n_u32(step->momentum_floor), y_floor = vdupq_n_u32(step->factor_floor);
    const int is_nesterov = step->nesterov != 0;
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        const float32x4_t y = gw_window_f32x4(gw_load_f32x4(x + i), y_floor, factor);
        const float32x4_t w = gw_flush_f32x4(vaddq_f32(gw_window_f32x4(load4(u_in, i), m_floor, m), y));
        const float32x4_t add =
            is_nesterov ? gw_flush_f32x4(vaddq_f32(gw_window_f32x4(w, m_floor, m), y)) : w;
        const float32x4_t next = gw_flush_f32x4(vaddq_f32(gw_flush_f32x4(load4(v_in, i)), add));
        gw_store_u32x4(u_out + 4 * i, gw_bits_f32x4(w));
        gw_store_u32x4(v_out + 4 * i, gw_bits_f32x4(next));
    }
    gw_sparse_momentum_values(u_out, v_out, u_in, v_in, x, i, len, step);
}

void gw_sparse_squares_neon(double sums[GW_SPARSE_SUMS], const float *x, size_t len)
{
    float64x2_t sum[GW_SPARSE_SUMS / 2];
    size_t i = 0;
    for (unsigned j = 0; j < GW_SPARSE_SUMS / 2; j++) {
        sum[j] = vld1q_f64(sums + 2 * j);
    }
    for (; i + GW_SPARSE_SUMS <= len; i += GW_SPARSE_SUMS) {
        for (unsigned j = 0; j < GW_SPARSE_SUMS / 4; j++) {
            const float32x4_t four = gw_load_f32x4(x + i + 4 * j);
            const float64x2_t low = vcvt_f64_f32(vget_low_f32(four)),
                              high = vcvt_f64_f32(vget_high_f32(four));
            sum[2 * j] = vaddq_f64(sum[2 * j], vmulq_f64(low, low));
            sum[2 * j + 1] = vaddq_f64(sum[2 * j + 1], vmulq_f64(high, high));
        }
    }
    for (unsigned j = 0; j < GW_SPARSE_SUMS / 2; j++) {
        vst1q_f64(sums + 2 * j, sum[j]);
    }
    gw_sparse_squares_values(sums, x, i, len);
}

#else
typedef int gw_classic_momentum_neon_not_built; /* a translation unit must not be empty */
#endif
