/*
 * gradwire verify: checks a frame completely, or makes a round trip with an array or a snapshot.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "frame_explain.h"
#include "frame_input.h"
#include "frame_report.h"
#include "verify_roundtrip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_option verify_rows[] = {
    {"snapshot", "S.json", "For a derived frame: the snapshot that it was made with",
     GW_TEXT(gw_codec_request, snapshot_path)},
    {"runs", "N", "Timed runs, of which the median is reported (default 5)",
     GW_INTEGER(gw_verify_options, runs, 1, GW_CLI_RUNS_MAX)},
    {"max-deviation", "LOG2",
     "Fail if a parameter deviates by more than 2^LOG2 of its size, e.g. --max-deviation=-22",
     GW_REAL(gw_verify_options, limit_log2, -1000, 1000), .wanted = "a number",
     .given = offsetof(gw_verify_options, has_limit)},
    GW_LEN_MAX_ROW(48, "2^48"),
    {0},
};

static const gw_command_line verify_line = {
    "IN.gw\nSNAPSHOT.json\nARRAY.npy",
    "Check every rule of a frame; or encode an array or a snapshot, decode it, and compare.\v"
    "A round trip fails if a value differs by more than its drop or quantum allows, or if one thread of the "
    "scalar "
    "backend makes another frame. Exit codes: 0 valid, 1 invalid or bad input, 2 bad command line, 3 input "
    "or "
    "output failed.",
    GW_ONE_INPUT,
    {.options = verify_rows},
    {{"Encoding (arrays and snapshots):", &gw_codec_encode_group, NULL},
     {"Running:", &gw_codec_run_group, NULL}},
};

/* ---- a frame ---- */

static int frame_report(const gw_frame_input *frame, const gw_verify_options *options, double seconds)
{
    const gw_gcomp_info *info = &frame->info;
    const gw_codec_request *request = &options->request;
    const uint64_t values_size = info->len * gw_dtype_size(info->dtype);
    const char *backend = gw_codec_backend_name(request->common.backends);
    if (request->common.json) {
        gw_frame_parts parts;
        gw_frame_parts_read(frame->input.data, frame->input.size, info, &parts);
        json_t *report = gw_frame_report_json("verify", info, &parts);
        gw_frame_report_add_parts(report, info, &parts);
        gw_cli_json_count(report, "input_bytes", values_size);
        gw_cli_json_count(report, "output_bytes", info->frame_size);
        gw_cli_json_text(report, "backend", backend);
        gw_cli_json_number(report, "validate_GBps", gw_cli_gbps(values_size, seconds));
        return gw_cli_json_print(report);
    }
    gw_cli_puts(stdout, options->request.common.input);
    printf(": ok\n  %llu values of %s in %llu chunks, every rule holds\n", (unsigned long long)info->len,
           gw_dtype_name(info->dtype), (unsigned long long)info->chunk_count);
    printf("  validate %.3f GB/s of values (%s)\n", gw_cli_gbps(values_size, seconds), backend);
    return GW_CLI_OK;
}

static int frame_verify(const gw_verify_options *options)
{
    static gw_frame_input frame;
    const gw_request *request = &options->request.common;
    gw_input_file input;
    int result = gw_input_file_open_frame(&input, request->input, request->len_max);
    if (result == GW_CLI_OK) {
        result = gw_frame_input_open(&frame, &input, &options->request);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    gw_workspace workspace = {.size = gw_gcomp_workspace_size(&frame.codec)};
    workspace.data = malloc(workspace.size + 1);
    if (workspace.data == NULL) {
        result = gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    } else {
        uint64_t bad_chunk = UINT64_MAX;
        gw_cli_progress_begin("validate");
        const double start = gw_cli_seconds();
        const gw_gcomp_frame received = {frame.input.data, frame.input.size, frame.map_used};
        const gw_status status = gw_gcomp_validate(&frame.codec, &received, &bad_chunk, &workspace);
        const double seconds = gw_cli_seconds() - start;
        gw_cli_progress_end();
        result = gw_frame_explain(&frame.input, status, bad_chunk);
        if (result == GW_CLI_OK) {
            result = frame_report(&frame, options, seconds);
        }
        free(workspace.data);
    }
    gw_frame_input_close(&frame);
    return result;
}

/* ---- the command ---- */

static int is_frame(const char *path)
{
    const size_t len = strlen(path);
    return strcmp(path, "-") == 0 || (len >= 3 && strcmp(path + len - 3, ".gw") == 0) ||
           gw_frame_file_codec(path) == 1;
}

int gw_cmd_verify(int argc, char **argv)
{
    gw_verify_options options = {.runs = 5};
    gw_codec_request_init(&options.request);
    gw_command_line_parse(&verify_line, argc, argv, &options);
    const char *input = options.request.common.input;
    if (is_frame(input)) {
        return frame_verify(&options);
    }
    static gw_tensor_input tensor;
    int result = gw_tensor_input_open(&tensor, input, &options.request);
    if (result == GW_CLI_OK) {
        result = gw_tensor_input_prepare(&tensor, &options.request);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    result = gw_verify_roundtrip(&tensor, &options);
    gw_tensor_input_close(&tensor);
    return result;
}
