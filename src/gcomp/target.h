/*
 * Where decoded values go: what every call does with a target before it decodes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TARGET_H
#define GW_TARGET_H

#include "core/bytes.h"
#include "gradwire/gcomp.h"

/* Empties the outputs of a target. */
static inline void gw_target_reset(gw_gcomp_target *target)
{
    target->bad_frame = 0;
    target->len = 0;
    target->bad_chunk = UINT64_MAX;
}

/* Whether the scale is 0 or a normal number. */
static inline int gw_target_is_scale_valid(const gw_gcomp_target *target)
{
    const uint32_t exponent = gw_bits_from_float(target->scale) >> 23 & 255;
    return gw_bits_from_float(target->scale) << 1 == 0 || (exponent != 0 && exponent != 255);
}

/* What values are multiplied by: 0 stands for 1. */
static inline float gw_target_scale(const gw_gcomp_target *target)
{
    return gw_bits_from_float(target->scale) << 1 == 0 ? 1.0f : target->scale;
}

#endif
