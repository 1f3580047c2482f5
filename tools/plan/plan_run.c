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

#include "../cli_common.h"
#include "plan_tree.h"

void *plan_workspace(size_t size)
{
    static void *kept;
    static size_t kept_size;
    if (size > kept_size) {
        free(kept);
        kept = malloc(size);
        kept_size = kept != NULL ? size : 0;
    }
    return kept;
}

double plan_gap(const gw_plan_cert *cert)
{
    if (cert->makespan == cert->lower_bound) {
        return 0;
    }
    return cert->lower_bound > 0 ? (double)(cert->makespan - cert->lower_bound) / (double)cert->lower_bound
                                 : INFINITY;
}

void plan_method_label(const gw_plan_method *method, char *out, size_t out_size)
{
    (void)snprintf(out, out_size, "%s%s", method->name, method->enc_device == GW_PLAN_CPU ? "@cpu" : "");
}

int plan_method_index(const plan_setup *setup, const char *label)
{
    for (uint32_t m = 0; m < setup->problem.method_count; m++) {
        char here[PLAN_PATH_SIZE];
        plan_method_label(&setup->methods[m], here, sizeof here);
        if (strcmp(here, label) == 0) {
            return (int)m;
        }
    }
    return -1;
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
               : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
}

static int fill_fused(const plan_setup *setup, plan_result *result)
{
    gw_plan plan = {result->fused, result->group_count, result->group_count};
    gw_plan_status status = gw_plan_jobs(&setup->problem, &plan, result->jobs, result->group_count);
    if (status != GW_PLAN_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_plan_status_string(status));
    }
    for (uint32_t j = 0; j < result->group_count; j++) {
        result->groups[j].first = result->fused[j].first;
        result->groups[j].tensor_count = result->fused[j].tensor_count;
        plan_method_label(&setup->methods[result->fused[j].method], result->groups[j].method, PLAN_PATH_SIZE);
    }
    return GW_CLI_OK;
}

int plan_result_from_groups(const plan_setup *setup, const gw_plan_group *groups, uint32_t group_count,
                            plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = allocate(result, group_count);
    if (code != GW_CLI_OK) {
        return code;
    }
    memcpy(result->fused, groups, group_count * sizeof *groups);
    result->group_count = group_count;
    gw_plan plan = {result->fused, group_count, group_count};
    gw_plan_status status = gw_plan_eval(&setup->problem, &plan, &result->cert.makespan);
    if (status != GW_PLAN_OK) {
        code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_plan_status_string(status));
    } else {
        code = fill_fused(setup, result);
    }
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    }
    return code;
}

static int run_fused(const plan_library *library, const plan_case *c, const plan_model *model,
                     const char *model_path, const char *algorithm, const char *method,
                     const gw_plan_limits *limits, plan_result *result)
{
    plan_setup setup;
    double start = gw_cli_seconds();
    int code = plan_setup_make(library, c, model, model_path, &setup);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan_algorithm chosen = GW_PLAN_ALGORITHM_COUNT;
    for (int a = 0; a < GW_PLAN_ALGORITHM_COUNT; a++) {
        if (strcmp(gw_plan_algorithm_name((gw_plan_algorithm)a), algorithm) == 0) {
            chosen = (gw_plan_algorithm)a;
        }
    }
    int index = method != NULL ? plan_method_index(&setup, method) : (int)setup.problem.method_count - 1;
    if (chosen == GW_PLAN_ALGORITHM_COUNT) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "no algorithm \"%.40s\"", algorithm);
    } else if (index < 0) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case", method);
    } else {
        code = allocate(result, model->count);
    }
    if (code == GW_CLI_OK) {
        size_t size = gw_plan_workspace_size(&setup.problem, chosen);
        void *workspace = plan_workspace(size);
        gw_plan plan = {result->fused, model->count, 0};
        if (workspace == NULL) {
            code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
        } else {
            gw_plan_status status = gw_plan_solve(&setup.problem, chosen, (uint32_t)index, limits, workspace,
                                                  size, &plan, &result->cert);
            result->solve_us = (gw_cli_seconds() - start) * 1e6;
            result->group_count = plan.group_count;
            code = status == GW_PLAN_OK
                       ? fill_fused(&setup, result)
                       : gw_cli_error(status == GW_PLAN_ERR_UNSUPPORTED || status == GW_PLAN_ERR_LIMIT
                                          ? GW_CLI_USAGE
                                          : GW_CLI_BAD_DATA,
                                      model_path, "%s: %s", algorithm, gw_plan_status_string(status));
        }
    }
    plan_setup_free(&setup);
    return code;
}

/* Groups and jobs of t->choice; the result's arrays are allocated. */
static int fill_tree(const plan_tree *t, const plan_case *c, const plan_model *model, plan_result *result)
{
    int code = GW_CLI_OK;
    for (uint32_t i = 0; i < model->count && code == GW_CLI_OK; i++) {
        result->groups[i].first = i;
        result->groups[i].tensor_count = 1;
        plan_tree_path(t, i, t->choice[i], result->groups[i].method, PLAN_PATH_SIZE);
        code = plan_tree_job(t, c, model, i, t->choice[i], &result->jobs[i]);
    }
    result->group_count = model->count;
    return code;
}

int plan_result_from_choices(const plan_tree *t, const plan_case *c, const plan_model *model,
                             plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = allocate(result, model->count);
    if (code == GW_CLI_OK) {
        gw_plan_status status = gw_plan_tree_eval(&t->tree, t->choice, &result->cert.makespan);
        code = status == GW_PLAN_OK
                   ? fill_tree(t, c, model, result)
                   : gw_cli_error(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_plan_status_string(status));
    }
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    }
    return code;
}

static int run_tree(const plan_library *library, const plan_case *c, const plan_model *model,
                    const char *algorithm, const gw_plan_limits *limits, plan_result *result)
{
    double start = gw_cli_seconds();
    int bytecomp = strcmp(algorithm, "bytecomp") == 0;
    if (!bytecomp && strcmp(algorithm, "auto") != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "option trees know the algorithms auto and bytecomp");
    }
    plan_tree t;
    int code = plan_tree_make(library, c, model, !bytecomp, &t);
    if (code == GW_CLI_OK) {
        code = allocate(result, model->count);
    }
    if (code == GW_CLI_OK) {
        code =
            bytecomp ? plan_tree_bytecomp(&t, c, &result->cert) : plan_tree_solve(&t, limits, &result->cert);
        result->solve_us = (gw_cli_seconds() - start) * 1e6;
    }
    if (code == GW_CLI_OK) {
        code = fill_tree(&t, c, model, result);
    }
    plan_tree_free(&t);
    return code;
}

int plan_run(const plan_library *library, const plan_case *c, const plan_model *model, const char *model_path,
             const char *algorithm, const char *method, const gw_plan_limits *limits, plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = c->kind == PLAN_TREE
                   ? run_tree(library, c, model, algorithm, limits, result)
                   : run_fused(library, c, model, model_path, algorithm, method, limits, result);
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    } else {
        (void)snprintf(result->algorithm, sizeof result->algorithm, "%s", algorithm);
    }
    return code;
}

int plan_run_timeline(const plan_result *result, const plan_case *c, gw_plan_level level,
                      gw_plan_span **spans, size_t *span_count, gw_plan_tick *makespan)
{
    size_t capacity = gw_plan_timeline_span_count_max(result->jobs, result->group_count);
    size_t size = gw_plan_timeline_workspace_size(result->group_count);
    void *workspace = malloc(size);
    gw_plan_span *list = spans != NULL ? calloc(capacity + 1, sizeof *list) : NULL;
    int code = workspace != NULL && (spans == NULL || list != NULL)
                   ? GW_CLI_OK
                   : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    if (code == GW_CLI_OK) {
        size_t count = 0;
        gw_plan_status status =
            gw_plan_timeline(level, c->decode, c->cluster.flags, result->jobs, result->group_count, list,
                             capacity, &count, workspace, size, makespan);
        if (status != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "timeline: %s", gw_plan_status_string(status));
        } else if (spans != NULL) {
            *spans = list;
            *span_count = count;
            list = NULL;
        }
    }
    free(list);
    free(workspace);
    return code;
}
