/*
 * plan fit: cost curves from measurements.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli_common.h"
#include "plan_json.h"
#include "plan_memory.h"
#include "plan_model.h"
#include "plan_points.h"

static const char *const form_names[] = {"affine", "maxlin", "hinge", "table", "best", NULL};

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

/* Fits the three forms and reports them; returns the one with the smallest error. */
static int fit_forms(const plan_request *a, const plan_points *p, gw_plan_fit fits[3], json_t *report)
{
    int best = 0;
    for (int i = 0; i < 3; i++) {
        gw_status status = gw_plan_cost_fit(p->items, p->count, (gw_plan_cost_kind)i, &fits[i]);
        if (status != GW_OK) {
            gw_cli_fail(GW_CLI_BAD_DATA, a->common.input, "fit: %s",
                        status == GW_ERR_ARG ? "all points have the same size" : gw_status_message(status));
        }
        best = fits[i].error_max < fits[best].error_max ? i : best;
        json_t *curve = plan_curve_json(&fits[i].cost);
        gw_cli_json_number(curve, "error_max", fits[i].error_max);
        gw_cli_json_number(curve, "error_mean", fits[i].error_mean);
        gw_cli_json_number(curve, "r2", fits[i].r2);
        json_object_set_new(report, plan_curve_kinds[i], curve);
        if (!a->common.json) {
            print_fit(i, &fits[i]);
        }
    }
    return best;
}

/* The points as a table. */
static json_t *table_json(const plan_points *p)
{
    int64_t *x = plan_alloc(p->count, sizeof *x);
    gw_plan_tick *y = plan_alloc(p->count, sizeof *y);
    for (size_t i = 0; i < p->count; i++) {
        x[i] = p->items[i].len;
        y[i] = p->items[i].ticks;
    }
    const gw_plan_cost cost = {GW_PLAN_COST_TABLE, 0, 0, 0, (uint32_t)p->count, x, y};
    json_t *curve = plan_curve_json(&cost);
    free(x);
    free(y);
    return curve;
}

/* Releases curve and fits. */
static int report_choice(const plan_request *a, const plan_points *p, int pick, double error, json_t *curve,
                         json_t *fits)
{
    const int warning = error > GW_PLAN_FIT_ERROR_WARN;
    if (warning) {
        gw_cli_note("warning: %s: the %s curve is off by up to %.1f %% (more than 10 %%); plans made "
                    "with it may not be "
                    "the best. Use --form table or measure again.",
                    a->common.input, plan_curve_kinds[pick], 100 * error);
    }
    if (!a->common.json) {
        printf("chosen: %s, error %.2f %% over %zu points\n", plan_curve_kinds[pick], 100 * error, p->count);
    }
    const int code = plan_json_end(json_pack("{s:i,s:o,s:O,s:f,s:b}", "points", (int)p->count, "fits", fits,
                                             "curve", curve, "error_max", error, "warning", warning),
                                   a->common.json);
    if (code == GW_CLI_OK && a->common.output != NULL) {
        plan_json_write(json_incref(curve), a->common.output, PLAN_JSON_INDENTED);
    }
    json_decref(curve);
    return code;
}

static int fit(const plan_request *a)
{
    plan_points p = {NULL, 0};
    gw_plan_fit fits[3];
    for (int i = 0; i < a->common.input_count; i++) {
        plan_points_read(a->common.inputs[i], a, &p);
    }
    if (p.count < 2) {
        gw_cli_fail(GW_CLI_BAD_DATA, a->common.input, "%zu usable points; a fit needs at least 2", p.count);
    }
    json_t *report = json_object();
    const int best = fit_forms(a, &p, fits, report);
    const int pick = a->form <= GW_PLAN_COST_TABLE ? a->form : best;
    const double error = pick == GW_PLAN_COST_TABLE ? plan_points_table(&p) : fits[pick].error_max;
    json_t *curve = pick == GW_PLAN_COST_TABLE ? table_json(&p) : plan_curve_json(&fits[pick].cost);
    const int code = report_choice(a, &p, pick, error, curve, report);
    free(p.items);
    return code;
}

static const gw_option options[] = {
    {"form", "best|affine|maxlin|hinge|table", "Form of the curve", GW_CHOICE(plan_request, form, form_names),
     .wanted = "one of best, affine, maxlin, hinge, table"},
    {"filter", "TEXT", "Only benchmarks whose name contains TEXT; A,B,!C: A and B but not C",
     GW_TEXT(plan_request, filter)},
    PLAN_PARAMS_ROW("BytePS: names and sizes in backprop order"),
    PLAN_MAX_SIZE_ROW,
    PLAN_JSON_ROW,
    GW_OUTPUT_ROW("FILE", "Write the curve to FILE"),
    {0},
};

const plan_verb plan_verb_fit = {
    .name = "fit",
    .summary = "cost curves from measurements",
    .run = fit,
    .input_min = 1,
    .takes = "one or more files",
    .line = {.usage = "FILE...",
             .help = "Fits cost curves to measurements: CSV elems,us; nccl-tests output; benchmark JSON.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options}},
};
