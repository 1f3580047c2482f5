/*
 * gradwire norm: phase one of THC, and the maximum over workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"
#include "cli_output.h"
#include "norm_file.h"
#include "thc_array.h"

static const gw_option norm_options[] = {
    GW_OUTPUT_ROW("FILE", "The norm file to write"),
    {"max", NULL, "Inputs are norm files: write their maximum", GW_FLAG(thc_request, is_max)},
    {"ef", "STATE.npy", "Error feedback: norms of gradient plus state", GW_TEXT(thc_request, state_path)},
    {"bf16", NULL, "Two-byte integers in the array are bf16", GW_SET(thc_request, u2, GW_NPY_U2_BF16)},
    {0},
};

static void norm_end(struct argp_state *state, void *input)
{
    const thc_request *request = input;
    if (!request->is_max && request->common.input_count != 1) {
        argp_error(state, "one array at a time; --max joins norm files");
    }
}

static const gw_command_line norm_line = {
    "A.npy -o A.norm\n--max A.norm B.norm ... -o ALL.norm",
    "The norm of every block of an array, as THC workers exchange it; or the maximum of such files.",
    GW_INPUTS,
    {.options = norm_options, .end = norm_end},
    {{"Configuration:", &thc_encode_group, NULL}},
};

static void max_of_files(const gw_request *request)
{
    norm_file all = norm_file_read(request->input);
    for (int i = 1; i < request->input_count; i++) {
        norm_file next = norm_file_read(request->inputs[i]);
        if (next.transform != all.transform || next.block_log2 != all.block_log2 || next.count != all.count) {
            gw_cli_fail(GW_CLI_BAD_DATA, request->inputs[i],
                        "another transform, block length or number of values than %s", request->input);
        }
        gw_thc_norms_max(all.patterns, next.patterns, all.pattern_count);
        all.merged += next.merged;
        norm_file_free(&next);
    }
    norm_file_write(&all, request->output);
    norm_file_free(&all);
}

static void norms_of_array(const thc_request *request)
{
    static thc_array array;
    thc_array_open(&array, request);
    const gw_thc_options *options = gw_thc_options_of(&array.thc);
    norm_file file = {
        .transform = (uint8_t)options->transform,
        .block_log2 = (uint8_t)options->block_log2,
        .count = array.in.len,
        .merged = 1,
    };
    array.range.rank = 0; /* norms do not depend on it */
    file.patterns = thc_array_norms(&array, &file.pattern_count);
    norm_file_write(&file, request->common.output);
    norm_file_free(&file);
    thc_array_close(&array);
}

int gw_cmd_norm(int argc, char **argv)
{
    thc_request *request = (thc_request *)thc_request_defaults();
    gw_command_line_parse(&norm_line, argc, argv, request);
    gw_cli_must(gw_cli_check_output(request->common.output, request->state_path));
    gw_cli_check_inputs(&request->common);
    if (request->is_max) {
        max_of_files(&request->common);
    } else {
        norms_of_array(request);
    }
    return GW_CLI_OK;
}
