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
#include "plan_memory.h"

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

static void allocate(plan_result *result, uint32_t count)
{
    memset(result, 0, sizeof *result);
    result->groups = plan_alloc(count, sizeof *result->groups);
    result->fused = plan_alloc(count, sizeof *result->fused);
    result->jobs = plan_alloc(count, sizeof *result->jobs);
}

static void must(gw_status status)
{
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_status_message(status));
    }
}

/* A schedule without any time has no shortest one. */
static void check_makespan(const plan_opened *o, const plan_result *result)
{
    if (result->cert.makespan <= 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, o->path,
                    "the iteration takes no time: backprop, network and codecs cost nothing");
    }
}

/* Groups and jobs of result->fused. */
static void fill_fused(const plan_setup *setup, plan_result *result)
{
    const gw_plan plan = {result->fused, result->group_count, result->group_count};
    must(gw_plan_jobs(&setup->problem, &plan, result->jobs, result->group_count));
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
}

/* Groups and jobs of t->choice. */
static void fill_tree(const plan_opened *o, const plan_tree *t, plan_result *result)
{
    for (uint32_t i = 0; i < t->tree.tensor_count; i++) {
        result->groups[i].first = t->groups[i].first;
        result->groups[i].tensor_count = t->groups[i].tensor_count;
        plan_tree_path(t, i, t->choice[i], result->groups[i].method, PLAN_PATH_SIZE);
        plan_tree_job(t, &o->c, i, t->choice[i], &result->jobs[i]);
    }
    result->group_count = t->tree.tensor_count;
    (void)snprintf(result->tree_codec, sizeof result->tree_codec, "%s",
                   t->codec.name != NULL ? t->codec.name : "");
}

void plan_result_make(const plan_opened *o, const gw_plan *plan, plan_result *result)
{
    const int is_tree = o->c.kind == PLAN_TREE;
    allocate(result, is_tree ? o->model.count : plan->group_count);
    must(is_tree ? gw_plan_tree_eval(&o->tree.tree, o->tree.choice, &result->cert.makespan)
                 : gw_plan_eval(&o->setup.problem, plan, &result->cert.makespan));
    check_makespan(o, result);
    if (is_tree) {
        fill_tree(o, &o->tree, result);
    } else {
        memcpy(result->fused, plan->groups, plan->group_count * sizeof *plan->groups);
        result->group_count = plan->group_count;
        fill_fused(&o->setup, result);
    }
}

static gw_plan_algorithm find_algorithm(const char *name)
{
    int a = 0;
    while (a < GW_PLAN_ALGORITHM_COUNT && strcmp(gw_plan_algorithm_name((gw_plan_algorithm)a), name) != 0) {
        a++;
    }
    return (gw_plan_algorithm)a;
}

static void solve_fused(const plan_opened *o, const char *algorithm, const char *method,
                        const gw_plan_limits *limits, plan_result *result)
{
    plan_setup setup;
    const double start = gw_cli_seconds();
    gw_cli_must(plan_setup_make(&o->library, &o->c, &o->model, o->path, &setup));
    const gw_plan_solver solver = {find_algorithm(algorithm), plan_method_find(&setup, method), *limits};
    if (solver.algorithm == GW_PLAN_ALGORITHM_COUNT) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "no algorithm \"%.40s\"", algorithm);
    }
    const gw_workspace workspace = plan_workspace(gw_plan_workspace_size(&setup.problem, solver.algorithm));
    allocate(result, o->model.count);
    gw_plan plan = {result->fused, o->model.count, 0};
    const gw_status status = gw_plan_solve(&setup.problem, &solver, &plan, &result->cert, &workspace);
    if (status != GW_OK) {
        const int is_usage = status == GW_ERR_OPTION || status == GW_ERR_LIMIT;
        gw_cli_fail(is_usage ? GW_CLI_USAGE : GW_CLI_BAD_DATA, o->path, "%s: %s",
                    gw_plan_algorithm_name(solver.algorithm),
                    status == GW_ERR_LIMIT    ? "the search space is too large for this algorithm"
                    : status == GW_ERR_OPTION ? "this algorithm does not cover the problem"
                                              : gw_status_message(status));
    }
    result->group_count = plan.group_count;
    result->solve_us = (gw_cli_seconds() - start) * 1e6;
    fill_fused(&setup, result);
    plan_setup_free(&setup);
}

static void solve_tree(const plan_opened *o, const char *algorithm, const gw_plan_limits *limits,
                       plan_result *result)
{
    const double start = gw_cli_seconds();
    const int bytecomp = strcmp(algorithm, "bytecomp") == 0;
    if (!bytecomp && strcmp(algorithm, "auto") != 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "the algorithms of option trees are auto and bytecomp");
    }
    plan_tree t;
    gw_plan cut = {NULL, 0, 0};
    int stopped = 0;
    if (o->c.fuse && !bytecomp) { /* ByteComp's algorithms send tensors one by one */
        gw_cli_must(plan_tree_fuse(&o->library, &o->c, &o->model, limits, &cut, &stopped));
    }
    const gw_plan *fused = cut.groups != NULL ? &cut : NULL;
    gw_cli_must(plan_tree_make(&o->library, &o->c, &o->model, fused, !bytecomp, &t));
    free(cut.groups);
    allocate(result, o->model.count);
    if (bytecomp) {
        plan_tree_bytecomp(&t, &o->c, &result->cert);
    } else {
        plan_tree_solve(&t, limits, &result->cert);
    }
    result->cert.stopped |= stopped;
    result->solve_us = (gw_cli_seconds() - start) * 1e6;
    fill_tree(o, &t, result);
    plan_tree_free(&t);
}

void plan_run(const plan_opened *o, const char *algorithm, const char *method, const gw_plan_limits *limits,
              plan_result *result)
{
    algorithm = algorithm != NULL ? algorithm : "auto";
    gw_cli_progress_begin("solve");
    if (strcmp(algorithm, "ddp") == 0) {
        /* PyTorch DDP as it comes: its buckets, in float32, whatever the case sends. */
        plan_opened dense = *o; /* shares all memory */
        plan_case_fp32(&dense.c);
        solve_fused(&dense, "ddp-buckets", NULL, limits, result);
    } else if (o->c.kind == PLAN_TREE) {
        solve_tree(o, algorithm, limits, result);
    } else {
        solve_fused(o, algorithm, method, limits, result);
    }
    check_makespan(o, result);
    gw_cli_progress_end();
    (void)snprintf(result->algorithm, sizeof result->algorithm, "%s", algorithm);
}

void plan_run_fuse(plan_opened *o, const gw_plan_limits *limits)
{
    gw_plan cut;
    int stopped; /* what the callers report has no such member */
    if (!o->c.fuse) {
        return;
    }
    gw_cli_progress_begin("fuse");
    gw_cli_must(plan_tree_fuse(&o->library, &o->c, &o->model, limits, &cut, &stopped));
    gw_cli_must(plan_tree_cut(&o->library, &o->c, &o->model, &cut, &o->tree));
    gw_cli_progress_end();
    free(cut.groups);
}

void plan_run_tree(plan_opened *o, const gw_plan_limits *limits, plan_tree *reduced, gw_plan_cert *cert)
{
    const gw_plan cut = {o->tree.groups, o->tree.tree.tensor_count, o->tree.tree.tensor_count};
    gw_cli_progress_begin("solve");
    gw_cli_must(plan_tree_make(&o->library, &o->c, &o->model, &cut, 1, reduced));
    plan_tree_solve(reduced, limits, cert);
    gw_cli_progress_end();
    plan_tree_copy_choice(reduced, &o->tree);
}

gw_plan_tick plan_run_timeline(const plan_result *result, const plan_case *c, gw_plan_level level,
                               gw_plan_spans *spans)
{
    const gw_plan_run run = {result->jobs, result->group_count, level, c->decode, c->cluster.flags};
    const size_t capacity = gw_plan_timeline_span_count_max(result->jobs, result->group_count);
    const gw_workspace workspace = plan_workspace(gw_plan_timeline_workspace_size(result->group_count));
    gw_plan_spans list = {spans != NULL ? plan_alloc(capacity, sizeof *list.items) : NULL, capacity, 0};
    gw_plan_tick makespan = 0;
    const gw_status status = gw_plan_timeline(&run, &list, &makespan, &workspace);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, NULL, "timeline: %s", gw_status_message(status));
    }
    if (spans != NULL) {
        *spans = list;
    }
    return makespan;
}
