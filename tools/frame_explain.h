/*
 * Why a GCOMP frame is refused.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_EXPLAIN_H
#define GW_FRAME_EXPLAIN_H

#include "gradwire/gradwire.h"
#include "input_file.h"

/* Unless the status is GW_OK, ends the process and says why the library refused a frame: file, byte offset,
 * rule. bad_chunk is UINT64_MAX if no chunk was named. */
void gw_frame_must(const gw_input_file *input, gw_status status, uint64_t bad_chunk);

#endif
