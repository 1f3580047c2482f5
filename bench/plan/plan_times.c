/*
 * Times and gaps of the planners on the cases file, as Markdown.
 *
 *   plan_times TRACE_DIR [KINETO_FILE]
 *
 * bench/plan/results_plan_times makes docs/results/plan-times.md of it. Every number is the median of
 * repeated solves in one process on one core (`taskset -c N`). A solve is everything after parsing the file:
 * building the problem, bounds, dominance reduction, search.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli_common.h"
#include "plan_input.h"
#include "plan_kineto.h"
#include "plan_run.h"
#include "plan_memory.h"
#include "text_source.h"

#define REPEATS_MAX 1001

static double cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Limits count processor time, so that plans and gaps do not depend on what else the core does. */
static int64_t cpu_clock(void *context)
{
    (void)context;
    return (int64_t)cpu_us();
}

typedef struct timing {
    plan_result result;
    double wall_us, cpu_us;
} timing;

/* Median times of up to `repeats` solves, at most about `budget_ms` in all; the last result is kept. */
static void time_case(const plan_opened *o, double limit_ms, int repeats, double budget_ms, timing *t)
{
    static double walls[REPEATS_MAX], cpus[REPEATS_MAX];
    const plan_limit_args args = {-1, -1, -1, -1};
    gw_plan_limits limits = plan_limits(&args, limit_ms);
    limits.clock = limits.clock != NULL ? cpu_clock : NULL;
    double spent = 0;
    size_t count = 0;
    memset(t, 0, sizeof *t);
    while (count < (size_t)repeats && (count < 1 || spent < budget_ms * 1e3)) {
        plan_result_free(&t->result);
        double start = cpu_us();
        plan_run(o, NULL, NULL, &limits, &t->result);
        cpus[count] = cpu_us() - start;
        walls[count++] = t->result.solve_us;
        spent += t->result.solve_us;
    }
    t->wall_us = gw_cli_median(walls, count);
    t->cpu_us = gw_cli_median(cpus, count);
}

static void print_row(const char *case_name, const char *model_name, const timing *t)
{
    const gw_plan_cert *cert = &t->result.cert;
    printf("| %s | %s | %.3f | %.4f %% | %s | %u | %.1f | %.1f |\n", case_name, model_name,
           plan_us(cert->makespan) / 1e3, 100 * plan_gap(cert), cert->proven ? "yes" : "no",
           t->result.group_count, t->wall_us, t->cpu_us);
    fflush(stdout);
}

/* All models of all cases. */
static int time_cases(plan_opened *o, const char *folder)
{
    int joint_good = 0;
    json_t *models;
    printf("| case | model | ms | gap | proven | groups | solve us | CPU us "
           "|\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; plan_case_at(&o->library, i, &o->c, &models); i++) {
        int fusion_decode = o->c.kind == PLAN_FUSION && !o->c.decode_none;
        double limit_ms = o->c.kind == PLAN_JOINT  ? 1000
                          : fusion_decode          ? 30
                          : o->c.kind == PLAN_TREE ? 500
                                                   : 0;
        size_t m;
        json_t *name;
        json_array_foreach(models, m, name)
        {
            char path[4096];
            timing t;
            (void)snprintf(path, sizeof path, "%s/%s.csv", folder, json_string_value(name));
            if (plan_input_model(path, &o->model) != GW_CLI_OK) {
                return 1;
            }
            time_case(o, limit_ms, 101, 150, &t);
            print_row(o->c.name, json_string_value(name), &t);
            joint_good += i == 0 && plan_gap(&t.result.cert) <= 0.01;
            plan_result_free(&t.result);
            plan_model_free(&o->model);
        }
    }
    printf("\nFirst case: %d traces with a certified gap of at most 1 %%.\n", joint_good);
    return 0;
}

/* N = 1000: a synthetic worst case, every layer explored since cuts cost nothing. */
static int time_affine(void)
{
    enum { BIG = 1000 };
    static gw_plan_tensor tensors[BIG];
    static gw_plan_group groups[BIG];
    for (int i = 0; i < BIG; i++) {
        tensors[i] = (gw_plan_tensor){NULL, 1000 + 7919 * (i % 101), 100 * GW_PLAN_TICKS_PER_US, 0};
    }
    gw_plan_method method;
    memset(&method, 0, sizeof method);
    method.name = "m";
    method.enc.b = 100;
    method.net.a = 150 * GW_PLAN_TICKS_PER_US;
    method.net.b = 200000;
    const gw_plan_problem problem = {tensors, BIG, &method, 1, GW_PLAN_DECODE_SERIAL, 0, 0};
    const gw_plan_solver solver = {.algorithm = GW_PLAN_FUSE_AFFINE};
    const gw_workspace workspace = plan_workspace(gw_plan_workspace_size(&problem, GW_PLAN_FUSE_AFFINE));
    for (int free_cuts = 0; free_cuts < 2; free_cuts++) {
        double times[51];
        gw_plan_cert cert;
        method.enc.a = free_cuts ? 0 : 50 * GW_PLAN_TICKS_PER_US;
        for (int r = 0; r < 51; r++) {
            gw_plan plan = {groups, BIG, 0};
            double start = cpu_us();
            if (gw_plan_solve(&problem, &solver, &plan, &cert, &workspace) != GW_OK) {
                return 1;
            }
            times[r] = cpu_us() - start;
        }
        printf("Affine fusion, N = 1000, %s: %.1f us CPU (median of 51).\n",
               free_cuts ? "free cuts (all layers explored)" : "50 us a cut", gw_cli_median(times, 51));
    }
    return 0;
}

static int time_import(const char *path)
{
    double walls[21], cpus[21];
    size_t gradients = 0;
    for (int r = 0; r < 21; r++) {
        plan_kineto trace;
        double start = gw_cli_seconds();
        double start_cpu = cpu_us();
        if (plan_kineto_read(path, TEXT_SOURCE_SIZE_MAX, &trace) != GW_CLI_OK) {
            return 1;
        }
        walls[r] = (gw_cli_seconds() - start) * 1e3;
        cpus[r] = (cpu_us() - start_cpu) / 1e3;
        gradients = trace.steps[0].gradient_count;
        plan_kineto_free(&trace);
    }
    printf("Kineto import (%zu gradients a step): %.1f ms wall, %.1f ms CPU (median of 21).\n", gradients,
           gw_cli_median(walls, 21), gw_cli_median(cpus, 21));
    return 0;
}

int main(int argc, char **argv)
{
    static plan_opened o;
    if (argc < 2) {
        fprintf(stderr, "usage: %s TRACE_DIR [KINETO_FILE]\n", argv[0]);
        return 2;
    }
    o.path = "model";
    if (plan_library_open(&o.library, NULL) != GW_CLI_OK) {
        return 1;
    }
    int failed = time_cases(&o, argv[1]);
    failed |= time_affine();
    failed |= argc > 2 && time_import(argv[2]);
    plan_library_close(&o.library);
    return failed;
}
