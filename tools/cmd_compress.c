/*
 * gradwire compress: an array or a snapshot to a frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "atomic_file.h"
#include "cli_common.h"
#include "frame_parts.h"
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
    {"codec", KEY_CODEC, "NAME", 0, "gcomp (default), or thc (see gradwire compress --codec thc --help)", 0},
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
    case 'o':
        arguments->output = text;
        break;
    case KEY_CODEC:
        if (strcmp(text, "gcomp") != 0) {
            argp_error(state, "--codec: '%s' is not in this build", text);
        }
        break;
    case ARGP_KEY_ARG:
        if (arguments->input != NULL) {
            argp_error(state, "one input at a time");
        }
        arguments->input = text;
        break;
    case ARGP_KEY_END:
        if (arguments->input == NULL) {
            argp_error(state, "an input is missing");
        } else if (arguments->output == NULL) {
            argp_error(state, "-o is missing");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
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
    "The gradient of a snapshot loses the mantissa bits that do not affect the parameter update. An array loses "
    "none, or as many as --drop says. Exit codes: 0 done, 1 bad input, 2 bad command line, 3 input or output failed.",
    compress_children,
    NULL,
    NULL,
};

static const char *const rounding_names[] = {"truncate", "nearest", "stochastic"};

static int report_json(const gw_tensor_input *tensor, const gw_codec_request *request,
                       const gw_encode_run *run, const gw_gcomp_info *info, const gw_frame_parts *parts,
                       double seconds)
{
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
    json_t *object = json_object();
    json_object_set_new(object, "command", json_string("compress"));
    json_object_set_new(object, "status", json_string("ok"));
    json_object_set_new(object, "values", json_integer((json_int_t)tensor->len));
    json_object_set_new(object, "dtype", json_string(gw_dtype_name(tensor->dtype)));
    json_object_set_new(object, "input_bytes", json_integer((json_int_t)input_size));
    json_object_set_new(object, "output_bytes", json_integer((json_int_t)run->frame_size));
    json_object_set_new(object, "rate", gw_cli_json_real((double)run->frame_size / (double)input_size));
    json_object_set_new(object, "rate_fp32",
                        gw_cli_json_real((double)run->frame_size / (4.0 * (double)tensor->len)));
    json_object_set_new(object, "rate_bf16",
                        gw_cli_json_real((double)run->frame_size / (2.0 * (double)tensor->len)));
    json_object_set_new(object, "levels",
                        json_string(info->levels == GW_GCOMP_DERIVED ? "derived" : "explicit"));
    json_object_set_new(object, "constant", json_boolean(info->constant));
    json_object_set_new(object, "step", json_integer((json_int_t)info->step));
    json_object_set_new(object, "cap", json_integer((json_int_t)info->cap));
    json_object_set_new(object, "map", json_string(gw_tensor_input_map_name(tensor)));
    json_object_set_new(object, "wire_scale", gw_cli_json_real((double)request->wire_scale));
    json_object_set_new(object, "rounding", json_string(rounding_names[tensor->options.rounding]));
    json_object_set_new(object, "preset",
                        json_string(tensor->options.preset == GW_GCOMP_SMALL ? "small" : "fast"));
    json_object_set_new(object, "strict", json_boolean(info->strict));
    json_object_set_new(object, "checksum", json_boolean(info->checksum));
    json_object_set_new(object, "chunks", gw_frame_kinds_json(parts));
    json_object_set_new(object, "codebooks", json_integer((json_int_t)parts->codebook_count));
    json_object_set_new(object, "escapes", json_integer((json_int_t)parts->escape_count));
    json_object_set_new(object, "bits_per_value", gw_frame_parts_json(parts, run->frame_size, tensor->len));
    json_object_set_new(object, "backend", json_string(gw_codec_backend_name(request->backends)));
    json_object_set_new(object, "threads", json_integer((json_int_t)request->threads));
    json_object_set_new(object, "encode_seconds", json_real(seconds));
    json_object_set_new(object, "encode_GBps", json_real(gw_cli_gbps(input_size, seconds)));
    if (tensor->map.levels != NULL) {
        json_object_set_new(object, "map_seconds", json_real(tensor->map.seconds));
        json_object_set_new(object, "map_GBps", json_real(gw_cli_gbps(input_size, tensor->map.seconds)));
    }
    return gw_cli_json_print(object);
}

static void report_table(const gw_tensor_input *tensor, const compress_arguments *arguments,
                         const gw_encode_run *run, const gw_gcomp_info *info, const gw_frame_parts *parts,
                         double seconds)
{
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
    gw_cli_print_arrow(arguments->input, arguments->output);
    printf("  %llu values of %s, %s levels, step %u, cap %u, drops by %s%s, %s, %s\n",
           (unsigned long long)tensor->len, gw_dtype_name(tensor->dtype),
           info->levels == GW_GCOMP_DERIVED ? "derived" : "explicit", info->step, info->cap,
           gw_tensor_input_map_name(tensor), info->strict ? ", strict" : "",
           rounding_names[tensor->options.rounding],
           tensor->options.preset == GW_GCOMP_SMALL ? "small" : "fast");
    printf("  chunks: %llu coded, %llu raw, %llu zero; codebooks: %llu; escapes: %llu\n",
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_CODED],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_RAW],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_ZERO],
           (unsigned long long)parts->codebook_count, (unsigned long long)parts->escape_count);
    gw_frame_parts_print(parts, run->frame_size, tensor->len);
    if (tensor->len > 0) {
        printf("  %.2f %% of the input, %.2f %% of fp32, %.2f %% of bf16\n",
               100.0 * (double)run->frame_size / (double)input_size,
               25.0 * (double)run->frame_size / (double)tensor->len,
               50.0 * (double)run->frame_size / (double)tensor->len);
    }
    printf("  encode %.3f GB/s", gw_cli_gbps(input_size, seconds));
    if (tensor->map.levels != NULL) {
        printf(", map %.3f GB/s", gw_cli_gbps(input_size, tensor->map.seconds));
    }
    printf(" of input values (%s, %u thread%s)\n", gw_codec_backend_name(arguments->request.backends),
           arguments->request.threads, arguments->request.threads == 1 ? "" : "s");
}

/* Encodes. Small inputs are encoded several times, because the first run includes page faults. *seconds is the
   median. */
static int tensor_encode(gw_tensor_input *tensor, gw_encode_run *run, double *seconds)
{
    enum { RUN_MAX = 5 };
    double times[RUN_MAX];
    double total = 0;
    size_t count = 0;
    gw_cli_progress_begin("encode");
    do {
        const double start = gw_cli_seconds();
        const gw_status status = gw_encode_run_once(run, 1);
        times[count] = gw_cli_seconds() - start;
        if (status != GW_OK) {
            return gw_cli_error(GW_CLI_BAD_DATA, tensor->name, "%s (%s)", gw_status_message(status),
                                gw_status_name(status));
        }
        total += times[count++];
    } while (count < RUN_MAX && total < 0.2);
    gw_cli_progress_end();
    *seconds = gw_cli_median(times, count);
    return GW_CLI_OK;
}

static int tensor_write(gw_tensor_input *tensor, const compress_arguments *arguments, gw_atomic_file *output)
{
    gw_encode_run run;
    int result = gw_encode_run_init(&run, &tensor->codec, &tensor->source, arguments->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    double seconds = 0;
    result = tensor_encode(tensor, &run, &seconds);
    if (result == GW_CLI_OK) {
        result = gw_atomic_file_write(output, run.frame, run.frame_size);
    }
    if (result == GW_CLI_OK) {
        result = gw_atomic_file_commit(output);
    }
    gw_gcomp_info info;
    if (result == GW_CLI_OK && gw_gcomp_peek(run.frame, run.frame_size, (uint64_t)1 << 48, &info) == GW_OK) {
        gw_frame_parts parts;
        gw_frame_parts_read(run.frame, run.frame_size, &info, &parts);
        if (strcmp(arguments->output, "-") == 0) {
            /* Standard output has the frame, so there is no report. */
        } else if (arguments->request.json) {
            result = report_json(tensor, &arguments->request, &run, &info, &parts, seconds);
        } else {
            report_table(tensor, arguments, &run, &info, &parts, seconds);
        }
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
