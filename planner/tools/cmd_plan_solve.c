/*
 * plan solve: the schedule with the shortest iteration.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_chart.h"
#include "plan_commands.h"
#include "plan_file.h"

typedef struct solve_args {
    plan_parser parser;
    plan_case_args case_args;
    plan_limit_args limit_args;
    plan_baseline_args baseline;
    const char *svg, *chrome;
    int64_t repeat; /* 0: not given */
} solve_args;

static int parse(solve_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    plan_parser_open(&a->parser, "solve", "MODEL or PLAN",
                     "Finds the schedule with the shortest iteration and proves how good it is.");
    plan_case_args_add(&a->parser, &a->case_args, 1);
    plan_limit_args_add(&a->parser, &a->limit_args);
    const plan_arg title = {NULL, NULL, "Solving", PLAN_ARG_FLAG, NULL, 0, 0};
    plan_parser_add(&a->parser, &title, 1);
    plan_baseline_args_add(&a->parser, &a->baseline, 1);
    const plan_arg repeat = {"repeat",
                             "N",
                             "Solve N times and report the median time (default: up to 11 short solves)",
                             PLAN_ARG_WHOLE,
                             &a->repeat,
                             1,
                             1000000};
    plan_parser_add(&a->parser, &repeat, 1);
    plan_parser_add_output(&a->parser, "Write the plan to FILE");
    plan_parser_add_timeline(&a->parser, &a->svg, &a->chrome);
    return plan_parser_run(&a->parser, argc, argv, &(const plan_parser_files){1, 1, "one model"});
}

/* Solves --repeat times, or up to 11 times within 10 ms; the result has the median time. */
static int solve(const solve_args *a, const plan_opened *o, plan_result *result)
{
    const gw_plan_limits limits = plan_limits(&a->limit_args, 1000);
    const size_t repeat_max = a->repeat > 0 ? (size_t)a->repeat : 11;
    size_t solves = 0;
    double spent_us = 0;
    double *times = calloc(repeat_max, sizeof *times);
    int code = times != NULL ? GW_CLI_OK : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    while (code == GW_CLI_OK && solves < repeat_max && (a->repeat > 0 || spent_us < 10000)) {
        plan_result_free(result);
        code = plan_run(o, a->baseline.algorithm, a->baseline.method, &limits, result);
        times[solves++] = result->solve_us;
        spent_us += result->solve_us;
    }
    if (code == GW_CLI_OK) {
        result->solve_us = gw_cli_median(times, solves);
        result->solves = (uint32_t)solves;
    }
    free(times);
    return code;
}

static int print_result(const plan_result *result, const plan_opened *o)
{
    const plan_case *c = &o->c;
    int code = GW_CLI_OK;
    printf("%s, case %s: %u tensors in %u groups\n", o->path, c->name, o->model.count, result->group_count);
    printf("iteration %.3f ms, lower bound %.3f ms, gap %.4f %%%s, solved in %.1f us (%s)\n",
           plan_us(result->cert.makespan) / 1e3, plan_us(result->cert.lower_bound) / 1e3,
           100 * plan_gap(&result->cert), result->cert.proven ? " (proven optimal)" : "", result->solve_us,
           result->algorithm);
    if (c->level != GW_PLAN_LEVEL_SERIAL) {
        gw_plan_tick makespan = 0;
        code = plan_run_timeline(result, c, c->level, NULL, &makespan);
        printf("at the %s level: %.3f ms\n", plan_level_names[c->level], plan_us(makespan) / 1e3);
    }
    printf("%5s %7s %7s %12s  %s\n", "group", "first", "last", "elems", "method");
    for (uint32_t j = 0; j < result->group_count; j++) {
        const plan_result_group *group = &result->groups[j];
        const uint32_t end = group->first + group->tensor_count;
        int64_t len = 0;
        for (uint32_t i = group->first; i < end; i++) {
            len += o->model.tensors[i].len;
        }
        printf("%5u %7u %7u %12lld  %s\n", j, group->first, end - 1, (long long)len, group->method);
    }
    return code;
}

int plan_cmd_solve(int argc, char **argv)
{
    solve_args a;
    plan_opened o;
    plan_result result;
    memset(&result, 0, sizeof result);
    int code = parse(&a, argc, argv);
    if (code == GW_CLI_OK) {
        code = plan_opened_open(&a.case_args, a.parser.files[0], &o);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    if (a.baseline.algorithm != NULL && strcmp(a.baseline.algorithm, "ddp") == 0) {
        plan_case_fp32(&o.c); /* what its plan is one of and its bound holds for */
    }
    code = solve(&a, &o, &result);
    if (code == GW_CLI_OK && a.parser.output != NULL) {
        code = plan_file_write(&result, &o, a.parser.output);
    }
    if (code == GW_CLI_OK) {
        code = plan_chart_write(&result, &o, a.svg, a.chrome);
    }
    if (code == GW_CLI_OK) {
        code = a.parser.json ? gw_cli_json_print(plan_file_json(&result, &o)) : print_result(&result, &o);
    }
    plan_result_free(&result);
    plan_opened_close(&o);
    return code;
}
