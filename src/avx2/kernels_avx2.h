/*
 * The AVX2 versions of kernels, declared by the typedefs of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_AVX2_KERNELS_AVX2_H
#define GW_AVX2_KERNELS_AVX2_H

#include "core/kernels.h"

gw_merge_fn gw_merge_avx2;

#endif
