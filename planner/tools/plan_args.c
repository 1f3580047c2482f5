/*
 * Command lines of `gradwire plan`.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_args.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "atomic_file.h"
#include "cli_common.h"
#include "cli_output.h"

#define KEY_FIRST 256

void plan_parser_open(plan_parser *parser, const char *name, const char *files, const char *doc)
{
    memset(parser, 0, sizeof *parser);
    parser->name = name;
    parser->files_doc = files;
    parser->doc = doc;
}

void plan_parser_add(plan_parser *parser, const plan_arg *args, size_t count)
{
    for (size_t i = 0; i < count && parser->count < PLAN_ARGS_MAX; i++) {
        struct argp_option *option = &parser->options[parser->count];
        option->name = args[i].name;
        option->doc = args[i].doc;
        option->arg = args[i].value;
        option->key = args[i].name == NULL ? 0 : KEY_FIRST + parser->count;
        parser->group += args[i].name == NULL;
        option->group = parser->group + 1;
        parser->args[parser->count++] = args[i];
    }
}

void plan_parser_add_output(plan_parser *parser, const char *output_doc)
{
    const plan_arg args[] = {
        {NULL, NULL, "Output", PLAN_ARG_FLAG, NULL, 0, 0},
        {"json", NULL, "Print JSON", PLAN_ARG_FLAG, &parser->json, 0, 0},
        {"output", "FILE", output_doc, PLAN_ARG_OUTPUT, &parser->output, 0, 0},
    };
    plan_parser_add(parser, args, output_doc != NULL ? 3 : 2);
    if (output_doc != NULL) {
        parser->options[parser->count - 1].key = 'o';
    }
}

void plan_parser_add_timeline(plan_parser *parser, const char **svg, const char **chrome)
{
    const plan_arg args[] = {
        {"svg", "FILE", "Draw the timeline", PLAN_ARG_OUTPUT, svg, 0, 0},
        {"chrome", "FILE", "Write the timeline as a Chrome trace for Perfetto", PLAN_ARG_OUTPUT, chrome, 0,
         0},
    };
    plan_parser_add(parser, args, 2);
}

static void set_number(struct argp_state *state, const plan_arg *a, const char *text)
{
    if (gw_cli_parse_double(text, a->min, a->max, a->target) != 0) {
        argp_error(state, "--%s: \"%s\" is not a number in %g..%g", a->name, text, a->min, a->max);
    }
}

static void set_whole(struct argp_state *state, const plan_arg *a, const char *text)
{
    uint64_t value = 0;
    if (gw_cli_parse_u64(text, (uint64_t)a->min, (uint64_t)a->max, &value) != 0) {
        argp_error(state, "--%s: \"%s\" is not a whole number in %.0f..%.0f", a->name, text, a->min, a->max);
    }
    *(int64_t *)a->target = (int64_t)value;
}

static void add_text(struct argp_state *state, const plan_arg *a, const char *text)
{
    plan_text_list *list = a->target;
    if (list->count == PLAN_LIST_MAX) {
        argp_error(state, "more than %d times --%s", PLAN_LIST_MAX, a->name);
    }
    list->items[list->count++] = text;
}

static error_t parse_key(int key, char *text, struct argp_state *state)
{
    plan_parser *parser = state->input;
    if (key == ARGP_KEY_ARG) {
        if (parser->file_count == PLAN_FILES_MAX) {
            argp_error(state, "more than %d files", PLAN_FILES_MAX);
        }
        parser->files[parser->file_count++] = text;
        return 0;
    }
    for (int i = 0; i < parser->count; i++) {
        const plan_arg *a = &parser->args[i];
        if (parser->options[i].key != key || a->name == NULL) {
            continue;
        }
        switch (a->type) {
        case PLAN_ARG_FLAG:
            *(int *)a->target = 1;
            break;
        case PLAN_ARG_TEXT:
        case PLAN_ARG_INPUT:
            *(const char **)a->target = text;
            break;
        case PLAN_ARG_OUTPUT:
            *(const char **)a->target = gw_cli_output_name(text);
            break;
        case PLAN_ARG_LIST:
            add_text(state, a, text);
            break;
        case PLAN_ARG_NUMBER:
            set_number(state, a, text);
            break;
        case PLAN_ARG_WHOLE:
            set_whole(state, a, text);
            break;
        case PLAN_ARG_SIZE:
            if (gw_cli_parse_size(text, a->target) != 0) {
                argp_error(state, "--%s: '%s' is not a size such as 500M or 2G", a->name, text);
            }
            break;
        }
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* What an option names as a file; NULL: none. */
static const char *arg_file(const plan_arg *a, int i)
{
    if (a->type == PLAN_ARG_LIST) {
        const plan_text_list *list = a->target;
        return i < list->count ? list->items[i] : NULL;
    }
    return i == 0 && (a->type == PLAN_ARG_INPUT || a->type == PLAN_ARG_OUTPUT) ? *(const char **)a->target
                                                                               : NULL;
}

static int check_output(const plan_parser *parser, int index)
{
    const char *output = arg_file(&parser->args[index], 0);
    int code = GW_CLI_OK;
    for (int i = 0; output != NULL && i < parser->file_count && code == GW_CLI_OK; i++) {
        code = gw_cli_check_output(output, parser->files[i]);
    }
    for (int i = 0; output != NULL && i < parser->count && code == GW_CLI_OK; i++) {
        const char *other;
        for (int j = 0; code == GW_CLI_OK && (other = arg_file(&parser->args[i], j)) != NULL; j++) {
            if (parser->args[i].type != PLAN_ARG_OUTPUT) {
                code = gw_cli_check_output(output, other);
            } else if (i < index && gw_atomic_file_is_same(output, other)) {
                code = gw_cli_error(GW_CLI_USAGE, output, "is named twice as an output");
            }
        }
    }
    return code;
}

int plan_parser_run(plan_parser *parser, int argc, char **argv, const plan_parser_files *files)
{
    char name[64];
    (void)snprintf(name, sizeof name, "gradwire plan %s", parser->name);
    const struct argp argp = {parser->options, parse_key, parser->files_doc, parser->doc, NULL, NULL, NULL};
    char *saved = argv[0];
    argv[0] = name;
    gw_cli_parse(&argp, argc, argv, 0, parser);
    argv[0] = saved;
    int code = parser->file_count >= files->min && parser->file_count <= files->max
                   ? GW_CLI_OK
                   : gw_cli_error(GW_CLI_USAGE, NULL, "plan %s takes %s", parser->name, files->takes);
    for (int i = 0; i < parser->count && code == GW_CLI_OK; i++) {
        code = parser->args[i].type == PLAN_ARG_OUTPUT ? check_output(parser, i) : code;
    }
    return code;
}

void plan_baseline_args_add(plan_parser *parser, plan_baseline_args *args, int with_algorithm)
{
    const plan_arg list[] = {
        {"method", "NAME", "Codec that baselines but ddp use for every group (default: the last)",
         PLAN_ARG_TEXT, &args->method, 0, 0},
        {"algorithm", "NAME",
         "auto, labels, fuse-affine, brute, ddp (in float32), ddp-buckets, horovod, cupcake, ... (plan "
         "compare shows all)",
         PLAN_ARG_TEXT, &args->algorithm, 0, 0},
    };
    plan_parser_add(parser, list, with_algorithm ? 2 : 1);
}

void plan_limit_args_add(plan_parser *parser, plan_limit_args *args)
{
    *args = (plan_limit_args){-1, -1, -1, -1};
    const plan_arg list[] = {
        {NULL, NULL, "Limits of the search", PLAN_ARG_FLAG, NULL, 0, 0},
        {"time-limit-ms", "MS", "Stop with a certified gap (default 1000, sweep 200; 0: none)",
         PLAN_ARG_NUMBER, &args->time_limit_ms, 0, 1e9},
        {"gap", "PERCENT", "Stop when the gap is proven to be at most this", PLAN_ARG_NUMBER, &args->gap, 0,
         100},
        {"label-cap", "N", "Labels kept per tensor", PLAN_ARG_WHOLE, &args->label_cap, 1, 1 << 20},
        {"work-limit", "N", "Most label extensions: a limit that does not depend on the clock",
         PLAN_ARG_WHOLE, &args->work_max, 1, 0x1p60},
    };
    plan_parser_add(parser, list, sizeof list / sizeof list[0]);
}

static int64_t monotonic_us(void *context)
{
    (void)context;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

gw_plan_limits plan_limits(const plan_limit_args *args, double default_ms)
{
    gw_plan_limits limits;
    memset(&limits, 0, sizeof limits);
    double ms = args->time_limit_ms >= 0 ? args->time_limit_ms : default_ms;
    if (ms > 0) {
        limits.clock = monotonic_us;
        limits.clock_max = (int64_t)ceil(ms * 1000.0); /* 0 would mean no limit */
    }
    limits.work_max = args->work_max > 0 ? (uint64_t)args->work_max : 0;
    limits.label_cap = args->label_cap > 0 ? (uint32_t)args->label_cap : 0;
    limits.gap_ppm = args->gap > 0 ? (uint32_t)lround(args->gap * 1e4) : 0;
    return limits;
}
