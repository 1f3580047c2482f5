/*
 * The slots that AVX2 improves.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"
#include "core/cpu.h"

void gw_backend_init_avx2(gw_kernels *kernels, uint32_t cpu)
{
#if defined(GW_AVX2_COMPILED)
    kernels->gcomp.map_scan = gw_map_scan_avx2;
    kernels->gcomp.map_build = gw_map_build_avx2;
    kernels->gcomp.round = gw_round_avx2;
    kernels->gcomp.survey = gw_survey_avx2;
    kernels->gcomp.split = gw_split_avx2;
    kernels->gcomp.count = gw_count_avx2;
    kernels->gcomp.rank = gw_rank_avx2;
    kernels->gcomp.partition = gw_partition_avx2;
    kernels->gcomp.merge = gw_merge_avx2;
    kernels->gcomp.pack = gw_pack_avx2;
    kernels->gcomp.unpack = gw_unpack_avx2;
    kernels->gcomp.join = (cpu & GW_CPU_SLOW_PDEP) != 0 ? gw_join_slow_pdep_avx2 : gw_join_avx2;
    kernels->gcomp.gather = gw_gather_avx2;
    kernels->gcomp.spread = gw_spread_avx2;
    kernels->gcomp.add_fp32 = gw_add_fp32_avx2;
    kernels->gcomp.add_bf16 = gw_add_bf16_avx2;
    kernels->gcomp.add_fp16 = gw_add_fp16_avx2;
    kernels->gcomp.scale_fp32 = gw_scale_fp32_avx2;
    kernels->classic.sparse_select = gw_sparse_select_avx2;
    kernels->classic.sparse_momentum = gw_sparse_momentum_avx2;
    kernels->classic.sparse_squares = gw_sparse_squares_avx2;
    kernels->thc.load = gw_thc_load_avx2;
    kernels->thc.store = gw_thc_store_avx2;
    kernels->thc.norm = gw_thc_norm_avx2;
    kernels->thc.extent = gw_thc_extent_avx2;
    kernels->thc.rotate = gw_thc_rotate_avx2;
    kernels->thc.shift = gw_thc_shift_avx2;
    kernels->thc.quantize = gw_thc_quantize_avx2;
    kernels->thc.pack = gw_thc_pack_avx2;
    kernels->thc.add_indices = gw_thc_add_indices_avx2;
    kernels->thc.add_lanes = gw_thc_add_lanes_avx2;
    kernels->thc.lane_max = gw_thc_lane_max_avx2;
    kernels->thc.unpack = gw_thc_unpack_avx2;
    kernels->thc.unpack_plain = gw_thc_unpack_plain_avx2;
    kernels->thc.rotate_back = gw_thc_rotate_back_avx2;
    kernels->thc.residual = gw_thc_residual_avx2;
    kernels->classic.level_random = gw_level_random_avx2;
    kernels->classic.level_largest = gw_level_largest_avx2;
    kernels->classic.level_moments = gw_level_moments_avx2;
    kernels->classic.level_quantize = gw_level_quantize_avx2;
    kernels->classic.level_decode = gw_level_decode_avx2;
    kernels->classic.multiply = gw_multiply_avx2;
    kernels->classic.accumulate = gw_accumulate_avx2;
    kernels->classic.cast = gw_cast_avx2;
    kernels->classic.sign_pack = gw_sign_pack_avx2;
    kernels->classic.sign_sums = gw_sign_sums_avx2;
    kernels->classic.sign_residual = gw_sign_residual_avx2;
    kernels->classic.sign_momentum = gw_sign_momentum_avx2;
    kernels->classic.sign_unpack = gw_sign_unpack_avx2;
    kernels->classic.sign_add = gw_sign_add_avx2;
    kernels->classic.sign_votes = gw_sign_votes_avx2;
    kernels->classic.sign_majority = gw_sign_majority_avx2;
    if ((cpu & GW_CPU_PCLMUL) != 0) {
        kernels->crc32c = gw_crc32c_avx2;
    }
#else
    (void)kernels;
    (void)cpu;
#endif
}
