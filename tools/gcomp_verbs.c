/*
 * GCOMP: compress and decompress.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include "cuda_run.h"
#include "frame_explain.h"
#include "frame_input.h"
#include "frame_report.h"
#include "tensor_input.h"

#include <stdio.h>

static gw_codec_request codec_request;
static gw_tensor_input tensor;
static gw_frame_input frame;
static gw_encode_run encoder;
static double run_seconds; /* the median of the runs */

static gw_request *request_defaults(void)
{
    gw_codec_request_init(&codec_request);
    return &codec_request.common;
}

/* ---- compress ---- */

static const gw_option compress_options[] = {
    GW_OUTPUT_ROW("OUT.gw", "The frame to write; - is standard output"),
    GW_CODEC_ROW("gcomp (default), thc, classic (see gradwire compress --codec NAME --help)", 0),
    {0},
};

static const gw_command_line compress_line = {
    "IN -o OUT.gw",
    "Compress IN, a NumPy array (.npy) or a snapshot (.json with its arrays), into one frame.\v"
    "The gradient of a snapshot loses the mantissa bits that do not affect the parameter update. An array "
    "loses "
    "none, or as many as --drop says. Exit codes: 0 done, 1 bad input, 2 bad command line, 3 input or output "
    "failed.",
    GW_ONE_INPUT,
    {.options = compress_options},
    {{"Encoding:", &gw_codec_encode_group, NULL}, {"Running:", &gw_codec_run_group, NULL}},
};

static void tensor_open(gw_request *request)
{
    gw_tensor_input_open(&tensor, &codec_request);
    if (gw_tensor_source_has_file(&tensor.in, request->output)) {
        gw_cli_fail(GW_CLI_USAGE, request->output, "is an input file; write the frame elsewhere");
    }
}

static gw_buffer tensor_encode(gw_request *request)
{
    (void)request;
    gw_tensor_input_prepare(&tensor, &codec_request);
    gw_encode_run_init(&encoder, &tensor.codec, &tensor.source, codec_request.threads);
    gw_encode_run_release(&encoder, gw_tensor_source_npy(&tensor.in), tensor.options.chunk_log2);
    /* A second run would need the memory of the input again beside that of the frame. */
    gw_cli_timer timer = {.runs = 0, .is_once = encoder.released != NULL};
    const gw_status status = gw_encode_run_timed(&encoder, &timer);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, tensor.in.name, "%s (%s)", gw_status_message(status),
                    gw_status_name(status));
    }
    run_seconds = gw_cli_timer_median(&timer);
    return (gw_buffer){encoder.frame, encoder.frame_capacity, encoder.frame_size};
}

static void encode_report(const gw_request *request)
{
    const uint64_t input_size = tensor.in.len * gw_dtype_size(tensor.in.dtype);
    gw_gcomp_frame_info info;
    gw_frame_parts parts;
    if (gw_gcomp_frame_peek(encoder.frame, encoder.frame_size, (uint64_t)1 << 48, &info) != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, request->output, "the frame cannot be read back");
    }
    gw_frame_parts_read(encoder.frame, encoder.frame_size, &info, &parts);
    if (request->json) {
        json_t *object = gw_tensor_report_json("compress", &tensor, &codec_request, &info, &parts);
        gw_cli_json_number(object, "encode_seconds", run_seconds);
        gw_cli_json_number(object, "encode_GBps", gw_cli_gbps(input_size, run_seconds));
        gw_cli_must(gw_cli_json_print(object));
        return;
    }
    gw_cli_print_arrow(request->input, request->output);
    gw_tensor_report_print(&tensor, &info, &parts);
    printf("  encode %.3f GB/s", gw_cli_gbps(input_size, run_seconds));
    if (tensor.map.bytes != NULL) {
        printf(", map %.3f GB/s", gw_cli_gbps(input_size, tensor.map.seconds));
    }
    printf(" of input values (");
    gw_codec_request_print(&codec_request);
    printf(")\n");
}

static void tensor_close(void)
{
    gw_encode_run_free(&encoder);
    gw_tensor_input_close(&tensor);
}

/* ---- decompress ---- */

static const gw_option decompress_options[] = {
    GW_OUTPUT_ROW("OUT.npy", "The array to write; - is standard output"),
    {"snapshot", "S.json", "The snapshot that a derived frame was made with",
     GW_TEXT(gw_codec_request, snapshot_path)},
    GW_LEN_MAX_ROW(48, "2^48"),
    GW_CODEC_ROW("thc, classic: needed only for such frames on standard input", 0),
    {0},
};

static const gw_command_line decompress_line = {
    "IN.gw -o OUT.npy",
    "Decompress a frame into a one-dimensional NumPy array ('<f4', '<f2', or '<u2' for bf16).\v"
    "Nothing is written unless every chunk of the frame is valid. Exit codes: 0 done, 1 bad frame or "
    "snapshot, 2 "
    "bad command line, 3 input or output failed.",
    GW_ONE_INPUT,
    {.options = decompress_options},
    {{"Running:", &gw_codec_run_group, NULL}},
};

static void frame_open(gw_request *request, gw_input_file *input)
{
    gw_frame_input_open(&frame, input, &codec_request);
    if (gw_snapshot_has_file(&frame.snapshot, request->output)) {
        gw_cli_fail(GW_CLI_USAGE, request->output, "is an input file; write the array elsewhere");
    }
}

static void decode_whole(gw_decode_run *run, gw_atomic_file *output)
{
    gw_cli_timer timer = {.runs = 0};
    uint64_t bad_chunk = UINT64_MAX;
    const gw_status status = gw_decode_run_timed(run, &timer, &bad_chunk);
    gw_frame_must(&frame.input, status, bad_chunk);
    run_seconds = gw_cli_timer_median(&timer);
    gw_npy_write(output, frame.info.dtype, run->dst, frame.info.len);
}

/* Decodes a large frame and writes values as soon as they are decoded. */
static void decode_stream(gw_decode_run *run, gw_atomic_file *output)
{
    const gw_gcomp_frame_info *info = &frame.info;
    const uint64_t batch = 4 * (uint64_t)run->threads;
    const uint64_t range_size = (run->range_len << info->chunk_log2) * gw_dtype_size(info->dtype);
    const uint64_t values_size = info->len * gw_dtype_size(info->dtype);
    gw_cli_must(gw_npy_write_header(output, info->dtype, info->len));
    gw_cli_progress_begin("decode");
    for (uint64_t i = 0; i < run->range_count; i += batch) {
        const uint64_t count = run->range_count - i < batch ? run->range_count - i : batch;
        uint64_t bad_chunk = UINT64_MAX;
        const double start = gw_cli_seconds();
        const gw_status status = gw_decode_run_ranges(run, i, count, &bad_chunk, 0);
        run_seconds += gw_cli_seconds() - start;
        gw_frame_must(&frame.input, status, bad_chunk);
        const uint64_t left = values_size - i * range_size;
        const size_t size = (size_t)(count * range_size < left ? count * range_size : left);
        gw_cli_must(gw_atomic_file_write(output, run->dst + i * range_size, size));
        gw_memory_release(run->dst + i * range_size, size);
        gw_cli_progress_set(i + count, run->range_count);
    }
    gw_cli_progress_end();
}

static void frame_decode(const gw_request *request, gw_atomic_file *output)
{
    gw_decode_run run;
    const gw_gcomp_frame received = {frame.input.data, frame.input.size, frame.map_used};
    (void)request;
    gw_decode_run_init(&run, &frame.codec, &received, &frame.info, codec_request.threads);
    run.is_mapped = frame.input.mapped;
    /* Only a temporary file can be discarded if a later chunk is corrupt. */
    if (frame.info.len >= GW_CODEC_RUN_LARGE_LEN && !output->direct && !gw_cuda_run_is_on()) {
        decode_stream(&run, output);
    } else {
        decode_whole(&run, output);
    }
    gw_decode_run_free(&run);
}

static void decode_report(const gw_request *request)
{
    const gw_gcomp_frame_info *info = &frame.info;
    const uint64_t output_size = info->len * gw_dtype_size(info->dtype);
    if (request->json) {
        gw_frame_parts parts;
        gw_frame_parts_read(frame.input.data, frame.input.size, info, &parts);
        json_t *object = gw_frame_report_json("decompress", info, &parts);
        gw_cli_json_count(object, "input_bytes", info->frame_size);
        gw_cli_json_count(object, "output_bytes", output_size);
        gw_cli_json_text(object, "backend", gw_codec_backend_name(request->backends));
        gw_cli_json_count(object, "threads", codec_request.threads);
        gw_cli_json_number(object, "decode_seconds", run_seconds);
        gw_cli_json_number(object, "decode_GBps", gw_cli_gbps(output_size, run_seconds));
        gw_cli_must(gw_cli_json_print(object));
        return;
    }
    gw_cli_print_arrow(request->input, request->output);
    printf("  %llu values of %s, %llu bytes -> %llu bytes\n", (unsigned long long)info->len,
           gw_dtype_name(info->dtype), (unsigned long long)info->frame_size, (unsigned long long)output_size);
    printf("  decode %.3f GB/s of output values (", gw_cli_gbps(output_size, run_seconds));
    gw_codec_request_print(&codec_request);
    printf(")\n");
}

static void frame_close(void)
{
    gw_frame_input_close(&frame);
}

const gw_codec_verbs gw_gcomp_verbs = {
    .name = "gcomp",
    .number = 1,
    .request = request_defaults,
    .compress_line = &compress_line,
    .decompress_line = &decompress_line,
    .inspect_line = &gw_gcomp_inspect_line,
    .tensor_open = tensor_open,
    .tensor_encode = tensor_encode,
    .encode_report = encode_report,
    .tensor_close = tensor_close,
    .frame_open = frame_open,
    .frame_decode = frame_decode,
    .decode_report = decode_report,
    .frame_close = frame_close,
    .inspect = gw_gcomp_inspect,
};
