/*
 * The AVX-512 versions of kernels, declared by the typedefs of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_AVX512_H
#define GW_KERNELS_AVX512_H

#include "core/kernels.h"

/* What src/core/cpu.c asks for and the build switches on: without one of these the files of this folder are
 * empty. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) &&       \
    defined(__AVX512VBMI__) && defined(__AVX512VBMI2__) && defined(__BMI2__)
#define GW_AVX512_COMPILED 1
#endif

GW_DECLARE_KERNELS(avx512);

/* A mask of `bits` ones, all 64 from there on. */
static inline uint64_t gw_low_mask(size_t bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

#endif
