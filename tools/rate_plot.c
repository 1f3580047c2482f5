/* SPDX-License-Identifier: BSD-2-Clause */
#include "rate_plot.h"

#include "cli_common.h"
#include "cli_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Places in pixels: the frame of the axes lies within the drawing. */
#define WIDTH  760.0
#define HEIGHT 560.0
#define LEFT   84.0
#define RIGHT  (WIDTH - 24.0)
#define TOP    72.0
#define BOTTOM (HEIGHT - 56.0)

/* Labels of points that would be nearer than this to the last one are left out. */
#define LABEL_WIDTH  46.0
#define LABEL_HEIGHT 13.0

static const char *const colors[2] = {"#2f5d9b", "#b5532e"};

typedef struct axes {
    FILE *out;
    double bits_max;
    int log_min, log_max; /* decimal logarithms at the ends of the vertical axis */
} axes;

static void put_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"' || (unsigned char)*text < 0x20) {
            fprintf(out, "&#%d;", (unsigned char)*text < 0x20 ? ' ' : *text);
        } else {
            fputc(*text, out);
        }
    }
}

static double x_of(const axes *a, double bits)
{
    return LEFT + (RIGHT - LEFT) * bits / a->bits_max;
}

static double y_of(const axes *a, double error)
{
    const double share = (log10(error) - a->log_min) / (a->log_max - a->log_min);
    return BOTTOM - (BOTTOM - TOP) * share;
}

/* Curve 0: NMSE, 1: noise added to v. */
static double error_of(const gw_rate_point *point, int curve)
{
    return curve == 0 ? point->nmse : point->added;
}

static int has_error(const gw_rate_point *point, int curve)
{
    const double error = error_of(point, curve);
    return isfinite(error) && error > 0;
}

static void axes_choose(axes *a, const gw_rate_plot *plot)
{
    double least = 1, most = 1e-3, bits = 1;
    for (size_t i = 0; i < plot->count; i++) {
        bits = fmax(bits, plot->points[i].bits);
        for (int curve = 0; curve < 2; curve++) {
            if (has_error(&plot->points[i], curve)) {
                least = fmin(least, error_of(&plot->points[i], curve));
                most = fmax(most, error_of(&plot->points[i], curve));
            }
        }
    }
    a->bits_max = ceil(bits * 1.05 + 0.2);
    a->log_min = (int)floor(log10(least));
    a->log_max = (int)ceil(log10(most * 1.5));
}

static void draw_axes(const axes *a, const gw_rate_plot *plot)
{
    fprintf(a->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
            "<text x=\"%.1f\" y=\"22\" font-size=\"15\">",
            WIDTH, HEIGHT, LEFT);
    put_escaped(a->out, plot->title);
    fprintf(a->out, "</text>\n");
    const int step_x = a->bits_max > 16 ? 4 : a->bits_max > 8 ? 2 : 1;
    for (int bits = 0; bits <= (int)a->bits_max; bits += step_x) {
        const double x = x_of(a, bits);
        fprintf(a->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n",
                x, TOP, x, BOTTOM, x, BOTTOM + 18, bits);
    }
    const int step_y = (a->log_max - a->log_min) / 14 + 1;
    for (int log = a->log_min; log <= a->log_max; log += step_y) {
        const double y = y_of(a, pow(10, log));
        fprintf(a->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n",
                LEFT, y, RIGHT, y, LEFT - 8, y + 4, log);
    }
    fprintf(a->out,
            "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#333333\"/>\n"
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">bits a value</text>\n"
            "<text x=\"16\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 16 %.1f)\">error, as a "
            "share</text>\n",
            LEFT, TOP, BOTTOM, RIGHT, (LEFT + RIGHT) / 2, HEIGHT - 14, (TOP + BOTTOM) / 2,
            (TOP + BOTTOM) / 2);
}

/* Above the axes, so that it covers no curve. */
static void draw_legend(const axes *a, const gw_rate_plot *plot, int has_added)
{
    static const char *const names[2] = {"NMSE of the gradient", "noise added to v"};
    double x = LEFT;
    for (int curve = 0; curve < 1 + has_added; curve++, x += 170) {
        fprintf(a->out,
                "<circle cx=\"%.1f\" cy=\"46\" r=\"4\" fill=\"%s\"/><text x=\"%.1f\" y=\"50\">%s</text>\n",
                x + 4, colors[curve], x + 14, names[curve]);
    }
    fprintf(a->out, "<text x=\"%.1f\" y=\"50\" text-anchor=\"end\">labels: ", RIGHT);
    put_escaped(a->out, plot->limit);
    fprintf(a->out, "</text>\n");
}

static void draw_curve(const axes *a, const gw_rate_plot *plot, int curve)
{
    fprintf(a->out, "<polyline fill=\"none\" stroke=\"%s\" points=\"", colors[curve]);
    for (size_t i = 0; i < plot->count; i++) {
        const gw_rate_point *point = &plot->points[i];
        if (has_error(point, curve)) {
            fprintf(a->out, "%.1f,%.1f ", x_of(a, point->bits), y_of(a, error_of(point, curve)));
        }
    }
    fprintf(a->out, "\"/>\n");
    for (size_t i = 0; i < plot->count; i++) {
        const gw_rate_point *point = &plot->points[i];
        if (has_error(point, curve)) {
            fprintf(a->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x_of(a, point->bits),
                    y_of(a, error_of(point, curve)), colors[curve]);
        }
    }
}

/* 1 if a label at this place would touch a point of the other curve, or a label before it. */
static int is_taken(const axes *a, const gw_rate_plot *plot, double x, double y)
{
    for (size_t i = 0; i < plot->count; i++) {
        for (int curve = 0; curve < 2; curve++) {
            const gw_rate_point *point = &plot->points[i];
            if (has_error(point, curve)) {
                const double px = x_of(a, point->bits), py = y_of(a, error_of(point, curve));
                if (px > x - 4 && px < x + LABEL_WIDTH && py > y - LABEL_HEIGHT && py < y + 5) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

/* To the right of the points of NMSE, which falls with the bits. */
static void draw_labels(const axes *a, const gw_rate_plot *plot)
{
    double last_x = -LABEL_WIDTH, last_y = -LABEL_HEIGHT;
    for (size_t i = plot->count; i-- > 0;) {
        const gw_rate_point *point = &plot->points[i];
        if (!has_error(point, 0)) {
            continue;
        }
        const double x = x_of(a, point->bits) + 7, y = y_of(a, point->nmse) - 3;
        const int is_near = fabs(x - last_x) < LABEL_WIDTH && fabs(y - last_y) < LABEL_HEIGHT;
        if (is_near || x + LABEL_WIDTH > RIGHT + 20 || is_taken(a, plot, x, y)) {
            continue;
        }
        fprintf(a->out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\">", x, y);
        put_escaped(a->out, point->label);
        fprintf(a->out, "</text>\n");
        last_x = x;
        last_y = y;
    }
}

void gw_rate_plot_write(const gw_rate_plot *plot, const char *path)
{
    char *data = NULL;
    size_t size = 0;
    axes a = {.out = open_memstream(&data, &size)};
    if (a.out == NULL) {
        gw_cli_fail(GW_CLI_IO, path, "out of memory");
    }
    int has_added = 0;
    for (size_t i = 0; i < plot->count; i++) {
        has_added |= has_error(&plot->points[i], 1);
    }
    axes_choose(&a, plot);
    draw_axes(&a, plot);
    draw_legend(&a, plot, has_added);
    for (int curve = 0; curve < 1 + has_added; curve++) {
        draw_curve(&a, plot, curve);
    }
    draw_labels(&a, plot);
    fprintf(a.out, "</svg>\n");
    const int failed = ferror(a.out);
    if (fclose(a.out) != 0 || failed) {
        gw_cli_fail(GW_CLI_IO, path, "out of memory");
    }
    gw_cli_write_file(path, data, size);
    free(data);
}
