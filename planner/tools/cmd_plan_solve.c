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
#include "plan_file.h"
#include "plan_memory.h"

/* Solves --repeat times, or up to 11 times within 10 ms; the result has the median time. */
static void solve_repeatedly(const plan_request *a, const plan_opened *o, plan_result *result)
{
    const gw_plan_limits limits = plan_limits(&a->limits, 1000);
    const size_t repeat_max = a->repeat > 0 ? (size_t)a->repeat : 11;
    size_t solves = 0;
    double spent_us = 0;
    double *times = plan_alloc(repeat_max, sizeof *times);
    while (solves < repeat_max && (a->repeat > 0 || spent_us < 10000)) {
        plan_result_free(result);
        plan_run(o, a->algorithm, a->method, &limits, result);
        times[solves++] = result->solve_us;
        spent_us += result->solve_us;
    }
    result->solve_us = gw_cli_median(times, solves);
    result->solves = (uint32_t)solves;
    free(times);
}

static int print_result(const plan_result *result, const plan_opened *o)
{
    const plan_case *c = &o->c;
    printf("%s, case %s: %u tensors in %u groups\n", o->path, c->name, o->model.count, result->group_count);
    printf("iteration %.3f ms, lower bound %.3f ms, gap %.4f %%%s, solved in %.1f us (%s)\n",
           plan_us(result->cert.makespan) / 1e3, plan_us(result->cert.lower_bound) / 1e3,
           100 * plan_gap(&result->cert),
           !result->cert.proven ? ""
           : c->fuse            ? " (proven optimal for these groups)"
                                : " (proven optimal)",
           result->solve_us, result->algorithm);
    if (c->level != GW_PLAN_LEVEL_SERIAL) {
        const gw_plan_tick makespan = plan_run_timeline(result, c, c->level, NULL);
        printf("at the %s level: %.3f ms\n", plan_level_names[c->level], plan_us(makespan) / 1e3);
    }
    printf("%5s %7s %7s %12s  %s\n", "group", "first", "last", "elems", "method");
    for (uint32_t j = 0; j < result->group_count; j++) {
        const plan_result_group *group = &result->groups[j];
        const int64_t len = plan_model_len(&o->model, group->first, group->tensor_count);
        printf("%5u %7u %7u %12lld  %s\n", j, group->first, group->first + group->tensor_count - 1,
               (long long)len, group->method);
    }
    return GW_CLI_OK;
}

static int solve(const plan_request *a)
{
    static plan_opened o;
    plan_result result = {.group_count = 0};
    plan_opened_open(&a->of_case, a->common.input, &o);
    plan_case_for_algorithm(&o.c, a->algorithm); /* what its plan is one of and its bound holds for */
    solve_repeatedly(a, &o, &result);
    if (a->common.output != NULL) {
        plan_file_write(&result, &o, a->common.output);
    }
    plan_chart_write(&result, &o, a);
    const int code =
        a->common.json ? gw_cli_json_print(plan_file_json(&result, &o)) : print_result(&result, &o);
    plan_result_free(&result);
    plan_opened_close(&o);
    return code;
}

static const gw_option options[] = {
    PLAN_LEVEL_ROW,
    PLAN_METHOD_ROW,
    PLAN_ALGORITHM_ROW,
    PLAN_REPEAT_ROW("Solve N times and report the median time (default: up to 11 short solves)"),
    PLAN_JSON_ROW,
    GW_OUTPUT_ROW("FILE", "Write the plan to FILE"),
    PLAN_SVG_ROW("Draw the timeline"),
    PLAN_CHROME_ROW,
    {0},
};

const plan_verb plan_verb_solve = {
    .name = "solve",
    .summary = "the schedule with the shortest iteration, with proof",
    .run = solve,
    .input_min = 1,
    .input_max = 1,
    .takes = "one model",
    .line = {.usage = "MODEL or PLAN",
             .help = "Finds the schedule with the shortest iteration and proves how good it is.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
