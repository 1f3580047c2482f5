/*
 * What subcommands that make one file from memory share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLI_OUTPUT_H
#define GW_CLI_OUTPUT_H

#include <argp.h>
#include <stddef.h>

/* Ends the command with a message if its input or its output is missing. */
void gw_cli_require(struct argp_state *state, int has_input, const char *output);

/* GW_CLI_USAGE and a message if the output would replace an input; either may be NULL. */
int gw_cli_check_output(const char *output, const char *input);

/* malloc with a message; size 0 gives a valid pointer, SIZE_MAX none. */
void *gw_cli_alloc(size_t size);

/* Writes a whole file: complete or not at all. Returns an exit code. */
int gw_cli_write_file(const char *path, const void *data, size_t size);

#endif
