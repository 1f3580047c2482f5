/*
 * The AVX-512 kernel tables of THC. The slots that AVX-512 does not improve hold AVX2's kernels, or scalar's
 * where a mask of backends does not permit AVX2's.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_kernels_avx512.h"
#include "gradwire/gradwire.h"

#if defined(GW_HAVE_THC_AVX2)
#include "avx2/thc_kernels_avx2.h"
#endif

#if GW_THC_BUILD_AVX512

#define TABLE_OVER(simpler)                                                                                  \
    {                                                                                                        \
        .load = gw_thc_load_avx512, .store = gw_thc_store_avx512, .norm = gw_thc_norm_avx512,                \
        .extent = gw_thc_extent_avx512, .rotate = gw_thc_rotate_avx512, .shift = gw_thc_shift_avx512,        \
        .quantize = gw_thc_quantize_avx512, .pack = gw_thc_pack_##simpler,                                   \
        .add_indices = gw_thc_add_indices_##simpler, .add_lanes = gw_thc_add_lanes_##simpler,                \
        .lane_max = gw_thc_lane_max_avx512, .unpack = gw_thc_unpack_avx512,                                  \
        .unpack_plain = gw_thc_unpack_plain_avx512, .rotate_back = gw_thc_rotate_back_avx512,                \
        .residual = gw_thc_residual_avx512,                                                                  \
    }

const gw_thc_kernels *gw_thc_kernels_avx512(uint32_t cpu, uint32_t use)
{
    static const gw_thc_kernels over_scalar = TABLE_OVER(scalar);
    (void)cpu;
#if defined(GW_HAVE_THC_AVX2)
    static const gw_thc_kernels over_avx2 = TABLE_OVER(avx2);
    if ((use & GW_BACKEND_AVX2) != 0) {
        return &over_avx2;
    }
#endif
    (void)use;
    return &over_scalar;
}

#else

const gw_thc_kernels *gw_thc_kernels_avx512(uint32_t cpu, uint32_t use)
{
    (void)cpu;
    (void)use;
    return &gw_thc_kernels_scalar;
}

#endif
