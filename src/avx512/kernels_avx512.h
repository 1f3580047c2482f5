/*
 * The AVX-512 versions of kernels, declared by the typedefs of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_AVX512_H
#define GW_KERNELS_AVX512_H

#include "core/gcomp_kernels.h"

/* What src/core/cpu.c asks for and the build switches on: without one of these the files of this folder are
 * empty. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) &&       \
    defined(__AVX512VBMI__) && defined(__AVX512VBMI2__) && defined(__BMI2__)
#define GW_AVX512_COMPILED 1
#endif

gw_map_scan_fn gw_map_scan_avx512;
gw_map_build_fn gw_map_build_avx512;
gw_survey_fn gw_survey_avx512;
gw_split_fn gw_split_avx512;
gw_rank_fn gw_rank_avx512;
gw_partition_fn gw_partition_avx512;
gw_pack_fn gw_pack_avx512;
gw_merge_fn gw_merge_avx512;
gw_unpack_fn gw_unpack_avx512;
gw_join_fn gw_join_avx512;
gw_fence_fn gw_fence_avx512;
gw_add_fn gw_add_fp32_avx512, gw_add_bf16_avx512, gw_add_fp16_avx512;
gw_crc32c_fn gw_crc32c_avx512; /* needs GW_CPU_VPCLMUL */

/* A mask of `bits` ones, all 64 from there on. */
static inline uint64_t gw_low_mask(size_t bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

#endif
