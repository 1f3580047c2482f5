/*
 * Dispatch of `gradwire plan SUBCOMMAND`.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_plan.h"

#include <stdio.h>
#include <string.h>

#include "cli_common.h"
#include "plan_commands.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"solve", plan_cmd_solve, "the schedule with the shortest iteration, with proof"},
    {"compare", plan_cmd_compare, "the exact plan and the rules of frameworks and papers"},
    {"explain", plan_cmd_explain, "why each group is cut where it is"},
    {"sweep", plan_cmd_sweep, "bandwidth, ranks, ratio, batch; break-even bandwidth"},
    {"eval", plan_cmd_eval, "evaluate a plan file or fixed buckets"},
    {"fit", plan_cmd_fit, "cost curves from measurements"},
    {"import", plan_cmd_import, "a model from a profiler recording"},
    {"export", plan_cmd_export, "PyTorch's bucket_cap_mb_list"},
    {"check", plan_cmd_check, "a prediction against a recording"},
    {"options", plan_cmd_options, "ByteComp's 4341 options"},
    {"verify", plan_cmd_verify, "re-evaluate a plan, compare with brute force"},
    {"cases", plan_cmd_cases, "the cases of the cases file"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_usage(void)
{
    printf("usage: gradwire plan SUBCOMMAND [OPTIONS] [FILES]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\ngradwire plan SUBCOMMAND --help lists the options.\n");
}

int gw_cmd_plan(int argc, char **argv)
{
    if (argc < 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "plan: a subcommand is missing; gradwire plan --help lists them");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage();
        return GW_CLI_OK;
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return gw_cli_error(GW_CLI_USAGE, NULL,
                        "plan has no subcommand \"%.40s\"; gradwire plan --help lists them", argv[1]);
}
