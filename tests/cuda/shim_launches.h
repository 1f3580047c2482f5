/*
 * Runs launches of src/cuda in the shim: clears the workspace's range, then launches the kernels by name.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SHIM_LAUNCHES_H
#define GW_SHIM_LAUNCHES_H

#include "cuda/launch.h"
#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

void shim_launches_run(const gw_cuda_launches *launches, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
