/*
 * An array or a snapshot's gradient, with the handle and the state that an encoder needs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_TENSOR_H
#define GW_CLASSIC_TENSOR_H

#include "classic_request.h"
#include "tensor_source.h"

typedef struct classic_tensor {
    gw_tensor_source in;
    gw_classic classic;
    gw_classic_step step;
    float *residual; /* NULL if the scheme or the options have none */
    float *momentum;
} classic_tensor;

/* Opens the request's input, or ends the process with a message; so it does if an output or a state file is
 * one of the input files or named twice. */
void classic_tensor_open(classic_tensor *tensor, const classic_request *request);

void classic_tensor_close(classic_tensor *tensor);

#endif
