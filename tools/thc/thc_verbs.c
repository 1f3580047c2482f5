/*
 * THC: compress one worker's array to an index frame; decompress to the mean (default) or sum of the
 * contributors.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli_output.h"
#include "norm_file.h"
#include "thc_array.h"

static thc_array array;
static gw_buffer frame;

/* ---- compress ---- */

static const gw_option compress_options[] = {
    GW_OUTPUT_ROW("OUT.gw", "The frame to write"),
    GW_CODEC_ROW("thc", 0),
    {"norms", "ALL.norm", "Maxima over all workers (gradwire norm --max)", GW_TEXT(thc_request, norms_path)},
    {"ef", "STATE.npy", "Error feedback: added to the array, then replaced; made if absent",
     GW_TEXT(thc_request, state_path)},
    {"checksum", NULL, "End the frame with a CRC32C", GW_FLAG(thc_request, checksum)},
    {"bf16", NULL, "Two-byte integers in the array are bf16", GW_SET(thc_request, u2, GW_NPY_U2_BF16)},
    GW_JSON_ROW("Report as JSON"),
    {0},
};

static void compress_end(struct argp_state *state, void *input)
{
    const thc_request *request = input;
    if (request->norms_path == NULL && request->workers > 1) {
        argp_error(state, "--workers above 1 needs --norms, the maxima over all of them");
    }
    if (request->rank >= request->workers) {
        argp_error(state, "--rank must be below --workers");
    }
}

static const gw_command_line compress_line = {
    "A.npy --codec thc --norms ALL.norm --rank I --workers N -o A.gw",
    "Quantize one worker's array so that frames of all workers can be added (gradwire aggregate). "
    "Without --norms the frame is for one worker.",
    GW_ONE_INPUT,
    {.options = compress_options, .end = compress_end},
    {{"Configuration:", &thc_encode_group, NULL}},
};

static void tensor_open(gw_request *input)
{
    const thc_request *request = (const thc_request *)input;
    gw_cli_must(gw_cli_check_output(input->output, request->norms_path));
    gw_cli_must(gw_cli_check_output(input->output, request->state_path));
    thc_array_open(&array, request);
}

/* Maxima from a norm file. */
static uint32_t *read_maxima(const char *path)
{
    const gw_thc_options *options = gw_thc_options_of(&array.thc);
    const norm_file file = norm_file_read(path);
    if (file.transform != options->transform || file.block_log2 != options->block_log2 ||
        file.count != array.in.len || file.merged > options->worker_max) {
        gw_cli_fail(GW_CLI_BAD_DATA, path,
                    "made for another transform, block length, number of values or more workers");
    }
    return file.patterns;
}

static gw_buffer tensor_encode(gw_request *input)
{
    const char *norms_path = ((const thc_request *)input)->norms_path;
    size_t pattern_count;
    uint64_t bad = UINT64_MAX;
    uint32_t *maxima = norms_path != NULL ? read_maxima(norms_path) : thc_array_norms(&array, &pattern_count);
    const gw_thc_source source = {.values = array.in.values, .error = array.error, .patterns = maxima};
    frame.capacity = gw_thc_frame_bound(&array.thc, array.in.len);
    frame.data = gw_cli_alloc(frame.capacity);
    const gw_status status =
        gw_thc_frame_encode(&array.thc, &array.range, &source, &frame, &bad, thc_workspace());
    if (status == GW_ERR_STATE) {
        gw_cli_fail(GW_CLI_BAD_DATA, norms_path, "block %llu: the maxima are below this array's own",
                    (unsigned long long)bad);
    }
    thc_must(input->input, status, bad);
    free(maxima);
    return frame;
}

static void state_save(const gw_request *request)
{
    (void)request;
    if (array.error != NULL) {
        gw_npy_save(array.state_path, GW_FP32, array.error, array.in.len);
    }
}

static void encode_report(const gw_request *request)
{
    const gw_thc_options *options = gw_thc_options_of(&array.thc);
    const uint64_t len = array.in.len;
    const double values = len > 0 ? (double)len : 1.0;
    const double size = (double)frame.size;
    if (!request->json) {
        gw_cli_print_arrow(request->input, request->output);
        printf("  %llu values, worker %u of %u, %u bits, granularity %u, lanes of %u bits\n",
               (unsigned long long)len, array.range.rank, options->worker_max, options->table.bits,
               options->table.granularity, options->lane_bits);
        printf("  %zu bytes, %.3f bits a value: %.2f %% of fp32, %.2f %% of a bf16 wire\n", frame.size,
               8.0 * size / values, 25.0 * size / values, 50.0 * size / values);
        return;
    }
    json_t *object = json_object();
    gw_cli_json_text(object, "command", "compress");
    gw_cli_json_text(object, "codec", "thc");
    gw_cli_json_count(object, "values", len);
    gw_cli_json_count(object, "output_bytes", frame.size);
    gw_cli_json_number(object, "bits_per_value", 8.0 * size / values);
    gw_cli_json_number(object, "rate_fp32", size / (4.0 * values));
    gw_cli_json_number(object, "rate_bf16", size / (2.0 * values));
    gw_cli_json_count(object, "bits", options->table.bits);
    gw_cli_json_count(object, "granularity", options->table.granularity);
    gw_cli_json_count(object, "workers", options->worker_max);
    gw_cli_json_count(object, "rank", array.range.rank);
    gw_cli_must(gw_cli_json_print(object));
}

static void tensor_close(void)
{
    free(frame.data);
    thc_array_close(&array);
}

/* ---- decompress ---- */

static const gw_option decompress_options[] = {
    GW_OUTPUT_ROW("OUT.npy", "The array to write"),
    GW_CODEC_ROW("thc", 0),
    {"sum", NULL, "The sum of the contributors, not their mean", GW_SET(thc_request, mode, GW_THC_SUM)},
    GW_BACKEND_ROW,
    {0},
};

static const gw_command_line decompress_line = {
    "SUM.gw -o OUT.npy",
    "Decode a THC frame: the mean over its contributors.",
    GW_ONE_INPUT,
    {.options = decompress_options},
    {{0}},
};

static const gw_input_file *received;
static gw_thc_frame_info received_info;

static void frame_open(gw_request *request, gw_input_file *input)
{
    (void)request;
    received = input;
    gw_status status = gw_thc_frame_peek(input->data, input->size, &received_info);
    if (status == GW_OK && received_info.frame_size != input->size) { /* before memory is allocated */
        status = received_info.frame_size > input->size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    thc_must(input->name, status, UINT64_MAX);
}

static void frame_decode(const gw_request *request, gw_atomic_file *output)
{
    const gw_thc_frame_info *info = &received_info;
    const gw_dtype dtype = info->options.dtype;
    const gw_thc_frame coded = {received->data, received->size, info->len, request->backends};
    gw_thc_target target = {.values = gw_cli_alloc_array(info->len, gw_dtype_size(dtype)),
                            .capacity = info->len};
    const gw_status status =
        gw_thc_frame_decode(&coded, ((const thc_request *)request)->mode, &target, thc_workspace());
    thc_must(received->name, status, target.bad_block);
    gw_npy_write(output, dtype, target.values, target.len);
    if (target.missing > 0) {
        gw_cli_note("%s: %llu of %llu blocks have no contributor and are zero (gradwire inspect lists them)",
                    received->name, (unsigned long long)target.missing,
                    (unsigned long long)info->block_count);
    }
    free(target.values);
}

const gw_codec_verbs gw_thc_verbs = {
    .name = "thc",
    .number = 2,
    .output = "output",
    .request = thc_request_defaults,
    .compress_line = &compress_line,
    .decompress_line = &decompress_line,
    .inspect_line = &thc_inspect_line,
    .tensor_open = tensor_open,
    .tensor_encode = tensor_encode,
    .state_save = state_save,
    .encode_report = encode_report,
    .tensor_close = tensor_close,
    .frame_open = frame_open,
    .frame_decode = frame_decode,
    .inspect = thc_inspect,
};
