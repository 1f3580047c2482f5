/*
 * What the THC kernels get: one structure by value each. C11 and C++.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_PARAMS_H
#define GW_THC_PARAMS_H

#include <stdint.h>

#include "gradwire/cuda.h"

/* Values of a row: what a thread holds at a time, and what one word of sign bits covers. */
#define GW_THC_ROW         32u
#define GW_THC_THREADS_MAX 256u

/* The kernels of the usual shape, blocks of 1024 values: bytes of shared memory of a warp. Input: as it is,
 * two-byte elements with a gap after each row, or 32 rows of 36 words of its sum with the error. */
#define GW_THC_WARP_ROWS_SIZE  (32u * 36u * 4u)
#define GW_THC_WARP_SIGNS_SIZE (4u * 32u * 4u)
#define GW_THC_WARP_INPUT_SIZE(dtype, has_error)                                                             \
    ((has_error) ? GW_THC_WARP_ROWS_SIZE : (dtype) == GW_FP32 ? 4096u : 2560u)

#define GW_THC_WARP_LANES_SIZE(lane_bits) ((lane_bits) == 8u ? 1152u : 2560u)

/* Grid cells of the quantizer of a granularity, eight bytes each, two tables a block: one a step, or two
 * where the middle of the grid is within one. */
#define GW_THC_WARP_CELLS(granularity)                                                                       \
    (((granularity)&1u) != 0 ? 2u * (granularity) + 1u : (granularity) + 1u)

/* A range of blocks, cut into tiles of GW_THC_ROW values a thread. Positions count the values of the range,
 * all blocks being of full length; a position is also the index of the element, up to element_count. */
typedef struct gw_cuda_thc_span {
    uint64_t first_block; /* number in the tensor */
    uint64_t block_count;
    uint64_t element_count;
    uint64_t lane_count; /* (block_count - 1) << block_log2, and the lanes of the last block */
    uint64_t tile_count;
    uint32_t block_log2;
} gw_cuda_thc_span;

/* The part of a gw_thc that kernels look at. */
typedef struct gw_cuda_thc_context {
    gw_cuda_thc_key key; /* where device_key is NULL */
    const gw_cuda_thc_key *device_key;
    double range_scale; /* half of the grid's range / threshold */
    double step;        /* threshold / granularity */
    uint32_t worker_max;
    uint32_t bits, granularity;
    uint32_t dtype, transform, nonfinite, lane_bits;
    uint8_t table[16];
} gw_cuda_thc_context;

typedef struct gw_cuda_thc_norm_params {
    gw_cuda_thc_span span;
    gw_cuda_thc_context context;
    const uint8_t *src;
    const float *error;
    uint32_t is_aligned; /* src and error may be read in vectors of four elements */
    uint32_t *patterns;
    gw_cuda_result *result;
} gw_cuda_thc_norm_params;

typedef struct gw_cuda_thc_encode_params {
    gw_cuda_thc_span span;
    gw_cuda_thc_context context;
    const uint8_t *src;
    float *error;
    uint32_t is_aligned;
    const uint32_t *own_patterns; /* NULL: to be computed */
    const uint32_t *patterns;
    uint32_t *indices;
    gw_cuda_result *result;
} gw_cuda_thc_encode_params;

typedef struct gw_cuda_thc_decode_params {
    gw_cuda_thc_span span;
    gw_cuda_thc_context context;
    const uint8_t *lanes;
    const uint32_t *members; /* NULL: the count lanes, at `counts` */
    const uint8_t *counts;
    const uint32_t *patterns;
    uint32_t is_mean;
    uint32_t is_aligned; /* dst may be written 16 bytes at a time */
    uint8_t *dst;
    gw_cuda_result *result;
} gw_cuda_thc_decode_params;

/* lanes of `len` values (a multiple of 64) = sum of the sources, plus what they hold if `accumulate`. Then
 * count_len lanes of value 1 and zeros up to a multiple of 4 bytes, if counts is not NULL. */
typedef struct gw_cuda_thc_sum_params {
    uint8_t *lanes;
    uint64_t len;
    uint32_t source_count;
    uint32_t bits, lane_bits, accumulate;
    uint32_t table[4]; /* 16 bytes */
    /* Indices of 4 bits, values below 128, lanes up to 16 bits: how many sources a byte holds; else 0. */
    uint32_t byte_sources;
    uint8_t *counts;
    uint64_t count_len;
    gw_cuda_result *result; /* sums of lanes: what the check found; NULL for indices */
    const uint8_t *source[GW_CUDA_THC_SOURCES_MAX];
    uint32_t limit[GW_CUDA_THC_SOURCES_MAX]; /* the largest valid lane of each source of lanes */
} gw_cuda_thc_sum_params;

#endif
