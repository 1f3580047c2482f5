/*
 * Running solvers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_workspace.h"

double plan_gap(const gw_plan_cert *cert)
{
    if (cert->makespan == cert->lower_bound) {
        return 0;
    }
    return cert->lower_bound > 0 ? (double)(cert->makespan - cert->lower_bound) / (double)cert->lower_bound
                                 : INFINITY;
}

void plan_result_free(plan_result *result)
{
    free(result->groups);
    free(result->fused);
    free(result->jobs);
    memset(result, 0, sizeof *result);
}

static int allocate(plan_result *result, uint32_t count)
{
    result->groups = calloc((size_t)count + 1, sizeof *result->groups);
    result->fused = calloc((size_t)count + 1, sizeof *result->fused);
    result->jobs = calloc((size_t)count + 1, sizeof *result->jobs);
    return result->groups != NULL && result->fused != NULL && result->jobs != NULL
               ? GW_CLI_OK
               : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
}

static int plan_error(gw_status status)
{
    return gw_cli_error(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_status_message(status));
}

/* A schedule without any time has no shortest one. */
static int check_makespan(const plan_opened *o, gw_plan_tick makespan)
{
    return makespan > 0
               ? GW_CLI_OK
               : gw_cli_error(GW_CLI_BAD_DATA, o->path,
                              "the iteration takes no time: backprop, network and codecs cost nothing");
}

/* Groups and jobs of result->fused. */
static int fill_fused(const plan_setup *setup, plan_result *result)
{
    gw_plan plan = {result->fused, result->group_count, result->group_count};
    gw_status status = gw_plan_jobs(&setup->problem, &plan, result->jobs, result->group_count);
    if (status != GW_OK) {
        return plan_error(status);
    }
    double error = 0;
    double len = 0;
    for (uint32_t j = 0; j < result->group_count; j++) {
        const gw_plan_group *from = &result->fused[j];
        const gw_plan_method *method = &setup->methods[from->method];
        plan_result_group *to = &result->groups[j];
        to->first = from->first;
        to->tensor_count = from->tensor_count;
        to->algorithm = setup->algorithms[from->method];
        to->on_cpu = method->device == GW_PLAN_CPU;
        (void)snprintf(to->method, sizeof to->method, "%s", setup->labels[from->method]);
        (void)snprintf(to->codec, sizeof to->codec, "%s", method->name);
        for (uint32_t i = from->first; i < from->first + from->tensor_count; i++) {
            error += (double)method->error * PLAN_ERROR_UNIT * (double)setup->tensors[i].len;
            len += (double)setup->tensors[i].len;
        }
    }
    result->error_mean = len > 0 ? error / len : 0;
    return GW_CLI_OK;
}

int plan_result_from_groups(const plan_opened *o, const gw_plan *plan, plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = allocate(result, plan->group_count);
    if (code == GW_CLI_OK) {
        memcpy(result->fused, plan->groups, plan->group_count * sizeof *plan->groups);
        result->group_count = plan->group_count;
        gw_status status = gw_plan_eval(&o->setup.problem, plan, &result->cert.makespan);
        code = status == GW_OK ? check_makespan(o, result->cert.makespan) : plan_error(status);
        code = code == GW_CLI_OK ? fill_fused(&o->setup, result) : code;
    }
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    }
    return code;
}

static gw_plan_algorithm find_algorithm(const char *name)
{
    int a = 0;
    while (a < GW_PLAN_ALGORITHM_COUNT && strcmp(gw_plan_algorithm_name((gw_plan_algorithm)a), name) != 0) {
        a++;
    }
    return (gw_plan_algorithm)a;
}

static int run_fused(const plan_setup *setup, const char *model_path, const gw_plan_solver *solver,
                     plan_result *result)
{
    const uint32_t count = setup->problem.tensor_count;
    const gw_workspace workspace = plan_workspace(gw_plan_workspace_size(&setup->problem, solver->algorithm));
    int code =
        workspace.data != NULL ? allocate(result, count) : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan plan = {result->fused, count, 0};
    gw_status status = gw_plan_solve(&setup->problem, solver, &plan, &result->cert, &workspace);
    result->group_count = plan.group_count;
    if (status == GW_ERR_OPTION || status == GW_ERR_LIMIT) {
        return gw_cli_error(GW_CLI_USAGE, model_path, "%s: %s", gw_plan_algorithm_name(solver->algorithm),
                            status == GW_ERR_LIMIT ? "the search space is too large for this algorithm"
                                                   : "this algorithm does not cover the problem");
    }
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, model_path, "%s: %s", gw_plan_algorithm_name(solver->algorithm),
                            gw_status_message(status));
    }
    return GW_CLI_OK;
}

static int solve_fused(const plan_opened *o, const char *algorithm, const char *method,
                       const gw_plan_limits *limits, plan_result *result)
{
    plan_setup setup;
    const double start = gw_cli_seconds();
    int code = plan_setup_make(&o->library, &o->c, &o->model, o->path, &setup);
    if (code != GW_CLI_OK) {
        return code;
    }
    const int index =
        method != NULL ? plan_method_index(&setup, method) : (int)setup.problem.method_count - 1;
    const gw_plan_solver solver = {find_algorithm(algorithm), (uint32_t)index, *limits};
    if (solver.algorithm == GW_PLAN_ALGORITHM_COUNT) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "no algorithm \"%.40s\"", algorithm);
    } else if (index < 0) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case", method);
    } else {
        code = run_fused(&setup, o->path, &solver, result);
        result->solve_us = (gw_cli_seconds() - start) * 1e6;
    }
    if (code == GW_CLI_OK) {
        code = fill_fused(&setup, result);
    }
    plan_setup_free(&setup);
    return code;
}

/* Groups and jobs of t->choice. */
static int fill_tree(const plan_opened *o, const plan_tree *t, plan_result *result)
{
    int code = GW_CLI_OK;
    for (uint32_t i = 0; i < o->model.count && code == GW_CLI_OK; i++) {
        result->groups[i].first = i;
        result->groups[i].tensor_count = 1;
        plan_tree_path(t, i, t->choice[i], result->groups[i].method, PLAN_PATH_SIZE);
        code = plan_tree_job(t, &o->c, &o->model, i, t->choice[i], &result->jobs[i]);
    }
    result->group_count = o->model.count;
    (void)snprintf(result->tree_codec, sizeof result->tree_codec, "%s",
                   t->codec.name != NULL ? t->codec.name : "");
    return code;
}

int plan_result_from_choices(const plan_opened *o, plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = allocate(result, o->model.count);
    if (code == GW_CLI_OK) {
        gw_status status = gw_plan_tree_eval(&o->tree.tree, o->tree.choice, &result->cert.makespan);
        code = status == GW_OK ? check_makespan(o, result->cert.makespan) : plan_error(status);
        code = code == GW_CLI_OK ? fill_tree(o, &o->tree, result) : code;
    }
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    }
    return code;
}

static int solve_tree(const plan_opened *o, const char *algorithm, const gw_plan_limits *limits,
                      plan_result *result)
{
    const double start = gw_cli_seconds();
    const int bytecomp = strcmp(algorithm, "bytecomp") == 0;
    if (!bytecomp && strcmp(algorithm, "auto") != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "the algorithms of option trees are auto and bytecomp");
    }
    plan_tree t;
    int code = plan_tree_make(&o->library, &o->c, &o->model, !bytecomp, &t);
    if (code == GW_CLI_OK) {
        code = allocate(result, o->model.count);
    }
    if (code == GW_CLI_OK) {
        code = bytecomp ? plan_tree_bytecomp(&t, &o->c, &result->cert)
                        : plan_tree_solve(&t, limits, &result->cert);
        result->solve_us = (gw_cli_seconds() - start) * 1e6;
    }
    if (code == GW_CLI_OK) {
        code = fill_tree(o, &t, result);
    }
    plan_tree_free(&t);
    return code;
}

/* PyTorch DDP as it comes: its buckets, in float32, whatever the case sends. */
static int solve_ddp(const plan_opened *o, const gw_plan_limits *limits, plan_result *result)
{
    plan_opened dense = *o; /* shares all memory */
    plan_case_fp32(&dense.c);
    return solve_fused(&dense, "ddp-buckets", NULL, limits, result);
}

static int solve(const plan_opened *o, const char *algorithm, const char *method,
                 const gw_plan_limits *limits, plan_result *result)
{
    int code = strcmp(algorithm, "ddp") == 0 ? solve_ddp(o, limits, result)
               : o->c.kind == PLAN_TREE      ? solve_tree(o, algorithm, limits, result)
                                             : solve_fused(o, algorithm, method, limits, result);
    return code == GW_CLI_OK ? check_makespan(o, result->cert.makespan) : code;
}

int plan_run(const plan_opened *o, const char *algorithm, const char *method, const gw_plan_limits *limits,
             plan_result *result)
{
    memset(result, 0, sizeof *result);
    algorithm = algorithm != NULL ? algorithm : "auto";
    gw_cli_progress_begin("solve");
    int code = solve(o, algorithm, method, limits, result);
    gw_cli_progress_end();
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    } else {
        (void)snprintf(result->algorithm, sizeof result->algorithm, "%s", algorithm);
    }
    return code;
}

int plan_run_tree(plan_opened *o, const gw_plan_limits *limits, plan_tree *reduced, gw_plan_cert *cert)
{
    gw_cli_progress_begin("solve");
    int code = plan_tree_make(&o->library, &o->c, &o->model, 1, reduced);
    if (code == GW_CLI_OK) {
        code = plan_tree_solve(reduced, limits, cert);
    }
    gw_cli_progress_end();
    if (code == GW_CLI_OK) {
        plan_tree_copy_choice(reduced, &o->tree);
    }
    return code;
}

int plan_run_timeline(const plan_result *result, const plan_case *c, gw_plan_level level,
                      gw_plan_spans *spans, gw_plan_tick *makespan)
{
    const gw_plan_run run = {result->jobs, result->group_count, level, c->decode, c->cluster.flags};
    const size_t capacity = gw_plan_timeline_span_count_max(result->jobs, result->group_count);
    const size_t size = gw_plan_timeline_workspace_size(result->group_count);
    const gw_workspace workspace = {malloc(size), size};
    gw_plan_spans list = {spans != NULL ? calloc(capacity + 1, sizeof *list.items) : NULL, capacity, 0};
    int code = workspace.data != NULL && (spans == NULL || list.items != NULL)
                   ? GW_CLI_OK
                   : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    if (code == GW_CLI_OK) {
        gw_status status = gw_plan_timeline(&run, &list, makespan, &workspace);
        if (status != GW_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "timeline: %s", gw_status_message(status));
        } else if (spans != NULL) {
            *spans = list;
            list.items = NULL;
        }
    }
    free(list.items);
    free(workspace.data);
    return code;
}
