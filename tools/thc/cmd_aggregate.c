/*
 * gradwire aggregate: frames of several workers, or sums of some, to one sum.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>

#include "cmd.h"
#include "cli_output.h"
#include "input_file.h"
#include "thc_options.h"

static const gw_option aggregate_options[] = {
    GW_OUTPUT_ROW("SUM.gw", "The sum to write"),
    {"checksum", NULL, "End the frame with a CRC32C", GW_FLAG(thc_request, checksum)},
    GW_BACKEND_ROW,
    {0},
};

static const gw_command_line aggregate_line = {
    "A.gw B.gw ... -o SUM.gw",
    "Add THC frames: indices of workers, sums, or both. Each worker may be in the sum once.",
    GW_INPUTS,
    {.options = aggregate_options},
    {{0}},
};

/* 1 in *block_sets if any input has a set per block: the sum then needs them too. */
static int look_for_block_sets(const gw_request *a, int *block_sets)
{
    *block_sets = 0;
    for (int i = 0; i < a->input_count; i++) {
        gw_input_file input;
        gw_thc_frame_info info;
        int code = gw_input_file_open_frame(&input, a->inputs[i], UINT64_MAX);
        if (code != GW_CLI_OK) {
            return code;
        }
        if (gw_thc_frame_peek(input.data, input.size, &info) == GW_OK &&
            (info.flags & GW_THC_FLAG_BLOCK_SETS) != 0) {
            *block_sets = 1;
        }
        gw_input_file_close(&input);
    }
    return GW_CLI_OK;
}

/* Memory for the sum of frames like this one, and the empty sum in it. */
static int start_sum(const gw_thc_frame *frame, const gw_thc_frame_info *info, uint32_t flags, gw_buffer *sum)
{
    gw_thc thc;
    gw_status status = gw_thc_init(&thc, &info->options);

    if (status == GW_OK) {
        sum->capacity = gw_thc_frame_sum_bound(&thc, info->len, flags);
        sum->data = gw_cli_alloc(sum->capacity);
        if (sum->data == NULL) {
            return GW_CLI_IO;
        }
        status = gw_thc_frame_sum_init(frame, flags, sum);
    }
    return status == GW_OK ? GW_CLI_OK : thc_fail(NULL, status, UINT64_MAX);
}

/* Why a frame was refused. */
static int refuse(const gw_request *a, const char *path, gw_status status, gw_thc_field field, uint64_t bad)
{
    if (field != GW_THC_FIELD_NONE) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "cannot be added to %s: %s differ%s (%s)", a->input,
                            gw_thc_field_name(field), field == GW_THC_FIELD_NORMS ? "" : "s",
                            gw_status_name(status));
    }
    return thc_fail(path, status, bad);
}

static int add_file(const gw_request *a, const char *path, uint32_t flags, gw_buffer *sum)
{
    gw_input_file input;
    gw_thc_frame_info info = {0};
    gw_thc_field field = GW_THC_FIELD_NONE;
    uint64_t bad;
    int code = gw_input_file_open_frame(&input, path, UINT64_MAX);

    if (code != GW_CLI_OK) {
        return code;
    }
    const gw_thc_frame frame = {input.data, input.size, UINT64_MAX, a->backends};
    gw_status status = gw_thc_frame_check(&frame, &info, &bad);
    if (status == GW_OK && sum->data == NULL) {
        code = start_sum(&frame, &info, flags, sum);
    }
    if (status == GW_OK && code == GW_CLI_OK) {
        status = gw_thc_frame_sum_add(sum, &frame, &bad);
        field = status != GW_OK ? gw_thc_frame_mismatch(sum, &frame) : GW_THC_FIELD_NONE;
    }
    if (info.options.worker_max == 1 && (status == GW_ERR_DUP || status == GW_ERR_MISMATCH)) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path,
                            "made without --norms, for one worker: it cannot be added to another");
    } else if (status != GW_OK) {
        code = refuse(a, path, status, field, bad);
    }
    gw_input_file_close(&input);
    return code;
}

int gw_cmd_aggregate(int argc, char **argv)
{
    thc_request *request = (thc_request *)thc_request_defaults();
    const gw_request *a = &request->common;
    gw_buffer sum = {0};
    int block_sets = 0;
    gw_command_line_parse(&aggregate_line, argc, argv, request);
    int code = gw_cli_check_inputs(a);
    if (code == GW_CLI_OK) {
        code = look_for_block_sets(a, &block_sets);
    }
    const uint32_t flags =
        (request->checksum ? GW_THC_FLAG_CHECKSUM : 0) | (block_sets ? GW_THC_FLAG_BLOCK_SETS : 0);
    for (int i = 0; code == GW_CLI_OK && i < a->input_count; i++) {
        code = add_file(a, a->inputs[i], flags, &sum);
    }
    if (code == GW_CLI_OK) {
        code = gw_cli_write_file(a->output, sum.data, sum.size);
    }
    free(sum.data);
    return code;
}
