/*
 * Norms of blocks: which numbers are norms, and what follows from them. docs/numerics-classic.md "Levels".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LEVEL_NORM_H
#define GW_LEVEL_NORM_H

#include "core/bytes.h"
#include "core/classic_kernels.h"
#include "gradwire/classic.h"

/* A smaller norm than 2^-100 counts as 0: scales and steps are then normal numbers. */
#define GW_LEVEL_NORM_MIN 0x0d800000u
/* Norms of fp32 and bf16 are below 2^127, so that no decoded value overflows. */
#define GW_LEVEL_NORM_END 0x7f000000u
/* Norms of fp16 are at most 65504, the same for fp16. */
#define GW_LEVEL_NORM_FP16_END 0x477fe001u

/* The first pattern that is too large for the norm of a dtype. */
static inline uint32_t gw_level_norm_end(gw_dtype dtype)
{
    return dtype == GW_FP16 ? GW_LEVEL_NORM_FP16_END : GW_LEVEL_NORM_END;
}

/* 1 if these are the bits of a norm. */
static inline int gw_level_is_norm(uint32_t bits, gw_dtype dtype)
{
    return bits == 0 || (bits >= GW_LEVEL_NORM_MIN && bits < gw_level_norm_end(dtype));
}

/* What a level is worth; 0 for norm 0 and for bits that are not a norm. */
static inline float gw_level_step(uint32_t norm_bits, uint32_t level_max)
{
    return norm_bits < GW_LEVEL_NORM_MIN || norm_bits >= GW_LEVEL_NORM_END
               ? 0.0f
               : gw_float_from_bits(norm_bits) / (float)level_max;
}

/* Positions, 1/65536 of a level, per unit of a value. */
static inline float gw_level_scale(uint32_t norm_bits, uint32_t level_max)
{
    return norm_bits == 0 ? 0.0f : (float)(level_max << 16) / gw_float_from_bits(norm_bits);
}

/* Whether the norm needs sums, and not only the largest magnitude. */
static inline int gw_level_needs_moments(const gw_classic_options *options)
{
    return options->scheme == GW_CLASSIC_TERNGRAD ? options->clip > 0 : options->norm == GW_CLASSIC_NORM_L2;
}

/* Bits of the norm of a block of len > 0 values. Returns 0 if a value is NaN or infinite, or the norm too
 * large. */
int gw_level_norm(uint32_t *norm_bits, const gw_classic_options *options, const gw_level_moments *moments,
                  uint64_t len);

#endif
