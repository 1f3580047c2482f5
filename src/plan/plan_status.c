/*
 * Texts of status codes and algorithm names.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

const char *gw_plan_status_string(gw_plan_status status)
{
    switch (status) {
    case GW_PLAN_OK:
        return "ok";
    case GW_PLAN_ERR_ARG:
        return "bad argument";
    case GW_PLAN_ERR_EMPTY:
        return "the problem has no tensor or no method";
    case GW_PLAN_ERR_NEGATIVE:
        return "a time, size or slope is negative";
    case GW_PLAN_ERR_OVERFLOW:
        return "times are too long: a schedule could exceed 2^58 ticks (275 s)";
    case GW_PLAN_ERR_CURVE:
        return "a cost table is not ascending";
    case GW_PLAN_ERR_NAME:
        return "two tensors have the same name";
    case GW_PLAN_ERR_CAPACITY:
        return "an output array is too short";
    case GW_PLAN_ERR_WORKSPACE:
        return "the workspace is missing, misaligned or too small";
    case GW_PLAN_ERR_UNSUPPORTED:
        return "this algorithm or codec does not cover the problem";
    case GW_PLAN_ERR_LIMIT:
        return "the search space is too large for this algorithm";
    case GW_PLAN_ERR_PLAN:
        return "the plan does not fit the problem";
    case GW_PLAN_ERR_INFEASIBLE:
        return "the constraints leave no plan";
    case GW_PLAN_ERR_COUNT:
        return "too many tensors or methods";
    default:
        return "unknown status";
    }
}

const char *gw_plan_algorithm_name(gw_plan_algorithm algorithm)
{
    static const char *const names[GW_PLAN_ALGORITHM_COUNT] = {
        "auto",       "fuse-affine", "fuse-affine-n2", "labels", "brute",  "layerwise", "one-group",
        "ddp",        "horovod",     "bucket-sweep",   "even",   "mgwfbp", "cupcake",   "cupcake-literal",
        "mergecomp2", "mergecomp3",  "mergecomp4",
    };
    return (unsigned)algorithm < GW_PLAN_ALGORITHM_COUNT ? names[algorithm] : NULL;
}
