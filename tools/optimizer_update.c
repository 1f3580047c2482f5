/*
 * torch.optim's single-tensor updates, written out for one parameter.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "optimizer_update.h"

#include <math.h>

void gw_optimizer_update_init(gw_optimizer_update *update, const gw_optimizer *optimizer)
{
    const double step = (double)optimizer->step;
    update->optimizer = *optimizer;
    update->step_size = optimizer->lr;
    update->second_scale = 1;
    if (optimizer->kind == GW_OPTIMIZER_ADAM || optimizer->kind == GW_OPTIMIZER_ADAMW) {
        update->step_size = optimizer->lr / (1 - pow(optimizer->beta1, step));
        update->second_scale = 1 / (1 - pow(optimizer->beta2, step));
    } else if (optimizer->kind == GW_OPTIMIZER_ADAGRAD) {
        update->step_size = optimizer->lr / (1 + (step - 1) * optimizer->lr_decay);
    }
}

static double update_momentum(const gw_optimizer *optimizer, const gw_optimizer_state *state, uint64_t index,
                              double gradient)
{
    /* Without a buffer (first update) PyTorch uses the gradient and skips the dampening. */
    const double buffer = state->m == NULL ? gradient
                                           : optimizer->momentum * (double)state->m[index] +
                                                 (1 - optimizer->dampening) * gradient;
    return optimizer->kind == GW_OPTIMIZER_NESTEROV ? gradient + optimizer->momentum * buffer : buffer;
}

static double update_rmsprop(const gw_optimizer *optimizer, const gw_optimizer_state *state, uint64_t index,
                             double gradient)
{
    const double alpha = optimizer->alpha;
    double second = alpha * (double)state->v[index] + (1 - alpha) * gradient * gradient;
    if (optimizer->centered) {
        const double mean = alpha * (double)state->a[index] + (1 - alpha) * gradient;
        second -= mean * mean;
    }
    const double scaled = gradient / (sqrt(second > 0 ? second : 0) + optimizer->eps);
    return optimizer->momentum > 0 ? optimizer->momentum * (double)state->m[index] + scaled : scaled;
}

static double update_adam(const gw_optimizer_update *update, const gw_optimizer_state *state, uint64_t index,
                          double gradient)
{
    const gw_optimizer *optimizer = &update->optimizer;
    const double first = optimizer->beta1 * (double)state->m[index] + (1 - optimizer->beta1) * gradient;
    double second = optimizer->beta2 * (double)state->v[index] + (1 - optimizer->beta2) * gradient * gradient;
    if (optimizer->amsgrad && (double)state->a[index] > second) {
        second = (double)state->a[index];
    }
    return first / (sqrt(second * update->second_scale) + optimizer->eps);
}

double gw_optimizer_update_param(const gw_optimizer_update *update, const gw_optimizer_state *state,
                                 uint64_t index, double gradient)
{
    const gw_optimizer *optimizer = &update->optimizer;
    double param = (double)state->param[index];
    if (optimizer->maximize) {
        gradient = -gradient;
    }
    if (optimizer->kind == GW_OPTIMIZER_ADAMW) {
        param -= optimizer->lr * optimizer->weight_decay * param;
    } else {
        gradient += optimizer->weight_decay * param;
    }
    double direction = gradient;
    switch (optimizer->kind) {
    case GW_OPTIMIZER_SGD:
        break;
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV:
        direction = update_momentum(optimizer, state, index, gradient);
        break;
    case GW_OPTIMIZER_ADAGRAD:
        direction = gradient / (sqrt((double)state->v[index] + gradient * gradient) + optimizer->eps);
        break;
    case GW_OPTIMIZER_RMSPROP:
        direction = update_rmsprop(optimizer, state, index, gradient);
        break;
    case GW_OPTIMIZER_ADAM:
    case GW_OPTIMIZER_ADAMW:
        direction = update_adam(update, state, index, gradient);
        break;
    default: /* snapshots have no other (snapshot.c) */
        break;
    }
    return param - update->step_size * direction;
}
