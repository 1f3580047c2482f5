/*
 * The slots that AVX2 improves.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

void gw_kernels_init_avx2(gw_kernels *kernels, uint32_t cpu)
{
    (void)cpu;
#if defined(__AVX2__)
    kernels->merge = gw_merge_avx2;
#else
    (void)kernels;
#endif
}
