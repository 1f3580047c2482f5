/*
 * Why a GCOMP frame is refused.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_EXPLAIN_H
#define GW_FRAME_EXPLAIN_H

#include "gradwire/gcomp.h"
#include "input_file.h"

/* Prints why the library refused a frame with `status`: file, byte offset, rule. bad_chunk is UINT64_MAX if
 * no chunk was named. Returns the exit code, GW_CLI_OK for GW_OK. */
int gw_frame_explain(const gw_input_file *input, gw_status status, uint64_t bad_chunk);

#endif
