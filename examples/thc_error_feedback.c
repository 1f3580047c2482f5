/*
 * Training with error feedback (Algorithm 3 of the paper): least squares by gradient descent, two workers
 * with half of the data each, two bits a gradient value. What rounding and the clamp remove is added to
 * the next gradient.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire/thc.h"

enum { WORKERS = 2, LEN = 1000, BLOCKS = 1, STEPS = 300 };

static void check(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s\n", what, gw_status_message(status));
        exit(1);
    }
}

/* Worker w pulls parameter i towards target(w, i) with a curvature of its own. */
static float target(int w, int i)
{
    return sinf((float)i) + (w == 0 ? 0.5f : -0.5f);
}

static double train(int bits, int error_feedback)
{
    static float x[LEN], gradient[LEN], mean[LEN], error[WORKERS][LEN];
    static uint8_t scratch[GW_THC_WORKSPACE_SIZE_MAX];
    static uint8_t indices[WORKERS][LEN], lanes[1024];
    const gw_workspace workspace = {scratch, sizeof scratch};
    const gw_thc_goal goal = {
        .bits = (unsigned)bits, .worker_max = WORKERS, .error_feedback = error_feedback};
    gw_thc_options options;
    gw_thc thc;
    gw_thc_agg agg;

    memset(x, 0, sizeof x);
    memset(error, 0, sizeof error);
    check(gw_thc_options_init(&options, &goal, NULL), "options");
    check(gw_thc_init(&thc, &options), "init");
    const gw_thc_agg_options agg_options = {options.table, WORKERS, options.lane_bits, GW_BACKEND_ALL};
    check(gw_thc_agg_init(&agg, &agg_options), "aggregator");

    for (int step = 0; step < STEPS; step++) {
        uint32_t own, maximum = 0, members = WORKERS;
        uint8_t contributors[GW_THC_SET_SIZE(WORKERS)] = {0};
        gw_thc_range range = {.len = LEN, .block_count = BLOCKS, .round = (uint32_t)step};

        const gw_thc_partial sum = {lanes, contributors, sizeof lanes};

        memset(lanes, 0, sizeof lanes);
        for (int phase = 0; phase < 2; phase++) {
            for (int w = 0; w < WORKERS; w++) {
                gw_thc_source source = {
                    .values = gradient, .error = error_feedback ? error[w] : NULL, .patterns = &maximum};
                gw_buffer dst = {.data = indices[w], .capacity = sizeof indices[w]};
                range.rank = (uint32_t)w;
                for (int i = 0; i < LEN; i++) {
                    gradient[i] = (1.0f + 0.5f * cosf((float)(i * (w + 1)))) * (x[i] - target(w, i));
                }
                if (phase == 0) {
                    check(gw_thc_norms(&thc, &range, &source, &own, NULL, &workspace), "norm");
                    gw_thc_norms_max(&maximum, &own, 1);
                    continue;
                }
                check(gw_thc_encode(&thc, &range, &source, &dst, NULL, &workspace), "encode");
                check(gw_thc_agg_add_indices(&agg, &sum, indices[w], range.rank), "add");
            }
        }
        gw_thc_sum all = {lanes, sizeof lanes, &members, &maximum};
        gw_thc_target decoded = {.values = mean, .capacity = LEN};
        check(gw_thc_decode(&thc, &range, &all, GW_THC_MEAN, &decoded, &workspace), "decode");
        for (int i = 0; i < LEN; i++) {
            x[i] -= 0.1f * mean[i];
        }
    }
    double rest = 0; /* distance from the optimum, where the two pulls cancel */
    for (int i = 0; i < LEN; i++) {
        double a = 1 + 0.5 * cos(i), b = 1 + 0.5 * cos(2.0 * i);
        double best = (a * (double)target(0, i) + b * (double)target(1, i)) / (a + b);
        rest += (x[i] - best) * (x[i] - best);
    }
    return sqrt(rest / LEN);
}

int main(void)
{
    double without = train(2, 0), with = train(2, 1);
    printf("rms distance from the optimum after %d steps of 2 bits: %.5f without feedback, %.5f with\n",
           STEPS, without, with);
    return with < 0.05 ? 0 : 1;
}
