/*
 * gradwire classic aggregate: frames of several ranks to their mean, their sum or a majority vote.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_classic.h"

#include "classic_request.h"
#include "input_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct aggregate_arguments {
    const char *output;
    uint32_t backends;
    int is_vote;
    int is_sum;
    char **inputs;
    int input_count;
} aggregate_arguments;

enum { KEY_VOTE = 0x400, KEY_SUM, KEY_BACKEND };

static const struct argp_option aggregate_options[] = {
    {"output", 'o', "OUT", 0, "The array (.npy, fp32), or with --vote the frame, to write", 0},
    {"vote", KEY_VOTE, NULL, 0, "signsgd, signum: a frame of the majority of each sign", 0},
    {"sum", KEY_SUM, NULL, 0, "The sum of the inputs, not their mean", 0},
    {"backend", KEY_BACKEND, "NAME[,NAME]", 0, "Permitted backends (default: all that the machine has)", 0},
    {0},
};

static error_t aggregate_parse(int key, char *text, struct argp_state *state)
{
    aggregate_arguments *a = state->input;
    switch (key) {
    case KEY_VOTE:
        a->is_vote = 1;
        break;
    case KEY_SUM:
        a->is_sum = 1;
        break;
    case KEY_BACKEND:
        gw_cli_parse_backends(state, text, &a->backends);
        break;
    case ARGP_KEY_END:
        (void)gw_cli_inputs(key, text, state, &a->inputs, &a->input_count, &a->output);
        if (a->is_vote && a->is_sum) {
            argp_error(state, "--vote excludes --sum");
        }
        break;
    default:
        return gw_cli_inputs(key, text, state, &a->inputs, &a->input_count, &a->output);
    }
    return 0;
}

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

static int run_open(const aggregate_arguments *a, aggregate_run *run)
{
    const char *name = a->inputs[0];
    int code = gw_input_file_open_frame(&run->first_input, name, UINT64_MAX);
    if (code == GW_CLI_OK) {
        code = classic_peek(&run->first_input, UINT64_MAX, &run->info);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    run->first = (gw_classic_frame){run->first_input.data, run->first_input.size, UINT64_MAX, a->backends};
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
    return classic_workspace(gw_classic_decode_workspace_size(&run->info), &run->workspace);
}

static int frame_add(const aggregate_arguments *a, aggregate_run *run, const gw_input_file *input)
{
    gw_classic_frame_info info;
    const int code = classic_peek(input, UINT64_MAX, &info);
    if (code != GW_CLI_OK) {
        return code;
    }
    const size_t needed = gw_classic_decode_workspace_size(&info);
    if (needed > run->workspace.size) { /* of another shape: refused below */
        free(run->workspace.data);
        if (classic_workspace(needed, &run->workspace) != GW_CLI_OK) {
            return GW_CLI_IO;
        }
    }
    const gw_classic_frame frame = {input->data, input->size, UINT64_MAX, a->backends};
    const gw_status status = gw_classic_sum_add(&run->sum, &run->first, &frame, &run->workspace);
    if (status == GW_ERR_MISMATCH) {
        return gw_cli_error(GW_CLI_BAD_DATA, input->name,
                            "cannot be added to %s: made with other options, seed, round, positions or norms "
                            "(%s)",
                            a->inputs[0], gw_status_name(status));
    }
    if (status == GW_ERR_OPTION) {
        return no_sum(run);
    }
    return status == GW_OK ? GW_CLI_OK : classic_fail(input->name, status);
}

static int vote_write(const aggregate_arguments *a, aggregate_run *run)
{
    gw_buffer dst = {gw_cli_alloc(run->first.size), run->first.size, 0};
    if (dst.data == NULL) {
        return GW_CLI_IO;
    }
    const gw_status status = gw_classic_sum_vote(&run->sum, &run->first, &dst, &run->workspace);
    const int code = status == GW_OK ? gw_cli_write_file(a->output, dst.data, dst.size)
                                     : classic_fail(run->first_input.name, status);
    free(dst.data);
    return code;
}

static int sum_write(const aggregate_arguments *a, aggregate_run *run)
{
    gw_classic_target target = {classic_alloc(run->info.len, sizeof(float)), run->info.len, 0,
                                a->is_sum ? 0.0f : 1.0f / (float)run->sum.members};
    if (target.values == NULL) {
        return GW_CLI_IO;
    }
    const gw_status status = gw_classic_sum_decode(&run->sum, &run->first, &target, &run->workspace);
    const int code = status == GW_OK ? gw_npy_save(a->output, GW_FP32, target.values, target.len)
                                     : classic_fail(run->first_input.name, status);
    free(target.values);
    return code;
}

static int aggregate(const aggregate_arguments *a, aggregate_run *run)
{
    int code = run_open(a, run);
    if (code == GW_CLI_OK) {
        code = frame_add(a, run, &run->first_input);
    }
    for (int i = 1; code == GW_CLI_OK && i < a->input_count; i++) {
        gw_input_file input;
        code = gw_input_file_open_frame(&input, a->inputs[i], UINT64_MAX);
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
    static const struct argp argp = {
        aggregate_options,
        aggregate_parse,
        "A.gw B.gw ... -o OUT",
        "Add frames without decoding them: signs, randk with one seed and round, qsgd and terngrad with "
        "shared "
        "norms. The result is the mean.",
        NULL,
        NULL,
        NULL,
    };
    aggregate_arguments a;
    static aggregate_run run;

    memset(&a, 0, sizeof a);
    a.backends = GW_BACKEND_ALL;
    gw_cli_parse(&argp, argc, argv, 0, &a);
    int code = GW_CLI_OK;
    for (int i = 0; code == GW_CLI_OK && i < a.input_count; i++) {
        code = gw_cli_check_output(a.output, a.inputs[i]);
    }
    if (code == GW_CLI_OK) {
        code = aggregate(&a, &run);
    }
    free(run.workspace.data);
    free(run.sum.lanes);
    gw_input_file_close(&run.first_input);
    return code;
}
