/*
 * The subcommands but those of verbs.h. Each takes its part of the command line: argv[0] is "gradwire NAME",
 * the rest its options and files. Each returns an exit code (cli_common.h) and prints its own messages.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CMD_H
#define GW_CMD_H

int gw_cmd_verify(int argc, char **argv);
int gw_cmd_rate(int argc, char **argv);
int gw_cmd_info(int argc, char **argv);

/* THC */
int gw_cmd_norm(int argc, char **argv);
int gw_cmd_table(int argc, char **argv);
int gw_cmd_thc_design(int argc, char **argv);
int gw_cmd_thc_serve(int argc, char **argv);
int gw_cmd_aggregate(int argc, char **argv);

/* classic codecs */
int gw_cmd_classic_norms(int argc, char **argv);
int gw_cmd_classic_aggregate(int argc, char **argv);

#endif
