/*
 * Classic codecs: compress and decompress.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include "classic_tensor.h"
#include "cli_output.h"
#include "dtype_convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static classic_tensor tensor;
static gw_npy norms; /* that all ranks share */
static gw_buffer frame;
static double nmse;        /* of the decoded values against the input; NaN if all of the input is zero */
static double run_seconds; /* encode or decode */

/* ---- compress ---- */

static const gw_option compress_options[] = {
    GW_OUTPUT_ROW("OUT.gw", "The frame to write; - is standard output"),
    GW_CODEC_ROW("classic", 1),
    {"norms", "NORMS.npy", "qsgd, terngrad: norms that all ranks share (gradwire classic norms)",
     GW_TEXT(classic_request, norms_path)},
    GW_JSON_ROW("Print one JSON object"),
    {0},
};

static void compress_end(struct argp_state *state, void *input)
{
    const classic_request *request = input;
    if (request->norms_path != NULL && !classic_has_norms(request->options.scheme)) {
        argp_error(state, "--norms: only qsgd and terngrad have norms");
    }
}

static const gw_command_line compress_line = {
    "IN --scheme NAME -o OUT.gw",
    "Compress IN, a NumPy array (.npy) or a snapshot's gradient (.json with its arrays), with one of the "
    "classic codecs (docs/cli-classic.md).",
    GW_ONE_INPUT,
    {.options = compress_options, .end = compress_end},
    {{"Encoding:", &classic_encode_group, NULL}},
};

static void tensor_open(gw_request *input)
{
    const classic_request *request = (const classic_request *)input;
    const char *norms_path = request->norms_path;
    classic_tensor_open(&tensor, request);
    if (norms_path == NULL) {
        return;
    }
    gw_cli_must(gw_cli_check_output(input->output, norms_path));
    gw_cli_must(gw_cli_check_output(request->residual_path, norms_path));
    gw_npy_open(&norms, norms_path, GW_NPY_U2_REFUSE);
    const uint64_t count = gw_classic_block_count(&tensor.classic, tensor.step.len);
    if (norms.dtype != GW_FP32 || norms.len != count) {
        gw_cli_fail(GW_CLI_BAD_DATA, norms_path, "norms must be fp32 of %llu blocks",
                    (unsigned long long)count);
    }
}

/* sum (decoded - value)^2 / sum value^2. Values that are not finite do not count. */
static double nmse_of(const void *decoded)
{
    double error = 0;
    double squares = 0;
    for (uint64_t i = 0; i < tensor.step.len; i++) {
        const double x = gw_dtype_number(tensor.in.dtype, tensor.in.values, i);
        const double y = gw_dtype_number(tensor.in.dtype, decoded, i);
        if (isfinite(x) && isfinite(y)) {
            error += (x - y) * (x - y);
            squares += x * x;
        }
    }
    return squares > 0 ? error / squares : NAN;
}

/* Decodes the frame for the report. */
static void frame_measure(const gw_request *request)
{
    const gw_classic_frame received = {frame.data, frame.size, tensor.step.len, request->backends};
    const size_t element_size = gw_dtype_size(tensor.in.dtype);
    gw_classic_target target = {gw_cli_alloc_array(tensor.step.len, element_size), tensor.step.len, 0, 0};
    gw_classic_frame_info info;
    classic_must(request->input, gw_classic_frame_peek(frame.data, frame.size, &info));
    const gw_workspace workspace = gw_cli_alloc_workspace(gw_classic_decode_workspace_size(&info));
    classic_must(request->input, gw_classic_decode(&received, &target, &workspace));
    nmse = nmse_of(target.values);
    free(workspace.data);
    free(target.values);
}

/* The state moves on with each encode, so there is one run. */
static gw_buffer tensor_encode(gw_request *request)
{
    const gw_classic_source source = {tensor.in.values, tensor.residual, tensor.momentum, norms.values};
    frame.capacity = gw_classic_frame_bound(&tensor.classic, &tensor.step);
    frame.data = gw_cli_alloc(frame.capacity);
    const gw_workspace workspace =
        gw_cli_alloc_workspace(gw_classic_workspace_size(&tensor.classic, &tensor.step));
    gw_cli_progress_begin("encode");
    const double start = gw_cli_seconds();
    const gw_status status = gw_classic_encode(&tensor.classic, &tensor.step, &source, &frame, &workspace);
    run_seconds = gw_cli_seconds() - start;
    gw_cli_progress_end();
    free(workspace.data);
    if (status == GW_ERR_STATE && norms.values != NULL) {
        gw_cli_fail(GW_CLI_BAD_DATA, norms.input.name, "a norm is below this array's own");
    }
    classic_must(request->input, status);
    if (strcmp(request->output, "-") != 0) {
        frame_measure(request);
    }
    return frame;
}

static void state_save(const gw_request *input)
{
    const classic_request *request = (const classic_request *)input;
    if (request->residual_path != NULL) {
        gw_npy_save(request->residual_path, GW_FP32, tensor.residual, tensor.step.len);
    }
    if (request->momentum_path != NULL) {
        gw_npy_save(request->momentum_path, GW_FP32, tensor.momentum, tensor.step.len);
    }
}

static void report_json(const classic_request *request)
{
    const gw_classic_scheme scheme = request->options.scheme;
    const double len = tensor.step.len > 0 ? (double)tensor.step.len : NAN;
    const double size = (double)frame.size;
    const uint64_t input_size = tensor.step.len * gw_dtype_size(tensor.in.dtype);
    json_t *object = json_object();
    gw_cli_json_text(object, "command", "classic compress");
    gw_cli_json_text(object, "status", "ok");
    gw_cli_json_text(object, "codec", "classic");
    gw_cli_json_text(object, "scheme", gw_classic_scheme_name(scheme));
    gw_cli_json_count(object, "values", tensor.step.len);
    gw_cli_json_text(object, "dtype", gw_dtype_name(tensor.in.dtype));
    gw_cli_json_count(object, "input_bytes", input_size);
    gw_cli_json_count(object, "output_bytes", frame.size);
    gw_cli_json_number(object, "rate", size / (len * (double)gw_dtype_size(tensor.in.dtype)));
    gw_cli_json_number(object, "rate_fp32", size / (4 * len));
    gw_cli_json_number(object, "rate_bf16", size / (2 * len));
    gw_cli_json_number(object, "bits_per_value", 8 * size / len);
    gw_cli_json_number(object, "nmse", nmse);
    if (classic_is_sparse(scheme)) {
        gw_cli_json_count(object, "keep_len", tensor.step.keep_len);
    }
    gw_cli_json_flag(object, "residual", request->residual_path != NULL);
    gw_cli_json_flag(object, "shared_norms", request->norms_path != NULL);
    gw_cli_json_number(object, "encode_seconds", run_seconds);
    gw_cli_json_number(object, "encode_GBps", gw_cli_gbps(input_size, run_seconds));
    gw_cli_must(gw_cli_json_print(object));
}

static void encode_report(const gw_request *input)
{
    const classic_request *request = (const classic_request *)input;
    if (input->json) {
        report_json(request);
        return;
    }
    const double len = tensor.step.len > 0 ? (double)tensor.step.len : 1.0;
    const double size = (double)frame.size;
    const gw_classic_scheme scheme = request->options.scheme;
    gw_cli_print_arrow(input->input, input->output);
    printf("  %llu values of %s, %s", (unsigned long long)tensor.step.len, gw_dtype_name(tensor.in.dtype),
           gw_classic_scheme_name(scheme));
    if (classic_is_sparse(scheme)) {
        printf(", %llu sent", (unsigned long long)tensor.step.keep_len);
    }
    printf("\n  %zu bytes, %.3f bits a value: %.2f %% of fp32, %.2f %% of a bf16 wire\n", frame.size,
           8 * size / len, 25 * size / len, 50 * size / len);
    if (!isnan(nmse)) {
        printf("  NMSE %.4g of the decoded values against the input\n", nmse);
    }
    printf("  encode %.3f GB/s of input values\n",
           gw_cli_gbps(tensor.step.len * gw_dtype_size(tensor.in.dtype), run_seconds));
}

static void tensor_close(void)
{
    free(frame.data);
    gw_npy_close(&norms);
    classic_tensor_close(&tensor);
}

/* ---- decompress ---- */

static const gw_option decompress_options[] = {
    GW_OUTPUT_ROW("OUT.npy", "The array to write; - is standard output"),
    GW_CODEC_ROW("classic", 1),
    GW_LEN_MAX_ROW(32, "2^32"),
    GW_BACKEND_ROW,
    GW_JSON_ROW("Print one JSON object"),
    {0},
};

static const gw_command_line decompress_line = {
    "IN.gw -o OUT.npy",
    "Decompress a frame of a classic codec into a one-dimensional NumPy array ('<f4', '<f2', or '<u2' for "
    "bf16). "
    "Nothing is written unless the frame is valid.",
    GW_ONE_INPUT,
    {.options = decompress_options},
    {{0}},
};

static const gw_input_file *received;
static gw_classic_frame_info received_info;

static void frame_open(gw_request *request, gw_input_file *input)
{
    received = input;
    received_info = classic_peek(input, request->len_max);
}

static void frame_decode(const gw_request *request, gw_atomic_file *output)
{
    const gw_classic_frame_info *info = &received_info;
    const gw_workspace workspace = gw_cli_alloc_workspace(gw_classic_decode_workspace_size(info));
    const gw_classic_frame coded = {received->data, received->size, request->len_max, request->backends};
    gw_classic_target target = {gw_cli_alloc_array(info->len, gw_dtype_size(info->dtype)), info->len, 0, 0};
    gw_cli_progress_begin("decode");
    const double start = gw_cli_seconds();
    const gw_status status = gw_classic_decode(&coded, &target, &workspace);
    run_seconds = gw_cli_seconds() - start;
    gw_cli_progress_end();
    classic_must(received->name, status);
    gw_npy_write(output, info->dtype, target.values, target.len);
    free(target.values);
    free(workspace.data);
}

static void decode_report(const gw_request *request)
{
    const gw_classic_frame_info *info = &received_info;
    const uint64_t output_size = info->len * gw_dtype_size(info->dtype);
    if (!request->json) {
        gw_cli_print_arrow(request->input, request->output);
        printf("  %llu values of %s, %s, %llu bytes -> %llu bytes\n  decode %.3f GB/s of output values\n",
               (unsigned long long)info->len, gw_dtype_name(info->dtype),
               gw_classic_scheme_name(info->scheme), (unsigned long long)info->frame_size,
               (unsigned long long)output_size, gw_cli_gbps(output_size, run_seconds));
        return;
    }
    json_t *object = json_object();
    gw_cli_json_text(object, "command", "classic decompress");
    gw_cli_json_text(object, "status", "ok");
    gw_cli_json_text(object, "codec", "classic");
    gw_cli_json_text(object, "scheme", gw_classic_scheme_name(info->scheme));
    gw_cli_json_count(object, "values", info->len);
    gw_cli_json_text(object, "dtype", gw_dtype_name(info->dtype));
    gw_cli_json_count(object, "input_bytes", info->frame_size);
    gw_cli_json_count(object, "output_bytes", output_size);
    gw_cli_json_number(object, "decode_seconds", run_seconds);
    gw_cli_json_number(object, "decode_GBps", gw_cli_gbps(output_size, run_seconds));
    gw_cli_must(gw_cli_json_print(object));
}

const gw_codec_verbs gw_classic_verbs = {
    .name = "classic",
    .number = 3,
    .output = "output",
    .request = classic_request_defaults,
    .compress_line = &compress_line,
    .decompress_line = &decompress_line,
    .inspect_line = &classic_inspect_line,
    .tensor_open = tensor_open,
    .tensor_encode = tensor_encode,
    .state_save = state_save,
    .encode_report = encode_report,
    .tensor_close = tensor_close,
    .frame_open = frame_open,
    .frame_decode = frame_decode,
    .decode_report = decode_report,
    .inspect = classic_inspect,
};
