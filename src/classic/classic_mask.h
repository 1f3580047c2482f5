/*
 * Coded masks: a string of bits, most of them 0, as the zero masks of GCOMP (docs/format.md section 5.3), or
 * as it is where that is not smaller. docs/format-classic.md "Masks".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_MASK_H
#define GW_CLASSIC_MASK_H

#include "core/kernels.h"
#include "gcomp/mask_code.h"

enum {
    GW_MASK_LEN_MAX = 1 << 15,
    GW_MASK_BYTES_MAX = GW_MASK_LEN_MAX / 8,
    GW_MASK_HEAD_SIZE = 8, /* table and padding */
    /* As gw_write_runs() and gw_read_runs() need it: 128 bytes for each of at most 11 depths; 64 for each of
     * at most 10 leaves, twice. */
    GW_MASK_AREA_SIZE = 2 * GW_MASK_BYTES_MAX + 2048
};

/* Workspace of a call. */
typedef struct gw_mask_scratch {
    gw_tree tree;
    gw_codebook codebook;
    gw_codebook_scratch codebook_scratch;
    uint8_t area[2][GW_MASK_AREA_SIZE];
} gw_mask_scratch;

/* The most bytes that a mask of len bits takes. */
static inline size_t gw_mask_size_max(size_t len)
{
    return len == 0 ? 0 : GW_MASK_HEAD_SIZE + gw_run_size(len, 1);
}

/* Writes the mask of `len` <= GW_MASK_LEN_MAX bits; bits after them are 0 up to a multiple of 32. dst has
 * gw_mask_size_max(len) bytes. Returns the bytes written, a multiple of 4. */
size_t gw_mask_write(uint8_t *dst, const uint8_t *bits, size_t len, const gw_kernels *kernels,
                     gw_mask_scratch *scratch);

/* Reads a mask at src[0..size) into bits, gw_run_size(len, 1) bytes and GW_SLOP. Returns the bytes read, or
 * SIZE_MAX if they are not a mask. Bits after the last may be set where the mask is not coded: gw_merge_fn
 * finds them. */
size_t gw_mask_read(uint8_t *bits, size_t len, const uint8_t *src, size_t size, const gw_kernels *kernels,
                    gw_mask_scratch *scratch);

#endif
