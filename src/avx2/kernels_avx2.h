/*
 * The AVX2 kernels, declared by the types of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_AVX2_H
#define GW_KERNELS_AVX2_H

#include "core/kernels.h"

/* The instruction sets that src/core/cpu.c requires and the build enables: without one of them the files
 * of this folder are empty. */
#if defined(__AVX2__) && defined(__BMI2__) && defined(__F16C__)
#define GW_AVX2_COMPILED 1
#endif

GW_DECLARE_KERNELS(avx2);
gw_join_fn gw_join_slow_pdep_avx2; /* for GW_CPU_SLOW_PDEP */

#endif
