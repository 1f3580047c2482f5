/*
 * The slots that AVX-512 improves. Not `round`: AVX2's is 1.4 to 1.5 times as fast as one of 64 values split
 * into bytes was, and only RAW chunks call it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"
#include "core/cpu.h"

void gw_kernels_init_avx512(gw_kernels *kernels, uint32_t cpu)
{
#if defined(GW_AVX512_COMPILED)
    kernels->map_scan = gw_map_scan_avx512;
    kernels->map_build = gw_map_build_avx512;
    kernels->survey = gw_survey_avx512;
    kernels->split = gw_split_avx512;
    kernels->rank = gw_rank_avx512;
    kernels->partition = gw_partition_avx512;
    kernels->pack = gw_pack_avx512;
    kernels->merge = gw_merge_avx512;
    kernels->unpack = gw_unpack_avx512;
    kernels->join = gw_join_avx512;
    kernels->fence = gw_fence_avx512;
    kernels->add_fp32 = gw_add_fp32_avx512;
    kernels->add_bf16 = gw_add_bf16_avx512;
    kernels->add_fp16 = gw_add_fp16_avx512;
    if ((cpu & GW_CPU_PCLMUL) != 0 && (cpu & GW_CPU_VPCLMUL) != 0) {
        kernels->crc32c = gw_crc32c_avx512;
    }
#else
    (void)kernels;
    (void)cpu;
#endif
}
