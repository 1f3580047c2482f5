/*
 * The subcommands of `gradwire plan`; each returns an exit code of cli_common.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_COMMANDS_H
#define GW_PLAN_COMMANDS_H

#include "plan_args.h"

int plan_cmd_solve(const plan_args *args);
int plan_cmd_compare(const plan_args *args);
int plan_cmd_explain(const plan_args *args);
int plan_cmd_sweep(const plan_args *args);
int plan_cmd_eval(const plan_args *args);
int plan_cmd_fit(const plan_args *args);
int plan_cmd_import(const plan_args *args);
int plan_cmd_export(const plan_args *args);
int plan_cmd_check(const plan_args *args);
int plan_cmd_options(const plan_args *args);
int plan_cmd_verify(const plan_args *args);
int plan_cmd_cases(const plan_args *args);

#endif
