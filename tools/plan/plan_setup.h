/*
 * Fused planning problems: a model with the methods of a case.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_SETUP_H
#define GW_PLAN_SETUP_H

#include "plan_case.h"

typedef struct plan_setup {
    gw_plan_problem problem;
    gw_plan_method methods[GW_PLAN_METHODS_MAX];
    gw_plan_tensor *tensors; /* copy of the model's with forbidden filled in */
} plan_setup;

/* model_path: for messages. Message printed, exit code. */
int plan_setup_make(const plan_library *library, const plan_case *c, const plan_model *model,
                    const char *model_path, plan_setup *setup);
void plan_setup_free(plan_setup *setup);

/* "name" or "name@cpu" of a method; index of such a label, -1 if unknown. */
void plan_method_label(const gw_plan_method *method, char *out, size_t out_size);
int plan_method_index(const plan_setup *setup, const char *label);

#endif
