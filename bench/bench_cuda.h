/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_CUDA_H
#define GW_BENCH_CUDA_H

/* Registers the benchmarks of backend cuda; false, with a line on stderr that says why, if this build or
 * machine has no CUDA. */
bool add_cuda_benchmarks();

#endif
