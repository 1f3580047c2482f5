/*
 * Dispatch of `gradwire plan VERB`.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_plan.h"

#include <stdio.h>
#include <string.h>

#include "plan_options.h"
#include "text_source.h"

static const plan_verb *const verbs[] = {
    &plan_verb_solve, &plan_verb_compare, &plan_verb_explain, &plan_verb_sweep,
    &plan_verb_eval,  &plan_verb_fit,     &plan_verb_import,  &plan_verb_export,
    &plan_verb_check, &plan_verb_options, &plan_verb_verify,  &plan_verb_cases,
};

enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

static void print_usage(void)
{
    printf("usage: gradwire plan SUBCOMMAND [OPTIONS] [FILES]\n\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        printf("  %-10s %s\n", verbs[i]->name, verbs[i]->summary);
    }
    printf("\ngradwire plan SUBCOMMAND --help lists the options.\n");
}

static int run(const plan_verb *verb, int argc, char **argv)
{
    plan_request request = {
        .of_case = {.latency_us = -1,
                    .us_per_kib = -1,
                    .gbit_per_s = -1,
                    .group_mib_max = -1,
                    .error_max = -1,
                    .ranks = -1,
                    .comp_max = -1,
                    .kind = -1,
                    .level = -1,
                    .decode = -1},
        .limits = {-1, -1, -1, -1},
        .max_size = TEXT_SOURCE_SIZE_MAX,
        .bucket_mib = -1,
        .form = GW_PLAN_COST_TABLE + 1,
        .step = -1,
    };
    const gw_request *common = &request.common;
    static char name[64];
    (void)snprintf(name, sizeof name, "gradwire plan %s", verb->name);
    argv[0] = name;
    gw_command_line_parse(&verb->line, argc, argv, &request);
    if (common->input_count < verb->input_min ||
        (verb->input_max != 0 && common->input_count > verb->input_max)) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan %s takes %s", verb->name, verb->takes);
    }
    gw_command_line_check_files(&verb->line, &request);
    return verb->run(&request);
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
    for (int i = 0; i < VERB_COUNT; i++) {
        if (strcmp(argv[1], verbs[i]->name) == 0) {
            return run(verbs[i], argc - 1, argv + 1);
        }
    }
    return gw_cli_error(GW_CLI_USAGE, NULL,
                        "plan has no subcommand \"%.40s\"; gradwire plan --help lists them", argv[1]);
}
