/*
 * The AVX-512 kernel table of THC. Slots that AVX-512 does not improve would hold the scalar kernel, never
 * that of AVX2: a mask may hold one backend without the other.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_kernels_avx512.h"

#if GW_THC_BUILD_AVX512
#define BEST(name) gw_thc_##name##_avx512
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

const gw_thc_kernels *gw_thc_kernels_avx512(uint32_t cpu)
{
    (void)cpu;
    return &table;
}
