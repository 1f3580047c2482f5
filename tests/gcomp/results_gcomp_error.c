/*
 * Prints docs/results/gcomp-error.md: what one encode and decode does to the parameters after the update.
 *
 *   results_gcomp_error SNAPSHOT.json...
 *
 * Every snapshot is taken as plain SGD first, where the bound |theta(decoded) - theta(exact)| <= 2^-22
 * |theta| is asserted for every value (exit status 1 if it is broken), then as the six other optimizers.
 * State that the snapshot has is used; other state is made from what there is:
 *
 *   momentum buffer   the snapshot's, or exp_avg * 10 (a buffer with momentum 0.9 sums ten times the average)
 *   exp_avg           the snapshot's, or momentum_buffer / 10
 *   second moments    exp_avg_sq * (1 - 0.999^step) of the snapshot; else 0.5 g^2 + 0.5 exp_avg^2 + 1e-14
 *   sum (AdaGrad)     step * that; grad_avg (centered) 0.5 exp_avg
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>

#include "optimizer_reference.h"
#include "results_snapshot.h"

typedef struct made_state {
    float *m, *v, *a;
} made_state;

typedef struct deviation {
    double worst, mean; /* of |theta(decoded) - theta(exact)| / |theta(exact)| */
} deviation;

static double log2_of(double x)
{
    return x > 0 ? log2(x) : -1e9;
}

static void print_deviation(const deviation *d)
{
    if (d->worst > 0) {
        printf(" 2^%.2f | 2^%.2f |", log2_of(d->worst), log2_of(d->mean));
    } else {
        printf(" 0 | 0 |");
    }
}

static deviation deviation_of(const gw_optimizer *o, const gw_optimizer_state *state, const float *exact,
                              const float *decoded, uint64_t len)
{
    deviation d = {0.0, 0.0};
    uint64_t counted = 0;
    for (uint64_t i = 0; i < len; i++) {
        const param_state s = {(long double)state->param[i],
                               state->m == NULL ? 0.0L : (long double)state->m[i],
                               state->v == NULL ? 0.0L : (long double)state->v[i],
                               state->a == NULL ? 0.0L : (long double)state->a[i], state->m != NULL};
        const long double want = optimizer_apply(o, &s, (long double)exact[i]);
        const long double got = optimizer_apply(o, &s, (long double)decoded[i]);
        if (want != 0.0L) {
            const double relative = (double)(fabsl(got - want) / fabsl(want));
            d.worst = relative > d.worst ? relative : d.worst;
            d.mean += relative;
            counted++;
        }
    }
    d.mean = counted == 0 ? 0.0 : d.mean / (double)counted;
    return d;
}

/* Clears the 18 low bits of every value, special values included. */
static void truncate_18(float *out, const float *in, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], 4);
        bits &= ~0x3ffffu;
        memcpy(&out[i], &bits, 4);
    }
}

static int round_trip(float *out, const gw_gcomp_options *options, const gw_optimizer *o,
                      const gw_optimizer_state *state, const float *g, uint64_t len, double *bits)
{
    frame_run run;
    if (!frame_run_make(&run, options, o, state, g, len)) {
        return 0;
    }
    *bits = 8.0 * (double)run.frame.size / (double)len;
    gw_gcomp_target target = {.values = out, .capacity = len};
    const int ok =
        gw_gcomp_decode(&run.codec,
                        &(gw_gcomp_frame){.data = run.frame.data, .size = run.frame.size, .map = &run.map},
                        &target, &run.workspace) == GW_OK;
    frame_run_free(&run);
    return ok;
}

static const char *const rounding_names[3] = {"truncate", "nearest", "stochastic"};

/* The bound of the issue, for every value: |theta(decoded) - theta(exact)| <= 2^-22 |theta|, theta before the
 * update. */
static int sgd_rows(const char *name, const gw_snapshot *s, float *decoded)
{
    const float *g = (const float *)s->array[GW_SNAPSHOT_GRAD].values;
    gw_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = GW_OPTIMIZER_SGD;
    o.step = s->optimizer.step;
    o.lr = s->optimizer.lr;
    o.weight_decay = s->optimizer.weight_decay;
    const gw_optimizer_state state = {s->state.param, NULL, NULL, NULL};
    int within = 1;
    for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
        for (int rounding = 0; rounding < 3; rounding++) {
            gw_gcomp_options options;
            gw_gcomp_options_init(&options, GW_FP32);
            options.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
            options.rounding = (gw_gcomp_rounding)rounding;
            double bits;
            if (!round_trip(decoded, &options, &o, &state, g, s->len, &bits)) {
                return 0;
            }
            double worst = 0.0, sum = 0.0;
            uint64_t broken = 0, counted = 0, of_zero = 0;
            for (uint64_t i = 0; i < s->len; i++) {
                const double theta = fabs((double)s->state.param[i]);
                /* theta' = theta (1 - lr wd) - lr g: what differs is lr times the difference of the
                 * gradients. */
                const double error = o.lr * fabs((double)decoded[i] - (double)g[i]);
                broken += error > 0x1p-22 * theta;
                if (theta == 0.0) {
                    of_zero += error != 0.0;
                    continue;
                }
                worst = error / theta > worst ? error / theta : worst;
                sum += error / theta;
                counted++;
            }
            printf("| %s | %s | %s | %.2f | 2^%.2f | 2^%.2f | %llu |\n", name,
                   quantum_mode ? "derived 1" : "explicit", rounding_names[rounding], bits, log2_of(worst),
                   log2_of(sum / (double)counted), (unsigned long long)broken);
            within = within && broken == 0 && of_zero == 0;
        }
    }
    return within;
}

static int make_state(made_state *made, const gw_snapshot *s)
{
    const float *g = (const float *)s->array[GW_SNAPSHOT_GRAD].values;
    const int adam = s->optimizer.kind == GW_OPTIMIZER_ADAM || s->optimizer.kind == GW_OPTIMIZER_ADAMW;
    made->m = malloc((size_t)s->len * sizeof(float));
    made->v = malloc((size_t)s->len * sizeof(float));
    made->a = malloc((size_t)s->len * sizeof(float));
    if (made->m == NULL || made->v == NULL || made->a == NULL) {
        return 0;
    }
    for (uint64_t i = 0; i < s->len; i++) {
        const double average = s->state.m == NULL ? 0.0
                               : adam             ? (double)s->state.m[i]
                                                  : (double)s->state.m[i] / 10.0;
        made->m[i] = (float)average;
        made->v[i] = adam ? s->state.v[i]
                          : (float)(0.5 * (double)g[i] * (double)g[i] + 0.5 * average * average + 1e-14);
        made->a[i] = (float)(0.5 * average);
    }
    return 1;
}

static int other_rows(const char *name, const gw_snapshot *s, float *decoded)
{
    const float *g = (const float *)s->array[GW_SNAPSHOT_GRAD].values;
    made_state average;
    memset(&average, 0, sizeof average);
    float *m = malloc((size_t)s->len * sizeof *m), *v = malloc((size_t)s->len * sizeof *v);
    int ok = m != NULL && v != NULL && make_state(&average, s);
    for (int kind = GW_OPTIMIZER_MOMENTUM; ok && kind <= GW_OPTIMIZER_ADAMW; kind++) {
        gw_optimizer o;
        memset(&o, 0, sizeof o);
        o.kind = (gw_optimizer_kind)kind;
        o.step = s->optimizer.step;
        o.weight_decay = s->optimizer.weight_decay;
        o.momentum = kind == GW_OPTIMIZER_MOMENTUM || kind == GW_OPTIMIZER_NESTEROV ? 0.9 : 0.0;
        o.beta1 = 0.9;
        o.beta2 = 0.999;
        o.alpha = 0.99;
        o.eps = 1e-8;
        o.centered = kind == GW_OPTIMIZER_RMSPROP;
        /* A rate that is usual for the kind: the snapshot's if it is of this family. */
        const int is_adaptive = kind >= GW_OPTIMIZER_ADAGRAD;
        const int was_adaptive = s->optimizer.kind >= GW_OPTIMIZER_ADAGRAD;
        o.lr = is_adaptive == was_adaptive ? s->optimizer.lr : is_adaptive ? 1e-3 : 0.05;
        for (uint64_t i = 0; i < s->len; i++) {
            m[i] = is_adaptive ? average.m[i] : 10.0f * average.m[i];
            v[i] = kind == GW_OPTIMIZER_ADAGRAD ? (float)o.step * average.v[i] : average.v[i];
        }
        const gw_optimizer_state state = {s->state.param, m, v, average.a};
        truncate_18(decoded, g, s->len);
        const deviation plain = deviation_of(&o, &state, g, decoded, s->len);
        for (int quantum_mode = 0; ok && quantum_mode < 2; quantum_mode++) {
            for (int rounding = 0; ok && rounding < 3; rounding++) {
                gw_gcomp_options options;
                gw_gcomp_options_init(&options, GW_FP32);
                options.quantum_mode = (gw_gcomp_quantum_mode)quantum_mode;
                options.rounding = (gw_gcomp_rounding)rounding;
                double bits;
                ok = round_trip(decoded, &options, &o, &state, g, s->len, &bits);
                if (ok) {
                    const deviation d = deviation_of(&o, &state, g, decoded, s->len);
                    printf("| %s | %s | %s | %s | %.2f |", name, gw_optimizer_name(o.kind),
                           quantum_mode ? "derived 1" : "explicit", rounding_names[rounding], bits);
                    print_deviation(&d);
                    print_deviation(&plain);
                    printf("\n");
                }
            }
        }
    }
    free(m);
    free(v);
    free(average.m);
    free(average.v);
    free(average.a);
    return ok;
}

static int each_snapshot(int argc, char **argv, int (*rows)(const char *, const gw_snapshot *, float *))
{
    for (int i = 1; i < argc; i++) {
        gw_snapshot snapshot;
        char name[256];
        if (!snapshot_open(&snapshot, argv[i])) {
            return 0;
        }
        float *decoded = malloc((size_t)snapshot.len * sizeof *decoded);
        const int ok = decoded != NULL && rows(snapshot_name(argv[i], name, sizeof name), &snapshot, decoded);
        free(decoded);
        gw_snapshot_close(&snapshot);
        if (!ok) {
            fprintf(stderr, "results_gcomp_error: %s failed\n", argv[i]);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    printf(
        "# GCOMP: what one encode does to the parameters\n\nMade by `bench/gcomp/results_gcomp`; computed in "
        "double and long double.\n\n"
        "## As plain SGD\n\nEach snapshot's gradient and parameters with its learning rate and weight "
        "decay. *worst* and *mean* are of\n"
        "|theta(decoded) - theta(exact)| / |theta|, theta before the update; *above* counts the values "
        "above 2^-22 (the program\n"
        "fails if there is one) or, where theta = 0, with any difference.\n\n"
        "| snapshot | quanta | rounding | bits a value | worst | mean | above "
        "|\n|---|---|---|---|---|---|---|\n");
    if (argc < 2 || !each_snapshot(argc, argv, sgd_rows)) {
        return 1;
    }
    printf("\n## The six other optimizers\n\nRelative to |theta(exact)| after the update. Their updates feel "
           "the gradient through the second moment and through\n"
           "cancellation between theta and the step, which no bound covers, so these numbers are measured, "
           "not promised. Beside them:\n"
           "18 bits cut off every value. State that a snapshot does not have was made from what it has, as "
           "the comment at the head\n"
           "of tests/gcomp/results_gcomp_error.c says.\n\n"
           "| snapshot | optimizer | quanta | rounding | bits a value | worst | mean | 18 bits: worst | 18 "
           "bits: mean |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    return each_snapshot(argc, argv, other_rows) ? 0 : 1;
}
