/*
 * Running solvers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"

void *plan_workspace(size_t size)
{
    static void *kept;
    static size_t kept_size;
    if (size > kept_size) {
        free(kept);
        kept = malloc(size);
        kept_size = kept != NULL ? size : 0;
    }
    return kept;
}

double plan_gap(const gw_plan_cert *cert)
{
    if (cert->makespan == cert->lower_bound) {
        return 0;
    }
    return cert->lower_bound > 0 ? (double)(cert->makespan - cert->lower_bound) / (double)cert->lower_bound
                                 : INFINITY;
}

void plan_method_label(const gw_plan_method *method, char *out, size_t out_size)
{
    (void)snprintf(out, out_size, "%s%s", method->name, method->enc_device == GW_PLAN_CPU ? "@cpu" : "");
}

int plan_method_index(const plan_setup *setup, const char *label)
{
    for (uint32_t m = 0; m < setup->problem.method_count; m++) {
        char here[PLAN_PATH_SIZE];
        plan_method_label(&setup->methods[m], here, sizeof here);
        if (strcmp(here, label) == 0) {
            return (int)m;
        }
    }
    return -1;
}

void plan_result_free(plan_result *result)
{
    free(result->groups);
    free(result->fused);
    free(result->jobs);
    memset(result, 0, sizeof *result);
}

static int allocate(plan_result *result, uint32_t count)
{
    result->groups = calloc((size_t)count + 1, sizeof *result->groups);
    result->fused = calloc((size_t)count + 1, sizeof *result->fused);
    result->jobs = calloc((size_t)count + 1, sizeof *result->jobs);
    return result->groups != NULL && result->fused != NULL && result->jobs != NULL
               ? GW_CLI_OK
               : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
}

static int fill_fused(const plan_setup *setup, plan_result *result)
{
    gw_plan plan = {result->fused, result->group_count, result->group_count};
    gw_plan_status status = gw_plan_jobs(&setup->problem, &plan, result->jobs, result->group_count);
    if (status != GW_PLAN_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_plan_status_string(status));
    }
    for (uint32_t j = 0; j < result->group_count; j++) {
        result->groups[j].first = result->fused[j].first;
        result->groups[j].tensor_count = result->fused[j].tensor_count;
        plan_method_label(&setup->methods[result->fused[j].method], result->groups[j].method, PLAN_PATH_SIZE);
    }
    return GW_CLI_OK;
}

int plan_result_from_groups(const plan_setup *setup, const gw_plan_group *groups, uint32_t group_count,
                            plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = allocate(result, group_count);
    if (code != GW_CLI_OK) {
        return code;
    }
    memcpy(result->fused, groups, group_count * sizeof *groups);
    result->group_count = group_count;
    gw_plan plan = {result->fused, group_count, group_count};
    gw_plan_status status = gw_plan_eval(&setup->problem, &plan, &result->cert.makespan);
    if (status != GW_PLAN_OK) {
        code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "plan: %s", gw_plan_status_string(status));
    } else {
        code = fill_fused(setup, result);
    }
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    }
    return code;
}

static int run_fused(const plan_library *library, const plan_case *c, const plan_model *model,
                     const char *model_path, const char *algorithm, const char *method,
                     const gw_plan_limits *limits, plan_result *result)
{
    plan_setup setup;
    double start = gw_cli_seconds();
    int code = plan_setup_make(library, c, model, model_path, &setup);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan_algorithm chosen = GW_PLAN_ALGORITHM_COUNT;
    for (int a = 0; a < GW_PLAN_ALGORITHM_COUNT; a++) {
        if (strcmp(gw_plan_algorithm_name((gw_plan_algorithm)a), algorithm) == 0) {
            chosen = (gw_plan_algorithm)a;
        }
    }
    int index = method != NULL ? plan_method_index(&setup, method) : (int)setup.problem.method_count - 1;
    if (chosen == GW_PLAN_ALGORITHM_COUNT) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "no algorithm \"%.40s\"", algorithm);
    } else if (index < 0) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case", method);
    } else {
        code = allocate(result, model->count);
    }
    if (code == GW_CLI_OK) {
        size_t size = gw_plan_workspace_size(&setup.problem, chosen);
        void *workspace = plan_workspace(size);
        gw_plan plan = {result->fused, model->count, 0};
        if (workspace == NULL) {
            code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
        } else {
            gw_plan_status status = gw_plan_solve(&setup.problem, chosen, (uint32_t)index, limits, workspace,
                                                  size, &plan, &result->cert);
            result->solve_us = (gw_cli_seconds() - start) * 1e6;
            result->group_count = plan.group_count;
            code = status == GW_PLAN_OK
                       ? fill_fused(&setup, result)
                       : gw_cli_error(status == GW_PLAN_ERR_UNSUPPORTED || status == GW_PLAN_ERR_LIMIT
                                          ? GW_CLI_USAGE
                                          : GW_CLI_BAD_DATA,
                                      model_path, "%s: %s", algorithm, gw_plan_status_string(status));
        }
    }
    plan_setup_free(&setup);
    return code;
}

/* ---- option trees ---- */

typedef struct tree_work {
    gw_plan_option *options;
    uint32_t option_count;
    gw_plan_vector *vectors; /* all classes, reduced */
    gw_plan_vector *scratch;
    uint32_t *class_first;
    int64_t *class_elems;
    uint32_t *tensor_class;
    gw_plan_tick *bwd;
    uint32_t *choice;
    uint32_t *start; /* per tensor: dense option (ByteComp) */
    uint8_t *candidate;
    uint32_t *cpu_of;
    int32_t *gpu_twin; /* per option: the option with all devices CPU */
    gw_plan_tree tree;
} tree_work;

static void tree_free(tree_work *w)
{
    free(w->options);
    free(w->vectors);
    free(w->scratch);
    free(w->class_first);
    free(w->class_elems);
    free(w->tensor_class);
    free(w->bwd);
    free(w->choice);
    free(w->start);
    free(w->candidate);
    free(w->cpu_of);
    free(w->gpu_twin);
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Distinct sizes, largest first, and each tensor's class. */
static uint32_t classify(const plan_model *model, tree_work *w)
{
    for (uint32_t i = 0; i < model->count; i++) {
        w->class_elems[i] = model->tensors[i].elems;
    }
    qsort(w->class_elems, model->count, sizeof *w->class_elems, descending);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        if (count == 0 || w->class_elems[count - 1] != w->class_elems[i]) {
            w->class_elems[count++] = w->class_elems[i];
        }
    }
    for (uint32_t i = 0; i < model->count; i++) {
        uint32_t low = 0;
        uint32_t high = count - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (w->class_elems[middle] <= model->tensors[i].elems) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        w->tensor_class[i] = low;
    }
    return count;
}

static void option_path(const gw_plan_option *option, char *out, size_t out_size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < option->op_count && used < out_size; i++) {
        int written = snprintf(out + used, out_size - used, "%s%s", i > 0 ? ">" : "",
                               gw_plan_op_name((gw_plan_op)option->ops[i]));
        used += written > 0 ? (size_t)written : 0;
    }
}

static int run_tree(const plan_library *library, const plan_case *c, const plan_model *model,
                    const char *algorithm, const gw_plan_limits *limits, plan_result *result)
{
    double start = gw_cli_seconds();
    int bytecomp = strcmp(algorithm, "bytecomp") == 0;
    if (!bytecomp && strcmp(algorithm, "auto") != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "option trees know the algorithms auto and bytecomp");
    }
    const char *name = c->method_names[c->method_count - 1];
    const gw_plan_codec *codec = plan_library_find(library, name);
    if (codec == NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no codec \"%.60s\"", name);
    }
    tree_work w;
    memset(&w, 0, sizeof w);
    uint32_t n = model->count;
    uint32_t filter = c->cpu ? 0 : GW_PLAN_OPTIONS_GPU_ONLY;
    (void)gw_plan_options_list(filter, c->comp_max, NULL, 0, &w.option_count);
    w.options = calloc(w.option_count, sizeof *w.options);
    w.class_elems = calloc(n, sizeof *w.class_elems);
    w.tensor_class = calloc(n, sizeof *w.tensor_class);
    w.bwd = calloc(n, sizeof *w.bwd);
    w.choice = calloc(n, sizeof *w.choice);
    w.start = calloc(n, sizeof *w.start);
    w.scratch = calloc(w.option_count, sizeof *w.scratch);
    w.class_first = calloc((size_t)n + 1, sizeof *w.class_first);
    int code = allocate(result, n);
    if (code == GW_CLI_OK &&
        (w.options == NULL || w.class_elems == NULL || w.tensor_class == NULL || w.bwd == NULL ||
         w.choice == NULL || w.start == NULL || w.scratch == NULL || w.class_first == NULL)) {
        code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    uint32_t class_count = 0;
    if (code == GW_CLI_OK) {
        (void)gw_plan_options_list(filter, c->comp_max, w.options, w.option_count, &w.option_count);
        class_count = classify(model, &w);
        w.vectors = calloc((size_t)class_count * w.option_count, sizeof *w.vectors);
        w.cpu_of = calloc((size_t)class_count * w.option_count, sizeof *w.cpu_of);
        w.candidate = calloc((size_t)class_count * w.option_count, 1);
        code = w.vectors != NULL && w.cpu_of != NULL && w.candidate != NULL
                   ? GW_CLI_OK
                   : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    uint32_t used = 0;
    for (uint32_t k = 0; k < class_count && code == GW_CLI_OK; k++) {
        gw_plan_vector *vectors = w.vectors + used;
        uint32_t count = 0;
        for (uint32_t o = 0; o < w.option_count; o++) {
            gw_plan_job job;
            gw_plan_status status =
                gw_plan_option_price(&w.options[o], codec, &c->cluster, w.class_elems[k], &job);
            if (status == GW_PLAN_ERR_UNSUPPORTED) {
                continue;
            }
            if (status != GW_PLAN_OK) {
                code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "option %u at %lld elements: %s", o,
                                    (long long)w.class_elems[k], gw_plan_status_string(status));
                break;
            }
            for (uint32_t s = 0; c->decode_none && s < job.stage_count; s++) {
                job.stages[s].duration = job.stages[s].decode ? 0 : job.stages[s].duration;
            }
            gw_plan_job_vector(&job, &vectors[count]);
            vectors[count++].option = o;
        }
        /* ByteComp needs its dense start and CPU twins, which dominance may remove: keep everything for it.
         */
        if (!bytecomp) {
            count = gw_plan_vectors_reduce(vectors, count, w.scratch);
        }
        w.class_first[k] = used;
        used += count;
        w.class_first[k + 1] = used;
    }
    for (uint32_t i = 0; i < n && code == GW_CLI_OK; i++) {
        w.bwd[i] = model->tensors[i].bwd;
    }
    if (code == GW_CLI_OK) {
        w.tree = (gw_plan_tree){w.bwd, w.tensor_class, n, w.vectors, w.class_first, class_count, c->decode};
        gw_plan_status status;
        if (!bytecomp) {
            size_t size = gw_plan_tree_workspace_size(&w.tree);
            void *workspace = size > 0 ? plan_workspace(size) : NULL;
            status = gw_plan_tree_solve(&w.tree, limits, workspace, size, w.choice, &result->cert);
        } else {
            for (uint32_t k = 0; k < class_count; k++) {
                uint32_t best = GW_PLAN_NO_INDEX;
                for (uint32_t v = w.class_first[k]; v < w.class_first[k + 1]; v++) {
                    const gw_plan_option *option = &w.options[w.vectors[v].option];
                    int on_cpu = 0;
                    w.cpu_of[v] = GW_PLAN_NO_INDEX;
                    for (uint32_t s = 0; s < option->op_count; s++) {
                        on_cpu |=
                            option->ops[s] == GW_PLAN_OP_COMP_CPU || option->ops[s] == GW_PLAN_OP_DEC_CPU;
                    }
                    w.candidate[v] = (uint8_t)!on_cpu;
                    if (option->comp_count == 0 &&
                        (best == GW_PLAN_NO_INDEX || w.vectors[v].net < w.vectors[best].net)) {
                        best = v;
                    }
                    for (uint32_t t = w.class_first[k];
                         c->cpu && option->comp_count > 0 && !on_cpu && t < w.class_first[k + 1]; t++) {
                        const gw_plan_option *twin = &w.options[w.vectors[t].option];
                        int same = twin->op_count == option->op_count;
                        for (uint32_t s = 0; s < option->op_count && same; s++) {
                            uint8_t op = option->ops[s];
                            uint8_t want = op == GW_PLAN_OP_COMP_GPU  ? (uint8_t)GW_PLAN_OP_COMP_CPU
                                           : op == GW_PLAN_OP_DEC_GPU ? (uint8_t)GW_PLAN_OP_DEC_CPU
                                                                      : op;
                            same = twin->ops[s] == want;
                        }
                        if (same) {
                            w.cpu_of[v] = t;
                            break;
                        }
                    }
                }
                for (uint32_t i = 0; i < n; i++) {
                    w.start[i] = w.tensor_class[i] == k ? best - w.class_first[k] : w.start[i];
                }
            }
            size_t size = gw_plan_bytecomp_workspace_size(&w.tree);
            status = gw_plan_bytecomp(&w.tree, w.start, w.candidate, c->cpu ? w.cpu_of : NULL,
                                      plan_workspace(size), size, w.choice, &result->cert);
        }
        result->solve_us = (gw_cli_seconds() - start) * 1e6;
        if (status != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "%s: %s", algorithm, gw_plan_status_string(status));
        }
    }
    for (uint32_t i = 0; i < n && code == GW_CLI_OK; i++) {
        uint32_t option = w.vectors[w.class_first[w.tensor_class[i]] + w.choice[i]].option;
        result->groups[i].first = i;
        result->groups[i].tensor_count = 1;
        option_path(&w.options[option], result->groups[i].method, PLAN_PATH_SIZE);
        (void)gw_plan_option_price(&w.options[option], codec, &c->cluster, model->tensors[i].elems,
                                   &result->jobs[i]);
        for (uint32_t s = 0; c->decode_none && s < result->jobs[i].stage_count; s++) {
            result->jobs[i].stages[s].duration *= result->jobs[i].stages[s].decode ? 0 : 1;
        }
        result->jobs[i].bwd = model->tensors[i].bwd;
    }
    result->group_count = n;
    tree_free(&w);
    return code;
}

int plan_run(const plan_library *library, const plan_case *c, const plan_model *model, const char *model_path,
             const char *algorithm, const char *method, const gw_plan_limits *limits, plan_result *result)
{
    memset(result, 0, sizeof *result);
    int code = c->kind == PLAN_TREE
                   ? run_tree(library, c, model, algorithm, limits, result)
                   : run_fused(library, c, model, model_path, algorithm, method, limits, result);
    if (code != GW_CLI_OK) {
        plan_result_free(result);
    } else {
        (void)snprintf(result->algorithm, sizeof result->algorithm, "%s", algorithm);
    }
    return code;
}

int plan_run_timeline(const plan_result *result, const plan_case *c, gw_plan_level level,
                      gw_plan_span **spans, size_t *span_count, gw_plan_tick *makespan)
{
    size_t capacity = gw_plan_timeline_span_count_max(result->jobs, result->group_count);
    size_t size = gw_plan_timeline_workspace_size(result->group_count);
    void *workspace = malloc(size);
    gw_plan_span *list = spans != NULL ? calloc(capacity + 1, sizeof *list) : NULL;
    int code = workspace != NULL && (spans == NULL || list != NULL)
                   ? GW_CLI_OK
                   : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    if (code == GW_CLI_OK) {
        size_t count = 0;
        gw_plan_status status =
            gw_plan_timeline(level, c->decode, c->cluster.flags, result->jobs, result->group_count, list,
                             capacity, &count, workspace, size, makespan);
        if (status != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, NULL, "timeline: %s", gw_plan_status_string(status));
        } else if (spans != NULL) {
            *spans = list;
            *span_count = count;
            list = NULL;
        }
    }
    free(list);
    free(workspace);
    return code;
}
