/*
 * gradwire classic norms: the block norms of an array, or the maxima of several norm files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "classic_tensor.h"
#include "cli_output.h"

#include <stdlib.h>
#include <string.h>

/* --scheme is not needed then, so that one is set. */
static void max_parse(struct argp_state *state, const gw_option *option, const char *text, void *is_max)
{
    classic_request *request = (classic_request *)((char *)is_max - offsetof(classic_request, is_max));
    (void)state;
    (void)option;
    (void)text;
    request->is_max = 1;
    request->options.scheme = GW_CLASSIC_QSGD;
}

static const gw_option norms_options[] = {
    GW_OUTPUT_ROW("NORMS.npy", "The norms to write, fp32; - is standard output"),
    {"max", NULL, "The inputs are norms of the ranks: write their maxima (no --scheme needed)",
     GW_OTHER(classic_request, is_max, max_parse)},
    {0},
};

static void norms_end(struct argp_state *state, void *input)
{
    const classic_request *request = input;
    if (!request->is_max && request->common.input_count > 1) {
        argp_error(state, "one array at a time; --max merges norms");
    } else if (!request->is_max && !classic_has_norms(request->options.scheme)) {
        argp_error(state, "--scheme: only qsgd and terngrad have norms");
    }
}

static const gw_command_line norms_line = {
    "IN --scheme NAME -o NORMS.npy\n--max A.npy B.npy ... -o NORMS.npy",
    "Write the norm of every block (qsgd, terngrad), or the maxima over the ranks, for compress --norms: "
    "frames with the same norms can be added.",
    GW_INPUTS,
    {.options = norms_options, .end = norms_end},
    {{"Encoding:", &classic_encode_group, NULL}},
};

/* The norms of one array. The state is read, not changed. */
static void norms_of_tensor(const classic_request *request)
{
    static classic_tensor tensor;
    classic_tensor_open(&tensor, request);
    const uint64_t count = gw_classic_block_count(&tensor.classic, tensor.step.len);
    float *norms = gw_cli_alloc_array(count, sizeof *norms);
    const gw_workspace workspace =
        gw_cli_alloc_workspace(gw_classic_workspace_size(&tensor.classic, &tensor.step));
    const gw_classic_source source = {tensor.in.values, tensor.residual, tensor.momentum, NULL};
    classic_must(request->common.input,
                 gw_classic_norms(&tensor.classic, &tensor.step, &source, norms, &workspace));
    gw_npy_save(request->common.output, GW_FP32, norms, count);
    free(norms);
    free(workspace.data);
    classic_tensor_close(&tensor);
}

/* The larger of `maxima` and the file's norms; NULL: a copy of these. */
static float *norms_merge(const char *path, float *maxima, uint64_t *count)
{
    gw_npy npy;
    gw_npy_open(&npy, path, GW_NPY_U2_REFUSE);
    if (npy.dtype != GW_FP32 || (maxima != NULL && npy.len != *count)) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "norms must be fp32 of the same number of blocks");
    }
    if (maxima == NULL) {
        *count = npy.len;
        maxima = gw_cli_alloc_array(npy.len, sizeof *maxima);
        memset(maxima, 0, (size_t)npy.len * sizeof *maxima);
    }
    const float *norms = npy.values;
    for (uint64_t i = 0; i < npy.len; i++) {
        if (!(norms[i] >= 0)) {
            gw_cli_fail(GW_CLI_BAD_DATA, path, "norm %llu is not a number of at least 0",
                        (unsigned long long)i);
        }
        maxima[i] = norms[i] > maxima[i] ? norms[i] : maxima[i];
    }
    gw_npy_close(&npy);
    return maxima;
}

static void norms_of_files(const gw_request *request)
{
    float *maxima = NULL;
    uint64_t count = 0;
    gw_cli_check_inputs(request);
    for (int i = 0; i < request->input_count; i++) {
        maxima = norms_merge(request->inputs[i], maxima, &count);
    }
    gw_npy_save(request->output, GW_FP32, maxima, count);
    free(maxima);
}

int gw_cmd_classic_norms(int argc, char **argv)
{
    classic_request *request = (classic_request *)classic_request_defaults();
    gw_command_line_parse(&norms_line, argc, argv, request);
    if (request->is_max) {
        norms_of_files(&request->common);
    } else {
        norms_of_tensor(request);
    }
    return GW_CLI_OK;
}
