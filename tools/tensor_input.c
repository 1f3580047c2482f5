/*
 * Opens arrays and snapshots for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "tensor_input.h"

#include "atomic_file.h"
#include "cli_common.h"
#include "dtype_convert.h"
#include "rate_run.h"

#include <stdlib.h>
#include <string.h>

/* Enough to distinguish frames, arrays and snapshots. */
#define MAGIC_SIZE_MAX 6

/* Values that are converted before their pages are given back. */
#define CONVERT_LEN ((uint64_t)1 << 20)

static int is_frame(const gw_input_file *input)
{
    static const uint8_t magic[4] = {0x67, 0x57, 0x66, 0x1a};
    return input->size >= sizeof magic && memcmp(input->data, magic, sizeof magic) == 0;
}

static int name_ends(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

static int source_open(gw_tensor_input *tensor, const char *path, const gw_codec_request *request)
{
    gw_input_file input;
    int result = gw_input_file_open(&input, path);
    if (result == GW_CLI_OK) {
        result = gw_input_file_fill(&input, MAGIC_SIZE_MAX);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    if (is_frame(&input)) {
        gw_input_file_close(&input);
        return gw_cli_error_at(GW_CLI_BAD_DATA, path, 0, "is a gradwire frame, not an array or a snapshot");
    }
    if (gw_npy_is_npy(&input) || name_ends(path, ".npy")) {
        result = gw_npy_open_input(&tensor->npy, &input, request->u2);
        tensor->values = tensor->npy.values;
        tensor->len = tensor->npy.len;
        tensor->dtype = tensor->npy.dtype;
        if (result == GW_CLI_OK && request->as != 0) {
            return gw_cli_error(GW_CLI_USAGE, path, "--as needs a snapshot, this is a plain array");
        }
        return result;
    }
    gw_snapshot_options options = {request->u2, 1, request->as};
    result = gw_snapshot_open_input(&tensor->snapshot, &input, &options);
    tensor->is_snapshot = 1;
    tensor->values = tensor->snapshot.array[GW_SNAPSHOT_GRAD].values;
    tensor->len = tensor->snapshot.len;
    tensor->dtype = tensor->snapshot.array[GW_SNAPSHOT_GRAD].dtype;
    return result;
}

static int values_convert(gw_tensor_input *tensor, gw_dtype dtype)
{
    if (tensor->dtype != GW_FP32) {
        return gw_cli_error(GW_CLI_USAGE, tensor->name, "--convert needs fp32 input, this is %s",
                            gw_dtype_name(tensor->dtype));
    }
    tensor->converted = malloc((size_t)tensor->len * 2 + 1);
    if (tensor->converted == NULL) {
        return gw_cli_error(GW_CLI_IO, tensor->name, "out of memory");
    }
    const gw_npy *npy = tensor->is_snapshot ? &tensor->snapshot.array[GW_SNAPSHOT_GRAD] : &tensor->npy;
    for (uint64_t i = 0; i < tensor->len; i += CONVERT_LEN) {
        const uint64_t len = tensor->len - i < CONVERT_LEN ? tensor->len - i : CONVERT_LEN;
        gw_dtype_from_fp32(dtype, (const float *)tensor->values + i, len, tensor->converted + i);
        gw_npy_release(npy, i, len);
    }
    tensor->values = tensor->converted;
    tensor->dtype = dtype;
    return GW_CLI_OK;
}

int gw_tensor_input_open(gw_tensor_input *tensor, const char *path, const gw_codec_request *request)
{
    memset(tensor, 0, sizeof *tensor);
    tensor->name = path;
    int result = source_open(tensor, path, request);
    if (result == GW_CLI_OK && request->convert != 0) {
        result = values_convert(tensor, request->convert);
    }
    if (result == GW_CLI_OK) {
        result = gw_codec_request_init_handle(request, tensor->dtype,
                                              tensor->is_snapshot ? &tensor->snapshot : NULL, &tensor->codec,
                                              &tensor->options);
    }
    if (result != GW_CLI_OK) {
        gw_tensor_input_close(tensor);
    }
    return result;
}

int gw_tensor_input_prepare(gw_tensor_input *tensor, const gw_codec_request *request)
{
    int result = GW_CLI_OK;
    if (tensor->is_snapshot && gw_codec_request_uses_map(request)) {
        const gw_map_run_options options = {gw_codec_request_limits(request), request->wire_scale,
                                            tensor->options.chunk_log2, request->backends, request->threads};
        result = gw_map_run_make(&tensor->map, &tensor->snapshot, &options);
    }
    memset(&tensor->source, 0, sizeof tensor->source);
    tensor->source.values = tensor->values;
    tensor->source.len = tensor->len;
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
    gw_npy_close(&tensor->npy);
    gw_snapshot_close(&tensor->snapshot);
    memset(tensor, 0, sizeof *tensor);
}

int gw_tensor_input_has_file(const gw_tensor_input *tensor, const char *path)
{
    return gw_atomic_file_is_input(path, &tensor->npy.input) || gw_snapshot_has_file(&tensor->snapshot, path);
}

const char *gw_tensor_input_map_name(const gw_tensor_input *tensor)
{
    if (tensor->map.levels != NULL) {
        return gw_optimizer_name(tensor->snapshot.optimizer.kind);
    }
    return tensor->options.quantum.nmse > 0 ? "nmse" : "constant";
}
