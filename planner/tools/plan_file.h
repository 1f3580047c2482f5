/*
 * Plan files: JSON with the schema "gradwire-plan/1".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_FILE_H
#define GW_PLAN_FILE_H

#include <math.h>

#include "plan_run.h"

#define PLAN_FILE_SCHEMA    "gradwire-plan/1"
#define PLAN_BUCKETS_SCHEMA "gradwire-buckets/1" /* what plan export writes */

/* o: the case and the model of the result. */
json_t *plan_file_json(const plan_result *result, const plan_opened *o);
void plan_file_write(const plan_result *result, const plan_opened *o, const char *path);

/* Of a message that is sent by an option of a tree: the option's path and, where that encodes, codec and
 * options of the codec. */
void plan_file_set_option(json_t *entry, const char *path, const plan_library *library, const char *codec);

/* What a file says of its plan. */
typedef struct plan_claims {
    double makespan_us;                       /* NAN: nothing */
    gw_plan_tick makespan_ticks, bound_ticks; /* -1: nothing */
} plan_claims;

#define PLAN_CLAIMS_NONE ((plan_claims){NAN, -1, -1})

typedef struct plan_file {
    const char *path;
    json_t *root;
    json_t *groups; /* array, borrowed */
    plan_claims claims;
    uint64_t hash;
    uint32_t tensor_count;
    char kind[PLAN_LABEL_SIZE];
} plan_file;

/* Whether the file is JSON with the schema of plans. Quiet. */
int plan_file_is(const char *path);

int plan_file_read(const char *path, plan_file *file);
void plan_file_close(plan_file *file);

/* Fills library, case and model of *o with the problem of a file. Message printed, exit code; on failure
 * nothing needs to be closed. */
int plan_file_problem(const plan_file *file, plan_opened *o);

/* The plan of a file, checked against o, which was prepared: counts, names, methods. plan->groups is
 * malloc'ed; of option trees the options go into o->tree.choice, and *plan is empty. */
int plan_file_groups(const plan_file *file, plan_opened *o, gw_plan *plan);

/* Reads a plan file like that. Notes when it was made for another model. claims: may be NULL. Ends the
 * process with a message on failure. */
void plan_file_load(const char *path, plan_opened *o, gw_plan *plan, plan_claims *claims);

#endif
