/*
 * plan explain: for every group, what happens if it is cut elsewhere, merged, or sent otherwise.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_commands.h"
#include "plan_explain_tree.h"

typedef struct change {
    gw_plan_tick makespan;
    char words[160];
} change;

static gw_plan_tick evaluate(const gw_plan_problem *problem, gw_plan_group *groups, uint32_t count)
{
    gw_plan plan = {groups, count, count};
    gw_plan_tick makespan = INT64_MAX;
    return gw_plan_eval(problem, &plan, &makespan) == GW_PLAN_OK ? makespan : INT64_MAX;
}

static void offer(change *best, gw_plan_tick makespan, const char *words)
{
    if (makespan < best->makespan) {
        best->makespan = makespan;
        (void)snprintf(best->words, sizeof best->words, "%s", words);
    }
}

static void delta_words(gw_plan_tick change_by, char *out, size_t size)
{
    double ms = plan_us(change_by) / 1e3;
    (void)snprintf(out, size, change_by == 0 ? "no change" : "%+.3f ms", ms);
}

static int explain_fused(const plan_args *args, const plan_opened *o)
{
    plan_result result;
    gw_plan_limits limits = plan_args_limits(args, 1000);
    int code = plan_run(&o->library, &o->c, &o->model, args->files[0],
                        args->algorithm != NULL ? args->algorithm : "auto", args->method, &limits, &result);
    gw_plan_group *trial = calloc((size_t)o->model.count + 2, sizeof *trial);
    if (code == GW_CLI_OK && trial == NULL) {
        code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    if (code == GW_CLI_OK) {
        gw_plan_span *spans = NULL;
        size_t span_count = 0;
        gw_plan_tick total = 0;
        code = plan_run_timeline(&result, &o->c, GW_PLAN_LEVEL_SERIAL, &spans, &span_count, &total);
        gw_plan_tick backprop = 0;
        gw_plan_tick encode = 0;
        gw_plan_tick network = 0;
        gw_plan_tick decode = 0;
        gw_plan_tick *starts = calloc((size_t)result.group_count + 1, sizeof *starts);
        gw_plan_tick *ready = calloc((size_t)result.group_count + 1, sizeof *ready);
        for (size_t i = 0; i < span_count; i++) {
            gw_plan_tick length = spans[i].end - spans[i].start;
            backprop += spans[i].kind == GW_PLAN_SPAN_BACKPROP ? length : 0;
            encode += spans[i].kind == GW_PLAN_SPAN_ENCODE ? length : 0;
            network += spans[i].kind == GW_PLAN_SPAN_NETWORK ? length : 0;
            decode += spans[i].kind == GW_PLAN_SPAN_DECODE ? length : 0;
            if (starts != NULL && ready != NULL) {
                if (spans[i].kind == GW_PLAN_SPAN_NETWORK) {
                    starts[spans[i].job] = spans[i].start;
                } else if (spans[i].kind != GW_PLAN_SPAN_DECODE) {
                    ready[spans[i].job] = spans[i].end;
                }
            }
        }
        json_t *groups_json = json_array();
        if (!args->json) {
            printf("%s, case %s: iteration %.3f ms%s\n", args->files[0], o->c.name, plan_us(total) / 1e3,
                   result.cert.proven ? ", proven shortest" : "");
            printf("backprop %.3f ms, encoding %.3f ms, network busy %.3f ms, decoding %.3f ms; %.3f ms are "
                   "not hidden behind "
                   "backprop\n\n",
                   plan_us(backprop) / 1e3, plan_us(encode) / 1e3, plan_us(network) / 1e3,
                   plan_us(decode) / 1e3, plan_us(total - backprop) / 1e3);
        }
        const uint32_t n = result.group_count;
        for (uint32_t j = 0; j < n && code == GW_CLI_OK && starts != NULL && ready != NULL; j++) {
            const gw_plan_group *group = &result.fused[j];
            char words[160];
            change split = {INT64_MAX, ""};
            change merge = {INT64_MAX, ""};
            change other = {INT64_MAX, ""};
            for (uint32_t cut = 1; cut < group->tensor_count; cut++) {
                memcpy(trial, result.fused, (j + 1) * sizeof *trial);
                memcpy(trial + j + 2, result.fused + j + 1, (n - j - 1) * sizeof *trial);
                trial[j].tensor_count = cut;
                trial[j + 1] = (gw_plan_group){group->first + cut, group->tensor_count - cut, group->method};
                (void)snprintf(words, sizeof words, "split after %.100s",
                               o->model.tensors[group->first + cut - 1].name);
                offer(&split, evaluate(&o->setup.problem, trial, n + 1), words);
            }
            for (uint32_t m = 0; j + 1 < n && m < o->setup.problem.method_count; m++) {
                char label[PLAN_PATH_SIZE];
                memcpy(trial, result.fused, (j + 1) * sizeof *trial);
                memcpy(trial + j + 1, result.fused + j + 2, (n - j - 2) * sizeof *trial);
                trial[j].tensor_count += result.fused[j + 1].tensor_count;
                trial[j].method = m;
                plan_method_label(&o->setup.methods[m], label, sizeof label);
                (void)snprintf(words, sizeof words, "merged with the next, %.60s", label);
                offer(&merge, evaluate(&o->setup.problem, trial, n - 1), words);
            }
            for (uint32_t m = 0; m < o->setup.problem.method_count; m++) {
                char label[PLAN_PATH_SIZE];
                if (m == group->method) {
                    continue;
                }
                memcpy(trial, result.fused, n * sizeof *trial);
                trial[j].method = m;
                plan_method_label(&o->setup.methods[m], label, sizeof label);
                (void)snprintf(words, sizeof words, "sent as %.60s", label);
                offer(&other, evaluate(&o->setup.problem, trial, n), words);
            }
            gw_plan_tick wait = starts[j] - ready[j];
            gw_plan_tick idle = j == 0 ? starts[j] : 0;
            for (size_t i = 0; j > 0 && i < span_count; i++) {
                if (spans[i].job == j - 1 && spans[i].kind == GW_PLAN_SPAN_NETWORK) {
                    idle = starts[j] - spans[i].end;
                }
            }
            const change *changes[3] = {&split, &merge, &other};
            static const char *const keys[3] = {"best_split", "merge_next", "other_method"};
            json_t *entry =
                json_pack("{s:i,s:i,s:i,s:s,s:f,s:f}", "group", (int)j, "first", (int)group->first, "last",
                          (int)(group->first + group->tensor_count - 1), "method", result.groups[j].method,
                          "waits_us", plan_us(wait), "network_idle_before_us", plan_us(idle));
            if (!args->json) {
                printf("group %u: tensors %u to %u (%s .. %s), %s\n", j, group->first,
                       group->first + group->tensor_count - 1, o->model.tensors[group->first].name,
                       o->model.tensors[group->first + group->tensor_count - 1].name,
                       result.groups[j].method);
                if (wait > 0) {
                    printf("  ready %.3f ms before the network is free\n", plan_us(wait) / 1e3);
                } else if (idle > 0) {
                    printf("  the network was idle for %.3f ms before it\n", plan_us(idle) / 1e3);
                }
            }
            for (int k = 0; k < 3; k++) {
                if (changes[k]->makespan == INT64_MAX) {
                    continue;
                }
                char delta[64];
                delta_words(changes[k]->makespan - total, delta, sizeof delta);
                json_object_set_new(entry, keys[k],
                                    json_pack("{s:s,s:f}", "change", changes[k]->words, "delta_us",
                                              plan_us(changes[k]->makespan) - plan_us(total)));
                if (!args->json) {
                    printf("  not %s: %s\n", changes[k]->words, delta);
                }
            }
            json_array_append_new(groups_json, entry);
        }
        if (args->json && code == GW_CLI_OK) {
            code = gw_cli_json_print(json_pack("{s:f,s:b,s:f,s:f,s:f,s:f,s:O}", "makespan_us", plan_us(total),
                                               "proven", result.cert.proven, "backprop_us", plan_us(backprop),
                                               "encode_us", plan_us(encode), "network_us", plan_us(network),
                                               "decode_us", plan_us(decode), "groups", groups_json));
        }
        json_decref(groups_json);
        free(starts);
        free(ready);
        free(spans);
    }
    free(trial);
    plan_result_free(&result);
    return code;
}

int plan_cmd_explain(const plan_args *args)
{
    if (args->file_count != 1) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan explain takes one model");
    }
    plan_opened o;
    int code = plan_opened_open(args, 0, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = o.c.kind == PLAN_TREE ? plan_explain_tree(args, &o) : explain_fused(args, &o);
    plan_opened_close(&o);
    return code;
}
