/*
 * Properties of an element type that the stages need: the table of docs/format.md section 2.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TRAITS_H
#define GW_TRAITS_H

#include "gradwire/gradwire.h"

typedef struct gw_traits {
    uint8_t size;          /* bytes of an element */
    uint8_t mantissa_bits; /* M */
    uint8_t exponent_mask; /* exponent field of infinity and NaN */
    uint8_t exponent_bias; /* added to max(e, 1) or e to get the exponent field in fp32's bias */
    uint8_t digit_width[4];
    uint8_t explicit_step;
    uint8_t explicit_cap;
    uint8_t derived_cap;
    uint8_t derived_steps; /* bit s set: step s is allowed */
    uint8_t keeps_subnormals;
} gw_traits;

/* Planes of a chunk: four of nested digits, then, in derived mode, the remainders of 4, 2 and 1 bits. */
enum { GW_DIGIT_PLANES = 4, GW_PLANE_R1 = 6, GW_PLANES_MAX = 7 };

static inline const gw_traits *gw_traits_of(uint32_t dtype)
{
    static const gw_traits table[4] = {
        {0, 0, 0, 0, {0, 0, 0, 0}, 0, 0, 0, 0, 0},
        {4, 23, 255, 0, {6, 6, 6, 6}, 6, 18, 23, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 6, 0},
        {2, 7, 255, 0, {2, 2, 2, 2}, 2, 6, 7, 1u << 1 | 1u << 2, 0},
        {2, 10, 31, 112, {2, 3, 3, 3}, 3, 9, 10, 1u << 1 | 1u << 3, 1},
    };
    return &table[dtype < 4 ? dtype : 0];
}

/* Bits of a digit of plane p. */
static inline unsigned gw_plane_width(const gw_traits *t, size_t p)
{
    return p < GW_DIGIT_PLANES ? t->digit_width[p] : 4u >> (p - GW_DIGIT_PLANES);
}

#endif
