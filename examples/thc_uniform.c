/*
 * Uniform THC (Algorithm 1 of the paper): minimum and maximum over all workers, evenly spaced levels, integer
 * sums. Four workers in one process; every array would travel between machines.
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

int main(void)
{
    static float gradient[WORKERS][LEN], mean[LEN];
    static uint8_t indices[WORKERS][LEN], lanes[2 * LEN], scratch[GW_THC_WORKSPACE_SIZE_MAX];
    const gw_workspace workspace = {scratch, sizeof scratch};
    uint32_t own[2 * BLOCKS], maxima[2 * BLOCKS] = {0};
    uint32_t members[BLOCKS] = {WORKERS, WORKERS, WORKERS};
    uint8_t contributors[GW_THC_SET_SIZE(WORKERS)] = {0};
    gw_thc thc;
    gw_thc_agg agg;

    for (int w = 0; w < WORKERS; w++) {
        for (int i = 0; i < LEN; i++) {
            gradient[w][i] = sinf((float)i * 0.01f) + 0.1f * (float)(w - 1);
        }
    }

    gw_thc_options options = {
        .table = gw_thc_table_uniform(4), /* 0..15: the aggregator's table lookup is the identity */
        .worker_max = WORKERS,
        .seed = 2024,
        .dtype = GW_FP32,
        .transform = GW_THC_PLAIN,
        .block_log2 = 10,
        .lane_bits = 8, /* 4 * 15 <= 255 */
        .backends = GW_BACKEND_ALL,
    };
    check(gw_thc_init(&thc, &options), "init");
    const gw_thc_agg_options agg_options = {options.table, WORKERS, options.lane_bits, GW_BACKEND_ALL};
    check(gw_thc_agg_init(&agg, &agg_options), "aggregator");

    /* Preliminary stage: an integer MAX, here of codes of maximum and minus minimum. */
    gw_thc_range range = {.len = LEN, .block_count = BLOCKS, .round = 1};
    for (int w = 0; w < WORKERS; w++) {
        gw_thc_source source = {.values = gradient[w]};
        range.rank = (uint32_t)w;
        check(gw_thc_norms(&thc, &range, &source, own, NULL, &workspace), "norms");
        gw_thc_norms_max(maxima, own, 2 * BLOCKS);
    }
    /* Main stage: quantize with common limits, add integers. */
    size_t lane_count = (size_t)gw_thc_range_lanes(&thc, LEN, 0, BLOCKS);
    gw_thc_partial sum = {.lanes = lanes, .set = contributors, .len = lane_count};
    for (int w = 0; w < WORKERS; w++) {
        gw_thc_source source = {.values = gradient[w], .patterns = maxima};
        gw_buffer dst = {.data = indices[w], .capacity = sizeof indices[w]};
        range.rank = (uint32_t)w;
        check(gw_thc_encode(&thc, &range, &source, &dst, NULL, &workspace), "encode");
        check(gw_thc_agg_add_indices(&agg, &sum, indices[w], range.rank), "add");
    }
    gw_thc_sum all = {.data = lanes, .size = lane_count, .members = members, .patterns = maxima};
    gw_thc_target decoded = {.values = mean, .capacity = LEN};
    check(gw_thc_decode(&thc, &range, &all, GW_THC_MEAN, &decoded, &workspace), "decode");

    double error = 0, size = 0;
    for (int i = 0; i < LEN; i++) {
        double truth = 0;
        for (int w = 0; w < WORKERS; w++) {
            truth += (double)gradient[w][i] / WORKERS;
        }
        error += (mean[i] - truth) * (mean[i] - truth);
        size += truth * truth;
    }
    printf("%d workers, %d values: %zu bytes up each, %zu down, squared error %.5f of the mean's\n", WORKERS,
           LEN, gw_thc_indices_size(&thc, LEN, 0, BLOCKS), lane_count, error / size);
    return error / size < 0.01 ? 0 : 1;
}
