/*
 * Options that choose a case and override parts of it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_case_args.h"

#include <math.h>
#include <string.h>

#include "cli_common.h"
#include "plan_json.h"

void plan_case_args_add(plan_parser *parser, plan_case_args *args, int with_level)
{
    memset(args, 0, sizeof *args);
    args->latency_us = args->us_per_kib = args->gbit_per_s = args->group_mib_max = args->error_max = -1;
    args->ranks = args->comp_max = -1;
    const plan_arg list[] = {
        {NULL, NULL, "The case: what is planned", PLAN_ARG_FLAG, NULL, 0, 0},
        {"case", "NAME", "Case of the cases file (default: its first); plan cases lists them", PLAN_ARG_TEXT,
         &args->case_name, 0, 0},
        {"cases", "FILE", "Cases file instead of the built-in one", PLAN_ARG_INPUT, &args->cases_path, 0, 0},
        {"codecs", "FILE", "More codecs, or other costs for known ones; may be repeated", PLAN_ARG_LIST,
         &args->codec_paths, 0, 0},
        {"cluster", "FILE", "Cluster file: nodes, gpus, intra and inter links", PLAN_ARG_INPUT,
         &args->cluster_path, 0, 0},
        {"kind", "joint|fusion|tree", "Fuse and choose, only fuse, or choose an option per tensor",
         PLAN_ARG_TEXT, &args->kind, 0, 0},
        {"methods", "LIST", "Codecs allowed, comma separated; fp32 is uncompressed", PLAN_ARG_TEXT,
         &args->methods, 0, 0},
        {"latency-us", "US", "Startup of a collective", PLAN_ARG_NUMBER, &args->latency_us, 0, 1e8},
        {"us-per-kib", "US", "Time of 1024 bytes through a rank's link", PLAN_ARG_NUMBER, &args->us_per_kib,
         0, 1e6},
        {"gbit-per-s", "RATE", "The same as a rate in Gb/s: 8.192 / RATE us", PLAN_ARG_NUMBER,
         &args->gbit_per_s, 1e-6, 1e9},
        {"ranks", "N", "GPUs on the flat network", PLAN_ARG_WHOLE, &args->ranks, 1, 65536},
        {"decode", "none|serial|parallel",
         "Decodes left out, in order on the GPU after backprop, or free in parallel", PLAN_ARG_TEXT,
         &args->decode, 0, 0},
        {"cpu", NULL, "Allow encoding (tree: any step) on the CPU", PLAN_ARG_FLAG, &args->cpu, 0, 0},
        {"comp-max", "N", "Tree: most compressions in one option", PLAN_ARG_WHOLE, &args->comp_max, 0, 12},
        {"group-mib-max", "MIB", "Largest fused buffer", PLAN_ARG_NUMBER, &args->group_mib_max, 1e-6, 1e9},
        {"error-max", "E", "Bound of the codecs' \"error\", mean over all values", PLAN_ARG_NUMBER,
         &args->error_max, 1e-9, 0x1p20},
        {"level", "serial|pipelined|event", "Level at which plans and charts are run", PLAN_ARG_TEXT,
         &args->level, 0, 0},
    };
    const size_t count = sizeof list / sizeof list[0];
    plan_parser_add(parser, list, with_level ? count : count - 1);
}

static int override_methods(const char *list, plan_case *c)
{
    c->method_count = 0;
    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        if (length == 0 || length >= PLAN_LABEL_SIZE || c->method_count == GW_PLAN_METHODS_MAX) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--methods needs at most 32 names, comma separated");
        }
        char *name = c->method_names[c->method_count];
        memcpy(name, list, length);
        name[length] = '\0';
        for (uint32_t m = 0; m < c->method_count; m++) {
            if (strcmp(c->method_names[m], name) == 0) {
                return gw_cli_error(GW_CLI_USAGE, NULL, "--methods names \"%s\" twice", name);
            }
        }
        c->method_count++;
        list += length + (list[length] == ',');
    }
    return c->method_count > 0 ? GW_CLI_OK : gw_cli_error(GW_CLI_USAGE, NULL, "--methods is empty");
}

/* Index of text among names; *index keeps its value when text is NULL. */
static int pick(const char *option, const char *text, const char *const *names, int *index)
{
    const int found = plan_name_index(names, text);
    if (text != NULL && found < 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "%s: unknown value \"%.40s\"", option, text);
    }
    *index = text != NULL ? found : *index;
    return GW_CLI_OK;
}

/* Kind, level, decode rule and methods. */
static int override_choices(const plan_case_args *a, plan_case *c)
{
    int kind = (int)c->kind;
    int level = (int)c->level;
    int decode = c->decode_none ? 2 : (int)c->decode;
    int code = pick("--kind", a->kind, plan_kind_names, &kind);
    code = code == GW_CLI_OK ? pick("--level", a->level, plan_level_names, &level) : code;
    code = code == GW_CLI_OK ? pick("--decode", a->decode, plan_decode_names, &decode) : code;
    if (code != GW_CLI_OK) {
        return code;
    }
    c->kind = (plan_kind)kind;
    c->level = (gw_plan_level)level;
    if (a->decode != NULL) {
        c->decode = decode == 1 ? GW_PLAN_DECODE_PARALLEL : GW_PLAN_DECODE_SERIAL;
        c->decode_none = decode == 2;
    }
    if (a->methods != NULL) {
        return override_methods(a->methods, c);
    }
    if (a->kind != NULL && c->kind != PLAN_JOINT && c->method_count > 1) {
        /* Fusion and trees take one codec: the last method of the case. */
        memmove(c->method_names[0], c->method_names[c->method_count - 1], PLAN_LABEL_SIZE);
        c->method_count = 1;
    }
    return GW_CLI_OK;
}

static int override_links(const plan_case_args *a, gw_plan_cluster *cluster)
{
    gw_plan_tick ticks;
    if (a->us_per_kib >= 0 && a->gbit_per_s > 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--us-per-kib and --gbit-per-s: keep one");
    }
    const double us_per_kib = a->gbit_per_s > 0 ? plan_us_per_kib(a->gbit_per_s) : a->us_per_kib;
    if (a->latency_us >= 0) {
        if (!plan_ticks_from_us(a->latency_us, &ticks)) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--latency-us is too long");
        }
        cluster->intra.alpha = ticks;
        cluster->inter.alpha = ticks;
    }
    if (us_per_kib >= 0) {
        if (!plan_ticks_from_us(us_per_kib, &ticks)) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--us-per-kib is too long");
        }
        cluster->inter.beta_kib = ticks;
        if (cluster->nodes == 1) {
            cluster->intra.beta_kib = ticks;
        }
    }
    if (a->ranks > 0) {
        cluster->nodes = 1;
        cluster->gpus = (uint32_t)a->ranks;
    }
    return GW_CLI_OK;
}

static int override_case(const plan_case_args *a, plan_case *c)
{
    int code = a->cluster_path != NULL ? plan_cluster_read(a->cluster_path, &c->cluster) : GW_CLI_OK;
    code = code == GW_CLI_OK ? override_choices(a, c) : code;
    code = code == GW_CLI_OK ? override_links(a, &c->cluster) : code;
    c->cpu |= a->cpu;
    c->comp_max = a->comp_max >= 0 ? (uint32_t)a->comp_max : c->comp_max;
    c->error_max = a->error_max > 0 ? a->error_max : c->error_max;
    if (a->group_mib_max > 0) { /* less than one element: 1, as 0 would mean no limit */
        c->group_len_max = (int64_t)fmax(1, a->group_mib_max * (1 << 18));
    }
    return code;
}

int plan_case_args_apply(const plan_case_args *args, plan_library *library, plan_case *c)
{
    if (args->case_name != NULL || args->cases_path != NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "a plan has its case; --case and --cases go with a model");
    }
    int code = GW_CLI_OK;
    for (int i = 0; i < args->codec_paths.count && code == GW_CLI_OK; i++) {
        code = plan_library_add_codecs(library, args->codec_paths.items[i]);
    }
    return code == GW_CLI_OK ? override_case(args, c) : code;
}

int plan_case_args_open(const plan_case_args *args, plan_library *library, plan_case *out)
{
    int code = plan_library_open(library, args->cases_path);
    if (code != GW_CLI_OK) {
        return code;
    }
    for (int i = 0; i < args->codec_paths.count && code == GW_CLI_OK; i++) {
        code = plan_library_add_codecs(library, args->codec_paths.items[i]);
    }
    code = code == GW_CLI_OK ? plan_case_find(library, args->case_name, out) : code;
    code = code == GW_CLI_OK ? override_case(args, out) : code;
    if (code != GW_CLI_OK) {
        plan_library_close(library);
    }
    return code;
}
