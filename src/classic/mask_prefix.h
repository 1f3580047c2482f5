/*
 * Prefix codes of the classes of mask bytes from their lengths: canonical, by length and then by class, the
 * first bit of a code lowest. A single class has length 1 and an empty code.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MASK_PREFIX_H
#define GW_MASK_PREFIX_H

#include "classic/classic_positions.h"

typedef struct gw_mask_prefix {
    uint16_t code[GW_MASK_CLASSES];
    uint8_t bits[GW_MASK_CLASSES]; /* 0 without a code, or for a single class */
    uint8_t single;                /* 1: one class only, which is `first` */
    uint8_t first;
} gw_mask_prefix;

/* The lengths are those of a complete code or of a single class, hence at most GW_MASK_DEPTH_MAX. */
static inline void gw_mask_prefix_make(gw_mask_prefix *prefix, const uint8_t depth[GW_MASK_CLASSES])
{
    uint32_t used = 0, next = 0;
    GW_MEMSET(prefix, 0, sizeof *prefix);
    for (uint32_t c = GW_MASK_CLASSES; c-- > 0;) {
        used += depth[c] != 0;
        prefix->first = depth[c] != 0 ? (uint8_t)c : prefix->first;
    }
    if (used == 1) {
        prefix->single = 1;
        return;
    }
    for (uint32_t bits = 1; bits <= GW_MASK_DEPTH_MAX; bits++) {
        next *= 2;
        for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
            if (depth[c] == bits) {
                uint32_t reversed = 0;
                for (uint32_t i = 0; i < bits; i++) {
                    reversed |= (next >> i & 1) << (bits - 1 - i);
                }
                prefix->code[c] = (uint16_t)reversed;
                prefix->bits[c] = (uint8_t)bits;
                next++;
            }
        }
    }
}

#endif
