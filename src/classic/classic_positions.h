/*
 * Positions of sent values as bytes: gaps with Rice codes, or a mask of the positions with a prefix code of
 * its bytes, whichever takes fewer bits (docs/format-classic.md, "Sparse").
 *
 *   word     8 bytes   kind + 256 * number of 8-byte words of the stream
 *   tables   one byte a group of 512 positions (gaps), or five bytes a group of 2048 mask bytes; padded to 8
 *   stream   bits from the lowest of each byte up, padded with zeros to 8 bytes
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_POSITIONS_H
#define GW_CLASSIC_POSITIONS_H

#include "classic/classic_handle.h"
#include "gcomp/mask_code.h"

enum {
    GW_POSITIONS_GAPS = 0,
    GW_POSITIONS_MASK = 1,
    GW_GAP_GROUP_LEN = 512,    /* positions that share a parameter */
    GW_MASK_GROUP_SIZE = 2048, /* bytes that share a code: 2^14 values */
    GW_MASK_DEPTH_MAX = 9,     /* of a complete code of ten classes */
    GW_GAP_PARAMETER_MAX = 31,
    GW_POSITIONS_WORD_SIZE = 8
};

typedef struct gw_positions_layout {
    const uint32_t *positions; /* ascending */
    uint64_t len;              /* values of the tensor, at most 2^32 */
    uint64_t keep_len;         /* positions, 1..len */
    unsigned kind;
    uint64_t stream_bits;
    uint64_t size; /* bytes of all */
    gw_codebook_scratch *scratch;
} gw_positions_layout;

/* Bytes of the tables, and of all at most. */
uint64_t gw_positions_table_size(unsigned kind, uint64_t len, uint64_t keep_len);
uint64_t gw_positions_size_max(uint64_t len, uint64_t keep_len);

/* Chooses: positions, len, keep_len and scratch are set; sets the rest. */
void gw_positions_layout_make(gw_positions_layout *layout);

/* Writes layout->size bytes. */
void gw_positions_write(uint8_t *dst, const gw_positions_layout *layout);

/* Reading. Each byte is read once; no content leads to an access outside the given range. */
typedef struct gw_positions_reader {
    const uint8_t *tables, *stream;
    uint64_t stream_size;   /* bytes, a multiple of 8 */
    const uint64_t *bitmap; /* not NULL: positions are the set bits of it (RANDK) */
    uint64_t len, keep_len;
    uint64_t found; /* positions read so far */
    uint64_t next;  /* gaps: least position that may follow; mask, bitmap: byte or word */
    uint64_t bits;  /* of the stream, read so far; bitmap: set bits of the word that are left */
    unsigned kind;
    unsigned parameter; /* of the group */
    int is_bad;
    uint16_t code[1 << GW_MASK_DEPTH_MAX]; /* by the next bits of the stream: bits of code and index + 64 *
                                              bits of the code + 1024 * class */
} gw_positions_reader;

/* Starts at src[0..size). Returns the bytes of the positions, 0 if they break a rule. */
size_t gw_positions_open(gw_positions_reader *reader, const uint8_t *src, size_t size, uint64_t len,
                         uint64_t keep_len);

/* Starts at a bitmap of len bits and zeros to a multiple of 64, in memory that no other thread writes. */
void gw_positions_open_bitmap(gw_positions_reader *reader, const uint64_t *bitmap, uint64_t len,
                              uint64_t keep_len);

/* Reads up to `room` positions, a number of at least 64; ascending, below len. 0: at the end, or after an
 * error. */
size_t gw_positions_next(gw_positions_reader *reader, uint32_t *positions, size_t room);

/* Reads all positions of a new reader without keeping them, for gw_positions_is_complete(). */
void gw_positions_skip(gw_positions_reader *reader);

/* After the end: 1 if there were keep_len positions, and nothing but padding after them. */
int gw_positions_is_complete(const gw_positions_reader *reader);

#endif
