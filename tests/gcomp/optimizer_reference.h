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

static inline void subtract(affine *theta, long double factor, affine term)
{
    theta->constant -= factor * term.constant;
    theta->slope -= factor * term.slope;
}

/* The average of the gradients after the update. */
static inline affine first_moment(const gw_optimizer *o, const param_state *s, affine gradient)
{
    const long double beta1 = o->beta1;
    const affine first = {beta1 * s->m + (1.0L - beta1) * gradient.constant, (1.0L - beta1) * gradient.slope};
    return first;
}

static inline affine nadam_update(const gw_optimizer *o, const param_state *s, affine theta, affine gradient,
                                  long double second)
{
    const long double step = (long double)o->step, decay = o->momentum_decay;
    const long double mu = o->beta1 * (1.0L - 0.5L * powl(0.96L, step * decay));
    const long double next = o->beta1 * (1.0L - 0.5L * powl(0.96L, (step + 1.0L) * decay));
    const long double product = o->mu_product * mu;
    const long double scale = o->lr / (sqrtl(second / (1.0L - powl(o->beta2, step))) + o->eps);
    subtract(&theta, scale * (1.0L - mu) / (1.0L - product), gradient);
    subtract(&theta, scale * next / (1.0L - product * next), first_moment(o, s, gradient));
    return theta;
}

/* The update has a second moment where this is above 5. */
static inline long double radam_rho(const gw_optimizer *o)
{
    const long double step = (long double)o->step, beta2 = o->beta2;
    return 2.0L / (1.0L - beta2) - 1.0L - 2.0L * step * powl(beta2, step) / (1.0L - powl(beta2, step));
}

static inline affine radam_update(const gw_optimizer *o, const param_state *s, affine theta, affine gradient,
                                  long double second)
{
    const long double step = (long double)o->step, beta2 = o->beta2;
    const long double correction2 = 1.0L - powl(beta2, step);
    const long double rho_inf = 2.0L / (1.0L - beta2) - 1.0L, rho = radam_rho(o);
    long double scale = o->lr / (1.0L - powl(o->beta1, step));
    if (rho > 5.0L) {
        scale *= sqrtl((rho - 4.0L) * (rho - 2.0L) * rho_inf / ((rho_inf - 4.0L) * (rho_inf - 2.0L) * rho)) *
                 sqrtl(correction2) / (sqrtl(second) + o->eps);
    }
    subtract(&theta, scale, first_moment(o, s, gradient));
    return theta;
}

/* theta after the update with the gradient g, as num + (slope * g) with the denominator that g gives. If
 * `bound` is not 0 the second moment takes its smallest value over all gradients instead. */
static inline affine optimizer_update(const gw_optimizer *o, const param_state *s, long double g, int bound)
{
    const long double lr = o->lr, wd = o->weight_decay;
    const long double direction = o->maximize ? -1.0L : 1.0L;
    affine theta = {s->theta, 0.0L};
    affine gradient = {0.0L, direction};
    if (o->kind == GW_OPTIMIZER_ADAMW ||
        ((o->kind == GW_OPTIMIZER_NADAM || o->kind == GW_OPTIMIZER_RADAM) && o->decoupled_weight_decay)) {
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
    case GW_OPTIMIZER_NADAM:
    case GW_OPTIMIZER_RADAM: {
        const long double beta2 = o->beta2;
        const long double second = beta2 * s->v + (bound ? 0.0L : (1.0L - beta2) * value * value);
        return o->kind == GW_OPTIMIZER_NADAM ? nadam_update(o, s, theta, gradient, second)
                                             : radam_update(o, s, theta, gradient, second);
    }
    case GW_OPTIMIZER_ADAMAX: {
        const long double least = (long double)o->beta2 * s->v;
        const long double largest = bound ? least : fmaxl(least, fabsl(value) + o->eps);
        const long double correction = 1.0L - powl(o->beta1, (long double)o->step);
        subtract(&theta, lr / correction / largest, first_moment(o, s, gradient));
        break;
    }
    case GW_OPTIMIZER_ADADELTA: {
        const long double rho = o->alpha;
        const long double second = rho * s->v + (bound ? 0.0L : (1.0L - rho) * value * value);
        subtract(&theta, lr * sqrtl(s->a + o->eps) / sqrtl(second + o->eps), gradient);
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
