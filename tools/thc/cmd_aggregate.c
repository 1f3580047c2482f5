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

/* 1 if any input has a set per block: the sum then needs them too. */
static int have_block_sets(const gw_request *request)
{
    int have = 0;
    for (int i = 0; i < request->input_count; i++) {
        gw_input_file input;
        gw_thc_frame_info info;
        gw_cli_must(gw_input_file_open_frame(&input, request->inputs[i], UINT64_MAX));
        have |= gw_thc_frame_peek(input.data, input.size, &info) == GW_OK &&
                (info.flags & GW_THC_FLAG_BLOCK_SETS) != 0;
        gw_input_file_close(&input);
    }
    return have;
}

/* Memory for the sum of frames like this one, and the empty sum in it. */
static void start_sum(const gw_thc_frame *frame, const gw_thc_frame_info *info, uint32_t flags,
                      gw_buffer *sum)
{
    gw_thc thc;
    thc_must(NULL, gw_thc_init(&thc, &info->options), UINT64_MAX);
    sum->capacity = gw_thc_frame_sum_bound(&thc, info->len, flags);
    sum->data = gw_cli_alloc(sum->capacity);
    thc_must(NULL, gw_thc_frame_sum_init(frame, flags, sum), UINT64_MAX);
}

static void add_file(const gw_request *request, const char *path, uint32_t flags, gw_buffer *sum)
{
    gw_input_file input;
    gw_thc_frame_info info = {0};
    uint64_t bad = UINT64_MAX;
    gw_cli_must(gw_input_file_open_frame(&input, path, UINT64_MAX));
    const gw_thc_frame frame = {input.data, input.size, UINT64_MAX, request->backends};
    thc_must(path, gw_thc_frame_check(&frame, &info, &bad), bad);
    if (sum->data == NULL) {
        start_sum(&frame, &info, flags, sum);
    }
    const gw_status status = gw_thc_frame_sum_add(sum, &frame, &bad);
    const gw_thc_field field = status != GW_OK ? gw_thc_frame_mismatch(sum, &frame) : GW_THC_FIELD_NONE;
    if (info.options.worker_max == 1 && (status == GW_ERR_DUP || status == GW_ERR_MISMATCH)) {
        gw_cli_fail(GW_CLI_BAD_DATA, path,
                    "made without --norms, for one worker: it cannot be added to another");
    }
    if (field != GW_THC_FIELD_NONE) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "cannot be added to %s: %s differ%s (%s)", request->input,
                    gw_thc_field_name(field), field == GW_THC_FIELD_NORMS ? "" : "s", gw_status_name(status));
    }
    thc_must(path, status, bad);
    gw_input_file_close(&input);
}

int gw_cmd_aggregate(int argc, char **argv)
{
    thc_request *request = (thc_request *)thc_request_defaults();
    const gw_request *common = &request->common;
    gw_buffer sum = {0};
    gw_command_line_parse(&aggregate_line, argc, argv, request);
    gw_cli_check_inputs(common);
    const uint32_t flags = (request->checksum ? GW_THC_FLAG_CHECKSUM : 0) |
                           (have_block_sets(common) ? GW_THC_FLAG_BLOCK_SETS : 0);
    for (int i = 0; i < common->input_count; i++) {
        add_file(common, common->inputs[i], flags, &sum);
    }
    gw_cli_write_file(common->output, sum.data, sum.size);
    free(sum.data);
    return GW_CLI_OK;
}
