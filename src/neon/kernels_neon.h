/*
 * The NEON kernels, declared by the types of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_NEON_H
#define GW_KERNELS_NEON_H

#include "core/kernels.h"

GW_DECLARE_KERNELS(neon);

#endif
