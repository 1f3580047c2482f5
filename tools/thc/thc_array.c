/*
 * Arrays of workers and their error-feedback state.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_array.h"

#include <stdlib.h>
#include <string.h>

#include "cli_output.h"

void thc_array_open(thc_array *array, const thc_request *request)
{
    const char *const outputs[2] = {request->common.output, request->state_path};
    memset(array, 0, sizeof *array);
    array->state_path = request->state_path;
    gw_tensor_source_open(&array->in, request->common.input, request->u2, 0);
    for (int i = 0; i < 2; i++) {
        if (outputs[i] != NULL && gw_tensor_source_has_file(&array->in, outputs[i])) {
            gw_cli_fail(GW_CLI_USAGE, outputs[i], "is an input file; write the output elsewhere");
        }
    }
    thc_request_init_handle(request, array->in.dtype, &array->thc);
    if (array->state_path != NULL) {
        array->error = gw_state_read(array->state_path, array->in.len, "error state");
    }
    array->range.len = array->in.len;
    array->range.block_count = gw_thc_block_count(&array->thc, array->in.len);
    array->range.round = request->round;
    array->range.rank = request->rank;
}

uint32_t *thc_array_norms(const thc_array *array, size_t *pattern_count)
{
    const gw_thc_source source = {.values = array->in.values, .error = array->error};
    uint64_t bad = UINT64_MAX;
    *pattern_count = (size_t)array->range.block_count * gw_thc_patterns_per_block(&array->thc);
    uint32_t *patterns = gw_cli_alloc_array(*pattern_count, sizeof *patterns);
    const gw_status status =
        gw_thc_norms(&array->thc, &array->range, &source, patterns, &bad, thc_workspace());
    thc_must(array->in.name, status, bad);
    return patterns;
}

void thc_array_close(thc_array *array)
{
    free(array->error);
    gw_tensor_source_close(&array->in);
    memset(array, 0, sizeof *array);
}
