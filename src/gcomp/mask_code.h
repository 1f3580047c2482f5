/*
 * The code of zero masks (docs/format.md section 5.3), and the choice between the ways to code a group
 * (section 6).
 *
 * A byte of a zero mask says of eight values which are not +0. Bytes with equally many set bits are taken to
 * be equally likely, which costs less than a table of 256 code lengths in chunks of 2048 bytes: at most 0.02
 * bit a value more than their entropy on real gradients. Ten classes, each a leaf of the code tree, have a
 * table of 8 bytes and 19 runs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MASK_CODE_H
#define GW_MASK_CODE_H

#include "gcomp/codebook.h"

/* log2 of the number of bytes in a class, and the place of its first byte in gw_mask_byte_order. */
extern const uint8_t gw_mask_class_width[GW_MASK_CLASSES];
extern const uint16_t gw_mask_class_first[GW_MASK_CLASSES];

/* Bytes by number of set bits, then by value. */
extern const uint8_t gw_mask_byte_order[256];

/* Adds the classes of len bytes of a mask to count, a class for every byte. */
void gw_mask_count(uint32_t count[GW_MASK_CLASSES], const uint8_t *mask, size_t len);

/* The same from counts of bytes. */
void gw_mask_fold(uint32_t count[GW_MASK_CLASSES], const uint32_t byte_count[256]);

/* Code lengths of the classes with count > 0 (docs/format.md section 6). */
void gw_mask_depths(uint8_t depth[GW_MASK_CLASSES], const uint32_t count[GW_MASK_CLASSES],
                    gw_codebook_scratch *scratch);

/* The table of a mask: a nibble for the code length of each class. */
enum { GW_MASK_TABLE_SIZE = GW_MASK_CLASSES / 2 };
void gw_mask_table_write(uint8_t dst[GW_MASK_TABLE_SIZE], const uint8_t depth[GW_MASK_CLASSES]);

/* Returns the number of classes with a code, or -1 if the lengths are not those of a complete code. A single
 * class has length 1. */
int gw_mask_table_read(uint8_t depth[GW_MASK_CLASSES], const uint8_t src[GW_MASK_TABLE_SIZE]);

/* Estimated bits, times 256, of coding labels with these counts; label `first` and above. */
uint64_t gw_labels_cost(const uint32_t count[GW_LABELS], uint32_t first);

/* What a codebook is made from. */
typedef struct gw_book_counts {
    uint32_t *count;      /* GW_LABELS */
    uint32_t *mask_count; /* GW_MASK_CLASSES; not read if a mask is hopeless */
    uint64_t len;         /* values counted */
    uint64_t chunk_len;   /* values of the first chunk of the group */
    int is_sample;        /* values that were not counted need codes too */
} gw_book_counts;

/* 1 if too few values are zero for a mask, whatever its bytes. */
int gw_is_mask_hopeless(uint64_t zeros, uint64_t len);

/* Sets is_masked, mask_depth and length of the codebook (docs/format.md section 6). The counts change: labels
 * and classes that need codes in any case are counted, masked zeros are not. */
void gw_book_choose(gw_codebook *book, const gw_book_counts *counts, gw_codebook_scratch *scratch);

#endif
