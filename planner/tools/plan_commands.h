/*
 * The subcommands of `gradwire plan`. argv[0] is the subcommand; each returns an exit code of cli_common.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_COMMANDS_H
#define GW_PLAN_COMMANDS_H

int plan_cmd_solve(int argc, char **argv);
int plan_cmd_compare(int argc, char **argv);
int plan_cmd_explain(int argc, char **argv);
int plan_cmd_sweep(int argc, char **argv);
int plan_cmd_eval(int argc, char **argv);
int plan_cmd_fit(int argc, char **argv);
int plan_cmd_import(int argc, char **argv);
int plan_cmd_export(int argc, char **argv);
int plan_cmd_check(int argc, char **argv);
int plan_cmd_options(int argc, char **argv);
int plan_cmd_verify(int argc, char **argv);
int plan_cmd_cases(int argc, char **argv);

#endif
