/*
 * Sums for backends whose join does not add: a pass of its own after the join.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_JOIN_SUM_H
#define GW_JOIN_SUM_H

#include "core/gcomp_kernels.h"

/* Adds joiner->addend, if there is one, to values [first, first + len) of dst. The order of the summands does
 * not matter: addition commutes, and NaN is canonical. */
static inline void gw_join_sum(void *dst, size_t first, size_t len, const gw_joiner *joiner,
                               gw_add_fn *const add[3])
{
    if (joiner->addend != NULL) {
        const size_t at = first * gw_traits_of(joiner->dtype)->size;
        uint8_t *sums = (uint8_t *)dst + at;
        add[joiner->dtype - GW_FP32](sums, sums, joiner->addend + at, len, joiner->strict);
    }
}

#endif
