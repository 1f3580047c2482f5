/*
 * plan options: ByteComp's decision tree.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <string.h>

#include "cli_common.h"
#include "plan_options.h"

static void parse_filter(struct argp_state *state, const gw_option *option, const char *list, void *member)
{
    static const char *const names[4] = {"gpu", "dense", "scatter", "one-device"};
    uint32_t filter = 0;
    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        int known = 0;
        for (int i = 0; i < 4; i++) {
            if (strlen(names[i]) == length && memcmp(names[i], list, length) == 0) {
                filter |= 1u << i;
                known = 1;
            }
        }
        if (!known) {
            argp_error(state, "--%s takes gpu, dense, scatter and one-device", option->name);
        }
        list += length + (list[length] == ',');
    }
    memcpy(member, &filter, sizeof filter);
}

typedef struct option_list {
    gw_plan_option options[GW_PLAN_OPTION_COUNT];
    uint32_t count;
    uint32_t histogram[GW_PLAN_OPTION_OPS_MAX + 1]; /* by compressions */
    uint32_t most;                                  /* compressions */
} option_list;

static int print_json(const plan_request *a, const option_list *l)
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

static int print_text(const plan_request *a, const option_list *l)
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
    return GW_CLI_OK;
}

static int list_options(const plan_request *a)
{
    static option_list l;
    const uint32_t comp_max = a->of_case.comp_max >= 0 ? (uint32_t)a->of_case.comp_max : UINT32_MAX;
    const gw_status status =
        gw_plan_options_list(a->option_filter, comp_max, l.options, GW_PLAN_OPTION_COUNT, &l.count);
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "options: %s", gw_status_message(status));
    }
    for (uint32_t o = 0; o < l.count; o++) {
        l.histogram[l.options[o].comp_count]++;
        l.most = l.options[o].comp_count > l.most ? l.options[o].comp_count : l.most;
    }
    return a->common.json ? print_json(a, &l) : print_text(a, &l);
}

static const gw_option options[] = {
    {"only", "LIST", "gpu, dense, scatter, one-device", GW_OTHER(plan_request, option_filter, parse_filter)},
    PLAN_COMP_MAX_ROW("Most compressions in one option"),
    {"count", NULL, "Print the bare number", GW_FLAG(plan_request, count_only)},
    {"histogram", NULL, "Count by number of compressions", GW_FLAG(plan_request, histogram)},
    PLAN_JSON_ROW,
    {0},
};

const plan_verb plan_verb_options = {
    .name = "options",
    .summary = "ByteComp's 4341 options",
    .run = list_options,
    .line = {.usage = "", .help = "Lists ByteComp's 4341 options.", .own = {.options = options}},
};
