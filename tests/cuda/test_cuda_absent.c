/*
 * gw_cuda_init() of the library as it is installed, on the machine as it is: where there is no driver or no
 * kernels it returns that status, every later call returns GW_ERR_STATE, and the rest of the library works.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <string.h>

#include "gradwire/cuda.h"

int main(void)
{
    gw_cuda cuda;
    gw_cuda_info info;
    uint8_t map_bytes[16] = {0};
    uint32_t digest = 0;
    memset(&cuda, 0x5a, sizeof cuda);
    const gw_status status = gw_cuda_init(&cuda);

    printf("kernels in this library: %s; gw_cuda_init: %s (%s)\n", gw_cuda_is_built() ? "yes" : "no",
           gw_status_name(status), gw_status_message(status));
    if (status == GW_OK) {
        gw_cuda_close(&cuda);
        return 0;
    }
    if (!gw_cuda_is_built() && status != GW_ERR_NO_CUDA_BUILD) {
        return 1;
    }
    if (gw_cuda_is_built() && status != GW_ERR_NO_DRIVER && status != GW_ERR_NO_DEVICE &&
        status != GW_ERR_STATE && status != GW_ERR_NO_IMAGE) {
        return 1;
    }
    if (gw_cuda_device_info(&cuda, &info) != GW_ERR_STATE || info.multiprocessor_count != 0 ||
        gw_cuda_gcomp_map_digest(&cuda, map_bytes, sizeof map_bytes, 12, &digest, NULL) != GW_ERR_STATE) {
        return 1;
    }
    gw_cuda_close(&cuda);
    return gw_gcomp_map_digest(map_bytes, sizeof map_bytes, 12, &digest) == GW_OK && digest != 0 ? 0 : 1;
}
