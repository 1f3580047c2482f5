/*
 * Every kernel of every backend, on its inputs in tests/kernels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_KERNELS_H
#define GW_BENCH_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Call this first. 0 on failure. */
int gw_bench_kernels_setup(void);

/* All versions of kernels, each once; NULL after the last. */
typedef struct gw_bench_kernel {
    const char *slot, *backend;
    size_t len; /* values of one call */
    const void *family_kernel;
    void (*fn)(void);
} gw_bench_kernel;
const gw_bench_kernel *gw_bench_kernel_at(size_t index);

/* Prepares the inputs and passes the call to be timed to run(). */
typedef void gw_bench_kernel_run(void *state, void (*call)(void *context), void *context);
void gw_bench_kernel_time(const gw_bench_kernel *kernel, gw_bench_kernel_run *run, void *state);

#ifdef __cplusplus
}
#endif

#endif
