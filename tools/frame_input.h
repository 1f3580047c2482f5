/*
 * What decompress and verify read: a GCOMP frame, and for derived frames the snapshot that it was made with.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_INPUT_H
#define GW_FRAME_INPUT_H

#include "codec_options.h"
#include "codec_run.h"

typedef struct gw_frame_input {
    gw_input_file input;
    gw_gcomp_frame_info info;
    gw_gcomp codec;
    gw_snapshot snapshot; /* derived frames only */
    gw_map_run map;
    const gw_gcomp_map *map_used; /* NULL if the frame needs none */
} gw_frame_input;

/*
 * Applies rules 1 to 16 of docs/format.md to a frame that is open; *input moves into *frame and is zeroed. A
 * request with neither tolerance nor noise limit takes the tolerance from the frame. Ends the process with a
 * message if the frame is refused.
 */
void gw_frame_input_open(gw_frame_input *frame, gw_input_file *input, const gw_codec_request *request);
void gw_frame_input_close(gw_frame_input *frame);

#endif
