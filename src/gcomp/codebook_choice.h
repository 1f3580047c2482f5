/*
 * The choice between the ways to code a group of chunks (docs/encoder-profile.md): from counts to a
 * codebook.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CODEBOOK_CHOICE_H
#define GW_CODEBOOK_CHOICE_H

#include "gcomp/codebook.h"

/* Estimated bits, times 256, of coding labels with these counts; label `first` and above. */
uint64_t gw_labels_cost(const uint32_t count[GW_LABELS], uint32_t first);

/* What a codebook is made from. */
typedef struct gw_codebook_counts {
    uint32_t *count;      /* GW_LABELS */
    uint32_t *mask_count; /* GW_MASK_CLASSES; not read if a mask is too large */
    uint64_t len;         /* values counted */
    uint64_t chunk_len;   /* values of the first chunk of the group */
    int is_sample;        /* values that were not counted need codes too */
} gw_codebook_counts;

/* 1 if too few values are zero for a mask, whatever its bytes. */
int gw_is_mask_too_large(uint64_t zeros, uint64_t len);

/* Sets is_masked, mask_depth and length of the codebook (docs/encoder-profile.md). The counts change: labels
 * and classes that need codes in any case are counted, masked zeros are not. */
void gw_codebook_choose(gw_codebook *codebook, const gw_codebook_counts *counts,
                        gw_codebook_scratch *scratch);

#endif
