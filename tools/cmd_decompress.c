/*
 * gradwire decompress: a frame to a .npy array.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "atomic_file.h"
#include "cli_common.h"
#include "cli_output.h"
#include "cuda_run.h"
#include "frame_explain.h"
#include "frame_input.h"
#include "frame_report.h"

#include <stdio.h>
#include <string.h>

typedef struct decompress_arguments {
    gw_codec_request request;
    const char *input;
    const char *output;
    const char *snapshot;
} decompress_arguments;

enum { KEY_SNAPSHOT = 0x200, KEY_MAX_VALUES, KEY_CODEC };

static const struct argp_option decompress_options[] = {
    {"output", 'o', "OUT.npy", 0, "The array to write; - is standard output", 0},
    {"snapshot", KEY_SNAPSHOT, "S.json", 0, "The snapshot that a derived frame was made with", 0},
    {"max-values", KEY_MAX_VALUES, "N", 0, "Refuse frames with more values (default 2^48)", 0},
    {"codec", KEY_CODEC, "NAME", 0, "thc, classic: needed only for such frames on standard input", 0},
    {0},
};

static error_t decompress_parse(int key, char *text, struct argp_state *state)
{
    decompress_arguments *arguments = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->request;
        break;
    case KEY_SNAPSHOT:
        arguments->snapshot = text;
        break;
    case KEY_MAX_VALUES:
        if (gw_cli_parse_u64(text, 0, (uint64_t)1 << 48, &arguments->request.options.len_max) != 0) {
            argp_error(state, "--max-values: '%s' is not an integer up to 2^48", text);
        }
        break;
    case KEY_CODEC:
        if (strcmp(text, "gcomp") != 0) {
            argp_error(state, "--codec: '%s' is not in this build", text);
        }
        break;
    default:
        return gw_cli_one_input(key, text, state, &arguments->input, &arguments->output);
    }
    return 0;
}

static const struct argp_child decompress_children[] = {
    {&gw_codec_run_argp, 0, "Running:", 2},
    {NULL, 0, NULL, 0},
};

static const struct argp decompress_argp = {
    decompress_options,
    decompress_parse,
    "IN.gw -o OUT.npy",
    "Decompress a frame into a one-dimensional NumPy array ('<f4', '<f2', or '<u2' for bf16).\v"
    "Nothing is written unless every chunk of the frame is valid. Exit codes: 0 done, 1 bad frame or "
    "snapshot, 2 "
    "bad command line, 3 input or output failed.",
    decompress_children,
    NULL,
    NULL,
};

static int report(const gw_frame_input *frame, const decompress_arguments *arguments, double seconds)
{
    const gw_gcomp_info *info = &frame->info;
    const uint64_t output_size = info->len * gw_dtype_size(info->dtype);
    if (arguments->request.json) {
        gw_frame_parts parts;
        gw_frame_parts_read(frame->input.data, frame->input.size, info, &parts);
        json_t *object = gw_frame_report_json("decompress", info, &parts);
        gw_cli_json_count(object, "input_bytes", info->frame_size);
        gw_cli_json_count(object, "output_bytes", output_size);
        gw_cli_json_text(object, "backend", gw_codec_backend_name(arguments->request.backends));
        gw_cli_json_count(object, "threads", arguments->request.threads);
        gw_cli_json_number(object, "decode_seconds", seconds);
        gw_cli_json_number(object, "decode_GBps", gw_cli_gbps(output_size, seconds));
        return gw_cli_json_print(object);
    }
    gw_cli_print_arrow(arguments->input, arguments->output);
    printf("  %llu values of %s, %llu bytes -> %llu bytes\n", (unsigned long long)info->len,
           gw_dtype_name(info->dtype), (unsigned long long)info->frame_size, (unsigned long long)output_size);
    printf("  decode %.3f GB/s of output values (", gw_cli_gbps(output_size, seconds));
    gw_codec_request_print(&arguments->request);
    printf(")\n");
    return GW_CLI_OK;
}

/* Decodes. *seconds is the median of the runs. */
static int frame_decode(const gw_frame_input *frame, gw_decode_run *run, double *seconds)
{
    gw_cli_timer timer = {.runs = 0};
    gw_cli_progress_begin("decode");
    while (gw_cli_timer_next(&timer)) {
        uint64_t bad_chunk = UINT64_MAX;
        const gw_status status = gw_decode_run_once(run, &bad_chunk, 1);
        if (status != GW_OK) {
            return gw_frame_explain(&frame->input, status, bad_chunk);
        }
    }
    gw_cli_progress_end();
    *seconds = gw_cli_timer_median(&timer);
    return GW_CLI_OK;
}

/* Decodes a large frame and writes values as soon as they are decoded. */
static int frame_stream(const gw_frame_input *frame, gw_decode_run *run, gw_atomic_file *output,
                        double *seconds)
{
    const gw_gcomp_info *info = &frame->info;
    const uint64_t batch = 4 * (uint64_t)run->threads;
    const uint64_t range_size = (run->range_len << info->chunk_log2) * gw_dtype_size(info->dtype);
    const uint64_t values_size = info->len * gw_dtype_size(info->dtype);
    int result = gw_npy_write_header(output, info->dtype, info->len);
    gw_cli_progress_begin("decode");
    for (uint64_t i = 0; i < run->range_count && result == GW_CLI_OK; i += batch) {
        const uint64_t count = run->range_count - i < batch ? run->range_count - i : batch;
        uint64_t bad_chunk = UINT64_MAX;
        const double start = gw_cli_seconds();
        const gw_status status = gw_decode_run_ranges(run, i, count, &bad_chunk, 0);
        *seconds += gw_cli_seconds() - start;
        if (status != GW_OK) {
            return gw_frame_explain(&frame->input, status, bad_chunk);
        }
        const uint64_t left = values_size - i * range_size;
        const size_t size = (size_t)(count * range_size < left ? count * range_size : left);
        result = gw_atomic_file_write(output, run->dst + i * range_size, size);
        gw_memory_release(run->dst + i * range_size, size);
        gw_cli_progress_set(i + count, run->range_count);
    }
    gw_cli_progress_end();
    return result == GW_CLI_OK ? gw_atomic_file_commit(output) : result;
}

static int frame_write(const gw_frame_input *frame, const decompress_arguments *arguments,
                       gw_atomic_file *output)
{
    gw_decode_run run;
    const gw_gcomp_frame received = {frame->input.data, frame->input.size, frame->map_used};
    int result = gw_decode_run_init(&run, &frame->codec, &received, &frame->info, arguments->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    run.is_mapped = frame->input.mapped;
    double seconds = 0;
    /* Only a temporary file can be discarded if a later chunk is corrupt. */
    if (frame->info.len >= GW_CODEC_RUN_LARGE_LEN && !output->direct && !gw_cuda_run_is_on()) {
        result = frame_stream(frame, &run, output, &seconds);
    } else {
        result = frame_decode(frame, &run, &seconds);
        if (result == GW_CLI_OK) {
            result = gw_npy_write(output, frame->info.dtype, run.dst, frame->info.len);
        }
    }
    gw_decode_run_free(&run);
    if (result == GW_CLI_OK && strcmp(arguments->output, "-") != 0) {
        result = report(frame, arguments, seconds);
    }
    return result;
}

int gw_cmd_decompress(int argc, char **argv)
{
    decompress_arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    gw_codec_request_init(&arguments.request);
    gw_cli_parse(&decompress_argp, argc, argv, 0, &arguments);

    static gw_frame_input frame;
    int result = gw_frame_input_open(&frame, arguments.input, arguments.snapshot, &arguments.request);
    if (result != GW_CLI_OK) {
        return result;
    }
    if (gw_atomic_file_is_input(arguments.output, &frame.input) ||
        gw_snapshot_has_file(&frame.snapshot, arguments.output)) {
        gw_frame_input_close(&frame);
        return gw_cli_error(GW_CLI_USAGE, arguments.output, "is an input file; write the array elsewhere");
    }
    gw_atomic_file output;
    result = gw_atomic_file_open(&output, arguments.output);
    if (result == GW_CLI_OK) {
        result = frame_write(&frame, &arguments, &output);
    }
    gw_atomic_file_discard(&output);
    gw_frame_input_close(&frame);
    return result;
}
