/*
 * Encodes, validates, decodes and compares one tensor.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verify_roundtrip.h"

#include "cli_common.h"
#include "frame_report.h"
#include "roundtrip_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct roundtrip_report {
    gw_gcomp_info info;
    gw_frame_parts parts;
    gw_roundtrip compared;
    double encode_seconds, decode_seconds, copy_seconds;
    int scalar_equal;    /* -1: not compared, because one thread of the scalar backend made the frame */
    const char *failure; /* NULL: all comparisons passed */
} roundtrip_report;

static int status_error(const gw_tensor_input *tensor, const char *what, gw_status status)
{
    return gw_cli_error(GW_CLI_BAD_DATA, tensor->name, "%s: %s (%s)", what, gw_status_message(status),
                        gw_status_name(status));
}

/* ---- timed runs ---- */

static int encode_timed(const gw_tensor_input *tensor, gw_encode_run *run, uint64_t runs, double *seconds)
{
    gw_cli_timer timer = {.runs = runs};
    gw_cli_progress_begin("encode");
    while (gw_cli_timer_next(&timer)) {
        const gw_status status = gw_encode_run_once(run, 0);
        if (status != GW_OK) {
            return status_error(tensor, "encode", status);
        }
    }
    gw_cli_progress_end();
    *seconds = gw_cli_timer_median(&timer);
    return GW_CLI_OK;
}

static int decode_timed(const gw_tensor_input *tensor, gw_decode_run *run, uint64_t runs, double *seconds)
{
    gw_cli_timer timer = {.runs = runs};
    gw_cli_progress_begin("decode");
    while (gw_cli_timer_next(&timer)) {
        uint64_t bad_chunk = UINT64_MAX;
        const gw_status status = gw_decode_run_once(run, &bad_chunk, 0);
        if (status != GW_OK) {
            return status_error(tensor, "decode", status);
        }
    }
    gw_cli_progress_end();
    *seconds = gw_cli_timer_median(&timer);
    return GW_CLI_OK;
}

/* memcpy of the values in the same process, for comparison with the other speeds. */
static double copy_timed(const gw_tensor_input *tensor, uint8_t *dst, uint64_t runs)
{
    const size_t size = (size_t)tensor->len * gw_dtype_size(tensor->dtype);
    gw_cli_timer timer = {.runs = runs};
    while (gw_cli_timer_next(&timer)) {
        if (size > 0) {
            memcpy(dst, tensor->values, size);
            __asm__ volatile("" : : "r"(dst) : "memory"); /* keeps the copy */
        }
    }
    return gw_cli_timer_median(&timer);
}

/* ---- comparisons ---- */

/* *equal: one thread of the scalar backend makes the same frame. */
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
                              const gw_verify_options *options, roundtrip_report *report)
{
    const gw_gcomp_frame frame = {run->frame, run->frame_size, tensor->source.quantum.map};
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
    int result = gw_decode_run_init(&decode, &tensor->codec, &frame, &report->info, options->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    result = decode_timed(tensor, &decode, options->runs, &report->decode_seconds);
    if (result == GW_CLI_OK) {
        gw_frame_parts_read(run->frame, run->frame_size, &report->info, &report->parts);
        gw_cli_progress_begin("compare");
        gw_roundtrip_compare(tensor, &report->info, decode.dst, options->request.wire_scale,
                             &report->compared);
        gw_cli_progress_end();
        report->copy_seconds = copy_timed(tensor, decode.dst, options->runs);
    }
    gw_decode_run_free(&decode);
    return result;
}

static void failure_find(roundtrip_report *report, const gw_verify_options *options)
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

static int roundtrip_print_json(const gw_tensor_input *tensor, const gw_verify_options *options,
                                const roundtrip_report *report)
{
    const gw_roundtrip *compared = &report->compared;
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
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
        gw_cli_json_text(object, "optimizer", gw_optimizer_name(tensor->snapshot.optimizer.kind));
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
                       gw_optimizer_name(tensor->snapshot.optimizer.kind));
        deviation_print(label, &compared->deviation);
        (void)snprintf(label, sizeof label, "  if %d bits were truncated",
                       tensor->dtype == GW_FP32 ? 18 : (tensor->dtype == GW_BF16 ? 6 : 9));
        deviation_print(label, &compared->truncated);
    }
}

static void roundtrip_print(const gw_tensor_input *tensor, const gw_verify_options *options,
                            const roundtrip_report *report)
{
    const uint64_t input_size = tensor->len * gw_dtype_size(tensor->dtype);
    gw_cli_puts(stdout, tensor->name);
    printf(": %s\n", report->failure == NULL ? "ok" : report->failure);
    gw_tensor_report_print(tensor, &report->info, &report->parts);
    comparison_print(tensor, &report->compared);
    printf("  %-28s encode %.3f, decode %.3f", "speed, GB/s of values",
           gw_cli_gbps(input_size, report->encode_seconds), gw_cli_gbps(input_size, report->decode_seconds));
    if (tensor->map.levels != NULL) {
        printf(", map %.3f", gw_cli_gbps(input_size, tensor->map.seconds));
    }
    printf(", memcpy %.3f (", gw_cli_gbps(input_size, report->copy_seconds));
    gw_codec_request_print(&options->request);
    printf(", median of %llu)\n", (unsigned long long)options->runs);
    if (report->scalar_equal >= 0) {
        printf("  %-28s %s\n", "equals one scalar thread", report->scalar_equal ? "yes" : "NO");
    }
}

static int roundtrip_run(const gw_tensor_input *tensor, const gw_verify_options *options, gw_encode_run *run,
                         roundtrip_report *report)
{
    const uint32_t used = options->request.backends & gw_backends_available();
    int result = encode_timed(tensor, run, options->runs, &report->encode_seconds);
    if (result == GW_CLI_OK && (options->request.threads > 1 || (used & ~(uint32_t)GW_BACKEND_SCALAR) != 0)) {
        result = scalar_compare(tensor, run, &report->scalar_equal);
    }
    if (result == GW_CLI_OK) {
        result = decode_and_compare(tensor, run, options, report);
    }
    return result;
}

int gw_verify_roundtrip(const gw_tensor_input *tensor, const gw_verify_options *options)
{
    gw_encode_run run;
    roundtrip_report report;
    memset(&report, 0, sizeof report);
    report.scalar_equal = -1;
    int result = gw_encode_run_init(&run, &tensor->codec, &tensor->source, options->request.threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    result = roundtrip_run(tensor, options, &run, &report);
    gw_encode_run_free(&run);
    if (result != GW_CLI_OK) {
        return result;
    }
    failure_find(&report, options);
    if (!options->request.json) {
        roundtrip_print(tensor, options, &report);
    } else {
        result = roundtrip_print_json(tensor, options, &report);
    }
    if (result == GW_CLI_OK && report.failure != NULL) {
        result = gw_cli_error(GW_CLI_BAD_DATA, tensor->name, "%s", report.failure);
    }
    return result;
}
