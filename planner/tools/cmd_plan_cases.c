/*
 * plan cases: the cases of the cases file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>

#include "cli_common.h"
#include "plan_args.h"
#include "plan_case.h"
#include "plan_commands.h"

static void print_case(const plan_case *c, size_t model_count)
{
    printf("%-36s %-7s %u x %u GPUs, %zu models, methods", c->name, plan_kind_names[c->kind],
           c->cluster.nodes, c->cluster.gpus, model_count);
    for (uint32_t m = 0; m < c->method_count; m++) {
        printf(" %s", c->method_names[m]);
    }
    printf("\n");
}

int plan_cmd_cases(int argc, char **argv)
{
    plan_parser parser;
    const char *path = NULL;
    plan_parser_open(&parser, "cases", "", "Lists the cases of the cases file.");
    const plan_arg cases = {"cases", "FILE", "Cases file instead of the built-in one", PLAN_ARG_INPUT, &path,
                            0,       0};
    plan_parser_add(&parser, &cases, 1);
    plan_parser_add_output(&parser, NULL);
    int code = plan_parser_run(&parser, argc, argv, &(const plan_parser_files){0, 0, "no file"});
    plan_library library;
    code = code == GW_CLI_OK ? plan_library_open(&library, path) : code;
    if (code != GW_CLI_OK) {
        return code;
    }
    json_t *list = json_object_get(library.root, "cases");
    if (parser.json) {
        code = gw_cli_json_print(json_incref(list));
    }
    for (size_t index = 0; !parser.json && index < json_array_size(list) && code == GW_CLI_OK; index++) {
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
