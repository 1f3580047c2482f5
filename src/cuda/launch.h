/*
 * What a CUDA operation is: a range of the workspace to clear, then kernels in order. Plans are made by plain
 * C that touches neither driver nor device, so that the public calls and the checks on the CPU run the same
 * sequence.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LAUNCH_H
#define GW_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

/* Every kernel of this library. The image is the stem of the .cu file that it is in. A kernel takes exactly
 * one parameter, a structure by value. */
#define GW_CUDA_KERNEL_LIST(X)                                                                               \
    X(gw_device_thc_norm, thc_norm)                                                                          \
    X(gw_device_thc_encode, thc_encode)                                                                      \
    X(gw_device_thc_decode, thc_decode)                                                                      \
    X(gw_device_thc_warp_norm_fp32, thc_warp_norm)                                                           \
    X(gw_device_thc_warp_norm_bf16, thc_warp_norm)                                                           \
    X(gw_device_thc_warp_norm_fp16, thc_warp_norm)                                                           \
    X(gw_device_thc_warp_norm_error_fp32, thc_warp_norm)                                                     \
    X(gw_device_thc_warp_norm_error_bf16, thc_warp_norm)                                                     \
    X(gw_device_thc_warp_norm_error_fp16, thc_warp_norm)                                                     \
    X(gw_device_thc_warp_encode_fp32, thc_warp_encode)                                                       \
    X(gw_device_thc_warp_encode_bf16, thc_warp_encode)                                                       \
    X(gw_device_thc_warp_encode_fp16, thc_warp_encode)                                                       \
    X(gw_device_thc_warp_encode_error_fp32, thc_warp_encode)                                                 \
    X(gw_device_thc_warp_encode_error_bf16, thc_warp_encode)                                                 \
    X(gw_device_thc_warp_encode_error_fp16, thc_warp_encode)                                                 \
    X(gw_device_thc_warp_decode8_fp32, thc_warp_decode)                                                      \
    X(gw_device_thc_warp_decode8_bf16, thc_warp_decode)                                                      \
    X(gw_device_thc_warp_decode8_fp16, thc_warp_decode)                                                      \
    X(gw_device_thc_warp_decode16_fp32, thc_warp_decode)                                                     \
    X(gw_device_thc_warp_decode16_bf16, thc_warp_decode)                                                     \
    X(gw_device_thc_warp_decode16_fp16, thc_warp_decode)                                                     \
    X(gw_device_thc_sum_indices, thc_sum)                                                                    \
    X(gw_device_thc_sum_lanes, thc_sum)                                                                      \
    X(gw_device_thc_check_lanes, thc_sum)                                                                    \
    X(gw_device_map_scan, map)                                                                               \
    X(gw_device_map_build, map)                                                                              \
    X(gw_device_map_digest, map)                                                                             \
    X(gw_device_gcomp_check, gcomp_check)                                                                    \
    X(gw_device_gcomp_decode_fp32, gcomp_decode)                                                             \
    X(gw_device_gcomp_decode_bf16, gcomp_decode)                                                             \
    X(gw_device_gcomp_decode_fp16, gcomp_decode)                                                             \
    X(gw_device_gcomp_decode_rest_fp32, gcomp_decode)                                                        \
    X(gw_device_gcomp_decode_rest_bf16, gcomp_decode)                                                        \
    X(gw_device_gcomp_decode_rest_fp16, gcomp_decode)                                                        \
    X(gw_device_gcomp_sum_store, gcomp_decode)                                                               \
    X(gw_device_gcomp_count, gcomp_codebook)                                                                 \
    X(gw_device_gcomp_hop_items, gcomp_codebook)                                                             \
    X(gw_device_gcomp_histogram_items, gcomp_codebook)                                                       \
    X(gw_device_gcomp_codebook_fp32_explicit, gcomp_codebook)                                                \
    X(gw_device_gcomp_codebook_fp32_derived, gcomp_codebook)                                                 \
    X(gw_device_gcomp_codebook_bf16_explicit, gcomp_codebook)                                                \
    X(gw_device_gcomp_codebook_bf16_derived, gcomp_codebook)                                                 \
    X(gw_device_gcomp_codebook_fp16_explicit, gcomp_codebook)                                                \
    X(gw_device_gcomp_codebook_fp16_derived, gcomp_codebook)                                                 \
    X(gw_device_gcomp_histogram_fp32_explicit, gcomp_codebook)                                               \
    X(gw_device_gcomp_histogram_fp32_derived, gcomp_codebook)                                                \
    X(gw_device_gcomp_histogram_bf16_explicit, gcomp_codebook)                                               \
    X(gw_device_gcomp_histogram_bf16_derived, gcomp_codebook)                                                \
    X(gw_device_gcomp_histogram_fp16_explicit, gcomp_codebook)                                               \
    X(gw_device_gcomp_histogram_fp16_derived, gcomp_codebook)                                                \
    X(gw_device_gcomp_codebook_build, gcomp_codebook)                                                        \
    X(gw_device_gcomp_quanta, gcomp_quanta)                                                                  \
    X(gw_device_gcomp_segments, gcomp_segments)                                                              \
    X(gw_device_gcomp_round, gcomp_segments)                                                                 \
    X(gw_device_gcomp_encode_fp32_explicit, gcomp_encode)                                                    \
    X(gw_device_gcomp_encode_fp32_derived, gcomp_encode)                                                     \
    X(gw_device_gcomp_encode_bf16_explicit, gcomp_encode)                                                    \
    X(gw_device_gcomp_encode_bf16_derived, gcomp_encode)                                                     \
    X(gw_device_gcomp_encode_fp16_explicit, gcomp_encode)                                                    \
    X(gw_device_gcomp_encode_fp16_derived, gcomp_encode)

typedef enum gw_cuda_kernel {
#define GW_CUDA_ENUM(name, image) GW_CUDA_KERNEL_##name,
    GW_CUDA_KERNEL_LIST(GW_CUDA_ENUM)
#undef GW_CUDA_ENUM
        GW_CUDA_KERNEL_COUNT
} gw_cuda_kernel;

typedef struct gw_cuda_launch {
    gw_cuda_kernel kernel;
    uint32_t grid, block; /* blocks, threads of a block */
    uint32_t shared_size; /* bytes of dynamic shared memory */
    const void *params;   /* valid until the launch */
    size_t params_size;
} gw_cuda_launch;

#define GW_CUDA_LAUNCHES_MAX 12

typedef struct gw_cuda_launches {
    uint32_t launch_count;
    gw_cuda_launch launch[GW_CUDA_LAUNCHES_MAX];
    size_t zero_offset, zero_size; /* bytes of the workspace to clear first, multiples of 4 */
} gw_cuda_launches;

#endif
