/*
 * Running a solver on a model and a case: one result type for fused plans and option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_RUN_H
#define GW_PLAN_RUN_H

#include "plan_opened.h"

typedef struct plan_result_group {
    uint32_t first;
    uint32_t tensor_count;
    char method[PLAN_PATH_SIZE]; /* codec name, with @cpu for CPU encodes, or the option path joined by '>' */
    /* Fused plans only; codec empty otherwise */
    char codec[PLAN_LABEL_SIZE];
    const char *algorithm; /* of plan_setup */
    int on_cpu;
} plan_result_group;

typedef struct plan_result {
    char algorithm[PLAN_LABEL_SIZE];
    plan_result_group *groups;
    uint32_t group_count;
    gw_plan_group *fused; /* fused plans only */
    gw_plan_job *jobs;    /* [group_count] */
    gw_plan_cert cert;
    char tree_codec[PLAN_LABEL_SIZE]; /* trees only: what their options compress with */
    double error_mean;                /* fused plans: of the codecs' errors, over all values */
    double solve_us;                  /* from the parsed file to the result */
    uint32_t solves;                  /* solve_us is the median of so many */
} plan_result;

/* All of these end the process with a message on failure. */

/* algorithm: NULL for auto, a name of gw_plan_algorithm_name(), or for trees auto or bytecomp. method: of
 * baselines; NULL for the last. */
void plan_run(const plan_opened *o, const char *algorithm, const char *method, const gw_plan_limits *limits,
              plan_result *result);
void plan_result_free(plan_result *result);

/* The result of a plan that exists, for trees of o->tree.choice: fills jobs, groups, makespan; no bound (0).
 * o was prepared. */
void plan_result_make(const plan_opened *o, const gw_plan *plan, plan_result *result);

/* Fuses the groups of o->tree if the case does. */
void plan_run_fuse(plan_opened *o, const gw_plan_limits *limits);

/* Solves a tree of the groups of o->tree with its undominated options, which are left in *reduced, to be
 * freed, and makes the same choices in o->tree, which has every option. */
void plan_run_tree(plan_opened *o, const gw_plan_limits *limits, plan_tree *reduced, gw_plan_cert *cert);

/* Runs result->jobs at a level; returns the makespan. spans may be NULL; otherwise its items are malloc'ed.
 */
gw_plan_tick plan_run_timeline(const plan_result *result, const plan_case *c, gw_plan_level level,
                               gw_plan_spans *spans);

/* (makespan - bound) / bound, 0 when both are 0, infinity for bound 0. */
double plan_gap(const gw_plan_cert *cert);

#endif
