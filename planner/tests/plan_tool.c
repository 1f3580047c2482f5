/*
 * `gradwire plan` alone, so that its tests need nothing else of the command.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_plan.h"

int main(int argc, char **argv)
{
    argv[0] = (char *)"plan";
    return gw_cmd_plan(argc, argv);
}
