/*
 * Inputs and outputs of subcommands.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_output.h"

#include "atomic_file.h"
#include "cli_common.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void require(struct argp_state *state, int has_input, const char *const *output)
{
    const int has_output = output == NULL || *output != NULL;
    if (!has_input || !has_output) {
        argp_error(state, has_input ? "-o is missing" : "an input is missing");
    }
}

const char *gw_cli_output_name(const char *text)
{
    return gw_atomic_file_is_stdout(text) ? "-" : text;
}

error_t gw_cli_one_input(int key, char *text, struct argp_state *state, const char **input,
                         const char **output)
{
    switch (key) {
    case 'o':
        *output = gw_cli_output_name(text);
        return 0;
    case ARGP_KEY_ARG:
        if (*input != NULL) {
            argp_error(state, "one input at a time");
        }
        *input = text;
        return 0;
    case ARGP_KEY_END:
        require(state, *input != NULL, output);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

error_t gw_cli_inputs(int key, char *text, struct argp_state *state, char ***inputs, int *count,
                      const char **output)
{
    switch (key) {
    case 'o':
        *output = gw_cli_output_name(text);
        return 0;
    case ARGP_KEY_ARGS:
        *inputs = state->argv + state->next;
        *count = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        require(state, *count != 0, output);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int gw_cli_check_output(const char *output, const char *input)
{
    if (output == NULL || input == NULL || !gw_atomic_file_is_same(output, input)) {
        return GW_CLI_OK;
    }
    return gw_cli_error(GW_CLI_USAGE, output, "is an input file; write the output elsewhere");
}

void *gw_cli_alloc(size_t size)
{
    void *memory = size == SIZE_MAX ? NULL : malloc(size > 0 ? size : 1);

    if (memory == NULL) {
        (void)gw_cli_error(GW_CLI_IO, NULL, "no memory for %zu bytes", size);
    }
    return memory;
}

int gw_cli_write_file(const char *path, const void *data, size_t size)
{
    gw_atomic_file file;
    int code = gw_atomic_file_open(&file, path);

    if (code == GW_CLI_OK) {
        code = gw_atomic_file_write(&file, data, size);
    }
    if (code == GW_CLI_OK) {
        code = gw_atomic_file_commit(&file);
    }
    return code;
}
