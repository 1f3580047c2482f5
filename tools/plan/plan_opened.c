/*
 * Opening what a command works on.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_opened.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"

void plan_opened_close(plan_opened *o)
{
    plan_tree_free(&o->tree);
    plan_setup_free(&o->setup);
    plan_model_free(&o->model);
    plan_library_close(&o->library);
}

int plan_opened_open(const plan_args *args, int reduce, plan_opened *o)
{
    memset(o, 0, sizeof *o);
    int code = plan_args_case(args, &o->library, &o->c);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_model_read(args->files[0], &o->model);
    if (code == GW_CLI_OK && o->c.kind == PLAN_TREE) {
        code = plan_tree_make(&o->library, &o->c, &o->model, reduce, &o->tree);
    } else if (code == GW_CLI_OK) {
        code = plan_setup_make(&o->library, &o->c, &o->model, args->files[0], &o->setup);
    }
    if (code != GW_CLI_OK) {
        plan_opened_close(o);
    }
    return code;
}

static int open_file(const plan_args *args, const plan_opened *o, plan_file *file, double *claimed_us)
{
    int code = plan_file_read(args->files[1], file);
    if (code != GW_CLI_OK) {
        return code;
    }
    if (file->hash != 0 && file->hash != plan_problem_hash(&o->model)) {
        gw_cli_note("%s was made for a model with other names or sizes than %s", args->files[1],
                    args->files[0]);
    }
    *claimed_us = file->makespan_us;
    return GW_CLI_OK;
}

int plan_opened_choices(const plan_args *args, plan_opened *o, double *claimed_us)
{
    plan_file file;
    int code = open_file(args, o, &file, claimed_us);
    if (code == GW_CLI_OK) {
        code = plan_file_choices(args->files[1], &file, &o->model, &o->tree);
        plan_file_close(&file);
    }
    return code;
}

int plan_opened_groups(const plan_args *args, plan_opened *o, gw_plan_group **groups, uint32_t *count,
                       double *claimed_us)
{
    *groups = NULL;
    *claimed_us = NAN;
    if (args->file_count == 2) {
        plan_file file;
        int code = open_file(args, o, &file, claimed_us);
        if (code == GW_CLI_OK) {
            code = plan_file_groups(args->files[1], &file, &o->setup, &o->model, groups, count);
            plan_file_close(&file);
        }
        return code;
    }
    *groups = calloc((size_t)o->model.count + 1, sizeof **groups);
    if (*groups == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    int method = args->method != NULL ? plan_method_index(&o->setup, args->method)
                                      : (int)o->setup.problem.method_count - 1;
    gw_plan plan = {*groups, o->model.count, 0};
    int64_t cap = (int64_t)llround(args->bucket_mib * (1 << 18));
    if (method < 0 || gw_plan_bucket(&o->setup.problem, (uint32_t)method, cap, cap, 0, &plan) != GW_PLAN_OK) {
        free(*groups);
        *groups = NULL;
        return gw_cli_error(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case",
                            args->method != NULL ? args->method : "(none)");
    }
    *count = plan.group_count;
    return GW_CLI_OK;
}
