/*
 * Options of `gradwire plan`, parsed by argp, with the subcommands each applies to.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_ARGS_H
#define GW_PLAN_ARGS_H

#include <stdint.h>

#include "plan_case.h"

#define PLAN_FILES_MAX       16
#define PLAN_CODEC_FILES_MAX 8

typedef enum plan_command {
    PLAN_CMD_SOLVE,
    PLAN_CMD_COMPARE,
    PLAN_CMD_EXPLAIN,
    PLAN_CMD_SWEEP,
    PLAN_CMD_EVAL,
    PLAN_CMD_FIT,
    PLAN_CMD_IMPORT,
    PLAN_CMD_EXPORT,
    PLAN_CMD_CHECK,
    PLAN_CMD_OPTIONS,
    PLAN_CMD_VERIFY,
    PLAN_CMD_CASES,
    PLAN_CMD_COUNT
} plan_command;

typedef struct plan_args {
    const char *files[PLAN_FILES_MAX];
    int file_count;
    int json;
    const char *output;
    const char *svg, *chrome;
    /* the case and its overrides; negative numbers and NULL: not given */
    const char *case_name, *cases_path, *cluster_path, *methods, *decode, *level, *kind;
    const char *codec_paths[PLAN_CODEC_FILES_MAX];
    int codec_path_count;
    double latency_us, us_per_kib, group_mib_max;
    int64_t ranks;
    int cpu;
    int64_t comp_max;
    /* solving */
    const char *algorithm, *method;
    double time_limit_ms, gap, bucket_mib;
    int64_t label_cap, work_max, repeat;
    /* the rest */
    int count_only, histogram;
    const char *options_filter;
    const char *axis, *values;
    const char *params, *filter;
    const char *form;
    int64_t step;
    uint64_t max_size; /* of recordings after gzip */
} plan_args;

/* Returns an exit code; argp itself ends the program for --help and bad usage. */
int plan_args_parse(int argc, char **argv, plan_command command, plan_args *args);

/* Opens the library and the case that the arguments describe. */
int plan_args_case(const plan_args *args, plan_library *library, plan_case *out);

/* Limits of the label solver from the arguments; default_ms when no time limit is given. */
gw_plan_limits plan_args_limits(const plan_args *args, double default_ms);

#endif
