/*
 * plan compare: the exact plan and the rules of frameworks and papers, at the serial level and the case's
 * level.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <string.h>

#include "cli_common.h"
#include "plan_chart.h"
#include "plan_json.h"

enum { CHART_LAYERWISE, CHART_DDP, CHART_OURS, CHART_ROWS };

/* One model: the first row is the exact plan, the others are measured against it. */
typedef struct comparison {
    const plan_request *args;
    plan_opened o;
    plan_result charted[CHART_ROWS];
    double best_ms, bound_ms;
} comparison;

static json_t *row_json(const comparison *x, const plan_result *r, double over, gw_plan_tick at_level)
{
    const double makespan_ms = plan_us(r->cert.makespan) / 1e3;
    const int first = strcmp(r->algorithm, "auto") == 0;
    json_t *row = json_pack("{s:s,s:s,s:f,s:f,s:f,s:o,s:b,s:f,s:i,s:b,s:f}", "model", x->o.path, "plan",
                            r->algorithm, "makespan_us", makespan_ms * 1e3, "lower_bound_us",
                            first ? x->bound_ms * 1e3 : plan_us(r->cert.lower_bound), "over_best_percent",
                            over, "gap", gw_cli_json_real(plan_gap(&r->cert)), "proven", r->cert.proven,
                            "solve_us", r->solve_us, "groups", (int)r->group_count, "stopped_by_limit",
                            r->cert.stopped, "judged_us", plan_us(at_level));
    if (first && x->o.c.fuse) { /* as in plan files; the other rows do not fuse */
        json_object_set_new(row, "bound_of", json_string("groups"));
    }
    return row;
}

static void print_row(const comparison *x, const plan_result *r, double over, gw_plan_tick at_level)
{
    printf("%-18s %12.3f %9.3f%% %8u %10.1f", r->algorithm, plan_us(r->cert.makespan) / 1e3, over,
           r->group_count, r->solve_us);
    if (x->o.c.level != GW_PLAN_LEVEL_SERIAL) {
        printf(" %12.3f", plan_us(at_level) / 1e3);
    }
    const int is_proven = r->cert.proven && strcmp(r->algorithm, "auto") == 0;
    printf("%s%s\n",
           !is_proven    ? ""
           : x->o.c.fuse ? "  proven optimal for these groups"
                         : "  proven optimal",
           r->cert.stopped ? "  (stopped by a limit)" : "");
}

/* Row of the chart that shows an algorithm, -1: none. */
static int chart_row(const plan_case *c, const char *algorithm)
{
    return strcmp(algorithm, "auto") == 0        ? CHART_OURS
           : c->kind == PLAN_TREE                ? -1
           : strcmp(algorithm, "layerwise") == 0 ? CHART_LAYERWISE
           : strcmp(algorithm, "ddp") == 0       ? CHART_DDP
                                                 : -1;
}

static void compare_algorithm(comparison *x, const char *algorithm, json_t *rows)
{
    plan_result result;
    const gw_plan_limits limits = plan_limits(&x->args->limits, 1000);
    plan_run(&x->o, algorithm, x->args->method, &limits, &result);
    const double ms = plan_us(result.cert.makespan) / 1e3;
    if (strcmp(algorithm, "auto") == 0) {
        x->best_ms = ms;
        x->bound_ms = plan_us(result.cert.lower_bound) / 1e3;
    }
    const double over = x->best_ms > 0 ? 100 * (ms / x->best_ms - 1) : 0;
    gw_plan_tick at_level = result.cert.makespan;
    if (x->o.c.level != GW_PLAN_LEVEL_SERIAL) {
        at_level = plan_run_timeline(&result, &x->o.c, x->o.c.level, NULL);
    }
    if (x->args->common.json) {
        json_array_append_new(rows, row_json(x, &result, over, at_level));
    } else {
        print_row(x, &result, over, at_level);
    }
    const int row = chart_row(&x->o.c, algorithm);
    if (x->args->svg != NULL && row >= 0) {
        x->charted[row] = result;
    } else {
        plan_result_free(&result);
    }
}

static void write_chart(const comparison *x)
{
    const plan_chart_row rows[CHART_ROWS] = {
        {"one message a tensor", &x->charted[CHART_LAYERWISE]},
        {"PyTorch DDP (1 MiB, then 25 MiB), float32", &x->charted[CHART_DDP]},
        {"gradwire plan", &x->charted[CHART_OURS]}};
    const int only_ours = x->o.c.kind == PLAN_TREE;
    plan_chart_svg(only_ours ? rows + CHART_OURS : rows, only_ours ? 1 : CHART_ROWS, &x->o.c, x->args->svg);
}

static void compare_model(const plan_request *a, const char *path, comparison *x, json_t *rows)
{
    static const char *const fused[] = {
        "auto",       "ddp",          "layerwise", "one-group",       "ddp-buckets",
        "horovod",    "bucket-sweep", "even",      "mgwfbp",          "mergecomp2",
        "mergecomp3", "mergecomp4",   "cupcake",   "cupcake-literal", NULL};
    static const char *const trees[] = {"auto", "bytecomp", NULL};
    memset(x, 0, sizeof *x);
    x->args = a;
    plan_opened_open(&a->of_case, path, &x->o);
    if (!a->common.json) {
        printf("%s, case %s, %u tensors\n%-18s %12s %10s %8s %10s%s\n", path, x->o.c.name, x->o.model.count,
               "plan", "ms", "over best", "groups", "solve us",
               x->o.c.level == GW_PLAN_LEVEL_SERIAL ? "" : "  at level ms");
    }
    const char *const *algorithms = x->o.c.kind == PLAN_TREE ? trees : fused;
    for (int i = 0; algorithms[i] != NULL; i++) {
        compare_algorithm(x, algorithms[i], rows);
    }
    if (a->svg != NULL) {
        write_chart(x);
    }
    for (int row = 0; row < CHART_ROWS; row++) {
        plan_result_free(&x->charted[row]);
    }
    if (!a->common.json) {
        printf("lower bound %.3f ms%s\n\n", x->bound_ms, x->o.c.fuse ? " for these groups" : "");
    }
}

static int compare(const plan_request *a)
{
    static comparison x;
    char case_name[PLAN_LABEL_SIZE] = "";
    json_t *rows = json_array();
    for (int i = 0; i < a->common.input_count; i++) {
        compare_model(a, a->common.inputs[i], &x, rows);
        memcpy(case_name, x.o.c.name, sizeof case_name);
        plan_opened_close(&x.o);
    }
    return plan_json_end(json_pack("{s:s,s:o}", "case", case_name, "rows", rows), a->common.json);
}

static const gw_option options[] = {
    PLAN_LEVEL_ROW, PLAN_METHOD_ROW, PLAN_JSON_ROW, PLAN_SVG_ROW("Draw the timelines of three plans"), {0},
};

const plan_verb plan_verb_compare = {
    .name = "compare",
    .summary = "the exact plan and the rules of frameworks and papers",
    .run = compare,
    .input_min = 1,
    .takes = "one or more models",
    .line = {.usage = "MODEL...",
             .help = "Compares the exact plan with the rules of frameworks and papers.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
