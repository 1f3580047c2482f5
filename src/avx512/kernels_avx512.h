/*
 * The AVX-512 kernels, declared by the types of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_AVX512_H
#define GW_KERNELS_AVX512_H

#include "core/kernels.h"

/* The instruction sets that src/core/cpu.c requires and the build enables: without one of them the files
 * of this folder are empty. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) &&       \
    defined(__AVX512VBMI__) && defined(__AVX512VBMI2__) && defined(__BMI2__)
#define GW_AVX512_COMPILED 1
#endif

GW_DECLARE_KERNELS(avx512);

/* A mask of the low min(bits, 64) bits. */
static inline uint64_t gw_low_mask(size_t bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

#endif
