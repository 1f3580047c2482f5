/*
 * One parameter update of each optimizer in double, with PyTorch's semantics: the reference for the effect of
 * compression on parameters.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_OPTIMIZER_UPDATE_H
#define GW_OPTIMIZER_UPDATE_H

#include "gradwire/gcomp.h"

/* Factors that are the same for all parameters. */
typedef struct gw_optimizer_update {
    gw_optimizer optimizer;
    double step_size;    /* lr, ADAM lr / (1 - beta1^t), ADAGRAD lr / (1 + (t - 1) * lr_decay) */
    double second_scale; /* ADAM: 1 / (1 - beta2^t) */
} gw_optimizer_update;

void gw_optimizer_update_init(gw_optimizer_update *update, const gw_optimizer *optimizer);

/* theta after the update of parameter `index` with the given gradient. */
double gw_optimizer_update_param(const gw_optimizer_update *update, const gw_optimizer_state *state,
                                 uint64_t index, double gradient);

#endif
