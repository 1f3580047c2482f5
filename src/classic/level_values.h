/*
 * The kernels of levels, one value at a time: scalar kernels do all values so, vector kernels those after
 * their last whole register. Contracts: core/classic_kernels.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LEVEL_VALUES_H
#define GW_LEVEL_VALUES_H

#include "core/bytes.h"
#include "core/classic_kernels.h"

#define GW_LEVEL_ABS       0x7fffffffu
#define GW_LEVEL_NONFINITE 0x7f800000u
#define GW_LEVEL_LANES     16u

static inline uint32_t gw_level_magnitude(float x)
{
    return gw_bits_from_float(x) & GW_LEVEL_ABS;
}

static inline uint32_t gw_level_largest_values(uint32_t largest, const float *x, size_t first, size_t len)
{
    for (size_t i = first; i < len; i++) {
        const uint32_t magnitude = gw_level_magnitude(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static inline void gw_level_quantize_values(int8_t *levels, const float *x, const uint16_t *random,
                                            size_t first, size_t len, const gw_level_rule *rule)
{
    const float scale = rule->scale, limit = (float)(rule->level_max << 16);
    for (size_t i = first; i < len; i++) {
        const float position = gw_float_from_bits(gw_level_magnitude(x[i])) * scale + 0.5f;
        const uint32_t least = (uint32_t)(position < limit ? position : limit);
        const int32_t level = (int32_t)((least + random[i]) >> 16);
        levels[i] = (int8_t)(gw_bits_from_float(x[i]) >> 31 != 0 ? -level : level);
    }
}

static inline void gw_level_decode_values(float *dst, const int8_t *levels, size_t first, size_t len,
                                          float step)
{
    for (size_t i = first; i < len; i++) {
        dst[i] = (float)levels[i] * step;
    }
}

#endif
