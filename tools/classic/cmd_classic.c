/*
 * Dispatch of `gradwire classic SUBCOMMAND`.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_classic.h"

#include "cli_common.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"compress", gw_cmd_classic_compress, "an array or a snapshot's gradient to a frame"},
    {"decompress", gw_cmd_classic_decompress, "a frame to an array"},
    {"inspect", gw_cmd_classic_inspect, "print what a frame consists of"},
    {"norms", gw_cmd_classic_norms, "block norms that ranks share (qsgd, terngrad)"},
    {"aggregate", gw_cmd_classic_aggregate, "votes and sums of encoded values"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void usage_print(void)
{
    printf("usage: gradwire classic SUBCOMMAND [OPTIONS] [FILES]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        printf("  %-11s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\ngradwire classic SUBCOMMAND --help lists the options.\n");
}

int gw_cmd_classic(int argc, char **argv)
{
    if (argc < 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "classic: a subcommand is missing; gradwire classic --help lists them");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 || strcmp(argv[1], "help") == 0) {
        usage_print();
        return GW_CLI_OK;
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            char name[64];
            (void)snprintf(name, sizeof name, "gradwire classic %s", commands[i].name);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return gw_cli_error(GW_CLI_USAGE, NULL,
                        "classic has no subcommand \"%.40s\"; gradwire classic --help lists them", argv[1]);
}
