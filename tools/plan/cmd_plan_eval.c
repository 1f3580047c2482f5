/*
 * plan eval, plan verify, plan export: plans that already exist.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_chart.h"
#include "plan_commands.h"
#include "plan_file.h"

/* What the three commands start with: case, model, methods. */
typedef struct opened {
    plan_library library;
    plan_case c;
    plan_model model;
    plan_setup setup;
} opened;

static void close_all(opened *o)
{
    plan_setup_free(&o->setup);
    plan_model_free(&o->model);
    plan_library_close(&o->library);
}

static int open_all(const plan_args *args, opened *o)
{
    memset(o, 0, sizeof *o);
    int code = plan_args_case(args, &o->library, &o->c);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_model_read(args->files[0], &o->model);
    if (code == GW_CLI_OK) {
        code = plan_setup_make(&o->library, &o->c, &o->model, args->files[0], &o->setup);
    }
    if (code != GW_CLI_OK) {
        close_all(o);
    }
    return code;
}

/* Groups from a plan file or from fixed buckets. */
static int load_groups(const plan_args *args, opened *o, gw_plan_group **groups, uint32_t *count,
                       double *claimed_us)
{
    *groups = NULL;
    *claimed_us = NAN;
    if (args->file_count == 2) {
        plan_file file;
        int code = plan_file_read(args->files[1], &file);
        if (code != GW_CLI_OK) {
            return code;
        }
        if (file.hash != 0 && file.hash != plan_problem_hash(&o->model)) {
            gw_cli_note("%s was made for a model with other names or sizes than %s", args->files[1],
                        args->files[0]);
        }
        code = plan_file_groups(args->files[1], &file, &o->setup, &o->model, groups, count);
        *claimed_us = file.makespan_us;
        plan_file_close(&file);
        return code;
    }
    *groups = calloc((size_t)o->model.count + 1, sizeof **groups);
    if (*groups == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    int method = args->method != NULL ? plan_method_index(&o->setup, args->method)
                                      : (int)o->setup.problem.method_count - 1;
    gw_plan plan = {*groups, o->model.count, 0};
    int64_t cap = (int64_t)llround(args->bucket_mib * (1 << 18));
    if (method < 0 || gw_plan_bucket(&o->setup.problem, (uint32_t)method, cap, cap, 0, &plan) != GW_PLAN_OK) {
        free(*groups);
        *groups = NULL;
        return gw_cli_error(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case", args->method);
    }
    *count = plan.group_count;
    return GW_CLI_OK;
}

int plan_cmd_eval(const plan_args *args)
{
    if (!(args->file_count == 2 || (args->file_count == 1 && args->bucket_mib > 0))) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "plan eval takes a model and a plan, or a model and --bucket-mib");
    }
    opened o;
    int code = open_all(args, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan_group *groups;
    uint32_t count = 0;
    double claimed;
    plan_result result;
    memset(&result, 0, sizeof result);
    code = load_groups(args, &o, &groups, &count, &claimed);
    if (code == GW_CLI_OK) {
        code = plan_result_from_groups(&o.setup, groups, count, &result);
    }
    if (code == GW_CLI_OK) {
        static const char *const names[3] = {"serial", "pipelined", "event"};
        (void)snprintf(result.algorithm, sizeof result.algorithm, "%s",
                       args->file_count == 2 ? "file" : "bucket");
        json_t *root = json_object();
        for (int level = 0; level < 3 && code == GW_CLI_OK; level++) {
            gw_plan_tick makespan = 0;
            code = plan_run_timeline(&result, &o.c, (gw_plan_level)level, NULL, NULL, &makespan);
            char key[32];
            (void)snprintf(key, sizeof key, "%s_us", names[level]);
            json_object_set_new(root, key, json_real(plan_us(makespan)));
            if (!args->json) {
                printf("%-10s %12.3f ms\n", names[level], plan_us(makespan) / 1e3);
            }
        }
        json_object_set_new(root, "groups", json_integer(count));
        json_object_set_new(root, "claimed_us", gw_cli_json_real(claimed));
        if (args->json && code == GW_CLI_OK) {
            code = gw_cli_json_print(root);
        } else {
            json_decref(root);
        }
        if (code == GW_CLI_OK && args->output != NULL) {
            code = plan_file_write(&result, &o.c, &o.model, args->files[0], args->output);
        }
        if (code == GW_CLI_OK && (args->svg != NULL || args->chrome != NULL)) {
            code = plan_chart_write(&result, &o.c, &o.model, args->svg, args->chrome);
        }
    }
    plan_result_free(&result);
    free(groups);
    close_all(&o);
    return code;
}

int plan_cmd_verify(const plan_args *args)
{
    if (args->file_count != 1 && args->file_count != 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan verify takes a model and, if wanted, a plan");
    }
    opened o;
    int code = open_all(args, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    if (o.c.kind == PLAN_TREE) {
        close_all(&o);
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "plan verify checks fused plans; tests/plan checks option trees");
    }
    gw_plan_limits limits = plan_args_limits(args, 1000);
    plan_result exact;
    code = plan_run(&o.library, &o.c, &o.model, args->files[0], "auto", NULL, &limits, &exact);
    json_t *root = json_object();
    if (code == GW_CLI_OK) {
        gw_plan_tick evaluated = -1;
        gw_plan plan = {exact.fused, exact.group_count, exact.group_count};
        (void)gw_plan_eval(&o.setup.problem, &plan, &evaluated);
        int same = evaluated == exact.cert.makespan;
        json_object_set_new(root, "solver_ticks", json_integer((json_int_t)exact.cert.makespan));
        json_object_set_new(root, "evaluator_ticks", json_integer((json_int_t)evaluated));
        json_object_set_new(root, "lower_bound_ticks", json_integer((json_int_t)exact.cert.lower_bound));
        if (!args->json) {
            printf("solver     %.6f ms, evaluator %s\n", plan_us(exact.cert.makespan) / 1e3,
                   same ? "agrees to the tick" : "DIFFERS");
        }
        code = same ? GW_CLI_OK : gw_cli_error(GW_CLI_BAD_DATA, NULL, "evaluator and solver differ");
        gw_plan_cert brute;
        gw_plan_group *groups = calloc((size_t)o.model.count + 1, sizeof *groups);
        gw_plan all = {groups, o.model.count, 0};
        int64_t dummy = 0;
        gw_plan_status status = groups == NULL ? GW_PLAN_ERR_LIMIT
                                               : gw_plan_solve(&o.setup.problem, GW_PLAN_BRUTE, 0, NULL,
                                                               &dummy, sizeof dummy, &all, &brute);
        if (status == GW_PLAN_OK) {
            json_object_set_new(root, "brute_force_ticks", json_integer((json_int_t)brute.makespan));
            json_object_set_new(root, "brute_force_plans", json_integer((json_int_t)brute.labels));
            int agrees = exact.cert.proven ? brute.makespan == exact.cert.makespan
                                           : brute.makespan >= exact.cert.lower_bound &&
                                                 brute.makespan <= exact.cert.makespan;
            if (!args->json) {
                printf("brute force over %llu plans: %.6f ms, %s\n", (unsigned long long)brute.labels,
                       plan_us(brute.makespan) / 1e3, agrees ? "agrees" : "DIFFERS");
            }
            if (code == GW_CLI_OK && !agrees) {
                code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "brute force and solver differ");
            }
        } else if (!args->json) {
            printf("brute force: %s\n", gw_plan_status_string(status));
        }
        free(groups);
    }
    if (code == GW_CLI_OK && args->file_count == 2) {
        gw_plan_group *groups;
        uint32_t count = 0;
        double claimed;
        code = load_groups(args, &o, &groups, &count, &claimed);
        gw_plan plan = {groups, count, count};
        gw_plan_tick makespan = 0;
        if (code == GW_CLI_OK && gw_plan_eval(&o.setup.problem, &plan, &makespan) != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1], "the plan breaks a constraint of the case");
        }
        if (code == GW_CLI_OK) {
            double us = plan_us(makespan);
            int differs = !isnan(claimed) && fabs(us - claimed) > 1e-6 * us + 1e-3;
            json_object_set_new(root, "plan_us", json_real(us));
            json_object_set_new(root, "plan_claims_us", gw_cli_json_real(claimed));
            json_object_set_new(root, "over_optimum_percent",
                                json_real(100 * ((double)makespan / (double)exact.cert.makespan - 1)));
            if (!args->json) {
                printf("%s: %.6f ms, %.4f %% over the best plan%s\n", args->files[1], us / 1e3,
                       100 * ((double)makespan / (double)exact.cert.makespan - 1),
                       differs ? ", and not what the file claims" : "");
            }
            if (makespan < exact.cert.lower_bound) {
                code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1],
                                    "beats the lower bound: a bug, please report it");
            } else if (differs) {
                code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1],
                                    "claims %.3f us but evaluates to %.3f us", claimed, us);
            }
        }
        free(groups);
    }
    if (args->json && code == GW_CLI_OK) {
        code = gw_cli_json_print(root);
    } else {
        json_decref(root);
    }
    plan_result_free(&exact);
    close_all(&o);
    return code;
}

/*
 * PyTorch's rule (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): parameters in
 * the order the reducer sees them, a bucket closes when its bytes reach its limit; the next limit of the list
 * follows, the last repeats. A list entry in MB of 2^20 bytes reproduces a group when the group without its
 * last tensor is smaller and the whole group is not: any limit in (bytes - last tensor, bytes]; its middle is
 * used.
 */
int plan_cmd_export(const plan_args *args)
{
    if (args->file_count != 1 && args->file_count != 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan export takes a model and, if wanted, a plan");
    }
    opened o;
    int code = open_all(args, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan_group *groups = NULL;
    uint32_t count = 0;
    if (args->file_count == 2) {
        double claimed;
        code = load_groups(args, &o, &groups, &count, &claimed);
    } else if (o.c.kind == PLAN_TREE) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "option trees do not fuse; there are no buckets to export");
    } else {
        plan_result result;
        gw_plan_limits limits = plan_args_limits(args, 1000);
        code = plan_run(&o.library, &o.c, &o.model, args->files[0],
                        args->algorithm != NULL ? args->algorithm : "auto", args->method, &limits, &result);
        if (code == GW_CLI_OK) {
            groups = result.fused;
            count = result.group_count;
            result.fused = NULL;
            plan_result_free(&result);
        }
    }
    if (code == GW_CLI_OK) {
        double *caps = calloc(count, sizeof *caps);
        int64_t *bytes = calloc(count, sizeof *bytes);
        json_t *list = json_array();
        for (uint32_t j = 0; caps != NULL && bytes != NULL && j < count; j++) {
            for (uint32_t i = groups[j].first; i < groups[j].first + groups[j].tensor_count; i++) {
                bytes[j] += 4 * o.model.tensors[i].elems;
            }
            /* Half the last tensor below the group's bytes, on a grid of 1e-6 MB (about a byte): survives
             * printing. */
            int64_t last = 4 * o.model.tensors[groups[j].first + groups[j].tensor_count - 1].elems;
            caps[j] = round((double)(bytes[j] - last / 2) / 1048576.0 * 1e6) / 1e6;
            json_array_append_new(list, json_real(caps[j]));
        }
        /* Cut again by PyTorch's rule and compare. */
        uint32_t bucket = 0;
        uint32_t first = 0;
        int64_t held = 0;
        const char *why = caps == NULL || bytes == NULL ? "memory is short" : NULL;
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < o.model.count && why == NULL; i++) {
            held += 4 * o.model.tensors[i].elems;
            int64_t limit = (int64_t)(caps[bucket < count ? bucket : count - 1] * 1048576.0);
            if (held >= limit || i + 1 == o.model.count) {
                if (bucket >= count || groups[bucket].first != first ||
                    groups[bucket].tensor_count != i + 1 - first) {
                    why = "a tensor without elements at a cut, or equal sums, would move a boundary";
                    wrong = bucket;
                }
                bucket++;
                first = i + 1;
                held = 0;
            }
        }
        if (why != NULL) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[0],
                                "PyTorch would not cut the same groups (bucket %u: %s)", wrong, why);
            json_decref(list);
        } else {
            json_t *root = json_pack("{s:o,s:i,s:b,s:s}", "bucket_cap_mb_list", list, "buckets", (int)count,
                                     "pytorch_cuts_the_same_groups", 1, "order",
                                     "gradients in backprop order, float32, MB = 2^20 bytes");
            if (args->output != NULL || args->json) {
                code = plan_json_write(root, args->output != NULL ? args->output : "-");
            } else {
                printf("bucket_cap_mb_list=[");
                for (uint32_t j = 0; j < count; j++) {
                    printf("%s%.6f", j > 0 ? ", " : "", caps[j]);
                }
                printf("]\n");
                json_decref(root);
            }
        }
        free(caps);
        free(bytes);
    }
    free(groups);
    close_all(&o);
    return code;
}
