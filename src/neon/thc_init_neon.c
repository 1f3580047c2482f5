/*
 * The NEON kernel table of THC. Nothing here was timed: slots are filled where fewer instructions do the
 * work.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_kernels_neon.h"

const gw_thc_kernels *gw_thc_kernels_neon(uint32_t cpu)
{
    (void)cpu;
#if defined(GW_NEON)
    static const gw_thc_kernels table = GW_THC_TABLE(neon);
    return &table;
#else
    return &gw_thc_kernels_scalar;
#endif
}
