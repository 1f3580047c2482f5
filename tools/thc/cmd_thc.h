/*
 * The THC subcommands: argv[0] is "gradwire NAME", the rest its options and files. Each returns an exit code
 * (cli_common.h) and prints its own messages.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CMD_THC_H
#define GW_CMD_THC_H

int gw_cmd_norm(int argc, char **argv);
int gw_cmd_table(int argc, char **argv);
int gw_cmd_thc_plan(int argc, char **argv);
int gw_cmd_aggregate(int argc, char **argv);
int gw_cmd_thc_compress(int argc, char **argv);
int gw_cmd_thc_decompress(int argc, char **argv);
int gw_cmd_thc_inspect(int argc, char **argv);

#endif
