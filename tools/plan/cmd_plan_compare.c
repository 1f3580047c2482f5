/*
 * plan compare: the exact plan beside the rules of frameworks and papers, at the serial level and the case's
 * level.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_chart.h"
#include "plan_commands.h"
#include "plan_run.h"

static int compare_model(const plan_args *args, const plan_library *library, const plan_case *c,
                         const char *path, json_t *rows_out)
{
    static const char *const fused[] = {
        "auto",   "layerwise",  "one-group",  "ddp",        "horovod", "bucket-sweep",    "even",
        "mgwfbp", "mergecomp2", "mergecomp3", "mergecomp4", "cupcake", "cupcake-literal", NULL};
    static const char *const trees[] = {"auto", "bytecomp", NULL};
    plan_model model;
    int code = plan_model_read(path, &model);
    if (code != GW_CLI_OK) {
        return code;
    }
    const char *const *algorithms = c->kind == PLAN_TREE ? trees : fused;
    double best = 0;
    double bound = 0;
    plan_result charted[3]; /* unplanned, PyTorch's buckets, ours */
    memset(charted, 0, sizeof charted);
    if (!args->json) {
        printf("%s, case %s, %u tensors\n%-18s %12s %10s %8s %10s%s\n", path, c->name, model.count, "plan",
               "ms", "over best", "groups", "solve us",
               c->level == GW_PLAN_LEVEL_SERIAL ? "" : "  at level ms");
    }
    for (int a = 0; algorithms[a] != NULL && code == GW_CLI_OK; a++) {
        plan_result result;
        gw_plan_limits limits = plan_args_limits(args, 1000);
        code = plan_run(library, c, &model, path, algorithms[a], args->method, &limits, &result);
        if (code != GW_CLI_OK) {
            break;
        }
        double ms = plan_us(result.cert.makespan) / 1e3;
        if (a == 0) {
            best = ms;
            bound = plan_us(result.cert.lower_bound) / 1e3;
        }
        double over = best > 0 ? 100 * (ms / best - 1) : 0;
        gw_plan_tick judged = result.cert.makespan;
        if (c->level != GW_PLAN_LEVEL_SERIAL) {
            code = plan_run_timeline(&result, c, c->level, NULL, NULL, &judged);
        }
        if (args->json) {
            json_array_append_new(
                rows_out,
                json_pack("{s:s,s:s,s:f,s:f,s:f,s:o,s:b,s:f,s:i,s:b,s:f}", "model", path, "plan",
                          algorithms[a], "makespan_us", ms * 1e3, "lower_bound_us",
                          a == 0 ? bound * 1e3 : plan_us(result.cert.lower_bound), "over_best_percent", over,
                          "gap", gw_cli_json_real(plan_gap(&result.cert)), "proven", result.cert.proven,
                          "solve_us", result.solve_us, "groups", (int)result.group_count, "stopped_by_limit",
                          result.cert.stopped, "judged_us", plan_us(judged)));
        } else {
            printf("%-18s %12.3f %9.3f%% %8u %10.1f", algorithms[a], ms, over, result.group_count,
                   result.solve_us);
            if (c->level != GW_PLAN_LEVEL_SERIAL) {
                printf(" %12.3f", plan_us(judged) / 1e3);
            }
            printf("%s%s\n", result.cert.proven && a == 0 ? "  proven optimal" : "",
                   result.cert.stopped ? "  (stopped by a limit)" : "");
        }
        int row = c->kind == PLAN_TREE                      ? (a == 0 ? 2 : -1)
                  : strcmp(algorithms[a], "layerwise") == 0 ? 0
                  : strcmp(algorithms[a], "ddp") == 0       ? 1
                  : a == 0                                  ? 2
                                                            : -1;
        if (args->svg != NULL && row >= 0) {
            charted[row] = result;
        } else {
            plan_result_free(&result);
        }
    }
    if (args->svg != NULL && code == GW_CLI_OK) {
        const plan_chart_row rows[3] = {{"one message a tensor", &charted[0]},
                                        {"PyTorch buckets (1 MiB, then 25 MiB)", &charted[1]},
                                        {"gradwire plan", &charted[2]}};
        code = c->kind == PLAN_TREE ? plan_chart_svg(rows + 2, 1, c, args->svg)
                                    : plan_chart_svg(rows, 3, c, args->svg);
    }
    for (int row = 0; row < 3; row++) {
        plan_result_free(&charted[row]);
    }
    if (!args->json && code == GW_CLI_OK) {
        printf("lower bound %.3f ms\n\n", bound);
    }
    plan_model_free(&model);
    return code;
}

int plan_cmd_compare(const plan_args *args)
{
    if (args->file_count == 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan compare takes one or more models");
    }
    plan_library library;
    plan_case c;
    int code = plan_args_case(args, &library, &c);
    if (code != GW_CLI_OK) {
        return code;
    }
    json_t *rows = json_array();
    for (int i = 0; i < args->file_count && code == GW_CLI_OK; i++) {
        code = compare_model(args, &library, &c, args->files[i], rows);
    }
    if (args->json && code == GW_CLI_OK) {
        code = gw_cli_json_print(json_pack("{s:s,s:O}", "case", c.name, "rows", rows));
    }
    json_decref(rows);
    plan_library_close(&library);
    return code;
}
