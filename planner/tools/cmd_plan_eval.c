/*
 * plan eval: how long a given plan takes, at each level.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_chart.h"
#include "plan_commands.h"
#include "plan_file.h"

#define WHAT_EVAL_TAKES "a plan, a model and a plan, or a model and --bucket-mib"

typedef struct eval_args {
    plan_parser parser;
    plan_case_args case_args;
    const char *method, *svg, *chrome;
    double bucket_mib; /* negative: not given */
} eval_args;

static int parse(eval_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    a->bucket_mib = -1;
    plan_parser_open(&a->parser, "eval", "PLAN, or MODEL [PLAN]",
                     "Evaluates a plan file, or fixed buckets, at all levels.");
    plan_case_args_add(&a->parser, &a->case_args, 1);
    const plan_arg buckets[] = {
        {NULL, NULL, "Buckets", PLAN_ARG_FLAG, NULL, 0, 0},
        {"bucket-mib", "MIB", "Evaluate buckets of this size instead of a plan file", PLAN_ARG_NUMBER,
         &a->bucket_mib, 1e-6, 1e9},
        {"method", "NAME", "Codec of the buckets (default: the last)", PLAN_ARG_TEXT, &a->method, 0, 0},
    };
    plan_parser_add(&a->parser, buckets, 3);
    plan_parser_add_output(&a->parser, "Write the plan to FILE");
    plan_parser_add_timeline(&a->parser, &a->svg, &a->chrome);
    return plan_parser_run(&a->parser, argc, argv, &(const plan_parser_files){1, 2, WHAT_EVAL_TAKES});
}

static int make_buckets(const eval_args *a, const plan_opened *o, gw_plan *plan)
{
    *plan = (gw_plan){calloc((size_t)o->model.count + 1, sizeof *plan->groups), o->model.count, 0};
    if (plan->groups == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    }
    const int method =
        a->method != NULL ? plan_method_index(&o->setup, a->method) : (int)o->setup.problem.method_count - 1;
    const int64_t cap = (int64_t)llround(a->bucket_mib * (1 << 18));
    const gw_plan_bucket_rule rule = {(uint32_t)method, cap, cap, 0};
    if (method < 0 || gw_plan_bucket(&o->setup.problem, &rule, plan) != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case",
                            a->method != NULL ? a->method : "(none)");
    }
    return GW_CLI_OK;
}

/* The plan of the file or of the buckets as a result. */
static int load(const eval_args *a, plan_opened *o, plan_result *result, plan_claims *claims)
{
    const int from_file = a->parser.file_count == 2 || (o->is_plan && a->bucket_mib < 0);
    if (!from_file && a->bucket_mib < 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan eval takes " WHAT_EVAL_TAKES);
    }
    gw_plan plan = {NULL, 0, 0};
    int code = plan_opened_prepare(o);
    if (code == GW_CLI_OK && from_file) {
        code = plan_file_load(a->parser.files[a->parser.file_count - 1], o, &plan, claims);
    } else if (code == GW_CLI_OK) {
        code = o->c.kind == PLAN_TREE ? gw_cli_error(GW_CLI_USAGE, NULL, "option trees have no buckets")
                                      : make_buckets(a, o, &plan);
    }
    if (code == GW_CLI_OK) {
        code = o->c.kind == PLAN_TREE ? plan_result_from_choices(o, result)
                                      : plan_result_from_groups(o, &plan, result);
        (void)snprintf(result->algorithm, sizeof result->algorithm, "%s", from_file ? "file" : "bucket");
    }
    free(plan.groups);
    return code;
}

static int print_levels(const eval_args *a, const plan_opened *o, const plan_result *result,
                        double claimed_us)
{
    json_t *root = json_object();
    int code = GW_CLI_OK;
    for (int level = 0; level < 3 && code == GW_CLI_OK; level++) {
        gw_plan_tick makespan = 0;
        char key[32];
        code = plan_run_timeline(result, &o->c, (gw_plan_level)level, NULL, &makespan);
        (void)snprintf(key, sizeof key, "%s_us", plan_level_names[level]);
        json_object_set_new(root, key, json_real(plan_us(makespan)));
        if (!a->parser.json) {
            printf("%-10s %12.3f ms\n", plan_level_names[level], plan_us(makespan) / 1e3);
        }
    }
    json_object_set_new(root, "groups", json_integer((json_int_t)result->group_count));
    json_object_set_new(root, "claimed_us", gw_cli_json_real(claimed_us));
    if (a->parser.json && code == GW_CLI_OK) {
        return gw_cli_json_print(root);
    }
    json_decref(root);
    return code;
}

int plan_cmd_eval(int argc, char **argv)
{
    eval_args a;
    plan_opened o;
    plan_result result;
    plan_claims claims = PLAN_CLAIMS_NONE;
    memset(&result, 0, sizeof result);
    int code = parse(&a, argc, argv);
    if (code == GW_CLI_OK) {
        code = plan_opened_open(&a.case_args, a.parser.files[0], &o);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    code = load(&a, &o, &result, &claims);
    if (code == GW_CLI_OK) {
        code = print_levels(&a, &o, &result, claims.makespan_us);
    }
    if (code == GW_CLI_OK && a.parser.output != NULL) {
        code = plan_file_write(&result, &o, a.parser.output);
    }
    if (code == GW_CLI_OK) {
        code = plan_chart_write(&result, &o, a.svg, a.chrome);
    }
    plan_result_free(&result);
    plan_opened_close(&o);
    return code;
}
