/*
 * The curves of a sweep as SVG.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_SWEEP_CHART_H
#define GW_PLAN_SWEEP_CHART_H

#include <stddef.h>

typedef struct plan_sweep_point {
    double value, best_us, bound_us, dense_us, baseline_us;
} plan_sweep_point;

typedef struct plan_sweep_chart {
    const plan_sweep_point *points; /* values ascend */
    size_t count;                   /* at least one */
    const char *axis;               /* its title */
    const char *baseline;           /* name of that curve */
} plan_sweep_chart;

/* Ends the process with a message on failure. */
void plan_sweep_chart_write(const plan_sweep_chart *chart, const char *path);

#endif
