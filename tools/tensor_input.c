/*
 * Opens arrays and snapshots for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "tensor_input.h"

#include "cli_common.h"
#include "dtype_convert.h"
#include "rate_run.h"

#include <stdlib.h>
#include <string.h>

/* Values that are converted before their pages are given back. */
#define CONVERT_LEN ((uint64_t)1 << 20)

static int values_convert(gw_tensor_input *tensor, gw_dtype dtype)
{
    if (tensor->in.dtype != GW_FP32) {
        return gw_cli_error(GW_CLI_USAGE, tensor->in.name, "--convert needs fp32 input, this is %s",
                            gw_dtype_name(tensor->in.dtype));
    }
    tensor->converted = malloc((size_t)tensor->in.len * 2 + 1);
    if (tensor->converted == NULL) {
        return gw_cli_error(GW_CLI_IO, tensor->in.name, "out of memory");
    }
    const gw_npy *npy = gw_tensor_source_npy(&tensor->in);
    for (uint64_t i = 0; i < tensor->in.len; i += CONVERT_LEN) {
        const uint64_t len = tensor->in.len - i < CONVERT_LEN ? tensor->in.len - i : CONVERT_LEN;
        gw_dtype_from_fp32(dtype, (const float *)tensor->in.values + i, len, tensor->converted + i);
        gw_npy_release(npy, i, len);
    }
    tensor->in.values = tensor->converted;
    tensor->in.dtype = dtype;
    return GW_CLI_OK;
}

int gw_tensor_input_open(gw_tensor_input *tensor, const char *path, const gw_codec_request *request)
{
    memset(tensor, 0, sizeof *tensor);
    int result = gw_tensor_source_open(&tensor->in, path, request->u2, request->as);
    if (result == GW_CLI_OK && request->convert != 0) {
        result = values_convert(tensor, request->convert);
    }
    if (result == GW_CLI_OK) {
        result = gw_codec_request_init_handle(request, tensor->in.dtype,
                                              tensor->in.is_snapshot ? &tensor->in.snapshot : NULL,
                                              &tensor->codec, &tensor->options);
    }
    if (result != GW_CLI_OK) {
        gw_tensor_input_close(tensor);
    }
    return result;
}

int gw_tensor_input_prepare(gw_tensor_input *tensor, const gw_codec_request *request)
{
    int result = GW_CLI_OK;
    if (tensor->in.is_snapshot && gw_codec_request_uses_map(request)) {
        const gw_map_run_options options = {
            gw_codec_request_limits(request), request->wire_scale, tensor->options.chunk_log2,
            request->common.backends,         request->threads,    0};
        result = gw_map_run_make(&tensor->map, &tensor->in.snapshot, &options);
    }
    memset(&tensor->source, 0, sizeof tensor->source);
    tensor->source.values = tensor->in.values;
    tensor->source.len = tensor->in.len;
    tensor->source.quantum = gw_gcomp_quantum_of_map(tensor->map.levels != NULL ? &tensor->map.map : NULL);
    tensor->source.seed = request->seed;
    tensor->source.first_element = request->first_element;
    tensor->source.step_index = request->step_index;
    tensor->source.rank = request->rank;
    tensor->source.hop = request->hop;
    if (result == GW_CLI_OK && request->target_bits > 0) {
        result = gw_rate_choose(tensor, request->target_bits);
    }
    if (result != GW_CLI_OK) {
        gw_tensor_input_close(tensor);
    }
    return result;
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
    if (tensor->map.levels != NULL) {
        return gw_optimizer_name(tensor->in.snapshot.optimizer.kind);
    }
    return tensor->options.quantum.nmse > 0 ? "nmse" : "constant";
}
