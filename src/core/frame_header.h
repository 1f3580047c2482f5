/*
 * The first 32 bytes of a frame, which all codecs share (docs/format.md section 2).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_HEADER_H
#define GW_FRAME_HEADER_H

#include "core/bytes.h"
#include "gradwire/gradwire.h"

#define GW_FRAME_MAGIC 0x1a665767u /* "gWf", 0x1a */

enum { GW_FRAME_VERSION = 0, GW_FRAME_HEADER_SIZE = 32, GW_FRAME_CODEC_GCOMP = 1, GW_FRAME_CODEC_THC = 2 };

typedef struct gw_frame_header {
    uint8_t codec, dtype;
    uint8_t unit_log2; /* length of a chunk (GCOMP) or block (THC) */
    uint32_t flags;
    uint32_t codec_bytes; /* bytes 12 to 15, which each codec defines */
    uint64_t len, frame_size;
} gw_frame_header;

static inline void gw_frame_header_write(uint8_t *dst, const gw_frame_header *header)
{
    gw_store32(dst, GW_FRAME_MAGIC);
    dst[4] = GW_FRAME_VERSION;
    dst[5] = header->codec;
    dst[6] = header->dtype;
    dst[7] = header->unit_log2;
    gw_store32(dst + 8, header->flags);
    gw_store32(dst + 12, header->codec_bytes);
    gw_store64(dst + 16, header->len);
    gw_store64(dst + 24, header->frame_size);
}

/* Reads the header of a frame of the given codec: GW_OK, or GW_ERR_SHORT, GW_ERR_MAGIC, GW_ERR_VERSION,
 * GW_ERR_UNSUPPORTED (another codec, unknown dtype), in this order. The other fields are not checked. */
static inline gw_status gw_frame_header_read(gw_frame_header *header, const uint8_t *src, size_t src_size,
                                             uint32_t codec)
{
    if (src_size < GW_FRAME_HEADER_SIZE) {
        return GW_ERR_SHORT;
    }
    if (gw_load32(src) != GW_FRAME_MAGIC) {
        return GW_ERR_MAGIC;
    }
    if (src[4] != GW_FRAME_VERSION) {
        return GW_ERR_VERSION;
    }
    header->codec = src[5];
    header->dtype = src[6];
    header->unit_log2 = src[7];
    header->flags = gw_load32(src + 8);
    header->codec_bytes = gw_load32(src + 12);
    header->len = gw_load64(src + 16);
    header->frame_size = gw_load64(src + 24);
    return header->codec == codec && gw_dtype_size((gw_dtype)header->dtype) != 0 ? GW_OK : GW_ERR_UNSUPPORTED;
}

#endif
