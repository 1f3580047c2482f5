/*
 * Carried frames: the quanta of a chunk from its values, for a target NMSE. docs/numerics.md section 6.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_QUANTA_CHOICE_H
#define GW_QUANTA_CHOICE_H

#include "gcomp/quanta.h"

/* What the quanta are for. */
typedef struct gw_quanta_goal {
    double nmse; /* squared error over the sum of the squares */
    uint32_t rounding;
    int dead_zone; /* 1: values below their quantum become 0 or one quantum */
    uint32_t dtype;
    uint32_t block_log2;
} gw_quanta_goal;

/* Writes the quanta of the blocks of len values, one chunk: exponent fields in fp32's bias, 0 = nothing is
 * cut. They may lie further apart than GW_QUANTA_WINDOW. */
void gw_quanta_choose(const gw_quanta_goal *goal, const uint8_t *values, size_t len, uint8_t *quanta);

#endif
