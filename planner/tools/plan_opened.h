/*
 * What most subcommands start with: a case and a model, and either the methods of fused plans or the option
 * tree.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_OPENED_H
#define GW_PLAN_OPENED_H

#include "plan_model.h"
#include "plan_options.h"
#include "plan_setup.h"
#include "plan_tree.h"

typedef struct plan_opened {
    const char *path; /* of the model, or of a plan that has it */
    int is_plan;      /* it is a plan */
    plan_library library;
    plan_case c;
    plan_model model;
    plan_setup setup; /* after plan_opened_prepare(): fused plans */
    plan_tree tree;   /* after plan_opened_prepare(): cases of kind tree */
} plan_opened;

/* Opens the case of the command line and a model, or a plan file with both. Ends the process with a message
 * on failure. */
void plan_opened_open(const plan_case_args *args, const char *path, plan_opened *o);
/* Fills in the methods, or the tree with every option of every tensor. Message printed, exit code. */
int plan_opened_prepare(plan_opened *o);
void plan_opened_close(plan_opened *o);

#endif
