/*
 * Steps of GCOMP between its kernels: bins to labels, counts to a codebook, a codebook to the tables of the
 * kernels. Plain C on every backend; only the histogram calls a kernel (survey).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_CORE_H
#define GW_BENCH_CORE_H

#include "bench_data.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_BENCH_CORE_LEN = 1 << 17 }; /* smallest data: a group of chunks */

/* Codebooks of a gradient and everything needed to make them. The data must outlive them. */
typedef struct gw_bench_codebooks gw_bench_codebooks;
/* NULL on failure. */
gw_bench_codebooks *gw_bench_codebooks_new(const gw_bench_data *data, uint32_t backends);
void gw_bench_codebooks_free(gw_bench_codebooks *codebooks);

typedef struct gw_bench_step {
    const char *name;
    size_t len;      /* values that one run processes */
    int has_kernels; /* calls kernels: timed on every backend */
    gw_status (*run)(gw_bench_codebooks *codebooks);
} gw_bench_step;

/* NULL after the last. */
const gw_bench_step *gw_bench_step_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif
