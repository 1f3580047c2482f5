/*
 * The NEON versions of kernels, declared by the typedefs of their slots.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_NEON_H
#define GW_KERNELS_NEON_H

#include "core/gcomp_kernels.h"

gw_map_scan_fn gw_map_scan_neon;
gw_map_build_fn gw_map_build_neon;
gw_round_fn gw_round_neon;
gw_survey_fn gw_survey_neon;
gw_split_fn gw_split_neon;
gw_count_fn gw_count_neon;
gw_rank_fn gw_rank_neon;
gw_partition_fn gw_partition_neon;
gw_merge_fn gw_merge_neon;
gw_pack_fn gw_pack_neon;
gw_unpack_fn gw_unpack_neon;
gw_join_fn gw_join_neon;
gw_add_fn gw_add_fp32_neon, gw_add_bf16_neon, gw_add_fp16_neon;
gw_crc32c_fn gw_crc32c_neon;

#endif
