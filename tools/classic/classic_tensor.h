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

/* Both return an exit code and print messages; after a failure there is nothing to close. */
int classic_tensor_open(classic_tensor *tensor, const classic_request *request);

/* Replaces the state files that were named on the command line. Returns an exit code. */
int classic_tensor_save_state(const classic_tensor *tensor, const classic_request *request);
void classic_tensor_close(classic_tensor *tensor);

/* GW_CLI_USAGE and a message if an output or a state file is one of the input files, or named twice. */
int classic_tensor_check_outputs(const classic_tensor *tensor, const classic_request *request);

#endif
