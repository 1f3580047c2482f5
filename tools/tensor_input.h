/*
 * What GCOMP's compress and verify read: a .npy array, or a snapshot with its precision map.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TENSOR_INPUT_H
#define GW_TENSOR_INPUT_H

#include "codec_options.h"
#include "codec_run.h"
#include "tensor_source.h"

typedef struct gw_tensor_input {
    gw_tensor_source in; /* values and dtype after --convert */
    uint16_t *converted; /* --convert */
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_map_run map; /* bytes == NULL: a constant drop, or --target-nmse */
    gw_gcomp_source source;
    double target_bits;      /* --target-bits, else 0 */
    uint64_t predicted_size; /* with it: bytes that rate control expects */
} gw_tensor_input;

/* Opens the request's input and initialises the handle; gw_tensor_input_prepare() then makes the map and the
 * source, which points into *tensor. They end the process with a message if they fail. */
void gw_tensor_input_open(gw_tensor_input *tensor, const gw_codec_request *request);
void gw_tensor_input_prepare(gw_tensor_input *tensor, const gw_codec_request *request);
void gw_tensor_input_close(gw_tensor_input *tensor);

/* The curve of rate control of one source. Ends the process with a message if it fails. */
void gw_rate_run(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind, const gw_gcomp *codec,
                 const gw_gcomp_source *source, const char *name);

/* What determines the quanta: the optimizer's name, "nmse" (--target-nmse), or "constant". */
const char *gw_tensor_input_map_name(const gw_tensor_input *tensor);

#endif
