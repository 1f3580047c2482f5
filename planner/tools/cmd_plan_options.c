/*
 * plan options: ByteComp's decision tree.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_args.h"
#include "plan_commands.h"

typedef struct options_args {
    plan_parser parser;
    int count_only, histogram;
    const char *filter;
    int64_t comp_max;
} options_args;

static int parse(options_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    a->comp_max = -1;
    plan_parser_open(&a->parser, "options", "", "Lists ByteComp's 4341 options.");
    const plan_arg list[] = {
        {"only", "LIST", "gpu, dense, scatter, one-device", PLAN_ARG_TEXT, &a->filter, 0, 0},
        {"comp-max", "N", "Most compressions in one option", PLAN_ARG_WHOLE, &a->comp_max, 0, 12},
        {"count", NULL, "Print the bare number", PLAN_ARG_FLAG, &a->count_only, 0, 0},
        {"histogram", NULL, "Count by number of compressions", PLAN_ARG_FLAG, &a->histogram, 0, 0},
    };
    plan_parser_add(&a->parser, list, sizeof list / sizeof list[0]);
    plan_parser_add_output(&a->parser, NULL);
    return plan_parser_run(&a->parser, argc, argv, &(const plan_parser_files){0, 0, "no file"});
}

static int parse_filter(const char *list, uint32_t *filter)
{
    static const char *const names[4] = {"gpu", "dense", "scatter", "one-device"};
    *filter = 0;
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ",");
        int known = 0;
        for (int i = 0; i < 4; i++) {
            if (strlen(names[i]) == length && memcmp(names[i], list, length) == 0) {
                *filter |= 1u << i;
                known = 1;
            }
        }
        if (!known) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--only takes gpu, dense, scatter and one-device");
        }
        list += length + (list[length] == ',');
    }
    return GW_CLI_OK;
}

typedef struct option_list {
    gw_plan_option *options;
    uint32_t count;
    uint32_t histogram[GW_PLAN_OPTION_OPS_MAX + 1]; /* by compressions */
    uint32_t most;                                  /* compressions */
} option_list;

static int print_json(const options_args *a, const option_list *l)
{
    json_t *bins = json_array();
    for (uint32_t h = 0; h <= l->most; h++) {
        json_array_append_new(bins, json_integer(l->histogram[h]));
    }
    json_t *root = json_pack("{s:I,s:o}", "count", (json_int_t)l->count, "by_compressions", bins);
    if (!a->count_only && !a->histogram) {
        json_t *paths = json_array();
        for (uint32_t o = 0; o < l->count; o++) {
            json_t *path = json_array();
            for (uint32_t i = 0; i < l->options[o].op_count; i++) {
                const gw_plan_op op = (gw_plan_op)l->options[o].ops[i];
                json_array_append_new(path, json_string(gw_plan_op_name(op)));
            }
            json_array_append_new(paths, path);
        }
        json_object_set_new(root, "options", paths);
    }
    return gw_cli_json_print(root);
}

static void print_text(const options_args *a, const option_list *l)
{
    if (a->count_only) {
        printf("%u\n", l->count);
    } else if (a->histogram) {
        printf("compressions options\n");
        for (uint32_t h = 0; h <= l->most; h++) {
            printf("%12u %7u\n", h, l->histogram[h]);
        }
    } else {
        for (uint32_t o = 0; o < l->count; o++) {
            for (uint32_t i = 0; i < l->options[o].op_count; i++) {
                printf("%s%s", i > 0 ? " > " : "", gw_plan_op_name((gw_plan_op)l->options[o].ops[i]));
            }
            printf("\n");
        }
    }
}

int plan_cmd_options(int argc, char **argv)
{
    options_args a;
    uint32_t filter = 0;
    int code = parse(&a, argc, argv);
    code = code == GW_CLI_OK ? parse_filter(a.filter, &filter) : code;
    if (code != GW_CLI_OK) {
        return code;
    }
    const uint32_t comp_max = a.comp_max >= 0 ? (uint32_t)a.comp_max : UINT32_MAX;
    option_list l;
    memset(&l, 0, sizeof l);
    l.options = calloc(GW_PLAN_OPTION_COUNT, sizeof *l.options);
    if (l.options == NULL ||
        gw_plan_options_list(filter, comp_max, l.options, GW_PLAN_OPTION_COUNT, &l.count) != GW_OK) {
        free(l.options);
        return gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    }
    for (uint32_t o = 0; o < l.count; o++) {
        l.histogram[l.options[o].comp_count]++;
        l.most = l.options[o].comp_count > l.most ? l.options[o].comp_count : l.most;
    }
    if (a.parser.json) {
        code = print_json(&a, &l);
    } else {
        print_text(&a, &l);
    }
    free(l.options);
    return code;
}
