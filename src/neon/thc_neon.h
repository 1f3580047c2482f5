/*
 * Shared by the files of THC's NEON kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_NEON_H
#define GW_THC_NEON_H

#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

#include "core/bytes.h"
#include "thc/thc_values.h"

/* Four floats at any alignment. */
static inline float32x4_t gw_load_f32x4(const float *src)
{
    return gw_f32x4_bits(gw_load_u32x4(src));
}

static inline void gw_store_f32x4(float *dst, float32x4_t x)
{
    gw_store_u32x4(dst, gw_bits_f32x4(x));
}

/* gw_f32_flush() */
static inline float32x4_t gw_flush_f32x4(float32x4_t x)
{
    const uint32x4_t bits = gw_bits_f32x4(x);
    return gw_f32x4_bits(vandq_u32(bits, vtstq_u32(bits, vdupq_n_u32(GW_F32_INF))));
}

/* gw_thc_window(): bits are compared, so that NaN passes. */
static inline float32x4_t gw_window_f32x4(float32x4_t x, uint32x4_t floor_bits, float32x4_t scale)
{
    const uint32x4_t is_inside = vcgeq_u32(gw_bits_f32x4(vabsq_f32(x)), floor_bits);
    return gw_f32x4_bits(vandq_u32(gw_bits_f32x4(vmulq_f32(x, scale)), is_inside));
}

#endif

#endif
