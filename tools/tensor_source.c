/*
 * Opens arrays, snapshots and state for encoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "tensor_source.h"

#include "cli_common.h"
#include "cli_output.h"

#include <string.h>
#include <unistd.h>

/* Enough to distinguish frames, arrays and snapshots. */
#define MAGIC_SIZE_MAX 6

static int name_ends(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

void gw_tensor_source_open(gw_tensor_source *source, const char *path, gw_npy_u2 u2, gw_optimizer_kind as)
{
    memset(source, 0, sizeof *source);
    source->name = path;
    gw_input_file input;
    gw_cli_must(gw_input_file_open(&input, path));
    gw_cli_must(gw_input_file_fill(&input, MAGIC_SIZE_MAX));
    if (gw_input_file_is_frame(&input)) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, path, 0, "is a gradwire frame, not an array or a snapshot");
    }
    if (gw_npy_is_npy(&input) || name_ends(path, ".npy")) {
        gw_npy_open_input(&source->npy, &input, u2);
        source->len = source->npy.len;
        if (as != 0) {
            gw_cli_fail(GW_CLI_USAGE, path, "--as needs a snapshot, this is a plain array");
        }
    } else {
        const gw_snapshot_options options = {u2, 1, as};
        gw_snapshot_open_input(&source->snapshot, &input, &options);
        source->is_snapshot = 1;
        source->len = source->snapshot.len;
    }
    const gw_npy *npy = gw_tensor_source_npy(source);
    source->values = npy->values;
    source->dtype = npy->dtype;
}

void gw_tensor_source_close(gw_tensor_source *source)
{
    gw_npy_close(&source->npy);
    gw_snapshot_close(&source->snapshot);
    memset(source, 0, sizeof *source);
}

int gw_tensor_source_has_file(const gw_tensor_source *source, const char *path)
{
    return gw_atomic_file_is_input(path, &source->npy.input) || gw_snapshot_has_file(&source->snapshot, path);
}

const gw_npy *gw_tensor_source_npy(const gw_tensor_source *source)
{
    return source->is_snapshot ? &source->snapshot.array[GW_SNAPSHOT_GRAD] : &source->npy;
}

float *gw_state_read(const char *path, uint64_t len, const char *what)
{
    float *state = gw_cli_alloc_array(len, sizeof *state);
    const size_t size = (size_t)len * sizeof *state;
    memset(state, 0, size);
    if (path == NULL || access(path, F_OK) != 0) {
        return state; /* the first step */
    }
    gw_npy npy;
    gw_npy_open(&npy, path, GW_NPY_U2_REFUSE);
    if (npy.dtype != GW_FP32 || npy.len != len) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "%s must be fp32 of %llu values", what, (unsigned long long)len);
    }
    if (size != 0) {
        memcpy(state, npy.values, size);
    }
    gw_npy_close(&npy);
    return state;
}
