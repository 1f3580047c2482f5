/*
 * gradwire table: optimal quantization tables; gradwire thc-plan: recommended parameters.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <string.h>

#include "cmd_thc.h"
#include "thc_options.h"

typedef struct table_arguments {
    unsigned bits;
    unsigned granularity;
    double p;
    uint32_t workers;
    unsigned lane_bits;
    int error_feedback;
    int json;
} table_arguments;

enum { KEY_GRANULARITY = 0x400, KEY_P, KEY_JSON, KEY_LANE, KEY_EF };

static unsigned number(const char *text, uint64_t min, uint64_t max, const char *name,
                       struct argp_state *state)
{
    uint64_t value = 0;

    if (gw_cli_parse_u64(text, min, max, &value) != 0) {
        argp_error(state, "--%s: '%s' is not a number from %llu to %llu", name, text, (unsigned long long)min,
                   (unsigned long long)max);
    }
    return (unsigned)value;
}

static error_t table_parse(int key, char *text, struct argp_state *state)
{
    table_arguments *a = state->input;

    switch (key) {
    case 'b':
        a->bits = number(text, 1, GW_THC_BITS_MAX, "bits", state);
        break;
    case 'n':
        a->workers = number(text, 1, GW_THC_WORKERS_MAX, "workers", state);
        break;
    case KEY_GRANULARITY:
        a->granularity = number(text, 1, GW_THC_GRANULARITY_MAX, "granularity", state);
        break;
    case KEY_P:
        if (thc_parse_p(text, &a->p) != 0) {
            argp_error(state, "--p: '%s' is not a share such as 1/32", text);
        }
        break;
    case KEY_LANE:
        a->lane_bits = number(text, 8, 32, "lane", state);
        break;
    case KEY_EF:
        a->error_feedback = 1;
        break;
    case KEY_JSON:
        a->json = 1;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected '%s'", text);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static json_t *values_json(const gw_thc_table *table)
{
    json_t *list = json_array();

    for (unsigned z = 0; z < 1u << table->bits; z++) {
        json_array_append_new(list, json_integer(table->value[z]));
    }
    return list;
}

static void print_values(const gw_thc_table *table)
{
    for (unsigned z = 0; z < 1u << table->bits; z++) {
        printf("%s%u", z > 0 ? " " : "", table->value[z]);
    }
    printf("\n");
}

int gw_cmd_table(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"bits", 'b', "B", 0, "Bits per index, 1 to 4", 0},
        {"granularity", KEY_GRANULARITY, "G", 0, "Grid steps, 2^B-1 to 255", 0},
        {"p", KEY_P, "P", 0, "Share of values clamped, such as 1/32", 0},
        {"json", KEY_JSON, NULL, 0, "Report as JSON", 0},
        {0},
    };
    static const struct argp argp = {
        options, table_parse,
        "",      "The quantization table of least variance for a standard normal variable.",
        NULL,    NULL,
        NULL,
    };
    table_arguments a = {0};
    gw_thc_table table;
    gw_thc_table_cost cost;

    gw_cli_parse(&argp, argc, argv, 0, &a);
    if (a.bits == 0 || a.granularity == 0 || a.p == 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "table needs --bits, --granularity and --p");
    }
    gw_status status = gw_thc_table_solve(a.bits, a.granularity, a.p, &table, &cost, thc_workspace());
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no table of %u bits, granularity %u, p %g: %s", a.bits,
                            a.granularity, a.p, gw_status_message(status));
    }
    if (a.json) {
        json_t *o = json_object();
        json_object_set_new(o, "bits", json_integer(a.bits));
        json_object_set_new(o, "granularity", json_integer(a.granularity));
        json_object_set_new(o, "p", json_real(a.p));
        json_object_set_new(o, "table", values_json(&table));
        json_object_set_new(o, "cost", json_real(cost.quantization));
        json_object_set_new(o, "truncation", json_real(cost.truncation));
        json_object_set_new(o, "total", json_real(cost.total));
        json_object_set_new(o, "threshold", json_real(cost.threshold));
        return gw_cli_json_print(o);
    }
    print_values(&table);
    printf("cost %.10f  truncation %.10f  total %.10f  threshold %.7f\n", cost.quantization, cost.truncation,
           cost.total, cost.threshold);
    return GW_CLI_OK;
}

int gw_cmd_thc_plan(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"bits", 'b', "B", 0, "Bits per index, 1 to 4 (default 4)", 0},
        {"workers", 'n', "N", 0, "Workers of the job", 0},
        {"lane", KEY_LANE, "W", 0, "Lane width of sums: 8, 16 or 32 (default: by workers)", 0},
        {"ef", KEY_EF, NULL, 0, "With error feedback", 0},
        {"json", KEY_JSON, NULL, 0, "Report as JSON", 0},
        {0},
    };
    static const struct argp argp = {
        options, table_parse, "",   "Recommended THC parameters, with the error and the bytes to expect.",
        NULL,    NULL,        NULL,
    };
    table_arguments a = {.bits = 4};
    gw_thc_plan plan;

    gw_cli_parse(&argp, argc, argv, 0, &a);
    if (a.workers == 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "thc-plan needs --workers");
    }
    const gw_thc_goal goal = {a.bits, a.workers, a.lane_bits, a.error_feedback};
    gw_status status = gw_thc_plan_make(&plan, &goal, thc_workspace());
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no plan for %u workers, %u bits, lanes of %u bits: %s",
                            a.workers, a.bits, a.lane_bits, gw_status_message(status));
    }
    const gw_thc_options *o = &plan.options;
    double both = plan.up_bits + plan.down_bits;
    if (a.json) {
        json_t *object = json_object();
        json_object_set_new(object, "workers", json_integer(a.workers));
        json_object_set_new(object, "bits", json_integer(a.bits));
        json_object_set_new(object, "error_feedback", json_boolean(a.error_feedback));
        json_object_set_new(object, "granularity", json_integer(o->table.granularity));
        json_object_set_new(object, "p", json_real(plan.p));
        json_object_set_new(object, "threshold", json_real(plan.cost.threshold));
        json_object_set_new(object, "lane_bits", json_integer(o->lane_bits));
        json_object_set_new(object, "block", json_integer(1 << o->block_log2));
        json_object_set_new(object, "table", values_json(&o->table));
        json_object_set_new(object, "error_one_worker", json_real(plan.error_one));
        json_object_set_new(object, "error_mean", json_real(plan.error_mean));
        json_object_set_new(object, "up_bits", json_real(plan.up_bits));
        json_object_set_new(object, "down_bits", json_real(plan.down_bits));
        json_object_set_new(object, "up_rate_fp32", json_real(plan.up_bits / 32));
        json_object_set_new(object, "down_rate_fp32", json_real(plan.down_bits / 32));
        json_object_set_new(object, "round_trip_rate_fp32", json_real(both / 64));
        json_object_set_new(object, "round_trip_rate_bf16", json_real(both / 32));
        return gw_cli_json_print(object);
    }
    printf("%u workers, %u bits%s\n", a.workers, a.bits, a.error_feedback ? ", error feedback" : "");
    printf("  granularity %u, p %g (threshold %.6f), lanes of %u bits, blocks of %u\n  table ",
           o->table.granularity, plan.p, plan.cost.threshold, o->lane_bits, 1u << o->block_log2);
    print_values(&o->table);
    printf("  normalised squared error: %.5f of one worker, %.5f of the mean of %u equal gradients\n",
           plan.error_one, plan.error_mean, a.workers);
    printf("  bits a value: %.3f up, %.3f down; round trip %.1f %% of fp32, %.1f %% of bf16\n", plan.up_bits,
           plan.down_bits, 100 * both / 64, 100 * both / 32);
    return GW_CLI_OK;
}
