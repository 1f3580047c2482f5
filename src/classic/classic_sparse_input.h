/*
 * The numbers that a sparse codec selects from: values, with error memory or the state of DGC, block by
 * block.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SPARSE_INPUT_H
#define GW_CLASSIC_SPARSE_INPUT_H

#include "classic/classic_handle.h"

enum { GW_SPARSE_BLOCK_LEN = 4096 }; /* a block of each of three arrays is in L1 or near it */

typedef struct gw_sparse_input {
    const gw_kernels *kernels;
    const uint8_t *values;
    unsigned dtype;
    size_t element_size;
    float *residual; /* error memory, v of DGC, or NULL */
    float *momentum; /* u of DGC, or NULL */
    gw_sparse_step step;
    float *block[3]; /* workspace: GW_SPARSE_BLOCK_LEN floats each */
} gw_sparse_input;

/* Fills *input from an encoding; blocks points to 3 * GW_SPARSE_BLOCK_LEN floats of workspace. The factor of
 * clipping is 1. */
void gw_sparse_input_init(gw_sparse_input *input, const gw_classic_encoding *encoding, float *blocks);

/* Sets the factor of clipping to the L2 norm `clip`. 0 if a value is NaN or infinite. */
int gw_sparse_input_clip(gw_sparse_input *input, uint64_t len, float clip);

/* Values [first, first + len), len <= GW_SPARSE_BLOCK_LEN, as floats of any alignment: in a block, or in the
 * input itself, where subnormals and -0 are still what they were. */
const void *gw_sparse_input_read(const gw_sparse_input *input, uint64_t first, size_t len);

/* What was sent, by ascending position. */
typedef struct gw_sparse_sent {
    const uint32_t *positions;
    const float *values; /* as a decoder gets them */
    uint64_t len;
    int clear_momentum; /* 1: momentum is 0 where a value was sent */
} gw_sparse_sent;

/* Moves the state on by a step: the sums, less what was sent. Nothing if there is no state. */
void gw_sparse_input_commit(const gw_sparse_input *input, uint64_t len, const gw_sparse_sent *sent);

#endif
