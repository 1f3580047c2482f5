/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/gcomp_kernels.h"

void gw_kernels_init_scalar(gw_kernels *kernels, uint32_t cpu)
{
    (void)cpu;
    kernels->map_scan = gw_map_scan_scalar;
    kernels->map_build = gw_map_build_scalar;
    kernels->round = gw_round_scalar;
    kernels->survey = gw_survey_scalar;
    kernels->split = gw_split_scalar;
    kernels->count = gw_count_scalar;
    kernels->rank = gw_rank_scalar;
    kernels->partition = gw_partition_scalar;
    kernels->merge = gw_merge_scalar;
    kernels->pack = gw_pack_scalar;
    kernels->unpack = gw_unpack_scalar;
    kernels->join = gw_join_scalar;
    kernels->fence = gw_fence_scalar;
    kernels->add_fp32 = gw_add_fp32_scalar;
    kernels->add_bf16 = gw_add_bf16_scalar;
    kernels->add_fp16 = gw_add_fp16_scalar;
    kernels->crc32c = gw_crc32c_scalar;
}
