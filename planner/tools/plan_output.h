/*
 * Text outputs of the planner that appear complete or not at all: collected in memory, then written under a
 * temporary name and renamed (atomic_file.h). "-" is standard output.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_OUTPUT_H
#define GW_PLAN_OUTPUT_H

#include <stdio.h>

typedef struct plan_output {
    FILE *text; /* write here */
    char *data;
    size_t size;
} plan_output;

/* Both return an exit code and print their messages. plan_output_close() writes nothing to path unless code,
 * the result of what was done in between, is GW_CLI_OK; it returns the first failure. */
int plan_output_open(plan_output *output);
int plan_output_close(plan_output *output, const char *path, int code);

#endif
