/*
 * plan explain for option trees: for every tensor the option taken, how much longer the iteration gets with
 * the next best option, and with the best one that does (or does not) compress. Options that another one
 * equals or beats in all its times are not offered as alternatives, unless nothing else is left
 * uncompressed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_explain_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_opened.h"

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
        gw_plan_tick makespan = INT64_MAX;
        if (v == taken || (compressed >= 0 && is_compressed(t, tensor, v) != compressed)) {
            continue;
        }
        t->choice[tensor] = v;
        (void)gw_plan_tree_eval(&t->tree, t->choice, &makespan);
        if (makespan < best.makespan) {
            best.makespan = makespan;
            plan_tree_path(t, tensor, v, best.path, sizeof best.path);
        }
    }
    t->choice[tensor] = kept;
    return best;
}

static void add(const plan_args *args, json_t *entry, const char *key, const char *words,
                const alternative *other, gw_plan_tick total)
{
    if (other->makespan == INT64_MAX) {
        return;
    }
    const double delta = plan_us(other->makespan - total);
    json_object_set_new(entry, key, json_pack("{s:s,s:f}", "option", other->path, "delta_us", delta));
    if (!args->json && other->makespan == total) {
        printf("  %s %s: no change\n", words, other->path);
    } else if (!args->json) {
        printf("  %s %s: %+.3f ms\n", words, other->path, delta / 1e3);
    }
}

int plan_explain_tree(const plan_args *args, plan_opened *o)
{
    plan_tree reduced;
    gw_plan_cert cert;
    gw_plan_limits limits = plan_args_limits(args, 1000);
    char path[PLAN_PATH_SIZE];
    int code = plan_tree_solve_all(&o->library, &o->c, &o->model, &o->tree, &limits, &reduced, &cert);
    if (code == GW_CLI_OK) {
        json_t *tensors = json_array();
        if (!args->json) {
            printf("%s, case %s: iteration %.3f ms%s\n\n", args->files[0], o->c.name,
                   plan_us(cert.makespan) / 1e3, cert.proven ? ", proven shortest" : "");
        }
        for (uint32_t i = 0; i < o->model.count; i++) {
            const int compressed = is_compressed(&o->tree, i, o->tree.choice[i]);
            const alternative next = best_other(&reduced, i, reduced.choice[i], -1);
            /* Options without compression are few, but often all beaten; those with it are thousands. */
            const alternative turned =
                best_other(compressed ? &o->tree : &reduced, i, GW_PLAN_NO_INDEX, !compressed);
            plan_tree_path(&reduced, i, reduced.choice[i], path, sizeof path);
            json_t *entry = json_pack("{s:s,s:I,s:s}", "tensor", o->model.tensors[i].name, "elems",
                                      (json_int_t)o->model.tensors[i].elems, "option", path);
            if (!args->json) {
                printf("%s (%lld elements): %s\n", o->model.tensors[i].name,
                       (long long)o->model.tensors[i].elems, path);
            }
            add(args, entry, "next_best", "not", &next, cert.makespan);
            add(args, entry, compressed ? "uncompressed" : "compressed",
                compressed ? "uncompressed at best" : "compressed at best", &turned, cert.makespan);
            json_array_append_new(tensors, entry);
        }
        if (args->json) {
            code = gw_cli_json_print(json_pack("{s:f,s:b,s:O}", "makespan_us", plan_us(cert.makespan),
                                               "proven", cert.proven, "tensors", tensors));
        }
        json_decref(tensors);
    }
    plan_tree_free(&reduced);
    return code;
}
