/*
 * Parameters of the precision map's kernels. C11 and C++.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MAP_PARAMS_H
#define GW_MAP_PARAMS_H

#include <stdint.h>

#include "gradwire/gcomp.h"

#define GW_CUDA_MAP_THREADS   256u
#define GW_CUDA_MAP_BUILD_LEN (16u * GW_CUDA_MAP_THREADS) /* values of a block of threads */

typedef struct gw_cuda_map_params {
    gw_gcomp_map_rule rule; /* where device_rule is NULL */
    const gw_gcomp_map_rule *device_rule;
    gw_optimizer_state state;
    uint64_t len;
    uint32_t is_aligned; /* the arrays may be read in vectors of four elements */
    uint32_t *top;       /* scan: the result, cleared; build: read */
    uint8_t *map_bytes;
    uint32_t *base;
} gw_cuda_map_params;

typedef struct gw_cuda_map_digest_params {
    const uint8_t *map_bytes;
    uint64_t len;
    uint32_t chunk_log2;
    uint32_t *digest;
} gw_cuda_map_digest_params;

#endif
