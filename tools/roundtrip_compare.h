/*
 * Compares decoded values with the originals: does each value respect its quantum, and how do the parameters
 * change?
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ROUNDTRIP_COMPARE_H
#define GW_ROUNDTRIP_COMPARE_H

#include "tensor_input.h"

/* |theta(decoded) - theta(exact)| / |theta| over all parameters, theta being the parameter before the
   update. */
typedef struct gw_deviation {
    double max, mean;
    double max_larger; /* the worst relative to the larger of |theta| before and after the exact update */
    uint64_t max_index;
    uint64_t unbounded; /* parameters that are 0 before the update and deviate after it */
} gw_deviation;

typedef struct gw_roundtrip {
    uint64_t changed;      /* values whose bits differ */
    uint64_t flushed;      /* of these: -0 and subnormals flushed to +0 (docs/numerics.md) */
    uint64_t beyond;       /* values that their drop or quantum does not allow: 0 for a correct codec */
    uint64_t beyond_index; /* the first of them */
    double error_max, error_mean; /* |decoded - exact| / |exact| over the finite values that are not 0 */
    double bias;                  /* sum of |decoded| - |exact|, over the sum of |exact| */
    int has_deviation;            /* only with a snapshot */
    gw_deviation deviation;
    gw_deviation truncated; /* the same if every value were truncated by the largest explicit drop */
} gw_roundtrip;

/* The optimizer uses values divided by wire_scale. `info` is that of the frame. */
void gw_roundtrip_compare(const gw_tensor_input *tensor, const gw_gcomp_frame_info *info, const void *decoded,
                          float wire_scale, gw_roundtrip *result);

#endif
