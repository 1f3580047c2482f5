/*
 * Memory and outputs of subcommands.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLI_OUTPUT_H
#define GW_CLI_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/gradwire.h"

/* The name of an output: "-" if it stands for standard output, such as /dev/stdout, else the name itself. */
const char *gw_cli_output_name(const char *text);

/* GW_CLI_USAGE and a message if the output would replace an input; either may be NULL. */
int gw_cli_check_output(const char *output, const char *input);

/* For commands: end the process with a message if there is no memory. Size 0 gives a valid pointer. */
void *gw_cli_alloc(size_t size);
void *gw_cli_alloc_array(uint64_t len, size_t element_size);
gw_workspace gw_cli_alloc_workspace(size_t size); /* free(workspace.data) */

/* For commands: writes a whole file, complete or not at all. */
void gw_cli_write_file(const char *path, const void *data, size_t size);

#endif
