/*
 * plan eval: how long a plan that already exists takes, at each level.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_chart.h"
#include "plan_opened.h"

int plan_cmd_eval(const plan_args *args)
{
    if (!(args->file_count == 2 || (args->file_count == 1 && args->bucket_mib > 0))) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "plan eval takes a model and a plan, or a model and --bucket-mib");
    }
    plan_opened o;
    int code = plan_opened_open(args, 0, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan_group *groups = NULL;
    uint32_t count = 0;
    double claimed = NAN;
    plan_result result;
    memset(&result, 0, sizeof result);
    if (o.c.kind == PLAN_TREE) {
        code = args->file_count == 2 ? plan_opened_choices(args, &o, &claimed)
                                     : gw_cli_error(GW_CLI_USAGE, NULL, "option trees have no buckets");
        if (code == GW_CLI_OK) {
            code = plan_result_from_choices(&o.tree, &o.c, &o.model, &result);
        }
    } else {
        code = plan_opened_groups(args, &o, &groups, &count, &claimed);
        if (code == GW_CLI_OK) {
            code = plan_result_from_groups(&o.setup, groups, count, &result);
        }
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
        json_object_set_new(root, "groups", json_integer((json_int_t)result.group_count));
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
    plan_opened_close(&o);
    return code;
}
