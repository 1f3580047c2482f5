/*
 * Levels of a chunk to bytes and back. docs/format-classic.md "Level".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LEVEL_CHUNK_H
#define GW_LEVEL_CHUNK_H

#include "classic/classic_mask.h"
#include "gradwire/classic.h"

enum {
    GW_LEVEL_CHUNK_LEN = 1 << 15,
    GW_LEVEL_PIECE_LEN = 1 << 12, /* values that are in the first-level cache together */
    GW_LEVEL_ROOM = GW_LEVEL_CHUNK_LEN + GW_SLOP,
    GW_LEVEL_BITS_SIZE = GW_LEVEL_CHUNK_LEN / 8 + GW_SLOP,
    /* Counts, two masks, signs, and 7 bits of every level. */
    GW_LEVEL_CODED_MAX =
        4 + 2 * (GW_MASK_HEAD_SIZE + GW_MASK_BYTES_MAX) + GW_MASK_BYTES_MAX + GW_LEVEL_CHUNK_LEN / 8 * 7,
    GW_LEVEL_INVALID = 0x80 /* a byte that is no level */
};

/* Workspace of a call. */
typedef struct gw_level_scratch {
    gw_mask_scratch mask;
    uint8_t levels[GW_LEVEL_ROOM]; /* of a chunk, two's complement */
    uint8_t coded[GW_LEVEL_ROOM];  /* those that are not 0 */
    uint8_t above[GW_LEVEL_ROOM];  /* those whose magnitude is above 1 */
    uint8_t magnitudes[GW_LEVEL_ROOM];
    uint8_t bits[GW_LEVEL_BITS_SIZE];
    uint8_t zero_bits[GW_LEVEL_BITS_SIZE]; /* decode: set where a level is not 0 */
    uint8_t bytes[GW_LEVEL_CODED_MAX + GW_SLOP];
    uint8_t table[256 + GW_SLOP]; /* of unpack */
    float x[GW_LEVEL_PIECE_LEN];
    float y[GW_LEVEL_PIECE_LEN];
    uint16_t random[GW_LEVEL_PIECE_LEN + 256];
} gw_level_scratch;

typedef struct gw_level_form {
    const gw_kernels *kernels;
    gw_classic_coding coding;
    uint32_t level_max;
} gw_level_form;

/* Bits of a number of 0..most; 0 for 0. */
static inline unsigned gw_level_width(uint32_t most)
{
    unsigned width = 0;
    while (most >> width != 0) {
        width++;
    }
    return width;
}

/* Bytes of packed levels. */
static inline size_t gw_level_packed_size(uint32_t level_max, size_t len)
{
    return gw_run_size(len, gw_level_width(2 * level_max));
}

/* An entry of the directory: size of the chunk in bytes, a multiple of 4, and 1 if its levels are coded. */
#define GW_LEVEL_CODED 1u

/* Writes scratch->levels[0..len), len <= GW_LEVEL_CHUNK_LEN, to dst[0..capacity). Returns 0 if there is no
 * room; else *entry is that of the chunk. */
int gw_level_write(uint8_t *dst, size_t capacity, size_t len, const gw_level_form *form,
                   gw_level_scratch *scratch, uint32_t *entry);

/* Reads a chunk at src, as many bytes as its entry says, into scratch->levels. Returns 0 if it breaks a rule.
 */
int gw_level_read(const uint8_t *src, uint32_t entry, size_t len, const gw_level_form *form,
                  gw_level_scratch *scratch);

/* Elias omega codes of scratch->levels to dst[0..limit): returns their size, 0 if there is no room. And back.
 */
size_t gw_level_elias_write(uint8_t *dst, size_t limit, size_t len, const gw_level_scratch *scratch);
int gw_level_elias_read(const uint8_t *src, size_t size, size_t len, uint32_t level_max,
                        gw_level_scratch *scratch);

#endif
