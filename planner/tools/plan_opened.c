/*
 * Opening what a subcommand works on.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_opened.h"

#include <string.h>

#include "cli_common.h"
#include "plan_file.h"
#include "plan_input.h"
#include "plan_stored.h"

void plan_opened_close(plan_opened *o)
{
    plan_tree_free(&o->tree);
    plan_setup_free(&o->setup);
    plan_model_free(&o->model);
    plan_library_close(&o->library);
}

/* Case and model of a plan file. */
static int open_plan(const plan_case_args *args, const char *path, plan_opened *o)
{
    plan_file file;
    o->is_plan = 1;
    int code = plan_file_read(path, &file);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_stored_read(path, json_object_get(file.root, "problem"), o);
    plan_file_close(&file);
    if (code == GW_CLI_OK) {
        code = plan_case_args_apply(args, &o->library, &o->c);
        if (code != GW_CLI_OK) {
            plan_opened_close(o);
        }
    }
    return code;
}

int plan_opened_open(const plan_case_args *args, const char *path, plan_opened *o)
{
    memset(o, 0, sizeof *o);
    o->path = path;
    if (plan_file_is(path)) {
        return open_plan(args, path, o);
    }
    int code = plan_case_args_open(args, &o->library, &o->c);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_input_model(path, &o->model);
    if (code != GW_CLI_OK) {
        plan_opened_close(o);
    }
    return code;
}

int plan_opened_prepare(plan_opened *o)
{
    return o->c.kind == PLAN_TREE ? plan_tree_make(&o->library, &o->c, &o->model, 0, &o->tree)
                                  : plan_setup_make(&o->library, &o->c, &o->model, o->path, &o->setup);
}
