/*
 * Frames inside the library: reading and writing headers, padding, checksums. docs/format-classic.md has the
 * layout.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_FRAME_H
#define GW_CLASSIC_FRAME_H

#include "classic/classic_handle.h"

#define GW_CLASSIC_FLAGS_KNOWN                                                                               \
    (GW_CLASSIC_FLAG_CHECKSUM | GW_CLASSIC_FLAG_UNBIASED | GW_CLASSIC_FLAG_SHARED | GW_CLASSIC_FLAG_VOTE)

/* payload_offset and frame_size of a frame of this library from payload_size and flags. */
void gw_classic_frame_place(gw_classic_frame_info *info);

/* Bytes of a frame with this payload, SIZE_MAX where size_t cannot hold them. */
size_t gw_classic_frame_size_of(size_t payload_size, int checksum);

/* Header, padding and checksum around the payload, which is in place. info was placed. */
void gw_classic_frame_seal(uint8_t *dst, const gw_classic_frame_info *info, const gw_kernels *kernels);

/* Header, limit, size, parts of ignorable flags and padding: all but checksum and payload. */
gw_status gw_classic_frame_open(const gw_classic_frame *frame, gw_classic_frame_info *info);

/* A frame on its way through a decoder. */
typedef struct gw_classic_reading {
    gw_classic_frame_info info;
    gw_kernels kernels;
    gw_classic_payload payload;
    const gw_classic_family *family;
} gw_classic_reading;

/* Opens a frame and takes its workspace. */
gw_status gw_classic_reading_begin(gw_classic_reading *reading, const gw_classic_frame *frame,
                                   const gw_workspace *workspace);

/* Checksum, then payload: GW_OK, GW_ERR_CHECKSUM or GW_ERR_CORRUPT. */
gw_status gw_classic_reading_check(const gw_classic_reading *reading);

/* The same, then the values of the payload, or, if lanes are not NULL, of their sum, to the target of the
 * sink. On failure the target is zeros, unless values are added to it. */
gw_status gw_classic_reading_decode(const gw_classic_reading *reading, const gw_classic_sink *sink,
                                    const void *lanes, gw_classic_target *target);

#endif
