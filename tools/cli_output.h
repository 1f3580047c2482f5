/*
 * Inputs and outputs of subcommands.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLI_OUTPUT_H
#define GW_CLI_OUTPUT_H

#include <argp.h>
#include <stddef.h>

/* For the parsers of commands, for keys that they do not handle themselves: the inputs, and -o (output NULL:
 * a command without one). End the command with a message if one is missing. */
error_t gw_cli_one_input(int key, char *text, struct argp_state *state, const char **input,
                         const char **output);
error_t gw_cli_inputs(int key, char *text, struct argp_state *state, char ***inputs, int *count,
                      const char **output);

/* The name of an output: "-" if it stands for standard output, such as /dev/stdout, else the name itself. */
const char *gw_cli_output_name(const char *text);

/* GW_CLI_USAGE and a message if the output would replace an input; either may be NULL. */
int gw_cli_check_output(const char *output, const char *input);

/* malloc with a message; size 0 gives a valid pointer, SIZE_MAX none. */
void *gw_cli_alloc(size_t size);

/* Writes a whole file: complete or not at all. Returns an exit code. */
int gw_cli_write_file(const char *path, const void *data, size_t size);

#endif
