/*
 * An array with the handle and the error-feedback state that a worker's commands need.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_ARRAY_H
#define GW_THC_ARRAY_H

#include "tensor_source.h"
#include "thc_options.h"

typedef struct thc_array {
    gw_tensor_source in;
    const char *state_path; /* NULL: no error feedback */
    gw_thc thc;
    gw_thc_range range; /* all blocks */
    float *error;       /* the state: an fp32 .npy of the array's length, zeros if the file does not exist */
} thc_array;

/* Opens the request's input and state, or ends the process with a message; so it does if an output is an
 * input. */
void thc_array_open(thc_array *array, const thc_request *request);

/* The patterns of all blocks, from malloc. */
uint32_t *thc_array_norms(const thc_array *array, size_t *pattern_count);

void thc_array_close(thc_array *array);

#endif
