/*
 * THC frames inside the library: offsets of the parts of a checked frame. docs/format-thc.md section 2 has
 * the layout.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_FRAME_H
#define GW_THC_FRAME_H

#include "core/frame_tail.h"
#include "thc/thc_handle.h"

#define GW_THC_FLAGS_KNOWN 31u
#define GW_THC_SUM_FLAGS   (GW_THC_FLAG_CHECKSUM | GW_THC_FLAG_BLOCK_SETS) /* that a sum may choose */

/* Everything that follows from the header: sizes and offsets of a frame of this library, whose extension has
 * no more than the known part. */
void gw_thc_frame_place(gw_thc_frame_info *info);

/* Writes the header of *info; info was placed. */
void gw_thc_frame_write_header(uint8_t *dst, const gw_thc_frame_info *info);

/* The patterns of block i of the frame. */
void gw_thc_frame_patterns(uint32_t patterns[2], const uint8_t *src, const gw_thc_frame_info *info,
                           uint64_t i);

/* The contributor set of block i of a sum frame. */
static inline size_t gw_thc_frame_set_offset(const gw_thc_frame_info *info, uint64_t i)
{
    uint64_t index = (info->flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? i : 0;
    return (size_t)(info->sets_offset + index * info->set_size);
}

/* Lanes of block i, and where its payload starts. */
static inline size_t gw_thc_frame_block_lanes(const gw_thc_frame_info *info, uint64_t i)
{
    return gw_thc_block_lanes_of(info->options.block_log2, info->len, i);
}
size_t gw_thc_frame_block_offset(const gw_thc_frame_info *info, uint64_t i);

/* The tensor range that a frame covers. */
gw_thc_range gw_thc_frame_range(const gw_thc_frame_info *info);

/* Content of block i: GW_OK, GW_ERR_CORRUPT or GW_ERR_DUP. thc is made from info->options. */
gw_status gw_thc_frame_check_block(const gw_thc_state *thc, const uint8_t *src, const gw_thc_frame_info *info,
                                   uint64_t i);

/* The set of a sum without blocks, which no block checks: GW_OK or GW_ERR_DUP. */
gw_status gw_thc_frame_check_empty(const uint8_t *src, const gw_thc_frame_info *info);

/* Header, size, parts of ignorable flags, padding, limit: all but checksum, sets and blocks. */
gw_status gw_thc_frame_open(const gw_thc_frame *frame, gw_thc_frame_info *info);

/* 1 if the frame has no checksum or a right one. */
int gw_thc_frame_checksum_good(const uint8_t *src, const gw_thc_frame_info *info);

/* Writes padding and checksum, after everything else. */
void gw_thc_frame_seal(uint8_t *dst, const gw_thc_frame_info *info);

#endif
