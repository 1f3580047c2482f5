/*
 * gradwire classic compress: an array or a snapshot's gradient to a frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_classic.h"
#include "cli_output.h"

#include "classic_tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct compress_arguments {
    classic_request request;
    const char *input;
    const char *output;
    const char *norms;
    int json;
} compress_arguments;

enum { KEY_CODEC = 0x400, KEY_NORMS, KEY_JSON };

static const struct argp_option compress_options[] = {
    {"output", 'o', "OUT.gw", 0, "The frame to write; - is standard output", 0},
    {"codec", KEY_CODEC, "NAME", OPTION_HIDDEN, "classic", 0},
    {"norms", KEY_NORMS, "NORMS.npy", 0,
     "qsgd, terngrad: norms that all ranks share (gradwire classic norms)", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static error_t compress_parse(int key, char *text, struct argp_state *state)
{
    compress_arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->request;
        break;
    case KEY_CODEC:
        break;
    case KEY_NORMS:
        a->norms = text;
        break;
    case KEY_JSON:
        a->json = 1;
        break;
    case ARGP_KEY_END:
        (void)gw_cli_one_input(key, text, state, &a->input, &a->output);
        if (a->norms != NULL && a->request.options.scheme != GW_CLASSIC_QSGD &&
            a->request.options.scheme != GW_CLASSIC_TERNGRAD) {
            argp_error(state, "--norms: only qsgd and terngrad have norms");
        }
        break;
    default:
        return gw_cli_one_input(key, text, state, &a->input, &a->output);
    }
    return 0;
}

/* What was made, for the report. */
typedef struct compress_result {
    gw_buffer frame;
    double nmse; /* of the decoded values against the input; NaN if all of the input is zero */
    double seconds;
} compress_result;

/* sum (decoded - value)^2 / sum value^2. Values that are not finite do not count. */
static double nmse_of(const classic_tensor *tensor, const void *decoded)
{
    double error = 0;
    double squares = 0;
    for (uint64_t i = 0; i < tensor->step.len; i++) {
        const double x = gw_dtype_value(tensor->dtype, gw_dtype_bits(tensor->dtype, tensor->values, i));
        const double y = gw_dtype_value(tensor->dtype, gw_dtype_bits(tensor->dtype, decoded, i));
        if (isfinite(x) && isfinite(y)) {
            error += (x - y) * (x - y);
            squares += x * x;
        }
    }
    return squares > 0 ? error / squares : NAN;
}

static int result_measure(const classic_tensor *tensor, compress_result *result)
{
    const gw_classic_frame frame = {result->frame.data, result->frame.size, tensor->step.len,
                                    gw_classic_options_of(&tensor->classic)->backends};
    gw_classic_frame_info info;
    gw_workspace workspace = {NULL, 0};
    gw_classic_target target = {classic_alloc(tensor->step.len, gw_dtype_size(tensor->dtype)),
                                tensor->step.len, 0, 0};
    int code = target.values != NULL ? GW_CLI_OK : GW_CLI_IO;
    gw_status status = gw_classic_frame_peek(frame.data, frame.size, &info);
    if (code == GW_CLI_OK && status == GW_OK) {
        code = classic_workspace(gw_classic_decode_workspace_size(&info), &workspace);
    }
    if (code == GW_CLI_OK && status == GW_OK) {
        status = gw_classic_decode(&frame, &target, &workspace);
    }
    if (code == GW_CLI_OK && status != GW_OK) {
        code = classic_fail(tensor->name, status);
    } else if (code == GW_CLI_OK) {
        result->nmse = nmse_of(tensor, target.values);
    }
    free(workspace.data);
    free(target.values);
    return code;
}

static void report_json(const compress_arguments *a, const classic_tensor *tensor,
                        const compress_result *result)
{
    const gw_classic_options *o = gw_classic_options_of(&tensor->classic);
    const double len = tensor->step.len > 0 ? (double)tensor->step.len : NAN;
    const double size = (double)result->frame.size;
    const uint64_t input_size = tensor->step.len * gw_dtype_size(tensor->dtype);
    json_t *object = json_object();
    gw_cli_json_text(object, "command", "classic compress");
    gw_cli_json_text(object, "status", "ok");
    gw_cli_json_text(object, "codec", "classic");
    gw_cli_json_text(object, "scheme", gw_classic_scheme_name(o->scheme));
    gw_cli_json_count(object, "values", tensor->step.len);
    gw_cli_json_text(object, "dtype", gw_dtype_name(tensor->dtype));
    gw_cli_json_count(object, "input_bytes", input_size);
    gw_cli_json_count(object, "output_bytes", result->frame.size);
    gw_cli_json_number(object, "rate", size / (len * (double)gw_dtype_size(tensor->dtype)));
    gw_cli_json_number(object, "rate_fp32", size / (4 * len));
    gw_cli_json_number(object, "rate_bf16", size / (2 * len));
    gw_cli_json_number(object, "bits_per_value", 8 * size / len);
    gw_cli_json_number(object, "nmse", result->nmse);
    if (classic_is_sparse(o->scheme)) {
        gw_cli_json_count(object, "keep_len", tensor->step.keep_len);
    }
    gw_cli_json_flag(object, "residual", a->request.residual_path != NULL);
    gw_cli_json_flag(object, "shared_norms", a->norms != NULL);
    gw_cli_json_number(object, "encode_seconds", result->seconds);
    gw_cli_json_number(object, "encode_GBps", gw_cli_gbps(input_size, result->seconds));
    (void)gw_cli_json_print(object);
}

static void report(const compress_arguments *a, const classic_tensor *tensor, const compress_result *result)
{
    if (a->json) {
        report_json(a, tensor, result);
        return;
    }
    const double len = tensor->step.len > 0 ? (double)tensor->step.len : 1.0;
    const double size = (double)result->frame.size;
    const gw_classic_scheme scheme = gw_classic_options_of(&tensor->classic)->scheme;
    gw_cli_print_arrow(a->input, a->output);
    printf("  %llu values of %s, %s", (unsigned long long)tensor->step.len, gw_dtype_name(tensor->dtype),
           gw_classic_scheme_name(scheme));
    if (classic_is_sparse(scheme)) {
        printf(", %llu sent", (unsigned long long)tensor->step.keep_len);
    }
    printf("\n  %zu bytes, %.3f bits a value: %.2f %% of fp32, %.2f %% of a bf16 wire\n", result->frame.size,
           8 * size / len, 25 * size / len, 50 * size / len);
    if (!isnan(result->nmse)) {
        printf("  NMSE %.4g of the decoded values against the input\n", result->nmse);
    }
    printf("  encode %.3f GB/s of input values\n",
           gw_cli_gbps(tensor->step.len * gw_dtype_size(tensor->dtype), result->seconds));
}

/* Encodes into memory from malloc. The state moves on with each encode, so there is one run. */
static int tensor_encode(const compress_arguments *a, const classic_tensor *tensor, const float *norms,
                         compress_result *result)
{
    const gw_classic_source source = {tensor->values, tensor->residual, tensor->momentum, norms};
    gw_workspace workspace = {NULL, 0};
    gw_buffer *frame = &result->frame;

    frame->capacity = gw_classic_frame_size_max(&tensor->classic, &tensor->step);
    frame->data = gw_cli_alloc(frame->capacity);
    int code = frame->data != NULL
                   ? classic_workspace(gw_classic_workspace_size(&tensor->classic, &tensor->step), &workspace)
                   : GW_CLI_IO;
    if (code == GW_CLI_OK) {
        gw_cli_progress_begin("encode");
        const double start = gw_cli_seconds();
        const gw_status status =
            gw_classic_encode(&tensor->classic, &tensor->step, &source, frame, &workspace);
        result->seconds = gw_cli_seconds() - start;
        gw_cli_progress_end();
        if (status == GW_ERR_STATE && a->norms != NULL) {
            code = gw_cli_error(GW_CLI_BAD_DATA, a->norms, "a norm is below this array's own");
        } else if (status != GW_OK) {
            code = classic_fail(a->input, status);
        }
    }
    free(workspace.data);
    return code;
}

/* Norms that all ranks share. */
static int norms_open(const compress_arguments *a, const classic_tensor *tensor, gw_npy *norms)
{
    const uint64_t count = gw_classic_block_count(&tensor->classic, tensor->step.len);
    int code = a->norms != NULL ? gw_npy_open(norms, a->norms, GW_NPY_U2_REFUSE) : GW_CLI_OK;
    if (code == GW_CLI_OK && a->norms != NULL && (norms->dtype != GW_FP32 || norms->len != count)) {
        gw_npy_close(norms);
        code = gw_cli_error(GW_CLI_BAD_DATA, a->norms, "norms must be fp32 of %llu blocks",
                            (unsigned long long)count);
    }
    return code;
}

static int tensor_compress(const compress_arguments *a, const classic_tensor *tensor)
{
    compress_result result = {{NULL, 0, 0}, NAN, 0};
    const int has_report = strcmp(a->output, "-") != 0;
    gw_npy norms;
    memset(&norms, 0, sizeof norms);
    int code = norms_open(a, tensor, &norms);
    if (code == GW_CLI_OK) {
        code = tensor_encode(a, tensor, a->norms != NULL ? norms.values : NULL, &result);
    }
    if (code == GW_CLI_OK && has_report) {
        code = result_measure(tensor, &result);
    }
    if (code == GW_CLI_OK) {
        code = gw_cli_write_file(a->output, result.frame.data, result.frame.size);
    }
    if (code == GW_CLI_OK) {
        code = classic_tensor_save_state(tensor, &a->request);
    }
    if (code == GW_CLI_OK && has_report) {
        report(a, tensor, &result);
    }
    free(result.frame.data);
    gw_npy_close(&norms);
    return code;
}

int gw_cmd_classic_compress(int argc, char **argv)
{
    static const struct argp_child children[] = {{&classic_request_argp, 0, "Encoding:", 2},
                                                 {NULL, 0, NULL, 0}};
    static const struct argp argp = {
        compress_options,
        compress_parse,
        "IN --scheme NAME -o OUT.gw",
        "Compress IN, a NumPy array (.npy) or a snapshot's gradient (.json with its arrays), with one of the "
        "classic codecs (docs/cli-classic.md).",
        children,
        NULL,
        NULL,
    };
    compress_arguments a;
    static classic_tensor tensor;

    memset(&a, 0, sizeof a);
    classic_request_init(&a.request);
    gw_cli_parse(&argp, argc, argv, 0, &a);
    int code = classic_tensor_open(&tensor, a.input, &a.request);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = classic_tensor_check_output(&tensor, &a.request, a.output);
    if (code == GW_CLI_OK) {
        code = gw_cli_check_output(a.output, a.norms);
    }
    if (code == GW_CLI_OK) {
        code = gw_cli_check_output(a.request.residual_path, a.norms);
    }
    if (code == GW_CLI_OK) {
        code = tensor_compress(&a, &tensor);
    }
    classic_tensor_close(&tensor);
    return code;
}
