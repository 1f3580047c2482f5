/*
 * Options that choose a case and override parts of it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_CASE_ARGS_H
#define GW_PLAN_CASE_ARGS_H

#include "plan_args.h"
#include "plan_case.h"

/* NULL and negative numbers: not given. */
typedef struct plan_case_args {
    const char *case_name, *cases_path, *cluster_path, *methods, *decode, *level, *kind;
    plan_text_list codec_paths;
    double latency_us, us_per_kib, gbit_per_s, group_mib_max, error_max;
    int64_t ranks, comp_max;
    int cpu;
} plan_case_args;

/* with_level: the subcommand runs plans at a level. */
void plan_case_args_add(plan_parser *parser, plan_case_args *args, int with_level);

/* Changes a case that a plan file has by the arguments; those that name another case are refused. Message
 * printed, exit code. */
int plan_case_args_apply(const plan_case_args *args, plan_library *library, plan_case *c);

/* Opens the library and the case that the arguments describe. Message printed, exit code. */
int plan_case_args_open(const plan_case_args *args, plan_library *library, plan_case *out);

#endif
