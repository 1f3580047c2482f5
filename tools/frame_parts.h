/*
 * Where the bytes of a GCOMP frame go. Reads frames by docs/format.md, independently of the library.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_PARTS_H
#define GW_FRAME_PARTS_H

#include "gradwire/gcomp.h"

/* Bytes by part; their sum is the size of the frame. */
typedef struct gw_frame_parts {
    uint64_t labels; /* runs of CODED chunks: zero masks, exponents, in explicit frames with the drop steps */
    uint64_t digits; /* planes of CODED chunks: sign and kept mantissa bits */
    uint64_t escapes; /* whole values in CODED chunks */
    uint64_t raw;     /* RAW chunks */
    uint64_t quanta;  /* of CODED chunks, carried frames only */
    uint64_t codebooks;
    uint64_t headers;        /* frame header, extension, directory, chunk headers, padding of chunks */
    uint64_t chunk_count[3]; /* by gw_gcomp_chunk_kind */
    uint64_t codebook_count;
    uint64_t masked_count, relative_count; /* CODED chunks whose codebook is masked, or relative */
    uint64_t escape_count;                 /* values */
    uint64_t kept_bits;                    /* digit and escape bits without padding */
} gw_frame_parts;

/* One chunk. */
typedef struct gw_chunk_parts {
    gw_gcomp_chunk chunk;
    /* bytes */
    uint64_t codebook_size, quanta_size, header_size, labels_size, digits_size, escapes_size, padding_size;
    uint32_t escape_count, symbol_count, leaf_count, window_start;
    uint32_t coded_count;       /* values with a label: those that are not in the zero mask, else all */
    int is_masked, is_relative; /* the codebook: zeros in a mask; labels count from the quantum */
    uint64_t kept_bits;
    int broken_rule; /* rule of docs/format.md section 8 that the chunk breaks (14, 19 to 22), 0 if none is
                        known */
    uint64_t broken_offset; /* bytes from the start of the frame */
    const char *broken_text;
} gw_chunk_parts;

/*
 * Reads one chunk of a frame whose directory gw_gcomp_frame_parse() accepted: it returned GW_OK, or
 * GW_ERR_TABLE or GW_ERR_MAP, which come after the directory. Reads counts, not contents: a chunk without a
 * broken rule may still be corrupt.
 */
void gw_chunk_parts_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_frame_info *info,
                         uint64_t index, gw_chunk_parts *parts);

/* Sums of all chunks. Chunks with a broken rule count as headers. */
void gw_frame_parts_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_frame_info *info,
                         gw_frame_parts *parts);

#endif
