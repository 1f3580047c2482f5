/*
 * Arrays of workers and their error-feedback state.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_array.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state in array->error. */
static int read_state(thc_array *array)
{
    const uint64_t len = array->npy.len;
    gw_npy npy;

    if (len > SIZE_MAX / sizeof *array->error ||
        (array->error = gw_cli_alloc((size_t)len * sizeof *array->error)) == NULL) {
        return GW_CLI_IO;
    }
    memset(array->error, 0, (size_t)len * sizeof *array->error);
    if (access(array->state_path, F_OK) != 0) {
        return GW_CLI_OK; /* the first step */
    }
    int code = gw_npy_open(&npy, array->state_path, GW_NPY_U2_REFUSE);
    if (code != GW_CLI_OK) {
        return code;
    }
    if (npy.dtype != GW_FP32 || npy.len != len) {
        code = gw_cli_error(GW_CLI_BAD_DATA, array->state_path, "error state must be fp32 of %llu values",
                            (unsigned long long)len);
    } else {
        memcpy(array->error, npy.values, (size_t)len * sizeof *array->error);
    }
    gw_npy_close(&npy);
    return code;
}

int thc_array_open(thc_array *array, const char *path, gw_npy_u2 u2, const char *state_path,
                   const thc_request *request)
{
    memset(array, 0, sizeof *array);
    array->path = path;
    array->state_path = state_path;
    int code = gw_npy_open(&array->npy, path, u2);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = thc_request_init_handle(request, array->npy.dtype, state_path != NULL, &array->thc);
    if (code == GW_CLI_OK && state_path != NULL) {
        code = read_state(array);
    }
    if (code != GW_CLI_OK) {
        thc_array_close(array);
        return code;
    }
    array->range.len = array->npy.len;
    array->range.block_count = gw_thc_block_count(&array->thc, array->npy.len);
    array->range.round = request->round;
    array->range.rank = request->rank;
    return GW_CLI_OK;
}

int thc_array_norms(const thc_array *array, uint32_t **patterns, size_t *pattern_count)
{
    const gw_thc_source source = {.values = array->npy.values, .error = array->error};
    uint64_t bad;

    *pattern_count = (size_t)array->range.block_count * gw_thc_patterns_per_block(&array->thc);
    *patterns = gw_cli_alloc(*pattern_count * sizeof **patterns);
    if (*patterns == NULL) {
        return GW_CLI_IO;
    }
    gw_status status = gw_thc_norms(&array->thc, &array->range, &source, *patterns, &bad, thc_workspace());
    if (status == GW_OK) {
        return GW_CLI_OK;
    }
    free(*patterns);
    *patterns = NULL;
    return thc_fail(array->path, status, bad);
}

int thc_array_save_state(const thc_array *array)
{
    return array->error != NULL ? gw_npy_save(array->state_path, GW_FP32, array->error, array->npy.len)
                                : GW_CLI_OK;
}

void thc_array_close(thc_array *array)
{
    free(array->error);
    gw_npy_close(&array->npy);
}
