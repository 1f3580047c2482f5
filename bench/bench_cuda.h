/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_CUDA_H
#define GW_BENCH_CUDA_H

/* Registers the benchmarks of backend cuda. If this build or machine has no CUDA: false, and the reason on
 * stderr. */
bool add_cuda_benchmarks();

#endif
