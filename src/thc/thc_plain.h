/*
 * The two patterns of a plain block: codes of its maximum and of minus its minimum, which order like numbers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_PLAIN_H
#define GW_THC_PLAIN_H

#include "thc/thc_handle.h"
#include "core/float_bits.h"

#define GW_THC_EXTENT_LIMIT 0x7f000000u /* 2^127: the width of a block of smaller values is finite */

typedef struct gw_thc_plain_extent {
    float minimum;
    float width; /* maximum - minimum in fp32, +0 where that is subnormal */
} gw_thc_plain_extent;

GW_INLINE uint32_t gw_thc_plain_bits(uint32_t code)
{
    return (code >> 31) != 0 ? code & GW_F32_ABS : ~code;
}

GW_INLINE gw_thc_plain_extent gw_thc_plain_extent_of(const uint32_t *patterns)
{
    gw_thc_plain_extent extent;

    extent.minimum = 0.0f - gw_float_from_bits(gw_thc_plain_bits(patterns[1]));
    extent.width = gw_f32_flush(gw_float_from_bits(gw_thc_plain_bits(patterns[0])) - extent.minimum);
    return extent;
}

/* A finite number below the limit that flushing leaves as it is; -0 is not. */
GW_INLINE int gw_thc_plain_is_value(uint32_t code)
{
    uint32_t bits = gw_thc_plain_bits(code);
    uint32_t magnitude = bits & GW_F32_ABS;
    return bits == 0 || (magnitude >= GW_F32_MIN && magnitude < GW_THC_EXTENT_LIMIT);
}

GW_INLINE gw_thc_block_kind gw_thc_plain_read(const uint32_t *patterns, int marks_allowed)
{
    if (patterns[0] == GW_THC_NONFINITE_CODE && patterns[1] == GW_THC_NONFINITE_CODE) {
        return marks_allowed ? GW_THC_BLOCK_NONFINITE : GW_THC_BLOCK_INVALID;
    }
    if (!gw_thc_plain_is_value(patterns[0]) || !gw_thc_plain_is_value(patterns[1])) {
        return GW_THC_BLOCK_INVALID;
    }
    gw_thc_plain_extent extent = gw_thc_plain_extent_of(patterns);
    if (gw_float_from_bits(gw_thc_plain_bits(patterns[0])) < extent.minimum) {
        return GW_THC_BLOCK_INVALID; /* be it by a subnormal, which the width does not show */
    }
    return extent.width > 0.0f ? GW_THC_BLOCK_CODED : GW_THC_BLOCK_CONSTANT;
}

#endif
