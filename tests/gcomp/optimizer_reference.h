/*
 * torch.optim's single-tensor updates in long double, kept linear in the gradient: what an update subtracts
 * is an affine function of g once the denominator is known, so the constant part gives num and the slope
 * gives lr * c of docs/numerics.md section 2. Written from PyTorch's documentation of each optimizer, not
 * from src/gcomp/gcomp_map.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_OPTIMIZER_REFERENCE_H
#define GW_OPTIMIZER_REFERENCE_H

#include <math.h>

#include "gradwire/gcomp.h"

/* constant + slope * g */
typedef struct affine {
    long double constant, slope;
} affine;

/* One parameter's state before the update. has_m = 0: no momentum buffer yet. */
typedef struct param_state {
    long double theta, m, v, a;
    int has_m;
} param_state;

/* theta after the update with the gradient g, as num + (slope * g) with the denominator that g gives. If
 * `bound` is not 0 the second moment takes its smallest value over all gradients instead. */
static inline affine optimizer_update(const gw_optimizer *o, const param_state *s, long double g, int bound)
{
    const long double lr = o->lr, wd = o->weight_decay;
    const long double direction = o->maximize ? -1.0L : 1.0L;
    affine theta = {s->theta, 0.0L};
    affine gradient = {0.0L, direction};
    if (o->kind == GW_OPTIMIZER_ADAMW) {
        theta.constant *= 1.0L - lr * wd;
    } else {
        gradient.constant += wd * s->theta;
    }
    const long double value = gradient.constant + gradient.slope * g;
    switch (o->kind) {
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV: {
        affine buffer = gradient;
        if (s->has_m && o->momentum != 0.0) {
            const long double fresh =
                1.0L - (o->kind == GW_OPTIMIZER_NESTEROV ? 0.0L : (long double)o->dampening);
            buffer.constant = o->momentum * s->m + fresh * gradient.constant;
            buffer.slope = fresh * gradient.slope;
        }
        if (o->kind == GW_OPTIMIZER_NESTEROV) {
            gradient.constant += o->momentum * buffer.constant;
            gradient.slope += o->momentum * buffer.slope;
        } else {
            gradient = buffer;
        }
        theta.constant -= lr * gradient.constant;
        theta.slope -= lr * gradient.slope;
        break;
    }
    case GW_OPTIMIZER_ADAGRAD: {
        const long double rate = lr / (1.0L + ((long double)o->step - 1.0L) * o->lr_decay);
        const long double sum = s->v + (bound ? 0.0L : value * value);
        const long double scale = rate / (sqrtl(sum) + o->eps);
        theta.constant -= scale * gradient.constant;
        theta.slope -= scale * gradient.slope;
        break;
    }
    case GW_OPTIMIZER_RMSPROP: {
        const long double alpha = o->alpha;
        long double second = alpha * s->v + (bound ? 0.0L : (1.0L - alpha) * value * value);
        if (o->centered) {
            const long double mean = alpha * s->a + (1.0L - alpha) * value;
            second = bound ? alpha * (s->v - s->a * s->a) : second - mean * mean;
        }
        const long double scale = 1.0L / (sqrtl(second > 0.0L ? second : 0.0L) + o->eps);
        affine step = {scale * gradient.constant, scale * gradient.slope};
        if (o->momentum > 0.0) {
            step.constant += o->momentum * s->m;
        }
        theta.constant -= lr * step.constant;
        theta.slope -= lr * step.slope;
        break;
    }
    case GW_OPTIMIZER_ADAM:
    case GW_OPTIMIZER_ADAMW: {
        const long double beta1 = o->beta1, beta2 = o->beta2;
        const affine first = {beta1 * s->m + (1.0L - beta1) * gradient.constant,
                              (1.0L - beta1) * gradient.slope};
        long double second = beta2 * s->v + (bound ? 0.0L : (1.0L - beta2) * value * value);
        if (o->amsgrad && s->a > second) {
            second = s->a;
        }
        const long double correction1 = 1.0L - powl(beta1, (long double)o->step);
        const long double correction2 = 1.0L - powl(beta2, (long double)o->step);
        const long double scale = lr / correction1 / (sqrtl(second / correction2) + o->eps);
        theta.constant -= scale * first.constant;
        theta.slope -= scale * first.slope;
        break;
    }
    default:
        theta.constant -= lr * gradient.constant;
        theta.slope -= lr * gradient.slope;
        break;
    }
    return theta;
}

/* theta after the update. */
static inline long double optimizer_apply(const gw_optimizer *o, const param_state *s, long double g)
{
    const affine theta = optimizer_update(o, s, g, 0);
    return theta.constant + theta.slope * g;
}

/* |num / (lr * c)|, the largest gradient step that the parameter still feels. */
static inline long double optimizer_ratio(const gw_optimizer *o, const param_state *s, long double g,
                                          int bound)
{
    const affine theta = optimizer_update(o, s, g, bound);
    return fabsl(theta.constant / theta.slope);
}

#endif
