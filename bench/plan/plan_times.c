/*
 * Times and gaps of the planners on the cases file, as Markdown.
 *
 *   plan_times TRACE_DIR [KINETO_FILE]
 *
 * Every number is the median of repeated solves in one process on one core (`taskset -c N`). A solve is
 * everything after parsing the file: building the problem, bounds, dominance reduction, search.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli_common.h"
#include "plan_args.h"
#include "plan_kineto.h"
#include "plan_run.h"

#define REPEATS_MAX 1001

static double cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Median wall time of up to `repeats` solves, at most about `budget_ms` in all; the last result is kept. */
static int time_case(const plan_library *library, const plan_case *c, const plan_model *model,
                     double limit_ms, int repeats, double budget_ms, plan_result *result, double *wall_us,
                     double *cpu)
{
    static double walls[REPEATS_MAX], cpus[REPEATS_MAX];
    plan_args args;
    memset(&args, 0, sizeof args);
    args.time_limit_ms = limit_ms;
    gw_plan_limits limits = plan_args_limits(&args, limit_ms);
    double spent = 0;
    size_t count = 0;
    memset(result, 0, sizeof *result);
    while (count < (size_t)repeats && (count < 1 || spent < budget_ms * 1e3)) {
        plan_result_free(result);
        double start = cpu_us();
        int code = plan_run(library, c, model, "model", "auto", NULL, &limits, result);
        if (code != GW_CLI_OK) {
            return code;
        }
        cpus[count] = cpu_us() - start;
        walls[count++] = result->solve_us;
        spent += result->solve_us;
    }
    *wall_us = gw_cli_median(walls, count);
    *cpu = gw_cli_median(cpus, count);
    return GW_CLI_OK;
}

static void print_row(const char *case_name, const char *model_name, const plan_result *r, double wall,
                      double cpu)
{
    printf("| %s | %s | %.3f | %.4f %% | %s | %u | %.1f | %.1f |\n", case_name, model_name,
           plan_us(r->cert.makespan) / 1e3, 100 * plan_gap(&r->cert), r->cert.proven ? "yes" : "no",
           r->group_count, wall, cpu);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TRACE_DIR [KINETO_FILE]\n", argv[0]);
        return 2;
    }
    plan_library library;
    if (plan_library_open(&library, NULL) != GW_CLI_OK) {
        return 1;
    }
    int failed = 0;
    int joint_good = 0;
    printf("| case | model | ms | gap | proven | groups | solve us | CPU us "
           "|\n|---|---|---|---|---|---|---|---|\n");
    plan_case c;
    json_t *models;
    double wall, cpu;
    for (size_t i = 0; plan_case_at(&library, i, &c, &models); i++) {
        int fusion_decode = c.kind == PLAN_FUSION && !c.decode_none;
        double limit_ms = c.kind == PLAN_JOINT ? 1000 : fusion_decode ? 30 : c.kind == PLAN_TREE ? 500 : 0;
        size_t m;
        json_t *name;
        json_array_foreach(models, m, name)
        {
            char path[4096];
            plan_model model;
            plan_result result;
            (void)snprintf(path, sizeof path, "%s/%s.csv", argv[1], json_string_value(name));
            if (plan_model_read(path, &model) != GW_CLI_OK) {
                return 1;
            }
            if (time_case(&library, &c, &model, limit_ms, 101, 150, &result, &wall, &cpu) != GW_CLI_OK) {
                failed = 1;
            } else {
                print_row(c.name, json_string_value(name), &result, wall, cpu);
                joint_good += i == 0 && plan_gap(&result.cert) <= 0.01;
            }
            plan_result_free(&result);
            plan_model_free(&model);
        }
    }
    printf("\nFirst case: %d traces with a certified gap of at most 1 %%.\n", joint_good);

    /* N = 1000: a synthetic worst case, every layer explored since cuts cost nothing. */
    enum { BIG = 1000 };
    static gw_plan_tensor tensors[BIG];
    for (int i = 0; i < BIG; i++) {
        tensors[i] = (gw_plan_tensor){NULL, 1000 + 7919 * (i % 101), 100 * GW_PLAN_TICKS_PER_US, 0};
    }
    gw_plan_method method;
    memset(&method, 0, sizeof method);
    method.name = "m";
    method.enc.b = 100;
    method.net.a = 150 * GW_PLAN_TICKS_PER_US;
    method.net.b = 200000;
    gw_plan_problem problem = {tensors, BIG, &method, 1, GW_PLAN_DECODE_SERIAL, 0};
    size_t size = gw_plan_workspace_size(&problem, GW_PLAN_FUSE_AFFINE);
    void *workspace = plan_workspace(size);
    static gw_plan_group groups[BIG];
    for (int free_cuts = 0; free_cuts < 2; free_cuts++) {
        double times[51];
        gw_plan_cert cert;
        method.enc.a = free_cuts ? 0 : 50 * GW_PLAN_TICKS_PER_US;
        for (int r = 0; r < 51; r++) {
            gw_plan plan = {groups, BIG, 0};
            double start = cpu_us();
            if (gw_plan_solve(&problem, GW_PLAN_FUSE_AFFINE, 0, NULL, workspace, size, &plan, &cert) !=
                GW_PLAN_OK) {
                return 1;
            }
            times[r] = cpu_us() - start;
        }
        printf("Affine fusion, N = 1000, %s: %.1f us CPU (median of 51).\n",
               free_cuts ? "free cuts (all layers explored)" : "50 us a cut", gw_cli_median(times, 51));
    }
    if (argc > 2) {
        double walls[21], cpus[21];
        size_t gradients = 0;
        for (int r = 0; r < 21; r++) {
            plan_kineto trace;
            double start = gw_cli_seconds();
            double start_cpu = cpu_us();
            if (plan_kineto_read(argv[2], UINT64_MAX, &trace) != GW_CLI_OK) {
                return 1;
            }
            walls[r] = (gw_cli_seconds() - start) * 1e3;
            cpus[r] = (cpu_us() - start_cpu) / 1e3;
            gradients = trace.steps[0].gradient_count;
            plan_kineto_free(&trace);
        }
        printf("Kineto import (%zu gradients a step): %.1f ms wall, %.1f ms CPU (median of 21).\n", gradients,
               gw_cli_median(walls, 21), gw_cli_median(cpus, 21));
    }
    plan_library_close(&library);
    return failed;
}
