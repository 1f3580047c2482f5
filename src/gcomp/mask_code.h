/*
 * The code of zero masks (docs/format.md section 5.3): its classes and their table. codebook.h has its code
 * lengths and its tree.
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

/* The table of a mask: a nibble for the code length of each class. */
enum { GW_MASK_TABLE_SIZE = GW_MASK_CLASSES / 2 };
void gw_mask_table_write(uint8_t dst[GW_MASK_TABLE_SIZE], const uint8_t depth[GW_MASK_CLASSES]);

/* Returns the number of classes with a code, or -1 if the lengths are not those of a complete code. A single
 * class has length 1. */
int gw_mask_table_read(uint8_t depth[GW_MASK_CLASSES], const uint8_t src[GW_MASK_TABLE_SIZE]);

#endif
