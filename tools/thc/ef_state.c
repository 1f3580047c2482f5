/*
 * Reading and writing error-feedback state.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "ef_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "thc_options.h"

float *ef_state_read(const char *path, uint64_t len, int *code)
{
    gw_npy npy;
    float *error = NULL;

    *code = GW_CLI_IO;
    if (len > SIZE_MAX / sizeof *error || (error = thc_alloc((size_t)len * sizeof *error)) == NULL) {
        return NULL;
    }
    memset(error, 0, (size_t)len * sizeof *error);
    if (access(path, F_OK) != 0) {
        *code = GW_CLI_OK; /* the first step */
        return error;
    }
    *code = gw_npy_open(&npy, path, GW_NPY_U2_REFUSE);
    if (*code == GW_CLI_OK) {
        if (npy.dtype != GW_FP32 || npy.len != len) {
            *code = gw_cli_error(GW_CLI_BAD_DATA, path, "error state must be fp32 of %llu values",
                                 (unsigned long long)len);
        } else {
            memcpy(error, npy.values, (size_t)len * sizeof *error);
        }
        gw_npy_close(&npy);
    }
    if (*code != GW_CLI_OK) {
        free(error);
        error = NULL;
    }
    return error;
}

int ef_state_write(const char *path, const float *error, uint64_t len)
{
    return gw_npy_save(path, GW_FP32, error, len);
}
