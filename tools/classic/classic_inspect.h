/*
 * gradwire inspect of frames of classic codecs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_INSPECT_H
#define GW_CLASSIC_INSPECT_H

#include "cli_options.h"
#include "input_file.h"

extern const gw_command_line classic_inspect_line;

/* Prints the report and returns an exit code. */
int classic_inspect(const gw_request *request, const gw_input_file *input);

#endif
