/*
 * What the tests of the GCOMP calls on CUDA share: codecs, tensors on both sides, frames, captured graphs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_TESTING_H
#define GW_GCOMP_TESTING_H

#include "cuda_testing.h"

/* Host memory; the test fails if there is none. */
void *testing_take(size_t size);

/* A handle with stochastic rounding. */
gw_gcomp testing_codec(gw_dtype dtype, gw_gcomp_levels levels, gw_gcomp_preset preset, uint32_t chunk_log2,
                       int checksum);

/* A tensor with its map, on both sides. */
typedef struct testing_tensor {
    gw_dtype dtype;
    uint64_t len;
    uint8_t *values;
    gw_gcomp_map map;    /* host */
    gw_gcomp_source cpu; /* host */
    gw_gcomp_map device_map;
    gw_gcomp_source device;
    uint32_t digest[32];
} testing_tensor;

/* Random values and levels; map base 300, wire scale 4. */
testing_tensor testing_tensor_make(gw_dtype dtype, uint64_t len, uint32_t chunk_log2, uint64_t *random);

/* Once the tensor will not move: the sources point into it. Values and levels on the device are at
 * addresses that are not multiples of 16. */
void testing_tensor_upload(testing_tensor *t);
void testing_tensor_drop(testing_tensor *t);

/* The CPU's frame; returns its size. */
size_t testing_cpu_encode(const gw_gcomp *codec, const gw_gcomp_source *source, uint8_t **frame);

/* A codebook of the values, as the CPU builds it; returns its size. */
size_t testing_cpu_book(const gw_gcomp *codec, const gw_gcomp_source *sources, size_t source_count,
                        uint8_t book[GW_GCOMP_BOOK_SIZE_MAX]);

gw_cuda_result *testing_new_result(void);

/* Captures what is put on its stream between begin and end, which must contain nothing that waits. */
typedef struct testing_graph {
    void *stream, *graph, *executable;
    gw_fake_control *control;
} testing_graph;

void *testing_graph_begin(testing_graph *graph); /* the stream */
void testing_graph_end(testing_graph *graph);
void testing_graph_run(testing_graph *graph); /* and waits */
void testing_graph_drop(testing_graph *graph);

#endif
