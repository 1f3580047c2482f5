/*
 * The AVX2 kernel table of THC.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_kernels_avx2.h"

const gw_thc_kernels *gw_thc_kernels_avx2(uint32_t cpu)
{
    (void)cpu;
#if GW_THC_BUILD_AVX2
    static const gw_thc_kernels table = GW_THC_TABLE(avx2);
    return &table;
#else
    return &gw_thc_kernels_scalar;
#endif
}
