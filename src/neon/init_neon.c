/*
 * The slots that NEON improves, by instruction count: nothing here was timed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"
#include "neon/kernels_neon.h"
#include "neon/neon.h"

void gw_kernels_init_neon(gw_kernels *kernels, uint32_t cpu)
{
#if defined(GW_NEON)
    kernels->map_scan = gw_map_scan_neon;
    kernels->map_build = gw_map_build_neon;
    kernels->round = gw_round_neon;
    kernels->survey = gw_survey_neon;
    kernels->split = gw_split_neon;
    kernels->count = gw_count_neon;
    kernels->rank = gw_rank_neon;
    kernels->partition = gw_partition_neon;
    kernels->merge = gw_merge_neon;
    kernels->pack = gw_pack_neon;
    kernels->unpack = gw_unpack_neon;
    kernels->join = gw_join_neon;
    kernels->add_fp32 = gw_add_fp32_neon;
    kernels->add_bf16 = gw_add_bf16_neon;
    kernels->add_fp16 = gw_add_fp16_neon;
    if ((cpu & GW_CPU_ARM_CRC32) != 0) {
        kernels->crc32c = gw_crc32c_neon;
    }
#else
    (void)kernels;
    (void)cpu;
#endif
}
