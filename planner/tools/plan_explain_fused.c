/*
 * plan explain for fused plans: for every group, how much longer the iteration gets when the group is split,
 * merged with the next, or sent with another method.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_file.h"
#include "plan_json.h"
#include "plan_memory.h"

typedef struct change {
    gw_plan_tick makespan; /* INT64_MAX: no such change */
    char words[160];
} change;

/* A solved plan with what its serial timeline shows. */
typedef struct explained {
    const plan_request *args;
    plan_opened *o;
    plan_result result;
    gw_plan_tick total;
    gw_plan_tick sums[GW_PLAN_SPAN_COPY + 1]; /* by gw_plan_span_kind */
    gw_plan_tick *ready;                      /* [group] end of backprop and encoding */
    gw_plan_tick *net_start;                  /* [group] */
    gw_plan_tick *net_end;                    /* [group] */
    gw_plan_group *trial;                     /* [tensor_count + 2] */
} explained;

/* Evaluates the first `count` groups of the trial; keeps the change if it is the best so far. */
static void try_change(const explained *x, uint32_t count, change *best, const char *words, const char *name)
{
    const gw_plan plan = {x->trial, count, count};
    gw_plan_tick makespan;
    if (gw_plan_eval(&x->o->setup.problem, &plan, &makespan) == GW_OK && makespan < best->makespan) {
        best->makespan = makespan;
        (void)snprintf(best->words, sizeof best->words, "%s%.100s", words, name);
    }
}

static change best_split(const explained *x, uint32_t j)
{
    const uint32_t n = x->result.group_count;
    const gw_plan_group *group = &x->result.fused[j];
    change best = {INT64_MAX, ""};
    for (uint32_t cut = 1; cut < group->tensor_count; cut++) {
        memcpy(x->trial, x->result.fused, (j + 1) * sizeof *x->trial);
        memcpy(x->trial + j + 2, x->result.fused + j + 1, (n - j - 1) * sizeof *x->trial);
        x->trial[j].tensor_count = cut;
        x->trial[j + 1] = (gw_plan_group){group->first + cut, group->tensor_count - cut, group->method};
        try_change(x, n + 1, &best, "split after ", x->o->model.tensors[group->first + cut - 1].name);
    }
    return best;
}

static change best_merge(const explained *x, uint32_t j)
{
    const uint32_t n = x->result.group_count;
    change best = {INT64_MAX, ""};
    for (uint32_t m = 0; j + 1 < n && m < x->o->setup.problem.method_count; m++) {
        memcpy(x->trial, x->result.fused, (j + 1) * sizeof *x->trial);
        memcpy(x->trial + j + 1, x->result.fused + j + 2, (n - j - 2) * sizeof *x->trial);
        x->trial[j].tensor_count += x->result.fused[j + 1].tensor_count;
        x->trial[j].method = m;
        try_change(x, n - 1, &best, "merged with the next, ", x->o->setup.labels[m]);
    }
    return best;
}

static change best_method(const explained *x, uint32_t j)
{
    const uint32_t n = x->result.group_count;
    change best = {INT64_MAX, ""};
    for (uint32_t m = 0; m < x->o->setup.problem.method_count; m++) {
        if (m == x->result.fused[j].method) {
            continue;
        }
        memcpy(x->trial, x->result.fused, n * sizeof *x->trial);
        x->trial[j].method = m;
        try_change(x, n, &best, "sent as ", x->o->setup.labels[m]);
    }
    return best;
}

/* Runs the serial timeline and adds up its spans. */
static void run_spans(explained *x)
{
    gw_plan_spans spans;
    x->total = plan_run_timeline(&x->result, &x->o->c, GW_PLAN_LEVEL_SERIAL, &spans);
    for (size_t i = 0; i < spans.count; i++) {
        const gw_plan_span *span = &spans.items[i];
        x->sums[span->kind] += span->end - span->start;
        if (span->kind == GW_PLAN_SPAN_NETWORK) {
            if (x->net_end[span->job] == 0) { /* the first of its exchanges */
                x->net_start[span->job] = span->start;
            }
            x->net_end[span->job] = span->end;
        } else if (x->net_end[span->job] == 0) {
            x->ready[span->job] = span->end;
        }
    }
    free(spans.items);
}

static void open_explained(explained *x)
{
    if (x->o->is_plan && x->args->algorithm == NULL) {
        gw_plan plan;
        plan_file_load(x->o->path, x->o, &plan, NULL);
        plan_result_make(x->o, &plan, &x->result);
        free(plan.groups);
    } else {
        const gw_plan_limits limits = plan_limits(&x->args->limits, 1000);
        plan_run(x->o, x->args->algorithm, NULL, &limits, &x->result);
    }
    const size_t n = x->result.group_count;
    x->ready = plan_alloc(n, sizeof *x->ready);
    x->net_start = plan_alloc(n, sizeof *x->net_start);
    x->net_end = plan_alloc(n, sizeof *x->net_end);
    x->trial = plan_alloc((size_t)x->o->model.count + 2, sizeof *x->trial);
    run_spans(x);
}

static void close_explained(explained *x)
{
    free(x->ready);
    free(x->net_start);
    free(x->net_end);
    free(x->trial);
    plan_result_free(&x->result);
}

static void print_head(const explained *x)
{
    printf("%s, case %s: iteration %.3f ms%s\n", x->o->path, x->o->c.name, plan_us(x->total) / 1e3,
           x->result.cert.proven ? ", proven shortest" : "");
    printf("backprop %.3f ms, encoding %.3f ms, network busy %.3f ms, decoding %.3f ms; %.3f ms are "
           "not overlapped by backprop\n\n",
           plan_us(x->sums[GW_PLAN_SPAN_BACKPROP]) / 1e3, plan_us(x->sums[GW_PLAN_SPAN_ENCODE]) / 1e3,
           plan_us(x->sums[GW_PLAN_SPAN_NETWORK]) / 1e3, plan_us(x->sums[GW_PLAN_SPAN_DECODE]) / 1e3,
           plan_us(x->total - x->sums[GW_PLAN_SPAN_BACKPROP]) / 1e3);
    if (x->sums[GW_PLAN_SPAN_SUM] + x->sums[GW_PLAN_SPAN_COPY] > 0) {
        printf("owners' sums %.3f ms, copies between GPU and host %.3f ms\n\n",
               plan_us(x->sums[GW_PLAN_SPAN_SUM]) / 1e3, plan_us(x->sums[GW_PLAN_SPAN_COPY]) / 1e3);
    }
}

static void print_group(const explained *x, uint32_t j, gw_plan_tick wait, gw_plan_tick idle)
{
    const gw_plan_group *group = &x->result.fused[j];
    const uint32_t last = group->first + group->tensor_count - 1;
    printf("group %u: tensors %u to %u (%s .. %s), %s\n", j, group->first, last,
           x->o->model.tensors[group->first].name, x->o->model.tensors[last].name,
           x->result.groups[j].method);
    if (wait > 0) {
        printf("  ready %.3f ms before the network is free\n", plan_us(wait) / 1e3);
    } else if (idle > 0) {
        printf("  the network was idle for %.3f ms before it\n", plan_us(idle) / 1e3);
    }
}

static json_t *explain_group(const explained *x, uint32_t j)
{
    static const char *const keys[3] = {"best_split", "merge_next", "other_method"};
    const change changes[3] = {best_split(x, j), best_merge(x, j), best_method(x, j)};
    const gw_plan_group *group = &x->result.fused[j];
    const gw_plan_tick wait = x->net_start[j] - x->ready[j];
    const gw_plan_tick idle = x->net_start[j] - (j > 0 ? x->net_end[j - 1] : 0);
    json_t *entry =
        json_pack("{s:i,s:i,s:i,s:s,s:f,s:f}", "group", (int)j, "first", (int)group->first, "last",
                  (int)(group->first + group->tensor_count - 1), "method", x->result.groups[j].method,
                  "waits_us", plan_us(wait), "network_idle_before_us", plan_us(idle));
    if (!x->args->common.json) {
        print_group(x, j, wait, idle);
    }
    for (int k = 0; k < 3; k++) {
        if (changes[k].makespan == INT64_MAX) {
            continue;
        }
        const gw_plan_tick delta = changes[k].makespan - x->total;
        json_object_set_new(entry, keys[k],
                            json_pack("{s:s,s:f}", "change", changes[k].words, "delta_us",
                                      plan_us(changes[k].makespan) - plan_us(x->total)));
        if (!x->args->common.json && delta == 0) {
            printf("  not %s: no change\n", changes[k].words);
        } else if (!x->args->common.json) {
            printf("  not %s: %+.3f ms\n", changes[k].words, plan_us(delta) / 1e3);
        }
    }
    return entry;
}

int plan_explain_fused(const plan_request *args, plan_opened *o)
{
    explained x = {.args = args, .o = o};
    open_explained(&x);
    if (!args->common.json) {
        print_head(&x);
    }
    json_t *groups = json_array();
    for (uint32_t j = 0; j < x.result.group_count; j++) {
        json_array_append_new(groups, explain_group(&x, j));
    }
    const int code = plan_json_end(
        json_pack("{s:f,s:b,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "makespan_us", plan_us(x.total), "proven",
                  x.result.cert.proven, "backprop_us", plan_us(x.sums[GW_PLAN_SPAN_BACKPROP]), "encode_us",
                  plan_us(x.sums[GW_PLAN_SPAN_ENCODE]), "network_us", plan_us(x.sums[GW_PLAN_SPAN_NETWORK]),
                  "decode_us", plan_us(x.sums[GW_PLAN_SPAN_DECODE]), "sum_us",
                  plan_us(x.sums[GW_PLAN_SPAN_SUM]), "copy_us", plan_us(x.sums[GW_PLAN_SPAN_COPY]), "groups",
                  groups),
        args->common.json);
    close_explained(&x);
    return code;
}
