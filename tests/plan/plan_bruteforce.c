/*
 * Compares the solvers with exhaustive search on random problems.
 *
 *   plan_bruteforce [--fusion N] [--joint N] [--seed S] [--tensors-max N]
 *
 * For every instance: the exact solver's makespan equals the best of all plans, its plan evaluates to the same
 * tick, its lower bound equals it, and root bounds and baselines lie on their side. Exit status 1 on a mismatch.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    uint64_t instances, mismatches, plans;
} tally;

static unsigned char *workspace;
static size_t workspace_size;

static int report(const char *what, const random_problem *r, uint64_t index, int64_t got, int64_t want) {
    fprintf(stderr, "MISMATCH %s: instance %llu, %u tensors: got %lld, want %lld\n", what,
            (unsigned long long)index, r->problem.tensor_count, (long long)got, (long long)want);
    return 1;
}

static int check_exact(gw_plan_algorithm algorithm, const random_problem *r, const gw_plan_limits *limits,
                       uint64_t index, gw_plan_tick want) {
    gw_plan_group groups[RANDOM_TENSORS_MAX];
    gw_plan plan = {groups, RANDOM_TENSORS_MAX, 0};
    gw_plan_cert cert;
    const char *name = gw_plan_algorithm_name(algorithm);
    gw_plan_status status = gw_plan_solve(&r->problem, algorithm, 0, limits, workspace, workspace_size, &plan, &cert);
    if (status != GW_PLAN_OK) {
        return report(gw_plan_status_string(status), r, index, (int64_t)status, 0);
    }
    gw_plan_tick evaluated = -1;
    if (gw_plan_eval(&r->problem, &plan, &evaluated) != GW_PLAN_OK || evaluated != cert.makespan) {
        return report("evaluator differs from solver", r, index, evaluated, cert.makespan);
    }
    if (cert.makespan != want || !cert.proven || cert.lower_bound != want) {
        return report(name, r, index, cert.makespan, want);
    }
    return 0;
}

/* A label cap of 1 to 3 forces a gap: the certificate must still bracket the optimum. */
static int check_capped(const random_problem *r, plan_random *random, uint64_t index, gw_plan_tick want) {
    gw_plan_group groups[RANDOM_TENSORS_MAX];
    gw_plan plan = {groups, RANDOM_TENSORS_MAX, 0};
    gw_plan_cert cert;
    gw_plan_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.label_cap = (uint32_t)random_between(random, 1, 3);
    limits.gap_ppm = random_between(random, 0, 1) ? 0 : (uint32_t)random_between(random, 1, 100000);
    gw_plan_status status =
        gw_plan_solve(&r->problem, GW_PLAN_LABELS, 0, &limits, workspace, workspace_size, &plan, &cert);
    if (status != GW_PLAN_OK) {
        return report(gw_plan_status_string(status), r, index, (int64_t)status, 0);
    }
    gw_plan_tick evaluated = -1;
    (void)gw_plan_eval(&r->problem, &plan, &evaluated);
    if (evaluated != cert.makespan || cert.lower_bound > want || cert.makespan < want ||
        (cert.proven && cert.makespan != want)) {
        fprintf(stderr, "bound %lld makespan %lld evaluated %lld\n", (long long)cert.lower_bound,
                (long long)cert.makespan, (long long)evaluated);
        return report("certificate of a capped search", r, index, cert.lower_bound, want);
    }
    return 0;
}

static void run(random_shape shape, uint64_t count, uint64_t seed, uint32_t tensors_max, tally *t) {
    memset(t, 0, sizeof *t);
    for (uint64_t i = 0; i < count; i++) {
        /* Every instance has its own seed, so one of them can be replayed alone. */
        plan_random random = {seed ^ ((uint64_t)shape << 56) ^ (i * UINT64_C(0xD1342543DE82EF95))};
        random_problem r;
        uint32_t max = tensors_max;
        uint32_t n = (uint32_t)random_between(&random, 1, max);
        random_problem_make(&random, shape, n, &r);
        if (shape == SHAPE_JOINT) { /* at most 2^14 plans */
            while (n > 1) {
                double plans = r.problem.method_count;
                for (uint32_t j = 1; j < n; j++) {
                    plans *= r.problem.method_count + 1.0;
                }
                if (plans <= 16384.0) {
                    break;
                }
                n--;
            }
            r.problem.tensor_count = n;
        }
        gw_plan_group groups[RANDOM_TENSORS_MAX];
        gw_plan plan = {groups, RANDOM_TENSORS_MAX, 0};
        gw_plan_cert cert;
        gw_plan_status status =
            gw_plan_solve(&r.problem, GW_PLAN_BRUTE, 0, NULL, NULL, 0, &plan, &cert);
        if (status == GW_PLAN_ERR_WORKSPACE) {
            status = gw_plan_solve(&r.problem, GW_PLAN_BRUTE, 0, NULL, workspace, workspace_size, &plan, &cert);
        }
        if (status != GW_PLAN_OK) {
            t->mismatches += (uint64_t)report(gw_plan_status_string(status), &r, i, 0, 0);
            continue;
        }
        gw_plan_tick evaluated = -1;
        (void)gw_plan_eval(&r.problem, &plan, &evaluated);
        int bad = evaluated != cert.makespan && report("evaluator differs from brute force", &r, i, evaluated,
                                                       cert.makespan);
        if (shape == SHAPE_AFFINE) {
            bad |= check_exact(GW_PLAN_FUSE_AFFINE, &r, NULL, i, cert.makespan);
            bad |= check_exact(GW_PLAN_FUSE_AFFINE_N2, &r, NULL, i, cert.makespan);
        }
        gw_plan_limits limits;
        memset(&limits, 0, sizeof limits);
        bad |= check_exact(GW_PLAN_LABELS, &r, &limits, i, cert.makespan);
        if (i % 4 == 0) {
            bad |= check_capped(&r, &random, i, cert.makespan);
        }
        t->instances++;
        t->plans += cert.labels;
        t->mismatches += (uint64_t)bad;
    }
    printf("%-16s %10llu instances %14llu plans %6llu mismatches\n", random_shape_names[shape],
           (unsigned long long)t->instances, (unsigned long long)t->plans, (unsigned long long)t->mismatches);
    fflush(stdout);
}

int main(int argc, char **argv) {
    uint64_t fusion = 7000;
    uint64_t joint = 1000;
    uint64_t seed = 1;
    uint32_t tensors_max = 14;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--fusion") == 0) {
            fusion = value;
        } else if (strcmp(argv[i], "--joint") == 0) {
            joint = value;
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = value;
        } else if (strcmp(argv[i], "--tensors-max") == 0 && value >= 1 && value <= 20) {
            tensors_max = (uint32_t)value;
        } else {
            fprintf(stderr, "usage: %s [--fusion N] [--joint N] [--seed S] [--tensors-max 1..20]\n", argv[0]);
            return 2;
        }
    }
    workspace_size = (size_t)8 << 20;
    workspace = malloc(workspace_size);
    if (workspace == NULL) {
        return 2;
    }
    uint64_t mismatches = 0;
    tally t;
    for (int shape = SHAPE_AFFINE; shape <= SHAPE_ANY; shape++) {
        run((random_shape)shape, fusion / 7 + (shape == SHAPE_AFFINE ? fusion % 7 : 0), seed, tensors_max, &t);
        mismatches += t.mismatches;
    }
    run(SHAPE_JOINT, joint, seed, tensors_max, &t);
    mismatches += t.mismatches;
    free(workspace);
    printf("seed %llu: %llu mismatches\n", (unsigned long long)seed, (unsigned long long)mismatches);
    return mismatches == 0 ? 0 : 1;
}
