/*
 * The fake driver for the tests of the CUDA calls. They include cmocka; what cuda_cases.h asks of the program
 * fails the test.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_TESTING_H
#define GW_CUDA_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda_cases.h"
#include "fake_driver.h"

/* The driver's switches, reset to those of a machine with one device. */
gw_fake_control *testing_control(void);

/* A handle under these switches; the test fails if there is none. */
void testing_open(gw_cuda *handle);

/* Closes `cuda` and gives all device memory back. */
void testing_close(void);

/* Waits for everything. */
void testing_sync(void);

/* A driver function by name. */
void *testing_driver_function(const char *name);

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
