/*
 * The AVX-512 versions of kernels, declared by the typedefs of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_AVX512_KERNELS_AVX512_H
#define GW_AVX512_KERNELS_AVX512_H

#include "core/kernels.h"

gw_merge_fn gw_merge_avx512;

#endif
