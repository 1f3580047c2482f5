/* The table of all kernels. SPDX-License-Identifier: BSD-2-Clause */
#include "shim.h"

#include "cuda/gcomp_params.h"
#include "cuda/launch.h"
#include "cuda/map_params.h"
#include "cuda/thc_params.h"

#define GW_SHIM_DECLARE(name, image, params) void name##_run(const void *gw_p);
GW_CUDA_KERNEL_LIST(GW_SHIM_DECLARE)
#undef GW_SHIM_DECLARE

const gw_shim_kernel gw_shim_kernels[] = {
#define GW_SHIM_ENTRY(name, image, params) {#name, #image, sizeof(params), name##_run},
    GW_CUDA_KERNEL_LIST(GW_SHIM_ENTRY)
#undef GW_SHIM_ENTRY
};
