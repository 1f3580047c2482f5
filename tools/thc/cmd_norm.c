/*
 * gradwire norm: phase one of THC, and the maximum over workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <string.h>

#include "cmd_thc.h"
#include "cli_output.h"
#include "norm_file.h"
#include "thc_array.h"

typedef struct norm_arguments {
    const char *output;
    const char *state;
    int is_max;
    gw_npy_u2 u2;
    thc_request request;
    char **inputs;
    int input_count;
} norm_arguments;

enum { KEY_MAX = 0x400, KEY_EF, KEY_BF16 };

static const struct argp_option norm_options[] = {
    {"output", 'o', "FILE", 0, "The norm file to write", 0},
    {"max", KEY_MAX, NULL, 0, "Inputs are norm files: write their maximum", 0},
    {"ef", KEY_EF, "STATE.npy", 0, "Error feedback: norms of gradient plus state", 0},
    {"bf16", KEY_BF16, NULL, 0, "Two-byte integers in the array are bf16", 0},
    {0},
};

static error_t norm_parse(int key, char *text, struct argp_state *state)
{
    norm_arguments *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->request;
        break;
    case KEY_MAX:
        a->is_max = 1;
        break;
    case KEY_EF:
        a->state = text;
        break;
    case KEY_BF16:
        a->u2 = GW_NPY_U2_BF16;
        break;
    case ARGP_KEY_END:
        (void)gw_cli_inputs(key, text, state, &a->inputs, &a->input_count, &a->output);
        if (!a->is_max && a->input_count != 1) {
            argp_error(state, "one array at a time; --max joins norm files");
        }
        break;
    default:
        return gw_cli_inputs(key, text, state, &a->inputs, &a->input_count, &a->output);
    }
    return 0;
}

static int max_of_files(const norm_arguments *a)
{
    norm_file all;
    int code = norm_file_read(&all, a->inputs[0]);

    for (int i = 1; code == GW_CLI_OK && i < a->input_count; i++) {
        norm_file next;
        code = norm_file_read(&next, a->inputs[i]);
        if (code == GW_CLI_OK && (next.transform != all.transform || next.block_log2 != all.block_log2 ||
                                  next.count != all.count)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, a->inputs[i],
                                "another transform, block length or number of values than %s", a->inputs[0]);
        }
        if (code == GW_CLI_OK) {
            gw_thc_norms_max(all.patterns, next.patterns, all.pattern_count);
            all.merged += next.merged;
        }
        norm_file_free(&next);
    }
    if (code == GW_CLI_OK) {
        code = norm_file_write(&all, a->output);
    }
    norm_file_free(&all);
    return code;
}

static int norms_of_array(const norm_arguments *a)
{
    thc_array array;
    norm_file file;
    int code = thc_array_open(&array, a->inputs[0], a->u2, a->state, &a->request);

    if (code != GW_CLI_OK) {
        return code;
    }
    const gw_thc_options *options = gw_thc_options_of(&array.thc);
    memset(&file, 0, sizeof file);
    file.transform = (uint8_t)options->transform;
    file.block_log2 = (uint8_t)options->block_log2;
    file.count = array.npy.len;
    file.merged = 1;
    array.range.rank = 0; /* norms do not depend on it */
    code = thc_array_norms(&array, &file.patterns, &file.pattern_count);
    if (code == GW_CLI_OK) {
        code = norm_file_write(&file, a->output);
    }
    norm_file_free(&file);
    thc_array_close(&array);
    return code;
}

int gw_cmd_norm(int argc, char **argv)
{
    static const struct argp_child children[] = {{&thc_request_argp, 0, "Configuration:", 2},
                                                 {NULL, 0, NULL, 0}};
    static const struct argp argp = {
        norm_options,
        norm_parse,
        "A.npy -o A.norm\n--max A.norm B.norm ... -o ALL.norm",
        "The norm of every block of an array, as THC workers exchange it; or the maximum of such files.",
        children,
        NULL,
        NULL,
    };
    norm_arguments a;

    memset(&a, 0, sizeof a);
    thc_request_init(&a.request);
    gw_cli_parse(&argp, argc, argv, 0, &a);
    int code = gw_cli_check_output(a.output, a.state);
    for (int i = 0; code == GW_CLI_OK && i < a.input_count; i++) {
        code = gw_cli_check_output(a.output, a.inputs[i]);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    return a.is_max ? max_of_files(&a) : norms_of_array(&a);
}
