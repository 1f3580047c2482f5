/*
 * Gantt charts and Chrome traces of timelines.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_chart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_output.h"

static const char *const resource_names[GW_PLAN_RESOURCE_COUNT] = {"GPU", "CPU", "intra", "network"};
static const char *const kind_names[4] = {"backprop", "encode", "network", "decode"};
static const char *const kind_colors[4] = {"#9db8d9", "#e0a458", "#6a9f74", "#c46d7b"};

#define CHART_WIDTH 900.0
#define LEFT        84.0
#define LANE        22.0

static void text_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            if ((unsigned char)*text >= 0x20) {
                fputc(*text, out);
            }
        }
    }
}

/*
 * The chain of spans that decides the end, from the last backwards: the predecessor of a span is one that
 * ends when it starts, on the same resource or in the same job.
 */
static void mark_critical(const gw_plan_span *spans, size_t count, unsigned char *critical)
{
    size_t last = 0;
    memset(critical, 0, count);
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

static double chart_rows(FILE *out, const char *title, const plan_result *result, const gw_plan_span *spans,
                         size_t count, gw_plan_tick makespan, double scale, double y)
{
    int used[GW_PLAN_RESOURCE_COUNT] = {1, 0, 0, 1};
    for (size_t i = 0; i < count; i++) {
        used[spans[i].resource] = 1;
    }
    unsigned char *critical = calloc(count + 1, 1);
    if (critical != NULL) {
        mark_critical(spans, count, critical);
    }
    fprintf(out, "<text x=\"4\" y=\"%.1f\" font-weight=\"bold\">", y + 12);
    text_escaped(out, title);
    fprintf(out, ": %.2f ms, %u messages</text>\n", plan_us(makespan) / 1e3, result->group_count);
    y += 20;
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        if (!used[r]) {
            continue;
        }
        fprintf(out, "<text x=\"4\" y=\"%.1f\">%s</text>\n", y + 15, resource_names[r]);
        /* idle time until the end: hatched */
        fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"url(#idle)\"/>\n",
                LEFT, y, (double)makespan * scale, LANE - 4);
        for (size_t i = 0; i < count; i++) {
            if (spans[i].resource != r || spans[i].end == spans[i].start) {
                continue;
            }
            double width = (double)(spans[i].end - spans[i].start) * scale;
            fprintf(out,
                    "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"%s\" "
                    "stroke-width=\"%s\"><title>%s of message %u (",
                    LEFT + (double)spans[i].start * scale, y, width > 0.3 ? width : 0.3, LANE - 4,
                    kind_colors[spans[i].kind], critical != NULL && critical[i] ? "#b00020" : "#ffffff",
                    critical != NULL && critical[i] ? "1" : "0.3", kind_names[spans[i].kind], spans[i].job);
            text_escaped(out, result->groups[spans[i].job].method);
            fprintf(out, "), %.3f to %.3f ms</title></rect>\n", plan_us(spans[i].start) / 1e3,
                    plan_us(spans[i].end) / 1e3);
        }
        y += LANE;
    }
    free(critical);
    return y + 8;
}

int plan_chart_svg(const plan_chart_row *rows, size_t row_count, const plan_case *c, const char *path)
{
    gw_plan_tick longest = 1;
    for (size_t i = 0; i < row_count; i++) {
        gw_plan_tick makespan = 0;
        int code = plan_run_timeline(rows[i].result, c, c->level, NULL, NULL, &makespan);
        if (code != GW_CLI_OK) {
            return code;
        }
        longest = makespan > longest ? makespan : longest;
    }
    plan_output output;
    int code = plan_output_open(&output);
    if (code != GW_CLI_OK) {
        return code;
    }
    FILE *out = output.text;
    double scale = (CHART_WIDTH - LEFT - 12) / (double)longest;
    double height = 70 + (double)row_count * (28 + 4 * LANE);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<defs><pattern id=\"idle\" width=\"5\" height=\"5\" "
            "patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f6f6f6\"/><line x1=\"0\" "
            "y1=\"0\" "
            "x2=\"0\" y2=\"5\" stroke=\"#d5d5d5\" stroke-width=\"1.5\"/></pattern></defs>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            CHART_WIDTH, height);
    double y = 8;
    for (size_t i = 0; i < row_count && code == GW_CLI_OK; i++) {
        gw_plan_span *spans = NULL;
        size_t count = 0;
        gw_plan_tick makespan = 0;
        code = plan_run_timeline(rows[i].result, c, c->level, &spans, &count, &makespan);
        if (code == GW_CLI_OK) {
            y = chart_rows(out, rows[i].title, rows[i].result, spans, count, makespan, scale, y);
        }
        free(spans);
    }
    /* time axis: about ten round steps */
    double span_ms = plan_us(longest) / 1e3;
    double step = 0.001;
    while (span_ms / step > 12) {
        step *= span_ms / (step * 2) <= 12 ? 2 : span_ms / (step * 5) <= 12 ? 5 : 10;
    }
    for (double t = 0; t <= span_ms; t += step) {
        double x = LEFT + t * (double)GW_PLAN_TICKS_PER_US * 1e3 * scale;
        fprintf(out,
                "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#444444\"/>"
                "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                x, y, x, y + 5, x, y + 18, t);
    }
    fprintf(out, "<text x=\"4\" y=\"%.1f\">ms</text>\n", y + 18);
    double x = LEFT;
    for (int k = 0; k < 4; k++, x += 110) {
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.1f\" "
                "y=\"%.1f\">%s</text>\n",
                x, y + 28, kind_colors[k], x + 16, y + 38, kind_names[k]);
    }
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"url(#idle)\"/><text x=\"%.1f\" "
            "y=\"%.1f\">idle</text>\n",
            x, y + 28, x + 16, y + 38);
    x += 80;
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"none\" stroke=\"#b00020\"/><text "
            "x=\"%.1f\" y=\"%.1f\">critical path</text>\n</svg>\n",
            x, y + 28, x + 16, y + 38);
    return plan_output_close(&output, path, code);
}

/* Trace Event Format: complete events in microseconds, one thread a resource. */
static int write_chrome(const plan_result *result, const plan_case *c, const plan_model *model,
                        const char *path)
{
    gw_plan_span *spans = NULL;
    size_t count = 0;
    gw_plan_tick makespan = 0;
    int code = plan_run_timeline(result, c, c->level, &spans, &count, &makespan);
    if (code != GW_CLI_OK) {
        return code;
    }
    json_t *events = json_array();
    json_array_append_new(events, json_pack("{s:s,s:s,s:i,s:{s:s}}", "ph", "M", "name", "process_name", "pid",
                                            1, "args", "name", "gradwire plan (predicted)"));
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        json_array_append_new(events, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "ph", "M", "name", "thread_name",
                                                "pid", 1, "tid", r, "args", "name", resource_names[r]));
    }
    for (size_t i = 0; i < count; i++) {
        char name[256];
        const plan_result_group *group = &result->groups[spans[i].job];
        (void)snprintf(name, sizeof name, "%s %u", kind_names[spans[i].kind], spans[i].job);
        json_array_append_new(
            events, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:{s:s,s:s,s:i}}", "ph", "X", "cat",
                              kind_names[spans[i].kind], "name", name, "ts", plan_us(spans[i].start), "dur",
                              plan_us(spans[i].end - spans[i].start), "pid", 1, "tid", (int)spans[i].resource,
                              "args", "method", group->method, "first_tensor",
                              model->tensors[group->first].name, "tensors", (int)group->tensor_count));
    }
    free(spans);
    json_t *root = json_pack("{s:o,s:s}", "traceEvents", events, "displayTimeUnit", "ms");
    plan_output output;
    code = plan_output_open(&output);
    if (code == GW_CLI_OK) {
        if (json_dumpf(root, output.text, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0) {
            code = gw_cli_error(GW_CLI_IO, path, "memory is short");
        }
        code = plan_output_close(&output, path, code);
    }
    json_decref(root);
    return code;
}

int plan_chart_write(const plan_result *result, const plan_case *c, const plan_model *model, const char *svg,
                     const char *chrome)
{
    int code = GW_CLI_OK;
    if (svg != NULL) {
        plan_chart_row row = {result->algorithm, result};
        code = plan_chart_svg(&row, 1, c, svg);
    }
    if (code == GW_CLI_OK && chrome != NULL) {
        code = write_chrome(result, c, model, chrome);
    }
    return code;
}
