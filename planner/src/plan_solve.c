/*
 * gw_plan_solve(): picks the algorithm, evaluates baselines, fills the certificate.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"

#include "baselines/baselines.h"

const char *gw_plan_algorithm_name(gw_plan_algorithm algorithm)
{
    static const char *const names[GW_PLAN_ALGORITHM_COUNT] = {
        "auto",      "fuse-affine",     "fuse-affine-n2", "labels",       "brute",      "layerwise",
        "one-group", "ddp-buckets",     "horovod",        "bucket-sweep", "even",       "mgwfbp",
        "cupcake",   "cupcake-literal", "mergecomp2",     "mergecomp3",   "mergecomp4",
    };
    return (unsigned)algorithm < GW_PLAN_ALGORITHM_COUNT ? names[algorithm] : NULL;
}

size_t gw_plan_workspace_size(const gw_plan_problem *problem, gw_plan_algorithm algorithm)
{
    if ((unsigned)algorithm >= GW_PLAN_ALGORITHM_COUNT || gw_problem_check_numbers(problem, NULL) != GW_OK) {
        return 0;
    }
    uint32_t n = problem->tensor_count;
    size_t affine = gw_fuse_affine_workspace(n);
    size_t labels = gw_label_workspace(n, problem->method_count);
    switch (algorithm) {
    case GW_PLAN_FUSE_AFFINE:
    case GW_PLAN_FUSE_AFFINE_N2:
        return affine;
    case GW_PLAN_AUTO:
        return gw_fuse_affine_applies(problem, 0) ? affine : labels;
    default:
        return gw_baseline_workspace(n, algorithm) + labels;
    }
}

/* A baseline's plan with its makespan and the bound of the relaxations. */
static gw_status solve_baseline(const gw_plan_problem *problem, const gw_plan_solver *solver, gw_plan *plan,
                                gw_plan_cert *cert, gw_arena *arena)
{
    if (solver->method >= problem->method_count) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_baseline_run(problem, solver, plan, cert, arena);
    if (status == GW_OK) {
        status = gw_plan_eval(problem, plan, &cert->makespan);
        status = status == GW_ERR_PLAN ? GW_ERR_INFEASIBLE : status;
    }
    if (status == GW_OK) {
        arena->used = 0;
        cert->lower_bound = gw_tick_min(cert->makespan, gw_label_root_bound(problem, cert->makespan, arena));
        cert->proven = cert->lower_bound == cert->makespan;
    }
    return status;
}

gw_status gw_plan_solve(const gw_plan_problem *problem, const gw_plan_solver *solver, gw_plan *plan,
                        gw_plan_cert *cert, const gw_workspace *workspace)
{
    static const gw_plan_solver automatic = {GW_PLAN_AUTO, 0, {NULL, NULL, 0, 0, 0, 0}};
    solver = solver != NULL ? solver : &automatic;
    gw_plan_algorithm algorithm = solver->algorithm;
    if (plan == NULL || plan->groups == NULL || cert == NULL ||
        (unsigned)algorithm >= GW_PLAN_ALGORITHM_COUNT) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_problem_check_numbers(problem, NULL);
    if (status != GW_OK) {
        return status;
    }
    gw_arena arena;
    if (!gw_arena_open(&arena, workspace)) {
        return GW_ERR_WORKSPACE;
    }
    gw_plan_cert result = {0, 0, 0, 0, 1, 0};
    if (algorithm == GW_PLAN_AUTO) {
        algorithm = gw_fuse_affine_applies(problem, 0) ? GW_PLAN_FUSE_AFFINE : GW_PLAN_LABELS;
    }
    switch (algorithm) {
    case GW_PLAN_FUSE_AFFINE:
    case GW_PLAN_FUSE_AFFINE_N2:
        status = gw_fuse_affine(problem, algorithm == GW_PLAN_FUSE_AFFINE_N2, plan, &result, &arena);
        break;
    case GW_PLAN_LABELS:
        status = gw_label_fuse(problem, &solver->limits, plan, &result, &arena);
        if (status == GW_OK) {
            result.makespan = gw_plan_reduce_work(problem, plan, result.makespan, &arena);
            result.proven = result.makespan == result.lower_bound;
        }
        break;
    case GW_PLAN_BRUTE:
        status = gw_brute_fuse(problem, plan, &result);
        break;
    default:
        status = solve_baseline(problem, solver, plan, &result, &arena);
        break;
    }
    if (status == GW_OK) {
        *cert = result;
    }
    return status;
}
