/*
 * Opens frames for decoding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "frame_input.h"

#include "cli_common.h"
#include "frame_explain.h"

#include <fcntl.h>
#include <float.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gw_status handle_check(gw_frame_input *frame, const gw_codec_request *request, uint32_t tolerance_bits)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, frame->info.dtype);
    options.backends = request->backends;
    options.tolerance_bits = tolerance_bits;
    options.chunk_log2 = frame->info.chunk_log2;
    options.len_max = request->options.len_max;
    gw_status status = gw_gcomp_init(&frame->codec, &options);
    if (status == GW_OK) {
        gw_gcomp_info info;
        const gw_gcomp_frame received = {frame->input.data, frame->input.size, frame->map_used};
        status = gw_gcomp_check(&frame->codec, &received, &info);
    }
    return status;
}

/* A derived frame: makes the map and finds the precision of the parameters that gives its hash. */
static int derived_check(gw_frame_input *frame, const char *snapshot_path, const gw_codec_request *request)
{
    const char *name = frame->input.name;
    const uint64_t scale_offset = frame->info.installed ? 44 : 36;
    if (snapshot_path == NULL) {
        return gw_cli_error_at(
            GW_CLI_BAD_DATA, name, scale_offset - 4,
            "a derived frame: its drops are computed from the precision map, so it needs --snapshot with the "
            "snapshot that the frame was made with (rule 16 of docs/format.md: map)");
    }
    if (!(frame->info.wire_scale > 0 && frame->info.wire_scale <= FLT_MAX)) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, scale_offset,
                               "the wire scale is not a positive number (rule 16 of docs/format.md: map)");
    }
    gw_snapshot_options options = {GW_NPY_U2_REFUSE, 0, request->as};
    int result = gw_snapshot_open(&frame->snapshot, snapshot_path, &options);
    if (result != GW_CLI_OK) {
        return result;
    }
    if (frame->snapshot.len != frame->info.len) {
        return gw_cli_error(GW_CLI_BAD_DATA, name, "has %llu values, the snapshot %s has %llu",
                            (unsigned long long)frame->info.len, snapshot_path,
                            (unsigned long long)frame->snapshot.len);
    }
    result = gw_map_run_make(&frame->map, &frame->snapshot, frame->info.wire_scale, frame->info.chunk_log2,
                             request->backends, request->threads);
    if (result != GW_CLI_OK) {
        return result;
    }
    frame->map_used = &frame->map.map;
    static const uint32_t candidates[] = {23, 10, 7};
    gw_status status = GW_ERR_MAP;
    if (request->has_param_dtype) {
        status = handle_check(frame, request, request->options.tolerance_bits);
    } else {
        for (size_t i = 0; i < sizeof candidates / sizeof candidates[0] && status == GW_ERR_MAP; i++) {
            status = handle_check(frame, request, candidates[i]);
        }
    }
    if (status == GW_ERR_MAP) {
        return gw_cli_error_at(
            GW_CLI_BAD_DATA, name, scale_offset - 4,
            "was made with a precision map that %s does not give: other parameters, state, step, "
            "hyperparameters or --param-dtype (rule 16 of docs/format.md: map)",
            snapshot_path);
    }
    return gw_frame_explain(&frame->input, status, UINT64_MAX);
}

static int frame_check(gw_frame_input *frame, const char *snapshot_path, const gw_codec_request *request)
{
    const gw_input_file *input = &frame->input;
    gw_status status = gw_gcomp_peek(input->data, input->size, request->options.len_max, &frame->info);
    if (status == GW_OK) {
        status = handle_check(frame, request, request->options.tolerance_bits);
    }
    if (status != GW_ERR_MAP) {
        return gw_frame_explain(input, status, UINT64_MAX);
    }
    return derived_check(frame, snapshot_path, request);
}

int gw_frame_input_open(gw_frame_input *frame, const char *path, const char *snapshot_path,
                        const gw_codec_request *request)
{
    memset(frame, 0, sizeof *frame);
    int result = gw_input_file_open_frame(&frame->input, path, request->options.len_max);
    if (result == GW_CLI_OK) {
        result = frame_check(frame, snapshot_path, request);
    }
    if (result != GW_CLI_OK) {
        gw_frame_input_close(frame);
    }
    return result;
}

void gw_frame_input_close(gw_frame_input *frame)
{
    gw_map_run_free(&frame->map);
    gw_snapshot_close(&frame->snapshot);
    gw_input_file_close(&frame->input);
    memset(frame, 0, sizeof *frame);
}

int gw_frame_file_has_codec(const char *path, unsigned codec)
{
    static const uint8_t magic[4] = {0x67, 0x57, 0x66, 0x1a};
    uint8_t head[6];
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        return 0;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    const ssize_t got = read(fd, head, sizeof head);
    (void)close(fd);
    return got == (ssize_t)sizeof head && memcmp(head, magic, sizeof magic) == 0 && head[5] == codec;
}
