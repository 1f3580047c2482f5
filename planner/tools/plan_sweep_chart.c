/*
 * The curves of a sweep as SVG: both axes are logarithmic, and the legend lies above the lower end of the
 * curves.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_chart.h"

#include <math.h>
#include <stdio.h>

#include "plan_output.h"

enum { CURVES = 3 };

#define LEFT        60.0
#define WIDTH       560.0
#define TOP         30.0
#define HEIGHT      284.0
#define LEGEND_SIZE 0.32 /* share of the height */
#define CANVAS      640.0
#define DIGIT       8.0 /* width of a digit, at most */
#define TICKS_MAX   48

static const char *const colors[CURVES] = {"#6a9f74", "#4f7cb0", "#c46d7b"};
static const char *const dashes[CURVES] = {"none", "none", "5 4"}; /* the last two often coincide */

typedef struct drawing {
    FILE *out;
    const plan_sweep_chart *chart;
    double low, high; /* of the values */
    int only;         /* all points have one value: level lines */
    double ticks[TICKS_MAX];
    int tick_count; /* the first and the last are the ends of the axis of times, in ms */
} drawing;

static double curve_ms(const plan_sweep_point *point, int curve)
{
    return (curve == 0 ? point->best_us : curve == 1 ? point->dense_us : point->baseline_us) / 1e3;
}

static double place_x(const drawing *d, double value)
{
    return LEFT + WIDTH * (log(value) - log(d->low)) / (log(d->high) - log(d->low));
}

static double place_y(const drawing *d, double ms)
{
    const double bottom = log(d->ticks[0]);
    const double top = log(d->ticks[d->tick_count - 1]);
    return TOP + HEIGHT * (1 - (log(ms) - bottom) / (top - bottom));
}

/* Round numbers from one that is not above `least` to one that is not below `most`, and not below least
 * * 1.25. */
static void make_ticks(drawing *d, double least, double most)
{
    static const double fine[] = {1, 1.5, 2, 3, 4, 5, 6, 8};
    static const double coarse[] = {1, 2, 5};
    const double decades = log10(most / least);
    const double *const steps = decades < 1.3 ? fine : coarse;
    const int count = decades < 1.3 ? 8 : decades < 4 ? 3 : 1;
    double power = pow(10, floor(log10(least)));
    most = fmax(most, 1.25 * least);
    d->tick_count = 0;
    for (int i = 0; d->tick_count < TICKS_MAX; i++) {
        power *= i > 0 && i % count == 0 ? 10 : 1;
        const double tick = power * steps[i % count];
        if (tick <= least) {
            d->tick_count = 0; /* a better first one */
        }
        d->ticks[d->tick_count++] = tick;
        if (tick >= most) {
            return;
        }
    }
}

/* Ranges of both axes, so that the legend has room above the end where the curves are lower. Returns its left
 * edge. */
static double make_axes(drawing *d)
{
    const plan_sweep_chart *chart = d->chart;
    double least = INFINITY;
    double most = 0;
    double halves[2] = {0, 0}; /* highest time of the left and right half of the picture */
    d->low = chart->points[0].value;
    d->high = chart->points[chart->count - 1].value;
    d->only = !(d->high > d->low);
    d->high = d->only ? d->low * 2 : d->high;
    for (size_t i = 0; i < chart->count; i++) {
        for (int curve = 0; curve < CURVES; curve++) {
            const double ms = fmax(curve_ms(&chart->points[i], curve), 1e-6);
            const int half = log(chart->points[i].value / d->low) * 2 > log(d->high / d->low);
            least = fmin(least, ms);
            most = fmax(most, ms);
            halves[half] = fmax(halves[half], ms);
        }
    }
    halves[1] = d->only ? halves[0] : halves[1];
    const int right = halves[1] <= halves[0];
    make_ticks(d, least, most);
    const double room = 1 - LEGEND_SIZE;
    if (log(halves[right] / d->ticks[0]) > room * log(d->ticks[d->tick_count - 1] / d->ticks[0])) {
        make_ticks(d, least, d->ticks[0] * pow(halves[right] / d->ticks[0], 1 / room));
    }
    return right ? LEFT + 0.6 * WIDTH : LEFT + 16;
}

static void draw_axes(const drawing *d)
{
    for (int i = 0; i < d->tick_count; i++) {
        const double y = place_y(d, d->ticks[i]);
        fprintf(d->out,
                "<text x=\"54\" y=\"%.1f\" text-anchor=\"end\">%.4g</text><line x1=\"%.0f\" x2=\"%.0f\" "
                "y1=\"%.1f\" "
                "y2=\"%.1f\" stroke=\"#dddddd\"/>\n",
                y + 4, d->ticks[i], LEFT, LEFT + WIDTH, y, y);
    }
    const size_t step = d->chart->count > 12 ? d->chart->count / 6 : 1;
    double end = 0; /* of the last label */
    for (size_t i = 0; i < d->chart->count; i += step) {
        const double value = d->chart->points[i].value;
        char text[32];
        const int whole = value >= 1000 && value < 100000; /* ranks have up to five digits */
        const double width = DIGIT * snprintf(text, sizeof text, whole ? "%.0f" : "%.3g", value);
        const double x = fmin(place_x(d, value), CANVAS - 2 - width / 2);
        if (x - width / 2 > end) {
            fprintf(d->out, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", x,
                    TOP + HEIGHT + 18, text);
            end = x + width / 2 + DIGIT;
        }
    }
    fprintf(d->out,
            "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n<text x=\"4\" y=\"14\">iteration, "
            "ms</text>\n",
            LEFT + WIDTH / 2, TOP + HEIGHT + 38, d->chart->axis);
}

static void draw_curves(const drawing *d, double legend)
{
    const char *const names[CURVES] = {"best plan", "best plan without compression", d->chart->baseline};
    for (int curve = 0; curve < CURVES; curve++) {
        fprintf(d->out,
                "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" points=\"",
                colors[curve], dashes[curve]);
        for (size_t i = 0; i < d->chart->count; i++) {
            const plan_sweep_point *point = &d->chart->points[i];
            fprintf(d->out, "%.2f,%.2f ", place_x(d, point->value),
                    place_y(d, fmax(curve_ms(point, curve), 1e-6)));
        }
        if (d->only) { /* one value has no curve */
            const double y = place_y(d, fmax(curve_ms(&d->chart->points[0], curve), 1e-6));
            fprintf(d->out, "%.2f,%.2f ", LEFT + WIDTH, y);
        }
        const double y = TOP + 20 + 20 * curve;
        fprintf(
            d->out,
            "\"/>\n<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"%s\" stroke-width=\"2\" "
            "stroke-dasharray=\"%s\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
            legend, legend + 24, y, y, colors[curve], dashes[curve], legend + 30, y + 4, names[curve]);
    }
}

void plan_sweep_chart_write(const plan_sweep_chart *chart, const char *path)
{
    plan_output output;
    plan_output_open(&output);
    drawing d = {.out = output.text, .chart = chart};
    const double legend = make_axes(&d);
    fprintf(d.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            CANVAS, TOP + HEIGHT + 48);
    draw_axes(&d);
    draw_curves(&d, legend);
    fprintf(d.out, "</svg>\n");
    plan_output_close(&output, path);
}
