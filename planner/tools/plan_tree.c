/*
 * Option trees of a model.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_memory.h"

void plan_tree_free(plan_tree *t)
{
    free(t->options);
    free(t->vectors);
    free(t->class_first);
    free(t->class_len);
    free(t->groups);
    free(t->group_len);
    free(t->tensor_class);
    free(t->bwd);
    free(t->choice);
    memset(t, 0, sizeof *t);
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The groups of a cut with their sizes and times. */
static void set_groups(const plan_model *model, const gw_plan *cut, uint32_t group_count, plan_tree *t)
{
    for (uint32_t g = 0; g < group_count; g++) {
        t->groups[g] = cut != NULL ? cut->groups[g] : (gw_plan_group){g, 1, 0};
        t->group_len[g] = plan_model_len(model, t->groups[g].first, t->groups[g].tensor_count);
        t->bwd[g] = 0;
        for (uint32_t i = 0; i < t->groups[g].tensor_count; i++) {
            t->bwd[g] += model->tensors[t->groups[g].first + i].bwd;
        }
    }
}

/* Distinct sizes, largest first, and each group's class. Returns the number of classes. */
static uint32_t classify(plan_tree *t, uint32_t group_count)
{
    memcpy(t->class_len, t->group_len, group_count * sizeof *t->class_len);
    qsort(t->class_len, group_count, sizeof *t->class_len, descending);
    uint32_t count = 0;
    for (uint32_t i = 0; i < group_count; i++) {
        if (count == 0 || t->class_len[count - 1] != t->class_len[i]) {
            t->class_len[count++] = t->class_len[i];
        }
    }
    for (uint32_t i = 0; i < group_count; i++) {
        uint32_t low = 0;
        uint32_t high = count - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (t->class_len[middle] <= t->group_len[i]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        t->tensor_class[i] = low;
    }
    return count;
}

/* The stages of an option; decodes take no time in a case without them. */
static gw_status price(const plan_tree *t, const plan_case *c, uint32_t option, int64_t len, gw_plan_job *job)
{
    gw_status status = gw_plan_option_price(&t->options[option], &t->codec, &c->cluster, len, job);
    for (uint32_t s = 0; status == GW_OK && c->decode_none && s < job->stage_count; s++) {
        job->stages[s].duration = job->stages[s].kind == GW_PLAN_SPAN_DECODE ? 0 : job->stages[s].duration;
    }
    return status;
}

/* Appends the vectors of one class at t->vectors + used; their number through *count. */
static int price_class(plan_tree *t, const plan_case *c, int64_t len, uint32_t used, gw_plan_vector *scratch,
                       uint32_t *count)
{
    gw_plan_vector *vectors = t->vectors + used;
    *count = 0;
    for (uint32_t o = 0; o < t->option_count; o++) {
        gw_plan_job job;
        gw_status status = price(t, c, o, len, &job);
        if (status == GW_ERR_OPTION) {
            continue; /* the codec lacks the device or a collective of this option */
        }
        if (status != GW_OK) {
            return gw_cli_error(GW_CLI_BAD_DATA, NULL, "option %u at %lld elements: %s", o, (long long)len,
                                gw_status_message(status));
        }
        gw_plan_job_vector(&job, &vectors[*count]);
        vectors[(*count)++].option = o;
    }
    if (scratch != NULL) {
        *count = gw_plan_vectors_reduce(vectors, *count, scratch);
    }
    return GW_CLI_OK;
}

int plan_tree_make(const plan_library *library, const plan_case *c, const plan_model *model,
                   const gw_plan *cut, int reduce, plan_tree *t)
{
    const uint32_t n = cut != NULL ? cut->group_count : model->count;
    const uint32_t filter = c->cpu ? 0 : GW_PLAN_OPTIONS_GPU_ONLY;
    const char *name = c->method_names[c->method_count - 1];
    memset(t, 0, sizeof *t);
    if (c->error_max > 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "a bound of the error is for fused plans, not for an option tree");
    }
    int code = plan_library_find(library, name, plan_case_ranks(c), &t->codec);
    if (code != GW_CLI_OK) {
        return code;
    }
    t->options = plan_alloc(GW_PLAN_OPTION_COUNT, sizeof *t->options);
    gw_status status =
        gw_plan_options_list(filter, c->comp_max, t->options, GW_PLAN_OPTION_COUNT, &t->option_count);
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "options: %s", gw_status_message(status));
    }
    t->class_len = plan_alloc(n, sizeof *t->class_len);
    t->groups = plan_alloc(n, sizeof *t->groups);
    t->group_len = plan_alloc(n, sizeof *t->group_len);
    t->tensor_class = plan_alloc(n, sizeof *t->tensor_class);
    t->bwd = plan_alloc(n, sizeof *t->bwd);
    t->choice = plan_alloc(n, sizeof *t->choice);
    t->class_first = plan_alloc((size_t)n + 1, sizeof *t->class_first);
    set_groups(model, cut, n, t);
    const uint32_t class_count = classify(t, n);
    t->vectors = plan_alloc((size_t)class_count * t->option_count, sizeof *t->vectors);
    gw_plan_vector *scratch = reduce ? plan_alloc(t->option_count, sizeof *scratch) : NULL;
    for (uint32_t k = 0; k < class_count && code == GW_CLI_OK; k++) {
        uint32_t count = 0;
        code = price_class(t, c, t->class_len[k], t->class_first[k], scratch, &count);
        t->class_first[k + 1] = t->class_first[k] + count;
    }
    free(scratch);
    t->tree = (gw_plan_tree){t->bwd, t->tensor_class, n, t->vectors, t->class_first, class_count, c->decode};
    return code;
}

int plan_tree_cut(const plan_library *library, const plan_case *c, const plan_model *model,
                  const gw_plan *cut, plan_tree *t)
{
    plan_tree_free(t);
    return plan_tree_make(library, c, model, cut, 0, t);
}

/* The option (index into t->options) of a choice. */
static uint32_t option_of(const plan_tree *t, uint32_t group, uint32_t choice)
{
    return t->vectors[t->class_first[t->tensor_class[group]] + choice].option;
}

/* what: for the message. */
static void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, NULL, "%s: %s", what, gw_status_message(status));
    }
}

void plan_tree_solve(plan_tree *t, const gw_plan_limits *limits, gw_plan_cert *cert)
{
    const gw_workspace workspace = plan_workspace(gw_plan_tree_workspace_size(&t->tree));
    must(gw_plan_tree_solve(&t->tree, limits, t->choice, cert, &workspace), "auto");
}

void plan_tree_copy_choice(const plan_tree *from, plan_tree *to)
{
    for (uint32_t i = 0; i < from->tree.tensor_count; i++) {
        const uint32_t option = option_of(from, i, from->choice[i]);
        to->choice[i] = 0;
        while (option_of(to, i, to->choice[i]) != option) {
            to->choice[i]++;
        }
    }
}

static int is_cpu_op(uint8_t op)
{
    return op == GW_PLAN_OP_COMP_CPU || op == GW_PLAN_OP_DEC_CPU;
}

/* 1 if `twin` is `option` with every device replaced by the CPU. */
static int is_cpu_twin(const gw_plan_option *option, const gw_plan_option *twin)
{
    int same = twin->op_count == option->op_count;
    for (uint32_t s = 0; s < option->op_count && same; s++) {
        uint8_t op = option->ops[s];
        uint8_t want = op == GW_PLAN_OP_COMP_GPU  ? (uint8_t)GW_PLAN_OP_COMP_CPU
                       : op == GW_PLAN_OP_DEC_GPU ? (uint8_t)GW_PLAN_OP_DEC_CPU
                                                  : op;
        same = twin->ops[s] == want;
    }
    return same;
}

/* What Algorithms 1 and 2 may use of one class; returns the fastest option without compression, where
 * Algorithm 1 starts. */
static uint32_t bytecomp_class(const plan_tree *t, uint32_t k, int cpu, uint8_t *candidate, uint32_t *cpu_of)
{
    uint32_t best = GW_PLAN_NO_INDEX;
    const uint32_t end = t->class_first[k + 1];
    for (uint32_t v = t->class_first[k]; v < end; v++) {
        const gw_plan_option *option = &t->options[t->vectors[v].option];
        int on_cpu = 0;
        for (uint32_t s = 0; s < option->op_count; s++) {
            on_cpu |= is_cpu_op(option->ops[s]);
        }
        candidate[v] = (uint8_t)!on_cpu;
        if (option->comp_count == 0 &&
            (best == GW_PLAN_NO_INDEX || t->vectors[v].net < t->vectors[best].net)) {
            best = v;
        }
        cpu_of[v] = GW_PLAN_NO_INDEX;
        const int offloads = cpu && option->comp_count > 0 && !on_cpu;
        for (uint32_t w = t->class_first[k]; offloads && w < end && cpu_of[v] == GW_PLAN_NO_INDEX; w++) {
            cpu_of[v] = is_cpu_twin(option, &t->options[t->vectors[w].option]) ? w : GW_PLAN_NO_INDEX;
        }
    }
    return best;
}

void plan_tree_bytecomp(plan_tree *t, const plan_case *c, gw_plan_cert *cert)
{
    const uint32_t n = t->tree.tensor_count;
    const uint32_t vector_count = t->class_first[t->tree.class_count];
    uint32_t *start = plan_alloc(n, sizeof *start);
    uint32_t *dense = plan_alloc(t->tree.class_count, sizeof *dense);
    uint8_t *candidate = plan_alloc(vector_count, sizeof *candidate);
    uint32_t *cpu_of = plan_alloc(vector_count, sizeof *cpu_of);
    for (uint32_t k = 0; k < t->tree.class_count; k++) {
        dense[k] = bytecomp_class(t, k, c->cpu, candidate, cpu_of) - t->class_first[k];
    }
    for (uint32_t i = 0; i < n; i++) {
        start[i] = dense[t->tensor_class[i]];
    }
    const gw_workspace workspace = plan_workspace(gw_plan_bytecomp_workspace_size(&t->tree));
    const gw_plan_bytecomp_input input = {start, candidate, c->cpu ? cpu_of : NULL};
    must(gw_plan_bytecomp(&t->tree, &input, t->choice, cert, &workspace), "bytecomp");
    free(start);
    free(dense);
    free(candidate);
    free(cpu_of);
}

void plan_tree_path(const plan_tree *t, uint32_t group, uint32_t choice, char *out, size_t out_size)
{
    const gw_plan_option *option = &t->options[option_of(t, group, choice)];
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < option->op_count && used < out_size; i++) {
        int written = snprintf(out + used, out_size - used, "%s%s", i > 0 ? ">" : "",
                               gw_plan_op_name((gw_plan_op)option->ops[i]));
        used += written > 0 ? (size_t)written : 0;
    }
}

uint32_t plan_tree_find(const plan_tree *t, uint32_t group, const char *path)
{
    const uint32_t k = t->tensor_class[group];
    for (uint32_t v = 0; v < t->class_first[k + 1] - t->class_first[k]; v++) {
        char here[PLAN_PATH_SIZE];
        plan_tree_path(t, group, v, here, sizeof here);
        if (strcmp(here, path) == 0) {
            return v;
        }
    }
    return GW_PLAN_NO_INDEX;
}

void plan_tree_job(const plan_tree *t, const plan_case *c, uint32_t group, uint32_t choice, gw_plan_job *job)
{
    must(price(t, c, option_of(t, group, choice), t->group_len[group], job), "option");
    job->bwd = t->bwd[group];
}
