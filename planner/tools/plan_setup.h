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
    /* NAME, NAME@cpu, and with several algorithms NAME:ALGORITHM and NAME:ALGORITHM@cpu */
    char labels[GW_PLAN_METHODS_MAX][PLAN_LABEL_SIZE + 16];
    const char *algorithms[GW_PLAN_METHODS_MAX]; /* allreduce, allgather, a2a-ag */
    gw_plan_tensor *tensors;                     /* copy of the model's with forbidden filled in */
} plan_setup;

/* model_path: for messages. Message printed, exit code. */
int plan_setup_make(const plan_library *library, const plan_case *c, const plan_model *model,
                    const char *model_path, plan_setup *setup);
void plan_setup_free(plan_setup *setup);

/* Index of a label, -1 if unknown. */
int plan_method_index(const plan_setup *setup, const char *label);
/* The same; NULL: the last. Ends the process with a message if there is no such method. */
uint32_t plan_method_find(const plan_setup *setup, const char *label);

#endif
