/*
 * The command gradwire: runs a subcommand with the rest of the command line.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"
#include "cmd.h"
#include "frame_input.h"
#include "gradwire/gradwire.h"
#include "input_file.h"
#ifdef GW_CLI_CLASSIC
#include "classic/cmd_classic.h"
#endif
#ifdef GW_CLI_PLAN
#include "cmd_plan.h"
#endif
#ifdef GW_CLI_THC
#include "thc/cmd_thc.h"
#endif

#include <argp.h>
#include <stdio.h>
#include <string.h>

/* Codec numbers of frames (docs/format.md section 2, byte 5). */
enum { CODEC_GCOMP = 1, CODEC_THC = 2, CODEC_CLASSIC = 3 };

/* ---- commands with several codecs ---- */

/* The value of --codec on a command line, NULL if there is none. */
static const char *codec_option(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--codec=", 8) == 0) {
            return argv[i] + 8;
        }
        if (strcmp(argv[i], "--codec") == 0 && i + 1 < argc) {
            return argv[i + 1];
        }
    }
    return NULL;
}

/* The codec that --codec chooses, or an argument that names a frame. */
static unsigned codec_of(int argc, char **argv, int by_file)
{
    const char *codec = codec_option(argc, argv);
    if (codec != NULL) {
        return strcmp(codec, "thc") == 0       ? CODEC_THC
               : strcmp(codec, "classic") == 0 ? CODEC_CLASSIC
                                               : CODEC_GCOMP;
    }
    for (int i = 1; by_file && i < argc; i++) {
        /* An existing output file does not count. */
        const int is_output = strcmp(argv[i - 1], "-o") == 0 || strcmp(argv[i - 1], "--output") == 0;
        if (argv[i][0] == '-' || is_output) {
            continue;
        }
        for (unsigned number = CODEC_THC; number <= CODEC_CLASSIC; number++) {
            if (gw_frame_file_has_codec(argv[i], number)) {
                return number;
            }
        }
    }
    return CODEC_GCOMP;
}

#ifndef GW_CLI_THC
static int thc_missing(int argc, char **argv)
{
    (void)argc;
    return gw_cli_error(GW_CLI_USAGE, NULL, "%s: this build has no THC codec",
                        argv[0] + strcspn(argv[0], " ") + 1);
}
#define gw_cmd_thc_compress   thc_missing
#define gw_cmd_thc_decompress thc_missing
#define gw_cmd_thc_inspect    thc_missing
#endif

#ifndef GW_CLI_CLASSIC
static int classic_missing(int argc, char **argv)
{
    (void)argc;
    return gw_cli_error(GW_CLI_USAGE, NULL, "%s: this build has no classic codecs",
                        argv[0] + strcspn(argv[0], " ") + 1);
}
#define gw_cmd_classic_compress   classic_missing
#define gw_cmd_classic_decompress classic_missing
#define gw_cmd_classic_inspect    classic_missing
#endif

static int command_compress(int argc, char **argv)
{
    const unsigned codec = codec_of(argc, argv, 0);
    return codec == CODEC_THC       ? gw_cmd_thc_compress(argc, argv)
           : codec == CODEC_CLASSIC ? gw_cmd_classic_compress(argc, argv)
                                    : gw_cmd_compress(argc, argv);
}

static int command_decompress(int argc, char **argv)
{
    const unsigned codec = codec_of(argc, argv, 1);
    return codec == CODEC_THC       ? gw_cmd_thc_decompress(argc, argv)
           : codec == CODEC_CLASSIC ? gw_cmd_classic_decompress(argc, argv)
                                    : gw_cmd_decompress(argc, argv);
}

static int command_inspect(int argc, char **argv)
{
    const unsigned codec = codec_of(argc, argv, 1);
    return codec == CODEC_THC       ? gw_cmd_thc_inspect(argc, argv)
           : codec == CODEC_CLASSIC ? gw_cmd_classic_inspect(argc, argv)
                                    : gw_cmd_inspect(argc, argv);
}

/* ---- dispatch ---- */

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"compress", command_compress}, {"decompress", command_decompress},
    {"inspect", command_inspect},   {"verify", gw_cmd_verify},
    {"rate", gw_cmd_rate},          {"info", gw_cmd_info},
#ifdef GW_CLI_PLAN
    {"plan", gw_cmd_plan},
#endif
#ifdef GW_CLI_THC
    {"norm", gw_cmd_norm},          {"table", gw_cmd_table},
    {"thc-plan", gw_cmd_thc_plan},  {"aggregate", gw_cmd_aggregate},
#endif
#ifdef GW_CLI_CLASSIC
    {"classic", gw_cmd_classic},
#endif
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void version_print(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "gradwire %s (frame format 0)\n", gw_version_string());
}

static const command *command_find(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
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
        arguments->command = command_find(text);
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

static const struct argp main_argp = {
    NULL,
    main_parse,
    "COMMAND [ARGUMENT...]",
    "Gradient compression, near-lossless and homomorphic, and plans for when to use it.\v"
    "Commands:\n"
    "  compress    an array or a snapshot to a frame\n"
    "  decompress  a frame to an array\n"
    "  inspect     print what a frame consists of\n"
    "  verify      check a frame, or measure a round trip\n"
    "  rate        bits and errors of every tolerance or noise limit\n"
    "  info        version, backends, CPU\n"
#ifdef GW_CLI_THC
    "  norm        block norms of an array (THC)\n"
    "  aggregate   add THC frames\n"
    "  table       optimal quantization tables (THC)\n"
    "  thc-plan    recommend THC parameters\n"
#endif
#ifdef GW_CLI_CLASSIC
    "  classic     Top-k, DGC, signs, QSGD, TernGrad and others\n"
#endif
#ifdef GW_CLI_PLAN
    "  plan        what to fuse, compress and send how\n"
#endif
    "\n"
    "gradwire COMMAND --help describes each. Exit codes: 0 done, 1 bad data, 2 bad command line, 3 input or "
    "output failed.",
    NULL,
    NULL,
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
