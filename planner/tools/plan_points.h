/*
 * Measurements of cost curves from files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_POINTS_H
#define GW_PLAN_POINTS_H

#include "plan_options.h"

typedef struct plan_points {
    gw_plan_point *items; /* malloc'ed */
    size_t count;
} plan_points;

/* Appends the points of a file of any known kind. Ends the process with a message on failure. */
void plan_points_read(const char *path, const plan_request *request, plan_points *points);

/* Reduces the points to a table: medians per size, raised to the running maximum because curves must not
 * fall. Returns the largest relative raise. */
double plan_points_table(plan_points *points);

#endif
