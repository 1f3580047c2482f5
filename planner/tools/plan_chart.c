/*
 * Gantt charts and Chrome traces of timelines.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_chart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_json.h"
#include "plan_memory.h"
#include "plan_output.h"

enum { KINDS = GW_PLAN_SPAN_COPY + 1 };

static const char *const resource_names[GW_PLAN_RESOURCE_COUNT] = {"GPU",        "CPU encode", "CPU sum",
                                                                   "CPU decode", "intra",      "network"};
static const char *const kind_names[KINDS] = {"backprop", "encode", "network", "decode", "sum", "host copy"};
static const char *const kind_colors[KINDS] = {"#9db8d9", "#e0a458", "#6a9f74",
                                               "#c46d7b", "#8d6fb0", "#8c8c8c"};

#define CHART_WIDTH 900.0
#define LEFT        84.0
#define LANE        22.0
#define GLYPH       6.5 /* widest letter of a label */

static void text_escaped(FILE *out, const char *text)
{
    static const char special[] = "<>&\"";
    static const char *const escapes[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (; *text != '\0'; text++) {
        const char *found = strchr(special, *text);
        if (found != NULL) {
            fputs(escapes[found - special], out);
        } else if ((unsigned char)*text >= 0x20) {
            fputc(*text, out);
        }
    }
}

/*
 * Marks the chain of spans that decides the end, from the last backwards: the predecessor of a span is one
 * that ends when it starts, on the same resource or in the same job.
 */
static void mark_critical(const gw_plan_span *spans, size_t count, unsigned char *critical)
{
    size_t last = 0;
    for (size_t i = 0; i < count; i++) {
        last = spans[i].end > spans[last].end ? i : last;
    }
    for (size_t steps = 0; count > 0 && steps < count; steps++) {
        critical[last] = 1;
        size_t before = count;
        for (size_t i = 0; i < count; i++) {
            if (i != last && !critical[i] && spans[i].end == spans[last].start &&
                (spans[i].job == spans[last].job || spans[i].resource == spans[last].resource) &&
                (before == count || spans[i].job == spans[last].job)) {
                before = i;
            }
        }
        if (before == count || spans[last].start == 0) {
            return;
        }
        last = before;
    }
}

typedef struct drawing {
    FILE *out;
    double scale; /* per tick */
    double y;     /* top of what is drawn next */
} drawing;

/* What a network stage of a message carries. Option trees compress for some of their stages. */
static const char *carried(const plan_result *result, const gw_plan_span *span)
{
    const plan_result_group *group = &result->groups[span->job];
    const gw_plan_job *job = &result->jobs[span->job];
    const char *codec = group->codec[0] != '\0' ? group->codec : "fp32";
    for (uint32_t s = 0; s < span->stage && s < job->stage_count; s++) {
        const uint8_t op = job->stages[s].op;
        codec = op <= GW_PLAN_OP_COMP_CPU ? result->tree_codec : op <= GW_PLAN_OP_DEC_CPU ? "fp32" : codec;
    }
    return codec;
}

/* A codec on the bar of its message, if it fits there. */
static void draw_label(const drawing *chart, const gw_plan_span *span, const char *codec)
{
    const double width = (double)(span->end - span->start) * chart->scale;
    if (width < 6 + GLYPH * (double)strlen(codec)) {
        return;
    }
    fprintf(chart->out,
            "<text x=\"%.2f\" y=\"%.1f\" font-size=\"10\" fill=\"#ffffff\" text-anchor=\"middle\" "
            "pointer-events=\"none\">",
            LEFT + (double)span->start * chart->scale + width / 2, chart->y + 13);
    text_escaped(chart->out, codec);
    fprintf(chart->out, "</text>\n");
}

/* The bars of one resource. */
static void draw_lane(const drawing *chart, const plan_result *result, const gw_plan_spans *spans,
                      int resource, const unsigned char *critical)
{
    for (size_t i = 0; i < spans->count; i++) {
        const gw_plan_span *span = &spans->items[i];
        if (span->resource != resource || span->end == span->start) {
            continue;
        }
        const int marked = critical[i];
        const double width = (double)(span->end - span->start) * chart->scale;
        fprintf(chart->out,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"%s\" "
                "stroke-width=\"%s\"><title>%s of message %u (",
                LEFT + (double)span->start * chart->scale, chart->y, width > 0.3 ? width : 0.3, LANE - 4,
                kind_colors[span->kind], marked ? "#b00020" : "#ffffff", marked ? "1" : "0.3",
                kind_names[span->kind], span->job);
        text_escaped(chart->out, result->groups[span->job].method);
        fprintf(chart->out, "), %.3f to %.3f ms</title></rect>\n", plan_us(span->start) / 1e3,
                plan_us(span->end) / 1e3);
        if (span->kind == GW_PLAN_SPAN_NETWORK) {
            draw_label(chart, span, carried(result, span));
        }
    }
}

/* Lanes of a row: the resources that are used; GPU and network always. */
static unsigned used_lanes(const gw_plan_spans *spans)
{
    unsigned used = 1u << GW_PLAN_ON_GPU | 1u << GW_PLAN_ON_INTER;
    for (size_t i = 0; i < spans->count; i++) {
        used |= 1u << spans->items[i].resource;
    }
    return used;
}

static double row_height(const gw_plan_spans *spans)
{
    double height = 28;
    for (unsigned used = used_lanes(spans); used != 0; used &= used - 1) {
        height += LANE;
    }
    return height;
}

/* A title and the lanes. */
static void draw_row(drawing *chart, const plan_chart_row *row, const gw_plan_spans *spans,
                     gw_plan_tick makespan)
{
    const unsigned used = used_lanes(spans);
    unsigned char *critical = plan_alloc(spans->count, 1);
    mark_critical(spans->items, spans->count, critical);
    fprintf(chart->out, "<text x=\"4\" y=\"%.1f\" font-weight=\"bold\">", chart->y + 12);
    text_escaped(chart->out, row->title);
    fprintf(chart->out, ": %.2f ms, %u messages</text>\n", plan_us(makespan) / 1e3, row->result->group_count);
    chart->y += 20;
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        if ((used >> r & 1u) == 0) {
            continue;
        }
        fprintf(chart->out, "<text x=\"4\" y=\"%.1f\">%s</text>\n", chart->y + 15, resource_names[r]);
        /* idle time until the end: hatched */
        fprintf(chart->out,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"url(#idle)\"/>\n", LEFT,
                chart->y, (double)makespan * chart->scale, LANE - 4);
        draw_lane(chart, row->result, spans, r, critical);
        chart->y += LANE;
    }
    free(critical);
    chart->y += 8;
}

static void draw_head(const drawing *chart, double height)
{
    fprintf(chart->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<defs><pattern id=\"idle\" width=\"5\" height=\"5\" "
            "patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f6f6f6\"/><line x1=\"0\" "
            "y1=\"0\" "
            "x2=\"0\" y2=\"5\" stroke=\"#d5d5d5\" stroke-width=\"1.5\"/></pattern></defs>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            CHART_WIDTH, height);
}

/* Time axis with about ten round steps, and the legend. */
static void draw_foot(const drawing *chart, gw_plan_tick longest)
{
    const double y = chart->y;
    double span_ms = plan_us(longest) / 1e3;
    double step = 0.001;
    while (span_ms / step > 12) {
        step *= span_ms / (step * 2) <= 12 ? 2 : span_ms / (step * 5) <= 12 ? 5 : 10;
    }
    for (double t = 0; t <= span_ms; t += step) {
        double x = LEFT + t * (double)GW_PLAN_TICKS_PER_US * 1e3 * chart->scale;
        const int outside = x + 4.0 * snprintf(NULL, 0, "%g", t) > CHART_WIDTH; /* half of the text */
        fprintf(chart->out,
                "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#444444\"/>"
                "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"%s\">%g</text>\n",
                x, y, x, y + 5, outside ? CHART_WIDTH - 4 : x, y + 18, outside ? "end" : "middle", t);
    }
    fprintf(chart->out, "<text x=\"4\" y=\"%.1f\">ms</text>\n", y + 18);
    double x = LEFT;
    for (int k = 0; k < KINDS; k++, x += 100) {
        fprintf(chart->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.1f\" "
                "y=\"%.1f\">%s</text>\n",
                x, y + 28, kind_colors[k], x + 16, y + 38, kind_names[k]);
    }
    fprintf(chart->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"url(#idle)\"/><text x=\"%.1f\" "
            "y=\"%.1f\">idle</text>\n",
            x, y + 28, x + 16, y + 38);
    x += 80;
    fprintf(chart->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"none\" stroke=\"#b00020\"/><text "
            "x=\"%.1f\" y=\"%.1f\">critical path</text>\n</svg>\n",
            x, y + 28, x + 16, y + 38);
}

void plan_chart_svg(const plan_chart_row *rows, size_t row_count, const plan_case *c, const char *path)
{
    enum { ROWS_MAX = 4 };
    gw_plan_spans spans[ROWS_MAX];
    gw_plan_tick makespans[ROWS_MAX] = {0};
    gw_plan_tick longest = 1;
    double height = 52;
    for (size_t i = 0; i < row_count && i < ROWS_MAX; i++) {
        makespans[i] = plan_run_timeline(rows[i].result, c, c->level, &spans[i]);
        longest = makespans[i] > longest ? makespans[i] : longest;
        height += row_height(&spans[i]);
    }
    plan_output output;
    plan_output_open(&output);
    drawing chart = {output.text, (CHART_WIDTH - LEFT - 12) / (double)longest, 8};
    draw_head(&chart, height);
    for (size_t i = 0; i < row_count && i < ROWS_MAX; i++) {
        draw_row(&chart, &rows[i], &spans[i], makespans[i]);
        free(spans[i].items);
    }
    draw_foot(&chart, longest);
    plan_output_close(&output, path);
}

/* Trace Event Format: complete events in microseconds, one thread per resource. */
static void write_chrome(const plan_result *result, const plan_opened *o, const char *path)
{
    gw_plan_spans spans;
    (void)plan_run_timeline(result, &o->c, o->c.level, &spans);
    json_t *events = json_array();
    json_array_append_new(events, json_pack("{s:s,s:s,s:i,s:{s:s}}", "ph", "M", "name", "process_name", "pid",
                                            1, "args", "name", "gradwire plan (predicted)"));
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        json_array_append_new(events, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "ph", "M", "name", "thread_name",
                                                "pid", 1, "tid", r, "args", "name", resource_names[r]));
    }
    for (size_t i = 0; i < spans.count; i++) {
        char name[256];
        const gw_plan_span *span = &spans.items[i];
        const plan_result_group *group = &result->groups[span->job];
        (void)snprintf(name, sizeof name, "%s %u", kind_names[span->kind], span->job);
        json_array_append_new(
            events, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:{s:s,s:s,s:i}}", "ph", "X", "cat",
                              kind_names[span->kind], "name", name, "ts", plan_us(span->start), "dur",
                              plan_us(span->end - span->start), "pid", 1, "tid", (int)span->resource, "args",
                              "method", group->method, "first_tensor", o->model.tensors[group->first].name,
                              "tensors", (int)group->tensor_count));
    }
    free(spans.items);
    json_t *root = json_pack("{s:o,s:s}", "traceEvents", events, "displayTimeUnit", "ms");
    plan_json_write(root, path, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

void plan_chart_write(const plan_result *result, const plan_opened *o, const plan_request *a)
{
    if (a->svg != NULL) {
        const plan_chart_row row = {result->algorithm, result};
        plan_chart_svg(&row, 1, &o->c, a->svg);
    }
    if (a->chrome != NULL) {
        write_chrome(result, o, a->chrome);
    }
}
