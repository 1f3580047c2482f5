/*
 * Curves of rate control as an SVG drawing.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RATE_PLOT_H
#define GW_RATE_PLOT_H

#include <stddef.h>

/* A point of a curve. */
typedef struct gw_rate_point {
    char label[16]; /* "14", "2^-3.5" */
    double bits;    /* a value */
    double nmse;
    double added; /* noise added to v, as a share of it; negative: unknown */
} gw_rate_point;

/* What a drawing says in words; text is escaped. */
typedef struct gw_rate_plot {
    const char *title;
    const char *limit; /* what the labels of the points are */
    const gw_rate_point *points;
    size_t count;
} gw_rate_plot;

/* Writes bits against NMSE and noise to a file, or ends the process with a message. */
void gw_rate_plot_write(const gw_rate_plot *plot, const char *path);

#endif
