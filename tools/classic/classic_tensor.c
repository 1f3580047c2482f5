/*
 * Opens arrays, snapshots and state for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic_tensor.h"

#include "dtype_convert.h"

#include <stdlib.h>
#include <string.h>

static int handle_init(classic_tensor *tensor, const classic_request *request)
{
    gw_classic_options options = request->options;
    options.dtype = tensor->in.dtype;
    if (request->residual_path != NULL) {
        options.error_feedback = 1;
    } else if (options.scheme == GW_CLASSIC_TOPK) {
        options.error_feedback = 0; /* others that have it always need it */
    }
    const gw_status status = gw_classic_init(&tensor->classic, &options);
    if (status == GW_OK) {
        return GW_CLI_OK;
    }
    return gw_cli_error(GW_CLI_USAGE, NULL, "%s with these options and %s values: %s (%s)",
                        gw_classic_scheme_name(options.scheme), gw_dtype_name(options.dtype),
                        gw_status_message(status), gw_status_name(status));
}

int classic_tensor_open(classic_tensor *tensor, const classic_request *request)
{
    const char *path = request->common.input;
    memset(tensor, 0, sizeof *tensor);
    int code = gw_tensor_source_open(&tensor->in, path, request->u2, 0);
    const uint64_t len = tensor->in.len;
    if (code == GW_CLI_OK) {
        code = handle_init(tensor, request);
    }
    if (code == GW_CLI_OK) {
        code = classic_request_step(request, path, len, &tensor->step);
    }
    const uint32_t arrays = gw_classic_state_arrays(&tensor->classic);
    if (code == GW_CLI_OK && (arrays & GW_CLASSIC_RESIDUAL) != 0) {
        code = gw_state_read(request->residual_path, len, "state", &tensor->residual);
    }
    if (code == GW_CLI_OK && (arrays & GW_CLASSIC_MOMENTUM) != 0) {
        code = gw_state_read(request->momentum_path, len, "state", &tensor->momentum);
    }
    if (code != GW_CLI_OK) {
        classic_tensor_close(tensor);
    }
    return code;
}

int classic_tensor_save_state(const classic_tensor *tensor, const classic_request *request)
{
    int code = GW_CLI_OK;
    if (request->residual_path != NULL) {
        code = gw_npy_save(request->residual_path, GW_FP32, tensor->residual, tensor->step.len);
    }
    if (code == GW_CLI_OK && request->momentum_path != NULL) {
        code = gw_npy_save(request->momentum_path, GW_FP32, tensor->momentum, tensor->step.len);
    }
    return code;
}

void classic_tensor_close(classic_tensor *tensor)
{
    free(tensor->residual);
    free(tensor->momentum);
    gw_tensor_source_close(&tensor->in);
    memset(tensor, 0, sizeof *tensor);
}

static int is_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && gw_atomic_file_is_same(a, b);
}

int classic_tensor_check_outputs(const classic_tensor *tensor, const classic_request *request)
{
    const char *const outputs[] = {request->common.output, request->residual_path, request->momentum_path};
    for (unsigned i = 0; i < 3; i++) {
        if (outputs[i] != NULL && gw_tensor_source_has_file(&tensor->in, outputs[i])) {
            return gw_cli_error(GW_CLI_USAGE, outputs[i], "is an input file; write the output elsewhere");
        }
        for (unsigned j = 0; j < i; j++) {
            if (is_same(outputs[i], outputs[j])) {
                return gw_cli_error(GW_CLI_USAGE, outputs[i], "is named twice as an output");
            }
        }
    }
    return GW_CLI_OK;
}
