/*
 * plan verify: the solver against the evaluator and, where it is small enough, against brute force; a plan
 * file against both. For fused plans and for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_opened.h"

/* What the checks found, as ticks; -1: not done. */
typedef struct findings {
    gw_plan_cert exact;
    gw_plan_tick evaluated;
    gw_plan_status brute_status;
    gw_plan_cert brute;
    gw_plan_tick file; /* the plan file by the evaluator */
    double claimed_us;
} findings;

static int check_fused(const plan_args *args, plan_opened *o, const gw_plan_limits *limits, findings *f)
{
    plan_result exact;
    int code = plan_run(&o->library, &o->c, &o->model, args->files[0], "auto", NULL, limits, &exact);
    if (code == GW_CLI_OK) {
        f->exact = exact.cert;
        gw_plan plan = {exact.fused, exact.group_count, exact.group_count};
        (void)gw_plan_eval(&o->setup.problem, &plan, &f->evaluated);
    }
    plan_result_free(&exact);
    gw_plan_group *groups = calloc((size_t)o->model.count + 1, sizeof *groups);
    if (code == GW_CLI_OK && groups == NULL) {
        code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    if (code == GW_CLI_OK) {
        gw_plan all = {groups, o->model.count, 0};
        int64_t unused = 0; /* brute force needs no workspace */
        f->brute_status =
            gw_plan_solve(&o->setup.problem, GW_PLAN_BRUTE, 0, NULL, &unused, sizeof unused, &all, &f->brute);
    }
    free(groups);
    if (code == GW_CLI_OK && args->file_count == 2) {
        uint32_t count = 0;
        groups = NULL;
        code = plan_opened_groups(args, o, &groups, &count, &f->claimed_us);
        gw_plan plan = {groups, count, count};
        if (code == GW_CLI_OK && gw_plan_eval(&o->setup.problem, &plan, &f->file) != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1], "the plan breaks a constraint of the case");
        }
        free(groups);
    }
    return code;
}

static int check_tree(const plan_args *args, plan_opened *o, const gw_plan_limits *limits, findings *f)
{
    plan_tree reduced; /* solved as plan solve does; everything else sees all options */
    int code = plan_tree_solve_all(&o->library, &o->c, &o->model, &o->tree, limits, &reduced, &f->exact);
    if (code == GW_CLI_OK) {
        (void)gw_plan_tree_eval(&o->tree.tree, o->tree.choice, &f->evaluated);
        f->brute_status = gw_plan_tree_brute(&o->tree.tree, o->tree.choice, &f->brute);
    }
    plan_tree_free(&reduced);
    if (code == GW_CLI_OK && args->file_count == 2) {
        code = plan_opened_choices(args, o, &f->claimed_us);
        if (code == GW_CLI_OK && gw_plan_tree_eval(&o->tree.tree, o->tree.choice, &f->file) != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1], "the plan does not fit the case");
        }
    }
    return code;
}

/* Prints or stores what was found; the exit code says whether all of it agrees. */
static int report(const plan_args *args, const findings *f, json_t *root)
{
    const gw_plan_cert *exact = &f->exact;
    const int same = f->evaluated == exact->makespan;
    int code = same ? GW_CLI_OK : gw_cli_error(GW_CLI_BAD_DATA, NULL, "evaluator and solver differ");
    json_object_set_new(root, "solver_ticks", json_integer((json_int_t)exact->makespan));
    json_object_set_new(root, "evaluator_ticks", json_integer((json_int_t)f->evaluated));
    json_object_set_new(root, "lower_bound_ticks", json_integer((json_int_t)exact->lower_bound));
    if (!args->json) {
        printf("solver     %.6f ms, evaluator %s\n", plan_us(exact->makespan) / 1e3,
               same ? "agrees to the tick" : "DIFFERS");
    }
    if (f->brute_status == GW_PLAN_OK) {
        json_object_set_new(root, "brute_force_ticks", json_integer((json_int_t)f->brute.makespan));
        json_object_set_new(root, "brute_force_plans", json_integer((json_int_t)f->brute.labels));
        const int agrees =
            exact->proven ? f->brute.makespan == exact->makespan
                          : f->brute.makespan >= exact->lower_bound && f->brute.makespan <= exact->makespan;
        if (!args->json) {
            printf("brute force over %llu plans: %.6f ms, %s\n", (unsigned long long)f->brute.labels,
                   plan_us(f->brute.makespan) / 1e3, agrees ? "agrees" : "DIFFERS");
        }
        if (code == GW_CLI_OK && !agrees) {
            code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "brute force and solver differ");
        }
    } else if (!args->json) {
        printf("brute force: %s\n", gw_plan_status_string(f->brute_status));
    }
    if (code == GW_CLI_OK && f->file >= 0) {
        const double us = plan_us(f->file);
        const double over = 100 * ((double)f->file / (double)exact->makespan - 1);
        const int differs = !isnan(f->claimed_us) && fabs(us - f->claimed_us) > 1e-6 * us + 1e-3;
        json_object_set_new(root, "plan_us", json_real(us));
        json_object_set_new(root, "plan_claims_us", gw_cli_json_real(f->claimed_us));
        json_object_set_new(root, "over_optimum_percent", gw_cli_json_real(over));
        if (!args->json) {
            printf("%s: %.6f ms, %.4f %% over the best plan%s\n", args->files[1], us / 1e3, over,
                   differs ? ", and not what the file claims" : "");
        }
        if (f->file < exact->lower_bound) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1],
                                "beats the lower bound: a bug, please report it");
        } else if (differs) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1], "claims %.3f us but evaluates to %.3f us",
                                f->claimed_us, us);
        }
    }
    return code;
}

int plan_cmd_verify(const plan_args *args)
{
    if (args->file_count != 1 && args->file_count != 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan verify takes a model and, if wanted, a plan");
    }
    plan_opened o;
    int code = plan_opened_open(args, 0, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    findings f = {.evaluated = -1, .file = -1, .claimed_us = NAN};
    gw_plan_limits limits = plan_args_limits(args, 1000);
    code = o.c.kind == PLAN_TREE ? check_tree(args, &o, &limits, &f) : check_fused(args, &o, &limits, &f);
    json_t *root = json_object();
    if (code == GW_CLI_OK) {
        code = report(args, &f, root);
    }
    if (args->json && code == GW_CLI_OK) {
        code = gw_cli_json_print(root);
    } else {
        json_decref(root);
    }
    plan_opened_close(&o);
    return code;
}
