/*
 * Bin of a rounded value, and the label that a bin has under a window (docs/format.md section 3).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BINS_H
#define GW_BINS_H

#include "core/gcomp_kernels.h"

/* Exponent field of the quantum of map byte k, in fp32's bias: the value that keeps no mantissa bit has this
 * exponent. May be any number, because drop_offset may be. */
static inline int32_t gw_quantum_exponent(uint32_t k, int32_t drop_offset, uint32_t dtype)
{
    /* Rounds down: 2^17 makes the sum positive, drop_offset having 16 bits. */
    const uint32_t biased = (uint32_t)((int32_t)k + drop_offset - 3 + (1 << 17));
    return (int32_t)(biased >> 2) - (1 << 15) - gw_traits_of(dtype)->mantissa_bits;
}

/* 1 for stochastic rounding of fp32 with dead zones in default mode, unless quanta are so small or so large
 * that bytes do not hold their exponents, or that the largest values are cut. */
static inline int gw_is_dead_zone_stochastic(const gw_round_rule *rule)
{
    return rule->dtype == GW_FP32 && rule->dead_zone && rule->rounding == GW_GCOMP_STOCHASTIC &&
           !rule->strict && gw_quantum_exponent(1, rule->drop_offset, GW_FP32) >= 1 &&
           gw_quantum_exponent(255, rule->drop_offset, GW_FP32) <= 231;
}

/* 2^32 times the quotient of a magnitude and its quantum, rounded down (docs/numerics.md section 3): the
 * significand, of m + 1 bits, from bit 31 down for the octave just below the quantum. `below` >= 1 octaves.
 */
static inline uint32_t gw_share_of_quantum(uint32_t significand, uint32_t m, int32_t below)
{
    return below > 32 ? 0 : significand << (31 - m) >> (below - 1);
}

/* Relative exponents (docs/format.md section 3): the ordinary exponent fields, 1..254 for fp32 and bf16 and
 * 0..30 for fp16, are turned in a circle so that the quantum comes first. Returns by how much for map byte
 * k: 0 if k is 0. */
static inline uint32_t gw_turn_of(uint32_t k, int32_t drop_offset, uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const int32_t first = dtype == GW_FP16 ? 0 : 1, last = t->exponent_mask - 1;
    const int32_t field = gw_quantum_exponent(k, drop_offset, dtype) - t->exponent_bias;
    return k == 0 || field < first ? 0 : (uint32_t)((field > last ? last : field) - first);
}

/* Ordinary exponent fields of the dtype. */
static inline uint32_t gw_exponent_count(uint32_t dtype)
{
    return dtype == GW_FP16 ? 31 : 254;
}

/* The relative exponent of an ordinary exponent field, and back. */
static inline uint32_t gw_exponent_turn(uint32_t exponent, uint32_t turn, uint32_t dtype)
{
    const uint32_t first = dtype == GW_FP16 ? 0 : 1;
    return exponent - turn + (exponent < first + turn ? gw_exponent_count(dtype) : 0);
}

static inline uint32_t gw_exponent_turn_back(uint32_t relative, uint32_t turn, uint32_t dtype)
{
    const uint32_t sum = relative + turn;
    return sum - (sum >= gw_traits_of(dtype)->exponent_mask ? gw_exponent_count(dtype) : 0);
}

/* Level of a drop that is a multiple (0..3) of the explicit step. */
static inline uint32_t gw_drop_steps_of(uint32_t drop, uint32_t dtype)
{
    return drop / gw_traits_of(dtype)->explicit_step;
}

/* Branch-free except for constants, because zeros are unpredictable. `drop_steps` is 0 where nothing is
 * dropped, so +0 of fp32 and bf16 gets bin 0; -0 and subnormals have the same exponent and need
 * gw_bin_of_flushable() too. */
GW_TEMPLATE uint32_t gw_bin_of(uint32_t bits, uint32_t drop_steps, uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const uint32_t magnitude = bits & ((1u << (8 * t->size - 1)) - 1);
    if (dtype == GW_FP16) {
        const uint32_t bin = 4 * (magnitude >> t->mantissa_bits) + drop_steps;
        return bits == 0 ? (uint32_t)GW_BIN_FP16_ZERO : magnitude == 0 ? 4u * t->exponent_mask : bin;
    }
    return (magnitude >> (t->mantissa_bits - 2) & ~3u) | drop_steps;
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
GW_TEMPLATE uint8_t gw_label_of_bin(uint32_t bin, uint32_t dtype, uint32_t derived, uint32_t window_start)
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
    const uint32_t label = bin - 4 * window_start;
    return (uint8_t)(bin >= 4 && label - 4 < 252 ? label : bin != 0);
}

#endif
