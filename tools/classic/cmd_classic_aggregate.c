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

static int no_sum(const aggregate_run *run)
{
    return gw_cli_error(GW_CLI_BAD_DATA, run->first_input.name,
                        "%s frames like this one have no sum (docs/cli-classic.md)",
                        gw_classic_scheme_name(run->info.scheme));
}

static int run_open(const classic_request *a, aggregate_run *run)
{
    const char *name = a->common.input;
    int code = gw_input_file_open_frame(&run->first_input, name, UINT64_MAX);
    if (code == GW_CLI_OK) {
        code = classic_peek(&run->first_input, UINT64_MAX, &run->info);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    run->first =
        (gw_classic_frame){run->first_input.data, run->first_input.size, UINT64_MAX, a->common.backends};
    const gw_classic_scheme scheme = run->info.scheme;
    run->sum.size = gw_classic_sum_size(&run->info);
    if (run->sum.size == 0 && run->info.len != 0) {
        return no_sum(run);
    }
    if (a->is_vote && scheme != GW_CLASSIC_SIGNSGD && scheme != GW_CLASSIC_SIGNUM) {
        return gw_cli_error(GW_CLI_USAGE, run->first_input.name, "--vote: %s frames have no votes",
                            gw_classic_scheme_name(scheme));
    }
    run->sum.lanes = gw_cli_alloc(run->sum.size);
    if (run->sum.lanes == NULL) {
        return GW_CLI_IO;
    }
    memset(run->sum.lanes, 0, run->sum.size);
    return gw_cli_alloc_workspace(gw_classic_decode_workspace_size(&run->info), &run->workspace);
}

static int frame_add(const classic_request *a, aggregate_run *run, const gw_input_file *input)
{
    gw_classic_frame_info info;
    const int code = classic_peek(input, UINT64_MAX, &info);
    if (code != GW_CLI_OK) {
        return code;
    }
    const size_t needed = gw_classic_decode_workspace_size(&info);
    if (needed > run->workspace.size) { /* of another shape: refused below */
        free(run->workspace.data);
        if (gw_cli_alloc_workspace(needed, &run->workspace) != GW_CLI_OK) {
            return GW_CLI_IO;
        }
    }
    const gw_classic_frame frame = {input->data, input->size, UINT64_MAX, a->common.backends};
    const gw_status status = gw_classic_sum_add(&run->sum, &run->first, &frame, &run->workspace);
    if (status == GW_ERR_MISMATCH) {
        return gw_cli_error(GW_CLI_BAD_DATA, input->name,
                            "cannot be added to %s: made with other options, seed, round, positions or norms "
                            "(%s)",
                            a->common.input, gw_status_name(status));
    }
    if (status == GW_ERR_OPTION) {
        return no_sum(run);
    }
    return status == GW_OK ? GW_CLI_OK : classic_fail(input->name, status);
}

static int vote_write(const classic_request *a, aggregate_run *run)
{
    gw_buffer dst = {gw_cli_alloc(run->first.size), run->first.size, 0};
    if (dst.data == NULL) {
        return GW_CLI_IO;
    }
    const gw_status status = gw_classic_sum_vote(&run->sum, &run->first, &dst, &run->workspace);
    const int code = status == GW_OK ? gw_cli_write_file(a->common.output, dst.data, dst.size)
                                     : classic_fail(run->first_input.name, status);
    free(dst.data);
    return code;
}

static int sum_write(const classic_request *a, aggregate_run *run)
{
    gw_classic_target target = {gw_cli_alloc_array(run->info.len, sizeof(float)), run->info.len, 0,
                                a->is_sum ? 0.0f : 1.0f / (float)run->sum.members};
    if (target.values == NULL) {
        return GW_CLI_IO;
    }
    const gw_status status = gw_classic_sum_decode(&run->sum, &run->first, &target, &run->workspace);
    const int code = status == GW_OK ? gw_npy_save(a->common.output, GW_FP32, target.values, target.len)
                                     : classic_fail(run->first_input.name, status);
    free(target.values);
    return code;
}

static int aggregate(const classic_request *a, aggregate_run *run)
{
    int code = run_open(a, run);
    if (code == GW_CLI_OK) {
        code = frame_add(a, run, &run->first_input);
    }
    for (int i = 1; code == GW_CLI_OK && i < a->common.input_count; i++) {
        gw_input_file input;
        code = gw_input_file_open_frame(&input, a->common.inputs[i], UINT64_MAX);
        if (code == GW_CLI_OK) {
            code = frame_add(a, run, &input);
            gw_input_file_close(&input);
        }
    }
    if (code == GW_CLI_OK) {
        code = a->is_vote ? vote_write(a, run) : sum_write(a, run);
    }
    return code;
}

int gw_cmd_classic_aggregate(int argc, char **argv)
{
    classic_request *request = (classic_request *)classic_request_defaults();
    static aggregate_run run;
    gw_command_line_parse(&aggregate_line, argc, argv, request);
    int code = gw_cli_check_inputs(&request->common);
    if (code == GW_CLI_OK) {
        code = aggregate(request, &run);
    }
    free(run.workspace.data);
    free(run.sum.lanes);
    gw_input_file_close(&run.first_input);
    return code;
}
