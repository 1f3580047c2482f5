/*
 * The end of THC and classic frames: payload, zeros to a multiple of 16 bytes, of which a CRC32C of
 * everything before it may take the last four.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_TAIL_H
#define GW_FRAME_TAIL_H

#include "core/frame_header.h"
#include "core/kernels.h"

typedef struct gw_frame_tail {
    uint64_t payload_end, frame_size;
    int has_checksum;
} gw_frame_tail;

/* The frame_size of a payload that ends here. */
static inline uint64_t gw_frame_tail_size(uint64_t payload_end, int has_checksum)
{
    return (payload_end + (has_checksum ? 4 : 0) + 15) / 16 * 16;
}

/* Bytes of the zeros. */
static inline size_t gw_frame_tail_padding(const gw_frame_tail *tail)
{
    return (size_t)(tail->frame_size - tail->payload_end) - (tail->has_checksum ? 4 : 0);
}

static inline uint32_t gw_frame_tail_crc(const gw_frame_tail *tail, const uint8_t *src, gw_crc32c_fn *crc32c)
{
    return crc32c(0, src, (size_t)tail->frame_size - 4);
}

/* GW_OK, or GW_ERR_SHORT, GW_ERR_TRAILING or GW_ERR_HEADER (padding) of the src_size bytes of a frame. */
static inline gw_status gw_frame_tail_check(const gw_frame_tail *tail, const uint8_t *src, size_t src_size)
{
    if (src_size != tail->frame_size) {
        return src_size < tail->frame_size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    return gw_is_zero(src + (size_t)tail->payload_end, gw_frame_tail_padding(tail)) ? GW_OK : GW_ERR_HEADER;
}

/* 1 if the frame has no checksum or a right one. */
static inline int gw_frame_tail_is_intact(const gw_frame_tail *tail, const uint8_t *src, gw_crc32c_fn *crc32c)
{
    return !tail->has_checksum ||
           gw_frame_tail_crc(tail, src, crc32c) == gw_load32(src + (size_t)tail->frame_size - 4);
}

/* Writes zeros and checksum, after everything else. */
static inline void gw_frame_tail_write(const gw_frame_tail *tail, uint8_t *dst, gw_crc32c_fn *crc32c)
{
    GW_MEMSET(dst + (size_t)tail->payload_end, 0, gw_frame_tail_padding(tail));
    if (tail->has_checksum) {
        gw_store32(dst + (size_t)tail->frame_size - 4, gw_frame_tail_crc(tail, dst, crc32c));
    }
}

#endif
