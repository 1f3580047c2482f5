/*
 * The choice among all baselines; buckets of frameworks are rules of one line.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "baselines.h"

size_t gw_baseline_workspace(uint32_t tensor_count, gw_plan_algorithm algorithm)
{
    const int is_cupcake = algorithm == GW_PLAN_CUPCAKE || algorithm == GW_PLAN_CUPCAKE_LITERAL;
    return is_cupcake ? gw_cupcake_workspace(tensor_count) : 0;
}

gw_status gw_baseline_run(const gw_plan_problem *problem, const gw_plan_solver *solver, gw_plan *plan,
                          gw_plan_cert *cert, gw_arena *arena)
{
    const int64_t mib = INT64_C(1) << 18; /* float32 elements */
    gw_plan_bucket_rule rule = {solver->method, 0, 0, 0};
    switch (solver->algorithm) {
    case GW_PLAN_LAYERWISE:
        return gw_bucket_fill(problem, &rule, plan);
    case GW_PLAN_ONE_GROUP:
        rule.cap_first = rule.cap = INT64_MAX;
        return gw_bucket_fill(problem, &rule, plan);
    case GW_PLAN_DDP:
        rule.cap_first = mib;
        rule.cap = 25 * mib;
        return gw_bucket_fill(problem, &rule, plan);
    case GW_PLAN_HOROVOD:
        rule.cap_first = rule.cap = 128 * mib;
        rule.fill = 1;
        return gw_bucket_fill(problem, &rule, plan);
    case GW_PLAN_BUCKET_SWEEP:
        return gw_baseline_bucket_sweep(problem, solver->method, plan);
    case GW_PLAN_EVEN:
        return gw_baseline_best_even(problem, solver->method, plan);
    case GW_PLAN_MGWFBP:
        return gw_mgwfbp(problem, solver->method, plan);
    case GW_PLAN_MERGECOMP2:
    case GW_PLAN_MERGECOMP3:
    case GW_PLAN_MERGECOMP4:
        return gw_mergecomp(problem, solver->method, 2u + (uint32_t)(solver->algorithm - GW_PLAN_MERGECOMP2),
                            plan, cert, arena);
    case GW_PLAN_CUPCAKE:
    case GW_PLAN_CUPCAKE_LITERAL:
        return gw_cupcake(problem, solver, plan, cert, arena);
    default:
        return GW_ERR_ARG;
    }
}
