/*
 * gradwire classic: the classic codecs on the command line. Each takes its part of the command line: argv[0]
 * is "gradwire NAME", the rest its options and files. Each returns an exit code (cli_common.h).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CMD_CLASSIC_H
#define GW_CMD_CLASSIC_H

/* Dispatch of `gradwire classic SUBCOMMAND`. */
int gw_cmd_classic(int argc, char **argv);

int gw_cmd_classic_compress(int argc, char **argv);
int gw_cmd_classic_decompress(int argc, char **argv);
int gw_cmd_classic_inspect(int argc, char **argv);
int gw_cmd_classic_norms(int argc, char **argv);
int gw_cmd_classic_aggregate(int argc, char **argv);

#endif
