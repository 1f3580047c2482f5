/*
 * What GCOMP does between its kernels: from bins to labels, from counts to a codebook, from a codebook to the
 * tables of the kernels. Plain C on every backend; only the histogram calls a kernel (survey).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_CORE_H
#define GW_BENCH_CORE_H

#include "bench_data.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_BENCH_CORE_LEN = 1 << 17 }; /* values that the data must have: a group of chunks */

/* Codebooks of a gradient and all that their making needs. The data must outlive them. */
typedef struct gw_bench_books gw_bench_books;
/* NULL on failure. */
gw_bench_books *gw_bench_books_new(const gw_bench_data *data, uint32_t backends);
void gw_bench_books_free(gw_bench_books *books);

typedef struct gw_bench_step {
    const char *name;
    size_t len;      /* values that one run stands for */
    int has_kernels; /* it calls kernels: worth timing on every backend */
    gw_status (*run)(gw_bench_books *books);
} gw_bench_step;

/* NULL behind the last. */
const gw_bench_step *gw_bench_step_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif
