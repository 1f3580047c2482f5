/*
 * gradwire verify: checks a frame completely, or takes an array or a snapshot through a round trip and
 * reports size, error and speed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "cli_common.h"
#include "frame_input.h"
#include "frame_parts.h"
#include "roundtrip_compare.h"
#include "tensor_input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MAX = 1000 };

typedef struct verify_arguments {
    gw_codec_request request;
    const char *input;
    const char *snapshot;
    uint64_t runs;
    int has_limit;
    double limit_log2;
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
        state->child_inputs[0] = &arguments->request;
        state->child_inputs[1] = &arguments->request;
        break;
    case KEY_SNAPSHOT:
        arguments->snapshot = text;
        break;
    case KEY_RUNS:
        if (gw_cli_parse_u64(text, 1, RUNS_MAX, &arguments->runs) != 0) {
            argp_error(state, "--runs: '%s' is not an integer from 1 to %d", text, RUNS_MAX);
        }
        break;
    case KEY_LIMIT:
        arguments->has_limit = 1;
        if (gw_cli_parse_double(text, -1000, 1000, &arguments->limit_log2) != 0) {
            argp_error(state, "--max-deviation: '%s' is not a number", text);
        }
        break;
    case KEY_MAX_VALUES:
        if (gw_cli_parse_u64(text, 0, (uint64_t)1 << 48, &arguments->request.options.count_limit) != 0) {
            argp_error(state, "--max-values: '%s' is not an integer up to 2^48", text);
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
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
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
    "A round trip fails if a value differs by more than its cut allows, or if the frame is not the one that "
    "one thread "
    "of the scalar backend makes. Exit codes: 0 sound, 1 not sound or bad input, 2 bad command line, 3 input "
    "failed.",
    verify_children,
    NULL,
    NULL,
};

/* ---- a frame ---- */

static int frame_report(const gw_frame_input *frame, const verify_arguments *arguments, double seconds)
{
    const gw_gcomp_info *info = &frame->info;
    const uint64_t values_size = info->len * gw_dtype_size(info->dtype);
    gw_frame_parts parts;
    gw_frame_parts_read(frame->input.data, frame->input.size, info, &parts);
    if (!arguments->request.json) {
        printf("%s: ok\n", arguments->input);
        printf("  %llu values of %s in %llu chunks, every rule holds\n", (unsigned long long)info->len,
               gw_dtype_name(info->dtype), (unsigned long long)info->chunk_count);
        printf("  validate %.3f GB/s of values (%s)\n", gw_cli_gbps(values_size, seconds),
               gw_codec_backend_name(arguments->request.backends));
        return GW_CLI_OK;
    }
    json_t *object = json_object();
    json_object_set_new(object, "command", json_string("verify"));
    json_object_set_new(object, "status", json_string("ok"));
    json_object_set_new(object, "values", json_integer((json_int_t)info->len));
    json_object_set_new(object, "dtype", json_string(gw_dtype_name(info->dtype)));
    json_object_set_new(object, "input_bytes", json_integer((json_int_t)values_size));
    json_object_set_new(object, "output_bytes", json_integer((json_int_t)info->frame_size));
    json_object_set_new(object, "rate", gw_cli_json_real((double)info->frame_size / (double)values_size));
    json_object_set_new(object, "levels",
                        json_string(info->levels == GW_GCOMP_DERIVED ? "derived" : "explicit"));
    json_object_set_new(object, "step", json_integer((json_int_t)info->step));
    json_object_set_new(object, "cap", json_integer((json_int_t)info->cap));
    json_object_set_new(object, "chunks", gw_frame_kinds_json(&parts));
    json_object_set_new(object, "bits_per_value", gw_frame_parts_json(&parts, info->frame_size, info->len));
    json_object_set_new(object, "backend", json_string(gw_codec_backend_name(arguments->request.backends)));
    json_object_set_new(object, "validate_GBps", json_real(gw_cli_gbps(values_size, seconds)));
    return gw_cli_json_print(object);
}

static int frame_verify(const verify_arguments *arguments)
{
    static gw_frame_input frame;
    int result = gw_frame_input_open(&frame, arguments->input, arguments->snapshot, &arguments->request);
    if (result != GW_CLI_OK) {
        return result;
    }
    gw_workspace workspace = {.size = gw_gcomp_workspace_size(&frame.codec)};
    workspace.data = malloc(workspace.size + 1);
    if (workspace.data == NULL) {
        result = gw_cli_error(GW_CLI_IO, NULL, "not enough memory");
    } else {
        uint64_t bad_chunk = UINT64_MAX;
        const double start = gw_cli_seconds();
        const gw_gcomp_frame received = {frame.input.data, frame.input.size, frame.map_used};
        const gw_status status = gw_gcomp_validate(&frame.codec, &received, &bad_chunk, &workspace);
        const double seconds = gw_cli_seconds() - start;
        result = gw_frame_explain(&frame.input, status, bad_chunk);
        if (result == GW_CLI_OK) {
            result = frame_report(&frame, arguments, seconds);
        }
        free(workspace.data);
    }
    gw_frame_input_close(&frame);
    return result;
}

/* ---- a round trip ---- */

typedef struct roundtrip_report {
    gw_gcomp_info info;
    gw_frame_parts parts;
    gw_roundtrip compared;
    uint64_t frame_size;
    double encode_seconds, decode_seconds, copy_seconds;
    int scalar_equal;    /* -1: the frame is the scalar one */
    const char *failure; /* NULL: sound */
} roundtrip_report;

static int status_error(const gw_tensor_input *tensor, const char *what, gw_status status)
{
    return gw_cli_error(GW_CLI_BAD_DATA, tensor->name, "%s: %s (%s)", what, gw_status_message(status),
                        gw_status_name(status));
}

static int encode_timed(const gw_tensor_input *tensor, gw_encode_run *run, const verify_arguments *arguments,
                        double *seconds)
{
    static double times[RUNS_MAX];
    gw_cli_progress_begin("encode");
    /* One run more, not counted: it touches the memory first. */
    for (uint64_t i = 0; i <= arguments->runs; i++) {
        const double start = gw_cli_seconds();
        const gw_status status = gw_encode_run_once(run, 0);
        if (status != GW_OK) {
            return status_error(tensor, "encode", status);
        }
        times[i == 0 ? 0 : i - 1] = gw_cli_seconds() - start;
        gw_cli_progress_set(i + 1, arguments->runs + 1);
    }
    gw_cli_progress_end();
    *seconds = gw_cli_median(times, arguments->runs);
    return GW_CLI_OK;
}

static int decode_timed(const gw_tensor_input *tensor, gw_decode_run *run, const verify_arguments *arguments,
                        double *seconds)
{
    static double times[RUNS_MAX];
    gw_cli_progress_begin("decode");
    for (uint64_t i = 0; i <= arguments->runs; i++) {
        uint64_t bad_chunk = UINT64_MAX;
        const double start = gw_cli_seconds();
        const gw_status status = gw_decode_run_once(run, &bad_chunk, 0);
        if (status != GW_OK) {
            return status_error(tensor, "decode", status);
        }
        times[i == 0 ? 0 : i - 1] = gw_cli_seconds() - start;
        gw_cli_progress_set(i + 1, arguments->runs + 1);
    }
    gw_cli_progress_end();
    *seconds = gw_cli_median(times, arguments->runs);
    return GW_CLI_OK;
}

/* memcpy of the values to the same place in the same process: what speeds are held against. */
static double copy_timed(const gw_tensor_input *tensor, uint8_t *dst, uint64_t runs)
{
    static double times[RUNS_MAX];
    const size_t size = (size_t)tensor->len * gw_dtype_size(tensor->dtype);
    for (uint64_t i = 0; i < runs; i++) {
        const double start = gw_cli_seconds();
        if (size > 0) {
            memcpy(dst, tensor->values, size);
            /* The copy is observable, so that it cannot be left out. */
            __asm__ volatile("" : : "r"(dst) : "memory");
        }
        times[i] = gw_cli_seconds() - start;
    }
    return gw_cli_median(times, runs);
}

/* 1 if one thread of the scalar backend makes the same frame. */
static int scalar_compare(const gw_tensor_input *tensor, const gw_encode_run *run, int *equal)
{
    gw_gcomp_options options = tensor->options;
    options.backends = GW_BACKEND_SCALAR;
    static gw_gcomp codec;
    gw_encode_run scalar;
    gw_status status = gw_gcomp_init(&codec, &options);
    if (status != GW_OK) {
        return status_error(tensor, "scalar backend", status);
    }
    const int result = gw_encode_run_init(&scalar, &codec, &tensor->source, 1);
    if (result != GW_CLI_OK) {
        return result;
    }
    gw_buffer dst = {scalar.frame, scalar.frame_capacity, 0};
    status = gw_gcomp_encode(&codec, &tensor->source, &dst,
                             &(gw_workspace){scalar.workspaces, scalar.workspace_size});
    *equal =
        status == GW_OK && dst.size == run->frame_size && memcmp(dst.data, run->frame, run->frame_size) == 0;
    gw_encode_run_free(&scalar);
    return GW_CLI_OK;
}

static int decode_and_compare(const gw_tensor_input *tensor, const gw_encode_run *run,
                              const verify_arguments *arguments, roundtrip_report *report)
{
    const gw_gcomp_frame frame = {run->frame, run->frame_size, tensor->source.map};
    gw_status status = gw_gcomp_check(&tensor->codec, &frame, &report->info);
    if (status != GW_OK) {
        return status_error(tensor, "its own frame is refused", status);
    }
    uint64_t bad_chunk = UINT64_MAX;
    status = gw_gcomp_validate(&tensor->codec, &frame, &bad_chunk,
                               &(gw_workspace){run->workspaces, run->workspace_size});
    if (status != GW_OK) {
        return status_error(tensor, "its own frame is not valid", status);
    }
    gw_decode_run decode;
    int result = gw_decode_run_init(&decode, &tensor->codec, run->frame, run->frame_size, tensor->source.map,
                                    &report->info, arguments->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    result = decode_timed(tensor, &decode, arguments, &report->decode_seconds);
    if (result == GW_CLI_OK) {
        gw_frame_parts_read(run->frame, run->frame_size, &report->info, &report->parts);
        gw_roundtrip_compare(tensor, &report->info, decode.dst, arguments->request.wire_scale,
                             &report->compared);
        report->copy_seconds = copy_timed(tensor, decode.dst, arguments->runs);
    }
    gw_decode_run_free(&decode);
    return result;
}

static void failure_find(roundtrip_report *report, const verify_arguments *arguments)
{
    const gw_frame_parts *parts = &report->parts;
    const uint64_t sum =
        parts->labels + parts->digits + parts->escapes + parts->raw + parts->codebooks + parts->headers;
    if (report->compared.beyond != 0) {
        report->failure = "values differ by more than their cut allows";
    } else if (report->scalar_equal == 0) {
        report->failure = "the frame differs from that of one thread of the scalar backend";
    } else if (sum != report->frame_size) {
        report->failure = "the parts do not add up to the frame";
    } else if (arguments->has_limit && report->compared.has_deviation &&
               (report->compared.deviation.max > exp2(arguments->limit_log2) ||
                report->compared.deviation.unbounded != 0)) {
        report->failure = "a parameter deviates by more than --max-deviation";
    }
}

static json_t *deviation_json(const gw_deviation *deviation)
{
    json_t *object = json_object();
    json_object_set_new(object, "max", json_real(deviation->max));
    json_object_set_new(object, "max_log2", gw_cli_json_real(log2(deviation->max)));
    json_object_set_new(object, "max_index", json_integer((json_int_t)deviation->max_index));
    json_object_set_new(object, "max_larger", json_real(deviation->max_larger));
    json_object_set_new(object, "max_larger_log2", gw_cli_json_real(log2(deviation->max_larger)));
    json_object_set_new(object, "mean", json_real(deviation->mean));
    json_object_set_new(object, "mean_log2", gw_cli_json_real(log2(deviation->mean)));
    json_object_set_new(object, "zero_parameters_changed", json_integer((json_int_t)deviation->unbounded));
    return object;
}

static const char *const rounding_names[] = {"truncate", "nearest", "stochastic"};

static int roundtrip_print_json(const gw_tensor_input *tensor, const verify_arguments *arguments,
                                const roundtrip_report *report)
{
    const gw_codec_request *request = &arguments->request;
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
    const double frame_size = (double)report->frame_size;
    json_t *object = json_object();
    json_object_set_new(object, "command", json_string("verify"));
    json_object_set_new(object, "status", json_string(report->failure == NULL ? "ok" : "failed"));
    if (report->failure != NULL) {
        json_object_set_new(object, "failure", json_string(report->failure));
    }
    json_object_set_new(object, "values", json_integer((json_int_t)tensor->len));
    json_object_set_new(object, "dtype", json_string(gw_dtype_name(tensor->dtype)));
    json_object_set_new(object, "input_bytes", json_integer((json_int_t)input_size));
    json_object_set_new(object, "output_bytes", json_integer((json_int_t)report->frame_size));
    json_object_set_new(object, "rate", gw_cli_json_real(frame_size / (double)input_size));
    json_object_set_new(object, "rate_fp32", gw_cli_json_real(frame_size / (4.0 * (double)tensor->len)));
    json_object_set_new(object, "rate_bf16", gw_cli_json_real(frame_size / (2.0 * (double)tensor->len)));
    json_object_set_new(object, "levels",
                        json_string(report->info.levels == GW_GCOMP_DERIVED ? "derived" : "explicit"));
    json_object_set_new(object, "step", json_integer((json_int_t)report->info.step));
    json_object_set_new(object, "cap", json_integer((json_int_t)report->info.cap));
    json_object_set_new(object, "map", json_string(gw_tensor_input_map_name(tensor)));
    json_object_set_new(object, "rounding", json_string(rounding_names[tensor->options.rounding]));
    json_object_set_new(object, "preset",
                        json_string(tensor->options.preset == GW_GCOMP_SMALL ? "small" : "fast"));
    json_object_set_new(object, "chunks", gw_frame_kinds_json(&report->parts));
    json_object_set_new(object, "codebooks", json_integer((json_int_t)report->parts.codebook_count));
    json_object_set_new(object, "escapes", json_integer((json_int_t)report->parts.escape_count));
    json_object_set_new(object, "bits_per_value",
                        gw_frame_parts_json(&report->parts, report->frame_size, tensor->len));
    json_object_set_new(object, "values_changed", json_integer((json_int_t)report->compared.changed));
    json_object_set_new(object, "values_flushed", json_integer((json_int_t)report->compared.flushed));
    json_object_set_new(object, "values_beyond_cut", json_integer((json_int_t)report->compared.beyond));
    json_object_set_new(object, "gradient_error_max", json_real(report->compared.error_max));
    json_object_set_new(object, "gradient_error_mean", json_real(report->compared.error_mean));
    json_object_set_new(object, "gradient_bias", json_real(report->compared.bias));
    if (report->compared.has_deviation) {
        json_object_set_new(object, "optimizer",
                            json_string(gw_optimizer_name(tensor->snapshot.optimizer.kind)));
        json_object_set_new(object, "parameter_deviation", deviation_json(&report->compared.deviation));
        json_object_set_new(object, "parameter_deviation_truncated",
                            deviation_json(&report->compared.truncated));
    }
    json_object_set_new(object, "equals_scalar",
                        report->scalar_equal < 0 ? json_null() : json_boolean(report->scalar_equal));
    json_object_set_new(object, "backend", json_string(gw_codec_backend_name(request->backends)));
    json_object_set_new(object, "threads", json_integer((json_int_t)request->threads));
    json_object_set_new(object, "runs", json_integer((json_int_t)arguments->runs));
    json_object_set_new(object, "encode_GBps", json_real(gw_cli_gbps(input_size, report->encode_seconds)));
    json_object_set_new(object, "decode_GBps", json_real(gw_cli_gbps(input_size, report->decode_seconds)));
    json_object_set_new(object, "memcpy_GBps", json_real(gw_cli_gbps(input_size, report->copy_seconds)));
    if (tensor->map.levels != NULL) {
        json_object_set_new(object, "map_GBps", json_real(gw_cli_gbps(input_size, tensor->map.seconds)));
    }
    return gw_cli_json_print(object);
}

static void deviation_print(const char *label, const gw_deviation *deviation)
{
    printf("  %-28s", label);
    if (deviation->max > 0) {
        printf(" worst 2^%.2f (value %llu), mean 2^%.2f; worst by the larger of before and after 2^%.2f",
               log2(deviation->max), (unsigned long long)deviation->max_index, log2(deviation->mean),
               log2(deviation->max_larger));
    } else {
        printf(" none");
    }
    if (deviation->unbounded != 0) {
        printf("; %llu zero parameters change otherwise", (unsigned long long)deviation->unbounded);
    }
    putchar('\n');
}

static void roundtrip_print(const gw_tensor_input *tensor, const verify_arguments *arguments,
                            const roundtrip_report *report)
{
    const gw_codec_request *request = &arguments->request;
    const gw_frame_parts *parts = &report->parts;
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
    const double per_cent = tensor->len == 0 ? 0 : 100.0 * (double)report->frame_size / (double)tensor->len;
    printf("%s: %s\n", tensor->name, report->failure == NULL ? "ok" : report->failure);
    printf("  %llu values of %s, %s levels, step %u, cap %u, cut by %s, %s, %s\n",
           (unsigned long long)tensor->len, gw_dtype_name(tensor->dtype),
           report->info.levels == GW_GCOMP_DERIVED ? "derived" : "explicit", report->info.step,
           report->info.cap, gw_tensor_input_map_name(tensor), rounding_names[tensor->options.rounding],
           tensor->options.preset == GW_GCOMP_SMALL ? "small" : "fast");
    printf("  chunks: %llu coded, %llu raw, %llu zero; codebooks: %llu; escapes: %llu\n",
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_CODED],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_RAW],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_ZERO],
           (unsigned long long)parts->codebook_count, (unsigned long long)parts->escape_count);
    gw_frame_parts_print(parts, report->frame_size, tensor->len);
    printf("  %.2f %% of the input, %.2f %% of fp32, %.2f %% of a bf16 wire\n",
           per_cent / (double)gw_dtype_size(tensor->dtype), per_cent / 4, per_cent / 2);
    printf("  %-28s %llu changed, %llu flushed to 0; relative error: worst %.3g, mean %.3g; bias %.3g\n",
           "gradient", (unsigned long long)report->compared.changed,
           (unsigned long long)report->compared.flushed, report->compared.error_max,
           report->compared.error_mean, report->compared.bias);
    if (report->compared.beyond != 0) {
        printf("  %llu values beyond their cut, the first is value %llu\n",
               (unsigned long long)report->compared.beyond,
               (unsigned long long)report->compared.beyond_index);
    }
    if (report->compared.has_deviation) {
        char label[64];
        (void)snprintf(label, sizeof label, "parameters (%s)",
                       gw_optimizer_name(tensor->snapshot.optimizer.kind));
        deviation_print(label, &report->compared.deviation);
        (void)snprintf(label, sizeof label, "  were %d bits cut off all",
                       tensor->dtype == GW_FP32 ? 18 : (tensor->dtype == GW_BF16 ? 6 : 9));
        deviation_print(label, &report->compared.truncated);
    }
    printf("  %-28s", "speed, GB/s of values");
    printf(" encode %.3f, decode %.3f", gw_cli_gbps(input_size, report->encode_seconds),
           gw_cli_gbps(input_size, report->decode_seconds));
    if (tensor->map.levels != NULL) {
        printf(", map %.3f", gw_cli_gbps(input_size, tensor->map.seconds));
    }
    printf(", memcpy %.3f (%s, %u thread%s, median of %llu)\n", gw_cli_gbps(input_size, report->copy_seconds),
           gw_codec_backend_name(request->backends), request->threads, request->threads == 1 ? "" : "s",
           (unsigned long long)arguments->runs);
    if (report->scalar_equal >= 0) {
        printf("  %-28s %s\n", "equals one scalar thread", report->scalar_equal ? "yes" : "NO");
    }
}

static int roundtrip_run(const gw_tensor_input *tensor, const verify_arguments *arguments)
{
    gw_encode_run run;
    roundtrip_report report;
    memset(&report, 0, sizeof report);
    report.scalar_equal = -1;
    int result = gw_encode_run_init(&run, &tensor->codec, &tensor->source, arguments->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    result = encode_timed(tensor, &run, arguments, &report.encode_seconds);
    report.frame_size = run.frame_size;
    const uint32_t used = arguments->request.backends & gw_backends_available();
    if (result == GW_CLI_OK &&
        (arguments->request.threads > 1 || (used & ~(uint32_t)GW_BACKEND_SCALAR) != 0)) {
        result = scalar_compare(tensor, &run, &report.scalar_equal);
    }
    if (result == GW_CLI_OK) {
        result = decode_and_compare(tensor, &run, arguments, &report);
    }
    if (result == GW_CLI_OK) {
        failure_find(&report, arguments);
        if (arguments->request.json) {
            result = roundtrip_print_json(tensor, arguments, &report);
        } else {
            roundtrip_print(tensor, arguments, &report);
        }
    }
    if (result == GW_CLI_OK && report.failure != NULL) {
        result = gw_cli_error(GW_CLI_BAD_DATA, tensor->name, "%s", report.failure);
    }
    gw_encode_run_free(&run);
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
    gw_codec_request_init(&arguments.request);
    arguments.runs = 5;
    gw_cli_parse(&verify_argp, argc, argv, 0, &arguments);
    if (is_frame(arguments.input)) {
        return frame_verify(&arguments);
    }
    static gw_tensor_input tensor;
    int result = gw_tensor_input_open(&tensor, arguments.input, &arguments.request);
    if (result == GW_CLI_OK) {
        result = gw_tensor_input_prepare(&tensor, &arguments.request);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    result = roundtrip_run(&tensor, &arguments);
    gw_tensor_input_close(&tensor);
    return result;
}
