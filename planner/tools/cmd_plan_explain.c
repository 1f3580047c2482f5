/*
 * plan explain: for every group or tensor, what happens if it is sent otherwise. plan_explain_fused.c has
 * fused plans. Here are option trees: for every tensor or group of fused ones the option taken, how much
 * longer the iteration gets with the next best option, and with the best one that does (or does not)
 * compress. Options that another one equals or beats in all its times are not offered as alternatives, unless
 * nothing else is left uncompressed.
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

typedef struct alternative {
    gw_plan_tick makespan; /* INT64_MAX: there is none */
    char path[PLAN_PATH_SIZE];
} alternative;

static int is_compressed(const plan_tree *t, uint32_t tensor, uint32_t choice)
{
    return t->options[t->vectors[t->class_first[t->tensor_class[tensor]] + choice].option].comp_count > 0;
}

/* The best choice for one tensor, the others kept, among those that compress (1), do not (0) or all (-1),
 * but not `taken`. */
static alternative best_other(const plan_tree *t, uint32_t tensor, uint32_t taken, int compressed)
{
    alternative best = {INT64_MAX, ""};
    const uint32_t k = t->tensor_class[tensor];
    const uint32_t kept = t->choice[tensor];
    for (uint32_t v = 0; v < t->class_first[k + 1] - t->class_first[k]; v++) {
        gw_plan_tick makespan;
        if (v == taken || (compressed >= 0 && is_compressed(t, tensor, v) != compressed)) {
            continue;
        }
        t->choice[tensor] = v;
        if (gw_plan_tree_eval(&t->tree, t->choice, &makespan) == GW_OK && makespan < best.makespan) {
            best.makespan = makespan;
            plan_tree_path(t, tensor, v, best.path, sizeof best.path);
        }
    }
    t->choice[tensor] = kept;
    return best;
}

static void add(const plan_request *args, json_t *entry, const char *words, const alternative *other,
                gw_plan_tick total)
{
    if (other->makespan == INT64_MAX) {
        return;
    }
    const char *key = strncmp(words, "not", 3) == 0             ? "next_best"
                      : strncmp(words, "uncompressed", 12) == 0 ? "uncompressed"
                                                                : "compressed";
    const double delta = plan_us(other->makespan - total);
    json_object_set_new(entry, key, json_pack("{s:s,s:f}", "option", other->path, "delta_us", delta));
    if (!args->common.json && other->makespan == total) {
        printf("  %s %s: no change\n", words, other->path);
    } else if (!args->common.json) {
        printf("  %s %s: %+.3f ms\n", words, other->path, delta / 1e3);
    }
}

/* One group: the option taken, the next best, and the best that does (or does not) compress. It has the name
 * of its last tensor, which it waits for. */
static json_t *explain_group(const plan_request *args, const plan_opened *o, const plan_tree *reduced,
                             uint32_t i, gw_plan_tick total)
{
    char path[PLAN_PATH_SIZE];
    const uint32_t count = o->tree.groups[i].tensor_count;
    const char *name = o->model.tensors[o->tree.groups[i].first + count - 1].name;
    const int64_t len = o->tree.group_len[i];
    const int compressed = is_compressed(&o->tree, i, o->tree.choice[i]);
    const alternative next = best_other(reduced, i, reduced->choice[i], -1);
    /* Options without compression are few and mostly beaten in all times; those with it are thousands. */
    const alternative turned = best_other(compressed ? &o->tree : reduced, i, GW_PLAN_NO_INDEX, !compressed);
    plan_tree_path(reduced, i, reduced->choice[i], path, sizeof path);
    json_t *entry = json_pack("{s:s,s:I,s:s}", "tensor", name, "elems", (json_int_t)len, "option", path);
    if (count > 1) {
        json_object_set_new(entry, "tensors", json_integer(count));
    }
    if (!args->common.json && count > 1) {
        printf("%u tensors to %s (%lld elements): %s\n", count, name, (long long)len, path);
    } else if (!args->common.json) {
        printf("%s (%lld elements): %s\n", name, (long long)len, path);
    }
    add(args, entry, "not", &next, total);
    add(args, entry, compressed ? "uncompressed at best" : "compressed at best", &turned, total);
    return entry;
}

/* The groups of a fused plan file, unless options ask for other ones; otherwise new groups. Options are
 * chosen anew in any case. */
static void make_groups(const plan_request *args, plan_opened *o, const gw_plan_limits *limits)
{
    const int is_asked = args->algorithm != NULL || args->of_case.fuse || args->of_case.kind >= 0;
    if (o->is_plan && o->c.fuse && !is_asked) {
        gw_plan unused;
        plan_file_load(o->path, o, &unused, NULL);
    } else {
        plan_run_fuse(o, limits);
    }
}

static int explain_tree(const plan_request *args, plan_opened *o)
{
    plan_tree reduced;
    gw_plan_cert cert;
    const gw_plan_limits limits = plan_limits(&args->limits, 1000);
    make_groups(args, o, &limits);
    plan_run_tree(o, &limits, &reduced, &cert);
    if (!args->common.json) {
        printf("%s, case %s: iteration %.3f ms%s%s\n\n", o->path, o->c.name, plan_us(cert.makespan) / 1e3,
               o->is_plan ? ", options chosen anew" : "",
               !cert.proven ? ""
               : o->c.fuse  ? ", proven shortest for these groups"
                            : ", proven shortest");
    }
    json_t *tensors = json_array();
    for (uint32_t i = 0; i < o->tree.tree.tensor_count; i++) {
        json_array_append_new(tensors, explain_group(args, o, &reduced, i, cert.makespan));
    }
    plan_tree_free(&reduced);
    json_t *root = json_pack("{s:f,s:b,s:o}", "makespan_us", plan_us(cert.makespan), "proven", cert.proven,
                             "tensors", tensors);
    if (o->c.fuse) { /* as in plan files */
        json_object_set_new(root, "bound_of", json_string("groups"));
    }
    return plan_json_end(root, args->common.json);
}

static int explain(const plan_request *a)
{
    static plan_opened o;
    plan_opened_open(&a->of_case, a->common.input, &o);
    plan_case_for_algorithm(&o.c, a->algorithm); /* what alternatives are made of */
    gw_cli_must(plan_opened_prepare(&o));
    const int code = o.c.kind == PLAN_TREE ? explain_tree(a, &o) : plan_explain_fused(a, &o);
    plan_opened_close(&o);
    return code;
}

static const gw_option options[] = {
    {"algorithm", "NAME", "As for plan solve", GW_TEXT(plan_request, algorithm)},
    PLAN_JSON_ROW,
    {0},
};

const plan_verb plan_verb_explain = {
    .name = "explain",
    .summary = "why each group is cut where it is",
    .run = explain,
    .input_min = 1,
    .input_max = 1,
    .takes = "one model or one plan",
    .line = {.usage = "MODEL or PLAN",
             .help = "Says in words why each group is cut where it is.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
