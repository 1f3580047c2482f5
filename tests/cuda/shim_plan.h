/*
 * Runs a plan of src/cuda in the shim: clears the workspace's range, then launches the kernels by name.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SHIM_PLAN_H
#define GW_SHIM_PLAN_H

#include "cuda/launch.h"
#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

void shim_plan_run(const gw_cuda_plan *plan, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
