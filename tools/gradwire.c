/*
 * The command gradwire: runs a subcommand with the rest of the command line.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"
#include "cmd.h"
#include "gradwire/gradwire.h"
#include "input_file.h"
#include "verbs.h"
#ifdef GW_CLI_PLAN
#include "cmd_plan.h"
#endif

#include <argp.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name; /* NULL ends a table */
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

/* ---- gradwire classic SUBCOMMAND ---- */

static int classic_compress(int argc, char **argv)
{
    return gw_codec_compress(&gw_classic_verbs, argc, argv);
}

static int classic_decompress(int argc, char **argv)
{
    return gw_codec_decompress(&gw_classic_verbs, argc, argv);
}

static int classic_frame_inspect(int argc, char **argv)
{
    return gw_codec_inspect(&gw_classic_verbs, argc, argv);
}

static const command classic_commands[] = {
    {"compress", classic_compress, "an array or a snapshot's gradient to a frame"},
    {"decompress", classic_decompress, "a frame to an array"},
    {"inspect", classic_frame_inspect, "print what a frame consists of"},
    {"norms", gw_cmd_classic_norms, "block norms that ranks share (qsgd, terngrad)"},
    {"aggregate", gw_cmd_classic_aggregate, "votes and sums of encoded values"},
    {0},
};

static const command *command_find(const command *commands, const char *name)
{
    while (commands->name != NULL && strcmp(commands->name, name) != 0) {
        commands++;
    }
    return commands->name != NULL ? commands : NULL;
}

static void commands_print(const command *commands, FILE *stream)
{
    for (; commands->name != NULL; commands++) {
        fprintf(stream, "  %-11s %s\n", commands->name, commands->summary);
    }
}

static int classic(int argc, char **argv)
{
    if (argc < 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "classic: a subcommand is missing; gradwire classic --help lists them");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 || strcmp(argv[1], "help") == 0) {
        printf("usage: gradwire classic SUBCOMMAND [OPTIONS] [FILES]\n\n");
        commands_print(classic_commands, stdout);
        printf("\ngradwire classic SUBCOMMAND --help lists the options.\n");
        return GW_CLI_OK;
    }
    const command *found = command_find(classic_commands, argv[1]);
    if (found == NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "classic has no subcommand \"%.40s\"; gradwire classic --help lists them",
                            argv[1]);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "gradwire classic %s", found->name);
    argv[1] = name;
    return found->run(argc - 1, argv + 1);
}

/* ---- dispatch ---- */

static const command all_commands[] = {
    {"compress", gw_verb_compress, "an array or a snapshot to a frame"},
    {"decompress", gw_verb_decompress, "a frame to an array"},
    {"inspect", gw_verb_inspect, "print what a frame consists of"},
    {"verify", gw_cmd_verify, "check a frame, or measure a round trip"},
    {"rate", gw_cmd_rate, "bits and errors of every tolerance or noise limit"},
    {"info", gw_cmd_info, "version, backends, CPU"},
    {"norm", gw_cmd_norm, "block norms of an array (THC)"},
    {"aggregate", gw_cmd_aggregate, "add THC frames"},
    {"table", gw_cmd_table, "optimal quantization tables (THC)"},
    {"thc-design", gw_cmd_thc_design, "recommend THC parameters"},
    {"thc-serve", gw_cmd_thc_serve, "a parameter server (THC)"},
    {"classic", classic, "Top-k, DGC, signs, QSGD, TernGrad and others"},
#ifdef GW_CLI_PLAN
    {"plan", gw_cmd_plan, "what to fuse, compress and send how"},
#endif
    {0},
};

static void version_print(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "gradwire %s (frame format 0)\n", gw_version_string());
}

typedef struct main_arguments {
    const command *command;
    int first; /* index of the command's name in argv */
} main_arguments;

static error_t main_parse(int key, char *text, struct argp_state *state)
{
    main_arguments *arguments = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        arguments->command = command_find(all_commands, text);
        if (arguments->command == NULL) {
            argp_error(state, "'%s' is not a command of this build", text);
        }
        arguments->first = state->next - 1;
        state->next = state->argc; /* the command parses the rest */
        break;
    case ARGP_KEY_END:
        if (arguments->command == NULL) {
            argp_error(state, "a command is missing; gradwire --help lists them");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The help lists the commands where its text has %s. */
static char *help_filter(int key, const char *text, void *input)
{
    char *help = NULL;
    size_t size = 0;
    const char *place = key == ARGP_KEY_HELP_POST_DOC && text != NULL ? strstr(text, "%s") : NULL;
    FILE *stream = place != NULL ? open_memstream(&help, &size) : NULL;
    (void)input;
    if (stream == NULL) {
        return (char *)(uintptr_t)text;
    }
    (void)fwrite(text, 1, (size_t)(place - text), stream);
    commands_print(all_commands, stream);
    fputs(place + 2, stream);
    (void)fclose(stream);
    return help;
}

static const struct argp main_argp = {
    NULL,
    main_parse,
    "COMMAND [ARGUMENT...]",
    "Gradient compression, near-lossless and homomorphic, and plans for when to use it.\v"
    "Commands:\n%s\n"
    "gradwire COMMAND --help describes each. Exit codes: 0 done, 1 bad data, 2 bad command line, 3 input or "
    "output failed.",
    NULL,
    help_filter,
    NULL,
};

int main(int argc, char **argv)
{
    argp_program_version_hook = version_print;
    gw_cli_start();
    gw_input_file_guard();

    main_arguments arguments = {NULL, 0};
    gw_cli_parse(&main_argp, argc, argv, ARGP_IN_ORDER, &arguments);

    char name[64];
    (void)snprintf(name, sizeof name, "gradwire %s", arguments.command->name);
    argv[arguments.first] = name;
    return arguments.command->run(argc - arguments.first, argv + arguments.first);
}
