/*
 * Opens arrays and snapshots for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "tensor_input.h"

#include "cli_output.h"
#include "dtype_convert.h"

#include <stdlib.h>
#include <string.h>

/* Values that are converted before their pages are given back. */
#define CONVERT_LEN ((uint64_t)1 << 20)

static void values_convert(gw_tensor_input *tensor, gw_dtype dtype)
{
    if (tensor->in.dtype != GW_FP32) {
        gw_cli_fail(GW_CLI_USAGE, tensor->in.name, "--convert needs fp32 input, this is %s",
                    gw_dtype_name(tensor->in.dtype));
    }
    tensor->converted = gw_cli_alloc_array(tensor->in.len, sizeof *tensor->converted);
    const gw_npy *npy = gw_tensor_source_npy(&tensor->in);
    for (uint64_t i = 0; i < tensor->in.len; i += CONVERT_LEN) {
        const uint64_t len = tensor->in.len - i < CONVERT_LEN ? tensor->in.len - i : CONVERT_LEN;
        gw_dtype_from_fp32(dtype, (const float *)tensor->in.values + i, len, tensor->converted + i);
        gw_npy_release(npy, i, len);
    }
    tensor->in.values = tensor->converted;
    tensor->in.dtype = dtype;
}

void gw_tensor_input_open(gw_tensor_input *tensor, const gw_codec_request *request)
{
    memset(tensor, 0, sizeof *tensor);
    gw_tensor_source_open(&tensor->in, request->common.input, request->u2, request->as);
    if (request->convert != 0) {
        values_convert(tensor, request->convert);
    }
    gw_codec_request_init_handle(request, tensor->in.dtype,
                                 tensor->in.is_snapshot ? &tensor->in.snapshot : NULL, &tensor->codec,
                                 &tensor->options);
}

void gw_rate_run(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind, const gw_gcomp *codec,
                 const gw_gcomp_source *source, const char *name)
{
    const gw_workspace workspace = gw_cli_alloc_workspace(gw_gcomp_workspace_size(codec));
    gw_cli_progress_begin("rate");
    gw_status status = gw_gcomp_rate_init(rate, kind);
    if (status == GW_OK) {
        status = gw_gcomp_rate_add(rate, codec, source, &workspace);
    }
    gw_cli_progress_end();
    free(workspace.data);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, name, "rate: %s (%s)", gw_status_message(status), gw_status_name(status));
    }
}

/* The largest tolerance with at most target_bits bits a value by the prediction. */
static void rate_choose(gw_tensor_input *tensor, double target_bits)
{
    gw_gcomp_rate rate;
    gw_rate_run(&rate, GW_GCOMP_RATE_TOLERANCE, &tensor->codec, &tensor->source, tensor->in.name);
    const uint64_t size_max = (uint64_t)(target_bits * (double)tensor->in.len / 8);
    if (gw_gcomp_rate_tolerance(&rate, size_max, &tensor->options.tolerance_bits) != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, tensor->in.name,
                    "--target-bits: the smallest frame needs %.4f bits a value",
                    8 * (double)gw_gcomp_rate_size(&rate, 0) / (double)tensor->in.len);
    }
    tensor->target_bits = target_bits;
    tensor->predicted_size = gw_gcomp_rate_size(&rate, tensor->options.tolerance_bits - 1);
    const gw_status status = gw_gcomp_init(&tensor->codec, &tensor->options);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, tensor->in.name, "%s", gw_status_message(status));
    }
}

void gw_tensor_input_prepare(gw_tensor_input *tensor, const gw_codec_request *request)
{
    if (tensor->in.is_snapshot && gw_codec_request_uses_map(request)) {
        const gw_map_run_options options = {
            gw_codec_request_limits(request), request->wire_scale, tensor->options.chunk_log2,
            request->common.backends,         request->threads,    0};
        gw_map_run_make(&tensor->map, &tensor->in.snapshot, &options);
    }
    memset(&tensor->source, 0, sizeof tensor->source);
    tensor->source.values = tensor->in.values;
    tensor->source.len = tensor->in.len;
    tensor->source.quantum = gw_gcomp_quantum_of_map(tensor->map.bytes != NULL ? &tensor->map.map : NULL);
    tensor->source.seed = request->seed;
    tensor->source.first_element = request->first_element;
    tensor->source.step_index = request->step_index;
    tensor->source.rank = request->rank;
    tensor->source.hop = request->hop;
    if (request->target_bits > 0) {
        rate_choose(tensor, request->target_bits);
    }
}

void gw_tensor_input_close(gw_tensor_input *tensor)
{
    gw_map_run_free(&tensor->map);
    free(tensor->converted);
    gw_tensor_source_close(&tensor->in);
    memset(tensor, 0, sizeof *tensor);
}

const char *gw_tensor_input_map_name(const gw_tensor_input *tensor)
{
    if (tensor->map.bytes != NULL) {
        return gw_optimizer_name(tensor->in.snapshot.optimizer.kind);
    }
    return tensor->options.quantum.nmse > 0 ? "nmse" : "constant";
}
