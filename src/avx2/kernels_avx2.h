/*
 * The AVX2 versions of kernels, declared by the typedefs of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_AVX2_H
#define GW_KERNELS_AVX2_H

#include "core/gcomp_kernels.h"

gw_map_scan_fn gw_map_scan_avx2;
gw_map_build_fn gw_map_build_avx2;
gw_round_fn gw_round_avx2;
gw_survey_fn gw_survey_avx2;
gw_split_fn gw_split_avx2;
gw_count_fn gw_count_avx2;
gw_rank_fn gw_rank_avx2;
gw_partition_fn gw_partition_avx2;
gw_merge_fn gw_merge_avx2;
gw_pack_fn gw_pack_avx2;
gw_unpack_fn gw_unpack_avx2;
gw_join_fn gw_join_avx2;
gw_join_fn gw_join_slow_pdep_avx2; /* for GW_CPU_SLOW_PDEP */
gw_add_fn gw_add_fp32_avx2, gw_add_bf16_avx2, gw_add_fp16_avx2;
gw_crc32c_fn gw_crc32c_avx2; /* needs GW_CPU_PCLMUL */

#endif
