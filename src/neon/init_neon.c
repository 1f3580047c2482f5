/*
 * The slots that NEON improves, by instruction count: none of these was timed. The classic codecs are
 * baselines, and run scalar.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"
#include "neon/kernels_neon.h"
#include "neon/neon.h"

void gw_backend_init_neon(gw_kernels *kernels, uint32_t cpu)
{
#if defined(GW_NEON)
    kernels->gcomp.map_scan = gw_map_scan_neon;
    kernels->gcomp.map_build = gw_map_build_neon;
    kernels->gcomp.round = gw_round_neon;
    kernels->gcomp.survey = gw_survey_neon;
    kernels->gcomp.split = gw_split_neon;
    kernels->gcomp.count = gw_count_neon;
    kernels->gcomp.rank = gw_rank_neon;
    kernels->gcomp.partition = gw_partition_neon;
    kernels->gcomp.merge = gw_merge_neon;
    kernels->gcomp.pack = gw_pack_neon;
    kernels->gcomp.unpack = gw_unpack_neon;
    kernels->gcomp.join = gw_join_neon;
    kernels->gcomp.gather = gw_gather_neon;
    kernels->gcomp.spread = gw_spread_neon;
    kernels->gcomp.add_fp32 = gw_add_fp32_neon;
    kernels->gcomp.add_bf16 = gw_add_bf16_neon;
    kernels->gcomp.add_fp16 = gw_add_fp16_neon;
    kernels->thc.load = gw_thc_load_neon;
    kernels->thc.store = gw_thc_store_neon;
    kernels->thc.norm = gw_thc_norm_neon;
    kernels->thc.extent = gw_thc_extent_neon;
    kernels->thc.rotate = gw_thc_rotate_neon;
    kernels->thc.shift = gw_thc_shift_neon;
    kernels->thc.quantize = gw_thc_quantize_neon;
    kernels->thc.pack = gw_thc_pack_neon;
    kernels->thc.add_indices = gw_thc_add_indices_neon;
    kernels->thc.add_lanes = gw_thc_add_lanes_neon;
    kernels->thc.lane_max = gw_thc_lane_max_neon;
    kernels->thc.unpack = gw_thc_unpack_neon;
    kernels->thc.unpack_plain = gw_thc_unpack_plain_neon;
    kernels->thc.rotate_back = gw_thc_rotate_back_neon;
    kernels->thc.residual = gw_thc_residual_neon;
    if ((cpu & GW_CPU_ARM_CRC32) != 0) {
        kernels->crc32c = gw_crc32c_neon;
    }
#else
    (void)kernels;
    (void)cpu;
#endif
}
