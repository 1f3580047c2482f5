/*
 * gradwire verify: checks a frame completely, or makes a round trip with an array or a snapshot.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "cli_output.h"
#include "frame_explain.h"
#include "frame_input.h"
#include "frame_report.h"
#include "roundtrip_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verify_options {
    gw_codec_request request; /* first: gw_command_line_parse() */
    uint64_t runs;            /* timed ones, 1 to GW_CLI_RUNS_MAX */
    int has_limit;
    double limit_log2; /* with has_limit: the largest deviation of a parameter is 2^limit_log2 */
} verify_options;

static const gw_option verify_rows[] = {
    {"snapshot", "S.json", "For a derived frame: the snapshot that it was made with",
     GW_TEXT(gw_codec_request, snapshot_path)},
    {"runs", "N", "Timed runs, of which the median is reported (default 5)",
     GW_INTEGER(verify_options, runs, 1, GW_CLI_RUNS_MAX)},
    {"max-deviation", "LOG2",
     "Fail if a parameter deviates by more than 2^LOG2 of its size, e.g. --max-deviation=-22",
     GW_REAL(verify_options, limit_log2, -1000, 1000), .wanted = "a number",
     .given = offsetof(verify_options, has_limit)},
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

static int frame_report(const gw_frame_input *frame, const verify_options *options, double seconds)
{
    const gw_gcomp_frame_info *info = &frame->info;
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

static int frame_verify(const verify_options *options)
{
    static gw_frame_input frame;
    const gw_request *request = &options->request.common;
    gw_input_file input;
    gw_cli_must(gw_input_file_open_frame(&input, request->input, request->len_max));
    gw_frame_input_open(&frame, &input, &options->request);
    const gw_workspace workspace = gw_cli_alloc_workspace(gw_gcomp_workspace_size(&frame.codec));
    uint64_t bad_chunk = UINT64_MAX;
    gw_cli_progress_begin("validate");
    const double start = gw_cli_seconds();
    const gw_gcomp_frame received = {frame.input.data, frame.input.size, frame.map_used};
    const gw_status status = gw_gcomp_frame_check(&frame.codec, &received, &bad_chunk, &workspace);
    const double seconds = gw_cli_seconds() - start;
    gw_cli_progress_end();
    gw_frame_must(&frame.input, status, bad_chunk);
    const int result = frame_report(&frame, options, seconds);
    free(workspace.data);
    gw_frame_input_close(&frame);
    return result;
}

typedef struct roundtrip_report {
    gw_gcomp_frame_info info;
    gw_frame_parts parts;
    gw_roundtrip compared;
    double encode_seconds, decode_seconds, copy_seconds;
    int scalar_equal;    /* -1: not compared, because one thread of the scalar backend made the frame */
    const char *failure; /* NULL: all comparisons passed */
} roundtrip_report;

static void status_must(const gw_tensor_input *tensor, const char *what, gw_status status)
{
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, tensor->in.name, "%s: %s (%s)", what, gw_status_message(status),
                    gw_status_name(status));
    }
}

/* ---- a round trip: encode, validate, decode, compare ---- */

/* memcpy of the values in the same process, for comparison with the other speeds. */
static double copy_timed(const gw_tensor_input *tensor, uint8_t *dst, uint64_t runs)
{
    const size_t size = (size_t)tensor->in.len * gw_dtype_size(tensor->in.dtype);
    gw_cli_timer timer = {.runs = runs};
    while (gw_cli_timer_next(&timer)) {
        if (size > 0) {
            memcpy(dst, tensor->in.values, size);
            __asm__ volatile("" : : "r"(dst) : "memory"); /* keeps the copy */
        }
    }
    return gw_cli_timer_median(&timer);
}

/* ---- comparisons ---- */

/* 1 if one thread of the scalar backend makes the same frame. */
static int scalar_equals(const gw_tensor_input *tensor, const gw_encode_run *run)
{
    gw_gcomp_options options = tensor->options;
    options.backends = GW_BACKEND_SCALAR;
    static gw_gcomp codec;
    gw_encode_run scalar;
    gw_status status = gw_gcomp_init(&codec, &options);
    status_must(tensor, "scalar backend", status);
    gw_encode_run_init(&scalar, &codec, &tensor->source, 1);
    gw_buffer dst = {scalar.frame, scalar.frame_capacity, 0};
    status = gw_gcomp_encode(&codec, &tensor->source, &dst,
                             &(gw_workspace){scalar.workspaces, scalar.workspace_size});
    const int equal =
        status == GW_OK && dst.size == run->frame_size && memcmp(dst.data, run->frame, run->frame_size) == 0;
    gw_encode_run_free(&scalar);
    return equal;
}

static void decode_and_compare(const gw_tensor_input *tensor, const gw_encode_run *run,
                               const verify_options *options, roundtrip_report *report)
{
    const gw_gcomp_frame frame = {run->frame, run->frame_size, tensor->source.quantum.map};
    gw_status status = gw_gcomp_frame_parse(&tensor->codec, &frame, &report->info);
    status_must(tensor, "its own frame is refused", status);
    uint64_t bad_chunk = UINT64_MAX;
    status = gw_gcomp_frame_check(&tensor->codec, &frame, &bad_chunk,
                                  &(gw_workspace){run->workspaces, run->workspace_size});
    status_must(tensor, "its own frame is not valid", status);
    gw_decode_run decode;
    gw_decode_run_init(&decode, &tensor->codec, &frame, &report->info, options->request.threads);
    gw_cli_timer timer = {.runs = options->runs};
    status = gw_decode_run_timed(&decode, &timer, &bad_chunk);
    status_must(tensor, "decode", status);
    report->decode_seconds = gw_cli_timer_median(&timer);
    gw_frame_parts_read(run->frame, run->frame_size, &report->info, &report->parts);
    gw_cli_progress_begin("compare");
    gw_roundtrip_compare(tensor, &report->info, decode.dst, options->request.wire_scale, &report->compared);
    gw_cli_progress_end();
    report->copy_seconds = copy_timed(tensor, decode.dst, options->runs);
    gw_decode_run_free(&decode);
}

static void failure_find(roundtrip_report *report, const verify_options *options)
{
    const gw_frame_parts *parts = &report->parts;
    const uint64_t sum = parts->labels + parts->digits + parts->escapes + parts->raw + parts->quanta +
                         parts->codebooks + parts->headers;
    if (report->compared.beyond != 0) {
        report->failure = "values differ by more than their drop or quantum allows";
    } else if (report->scalar_equal == 0) {
        report->failure = "the frame differs from that of one thread of the scalar backend";
    } else if (sum != report->info.frame_size) {
        report->failure = "the parts do not add up to the frame";
    } else if (options->has_limit && report->compared.has_deviation &&
               (report->compared.deviation.max > exp2(options->limit_log2) ||
                report->compared.deviation.unbounded != 0)) {
        report->failure = "a parameter deviates by more than --max-deviation";
    }
}

/* ---- the report ---- */

static json_t *deviation_json(const gw_deviation *deviation)
{
    json_t *object = json_object();
    gw_cli_json_number(object, "max", deviation->max);
    gw_cli_json_number(object, "max_log2", log2(deviation->max));
    gw_cli_json_count(object, "max_index", deviation->max_index);
    gw_cli_json_number(object, "max_larger", deviation->max_larger);
    gw_cli_json_number(object, "max_larger_log2", log2(deviation->max_larger));
    gw_cli_json_number(object, "mean", deviation->mean);
    gw_cli_json_number(object, "mean_log2", log2(deviation->mean));
    gw_cli_json_count(object, "zero_parameters_changed", deviation->unbounded);
    return object;
}

static int roundtrip_print_json(const gw_tensor_input *tensor, const verify_options *options,
                                const roundtrip_report *report)
{
    const gw_roundtrip *compared = &report->compared;
    const uint64_t input_size = tensor->in.len * gw_dtype_size(tensor->in.dtype);
    json_t *object =
        gw_tensor_report_json("verify", tensor, &options->request, &report->info, &report->parts);
    if (report->failure != NULL) {
        gw_cli_json_text(object, "status", "failed");
        gw_cli_json_text(object, "failure", report->failure);
    }
    gw_cli_json_count(object, "values_changed", compared->changed);
    gw_cli_json_count(object, "values_flushed", compared->flushed);
    gw_cli_json_count(object, "values_beyond_cut", compared->beyond);
    gw_cli_json_number(object, "gradient_error_max", compared->error_max);
    gw_cli_json_number(object, "gradient_error_mean", compared->error_mean);
    gw_cli_json_number(object, "gradient_bias", compared->bias);
    if (compared->has_deviation) {
        gw_cli_json_text(object, "optimizer", gw_optimizer_name(tensor->in.snapshot.optimizer.kind));
        json_object_set_new(object, "parameter_deviation", deviation_json(&compared->deviation));
        json_object_set_new(object, "parameter_deviation_truncated", deviation_json(&compared->truncated));
    }
    json_object_set_new(object, "equals_scalar",
                        report->scalar_equal < 0 ? json_null() : json_boolean(report->scalar_equal));
    gw_cli_json_count(object, "runs", options->runs);
    gw_cli_json_number(object, "encode_GBps", gw_cli_gbps(input_size, report->encode_seconds));
    gw_cli_json_number(object, "decode_GBps", gw_cli_gbps(input_size, report->decode_seconds));
    gw_cli_json_number(object, "memcpy_GBps", gw_cli_gbps(input_size, report->copy_seconds));
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

static void comparison_print(const gw_tensor_input *tensor, const gw_roundtrip *compared)
{
    printf("  %-28s %llu changed, %llu flushed to 0; relative error: worst %.3g, mean %.3g; bias %.3g\n",
           "gradient", (unsigned long long)compared->changed, (unsigned long long)compared->flushed,
           compared->error_max, compared->error_mean, compared->bias);
    if (compared->beyond != 0) {
        printf("  %llu values beyond their drop or quantum, the first is value %llu\n",
               (unsigned long long)compared->beyond, (unsigned long long)compared->beyond_index);
    }
    if (compared->has_deviation) {
        char label[64];
        (void)snprintf(label, sizeof label, "parameters (%s)",
                       gw_optimizer_name(tensor->in.snapshot.optimizer.kind));
        deviation_print(label, &compared->deviation);
        (void)snprintf(label, sizeof label, "  if %d bits were truncated",
                       tensor->in.dtype == GW_FP32 ? 18 : (tensor->in.dtype == GW_BF16 ? 6 : 9));
        deviation_print(label, &compared->truncated);
    }
}

static void roundtrip_print(const gw_tensor_input *tensor, const verify_options *options,
                            const roundtrip_report *report)
{
    const uint64_t input_size = tensor->in.len * gw_dtype_size(tensor->in.dtype);
    gw_cli_puts(stdout, tensor->in.name);
    printf(": %s\n", report->failure == NULL ? "ok" : report->failure);
    gw_tensor_report_print(tensor, &report->info, &report->parts);
    comparison_print(tensor, &report->compared);
    printf("  %-28s encode %.3f, decode %.3f", "speed, GB/s of values",
           gw_cli_gbps(input_size, report->encode_seconds), gw_cli_gbps(input_size, report->decode_seconds));
    if (tensor->map.bytes != NULL) {
        printf(", map %.3f", gw_cli_gbps(input_size, tensor->map.seconds));
    }
    printf(", memcpy %.3f (", gw_cli_gbps(input_size, report->copy_seconds));
    gw_codec_request_print(&options->request);
    printf(", median of %llu)\n", (unsigned long long)options->runs);
    if (report->scalar_equal >= 0) {
        printf("  %-28s %s\n", "equals one scalar thread", report->scalar_equal ? "yes" : "NO");
    }
}

/* Prints the report; fails if a comparison does. */
static int roundtrip(const gw_tensor_input *tensor, const verify_options *options)
{
    const uint32_t used = options->request.common.backends & gw_backends_available();
    gw_encode_run run;
    roundtrip_report report = {.scalar_equal = -1};
    gw_encode_run_init(&run, &tensor->codec, &tensor->source, options->request.threads);
    gw_cli_timer timer = {.runs = options->runs};
    status_must(tensor, "encode", gw_encode_run_timed(&run, &timer));
    report.encode_seconds = gw_cli_timer_median(&timer);
    if (options->request.threads > 1 || (used & ~(uint32_t)GW_BACKEND_SCALAR) != 0) {
        report.scalar_equal = scalar_equals(tensor, &run);
    }
    decode_and_compare(tensor, &run, options, &report);
    gw_encode_run_free(&run);
    failure_find(&report, options);
    if (!options->request.common.json) {
        roundtrip_print(tensor, options, &report);
    } else {
        gw_cli_must(roundtrip_print_json(tensor, options, &report));
    }
    return report.failure == NULL ? GW_CLI_OK
                                  : gw_cli_error(GW_CLI_BAD_DATA, tensor->in.name, "%s", report.failure);
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
    verify_options options = {.runs = 5};
    gw_codec_request_init(&options.request);
    gw_command_line_parse(&verify_line, argc, argv, &options);
    const char *input = options.request.common.input;
    if (is_frame(input)) {
        return frame_verify(&options);
    }
    static gw_tensor_input tensor;
    gw_tensor_input_open(&tensor, &options.request);
    gw_tensor_input_prepare(&tensor, &options.request);
    const int result = roundtrip(&tensor, &options);
    gw_tensor_input_close(&tensor);
    return result;
}
