/*
 * THC phase one: the patterns of every block (gw_thc_norms()).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_tile.cuh"

GW_KERNEL(gw_device_thc_norm, gw_cuda_thc_norm_params, GW_THC_THREADS_MAX, 3)
{
    const thc_tile tile = thc_tile_of();
    const gw_cuda_thc_span &span = p.span;
    const uint32_t pattern_count = p.context.transform == GW_THC_ROTATED ? 1 : 2;
    const thc_share share = thc_blocks_of_warp(span.block_log2);

    for (uint64_t t = blockIdx.x; t < span.tile_count; t += gridDim.x) {
        const uint64_t tile_first = t * blockDim.x * GW_THC_ROW;
        thc_load_tile(tile, span, p.src, p.error, p.context.dtype, p.is_aligned, tile_first);
        thc_sync(span.block_log2);
        for (uint32_t block = share.first; block < share.end; block++) {
            const uint64_t number = (tile_first >> span.block_log2) + block;
            if (number >= span.block_count) {
                break;
            }
            const uint32_t is_refused =
                thc_measure(tile, p.context, block, block << span.block_log2, thc_block_len(span, number));
            __syncwarp();
            if ((threadIdx.x & 31) == 0 && is_refused != 0) {
                thc_report(p.result, span.first_block + number, GW_ERR_NONFINITE);
            }
            if ((threadIdx.x & 31) < pattern_count) {
                p.patterns[number * pattern_count + (threadIdx.x & 31)] =
                    (threadIdx.x & 31) == 0 ? tile.own[block] : tile.own2[block];
            }
        }
        thc_sync(span.block_log2);
    }
    thc_finish(p.result, span.element_count);
}
