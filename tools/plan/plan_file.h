/*
 * Plan files: JSON with the schema "gradwire-plan/1".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_FILE_H
#define GW_PLAN_FILE_H

#include "plan_run.h"

#define PLAN_FILE_SCHEMA "gradwire-plan/1"

/* 64-bit FNV-1a over names and sizes: says whether plan and model belong together. */
uint64_t plan_problem_hash(const plan_model *model);

json_t *plan_file_json(const plan_result *result, const plan_case *c, const plan_model *model,
                       const char *model_path);
int plan_file_write(const plan_result *result, const plan_case *c, const plan_model *model,
                    const char *model_path, const char *path);

typedef struct plan_file {
    json_t *root;
    json_t *groups; /* array, borrowed */
    double makespan_us;
    uint64_t hash;
    uint32_t tensor_count;
    char kind[PLAN_LABEL_SIZE];
} plan_file;

int plan_file_read(const char *path, plan_file *file);
void plan_file_close(plan_file *file);

/* Groups of a fused plan file for a setup; checks counts, names and methods against the model. *groups is
 * malloc'ed. */
int plan_file_groups(const char *path, const plan_file *file, const plan_setup *setup,
                     const plan_model *model, gw_plan_group **groups, uint32_t *group_count);

/* Options of an option-tree plan file into tree->choice; same checks. */
int plan_file_choices(const char *path, const plan_file *file, const plan_model *model, plan_tree *tree);

/* Writes JSON to a file ("-": stdout), releases it. */
int plan_json_write(json_t *object, const char *path);

#endif
