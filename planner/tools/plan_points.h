/*
 * Measurements of cost curves from files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_POINTS_H
#define GW_PLAN_POINTS_H

#include "gradwire/plan.h"

typedef struct plan_points {
    gw_plan_point *items; /* malloc'ed */
    size_t count;
} plan_points;

typedef struct plan_points_args {
    const char *filter; /* benchmarks whose name contains A but not C: "A,!C"; NULL: all */
    const char *params; /* CSV with names and sizes, for BytePS; NULL: none */
    uint64_t max_size;  /* of the text of a gzip recording */
} plan_points_args;

/* Appends the points of a file of any known kind. Message printed, exit code. */
int plan_points_read(const char *path, const plan_points_args *args, plan_points *points);

/* Reduces the points to a table: medians per size, raised to the running maximum because curves must not
 * fall. Returns the largest relative raise. */
double plan_points_table(plan_points *points);

#endif
