/*
 * Opens arrays, snapshots and state for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic_tensor.h"

#include "dtype_convert.h"

#include <stdlib.h>
#include <string.h>

static void handle_init(classic_tensor *tensor, const classic_request *request)
{
    gw_classic_options options = request->options;
    options.dtype = tensor->in.dtype;
    if (request->residual_path != NULL) {
        options.error_feedback = 1;
    } else if (options.scheme == GW_CLASSIC_TOPK) {
        options.error_feedback = 0; /* others that have it always need it */
    }
    const gw_status status = gw_classic_init(&tensor->classic, &options);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "%s with these options and %s values: %s (%s)",
                    gw_classic_scheme_name(options.scheme), gw_dtype_name(options.dtype),
                    gw_status_message(status), gw_status_name(status));
    }
}

/* An output or a state file must not be one of the input files, nor be named twice. */
static void outputs_check(const classic_tensor *tensor, const classic_request *request)
{
    const char *const outputs[] = {request->common.output, request->residual_path, request->momentum_path};
    for (unsigned i = 0; i < 3; i++) {
        if (outputs[i] != NULL && gw_tensor_source_has_file(&tensor->in, outputs[i])) {
            gw_cli_fail(GW_CLI_USAGE, outputs[i], "is an input file; write the output elsewhere");
        }
        for (unsigned j = 0; j < i; j++) {
            if (outputs[i] != NULL && outputs[j] != NULL && gw_atomic_file_is_same(outputs[i], outputs[j])) {
                gw_cli_fail(GW_CLI_USAGE, outputs[i], "is named twice as an output");
            }
        }
    }
}

void classic_tensor_open(classic_tensor *tensor, const classic_request *request)
{
    memset(tensor, 0, sizeof *tensor);
    gw_tensor_source_open(&tensor->in, request->common.input, request->u2, 0);
    handle_init(tensor, request);
    const uint64_t len = tensor->in.len;
    tensor->step = classic_request_step(request, len);
    const uint32_t arrays = gw_classic_state_arrays(&tensor->classic);
    if ((arrays & GW_CLASSIC_RESIDUAL) != 0) {
        tensor->residual = gw_state_read(request->residual_path, len, "state");
    }
    if ((arrays & GW_CLASSIC_MOMENTUM) != 0) {
        tensor->momentum = gw_state_read(request->momentum_path, len, "state");
    }
    outputs_check(tensor, request);
}

void classic_tensor_close(classic_tensor *tensor)
{
    free(tensor->residual);
    free(tensor->momentum);
    gw_tensor_source_close(&tensor->in);
    memset(tensor, 0, sizeof *tensor);
}
