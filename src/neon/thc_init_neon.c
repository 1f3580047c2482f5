/*
 * The NEON kernel table of THC. Nothing here was timed: slots are filled where fewer instructions do the
 * work.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_kernels_neon.h"

#if defined(GW_NEON)
#define BEST(name) gw_thc_##name##_neon
#else
#define BEST(name) gw_thc_##name##_scalar
#endif

static const gw_thc_kernels table = {
    .load = BEST(load),
    .store = BEST(store),
    .norm = BEST(norm),
    .extent = BEST(extent),
    .rotate = BEST(rotate),
    .shift = BEST(shift),
    .quantize = BEST(quantize),
    .pack = BEST(pack),
    .add_indices = BEST(add_indices),
    .add_lanes = BEST(add_lanes),
    .lane_max = BEST(lane_max),
    .unpack = BEST(unpack),
    .unpack_plain = BEST(unpack_plain),
    .rotate_back = BEST(rotate_back),
    .residual = BEST(residual),
};

const gw_thc_kernels *gw_thc_kernels_neon(uint32_t cpu)
{
    (void)cpu;
    return &table;
}
