/*
 * The stages of THC that treat every value by itself, one value at a time. The scalar kernels do all values
 * so, vector kernels those after their last whole register: values [first, len) of the arrays. Contracts:
 * core/thc_kernels.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_VALUES_H
#define GW_THC_VALUES_H

#include "core/wire_values.h"
#include "thc/thc_window.h"

/* Not the padding. */
static inline void gw_thc_load_values(float *dst, const uint8_t *src, unsigned dtype, const float *error,
                                      size_t first, size_t len)
{
    for (size_t i = first; i < len; i++) {
        dst[i] = gw_f32_flush(gw_wire_load(src, dtype, i));
    }
    for (size_t i = first; error != NULL && i < len; i++) {
        float rest;
        GW_MEMCPY(&rest, (const uint8_t *)(const void *)error + i * sizeof rest,
                  sizeof rest); /* any alignment */
        dst[i] = gw_f32_flush(dst[i] + gw_f32_flush(rest));
    }
}

static inline void gw_thc_load_padding(float *dst, size_t len, size_t padded_len)
{
    for (size_t i = len; i < padded_len; i++) {
        dst[i] = 0.0f;
    }
}

static inline void gw_thc_store_values(uint8_t *dst, const float *src, unsigned dtype, size_t first,
                                       size_t len)
{
    for (size_t i = first; i < len; i++) {
        uint32_t bits = gw_wire_narrow(gw_bits_from_float(src[i]), dtype);
        if (dtype == GW_FP32) {
            gw_store32(dst + 4 * i, bits);
        } else {
            gw_store16(dst + 2 * i, (uint16_t)bits);
        }
    }
}

static inline void gw_thc_shift_values(float *dst, const float *src, size_t first, size_t len, float minimum,
                                       uint32_t exponent)
{
    uint32_t floor_bits = gw_thc_window_floor(exponent);
    float scale = gw_thc_window_scale(exponent);

    for (size_t i = first; i < len; i++) {
        dst[i] = gw_thc_window(gw_f32_flush(src[i] - minimum), floor_bits, scale);
    }
}

static inline uint32_t gw_thc_lane(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    if (lane_bits == 8) {
        return lanes[i];
    }
    return lane_bits == 16 ? gw_load16(lanes + 2 * i) : gw_load32(lanes + 4 * i);
}

static inline void gw_thc_unpack_values(float *dst, const uint8_t *lanes, size_t first, size_t len,
                                        unsigned lane_bits, uint32_t center, float scale)
{
    for (size_t i = first; i < len; i++) {
        int32_t centred = (int32_t)(2 * gw_thc_lane(lanes, i, lane_bits)) - (int32_t)center;
        dst[i] = (float)centred * scale;
    }
}

static inline void gw_thc_plain_values(float *dst, const uint8_t *lanes, size_t first, size_t len,
                                       unsigned lane_bits, double step, double base)
{
    for (size_t i = first; i < len; i++) {
        dst[i] = gw_narrow_double((double)gw_thc_lane(lanes, i, lane_bits) * step + base);
    }
}

static inline void gw_thc_residual_values(float *error, const float *x, const float *y, size_t first,
                                          size_t len)
{
    for (size_t i = first; i < len; i++) {
        float rest = gw_f32_flush(x[i] - y[i]);
        GW_MEMCPY((uint8_t *)(void *)error + i * sizeof rest, &rest, sizeof rest); /* any alignment */
    }
}

/* ---- extent -------------------------------------------------------------------------------------------- */

#define GW_THC_EXTENT_MARK  0xffffffffu /* above the code of every number */
#define GW_THC_EXTENT_LIMIT 0x7f000000u /* 2^127: differences of smaller values stay finite */

static inline uint32_t gw_thc_order_code(uint32_t bits)
{
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

static inline void gw_thc_extent_values(uint32_t patterns[2], const float *x, size_t len)
{
    uint32_t largest = 0, largest_negated = 0, is_large = 0;
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = gw_bits_from_float(x[i]);
        const uint32_t code = gw_thc_order_code(bits);
        const uint32_t negated = gw_thc_order_code(bits == 0 ? 0 : bits ^ 0x80000000u);
        is_large |= (bits & GW_F32_ABS) >= GW_THC_EXTENT_LIMIT;
        largest = code > largest ? code : largest;
        largest_negated = negated > largest_negated ? negated : largest_negated;
    }
    patterns[0] = is_large != 0 ? GW_THC_EXTENT_MARK : largest;
    patterns[1] = is_large != 0 ? GW_THC_EXTENT_MARK : largest_negated;
}

/*
 * From the extremes of the order codes to the patterns. The code of -x is the complement of the code of x,
 * but for zero, whose code is its own. So the least code serves for the second pattern, and values of 2^127
 * and more, of either sign, lie at the two ends.
 */
static inline void gw_thc_extent_patterns(uint32_t patterns[2], uint32_t least, uint32_t largest)
{
    const uint32_t limit = GW_THC_EXTENT_LIMIT | 0x80000000u;
    if (largest >= limit || least <= ~limit) {
        patterns[0] = GW_THC_EXTENT_MARK;
        patterns[1] = GW_THC_EXTENT_MARK;
        return;
    }
    patterns[0] = largest;
    patterns[1] = least == 0x80000000u ? least : ~least;
}

#endif
