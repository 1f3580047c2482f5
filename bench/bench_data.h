/*
 * Input of the benchmarks: a snapshot of real training with its precision map, repeated to a given size.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_DATA_H
#define GW_BENCH_DATA_H

#include "gradwire/gcomp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_bench_data {
    float *values;
    uint8_t *map_bytes;
    uint32_t *digest; /* of chunks of 2^14 values */
    size_t len;
    gw_gcomp_map map;
} gw_bench_data;

/* "large snapshots" if $GW_SHARED_DATA (default ../shared/data) has them, else "data/samples", those of this
 * repository. */
const char *gw_bench_data_kind(void);

/* Loads NAME.json and its arrays from that folder and repeats gradient and map up to `len` values (0: as it
 * is). Returns 1, or 0 with a message on stderr. */
int gw_bench_load(gw_bench_data *data, const char *name, size_t len);
void gw_bench_free(gw_bench_data *data);

#ifdef __cplusplus
}
#endif

#endif
