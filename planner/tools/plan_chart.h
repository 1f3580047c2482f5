/*
 * Timelines as SVG Gantt charts and Chrome traces; curves of sweeps as SVG.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_CHART_H
#define GW_PLAN_CHART_H

#include "plan_run.h"

/* Runs the timeline at the case's level and writes --svg and --chrome, where they are given. Ends the process
 * with a message on failure, like plan_chart_svg(). */
void plan_chart_write(const plan_result *result, const plan_opened *o, const plan_request *request);

/* Charts one below the other with a common time axis. */
typedef struct plan_chart_row {
    const char *title;
    const plan_result *result;
} plan_chart_row;

void plan_chart_svg(const plan_chart_row *rows, size_t row_count, const plan_case *c, const char *path);

/* The curves of a sweep (plan_sweep_chart.c). */
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
