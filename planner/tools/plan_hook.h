/*
 * Recordings of gradwire's DDP hook: a model from them, and a comparison of a plan with the run.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_HOOK_H
#define GW_PLAN_HOOK_H

#include "plan_file.h"
#include "plan_kineto.h"

/* Gradients by name, in the order of the medians of their times over the steps with `count` gradients (of
 * step number `only` of these, from 0; -1: all). Times count from the start of a step. Ends the process with
 * a message on failure. */
void plan_hook_model(const plan_kineto *trace, const char *path, size_t count, int64_t only,
                     plan_model *model);

/* Says where the plan's prediction and the recorded steps differ, for each bucket and for the step. Message
 * printed, exit code. */
int plan_hook_check(const plan_file *plan, const plan_kineto *trace, const char *path, int json);

#endif
