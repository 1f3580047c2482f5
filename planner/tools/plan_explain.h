/*
 * plan explain, for fused plans and for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_EXPLAIN_H
#define GW_PLAN_EXPLAIN_H

#include "plan_run.h"

typedef struct plan_explain_args {
    plan_parser parser;
    plan_case_args case_args;
    plan_limit_args limit_args;
    const char *algorithm;
} plan_explain_args;

/* Solve and print. o was prepared. Message printed, exit code. */
int plan_explain_fused(const plan_explain_args *args, plan_opened *o);
int plan_explain_tree(const plan_explain_args *args, plan_opened *o);

#endif
