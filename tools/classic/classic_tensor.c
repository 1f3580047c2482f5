/*
 * Opens arrays, snapshots and state for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic_tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int name_ends(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

static int source_open(classic_tensor *tensor, const char *path, gw_npy_u2 u2, uint64_t *len)
{
    static const uint8_t magic[4] = {0x67, 0x57, 0x66, 0x1a};
    gw_input_file input;
    int code = gw_input_file_open(&input, path);
    if (code == GW_CLI_OK) {
        code = gw_input_file_fill(&input, 6); /* what distinguishes frames, arrays and snapshots */
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    if (input.size >= sizeof magic && memcmp(input.data, magic, sizeof magic) == 0) {
        gw_input_file_close(&input);
        return gw_cli_error_at(GW_CLI_BAD_DATA, path, 0, "is a gradwire frame, not an array or a snapshot");
    }
    if (gw_npy_is_npy(&input) || name_ends(path, ".npy")) {
        code = gw_npy_open_input(&tensor->npy, &input, u2);
        tensor->values = tensor->npy.values;
        tensor->dtype = tensor->npy.dtype;
        *len = tensor->npy.len;
        return code;
    }
    const gw_snapshot_options options = {u2, 1, 0};
    code = gw_snapshot_open_input(&tensor->snapshot, &input, &options);
    tensor->is_snapshot = 1;
    tensor->values = tensor->snapshot.array[GW_SNAPSHOT_GRAD].values;
    tensor->dtype = tensor->snapshot.array[GW_SNAPSHOT_GRAD].dtype;
    *len = tensor->snapshot.len;
    return code;
}

static int handle_init(classic_tensor *tensor, const classic_request *request)
{
    gw_classic_options options = request->options;
    options.dtype = tensor->dtype;
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

/* State from a file, zeros if it is absent or not named. */
static int state_read(const char *path, uint64_t len, float **state)
{
    *state = classic_alloc(len, sizeof **state);
    if (*state == NULL) {
        return GW_CLI_IO;
    }
    const size_t size = (size_t)len * sizeof **state;
    memset(*state, 0, size);
    if (path == NULL || access(path, F_OK) != 0) {
        return GW_CLI_OK; /* the first step */
    }
    gw_npy npy;
    int code = gw_npy_open(&npy, path, GW_NPY_U2_REFUSE);
    if (code != GW_CLI_OK) {
        return code;
    }
    if (npy.dtype != GW_FP32 || npy.len != len) {
        code =
            gw_cli_error(GW_CLI_BAD_DATA, path, "state must be fp32 of %llu values", (unsigned long long)len);
    } else if (size != 0) {
        memcpy(*state, npy.values, size);
    }
    gw_npy_close(&npy);
    return code;
}

int classic_tensor_open(classic_tensor *tensor, const char *path, const classic_request *request)
{
    uint64_t len = 0;
    memset(tensor, 0, sizeof *tensor);
    tensor->name = path;
    int code = source_open(tensor, path, request->u2, &len);
    if (code == GW_CLI_OK) {
        code = handle_init(tensor, request);
    }
    if (code == GW_CLI_OK) {
        code = classic_request_step(request, path, len, &tensor->step);
    }
    const uint32_t arrays = gw_classic_state_arrays(&tensor->classic);
    if (code == GW_CLI_OK && (arrays & GW_CLASSIC_RESIDUAL) != 0) {
        code = state_read(request->residual_path, len, &tensor->residual);
    }
    if (code == GW_CLI_OK && (arrays & GW_CLASSIC_MOMENTUM) != 0) {
        code = state_read(request->momentum_path, len, &tensor->momentum);
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
    gw_npy_close(&tensor->npy);
    gw_snapshot_close(&tensor->snapshot);
    memset(tensor, 0, sizeof *tensor);
}

static int is_input(const classic_tensor *tensor, const char *path)
{
    return path != NULL && (gw_atomic_file_is_input(path, &tensor->npy.input) ||
                            gw_snapshot_has_file(&tensor->snapshot, path));
}

static int is_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && gw_atomic_file_is_same(a, b);
}

int classic_tensor_check_output(const classic_tensor *tensor, const classic_request *request,
                                const char *path)
{
    const char *const outputs[] = {path, request->residual_path, request->momentum_path};
    for (unsigned i = 0; i < 3; i++) {
        if (is_input(tensor, outputs[i])) {
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
