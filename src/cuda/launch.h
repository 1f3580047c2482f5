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

/* One kernel for each dtype, or for each dtype and whether quanta are explicit; in this order, by which hosts
 * count from the first. */
#define GW_CUDA_BY_DTYPE(X, stem, image, params)                                                             \
    X(stem##_fp32, image, params)                                                                            \
    X(stem##_bf16, image, params)                                                                            \
    X(stem##_fp16, image, params)
#define GW_CUDA_BY_MODE(X, stem, image, params)                                                              \
    X(stem##_fp32_explicit, image, params)                                                                   \
    X(stem##_fp32_derived, image, params)                                                                    \
    X(stem##_bf16_explicit, image, params)                                                                   \
    X(stem##_bf16_derived, image, params)                                                                    \
    X(stem##_fp16_explicit, image, params)                                                                   \
    X(stem##_fp16_derived, image, params)

/* Every kernel of this library: its name, the stem of the .cu file that it is in, which is its image, and the
 * structure that it takes by value, its only parameter. */
#define GW_CUDA_KERNEL_LIST(X)                                                                               \
    X(gw_device_thc_norm, thc_norm, gw_cuda_thc_norm_params)                                                 \
    X(gw_device_thc_encode, thc_encode, gw_cuda_thc_encode_params)                                           \
    X(gw_device_thc_decode, thc_decode, gw_cuda_thc_decode_params)                                           \
    GW_CUDA_BY_DTYPE(X, gw_device_thc_warp_norm, thc_warp_norm, gw_cuda_thc_norm_params)                     \
    GW_CUDA_BY_DTYPE(X, gw_device_thc_warp_norm_error, thc_warp_norm, gw_cuda_thc_norm_params)               \
    GW_CUDA_BY_DTYPE(X, gw_device_thc_warp_encode, thc_warp_encode, gw_cuda_thc_encode_params)               \
    GW_CUDA_BY_DTYPE(X, gw_device_thc_warp_encode_error, thc_warp_encode, gw_cuda_thc_encode_params)         \
    GW_CUDA_BY_DTYPE(X, gw_device_thc_warp_decode8, thc_warp_decode, gw_cuda_thc_decode_params)              \
    GW_CUDA_BY_DTYPE(X, gw_device_thc_warp_decode16, thc_warp_decode, gw_cuda_thc_decode_params)             \
    X(gw_device_thc_sum_indices, thc_sum, gw_cuda_thc_sum_params)                                            \
    X(gw_device_thc_sum_lanes, thc_sum, gw_cuda_thc_sum_params)                                              \
    X(gw_device_thc_check_lanes, thc_sum, gw_cuda_thc_sum_params)                                            \
    X(gw_device_map_scan, map, gw_cuda_map_params)                                                           \
    X(gw_device_map_build, map, gw_cuda_map_params)                                                          \
    X(gw_device_map_digest, map, gw_cuda_map_digest_params)                                                  \
    X(gw_device_gcomp_check, gcomp_check, gw_gcomp_decode_params)                                            \
    GW_CUDA_BY_DTYPE(X, gw_device_gcomp_decode, gcomp_decode, gw_gcomp_decode_params)                        \
    GW_CUDA_BY_DTYPE(X, gw_device_gcomp_decode_rest, gcomp_decode, gw_gcomp_decode_params)                   \
    X(gw_device_gcomp_sum_store, gcomp_decode, gw_gcomp_decode_params)                                       \
    X(gw_device_gcomp_count, gcomp_codebook, gw_gcomp_encode_params)                                         \
    X(gw_device_gcomp_hop_items, gcomp_codebook, gw_gcomp_hop_params)                                        \
    X(gw_device_gcomp_histogram_items, gcomp_codebook, gw_gcomp_histogram_params)                            \
    GW_CUDA_BY_MODE(X, gw_device_gcomp_codebook, gcomp_codebook, gw_gcomp_encode_params)                     \
    GW_CUDA_BY_MODE(X, gw_device_gcomp_histogram, gcomp_codebook, gw_gcomp_histogram_params)                 \
    X(gw_device_gcomp_codebook_build, gcomp_codebook, gw_gcomp_codebook_build_params)                        \
    X(gw_device_gcomp_quanta, gcomp_quanta, gw_gcomp_encode_params)                                          \
    X(gw_device_gcomp_segments, gcomp_segments, gw_gcomp_segment_params)                                     \
    X(gw_device_gcomp_round, gcomp_segments, gw_gcomp_segment_params)                                        \
    GW_CUDA_BY_MODE(X, gw_device_gcomp_encode, gcomp_encode, gw_gcomp_encode_params)

typedef enum gw_cuda_kernel {
#define GW_CUDA_ENUM(name, image, params) GW_CUDA_KERNEL_##name,
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
