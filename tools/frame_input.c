/*
 * Opens frames for decoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "frame_input.h"

#include "cli_common.h"
#include "frame_explain.h"

#include <float.h>
#include <string.h>

static gw_status handle_check(gw_frame_input *frame, const gw_codec_request *request, uint32_t tolerance_bits)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, frame->info.dtype);
    options.backends = request->common.backends;
    options.tolerance_bits = tolerance_bits;
    options.chunk_log2 = frame->info.chunk_log2;
    options.len_max = request->common.len_max;
    gw_status status = gw_gcomp_init(&frame->codec, &options);
    if (status == GW_OK) {
        gw_gcomp_frame_info info;
        const gw_gcomp_frame received = {frame->input.data, frame->input.size, frame->map_used};
        status = gw_gcomp_frame_parse(&frame->codec, &received, &info);
    }
    return status;
}

/* The tolerance of a derived frame whose map has this base: drop_offset = base + 3 - 4 * (t - M). 0 if there
 * is none. A map with a noise limit depends on the tolerance, so its receiver must know it. */
static uint32_t tolerance_find(const gw_gcomp_frame_info *info, uint32_t map_base)
{
    const int quarters = (int)map_base + 3 - info->drop_offset;
    const int tolerance = quarters / 4 + (int)gw_dtype_mantissa_bits(info->dtype);
    return quarters % 4 == 0 && tolerance >= 1 && tolerance <= 23 ? (uint32_t)tolerance : 0;
}

/* A derived frame: makes the map and checks that it is the sender's. */
static void derived_check(gw_frame_input *frame, const gw_codec_request *request)
{
    const char *snapshot_path = request->snapshot_path;
    const char *name = frame->input.name;
    const uint64_t scale_offset = frame->info.installed ? 44 : 36;
    if (snapshot_path == NULL) {
        gw_cli_fail_at(
            GW_CLI_BAD_DATA, name, scale_offset - 4,
            "a derived frame: its drops are computed from the precision map, so it needs --snapshot with the "
            "snapshot that the frame was made with (rule 16 of docs/format.md: map)");
    }
    if (!(frame->info.wire_scale > 0 && frame->info.wire_scale <= FLT_MAX)) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, scale_offset,
                       "the wire scale is not a positive number (rule 16 of docs/format.md: map)");
    }
    gw_snapshot_options options = {GW_NPY_U2_REFUSE, 0, request->as};
    gw_snapshot_open(&frame->snapshot, snapshot_path, &options);
    if (frame->snapshot.len != frame->info.len) {
        gw_cli_fail(GW_CLI_BAD_DATA, name, "has %llu values, the snapshot %s has %llu",
                    (unsigned long long)frame->info.len, snapshot_path,
                    (unsigned long long)frame->snapshot.len);
    }
    if (request->noise > 0 && !gw_optimizer_has_second_moment(frame->snapshot.optimizer.kind)) {
        gw_cli_fail(GW_CLI_USAGE, snapshot_path,
                    "--noise needs an optimizer with a second moment, this is %s",
                    gw_optimizer_name(frame->snapshot.optimizer.kind));
    }
    const gw_map_run_options map_options = {
        gw_codec_request_limits(request), frame->info.wire_scale, frame->info.chunk_log2,
        request->common.backends,         request->threads,       0};
    gw_map_run_make(&frame->map, &frame->snapshot, &map_options);
    frame->map_used = &frame->map.map;
    const int is_known = request->has_tolerance || request->noise > 0;
    const uint32_t tolerance =
        is_known ? request->options.tolerance_bits : tolerance_find(&frame->info, frame->map.map.base);
    const gw_status status = tolerance == 0 ? GW_ERR_MAP : handle_check(frame, request, tolerance);
    if (status == GW_ERR_MAP) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, scale_offset - 4,
                       "was made with a precision map that %s does not give: other parameters, state, step, "
                       "hyperparameters, --tolerance-bits or --noise (rule 16 of docs/format.md: map)",
                       snapshot_path);
    }
    gw_frame_must(&frame->input, status, UINT64_MAX);
}

void gw_frame_input_open(gw_frame_input *frame, gw_input_file *input, const gw_codec_request *request)
{
    memset(frame, 0, sizeof *frame);
    frame->input = *input;
    memset(input, 0, sizeof *input);
    gw_status status =
        gw_gcomp_frame_peek(frame->input.data, frame->input.size, request->common.len_max, &frame->info);
    if (status == GW_OK) {
        status = handle_check(frame, request, request->options.tolerance_bits);
    }
    if (status == GW_ERR_MAP) {
        derived_check(frame, request);
    } else {
        gw_frame_must(&frame->input, status, UINT64_MAX);
    }
}

void gw_frame_input_close(gw_frame_input *frame)
{
    gw_map_run_free(&frame->map);
    gw_snapshot_close(&frame->snapshot);
    gw_input_file_close(&frame->input);
    memset(frame, 0, sizeof *frame);
}
