/*
 * gradwire classic norms: the block norms of an array, or the maxima of several norm files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_classic.h"
#include "cli_output.h"

#include "classic_tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct norms_arguments {
    classic_request request;
    const char *output;
    int is_max;
    char **inputs;
    int input_count;
} norms_arguments;

enum { KEY_MAX = 0x400 };

static const struct argp_option norms_options[] = {
    {"output", 'o', "NORMS.npy", 0, "The norms to write, fp32; - is standard output", 0},
    {"max", KEY_MAX, NULL, 0, "The inputs are norms of the ranks: write their maxima (no --scheme needed)",
     0},
    {0},
};

static error_t norms_parse(int key, char *text, struct argp_state *state)
{
    norms_arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->request;
        break;
    case KEY_MAX:
        a->is_max = 1;
        a->request.options.scheme = GW_CLASSIC_QSGD; /* so that none is missing; it is not used */
        break;
    case ARGP_KEY_END:
        (void)gw_cli_inputs(key, text, state, &a->inputs, &a->input_count, &a->output);
        if (!a->is_max && a->input_count > 1) {
            argp_error(state, "one array at a time; --max merges norms");
        } else if (!a->is_max && a->request.options.scheme != GW_CLASSIC_QSGD &&
                   a->request.options.scheme != GW_CLASSIC_TERNGRAD) {
            argp_error(state, "--scheme: only qsgd and terngrad have norms");
        }
        break;
    default:
        return gw_cli_inputs(key, text, state, &a->inputs, &a->input_count, &a->output);
    }
    return 0;
}

/* The norms of one array. The state is read, not changed. */
static int norms_of_tensor(const norms_arguments *a)
{
    static classic_tensor tensor;
    gw_workspace workspace = {NULL, 0};
    float *norms = NULL;
    int code = classic_tensor_open(&tensor, a->inputs[0], &a->request);
    if (code != GW_CLI_OK) {
        return code;
    }
    const uint64_t count = gw_classic_block_count(&tensor.classic, tensor.step.len);
    code = classic_tensor_check_output(&tensor, &a->request, a->output);
    if (code == GW_CLI_OK) {
        norms = classic_alloc(count, sizeof *norms);
        code = norms == NULL
                   ? GW_CLI_IO
                   : classic_workspace(gw_classic_workspace_size(&tensor.classic, &tensor.step), &workspace);
    }
    if (code == GW_CLI_OK) {
        const gw_classic_source source = {tensor.values, tensor.residual, tensor.momentum, NULL};
        const gw_status status = gw_classic_norms(&tensor.classic, &tensor.step, &source, norms, &workspace);
        code = status == GW_OK ? gw_npy_save(a->output, GW_FP32, norms, count)
                               : classic_fail(a->inputs[0], status);
    }
    free(norms);
    free(workspace.data);
    classic_tensor_close(&tensor);
    return code;
}

/* Makes `maxima` the larger of itself and the file's norms. */
static int norms_merge(const char *path, float **maxima, uint64_t *count)
{
    gw_npy npy;
    int code = gw_npy_open(&npy, path, GW_NPY_U2_REFUSE);
    if (code != GW_CLI_OK) {
        return code;
    }
    if (npy.dtype != GW_FP32 || (*maxima != NULL && npy.len != *count)) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "norms must be fp32 of the same number of blocks");
    } else if (*maxima == NULL) {
        *count = npy.len;
        *maxima = classic_alloc(npy.len, sizeof **maxima);
        if (*maxima == NULL) {
            code = GW_CLI_IO;
        } else {
            memset(*maxima, 0, (size_t)npy.len * sizeof **maxima);
        }
    }
    const float *norms = npy.values;
    for (uint64_t i = 0; code == GW_CLI_OK && i < npy.len; i++) {
        if (!(norms[i] >= 0)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "norm %llu is not a number of at least 0",
                                (unsigned long long)i);
        } else if (norms[i] > (*maxima)[i]) {
            (*maxima)[i] = norms[i];
        }
    }
    gw_npy_close(&npy);
    return code;
}

static int norms_of_files(const norms_arguments *a)
{
    float *maxima = NULL;
    uint64_t count = 0;
    int code = GW_CLI_OK;
    for (int i = 0; code == GW_CLI_OK && i < a->input_count; i++) {
        code = gw_cli_check_output(a->output, a->inputs[i]);
        if (code == GW_CLI_OK) {
            code = norms_merge(a->inputs[i], &maxima, &count);
        }
    }
    if (code == GW_CLI_OK) {
        code = gw_npy_save(a->output, GW_FP32, maxima, count);
    }
    free(maxima);
    return code;
}

int gw_cmd_classic_norms(int argc, char **argv)
{
    static const struct argp_child children[] = {{&classic_request_argp, 0, "Encoding:", 2},
                                                 {NULL, 0, NULL, 0}};
    static const struct argp argp = {
        norms_options,
        norms_parse,
        "IN --scheme NAME -o NORMS.npy\n--max A.npy B.npy ... -o NORMS.npy",
        "Write the norm of every block (qsgd, terngrad), or the maxima over the ranks, for compress --norms: "
        "frames with the same norms can be added.",
        children,
        NULL,
        NULL,
    };
    norms_arguments a;

    memset(&a, 0, sizeof a);
    classic_request_init(&a.request);
    gw_cli_parse(&argp, argc, argv, 0, &a);
    return a.is_max ? norms_of_files(&a) : norms_of_tensor(&a);
}
