/*
 * gw_plan_solve(): picks the algorithm, evaluates baselines, fills the certificate.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

size_t gw_plan_workspace_size(const gw_plan_problem *problem, gw_plan_algorithm algorithm)
{
    if ((unsigned)algorithm >= GW_PLAN_ALGORITHM_COUNT ||
        gw_problem_check_numbers(problem, NULL) != GW_PLAN_OK) {
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
    case GW_PLAN_CUPCAKE:
    case GW_PLAN_CUPCAKE_LITERAL:
        return gw_cupcake_workspace(n) + labels;
    default:
        return labels;
    }
}

static gw_plan_status run_baseline(const gw_plan_problem *problem, gw_plan_algorithm algorithm,
                                   uint32_t method, const gw_plan_limits *limits, gw_arena *arena,
                                   gw_plan *plan, gw_plan_cert *cert)
{
    int64_t mib = INT64_C(1) << 18; /* float32 elements */
    switch (algorithm) {
    case GW_PLAN_LAYERWISE:
        return gw_bucket_fill(problem, method, 0, 0, 0, plan);
    case GW_PLAN_ONE_GROUP:
        return gw_bucket_fill(problem, method, INT64_MAX, INT64_MAX, 0, plan);
    case GW_PLAN_DDP:
        return gw_bucket_fill(problem, method, mib, 25 * mib, 0, plan);
    case GW_PLAN_HOROVOD:
        return gw_bucket_fill(problem, method, 128 * mib, 128 * mib, 1, plan);
    case GW_PLAN_BUCKET_SWEEP:
        return gw_baseline_bucket_sweep(problem, method, plan);
    case GW_PLAN_EVEN:
        return gw_baseline_best_even(problem, method, plan);
    case GW_PLAN_MGWFBP:
        return gw_mgwfbp(problem, method, plan);
    case GW_PLAN_MERGECOMP2:
    case GW_PLAN_MERGECOMP3:
    case GW_PLAN_MERGECOMP4:
        return gw_mergecomp(problem, method, 2u + (uint32_t)(algorithm - GW_PLAN_MERGECOMP2), arena, plan,
                            cert);
    case GW_PLAN_CUPCAKE:
    case GW_PLAN_CUPCAKE_LITERAL:
        return gw_cupcake(problem, method, algorithm == GW_PLAN_CUPCAKE_LITERAL, limits, arena, plan, cert);
    default:
        return GW_PLAN_ERR_ARG;
    }
}

gw_plan_status gw_plan_solve(const gw_plan_problem *problem, gw_plan_algorithm algorithm, uint32_t method,
                             const gw_plan_limits *limits, void *workspace, size_t workspace_size,
                             gw_plan *plan, gw_plan_cert *cert)
{
    if (plan == NULL || plan->groups == NULL || cert == NULL ||
        (unsigned)algorithm >= GW_PLAN_ALGORITHM_COUNT) {
        return GW_PLAN_ERR_ARG;
    }
    gw_plan_status status = gw_problem_check_numbers(problem, NULL);
    if (status != GW_PLAN_OK) {
        return status;
    }
    gw_arena arena;
    if (!gw_arena_open(&arena, workspace, workspace_size)) {
        return GW_PLAN_ERR_WORKSPACE;
    }
    gw_plan_cert result = {0, 0, 0, 0, 1, 0};
    if (algorithm == GW_PLAN_AUTO) {
        algorithm = gw_fuse_affine_applies(problem, 0) ? GW_PLAN_FUSE_AFFINE : GW_PLAN_LABELS;
    }
    switch (algorithm) {
    case GW_PLAN_FUSE_AFFINE:
    case GW_PLAN_FUSE_AFFINE_N2:
        status = gw_fuse_affine(problem, algorithm == GW_PLAN_FUSE_AFFINE_N2, &arena, plan, &result);
        break;
    case GW_PLAN_LABELS:
        status = gw_label_fuse(problem, limits, &arena, plan, &result);
        break;
    case GW_PLAN_BRUTE:
        status = gw_brute_fuse(problem, plan, &result);
        break;
    default:
        if (method >= problem->method_count) {
            return GW_PLAN_ERR_ARG;
        }
        status = run_baseline(problem, algorithm, method, limits, &arena, plan, &result);
        if (status == GW_PLAN_OK) {
            status = gw_plan_eval(problem, plan, &result.makespan);
            status = status == GW_PLAN_ERR_PLAN ? GW_PLAN_ERR_INFEASIBLE : status;
        }
        if (status == GW_PLAN_OK) {
            gw_arena bound_arena;
            (void)gw_arena_open(&bound_arena, workspace, workspace_size);
            result.lower_bound =
                gw_tick_min(result.makespan, gw_label_root_bound(problem, result.makespan, &bound_arena));
            result.proven = result.lower_bound == result.makespan;
        }
        break;
    }
    if (status == GW_PLAN_OK) {
        *cert = result;
    }
    return status;
}
