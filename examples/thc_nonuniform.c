/*
 * Non-uniform THC (Algorithm 2 of the paper): an optimal table, expanded before the addition. Here every
 * worker expands its own indices and the sum is a plain integer all-reduce (MPI_SUM on bytes, ncclSum on
 * ncclUint32, a switch) that need not support THC. One worker is late; the count lanes say so.
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
    static float gradient[WORKERS][LEN], mean[LEN];
    static uint8_t indices[LEN], scratch[GW_THC_WORKSPACE_SIZE_MAX];
    static uint32_t own_lanes[LEN], sum_lanes[LEN];
    uint32_t own[BLOCKS], maxima[BLOCKS] = {0};
    const gw_workspace workspace = {scratch, sizeof scratch};
    const gw_thc_goal goal = {.bits = 4, .worker_max = WORKERS, .lane_bits = 8};
    gw_thc_design design;
    gw_thc thc;

    for (int w = 0; w < WORKERS; w++) {
        for (int i = 0; i < LEN; i++) {
            gradient[w][i] = expf(3.0f * sinf((float)i * 0.7f)) * cosf((float)i + 0.2f * (float)w);
        }
    }

    check(gw_thc_design_make(&design, &goal, NULL), "design");
    check(gw_thc_init(&thc, &design.options), "init");

    gw_thc_range range = {.len = LEN, .block_count = BLOCKS, .round = 1};
    for (int w = 0; w < WORKERS; w++) {
        gw_thc_source source = {.values = gradient[w]};
        range.rank = (uint32_t)w;
        check(gw_thc_norms(&thc, &range, &source, own, NULL, &workspace), "norms");
        gw_thc_norms_max(maxima, own, BLOCKS);
    }
    size_t size = gw_thc_reduced_size(&thc, LEN, 0, BLOCKS);
    for (int w = 0; w < WORKERS - 1; w++) { /* the last worker is late */
        gw_thc_source source = {.values = gradient[w], .patterns = maxima};
        gw_buffer packed = {.data = indices, .capacity = sizeof indices};
        gw_buffer expanded = {.data = own_lanes, .capacity = sizeof own_lanes};
        range.rank = (uint32_t)w;
        check(gw_thc_encode(&thc, &range, &source, &packed, NULL, &workspace), "encode");
        gw_thc_indices mine = {.data = indices, .size = packed.size};
        check(gw_thc_expand(&thc, &range, &mine, &expanded), "expand");
        all_reduce_u32(sum_lanes, own_lanes, size / 4);
    }
    gw_thc_sum sum = {.data = sum_lanes, .size = size, .patterns = maxima};
    gw_thc_target decoded = {.values = mean, .capacity = LEN};
    check(gw_thc_decode_reduced(&thc, &range, &sum, GW_THC_MEAN, &decoded, &workspace), "decode");

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
           design.options.table.granularity, 1 / design.p, size, error / total);
    return error / total < 0.02 ? 0 : 1;
}
