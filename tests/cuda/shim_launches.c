/* SPDX-License-Identifier: BSD-2-Clause */
#include "shim_launches.h"

#include <stdio.h>
#include <stdlib.h>

extern const gw_shim_kernel gw_shim_kernels_gcomp_check[], gw_shim_kernels_gcomp_decode[],
    gw_shim_kernels_gcomp_codebook[], gw_shim_kernels_gcomp_quanta[], gw_shim_kernels_gcomp_segments[],
    gw_shim_kernels_gcomp_encode[];

static const char *const kernel_names[] = {
#define KERNEL_NAME(name, image) #name,
    GW_CUDA_KERNEL_LIST(KERNEL_NAME)
#undef KERNEL_NAME
};

void shim_launches_run(const gw_cuda_launches *launches, void *workspace)
{
    const gw_shim_kernel *const tables[] = {gw_shim_kernels_gcomp_check,    gw_shim_kernels_gcomp_decode,
                                            gw_shim_kernels_gcomp_codebook, gw_shim_kernels_gcomp_quanta,
                                            gw_shim_kernels_gcomp_segments, gw_shim_kernels_gcomp_encode};
    memset((uint8_t *)workspace + launches->zero_offset, 0, launches->zero_size);
    for (uint32_t i = 0; i < launches->launch_count; i++) {
        const gw_cuda_launch *launch = &launches->launch[i];
        const gw_shim_kernel *kernel = NULL;
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
            for (const gw_shim_kernel *k = tables[t]; k->name != NULL; k++) {
                kernel = strcmp(k->name, kernel_names[launch->kernel]) == 0 ? k : kernel;
            }
        }
        if (kernel == NULL || kernel->params_size != launch->params_size) {
            fprintf(stderr, "launches: kernel %s\n", kernel_names[launch->kernel]);
            exit(2);
        }
        gw_shim_launch(kernel->run, launch->params, launch->grid, launch->block, launch->shared_size, 0);
    }
}
