/*
 * GCOMP operations in the shim, from host arguments: plan, workspace of exactly the size that the plan names, launches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TESTS_CUDA_GCOMP_SHIM_H
#define GW_TESTS_CUDA_GCOMP_SHIM_H

#include "cuda/gcomp_plan.h"
#include "shim_plan.h"

typedef struct gcomp_shim_source {
    const void *frame;
    size_t size;
    const gw_gcomp_map *map;
    const void *addend; /* mode SUM */
} gcomp_shim_source;

/* The frame is copied to aligned memory of its size. */
gw_cuda_result gcomp_shim_decode(const gw_gcomp *codec, const gcomp_shim_source *source, uint32_t mode, void *dst,
                                 uint64_t capacity, uint32_t shared_size_max);

#endif
