/*
 * The slots that AVX-512 improves. Not gcomp.round: AVX2's is 1.4 to 1.5 times as fast as one of 64 values
 * split into bytes was, and only RAW chunks call it. Not thc.pack, add_indices and add_lanes: AVX2's stay.
 * The classic codecs are baselines: of theirs, only slots that were timed at 1.5 times AVX2's speed or more.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"
#include "core/cpu.h"

void gw_backend_init_avx512(gw_kernels *kernels, uint32_t cpu)
{
#if defined(GW_AVX512_COMPILED)
    kernels->gcomp.map_scan = gw_map_scan_avx512;
    kernels->gcomp.map_build = gw_map_build_avx512;
    kernels->gcomp.survey = gw_survey_avx512;
    kernels->gcomp.split = gw_split_avx512;
    kernels->gcomp.rank = gw_rank_avx512;
    kernels->gcomp.partition = gw_partition_avx512;
    kernels->gcomp.pack = gw_pack_avx512;
    kernels->gcomp.merge = gw_merge_avx512;
    kernels->gcomp.unpack = gw_unpack_avx512;
    kernels->gcomp.join = gw_join_avx512;
    kernels->gcomp.gather = gw_gather_avx512;
    kernels->gcomp.spread = gw_spread_avx512;
    kernels->gcomp.fence = gw_fence_avx512;
    kernels->gcomp.add_fp32 = gw_add_fp32_avx512;
    kernels->gcomp.add_bf16 = gw_add_bf16_avx512;
    kernels->gcomp.add_fp16 = gw_add_fp16_avx512;
    kernels->gcomp.scale_fp32 = gw_scale_fp32_avx512;
    kernels->thc.load = gw_thc_load_avx512;
    kernels->thc.store = gw_thc_store_avx512;
    kernels->thc.norm = gw_thc_norm_avx512;
    kernels->thc.extent = gw_thc_extent_avx512;
    kernels->thc.rotate = gw_thc_rotate_avx512;
    kernels->thc.shift = gw_thc_shift_avx512;
    kernels->thc.quantize = gw_thc_quantize_avx512;
    kernels->thc.lane_max = gw_thc_lane_max_avx512;
    kernels->thc.unpack = gw_thc_unpack_avx512;
    kernels->thc.unpack_plain = gw_thc_unpack_plain_avx512;
    kernels->thc.rotate_back = gw_thc_rotate_back_avx512;
    kernels->thc.residual = gw_thc_residual_avx512;
    kernels->classic.level_random = gw_level_random_avx512;
    kernels->classic.sign_momentum = gw_sign_momentum_avx512;
    kernels->classic.sign_unpack = gw_sign_unpack_avx512;
    kernels->classic.sign_votes = gw_sign_votes_avx512;
    kernels->classic.sign_majority = gw_sign_majority_avx512;
    if ((cpu & GW_CPU_PCLMUL) != 0 && (cpu & GW_CPU_VPCLMUL) != 0) {
        kernels->crc32c = gw_crc32c_avx512;
    }
#else
    (void)kernels;
    (void)cpu;
#endif
}
