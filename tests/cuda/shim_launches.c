/* SPDX-License-Identifier: BSD-2-Clause */
#include "shim_launches.h"

#include <stdio.h>
#include <stdlib.h>

void shim_launches_run(const gw_cuda_launches *launches, void *workspace)
{
    memset((uint8_t *)workspace + launches->zero_offset, 0, launches->zero_size);
    for (uint32_t i = 0; i < launches->launch_count; i++) {
        const gw_cuda_launch *launch = &launches->launch[i];
        const gw_shim_kernel *kernel = &gw_shim_kernels[launch->kernel];
        if (kernel->params_size != launch->params_size) {
            fprintf(stderr, "launches: kernel %s\n", kernel->name);
            exit(2);
        }
        gw_shim_launch(kernel->run, launch->params, launch->grid, launch->block, launch->shared_size, 0);
    }
}
