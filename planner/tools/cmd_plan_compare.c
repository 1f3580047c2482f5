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
#include "plan_commands.h"

typedef struct compare_args {
    plan_parser parser;
    plan_case_args case_args;
    plan_limit_args limit_args;
    plan_baseline_args baseline;
    const char *svg;
} compare_args;

static int parse(compare_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    plan_parser_open(&a->parser, "compare", "MODEL...",
                     "Compares the exact plan with the rules of frameworks and papers.");
    plan_case_args_add(&a->parser, &a->case_args, 1);
    plan_limit_args_add(&a->parser, &a->limit_args);
    plan_parser_add_output(&a->parser, NULL);
    plan_baseline_args_add(&a->parser, &a->baseline, 0);
    const plan_arg svg = {"svg", "FILE", "Draw the timelines of three plans", PLAN_ARG_OUTPUT, &a->svg, 0, 0};
    plan_parser_add(&a->parser, &svg, 1);
    return plan_parser_run(&a->parser, argc, argv,
                           &(const plan_parser_files){1, PLAN_FILES_MAX, "one or more models"});
}

enum { CHART_LAYERWISE, CHART_DDP, CHART_OURS, CHART_ROWS };

/* One model: the first row is the exact plan, the others are measured against it. */
typedef struct comparison {
    const compare_args *args;
    plan_opened o;
    plan_result charted[CHART_ROWS];
    double best_ms, bound_ms;
} comparison;

static json_t *row_json(const comparison *x, const plan_result *r, double over, gw_plan_tick at_level)
{
    const double makespan_ms = plan_us(r->cert.makespan) / 1e3;
    const int first = strcmp(r->algorithm, "auto") == 0;
    return json_pack("{s:s,s:s,s:f,s:f,s:f,s:o,s:b,s:f,s:i,s:b,s:f}", "model", x->o.path, "plan",
                     r->algorithm, "makespan_us", makespan_ms * 1e3, "lower_bound_us",
                     first ? x->bound_ms * 1e3 : plan_us(r->cert.lower_bound), "over_best_percent", over,
                     "gap", gw_cli_json_real(plan_gap(&r->cert)), "proven", r->cert.proven, "solve_us",
                     r->solve_us, "groups", (int)r->group_count, "stopped_by_limit", r->cert.stopped,
                     "judged_us", plan_us(at_level));
}

static void print_row(const comparison *x, const plan_result *r, double over, gw_plan_tick at_level)
{
    printf("%-18s %12.3f %9.3f%% %8u %10.1f", r->algorithm, plan_us(r->cert.makespan) / 1e3, over,
           r->group_count, r->solve_us);
    if (x->o.c.level != GW_PLAN_LEVEL_SERIAL) {
        printf(" %12.3f", plan_us(at_level) / 1e3);
    }
    printf("%s%s\n", r->cert.proven && strcmp(r->algorithm, "auto") == 0 ? "  proven optimal" : "",
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

static int compare_algorithm(comparison *x, const char *algorithm, json_t *rows)
{
    plan_result result;
    const gw_plan_limits limits = plan_limits(&x->args->limit_args, 1000);
    int code = plan_run(&x->o, algorithm, x->args->baseline.method, &limits, &result);
    if (code != GW_CLI_OK) {
        return code;
    }
    const double ms = plan_us(result.cert.makespan) / 1e3;
    if (strcmp(algorithm, "auto") == 0) {
        x->best_ms = ms;
        x->bound_ms = plan_us(result.cert.lower_bound) / 1e3;
    }
    const double over = x->best_ms > 0 ? 100 * (ms / x->best_ms - 1) : 0;
    gw_plan_tick at_level = result.cert.makespan;
    if (x->o.c.level != GW_PLAN_LEVEL_SERIAL) {
        code = plan_run_timeline(&result, &x->o.c, x->o.c.level, NULL, &at_level);
    }
    if (x->args->parser.json) {
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
    return code;
}

static int write_chart(const comparison *x)
{
    const plan_chart_row rows[CHART_ROWS] = {
        {"one message a tensor", &x->charted[CHART_LAYERWISE]},
        {"PyTorch DDP (1 MiB, then 25 MiB), float32", &x->charted[CHART_DDP]},
        {"gradwire plan", &x->charted[CHART_OURS]}};
    const int only_ours = x->o.c.kind == PLAN_TREE;
    return plan_chart_svg(only_ours ? rows + CHART_OURS : rows, only_ours ? 1 : CHART_ROWS, &x->o.c,
                          x->args->svg);
}

static int compare_model(const compare_args *a, const char *path, comparison *x, json_t *rows)
{
    static const char *const fused[] = {
        "auto",       "ddp",          "layerwise", "one-group",       "ddp-buckets",
        "horovod",    "bucket-sweep", "even",      "mgwfbp",          "mergecomp2",
        "mergecomp3", "mergecomp4",   "cupcake",   "cupcake-literal", NULL};
    static const char *const trees[] = {"auto", "bytecomp", NULL};
    memset(x, 0, sizeof *x);
    x->args = a;
    int code = plan_opened_open(&a->case_args, path, &x->o);
    if (code != GW_CLI_OK) {
        return code;
    }
    if (!a->parser.json) {
        printf("%s, case %s, %u tensors\n%-18s %12s %10s %8s %10s%s\n", path, x->o.c.name, x->o.model.count,
               "plan", "ms", "over best", "groups", "solve us",
               x->o.c.level == GW_PLAN_LEVEL_SERIAL ? "" : "  at level ms");
    }
    const char *const *algorithms = x->o.c.kind == PLAN_TREE ? trees : fused;
    for (int i = 0; algorithms[i] != NULL && code == GW_CLI_OK; i++) {
        code = compare_algorithm(x, algorithms[i], rows);
    }
    if (a->svg != NULL && code == GW_CLI_OK) {
        code = write_chart(x);
    }
    for (int row = 0; row < CHART_ROWS; row++) {
        plan_result_free(&x->charted[row]);
    }
    if (!a->parser.json && code == GW_CLI_OK) {
        printf("lower bound %.3f ms\n\n", x->bound_ms);
    }
    return code;
}

int plan_cmd_compare(int argc, char **argv)
{
    compare_args a;
    comparison x;
    char case_name[PLAN_LABEL_SIZE] = "";
    int code = parse(&a, argc, argv);
    if (code != GW_CLI_OK) {
        return code;
    }
    json_t *rows = json_array();
    for (int i = 0; i < a.parser.file_count && code == GW_CLI_OK; i++) {
        code = compare_model(&a, a.parser.files[i], &x, rows);
        memcpy(case_name, x.o.c.name, sizeof case_name);
        plan_opened_close(&x.o);
    }
    if (a.parser.json && code == GW_CLI_OK) {
        code = gw_cli_json_print(json_pack("{s:s,s:O}", "case", case_name, "rows", rows));
    }
    json_decref(rows);
    return code;
}
