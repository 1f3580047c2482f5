/*
 * Arrays of workers and their error-feedback state.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_array.h"

#include <stdlib.h>
#include <string.h>

#include "cli_output.h"

int thc_array_open(thc_array *array, const thc_request *request)
{
    memset(array, 0, sizeof *array);
    array->state_path = request->state_path;
    int code = gw_tensor_source_open(&array->in, request->common.input, request->u2, 0);
    const char *const outputs[2] = {request->common.output, request->state_path};
    for (int i = 0; i < 2 && code == GW_CLI_OK; i++) {
        if (outputs[i] != NULL && gw_tensor_source_has_file(&array->in, outputs[i])) {
            code = gw_cli_error(GW_CLI_USAGE, outputs[i], "is an input file; write the output elsewhere");
        }
    }
    if (code == GW_CLI_OK) {
        code = thc_request_init_handle(request, array->in.dtype, array->state_path != NULL, &array->thc);
    }
    if (code == GW_CLI_OK && array->state_path != NULL) {
        code = gw_state_read(array->state_path, array->in.len, "error state", &array->error);
    }
    if (code != GW_CLI_OK) {
        thc_array_close(array);
        return code;
    }
    array->range.len = array->in.len;
    array->range.block_count = gw_thc_block_count(&array->thc, array->in.len);
    array->range.round = request->round;
    array->range.rank = request->rank;
    return GW_CLI_OK;
}

int thc_array_norms(const thc_array *array, uint32_t **patterns, size_t *pattern_count)
{
    const gw_thc_source source = {.values = array->in.values, .error = array->error};
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
    return thc_fail(array->in.name, status, bad);
}

int thc_array_save_state(const thc_array *array)
{
    return array->error != NULL ? gw_npy_save(array->state_path, GW_FP32, array->error, array->in.len)
                                : GW_CLI_OK;
}

void thc_array_close(thc_array *array)
{
    free(array->error);
    gw_tensor_source_close(&array->in);
    memset(array, 0, sizeof *array);
}
