/*
 * plan solve, plan options, plan cases.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_chart.h"
#include "plan_commands.h"
#include "plan_file.h"

int plan_cmd_solve(const plan_args *args)
{
    if (args->file_count != 1) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan solve takes one model");
    }
    plan_library library;
    plan_case c;
    int code = plan_args_case(args, &library, &c);
    if (code != GW_CLI_OK) {
        return code;
    }
    plan_model model;
    code = plan_model_read(args->files[0], &model);
    if (code != GW_CLI_OK) {
        plan_library_close(&library);
        return code;
    }
    plan_result result;
    memset(&result, 0, sizeof result);
    const char *algorithm = args->algorithm != NULL ? args->algorithm : "auto";
    gw_plan_limits limits = plan_args_limits(args, 1000);
    size_t repeat_max = args->repeat > 0 ? (size_t)args->repeat : 11;
    size_t solves = 0;
    double spent_us = 0;
    double *times = calloc(repeat_max, sizeof *times);
    code = times != NULL ? GW_CLI_OK : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    while (code == GW_CLI_OK && solves < repeat_max && (args->repeat > 0 || spent_us < 10000)) {
        plan_result_free(&result);
        code = plan_run(&library, &c, &model, args->files[0], algorithm, args->method, &limits, &result);
        times[solves++] = result.solve_us;
        spent_us += result.solve_us;
    }
    if (code == GW_CLI_OK) {
        result.solve_us = gw_cli_median(times, solves);
        result.solves = (uint32_t)solves;
        if (args->output != NULL) {
            code = plan_file_write(&result, &c, &model, args->files[0], args->output);
        }
        if (code == GW_CLI_OK && (args->svg != NULL || args->chrome != NULL)) {
            code = plan_chart_write(&result, &c, &model, args->svg, args->chrome);
        }
    }
    if (code == GW_CLI_OK && args->json) {
        json_t *root = plan_file_json(&result, &c, &model, args->files[0]);
        code = gw_cli_json_print(root);
    } else if (code == GW_CLI_OK) {
        printf("%s, case %s: %u tensors in %u groups\n", args->files[0], c.name, model.count,
               result.group_count);
        printf("iteration %.3f ms, lower bound %.3f ms, gap %.4f %%%s, solved in %.1f us (%s)\n",
               plan_us(result.cert.makespan) / 1e3, plan_us(result.cert.lower_bound) / 1e3,
               100 * plan_gap(&result.cert), result.cert.proven ? " (proven optimal)" : "", result.solve_us,
               result.algorithm);
        if (c.level != GW_PLAN_LEVEL_SERIAL) {
            gw_plan_tick judged = 0;
            code = plan_run_timeline(&result, &c, c.level, NULL, NULL, &judged);
            printf("at the %s level: %.3f ms\n", c.level == GW_PLAN_LEVEL_EVENT ? "event" : "pipelined",
                   plan_us(judged) / 1e3);
        }
        printf("%5s %7s %7s %12s  %s\n", "group", "first", "last", "elems", "method");
        for (uint32_t j = 0; j < result.group_count; j++) {
            int64_t elems = 0;
            uint32_t end = result.groups[j].first + result.groups[j].tensor_count;
            for (uint32_t i = result.groups[j].first; i < end; i++) {
                elems += model.tensors[i].elems;
            }
            printf("%5u %7u %7u %12lld  %s\n", j, result.groups[j].first, end - 1, (long long)elems,
                   result.groups[j].method);
        }
    }
    free(times);
    plan_result_free(&result);
    plan_model_free(&model);
    plan_library_close(&library);
    return code;
}

static int parse_filter(const char *list, uint32_t *filter)
{
    static const char *const names[4] = {"gpu", "dense", "scatter", "one-device"};
    *filter = 0;
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ",");
        int known = 0;
        for (int i = 0; i < 4; i++) {
            if (strlen(names[i]) == length && memcmp(names[i], list, length) == 0) {
                *filter |= 1u << i;
                known = 1;
            }
        }
        if (!known) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--only knows gpu, dense, scatter and one-device");
        }
        list += length + (list[length] == ',');
    }
    return GW_CLI_OK;
}

int plan_cmd_options(const plan_args *args)
{
    uint32_t filter;
    if (args->file_count != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan options takes no file");
    }
    int code = parse_filter(args->options_filter, &filter);
    if (code != GW_CLI_OK) {
        return code;
    }
    uint32_t comp_max = args->comp_max >= 0 ? (uint32_t)args->comp_max : UINT32_MAX;
    uint32_t count = 0;
    gw_plan_option *options = calloc(GW_PLAN_OPTION_COUNT, sizeof *options);
    if (options == NULL ||
        gw_plan_options_list(filter, comp_max, options, GW_PLAN_OPTION_COUNT, &count) != GW_PLAN_OK) {
        free(options);
        return gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    uint32_t histogram[GW_PLAN_OPTION_OPS_MAX + 1] = {0};
    uint32_t most = 0;
    for (uint32_t o = 0; o < count; o++) {
        histogram[options[o].comp_count]++;
        most = options[o].comp_count > most ? options[o].comp_count : most;
    }
    if (args->json) {
        json_t *bins = json_array();
        for (uint32_t h = 0; h <= most; h++) {
            json_array_append_new(bins, json_integer(histogram[h]));
        }
        json_t *root = json_pack("{s:I,s:o}", "count", (json_int_t)count, "by_compressions", bins);
        if (!args->count_only && !args->histogram) {
            json_t *paths = json_array();
            for (uint32_t o = 0; o < count; o++) {
                json_t *path = json_array();
                for (uint32_t i = 0; i < options[o].op_count; i++) {
                    json_array_append_new(path, json_string(gw_plan_op_name((gw_plan_op)options[o].ops[i])));
                }
                json_array_append_new(paths, path);
            }
            json_object_set_new(root, "options", paths);
        }
        code = gw_cli_json_print(root);
    } else if (args->count_only) {
        printf("%u\n", count);
    } else if (args->histogram) {
        printf("compressions options\n");
        for (uint32_t h = 0; h <= most; h++) {
            printf("%12u %7u\n", h, histogram[h]);
        }
    } else {
        for (uint32_t o = 0; o < count; o++) {
            for (uint32_t i = 0; i < options[o].op_count; i++) {
                printf("%s%s", i > 0 ? " > " : "", gw_plan_op_name((gw_plan_op)options[o].ops[i]));
            }
            printf("\n");
        }
    }
    free(options);
    return code;
}

int plan_cmd_cases(const plan_args *args)
{
    plan_library library;
    int code = plan_library_open(&library, args->cases_path);
    if (code != GW_CLI_OK) {
        return code;
    }
    json_t *cases = json_object_get(library.root, "cases");
    size_t index;
    json_t *object;
    if (args->json) {
        code = gw_cli_json_print(json_incref(cases));
    } else {
        json_array_foreach(cases, index, object)
        {
            plan_case c;
            json_t *models = NULL;
            if (!plan_case_at(&library, index, &c, &models)) {
                code = GW_CLI_BAD_DATA;
                break;
            }
            printf("%-36s %-7s %u x %u GPUs, %zu models, methods", c.name,
                   c.kind == PLAN_JOINT    ? "joint"
                   : c.kind == PLAN_FUSION ? "fusion"
                                           : "tree",
                   c.cluster.nodes, c.cluster.gpus, json_array_size(models));
            for (uint32_t m = 0; m < c.method_count; m++) {
                printf(" %s", c.method_names[m]);
            }
            printf("\n");
        }
    }
    plan_library_close(&library);
    return code;
}
