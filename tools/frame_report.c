/*
 * Reports as JSON and as tables.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "frame_report.h"

#include "cli_common.h"

#include <stdio.h>

const char *gw_chunk_kind_name(gw_gcomp_chunk_kind kind)
{
    return kind == GW_GCOMP_CHUNK_ZERO ? "zero" : (kind == GW_GCOMP_CHUNK_RAW ? "raw" : "coded");
}

/* ---- JSON ---- */

json_t *gw_frame_report_json(const char *command, const gw_gcomp_frame_info *info,
                             const gw_frame_parts *parts)
{
    const double values_size = (double)info->len * (double)gw_dtype_size(info->dtype);
    json_t *report = json_object();
    gw_cli_json_text(report, "command", command);
    gw_cli_json_text(report, "status", "ok");
    gw_cli_json_count(report, "values", info->len);
    gw_cli_json_text(report, "dtype", gw_dtype_name(info->dtype));
    gw_cli_json_number(report, "rate", (double)info->frame_size / values_size);
    gw_cli_json_text(report, "quantum_mode", gw_quantum_mode_names[info->quantum_mode]);
    gw_cli_json_count(report, "step", info->step);
    gw_cli_json_count(report, "cap", info->cap);
    if (info->quantum_mode == GW_GCOMP_CARRIED) {
        gw_cli_json_count(report, "block_log2", info->block_log2);
    }
    json_t *kinds = json_object();
    for (int kind = GW_GCOMP_CHUNK_ZERO; kind <= GW_GCOMP_CHUNK_CODED; kind++) {
        gw_cli_json_count(kinds, gw_chunk_kind_name((gw_gcomp_chunk_kind)kind), parts->chunk_count[kind]);
    }
    json_object_set_new(report, "chunks", kinds);
    return report;
}

static double bits_per_value(uint64_t size, uint64_t len)
{
    return len == 0 ? 0 : 8.0 * (double)size / (double)len;
}

/* The parts of a frame, in the order of tables. */
typedef struct part_row {
    const char *key, *name; /* in JSON, in tables */
    uint64_t size;
} part_row;

enum { PART_COUNT = 7 };

static void part_rows(part_row rows[PART_COUNT], const gw_frame_parts *parts)
{
    rows[0] = (part_row){"labels", "labels (exponents, drops)", parts->labels};
    rows[1] = (part_row){"digits", "digits (signs, mantissas)", parts->digits};
    rows[2] = (part_row){"escapes", "escapes", parts->escapes};
    rows[3] = (part_row){"raw", "raw chunks", parts->raw};
    rows[4] = (part_row){"quanta", "quanta", parts->quanta};
    rows[5] = (part_row){"codebooks", "codebooks", parts->codebooks};
    rows[6] = (part_row){"headers", "headers, padding", parts->headers};
}

void gw_frame_report_add_parts(json_t *report, const gw_gcomp_frame_info *info, const gw_frame_parts *parts)
{
    part_row rows[PART_COUNT];
    json_t *bits = json_object();
    part_rows(rows, parts);
    gw_cli_json_number(bits, "total", bits_per_value(info->frame_size, info->len));
    for (int i = 0; i < PART_COUNT; i++) {
        gw_cli_json_number(bits, rows[i].key, bits_per_value(rows[i].size, info->len));
    }
    gw_cli_json_count(report, "codebooks", parts->codebook_count);
    gw_cli_json_count(report, "masked_chunks", parts->masked_count);
    gw_cli_json_count(report, "relative_chunks", parts->relative_count);
    gw_cli_json_count(report, "escapes", parts->escape_count);
    json_object_set_new(report, "bits_per_value", bits);
}

json_t *gw_tensor_report_json(const char *command, const gw_tensor_input *tensor,
                              const gw_codec_request *request, const gw_gcomp_frame_info *info,
                              const gw_frame_parts *parts)
{
    const uint64_t input_size = tensor->in.len * gw_dtype_size(tensor->in.dtype);
    json_t *report = gw_frame_report_json(command, info, parts);
    gw_frame_report_add_parts(report, info, parts);
    gw_cli_json_count(report, "input_bytes", input_size);
    gw_cli_json_count(report, "output_bytes", info->frame_size);
    gw_cli_json_number(report, "rate_fp32", (double)info->frame_size / (4.0 * (double)tensor->in.len));
    gw_cli_json_number(report, "rate_bf16", (double)info->frame_size / (2.0 * (double)tensor->in.len));
    gw_cli_json_flag(report, "constant", info->constant);
    gw_cli_json_flag(report, "strict", info->strict);
    gw_cli_json_flag(report, "checksum", info->checksum);
    gw_cli_json_text(report, "map", gw_tensor_input_map_name(tensor));
    gw_cli_json_number(report, "wire_scale", (double)request->wire_scale);
    const int has_tolerance = tensor->map.bytes != NULL && !gw_codec_request_limits(request).noise_only;
    json_object_set_new(report, "tolerance_bits",
                        has_tolerance ? json_integer((json_int_t)tensor->options.tolerance_bits)
                                      : json_null());
    gw_cli_json_number(report, "noise", (double)request->noise);
    gw_cli_json_number(report, "target_nmse", (double)tensor->options.quantum.nmse);
    gw_cli_json_flag(report, "dead_zone", tensor->options.dead_zone);
    gw_cli_json_text(report, "rounding", gw_rounding_names[tensor->options.rounding]);
    gw_cli_json_text(report, "preset", gw_preset_names[tensor->options.preset]);
    if (tensor->target_bits > 0) {
        gw_cli_json_number(report, "target_bits", tensor->target_bits);
        gw_cli_json_count(report, "chosen_tolerance_bits", tensor->options.tolerance_bits);
        gw_cli_json_count(report, "predicted_bytes", tensor->predicted_size);
    }
    gw_cli_json_text(report, "backend", gw_codec_backend_name(request->common.backends));
    gw_cli_json_count(report, "threads", request->threads);
    if (tensor->map.bytes != NULL) {
        gw_cli_json_number(report, "map_seconds", tensor->map.seconds);
        gw_cli_json_number(report, "map_GBps", gw_cli_gbps(input_size, tensor->map.seconds));
    }
    return report;
}

/* ---- tables ---- */

static void part_print(const char *name, uint64_t size, uint64_t len)
{
    printf("  %-28s %14llu %12.4f\n", name, (unsigned long long)size, bits_per_value(size, len));
}

void gw_frame_report_print(const gw_gcomp_frame_info *info, const gw_frame_parts *parts)
{
    part_row rows[PART_COUNT];
    part_rows(rows, parts);
    printf("  chunks: %llu coded (%llu masked, %llu relative), %llu raw, %llu zero; codebooks: %llu; "
           "escapes: %llu\n",
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_CODED],
           (unsigned long long)parts->masked_count, (unsigned long long)parts->relative_count,
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_RAW],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_ZERO],
           (unsigned long long)parts->codebook_count, (unsigned long long)parts->escape_count);
    printf("  %-28s %14s %12s\n", "part", "bytes", "bits/value");
    for (int i = 0; i < PART_COUNT; i++) {
        part_print(rows[i].name, rows[i].size, info->len);
    }
    part_print("total", info->frame_size, info->len);
}

void gw_tensor_report_print(const gw_tensor_input *tensor, const gw_gcomp_frame_info *info,
                            const gw_frame_parts *parts)
{
    printf("  %llu values of %s, %s quanta, step %u, cap %u, drops by %s%s%s, %s, %s\n",
           (unsigned long long)tensor->in.len, gw_dtype_name(tensor->in.dtype),
           gw_quantum_mode_names[info->quantum_mode], info->step, info->cap, gw_tensor_input_map_name(tensor),
           tensor->options.dead_zone ? ", dead zone" : "", info->strict ? ", strict" : "",
           gw_rounding_names[tensor->options.rounding], gw_preset_names[tensor->options.preset]);
    if (tensor->target_bits > 0) {
        printf("  at most %g bits a value: tolerance of %u bits chosen, %llu bytes predicted\n",
               tensor->target_bits, tensor->options.tolerance_bits,
               (unsigned long long)tensor->predicted_size);
    }
    gw_frame_report_print(info, parts);
    if (tensor->in.len > 0) {
        const double percent = 100.0 * (double)info->frame_size / (double)tensor->in.len;
        printf("  %.2f %% of the input, %.2f %% of fp32, %.2f %% of bf16\n",
               percent / (double)gw_dtype_size(tensor->in.dtype), percent / 4, percent / 2);
    }
}
