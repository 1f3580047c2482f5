/*
 * gradwire plan: the planners on the command line. argv[0] is "plan". Returns an exit code of cli_common.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CMD_PLAN_H
#define GW_CMD_PLAN_H

int gw_cmd_plan(int argc, char **argv);

#endif
