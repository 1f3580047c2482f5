/*
 * Baselines: the rules of frameworks and the papers' own algorithms, to compare with. No exact solver calls
 * them. The problem has been checked. They fill the plan, and of cert at most labels and stopped.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BASELINES_H
#define GW_BASELINES_H

#include "plan_solvers.h"

/* Runs solver->algorithm with solver->method. GW_ERR_ARG: it is no baseline. */
gw_status gw_baseline_run(const gw_plan_problem *problem, const gw_plan_solver *solver, gw_plan *plan,
                          gw_plan_cert *cert, gw_arena *arena);
/* Bytes that it takes of the arena. */
size_t gw_baseline_workspace(uint32_t tensor_count, gw_plan_algorithm algorithm);

/* The best even split into 2..32 groups; the best bucket size of 1..64 MiB. */
gw_status gw_baseline_best_even(const gw_plan_problem *problem, uint32_t method, gw_plan *plan);
gw_status gw_baseline_bucket_sweep(const gw_plan_problem *problem, uint32_t method, gw_plan *plan);
gw_status gw_mgwfbp(const gw_plan_problem *problem, uint32_t method, gw_plan *plan);
gw_status gw_mergecomp(const gw_plan_problem *problem, uint32_t method, uint32_t group_count_max,
                       gw_plan *plan, gw_plan_cert *cert, gw_arena *arena);
size_t gw_cupcake_workspace(uint32_t tensor_count);
/* solver: algorithm (CUPCAKE or CUPCAKE_LITERAL), method, limits. */
gw_status gw_cupcake(const gw_plan_problem *problem, const gw_plan_solver *solver, gw_plan *plan,
                     gw_plan_cert *cert, gw_arena *arena);

#endif
