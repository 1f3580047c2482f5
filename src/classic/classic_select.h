/*
 * The k largest magnitudes, without a sort: values of at least a bound are gathered in one pass, and whenever
 * the workspace is full, all but the k largest of them are dropped, by a radix histogram. The bound comes
 * from a sample; if it was too high, the pass is repeated with a lower one. So the result does not depend on
 * it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SELECT_H
#define GW_CLASSIC_SELECT_H

#include "classic/classic_sparse_input.h"

enum { GW_SELECT_BINS = 2048 };

typedef struct gw_selection {
    uint32_t *positions; /* gw_selection_capacity() each */
    float *values;
    uint64_t *bins;    /* GW_SELECT_BINS; a bin may have all of 2^32 values */
    uint64_t len;      /* of the input, at most 2^32 */
    uint64_t keep_len; /* 1..len */
} gw_selection;

/* Elements that the arrays need: at least keep_len, at most len. */
uint64_t gw_selection_capacity(uint64_t len, uint64_t keep_len);

/* Sets positions[0..keep_len) and values[0..keep_len) to the values of largest magnitude, by ascending
 * position; of equal ones those of lower position are taken. 0 if a value is NaN or infinite. */
int gw_selection_make(gw_selection *selection, const gw_sparse_input *input);

#endif
