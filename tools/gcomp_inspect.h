/*
 * gradwire inspect of GCOMP frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_INSPECT_H
#define GW_GCOMP_INSPECT_H

#include "cli_options.h"
#include "input_file.h"

extern const gw_command_line gw_gcomp_inspect_line;

/* The request is a gw_codec_request. Prints the report and returns an exit code. */
int gw_gcomp_inspect(const gw_request *request, const gw_input_file *input);

#endif
