/*
 * The scalar kernel table of THC: every slot, and the specification of all others.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/thc_kernels.h"

const gw_thc_kernels gw_thc_kernels_scalar = GW_THC_TABLE(scalar);
