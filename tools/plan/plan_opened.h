/*
 * What eval, verify, explain and export start with: the case, the model, and either the methods of fused
 * plans or the option tree; and groups or options read from a plan file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_OPENED_H
#define GW_PLAN_OPENED_H

#include "plan_commands.h"
#include "plan_file.h"
#include "plan_tree.h"

typedef struct plan_opened {
    plan_library library;
    plan_case c;
    plan_model model;
    plan_setup setup; /* fused plans */
    plan_tree tree;   /* cases of kind tree, all options that no other beats if reduce was set */
} plan_opened;

/* Opens what the command line names. Messages printed, exit code; on failure nothing needs to be closed. */
int plan_opened_open(const plan_args *args, int reduce, plan_opened *o);
void plan_opened_close(plan_opened *o);

/* A fused plan from the plan file args->files[1] or, without one, from buckets of --bucket-mib; groups is
 * malloc'ed. *claimed_us is the makespan that the file states, NAN if none. */
int plan_opened_groups(const plan_args *args, plan_opened *o, gw_plan_group **groups, uint32_t *count,
                       double *claimed_us);

/* An option-tree plan from the plan file args->files[1], into o->tree.choice. */
int plan_opened_choices(const plan_args *args, plan_opened *o, double *claimed_us);

#endif
