/*
 * gradwire inspect of THC frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_INSPECT_H
#define GW_THC_INSPECT_H

#include "cli_options.h"
#include "input_file.h"

extern const gw_command_line thc_inspect_line;

/* Prints the report and returns an exit code. */
int thc_inspect(const gw_request *request, const gw_input_file *input);

#endif
