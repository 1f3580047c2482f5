/*
 * A block of rounded values: what the scalar kernels of the encoder share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ROUND_BLOCK_H
#define GW_ROUND_BLOCK_H

#include "core/gcomp_kernels.h"

enum { GW_BLOCK_LEN = 256 }; /* fits the L1 cache, and is long enough to make call overhead negligible */

typedef struct gw_rounded {
    uint32_t bits[GW_BLOCK_LEN]; /* 16-bit types in the low half */
    uint16_t bins[GW_BLOCK_LEN];
    uint8_t
        keep[GW_BLOCK_LEN]; /* derived: M + 1 - drop; explicit: nothing, the drop_steps in the bin says it */
} gw_rounded;

/* Rounds the values [at, at + len) of a span, len <= GW_BLOCK_LEN. Returns the OR of all bits (0: all are
 * +0). */
uint32_t gw_round_block_scalar(gw_rounded *rounded, const gw_span *span, size_t at, size_t len,
                               const gw_round_rule *rule);

#endif
