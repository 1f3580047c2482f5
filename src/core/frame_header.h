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

enum {
    /* The largest that this library reads, and the smallest that its frames need. 0 is the candidate; from
     * version 1 on a frame that says 0 is refused (docs/format.md section 2). */
    GW_FRAME_READER_VERSION = 0,
    GW_FRAME_WRITER_VERSION = 0,
    GW_FRAME_HEADER_SIZE = 32,
    GW_FRAME_UNIT_SIZE = 8, /* bytes of a unit of the extension */
    GW_FRAME_CODEC_GCOMP = 1,
    GW_FRAME_CODEC_THC = 2,
    GW_FRAME_CODEC_CLASSIC = 3
};

typedef struct gw_frame_header {
    uint8_t codec, dtype;
    uint8_t unit_log2;       /* length of a chunk (GCOMP) or block (THC) */
    uint8_t extension_units; /* 8 bytes each */
    uint32_t flags;          /* those that a decoder must understand: 16 bits */
    uint32_t codec_bytes;    /* bytes 12 to 15, which each codec defines */
    uint64_t len, frame_size;
} gw_frame_header;

static inline void gw_frame_header_write(uint8_t *dst, const gw_frame_header *header)
{
    gw_store32(dst, GW_FRAME_MAGIC);
    dst[4] = GW_FRAME_WRITER_VERSION << 4 | GW_FRAME_READER_VERSION;
    dst[5] = header->codec;
    dst[6] = header->dtype;
    dst[7] = header->unit_log2;
    gw_store16(dst + 8, (uint16_t)header->flags);
    dst[10] = 0; /* flags that a decoder may ignore */
    dst[11] = header->extension_units;
    gw_store32(dst + 12, header->codec_bytes);
    gw_store64(dst + 16, header->len);
    gw_store64(dst + 24, header->frame_size);
}

/* Reads the header of a frame of the given codec: GW_OK, or GW_ERR_SHORT, GW_ERR_MAGIC, GW_ERR_VERSION,
 * GW_ERR_UNSUPPORTED (another codec, unknown dtype), in this order; GW_ERR_HEADER for a version byte that
 * contradicts itself comes before GW_ERR_VERSION. The other fields are not checked. */
static inline gw_status gw_frame_header_read(gw_frame_header *header, const uint8_t *src, size_t src_size,
                                             uint32_t codec)
{
    if (src_size < GW_FRAME_HEADER_SIZE) {
        return GW_ERR_SHORT;
    }
    if (gw_load32(src) != GW_FRAME_MAGIC) {
        return GW_ERR_MAGIC;
    }
    /* The nibbles are compared first: decoders of all versions then agree about such a byte. */
    const uint32_t reader_version = src[4] & 15, writer_version = src[4] >> 4;
    if (writer_version < reader_version) {
        return GW_ERR_HEADER;
    }
    if (reader_version > GW_FRAME_READER_VERSION) {
        return GW_ERR_VERSION;
    }
    header->codec = src[5];
    header->dtype = src[6];
    header->unit_log2 = src[7];
    header->flags = gw_load16(src + 8);
    header->extension_units = src[11];
    header->codec_bytes = gw_load32(src + 12);
    header->len = gw_load64(src + 16);
    header->frame_size = gw_load64(src + 24);
    return header->codec == codec && gw_dtype_size((gw_dtype)header->dtype) != 0 ? GW_OK : GW_ERR_UNSUPPORTED;
}

#endif
