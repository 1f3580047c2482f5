/*
 * Opening what a subcommand works on.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_opened.h"

#include <string.h>

#include "../cli_common.h"
#include "plan_input.h"

void plan_opened_close(plan_opened *o)
{
    plan_tree_free(&o->tree);
    plan_setup_free(&o->setup);
    plan_model_free(&o->model);
    plan_library_close(&o->library);
}

int plan_opened_open(const plan_case_args *args, const char *path, plan_opened *o)
{
    memset(o, 0, sizeof *o);
    o->path = path;
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
