/*
 * The AVX2 kernel table of THC. Slots that AVX2 does not improve hold the scalar kernel.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_kernels_avx2.h"

#if GW_THC_BUILD_AVX2
#define BEST(name) gw_thc_##name##_avx2
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

const gw_thc_kernels *gw_thc_kernels_avx2(uint32_t cpu)
{
    (void)cpu;
    return &table;
}
