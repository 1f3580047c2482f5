/*
 * gradwire classic aggregate: frames of several ranks to their mean, their sum or a majority vote.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "classic_request.h"
#include "cli_output.h"

#include <stdlib.h>
#include <string.h>

static const gw_option aggregate_options[] = {
    GW_OUTPUT_ROW("OUT", "The array (.npy, fp32), or with --vote the frame, to write"),
    {"vote", NULL, "signsgd, signum: a frame of the majority of each sign",
     GW_FLAG(classic_request, is_vote)},
    {"sum", NULL, "The sum of the inputs, not their mean", GW_FLAG(classic_request, is_sum)},
    GW_BACKEND_ROW,
    {0},
};

static void aggregate_end(struct argp_state *state, void *input)
{
    const classic_request *request = input;
    if (request->is_vote && request->is_sum) {
        argp_error(state, "--vote excludes --sum");
    }
}

static const gw_command_line aggregate_line = {
    "A.gw B.gw ... -o OUT",
    "Add frames without decoding them: signs, randk with one seed and round, qsgd and terngrad with shared "
    "norms. The result is the mean.",
    GW_INPUTS,
    {.options = aggregate_options, .end = aggregate_end},
    {{0}},
};

/* The first frame stays open: it names what all have in common. */
typedef struct aggregate_run {
    gw_input_file first_input;
    gw_classic_frame first;
    gw_classic_frame_info info;
    gw_classic_sum sum;
    gw_workspace workspace;
} aggregate_run;

_Noreturn static void no_sum(const aggregate_run *run)
{
    gw_cli_fail(GW_CLI_BAD_DATA, run->first_input.name,
                "%s frames like this one have no sum (docs/cli-classic.md)",
                gw_classic_scheme_name(run->info.scheme));
}

static void run_open(const classic_request *request, aggregate_run *run)
{
    gw_cli_must(gw_input_file_open_frame(&run->first_input, request->common.input, UINT64_MAX));
    run->info = classic_peek(&run->first_input, UINT64_MAX);
    run->first = (gw_classic_frame){run->first_input.data, run->first_input.size, UINT64_MAX,
                                    request->common.backends};
    const gw_classic_scheme scheme = run->info.scheme;
    run->sum.size = gw_classic_sum_size(&run->info);
    if (run->sum.size == 0 && run->info.len != 0) {
        no_sum(run);
    }
    if (request->is_vote && scheme != GW_CLASSIC_SIGNSGD && scheme != GW_CLASSIC_SIGNUM) {
        gw_cli_fail(GW_CLI_USAGE, run->first_input.name, "--vote: %s frames have no votes",
                    gw_classic_scheme_name(scheme));
    }
    run->sum.lanes = gw_cli_alloc(run->sum.size);
    memset(run->sum.lanes, 0, run->sum.size);
    run->workspace = gw_cli_alloc_workspace(gw_classic_decode_workspace_size(&run->info));
}

static void frame_add(const gw_request *request, aggregate_run *run, const gw_input_file *input)
{
    const gw_classic_frame_info info = classic_peek(input, UINT64_MAX);
    const size_t needed = gw_classic_decode_workspace_size(&info);
    if (needed > run->workspace.size) { /* of another shape: refused below */
        free(run->workspace.data);
        run->workspace = gw_cli_alloc_workspace(needed);
    }
    const gw_classic_frame frame = {input->data, input->size, UINT64_MAX, request->backends};
    const gw_status status = gw_classic_sum_add(&run->sum, &run->first, &frame, &run->workspace);
    if (status == GW_ERR_MISMATCH) {
        gw_cli_fail(GW_CLI_BAD_DATA, input->name,
                    "cannot be added to %s: made with other options, seed, round, positions or norms (%s)",
                    request->input, gw_status_name(status));
    }
    if (status == GW_ERR_OPTION) {
        no_sum(run);
    }
    classic_must(input->name, status);
}

static void vote_write(const char *path, const aggregate_run *run)
{
    gw_buffer dst = {gw_cli_alloc(run->first.size), run->first.size, 0};
    classic_must(run->first_input.name, gw_classic_sum_vote(&run->sum, &run->first, &dst, &run->workspace));
    gw_cli_write_file(path, dst.data, dst.size);
    free(dst.data);
}

static void sum_write(const char *path, const aggregate_run *run, float factor)
{
    gw_classic_target target = {gw_cli_alloc_array(run->info.len, sizeof(float)), run->info.len, 0, factor};
    classic_must(run->first_input.name,
                 gw_classic_sum_decode(&run->sum, &run->first, &target, &run->workspace));
    gw_npy_save(path, GW_FP32, target.values, target.len);
    free(target.values);
}

int gw_cmd_classic_aggregate(int argc, char **argv)
{
    classic_request *request = (classic_request *)classic_request_defaults();
    const gw_request *common = &request->common;
    static aggregate_run run;
    gw_command_line_parse(&aggregate_line, argc, argv, request);
    gw_cli_check_inputs(common);
    run_open(request, &run);
    frame_add(common, &run, &run.first_input);
    for (int i = 1; i < common->input_count; i++) {
        gw_input_file input;
        gw_cli_must(gw_input_file_open_frame(&input, common->inputs[i], UINT64_MAX));
        frame_add(common, &run, &input);
        gw_input_file_close(&input);
    }
    if (request->is_vote) {
        vote_write(common->output, &run);
    } else {
        sum_write(common->output, &run, request->is_sum ? 0.0f : 1.0f / (float)run.sum.members);
    }
    free(run.workspace.data);
    free(run.sum.lanes);
    gw_input_file_close(&run.first_input);
    return GW_CLI_OK;
}
