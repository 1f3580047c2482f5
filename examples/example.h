/*
 * What examples need around what they show: a codec, a gradient that every rank can compute for all ranks, a
 * check of the mean, ranks that are processes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_EXAMPLE_H
#define GW_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/gcomp.h"

/* Ends the process if what it needs is not there. */
static inline void example_must(int ok, const char *what)
{
    if (!ok) {
        (void)fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

/* One quantum a block, chosen by the squared error of a rounding as a share of the values' square. Equal on
 * all ranks. */
static inline gw_gcomp_options example_options(float target_nmse)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = GW_GCOMP_CARRIED;
    options.rounding = GW_GCOMP_STOCHASTIC;
    options.dead_zone = 1;
    options.checksum = 1;
    options.quantum = gw_gcomp_quantum_of_nmse(target_nmse);
    return options;
}

static inline gw_gcomp example_codec(float target_nmse)
{
    gw_gcomp codec;
    const gw_gcomp_options options = example_options(target_nmse);
    example_must(gw_gcomp_init(&codec, &options) == GW_OK, "codec");
    return codec;
}

/* Value i of a rank's gradient: both signs, many magnitudes. */
static inline float example_value(int rank, size_t i)
{
    const int noise = (int)((i % 4001 * 7919 + (size_t)rank * 1009) % 2001) - 1000;
    return (float)noise / (float)(10000 << (i / 4096 % 8));
}

static inline void example_fill(float *values, size_t len, int rank)
{
    for (size_t i = 0; i < len; i++) {
        values[i] = example_value(rank, i);
    }
}

/* Squared error of mean[0..len) as a share of the exact mean's square. */
static inline double example_nmse(const float *mean, size_t len, int ranks)
{
    double error = 0.0, square = 0.0;
    for (size_t i = 0; i < len; i++) {
        double exact = 0.0;
        for (int r = 0; r < ranks; r++) {
            exact += (double)example_value(r, i) / ranks;
        }
        error += ((double)mean[i] - exact) * ((double)mean[i] - exact);
        square += exact * exact;
    }
    return error / square;
}

/* Runs each rank in a process of its own. 0 if all of them end with 0. */
static inline int example_fork(int ranks, int (*run)(int rank))
{
    int failed = 0, status;
    for (int rank = 0; rank < ranks; rank++) {
        const pid_t child = fork();
        example_must(child >= 0, "fork");
        if (child == 0) {
            exit(run(rank));
        }
    }
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    return failed;
}

#endif
