/*
 * Stochastic rounding with a deep cut of fp32 in default mode: what survey and split share.
 *
 * Most values become zero, so only exponents become bytes for all of them; the words of the others are
 * compacted first.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DEEP_GROUPS_AVX2_H
#define GW_DEEP_GROUPS_AVX2_H

#include "avx2/round_groups_avx2.h"

#if defined(__AVX2__)

enum { GW_DEEP_LEN = GW_GROUPS_MAX * GW_GROUP_LEN };

/* Values that are not zero, in order. */
typedef struct gw_deep_values {
    _Alignas(64) uint32_t word[2 * GW_DEEP_LEN]; /* bits that are dropped are garbage */
    int32_t above[2 * GW_DEEP_LEN];              /* octaves above the quantum, less than 0 below it */
    size_t len;
} gw_deep_values;

/* Values of a block, at most GW_DEEP_LEN. */
typedef struct gw_deep_block {
    _Alignas(64) uint8_t index[GW_DEEP_LEN]; /* exponent, or relative exponent; of zeros garbage */
    uint32_t nonzero[GW_GROUPS_MAX];         /* by group */
} gw_deep_block;

/* 1 if gw_deep_round() can round values by this rule. */
int gw_deep_is_for(const gw_round_rule *rule);

/* Rounds values [at, at + 32 * groups) of a span and appends what is not zero to kept. Returns 0 if there is
 * infinity or NaN, or a carry into them: then the block has to be rounded another way, and of kept only the
 * length is as before. */
int gw_deep_round(gw_deep_block *block, gw_deep_values *kept, const gw_span *span, size_t at, size_t groups,
                  const gw_round_plan *plan);

#endif
#endif
