/*
 * gradwire verify: checks a frame completely, or makes a round trip with an array or a snapshot.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "cli_common.h"
#include "cli_output.h"
#include "frame_explain.h"
#include "frame_input.h"
#include "frame_report.h"
#include "verify_roundtrip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verify_arguments {
    gw_verify_options options;
    const char *input;
    const char *snapshot;
} verify_arguments;

enum { KEY_SNAPSHOT = 0x200, KEY_RUNS, KEY_LIMIT, KEY_MAX_VALUES };

static const struct argp_option verify_options[] = {
    {"snapshot", KEY_SNAPSHOT, "S.json", 0, "For a derived frame: the snapshot that it was made with", 0},
    {"runs", KEY_RUNS, "N", 0, "Timed runs, of which the median is reported (default 5)", 0},
    {"max-deviation", KEY_LIMIT, "LOG2", 0,
     "Fail if a parameter deviates by more than 2^LOG2 of its size, e.g. --max-deviation=-22", 0},
    {"max-values", KEY_MAX_VALUES, "N", 0, "Refuse frames with more values (default 2^48)", 0},
    {0},
};

static error_t verify_parse(int key, char *text, struct argp_state *state)
{
    verify_arguments *arguments = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->options.request;
        state->child_inputs[1] = &arguments->options.request;
        break;
    case KEY_SNAPSHOT:
        arguments->snapshot = text;
        break;
    case KEY_RUNS:
        if (gw_cli_parse_u64(text, 1, GW_CLI_RUNS_MAX, &arguments->options.runs) != 0) {
            argp_error(state, "--runs: '%s' is not an integer from 1 to %d", text, GW_CLI_RUNS_MAX);
        }
        break;
    case KEY_LIMIT:
        arguments->options.has_limit = 1;
        if (gw_cli_parse_double(text, -1000, 1000, &arguments->options.limit_log2) != 0) {
            argp_error(state, "--max-deviation: '%s' is not a number", text);
        }
        break;
    case KEY_MAX_VALUES:
        if (gw_cli_parse_u64(text, 0, (uint64_t)1 << 48, &arguments->options.request.options.len_max) != 0) {
            argp_error(state, "--max-values: '%s' is not an integer up to 2^48", text);
        }
        break;
    default:
        return gw_cli_one_input(key, text, state, &arguments->input, NULL);
    }
    return 0;
}

static const struct argp_child verify_children[] = {
    {&gw_codec_encode_argp, 0, "Encoding (arrays and snapshots):", 2},
    {&gw_codec_run_argp, 0, "Running:", 3},
    {NULL, 0, NULL, 0},
};

static const struct argp verify_argp = {
    verify_options,
    verify_parse,
    "IN.gw\nSNAPSHOT.json\nARRAY.npy",
    "Check every rule of a frame; or encode an array or a snapshot, decode it, and compare.\v"
    "A round trip fails if a value differs by more than its drop or quantum allows, or if one thread of the "
    "scalar "
    "backend "
    "makes another frame. Exit codes: 0 valid, 1 invalid or bad input, 2 bad command line, 3 input or output "
    "failed.",
    verify_children,
    NULL,
    NULL,
};

/* ---- a frame ---- */

static int frame_report(const gw_frame_input *frame, const verify_arguments *arguments, double seconds)
{
    const gw_gcomp_info *info = &frame->info;
    const gw_codec_request *request = &arguments->options.request;
    const uint64_t values_size = info->len * gw_dtype_size(info->dtype);
    const char *backend = gw_codec_backend_name(request->backends);
    if (request->json) {
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
    gw_cli_puts(stdout, arguments->input);
    printf(": ok\n  %llu values of %s in %llu chunks, every rule holds\n", (unsigned long long)info->len,
           gw_dtype_name(info->dtype), (unsigned long long)info->chunk_count);
    printf("  validate %.3f GB/s of values (%s)\n", gw_cli_gbps(values_size, seconds), backend);
    return GW_CLI_OK;
}

static int frame_verify(const verify_arguments *arguments)
{
    static gw_frame_input frame;
    int result =
        gw_frame_input_open(&frame, arguments->input, arguments->snapshot, &arguments->options.request);
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
            result = frame_report(&frame, arguments, seconds);
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
           gw_frame_file_has_codec(path, 1);
}

int gw_cmd_verify(int argc, char **argv)
{
    verify_arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    gw_codec_request_init(&arguments.options.request);
    arguments.options.runs = 5;
    gw_cli_parse(&verify_argp, argc, argv, 0, &arguments);
    if (is_frame(arguments.input)) {
        return frame_verify(&arguments);
    }
    static gw_tensor_input tensor;
    int result = gw_tensor_input_open(&tensor, arguments.input, &arguments.options.request);
    if (result == GW_CLI_OK) {
        result = gw_tensor_input_prepare(&tensor, &arguments.options.request);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    result = gw_verify_roundtrip(&tensor, &arguments.options);
    gw_tensor_input_close(&tensor);
    return result;
}
