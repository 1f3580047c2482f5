/*
 * Opening what a subcommand works on: the case, what options change of it, and the model.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_opened.h"

#include <math.h>
#include <string.h>

#include "cli_common.h"
#include "plan_file.h"
#include "plan_input.h"

void plan_opened_close(plan_opened *o)
{
    plan_tree_free(&o->tree);
    plan_setup_free(&o->setup);
    plan_model_free(&o->model);
    plan_library_close(&o->library);
}

/* Kind, level, decode rule and methods. */
static void override_choices(const plan_case_args *a, plan_case *c)
{
    c->kind = a->kind >= 0 ? (plan_kind)a->kind : c->kind;
    c->level = a->level >= 0 ? (gw_plan_level)a->level : c->level;
    if (a->decode >= 0) {
        plan_case_set_decode(c, a->decode);
    }
    if (a->methods != NULL) {
        gw_cli_must(plan_case_set_methods(c, a->methods));
    } else if (a->kind >= 0 && c->kind != PLAN_JOINT && c->method_count > 1) {
        /* Fusion and trees take one codec: the last method of the case. */
        memmove(c->method_names[0], c->method_names[c->method_count - 1], PLAN_LABEL_SIZE);
        c->method_count = 1;
    }
}

static gw_plan_tick ticks_of(const char *option, double us)
{
    gw_plan_tick ticks = 0;
    if (!plan_ticks_from_us(us, &ticks)) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "%s is too long", option);
    }
    return ticks;
}

static void override_links(const plan_case_args *a, gw_plan_cluster *cluster)
{
    if (a->us_per_kib >= 0 && a->gbit_per_s > 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--us-per-kib and --gbit-per-s: keep one");
    }
    const double us_per_kib = a->gbit_per_s > 0 ? plan_us_per_kib(a->gbit_per_s) : a->us_per_kib;
    if (a->latency_us >= 0) {
        cluster->intra.alpha = cluster->inter.alpha = ticks_of("--latency-us", a->latency_us);
    }
    if (us_per_kib >= 0) {
        cluster->inter.beta_kib = ticks_of("--us-per-kib", us_per_kib);
        if (cluster->nodes == 1) {
            cluster->intra.beta_kib = cluster->inter.beta_kib;
        }
    }
    if (a->latency_us >= 0 || us_per_kib >= 0 || a->ranks > 0) {
        cluster->op_set = 0; /* measured with other links */
    }
    if (a->ranks > 0) {
        cluster->nodes = 1;
        cluster->gpus = (uint32_t)a->ranks;
    }
}

static void override_case(const plan_case_args *a, plan_case *c)
{
    if (a->cluster_path != NULL) {
        gw_cli_must(plan_cluster_read(a->cluster_path, &c->cluster));
    }
    override_choices(a, c);
    override_links(a, &c->cluster);
    c->cpu |= a->cpu;
    c->fuse = (c->fuse || a->fuse) && c->kind == PLAN_TREE;
    if (a->fuse && c->kind != PLAN_TREE) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--fuse goes with --kind tree; plans of other kinds fuse anyway");
    }
    c->comp_max = a->comp_max >= 0 ? (uint32_t)a->comp_max : c->comp_max;
    c->error_max = a->error_max > 0 ? a->error_max : c->error_max;
    if (a->group_mib_max > 0) { /* less than one element: 1, as 0 would mean no limit */
        c->group_len_max = (int64_t)fmax(1, a->group_mib_max * (1 << 18));
    }
}

void plan_opened_open(const plan_case_args *args, const char *path, plan_opened *o)
{
    memset(o, 0, sizeof *o);
    o->path = path;
    o->is_plan = plan_file_is(path);
    if (o->is_plan) {
        plan_file file;
        gw_cli_must(plan_file_read(path, &file));
        gw_cli_must(plan_file_problem(&file, o));
        plan_file_close(&file);
        if (args->case_name != NULL || args->cases_path != NULL) {
            gw_cli_fail(GW_CLI_USAGE, NULL, "a plan has its case; --case and --cases go with a model");
        }
    } else {
        gw_cli_must(plan_library_open(&o->library, args->cases_path));
    }
    for (int i = 0; i < args->codec_paths.count; i++) {
        gw_cli_must(plan_library_add_codecs(&o->library, args->codec_paths.items[i]));
    }
    if (!o->is_plan) {
        gw_cli_must(plan_case_find(&o->library, args->case_name, &o->c));
    }
    override_case(args, &o->c);
    if (!o->is_plan) {
        gw_cli_must(plan_input_model(path, &o->model));
    }
}

int plan_opened_prepare(plan_opened *o)
{
    return o->c.kind == PLAN_TREE ? plan_tree_make(&o->library, &o->c, &o->model, NULL, 0, &o->tree)
                                  : plan_setup_make(&o->library, &o->c, &o->model, o->path, &o->setup);
}
