/*
 * Timelines as SVG Gantt charts and Chrome traces.
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

#endif
