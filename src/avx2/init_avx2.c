/*
 * The slots that AVX2 improves.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"
#include "core/cpu.h"

void gw_kernels_init_avx2(gw_kernels *kernels, uint32_t cpu)
{
#if defined(__AVX2__)
    kernels->map_scan = gw_map_scan_avx2;
    kernels->map_build = gw_map_build_avx2;
    kernels->round = gw_round_avx2;
    kernels->survey = gw_survey_avx2;
    kernels->split = gw_split_avx2;
    kernels->count = gw_count_avx2;
    kernels->rank = gw_rank_avx2;
    kernels->partition = gw_partition_avx2;
    kernels->merge = gw_merge_avx2;
    kernels->pack = gw_pack_avx2;
    kernels->unpack = gw_unpack_avx2;
    kernels->join = (cpu & GW_CPU_SLOW_PDEP) != 0 ? gw_join_slow_pdep_avx2 : gw_join_avx2;
    kernels->add_fp32 = gw_add_fp32_avx2;
    kernels->add_bf16 = gw_add_bf16_avx2;
    kernels->add_fp16 = gw_add_fp16_avx2;
    if ((cpu & GW_CPU_PCLMUL) != 0) {
        kernels->crc32c = gw_crc32c_avx2;
    }
#else
    (void)kernels;
    (void)cpu;
#endif
}
