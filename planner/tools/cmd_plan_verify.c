/*
 * plan verify: the solver against the evaluator and, where it is small enough, against brute force; a plan
 * file against both. For fused plans and for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli_common.h"
#include "plan_file.h"
#include "plan_json.h"
#include "plan_memory.h"

/* Results of the checks, in ticks; -1: not done. */
typedef struct findings {
    int is_fused_tree;     /* the best plan is that of the groups */
    const char *plan_path; /* NULL: no plan file */
    gw_plan_cert exact;
    gw_plan_tick evaluated;
    gw_status brute_status;
    gw_plan_cert brute;
    gw_plan_tick file; /* the plan file, evaluated */
    plan_claims claims;
} findings;

/* The plan file, evaluated. is_tree: its groups and choices are in o->tree. */
static void check_file(plan_opened *o, int is_tree, findings *f)
{
    gw_plan stored;
    if (f->plan_path == NULL) {
        return;
    }
    plan_file_load(f->plan_path, o, &stored, &f->claims);
    const gw_status status = is_tree ? gw_plan_tree_eval(&o->tree.tree, o->tree.choice, &f->file)
                                     : gw_plan_eval(&o->setup.problem, &stored, &f->file);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, f->plan_path,
                    is_tree ? "the plan does not fit the case" : "the plan breaks a constraint of the case");
    }
    free(stored.groups);
}

static void check_fused(plan_opened *o, const gw_plan_limits *limits, findings *f)
{
    plan_result exact;
    plan_run(o, NULL, NULL, limits, &exact);
    f->exact = exact.cert;
    const gw_plan plan = {exact.fused, exact.group_count, exact.group_count};
    if (gw_plan_eval(&o->setup.problem, &plan, &f->evaluated) != GW_OK) {
        f->evaluated = -1;
    }
    plan_result_free(&exact);
    gw_plan all = {plan_alloc(o->model.count, sizeof *all.groups), o->model.count, 0};
    int64_t unused = 0; /* brute force needs no workspace */
    const gw_workspace workspace = {&unused, sizeof unused};
    const gw_plan_solver brute = {.algorithm = GW_PLAN_BRUTE};
    f->brute_status = gw_plan_solve(&o->setup.problem, &brute, &all, &f->brute, &workspace);
    free(all.groups);
    check_file(o, 0, f);
}

static void check_tree(plan_opened *o, const gw_plan_limits *limits, findings *f)
{
    plan_tree reduced;          /* solved as by plan solve; all other checks use all options */
    if (f->plan_path != NULL) { /* its groups are those that are solved for */
        check_file(o, 1, f);
    } else {
        plan_run_fuse(o, limits);
    }
    plan_run_tree(o, limits, &reduced, &f->exact);
    if (gw_plan_tree_eval(&o->tree.tree, o->tree.choice, &f->evaluated) != GW_OK) {
        f->evaluated = -1;
    }
    f->brute_status = gw_plan_tree_brute(&o->tree.tree, o->tree.choice, &f->brute);
    plan_tree_free(&reduced);
}

static int report_solver(const findings *f, int quiet, json_t *root)
{
    const int same = f->evaluated == f->exact.makespan;
    json_object_set_new(root, "solver_ticks", json_integer((json_int_t)f->exact.makespan));
    json_object_set_new(root, "evaluator_ticks", json_integer((json_int_t)f->evaluated));
    json_object_set_new(root, "lower_bound_ticks", json_integer((json_int_t)f->exact.lower_bound));
    if (!quiet) {
        printf("solver     %.6f ms, evaluator %s\n", plan_us(f->exact.makespan) / 1e3,
               same ? "agrees to the tick" : "DIFFERS");
    }
    return same ? GW_CLI_OK : gw_cli_error(GW_CLI_BAD_DATA, NULL, "evaluator and solver differ");
}

static int report_brute(const findings *f, int quiet, json_t *root)
{
    const gw_plan_tick best = f->brute.makespan;
    if (f->brute_status != GW_OK) {
        if (!quiet && f->brute_status == GW_ERR_LIMIT) {
            printf("brute force: too many plans\n");
        } else if (!quiet) {
            printf("brute force: %s\n", gw_status_message(f->brute_status));
        }
        return GW_CLI_OK;
    }
    const int agrees = f->exact.proven ? best == f->exact.makespan
                                       : best >= f->exact.lower_bound && best <= f->exact.makespan;
    json_object_set_new(root, "brute_force_ticks", json_integer((json_int_t)best));
    json_object_set_new(root, "brute_force_plans", json_integer((json_int_t)f->brute.labels));
    if (!quiet) {
        printf("brute force over %llu plans: %.6f ms, %s\n", (unsigned long long)f->brute.labels,
               plan_us(best) / 1e3, agrees ? "agrees" : "DIFFERS");
    }
    return agrees ? GW_CLI_OK : gw_cli_error(GW_CLI_BAD_DATA, NULL, "brute force and solver differ");
}

static int report_file(const findings *f, int quiet, json_t *root)
{
    const double us = plan_us(f->file);
    const gw_plan_tick best = f->exact.makespan;
    /* A best plan of no duration: 0 % over it, or more than any percentage. */
    const double over = f->file == best ? 0
                        : best > 0      ? 100 * ((double)f->file / (double)best - 1)
                                        : INFINITY;
    const plan_claims *claims = &f->claims;
    const int us_differ = !isnan(claims->makespan_us) && fabs(us - claims->makespan_us) > 1e-6 * us + 1e-3;
    const int differs = us_differ || (claims->makespan_ticks >= 0 && claims->makespan_ticks != f->file);
    json_object_set_new(root, "plan_us", json_real(us));
    json_object_set_new(root, "plan_claims_us", gw_cli_json_real(claims->makespan_us));
    json_object_set_new(root, "over_optimum_percent", gw_cli_json_real(over));
    if (!quiet && isinf(over)) {
        printf("%s: %.6f ms, but the best %s no time%s\n", f->plan_path, us / 1e3,
               f->is_fused_tree ? "options for these groups take" : "plan takes",
               differs ? ", and not what the file claims" : "");
    } else if (!quiet) {
        printf("%s: %.6f ms, %.4f %% over the best %s%s\n", f->plan_path, us / 1e3, over,
               f->is_fused_tree ? "options for these groups" : "plan",
               differs ? ", and not what the file claims" : "");
    }
    if (f->file < f->exact.lower_bound) {
        return gw_cli_error(GW_CLI_BAD_DATA, f->plan_path, "beats the lower bound: a bug, please report it");
    }
    if (us_differ) {
        return gw_cli_error(GW_CLI_BAD_DATA, f->plan_path, "claims %.3f us but evaluates to %.3f us",
                            claims->makespan_us, us);
    }
    if (differs) {
        return gw_cli_error(GW_CLI_BAD_DATA, f->plan_path, "claims %lld ticks but evaluates to %lld ticks",
                            (long long)claims->makespan_ticks, (long long)f->file);
    }
    const gw_plan_tick shortest = f->file < best ? f->file : best;
    return claims->bound_ticks > shortest
               ? gw_cli_error(GW_CLI_BAD_DATA, f->plan_path,
                              "claims that no plan is shorter than %.3f us, but one takes %.3f us",
                              plan_us(claims->bound_ticks), plan_us(shortest))
               : GW_CLI_OK;
}

static int verify(const plan_request *a)
{
    static plan_opened o;
    const gw_request *common = &a->common;
    const gw_plan_limits limits = plan_limits(&a->limits, 1000);
    findings f = {.evaluated = -1, .file = -1, .claims = PLAN_CLAIMS_NONE};
    plan_opened_open(&a->of_case, common->input, &o);
    f.plan_path = common->input_count == 2 || o.is_plan ? common->inputs[common->input_count - 1] : NULL;
    f.is_fused_tree = o.c.fuse;
    gw_cli_must(plan_opened_prepare(&o));
    if (o.c.kind == PLAN_TREE) {
        check_tree(&o, &limits, &f);
    } else {
        check_fused(&o, &limits, &f);
    }
    json_t *root = json_object();
    gw_cli_must(report_solver(&f, common->json, root));
    gw_cli_must(report_brute(&f, common->json, root));
    gw_cli_must(f.file >= 0 ? report_file(&f, common->json, root) : GW_CLI_OK);
    plan_opened_close(&o);
    return plan_json_end(root, common->json);
}

static const gw_option options[] = {PLAN_JSON_ROW, {0}};

const plan_verb plan_verb_verify = {
    .name = "verify",
    .summary = "re-evaluate a plan, compare with brute force",
    .run = verify,
    .input_min = 1,
    .input_max = 2,
    .takes = "a plan, or a model and, optionally, a plan",
    .line = {.usage = "PLAN, or MODEL [PLAN]",
             .help = "Re-evaluates a plan; for small models compares with all plans.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
