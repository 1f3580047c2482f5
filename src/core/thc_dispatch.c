/*
 * Which kernel table a THC context uses. Compiled without instruction-set flags; names of backends appear
 * only here and in dispatch.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/thc_kernels.h"

const gw_thc_kernels *gw_thc_kernels_select(uint32_t backends)
{
    (void)backends; /* scalar is the only backend so far */
    return &gw_thc_kernels_scalar;
}
