/*
 * plan fit: cost curves from measurements.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_args.h"
#include "plan_commands.h"
#include "plan_json.h"
#include "plan_model.h"
#include "plan_points.h"
#include "text_source.h"

typedef struct fit_args {
    plan_parser parser;
    plan_points_args points_args;
    const char *form_name;
    int form; /* gw_plan_cost_kind, -1: the best of the first three */
} fit_args;

static int parse(fit_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    plan_parser_open(&a->parser, "fit", "FILE...",
                     "Fits cost curves to measurements: CSV elems,us; nccl-tests output; benchmark JSON.");
    const plan_arg list[] = {
        {"form", "best|affine|maxlin|hinge|table", "Form of the curve", PLAN_ARG_TEXT, &a->form_name, 0, 0},
        {"filter", "TEXT", "Only benchmarks whose name contains TEXT; A,B,!C: A and B but not C",
         PLAN_ARG_TEXT, &a->points_args.filter, 0, 0},
        {"params", "CSV", "BytePS: names and sizes in backprop order", PLAN_ARG_INPUT, &a->points_args.params,
         0, 0},
        {"max-size", "SIZE", "Largest text that a gzip recording may expand to, with K, M, G (default 1G)",
         PLAN_ARG_SIZE, &a->points_args.max_size, 0, 0},
    };
    a->points_args.max_size = TEXT_SOURCE_SIZE_MAX;
    plan_parser_add(&a->parser, list, 4);
    plan_parser_add_output(&a->parser, "Write the curve to FILE");
    int code = plan_parser_run(&a->parser, argc, argv,
                               &(const plan_parser_files){1, PLAN_FILES_MAX, "one or more files"});
    a->form = plan_name_index(plan_curve_kinds, a->form_name);
    return code == GW_CLI_OK && a->form_name != NULL && a->form < 0 && strcmp(a->form_name, "best") != 0
               ? gw_cli_error(GW_CLI_USAGE, NULL, "--form is one of best, affine, maxlin, hinge, table")
               : code;
}

static void print_fit(int form, const gw_plan_fit *fit)
{
    printf("%-7s a %12.3f us  b %14.9f us/element", plan_curve_kinds[form], plan_us(fit->cost.a),
           plan_us(fit->cost.b));
    if (form == GW_PLAN_COST_HINGE) {
        printf("  t %lld", (long long)fit->cost.t);
    }
    printf("  error max %.2f %%, mean %.2f %%, R2 %.6f\n", 100 * fit->error_max, 100 * fit->error_mean,
           fit->r2);
}

/* Fits the three forms and reports them; *best is the one with the smallest error. */
static int fit_forms(const fit_args *a, const plan_points *p, gw_plan_fit fits[3], int *best, json_t *report)
{
    *best = 0;
    for (int i = 0; i < 3; i++) {
        gw_status status = gw_plan_cost_fit(p->items, p->count, (gw_plan_cost_kind)i, &fits[i]);
        if (status != GW_OK) {
            return gw_cli_error(GW_CLI_BAD_DATA, a->parser.files[0], "fit: %s",
                                status == GW_ERR_ARG ? "all points have the same size"
                                                     : gw_status_message(status));
        }
        *best = fits[i].error_max < fits[*best].error_max ? i : *best;
        json_t *curve = plan_curve_json(&fits[i].cost);
        json_object_set_new(curve, "error_max", json_real(fits[i].error_max));
        json_object_set_new(curve, "error_mean", json_real(fits[i].error_mean));
        json_object_set_new(curve, "r2", json_real(fits[i].r2));
        json_object_set_new(report, plan_curve_kinds[i], curve);
        if (!a->parser.json) {
            print_fit(i, &fits[i]);
        }
    }
    return GW_CLI_OK;
}

/* The points as a table; NULL when out of memory. */
static json_t *table_json(const plan_points *p)
{
    int64_t *x = calloc(p->count, sizeof *x);
    gw_plan_tick *y = calloc(p->count, sizeof *y);
    json_t *curve = NULL;
    for (size_t i = 0; x != NULL && y != NULL && i < p->count; i++) {
        x[i] = p->items[i].len;
        y[i] = p->items[i].ticks;
    }
    if (x != NULL && y != NULL) {
        const gw_plan_cost cost = {GW_PLAN_COST_TABLE, 0, 0, 0, (uint32_t)p->count, x, y};
        curve = plan_curve_json(&cost);
    }
    free(x);
    free(y);
    return curve;
}

static int report_choice(const fit_args *a, const plan_points *p, int pick, double error, json_t *curve,
                         json_t *fits)
{
    const int warning = error > GW_PLAN_FIT_ERROR_WARN;
    int code = GW_CLI_OK;
    if (warning) {
        gw_cli_note("warning: %s: the %s curve is off by up to %.1f %% (more than 10 %%); plans made "
                    "with it may not be "
                    "the best. Use --form table or measure again.",
                    a->parser.files[0], plan_curve_kinds[pick], 100 * error);
    }
    if (!a->parser.json) {
        printf("chosen: %s, error %.2f %% over %zu points\n", plan_curve_kinds[pick], 100 * error, p->count);
    } else {
        code = gw_cli_json_print(json_pack("{s:i,s:O,s:O,s:f,s:b}", "points", (int)p->count, "fits", fits,
                                           "curve", curve, "error_max", error, "warning", warning));
    }
    if (code == GW_CLI_OK && a->parser.output != NULL) {
        code = plan_json_write(json_incref(curve), a->parser.output);
    }
    return code;
}

int plan_cmd_fit(int argc, char **argv)
{
    fit_args a;
    plan_points p = {NULL, 0};
    gw_plan_fit fits[3];
    int best = 0;
    int code = parse(&a, argc, argv);
    for (int i = 0; i < a.parser.file_count && code == GW_CLI_OK; i++) {
        code = plan_points_read(a.parser.files[i], &a.points_args, &p);
    }
    if (code == GW_CLI_OK && p.count < 2) {
        code = gw_cli_error(GW_CLI_BAD_DATA, a.parser.files[0], "%zu usable points; a fit needs at least 2",
                            p.count);
    }
    json_t *report = json_object();
    if (code == GW_CLI_OK) {
        code = fit_forms(&a, &p, fits, &best, report);
    }
    if (code == GW_CLI_OK) {
        const int pick = a.form >= 0 ? a.form : best;
        const double error = pick == GW_PLAN_COST_TABLE ? plan_points_table(&p) : fits[pick].error_max;
        json_t *curve = pick == GW_PLAN_COST_TABLE ? table_json(&p) : plan_curve_json(&fits[pick].cost);
        code = curve != NULL ? report_choice(&a, &p, pick, error, curve, report)
                             : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
        json_decref(curve);
    }
    json_decref(report);
    free(p.items);
    return code;
}
