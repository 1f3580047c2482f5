/*
 * Non-uniform THC (Algorithm 2 of the paper): an optimal table, expanded by whoever adds. Here every worker
 * expands its own indices and the sum is a plain integer all-reduce (MPI_SUM on bytes, ncclSum on ncclUint32,
 * a switch): nobody in the middle knows about THC. One worker stays away; the count lanes say so.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire/thc.h"

enum { WORKERS = 4, LEN = 3000, BLOCKS = 3 };

static void check(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s\n", what, gw_status_message(status));
        exit(1);
    }
}

/* The collective that every stack has: dst[i] += src[i]. */
static void all_reduce_u32(uint32_t *dst, const uint32_t *src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] += src[i];
    }
}

int main(void)
{
    static float gradient[WORKERS][LEN], mean[LEN], workspace[GW_THC_WORKSPACE_SIZE_MAX / sizeof(float)];
    static uint8_t indices[LEN];
    static uint32_t own_lanes[LEN], sum_lanes[LEN], table_memory[GW_THC_TABLE_WORKSPACE_SIZE / 4 + 2];
    uint32_t own[BLOCKS], maxima[BLOCKS] = {0};
    gw_thc_config config;
    gw_thc thc;
    double p;

    for (int w = 0; w < WORKERS; w++) {
        for (int i = 0; i < LEN; i++) {
            gradient[w][i] = expf(3.0f * sinf((float)i * 0.7f)) * cosf((float)i + 0.2f * (float)w);
        }
    }

    check(gw_thc_config_default(&config, &p, 4, WORKERS, 8, 0, table_memory, sizeof table_memory), "default");
    check(gw_thc_init(&thc, &config, GW_BACKEND_ALL), "init");

    gw_thc_range range = {.count = LEN, .block_count = BLOCKS, .round = 1};
    for (int w = 0; w < WORKERS; w++) {
        range.rank = (uint32_t)w;
        check(gw_thc_norms(&thc, &range, gradient[w], NULL, own, workspace, sizeof workspace, NULL), "norms");
        gw_thc_norms_max(maxima, own, BLOCKS);
    }
    size_t size = gw_thc_reduced_size(&thc, LEN, 0, BLOCKS);
    for (int w = 0; w < WORKERS - 1; w++) { /* the last worker is late */
        range.rank = (uint32_t)w;
        check(gw_thc_encode(&thc, &range, gradient[w], NULL, maxima, indices, sizeof indices, workspace,
                            sizeof workspace, NULL),
              "encode");
        check(gw_thc_expand(&thc, &range, indices, sizeof indices, (uint8_t *)own_lanes, sizeof own_lanes),
              "expand");
        all_reduce_u32(sum_lanes, own_lanes, size / 4);
    }
    check(gw_thc_decode_reduced(&thc, &range, (const uint8_t *)sum_lanes, size, maxima, GW_THC_MEAN, mean,
                                sizeof mean, workspace, sizeof workspace, NULL, NULL),
          "decode");

    double error = 0, total = 0;
    for (int i = 0; i < LEN; i++) {
        double truth = 0;
        for (int w = 0; w < WORKERS - 1; w++) {
            truth += (double)gradient[w][i] / (WORKERS - 1);
        }
        error += (mean[i] - truth) * (mean[i] - truth);
        total += truth * truth;
    }
    printf("granularity %u, p 1/%.0f: %zu bytes through the all-reduce, squared error %.5f of the mean's\n",
           config.table.granularity, 1 / p, size, error / total);
    return error / total < 0.02 ? 0 : 1;
}
