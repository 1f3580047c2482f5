/*
 * plan cases: the cases of the cases file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>

#include "cli_common.h"
#include "plan_case.h"
#include "plan_options.h"

static void print_case(const plan_case *c, size_t model_count)
{
    printf("%-36s %-7s %u x %u GPUs, %zu models, methods", c->name, plan_kind_names[c->kind],
           c->cluster.nodes, c->cluster.gpus, model_count);
    for (uint32_t m = 0; m < c->method_count; m++) {
        printf(" %s", c->method_names[m]);
    }
    printf("\n");
}

static int cases(const plan_request *a)
{
    plan_library library;
    int code = GW_CLI_OK;
    gw_cli_must(plan_library_open(&library, a->of_case.cases_path));
    json_t *list = json_object_get(library.root, "cases");
    if (a->common.json) {
        code = gw_cli_json_print(json_incref(list));
    }
    for (size_t index = 0; !a->common.json && index < json_array_size(list) && code == GW_CLI_OK; index++) {
        plan_case c;
        json_t *models = NULL;
        if (plan_case_at(&library, index, &c, &models)) {
            print_case(&c, json_array_size(models));
        } else {
            code = GW_CLI_BAD_DATA;
        }
    }
    plan_library_close(&library);
    return code;
}

static const gw_option options[] = {PLAN_CASES_ROW, PLAN_JSON_ROW, {0}};

const plan_verb plan_verb_cases = {
    .name = "cases",
    .summary = "the cases of the cases file",
    .run = cases,
    .line = {.usage = "", .help = "Lists the cases of the cases file.", .own = {.options = options}},
};
