/*
 * By number of kept bits: which planes a value has a digit in, and where the digits of the remainder planes
 * are in the field z (docs/format.md section 3).
 *
 * The positions of all planes are kept in two words of 16-bit counters, so that two additions advance them
 * all. A counter counts to 2^15 at most, the longest chunk.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DIGIT_STEPS_H
#define GW_DIGIT_STEPS_H

#include "core/gcomp_kernels.h"

typedef struct gw_digit_step {
    uint64_t nested;       /* counter p (from bit 0): 1 if the value has a digit in plane p + 1 */
    uint64_t rest;         /* the same for R4, R2, R1 */
    uint32_t mask;         /* the bits of z that come from the nested planes */
    uint32_t rest_mask[3]; /* the bits of z that come from R4, R2, R1 */
    uint8_t rest_shift[3]; /* how far their digits are shifted up */
} gw_digit_step;

enum { GW_KEEP_MAX = 24 };

static inline void gw_digit_steps_fill(gw_digit_step step[GW_KEEP_MAX + 1], uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned top = t->mantissa_bits + 1u;
    GW_MEMSET(step, 0, (GW_KEEP_MAX + 1) * sizeof *step);
    for (unsigned kept = 1; kept <= top; kept++) {
        gw_digit_step *s = &step[kept];
        unsigned whole = 0;
        for (unsigned p = 0; p < GW_DIGIT_PLANES && whole + t->digit_width[p] <= kept; p++) {
            whole += t->digit_width[p];
            s->nested |= (uint64_t)1 << 16 * p;
        }
        s->mask = (1u << top) - (1u << (top - whole));
        unsigned at = top - whole; /* bits of z that are still to come */
        for (unsigned p = 0; p < 3; p++) {
            const unsigned width = 4u >> p;
            if (((kept - whole) & width) != 0) {
                at -= width;
                s->rest |= (uint64_t)1 << 16 * p;
                s->rest_mask[p] = ((1u << width) - 1) << at;
                s->rest_shift[p] = (uint8_t)at;
            }
        }
    }
}

static inline size_t gw_plane_at(uint64_t counters, unsigned p)
{
    return (size_t)(counters >> 16 * p & 0xffff);
}

static inline void gw_plane_lens(size_t plane_len[GW_PLANES_MAX], uint64_t nested, uint64_t rest)
{
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane_len[p] = p < GW_DIGIT_PLANES ? gw_plane_at(nested, p) : gw_plane_at(rest, p - GW_DIGIT_PLANES);
    }
}

#endif
