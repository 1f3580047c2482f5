/*
 * Bin of a rounded value, and the label that a bin has under a window (docs/format.md section 3).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BINS_H
#define GW_BINS_H

#include "core/gcomp_kernels.h"

/* Level of a drop that is a multiple (0..3) of the explicit step. */
static inline uint32_t gw_level_of(uint32_t drop, uint32_t dtype)
{
    return drop / gw_traits_of(dtype)->explicit_step;
}

/* Branch-free except for constants, because zeros are unpredictable. `level` is 0 where nothing is dropped,
 * so +0 of fp32 and bf16 gets bin 0; -0 and subnormals have the same exponent and need gw_bin_of_flushable()
 * too. */
GW_TEMPLATE uint32_t gw_bin_of(uint32_t bits, uint32_t level, uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const uint32_t magnitude = bits & ((1u << (8 * t->size - 1)) - 1);
    if (dtype == GW_FP16) {
        const uint32_t bin = 4 * (magnitude >> t->mantissa_bits) + level;
        return bits == 0 ? (uint32_t)GW_BIN_FP16_ZERO : magnitude == 0 ? 4u * t->exponent_mask : bin;
    }
    return (magnitude >> (t->mantissa_bits - 2) & ~3u) | level;
}

/* To be ORed to the bin: 1 for -0 and the subnormals of fp32 and bf16, which default mode flushes. */
static inline uint32_t gw_bin_of_flushable(uint32_t bits, uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const uint32_t exponent = bits >> t->mantissa_bits & t->exponent_mask;
    return exponent == 0 && bits != 0;
}

/* Label of a bin, GW_LABEL_ESCAPE if it has none. In explicit mode the label is the bin less the window's
 * base. */
GW_TEMPLATE uint8_t gw_label_of_bin(uint32_t bin, uint32_t dtype, uint32_t derived, uint32_t base)
{
    const uint32_t special = 4u * gw_traits_of(dtype)->exponent_mask;
    if (dtype == GW_FP16) {
        const uint32_t label = derived ? bin / 4 + 2 : bin + 4;
        return (uint8_t)(bin < special ? label : bin != GW_BIN_FP16_ZERO);
    }
    if (derived) {
        return (uint8_t)(bin >= 4 && bin < special ? bin / 4 + 1 : bin != 0);
    }
    /* base <= 191 keeps infinity and NaN outside; bins 0 and 1 are no labels even with base 0. */
    const uint32_t label = bin - 4 * base;
    return (uint8_t)(bin >= 4 && label - 4 < 252 ? label : bin != 0);
}

#endif
