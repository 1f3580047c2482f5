/*
 * gradwire compress: an array or a snapshot to a frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "atomic_file.h"
#include "cli_common.h"
#include "cli_output.h"
#include "frame_report.h"
#include "tensor_input.h"

#include <stdio.h>
#include <string.h>

typedef struct compress_arguments {
    gw_codec_request request;
    const char *input;
    const char *output;
} compress_arguments;

enum { KEY_CODEC = 0x200 };

static const struct argp_option compress_options[] = {
    {"output", 'o', "OUT.gw", 0, "The frame to write; - is standard output", 0},
    {"codec", KEY_CODEC, "NAME", 0,
     "gcomp (default), thc, classic (see gradwire compress --codec NAME --help)", 0},
    {0},
};

static error_t compress_parse(int key, char *text, struct argp_state *state)
{
    compress_arguments *arguments = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->request;
        state->child_inputs[1] = &arguments->request;
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

static const struct argp_child compress_children[] = {
    {&gw_codec_encode_argp, 0, "Encoding:", 2},
    {&gw_codec_run_argp, 0, "Running:", 3},
    {NULL, 0, NULL, 0},
};

static const struct argp compress_argp = {
    compress_options,
    compress_parse,
    "IN -o OUT.gw",
    "Compress IN, a NumPy array (.npy) or a snapshot (.json with its arrays), into one frame.\v"
    "The gradient of a snapshot loses the mantissa bits that do not affect the parameter update. An array "
    "loses "
    "none, or as many as --drop says. Exit codes: 0 done, 1 bad input, 2 bad command line, 3 input or output "
    "failed.",
    compress_children,
    NULL,
    NULL,
};

static int report(const gw_tensor_input *tensor, const compress_arguments *arguments,
                  const gw_encode_run *run, double seconds)
{
    const gw_codec_request *request = &arguments->request;
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
    gw_gcomp_info info;
    gw_frame_parts parts;
    if (gw_gcomp_peek(run->frame, run->frame_size, (uint64_t)1 << 48, &info) != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, arguments->output, "the frame cannot be read back");
    }
    gw_frame_parts_read(run->frame, run->frame_size, &info, &parts);
    if (request->json) {
        json_t *object = gw_tensor_report_json("compress", tensor, request, &info, &parts);
        gw_cli_json_number(object, "encode_seconds", seconds);
        gw_cli_json_number(object, "encode_GBps", gw_cli_gbps(input_size, seconds));
        return gw_cli_json_print(object);
    }
    gw_cli_print_arrow(arguments->input, arguments->output);
    gw_tensor_report_print(tensor, &info, &parts);
    printf("  encode %.3f GB/s", gw_cli_gbps(input_size, seconds));
    if (tensor->map.levels != NULL) {
        printf(", map %.3f GB/s", gw_cli_gbps(input_size, tensor->map.seconds));
    }
    printf(" of input values (");
    gw_codec_request_print(request);
    printf(")\n");
    return GW_CLI_OK;
}

/* Encodes. *seconds is the median of the runs. */
static int tensor_encode(gw_tensor_input *tensor, gw_encode_run *run, double *seconds)
{
    /* A second run would need the memory of the input again beside that of the frame. */
    gw_cli_timer timer = {.runs = 0, .is_once = run->released != NULL};
    gw_cli_progress_begin("encode");
    while (gw_cli_timer_next(&timer)) {
        const gw_status status = gw_encode_run_once(run, 1);
        if (status != GW_OK) {
            return gw_cli_error(GW_CLI_BAD_DATA, tensor->name, "%s (%s)", gw_status_message(status),
                                gw_status_name(status));
        }
    }
    gw_cli_progress_end();
    *seconds = gw_cli_timer_median(&timer);
    return GW_CLI_OK;
}

static int tensor_write(gw_tensor_input *tensor, const compress_arguments *arguments, gw_atomic_file *output)
{
    gw_encode_run run;
    int result = gw_encode_run_init(&run, &tensor->codec, &tensor->source, arguments->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    gw_encode_run_release(&run,
                          tensor->is_snapshot ? &tensor->snapshot.array[GW_SNAPSHOT_GRAD] : &tensor->npy,
                          tensor->options.chunk_log2);
    double seconds = 0;
    result = tensor_encode(tensor, &run, &seconds);
    if (result == GW_CLI_OK) {
        result = gw_atomic_file_write(output, run.frame, run.frame_size);
    }
    if (result == GW_CLI_OK) {
        result = gw_atomic_file_commit(output);
    }
    /* No report if the frame goes to standard output. */
    if (result == GW_CLI_OK && strcmp(arguments->output, "-") != 0) {
        result = report(tensor, arguments, &run, seconds);
    }
    gw_encode_run_free(&run);
    return result;
}

int gw_cmd_compress(int argc, char **argv)
{
    compress_arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    gw_codec_request_init(&arguments.request);
    gw_cli_parse(&compress_argp, argc, argv, 0, &arguments);

    static gw_tensor_input tensor;
    int result = gw_tensor_input_open(&tensor, arguments.input, &arguments.request);
    if (result != GW_CLI_OK) {
        return result;
    }
    gw_atomic_file output;
    if (gw_tensor_input_has_file(&tensor, arguments.output)) {
        gw_tensor_input_close(&tensor);
        return gw_cli_error(GW_CLI_USAGE, arguments.output, "is an input file; write the frame elsewhere");
    }
    result = gw_atomic_file_open(&output, arguments.output);
    if (result == GW_CLI_OK) {
        result = gw_tensor_input_prepare(&tensor, &arguments.request);
    }
    if (result == GW_CLI_OK) {
        result = tensor_write(&tensor, &arguments, &output);
    }
    gw_atomic_file_discard(&output);
    gw_tensor_input_close(&tensor);
    return result;
}
