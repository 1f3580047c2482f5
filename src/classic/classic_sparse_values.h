/*
 * The sent values of a sparse frame: fp32, fp16, or a GCOMP frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SPARSE_VALUES_H
#define GW_CLASSIC_SPARSE_VALUES_H

#include "classic/classic_handle.h"
#include "gradwire/gcomp.h"

/* What GCOMP needs in a workspace: a handle, its workspace, the longest frame. 0 bytes for other values;
 * UINT64_MAX where size_t cannot hold it. */
typedef struct gw_sparse_nested {
    uint64_t workspace_size;
    uint64_t frame_size_max; /* encoding only */
} gw_sparse_nested;

gw_sparse_nested gw_sparse_nested_of(gw_classic_values values, uint64_t keep_len);

/* Bytes of the values at most. */
uint64_t gw_sparse_values_size_max(gw_classic_values values, uint64_t keep_len);

/* Values being written. */
typedef struct gw_sparse_writing {
    const gw_kernels *kernels;
    gw_classic_values format;
    float *values; /* in: numbers without subnormals and -0; out: as a decoder gets them */
    uint64_t len;
    gw_gcomp *codec;        /* GCOMP: workspace */
    gw_workspace workspace; /* GCOMP */
    uint8_t *frame;         /* GCOMP: frame_size_max bytes */
    size_t frame_size_max;
    uint64_t size; /* out: bytes of the values */
} gw_sparse_writing;

/* Encodes GCOMP values and sets the size. A status of GCOMP, which no finite input brings about. */
gw_status gw_sparse_values_prepare(gw_sparse_writing *writing);

/* Writes writing->size bytes. */
void gw_sparse_values_write(uint8_t *dst, gw_sparse_writing *writing);

/* Values being read. */
typedef struct gw_sparse_reading {
    gw_classic_values format;
    const uint8_t *src;
    const float *decoded; /* GCOMP */
} gw_sparse_reading;

/* Opens the values at src[0..size), all of it. `workspace` has the bytes of gw_sparse_nested_of() and
 * keep_len floats after them, which are used for GCOMP only. 0 if they break a rule; GCOMP values are then
 * all zero. */
int gw_sparse_values_open(gw_sparse_reading *reading, const gw_classic_payload *payload, const uint8_t *src,
                          size_t size, uint8_t *workspace);

/* Reads values [first, first + count) as numbers without subnormals and -0. Returns 0 if one is NaN or
 * infinite: it is then 0. */
int gw_sparse_values_read(const gw_sparse_reading *reading, float *values, uint64_t first, size_t count);

#endif
