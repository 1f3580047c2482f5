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

/* Both end the process with a message on failure. */
void plan_output_open(plan_output *output);
void plan_output_close(plan_output *output, const char *path);

#endif
