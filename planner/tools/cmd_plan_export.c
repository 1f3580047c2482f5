/*
 * plan export: a plan for PyTorch: bucket_cap_mb_list, and what gradwire's DDP hook needs of each bucket.
 *
 * PyTorch's rule (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): parameters in
 * the order the reducer sees them, a bucket closes when its bytes reach its limit; the next limit of the list
 * follows, the last repeats. A list entry in MB of 2^20 bytes reproduces a group when the group without its
 * last tensor is smaller and the whole group is not: any limit in (bytes - last tensor, bytes]; its middle is
 * used.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_file.h"
#include "plan_json.h"
#include "plan_memory.h"

/* The groups of o->tree, which has their choices, too. */
static void groups_of_tree(const plan_opened *o, gw_plan *plan)
{
    const uint32_t count = o->tree.tree.tensor_count;
    *plan = (gw_plan){plan_alloc(count, sizeof *plan->groups), count, count};
    memcpy(plan->groups, o->tree.groups, count * sizeof *plan->groups);
}

/* Chooses the options of o->tree. */
static void solve_tree(const plan_request *a, plan_opened *o)
{
    const gw_plan_limits limits = plan_limits(&a->limits, 1000);
    plan_tree reduced;
    gw_plan_cert cert;
    if (a->algorithm != NULL && strcmp(a->algorithm, "auto") != 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL,
                    "options are chosen by auto here; plan solve -o writes plans of other algorithms");
    }
    plan_run_fuse(o, &limits);
    plan_run_tree(o, &limits, &reduced, &cert);
    plan_tree_free(&reduced);
}

/* The plan of the file, or a new one; plan->groups is malloc'ed. */
static void get_plan(const plan_request *a, plan_opened *o, gw_plan *plan)
{
    const int from_file = a->common.input_count == 2 || o->is_plan;
    if (!from_file) {
        plan_case_for_algorithm(&o->c, a->algorithm);
    }
    gw_cli_must(plan_opened_prepare(o));
    if (from_file) {
        plan_file_load(a->common.inputs[a->common.input_count - 1], o, plan, NULL);
    }
    if (o->c.kind == PLAN_TREE) {
        if (!from_file) {
            solve_tree(a, o);
        }
        groups_of_tree(o, plan);
        return;
    }
    if (from_file) {
        return;
    }
    plan_result result;
    const gw_plan_limits limits = plan_limits(&a->limits, 1000);
    plan_run(o, a->algorithm, a->method, &limits, &result);
    *plan = (gw_plan){result.fused, result.group_count, result.group_count};
    result.fused = NULL;
    plan_result_free(&result);
}

/* Half the last tensor less than each group's bytes, on a grid of 1e-6 MB (about a byte), so that printing
 * does not change it. */
static void make_caps(const plan_model *model, const gw_plan *plan, double *caps)
{
    for (uint32_t j = 0; j < plan->group_count; j++) {
        const gw_plan_group *group = &plan->groups[j];
        const uint32_t end = group->first + group->tensor_count;
        const int64_t bytes = 4 * plan_model_len(model, group->first, group->tensor_count);
        const int64_t last = 4 * model->tensors[end - 1].len;
        caps[j] = round((double)(bytes - last / 2) / 1048576.0 * 1e6) / 1e6;
    }
}

/* Cuts by PyTorch's rule. Returns the first group that differs, group_count when all are the same. */
static uint32_t first_difference(const plan_model *model, const gw_plan *plan, const double *caps)
{
    const uint32_t count = plan->group_count;
    uint32_t bucket = 0;
    uint32_t first = 0;
    int64_t held = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        held += 4 * model->tensors[i].len;
        const int64_t limit = (int64_t)(caps[bucket < count ? bucket : count - 1] * 1048576.0);
        if (held < limit && i + 1 < model->count) {
            continue;
        }
        if (bucket >= count || plan->groups[bucket].first != first ||
            plan->groups[bucket].tensor_count != i + 1 - first) {
            return bucket < count ? bucket : count - 1;
        }
        bucket++;
        first = i + 1;
        held = 0;
    }
    return count;
}

/* What the hook of DDP needs of a fused group's method. */
static void set_method(const plan_opened *o, const gw_plan_group *group, json_t *entry)
{
    const gw_plan_method *method = &o->setup.methods[group->method];
    json_object_set_new(entry, "method", json_string(o->setup.labels[group->method]));
    json_object_set_new(entry, "codec", json_string(method->name));
    json_object_set_new(entry, "algorithm", json_string(o->setup.algorithms[group->method]));
    json_object_set_new(entry, "device", json_string(method->device == GW_PLAN_CPU ? "cpu" : "gpu"));
    json_t *options = plan_library_options(&o->library, method->name);
    if (options != NULL) {
        json_object_set(entry, "options", options);
    }
}

/* What the hook of DDP needs for each bucket. */
static json_t *groups_json(const plan_opened *o, const gw_plan *plan)
{
    json_t *groups = json_array();
    for (uint32_t j = 0; j < plan->group_count; j++) {
        const gw_plan_group *group = &plan->groups[j];
        const int64_t len = plan_model_len(&o->model, group->first, group->tensor_count);
        json_t *names = json_array();
        for (uint32_t i = group->first; i < group->first + group->tensor_count; i++) {
            json_array_append_new(names, json_string(o->model.tensors[i].name));
        }
        json_t *entry =
            json_pack("{s:I,s:I,s:I}", "first", (json_int_t)group->first, "last",
                      (json_int_t)group->first + group->tensor_count - 1, "elems", (json_int_t)len);
        if (o->c.kind == PLAN_TREE) {
            char path[PLAN_PATH_SIZE];
            plan_tree_path(&o->tree, j, o->tree.choice[j], path, sizeof path);
            plan_file_set_option(entry, path, &o->library, o->tree.codec.name);
        } else {
            set_method(o, group, entry);
        }
        json_object_set_new(entry, "names", names);
        json_array_append_new(groups, entry);
    }
    return groups;
}

/* wrong: the first bucket that PyTorch would cut otherwise, group_count if there is none. */
static int write_caps(const plan_request *a, const plan_opened *o, const gw_plan *plan, const double *caps,
                      uint32_t wrong)
{
    const uint32_t count = plan->group_count;
    if (a->common.output == NULL && !a->common.json) {
        if (wrong != count) {
            return gw_cli_error(
                GW_CLI_BAD_DATA, o->path,
                "PyTorch would not cut the same groups (bucket %u: a tensor without elements at "
                "a cut, or equal sums, would move a boundary); --json has them for gradwire.torch",
                wrong);
        }
        printf("bucket_cap_mb_list=[");
        for (uint32_t j = 0; j < count; j++) {
            printf("%s%.6f", j > 0 ? ", " : "", caps[j]);
        }
        printf("]\n");
        return GW_CLI_OK;
    }
    json_t *list = json_array();
    for (uint32_t j = 0; j < count; j++) {
        json_array_append_new(list, json_real(caps[j]));
    }
    json_t *root =
        json_pack("{s:s,s:I,s:I,s:I,s:o,s:o,s:i,s:b,s:s}", "schema", PLAN_BUCKETS_SCHEMA, "ranks",
                  (json_int_t)plan_case_ranks(&o->c), "nodes", (json_int_t)o->c.cluster.nodes, "gpus",
                  (json_int_t)o->c.cluster.gpus, "bucket_cap_mb_list", list, "groups", groups_json(o, plan),
                  "buckets", (int)count, "pytorch_cuts_the_same_groups", wrong == count, "order",
                  "gradients in backprop order, float32, MB = 2^20 bytes");
    plan_json_write(root, plan_output_path(a), PLAN_JSON_INDENTED);
    return GW_CLI_OK;
}

static int export(const plan_request *a)
{
    static plan_opened o;
    gw_plan plan;
    plan_opened_open(&a->of_case, a->common.input, &o);
    get_plan(a, &o, &plan);
    double *caps = plan_alloc(plan.group_count, sizeof *caps);
    make_caps(&o.model, &plan, caps);
    const int code = write_caps(a, &o, &plan, caps, first_difference(&o.model, &plan, caps));
    free(caps);
    free(plan.groups);
    plan_opened_close(&o);
    return code;
}

static const gw_option options[] = {
    PLAN_METHOD_ROW, PLAN_ALGORITHM_ROW, PLAN_JSON_ROW, GW_OUTPUT_ROW("FILE", "Write the list to FILE"), {0},
};

const plan_verb plan_verb_export = {
    .name = "export",
    .summary = "PyTorch's bucket_cap_mb_list",
    .run = export,
    .input_min = 1,
    .input_max = 2,
    .takes = "a plan, or a model and, optionally, a plan",
    .line = {.usage = "PLAN, or MODEL [PLAN]",
             .help = "Writes PyTorch's bucket_cap_mb_list, checked to cut the same groups; with --json or -o "
                     "the buckets and codecs for gradwire.torch.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
