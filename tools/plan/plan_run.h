/*
 * Running a solver on a model and a case: one result type for fused plans and option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_RUN_H
#define GW_PLAN_RUN_H

#include "plan_case.h"
#include "plan_tree.h"

#define PLAN_PATH_SIZE 320

typedef struct plan_result_group {
    uint32_t first;
    uint32_t tensor_count;
    char method[PLAN_PATH_SIZE]; /* codec name, with @cpu for CPU encodes, or the option path joined by '>' */
} plan_result_group;

typedef struct plan_result {
    char algorithm[PLAN_LABEL_SIZE];
    plan_result_group *groups;
    uint32_t group_count;
    gw_plan_group *fused; /* fused plans only */
    gw_plan_job *jobs;    /* [group_count] */
    gw_plan_cert cert;
    double solve_us; /* everything behind the parsed file */
    uint32_t solves; /* solve_us is the median of so many */
} plan_result;

/* Grown on demand and kept; NULL when memory is short. */
void *plan_workspace(size_t size);

/* Algorithm names: those of gw_plan_algorithm_name(); trees: auto and bytecomp. Messages printed, exit code.
 */
int plan_run(const plan_library *library, const plan_case *c, const plan_model *model, const char *model_path,
             const char *algorithm, const char *method, const gw_plan_limits *limits, plan_result *result);

/* The same from a prepared fused plan (file, buckets): fills jobs, groups, makespan; no bound (0). */
int plan_result_from_groups(const plan_setup *setup, const gw_plan_group *groups, uint32_t group_count,
                            plan_result *result);
/* The same from t->choice. */
int plan_result_from_choices(const plan_tree *t, const plan_case *c, const plan_model *model,
                             plan_result *result);
void plan_result_free(plan_result *result);

/* Runs result->jobs at a level; spans are malloc'ed (NULL allowed). */
int plan_run_timeline(const plan_result *result, const plan_case *c, gw_plan_level level,
                      gw_plan_span **spans, size_t *span_count, gw_plan_tick *makespan);

/* (makespan - bound) / bound, 0 when both are 0, infinity for bound 0. */
double plan_gap(const gw_plan_cert *cert);

/* "name" or "name@cpu" of a setup's method; index of a name, -1 if unknown. */
void plan_method_label(const gw_plan_method *method, char *out, size_t out_size);
int plan_method_index(const plan_setup *setup, const char *label);

#endif
