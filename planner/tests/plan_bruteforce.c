/*
 * Compares the solvers with exhaustive search on random problems.
 *
 *   plan_bruteforce [--fusion N] [--joint N] [--tree N] [--tree-full N] [--seed S] [--tensors-max N]
 *
 * For every instance: the exact solver's makespan equals the best of all plans, its plan evaluates to the
 * same tick, its lower bound equals it, and root bounds and baselines are on the right side of it. Plans of
 * the solver and of brute force are evaluated once more by own_makespan() below, which shares no code with
 * the library. Exit status 1 on a mismatch.
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

static gw_workspace workspace;

static int report(const char *what, const random_problem *r, uint64_t index, int64_t got, int64_t want)
{
    fprintf(stderr, "MISMATCH %s: instance %llu, %u tensors: got %lld, want %lld\n", what,
            (unsigned long long)index, r->problem.tensor_count, (long long)got, (long long)want);
    return 1;
}

/* ---- docs/planning.md once more, from its text ---- */

static int64_t own_curve(const gw_plan_cost *c, int64_t x)
{
    if (c->kind == GW_PLAN_COST_AFFINE) {
        return c->a + c->b * x;
    }
    if (c->kind == GW_PLAN_COST_MAXLIN) {
        return c->a >= c->b * x ? c->a : c->b * x;
    }
    if (c->kind == GW_PLAN_COST_HINGE) {
        return x > c->t ? c->a + c->b * (x - c->t) : c->a;
    }
    if (x <= c->table_x[0] || c->table_len == 1) {
        return c->table_y[0];
    }
    uint32_t i = 1;
    while (i + 1 < c->table_len && x > c->table_x[i]) {
        i++;
    }
    const long double part = (long double)(x - c->table_x[i - 1]) *
                             (long double)(c->table_y[i] - c->table_y[i - 1]) /
                             (long double)(c->table_x[i] - c->table_x[i - 1]);
    return c->table_y[i - 1] + (int64_t)part;
}

/* One resource: starts work at `ready` or when it is free, and ends it. */
static int64_t own_use(int64_t *free_at, int64_t ready, int64_t duration)
{
    const int64_t start = ready > *free_at ? ready : *free_at;
    *free_at = start + duration;
    return *free_at;
}

/* Makespan of a plan by simulation of its resources; -1: the plan exceeds the error. */
static int64_t own_makespan(const gw_plan_problem *p, const gw_plan *plan)
{
    int64_t gpu = 0, cpu = 0, network = 0, cpu_decoder = 0, error = 0, finish = 0;
    int64_t arrived[RANDOM_TENSORS_MAX], decode[RANDOM_TENSORS_MAX];
    for (uint32_t j = 0; j < plan->group_count; j++) {
        const gw_plan_group *group = &plan->groups[j];
        const gw_plan_method *m = &p->methods[group->method];
        const int on_cpu = m->device == GW_PLAN_CPU;
        int64_t x = 0;
        for (uint32_t i = 0; i < group->tensor_count; i++) {
            x += p->tensors[group->first + i].len;
            gpu += p->tensors[group->first + i].bwd;
        }
        error += m->error * x;
        const int64_t encode = own_curve(&m->enc, x) + (on_cpu ? own_curve(&m->host, x) : 0);
        int64_t ready = gpu += on_cpu ? 0 : encode;
        if (on_cpu && encode > 0) {
            ready = own_use(&cpu, ready, encode);
        }
        int64_t exchange = own_curve(&m->net, x);
        if (m->owner_count > 0) {
            const int64_t mine = (x + m->owner_count - 1) / m->owner_count;
            const int64_t others = x - x / m->owner_count;
            exchange += own_curve(&m->sum, others) + own_curve(&m->enc, mine) + own_curve(&m->gather, x);
        }
        arrived[j] = own_use(&network, ready, exchange);
        decode[j] =
            own_curve(&m->dec, x) + own_curve(&m->dec_more, x) + (on_cpu ? own_curve(&m->host, x) : 0);
        finish = arrived[j] > finish ? arrived[j] : finish;
    }
    for (uint32_t j = 0; j < plan->group_count; j++) { /* backprop is over at `gpu` */
        const int on_cpu = p->methods[plan->groups[j].method].device == GW_PLAN_CPU;
        int64_t *decoder = on_cpu ? &cpu_decoder : &gpu;
        int64_t end = arrived[j] + decode[j];
        if (decode[j] > 0 && p->decode == GW_PLAN_DECODE_SERIAL) {
            end = own_use(decoder, arrived[j], decode[j]);
        }
        finish = end > finish ? end : finish;
    }
    finish = gpu > finish ? gpu : finish;
    return p->error_max > 0 && error > p->error_max ? -1 : finish;
}

static int check_exact(gw_plan_algorithm algorithm, const random_problem *r, uint64_t index,
                       gw_plan_tick want)
{
    gw_plan_group groups[RANDOM_TENSORS_MAX];
    gw_plan plan = {groups, RANDOM_TENSORS_MAX, 0};
    gw_plan_cert cert;
    const char *name = gw_plan_algorithm_name(algorithm);
    const gw_plan_solver solver = {.algorithm = algorithm};
    gw_status status = gw_plan_solve(&r->problem, &solver, &plan, &cert, &workspace);
    if (status != GW_OK) {
        return report(gw_status_message(status), r, index, (int64_t)status, 0);
    }
    gw_plan_tick evaluated = -1;
    if (gw_plan_eval(&r->problem, &plan, &evaluated) != GW_OK || evaluated != cert.makespan) {
        return report("evaluator differs from solver", r, index, evaluated, cert.makespan);
    }
    if (own_makespan(&r->problem, &plan) != cert.makespan) {
        return report("simulation differs from solver", r, index, own_makespan(&r->problem, &plan),
                      cert.makespan);
    }
    if (cert.makespan != want || !cert.proven || cert.lower_bound != want) {
        return report(name, r, index, cert.makespan, want);
    }
    return 0;
}

/* A label cap of 1 to 3 forces a gap: the certificate must still bracket the optimum. */
static int check_capped(const random_problem *r, plan_random *random, uint64_t index, gw_plan_tick want)
{
    gw_plan_group groups[RANDOM_TENSORS_MAX];
    gw_plan plan = {groups, RANDOM_TENSORS_MAX, 0};
    gw_plan_cert cert;
    gw_plan_solver solver = {.algorithm = GW_PLAN_LABELS};
    solver.limits.label_cap = (uint32_t)random_between(random, 1, 3);
    solver.limits.gap_ppm = random_between(random, 0, 1) ? 0 : (uint32_t)random_between(random, 1, 100000);
    gw_status status = gw_plan_solve(&r->problem, &solver, &plan, &cert, &workspace);
    if (status != GW_OK) {
        return report(gw_status_message(status), r, index, (int64_t)status, 0);
    }
    gw_plan_tick evaluated = -1;
    if (gw_plan_eval(&r->problem, &plan, &evaluated) != GW_OK || evaluated != cert.makespan ||
        cert.lower_bound > want || cert.makespan < want || (cert.proven && cert.makespan != want)) {
        fprintf(stderr, "bound %lld makespan %lld evaluated %lld\n", (long long)cert.lower_bound,
                (long long)cert.makespan, (long long)evaluated);
        return report("certificate of a capped search", r, index, cert.lower_bound, want);
    }
    return 0;
}

static void run(random_shape shape, uint64_t count, uint64_t seed, uint32_t tensors_max, tally *t)
{
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
        const gw_plan_solver brute = {.algorithm = GW_PLAN_BRUTE};
        gw_status status = gw_plan_solve(&r.problem, &brute, &plan, &cert, &workspace);
        if (status != GW_OK) {
            t->mismatches += (uint64_t)report(gw_status_message(status), &r, i, 0, 0);
            continue;
        }
        gw_plan_tick evaluated = -1;
        int bad = (gw_plan_eval(&r.problem, &plan, &evaluated) != GW_OK || evaluated != cert.makespan) &&
                  report("evaluator differs from brute force", &r, i, evaluated, cert.makespan);
        bad |= own_makespan(&r.problem, &plan) != cert.makespan &&
               report("simulation differs from brute force", &r, i, own_makespan(&r.problem, &plan),
                      cert.makespan);
        if (shape == SHAPE_AFFINE) {
            bad |= check_exact(GW_PLAN_FUSE_AFFINE, &r, i, cert.makespan);
            bad |= check_exact(GW_PLAN_FUSE_AFFINE_N2, &r, i, cert.makespan);
        }
        bad |= check_exact(GW_PLAN_LABELS, &r, i, cert.makespan);
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

/* ---- option trees ---- */

typedef struct random_tree {
    gw_plan_tree tree;
    gw_plan_tick bwd[8];
    uint32_t tensor_class[8];
    uint32_t class_first[9];
    gw_plan_vector *vectors;
} random_tree;

static gw_plan_option all_options[GW_PLAN_OPTION_COUNT];
static uint32_t all_count, gpu_count;
static gw_plan_option gpu_options[GW_PLAN_OPTION_COUNT];

/* A random codec, cluster and model; every class gets `per_class` random options, or all 174 GPU-only ones.
 */
static void make_tree(plan_random *random, int full, random_tree *t)
{
    int64_t table_x[4][RANDOM_TABLE_MAX];
    gw_plan_tick table_y[4][RANDOM_TABLE_MAX];
    int ties = random_between(random, 0, 1) == 0;
    int64_t scale = ties ? 3 : 1000000;
    gw_plan_codec codec;
    memset(&codec, 0, sizeof codec);
    codec.name = "random";
    for (int device = 0; device < 2; device++) {
        codec.enc[device] = random_cost(random, ties ? 1 : 2, (int)random_between(random, 0, 3), scale,
                                        table_x[device], table_y[device]);
        codec.dec[device] = random_cost(random, ties ? 1 : 2, (int)random_between(random, 0, 3), scale,
                                        table_x[2 + device], table_y[2 + device]);
    }
    codec.payload_header = random_between(random, 0, 8);
    codec.payload_num = random_between(random, 1, 2);
    codec.payload_den = random_between(random, 1, 16);
    codec.collectives = 15;
    codec.devices = 3;
    codec.dec_peer_kib = ties ? random_between(random, 0, 64) : random_between(random, 0, 100000);
    gw_plan_cluster cluster;
    memset(&cluster, 0, sizeof cluster);
    cluster.nodes = (uint32_t)random_between(random, 1, 8);
    cluster.gpus = (uint32_t)random_between(random, 1, 8);
    cluster.intra.alpha = random_between(random, 0, ties ? 3 : 200 * GW_PLAN_TICKS_PER_US);
    cluster.inter.alpha = random_between(random, 0, ties ? 3 : 200 * GW_PLAN_TICKS_PER_US);
    cluster.intra.beta_kib = random_between(random, 0, ties ? 128 : GW_PLAN_TICKS_PER_US);
    cluster.inter.beta_kib = random_between(random, 0, ties ? 512 : GW_PLAN_TICKS_PER_US);
    cluster.flags = random_between(random, 0, 1) ? GW_PLAN_ALPHA_PER_STEP : 0;
    cluster.host.alpha = random_between(random, 0, ties ? 3 : 20 * GW_PLAN_TICKS_PER_US);
    cluster.host.beta_kib = random_between(random, 0, ties ? 128 : GW_PLAN_TICKS_PER_US / 10);
    uint32_t n = full ? 2 : (uint32_t)random_between(random, 1, 6);
    uint32_t classes = (uint32_t)random_between(random, 1, (int64_t)n);
    uint32_t per_class_max = n == 1 ? 4341 : 1; /* options^n <= 2^15 */
    while (!full && n > 1) {
        double plans = 1;
        for (uint32_t i = 0; i < n; i++) {
            plans *= per_class_max + 1.0;
        }
        if (plans > 32768.0) {
            break;
        }
        per_class_max++;
    }
    uint32_t used = 0;
    for (uint32_t c = 0; c < classes; c++) {
        int64_t len = random_between(random, 1, ties ? 400 : 20000000);
        t->class_first[c] = used;
        uint32_t wanted =
            full ? gpu_count : (uint32_t)random_between(random, 1, per_class_max > 200 ? 200 : per_class_max);
        for (uint32_t o = 0; o < wanted; o++) {
            const gw_plan_option *option =
                full ? &gpu_options[o] : &all_options[random_next(random) % all_count];
            gw_plan_job job;
            gw_status status = gw_plan_option_price(option, &codec, &cluster, len, &job);
            if (status != GW_OK) {
                fprintf(stderr, "price: %s\n", gw_status_message(status));
                exit(1);
            }
            gw_plan_job_vector(&job, &t->vectors[used]);
            t->vectors[used].option = o;
            used++;
        }
    }
    t->class_first[classes] = used;
    for (uint32_t i = 0; i < n; i++) {
        t->tensor_class[i] = i < classes ? i : (uint32_t)random_between(random, 0, (int64_t)classes - 1);
        t->bwd[i] =
            ties ? random_between(random, 0, 2000) : random_between(random, 0, 20000) * GW_PLAN_TICKS_PER_US;
    }
    t->tree = (gw_plan_tree){t->bwd,
                             t->tensor_class,
                             n,
                             t->vectors,
                             t->class_first,
                             classes,
                             random_between(random, 0, 1) ? GW_PLAN_DECODE_SERIAL : GW_PLAN_DECODE_PARALLEL};
}

static int tree_mismatch(const char *what, uint64_t index, int64_t got, int64_t want)
{
    fprintf(stderr, "MISMATCH tree %s: instance %llu: got %lld, want %lld\n", what, (unsigned long long)index,
            (long long)got, (long long)want);
    return 1;
}

static void run_trees(int full, uint64_t count, uint64_t seed, tally *t)
{
    random_tree tree;
    gw_plan_vector *scratch = malloc(GW_PLAN_OPTION_COUNT * sizeof *scratch);
    tree.vectors = malloc(8 * (size_t)GW_PLAN_OPTION_COUNT * sizeof *tree.vectors);
    memset(t, 0, sizeof *t);
    if (scratch == NULL || tree.vectors == NULL) {
        exit(2);
    }
    for (uint64_t i = 0; i < count; i++) {
        plan_random random = {seed ^ ((uint64_t)(100 + full) << 50) ^ (i * UINT64_C(0xD1342543DE82EF95))};
        make_tree(&random, full, &tree);
        uint32_t choice[8];
        gw_plan_cert brute, cert;
        gw_plan_tick evaluated = -1;
        gw_status status = gw_plan_tree_brute(&tree.tree, choice, &brute);
        int bad = status != GW_OK && tree_mismatch("brute force status", i, (int64_t)status, 0);
        bad |= !bad &&
               (gw_plan_tree_eval(&tree.tree, choice, &evaluated) != GW_OK || evaluated != brute.makespan) &&
               tree_mismatch("evaluator differs from brute force", i, evaluated, brute.makespan);
        /* First the whole set of options, then what dominance leaves of it. */
        for (int reduced = 0; reduced < 2 && !bad; reduced++) {
            if (reduced) {
                uint32_t used = 0;
                for (uint32_t c = 0; c < tree.tree.class_count; c++) {
                    uint32_t size = tree.class_first[c + 1] - tree.class_first[c];
                    memmove(tree.vectors + used, tree.vectors + tree.class_first[c],
                            size * sizeof *tree.vectors);
                    uint32_t kept = gw_plan_vectors_reduce(tree.vectors + used, size, scratch);
                    tree.class_first[c] = used;
                    used += kept;
                }
                tree.class_first[tree.tree.class_count] = used;
            }
            status = gw_plan_tree_solve(&tree.tree, NULL, choice, &cert, &workspace);
            bad |= status != GW_OK && tree_mismatch(gw_status_message(status), i, 0, 0);
            bad |=
                !bad && (cert.makespan != brute.makespan || !cert.proven) &&
                tree_mismatch(reduced ? "after dominance" : "all options", i, cert.makespan, brute.makespan);
            bad |=
                !bad &&
                (gw_plan_tree_eval(&tree.tree, choice, &evaluated) != GW_OK || evaluated != cert.makespan) &&
                tree_mismatch("evaluator differs from solver", i, evaluated, cert.makespan);
        }
        t->instances++;
        t->plans += brute.labels;
        t->mismatches += (uint64_t)bad;
    }
    free(scratch);
    free(tree.vectors);
    printf("%-16s %10llu instances %14llu plans %6llu mismatches\n", full ? "tree, 174 GPU" : "tree",
           (unsigned long long)t->instances, (unsigned long long)t->plans, (unsigned long long)t->mismatches);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    uint64_t fusion = 7000;
    uint64_t joint = 1000;
    uint64_t tree = 1000;
    uint64_t tree_full = 20;
    uint64_t seed = 1;
    uint32_t tensors_max = 14;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--fusion") == 0) {
            fusion = value;
        } else if (strcmp(argv[i], "--joint") == 0) {
            joint = value;
        } else if (strcmp(argv[i], "--tree") == 0) {
            tree = value;
        } else if (strcmp(argv[i], "--tree-full") == 0) {
            tree_full = value;
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = value;
        } else if (strcmp(argv[i], "--tensors-max") == 0 && value >= 1 && value <= 20) {
            tensors_max = (uint32_t)value;
        } else {
            fprintf(stderr,
                    "usage: %s [--fusion N] [--joint N] [--tree N] [--tree-full N] [--seed S] [--tensors-max "
                    "1..20]\n",
                    argv[0]);
            return 2;
        }
    }
    workspace.size = (size_t)8 << 20;
    workspace.data = malloc(workspace.size);
    if (workspace.data == NULL) {
        return 2;
    }
    uint64_t mismatches = 0;
    tally t;
    for (int shape = SHAPE_AFFINE; shape <= SHAPE_ANY; shape++) {
        run((random_shape)shape, fusion / 7 + (shape == SHAPE_AFFINE ? fusion % 7 : 0), seed, tensors_max,
            &t);
        mismatches += t.mismatches;
    }
    run(SHAPE_JOINT, joint, seed, tensors_max, &t);
    mismatches += t.mismatches;
    if (gw_plan_options_list(0, UINT32_MAX, all_options, GW_PLAN_OPTION_COUNT, &all_count) != GW_OK ||
        gw_plan_options_list(GW_PLAN_OPTIONS_GPU_ONLY, UINT32_MAX, gpu_options, GW_PLAN_OPTION_COUNT,
                             &gpu_count) != GW_OK) {
        return 2;
    }
    run_trees(0, tree, seed, &t);
    mismatches += t.mismatches;
    run_trees(1, tree_full, seed, &t);
    mismatches += t.mismatches;
    free(workspace.data);
    printf("seed %llu: %llu mismatches\n", (unsigned long long)seed, (unsigned long long)mismatches);
    return mismatches == 0 ? 0 : 1;
}
