/*
 * Frame: reads and writes header, extension and directory (docs/format.md sections 2 and 4). No other code
 * depends on their byte layout.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_FRAME_H
#define GW_GCOMP_FRAME_H

#include "core/frame_header.h"
#include "core/kernels.h"

enum {
    GW_FRAME_ENTRY_SIZE = 16,
    GW_FRAME_CODEBOOK_PART_SIZE = 16, /* parts of the extension */
    GW_FRAME_MAP_PART_SIZE = 16,
    GW_FRAME_CRC_PART_SIZE = 8,
    GW_FRAME_PARTS_SIZE_MAX = GW_FRAME_CODEBOOK_PART_SIZE + GW_FRAME_MAP_PART_SIZE + GW_FRAME_CRC_PART_SIZE,
    GW_FRAME_EXTENSION_SIZE_MAX = 255 * GW_FRAME_UNIT_SIZE,
    GW_CHUNK_LOG2_MIN = 10,
    GW_CHUNK_LOG2_MAX = 15
};

#define GW_FRAME_LEN_MAX    ((uint64_t)1 << 48)
#define GW_FRAME_CHUNKS_MAX ((uint64_t)1 << 32) /* the directory names chunks in 32 bits */

enum {
    GW_FLAG_STRICT = 1u << 0,
    GW_FLAG_DERIVED = 1u << 1,
    GW_FLAG_INSTALLED = 1u << 2,
    GW_FLAG_CHECKSUM = 1u << 3,
    GW_FLAG_CONSTANT = 1u << 4,
    GW_FLAG_CARRIED = 1u << 5,
    GW_FLAGS_KNOWN = (1u << 6) - 1
};

/* Bytes of the parts of the extension that the flags of info announce: the whole extension of frames of this
 * library, the start of that of a frame of a later version. */
uint32_t gw_frame_parts_size(const gw_gcomp_frame_info *info);

/* Sets directory_offset, payload_offset and chunk_count from the other fields of info and the size of the
 * extension in bytes. */
void gw_frame_place(gw_gcomp_frame_info *info, uint32_t extension_size);

/* Writes header and extension of info, meta_crc included. The extension has the known parts only. */
void gw_frame_write_header(uint8_t *dst, const gw_gcomp_frame_info *info);

/* Rules 1 to 10 of docs/format.md section 8, rule 9 only with is_whole. *info is zeroed on failure. */
gw_status gw_frame_read_header(gw_gcomp_frame_info *info, const uint8_t *src, size_t src_size,
                               uint64_t len_limit, int is_whole);

/* 1 unless the info is one that gw_frame_read_header() cannot make: sizes, offsets and fields are possible
 * and agree with each other. */
int gw_frame_is_info_valid(const gw_gcomp_frame_info *info);

/* Values of chunk `index`. */
uint32_t gw_frame_chunk_len(const gw_gcomp_frame_info *info, uint64_t index);

/* Bytes of a RAW chunk of len values. */
size_t gw_frame_raw_size(uint32_t dtype, size_t len);

/* 1 if a frame can have len values in chunks of 2^chunk_log2. */
int gw_frame_is_len_possible(uint64_t len, uint32_t chunk_log2);

/* Bytes of all chunks of a frame if all are RAW, the largest possible payload. len is possible. */
uint64_t gw_frame_payload_max(uint32_t dtype, uint64_t len, uint32_t chunk_log2);

void gw_frame_write_entry(uint8_t *entry, uint64_t offset, uint32_t kind, uint32_t codebook, uint32_t crc);

/* Reads entry `index` of the frame at src and checks it as far as one entry allows (rule 14 without the
 * sequence): the chunk lies within the payload, kind and codebook are possible. GW_OK or GW_ERR_HEADER. */
gw_status gw_frame_read_entry(gw_gcomp_chunk *chunk, const uint8_t *src, const gw_gcomp_frame_info *info,
                              uint64_t index);

/* Rules 12 to 14: reserved words, parts of ignorable flags, padding, meta_crc, the whole directory. */
gw_status gw_frame_check_directory(const uint8_t *src, const gw_gcomp_frame_info *info,
                                   const gw_kernels *kernels);

/* CRC32C of everything before chunk 0, with meta_crc taken as zero. */
uint32_t gw_frame_meta_crc(const uint8_t *src, const gw_gcomp_frame_info *info, const gw_kernels *kernels);

#endif
