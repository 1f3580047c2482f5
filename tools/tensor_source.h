/*
 * What all codecs compress: a .npy array, or the gradient of a snapshot; and state that goes from one step to
 * the next in .npy files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TENSOR_SOURCE_H
#define GW_TENSOR_SOURCE_H

#include "snapshot.h"

typedef struct gw_tensor_source {
    const char *name; /* not copied */
    int is_snapshot;
    gw_npy npy; /* if not a snapshot */
    gw_snapshot snapshot;
    const void *values;
    uint64_t len;
    gw_dtype dtype;
} gw_tensor_source;

/* Opens an input, or ends the process with a message. as: 0, or the optimizer to use instead of the
 * snapshot's. */
void gw_tensor_source_open(gw_tensor_source *source, const char *path, gw_npy_u2 u2, gw_optimizer_kind as);
void gw_tensor_source_close(gw_tensor_source *source);

/* 1 if path is one of the input files. */
int gw_tensor_source_has_file(const gw_tensor_source *source, const char *path);

/* The array of the gradient. */
const gw_npy *gw_tensor_source_npy(const gw_tensor_source *source);

/* State of len values from an fp32 array, zeros if path is NULL or the file is absent; from malloc. Ends the
 * process with a message if the file is another array; what: the state's name in it. */
float *gw_state_read(const char *path, uint64_t len, const char *what);

#endif
