/* SPDX-License-Identifier: BSD-2-Clause */
#include "scalar/kernels_scalar.h"

void gw_backend_init_scalar(gw_kernels *kernels, uint32_t cpu)
{
    (void)cpu;
    kernels->gcomp.map_scan = gw_map_scan_scalar;
    kernels->gcomp.map_build = gw_map_build_scalar;
    kernels->gcomp.round = gw_round_scalar;
    kernels->gcomp.survey = gw_survey_scalar;
    kernels->gcomp.split = gw_split_scalar;
    kernels->gcomp.count = gw_count_scalar;
    kernels->gcomp.rank = gw_rank_scalar;
    kernels->gcomp.partition = gw_partition_scalar;
    kernels->gcomp.merge = gw_merge_scalar;
    kernels->gcomp.pack = gw_pack_scalar;
    kernels->gcomp.unpack = gw_unpack_scalar;
    kernels->gcomp.join = gw_join_scalar;
    kernels->gcomp.gather = gw_gather_scalar;
    kernels->gcomp.spread = gw_spread_scalar;
    kernels->gcomp.fence = gw_fence_scalar;
    kernels->gcomp.add_fp32 = gw_add_fp32_scalar;
    kernels->gcomp.add_bf16 = gw_add_bf16_scalar;
    kernels->gcomp.add_fp16 = gw_add_fp16_scalar;
    kernels->gcomp.scale_fp32 = gw_scale_fp32_scalar;
    kernels->classic.sparse_select = gw_sparse_select_scalar;
    kernels->classic.sparse_momentum = gw_sparse_momentum_scalar;
    kernels->classic.sparse_squares = gw_sparse_squares_scalar;
    kernels->thc.load = gw_thc_load_scalar;
    kernels->thc.store = gw_thc_store_scalar;
    kernels->thc.norm = gw_thc_norm_scalar;
    kernels->thc.extent = gw_thc_extent_scalar;
    kernels->thc.rotate = gw_thc_rotate_scalar;
    kernels->thc.shift = gw_thc_shift_scalar;
    kernels->thc.quantize = gw_thc_quantize_scalar;
    kernels->thc.pack = gw_thc_pack_scalar;
    kernels->thc.add_indices = gw_thc_add_indices_scalar;
    kernels->thc.add_lanes = gw_thc_add_lanes_scalar;
    kernels->thc.lane_max = gw_thc_lane_max_scalar;
    kernels->thc.unpack = gw_thc_unpack_scalar;
    kernels->thc.unpack_plain = gw_thc_unpack_plain_scalar;
    kernels->thc.rotate_back = gw_thc_rotate_back_scalar;
    kernels->thc.residual = gw_thc_residual_scalar;
    kernels->classic.level_random = gw_level_random_scalar;
    kernels->classic.level_largest = gw_level_largest_scalar;
    kernels->classic.level_moments = gw_level_moments_scalar;
    kernels->classic.level_quantize = gw_level_quantize_scalar;
    kernels->classic.level_decode = gw_level_decode_scalar;
    kernels->classic.multiply = gw_multiply_scalar;
    kernels->classic.accumulate = gw_accumulate_scalar;
    kernels->classic.cast = gw_cast_scalar;
    kernels->classic.sign_pack = gw_sign_pack_scalar;
    kernels->classic.sign_sums = gw_sign_sums_scalar;
    kernels->classic.sign_residual = gw_sign_residual_scalar;
    kernels->classic.sign_momentum = gw_sign_momentum_scalar;
    kernels->classic.sign_unpack = gw_sign_unpack_scalar;
    kernels->classic.sign_add = gw_sign_add_scalar;
    kernels->classic.sign_votes = gw_sign_votes_scalar;
    kernels->classic.sign_majority = gw_sign_majority_scalar;
    kernels->crc32c = gw_crc32c_scalar;
}
