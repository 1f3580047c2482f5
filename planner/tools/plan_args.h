/*
 * Command lines of `gradwire plan SUBCOMMAND`. Each subcommand lists its options as plan_arg rows; argp
 * parses them, so that --help shows the options of that subcommand only.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_ARGS_H
#define GW_PLAN_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include <argp.h>

#include "gradwire/plan.h"

#define PLAN_FILES_MAX 16
#define PLAN_ARGS_MAX  40
#define PLAN_LIST_MAX  8

typedef enum plan_arg_type {
    PLAN_ARG_FLAG,   /* int, set to 1 */
    PLAN_ARG_TEXT,   /* const char * */
    PLAN_ARG_INPUT,  /* const char *, a file */
    PLAN_ARG_OUTPUT, /* const char *, a file */
    PLAN_ARG_LIST,   /* plan_text_list of files, one entry per occurrence */
    PLAN_ARG_NUMBER, /* double in min..max */
    PLAN_ARG_WHOLE,  /* int64_t in min..max */
    PLAN_ARG_SIZE    /* uint64_t, bytes with K, M, G */
} plan_arg_type;

typedef struct plan_text_list {
    const char *items[PLAN_LIST_MAX];
    int count;
} plan_text_list;

/* One option. name NULL: a title in the output of --help. */
typedef struct plan_arg {
    const char *name;
    const char *value; /* name of the value, NULL for flags */
    const char *doc;
    plan_arg_type type;
    void *target;
    double min, max;
} plan_arg;

typedef struct plan_parser {
    const char *files[PLAN_FILES_MAX];
    int file_count;
    int json;           /* every subcommand has --json */
    const char *output; /* -o, if output_doc was given */
    /* private */
    const char *name, *files_doc, *doc;
    struct argp_option options[PLAN_ARGS_MAX + 1];
    plan_arg args[PLAN_ARGS_MAX];
    int count, group;
} plan_parser;

/* name: of the subcommand; files: the FILE arguments as usage shows them; doc: one sentence. */
void plan_parser_open(plan_parser *parser, const char *name, const char *files, const char *doc);
void plan_parser_add(plan_parser *parser, const plan_arg *args, size_t count);
/* Adds the title "Output", --json and, if output_doc is not NULL, -o. */
void plan_parser_add_output(plan_parser *parser, const char *output_doc);
/* Adds --svg and --chrome, the files that a timeline is drawn into. */
void plan_parser_add_timeline(plan_parser *parser, const char **svg, const char **chrome);
/* How many files a subcommand takes, and which, in words. */
typedef struct plan_parser_files {
    int min, max;
    const char *takes;
} plan_parser_files;

/* Parses, and refuses outputs that are inputs or named twice; argv[0] is the subcommand. Returns an exit
 * code; argp itself ends the program for --help and bad usage. */
int plan_parser_run(plan_parser *parser, int argc, char **argv, const plan_parser_files *files);

/* How groups are found, and how baselines send them; NULL: not given. */
typedef struct plan_baseline_args {
    const char *method, *algorithm;
} plan_baseline_args;

/* with_algorithm: 0 leaves --algorithm out. */
void plan_baseline_args_add(plan_parser *parser, plan_baseline_args *args, int with_algorithm);

/* Limits of the searching solvers; negative: not given. */
typedef struct plan_limit_args {
    double time_limit_ms, gap;
    int64_t label_cap, work_max;
} plan_limit_args;

void plan_limit_args_add(plan_parser *parser, plan_limit_args *args);
/* default_ms: the time limit when none was given; 0: none. */
gw_plan_limits plan_limits(const plan_limit_args *args, double default_ms);

#endif
