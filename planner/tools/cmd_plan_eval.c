/*
 * plan eval: how long a given plan takes, at each level.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli_common.h"
#include "plan_chart.h"
#include "plan_file.h"
#include "plan_json.h"
#include "plan_memory.h"

#define WHAT_EVAL_TAKES "a plan, a model and a plan, or a model and --bucket-mib"

/* The buckets of --bucket-mib; plan->groups is malloc'ed. */
static void make_buckets(const plan_request *a, const plan_opened *o, gw_plan *plan)
{
    *plan = (gw_plan){plan_alloc(o->model.count, sizeof *plan->groups), o->model.count, 0};
    const int64_t cap = (int64_t)llround(a->bucket_mib * (1 << 18));
    const gw_plan_bucket_rule rule = {plan_method_find(&o->setup, a->method), cap, cap, 0};
    const gw_status status = gw_plan_bucket(&o->setup.problem, &rule, plan);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--bucket-mib: %s", gw_status_message(status));
    }
}

/* The plan of the file or of the buckets as a result. */
static void load(const plan_request *a, plan_opened *o, plan_result *result, plan_claims *claims)
{
    const int from_file = a->common.input_count == 2 || (o->is_plan && a->bucket_mib < 0);
    if (!from_file && a->bucket_mib < 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "plan eval takes " WHAT_EVAL_TAKES);
    }
    gw_plan plan = {NULL, 0, 0};
    gw_cli_must(plan_opened_prepare(o));
    if (from_file) {
        plan_file_load(a->common.inputs[a->common.input_count - 1], o, &plan, claims);
    } else if (o->c.kind == PLAN_TREE) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "option trees have no buckets");
    } else {
        make_buckets(a, o, &plan);
    }
    plan_result_make(o, &plan, result);
    (void)snprintf(result->algorithm, sizeof result->algorithm, "%s", from_file ? "file" : "bucket");
    free(plan.groups);
}

static int print_levels(const plan_request *a, const plan_opened *o, const plan_result *result,
                        double claimed_us)
{
    json_t *root = json_object();
    for (int level = 0; level < 3; level++) {
        char key[32];
        const double us = plan_us(plan_run_timeline(result, &o->c, (gw_plan_level)level, NULL));
        (void)snprintf(key, sizeof key, "%s_us", plan_level_names[level]);
        gw_cli_json_number(root, key, us);
        if (!a->common.json) {
            printf("%-10s %12.3f ms\n", plan_level_names[level], us / 1e3);
        }
    }
    gw_cli_json_count(root, "groups", result->group_count);
    gw_cli_json_number(root, "claimed_us", claimed_us);
    return plan_json_end(root, a->common.json);
}

static int eval(const plan_request *a)
{
    static plan_opened o;
    plan_result result;
    plan_claims claims = PLAN_CLAIMS_NONE;
    plan_opened_open(&a->of_case, a->common.input, &o);
    load(a, &o, &result, &claims);
    const int code = print_levels(a, &o, &result, claims.makespan_us);
    if (a->common.output != NULL) {
        plan_file_write(&result, &o, a->common.output);
    }
    plan_chart_write(&result, &o, a);
    plan_result_free(&result);
    plan_opened_close(&o);
    return code;
}

static const gw_option options[] = {
    PLAN_LEVEL_ROW,
    {"bucket-mib", "MIB", "Evaluate buckets of this size instead of a plan file",
     GW_REAL(plan_request, bucket_mib, 1e-6, 1e9)},
    {"method", "NAME", "Codec of the buckets (default: the last)", GW_TEXT(plan_request, method)},
    PLAN_JSON_ROW,
    GW_OUTPUT_ROW("FILE", "Write the plan to FILE"),
    PLAN_SVG_ROW("Draw the timeline"),
    PLAN_CHROME_ROW,
    {0},
};

const plan_verb plan_verb_eval = {
    .name = "eval",
    .summary = "evaluate a plan file or fixed buckets",
    .run = eval,
    .input_min = 1,
    .input_max = 2,
    .takes = WHAT_EVAL_TAKES,
    .line = {.usage = "PLAN, or MODEL [PLAN]",
             .help = "Evaluates a plan file, or fixed buckets, at all levels.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP}},
};
