/*
 * Models: gradients in backprop order with sizes and times. CSV files of models.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_MODEL_H
#define GW_PLAN_MODEL_H

#include "gradwire/plan.h"

#define PLAN_NAME_MAX 1024

typedef struct plan_model {
    gw_plan_tensor *tensors; /* names are owned; forbidden is 1 for tensors that must stay dense, else 0 */
    uint32_t count;
    int timed; /* 0: the file has no backprop times */
} plan_model;

/* All functions print their message and return an exit code of cli_common.h; on failure the model is empty.
 */

/* CSV with a header line; columns name, elems and one of bwd_us, gap_us (none: timed = 0), optionally flags
 * ("dense": never compress). Other columns are ignored. */
int plan_model_read_csv(const char *path, plan_model *model);

/* Ends a reader: refuses an empty model and duplicate names, frees the model on failure. Returns result or
 * what was found. */
int plan_model_finish(const char *path, plan_model *model, int result);

/* Ends the process with a message on failure. */
void plan_model_write_csv(const plan_model *model, const char *path);
void plan_model_free(plan_model *model);

/* Appends a tensor with a copy of the name. */
void plan_model_add(plan_model *model, const char *name, int64_t len, gw_plan_tick bwd, uint32_t forbidden);

/* Elements of `count` tensors from `first` on. */
int64_t plan_model_len(const plan_model *model, uint32_t first, uint32_t count);

/* Microseconds to ticks, to nearest. 0 when the value is NaN, negative or too long. */
int plan_ticks_from_us(double us, gw_plan_tick *ticks);
double plan_us(gw_plan_tick ticks);

#endif
